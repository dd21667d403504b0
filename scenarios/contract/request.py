"""Define the request: everything that a worker needs to know."""

from dataclasses import dataclass, field
from typing import Literal

from scenarios.contract.cell import Cell
from scenarios.contract.ranges import Count, Positive, PositiveTime, Seed

SCHEMA = 1
REQUEST_FILE = "request.json"
RESULT_FILE = "result.json"
REFERENCE_FILE = "reference.npz"
# Of launches that predict or export. The pictures are named by `picture_name`, and their thumbnails, too.
WEIGHTS_FILE = "weights.safetensors"
PICTURES, THUMBNAILS = "pictures", "thumbnails"
MODEL_FILE = "model.onnx"
# The largest weights, those of fashion-mlp with 100 hidden layers, take 101 MB. A checkpoint has up to two further
# values per weight, for the optimizer.
MAX_WEIGHTS_BYTES = 4 << 30
PROGRESS_FILE = "progress.json"
EPOCHS_FOLDER = "epochs"  # checkpoints and weights of a launch with whole epochs
CHECKPOINT_PREFIX = "checkpoint-"  # of the names of files in this folder

DataKind = Literal["real", "synthetic"]
Purpose = Literal["measure", "tune", "probe", "predict", "export"]
RECORDED: tuple[Purpose, ...] = ("measure", "tune", "probe")  # launches for the other purposes leave no record

# A search may last as long as this many starts of the stock settings. A minute allows fifteen candidates on a CPU.
SEARCH_STARTS = 15


def picture_name(index: int) -> str:
    """Return the name of a file in the folders of pictures and thumbnails. index: from 0."""
    return f"{index:06d}"


@dataclass(frozen=True)
class Budget:
    """How much a launch measures. None means no limit of that kind.

    steps: number of training steps. seconds: duration of the steady training windows, or of a search for settings.
    epochs: number of whole epochs, each with an evaluation. test_images: None for the whole test set. max_seconds: a
    search may last up to this long if its trials start slowly; None if it lasts `seconds` in any case.
    """

    steps: Positive | None = None
    seconds: PositiveTime | None = None
    epochs: Positive | None = None
    test_images: Positive | None = None
    max_seconds: PositiveTime | None = None

    def search_seconds(self, start_s: float) -> float:
        """Return how many seconds a search may last. start_s: from the start of a trial of stock until it is ready."""
        return max(self.seconds or 0.0, min(self.max_seconds or 0.0, SEARCH_STARTS * start_s))


@dataclass(frozen=True)
class Request:
    """Everything that a worker needs to know.

    cell: what to measure. launch: number of the launch, from 1. spec: digest of the scenario in the catalog with the
    cell's number of hidden layers, before the batch size and the number of epochs are replaced; empty for a probe.
    data: `real` reads the mounted data sets, `synthetic` generates its own. purpose: `measure` proves and measures the
    cell; `tune` searches for its fastest settings within about `budget.search_seconds`; `probe` measures the machine's
    ceilings; `predict` predicts the classes of `pictures` files with trained weights; `export` writes a trained network
    as an ONNX model. settings: what differs from the stock lane, as names and values of the adapter. environment:
    variables that must exist when the process starts; the engine sets them and the worker verifies them. full_proof:
    whether to prove everything and to time single steps, which a cell needs once in a run. Otherwise the launch proves
    weights, logits, photos and the training loop. keep_weights: whether to write the weights of the last and the best
    epoch; only with whole epochs. environment_digest: of the image or the packages; gpu_digest: of the GPU and the run,
    empty on the CPU; a checkpoint is continued only where both are the same. weights_digest: of the trained weights
    that a prediction or an export uses.
    """

    cell: Cell
    launch: Positive
    spec: str
    seed: Seed
    threads: Positive
    data: DataKind
    budget: Budget
    purpose: Purpose = "measure"
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    full_proof: bool = True
    keep_weights: bool = False
    environment_digest: str = ""
    gpu_digest: str = ""
    pictures: Count = 0
    weights_digest: str = ""
    schema: int = SCHEMA

    @property
    def times_steps(self) -> bool:
        """Return whether a launch that measures ends with the timing of single steps."""
        return self.full_proof and self.budget.steps is None

    @property
    def working_threads(self) -> int:
        """Return the number of threads to use: from the settings if they have one, else the requested number.

        Raise ValueError if the setting is not a number.
        """
        return int(self.settings.get("threads", self.threads))
