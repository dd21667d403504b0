"""What a training step costs once its batch lies on the device, at several batch sizes.

Set against the step's time in training, it tells how much of it is waiting for data; against batch size, how much of it
does not depend on the arithmetic at all.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from scenarios.contract import Anatomy, StepTime
from scenarios.frameworks.base import Adapter, Images, Labels, Model, Photos, TrainSet
from scenarios.measure import batch_of, time_stretches

STRETCH_S = 0.06
SIZE_S = 0.4


def dissect(adapter: Adapter, model: Model, data: TrainSet, batch: int) -> Anatomy:
    """Time resident steps at a quarter, half and all of `batch`. Goes on training: the model's weights change."""
    images, labels = first_batch(adapter, data, batch)
    sizes = sorted({max(1, batch // 4), max(1, batch // 2), batch})
    return Anatomy(
        [
            StepTime(size, time_stretches(model.resident_steps(images[:size], labels[:size]), STRETCH_S, SIZE_S))
            for size in sizes
        ]
    )


def first_batch(adapter: Adapter, data: TrainSet, batch: int) -> tuple[Images, Labels]:
    """The first images of the training set, (batch, H, W, C), and their labels, repeated where there are too few;
    photos as the framework decodes them, not augmented."""
    labels = np.resize(data.labels, batch)
    if isinstance(data, Photos):
        few = dataclasses.replace(data, paths=data.paths[:batch], labels=data.labels[:batch], augment=None)
        return batch_of(adapter.read_photos(few), batch), labels
    return batch_of(data.images[:batch], batch), labels
