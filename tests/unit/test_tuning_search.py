"""The search over settings: finds what is fastest, loses to nothing, and pays for failures out of their own share."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scenarios.tuning.search import (
    CHANCE,
    FINAL_TURNS,
    LOOK_TURNS,
    LOOKS,
    SLICE_S,
    TrialFailed,
    least_beyond_chance,
    search,
)


@dataclass
class Machine:
    """Each setting multiplies the speed by its factor; a factor of 0 crashes at the start, below 0 hangs for so many
    seconds first. noise: standard deviation of a turn, relatively."""

    factors: dict[tuple[str, str], float]
    noise: float = 0.0
    start_s: float = 1.0
    now: float = 0.0
    wrong: set[tuple[str, str]] = field(default_factory=set)
    open: int = 0
    started: list[dict[str, str]] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(0))

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
        return Running(self, factor)

    def prove(self, settings):
        if self.wrong & set(settings.items()):
            raise TrialFailed("it computes something else")


@dataclass
class Running:
    machine: Machine
    factor: float

    def measure(self, seconds):
        assert seconds == SLICE_S
        self.machine.now += seconds
        return 1000 * self.factor * self.machine.random.gauss(1, self.machine.noise)

    def close(self):
        self.machine.open -= 1


@dataclass
class Tired(Running):
    """Fails once it has taken the turns that make it the base."""

    turns: int = 0

    def measure(self, seconds):
        self.turns += 1
        if self.turns > LOOKS * LOOK_TURNS:
            raise TrialFailed("it fell asleep")
        return super().measure(seconds)


AXES = {"layout": ("nchw", "nhwc"), "optimizer": ("loop", "foreach", "fused"), "malloc": ("default", "keep")}


def outcome(machine, budget_s=60.0, axes=AXES, likely=None):
    found = search(axes, likely or {}, machine, budget_s, machine.clock)
    assert machine.open == 0
    return found


def test_what_gains_alone_is_taken_together():
    machine = Machine({("layout", "nhwc"): 1.5, ("optimizer", "foreach"): 1.1, ("optimizer", "fused"): 1.3})
    assert outcome(machine).chosen == {"layout": "nhwc", "optimizer": "fused"}


def test_where_nothing_gains_stock_is_taken():
    found = outcome(Machine({("layout", "nhwc"): 0.5, ("optimizer", "fused"): 1.0}, noise=0.02))
    assert found.chosen == {}


def test_gains_that_do_not_add_up_are_taken_apart():
    class Clashing(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            if len(settings) == 3:
                trial.factor = 0.9
            return trial

    factors = {("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3, ("malloc", "keep"): 1.1}
    assert outcome(Clashing(factors)).chosen == {"layout": "nhwc", "optimizer": "fused"}


LIKELY = {"layout": "nhwc", "optimizer": "foreach", "malloc": "keep"}


def test_what_is_likely_to_gain_is_tried_together_and_improved_upon():
    factors = {("layout", "nhwc"): 1.3, ("optimizer", "foreach"): 1.1, ("optimizer", "fused"): 1.2}
    machine = Machine(factors | {("malloc", "keep"): 0.9})
    found = outcome(machine, likely=LIKELY)
    assert machine.started[:2] == [{}, LIKELY]
    assert found.chosen == {"layout": "nhwc", "optimizer": "fused"}
    brief = outcome(Machine(factors), 7.0, likely=LIKELY)
    assert brief.chosen == LIKELY
    assert outcome(Machine(factors), 7.0).chosen == {"layout": "nhwc"}  # where one comes after the other


def test_parts_that_hardly_gain_are_left_out():
    machine = Machine({("layout", "nhwc"): 1.3, ("optimizer", "foreach"): 1.03, ("malloc", "keep"): 1.005})
    assert outcome(machine, likely=LIKELY).chosen == {"layout": "nhwc", "optimizer": "foreach"}


def test_what_was_likely_is_tried_alone_where_all_of_it_fails_as_the_base():
    class Tiring(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Tired(self, trial.factor) if len(settings) == 3 else trial

    found = outcome(Tiring({("layout", "nhwc"): 1.3, ("optimizer", "foreach"): 1.2}), likely=LIKELY)
    assert found.chosen == {"layout": "nhwc", "optimizer": "foreach"}


def test_a_value_that_fails_on_one_base_is_not_tried_on_the_next():
    machine = Machine({("layout", "nhwc"): -8.0, ("optimizer", "foreach"): 1.1, ("malloc", "keep"): 1.4})
    assert outcome(machine).chosen == {"optimizer": "foreach", "malloc": "keep"}
    assert sum(settings.get("layout") == "nhwc" for settings in machine.started) == 1


@pytest.mark.parametrize("worthless", [0.0, 0.5])
def test_a_guess_that_crashes_or_loses_is_given_up(worthless):
    found = outcome(Machine({("layout", "nhwc"): 1.3, ("malloc", "keep"): worthless}), likely=LIKELY)
    assert found.chosen == {"layout": "nhwc"}


def test_what_gains_only_with_others_is_found():
    class Helping(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            if settings.get("layout") == "nhwc":
                trial.factor *= 1.3 if settings.get("malloc") == "keep" else 0.9
            return trial

    axes = dict(reversed(AXES.items()))
    assert outcome(Helping({("malloc", "keep"): 1.2}), axes=axes).chosen == {"malloc": "keep", "layout": "nhwc"}


def test_what_gained_by_luck_is_left_out_again():
    class Lucky(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            if settings == {"layout": "nhwc"}:
                trial.factor *= 1.3
            return trial

    found = outcome(Lucky({("layout", "nhwc"): 0.9, ("optimizer", "fused"): 1.5}))
    assert found.chosen == {"optimizer": "fused"}


def test_turns_in_which_the_base_was_lucky_keep_nothing_out():
    class Lucky(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Waning(self, trial.factor) if settings == {"layout": "nhwc"} else trial

    @dataclass
    class Waning(Running):
        turns: int = 0

        def measure(self, seconds):
            self.turns += 1
            return super().measure(seconds) * (1.5 if self.turns <= LOOK_TURNS else 1.0)

    found = outcome(Lucky({("layout", "nhwc"): 1.3, ("optimizer", "fused"): 1.1}))
    assert found.chosen == {"layout": "nhwc", "optimizer": "fused"}


def test_a_base_that_fails_is_told_and_takes_nobody_with_it():
    class Tiring(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Tired(self, trial.factor) if "layout" in settings else trial

    known = {
        ("layout", "nhwc"): 1.5,
        ("optimizer", "foreach"): 1.3,
        ("optimizer", "fused"): 1.2,
        ("malloc", "keep"): 1.1,
    }
    found = outcome(Tiring(known))
    failures = [(c.settings, c.failure) for c in found.candidates if c.failure]
    beside = ({"layout": "nhwc", "optimizer": "foreach"}, "What it was held against failed: it fell asleep")
    assert failures == [({"layout": "nhwc"}, "it fell asleep"), beside]
    assert found.chosen == {"optimizer": "foreach", "malloc": "keep"}


def test_gains_from_before_a_base_that_fails_are_kept():
    class Tiring(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Tired(self, trial.factor) if len(settings) == 2 else trial

    for budget_s in (12.0, 60.0):  # the shorter ends with that failure, and has no time to start it again
        found = outcome(Tiring({("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3}), budget_s)
        assert found.chosen == {"layout": "nhwc"}


def test_what_brings_nothing_is_rarely_taken_beside_what_does():
    axes = {"layout": ("nchw", "nhwc"), **{f"idle{number}": ("off", "on") for number in range(8)}}
    taken = []
    for seed in range(40):
        machine = Machine({("layout", "nhwc"): 1.4}, noise=0.08, random=random.Random(seed))
        chosen = outcome(machine, axes=axes).chosen
        assert chosen.pop("layout") == "nhwc"
        taken.append(len(chosen))
    assert sum(taken) <= 0.15 * 8 * len(taken), "after a first look alone it is a quarter"


def test_what_had_no_time_at_first_has_what_is_left():
    axes = {**{f"idle{number}": ("off", "on") for number in range(8)}, "layout": ("nchw", "nhwc")}
    found = outcome(Machine({("layout", "nhwc"): 1.4}), budget_s=22.0, axes=axes)
    assert found.chosen == {"layout": "nhwc"}


@pytest.mark.parametrize("turn", range(1, 40, 3))
def test_an_interrupt_leaves_nothing_running(turn):
    class Interrupted(Machine):
        turns = 0

        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Counting(self, trial.factor)

    @dataclass
    class Counting(Running):
        def measure(self, seconds):
            self.machine.turns += 1
            if self.machine.turns == turn:
                raise KeyboardInterrupt
            return super().measure(seconds)

    machine = Interrupted({("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3})
    with pytest.raises(KeyboardInterrupt):
        search(AXES, {}, machine, 60.0, machine.clock)
    assert machine.open == 0


@pytest.mark.parametrize("turns", [8, 12, 16, 31])
def test_equal_speed_is_beyond_chance_in_one_case_of_twenty_at_most(turns):
    least = least_beyond_chance(turns)
    assert stats.binom.sf(least - 1, turns, 0.5) <= CHANCE < stats.binom.sf(least - 2, turns, 0.5)


def test_a_candidate_that_crashes_or_hangs_costs_its_share_and_is_told():
    machine = Machine({("layout", "nhwc"): -8.0, ("optimizer", "foreach"): 0.0, ("malloc", "keep"): 1.4})
    found = outcome(machine)
    assert found.chosen == {"malloc": "keep"}
    assert [c.settings for c in found.candidates if c.failure] == [{"layout": "nhwc"}, {"optimizer": "foreach"}]
    assert found.seconds < 60


def test_stock_that_fails_ends_the_search_and_is_told():
    class Broken(Machine):
        def start(self, settings, limit_s):
            raise TrialFailed("no")

    found = outcome(Broken({}))
    assert (found.chosen, [c.failure for c in found.candidates]) == ({}, ["no"])


def test_stock_that_fails_later_costs_nothing_that_was_measured():
    class Tiring(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Exhausted(self, 1.0) if not settings else trial

    @dataclass
    class Exhausted(Running):
        def measure(self, seconds):
            if self.machine.now > 5:
                raise TrialFailed("it fell asleep")
            return super().measure(seconds)

    found = outcome(Tiring({("layout", "nhwc"): 1.5}))
    assert (found.chosen, found.candidates[0].failure) == ({}, "it fell asleep")
    assert found.candidates[1].ratios


def test_steps_that_outlast_their_turns_are_reckoned_with():
    class Slow(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Dragging(self, trial.factor)

    @dataclass
    class Dragging(Running):
        def measure(self, seconds):
            self.machine.now += 1.8
            return super().measure(seconds)

    found = outcome(Slow({("layout", "nhwc"): 1.5}))
    assert found.chosen == {"layout": "nhwc"}
    assert found.seconds < 65


def test_what_computes_something_else_is_not_taken():
    factors = {("layout", "nhwc"): 1.5, ("optimizer", "fused"): 1.3}
    found = outcome(Machine(factors, wrong={("layout", "nhwc")}))
    assert found.chosen == {"optimizer": "fused"}
    assert [c.settings for c in found.candidates if c.failure] == [{"layout": "nhwc"}]


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
def test_the_choice_is_not_slower_than_stock_and_the_budget_holds(
    layout, foreach, fused, keep, noise, start_s, budget_s, seed
):
    known = {
        ("layout", "nhwc"): layout,
        ("optimizer", "foreach"): foreach,
        ("optimizer", "fused"): fused,
        ("malloc", "keep"): keep,
    }
    machine = Machine(known, noise, start_s, random=random.Random(seed))
    found = outcome(machine, budget_s)
    truth = 1.0
    for item in found.chosen.items():
        truth *= known[item]
    assert truth > 1 - 2 * noise or not found.chosen
    assert found.seconds <= budget_s + 3 * start_s + 5 + 2 * (LOOKS * LOOK_TURNS + FINAL_TURNS) * 3 * SLICE_S
    assert found.candidates[0].settings == {}


@pytest.mark.parametrize("likely", [{}, LIKELY])
def test_where_all_are_equal_stock_is_nearly_always_taken(likely):
    machines = [Machine({}, noise=0.05, random=random.Random(seed)) for seed in range(200)]
    assert sum(bool(outcome(machine, likely=likely).chosen) for machine in machines) <= 10


def test_a_base_counts_for_the_turns_after_those_that_made_it_the_base():
    class Lucky(Machine):
        def start(self, settings, limit_s):
            trial = super().start(settings, limit_s)
            return Waning(self, trial.factor) if settings else trial

    @dataclass
    class Waning(Running):
        turns: int = 0

        def measure(self, seconds):
            self.turns += 1
            return super().measure(seconds) * (1.5 if self.turns <= LOOKS * LOOK_TURNS else 1.01)

    found = outcome(Lucky({}), axes={"layout": ("nchw", "nhwc")})
    assert found.chosen == {}
    assert len(found.candidates[1].ratios) == LOOKS * LOOK_TURNS + FINAL_TURNS


def test_a_proof_takes_its_time_from_the_budget():
    class Thorough(Machine):
        def prove(self, settings):
            self.now += 8.0

    axes = {f"axis{number}": ("off", "on") for number in range(8)}
    found = outcome(Thorough({(name, "on"): 1.1 for name in axes}), axes=axes)
    assert len(found.chosen) > 2
    assert found.seconds < 75


def test_nothing_is_taken_without_a_final_of_its_own():
    found = outcome(Machine({("layout", "nhwc"): 1.5}), budget_s=4.0)
    assert found.chosen == {}, "there was no time for it"
    found = outcome(Machine({("layout", "nhwc"): 1.5}))
    (chosen,) = (c for c in found.candidates if c.settings == {"layout": "nhwc"})
    assert len(chosen.ratios) >= FINAL_TURNS + 2
