"""Test what only PyTorch's adapter has: captured steps, tuned layers, and whether each setting takes effect."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from toys import RecordingMeter, noise, record_without_graph, torch_module, toy

from scenarios import catalog
from scenarios.adapter import Adapter, Arrays, Images, Labels, Options
from scenarios.measuring.ceilings import Precision
from scenarios.spec import Adadelta, Adam, Conv, Dense, Flatten, Layer, MaxPool, Optimizer, Sgd
from scenarios.weights import check_weights


def move_batch(model: Any, images: Images, labels: Labels) -> tuple[Any, Any]:
    """Return the batch as tensors on the model's device."""
    module = torch_module("model")
    return model._to_device(module.to_nchw(images)), module.to_labels(labels).to(model._device)


@pytest.fixture
def capture(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], Any]:
    """Capture steps on any device, also of a model whose own settings do not."""
    module = torch_module("capture")
    monkeypatch.setattr(module, "record_graph", record_without_graph)
    return lambda model, batch: module.CapturedStep(model._train_step, model._net, model._optimizer, batch)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [(Sgd(0.1), {}), (Adam(), {}), (Adam(), {"optimizer": "fused"}), (Adadelta(), {})],
)
def test_recording_a_step_changes_neither_weights_nor_optimizer(
    capture: Callable[[Any, Any], Any],
    adapters: type[Adapter],
    each_device: Options,
    optimizer: Optimizer,
    settings: dict[str, str],
) -> None:
    """Test also the recording of a second step in the middle of training, when the optimizer has a state."""
    scenario = toy((Flatten(), Dense(8)), optimizer=optimizer)
    model, plain = (
        adapters(replace(each_device, lane="tuned", settings=each)).build(scenario, check_weights(scenario, seed=0))
        for each in (settings, {})
    )
    steps = {}
    for seed, size in enumerate((8, 8, 4, 8, 4)):
        images, labels = noise(scenario, size, seed)
        batch = move_batch(model, images, labels)
        if size not in steps:
            steps[size] = capture(model, batch)
        loss, _ = steps[size](*batch)
        assert float(loss) == pytest.approx(plain.step(images, labels), rel=1e-5)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.usefixtures("capture")
@pytest.mark.parametrize("variant", ["eager", "captured", "compiled", "onednn", "bf16"])
def test_updates_in_the_backward_pass_are_those_of_plain_sgd(
    adapters: type[Adapter], each_device: Options, variant: str
) -> None:
    if each_device.device == "meta" and variant in ("compiled", "bf16"):
        pytest.skip("the stand-in for a GPU has neither a compiler nor autocast")
    scenario = toy((Flatten(), Dense(8)), optimizer=Sgd(0.1))
    settings = {"kernels": "stepped backward"}
    options = replace(each_device, precision="bf16") if variant == "bf16" else each_device
    if variant not in ("bf16", "captured"):
        name = "dense" if variant == "onednn" else "network"
        settings[name] = variant
        if variant not in adapters.axes(options, scenario)["training"][name]:
            pytest.skip("there is no compiler or no oneDNN")
    weights, (images, labels) = check_weights(scenario, seed=0), noise(scenario, 20)
    model = adapters(replace(options, lane="tuned", settings=settings)).build(scenario, weights)
    if variant == "captured":
        model._captures = True
    plain = adapters(options).build(scenario, weights)
    for epoch in range(2):  # each has full batches and a short one
        for trained in (model, plain):
            trained.train_epoch(Arrays(images, labels), epoch, RecordingMeter())
        assert all(layer.weight.grad is None for layer in model._net if hasattr(layer, "weight"))
    assert bool(model._captured) == (variant == "captured")
    for name, values in plain.weights().items():
        # In bf16 another order of summation may round differently.
        rtol, atol = (2e-2, 2e-3) if variant == "bf16" else (1e-5, 1e-6)
        np.testing.assert_allclose(model.weights()[name], values, rtol, atol, err_msg=name)
    model._net.eval()
    before = model.weights()
    model._net(move_batch(model, images, labels)[0]).sum().backward()
    assert all(np.array_equal(values, before[name]) for name, values in model.weights().items())


def test_load_resets_the_optimizer_in_the_memory_of_captured_steps(
    capture: Callable[[Any, Any], Any], adapters: type[Adapter], each_device: Options
) -> None:
    scenario = toy((Flatten(), Dense(8)), optimizer=Adam())
    weights, (images, labels) = check_weights(scenario, seed=0), noise(scenario, 8)
    model, plain = (adapters(replace(each_device, lane="tuned")).build(scenario, weights) for _ in range(2))
    batch = move_batch(model, images, labels)
    step = capture(model, batch)
    model._recorded = True
    step(*batch)
    optimizer = model._optimizer
    model.load(weights)
    assert model._optimizer is optimizer
    for _ in range(2):
        loss, _ = step(*batch)
        assert float(loss) == pytest.approx(plain.step(images, labels), rel=1e-5)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.usefixtures("torch")
def test_each_setting_of_the_network_changes_the_network() -> None:
    model, layers = torch_module("model"), torch_module("layers")

    def tuned(name: str, **settings: str) -> Any:
        scenario = catalog.load()[name][""]
        return layers.tune_layers(model.build_layers(scenario), scenario.optimizer, settings)

    def kinds(**settings: str) -> list[str]:
        return [type(module).__name__ for module in tuned("mnist-cnn-dropout", **settings)]

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
    for dense, function in (("linear", layers.F.linear), ("onednn", layers.onednn_linear)):
        stepped = tuned("cifar-mlp", kernels="stepped backward", dense=dense)
        found = [(m.function, m.learning_rate) for m in stepped if isinstance(m, layers.TunedLinear)]
        assert found == [(function, 0.01)] * 3
    relus = [module for module in tuned("mnist-cnn-dropout", relu="in place") if "ReLU" in repr(module)]
    assert [module.inplace for module in relus] == [True] * 3


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
def test_each_setting_of_the_process_takes_effect(
    torch: ModuleType, adapters: type[Adapter], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = toy((Flatten(), Dense(8)), optimizer=Adam())
    chosen = []
    monkeypatch.setattr(
        torch_module("compilers"),
        "compile_for_inference",
        lambda net, example, name, options: chosen.append(name) or net,
    )
    monkeypatch.setattr(torch, "compile", lambda net, **named: net.forward)

    def trained(**settings: str) -> Any:
        model = adapters(replace(options, lane="tuned", settings=settings)).build(scenario, check_weights(scenario, 0))
        model.step(*noise(scenario, 8))
        return model

    stock = trained().placement().training
    assert stock == "eager loop, torch.optim.Adam"
    assert trained(optimizer="fused").placement().training == "eager loop, the kit's FusedAdam"
    foreach, loop = (trained(optimizer=name)._optimizer.defaults["foreach"] for name in ("foreach", "loop"))
    assert (foreach, loop) == (True, False)
    if "compiled" in adapters.axes(options, scenario)["training"]["network"]:
        assert trained(network="compiled").placement().training == stock.replace("eager", "compiled")
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
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("relu", ["apart", "after pooling", "in place"])
@pytest.mark.parametrize("layers", [(Conv(16), MaxPool(), Conv(16), Conv(16)), (Conv(16), Conv(16), MaxPool())])
@pytest.mark.parametrize(("precision", "error"), [("fp32", 1e-5), ("bf16", 0.1)])
def test_blocked_layers_train_as_plain_layers_do(
    adapters: type[Adapter],
    options: Options,
    layers: tuple[Layer, ...],
    relu: str,
    precision: Precision,
    error: float,
) -> None:
    scenario = toy((*layers, Flatten(), Dense(4)), image=(13, 13, 1), optimizer=Sgd(0.1))
    if options.device != "cpu":
        pytest.skip("oneDNN computes on the CPU")
    if not torch_module("layers").Blocked.offered(precision):
        pytest.skip("oneDNN has no blocked layouts of this precision here")
    found, start = {}, check_weights(scenario, 0)
    for layout in ("nchw", "blocked"):
        tuned = replace(options, lane="tuned", settings={"layout": layout, "relu": relu}, precision=precision)
        model = adapters(tuned).build(scenario, start)
        losses = [model.step(*noise(scenario, 8)) for _ in range(3)]
        logits = model.logits(noise(scenario, 5)[0])
        found[layout] = losses, logits, model.weights()
        assert model.placement().layout == {"nchw": "NCHW", "blocked": "blocked by oneDNN"}[layout]
    (losses, logits, weights), (others, other_logits, other_weights) = found.values()
    pairs = {"losses": (others, losses), "logits": (other_logits, logits)}
    pairs.update({name: (other_weights[name] - start[name], weights[name] - start[name]) for name in start})
    for name, (other, expected) in pairs.items():
        np.testing.assert_allclose(other, expected, rtol=0, atol=error * np.abs(expected).max(), err_msg=name)


def test_a_compiled_net_uses_no_blocked_layouts(torch: ModuleType) -> None:
    layers = torch_module("layers").Blocked(torch.nn.Conv2d(1, 4, 3), torch.nn.MaxPool2d(2))
    images = torch.rand(2, 1, 9, 9)
    compiled = torch.compile(layers, backend="eager", fullgraph=True)(images)
    assert not layers.ran
    torch.testing.assert_close(layers(images), compiled)
    assert layers.ran


@pytest.mark.parametrize("each_device", ["apart"], indirect=True)
@pytest.mark.parametrize("settings", [{}, {"feed": "resident", "layout": "nhwc", "optimizer": "fused"}])
def test_a_model_moves_all_that_it_computes_with(
    adapters: type[Adapter], options: Options, each_device: Options, settings: dict[str, str]
) -> None:
    scenario = toy((Conv(4), MaxPool(), Flatten(), Dense(8)), optimizer=Adam())
    weights, (images, labels) = check_weights(scenario, 0), noise(scenario, 20)
    moved, plain = (
        adapters(replace(each, lane="tuned", settings=chosen)).build(scenario, weights)
        for each, chosen in ((each_device, settings), (options, {}))
    )
    with pytest.raises(RuntimeError, match="same device"):
        moved._net(torch_module("model").to_nchw(images))
    for model in (moved, plain):
        model.step(images[:8], labels[:8])
        model.resident_steps(images[:5], labels[:5])(2)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(moved.weights()[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    assert moved.train_epoch(Arrays(images, labels), 0, RecordingMeter()).images == 20
    moved.load(plain.weights())
    assert moved.logits(images) == pytest.approx(plain.logits(images), abs=1e-5)
    assert moved.predictor(8)(images[:8]) == pytest.approx(plain.predictor(8)(images[:8]), abs=1e-5)


def test_a_dense_layer_uses_its_function_forward_and_backward(torch: ModuleType) -> None:
    shapes = []

    def recording(x: Any, kernel: Any, bias: Any) -> Any:
        shapes.append(tuple(kernel.shape))
        return torch.nn.functional.linear(x, kernel, bias)

    layer = torch_module("layers").TunedLinear(torch.nn.Linear(3, 2), recording, None)
    layer(torch.ones(4, 3, requires_grad=True)).sum().backward()
    assert shapes == [(2, 3), (3, 2)]
    layer.eval()(torch.ones(4, 3))
    assert len(shapes) == 2


def test_fused_adam_is_adam(torch: ModuleType) -> None:
    """Compare each step with PyTorch's Adam. Each parameter has its own moments."""
    build = torch_module("optimizers").build_tuned_optimizer
    torch.manual_seed(0)
    nets = [torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [build(Adam(), net, name, capturable=False) for net, name in zip(nets, ("fused", "loop"), strict=True)]
    assert [type(optimizer).__name__ for optimizer in optimizers] == ["FusedAdam", "Adam"]
    for step in range(4):
        x = torch.randn(6, 5) * 10**step
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        for name, values in nets[1].state_dict().items():
            torch.testing.assert_close(nets[0].state_dict()[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_dropout_by_bytes_zeroes_its_share_and_scales_the_rest(torch: ModuleType, rate: float) -> None:
    x = torch.full((64, 8, 9, 25), 3.0).to(memory_format=torch.channels_last)
    dropout = torch_module("layers").ByteDropout(rate)
    torch.manual_seed(0)
    dropped = dropout(x)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], torch.full_like(dropped[kept], 3.0 / (1 - rate)))
    spread = (rate * (1 - rate) / x.numel()) ** 0.5
    assert float(kept.double().mean()) == pytest.approx(1 - rate, abs=4 * spread)
    for axis in range(4):  # each value has its own byte
        others = [other for other in range(4) if other != axis]
        shares = kept.double().mean(others)
        assert float(shares.std()) == pytest.approx(spread * len(shares) ** 0.5, rel=1)
    assert torch.equal(dropout.eval()(x), x)


@pytest.mark.parametrize("kernels", ["stepped apart", "stepped backward"])
@pytest.mark.parametrize(
    "name", ["", "convolution.default", "convolution_backward.default", "addmm.default", "mm.default"]
)
def test_tf32_in_the_step_that_trains_is_found(
    torch: ModuleType, adapters: type[Adapter], options: Options, kernels: str, name: str
) -> None:
    """Round the operands of every call of this operator."""
    dispatch = importlib.import_module("torch.utils._python_dispatch")

    class Rounding(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, operator: Any, _: object, args: Any = (), kwargs: Any = None) -> Any:
            if str(operator) == f"aten.{name}":
                args = [self.to_tf32(each) if isinstance(each, torch.Tensor) else each for each in args]
            return operator(*args, **(kwargs or {}))

        @staticmethod
        def to_tf32(values: Any) -> Any:
            return (values.view(torch.int32) & ~0x1FFF).view(torch.float32)

    scenario = toy((Conv(4), Conv(4), Flatten(), Dense(8)))
    model = adapters(replace(options, lane="tuned", settings={"kernels": kernels})).build(
        scenario, check_weights(scenario, 0)
    )
    with Rounding():
        assert model._rounds_to_tf32() == bool(name)
