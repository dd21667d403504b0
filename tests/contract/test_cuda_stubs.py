"""Test ONNX Runtime's CUDA provider on the stub libraries of `tests/cuda_stubs`.

The stubs compute nothing. So these tests check what does not depend on values: where nodes are assigned, what is bound
and copied, and what is planned.
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
from scenarios.adapter import Arrays, Options
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario
from scenarios.weights import check_weights, digest

pytest.importorskip("onnxruntime")
import onnx
import onnxruntime
from on_stub_cuda import open_on_cuda
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime_graphs import graphs

from scenarios.frameworks.onnxruntime.adapter import ADAPTER
from scenarios.frameworks.onnxruntime.graph import Graph
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.frameworks.onnxruntime.step_graph import LOSS_SUM

pytestmark = pytest.mark.skipif("KIT_TEST_CUDA_STUBS" not in os.environ, reason="needs stub libraries of CUDA")

CUDA = Options(device="cuda")
CATALOG = [pytest.param(s, id=s.label) for variants in catalog.load().values() for s in variants.values()]
NET = toy((Conv(4, padding="same"), MaxPool(), Conv(4), Dropout(0.25), Flatten(), Dense(6)), optimizer=Adam())


@pytest.mark.parametrize("scenario", CATALOG)
def test_every_graph_of_the_catalog_runs_on_cuda_alone(scenario: Scenario, tmp_path: Path) -> None:
    for graph in graphs(scenario):
        open_on_cuda(graph, tmp_path / "optimized.onnx")


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
    assert model._trainer._steps == 0


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


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", "0"), ("tf32", "1")])
def test_the_provider_gets_the_precision(precision: Any, allowed: str) -> None:
    model = ADAPTER(replace(CUDA, precision=precision)).build(NET, check_weights(NET, 1))
    assert model._trainer.session.get_provider_options()["CUDAExecutionProvider"]["use_tf32"] == allowed


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
