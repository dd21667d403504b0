"""What is PyTorch's own risk: a step that is recorded once and replayed."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from toys import noise, toy

from scenarios.frameworks.base import Adapter
from scenarios.spec import Adadelta, Adam, Dense, Flatten, Optimizer, Sgd
from scenarios.weights import check_weights


@pytest.fixture
def capture(adapter: Adapter) -> ModuleType:
    if adapter.name != "torch":
        pytest.skip("another adapter is under test")
    return importlib.import_module("scenarios.frameworks._torch_capture")


def played_back(work: Any) -> Any:
    """Stands for a CUDA graph: works on the same tensors in each call, and fills the same ones."""
    for _ in range(3):
        outputs = tuple(tensor.detach().clone() for tensor in work())

    def replay() -> None:
        for kept, new in zip(outputs, work(), strict=True):
            kept.copy_(new.detach())

    return replay, outputs


@pytest.mark.parametrize("optimizer", [Sgd(0.1), Adam(), Adadelta()])
def test_recording_a_step_leaves_no_trace_in_weights_or_optimizer(
    capture: ModuleType, adapter: Adapter, optimizer: Optimizer
) -> None:
    """Recorded in the middle of training, too, when the optimizer has a past; and no result changes under another."""
    scenario = toy((Flatten(), Dense(8)), optimizer=optimizer)
    model, plain = (adapter.build(scenario, check_weights(scenario, seed=0)) for _ in range(2))
    batches = [noise(scenario, scenario.batch, seed) for seed in range(6)]
    network = importlib.import_module("scenarios.frameworks.torch")
    tensors = [(network.nchw(images), network.torch.from_numpy(labels)) for images, labels in batches]
    for begin in (0, 3):
        step = capture.CapturedStep(model._launched_step, model._net, model._optimizer, tensors[begin], played_back)
        losses = [float(step(*tensors[index])[0]) for index in range(begin, begin + 3)]
        expected = [plain.step(*batches[index]) for index in range(begin, begin + 3)]
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, values in plain.weights().items():
        np.testing.assert_allclose(model.weights()[name], values, rtol=1e-5, atol=1e-7, err_msg=name)
