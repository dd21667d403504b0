"""Test estimates, ratios and verdicts from records, and the table in the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.analysis.intervals import cell_interval, ratio_interval
from kit.analysis.run_analysis import analyze_run
from kit.analysis.summaries import ratios, speeds, summarize
from kit.cli import results
from kit.planning import catalog
from tests.examples import cell, failed, record, request, run

NARROW = (1000.0, 1002.0, 998.0, 1001.0, 999.0)


def launches(values, of=None, **changes):
    first = request(of, **changes)
    return [record(replace(first, launch=n + 1), images_per_s=value) for n, value in enumerate(values)]


def scaled(factor, values=NARROW):
    return tuple(factor * value for value in values)


def judged(records):
    """Return (kind, its value in numerator and denominator, verdict) of all ratios."""
    found = ratios(summarize(run(records)), records)
    return [(r.kind, getattr(r.numerator.cell, r.kind), getattr(r.denominator.cell, r.kind), r.verdict) for r in found]


def test_the_estimate_and_interval_of_a_cell_come_from_its_ok_launches():
    records = [*launches(NARROW), failed(request(launch=6))]
    (summary,) = summarize(run(records))
    assert summary.interval == cell_interval(NARROW)
    assert summary.images_per_s == summary.interval.estimate
    assert (summary.launches, summary.attempts) == (5, 6)
    assert speeds(list(reversed(records))) == list(NARROW)


def test_one_launch_has_a_value_but_no_interval_and_no_verdict():
    records = [*launches([1000.0]), *launches(scaled(3), cell(framework="tensorflow"))]
    alone, other = summarize(run(records))
    assert (alone.images_per_s, alone.interval) == (1000.0, None)
    (ratio,) = ratios([alone, other], records)
    assert (ratio.numerator, ratio.interval, ratio.verdict) == (other, None, "unknown")
    assert ratio.ratio == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize(("factor", "verdict"), [(1.02, "faster"), (1.001, "tie"), (0.999, "tie"), (0.98, "slower")])
def test_a_ratio_is_a_tie_if_its_interval_contains_1(factor, verdict):
    records = [*launches(NARROW), *launches(scaled(factor), lane="tuned")]
    (ratio,) = ratios(summarize(run(records)), records)
    assert ratio.interval == ratio_interval(scaled(factor), NARROW)
    assert ratio.ratio == pytest.approx(ratio.interval.estimate)
    assert judged(records) == [("lane", "tuned", "stock", verdict)]


def test_ratios_are_cuda_over_cpu_tuned_over_stock_and_the_fastest_framework_over_each_other():
    torch, cuda = cell(), cell(device="cuda")
    records = [
        *launches(NARROW, torch),
        *launches(scaled(20), cuda),
        *launches(scaled(1.5), torch, lane="tuned"),
        *launches(scaled(2), cell(framework="onnxruntime")),
        *launches(scaled(0.5), cell(framework="tensorflow")),
    ]
    assert judged(records) == [
        ("device", "cuda", "cpu", "faster"),
        ("lane", "tuned", "stock", "faster"),
        ("framework", "onnxruntime", "torch", "faster"),
        ("framework", "onnxruntime", "tensorflow", "faster"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        lambda: launches(NARROW, cell("cifar-cnn", "tensorflow")),
        lambda: launches(NARROW, replace(cell(framework="tensorflow"), batch=32)),
        lambda: launches(NARROW, cell(framework="tensorflow"), data="real"),
        lambda: launches(NARROW, replace(cell(framework="tensorflow"), precision="bf16")),
        lambda: launches(NARROW, cell(framework="tensorflow", device="cuda")),
        lambda: [failed(request(cell(framework="tensorflow")))],
    ],
    ids=["scenario", "batch", "data", "precision", "two fields", "no launch is ok"],
)
def test_cells_that_differ_in_more_than_one_field_are_not_compared(other):
    assert judged([*launches(NARROW), *other()]) == []


def test_the_table_shows_and_explains_the_interval_if_there_is_one():
    several, single = launches((1000.0, 1100.0, 900.0, 1050.0, 950.0)), launches([2000.0], cell("cifar-cnn"))
    half_width = 100 * cell_interval(speeds(several)).half_width
    both, alone = (analyze_run(run(records), catalog.scenarios()) for records in ([*several, *single], single))
    assert [row[2] for row in results.table(both)] == [f"997 ±{half_width:.1f} %", "2,000"]
    assert any("± half-width of the 95 % interval" in note for note in results.notes(both))
    assert not any("±" in note for note in results.notes(alone))
