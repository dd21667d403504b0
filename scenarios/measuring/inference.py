"""Measure inference: the latency of single images and the throughput of batches."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from scenarios.adapter import Arrays, Images, Model
from scenarios.contract.result import MIN_P99_SAMPLES, Inference, Window
from scenarios.measuring.training import evaluate
from scenarios.spec import Scenario

WINDOW_S = 0.05
MIN_WINDOWS = 3
MIN_LATENCIES = 5
MAX_LATENCIES = 2000
SINGLE_IMAGES = 32  # different images for which the latency is measured


def infer(model: Model, scenario: Scenario, test: Arrays, seconds: float) -> Inference:
    """Measure latency at batch 1 and throughput at the scenario's inference batch, each for about `seconds`."""
    latency_ms = _latencies(model.predictor(1), test.images, seconds)
    p50, p90, p99 = (float(np.percentile(latency_ms, q)) for q in (50, 90, 99))
    batch = scenario.inference_batch
    windows = _throughput(model.predictor(batch), fill_batch(test.images, batch), seconds)
    loss, accuracy = evaluate(model, scenario, test)
    return Inference(
        latency_ms=latency_ms,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99 if len(latency_ms) >= MIN_P99_SAMPLES else None,
        batch=batch,
        windows=windows,
        images_per_s=statistics.median(w.images / w.seconds for w in windows),
        test_images=len(test.labels),
        test_loss=loss,
        test_accuracy=accuracy,
    )


def fill_batch(images: Images, batch: int) -> Images:
    """Return the first `batch` images, (batch, H, W, C). If there are fewer, repeat them from the first on."""
    return images[np.arange(batch) % len(images)]


def _latencies(call: Callable[[Images], object], images: Images, seconds: float) -> list[float]:
    """Return the duration of each call in milliseconds. A quarter of `seconds` warms up first."""
    singles = [np.ascontiguousarray(images[i : i + 1]) for i in range(min(SINGLE_IMAGES, len(images)))]
    warm_until = time.monotonic() + seconds / 4
    call(singles[0])
    while time.monotonic() < warm_until:
        call(singles[0])
    samples: list[float] = []
    end = time.monotonic() + seconds
    while len(samples) < MIN_LATENCIES or (time.monotonic() < end and len(samples) < MAX_LATENCIES):
        single = singles[len(samples) % len(singles)]
        start = time.monotonic()
        call(single)
        samples.append(round((time.monotonic() - start) * 1e3, 6))  # ns, like the clock
    return samples


def _throughput(call: Callable[[Images], object], images: Images, seconds: float) -> list[Window]:
    """Return windows of WINDOW_S or one call each. The first call warms up, the second sets the calls per window."""
    call(images)
    start = time.monotonic()
    call(images)
    calls = max(1, round(WINDOW_S / max(time.monotonic() - start, 1e-6)))
    windows: list[Window] = []
    end = time.monotonic() + seconds
    while len(windows) < MIN_WINDOWS or time.monotonic() < end:
        start = time.monotonic()
        for _ in range(calls):
            call(images)
        windows.append(Window(start, round(time.monotonic() - start, 9), calls, calls * len(images)))
    return windows
