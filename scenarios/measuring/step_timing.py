"""What a training step costs once its batch lies on the device, at several batch sizes.

Set against the step's time in training, it tells how much of it is waiting for data; against batch size, how much of it
does not depend on the arithmetic at all.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from scenarios.adapter import Adapter, Images, Labels, Model, Photos, TrainSet
from scenarios.contract.result import StepTime, StepTiming
from scenarios.data import part_of
from scenarios.measuring.measure import batch_of, time_by_turns

STRETCH_S = 0.06
SIZE_S = 0.6


def time_resident_steps(adapter: Adapter, model: Model, data: TrainSet, batch: int) -> StepTiming:
    """Time resident steps at a quarter, half and all of `batch`. Goes on training: the model's weights change."""
    images, labels = a_batch(adapter, data, batch)
    sizes = sorted({max(1, batch // 4), max(1, batch // 2), batch})
    steps = [model.resident_steps(images[:size], labels[:size]) for size in sizes]
    times = time_by_turns(steps, STRETCH_S, SIZE_S)
    return StepTiming([StepTime(size, seconds) for size, seconds in zip(sizes, times, strict=True)])


def a_batch(adapter: Adapter, data: TrainSet, batch: int) -> tuple[Images, Labels]:
    """Images of the training set, (batch, H, W, C), and their labels, repeated where there are too few; photos as the
    framework decodes them, not augmented."""
    few = part_of(data, batch)
    labels = np.resize(few.labels, batch)
    if isinstance(few, Photos):
        return batch_of(adapter.read_photos(dataclasses.replace(few, augment=None)), batch), labels
    return batch_of(few.images, batch), labels
