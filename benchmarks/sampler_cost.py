"""Measure the cost of the host's sampler: a fixed numpy workload on all cores, with and without the sampler in turn.

`python -m benchmarks.sampler_cost` prints one line of JSON. ratio: throughput with the sampler / throughput without it,
the median of n pairs. interval: 95%. cpu_share: CPU time of the sampler's thread / wall time, as a share of one CPU.
The workload runs in a separate process, like a worker, while this process waits, like the kit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.pairs import exit_code, print_line, ratios, summary
from benchmarks.processes import exclusive_machine
from kit.host import gpus
from kit.host.sampling.sampler import Sampler

PAIRS = 20
SLICE_S = 8.0  # of work; in a shorter slice, the sampler's start and end, paid once per launch, would weigh too much
SIZE = 1024


def work(requests: Connection) -> None:
    """Multiply matrices as often as each request says, and answer with the seconds. The request 0 ends the process."""
    left, right = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), dtype=np.float32)
    while times := requests.recv():
        start = time.monotonic()
        for _ in range(times):
            left @ right
        requests.send(time.monotonic() - start)


def timed(requests: Connection, times: int) -> float:
    """Return the seconds of one slice."""
    requests.send(times)
    seconds: float = requests.recv()
    return seconds


def sampled(requests: Connection, times: int, gpu_indices: list[str]) -> tuple[float, float]:
    """Return the seconds of one slice under the sampler, and the sampler's share of one CPU."""
    sampler = Sampler(gpu_indices)
    sampler.start()
    seconds = timed(requests, times)
    context = sampler.stop()
    return seconds, context.cost_s / (context.at[-1] - context.at[0])


def measure(requests: Connection) -> dict[str, object]:
    """Return the line to print."""
    gpu_indices = [str(gpu.index) for gpu in gpus.gpus()]
    timed(requests, 10)  # warm up threads and caches
    times = max(1, round(SLICE_S / (timed(requests, 50) / 50)))
    shares: list[float] = []

    def with_sampler() -> float:
        seconds, share = sampled(requests, times, gpu_indices)
        shares.append(share)
        return seconds

    values = list(ratios(with_sampler, lambda: timed(requests, times), PAIRS))
    return {"bench": "sampler", **summary(values, PAIRS), "cpu_share": round(statistics.fmean(shares), 6)}


def main() -> None:
    """Measure while holding the machine lock, and print the line."""
    argparse.ArgumentParser(prog="benchmarks.sampler_cost", description=__doc__).parse_args()  # --help only
    processes = multiprocessing.get_context("spawn")
    with exclusive_machine():
        ours, theirs = processes.Pipe()
        worker = processes.Process(target=work, args=(theirs,), daemon=True)
        worker.start()
        line = measure(ours)
        ours.send(0)
        worker.join()
    print_line(line)


if __name__ == "__main__":
    sys.exit(exit_code(main))
