"""Test which CPUs, memory and GPUs a launch may use."""

from __future__ import annotations

import pytest

from kit.host.limits import choose_gpus, launch_limits
from kit.model.errors import UsageError
from tests import examples
from tests.campaigns import new_run


def test_limits_come_from_the_plan_or_else_from_the_machine(tmp_path):
    plan = new_run(tmp_path / "run").plan
    limits = launch_limits(plan, (0, 2, 1, 3), 1000)
    assert (limits.cpus, limits.memory_bytes, limits.timeout_s) == ((0, 2, 1, 3), 900, plan.timeout_s)
    limited = plan.model_copy(update={"threads": 2, "memory_bytes": 77})
    assert launch_limits(limited, (0, 2, 1, 3), None).cpus == (0, 2)
    assert launch_limits(limited, (0, 2, 1, 3), None).memory_bytes == 77
    with pytest.raises(UsageError, match="more than the 1 CPUs"):
        launch_limits(limited, (0,), None)


def test_the_gpu_is_the_first_idle_one_or_the_requested_one():
    gpus = [examples.gpu(index=index, uuid=f"GPU-{index}") for index in range(3)]
    assert choose_gpus(None, gpus, busy=[0]) == ("1",)
    assert choose_gpus(None, gpus, busy=[0, 1, 2]) == ("0",)
    assert choose_gpus(None, [], busy=[]) == ()
    assert choose_gpus("all", gpus, busy=[0]) == ("0", "1", "2")
    assert choose_gpus("GPU-2,0", gpus, busy=[0]) == ("GPU-2", "0")
    with pytest.raises(UsageError, match="no NVIDIA GPU is visible"):
        choose_gpus("0", [], busy=[])
    with pytest.raises(UsageError, match="Choose from: 0, 1, 2"):
        choose_gpus("3", gpus, busy=[])
