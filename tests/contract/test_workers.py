"""As many threads or processes load photos as a cell requests, and the placement says so. What runs is counted."""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from toys import RecordingMeter, noise, save_photo, toy, zeros

from scenarios.adapter import Adapter, Arrays, Options, Photos
from scenarios.data.photos import PhotoLoader
from scenarios.spec import Sgd

COUNT, BATCH = 32, 4
PHOTOS = toy(image=(8, 8, 3), optimizer=Sgd(1e-3), batch=BATCH, dataset="cats-dogs")
SLOW_S = 0.02  # for each batch or photo, so that a loader needs all its threads


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    path = save_photo(tmp_path / "photo.jpg", np.full((8, 8, 3), 90, np.uint8))
    return Photos([path] * COUNT, np.arange(COUNT) % 4, (8, 8))


def children() -> frozenset[int]:
    """Return the process ids of all children of this process, whichever of its threads started them."""
    return frozenset(child.pid for child in psutil.Process().children())


@dataclass
class LoaderMeter(RecordingMeter):
    """A meter that keeps the largest number of new processes and of the kit's loader threads at its steps.

    before: processes that other tests left.
    """

    processes: int = 0
    threads: int = 0
    before: frozenset[int] = field(default_factory=children)

    def step(self, images: int) -> bool:
        self.processes = max(self.processes, len(children() - self.before))
        names = [thread.name for thread in threading.enumerate()]
        self.threads = max(self.threads, sum(name.startswith("photos") for name in names))
        return super().step(images)


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        time.sleep(SLOW_S)
        return function(*arguments)

    return slow


class Parallel:
    """A slow reader of photos in a TensorFlow graph, which keeps the largest number of calls at a time."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self.read, self.lock = read, threading.Lock()
        self.active = self.most = 0

    def __call__(self, path: Any, size: tuple[int, int]) -> Any:
        tensorflow = importlib.import_module("tensorflow")
        same = tensorflow.numpy_function(self._wait, [path], tensorflow.string)
        return self.read(tensorflow.ensure_shape(same, ()), size)

    def _wait(self, path: Any) -> Any:
        with self.lock:
            self.active += 1
            self.most = max(self.most, self.active)
        time.sleep(SLOW_S)
        with self.lock:
            self.active -= 1
        return path


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"feed": "cached"}], ids=["stock", "cached"])
def test_as_many_workers_load_photos_as_requested(
    adapter: Adapter,
    options: Options,
    photos: Photos,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    workers: int,
) -> None:
    monkeypatch.setattr(PhotoLoader, "_load", slowed(PhotoLoader._load))
    if adapter.name == "tensorflow":
        model_module = importlib.import_module("scenarios.frameworks.tensorflow.model")
        monkeypatch.setattr(model_module, "read_photo", parallel := Parallel(model_module.read_photo))
    if settings and adapter.name == "torch" and options.device == "cuda":
        settings = {"feed": "pinned"}  # the cached feed with copies to the GPU
    chosen = replace(options, lane="tuned" if settings else "stock", settings=settings, workers=workers)
    model, meter = type(adapter)(chosen).build(PHOTOS, zeros(PHOTOS)), LoaderMeter()
    model.train_epoch(photos, 0, meter)
    placement = model.placement()
    assert placement.workers == workers
    assert re.search(rf"\b{workers} (worker processes|threads)", placement.loader), placement.loader
    if settings or adapter.name == "onnxruntime":
        assert meter.threads == workers
    elif adapter.name == "tensorflow":
        assert parallel.most == workers
    else:
        assert meter.processes == workers


def test_images_in_memory_have_no_workers(adapter: Adapter) -> None:
    arrays = toy(batch=BATCH, optimizer=Sgd(1e-3))
    model = adapter.build(arrays, zeros(arrays))
    model.train_epoch(Arrays(*noise(arrays, 2 * BATCH)), 0, RecordingMeter())
    assert model.placement().workers is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_number_of_workers_excludes_settings_that_have_none(adapters: type[Adapter], device: Any) -> None:
    free, fixed = (adapters.axes(Options(device=device, workers=n), PHOTOS)["training"] for n in (None, 2))
    without = {(name, value) for name, values in free.items() for value in values if value not in fixed[name]}
    assert without <= {("feed", "resident"), ("loop", "compiled")}
    assert not {"resident", "compiled"} & {*fixed.get("feed", ()), *fixed.get("loop", ())}
