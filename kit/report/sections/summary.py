"""The verdict, the notices, and the training speed of every cell in one table."""

from collections import Counter
from collections.abc import Sequence

from kit.analysis.intervals import Verdict
from kit.analysis.summaries import CellSummary, Contest, Ratio
from kit.model.formatting import format_count
from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section, configuration


def _data(source: ReportInput) -> dict[str, object]:
    return {
        "verdict": _verdict(source),
        "notices": _notices(source),
        "speeds": _speeds(source),
        "speedups": _speedups(source),
        "frameworks": _frameworks(source),
    }


def _verdict(source: ReportInput) -> tuple[str, ...]:
    if not source.measured:
        return ("Nothing was measured. The reasons are below.",)
    lines = []
    if source.contests:
        wins = Counter(contest.leader.cell.framework for contest in source.contests if contest.named)
        shares = [f"{source.framework_title(framework)} in {count}" for framework, count in wins.most_common()]
        unknown = sum(contest.unknown for contest in source.contests)
        unclear = len(source.contests) - wins.total() - unknown
        shares += [f"no clear winner in {unclear}"] * bool(unclear)
        shares += [f"unknown in {unknown}, because one launch does not show how much launches vary"] * bool(unknown)
        count = format_count(len(source.contests), "comparison")
        lines.append(f"Fastest framework in training, {count}: {', '.join(shares)}.")
        lines += [_ahead_once(source, contest) for contest in source.contests if contest.unknown]
    if lanes := source.ratios("lane"):
        lines.append(f"Tuned against stock in training: {_range(lanes)}.")
    if devices := source.ratios("device"):
        lines.append(f"CUDA against CPU in training: {_range(devices)}.")
    else:
        lines.append("CPU and CUDA were not both measured, so there is no speedup to show.")
    return tuple(lines)


def _range(ratios: Sequence[Ratio]) -> str:
    low, high = (text.ratio(end) for end in (min(r.ratio for r in ratios), max(r.ratio for r in ratios)))
    return low if low == high else f"{low} to {high}, depending on the cell"


def _ahead_once(source: ReportInput, contest: Contest) -> str:
    others = ", ".join(
        f"{source.framework_title(r.denominator.cell.framework)} by {text.ratio(r.ratio)}" for r in contest.ratios
    )
    return f"{source.name(contest.leader.key)} is ahead of {others}, in one launch."


def _notices(source: ReportInput) -> tuple[str, ...]:
    measured, not_run = source.measured, source.run.not_run
    synthetic = sorted({c.cell.label for c in measured if c.synthetic})
    notices: list[tuple[object, str]] = [
        (
            not_run,
            f"The run is incomplete. Launches without a record: {len(not_run)}. Continue with kit run --resume.",
        ),
        (
            source.run.plan.profile == "smoke",
            "The smoke profile trains 20 steps. It shows that everything works, not how fast it is.",
        ),
        (
            synthetic,
            f"Measured on synthetic data. The accuracies say nothing about the real task: {', '.join(synthetic)}.",
        ),
        (
            any(c.launches == 1 for c in measured),
            "Cells with one launch have no interval. Another launch may differ by tens of percent on a shared machine.",
        ),
        (
            any(c.projected for c in measured),
            "Times per epoch with ≈ are projected from steady windows. No whole epoch was timed.",
        ),
    ]
    return tuple(notice for applies, notice in notices if applies)


def _speeds(source: ReportInput) -> Table:
    fastest = {contest.leader.key for contest in source.contests if contest.named}
    tied = {key for contest in source.contests if not contest.named for key in _tied(contest)}
    marks = ("★ the fastest framework",) * bool(fastest) + ("☆ perhaps the fastest",) * bool(tied)
    columns = sorted({_column(c): source.series(c) for c in source.measured}.items())
    rows: list[tuple[str, ...]] = []
    for label, group in source.rows.items():
        cells = {_column(c): c for c in group}
        row = [label]
        for column, _ in columns:
            cell = cells.get(column)
            mark = " ★" if cell and cell.key in fastest else " ☆" if cell and cell.key in tied else ""
            row.append(text.estimate(cell.images_per_s, cell.interval) + mark if cell else text.MISSING)
        rows.append(tuple(row))
    return Table(
        caption="Training, images/s" + (f" ({', '.join(marks)})" if marks else ""),
        headers=("Scenario", *(name for _, name in columns)),
        rows=tuple(rows),
        numeric=tuple(range(1, len(columns) + 1)),
        marks=frozenset(i for i, group in enumerate(source.rows.values()) if any(c.synthetic for c in group)),
    )


def _tied(contest: Contest) -> set[str]:
    """Return the keys of the leader and of the cells that tie with it. None, if none ties."""
    ties = {ratio.denominator.key for ratio in contest.ratios if ratio.verdict is Verdict.TIE}
    return {contest.leader.key, *ties} if ties else set()


def _column(cell: CellSummary) -> tuple[bool, str, str]:
    """Return what identifies a column. Columns are sorted by it: the plain CPU first."""
    return configuration(cell) != "cpu", cell.cell.framework, configuration(cell)


def _speedups(source: ReportInput) -> Table:
    pairs = source.ratios("device")
    labels = {c.key: label for label, group in source.rows.items() for c in group}
    return Table(
        caption="CUDA against CPU, training images/s",
        headers=("Scenario", "Framework", "CPU", "CUDA", "Speedup", "95 % interval"),
        rows=tuple(
            (
                labels[p.numerator.key],
                source.series(p.numerator),
                text.number(p.denominator.images_per_s),
                text.number(p.numerator.images_per_s),
                text.ratio(p.ratio),
                text.interval(p),
            )
            for p in pairs
        ),
        numeric=(2, 3, 4),
        marks=frozenset(i for i, p in enumerate(pairs) if p.numerator.synthetic),
    )


def _frameworks(source: ReportInput) -> Table:
    return Table(
        caption="The leading framework against the others, training images/s. Each interval is for its pair alone",
        headers=("Leader", "Other", "Ratio", "95 % interval", "Fastest of all"),
        rows=tuple(
            (
                source.name(ratio.numerator.key),
                source.name(ratio.denominator.key),
                text.ratio(ratio.ratio),
                text.interval(ratio),
                "yes" if contest.named else "unknown" if contest.unknown else "not clear",
            )
            for contest in source.contests
            for ratio in contest.ratios
        ),
        numeric=(2, 3),
    )


SECTION = Section(10, "summary", "Summary", _data, "summary.html")
