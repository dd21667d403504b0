"""Test what PyTorch's tuned lane has for GPUs: its feeds, captured epochs, and what is prepared before a clock runs.

Without a GPU, the captured work runs again on the same tensors at each replay, and a stand-in replaces the device.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from toys import RecordingMeter, noise, record_without_graph, save_photo, torch_module, toy

from scenarios.adapter import Adapter, Arrays, Options, Photos
from scenarios.spec import Adam, Augment, Conv, Dense, Dropout, Flatten, MaxPool, Scenario
from scenarios.weights import check_weights

AUGMENT = Augment(shear=20.0, zoom=0.3, flip=True)
NET = toy((Conv(4), MaxPool(), Dropout(0.5), Flatten(), Dense(8)), optimizer=Adam())


@pytest.fixture
def captured(
    adapters: type[Adapter], each_device: Options, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Scenario], Any]:
    """Build models whose steps over resident data are captured. They are CUDA graphs on a real GPU only."""
    on_gpu = each_device.device == "cuda"
    if not on_gpu:
        monkeypatch.setattr(torch_module("capture"), "record_graph", record_without_graph)

    def build(scenario: Scenario) -> Any:
        # Elsewhere the setting is not offered, or PyTorch refuses its optimizers for captured steps.
        model = resident(adapters, each_device, scenario, **({"step": "captured"} if on_gpu else {}))
        model._captures = True
        return model

    return build


def resident(adapters: type[Adapter], options: Options, scenario: Scenario, **settings: str) -> Any:
    """Build a model whose data stays on the device."""
    tuned = replace(options, lane="tuned", settings={"feed": "resident", **settings})
    return adapters(tuned).build(scenario, check_weights(scenario, 0))


def noisy_photos(folder: Path, count: int, augment: Augment | None) -> Photos:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 24, 32, 3), dtype=np.uint8)
    paths = [save_photo(folder / f"{index}.jpg", photo) for index, photo in enumerate(pixels)]
    return Photos(paths, np.arange(count) % 2, (24, 32), augment)


def assert_same_training(model: Any, plain: Any, train: Any, epoch: int, **windows: int) -> None:
    """Train an epoch with both models, and compare the calls of their meters, their sums and their weights."""
    meters = [RecordingMeter(**windows) for _ in range(2)]
    found, expected = (
        each.train_epoch(train, epoch, meter) for each, meter in zip((model, plain), meters, strict=True)
    )
    assert meters[0].events == meters[1].events
    assert (found.images, found.correct) == (expected.images, expected.correct)
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    for name, values in plain.weights().items():  # a GPU adds in no fixed order, and Adam amplifies small gradients
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("count", [44, 40, 5])
def test_a_captured_epoch_trains_as_the_same_steps_do_one_by_one(
    captured: Callable[[Scenario], Any], adapters: type[Adapter], each_device: Options, count: int
) -> None:
    """Test full batches with and without a short one, and a set that is smaller than a batch; then single batches."""
    model, plain = captured(NET), resident(adapters, each_device, NET)
    train = Arrays(*noise(NET, count))
    for epoch in range(2):
        assert_same_training(model, plain, train, epoch)
    assert_same_training(model, plain, train, 2, window=2, windows=1)  # training stops in mid-epoch
    assert_same_training(model, plain, train, 3)
    images, labels = noise(NET, 8, seed=1)
    losses, optimizer = [], model._optimizer
    for each in (model, plain):
        each.load(check_weights(NET, 0))
        assert (each._optimizer is optimizer) == (each is model), "a graph keeps its optimizer"
        each.step(images, labels)  # recording advances the random numbers
        each.load(check_weights(NET, 0))
        each._dropout_generator.manual_seed(0)
        losses.append(each.step(images, labels))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert_same_training(model, plain, Arrays(*noise(NET, 20)), 4)  # another set
    placed = model.placement()
    assert "steps replayed as a CUDA graph, which gathers its batches" in placed.training
    assert (placed.device, placed.layout) == (plain.placement().device, "NCHW")


def test_captured_resident_steps_train_as_other_steps_do(
    captured: Callable[[Scenario], Any], adapters: type[Adapter], each_device: Options
) -> None:
    scenario = replace(NET, layers=tuple(layer for layer in NET.layers if not isinstance(layer, Dropout)))
    model, plain = captured(scenario), resident(adapters, each_device, scenario)
    runs = [[each.resident_steps(*noise(scenario, size)) for size in (4, 8)] for each in (model, plain)]
    for size, steps in ((0, 1), (1, 3), (0, 35)):  # more steps than are summed at once
        for each in runs:
            each[size](steps)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_captured_epoch_augments_photos_as_the_same_steps_do_one_by_one(
    captured: Callable[[Scenario], Any], adapters: type[Adapter], each_device: Options, tmp_path: Path
) -> None:
    scenario = toy(image=(24, 32, 3), dataset="cats-dogs", optimizer=Adam(), units=1, output="sigmoid")
    photos = noisy_photos(tmp_path, 19, AUGMENT)
    model, plain = captured(scenario), resident(adapters, each_device, scenario)
    for epoch in range(2):  # each has its own maps
        assert_same_training(model, plain, photos, epoch)


def test_a_step_of_a_captured_epoch_is_one_launch(
    torch: ModuleType, captured: Callable[[Scenario], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count what PyTorch runs from the end of one step to the end of the next, outside of the graph."""
    dispatch = importlib.import_module("torch.utils._python_dispatch")
    capture, calls = torch_module("capture"), []
    record, by_step = capture.record_graph, []

    class Counting(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, operator: Any, _: object, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(str(operator))
            return operator(*args, **(kwargs or {}))

    class Meter(RecordingMeter):
        def step(self, images: int) -> bool:
            by_step.append([*calls])
            calls.clear()
            return super().step(images)

    def record_as_one_call(work: Any) -> Any:
        replay, outputs = record(work)

        def replay_as_one_call() -> None:
            before = len(calls)
            replay()
            calls[before:] = ["replay"]

        return replay_as_one_call, outputs

    monkeypatch.setattr(capture, "record_graph", record_as_one_call)
    model, train = captured(NET), Arrays(*noise(NET, 40))
    model.train_epoch(train, 0, RecordingMeter())
    with Counting():
        model.train_epoch(train, 1, Meter())
    assert by_step[1:] == [["replay"]] * 4


@pytest.mark.parametrize("augment", [None, AUGMENT])
def test_photos_augmented_on_the_device_are_those_augmented_by_the_loader(
    torch: ModuleType, each_device: Options, tmp_path: Path, augment: Augment | None
) -> None:
    feeds = torch_module("feeds")
    photos = noisy_photos(tmp_path, 5, augment)
    for seed, layout in enumerate((torch.contiguous_format, torch.channels_last)):
        loaded = feeds.cached_photos(photos, 2, 1, layout)
        resident = feeds.resident_photos(photos, 2, 1, layout, torch.device(each_device.device))
        batches = list(zip(resident.batches(seed), loaded.batches(seed), strict=True))
        assert [len(labels) for (_, labels), _ in batches] == [2, 2, 1]
        for (images, labels), (expected, classes) in batches:
            assert torch.equal(labels.cpu(), classes)
            assert all(fed.is_contiguous(memory_format=layout) for fed in (images, expected))
            assert float((images.cpu() - expected).abs().max()) < 0.51 / 255  # the loader rounds to bytes


@pytest.fixture
def streams(torch: ModuleType, each_device: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the stand-in for a GPU its streams. Skip the test on the CPU, which has none."""
    if each_device.device == "cpu":
        pytest.skip("pinned memory is for GPUs")
    if each_device.device == "meta":
        apart = importlib.import_module("apart")
        for name in ("Stream", "stream", "current_stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(apart, name))


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("kind", ["arrays", "photos"])
def test_pinned_batches_arrive_before_they_are_used(
    torch: ModuleType, each_device: Options, tmp_path: Path, kind: str
) -> None:
    feeds, device = torch_module("feeds"), torch.device(each_device.device)
    photos, arrays = noisy_photos(tmp_path, 5, AUGMENT), Arrays(*noise(NET, 5))
    for seed, layout in enumerate((torch.contiguous_format, torch.channels_last)):
        if kind == "arrays":
            pinned, other = (make(arrays, 2, layout, device) for make in (feeds.pinned_arrays, feeds.resident_arrays))
        else:
            pinned = feeds.pinned_photos(photos, 2, 1, layout, device)
            other = feeds.cached_photos(photos, 2, 1, layout)
        for batch, expected in zip(pinned.batches(seed), other.batches(seed), strict=True):
            assert batch[0].is_contiguous(memory_format=layout)
            for tensor, values in zip(batch, expected, strict=True):
                assert tensor.device.type == device.type
                assert torch.equal(tensor.cpu(), values.cpu())
                if device.type == "meta":  # otherwise the next copy could overwrite it while the step reads it
                    assert tensor.used_in is torch.cuda.current_stream()


@pytest.mark.parametrize(
    ("feed", "description"),
    [("cached", "loader over decoded"), ("pinned", "pinned memory"), ("resident", "augmented on the device")],
)
def test_the_setting_of_the_feed_takes_effect(
    adapters: type[Adapter],
    each_device: Options,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    feed: str,
    description: str,
) -> None:
    scenario = toy(image=(24, 32, 3), dataset="cats-dogs")
    if feed not in adapters.axes(each_device, scenario)["training"]["feed"]:
        pytest.skip("not offered on this device")
    if feed == "pinned":
        request.getfixturevalue("streams")
    model = adapters(replace(each_device, lane="tuned", settings={"feed": feed})).build(
        scenario, check_weights(scenario, 0)
    )
    assert model.train_epoch(noisy_photos(tmp_path, 9, AUGMENT), 0, RecordingMeter()).images == 9
    assert description in model.placement().loader


@pytest.mark.parametrize("each_device", ["apart"], indirect=True)
@pytest.mark.parametrize("lane", ["stock", "tuned"])
def test_both_batch_sizes_are_prepared_before_the_clock(
    adapters: type[Adapter], options: Options, each_device: Options, lane: Any
) -> None:
    """Only on a GPU. Preparation does not change what is trained."""
    train, sizes = Arrays(*noise(NET, 20)), []

    class Meter(RecordingMeter):
        def begin(self) -> None:
            assert sorted(sizes) == [4, 8]

    model, plain = (
        adapters(replace(options, device=device, lane=lane)).build(NET, check_weights(NET, 0))
        for device in (each_device.device, "cpu")
    )
    model._net.register_forward_pre_hook(lambda net, given: sizes.append(len(given[0])))
    for epoch in range(2):
        model.train_epoch(train, epoch, Meter() if epoch == 0 else RecordingMeter())
        plain.train_epoch(train, epoch, RecordingMeter())
    assert len(sizes) == 2 + 2 * 3, "it was prepared again"
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("each_device", ["apart"], indirect=True)
def test_cudnn_measures_its_convolutions_if_the_setting_says_so(
    torch: ModuleType, adapters: type[Adapter], each_device: Options
) -> None:
    for settings, benchmarked in (({"convolutions": "benchmarked"}, True), ({}, False)):
        model = adapters(replace(each_device, lane="tuned", settings=settings)).build(NET, check_weights(NET, 0))
        assert torch.backends.cudnn.benchmark == benchmarked
        model.step(*noise(NET, 8))
        assert ("benchmarked" in model.placement().training) == benchmarked
    assert not adapters.axes(each_device, toy())["training"]["convolutions"], "the network has none"
