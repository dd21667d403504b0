"""Report launches to the user: what runs now, the time that is left, and a line for each launch and round."""

import copy
import time
from collections.abc import Callable, Sequence

from kit.analysis.measured_launch import measured_launches
from kit.analysis.sweeps import value_of, value_words, varied_fields
from kit.analysis.warning_rules import other_load
from kit.execution import tuned_settings
from kit.execution.time_left import whole_seconds
from kit.model.formatting import DEVICES, format_about, format_count, format_duration
from kit.model.plan import Plan
from kit.model.progress import Outcome, Phase, Progress
from kit.model.record import Record
from kit.planning import catalog
from kit.planning.estimates import INFERENCE_S, Pace, request_seconds
from scenarios.contract.cell import CEILINGS, Cell
from scenarios.contract.epochs import EpochProgress
from scenarios.contract.request import Request

LOG_S = 60.0  # minimum time between two lines of the log about epochs


class LaunchReport:
    """Report the launches of one phase.

    A terminal shows the launch that runs, with its newest epoch, and the newest figure. A log gets a line for each
    launch, for each round if there are several, and for epochs, at most one in LOG_S. pace: of earlier launches.
    """

    def __init__(
        self,
        phase: Phase,
        progress: Progress,
        plan: Plan,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._phase, self._progress = phase, progress
        self._several_devices = len({launch.cell.device for launch in plan.launches}) > 1
        self._scenarios = catalog.scenarios()
        self._varied = varied_fields((launch.cell for launch in plan.launches), self._scenarios)
        self._titles = {name: framework.title for name, framework in catalog.frameworks().items()}
        self._pace = pace or Pace()
        self._clock = clock
        self._began = self._spoke_at = clock()
        self._coming: list[tuple[Request, float]] = []  # with typical seconds
        self._rounds = self._warned = False
        self.records: list[tuple[Record, bool]] = []

    def expect(self, launches: Sequence[Request]) -> None:
        """Announce the launches that will run next."""
        self._coming = [(request, request_seconds(request, self._scenarios)) for request in launches]
        self._rounds = bool(self.records) or len({request.launch for request in launches}) > 1
        self._phase.expect(len(launches))

    def start(self, request: Request) -> None:
        """Report that a launch begins."""
        self._began = self._spoke_at = self._clock()
        self._phase.now(f"{self.name(request.cell)}{_number(request.launch)}", self._left_s())

    def epoch(self, progress: EpochProgress) -> None:
        """Report an epoch of the launch that began last."""
        request, typical_s = self._coming[0]
        own_s = (progress.epochs - progress.epoch) * progress.epoch_s + INFERENCE_S
        now = self._clock()
        pace = copy.deepcopy(self._pace)
        # A resumed training had epochs before this launch began.
        whole_s = max(now - self._began + own_s, progress.epochs * progress.epoch_s + INFERENCE_S)
        pace.add(request.cell.key, typical_s, whole_s)
        left_s = own_s + pace.left_s((coming.cell.key, typical) for coming, typical in self._coming[1:])
        reached = f"epoch {progress.epoch} of {progress.epochs}, {progress.test_accuracy:.1%} test accuracy"
        # The epoch is first, because a terminal cuts long rows.
        self._phase.now(f"{reached}, {self.name(request.cell)}", left_s)
        if now - self._spoke_at >= LOG_S:
            self._spoke_at = now
            self._progress.log(f"{request.cell.key}: {reached}, {format_about(left_s)} left")

    def finish(self, record: Record, *, of_base: bool) -> None:
        """Report the record of the launch that began last."""
        request, typical_s = self._coming.pop(0)
        if seconds := whole_seconds(record):
            self._pace.add(request.cell.key, typical_s, seconds)
        self.records.append((record, of_base))
        self._phase.result(f"{self.name(record.cell)}: {_outcome(record)}")
        self._phase.advance(1)
        number = _number(record.launch)
        self._progress.log(f"{record.key}{number}: {_outcome(record)}{' (base)' if of_base else ''}")
        training = record.result.training if record.result else None
        for why in training.ignored_checkpoints if training else ():
            self._progress.line(f"{record.key}{number}: {why}")
        self._warn(record)
        self._log_round(record)

    def name(self, cell: Cell) -> str:
        """Return the name of a cell, for example `mnist-cnn in PyTorch on the GPU`. Only what differs is named."""
        what = "Ceilings" if cell.scenario == CEILINGS else cell.label
        where = f" on the {DEVICES[cell.device]}" if self._several_devices else ""
        details: list[str] = [part for part, usual in ((cell.lane, "stock"), (cell.precision, "fp32")) if part != usual]
        fields = self._varied.get(cell.label, ())
        details += [value_words(field, value_of(cell, field, self._scenarios)) for field in fields]
        return ", ".join([f"{what} in {self._titles.get(cell.framework, cell.framework)}{where}", *details])

    def outcome(self) -> Outcome:
        """Return what was measured."""
        cells = {(record.key, of_base) for record, of_base in self.records}
        failed = {(record.key, of_base) for record, of_base in self.records if not record.ok}
        if not cells:
            return Outcome("nothing can be measured here", good=False)
        counts = (format_count(len(cells), "cell"), format_count(len(self.records), "launch"))
        if failed:
            return Outcome(f"{len(failed)} of {counts[0]} failed, {counts[1]}", good=False)
        return Outcome(", ".join(counts))

    def _left_s(self) -> float:
        return self._pace.left_s((request.cell.key, typical_s) for request, typical_s in self._coming)

    def _warn(self, record: Record) -> None:
        """Say that other programs disturb the run. Say it once, because the results mark each disturbed cell."""
        launches = measured_launches([record])
        if self._warned or not launches or not (load := other_load(launches)):
            return
        self._warned = True
        self._progress.line(f"! {self.name(record.cell)}: {load} Stop them, or the speeds will be too low.")

    def _log_round(self, record: Record) -> None:
        if not self._rounds or any(request.launch == record.launch for request, _ in self._coming):
            return
        own = [each for each, _ in self.records if each.launch == record.launch]
        seconds = format_duration(sum(each.seconds for each in own))
        left = f", {format_about(self._left_s())} left" if self._coming else ""
        self._progress.log(f"Round {record.launch}: {format_count(len(own), 'launch')}, {seconds}{left}")


def _number(launch: int) -> str:
    """Return what tells a further launch of a cell from the first one."""
    return f", launch {launch}" if launch > 1 else ""


def _outcome(record: Record) -> str:
    """Return the figure of a launch, or why it has none."""
    if record.reason:
        return f"{record.status.words}, {record.reason.message}"
    result = record.result
    assert result is not None, "a launch that is ok has a result"
    if result.ceilings:
        products = [ceiling.value for ceiling in result.ceilings if ceiling.name == "matmul"]
        return ", ".join(f"{value / 1e9:,.0f} GFLOP/s in matrix products" for value in products) or "measured"
    if result.tuning:
        return tuned_settings.describe(result.tuning)
    assert result.training is not None
    return f"{result.training.images_per_s:,.0f} images/s"
