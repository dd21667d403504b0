"""What measuring rests on: steps on a batch that stays on the device, primitives that really compute, and the evidence
of where and how."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from toys import RecordingMeter, noise, toy

from scenarios.adapter import Adapter, Arrays, KernelName, NotOffered, Options
from scenarios.contract.result import Placement
from scenarios.frameworks.probes import FACTOR, NORMAL, PRODUCTS, fate_of_denormals
from scenarios.spec import Adadelta, Adam, Conv, Dense, Flatten, MaxPool, Optimizer, Sgd
from scenarios.weights import check_weights, digest

NET = toy((Conv(4, padding="same"), MaxPool(), Flatten(), Dense(6)), batch=8)
EDGE, CHANNELS, KERNEL = 56, 64, 3  # of the convolution

# By device: the size of each kernel, how often it is called at the least, and more than is possible in a second, by
# core or GPU: of operations, of bytes, of launches. Only what is not computed is faster.
SIZES: dict[str, dict[KernelName, int]] = {
    "cpu": {"matmul": 512, "convolution": 4, "memory": 1 << 26, "launch": 1},
    "cuda": {"matmul": 4096, "convolution": 256, "memory": 1 << 30, "launch": 1, "upload": 1 << 26},
}
TIMES: dict[KernelName, int] = {"launch": 1000}
MOST = {
    "cpu": {"FLOP/s": 1e13, "B/s": 2e12, "1/s": 1e8},
    "cuda": {"FLOP/s": 1e16, "B/s": 2e13, "1/s": 1e8},
}


@pytest.mark.parametrize("optimizer", [Sgd(0.05), Adam(0.01), Adadelta()], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("count", [8, 2, 5])
def test_resident_steps_train_as_single_steps_do(adapter: Adapter, optimizer: Optimizer, count: int) -> None:
    scenario = replace(NET, optimizer=optimizer)
    weights, batch = check_weights(scenario, 1), noise(scenario, count)
    single, resident = (adapter.build(scenario, weights) for _ in range(2))
    for _ in range(5):
        single.step(*batch)
    run = resident.resident_steps(*batch)
    assert digest(resident.weights()) == digest(weights), "making the callable trained already"
    run(2)
    run(3)
    expected = single.weights()
    for name, value in resident.weights().items():
        change = np.abs(expected[name] - weights[name]).max()
        assert change > 0
        assert np.abs(value - expected[name]).max() <= 1e-3 * change, name


def test_resident_steps_of_several_batches_mix_with_an_epoch(adapter: Adapter) -> None:
    """Each callable keeps its own batch, whatever the model was given since."""
    scenario = replace(NET, optimizer=Adam(0.01))
    weights = check_weights(scenario, 2)
    whole, quarter = noise(scenario, 8, 1), noise(scenario, 2, 2)
    single, resident = (adapter.build(scenario, weights) for _ in range(2))
    runs = [resident.resident_steps(*whole), resident.resident_steps(*quarter)]
    for batch, run in zip((whole, quarter, whole), (*runs, runs[0]), strict=True):
        single.train_epoch(Arrays(*noise(scenario, 20)), 0, RecordingMeter())
        resident.train_epoch(Arrays(*noise(scenario, 20)), 0, RecordingMeter())
        for _ in range(2):
            single.step(*batch)
        run(2)
    for name, value in resident.weights().items():
        assert value == pytest.approx(single.weights()[name], rel=1e-3, abs=1e-4), name


def test_nothing_is_uploaded_on_the_cpu(adapter: Adapter, options: Options) -> None:
    if options.device == "cpu":
        with pytest.raises(NotOffered):
            adapter.kernel("upload", 1 << 20)


@pytest.mark.parametrize("name", ["matmul", "convolution", "memory", "upload", "launch"])
def test_a_kernel_computes_every_time(adapter: Adapter, options: Options, name: KernelName) -> None:
    if name not in SIZES[options.device]:
        pytest.skip("not offered on this device")
    size, times = SIZES[options.device][name], TIMES.get(name, 1)
    unit, work = work_of(name, size)
    run = adapter.kernel(name, size)
    few, many = seconds(run, times), seconds(run, 8 * times)
    assert many > 3 * few, "some calls did nothing"
    cores = options.threads if options.device == "cpu" else 1
    assert 8 * times * work / many < MOST[options.device][unit] * cores


def work_of(name: KernelName, size: int) -> tuple[str, int]:
    """Unit and amount of one kernel's work."""
    match name:
        case "matmul":
            return "FLOP/s", 2 * size**3
        case "convolution":
            return "FLOP/s", 2 * size * (EDGE * CHANNELS * KERNEL) ** 2
        case "memory":
            return "B/s", 2 * size
        case "upload":
            return "B/s", size
        case "launch":
            return "1/s", 1


def seconds(run: Callable[[int], None], times: int) -> float:
    """Of the fastest of several calls: others may work on this machine, too."""
    run(times)
    found = []
    for _ in range(7):
        start = time.perf_counter()
        run(times)
        found.append(time.perf_counter() - start)
    return min(found)


@pytest.mark.parametrize(("flushed", "verdict"), [(0, "kept"), (1, "flushed"), (PRODUCTS, "flushed")])
def test_one_thread_that_flushes_is_flushing(flushed: int, verdict: str) -> None:
    products = np.full(PRODUCTS, FACTOR * NORMAL, np.float32)
    products[:flushed] = 0
    assert fate_of_denormals(products) == verdict


@pytest.mark.parametrize("products", [np.zeros(0, np.float32), np.full(PRODUCTS, NORMAL, np.float32)])
def test_other_products_prove_nothing(products: npt.NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match="came out as"):
        fate_of_denormals(products)


def test_flushing_is_seen_where_it_is_switched_on(adapter: Adapter, options: Options) -> None:
    """PyTorch alone has the switch; it keeps denormals by default, as ONNX Runtime does, while TensorFlow flushes."""
    model = adapter.build(NET, check_weights(NET, 4))
    model.step(*noise(NET, 8))
    if options.device == "cpu":
        assert model.placement().denormals == ("flushed" if adapter.name == "tensorflow" else "kept")
    if adapter.name == "torch" and options.device == "cpu":
        torch = importlib.import_module("torch")
        assert torch.set_flush_denormal(True)
        try:
            assert model.placement().denormals == "flushed"
        finally:
            torch.set_flush_denormal(False)


def test_the_placement_proves_where_and_how_it_ran(adapter: Adapter, options: Options) -> None:
    model = adapter.build(NET, check_weights(NET, 3))
    model.train_epoch(Arrays(*noise(NET, 20)), 0, RecordingMeter())
    placement = model.placement()
    assert isinstance(placement, Placement)
    assert placement.denormals in ("kept", "flushed")
    assert placement.nodes
    assert min(placement.nodes.values()) > 0
    for place in placement.nodes:
        on_gpu = any(word in place.lower() for word in ("cuda", "gpu", "tensorrt"))
        assert on_gpu == (options.device == "cuda"), placement.nodes
