"""Test which CPUs and memory a launch may use."""

from __future__ import annotations

import pytest

from kit.host.limits import launch_limits
from kit.model.errors import UsageError
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
