"""The GPUs that a framework can use."""

import pytest

from kit.host import gpus
from kit.model.environment import Framework
from kit.model.machine import Gpu


@pytest.fixture
def machine(monkeypatch):
    def make(capabilities, driver):
        found = [
            Gpu(
                index=i,
                name=f"GPU {c}",
                memory_bytes=1,
                compute_capability=c,
                power_limit_w=None,
                default_power_limit_w=None,
            )
            for i, c in enumerate(capabilities)
        ]
        monkeypatch.setattr(gpus, "gpus", lambda: found)
        monkeypatch.setattr(gpus, "driver", lambda: (driver, "13.0"))

    return make


@pytest.fixture
def torch(tmp_path):
    return Framework("torch", "PyTorch", ("cpu", "cuda"), (), 13, 580, (7, 5), tmp_path)


@pytest.mark.parametrize("capability", [(7, 5), (9, 0), (10, 0)])
def test_a_new_enough_gpu_and_driver_are_accepted(machine, torch, capability):
    machine([(6, 0), capability], "580.65.06")
    assert gpus.refusal(torch) is None


@pytest.mark.parametrize(
    ("capabilities", "driver", "words"),
    [
        ([], None, "No NVIDIA GPU is visible"),
        ([(9, 0)], "575.57", "needs 580 or newer"),
        (
            [(7, 0), (6, 0)],
            "580.65.06",
            "compute capability 7.5 or newer. This machine has GPU (7, 0) (7.0), GPU (6, 0) (6.0)",
        ),
    ],
)
def test_a_refusal_names_what_is_too_old_or_missing(machine, torch, capabilities, driver, words):
    machine(capabilities, driver)
    assert words in gpus.refusal(torch)
