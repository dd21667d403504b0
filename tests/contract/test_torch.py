"""What is PyTorch's own risk: a step that is recorded once and replayed, a setting that nobody heeds."""

from __future__ import annotations

import functools
import importlib
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from toys import RecordingMeter, noise, save_photo, toy

from scenarios import catalog
from scenarios.adapter import Adapter, Arrays, Options, Photos
from scenarios.measuring.ceilings import Precision
from scenarios.spec import Adadelta, Adam, Augment, Conv, Dense, Flatten, Layer, MaxPool, Optimizer, Sgd
from scenarios.weights import check_weights

CAPTURE = "scenarios.frameworks.torch.capture"


@pytest.fixture
def capture(adapter: Adapter) -> ModuleType:
    if adapter.name != "torch":
        pytest.skip("another adapter is under test")
    return importlib.import_module(CAPTURE)


def played_back(work: Any) -> Any:
    """Stands for a CUDA graph: works on the same tensors in each call, and fills the same ones."""
    for _ in range(3):
        outputs = tuple(tensor.clone() for tensor in work())

    def replay() -> None:
        for kept, new in zip(outputs, work(), strict=True):
            kept.copy_(new)

    return replay, outputs


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [(Sgd(0.1), {}), (Adam(), {}), (Adam(), {"optimizer": "fused"}), (Adadelta(), {})],
)
def test_recording_a_step_leaves_no_trace_in_weights_or_optimizer(
    capture: ModuleType, adapters: type[Adapter], options: Options, optimizer: Optimizer, settings: dict[str, str]
) -> None:
    """Recorded in the middle of training, too, when the optimizer has a past; and one step beside another."""
    torch, feeds = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.feeds")
    scenario = toy((Flatten(), Dense(8)), optimizer=optimizer)
    model, plain = (
        adapters(replace(options, lane="tuned", settings=each)).build(scenario, check_weights(scenario, seed=0))
        for each in (settings, {})
    )
    steps = {}
    for seed, size in enumerate((8, 8, 4, 8, 4)):
        images, labels = noise(scenario, size, seed)
        batch = feeds.nchw(images), torch.from_numpy(labels)
        if size not in steps:
            steps[size] = capture.CapturedStep(
                model._launched_step, model._net, model._optimizer, batch, record=played_back
            )
        loss, _ = steps[size](*batch)
        assert float(loss) == pytest.approx(plain.step(images, labels), rel=1e-5)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize("way", ["eager", "captured", "compiled", "onednn", "bf16"])
def test_updates_in_the_backward_pass_are_those_of_plain_sgd(
    adapters: type[Adapter], options: Options, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = toy((Flatten(), Dense(8)), optimizer=Sgd(0.1))
    settings = {"kernels": "stepped backward"}
    if way == "bf16":
        options = replace(options, precision="bf16")
    elif way != "captured":
        name = "dense" if way == "onednn" else "network"
        settings[name] = way
        if way not in adapters.axes(options, scenario)["training"][name]:
            pytest.skip("there is no compiler, or no oneDNN")
    weights, (images, labels) = check_weights(scenario, seed=0), noise(scenario, 20)
    model = adapters(replace(options, lane="tuned", settings=settings)).build(scenario, weights)
    if way == "captured":  # by what stands for a graph
        record = functools.partial(importlib.import_module(CAPTURE).CapturedStep, record=played_back)
        monkeypatch.setattr(importlib.import_module("scenarios.frameworks.torch.adapter"), "CapturedStep", record)
        model._captures = True
    plain = adapters(options).build(scenario, weights)
    for epoch in range(2):  # whole batches, and a short one
        for trained in (model, plain):
            trained.train_epoch(Arrays(images, labels), epoch, RecordingMeter())
        assert all(layer.weight.grad is None for layer in model._net if hasattr(layer, "weight"))
    for name, values in plain.weights().items():
        # in bf16 another order of summing up may round another way
        rtol, atol = (2e-2, 2e-3) if way == "bf16" else (1e-5, 1e-6)
        np.testing.assert_allclose(model.weights()[name], values, rtol, atol, err_msg=name)
    model._net.eval()
    before = model.weights()
    model._net(importlib.import_module("scenarios.frameworks.torch.feeds").nchw(images)).sum().backward()
    assert all(np.array_equal(values, before[name]) for name, values in model.weights().items())


def test_weights_that_are_loaded_begin_anew_in_the_memory_that_recorded_steps_write_to(
    capture: ModuleType, adapter: Adapter
) -> None:
    torch, feeds = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.feeds")
    scenario = toy((Flatten(), Dense(8)), optimizer=Adam())
    weights, (images, labels) = check_weights(scenario, seed=0), noise(scenario, 8)
    model, plain = (adapter.build(scenario, weights) for _ in range(2))
    batch = feeds.nchw(images), torch.from_numpy(labels)
    step = capture.CapturedStep(model._launched_step, model._net, model._optimizer, batch, record=played_back)
    model._captured[8] = step
    step(*batch)
    optimizer = model._optimizer
    model.load(weights)
    assert model._optimizer is optimizer
    for _ in range(2):
        loss, _ = step(*batch)
        assert float(loss) == pytest.approx(plain.step(images, labels), rel=1e-5)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.usefixtures("capture")
def test_each_setting_of_the_network_changes_the_network() -> None:
    network, layers = (importlib.import_module(f"scenarios.frameworks.torch.{name}") for name in ("network", "layers"))
    scenario = catalog.load()["mnist-cnn-dropout"][""]

    def kinds(**settings: str) -> list[str]:
        return [type(module).__name__ for module in network.build_net(scenario, settings)]

    plain = [
        "Conv2d",
        "ReLU",
        "Conv2d",
        "ReLU",
        "MaxPool2d",
        "Dropout",
        "Flatten",
        "Linear",
        "ReLU",
        "Dropout",
        "Linear",
    ]
    assert kinds() == plain
    assert kinds(relu="after pooling") == [*plain[:3], "MaxPool2d", "ReLU", *plain[5:]]
    others = {"Dropout": layers.ByteDropout, "Flatten": layers.ChannelsLastFlatten, "Linear": layers.TunedLinear}
    found = kinds(dropout="bytes", layout="nhwc", dense="onednn")
    assert found == [others[kind].__name__ if kind in others else kind for kind in plain]
    assert kinds(layout="blocked") == ["Blocked", *plain[5:]]
    assert kinds(layout="blocked", relu="after pooling") == ["Blocked", "ReLU", *plain[5:]]
    for dense, product in (
        ("linear", importlib.import_module("torch").nn.functional.linear),
        ("onednn", layers.onednn_product),
    ):
        stepped = network.build_net(catalog.load()["cifar-mlp"][""], {"kernels": "stepped backward", "dense": dense})
        found = [(m.product, m.learning_rate) for m in stepped if isinstance(m, layers.TunedLinear)]
        assert found == [(product, 0.01)] * 3
    rectified = [module for module in network.build_net(scenario, {"relu": "in place"}) if "ReLU" in repr(module)]
    assert [module.inplace for module in rectified] == [True] * 3


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
@pytest.mark.usefixtures("capture")
def test_each_setting_of_the_process_is_what_runs(
    adapters: type[Adapter], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, used = (importlib.import_module(name) for name in ("torch", "scenarios.frameworks.torch.settings"))
    scenario = toy((Flatten(), Dense(8)), optimizer=Adam())
    chosen = []
    monkeypatch.setattr(used, "for_inference", lambda net, example, how, options: chosen.append(how) or net)
    monkeypatch.setattr(torch, "compile", lambda net, **named: net.forward)

    def trained(**settings: str) -> Any:
        model = adapters(replace(options, lane="tuned", settings=settings)).build(scenario, check_weights(scenario, 0))
        model.step(*noise(scenario, 8))
        return model

    own = trained().placement().training
    assert own == "eager loop, torch.optim.Adam"
    assert trained(optimizer="fused").placement().training == "eager loop, the kit's FusedAdam"
    foreach, loop = (trained(optimizer=name)._optimizer.defaults["foreach"] for name in ("foreach", "loop"))
    assert (foreach, loop) == (True, False)
    if "compiled" in used.offered(options, scenario)["training"]["network"]:
        assert trained(network="compiled").placement().training == own.replace("eager", "compiled")
    if options.device == "cpu":
        kept, flushed = (trained(denormals=name).placement().denormals for name in ("kept", "flushed"))
        torch.set_flush_denormal(False)
        assert (kept, flushed) == ("kept", "flushed")
    model = trained(latency="frozen")
    for batch in (1, 8):
        model.predictor(batch)
    trained(throughput="frozen").predictor(8)
    assert chosen == ["frozen"] * 2


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize("relu", ["apart", "after pooling", "in place"])
@pytest.mark.parametrize("layers", [(Conv(16), MaxPool(), Conv(16), Conv(16)), (Conv(16), Conv(16), MaxPool())])
@pytest.mark.parametrize(("precision", "near"), [("fp32", 1e-5), ("bf16", 0.1)])
def test_blocked_layers_train_as_others_do(
    adapters: type[Adapter], options: Options, layers: tuple[Layer, ...], relu: str, precision: Precision, near: float
) -> None:
    scenario = toy((*layers, Flatten(), Dense(4)), image=(13, 13, 1), optimizer=Sgd(0.1))
    if options.device != "cpu":
        pytest.skip("oneDNN computes on the CPU")
    if not importlib.import_module("scenarios.frameworks.torch.layers").Blocked.offered(precision):
        pytest.skip("oneDNN does not have it here")
    found, start = {}, check_weights(scenario, 0)
    for layout in ("nchw", "blocked"):
        how = replace(options, lane="tuned", settings={"layout": layout, "relu": relu}, precision=precision)
        model = adapters(how).build(scenario, start)
        losses = [model.step(*noise(scenario, 8)) for _ in range(3)]
        logits = model.logits(noise(scenario, 5)[0])
        found[layout] = losses, logits, model.weights()
        assert model.placement().layout == {"nchw": "NCHW", "blocked": "blocked by oneDNN"}[layout]
    (losses, logits, weights), (others, other_logits, other_weights) = found.values()
    pairs = {"losses": (others, losses), "logits": (other_logits, logits)}
    pairs.update({name: (other_weights[name] - start[name], weights[name] - start[name]) for name in start})
    for name, (other, expected) in pairs.items():
        np.testing.assert_allclose(other, expected, rtol=0, atol=near * np.abs(expected).max(), err_msg=name)


@pytest.mark.usefixtures("capture")
def test_a_compiled_net_keeps_to_layouts_that_the_compiler_knows() -> None:
    torch, made = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.layers")
    layers = made.Blocked(torch.nn.Conv2d(1, 4, 3), torch.nn.MaxPool2d(2))
    images = torch.rand(2, 1, 9, 9)
    compiled = torch.compile(layers, backend="eager", fullgraph=True)(images)
    assert not layers.ran
    torch.testing.assert_close(layers(images), compiled)
    assert layers.ran


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize("augment", [None, Augment(shear=20.0, zoom=0.3, flip=True)])
def test_photos_augmented_on_the_device_are_those_augmented_by_the_loader(
    options: Options, tmp_path: Path, augment: Augment | None
) -> None:
    torch, feeds = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.feeds")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 24, 32, 3), dtype=np.uint8)
    paths = [save_photo(tmp_path / f"{index}.jpg", photo) for index, photo in enumerate(pixels)]
    photos = Photos(paths, np.arange(5) % 2, (24, 32), augment)
    for seed, last in ((0, False), (1, True)):
        loaded = feeds.CachedFeed(photos, 2, 1, channels_last=last)
        resident = feeds.ResidentPhotos(photos, 2, 1, torch.device(options.device), channels_last=last)
        batches = list(zip(resident.batches(seed), loaded.batches(seed), strict=True))
        assert [len(labels) for (_, labels), _ in batches] == [2, 2, 1]
        for (images, labels), (expected, classes) in batches:
            assert torch.equal(labels.cpu(), classes)
            layout = torch.channels_last if last else torch.contiguous_format
            assert all(fed.is_contiguous(memory_format=layout) for fed in (images, expected))
            assert float((images.cpu() - expected).abs().max()) < 0.51 / 255  # the loader rounds to bytes


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize(
    ("feed", "words"), [("cached", "loader over decoded"), ("resident", "augmented on the device")]
)
def test_a_feed_that_is_set_is_the_one_that_feeds(
    adapters: type[Adapter], options: Options, tmp_path: Path, feed: str, words: str
) -> None:
    scenario = toy(image=(16, 16, 3), dataset="cats-dogs")
    paths = [save_photo(tmp_path / f"{index}.jpg", np.full((16, 16, 3), index, np.uint8)) for index in range(9)]
    photos = Photos(paths, np.arange(9) % 2, (16, 16), Augment(shear=20.0, zoom=0.3, flip=True))
    model = adapters(replace(options, lane="tuned", settings={"feed": feed})).build(
        scenario, check_weights(scenario, 0)
    )
    assert model.train_epoch(photos, 0, RecordingMeter()).images == 9
    assert words in model.placement().loader


@pytest.mark.usefixtures("capture")
def test_a_dense_layer_takes_its_product_both_ways() -> None:
    torch, layers = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.layers")
    taken = []

    def recording(x: Any, kernel: Any, bias: Any) -> Any:
        taken.append(tuple(kernel.shape))
        return torch.nn.functional.linear(x, kernel, bias)

    layer = layers.TunedLinear(3, 2, recording, None)
    layer(torch.ones(4, 3, requires_grad=True)).sum().backward()
    assert taken == [(2, 3), (3, 2)]
    layer.eval()(torch.ones(4, 3))
    assert len(taken) == 2


@pytest.mark.usefixtures("capture")
def test_fused_adam_is_adam() -> None:
    """In each step that of PyTorch's, and with the moments of each parameter its own."""
    torch, network = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.network")
    torch.manual_seed(0)
    nets = [torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [network.build_optimizer(Adam(), net, how) for net, how in zip(nets, ("fused", "loop"), strict=True)]
    assert [type(optimizer).__name__ for optimizer in optimizers] == ["FusedAdam", "Adam"]
    for step in range(4):
        x = torch.randn(6, 5) * 10**step
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        for name, values in nets[1].state_dict().items():
            torch.testing.assert_close(nets[0].state_dict()[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_dropout_by_bytes_zeroes_its_share_and_scales_the_rest(rate: float) -> None:
    torch, layers = importlib.import_module("torch"), importlib.import_module("scenarios.frameworks.torch.layers")
    x = torch.full((64, 8, 9, 25), 3.0).to(memory_format=torch.channels_last)
    dropout = layers.ByteDropout(rate)
    torch.manual_seed(0)
    dropped = dropout(x)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], torch.full_like(dropped[kept], 3.0 / (1 - rate)))
    spread = (rate * (1 - rate) / x.numel()) ** 0.5
    assert float(kept.double().mean()) == pytest.approx(1 - rate, abs=4 * spread)
    for axis in range(4):  # each place has its own byte
        others = [other for other in range(4) if other != axis]
        shares = kept.double().mean(others)
        assert float(shares.std()) == pytest.approx(spread * len(shares) ** 0.5, rel=1)
    assert torch.equal(dropout.eval()(x), x)


@pytest.mark.usefixtures("capture")
def test_what_a_profile_does_again_is_what_was_named_on_the_same_tensors() -> None:
    profiler = importlib.import_module("benchmarks.torch_profile")  # imports PyTorch
    numbers = profiler.torch.zeros(3)
    with profiler.Replay({"aten::add_"}) as added, profiler.Replay({"aten::div_"}) as divided:
        numbers.add_(2).mul_(3)
    assert not divided.calls
    added.again(2)
    assert numbers.tolist() == [10, 10, 10]
