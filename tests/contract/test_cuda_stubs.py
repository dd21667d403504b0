"""Test ONNX Runtime's CUDA provider on the stub libraries of `tests/cuda_stubs`.

The stubs compute nothing. So these tests check what does not depend on values: where nodes are assigned, what is bound
and copied, what is planned, and what is recorded as a CUDA graph.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import RecordingMeter, noise, toy

from scenarios import catalog
from scenarios.adapter import Arrays, NotOffered, Options
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Optimizer, Scenario, Sgd
from scenarios.weights import check_weights, digest

pytest.importorskip("onnxruntime")
import onnx
import onnxruntime
from on_stub_cuda import SESSION, cuda, open_on_cuda
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime_graphs import graphs

from scenarios.frameworks.onnxruntime.adapter import ADAPTER
from scenarios.frameworks.onnxruntime.graph import Graph
from scenarios.frameworks.onnxruntime.session import Runtime, layout
from scenarios.frameworks.onnxruntime.step_graph import LOSS_SUM

pytestmark = pytest.mark.skipif("KIT_TEST_CUDA_STUBS" not in os.environ, reason="needs stub libraries of CUDA")

CUDA = Options(device="cuda")
CATALOG = [pytest.param(s, id=s.label) for variants in catalog.load().values() for s in variants.values()]
DRY = toy((Conv(4), Conv(4), MaxPool(), Flatten(), Dense(6)), optimizer=Adam())
NET = toy((Conv(4, padding="same"), MaxPool(), Conv(4), Dropout(0.25), Flatten(), Dense(6)), optimizer=Adam())


@pytest.mark.parametrize("chosen", ["nchw", "nhwc"])
@pytest.mark.parametrize("scenario", CATALOG)
def test_every_graph_of_the_catalog_runs_on_cuda_alone(scenario: Scenario, chosen: str, tmp_path: Path) -> None:
    for graph in graphs(scenario, transposes=chosen == "nchw", gathers=chosen == "nhwc"):
        open_on_cuda(graph, tmp_path / "optimized.onnx", cuda(layout=chosen), captured=True)


@pytest.mark.parametrize("scenario", [*CATALOG, NET, replace(NET, optimizer=Adadelta())], ids=lambda s: s.label)
def test_weights_go_to_the_device_and_come_back(scenario: Scenario) -> None:
    first, second = check_weights(scenario, 1), check_weights(scenario, 2)
    model = ADAPTER(CUDA).build(scenario, first)
    assert digest(model.weights()) == digest(first)
    model.load(second)
    assert digest(model.weights()) == digest(second)


def test_batches_bind_and_results_come_back_at_every_size() -> None:
    model = ADAPTER(CUDA).build(NET, check_weights(NET, 1))
    meter = RecordingMeter(window=2)
    assert model.train_epoch(Arrays(*noise(NET, 20)), 0, meter).images == 20
    assert meter.events == ["begin", 8, 8, "mark", 4]
    for size in (1, 8, 13):
        images, labels = noise(NET, size)
        model.step(images, labels)
        model.resident_steps(images, labels)(2)
        assert model.logits(images).shape == (size, 4)
        outputs = model.predictor(size)(images)
        assert isinstance(outputs, np.ndarray)
        assert (outputs.shape, outputs.dtype) == ((size, 4), np.float32)


def test_the_state_stays_on_the_device() -> None:
    model = ADAPTER(CUDA).build(NET, check_weights(NET, 1))
    names = list(model._trainer._step.state)
    assert LOSS_SUM in names
    for _ in range(2):  # one run for each of the two sets
        assert {tensor.device_name() for tensor in model._trainer.tensors(names).values()} == {"cuda"}
        model.step(*noise(NET, 8))


def test_preparing_a_batch_size_does_not_change_the_state() -> None:
    weights = check_weights(NET, 1)
    model = ADAPTER(CUDA).build(NET, weights)
    model._trainer.prepare(*noise(NET, 5))
    assert digest(model.weights()) == digest(weights)
    assert model._trainer.steps == 0


def cudnn_plans() -> int:
    """Return how many execution plans cuDNN made in this process."""
    return int(ctypes.CDLL("libcudnn.so.9").stub_plans())


class PlanMeter(RecordingMeter):
    """A meter that counts the plans which cuDNN makes between `begin` and the last step."""

    def begin(self) -> None:
        super().begin()
        self.before = self.after = cudnn_plans()

    def step(self, images: int) -> bool:
        self.after = cudnn_plans()
        return super().step(images)


def test_no_convolution_is_planned_while_the_clock_runs() -> None:
    model = ADAPTER(CUDA).build(NET, check_weights(NET, 1))
    start = cudnn_plans()
    for epoch in range(3):
        meter = PlanMeter()
        model.train_epoch(Arrays(*noise(NET, 20)), epoch, meter)
        assert meter.events == ["begin", 8, 8, 4]
        assert meter.after == meter.before > start


def test_steps_of_alternating_sizes_plan_once_per_size() -> None:
    model = ADAPTER(CUDA).build(NET, check_weights(NET, 1))
    runs = [model.resident_steps(*noise(NET, size)) for size in (2, 4, 8)]
    for run in runs:
        run(1)
    planned = cudnn_plans()
    for run in runs * 2:
        run(2)
    assert cudnn_plans() == planned


@pytest.mark.parametrize(
    ("changed", "option", "value"),
    [
        ({}, "use_tf32", "0"),
        ({"precision": "tf32"}, "use_tf32", "1"),
        ({}, "cudnn_conv_algo_search", "EXHAUSTIVE"),
        ({"settings": {"plans": "heuristic"}}, "cudnn_conv_algo_search", "HEURISTIC"),
        ({}, "prefer_nhwc", "0"),
        ({"settings": {"layout": "nhwc"}}, "prefer_nhwc", "1"),
        ({}, "enable_cuda_graph", "0"),
        ({"settings": {"step": "captured"}}, "enable_cuda_graph", "1"),
    ],
)
def test_the_provider_gets_the_precision_and_the_settings(changed: dict[str, Any], option: str, value: str) -> None:
    model = ADAPTER(replace(CUDA, lane="tuned", **changed)).build(DRY, check_weights(DRY, 1))
    assert model._trainer.session.get_provider_options()["CUDAExecutionProvider"][option] == value


@pytest.mark.parametrize("chosen", ["nchw", "nhwc"])
def test_the_session_shows_the_layout(chosen: str) -> None:
    model = ADAPTER(replace(CUDA, lane="tuned", settings={"layout": chosen})).build(DRY, check_weights(DRY, 1))
    assert layout(model._trainer.session) == chosen.upper()


@pytest.mark.parametrize("chosen", ["nchw", "nhwc"])
def test_the_probe_of_a_layout_runs_in_it_without_transpositions(
    chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adapter, sessions = ADAPTER(CUDA), []

    def saving(model: bytes, settings: Any, **arguments: Any) -> Any:
        settings.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        sessions.append(SESSION(model, settings, **arguments))
        return sessions[-1]

    monkeypatch.setattr(onnxruntime, "InferenceSession", saving)
    adapter.kernel(f"convolution {chosen}", 2)(3)
    assert [layout(session) for session in sessions] == [chosen.upper()]
    assert [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node] == ["Conv"]


def test_a_build_without_nhwc_still_has_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_nhwc(model: bytes, settings: Any, **arguments: Any) -> Any:
        if arguments["providers"][0][1]["prefer_nhwc"] == "1":
            raise Fail("This build does not support NHWC layout")
        return SESSION(model, settings, **arguments)

    adapter = ADAPTER(CUDA)
    monkeypatch.setattr(onnxruntime, "InferenceSession", without_nhwc)
    with pytest.raises(NotOffered, match="does not support NHWC layout"):
        adapter.kernel("convolution nhwc", 2)
    adapter.kernel("convolution nchw", 2)(1)


def captures() -> tuple[int, int]:
    """Return how many CUDA graphs this process has recorded and how often it has launched one."""
    runtime = ctypes.CDLL("libcudart.so.13")
    return int(runtime.stub_recorded()), int(runtime.stub_launched())


def uploads() -> int:
    """Return how many copies to the device this process has made."""
    return int(ctypes.CDLL("libcudart.so.13").stub_uploaded())


class CaptureMeter(RecordingMeter):
    """A meter that notes `captures` and `uploads` at `begin` and after each step."""

    def begin(self) -> None:
        super().begin()
        self.seen, self.uploads = [captures()], [uploads()]

    def step(self, images: int) -> bool:
        self.seen.append(captures())
        self.uploads.append(uploads())
        return super().step(images)


def settings_of(scenario: Scenario, **values: str) -> dict[str, str]:
    """Return those of the values that the adapter offers for a scenario on CUDA."""
    axes = ADAPTER.axes(CUDA, scenario)
    offered = {name: found for objective in axes.values() for name, found in objective.items()}
    return {name: value for name, value in values.items() if value in offered.get(name, [])}


@pytest.mark.parametrize("chosen", ["nchw", "nhwc"])
@pytest.mark.parametrize("scenario", CATALOG)
def test_every_network_is_recorded_and_then_launched_once_per_run(scenario: Scenario, chosen: str) -> None:
    """The stubs refuse what CUDA forbids while it records, and copies from and to the host."""
    runs = {"step": "captured", "latency": "captured", "throughput": "captured"}
    settings = settings_of(scenario, layout=chosen, **runs)
    model = ADAPTER(replace(CUDA, lane="tuned", settings=settings)).build(scenario, check_weights(scenario, 1))
    if "step" in settings:
        recorded, launched = captures()
        for _ in range(5):
            model.step(*noise(scenario, 3))
        assert captures() == (recorded + 2, launched + 5)
    for batch in (1, 3):
        predict = model.predictor(batch)
        recorded, launched = captures()
        for _ in range(4):
            predict(noise(scenario, batch)[0])
        assert captures() == (recorded + 1, launched + 4)


@pytest.mark.parametrize(("optimizer", "scalars"), [(Sgd(0.1), 0), (Adadelta(), 0), (Adam(), 1)], ids=str)
def test_a_step_of_an_epoch_is_one_launch(optimizer: Optimizer, scalars: int) -> None:
    """Adam's step size comes from the host. Order, start and two cleared sums are copied before the first step."""
    scenario = replace(DRY, optimizer=optimizer)
    options = replace(CUDA, lane="tuned", settings={"step": "captured"})
    model = ADAPTER(options).build(scenario, check_weights(scenario, 1))
    train = Arrays(*noise(scenario, 20))
    for epoch in range(3):
        meter = CaptureMeter()
        model.train_epoch(train, epoch, meter)
        assert meter.events == ["begin", 8, 8, 4]
        recorded, launched = meter.seen[0]
        assert meter.seen == [(recorded, launched + steps) for steps in range(4)]
        assert np.diff(meter.uploads).tolist() == [4 + scalars, scalars, scalars]


def test_steps_over_several_resident_batches_are_recorded_once_each() -> None:
    model = ADAPTER(replace(CUDA, lane="tuned", settings={"step": "captured"})).build(DRY, check_weights(DRY, 1))
    before, _ = captures()
    runs = [model.resident_steps(*noise(DRY, size)) for size in (2, 4, 4)]
    recorded, launched = captures()
    assert recorded == before + 6, "nothing is recorded while steps are timed"
    for run in runs * 2:
        run(5)
    assert captures() == (recorded, launched + 30)


def test_the_stubs_refuse_what_a_graph_cannot_record() -> None:
    runtime, pointer, memory = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p(), ctypes.create_string_buffer(8)

    def calls() -> list[int]:
        copies = [runtime.cudaMemcpyAsync(memory, memory, 8, kind, None) for kind in (1, 2, 3)]
        return [runtime.cudaMalloc(ctypes.byref(pointer), 8), runtime.cudaStreamSynchronize(None), *copies]

    assert calls() == [0, 0, 0, 0, 0]
    runtime.cudaStreamBeginCapture(None, 0)
    refused = calls()
    runtime.cudaStreamEndCapture(None, ctypes.byref(pointer))
    assert refused == [900, 900, 900, 900, 0]


def test_a_network_that_cannot_be_recorded_is_not_offered() -> None:
    """ONNX Runtime refuses to record a Concat of more than 32 inputs. Kernels of 6 x 6 need 36."""
    for layer in (Conv(4, kernel=6), Dropout(0.25)):
        scenario = replace(DRY, image=(16, 16, 2), layers=(layer, *DRY.layers))
        assert not settings_of(scenario, step="captured")
        with pytest.raises(NotOffered, match="step = captured"):
            ADAPTER(replace(CUDA, lane="tuned", settings={"step": "captured"})).build(scenario, {})
    scenario = replace(DRY, image=(16, 16, 2), layers=(Conv(4, kernel=5), Dropout(0), *DRY.layers))
    model = ADAPTER(replace(CUDA, lane="tuned", settings={"step": "captured"})).build(
        scenario, check_weights(scenario, 1)
    )
    model.step(*noise(scenario, 8))


def test_versions_are_those_of_the_loaded_libraries() -> None:
    versions = ADAPTER(CUDA).versions()
    assert {"cuda": "13.0", "cublas": "13.1.2", "cudnn": "9.28.0"}.items() <= versions.items()
    assert not [name for name in versions if name.startswith("nvidia")]


def test_the_placement_probes_a_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stubs compute no gradients, so the probe must not pass the step as float32, although the product is right."""
    module = "scenarios.frameworks.onnxruntime.model"
    monkeypatch.setattr(f"{module}.rounds_to_tf32", lambda runtime: False)
    monkeypatch.setattr(f"{module}.denormals", lambda runtime: "kept")
    placement = ADAPTER(CUDA).build(NET, check_weights(NET, 1)).placement()
    assert (placement.device, placement.device_name, placement.provider) == ("cuda", "Stub", "CUDAExecutionProvider")
    assert placement.tf32


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "shape"),
    [("Det", 1, {}, ("a", "b")), ("ConvTranspose", 2, {"pads": [0, 0, 1, 1]}, ("a", "b", "c", "d"))],
    ids=["no kernel", "uneven padding"],
)
def test_a_graph_that_needs_the_cpu_is_refused(
    operator: str, inputs: int, attributes: dict[str, Any], shape: tuple[str, ...]
) -> None:
    graph = Graph("refused")
    x = graph.input("x", np.float32, (2, 2, 3, 3))
    graph.output(graph.node(operator, *[x] * inputs, **attributes), np.float32, shape)
    with pytest.raises(Fail, match="fallback to CPU EP has been explicitly disabled"):
        Runtime(CUDA).open(graph.serialize())


def test_copies_to_the_cpu_are_in_the_optimized_graph(tmp_path: Path) -> None:
    """`open_on_cuda` looks for them there."""
    graph = Graph("mixed")
    x = graph.input("x", np.float32, (2, 2, 3, 3))
    graph.output(graph.node("Neg", graph.node("Det", graph.node("Neg", x))), np.float32, (2, 2))
    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(graph.serialize(), settings, providers=["CUDAExecutionProvider"])
    operators = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert {"MemcpyToHost", "MemcpyFromHost"} <= operators
