"""Test the comparison of machines with prices: times, costs, the best machine for a network, energy and positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kit.analysis.comparison import mean_ratio
from kit.analysis.contenders import Choice, Contender, Ranking, Value, choices, energy_of, positions, values, versus
from kit.analysis.costs import Estimate, Times, times_of
from kit.analysis.differences import facts
from kit.analysis.intervals import MIN_LAUNCHES, Verdict, ratio_interval, ratio_p_value
from kit.analysis.measured_launch import measured_launches
from kit.analysis.pairing import Measure
from kit.analysis.summaries import ContestState
from kit.model.record import HostSamples, Record
from kit.model.run import Run
from kit.model.tariff import Tariff
from kit.planning import catalog
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status
from tests import examples

Change = Callable[[Record], Record]

TRAINING, INFERENCE = Measure.TRAINING, Measure.INFERENCE
CELL = examples.cell()  # mnist-cnn with PyTorch on the CPU: 60,000 images, 5 published epochs
GPU = examples.cell(device="cuda")
OTHER = examples.cell("cifar-cnn")
STEADY = (1000.0, 1004.0, 996.0, 1002.0, 998.0)
NOISY = (1000.0, 700.0, 1300.0, 800.0, 1200.0)


def scaled(speeds: Sequence[float], factor: float) -> tuple[float, ...]:
    return tuple(factor * speed for speed in speeds)


def hourly(cpu: float, cuda: float | None = None, currency: str = "EUR") -> Tariff:
    """Return one price for both devices, or one for each."""
    return Tariff({"cpu": cpu, "cuda": cpu if cuda is None else cuda}, currency)


def contender(
    label: str,
    speeds: Mapping[Cell, Sequence[float]],
    tariff: Tariff | None = None,
    change: Change = lambda record: record,
    **machine: Any,
) -> Contender:
    """Return a machine with one `ok` launch for each of these training speeds in images/s.

    Inference is 5 times as fast. change: of each record. machine: changed fields of the machine.
    """
    on = examples.machine(**machine)
    records = [
        change(examples.record(examples.request(cell, launch=number), speed, machine=on))
        for cell, of_cell in speeds.items()
        for number, speed in enumerate(of_cell, start=1)
    ]
    plan = examples.plan([]).model_copy(update={"run": label})
    return Contender(label, Run(plan, on, records), tariff, catalog.scenarios())


def asked(**changes: Any) -> Change:
    """Change fields of the request."""

    def change(record: Record) -> Record:
        assert record.request
        return record.model_copy(update={"request": replace(record.request, **changes)})

    return change


def observed(**changes: Any) -> Change:
    """Change fields of the evidence."""

    def change(record: Record) -> Record:
        assert record.result
        assert record.result.evidence
        evidence = replace(record.result.evidence, **changes)
        return record.model_copy(update={"result": replace(record.result, evidence=evidence)})

    return change


def drawing(**watts: float) -> Change:
    """Let parts of the machine, `cpu` or `gpu0`, draw a constant power. A CPU counts energy, a GPU shows its power."""
    series: dict[str, list[float | None]] = {f"{part}_power_w": [power, power] for part, power in watts.items()}
    if "cpu" in watts:
        series["cpu_energy_j"] = [0.0, 11 * watts["cpu"]]
        del series["cpu_power_w"]
    samples = HostSamples(at=[0.0, 11.0], series=series, core_busy=[], cost_s=0.0)
    return lambda record: record.model_copy(update={"host_samples": samples})


def two() -> tuple[Contender, Contender]:
    """A: 1,000 images/s for 0.0001 per second. B: 2,000 images/s for 0.0004 per second."""
    return contender("A", {CELL: STEADY}, hourly(0.36)), contender("B", {CELL: scaled(STEADY, 2)}, hourly(1.44))


def only_choice(*contenders: Contender, measure: Measure = TRAINING) -> Choice:
    (choice,) = choices(contenders, measure)
    return choice


def fastest(*contenders: Contender) -> Ranking:
    ranking = only_choice(*contenders).fastest
    assert ranking is not None
    return ranking


def test_times_and_costs_follow_from_speed_data_set_epochs_and_price() -> None:
    # A million images, an epoch of 60,000 and the 5 epochs of a trained model: seconds and cost, worked out by hand.
    by_hand = {
        "A": [(1000.0, 0.10), (60.0, 0.006), (300.0, 0.03)],
        "B": [(500.0, 0.20), (30.0, 0.012), (150.0, 0.06)],
    }
    choice = only_choice(*two())
    assert [offer.label for offer in choice.offers] == ["A", "B"]
    assert choice.cell == CELL
    for offer in choice.offers:
        times = (offer.times.million, offer.times.epoch, offer.times.model)
        found = [(time.value, cost.value) for time in times if time and (cost := offer.cost(time))]
        assert found == [pytest.approx(pair) for pair in by_hand[offer.label]]
        assert offer.times.epochs == 5
    assert [offer.speed for offer in choice.offers] == pytest.approx([1000, 2000])


def test_times_and_costs_have_the_interval_of_the_speed() -> None:
    offer, _ = only_choice(*two()).offers  # the interval of five launches is their range, 996 to 1,004 images/s
    for time, images in ((offer.times.million, 1e6), (offer.times.epoch, 60_000), (offer.times.model, 300_000)):
        assert time is not None
        assert (time.low, time.high) == pytest.approx((images / 1004, images / 996))
        cost = offer.cost(time)
        assert cost is not None
        assert (cost.low, cost.high) == pytest.approx((images / 1004 * 0.0001, images / 996 * 0.0001))


def test_one_launch_has_a_time_and_a_cost_without_an_interval() -> None:
    (summary,) = contender("A", {CELL: (1000.0,)}).cells
    times = times_of(summary, TRAINING, catalog.scenarios())
    assert times is not None
    assert times.million == Estimate(1000.0)
    assert times.million.cost(3600.0) == Estimate(1000.0)


def test_inference_has_only_a_time_for_a_million_images() -> None:
    (summary,) = two()[0].cells
    times = times_of(summary, INFERENCE, catalog.scenarios())
    assert times is not None
    assert times == Times(times.million)
    assert times.million.value == pytest.approx(200)  # 5,000 images/s


def test_a_network_that_changed_since_the_run_has_no_time_for_a_trained_model() -> None:
    changed = contender("A", {CELL: STEADY}, change=asked(spec="0" * 64))
    (summary,) = changed.cells
    times = times_of(summary, TRAINING, changed.scenarios)
    assert times is not None
    assert (times.model, times.epochs) == (None, None)
    assert times.epoch is not None
    assert times.epoch.value == pytest.approx(60)


def test_a_cell_without_a_speed_has_no_times_and_is_no_offer() -> None:
    broken = contender("B", {CELL: STEADY}, change=lambda record: examples.with_speed(record, TRAINING, 0.0))
    (summary,) = broken.cells
    assert times_of(summary, TRAINING, catalog.scenarios()) is None
    assert choices([two()[0], broken], TRAINING) == []


def test_the_break_even_is_the_ratio_of_the_prices() -> None:
    a, b = two()
    (found,) = versus([a, b], TRAINING)
    assert found.by_key[CELL.key].ratio == pytest.approx(2)
    assert found.break_even(CELL) == pytest.approx(4)
    assert found.speed is not None
    assert (found.speed.cells, found.speed.ratio, found.speed.interval) == (1, pytest.approx(2), None)
    (swapped,) = versus([b, a], TRAINING)
    assert swapped.break_even(CELL) == pytest.approx(0.25)
    (unpriced,) = versus([a, replace(b, tariff=None)], TRAINING)
    assert unpriced.break_even(CELL) is None


def values_of(*found: Contender) -> list[Value]:
    return values(found, choices(found, TRAINING))


def test_the_value_is_the_work_for_the_same_money() -> None:
    a, b = two()
    ((of_b,), (of_a,)) = values_of(a, b), values_of(b, a)
    assert (of_b.other, of_b.mean.ratio, of_b.results) == ("B", pytest.approx(0.5), {Verdict.SLOWER})
    assert (of_a.other, of_a.mean.ratio, of_a.results) == ("A", pytest.approx(2), {Verdict.FASTER})
    assert values_of(a, replace(b, tariff=None)) == []
    assert values_of(replace(a, tariff=None), b) == []


def test_the_value_for_money_has_an_interval_over_networks() -> None:
    cells = [CELL, OTHER, examples.cell("fashion-mlp")]
    a = contender("A", dict.fromkeys(cells, STEADY), hourly(0.5))
    faster = {cell: scaled(STEADY, factor) for cell, factor in zip(cells, (1, 2, 4), strict=True)}
    (found,) = values_of(a, contender("B", faster, hourly(1.0)))
    assert (found.mean.cells, found.mean.ratio) == (3, pytest.approx(1))
    # By hand: logarithms -ln 2, 0, ln 2, so sd = ln 2; t(0.975, 2) = 4.303; half-width = 4.303 ln 2 / sqrt(3).
    assert found.mean.interval is not None
    assert math.log(found.mean.interval.high) == pytest.approx(4.303 * math.log(2) / math.sqrt(3), rel=1e-3)


def test_a_mean_ratio_needs_a_ratio_and_its_interval_three() -> None:
    assert mean_ratio([]) is None
    few, enough = mean_ratio([2.0, 8.0]), mean_ratio([2.0, 4.0, 8.0])
    assert few is not None
    assert (few.cells, few.ratio, few.interval) == (2, pytest.approx(4), None)
    assert enough is not None
    assert enough.interval is not None
    assert (enough.ratio, enough.interval.estimate) == pytest.approx((4, 4))


@pytest.mark.parametrize(("cuda", "device", "cost"), [(3.60, "cpu", 0.10), (0.90, "cuda", 0.0625)])
def test_the_fastest_and_the_cheapest_device_of_a_machine_can_differ(cuda: float, device: str, cost: float) -> None:
    # A: a million images take 1,000 s on the CPU and 250 s on the GPU. B: 2,000 s on the CPU, which cost 0.20.
    a = contender("A", {CELL: STEADY, GPU: scaled(STEADY, 4)}, hourly(0.36, cuda))
    b = contender("B", {CELL: scaled(STEADY, 0.5)}, hourly(0.36))
    choice = only_choice(a, b)
    assert [offer and offer.summary.cell.device for offer in choice.fast] == ["cuda", "cpu"]
    assert [offer and offer.summary.cell.device for offer in choice.cheap] == [device, "cpu"]
    costs = [found.value for offer in choice.cheap if offer and (found := offer.cost(offer.times.million))]
    assert costs == pytest.approx([cost, 0.20])
    assert choice.fastest is not None
    assert (choice.fastest.leader.label, choice.fastest.ratio) == ("A", pytest.approx(8))
    assert choice.cheapest is not None
    assert (choice.cheapest.leader.label, choice.cheapest.ratio) == ("A", pytest.approx(0.20 / cost))
    assert choice.cheapest.state is ContestState.NAMED


def test_the_faster_and_the_cheaper_machine_are_named() -> None:
    choice = only_choice(*two())
    for ranking, leader in ((choice.fastest, "B"), (choice.cheapest, "A")):
        assert ranking is not None
        assert (ranking.leader.label, ranking.ratio, ranking.state) == (leader, pytest.approx(2), ContestState.NAMED)


def test_the_best_framework_of_a_machine_counts() -> None:
    a = contender("A", {CELL: STEADY, examples.cell(framework="tensorflow"): scaled(STEADY, 1.5)})
    first, second = only_choice(a, two()[1]).fast
    assert first is not None
    assert second is not None
    assert [first.summary.cell.framework, second.summary.cell.framework] == ["tensorflow", "torch"]


def test_a_machine_without_a_price_for_its_device_is_not_the_cheapest() -> None:
    a, b = two()
    choice = only_choice(replace(a, tariff=Tariff({"cuda": 0.01})), b)
    assert [offer and offer.label for offer in choice.cheap] == [None, "B"]
    assert choice.cheapest is None
    assert choice.fastest is not None


NAMED, TIE, UNDECIDED, UNKNOWN = ContestState


@pytest.mark.parametrize(
    ("of_a", "of_b", "state"),
    [
        (STEADY, scaled(STEADY, 2.0), NAMED),
        (STEADY, scaled(STEADY, 1.0001), TIE),
        (NOISY, scaled(NOISY, 1.05), UNDECIDED),
        ((1000.0,), (9000.0,), UNKNOWN),
        ((1000.0,), scaled(STEADY, 9.0), UNKNOWN),
        (STEADY, (9000.0,), UNKNOWN),
    ],
)
def test_a_machine_is_named_only_if_the_launches_show_it(
    of_a: Sequence[float], of_b: Sequence[float], state: ContestState
) -> None:
    choice = only_choice(
        contender("A", {CELL: of_a}, hourly(0.5)), contender("B", {CELL: of_b}, hourly(0.5))
    )  # equal prices: the faster one is the cheaper one
    for ranking in (choice.fastest, choice.cheapest):
        assert ranking is not None
        assert (ranking.leader.label, ranking.second.label, ranking.state) == ("B", "A", state)
        assert ranking.ratio > 1
        assert (ranking.interval is None) == (state is UNKNOWN)


def test_a_leader_with_the_lower_mean_is_not_named() -> None:
    """The median of A is higher, 1,000 over 999. Its mean is surely lower, because half of its launches are slow."""
    a = contender("A", {CELL: (1000.0,) * 51 + (500.0,) * 50})
    found = fastest(a, contender("B", {CELL: (999.0,) * 5}))
    assert found.leader.label == "A"
    assert found.interval is not None
    assert found.interval.high < 1
    assert found.state is not NAMED


def test_a_leader_is_ahead_of_every_other_machine_by_its_mean() -> None:
    """The median of A is the highest. B has the second highest median and a lower mean, C a higher mean."""
    speeds = {"A": (1000.0,) * 51 + (500.0,) * 50, "B": (999.0,) * 51 + (300.0,) * 50, "C": (998.0,) * 5}
    found = fastest(*(contender(label, {CELL: own}) for label, own in speeds.items()))
    assert (found.leader.label, found.second.label) == ("A", "C")
    assert found.ratio < 1
    assert found.state is not NAMED


# By hand: the logarithms of STEADY have a variance of 1.0e-5, so a mean has the error 2.0e-6, widened by 1 + 25 / 221,
# and a ratio 4.45e-6. t = ln 1.0055 / sqrt(4.45e-6) = 2.60 with 8 degrees of freedom: p = 0.032 for each pair of the
# leader. The other two are equal: p = 1. Holm multiplies the lowest of three p values by 3, which gives 0.095.
CLOSE = scaled(STEADY, 1.0055)


def test_a_machine_is_named_only_after_a_correction_for_all_pairs() -> None:
    a, b, c = (contender(label, {CELL: of}) for label, of in (("A", CLOSE), ("B", STEADY), ("C", STEADY)))
    assert fastest(a, b).state is NAMED
    found = fastest(a, b, c)
    assert (found.leader.label, found.second.label) == ("A", "B")
    assert found.interval is not None
    assert found.interval.low > 1, "without the correction, A would be named"
    assert found.state is not NAMED
    far = contender("C", {CELL: scaled(STEADY, 0.5)})  # both of its p values are almost 0, so 0.032 is multiplied by 1
    assert fastest(a, b, far).state is NAMED


def test_a_machine_ahead_of_the_second_only_by_noise_is_not_named() -> None:
    far = contender("A", {CELL: scaled(STEADY, 0.1)})
    found = fastest(far, contender("B", {CELL: NOISY}), contender("C", {CELL: scaled(NOISY, 1.05)}))
    assert (found.leader.label, found.second.label, found.state) == ("C", "B", UNDECIDED)


@pytest.mark.parametrize(("of_c", "state"), [(STEADY, UNDECIDED), ((500.0,), UNKNOWN)], ids=["corrected", "one launch"])
def test_a_leader_whose_interval_excludes_1_is_in_no_tie(of_c: Sequence[float], state: ContestState) -> None:
    a, b, c = (contender(label, {CELL: of}) for label, of in (("A", CLOSE), ("B", STEADY), ("C", of_c)))
    found = fastest(a, b, c)
    assert found.interval is not None
    assert found.interval.low > 1
    assert found.state is state


@pytest.mark.parametrize(
    "change",
    [asked(data="real"), asked(spec="0" * 64), observed(data_digest="2222")],
    ids=["kind of data", "specification", "data"],
)
def test_networks_that_are_other_work_are_no_common_choice(change: Change) -> None:
    a, _ = two()
    assert choices([a, contender("B", {CELL: STEADY}, change=change)], TRAINING) == []
    assert len(choices([a, contender("B", {CELL: STEADY})], TRAINING)) == 1


def test_a_network_of_one_machine_is_no_choice() -> None:
    a = contender("A", {CELL: STEADY, OTHER: STEADY})
    assert [choice.cell.scenario for choice in choices([a, two()[1]], TRAINING)] == ["mnist-cnn"]


def test_the_batch_size_is_that_of_the_measure() -> None:
    a, b = contender("A", {CELL: STEADY}), contender("B", {replace(CELL, batch=128): STEADY})
    assert choices([a, b], TRAINING) == []
    assert len(choices([a, b], INFERENCE)) == 1, "both predict 256 images per call"


def energy(*changes: Change) -> tuple[float, tuple[str, ...]]:
    """Return the images per joule of launches at 1,000 images/s, and its parts."""
    found = energy_of([change(examples.record()) for change in changes])
    assert found is not None
    return found.images, found.parts


def test_energy_is_the_sum_of_all_parts() -> None:
    # 100 W at 1,000 images/s are 0.1 J per image.
    assert energy(drawing(cpu=100.0)) == (pytest.approx(10), ("cpu",))
    assert energy(drawing(gpu0=250.0)) == (pytest.approx(4), ("gpu0",))
    assert energy(drawing(cpu=100.0, gpu0=300.0)) == (pytest.approx(2.5), ("cpu", "gpu0"))


def test_energy_is_the_median_of_the_launches_with_all_parts() -> None:
    launches = [drawing(cpu=power) for power in (400.0, 100.0, 200.0)]
    assert energy(*launches) == (pytest.approx(5), ("cpu",))
    assert energy(*launches, drawing(cpu=100.0, gpu0=300.0)) == (pytest.approx(2.5), ("cpu", "gpu0"))


def test_without_a_sensor_or_an_ok_launch_there_is_no_energy() -> None:
    measured = drawing(cpu=100.0)(examples.record())
    assert energy_of([measured]) is not None
    assert energy_of([]) is None
    assert energy_of([examples.record(), examples.failed()]) is None
    assert energy_of([drawing(cpu=0.0)(examples.record())]) is None, "a counter that stands still counts nothing"
    assert energy_of([measured.model_copy(update={"status": Status.FAILED})]) is None


def places(*contenders: Contender) -> list[tuple[object, ...]]:
    """Return label, device, speed, cost of an image and efficiency of each position."""
    found = positions(contenders, TRAINING)
    return [(each.label, each.device, round(each.speed, 9), round(each.cost, 9), each.efficient) for each in found]


def test_a_position_is_efficient_if_nothing_is_both_faster_and_cheaper() -> None:
    # An image costs 0.36 / 1,000 on A, 1.44 / 2,000 on B and 0.72 / 500 on C, apart from the seconds of an hour.
    a, b = two()
    c = contender("C", {CELL: scaled(STEADY, 0.5)}, hourly(0.72))
    assert places(a, b, c) == [
        ("A", "cpu", 1.0, 1.0, True),
        ("B", "cpu", 2.0, 2.0, True),
        ("C", "cpu", 0.5, 4.0, False),
    ]
    assert places(a, replace(a, label="B")) == [("A", "cpu", 1.0, 1.0, True), ("B", "cpu", 1.0, 1.0, True)]


def test_a_position_is_the_mean_over_common_networks_in_the_fastest_framework() -> None:
    slow, mlp = examples.cell(framework="tensorflow"), examples.cell("fashion-mlp")
    a = contender("A", {CELL: STEADY, OTHER: STEADY, mlp: scaled(STEADY, 99)}, hourly(0.5))
    b = contender("B", {CELL: scaled(STEADY, 2), slow: STEADY, OTHER: scaled(STEADY, 8)}, hourly(0.5))
    assert places(a, b) == [("A", "cpu", 1.0, 1.0, False), ("B", "cpu", 4.0, 0.25, True)]  # sqrt(2 * 8) = 4


def test_each_device_with_a_price_has_a_position() -> None:
    a = contender("A", {CELL: STEADY, GPU: scaled(STEADY, 4)}, hourly(0.36, 3.60))
    b = contender("B", {CELL: STEADY, GPU: scaled(STEADY, 8)}, Tariff({"cuda": 4.32}))
    assert places(a, b) == [
        ("A", "cpu", 1.0, 1.0, True),
        ("A", "cuda", 4.0, 2.5, False),
        ("B", "cuda", 8.0, 1.5, True),
    ]


def test_without_prices_or_a_common_network_there_are_no_positions() -> None:
    a, b = two()
    assert places(replace(a, tariff=None), replace(b, tariff=None)) == []
    assert places(a, replace(b, tariff=None)) == []
    assert places(a, contender("B", {OTHER: STEADY}, hourly(1.0))) == []
    assert len(places(a, b, contender("C", {OTHER: STEADY}))) == 2, "a machine without prices is left out"


different = st.lists(st.integers(100, 1000), min_size=2, max_size=30, unique=True)


@given(over=different, under=different)
def test_the_p_value_of_a_ratio_belongs_to_its_interval(over: list[int], under: list[int]) -> None:
    interval, p = ratio_interval(over, under), ratio_p_value(over, under)
    assert interval is not None
    assert (p < 0.05) == (interval.verdict is not Verdict.TIE)
    if max(len(over), len(under)) < MIN_LAUNCHES:  # then nothing is widened
        assert p == pytest.approx(stats.ttest_ind(np.log(over), np.log(under), equal_var=False).pvalue)


@given(few=st.lists(st.integers(100, 1000), max_size=1), others=different)
def test_fewer_than_two_values_have_the_p_value_1(few: list[int], others: list[int]) -> None:
    assert ratio_p_value(few, others) == ratio_p_value(others, few) == ratio_p_value(few, few) == 1.0


def test_equal_values_have_the_p_value_1_and_different_ones_without_noise_0() -> None:
    assert ratio_p_value([2.0, 2.0], [2.0, 2.0]) == 1.0
    assert ratio_p_value([4.0, 4.0], [2.0, 2.0]) == 0.0


def test_the_facts_of_a_launch_are_what_may_differ_between_comparable_launches() -> None:
    (launch,) = measured_launches([examples.record(examples.request(GPU), engine="docker")])
    found = facts(launch)
    assert (found["engine"], found["torch version"], found["GPU"]) == ("docker", "1.0", "Example")
    assert not {"scenario", "kind of data", "data", "device", "rounding", "images per call"} & set(found)
