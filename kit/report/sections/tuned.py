"""What made the tuned cells fast: the chosen settings, what they gained, and everything that was tried."""

import statistics
from collections.abc import Iterator, Mapping

from kit.analysis.summaries import Ratio
from kit.model.formatting import format_count
from kit.model.record import Record
from kit.report import text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section
from scenarios.contract.result import Search, Tried

STOCK = "as in stock"
BASE = "as chosen for training"
NO_TIME = "no time was left"
RATES = {"training": "images/s", "latency": "calls/s", "throughput": "images/s"}


def _data(source: ReportInput) -> dict[str, Table | str] | None:
    searches = [record for record in source.run.tunings if record.ok]
    found = [(key, settings, "pinned", "") for key, settings in source.run.plan.pinned.items()]
    found += [(r.key, r.tuning.settings, _origin(r, source.run.plan.created_at), _gains(r)) for r in searches]
    if not found:
        return None
    over_stock = {ratio.numerator.key: ratio for ratio in source.ratios("lane")}
    measured = {summary.key for summary in source.measured}
    return {
        "summary": f"settings of {format_count(len(found), 'cell')}",
        "chosen": Table(
            caption="Settings of the tuned lane, and its training speed relative to the stock lane. Photos that are "
            "decoded once are decoded before the timing starts",
            headers=(
                "Cell",
                "Changes to stock",
                "Found by",
                "Gain in the search",
                "Speedup over stock",
                "95% interval",
            ),
            rows=tuple(
                (
                    source.name(key),
                    _words(settings),
                    origin,
                    gains,
                    *_over_stock(settings, over_stock.get(key), measured=key in measured),
                )
                for key, settings, origin, gains in found
            ),
            numeric=(4,),
        ).limited(),
        "tried": Table(
            caption="All candidates in the order of the search. A ratio compares a candidate with the settings at the "
            "start of the search. Candidates ran at different times, so the chosen one need not have the highest ratio",
            headers=("Cell", "For", "Candidate", "Ratio", "Range", "Median rate", "Outcome"),
            rows=tuple(row for record in searches for row in _tried(record, source.name(record.key))),
            numeric=(3, 4, 5),
        ).limited(),
    }


def _origin(record: Record, run_created_at: str) -> str:
    if broken := record.tuning.broken:
        return f"the search stopped: {broken}"
    earlier = " in an earlier run" if record.started_at < run_created_at else ""
    allowed_s = record.tuning.allowed_s
    limit = f" of up to {text.seconds(allowed_s)}" if allowed_s is not None else ""
    return f"search{limit}{earlier}, {text.moment(record.started_at)}"


def _gains(record: Record) -> str:
    """Return what each search gained in its own comparison."""
    return ", ".join(
        f"{search.objective} {statistics.median(tried.ratios):.2f}×"
        for search in record.tuning.searches
        for tried in search.tried
        if search.chosen and tried.settings == search.chosen and tried.ratios
    )


def _tried(record: Record, name: str) -> Iterator[tuple[str, ...]]:
    for search in record.tuning.searches:
        if not search.tried:
            yield name, search.objective, "none", text.MISSING, "", "", NO_TIME
        for tried in search.tried:
            yield (
                name,
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


def _over_stock(settings: Mapping[str, str], ratio: Ratio | None, *, measured: bool) -> tuple[str, str]:
    """Return the speedup over the stock lane with its interval. measured: whether the tuned cell has a speed."""
    if not settings:
        return text.MISSING, "same as stock"
    if ratio is None:
        return text.MISSING, "stock was not measured" if measured else "not measured"
    return text.ratio(ratio.ratio), text.interval(ratio)


SECTION = Section(130, "tuned", "What made it fast", _data, "tuned.html")
