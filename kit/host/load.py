"""Measure how busy other programs keep the CPUs of this machine."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from kit.host.sampling.cpu import MIN_S, CpuTimes, between, cpu_times

BUSIEST = 3
MIN_NAMED = 0.1  # of what the busiest program used: a kernel thread that ran for a moment is not worth a name
MIN_USED_S = 0.01  # a clock tick


@dataclass(frozen=True)
class Load:
    """Load on the logical CPUs that this process may use, over a short time.

    busy: number of CPUs that other processes kept busy. stolen: number of CPUs that the hypervisor gave to other
    machines. busiest: names of the busiest programs, without arguments.
    """

    cpus: int
    busy: float
    stolen: float
    busiest: tuple[str, ...]


def measure_load(seconds: float) -> Load | None:
    """Wait for this time, and return the load in it. Return None if the system does not count CPU time."""
    cpus = os.sched_getaffinity(0)
    programs = _programs()
    began, spent, before = time.monotonic(), time.process_time(), cpu_times()
    time.sleep(seconds)
    after = cpu_times()
    own = (time.process_time() - spent) / (time.monotonic() - began)
    ran: dict[str, float] = {}
    for process, (name, used) in _programs().items():
        ran[name] = ran.get(name, 0.0) + used - programs.get(process, (name, 0.0))[1]
    least = max(MIN_NAMED * max(ran.values(), default=0.0), MIN_USED_S)
    busiest = sorted((name for name in ran if ran[name] >= least), key=lambda name: -ran[name])
    return load_between(before, after, cpus, own, tuple(busiest[:BUSIEST]))


def load_between(
    before: Mapping[int, CpuTimes], after: Mapping[int, CpuTimes], cpus: set[int], own: float, busiest: tuple[str, ...]
) -> Load | None:
    """Return the load on `cpus` between two readings, or None. own: number of CPUs that this process kept busy."""
    counted = [times for cpu, times in between(before, after).items() if cpu in cpus and times.all >= MIN_S]
    if not counted:
        return None
    busy = sum(times.busy / times.all for times in counted)
    return Load(len(counted), max(0.0, busy - own), sum(times.stolen / times.all for times in counted), busiest)


def _programs() -> dict[psutil.Process, tuple[str, float]]:
    """Return all other processes with their name, without arguments, and their CPU seconds so far."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if process.pid != os.getpid() and times is not None:
            found[process] = (process.info["name"], times.user + times.system)
    return found
