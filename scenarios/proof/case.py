"""Make what both the adapter and the reference compute, and keep the reference's values in a file."""

import hashlib
import time
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.adapter import Images, Labels
from scenarios.proof import reference
from scenarios.proof.distances import sample
from scenarios.proof.reference import Array, Floats, Form, Tensors, Trajectory, Values
from scenarios.spec import Scenario, digest, without_randomness
from scenarios.spec.flops import training_flops
from scenarios.weights import Weights, check_weights, is_deep
from scenarios.weights import digest as weights_digest

# A step of the proof has at most this arithmetic. Only the batches of the deep network, and batches of over 1,000
# images, are reduced to it.
MAX_STEP_FLOPS = 60e9
FULL_BATCHES = 2  # of the loop, before its short last batch
SHRINK = 1e-2
MIN_CACHED_S = 0.3
UNREADABLE = (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Case:
    """What both the adapter and the reference compute.

    scenario: without randomness, its batch reduced if a step has more arithmetic than MAX_STEP_FLOPS. images, labels:
    (proof_batch, H, W, C) and (proof_batch,). repeated: the image that fills all batches of the loop, (H, W, C).
    """

    scenario: Scenario
    weights: Weights
    images: Images
    labels: Labels
    repeated: Images

    @property
    def deep(self) -> bool:
        """Return whether the network is so deep that rounding decides about many ReLUs."""
        return is_deep(self.scenario)

    @property
    def last(self) -> int:
        """Return the size of the loop's short last batch, 0 at batch 1."""
        return min(self.scenario.proof_batch, self.scenario.batch - 1)

    @property
    def batches(self) -> list[int]:
        """Return the sizes of the loop's batches."""
        return [*[self.scenario.batch] * FULL_BATCHES, *([self.last] if self.last else [])]

    @property
    def filling(self) -> Labels:
        """Return the indices of the images that fill a batch, (batch,). Each is in it about equally often."""
        return np.arange(self.scenario.batch) % len(self.images)

    @property
    def shares(self) -> Array:
        """Return the share of each image in that batch, (proof_batch,)."""
        return np.bincount(self.filling, minlength=len(self.images)) / self.scenario.batch

    @property
    def gentle_weights(self) -> Weights:
        """Return the weights for steps of the scenario's own optimizer: the last kernel is scaled down.

        This scales down every gradient behind it. Otherwise epsilon would not matter: at a gradient of 0.01, both forms
        of Adam and any epsilon give the same update within the tolerance. And one step on a repeated image would bring
        its loss to 0, so that later steps would have no effect.
        """
        last = f"{len(self.scenario.layers) - 1}/kernel"
        return self.weights | {last: (self.weights[last] * SHRINK).astype(np.float32)}


def make_case(scenario: Scenario, seed: int) -> Case:
    """Return the scenario without randomness, weights for checking, and images of noise.

    The noise is uniform in [0, 1), float32. It avoids ties in the pools, which equal pixels would cause. The labels are
    uniformly distributed. With a single output, they contradict the first image's logit, except for the last label:
    images of noise have similar logits, so the gradients of equally frequent labels would cancel each other, down to
    their rounding in bf16. The repeated image is the first one.
    """
    generator = np.random.default_rng([seed, zlib.crc32(b"proof batch")])
    images = generator.random((scenario.proof_batch, *scenario.image), dtype=np.float32)
    labels = generator.integers(0, max(2, scenario.output.units), scenario.proof_batch)
    weights = check_weights(scenario, seed)
    if scenario.output.units == 1:
        labels[:-1] = reference.forward(without_randomness(scenario), weights, images[:1]) < 0
        labels[-1] = 1 - labels[0]
    affordable = max(2, int(MAX_STEP_FLOPS / training_flops(scenario)))
    plain = replace(without_randomness(scenario), batch=min(scenario.batch, affordable))
    return Case(plain, weights, images, labels, images[0])


class Expected:
    """The reference's values for a case, from the file `cache` if it has them, else computed."""

    def __init__(self, case: Case, cache: Path | None) -> None:
        self._case, self._cache = case, cache
        self._key = _cache_key(case)
        self._stored: dict[str, Floats] = _read_cache(cache, self._key) if cache else {}
        self._seconds = 0.0

    @property
    def cached(self) -> bool:
        """Return whether everything asked for so far came from the file."""
        return bool(self._stored) and not self._seconds

    def function(self) -> Values:
        """Return logits, loss and gradients on the case's images, each with its share in a batch."""
        case = self._case
        if "loss" not in self._stored:
            started = time.monotonic()
            values = reference.evaluate(case.scenario, case.weights, case.images, case.labels, shares=case.shares)
            self._stored |= {"logits": values.logits, "loss": np.array(values.loss)}
            self._stored |= {f"gradient {name}": value.astype(np.float32) for name, value in values.gradients.items()}
            self._seconds += time.monotonic() - started
        return Values(self.logits(), float(self._stored["loss"]), self._tensors("gradient "))

    def logits(self) -> Array:
        """Return the logits of the case's images."""
        if "logits" not in self._stored:
            return reference.forward(self._case.scenario, self._case.weights, self._case.images)
        return np.asarray(self._stored["logits"], np.float64)

    def loop(self, form: Form) -> Trajectory:
        """Return what the loop does from the gentle weights, the changes as `distances.sample` gives them."""
        case, prefix = self._case, f"loop {form} "
        if f"{prefix}losses" not in self._stored:
            started = time.monotonic()
            image, label, steps = case.repeated[np.newaxis], case.labels[:1], len(case.batches)
            whole = reference.trajectory(case.scenario, form, case.gentle_weights, image, label, steps)
            self._stored |= {prefix + name: sample(value).astype(np.float32) for name, value in whole.changes.items()}
            self._stored[f"{prefix}losses"] = whole.losses
            self._seconds += time.monotonic() - started
        return Trajectory(np.asarray(self._stored[f"{prefix}losses"], np.float64), self._tensors(prefix))

    def save(self) -> None:
        """Replace the file if computing what it lacked took over MIN_CACHED_S. Raise OSError if that fails."""
        if self._cache is None or self._seconds <= MIN_CACHED_S:
            return
        temporary = self._cache.with_name(f".{self._cache.name}.new")
        with open(temporary, "wb") as file:
            np.savez(file, **(self._stored | {"key": np.array(self._key)}))
        temporary.replace(self._cache)

    def _tensors(self, prefix: str) -> Tensors:
        """Return the stored tensor of each parameter. The file holds them in float32, because some are large."""
        return {name: np.asarray(self._stored[prefix + name], np.float64) for name in self._case.weights}


def _cache_key(case: Case) -> str:
    """Return a digest of all that the values depend on. Of the batch size, only the shares of the images matter."""
    same = replace(case.scenario, batch=1, epochs=1, inference_batch=1)
    found = hashlib.sha256(digest(same).encode())
    found.update(weights_digest(case.weights | {"images": case.images, "repeated": case.repeated}).encode())
    found.update(f"{case.labels.tolist()} {case.shares.tolist()} {len(case.batches)}".encode())
    for module in (reference.__file__, __file__):
        found.update(Path(module).read_bytes())
    return found.hexdigest()


def _read_cache(cache: Path, key: str) -> dict[str, Any]:
    try:
        with open(cache, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files} if str(stored["key"]) == key else {}
    except UNREADABLE:  # a damaged cache is ignored, and the values are computed again
        return {}
