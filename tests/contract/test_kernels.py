"""Test what measurements depend on: steps on a batch that stays on the device, primitives that really compute, and the
evidence of where and how they ran."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from toys import RecordingMeter, noise, toy

from scenarios.adapter import Adapter, Arrays, KernelName, NotOffered, Options
from scenarios.contract.evidence import Placement
from scenarios.frameworks.probes import FACTOR, NORMAL, PRODUCTS, fate_of_denormals
from scenarios.spec import Adadelta, Adam, Conv, Dense, Flatten, MaxPool, Optimizer, Sgd
from scenarios.weights import check_weights, digest

NET = toy((Conv(4, padding="same"), MaxPool(), Flatten(), Dense(6)), batch=8)

# For each kernel: its size, how often it is called, the shapes of its operands (axes in any order), and the name of its
# operator in each framework. ONNX Runtime runs the kernel `launch` in chains of 100 nodes.
SIZES: dict[KernelName, int] = {
    "matmul": 96,
    "convolution nchw": 2,
    "convolution nhwc": 2,
    "memory": 1 << 12,
    "launch": 7,
}
TIMES: dict[KernelName, tuple[int, int]] = {"launch": (30, 205)}
OPERANDS: dict[KernelName, list[list[int]]] = {
    "matmul": [[96, 96], [96, 96]],
    "convolution nchw": [[2, 64, 56, 56], [3, 3, 64, 64]],
    "convolution nhwc": [[2, 56, 56, 64], [3, 3, 64, 64]],
    "memory": [[1 << 10]],
    "launch": [[7]],
}
OPERATORS = {
    "tensorflow": {"matmul": "MatMul", "convolution": "Conv2D", "memory": "Neg", "launch": "Neg"},
    "torch": {
        "matmul": "aten::mm",
        "convolution": "aten::convolution",
        "memory": "aten::neg",
        "launch": "aten::neg",
    },
    "onnxruntime": {"matmul": "MatMul", "convolution": "Conv", "memory": "Neg", "launch": "Neg"},
}
# The only layout of a framework's convolutions, by device and framework.
ONE_LAYOUT: dict[tuple[str, str], KernelName] = {
    ("cpu", "tensorflow"): "convolution nhwc",
    ("cpu", "onnxruntime"): "convolution nchw",
}
LAYOUTS = ("nchw", "nhwc")
Executed = list[tuple[str, list[Sequence[int]]]]  # operators in their order, with the shapes of their inputs


@pytest.mark.parametrize("optimizer", [Sgd(0.05), Adam(0.01), Adadelta()], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("count", [8, 2, 5])
def test_resident_steps_train_as_single_steps_do(adapter: Adapter, optimizer: Optimizer, count: int) -> None:
    scenario = replace(NET, optimizer=optimizer)
    weights, batch = check_weights(scenario, 1), noise(scenario, count)
    single, resident = (adapter.build(scenario, weights) for _ in range(2))
    for _ in range(5):
        single.step(*batch)
    run = resident.resident_steps(*batch)
    assert digest(resident.weights()) == digest(weights), "training began before the first call"
    run(2)
    run(3)
    expected = single.weights()
    for name, value in resident.weights().items():
        change = np.abs(expected[name] - weights[name]).max()
        assert change > 0
        assert np.abs(value - expected[name]).max() <= 1e-3 * change, name


def test_resident_steps_of_several_batches_mix_with_an_epoch(adapter: Adapter) -> None:
    """Each callable keeps its own batch, whatever batches the model gets later."""
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


def test_only_a_gpu_takes_uploads(adapter: Adapter, options: Options) -> None:
    with pytest.raises(NotOffered) if options.device == "cpu" else nullcontext():
        adapter.kernel("upload", 1 << 20)(3)


@pytest.mark.parametrize("name", SIZES)
def test_a_kernel_computes_at_every_call(
    adapter: Adapter, options: Options, name: KernelName, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Let the framework record what it executes."""
    if adapter.name not in RECORDERS:
        pytest.skip("no recorder for this framework")
    if name.startswith("convolution") and ONE_LAYOUT.get((options.device, adapter.name), name) != name:
        with pytest.raises(NotOffered, match="only"):
            adapter.kernel(name, SIZES[name])
        return
    recorder, operator = RECORDERS[adapter.name], OPERATORS[adapter.name][name.split()[0]]
    for times in TIMES.get(name, (1, 3)):
        executed = recorder(lambda: adapter.kernel(name, SIZES[name]), times, monkeypatch, tmp_path)
        inputs = [shapes for found, shapes in executed if found == operator]
        assert len(inputs) == times
        for shapes in inputs:
            operands = shapes[: len(OPERANDS[name])]
            assert [sorted(shape) for shape in operands] == [sorted(shape) for shape in OPERANDS[name]]


def test_both_layouts_compute_the_same_convolution(adapter: Adapter, options: Options) -> None:
    if adapter.name == "torch":
        torch, kernels = map(importlib.import_module, ("torch", "scenarios.frameworks.torch.kernels"))
        device = torch.device(options.device)
        nchw, nhwc = (kernels.operation(f"convolution {layout}", 2, device, torch.float32)() for layout in LAYOUTS)
        assert nchw.is_contiguous()
        assert nhwc.is_contiguous(memory_format=torch.channels_last)
        results = nchw.cpu().numpy(), nhwc.permute(0, 2, 3, 1).cpu().numpy()
    elif adapter.name == "tensorflow":
        tf, kernels = map(importlib.import_module, ("tensorflow", "scenarios.frameworks.tensorflow.kernels"))
        # XLA, because TensorFlow's own kernels on the CPU have no NCHW.
        once = (kernels.make_operation(f"convolution {layout}", 2, "GPU:0", tf.float32) for layout in LAYOUTS)
        results = tuple(tf.function(operation, jit_compile=True)().numpy() for operation in once)
    elif adapter.name == "onnxruntime":
        folder = "scenarios.frameworks.onnxruntime"
        session, kernels = map(importlib.import_module, (f"{folder}.session", f"{folder}.kernels"))
        runtime = session.Runtime(options)
        # ONNX Runtime's CPU provider has no NHWC and transposes.
        runs = [kernels.make_convolution(runtime, 2, channels_last=last) for last in (False, True)]
        for run in runs:
            run(1)
        results = tuple(run.output.numpy() for run in runs)
    else:
        pytest.skip("no access to the results of this adapter's kernels")
    assert [result.shape for result in results] == [(2, 64, 56, 56), (2, 56, 56, 64)]
    # If one of them rounded to TF32, they would differ by up to 7e-5.
    np.testing.assert_allclose(results[0].transpose(0, 2, 3, 1), results[1], rtol=3e-5)


def tensorflow_executes(make: Callable[[], Callable[[int], None]], times: int, *_: object) -> Executed:
    callbacks = importlib.import_module("tensorflow.python.framework.op_callbacks")
    executed: Executed = []

    def record(operator: str, inputs: Any, *_: object, graph: object = None, **__: object) -> None:
        assert graph is None, "a graph could leave out what it has already computed"
        executed.append((operator, [tuple(value.shape) for value in inputs]))

    run = make()
    callbacks.add_op_callback(record)
    try:
        run(times)
    finally:
        callbacks.remove_op_callback(record)
    return executed


def torch_executes(make: Callable[[], Callable[[int], None]], times: int, *_: object) -> Executed:
    profiler = importlib.import_module("torch.profiler")
    run = make()
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        run(times)
    return [(event.name, event.input_shapes) for event in profile.events()]


def onnxruntime_executes(
    make: Callable[[], Callable[[int], None]], times: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Executed:
    runtime = importlib.import_module("onnxruntime")
    session_class, sessions = runtime.InferenceSession, []

    def profiled(model: bytes, settings: Any, **options: Any) -> Any:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(folder / f"{times}-{len(sessions)}")
        sessions.append(session_class(model, settings, **options))
        return sessions[-1]

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "InferenceSession", profiled)
        make()(times)
    events = [event for session in sessions for event in json.loads(Path(session.end_profiling()).read_text())]
    return [
        (event["args"]["op_name"], [shape for found in event["args"]["input_type_shape"] for shape in found.values()])
        for event in events
        if event["name"].endswith("_kernel_time")
    ]


RECORDERS: dict[str, Callable[..., Executed]] = {
    "tensorflow": tensorflow_executes,
    "torch": torch_executes,
    "onnxruntime": onnxruntime_executes,
}


@pytest.mark.parametrize(("flushed", "verdict"), [(0, "kept"), (1, "flushed"), (PRODUCTS, "flushed")])
def test_one_flushing_thread_counts_as_flushed(flushed: int, verdict: str) -> None:
    products = np.full(PRODUCTS, FACTOR * NORMAL, np.float32)
    products[:flushed] = 0
    assert fate_of_denormals(products) == verdict


@pytest.mark.parametrize("products", [np.zeros(0, np.float32), np.full(PRODUCTS, NORMAL, np.float32)])
def test_other_products_prove_nothing(products: npt.NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match="came out as"):
        fate_of_denormals(products)


def test_flushing_is_detected_when_it_is_on(adapter: Adapter, options: Options) -> None:
    """PyTorch and ONNX Runtime keep denormals by default, and TensorFlow flushes them. Only PyTorch has a switch that
    works in a running process."""
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
