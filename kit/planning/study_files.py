"""Define the files of `scenarios/studies`: one TOML file per published study.

A study is a selection of cells, the tables and charts of a publication, and its figures. `kit.planning.studies` reads
and checks the files.
"""

from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from kit.model.plan import MAX_EPOCHS
from kit.model.swept import SweptField
from kit.planning.selection import DEFAULT_VARIANT
from kit.planning.study_measures import MEASURES, Need
from scenarios.contract.cell import Device, Lane

Kind = Literal[
    "table", "bars", "dots", "lines", "curves", "heat", "causes", "gpu", "devices", "augmented", "predictions", "note"
]
Conclusion = Literal["speedup", "flattening", "overfitting", "accuracy"]
Text = Annotated[str, Field(min_length=1)]
Number = float | Annotated[list[float], Field(min_length=2, max_length=2)]  # a list: from, to

WITH_MEASURES = ("table", "bars", "dots", "lines", "heat")  # kinds of parts that need `measures`
TIMES = ("training_s", "epoch_s")  # measures in which publications may include the evaluation
EVALUATION = (
    "The publication does not say whether its times include the evaluation after each epoch. Times here are of the "
    "training alone."
)
VALIDATED = {"test_accuracy", "test_loss", "best_accuracy"}
VALIDATION = "What the publication calls validation accuracy or loss is measured on the test set here."
STEADY = "A speedup here compares steady speeds. It does not count the start of the training."
CURVES = ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "best_accuracy")  # measures of `curves`


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StudyCells(_Strict):
    """A selection of cells of one scenario.

    variants: `default` is the scenario itself. frameworks, devices: empty for all. batch, workers, hidden_layers: the
    values of a sweep; empty for the scenario's and the framework's. epochs: of the full profile, if the study trains
    another number than the scenario has; 0 if only the speed counts, which takes less time.
    """

    scenario: str
    variants: Annotated[list[str], Field(min_length=1)] = [DEFAULT_VARIANT]
    frameworks: list[str] = []
    devices: list[Device] = []
    lanes: Annotated[list[Lane], Field(min_length=1)] = ["stock"]
    batch: list[PositiveInt] = []
    workers: list[PositiveInt] = []
    hidden_layers: list[PositiveInt] = []
    epochs: Annotated[int, Field(ge=0, le=MAX_EPOCHS)] | None = None


class StudyPart(_Strict):
    """A table or chart.

    kind: see `Kind`. cells: names of the study's selections that it shows; empty for all. measures: see MEASURES; one
    table column, or one chart, each. x, y: the varied fields on the axes. published: show the published figures of
    these measures, too. text, command: what a `note` says instead of showing a measurement.
    """

    kind: Kind
    title: Text
    cells: list[str] = []
    measures: list[str] = []
    x: SweptField | None = None
    y: SweptField | None = None
    published: bool = False
    text: str = ""
    command: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the measures that the part shows."""
        return CURVES if self.kind == "curves" else tuple(self.measures)

    @property
    def needs(self) -> tuple[Need, ...]:
        """Return what a run must have to fill the whole part. Nothing for a note."""
        if self.kind == "note":
            return ()
        own: dict[Kind, Need] = {"gpu": "gpu", "predictions": "epochs"}
        needs = {MEASURES[name].need for name in self.shown} | ({own[self.kind]} if self.kind in own else set())
        return tuple(need for need in get_args(Need) if need in (needs or {"speed"}))

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        wanted = {
            "measures": self.kind in WITH_MEASURES,
            "x": self.kind in {"lines", "heat"},
            "y": self.kind == "heat",
            "text": self.kind == "note",
        }
        for name, needed in wanted.items():
            if bool(getattr(self, name)) != needed:
                raise ValueError(f"a part of kind {self.kind} {'needs' if needed else 'has no'} {name}")
        return self


class PublishedFigures(_Strict):
    """One figure of the publication, or several over a varied field.

    measure: see MEASURES. scenario, variant, device, devices, batch, workers, hidden_layers: of the cell. A device that
    is left out means that the study does not name it, or that the measure compares both. A missing batch is the
    scenario's. epoch: number of the epoch, from 1, or None for the end of the training. over, values: the field that
    varies, and the figure for each of its values; instead of `value`. A figure is a number, or the two ends of a range.
    hardware: if it is not that of the study.
    """

    measure: str
    scenario: str
    variant: str = DEFAULT_VARIANT
    device: Device | None = None
    devices: PositiveInt = 1
    batch: PositiveInt | None = None
    workers: PositiveInt | None = None
    hidden_layers: PositiveInt | None = None
    epoch: PositiveInt | None = None
    value: Number | None = None
    over: SweptField | Literal["epoch", "variant"] | None = None
    values: Annotated[dict[str, Number], Field(min_length=1)] | None = None
    hardware: str = ""

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if (self.value is None) == (self.values is None) or (self.values is None) != (self.over is None):
            raise ValueError("a published figure has either `value`, or `over` and `values`")
        if self.over not in {None, "variant"}:
            for name in self.values or {}:
                if not (name.isascii() and name.isdigit() and int(name)):
                    raise ValueError(f"values has {name!r}, but {self.over} is a number of at least 1")
        return self


class Hardware(_Strict):
    """The hardware of the published figures, by device."""

    cpu: Text
    cuda: Text


class StudyFile(_Strict):
    """The content of a study's file.

    question: what the authors asked. published_answer: what they concluded, in one sentence. conclusion: kind of the
    answer, computed from the measurements. source: where the figures come from. software: of the study, with its age.
    differs: what else differs from the publication. choices: what the publication leaves open and the kit chose. cells:
    selections by name.
    """

    title: Text
    question: Text
    published_answer: str = ""
    conclusion: Conclusion
    source: Text
    software: Text
    hardware: Hardware
    differs: list[Text] = []
    choices: list[Text] = []
    cells: Annotated[dict[str, StudyCells], Field(min_length=1)]
    parts: Annotated[list[StudyPart], Field(min_length=1)]
    published: list[PublishedFigures] = []

    @property
    def differences(self) -> list[str]:
        """Return how the kit's measurements differ from the publication, in sentences."""
        compared = any("speedup" in part.shown for part in self.parts)
        validated = any(name in VALIDATED for part in self.parts for name in part.shown)
        return [*[STEADY] * compared, *[VALIDATION] * validated, *self.differs]

    @property
    def own_choices(self) -> list[str]:
        """Return what the publication leaves open and the kit chose, in sentences."""
        timed = any(figures.measure in TIMES for figures in self.published)
        return [*[EVALUATION] * timed, *self.choices]
