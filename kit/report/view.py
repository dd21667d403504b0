"""What the report says, as plain data: every text, number and table, but no markup. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kit.analysis.intervals import Interval
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary, Ratio, ratios, short_names, summarise
from kit.model.cell import Scenarios
from kit.model.figures import counted
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from kit.report import conditions, evidence, text, tuned
from kit.report.parts import Bar, Point, Section, Table, View
from scenarios.spec import DATASETS, Scenario

MAX_EPOCHS = 300  # that a curve shows: about two a pixel

METHOD = (
    (
        "Each launch is one fresh process (in a container: no network, read-only, no privileges) that runs one cell: "
        "a scenario in one framework on one device."
    ),
    (
        "Before anything is timed, the launch is held against a reference in float64: logits, loss, gradients and the "
        "optimizer's own update on fixed weights. A launch that computes something else is failed and shows no speed."
    ),
    (
        "Training starts from weights that are equal in all frameworks, read back and compared by hash. The stock lane "
        "is what the framework's own tutorial would have you type; ONNX Runtime, which has no trainer, runs one graph "
        "with forward, backward and update made by the kit (“kit step graph”)."
    ),
    (
        "Time is cut into windows of about a quarter of a second; the device is synchronised at the end of a window, "
        "never at a step. First step, warm-up and steady state are kept apart. A launch's value is the median of its "
        "steady windows; where these begin is found from the samples (MSER, White 1997)."
    ),
    (
        "A cell's value is the geometric mean over its launches, with a 95 % interval from these alone (Student's t "
        "on logarithms, widened because launches are added until the interval is narrow); intervals of ratios are "
        "Welch's. Where the interval of a ratio holds 1, the two are called a tie."
    ),
    (
        "Ceilings are measured through the frameworks themselves before the cells. Arithmetic is counted from the "
        "layers, two operations a multiply-add. What holds a cell back follows from its steps on a batch that lies on "
        "the device, at a quarter, half and all of the batch size, against the steps of training and the ceilings."
    ),
    "Latency is measured at batch 1 from host array to host array; throughput at a large batch, named in the table.",
    "A single launch has no interval, and the next one may well differ by tens of percent where a machine is shared.",
)


def make_view(analysis: RunAnalysis, titles: Mapping[str, str]) -> View:
    """Everything the report of one run says. titles: framework name to display name; unknown ones keep their name."""
    plan, machine, records = analysis.plan, analysis.machine, analysis.records
    summaries = summarise(records)
    ok = [s for s in summaries if s.launches]
    names = {s.key: name for s, name in zip(summaries, short_names(summaries), strict=True)}
    compared = ratios(ok, records)
    pairs = [ratio for ratio in compared if ratio.kind == "device"]
    frameworks = [ratio for ratio in compared if ratio.kind == "framework" and ratio.interval]
    return View(
        title="Deep learning on this machine",
        subtitle=f"{machine.cpu_model}, {_devices(machine)} · {plan.profile} profile · {text.moment(plan.created_at)}",
        verdict=_verdict(ok, compared, titles),
        notices=_notices(plan, records, ok),
        summary=_summary(ok, titles, frameworks),
        frameworks=_frameworks(frameworks, names),
        speedups=_speedups(pairs, ok, titles),
        sections=tuple(_sections(ok, analysis.scenarios, titles)),
        warnings=conditions.warnings_table(analysis.warnings, names),
        tuned=tuned.chosen_table(plan, analysis.tunings, [r for r in compared if r.kind == "lane"], names),
        tried=tuned.tried_table(analysis.tunings, names),
        diagnoses=conditions.diagnoses_table(analysis.diagnoses, names),
        ceilings=conditions.ceilings_table(analysis.ceilings),
        energy=conditions.energy_table(records, names),
        timelines=conditions.timelines([*analysis.probes, *records]),
        problems=evidence.problems(records, plan, names),
        machine=evidence.machine_table(machine),
        proof=evidence.proof(records, names),
        launches=evidence.launches(records, names),
        provenance=evidence.provenance(plan, machine, records),
        method=(
            *METHOD,
            *[tuned.METHOD] * any(s.lane == "tuned" for s in ok),
            *filter(None, [conditions.costs(records)]),
        ),
    )


def _devices(machine: Machine) -> str:
    gpus = [f"{n} × {name}" for name, n in Counter(gpu.name for gpu in machine.gpus).items()]
    return ", ".join([counted(machine.cpus, "CPU"), *(gpus or ["no NVIDIA GPU"])])


def _name(framework: str, titles: Mapping[str, str]) -> str:
    return titles.get(framework, framework)


def _variant_of(cell: CellSummary) -> str:
    """Framework and device, with what differs from the default lane and precision."""
    extra = [cell.lane] * (cell.lane != "stock") + [cell.precision] * (cell.precision != "fp32")
    device = cell.device if cell.devices == 1 else f"{cell.devices} × {cell.device}"
    return " ".join([device, *extra])


def _verdict(ok: Sequence[CellSummary], compared: Sequence[Ratio], titles: Mapping[str, str]) -> tuple[str, ...]:
    if not ok:
        return ("Nothing was measured: see below what failed and why.",)
    lines = []
    devices, lanes = ([ratio for ratio in compared if ratio.kind == kind] for kind in ("device", "lane"))
    if contests := _contests([ratio for ratio in compared if ratio.kind == "framework"]):
        wins = Counter(name for name, _ in contests if name)
        shares = [f"{_name(framework, titles)} in {count}" for framework, count in wins.most_common()]
        ties = len(contests) - wins.total()
        shares += [f"a tie of the fastest in {ties}"] * bool(ties)
        single = any(once for _, once in contests)
        once = " (of one launch each: near ones may change places)" if single else ""
        lines.append(f"Trained fastest where several frameworks ran a scenario: {', '.join(shares)}{once}.")
    if lanes:
        lines.append(f"Tuned against stock in training: {_range(lanes)}.")
    if devices:
        lines.append(f"CUDA against CPU in training: {_range(devices)}.")
    else:
        lines.append("CPU and CUDA were not both measured, so there is no speedup to show.")
    return tuple(lines)


def _range(ratios: Sequence[Ratio]) -> str:
    low, high = (text.ratio(end) for end in (min(r.ratio for r in ratios), max(r.ratio for r in ratios)))
    return low if low == high else f"{low} to {high}, depending on the cell"


def _contests(frameworks: Sequence[Ratio]) -> list[tuple[str, bool]]:
    """Of each group of cells that differ in the framework alone: the fastest, "" where another one ties with it, and
    whether that rests on single launches."""
    groups: dict[str, list[Ratio]] = {}
    for ratio in frameworks:
        groups.setdefault(ratio.numerator.key, []).append(ratio)
    return [
        (
            "" if any(r.verdict == "tie" for r in group) else group[0].numerator.framework,
            any(r.verdict == "unknown" for r in group),
        )
        for group in groups.values()
    ]


def _rows(ok: Sequence[CellSummary]) -> dict[str, list[CellSummary]]:
    """The cells that are compared with each other, by what they have in common: the scenario with its variant, and
    the batch size where the scenario was measured at several."""
    batches: dict[str, set[int]] = {}
    for c in ok:
        batches.setdefault(c.label, set()).add(c.batch)
    rows: dict[str, list[CellSummary]] = {}
    for c in ok:
        rows.setdefault(c.label if len(batches[c.label]) == 1 else f"{c.label}/b{c.batch}", []).append(c)
    return rows


def _rate(cell: CellSummary) -> float:
    return cell.images_per_s or 0.0


def _notices(plan: Plan, records: Sequence[Record], ok: Sequence[CellSummary]) -> tuple[str, ...]:
    notices = []
    if missing := evidence.not_run(records, plan):
        notices.append(f"This run is not complete: {len(missing)} planned launches have no record (kit run --resume).")
    if plan.profile == "smoke":
        notices.append("The smoke profile trains 20 steps: it shows that things work, not how fast they are.")
    if any(c.synthetic for c in ok):
        marked = sorted({c.label for c in ok if c.synthetic})
        notices.append(
            "Measured on synthetic data, so accuracies say nothing about the real task: " + ", ".join(marked) + "."
        )
    if any(c.launches == 1 for c in ok):
        notices.append(
            "Cells with one launch have no interval: the next may differ by a few percent, on a shared machine by tens."
        )
    if any(c.projected for c in ok):
        notices.append("Times per epoch marked ≈ are projected from steady windows, not timed as a whole.")
    return tuple(notices)


def _frameworks(pairs: Sequence[Ratio], names: Mapping[str, str]) -> Table | None:
    """The fastest framework against each other one, where there are intervals."""
    if not pairs:
        return None
    return Table(
        caption="The fastest framework against the others, training images/s",
        headers=("Fastest", "Other", "Ratio", "95 % interval"),
        rows=tuple(
            (names[p.numerator.key], names[p.denominator.key], text.ratio(p.ratio), _interval(p)) for p in pairs
        ),
        numeric=(2, 3),
    )


def _summary(ok: Sequence[CellSummary], titles: Mapping[str, str], frameworks: Sequence[Ratio]) -> Table:
    ties = {(p.numerator.key, p.denominator.key) for p in frameworks if p.verdict == "tie"}
    columns = sorted({(c.framework, _variant_of(c)) for c in ok}, key=lambda c: (c[1] != "cpu", c))
    rows: list[tuple[str, ...]] = []
    marks: set[int] = set()
    for label, group in _rows(ok).items():
        cells = {(c.framework, _variant_of(c)): c for c in group}
        if any(c.synthetic for c in cells.values()):
            marks.add(len(rows))
        best = max(cells.values(), key=_rate)
        row = [label]
        for column in columns:
            cell = cells.get(column)
            mark = " ★" if cell is best else " ☆" if cell and (best.key, cell.key) in ties else ""
            row.append(f"{text.number(cell.images_per_s)}{_width(cell)}{mark}" if cell else text.MISSING)
        rows.append(tuple(row))
    return Table(
        caption="Training, images/s (★ fastest of the row" + (", ☆ tie with it)" if ties else ")"),
        headers=("Scenario", *(f"{_name(f, titles)} {v}" for f, v in columns)),
        rows=tuple(rows),
        numeric=tuple(range(1, len(columns) + 1)),
        marks=frozenset(marks),
    )


def _speedups(pairs: Sequence[Ratio], ok: Sequence[CellSummary], titles: Mapping[str, str]) -> Table | None:
    if not pairs:
        return None
    labels = {c.key: label for label, group in _rows(ok).items() for c in group}
    return Table(
        caption="CUDA against CPU, training images/s",
        headers=("Scenario", "Framework", "CPU", "CUDA", "Speedup", "95 % interval"),
        rows=tuple(
            (
                labels[p.numerator.key],
                f"{_name(p.numerator.framework, titles)} {_variant_of(p.numerator)}",
                text.number(p.denominator.images_per_s),
                text.number(p.numerator.images_per_s),
                text.ratio(p.ratio),
                _interval(p),
            )
            for p in pairs
        ),
        numeric=(2, 3, 4),
        marks=frozenset(i for i, p in enumerate(pairs) if p.numerator.synthetic),
    )


def _width(cell: CellSummary) -> str:
    return f" ± {100 * cell.interval.half_width:.1f} %" if cell.interval else ""


def _interval(ratio: Ratio) -> str:
    if ratio.interval is None:
        return "none (one launch)"
    tie = ", a tie" if ratio.verdict == "tie" else ""
    return f"{text.number(ratio.interval.low)} to {text.number(ratio.interval.high)}{tie}"


def _sections(ok: Sequence[CellSummary], scenarios: Scenarios, titles: Mapping[str, str]) -> list[Section]:
    sections = []
    for label, group in _rows(ok).items():
        cells = sorted(group, key=lambda c: (c.device, c.framework))
        scenario = scenarios.get(cells[0].scenario, {}).get(cells[0].variant)
        bars = {
            "Training, images/s": tuple(_bar(c, c.images_per_s, titles, c.interval) for c in cells),
            "Inference, images/s": tuple(_bar(c, c.inference_images_per_s, titles) for c in cells),
            "One training epoch, s": tuple(_bar(c, c.epoch_s, titles) for c in cells),
        }
        sections.append(
            Section(
                label=label,
                title=scenario.title if scenario else label,
                facts=_facts(scenario, cells[0]),
                synthetic=any(c.synthetic for c in cells),
                table=_cells_table(cells, titles),
                bars=bars,
                curve=tuple(_curve(cells, titles)),
            )
        )
    return sections


def _bar(cell: CellSummary, value: float | None, titles: Mapping[str, str], interval: Interval | None = None) -> Bar:
    ends = (interval.low, interval.high) if interval else (None, None)
    return Bar(_name(cell.framework, titles), _variant_of(cell), value or 0.0, *ends)


def _facts(scenario: Scenario | None, cell: CellSummary) -> tuple[str, ...]:
    if scenario is None:
        return (f"Batch {cell.batch}.",)
    height, width, channels = scenario.image
    optimizer = scenario.optimizer
    loss = f"{scenario.loss} cross-entropy from {scenario.output.activation.replace('linear', 'logits')}"
    return (
        f"{DATASETS[scenario.dataset].title}, {height}×{width}×{channels}, batch {cell.batch}.",
        f"{type(optimizer).__name__}, learning rate {optimizer.learning_rate:g}; {loss}.",
        f"From study {scenario.study}." if scenario.study else "",
    )


def _cells_table(cells: Sequence[CellSummary], titles: Mapping[str, str]) -> Table:
    rows = []
    for c in cells:
        spread = f"{c.launches}: {text.number(c.lowest)} to {text.number(c.highest)}" if c.launches > 1 else "1"
        rows.append(
            (
                _name(c.framework, titles),
                _variant_of(c),
                text.number(c.images_per_s),
                spread,
                ("≈ " if c.projected else "") + text.seconds(c.epoch_s),
                text.percent(c.test_accuracy),
                " / ".join(text.number(value) for value in (c.p50_ms, c.p90_ms, c.p99_ms)),
                f"{text.number(c.inference_images_per_s)} (b{c.inference_batch})",
                text.number(c.cpu_cores, 2),
            )
        )
    return Table(
        caption="Training and inference",
        headers=(
            "Framework",
            "Device",
            "Training images/s",
            "Launches",
            "Epoch",
            "Test accuracy",
            "Latency p50 / p90 / p99, ms",
            "Inference images/s",
            "CPUs busy",
        ),
        rows=tuple(rows),
        numeric=(2, 3, 4, 5, 6, 7, 8),
        marks=frozenset(i for i, c in enumerate(cells) if c.synthetic),
    )


def _curve(cells: Sequence[CellSummary], titles: Mapping[str, str]) -> list[Point]:
    points = []
    for c in cells:
        if len(c.curve) < 2:
            continue
        series = f"{_name(c.framework, titles)} {_variant_of(c)}"
        for epoch, train, test in _thinned(c.curve):
            points += [Point(series, "train", epoch, train), Point(series, "test", epoch, test)]
    return points


def _thinned(curve: Sequence[tuple[int, float, float]]) -> Sequence[tuple[int, float, float]]:
    """At most MAX_EPOCHS of its points, the last among them."""
    every = -(-len(curve) // MAX_EPOCHS)
    return curve[(len(curve) - 1) % every :: every]
