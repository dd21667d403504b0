"""Speed of the GPU over that of the CPU, for each network and framework, in training and in inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.analysis.gpu_answer import best_ratio
from kit.analysis.gpu_use import busy_shares
from kit.analysis.intervals import Verdict
from kit.analysis.pairing import Measure, Rates
from kit.analysis.reliability import unsteady_cells
from kit.analysis.summaries import Ratio, too_few
from kit.report import text
from kit.report.headings import gpu_heading
from kit.report.marks import sort_key
from kit.report.rows import (
    Call,
    Network,
    Row,
    Rows,
    Value,
    configuration_key,
    configuration_words,
)
from kit.report.scales import Scale, log_scale
from kit.report.section import ReportInput, Section
from kit.report.strips import Dot, Strip, dot_y, span, strip_height, ticks, whisker_ends

WORDS = {Measure.TRAINING: "Training", Measure.INFERENCE: "Throughput", Measure.LATENCY: "Latency"}
NARROW = 0.7  # a scale starts at most here, so that a tick and the zone left of 1 are visible


@dataclass(frozen=True)
class GpuData:
    """The heading and the tables, None if there is nothing to compare. busy: whether the GPU's use was sampled."""

    heading: str
    training: Rows | None
    inference: Rows | None
    busy: bool


def _data(source: ReportInput) -> GpuData | None:
    if not source.measured:
        return None
    busy = busy_shares(source.analysis.launches)
    training = _rows(source, (Measure.TRAINING,), busy)
    inference = _rows(source, (Measure.INFERENCE, Measure.LATENCY), {})
    return GpuData(gpu_heading(source), training, inference, bool(busy))


def _rows(source: ReportInput, measures: Sequence[Measure], busy: Mapping[str, float]) -> Rows | None:
    pairs = {measure: source.ratios("device", measure) for measure in measures}
    every = [ratio for ratios in pairs.values() for ratio in ratios]
    if not every:
        return None
    ends = [r.ratio for r in every]
    ends += [end for r in every if r.interval for end in whisker_ends(r.ratio, (r.interval.low, r.interval.high))]
    maker = _Maker(
        source,
        tuple(sorted({ratio.numerator.cell.framework for ratio in every}, key=sort_key)),
        log_scale([*ends, NARROW, 1 / NARROW]),
        busy,
        unsteady_cells(source.analysis, measures[0]),
        source.analysis.rates,
    )
    networks = [maker.network(label, pairs) for label in source.rows]
    at = maker.scale.at(1.0)
    return Rows(
        caption=f"Speed of the GPU over that of the CPU, {text.listed([WORDS[m].lower() for m in measures])}",
        frameworks=maker.frameworks,
        ticks=ticks(maker.scale, lambda value: f"{text.number_short(value)}×"),
        networks=tuple(network for network in networks if network.rows),
        devices=("cuda",),
        call="Best GPU cell over best CPU cell",
        zones=(at, "GPU slower", "GPU faster"),
    )


@dataclass(frozen=True)
class _Maker:
    """Makes the rows of one table."""

    source: ReportInput
    frameworks: tuple[str, ...]
    scale: Scale
    busy: Mapping[str, float]
    unsteady: Mapping[str, str]
    rates: Mapping[Measure, Mapping[str, Rates]]

    def network(self, label: str, pairs: Mapping[Measure, Sequence[Ratio]]) -> Network:
        keys = {summary.key for summary in self.source.rows[label]}
        cell = self.source.rows[label][0].cell
        rows = []
        for measure, ratios in pairs.items():
            groups: dict[tuple[object, ...], list[Ratio]] = {}
            for ratio in ratios:
                if ratio.numerator.key in keys:
                    groups.setdefault(configuration_key(ratio.numerator.cell), []).append(ratio)
            over_cpu = best_ratio(self.source.rows[label], self.rates[measure], measure)
            best = self._best(over_cpu) if over_cpu else None
            for index, key in enumerate(sorted(groups)):
                rows.append(self._row(measure, groups[key], None if index else best, several=len(pairs) > 1))
        details = self.source.details(cell, batch=Measure.TRAINING in pairs)
        return Network(self.source.network(cell), details, tuple(rows))

    def _row(self, measure: Measure, ratios: Sequence[Ratio], best: Call | None, *, several: bool) -> Row:
        by_framework = {ratio.numerator.cell.framework: ratio for ratio in ratios}
        present = [by_framework[name] for name in self.frameworks if name in by_framework]
        cell = present[0].numerator.cell
        words = configuration_words(cell)
        configuration = f"{WORDS[measure]}{words.removeprefix('GPU')}" if several else words
        numbers = "; ".join(
            f"{self.source.framework_title(r.numerator.cell.framework)} {text.ratio(r.ratio)}" for r in present
        )
        strip = Strip(
            label=f"{self.source.network(cell)}, {WORDS[measure].lower()}, GPU over CPU: {numbers}.",
            height=strip_height(len(present)),
            ticks=ticks(self.scale, text.number_short),
            dots=tuple(self._dot(index, ratio) for index, ratio in enumerate(present)),
            zone=self.scale.at(1.0),
        )
        values = tuple(self._value(by_framework[n]) if n in by_framework else None for n in self.frameworks)
        return Row(configuration, strip, values, best)

    def _value(self, ratio: Ratio) -> Value:
        cell, share = ratio.numerator.cell, self.busy.get(ratio.numerator.key)
        small = [*_interval(ratio), *([] if share is None else [f"busy {text.percent(share)}"])]
        return Value(cell.framework, cell.device, text.ratio(ratio.ratio), tuple(small), self._doubt(ratio))

    def _best(self, ratio: Ratio) -> Call:
        certain = ratio.verdict in (Verdict.FASTER, Verdict.SLOWER)
        small = ", ".join(_interval(ratio))
        return Call(text.ratio(ratio.ratio), small=small, named=certain, unsteady=self._doubt(ratio))

    def _doubt(self, ratio: Ratio) -> str:
        """Return why a ratio is doubtful, or ""."""
        keys = dict.fromkeys((ratio.numerator.key, ratio.denominator.key))
        return " ".join(self.unsteady[key] for key in keys if key in self.unsteady)

    def _dot(self, index: int, ratio: Ratio) -> Dot:
        title = f"{self.source.framework_title(ratio.numerator.cell.framework)}: {text.ratio(ratio.ratio)}"
        few = too_few((ratio.numerator, ratio.denominator))
        extent = f"95% interval {text.interval(ratio)}" if ratio.interval else few
        return Dot(
            framework=ratio.numerator.cell.framework,
            device="cuda",
            at=self.scale.at(ratio.ratio),
            y=dot_y(index),
            text=f"{title}, {extent}",
            whisker=span(self.scale, (ratio.interval.low, ratio.interval.high)) if ratio.interval else None,
        )


def _interval(ratio: Ratio) -> list[str]:
    """Return the interval of a ratio, and whether it is open, or nothing if there is none."""
    if ratio.interval is None:
        return []
    words = text.open_words(ratio.interval)
    return [text.ends(ratio.interval), *([words] if words else [])]


SECTION = Section(40, "gpu", "CPU or GPU", _data, "gpu.html", question="Is the GPU worth it?")
