"""Test estimates, ratios and verdicts from records, and the table in the terminal."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from kit.analysis.correlation import correlation, speeds_in_time
from kit.analysis.intervals import cell_interval, paired_interval
from kit.analysis.pairing import COMPARED, Measure, Pairs, pair, rates
from kit.analysis.summaries import contests, rates_by_round, ratios, summarize
from scenarios.contract.result import MIN_P99_SAMPLES
from tests.examples import cell, failed, record, request, run

NARROW = (1000.0, 1002.0, 998.0, 1001.0, 999.0)


def launches(values, of=None, **changes):
    first = request(of, **changes)
    return [record(replace(first, launch=n + 1), images_per_s=value) for n, value in enumerate(values)]


def scaled(factor, values=NARROW):
    return tuple(factor * value for value in values)


def trained(records):
    return rates_by_round(run(records).by_cell, Measure.TRAINING)


def judged(records):
    """Return (kind, its value in numerator and denominator, verdict) of all ratios."""
    summaries = summarize(run(records))
    rates = trained(records)
    measure = Measure.TRAINING
    of_contests = (r for c in contests(summaries, rates, measure) for r in c.ratios)
    found = [*ratios(summaries, rates, measure), *of_contests]
    return [(r.kind, getattr(r.numerator.cell, r.kind), getattr(r.denominator.cell, r.kind), r.verdict) for r in found]


def with_inference(example, **changes):
    inference = replace(example.result.inference, **changes)
    return example.model_copy(update={"result": replace(example.result, inference=inference)})


@pytest.mark.parametrize("count", [2, 4, 5])
def test_the_estimates_and_intervals_of_a_cell_come_from_its_ok_launches(count):
    speeds, latencies = NARROW[:count], [0.4 + 0.1 * number**2 for number in range(count)]
    throughputs = [9000.0 - 100 * number**2 for number in range(count)]
    records = [
        with_inference(each, images_per_s=throughput, p50_ms=latency)
        for each, throughput, latency in zip(launches(speeds), throughputs, latencies, strict=True)
    ]
    records.append(failed(request(launch=6)))
    (summary,) = summarize(run(records))
    assert summary.interval == cell_interval(speeds)
    assert summary.inference_interval == cell_interval(throughputs)
    assert summary.p50_interval == cell_interval(latencies)
    assert summary.images_per_s == summary.interval.estimate
    assert summary.inference_images_per_s == summary.inference_interval.estimate
    assert summary.p50_ms == summary.p50_interval.estimate
    assert (summary.launches, summary.attempts) == (count, count + 1)
    for measure, values in zip(COMPARED, (speeds, throughputs), strict=True):
        assert [*rates(list(reversed(records)), measure).values()] == list(values)


def test_one_launch_has_a_value_but_no_interval_and_no_verdict():
    records = [*launches([1000.0]), *launches(scaled(3), cell(framework="tensorflow"))]
    alone, other = summarize(run(records))
    assert (alone.images_per_s, alone.interval) == (1000.0, None)
    assert (alone.inference_images_per_s, alone.inference_interval) == (5000.0, None)
    assert (alone.p50_ms, alone.p50_interval) == (1.5, None)
    (contest,) = contests([alone, other], trained(records), Measure.TRAINING)
    (ratio,) = contest.ratios
    assert (ratio.numerator, ratio.interval, ratio.verdict) == (other, None, "unknown")
    assert ratio.ratio == pytest.approx(3, rel=0.01)
    assert contest.unknown
    assert not contest.named


@pytest.mark.parametrize(("factor", "verdict"), [(1.02, "faster"), (1.001, "tie"), (0.999, "tie"), (0.98, "slower")])
def test_a_ratio_is_a_tie_if_its_interval_contains_1(factor, verdict):
    tuned = [factor * value for value in (*NARROW[1:], NARROW[0])]
    records = [*launches(NARROW), *launches(tuned, lane="tuned")]
    (ratio,) = ratios(summarize(run(records)), trained(records), Measure.TRAINING)
    assert ratio.interval == paired_interval([one / other for one, other in zip(tuned, NARROW, strict=True)])
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


def test_a_machine_that_changes_its_speed_changes_no_paired_ratio():
    drift = (1000.0, 700.0, 950.0, 1300.0, 600.0)
    records = [*launches(drift), *launches(scaled(1.02, drift), lane="tuned")]
    assert judged(records) == [("lane", "tuned", "stock", "faster")]


@pytest.mark.parametrize("measure", COMPARED)
def test_pairs_need_a_rate_of_both_cells_and_the_others_are_counted(measure):
    stock = rates(launches(NARROW), measure)
    tuned = rates([*launches(scaled(2), lane="tuned")[1:], failed(request(launch=1, lane="tuned"))], measure)
    assert pair(tuned, stock) == Pairs(tuple(2.0 for _ in range(4)), dropped=1)
    assert pair(tuned, {}) == Pairs((), dropped=4)


@pytest.mark.parametrize(
    ("factors", "named", "unknown"),
    [((1.5, 1.2, 1.0), True, False), ((1.5, 1.499, 1.0), False, False), ((1.5,), None, None)],
    ids=["clearly ahead of both", "ahead of one only", "alone"],
)
def test_a_framework_is_the_fastest_only_if_it_is_clearly_ahead_of_each_other(factors, named, unknown):
    names = ("tensorflow", "onnxruntime", "torch")
    noise = random.Random(1)
    records = [
        each
        for name, factor in zip(names, factors, strict=False)
        for each in launches([1000 * factor * noise.lognormvariate(0, 0.01) for _ in range(5)], cell(framework=name))
    ]
    found = contests(summarize(run(records)), trained(records), Measure.TRAINING)
    assert [(c.leader.cell.framework, c.named, c.unknown) for c in found] == (
        [] if named is None else [("tensorflow", named, unknown)]
    )


def test_launches_are_correlated_if_the_errors_of_neighbors_agree():
    def in_time(errors):
        return [(f"cell {index % 3}", 1000.0 * math.exp(error)) for index, error in enumerate(errors)]

    slow_phases = [0.1 * ((index // 6) % 2) for index in range(30)]
    assert correlation(in_time(slow_phases)).significant
    assert not correlation(in_time([0.1 * (-1) ** (index // 3) for index in range(30)][::-1][:6])).significant
    noise = random.Random(1)
    independent = [correlation(in_time([noise.gauss(0, 0.05) for _ in range(30)])).significant for _ in range(300)]
    assert sum(independent) < 0.09 * len(independent)
    assert correlation(in_time(slow_phases[:5])) is None
    assert correlation([("cell", 1000.0)] * 20) is None
    assert correlation([("cell", 1627.3923530487853)] * 7) is None, "a mean of equal values may be rounded"


def test_launches_are_in_the_order_in_which_they_started():
    records = [
        record(request(launch=n, lane=lane), images_per_s=1000.0 + n, started_at=f"2026-01-01T00:0{at}:00Z")
        for n, lane, at in ((1, "stock", 3), (1, "tuned", 2), (2, "tuned", 5), (2, "stock", 4))
    ]
    assert [speed for _, speed in speeds_in_time(records)] == [1001.0, 1001.0, 1002.0, 1002.0]
    assert [key.split("/")[3] for key, _ in speeds_in_time(records)] == ["tuned", "stock", "stock", "tuned"]


def test_the_time_of_an_epoch_fits_the_speed_and_p99_needs_all_launches():
    one, two = (
        with_inference(each, latency_ms=[1.0] * MIN_P99_SAMPLES, p99_ms=p99)
        for each, p99 in zip(launches([100.0, 400.0]), (2.0, 3.0), strict=True)
    )
    (summary,) = summarize(run([one, two]))
    assert summary.epoch_s * summary.images_per_s == pytest.approx(60_000)
    assert summary.p99_ms == 2.5
    (summary,) = summarize(run([with_inference(one, latency_ms=[1.0] * 5), two]))
    assert summary.p99_ms is None, "it would be that of one launch, beside percentiles of both"
