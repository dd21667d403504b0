"""Test comparisons of two runs: ratios, verdicts, refused and flagged cells, and the outcomes of the gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.analysis.comparison import CellStatus, Comparison, compare, group_means
from kit.analysis.differences import RULES, Difference, Rule, Severity, differences
from kit.analysis.gate import GateOutcome, GateResult, gate
from kit.analysis.intervals import Verdict, paired_interval
from kit.analysis.measured_launch import measured_launches
from kit.analysis.pairing import COMPARED, Measure
from kit.cli import side_by_side
from kit.model.errors import UsageError
from kit.model.record import Image, Record
from kit.model.run import Run
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Code, Status
from scenarios.contract.request import Budget
from tests import examples

TRAINING, INFERENCE = COMPARED
CELL = examples.cell()
OTHER = examples.cell("cifar-cnn")
STEADY = (1000.0, 1004.0, 996.0, 1002.0, 998.0)
NOISY = (1000.0, 700.0, 1300.0, 800.0, 1200.0)
GPU = examples.gpu(name="Example GPU")


def run(
    cells: Mapping[Cell, Sequence[float]], failed: Sequence[Cell] = (), measure: Measure = TRAINING, **changes: Any
) -> Run:
    """Return a run with one `ok` launch per speed and one failed launch per cell in `failed`, all of them planned.

    measure: what has these speeds. The other speed is the same in all launches.
    """
    records = [
        examples.with_speed(examples.record(examples.request(cell, launch=number), **changes), measure, speed)
        for cell, speeds in cells.items()
        for number, speed in enumerate(speeds, start=1)
    ]
    records += [examples.failed(examples.request(cell, launch=99)) for cell in failed]
    plan = examples.plan([examples.planned(r.launch, **asdict(r.cell)) for r in records])
    return Run(plan, examples.machine(), records)


def scaled(speeds: Sequence[float], factor: float) -> tuple[float, ...]:
    return tuple(speed * factor for speed in speeds)


def only(base: Run, new: Run, measure: Measure = TRAINING) -> Comparison:
    (comparison,) = compare(base, new, measure)
    return comparison


speeds = st.lists(st.floats(1.0, 1e6), min_size=2, max_size=7)
measures = st.sampled_from(COMPARED)
for_each_measure = pytest.mark.parametrize("measure", COMPARED)


@given(speeds, speeds, measures)
def test_a_run_against_itself_is_all_ties_with_ratio_1(
    some: list[float], others: list[float], measure: Measure
) -> None:
    itself = run({CELL: some, OTHER: others}, measure=measure)
    for comparison in compare(itself, itself, measure):
        assert comparison.verdict is Verdict.TIE
        assert comparison.ratio == pytest.approx(1, rel=1e-12)
        assert not comparison.differences
    assert gate(itself, itself, 0.0, measure).exit_code == 7  # no data can show that nothing was lost


MIRRORED = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER, Verdict.TIE: Verdict.TIE}


@given(speeds, speeds, measures)
def test_swapping_the_runs_gives_the_reciprocal(some: list[float], others: list[float], measure: Measure) -> None:
    base, new = run({CELL: some}, measure=measure), run({CELL: others}, measure=measure)
    there, back = only(base, new, measure), only(new, base, measure)
    assert there.ratio
    assert back.ratio
    assert there.interval
    assert back.interval
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert (there.interval.low, there.interval.high) == pytest.approx((1 / back.interval.high, 1 / back.interval.low))
    assert there.verdict is MIRRORED[back.verdict]


@for_each_measure
@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (STEADY, scaled(STEADY, 1.1), Verdict.FASTER),
        (STEADY, scaled(STEADY, 0.9), Verdict.SLOWER),
        (NOISY, scaled(NOISY, 0.9), Verdict.TIE),
        (STEADY, (900.0,), Verdict.UNKNOWN),
        ((1000.0,), STEADY, Verdict.UNKNOWN),
    ],
)
def test_a_verdict_needs_an_interval_that_excludes_1(
    old: Sequence[float], new: Sequence[float], verdict: str, measure: Measure
) -> None:
    comparison = only(run({CELL: old}, measure=measure), run({CELL: new}, measure=measure), measure)
    assert comparison.verdict is verdict
    assert comparison.ratio == pytest.approx(math.prod(new) ** (1 / len(new)) / math.prod(old) ** (1 / len(old)))
    assert (comparison.interval is None) == (verdict is Verdict.UNKNOWN)


def asked(**changes: Any) -> Callable[[Record], Record]:
    return lambda record: record.model_copy(update={"request": replace(record.request, **changes)})


def known(**changes: Any) -> Callable[[Record], Record]:
    return lambda record: record.model_copy(update=changes)


def found(**changes: Any) -> Callable[[Record], Record]:
    """Change fields of the evidence, or of the placement in it."""

    def change(record: Record) -> Record:
        assert record.result
        assert record.result.evidence
        evidence = record.result.evidence
        own = {name: value for name, value in changes.items() if hasattr(evidence, name)}
        placement = replace(evidence.placement, **{n: v for n, v in changes.items() if n not in own})
        return record.model_copy(
            update={"result": replace(record.result, evidence=replace(evidence, placement=placement, **own))}
        )

    return change


def image(digest: str) -> Callable[[Record], Record]:
    return known(image=Image(kind="image", reference="kit-torch:cpu", digest=digest, size_bytes=1))


def calls(batch: int) -> Callable[[Record], Record]:
    def change(record: Record) -> Record:
        assert record.result
        assert record.result.inference
        result = replace(record.result, inference=replace(record.result.inference, batch=batch))
        return record.model_copy(update={"result": result})

    return change


REFUSED, FLAGGED, NOTED = Severity
DIFFERENT = [
    ("scenario", REFUSED, asked(spec="1111"), asked(spec="2222")),
    ("kind of data", REFUSED, asked(data="real"), asked(data="synthetic")),
    ("data", REFUSED, found(data_digest="1111"), found(data_digest="2222")),
    ("device", REFUSED, found(device="cpu"), found(device="cuda:0")),
    ("rounding", REFUSED, found(tf32=False), found(tf32=True)),
    ("images per call", REFUSED, calls(128), calls(256)),
    ("torch version", FLAGGED, found(versions={"torch": "2.1"}), found(versions={"torch": "2.2"})),
    ("kit version", FLAGGED, known(machine=examples.machine()), known(machine=examples.machine(kit="0.2.0"))),
    ("environment", FLAGGED, image("sha256:1"), image("sha256:2")),
    ("engine", FLAGGED, known(engine="docker"), known(engine="local")),
    ("kernels", FLAGGED, found(provider="oneDNN"), found(provider="XLA")),
    ("threads", FLAGGED, found(threads=1), found(threads=2)),
    ("settings", FLAGGED, asked(settings={}), asked(settings={"channels_last": "1"})),
    ("settings", FLAGGED, asked(environment={}), asked(environment={"OMP_PROC_BIND": "true"})),
    ("denormals", FLAGGED, found(denormals="kept"), found(denormals="flushed")),
    ("profile", FLAGGED, known(profile="quick"), known(profile="standard")),
    ("profile", FLAGGED, asked(budget=Budget(seconds=6)), asked(budget=Budget(seconds=20))),
    ("machine", NOTED, known(), known(machine=examples.machine(gpus=[GPU], id="f" * 16))),
    ("system", NOTED, known(), known(machine=examples.machine(kernel="6.8"))),
]
OF_INFERENCE = {"images per call"}  # not of training
ALIKE = {
    "seed": (asked(seed=0), asked(seed=1)),
    "weights": (found(initial_weights_digest="1"), found(initial_weights_digest="2", final_weights_digest="3")),
    "index of the GPU": (found(device="cuda:0"), found(device="cuda:1")),
    "unknown rounding": (found(tf32=None), found(tf32=True)),
    "unknown environment": (known(), image("sha256:2")),
}


@for_each_measure
@pytest.mark.parametrize(("field", "severity", "of_base", "of_new"), DIFFERENT)
def test_a_difference_is_refused_flagged_or_noted(
    field: str,
    severity: Severity,
    of_base: Callable[[Record], Record],
    of_new: Callable[[Record], Record],
    measure: Measure,
) -> None:
    base, new = (
        replace(made, records=[change(record) for record in made.records])
        for made, change in (
            (run({CELL: STEADY}, measure=measure), of_base),
            (run({CELL: scaled(STEADY, 1.1)}, measure=measure), of_new),
        )
    )
    comparison = only(base, new, measure)
    if field in OF_INFERENCE and measure is TRAINING:
        assert (comparison.differences, comparison.verdict) == ((), Verdict.FASTER)
        return
    (difference,) = comparison.differences
    assert (difference.field, difference.severity) == (field, severity)
    assert difference.base != difference.new
    assert (comparison.verdict is Verdict.REFUSED) == (severity is REFUSED)
    assert (comparison.ratio is None) == (severity is REFUSED)
    assert comparison.flagged == (severity is FLAGGED)
    mixed = replace(base, records=[*base.records[:3], *new.records[3:]])  # one run whose own launches differ
    assert [d.field for d in only(mixed, mixed, measure).differences] == [field]


@pytest.mark.parametrize("name", ALIKE)
def test_unknown_values_and_those_without_effect_on_speed_are_no_difference(name: str) -> None:
    base, new = (change(examples.record()) for change in ALIKE[name])
    assert differences(measured_launches([base]), measured_launches([new]), Measure.INFERENCE) == []


def test_the_gpu_and_its_driver_are_noted() -> None:
    cell = examples.cell(device="cuda")
    base, new = (
        found(device_name=name)(examples.record(examples.request(cell), machine=examples.machine(driver=driver)))
        for name, driver in (("T4", "570.1"), ("L4", "580.2"))
    )
    noted = [
        (d.field, d.severity, d.base, d.new)
        for d in differences(measured_launches([base]), measured_launches([new]), Measure.INFERENCE)
    ]
    assert noted == [("GPU", NOTED, "T4", "L4"), ("driver", NOTED, "570.1", "580.2")]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_case(rule: Rule) -> None:
    example = examples.record()
    assert any(field in rule.facts(*measured_launches([of_base(example)])) for field, _, of_base, _ in DIFFERENT)


def test_cells_of_only_one_run_are_missing_with_the_reason() -> None:
    a_third = examples.cell("fashion-mlp")
    base, new = run({CELL: STEADY, a_third: STEADY}), run({OTHER: STEADY}, failed=[CELL])
    comparisons = {comparison.key: comparison for comparison in compare(base, new, TRAINING)}
    assert list(comparisons) == [CELL.key, a_third.key, OTHER.key]
    assert {comparison.verdict for comparison in comparisons.values()} == {Verdict.MISSING}
    assert comparisons[CELL.key].new.failures == ("failed: It failed.",)
    assert comparisons[a_third.key].new.failures == ("absent: it has no record",)
    assert comparisons[OTHER.key].base.status is CellStatus.NOT_OK
    section = side_by_side.comparison_section(list(comparisons.values()), [base, new], 1, TRAINING)
    assert [row[2] for row in section.rows] == ["failed", "absent", "1,000"]
    assert "Not ok in B (mnist-cnn/torch/cpu): failed: It failed." in section.notes
    assert "Not in B: fashion-mlp/torch/cpu" in section.notes


def test_cells_skipped_in_both_runs_are_counted_separately() -> None:
    base = run({CELL: STEADY}, failed=[OTHER, examples.cell("cifar-mlp")])
    skipped = examples.failed(examples.request(OTHER), Status.SKIPPED, Code.NOT_OFFERED)
    base = replace(base, records=[skipped if record.key == OTHER.key else record for record in base.records])
    for new in (base, run({CELL: STEADY})):  # absent counts like skipped
        notes = side_by_side.comparison_section(compare(base, new, TRAINING), [base, new], 1, TRAINING).notes
        assert "Ok in neither run: 2 cells, 1 of them skipped" in notes


def test_a_group_mean_needs_three_cells_of_one_framework_and_device() -> None:
    torch = [examples.cell(name) for name in ("mnist-cnn", "cifar-cnn", "fashion-mlp")]
    tensorflow = [examples.cell(name, "tensorflow") for name in ("mnist-cnn", "cifar-cnn")]
    base = run(dict.fromkeys([*torch, *tensorflow], STEADY))
    factors = dict(zip(torch, (1.0, 2.0, 4.0), strict=True))
    new = run({cell: scaled(STEADY, factors.get(cell, 9.0)) for cell in (*torch, *tensorflow)})
    (mean,) = group_means(compare(base, new, TRAINING))
    assert (mean.group, mean.cells) == ("torch/cpu/stock/fp32", 3)
    assert mean.interval.estimate == pytest.approx(2)
    # By hand: logarithms 0, ln 2, 2 ln 2, so sd = ln 2; t(0.975, 2) = 4.303; half-width = 4.303 ln 2 / sqrt(3).
    assert math.log(mean.interval.high / 2) == pytest.approx(4.303 * math.log(2) / math.sqrt(3), rel=1e-3)


@for_each_measure
@pytest.mark.parametrize(
    ("new", "outcome"),
    [
        (scaled(STEADY, 1.2), GateOutcome.PASSED),
        (scaled(STEADY, 0.97), GateOutcome.PASSED),  # slower beyond the noise, but no more than allowed
        (scaled(STEADY, 0.94), GateOutcome.REGRESSION),
        (scaled(NOISY, 0.94), GateOutcome.INCONCLUSIVE),
        (STEADY[:4], GateOutcome.INCONCLUSIVE),
        (STEADY[:1], GateOutcome.INCONCLUSIVE),
        ((), GateOutcome.LOST),
    ],
)
def test_the_gate_fails_a_cell_that_is_slower_than_allowed_beyond_the_noise(
    new: Sequence[float], outcome: GateOutcome, measure: Measure
) -> None:
    others = [examples.cell(name) for name in ("cifar-mlp", "fashion-mlp")]
    steady = dict.fromkeys([OTHER, *others], STEADY)
    before, after = (run({CELL: speeds, **steady}, measure=measure) for speeds in (STEADY, new))
    judged = gate(before, after, 0.05, measure)
    assert outcomes(judged)[0] is outcome
    assert new == scaled(NOISY, 0.94) or outcomes(judged)[1:] == [GateOutcome.PASSED] * 3
    assert (
        judged.exit_code
        == {
            GateOutcome.PASSED: 0,
            GateOutcome.REGRESSION: 1,
            GateOutcome.LOST: 2,
            GateOutcome.INCONCLUSIVE: 7,
        }[outcome]
    )
    assert judged.alarms == ([CELL.key] if outcome is GateOutcome.REGRESSION else [])
    (other,) = {*COMPARED} - {measure}
    assert not gate(before, after, 0.05, other).alarm, "the other speed is equal"


def outcomes(judged: GateResult) -> list[GateOutcome]:
    return [cell.outcome for cell in judged.cells]


def test_the_gate_fails_a_cell_that_lost_launches() -> None:
    whole, broken = run({CELL: STEADY}), run({CELL: STEADY[:4]}, failed=[CELL])
    assert outcomes(gate(whole, broken, 0.05, TRAINING)) == [GateOutcome.LOST]
    repeated = replace(broken, records=[*broken.records, run({CELL: STEADY}).records[4]])  # as --retry-failed does
    assert outcomes(gate(whole, repeated, 0.05, TRAINING)) == [GateOutcome.PASSED]


def test_an_interrupted_run_loses_its_unfinished_cells() -> None:
    base, new = run({CELL: STEADY, OTHER: STEADY}), run({CELL: STEADY, OTHER: STEADY})
    of_other = [record for record in new.records if record.key == OTHER.key]
    cut = replace(new, records=[record for record in new.records if record not in of_other[1:]])
    assert outcomes(gate(base, cut, 0.05, TRAINING)) == [GateOutcome.PASSED, GateOutcome.LOST]
    (_, lost) = compare(base, cut, TRAINING)
    assert lost.new.failures == ("interrupted: 4 of 5 planned launches have no record",)


def test_cells_slower_within_the_noise_can_fail_together() -> None:
    cells = [examples.cell(name) for name in ("mnist-cnn", "cifar-cnn", "cifar-mlp", "fashion-mlp")]
    noise = (1.02, 0.98, 1.03, 0.97, 1.0)
    slower = [0.96 * factor * speed for factor, speed in zip(noise, NOISY, strict=True)]
    base, new = paired(run(dict.fromkeys(cells, NOISY)), run(dict.fromkeys(cells, slower)))
    judged = gate(base, new, 0.05, TRAINING)
    assert GateOutcome.REGRESSION not in outcomes(judged)
    assert judged.together
    assert judged.exit_code == 1
    assert judged.alarms == [cell.key for cell in cells]
    assert gate(base, new, 0.15, TRAINING).exit_code == 0
    notes = side_by_side.gate_section(judged, [base, new]).notes
    assert "Failed: all cells together." in notes


def test_a_loss_of_one_cell_counts_relative_to_the_others_but_no_gain_of_them_does() -> None:
    cells = [examples.cell(name) for name in ("mnist-cnn", "cifar-cnn", "cifar-mlp", "fashion-mlp")]
    base = run(dict.fromkeys(cells, STEADY))
    faster = run({cell: scaled(STEADY, 1.3) for cell in cells[1:]} | {cells[0]: STEADY})
    assert gate(base, faster, 0.05, TRAINING).exit_code == 0
    slower = run({cell: scaled(STEADY, 0.9) for cell in cells[1:]} | {cells[0]: scaled(STEADY, 0.8)})
    judged = gate(base, slower, 0.05, TRAINING)
    assert [c.comparison.key for c in judged.cells if c.outcome is GateOutcome.REGRESSION] == [cells[0].key]
    assert judged.together


def test_a_cell_that_is_slower_and_lost_launches_is_a_regression() -> None:
    slower = run({CELL: scaled(STEADY, 0.7)[:4]}, failed=[CELL])
    judged = gate(run({CELL: STEADY}), slower, 0.05, TRAINING)
    assert (outcomes(judged), judged.whole, judged.exit_code) == ([GateOutcome.LOST], None, 2)  # only four launches
    judged = gate(run({CELL: [*STEADY, 1000.0]}), run({CELL: scaled(STEADY, 0.7)}, failed=[CELL]), 0.05, TRAINING)
    assert (outcomes(judged), judged.exit_code) == ([GateOutcome.REGRESSION], 1)


def test_the_gate_fails_cells_that_are_not_comparable() -> None:
    base, new = run({CELL: STEADY}), run({CELL: STEADY})
    real = replace(new, records=[asked(data="real")(record) for record in new.records])
    assert outcomes(gate(base, real, 0.05, TRAINING)) == [GateOutcome.REFUSED]
    assert gate(base, real, 0.05, TRAINING).exit_code == 2


def test_the_gate_judges_only_the_cells_of_the_base() -> None:
    judged = gate(run({CELL: STEADY}, failed=[OTHER]), run({CELL: STEADY}), 0.05, TRAINING)
    assert [cell.comparison.key for cell in judged.cells] == [CELL.key]


def test_a_gate_without_a_cell_in_the_base_raises_an_error() -> None:
    with pytest.raises(UsageError, match="no cell with an ok launch"):
        gate(run({}, failed=[CELL]), run({CELL: STEADY}), 0.05, TRAINING)


def paired(base: Run, new: Run) -> tuple[Run, Run]:
    return base, replace(new, plan=new.plan.model_copy(update={"run": "new", "against": base.plan.run}))


def test_runs_that_were_measured_in_the_same_rounds_are_compared_in_pairs() -> None:
    base, new = paired(run({CELL: NOISY}), run({CELL: scaled(NOISY, 0.98)}))
    (comparison,) = compare(base, new, TRAINING)
    assert comparison.interval == paired_interval([0.98] * 5)
    assert comparison.pairs is not None
    assert comparison.verdict is Verdict.SLOWER
    (apart,) = compare(base, run({CELL: scaled(NOISY, 0.98)}), TRAINING)
    assert (apart.verdict, apart.pairs) == (Verdict.TIE, None)
    notes = side_by_side.comparison_section([apart], [base, new], 1, TRAINING).notes
    assert any("Not measured in the same rounds" in note for note in notes)


@for_each_measure
def test_a_round_with_a_failed_launch_is_dropped_and_counted(measure: Measure) -> None:
    slower = scaled(NOISY, 0.98)[:4]
    base, new = paired(run({CELL: NOISY}, measure=measure), run({CELL: slower}, failed=[CELL], measure=measure))
    comparisons = compare(base, new, measure)
    assert comparisons[0].pairs is not None
    assert (len(comparisons[0].pairs.ratios), comparisons[0].pairs.dropped) == (4, 1)
    notes = side_by_side.comparison_section(comparisons, [base, new], 1, measure).notes
    assert "1 pair dropped: one of both launches is missing or not ok." in notes


def test_paired_runs_find_a_loss_below_the_drift_of_the_machine() -> None:
    base, new = paired(run({CELL: NOISY}), run({CELL: scaled(NOISY, 0.94)}))
    assert gate(base, new, 0.05, TRAINING).exit_code == 1
    assert gate(base, run({CELL: scaled(NOISY, 0.94)}), 0.05, TRAINING).exit_code == 7


@pytest.mark.parametrize(("launches", "noted"), [(1, False), (4, True), (5, False)])
def test_few_launches_are_noted(launches: int, noted: bool) -> None:
    base, new = run({CELL: STEADY}), run({CELL: STEADY[:launches]})
    notes = side_by_side.comparison_section(compare(base, new, TRAINING), [base, new], 1, TRAINING).notes
    assert any(line.startswith("Fewer than 5 launches or rounds (mnist-cnn/torch/cpu)") for line in notes) == noted


def test_notes_name_each_difference_once_and_fit_80_columns() -> None:
    cells = [examples.cell(name, f) for name in ("mnist-cnn", "cifar-cnn") for f in ("torch", "tensorflow")]
    base, new = run(dict.fromkeys(cells, STEADY)), run(dict.fromkeys(cells, STEADY), engine="other " * 20)
    comparisons = compare(base, new, TRAINING)
    notes = side_by_side.comparison_section(comparisons, [base, new], 1, TRAINING).notes
    assert [line for line in notes if line.startswith("! Flagged")] == [
        "! Flagged (4 cells): engine: A fake, B other other other other other other other"
    ]
    assert max(map(len, notes)) <= 80
    digest = Difference("scenario", REFUSED, "a" * 64, "b" * 64, "Why.")
    refused = replace(comparisons[0], differences=(digest,), verdict=Verdict.REFUSED)
    assert any(
        "A aaaaaaaaaaaa, B bbbbbbbbbbbb" in line
        for line in side_by_side.comparison_section([refused], [base], 1, TRAINING).notes
    )


def test_a_wide_interval_around_1_is_undecided_and_a_narrow_one_a_tie() -> None:
    (narrow,) = compare(run({CELL: STEADY}), run({CELL: STEADY}), TRAINING)
    assert (narrow.verdict, narrow.words) == (Verdict.TIE, "tie")
    wild = [100.0, 4000.0, 1000.0, 300.0, 2500.0]
    (wide,) = compare(run({CELL: STEADY}), run({CELL: wild}), TRAINING)
    assert (wide.verdict, wide.words) == (Verdict.TIE, "undecided")


def test_the_gate_judges_all_cells_together_only_from_enough_rounds() -> None:
    for rounds, code in ((4, 7), (5, 1)):
        base, slower = {}, {}
        for cell in (CELL, OTHER):
            base[cell], slower[cell] = STEADY[:rounds], scaled(STEADY, 0.5)[:rounds]
        judged = gate(run(base), run(slower), 0.05, TRAINING)
        assert (judged.whole is not None, judged.exit_code) == (rounds == 5, code)
