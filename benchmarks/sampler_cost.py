"""What the sampler costs a launch: a fixed numpy workload on all cores, with the sampler and without, alternating.

`python -m benchmarks.sampler_cost` prints one line of JSON. ratio: throughput with the sampler over that without,
the median of n pairs; interval: 95 %; cpu_share: CPU time of the sampler's thread over wall time, as a share
of one CPU. The workload runs in a process of its own, as a worker does, while this one waits, as kit does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.pairs import exit_code, ratios, say, summary
from benchmarks.processes import alone
from kit.host import gpus
from kit.host.sampling.sampler import Sampler

PAIRS = 20
SLICE_S = 8.0  # of work; in shorter ones the sampler's start and end, once a launch, would weigh too much
SIZE = 1024


def work(orders: Connection) -> None:
    """Multiply matrices as often as each order says and answer with the seconds that it took; 0 ends it."""
    left, right = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), dtype=np.float32)
    while times := orders.recv():
        start = time.monotonic()
        for _ in range(times):
            left @ right
        orders.send(time.monotonic() - start)


def timed(orders: Connection, times: int) -> float:
    """Seconds of one slice."""
    orders.send(times)
    seconds: float = orders.recv()
    return seconds


def sampled(orders: Connection, times: int, watched: list[str]) -> tuple[float, float]:
    """Seconds of one slice under the sampler, and the sampler's share of a CPU."""
    sampler = Sampler(watched)
    sampler.start()
    seconds = timed(orders, times)
    context = sampler.stop()
    return seconds, context.cost_s / (context.at[-1] - context.at[0])


def measure(orders: Connection) -> dict[str, object]:
    """The line to print."""
    watched = [str(gpu.index) for gpu in gpus.gpus()]
    timed(orders, 10)  # threads and caches
    times = max(1, round(SLICE_S / (timed(orders, 50) / 50)))
    shares: list[float] = []

    def under_the_sampler() -> float:
        seconds, share = sampled(orders, times, watched)
        shares.append(share)
        return seconds

    found = list(ratios(under_the_sampler, lambda: timed(orders, times), PAIRS))
    return {"bench": "sampler", **summary(found, PAIRS), "cpu_share": round(statistics.fmean(shares), 6)}


def main() -> None:
    """Measure with the machine to ourselves, and print."""
    argparse.ArgumentParser(prog="benchmarks.sampler_cost", description=__doc__).parse_args()  # it has none but --help
    processes = multiprocessing.get_context("spawn")
    with alone():
        here, there = processes.Pipe()
        worker = processes.Process(target=work, args=(there,), daemon=True)
        worker.start()
        line = measure(here)
        here.send(0)
        worker.join()
    say(json.dumps(line))


if __name__ == "__main__":
    sys.exit(exit_code(main))
