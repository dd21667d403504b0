"""What made the tuned cells fast: the settings that were chosen, what they gained, and all that was tried. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from kit.analysis.summaries import Ratio
from kit.model.plan import Plan
from kit.model.record import Record, tuning_of
from kit.report import text
from kit.report.parts import Names, Table
from scenarios.contract.reasons import Status
from scenarios.contract.result import Search, Tried

STOCK = "as in stock"
BASE = "as found for training"
NO_TIME = "no time was left for it"
METHOD = (
    "The tuned lane computes the same function at the same batch size with the settings that are fastest on this "
    "machine. A search lets stock, the best settings so far and each candidate take turns of a tenth of a second. What "
    "leads is held against the reference, and taken where it is faster than stock in more turns than chance explains "
    "(sign test, 5 %)."
)
RATES = {"training": "images/s", "latency": "calls/s", "throughput": "images/s"}


def chosen_table(plan: Plan, tunings: Sequence[Record], lanes: Sequence[Ratio], names: Names) -> Table | None:
    """One row a tuned cell: its settings, where they come from, what they gained there, and its measured speed over
    that of the stock lane. None where no cell is tuned."""
    over_stock = {ratio.numerator.key: ratio for ratio in lanes}
    found = [(key, settings, "pinned", "") for key, settings in plan.pinned.items()]
    found += [(r.key, tuning_of(r).settings, _found(r, plan), _gains(r)) for r in _ok(tunings)]
    if not found:
        return None
    return Table(
        caption="Settings of the tuned lane, and its measured training over the stock lane's. What is decoded once is "
        "decoded before the clock runs",
        headers=("Cell", "What is not as in stock", "Found", "Gains in the search", "Over stock", "95 % interval"),
        rows=tuple(
            (names.get(key, key), _words(settings), source, gains, *_gain(settings, over_stock.get(key)))
            for key, settings, source, gains in found
        ),
        numeric=(4,),
    )


def tried_table(tunings: Sequence[Record], names: Names) -> Table | None:
    """One row a candidate of each search, in the order of trying. None where nothing was searched."""
    rows = [row for record in _ok(tunings) for row in _rows(record, names)]
    if not rows:
        return None
    return Table(
        caption="All candidates in the order of trying, by turns with what the search began with. They ran at "
        "different times: taken was what led the best so far in turns with it, not what has the highest ratio here",
        headers=("Cell", "For", "Candidate", "Ratio", "Lowest to highest", "Median rate", "Outcome"),
        rows=tuple(rows),
        numeric=(3, 4, 5),
    )


def _ok(tunings: Sequence[Record]) -> list[Record]:
    return [record for record in tunings if record.status is Status.OK]


def _found(record: Record, plan: Plan) -> str:
    if broken := tuning_of(record).broken:
        return f"the search broke off: {broken}"
    earlier = " in an earlier run" if record.started_at < plan.created_at else ""
    return f"searched{earlier}, {text.moment(record.started_at)}"


def _gains(record: Record) -> str:
    """What each search gained by its own turns."""
    return ", ".join(
        f"{search.objective} {statistics.median(tried.ratios):.2f}×"
        for search in tuning_of(record).searches
        for tried in search.tried
        if search.chosen and tried.settings == search.chosen and tried.ratios
    )


def _rows(record: Record, names: Names) -> Iterator[tuple[str, ...]]:
    for search in tuning_of(record).searches:
        if not search.tried:
            yield names.get(record.key, record.key), search.objective, "none", text.MISSING, "", "", NO_TIME
        for tried in search.tried:
            yield (
                names.get(record.key, record.key),
                search.objective,
                _words(tried.settings, STOCK if search.objective == "training" else BASE),
                f"{statistics.median(tried.ratios):.2f}×" if tried.ratios else text.MISSING,
                f"{text.number(min(tried.ratios))} to {text.number(max(tried.ratios))}" if tried.ratios else "",
                f"{text.number(statistics.median(tried.rates))} {RATES[search.objective]}" if tried.rates else "",
                _outcome(tried, search),
            )


def _outcome(tried: Tried, search: Search) -> str:
    if tried.failure:
        return tried.failure
    if tried.settings != search.chosen:
        return ""
    return "chosen" + (f"; no time for {search.untried} other values" if search.untried else "")


def _words(settings: Mapping[str, str], none: str = STOCK) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items()) or none


def _gain(settings: Mapping[str, str], ratio: Ratio | None) -> tuple[str, str]:
    if not settings:
        return text.MISSING, "the same as stock"
    if ratio is None:
        return text.MISSING, "stock was not measured"
    if ratio.interval is None:
        return text.ratio(ratio.ratio), "none (one launch)"
    tie = ", a tie" if ratio.verdict == "tie" else ""
    return text.ratio(ratio.ratio), f"{text.number(ratio.interval.low)} to {text.number(ratio.interval.high)}{tie}"
