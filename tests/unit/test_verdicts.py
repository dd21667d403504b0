"""Test how the report words verdicts, intervals and doubts, so that a reader can quote and recompute them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kit.analysis.answers import answers
from kit.analysis.intervals import Interval
from kit.analysis.launch_windows import UNSTEADY
from kit.analysis.pairing import Measure
from kit.analysis.uncertainty import uncertainty
from kit.analysis.warnings import RunWarning, WarningCode
from kit.report import text
from kit.report.render import render
from kit.report.rows import contest_call
from kit.report.sections import figures, gpu, inference, training
from tests.examples import cell, record, request
from tests.unit.test_headings import TITLES, source_of
from tests.unit.test_report import Document, view_of

LEADER = cell(framework="onnxruntime")
STEADY = [100.0] * 5
# Ratios over STEADY, and their 95% intervals by hand, with t(0.975, 4) = 2.776 and the widening 1 + 25 / 221.
AHEAD = [1.30, 1.32, 1.34, 1.36, 1.38]  # 1.299 to 1.382
EVEN = [0.98, 1.02, 1.01, 1.03, 0.99]  # 0.979 to 1.033
UNCLEAR = [0.7, 1.3, 1.1, 1.4, 0.9]  # 0.724 to 1.516
ABOUT_LAUNCHES = {
    WarningCode.OTHER_LOAD,
    WarningCode.OTHER_GPU_PROCESSES,
    WarningCode.QUOTA,
    WarningCode.HOT_GPU,
    WarningCode.STEAL,
}


def launches(**speeds):
    """Return a record for each speed in images/s. speeds: of the launches of each framework."""
    return [
        record(request(cell(framework=name), launch=n), images_per_s=speed)
        for name, own in speeds.items()
        for n, speed in enumerate(own, 1)
    ]


def call_of(unsteady=(), **speeds):
    (contest,) = source_of(launches(**speeds)).analysis.contests[Measure.TRAINING]
    return contest_call(contest, dict.fromkeys(unsteady, "It jumped."), TITLES.__getitem__)


def times(ratios, factor=100.0):
    return [factor * ratio for ratio in ratios]


@pytest.mark.parametrize(
    ("torch", "onnxruntime", "words", "small"),
    [
        (STEADY, times(AHEAD), "fastest, 1.34× as fast as PyTorch", "95%: 1.30 to 1.38×"),
        (STEADY, times(AHEAD, 400.0), "fastest, 5.4× as fast as PyTorch", "95%: 5.2 to 5.5×"),
        (STEADY[:2], [700.0, 900.0], "fastest, 7.9× as fast as PyTorch", "95%: at least 1.6×"),  # 1.6 to 39
        (STEADY, times(EVEN), "tie", "95%: 0.98 to 1.03"),
        (STEADY, times(UNCLEAR), "undecided", "95%: 0.72 to 1.52"),
        (STEADY[:2], [40.0, 300.0], "undecided", ""),  # reaches from almost zero to billions
        (STEADY[:1], [560.0], "5.6× as fast as PyTorch", ""),
        (STEADY[:1], [140.0], "1.40× as fast as PyTorch", ""),
    ],
)
def test_a_verdict_has_the_interval_of_its_ratio(torch, onnxruntime, words, small):
    call = call_of(torch=torch, onnxruntime=onnxruntime)
    assert (call.text, call.small) == (words, small)


def test_a_winner_that_was_not_steady_says_so_after_its_lead():
    call = call_of([LEADER.key], torch=STEADY, onnxruntime=times(AHEAD, 400.0))
    assert call.text == "fastest but doubtful, 5.4× as fast as PyTorch"


def test_a_lead_in_single_launches_says_whether_it_is_too_small_or_too_doubtful():
    for doubts, speed, words in (
        ((), 140.0, "1.40× as fast as PyTorch"),
        ([LEADER.key], 140.0, "too unsteady to call"),
    ):
        assert call_of(doubts, torch=STEADY[:1], onnxruntime=[speed]).text == words
    assert call_of([LEADER.key], torch=STEADY[:1], onnxruntime=[101.0]).text == "too close to call"


def test_a_winner_is_compared_with_the_second_by_name():
    call = call_of(torch=STEADY, onnxruntime=times(AHEAD, 400.0), tensorflow=times(AHEAD, 200.0))
    assert call.text == "fastest, 2.0× as fast as TensorFlow"


def test_a_lead_that_is_too_uncertain_has_its_lower_end_in_the_answer():
    source = source_of(launches(torch=STEADY[:2], onnxruntime=[700.0, 900.0]))
    details = answers(source.analysis, TITLES).framework.details
    assert "In training, the winner is 7.9 times as fast as the second (95% interval: at least 1.6 times)." in details


def test_the_answers_about_inference_ignore_unsteady_training():
    """A launch of each framework, in which the speed of training jumped. The tables of inference name the leader."""
    source = source_of(launches(torch=STEADY[:1], onnxruntime=[140.0]))
    jump = RunWarning(WarningCode.JUMP, LEADER.key, "It jumped.", "Look.")
    found = answers(replace(source.analysis, warnings=[jump]), TITLES).framework
    assert found.headline.startswith("To train, too unsteady to call")
    assert "In inference with large batches: ahead in one launch each: ONNX Runtime in 1 of 1 network." in found.details


def test_an_uncertainty_that_says_nothing_counts_the_cases():
    narrow, wide = Interval(1.0, 0.9, 1.1), Interval(1.0, 0.1, 3.0)
    assert uncertainty([narrow, wide]) == " (uncertain by more than ± 50% in 1 of 2 cases, because launches differ)"
    assert uncertainty([wide]) == " (uncertain by more than ± 50%, because launches differ)"


def test_an_undecided_verdict_shows_the_interval_that_leaves_it_open():
    """The ratio over the second has a narrow interval, which would be a tie."""
    narrow, wide = ([100.0 / ratio for ratio in ratios] for ratios in (EVEN, UNCLEAR))
    call = call_of(torch=STEADY, onnxruntime=narrow, tensorflow=wide)
    assert (call.text, call.small) == ("undecided", "95%: 0.72 to 1.52")
    assert call.frameworks == ("tensorflow", "onnxruntime", "torch")


def test_an_undecided_verdict_names_the_frameworks_that_may_be_equal():
    call = call_of(torch=STEADY, onnxruntime=times(UNCLEAR), tensorflow=times(UNCLEAR, 10.0))
    assert (call.text, call.frameworks) == ("undecided", ("onnxruntime", "torch"))


def test_an_undecided_verdict_names_who_is_not_proven_slower():
    """The second is 5% slower in each round. The third is slower on average, but p = 0.056 of three comparisons."""
    second = [100.0 / ratio for ratio in (1.05, 1.051, 1.049, 1.05, 1.0505)]
    third = [100.0 / (1.4 * ratio) for ratio in (0.75, 0.875, 1.0, 1.125, 1.25)]
    call = call_of(torch=STEADY, onnxruntime=second, tensorflow=third)
    assert (call.text, call.frameworks) == ("undecided", ("tensorflow", "torch"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0526, "1.05×"), (1.34, "1.34×"), (12, "12×")],
)
def test_a_lead_is_a_factor_with_more_digits_near_1(value, expected):
    assert text.lead(value) == expected


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval(100.0, 98.0, 102.0), "± 2.0%"),
        (Interval(100.0, 99.5, 104.0), "± 4.0%"),  # lopsided, but narrow
        (Interval(100.0, 86.0, 110.0), "± 14.0%"),  # less lopsided
        (Interval(8070.0, 6550.0, 8660.0), "6,550 to 8,660"),
        (Interval(8980.0, 8060.0, 13700.0), "8,060 to 13,700"),
        (Interval(100.0, 45.0, 155.0), "45.0 to 155"),  # even, but wide
        (Interval(100.0, 5.0, 2000.0), "uncertain"),
    ],
)
def test_an_interval_is_shown_by_its_ends_where_plus_minus_would_mislead(interval, expected):
    value = interval.estimate
    assert text.half_width(interval) == expected
    in_brackets = expected if expected.startswith("±") else f"({expected})"
    assert text.estimate(value, interval) == f"{text.number(value)} {in_brackets}"


def test_a_value_without_an_interval_stands_alone():
    assert text.estimate(100.0, None) == "100"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It takes 0.023 to 0.64 ms.", "It takes 0.023 to 0.64\xa0ms."),
        ("20 s at 700 W, ± 5%", "20\xa0s at 700\xa0W, ±\xa05%"),
        ("5 samples, 9 images/s, the s", "5 samples, 9 images/s, the s"),
    ],
)
def test_no_line_break_separates_a_number_from_a_short_unit(sentence, expected):
    assert text.unbroken(sentence) == expected


def test_the_page_shows_the_interval_and_keeps_ids_whole():
    html = render(view_of(launches(torch=STEADY, onnxruntime=times(AHEAD))))
    assert "fastest, 1.34× as fast as PyTorch <small>95%: 1.30 to 1.38×</small>" in html
    assert '<small><span class="whole">mnist-cnn ·</span> <span class="whole">batch\xa064</span></small>' in html


def test_the_small_print_says_why_a_lead_is_not_the_quotient_of_two_speeds():
    words = "A lead over the second framework is the geometric mean of the ratios round by round"
    several = Document(render(view_of(launches(torch=STEADY, onnxruntime=times(AHEAD))))).text
    assert several.count(words) == 2  # of training and of inference
    for records in (launches(torch=[100.0], onnxruntime=[200.0]), launches(torch=STEADY)):
        assert words not in Document(render(view_of(records))).text


@pytest.mark.parametrize(("count", "expected"), [(1, 0), (4, 0), (5, 1), (6, 0)])
def test_the_interval_of_five_launches_has_its_own_confidence(count, expected):
    page = Document(render(view_of(launches(torch=[100.0 + n for n in range(count)]))))
    assert page.text.count("it has 93.8% with 5 launches.") == expected


def marked(table):
    """Return the frameworks with a mark in a table of the report."""
    values = [value for network in table.networks for row in network.rows for value in row.values]
    return {value.framework for value in values if value and value.unsteady}


def doubted(table):
    """Return whether the verdict of a table of the report calls the value of the winner doubtful."""
    rows = [row for network in table.networks for row in network.rows]
    return any("doubtful" in row.call.text for row in rows if row.call)


@pytest.mark.parametrize("code", sorted(UNSTEADY))
def test_a_warning_about_training_alone_marks_no_inference(code):
    on_gpu = [record(request(replace(LEADER, device="cuda"), launch=n), images_per_s=9000.0) for n in (1, 2, 3)]
    source = source_of([*launches(torch=STEADY[:3], onnxruntime=times(AHEAD[:3], 400.0)), *on_gpu])
    found = replace(source.analysis, warnings=[RunWarning(code, LEADER.key, "It is doubtful.", "Look.")])
    source = replace(source, analysis=found)
    train, infer, over_cpu, every = (each.SECTION.data(source) for each in (training, inference, gpu, figures))
    everywhere = code in ABOUT_LAUNCHES
    expected = {"onnxruntime"} if everywhere else set()
    assert marked(train.table) == marked(over_cpu.training) == {"onnxruntime"}
    assert marked(infer.throughput) == marked(infer.latency) == marked(over_cpu.inference) == expected
    assert doubted(train.table)
    assert doubted(infer.throughput) == everywhere
    marks = ["".join(row).count("⚠") for table in (every.training, every.inference) for row in table.rows]
    assert sum(marks) == 1 + everywhere


def test_all_figures_are_in_two_tables_with_the_same_names():
    data = figures.SECTION.data(source_of(launches(torch=STEADY, onnxruntime=[70.0, 130.0, 110.0, 220.0, 90.0])))
    tables = (data.training, data.inference)
    assert [table.caption for table in tables] == ["Training", "Inference"]
    assert len({tuple(row[:3] for row in table.rows) for table in tables}) == 1
    assert [len(row) for table in tables for row in table.rows] == [10, 10, 6, 6]
    assert [len(table.headers) for table in tables] == [10, 6]
    assert data.training.rows[0][3] == "110 (70.0 to 220) ⚠"
    (note,) = [note for note in data.notes if note.startswith("±")]
    assert "longer arm" in note
    assert "Half" not in note


def test_networks_that_one_image_per_call_serves_faster_are_named():
    """A call with one image takes 1.5 ms, which is 667 images/s. Calls with 256 predict 5 times what training does."""
    slow = [record(request(cell(), launch=n), images_per_s=100.0 + n) for n in (1, 2, 3)]
    unclear = [record(request(cell("cifar-mlp"), launch=n), speed) for n, speed in enumerate((90.0, 120.0, 160.0), 1)]
    fast = [record(request(cell("cifar-cnn"), launch=n), images_per_s=200.0 + n) for n in (1, 2, 3)]
    source = source_of([*slow, *fast, *unclear])
    assert inference.SECTION.data(source).faster_alone == "mnist-cnn/torch/cpu"
    shown = Document(render(view_of([*slow, *fast]))).text
    assert "at their median latency, give more images/s than calls with many in mnist-cnn/torch/cpu." in shown
    assert inference.SECTION.data(source_of(slow[:1])).faster_alone == "", "one launch cannot tell"


def test_early_records_leave_no_empty_column_about_serving():
    launch = record(request(cell()))
    placement = replace(launch.result.evidence.placement, serving="a compiled step")
    early = replace(placement, serving="")
    for placed, said in ((placement, True), (early, False)):
        evidence = replace(launch.result.evidence, placement=placed)
        of = launch.model_copy(update={"result": replace(launch.result, evidence=evidence)})
        shown = Document(render(view_of([of]))).text
        assert ("Served by" in shown, "a compiled step" in shown) == (said, said)
        assert ("“Proof and evidence” names the function that makes the predictions." in shown) == said
        assert ("do not name the function that made the predictions." in shown) != said


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.918, 1.1, "0.92 to 1.10"),
        (28.51, 30.94, "28.5 to 30.9"),
        (0.468, 0.478, "0.468 to 0.478"),
        (1234.0, 2345.0, "1,234 to 2,345"),
        (1.2, 1.204, "1.200 to 1.204"),
        (0.9991, 1.04, "0.999 to 1.040"),  # contains 1
        (1.004, 1.05, "1.004 to 1.050"),  # does not
        (1.0, 1.04, "1.00 to 1.04"),
        (0.9996, 1.04, "0.9996 to 1.0400"),
        (9.5, 9.996, "9.5 to 10.0"),
        (2.0, 2.0, "2.00 to 2.00"),
        (1.25, 1.250001, "1.25 to 1.25"),  # more decimals would not help
        (0.0012, 5.3, "0.0012 to 5.3"),  # too far apart
        (2.0, math.inf, "2.0 to –"),
    ],
)
def test_both_ends_of_a_ratio_have_equally_many_decimals(low, high, expected):
    assert text.ends(Interval(low, low, high)) == expected


def test_ends_with_two_digits_have_more_near_1():
    assert text.ends(Interval(2.5, 2.2, 2.83), 2) == "2.2 to 2.8"
    assert text.ends(Interval(2.5, 2.5, 20.0), 2) == "2.5 to 20.0"
    assert text.ends(Interval(0.5, 0.15, 1.4), 2) == "0.15 to 1.40"
    assert text.ends(Interval(1.0, 0.93, 1.07), 2) == "0.93 to 1.07"
