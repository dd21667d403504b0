"""The search over settings: it finds the fastest, never chooses slower ones, and failures cost only their own share."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scenarios.contract.request import Budget
from scenarios.tuning.messages import Axis, SearchSpace
from scenarios.tuning.search import (
    MIN_FINAL_TURNS,
    ROUND_TURNS,
    ROUNDS,
    SIGNIFICANCE,
    TURN_S,
    TrialFailed,
    min_significant_wins,
    search,
)
from scenarios.tuning.tune import SHARES, START_SHARE, search_all

AXES = {"layout": ("nchw", "nhwc"), "optimizer": ("loop", "foreach", "fused"), "malloc": ("default", "keep")}
LIKELY = {"layout": "nhwc", "optimizer": "foreach", "malloc": "keep"}
IDLE_AXES = {f"idle{number}": ("off", "on") for number in range(8)}


@dataclass
class Machine:
    """A clock, and trials whose speed is the product of the factors of their settings.

    A trial with a factor of 0 crashes at its start; with a negative factor it first hangs for that many seconds. noise:
    relative standard deviation of a turn. effect: a further factor, from the settings and the number of the turn.
    """

    factors: dict[tuple[str, str], float]
    noise: float = 0.0
    start_s: float = 1.0
    proof_s: float = 0.0
    effect: Callable[[dict[str, str], int], float] = lambda settings, turn: 1.0
    wrong: set[tuple[str, str]] = field(default_factory=set)
    random: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 0.0
    open: int = 0
    started: list[dict[str, str]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def start(self, settings, limit_s):
        assert limit_s > 0
        self.started.append(dict(settings))
        factor = 1.0
        self.now += self.start_s
        for item in settings.items():
            one = self.factors.get(item, 1.0)
            if one <= 0:
                self.now += min(-one, limit_s)
                raise TrialFailed("it crashed")
            factor *= one
        self.open += 1
        assert self.open <= 3
        return Running(self, dict(settings), factor)

    def prove(self, settings):
        self.now += self.proof_s
        if self.wrong & set(settings.items()):
            raise TrialFailed("it computes something else")


@dataclass
class Running:
    machine: Machine
    settings: dict[str, str]
    factor: float
    turns: int = 0

    def measure(self, seconds):
        assert seconds == TURN_S
        self.turns += 1
        factor = self.factor * self.machine.effect(self.settings, self.turns)
        self.machine.now += seconds
        return 1000 * factor * self.machine.random.gauss(1, self.machine.noise)

    def close(self):
        self.machine.open -= 1


def fails_as_base(applies):
    """Return an effect: these settings fail after the turns that make them the base."""

    def effect(settings, turn):
        if applies(settings) and turn > ROUNDS * ROUND_TURNS:
            raise TrialFailed("it fell asleep")
        return 1.0

    return effect


def find(machine, budget_s=60.0, axes=AXES, likely=None):
    found = search(axes, likely or {}, machine, lambda stock_s: budget_s, machine.clock)
    assert machine.open == 0
    return found


# ---- what is found ---------------------------------------------------------------------------------------------


def test_gains_of_single_settings_are_combined():
    machine = Machine({("layout", "nhwc"): 1.5, ("optimizer", "foreach"): 1.1, ("optimizer", "fused"): 1.3})
    assert find(machine).settings == {"layout": "nhwc", "optimizer": "fused"}


def test_the_result_is_stock_if_nothing_gains():
    found = find(Machine({("layout", "nhwc"): 0.5, ("optimizer", "fused"): 1.0}, noise=0.02))
    assert found.settings == {}


def test_settings_that_clash_are_not_combined():
    machine = Machine(
        {("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3, ("malloc", "keep"): 1.1},
        effect=lambda settings, turn: 0.4 if len(settings) == 3 else 1.0,
    )
    assert find(machine).settings == {"layout": "nhwc", "optimizer": "fused"}


def test_likely_settings_are_tried_together_and_improved():
    factors = {("layout", "nhwc"): 1.3, ("optimizer", "foreach"): 1.1, ("optimizer", "fused"): 1.2}
    machine = Machine(factors | {("malloc", "keep"): 0.9})
    found = find(machine, likely=LIKELY)
    assert machine.started[:2] == [{}, LIKELY]
    assert found.settings == {"layout": "nhwc", "optimizer": "fused"}
    assert find(Machine(factors), 7.0, likely=LIKELY).settings == LIKELY
    assert find(Machine(factors), 7.0).settings == {"layout": "nhwc"}, "there was no time to add the others one by one"


def test_parts_that_hardly_gain_are_removed():
    machine = Machine({("layout", "nhwc"): 1.3, ("optimizer", "foreach"): 1.03, ("malloc", "keep"): 1.005})
    assert find(machine, likely=LIKELY).settings == {"layout": "nhwc", "optimizer": "foreach"}


def test_settings_that_gain_only_with_others_are_found():
    def effect(settings, turn):
        return 1.0 if settings.get("layout") != "nhwc" else 1.3 if settings.get("malloc") == "keep" else 0.9

    axes = dict(reversed(AXES.items()))
    found = find(Machine({("malloc", "keep"): 1.2}, effect=effect), axes=axes)
    assert found.settings == {"malloc": "keep", "layout": "nhwc"}


def test_a_part_that_gained_by_luck_is_removed():
    machine = Machine(
        {("layout", "nhwc"): 0.9, ("optimizer", "fused"): 1.5},
        effect=lambda settings, turn: 1.3 if settings == {"layout": "nhwc"} else 1.0,
    )
    assert find(machine).settings == {"optimizer": "fused"}


def test_lucky_turns_of_the_base_keep_no_candidate_out():
    machine = Machine(
        {("layout", "nhwc"): 1.3, ("optimizer", "fused"): 1.1},
        effect=lambda settings, turn: 1.5 if settings == {"layout": "nhwc"} and turn <= ROUND_TURNS else 1.0,
    )
    assert find(machine).settings == {"layout": "nhwc", "optimizer": "fused"}


def test_useless_settings_are_rarely_added_to_useful_ones():
    added = []
    for seed in range(40):
        machine = Machine({("layout", "nhwc"): 1.4}, noise=0.08, random=random.Random(seed))
        settings = find(machine, axes={"layout": ("nchw", "nhwc"), **IDLE_AXES}).settings
        assert settings.pop("layout") == "nhwc"
        added.append(len(settings))
    assert sum(added) <= 0.15 * len(IDLE_AXES) * len(added), "after a single round it would be a quarter"


def test_values_without_time_at_first_are_tried_in_the_remaining_time():
    found = find(Machine({("layout", "nhwc"): 1.4}), budget_s=22.0, axes={**IDLE_AXES, "layout": ("nchw", "nhwc")})
    assert found.settings == {"layout": "nhwc"}


# ---- failures --------------------------------------------------------------------------------------------------


def test_a_candidate_that_crashes_or_hangs_costs_only_its_share():
    machine = Machine({("layout", "nhwc"): -8.0, ("optimizer", "foreach"): 0.0, ("malloc", "keep"): 1.4})
    found = find(machine)
    assert found.settings == {"malloc": "keep"}
    assert [c.settings for c in found.candidates if c.failure] == [{"layout": "nhwc"}, {"optimizer": "foreach"}]
    assert found.seconds < 60


def test_a_value_that_failed_on_one_base_is_not_tried_on_the_next():
    machine = Machine({("layout", "nhwc"): -8.0, ("optimizer", "foreach"): 1.1, ("malloc", "keep"): 1.4})
    assert find(machine).settings == {"optimizer": "foreach", "malloc": "keep"}
    assert sum(settings.get("layout") == "nhwc" for settings in machine.started) == 1


@pytest.mark.parametrize("worthless", [0.0, 0.5])
def test_likely_settings_that_crash_or_lose_are_given_up(worthless):
    found = find(Machine({("layout", "nhwc"): 1.3, ("malloc", "keep"): worthless}), likely=LIKELY)
    assert found.settings == {"layout": "nhwc"}


def test_likely_settings_are_tried_alone_if_all_together_fail_as_the_base():
    effect = fails_as_base(lambda settings: len(settings) == 3)
    found = find(Machine({("layout", "nhwc"): 1.3, ("optimizer", "foreach"): 1.2}, effect=effect), likely=LIKELY)
    assert found.settings == {"layout": "nhwc", "optimizer": "foreach"}


def test_a_failure_of_the_base_is_reported_and_harms_no_candidate():
    factors = {
        ("layout", "nhwc"): 1.5,
        ("optimizer", "foreach"): 1.3,
        ("optimizer", "fused"): 1.2,
        ("malloc", "keep"): 1.1,
    }
    found = find(Machine(factors, effect=fails_as_base(lambda settings: "layout" in settings)))
    assert [(c.settings, c.failure) for c in found.candidates if c.failure] == [
        ({"layout": "nhwc"}, "it fell asleep"),
        (
            {"layout": "nhwc", "optimizer": "foreach"},
            "The settings that it was compared with failed: it fell asleep",
        ),
    ]
    assert found.settings == {"optimizer": "foreach", "malloc": "keep"}


@pytest.mark.parametrize("budget_s", [12.0, 60.0])  # the shorter has no time to start the earlier base again
def test_gains_from_before_a_base_that_fails_are_kept(budget_s):
    effect = fails_as_base(lambda settings: len(settings) == 2)
    found = find(Machine({("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3}, effect=effect), budget_s)
    assert found.settings == {"layout": "nhwc"}


def test_if_stock_does_not_start_the_search_ends():
    class Broken(Machine):
        def start(self, settings, limit_s):
            raise TrialFailed("no")

    found = find(Broken({}))
    assert (found.settings, [c.failure for c in found.candidates]) == ({}, ["no"])


def test_if_stock_fails_later_the_measurements_are_kept():
    machine = Machine({("layout", "nhwc"): 1.5})

    def effect(settings, turn):
        if not settings and machine.now > 5:
            raise TrialFailed("it fell asleep")
        return 1.0

    machine.effect = effect
    found = find(machine)
    assert (found.settings, found.candidates[0].failure) == ({}, "it fell asleep")
    assert found.candidates[1].ratios


def test_settings_that_compute_something_else_are_not_chosen():
    factors = {("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3}
    found = find(Machine(factors, wrong={("layout", "nhwc")}))
    assert found.settings == {"optimizer": "fused"}
    assert [c.settings for c in found.candidates if c.failure] == [{"layout": "nhwc"}]


@pytest.mark.parametrize("last", range(1, 40, 3))
def test_an_interrupt_leaves_nothing_running(last):
    turns = itertools.count(1)

    def effect(settings, turn):
        if next(turns) == last:
            raise KeyboardInterrupt
        return 1.0

    machine = Machine({("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3}, effect=effect)
    with pytest.raises(KeyboardInterrupt):
        search(AXES, {}, machine, lambda stock_s: 60.0, machine.clock)
    assert machine.open == 0


# ---- time and significance -------------------------------------------------------------------------------------


def test_steps_that_last_longer_than_a_turn_are_taken_into_account():
    machine = Machine({("layout", "nhwc"): 1.5})

    def effect(settings, turn):
        machine.now += 1.8
        return 1.0

    machine.effect = effect
    found = find(machine)
    assert found.settings == {"layout": "nhwc"}
    assert found.seconds < 65


def test_proofs_are_part_of_the_budget():
    found = find(Machine({(name, "on"): 1.1 for name in IDLE_AXES}, proof_s=8.0), axes=IDLE_AXES)
    assert len(found.settings) > 2
    assert found.seconds < 75


factors = st.floats(0.5, 2) | st.sampled_from([0.0, -5.0])


@given(
    layout=factors,
    foreach=factors,
    fused=factors,
    keep=factors,
    noise=st.floats(0, 0.05),
    start_s=st.floats(0.1, 5),
    budget_s=st.floats(5, 90),
    seed=st.integers(0, 9),
)
def test_the_result_is_not_slower_than_stock_and_the_budget_is_kept(
    layout, foreach, fused, keep, noise, start_s, budget_s, seed
):
    known = {
        ("layout", "nhwc"): layout,
        ("optimizer", "foreach"): foreach,
        ("optimizer", "fused"): fused,
        ("malloc", "keep"): keep,
    }
    found = find(Machine(known, noise, start_s, random=random.Random(seed)), budget_s)
    truth = 1.0
    for item in found.settings.items():
        truth *= known[item]
    assert truth > 1 - 2 * noise or not found.settings
    assert found.seconds <= budget_s + 3 * start_s + 5 + 2 * (ROUNDS * ROUND_TURNS + MIN_FINAL_TURNS) * 3 * TURN_S
    assert found.candidates[0].settings == {}


@pytest.mark.parametrize("likely", [{}, LIKELY])
def test_if_all_are_equally_fast_the_result_is_nearly_always_stock(likely):
    machines = [Machine({}, noise=0.05, random=random.Random(seed)) for seed in range(200)]
    assert sum(bool(find(machine, likely=likely).settings) for machine in machines) <= 10


@pytest.mark.parametrize("turns", [8, 12, 16, 31])
def test_equal_speed_is_significant_in_at_most_one_of_twenty_cases(turns):
    wins = min_significant_wins(turns)
    assert stats.binom.sf(wins - 1, turns, 0.5) <= SIGNIFICANCE < stats.binom.sf(wins - 2, turns, 0.5)


def test_only_the_turns_as_the_base_count_for_a_base():
    machine = Machine(
        {}, effect=lambda settings, turn: 1.0 if not settings else 1.5 if turn <= ROUNDS * ROUND_TURNS else 1.01
    )
    found = find(machine, axes={"layout": ("nchw", "nhwc")})
    assert found.settings == {}
    assert len(found.candidates[1].ratios) == ROUNDS * ROUND_TURNS + MIN_FINAL_TURNS


def test_nothing_is_chosen_without_final_turns():
    found = find(Machine({("layout", "nhwc"): 1.5}), budget_s=4.0)
    assert found.settings == {}, "there was no time for final turns"
    found = find(Machine({("layout", "nhwc"): 1.5}))
    (chosen,) = (c for c in found.candidates if c.settings == {"layout": "nhwc"})
    assert len(chosen.ratios) >= MIN_FINAL_TURNS + 2


# ---- slow starts -----------------------------------------------------------------------------------------------

MANY_AXES = {f"idle{number}": ("off", "on") for number in range(20)}
BY_DEFAULT = Budget(seconds=60, max_seconds=600)


def search_all_on(machine, budget, axes=MANY_AXES):
    """Search for all objectives. Return the result, the number of candidates in all, and the limits for a start."""
    limits_s = []

    def make_trials(objective, base, max_start_s):
        class Trials:
            prove = machine.prove

            def start(self, settings, limit_s):
                if settings:
                    limits_s.append(max_start_s())
                return machine.start(settings, limit_s)

        return Trials()

    listed = [Axis(name, list(values)) for name, values in axes.items()]
    space = SearchSpace(dict.fromkeys(SHARES, listed), {name: {} for name in SHARES})
    found = search_all(space, budget, make_trials, machine.clock)
    return found, sum(len(search.tried) - 1 for search in found.searches if search.tried), limits_s


@pytest.mark.parametrize(
    ("start_s", "budget", "allowed_s"),
    [
        (1.0, BY_DEFAULT, 60),
        (4.0, BY_DEFAULT, 60),
        (15.0, BY_DEFAULT, 225),
        (39.0, BY_DEFAULT, 585),
        (70.0, BY_DEFAULT, 600),
        (15.0, Budget(seconds=60), 60),
    ],
)
def test_the_time_follows_the_start_of_stock(start_s, budget, allowed_s):
    machine = Machine({}, start_s=start_s)
    found, tried, limits_s = search_all_on(machine, budget)
    assert found.allowed_s == allowed_s
    assert set(limits_s) == {max(START_SHARE * allowed_s, 2 * start_s)}
    assert machine.now <= allowed_s + start_s
    if budget is BY_DEFAULT and allowed_s < 600:
        assert tried >= 9, "stock starts once for each objective"


def test_slow_starts_leave_time_for_as_many_candidates():
    machine = Machine({("idle9", "on"): 1.4}, start_s=15.0)
    found = search(MANY_AXES, {}, machine, BY_DEFAULT.search_seconds, machine.clock)
    assert len(found.candidates) - 1 >= 12
    assert found.settings == {"idle9": "on"}


def test_values_are_added_until_half_of_the_extended_time():
    machine = Machine({("idle0", "on"): 1.2, ("idle1", "on"): 1.2}, start_s=15.0)
    candidates = search(MANY_AXES, {}, machine, BY_DEFAULT.search_seconds, machine.clock).candidates
    without_its_first_part = [candidate.settings for candidate in candidates].index({"idle1": "on"})
    assert 5 <= without_its_first_part <= 7, "half of 225 s"


def test_a_later_objective_with_slower_starts_extends_the_time():
    machine, starts_s = Machine({}), iter((1.0, 15.0, 1.0))

    def make_trials(objective, base, max_start_s):
        machine.start_s = next(starts_s)
        return machine

    axes = [Axis("layout", ["nchw", "nhwc"])]
    space = SearchSpace(dict.fromkeys(SHARES, axes), {name: {} for name in SHARES})
    assert search_all(space, BY_DEFAULT, make_trials, machine.clock).allowed_s == 225
