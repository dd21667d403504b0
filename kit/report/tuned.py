"""What made the tuned cells fast: the settings that were chosen, what they gained, and all that was tried. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from kit.analysis import Ratio
from kit.records import Record, tuning_of
from kit.report import text
from kit.report.parts import Names, Table
from scenarios.contract import Search, Status, Tried

STOCK = "as in stock"
BASE = "as found for training"
RATES = {"training": "images/s", "latency": "calls/s", "throughput": "images/s"}


def chosen_table(
    tunings: Sequence[Record], pinned: Mapping[str, Mapping[str, str]], lanes: Sequence[Ratio], names: Names
) -> Table | None:
    """One row a tuned cell: its settings, where they come from, and its measured speed over that of the stock lane.
    None where no cell is tuned."""
    over_stock = {ratio.numerator.key: ratio for ratio in lanes}
    found = [(key, settings, "pinned") for key, settings in pinned.items()]
    found += [(r.key, tuning_of(r).settings, f"searched {text.moment(r.started_at)}") for r in _ok(tunings)]
    if not found:
        return None
    return Table(
        caption="Settings of the tuned lane, and its measured speed over the stock lane's",
        headers=("Cell", "What is not as in stock", "Found", "Over stock", "95 % interval"),
        rows=tuple(
            (names.get(key, key), _words(settings), source, *_gain(over_stock.get(key)))
            for key, settings, source in found
        ),
        numeric=(3,),
    )


def tried_table(tunings: Sequence[Record], names: Names) -> Table | None:
    """One row a candidate of each search, the fastest first. None where nothing was searched."""
    rows = [row for record in _ok(tunings) for row in _rows(record, names)]
    if not rows:
        return None
    return Table(
        caption="All candidates: median of turns against what the search began with. They ran at different times; near "
        "figures do not rank them",
        headers=("Cell", "For", "Candidate", "Ratio", "Lowest to highest", "Median rate", "Outcome"),
        rows=tuple(rows),
        numeric=(3, 4, 5),
    )


def _ok(tunings: Sequence[Record]) -> list[Record]:
    return [record for record in tunings if record.status is Status.OK]


def _rows(record: Record, names: Names) -> Iterator[tuple[str, ...]]:
    for search in tuning_of(record).searches:
        for tried in sorted(search.tried, key=_order):
            yield (
                names.get(record.key, record.key),
                search.objective,
                _words(tried.settings, STOCK if search.objective == "training" else BASE),
                f"{statistics.median(tried.ratios):.2f}×" if tried.ratios else text.MISSING,
                f"{text.number(min(tried.ratios))} to {text.number(max(tried.ratios))}" if tried.ratios else "",
                f"{text.number(statistics.median(tried.rates))} {RATES[search.objective]}" if tried.rates else "",
                _outcome(tried, search),
            )


def _order(tried: Tried) -> tuple[bool, float]:
    return bool(tried.failure), -statistics.median(tried.ratios or [1.0])


def _outcome(tried: Tried, search: Search) -> str:
    if tried.failure:
        return tried.failure
    return "chosen" if tried.settings == search.chosen else ""


def _words(settings: Mapping[str, str], none: str = STOCK) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items()) or none


def _gain(ratio: Ratio | None) -> tuple[str, str]:
    if ratio is None:
        return text.MISSING, "stock was not measured"
    if ratio.interval is None:
        return text.ratio(ratio.ratio), "none (one launch)"
    tie = ", a tie" if ratio.verdict == "tie" else ""
    return text.ratio(ratio.ratio), f"{text.number(ratio.interval.low)} to {text.number(ratio.interval.high)}{tie}"
