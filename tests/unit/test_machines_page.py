"""Test the page that compares machines: its sections, its sentences in every state, and that it escapes all texts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kit.analysis.answer import Answer, State
from kit.analysis.contenders import Contender
from kit.analysis.costs import Estimate
from kit.analysis.pairing import Measure
from kit.model.record import Record
from kit.model.run import Run
from kit.model.tariff import Tariff
from kit.planning import catalog
from kit.report import amounts
from kit.report.elements import Table
from kit.report.machines.answer import answers
from kit.report.machines.differs import differing, heading
from kit.report.machines.energy import energy
from kit.report.machines.excluded import excluded
from kit.report.machines.network_choices import Best, NetworkChoices, network_choices
from kit.report.machines.page import render_machines
from kit.report.machines.ratios import Ratios, ratios
from kit.report.machines.source import MachinesInput
from kit.report.machines.speed_cost import speed_cost
from kit.report.render import DOCTYPE
from scenarios.contract.reasons import Status
from tests import examples, report_runs
from tests.unit.test_contenders import CELL, NOISY, OTHER, STEADY, asked, contender, drawing, hourly, observed, scaled

TRAINING, INFERENCE = Measure.TRAINING, Measure.INFERENCE
TITLES = {name: framework.title for name, framework in catalog.frameworks().items()}
SECTIONS = ["differs", "ratios", "choices", "energy", "speed-cost", "excluded"]
SPREAD = {"onnxruntime": 0.9, "tensorflow": 1.0, "torch": 1.2}  # how machines differ between frameworks
HOSTILE = '<script>alert(1)</script>" onclick="alert(1)"\'&|\x1b[2J\ud800'
NB = "\N{NO-BREAK SPACE}"
BEST = "est</span><b>"  # before the name of the fastest or the cheapest machine

CELLS = [examples.cell(name) for name in ("mnist-cnn", "cifar-cnn", "fashion-mlp")]
ONCE = (1000.0,)
# Factors of the speed of three cells. By hand, with t(0.975, 2) = 4.303 on the logarithms:
CLEAR = (1.9, 2.0, 2.1)  # mean 1.998, interval 1.765 to 2.263
TIED = (0.5, 1.0, 2.2)  # mean 1.032, interval 0.164 to 6.51


class Page(HTMLParser):
    """The sections of a page, its links, the names of its tags and attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(found)
        if tag == "section" and found.get("id"):
            self.sections.append(found["id"] or "")
        if tag == "a":
            self.links.append(found["href"] or "")

    def handle_data(self, data: str) -> None:
        if self.lasttag not in {"script", "style"}:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def rebuilt(run: Run, label: str, factor: float) -> Run:
    """Return the run of another made-up machine, which is faster by this factor and differs between frameworks."""
    machine = run.machine.model_copy(update={"cpu_model": f"{label} of a test", "id": label})

    def change(record: Record) -> Record:
        assert record.result
        training, inference = record.result.training, record.result.inference
        assert training
        assert inference
        by = factor * SPREAD[record.cell.framework]
        result = replace(
            record.result,
            training=replace(training, images_per_s=by * training.images_per_s, epoch_s=training.epoch_s / by),
            inference=replace(inference, images_per_s=by * inference.images_per_s),
        )
        return record.model_copy(update={"result": result, "machine": machine})

    plan = run.plan.model_copy(update={"run": label.lower().replace(" ", "-")})
    return Run(plan, machine, [change(record) for record in run.records])


def made_up(count: int) -> MachinesInput:
    """Return two or three made-up machines. The second one has no GPU. Of the third one, only the GPU has a price."""
    runs = {
        "Made-up A": (report_runs.cuda(), hourly(0.125, 0.625)),
        "Made-up B": (rebuilt(report_runs.three_launches(), "Made-up B", 0.5), hourly(0.225)),
        "Made-up C": (rebuilt(report_runs.cuda(), "Made-up C", 2.0), Tariff({"cuda": 0.375}, "EUR")),
    }
    contenders = [Contender(label, run, tariff, catalog.scenarios()) for label, (run, tariff) in runs.items()]
    return MachinesInput(contenders[:count], TRAINING, TITLES)


def source(*contenders: Contender, measure: Measure = TRAINING) -> MachinesInput:
    return MachinesInput(contenders, measure, TITLES)


def compared(
    others: Sequence[Sequence[float]],
    prices: Sequence[Tariff | None] = (),
    launches: Sequence[float] = STEADY,
    measure: Measure = TRAINING,
) -> MachinesInput:
    """Return A, and B, C and so on, whose speeds of the three CELLS differ from those of A by these factors.

    prices: of all machines, by default none.
    """
    factors = [(1.0, 1.0, 1.0), *others]
    found = [
        contender(label, {cell: scaled(launches, by) for cell, by in zip(CELLS, own, strict=True)}, tariff)
        for label, own, tariff in zip("ABCD", factors, prices or [None] * len(factors), strict=False)
    ]
    return source(*found, measure=measure)


def times(factor: float) -> tuple[float, ...]:
    return scaled(CLEAR, factor)


def one_cell(
    of_a: Sequence[float], of_b: Sequence[float], *prices: Tariff, measure: Measure = TRAINING
) -> MachinesInput:
    """Return A and B with these speeds of the same cell. prices: of both, or of none."""
    of_prices = prices or (None, None)
    made = zip("AB", (of_a, of_b), of_prices, strict=True)
    return source(*(contender(label, {CELL: own}, tariff) for label, own, tariff in made), measure=measure)


def choices_of(found: MachinesInput) -> NetworkChoices:
    made = network_choices(found)
    assert made is not None
    return made


def ratios_of(found: MachinesInput) -> Ratios:
    made = ratios(found)
    assert made is not None
    return made


# The page as a whole.


@pytest.mark.parametrize("count", [2, 3])
def test_the_page_has_its_answers_and_then_its_sections_in_order(count: int) -> None:
    found = made_up(count)
    html = render_machines(found)
    page = Page(html)
    assert page.sections == SECTIONS
    assert page.links == ["#results", *(f"#{name}" for name in SECTIONS)]
    assert html.index('class="answers"') < html.index('id="differs"')
    assert all(question in page.text for question in ("Which machine is faster?", "How sure is this?"))
    for label in found.labels:
        assert f"{label} " in page.text
    assert page.text.count("Made-up CPU of a test, 2 cores, Made-up GPU") == 2, "at the top, and among the differences"
    assert ("Made-up C " in page.text) == (count == 3)
    assert page.tags.isdisjoint({"img", "iframe", "link"})
    assert not re.search(r"https?:", html)
    assert html.encode().startswith(DOCTYPE)


def test_the_title_names_at_most_four_machines() -> None:
    five = [contender(label, {CELL: ONCE}) for label in "ABCDE"]
    assert "<h1>A, B, C and D</h1>" in render_machines(source(*five[:4]))
    assert "<h1>A, B, C, D and 1 more</h1>" in render_machines(source(*five))


def test_the_page_of_inference_has_no_times_of_training_and_no_energy() -> None:
    found = one_cell(STEADY, scaled(STEADY, 2), hourly(0.125), hourly(0.375), measure=INFERENCE)
    page = Page(render_machines(found))
    assert page.sections == ["differs", "ratios", "choices", "speed-cost"]
    assert "kit · inference" in page.text
    choices = choices_of(found)
    assert choices.headers == ("images/s", "Cost of a million images, EUR")
    assert choices.rows[0].fastest is not None
    assert choices.rows[0].fastest.small[0] == "B: 10,000 images/s (PyTorch, CPU)"


def test_runs_without_a_common_cell_give_a_page_that_says_why() -> None:
    found = source(contender("A", {CELL: STEADY}, hourly(1.0)), contender("B", {OTHER: STEADY}, hourly(1.0)))
    page = Page(render_machines(found))
    assert page.sections == ["differs", "energy", "excluded"]
    assert page.links == ["#results", "#differs", "#energy", "#excluded"]
    assert "Not compared: no cell was measured in the same way on the base and another machine" in page.text
    assert "Nothing was compared" in page.text
    assert excluded(found).rows == (
        ("B", "mnist-cnn/torch/cpu", "not in this run"),
        ("A", "cifar-cnn/torch/cpu", "not in this run"),
    )
    assert [answer.state for answer in answers(found)] == [State.NOT_MEASURED] * 3


def test_a_page_shows_600_rows_of_a_table_and_says_how_many_are_left_out() -> None:
    cells = [replace(examples.cell("fashion-mlp"), batch=batch) for batch in range(2, 607)]  # 605 cells
    found = source(*(contender(label, dict.fromkeys(cells, ONCE)) for label in "AB"))
    html = render_machines(found)
    assert html.count('<th scope="row" class="net"') == 600
    assert "Not shown: 5 more rows. <code>kit compare --json</code> has all." in html
    choices = choices_of(found)
    assert (len(choices.offers), choices.omitted) == (600, "610 more rows")
    assert "Not shown: 610 more rows." in html


def test_no_text_becomes_markup() -> None:
    def change(record: Record) -> Record:
        record = observed(versions={"torch": HOSTILE, HOSTILE: "1"})(record).model_copy(update={"engine": HOSTILE})
        return observed(data_digest=HOSTILE)(record) if record.cell == OTHER else record

    tariff = Tariff({"cpu": 1.0, "cuda": 2.0}, HOSTILE, HOSTILE, HOSTILE)
    hardware = {"cpu_model": HOSTILE[:-1], "kernel": HOSTILE[:-1], "gpus": [examples.gpu(name=HOSTILE[:-1])]}
    a = contender(HOSTILE, {CELL: STEADY, OTHER: STEADY}, tariff, change, **hardware)
    b = contender(f"{HOSTILE}2", {CELL: scaled(STEADY, 2), OTHER: STEADY}, tariff)
    failed = examples.failed(message=HOSTILE).model_copy(
        update={"cell": replace(CELL, scenario=HOSTILE, framework=HOSTILE), "request": None}
    )
    b = replace(b, run=replace(b.run, records=[*b.run.records, failed]))
    html = render_machines(source(a, b))
    page = Page(html)
    assert set(page.sections) == set(SECTIONS)
    assert html.lower().count("<script") == html.lower().count("</script") == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", html)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in page.attributes)
    assert not any(name.startswith("on") for name in page.attributes)
    for row in ("torch version", "engine", "system", "machine"):
        assert row in page.text
    shown = HOSTILE.replace("\x1b", "?").replace("\ud800", "?")
    for words in ("{} 1 {} (CPU)", "{}, {}", "{} version", "failed: {}", "data: {}", "{}/{}/cpu"):
        assert words.replace("{}", shown) in page.text, words


# The answers.


@pytest.mark.parametrize(
    ("others", "launches", "state", "headline", "details"),
    [
        ([CLEAR], STEADY, State.MEASURED, "B is 2.0 times as fast as A (1.8 to 2.3, 3 cells)", ()),
        ([times(0.2)], STEADY, State.MEASURED, "A is 2.5 times as fast as B (2.2 to 2.8, 3 cells)", ()),
        ([TIED], STEADY, State.TIE, "No clear difference: B is 1.03 times as fast as A (0.16 to 6.5, 3 cells)", ()),
        ([CLEAR], ONCE, State.SINGLE, "With too few launches: B is 2.0 times as fast as A (1.8 to 2.3, 3 cells)", ()),
        (
            [CLEAR, times(1.5)],
            STEADY,
            State.MEASURED,
            "C is 3.0 times as fast as A (2.6 to 3.4, 3 cells)",
            ("B is 2.0 times as fast as A (1.8 to 2.3, 3 cells).",),
        ),
        (
            [times(0.2), TIED],
            STEADY,
            State.TIE,
            "No clear difference: C is 1.03 times as fast as A (0.16 to 6.5, 3 cells)",
            ("A is 2.5 times as fast as B (2.2 to 2.8, 3 cells).",),
        ),
        (
            [CLEAR, times(1.5)],
            ONCE,
            State.SINGLE,
            "With too few launches: C is 3.0 times as fast as A (2.6 to 3.4, 3 cells)",
            ("With too few launches: B is 2.0 times as fast as A (1.8 to 2.3, 3 cells).",),
        ),
        (
            [times(0.2), times(0.3)],
            STEADY,
            State.MEASURED,
            "A is 1.7 times as fast as C (1.5 to 1.9, 3 cells)",
            ("A is 2.5 times as fast as B (2.2 to 2.8, 3 cells).",),
        ),
    ],
)
def test_which_machine_is_faster(
    others: Sequence[Sequence[float]],
    launches: Sequence[float],
    state: State,
    headline: str,
    details: tuple[str, ...],
) -> None:
    answer = answers(compared(others, launches=launches))[0]
    assert answer == Answer("Which machine is faster?", state, headline, details)


def test_a_mean_of_fewer_than_three_cells_has_no_interval() -> None:
    assert answers(one_cell(STEADY, scaled(STEADY, 2)))[0].headline == "B is 2.0 times as fast as A (1 cell)"


CHEAP, DEAR = hourly(0.125), hourly(0.375)
MONEY = "same money, "
NO_CPU = "(GPU; no price for the CPU)"
OF_DEVICE = "A price for a device is what the machine costs while it works on that device."


@pytest.mark.parametrize(
    ("others", "prices", "launches", "measure", "state", "headline", "details"),
    [
        (
            [CLEAR],
            [CHEAP, DEAR],
            STEADY,
            TRAINING,
            State.MEASURED,
            "For the same money, A trains 1.5 times as many images as B (1.3 to 1.7, 3 networks)",
            (
                "A is the cheapest for 3 of 3 networks",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.375{NB}EUR.",
            ),
        ),
        (
            [CLEAR],
            [hourly(0.125, currency=""), hourly(0.125, 0.375, currency="")],
            STEADY,
            TRAINING,
            State.MEASURED,
            "For the same money, B trains 2.0 times as many images as A (1.8 to 2.3, 3 networks)",
            (
                "B is the cheapest for 3 of 3 networks",
                f"Prices of an hour: A 0.125; B 0.125 (CPU) or 0.375 (GPU). {OF_DEVICE}",
            ),
        ),
        (
            [CLEAR],
            [CHEAP, CHEAP],
            STEADY,
            INFERENCE,
            State.MEASURED,
            "For the same money, B predicts 2.0 times as many images as A (1.8 to 2.3, 3 networks)",
            (
                "B is the cheapest for 3 of 3 networks",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.125{NB}EUR.",
            ),
        ),
        (
            [TIED],
            [CHEAP, CHEAP],
            STEADY,
            TRAINING,
            State.TIE,
            f"No clear difference: for the {MONEY}B trains 1.03 times as many images as A (0.16 to 6.5, 3 networks)",
            (
                "A is the cheapest for 1 and B is the cheapest for 1 of 3 networks (1 without a clear winner)",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.125{NB}EUR.",
            ),
        ),
        (
            [CLEAR],
            [CHEAP, replace(DEAR, source="Price list of a test")],
            ONCE,
            TRAINING,
            State.SINGLE,
            f"With too few launches: for the {MONEY}A trains 1.5 times as many images as B (1.3 to 1.7, 3 networks)",
            (
                "No machine is clearly the cheapest for any of 3 networks",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.375{NB}EUR (Price list of a test).",
            ),
        ),
        (
            [CLEAR, times(1.5)],
            [CHEAP, DEAR, hourly(0.225)],
            STEADY,
            TRAINING,
            State.MEASURED,
            "For the same money, C trains 1.7 times as many images as A (1.5 to 1.9, 3 networks)",
            (
                "For the same money, A trains 1.5 times as many images as B (1.3 to 1.7, 3 networks).",
                "C is the cheapest for 3 of 3 networks",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.375{NB}EUR; C 0.225{NB}EUR.",
            ),
        ),
        (
            [CLEAR, times(1.5)],
            [CHEAP, hourly(0.625), hourly(0.875)],
            STEADY,
            TRAINING,
            State.MEASURED,
            "For the same money, A trains 2.3 times as many images as C (2.1 to 2.6, 3 networks)",
            (
                "For the same money, A trains 2.5 times as many images as B (2.2 to 2.8, 3 networks).",
                "A is the cheapest for 3 of 3 networks",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.625{NB}EUR; C 0.875{NB}EUR.",
            ),
        ),
        (
            [CLEAR, times(1.5)],
            [CHEAP, DEAR, None],
            STEADY,
            TRAINING,
            State.MEASURED,
            "For the same money, A trains 1.5 times as many images as B (1.3 to 1.7, 3 networks)",
            (
                "A is the cheapest for 3 of 3 networks",
                f"Prices of an hour: A 0.125{NB}EUR; B 0.375{NB}EUR. No price: C.",
            ),
        ),
    ],
)
def test_which_machine_does_more_for_the_money(
    others: Sequence[Sequence[float]],
    prices: Sequence[Tariff | None],
    launches: Sequence[float],
    measure: Measure,
    state: State,
    headline: str,
    details: tuple[str, ...],
) -> None:
    *others_than_best, ways, of_prices = details
    details = (*others_than_best, f"Each network in its cheapest way: {ways}.", of_prices)
    answer = answers(compared(others, prices, launches, measure))[1]
    assert answer == Answer("Which machine does more for the money?", state, headline, details)


@pytest.mark.parametrize("prices", [[None, None], [CHEAP, None], [None, DEAR]])
def test_without_two_prices_no_costs_are_compared(prices: Sequence[Tariff | None]) -> None:
    found = compared([CLEAR], prices)
    assert answers(found)[1] == Answer(
        "Which machine does more for the money?",
        State.NOT_MEASURED,
        "Not compared: fewer than two machines have a price",
        ("Give each machine a price with --price NAME=0.19/h, or with --prices FILE.",),
    )
    assert speed_cost(found) is None
    choices = choices_of(found)
    assert not choices.priced
    assert len(choices.headers) == (3 if prices == [None, None] else 6)
    assert not any(row.evens for row in ratios_of(found).rows)


def test_for_the_money_each_machine_works_in_its_cheapest_way() -> None:
    """The GPU of A does 4 times as much for 8 times the price, so A is cheapest on its CPU: 1,000 / 0.125 = 8,000. The
    GPU of B does 10 times as much for 5 times the price of that CPU, twice as much for the same money."""
    gpu = examples.cell(device="cuda")
    a = contender("A", {CELL: STEADY, gpu: scaled(STEADY, 4)}, hourly(0.125, 1.0))
    b = contender("B", {CELL: scaled(STEADY, 2), gpu: scaled(STEADY, 10)}, hourly(1.0, 0.625))
    assert answers(source(a, b))[1].headline == "For the same money, B trains 2.0 times as many images as A (1 network)"


def test_without_a_price_of_the_base_no_costs_are_compared() -> None:
    answer = answers(compared([CLEAR, CLEAR], [None, CHEAP, DEAR]))[1]
    assert answer.headline == "Not compared: A, the base, has no price"


def test_prices_of_devices_that_were_not_compared_are_shown_without_a_result() -> None:
    found = compared([CLEAR], [Tariff({"cuda": 0.125}, "EUR"), Tariff({"cuda": 0.375}, "EUR")])
    assert answers(found)[1] == Answer(
        "Which machine does more for the money?",
        State.NOT_MEASURED,
        "Not compared: no network has a price on the base and another machine",
        (f"Prices of an hour: A 0.125{NB}EUR {NO_CPU}; B 0.375{NB}EUR {NO_CPU}.",),
    )


@pytest.mark.parametrize(
    ("launches", "state", "headline"),
    [
        (1, State.SINGLE, "A first look: some cells have too few launches for an interval"),
        (
            2,
            State.MEASURED,
            "A first look: at least 2 launches of each cell; fewer than 5 are too few to decide small differences",
        ),
        (
            4,
            State.MEASURED,
            "A first look: at least 4 launches of each cell; fewer than 5 are too few to decide small differences",
        ),
        (5, State.MEASURED, "A comparison: at least 5 launches of each cell on each machine"),
    ],
)
def test_how_sure_an_answer_is_depends_on_the_fewest_launches(launches: int, state: State, headline: str) -> None:
    for of_a, of_b in ((launches, 5), (5, launches)):
        answer = answers(one_cell(STEADY[:of_a], scaled(STEADY, 2)[:of_b]))[2]
        assert (answer.question, answer.state, answer.headline) == ("How sure is this?", state, headline)


def test_the_results_of_all_cells_are_counted_and_doubts_are_named() -> None:
    found = compared([TIED])
    assert answers(found)[2].details == (
        "Cells against A: B 1 slower, 1 tie, 1 faster.",
        "All cells used synthetic data: their speeds are estimates.",
        "The intervals do not cover a machine that was slower during its whole run.",
    )
    a, b = (contender(label, {CELL: STEADY}, change=asked(data="real")) for label in "AB")
    together = replace(b, run=replace(b.run, plan=b.run.plan.model_copy(update={"against": "A"})))
    assert answers(source(a, together))[2].details == ("Cells against A: B 1 tie.",)
    wild = contender("W", {CELL: (100.0, 4000.0, 1000.0, 300.0, 2500.0)}, change=asked(data="real"))
    wide = source(a, wild)
    assert answers(wide)[2].details[0] == "Cells against A: W 1 undecided."
    assert ratios_of(wide).heading == "W is undecided in 1 of 1 cell"
    assert ratios_of(wide).rows[0].values[0].verdict == "undecided"
    third = contender("C", {CELL: scaled(STEADY, 2)}, change=asked(data="real"))
    assert answers(source(a, b, third))[2].details[0] == "Cells against A: B 1 tie; C 1 faster."


@pytest.mark.parametrize("others", [[CLEAR], [times(0.2)], [CLEAR, times(1.5)], [times(0.2), times(0.3)]])
@pytest.mark.parametrize("of_others", [ONCE, STEADY])
def test_one_launch_never_makes_a_winner(others: Sequence[Sequence[float]], of_others: Sequence[float]) -> None:
    prices = [CHEAP, hourly(0.2), hourly(0.3)]
    base = contender("A", dict.fromkeys(CELLS, ONCE), CHEAP)
    found = source(base, *compared(others, prices, of_others).contenders[1:])
    for answer in answers(found)[:2]:
        assert answer.state is State.SINGLE
        assert answer.headline.startswith("With too few launches: ")
    assert {value.verdict for row in ratios_of(found).rows for value in row.values} == {"no interval"}
    assert not any(value.named for row in ratios_of(found).rows for value in row.values)
    choices = choices_of(found)
    assert choices.heading == "No machine is clearly the cheapest for any of 3 networks"
    assert {best.label for row in choices.rows for best in (row.fastest, row.cheapest) if best} == {""}
    html = render_machines(found)
    assert 'class="is"' not in html
    assert BEST not in html


# What differs, and the ratios.


def test_only_facts_that_differ_are_shown_with_short_digests() -> None:
    digests = {label: f"sha256:{label.lower() * 64}" for label in "AB"}
    found = source(
        *(
            contender(label, {CELL: STEADY}, change=observed(versions={"torch": digests[label]}), cpu_model=cpu)
            for label, cpu in (("A", "Example CPU"), ("B", "Another CPU"))
        )
    )
    table = differing(found)
    assert table.headers == ("", "A", "B")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["machine"] == ("Example CPU, 1 core, no GPU", "Another CPU, 1 core, no GPU"), "as at the top"
    assert rows["torch version"] == ("sha256:aaaaaaaaaaaa", "sha256:bbbbbbbbbbbb")
    assert not {"engine", "memory", "day", "profile"} & set(rows)
    assert heading(table) == "Machine and torch version"
    assert heading(Table((), tuple((name,) for name in "abcdef"))) == "A, b, c, d and 2 more"
    assert heading(Table((), ())) == "Nothing that kit records"


def test_a_ratio_has_its_verdict_and_its_break_even_and_the_highest_is_first() -> None:
    found = ratios_of(compared([(2.0, 0.5, 1.0)], [CHEAP, DEAR]))
    assert [(row.name, row.details, row.base) for row in found.rows] == [
        ("Small CNN on MNIST", "mnist-cnn/torch/cpu", "1,000"),
        ("Dense network on Fashion-MNIST", "fashion-mlp/torch/cpu", "1,000"),
        ("CNN on CIFAR-10", "cifar-cnn/torch/cpu", "1,000"),
    ]
    values = [value for row in found.rows for value in row.values]
    assert [(value.ratio, value.verdict, value.named, value.speed) for value in values] == [
        ("2.0×", "faster", True, "2,000 images/s"),
        ("1.000×", "tie", False, "1,000 images/s"),
        ("0.50×", "slower", True, "500 images/s"),
    ]
    assert found.heading == "B is faster in 1, slower in 1 and as fast as A within the noise in 1 of 3 cells"
    assert {even.text for row in found.rows for even in row.evens} == {"B costs 3.0× as much as A"}
    assert found.evens == {"B": "3.0×"}
    dots = [row.strip.dots[0].at for row in found.rows]
    assert dots[0] > dots[1] == found.one > dots[2]
    assert {even.at > dots[0] for row in found.rows for even in row.evens} == {True}, "3 is right of 2"


def test_devices_with_own_prices_have_own_break_evens() -> None:
    assert ratios_of(made_up(3)).evens == {"Made-up B": "1.8×", "Made-up C": "0.60× (GPU)"}
    gpu = examples.cell(device="cuda")
    a, b = (
        contender(label, {CELL: STEADY, gpu: STEADY}, tariff)
        for label, tariff in (("A", hourly(0.125, 0.625)), ("B", hourly(0.25, 0.375)))
    )
    assert ratios_of(source(a, b)).evens == {"B": "2.0× (CPU) and 0.60× (GPU)"}
    assert ratios_of(compared([CLEAR])).evens == {}


def test_the_heading_of_many_machines_is_short() -> None:
    assert ratios_of(compared([CLEAR] * 3)).heading.count("faster in 3 of 3 cells") == 3
    five = [contender(label, {CELL: STEADY}) for label in "ABCDE"]
    assert ratios_of(source(*five)).heading == "Each machine against A, cell by cell"


def test_ratios_of_one_launch_have_a_heading_without_a_result() -> None:
    found = ratios_of(compared([CLEAR], launches=ONCE))
    assert found.heading == "B against A: no cell has an interval"
    assert not any(dot.whisker for row in found.rows for dot in row.strip.dots)


def test_a_cell_that_a_machine_lacks_has_no_value_there() -> None:
    of_all = zip("ABC", (CELLS, CELLS[:1], CELLS), strict=True)
    a, b, c = (contender(label, dict.fromkeys(cells, STEADY)) for label, cells in of_all)
    found = ratios_of(source(a, b, c))
    assert found.heading == (
        "B is as fast as A within the noise in 1 of 1 cell; C is as fast as A within the noise in 3 of 3 cells"
    )
    lacking = [row.values[0] for row in found.rows if not row.details.startswith("mnist-cnn")]
    assert [(value.ratio, value.sort, value.verdict) for value in lacking] == [("–", "", "not in this run")] * 2
    assert all(row.values[1].ratio == "1.000×" for row in found.rows)


def test_a_machine_says_why_it_has_no_speed_of_a_cell() -> None:
    """B has no GPU, and C one in which the cell failed."""
    gpu = examples.cell(device="cuda")
    failed = examples.failed(examples.request(gpu))
    a, b, c = (contender(label, {CELL: STEADY, gpu: STEADY}) for label in "ABC")
    skipped = failed.model_copy(update={"status": Status.SKIPPED})
    b = replace(b, run=replace(b.run, records=[*b.run.by_cell[CELL.key], skipped]))
    with_gpu = c.run.machine.model_copy(update={"gpus": [examples.gpu()]})
    c = replace(c, run=replace(c.run, machine=with_gpu, records=[*c.run.by_cell[CELL.key], failed]))
    d = replace(c, label="D", run=replace(c.run, records=c.run.by_cell[CELL.key]))
    extra = replace(a, label="E")
    rows = {row.details: row for row in ratios_of(source(a, b, c, d, extra)).rows}
    lacking = rows["mnist-cnn/torch/cuda"].values
    assert [value.verdict for value in lacking] == ["no GPU", "missing", "not in this run", "tie"]


def test_the_rows_have_the_order_that_the_first_machine_claims() -> None:
    """The template marks its column as sorted in descending order. Missing values are last."""
    sorts = [row.values[0].sort for row in ratios_of(made_up(3)).rows]
    known = [float(sort) for sort in sorts if sort]
    assert len(sorts) == 36
    assert len(known) == 18
    assert known == sorted(known, reverse=True)
    assert sorts[18:] == [""] * 18


def test_cells_that_differ_in_more_than_the_machine_are_flagged() -> None:
    b = contender("B", {CELL: STEADY}, change=lambda record: record.model_copy(update={"engine": "docker"}))
    found = ratios_of(source(contender("A", {CELL: STEADY}), b))
    assert found.rows[0].values[0].verdict == "tie !"
    assert any(note.startswith("! marks cells") for note in found.notes)


# The best machine for a network, energy, speed and cost, and what was not compared.


def test_the_best_machine_is_named_with_its_lead_and_what_it_needs() -> None:
    # A: 300 s for the 300,000 images of five epochs, at 0.125 per hour 0.0104. B: 150 s, at 0.375 per hour 0.0156.
    found = one_cell(STEADY, scaled(STEADY, 2), CHEAP, DEAR)
    choices = choices_of(found)
    (row,) = choices.rows
    assert (row.name, row.details) == ("Small CNN on MNIST", "mnist-cnn · batch 64 · synthetic data")
    assert row.fastest == Best(
        "B",
        "2.0× as fast as A (1.99 to 2.01)",
        ("B: 2.50 min for 5 epochs (PyTorch, CPU)", "A: 5.00 min for 5 epochs (PyTorch, CPU)"),
    )
    assert row.cheapest is not None
    assert (row.cheapest.label, row.cheapest.words) == ("A", "1.5× as much for the money as B (1.49 to 1.51)")
    for line, start in zip(row.cheapest.small, (f"A: 0.0104{NB}EUR", f"B: 0.0156{NB}EUR"), strict=True):
        assert line.startswith(start)
        assert line.endswith("for 5 epochs (PyTorch, CPU)")
    assert choices.heading == "A is the cheapest for 1 of 1 network"
    html = render_machines(found)
    assert html.count(BEST) == 2
    assert html.count('class="is"') == 1


def test_each_machine_has_its_times_and_costs() -> None:
    choices = choices_of(one_cell(ONCE, scaled(ONCE, 2), hourly(0.36), hourly(1.44)))
    assert choices.headers == (
        "images/s",
        "Time of an epoch",
        "Time of a trained model",
        "Cost of a million images, EUR",
        "Cost of an epoch, EUR",
        "Cost of a trained model, EUR",
    )
    assert [(offer.network, offer.details, offer.label, offer.way, offer.launches) for offer in choices.offers] == [
        ("Small CNN on MNIST", "mnist-cnn · batch 64 · synthetic data", "A", "PyTorch, CPU", "1 launch"),
        ("Small CNN on MNIST", "mnist-cnn · batch 64 · synthetic data", "B", "PyTorch, CPU", "1 launch"),
    ]
    assert choices.scope.startswith("Times and costs are those of steady training.")
    # A: a million images take 1,000 s, an epoch 60 s and five 300 s, at 0.0001 per second.
    # B takes half as long, at four times the price.
    assert [[amount.shown for amount in offer.amounts] for offer in choices.offers] == [
        ["1,000", "60.0 s", "5.00 min", "0.100", "0.00600", "0.0300"],
        ["2,000", "30.0 s", "2.50 min", "0.200", "0.0120", "0.0600"],
    ]
    assert [float(amount.sort) for amount in choices.offers[1].amounts] == pytest.approx(
        [2000, 30, 150, 0.20, 0.012, 0.06]
    )
    assert {amount.ends for offer in choices.offers for amount in offer.amounts} == {""}
    epoch = choices_of(one_cell(STEADY, STEADY)).offers[0].amounts[1]  # 996 to 1,004 images/s
    assert (epoch.shown, epoch.ends) == ("60.0 s", "59.8 s to 60.2 s")


def test_a_machine_has_two_rows_if_its_fastest_device_is_not_its_cheapest() -> None:
    gpu = examples.cell(device="cuda")
    a = contender("A", {CELL: STEADY, gpu: scaled(STEADY, 4)}, hourly(0.125, 0.875))
    choices = choices_of(source(a, contender("B", {CELL: STEADY})))
    assert [(offer.label, offer.way) for offer in choices.offers] == [
        ("A", "PyTorch, GPU"),
        ("A", "PyTorch, CPU"),
        ("B", "PyTorch, CPU"),
    ]
    assert [amount.sort for amount in choices.offers[2].amounts[3:]] == [""] * 3, "B has no price"


@pytest.mark.parametrize(
    ("of_a", "of_b", "words"),
    [
        (STEADY, STEADY, "Tie: A is 1.000× as fast as B (0.995 to 1.005)"),
        (NOISY, scaled(NOISY, 1.05), "Undecided: B is 1.05× as fast as A (0.70 to 1.57)"),
        (ONCE, scaled(ONCE, 2), "Too few launches: B is 2.0× as fast as A"),
    ],
)
def test_the_best_machine_is_not_named_without_evidence(
    of_a: Sequence[float], of_b: Sequence[float], words: str
) -> None:
    choices = choices_of(one_cell(of_a, of_b))
    (row,) = choices.rows
    assert row.fastest is not None
    assert (row.fastest.label, row.fastest.words, row.cheapest) == ("", words, None)
    assert choices.heading == "No machine is clearly the fastest"
    (row,) = choices_of(one_cell(of_a, of_b, CHEAP, CHEAP)).rows
    assert row.cheapest is not None
    assert row.cheapest.words == words.replace(" is ", " does ").replace("as fast as", "as much for the money as")


def test_the_heading_counts_the_networks_of_each_machine() -> None:
    assert choices_of(compared([(2.0, 2.0, 1.0)])).heading == (
        "B is the fastest for 2 of 3 networks (1 without a clear winner)"
    )
    sweep = [replace(CELL, batch=batch) for batch in (32, 64)]
    a, b = (contender(label, dict.fromkeys(sweep, scaled(STEADY, by))) for label, by in (("A", 1), ("B", 2)))
    assert choices_of(source(a, b)).heading == "B is the fastest for 2 of 2 comparisons"
    assert choices_of(compared([(2.0, 2.0, 0.5)])).heading == (
        "B is the fastest for 2 and A is the fastest for 1 of 3 networks"
    )


def test_energy_is_shown_with_its_parts_and_its_gaps() -> None:
    # 400 W at 1,000 images/s are 0.4 J per image.
    a = contender("A", {CELL: STEADY, OTHER: STEADY}, change=drawing(cpu=100.0, gpu0=300.0))
    found = energy(source(a, contender("B", {CELL: STEADY})))
    assert found.heading == "Images per joule of each cell: more is better (not measured on B)"
    assert found.table.rows == (
        ("mnist-cnn/torch/cpu", "2.50 (CPU + GPU0)", "not measured"),
        ("cifar-cnn/torch/cpu", "2.50 (CPU + GPU0)", "not measured"),
    )
    nothing = energy(one_cell(STEADY, STEADY))
    assert nothing.heading == "Not measured: no sensor for energy or power could be read on any machine"
    assert nothing.table.rows == ()


def test_speed_and_cost_show_which_machines_are_efficient() -> None:
    # An image costs 0.125 / 1,000 on A, 0.375 / 2,000 on B and 0.375 / 500 on C, apart from the seconds of an hour.
    a, b = one_cell(STEADY, scaled(STEADY, 2), CHEAP, DEAR).contenders
    found = speed_cost(source(a, b, contender("C", {CELL: scaled(STEADY, 0.5)}, DEAR)))
    assert found is not None
    assert found.heading == "On average, A and B are efficient: nothing else is both faster and cheaper"
    assert found.table.rows == (
        ("A", "1.000×", "1.000×", "efficient"),
        ("B", "2.0×", "1.5×", "efficient"),
        ("C", "0.50×", "6.0×", ""),
    )
    first, second, third = found.places
    assert first.at < second.at < third.at, "left is cheaper"
    assert second.y < first.y < third.y, "up is faster"


def test_speed_and_cost_of_machines_with_one_launch_are_marked() -> None:
    a, b = one_cell(STEADY, scaled(STEADY, 2), CHEAP, DEAR).contenders
    once = contender("C", {CELL: ONCE}, DEAR)
    for found, hedged in (
        (source(a, b), False),
        (source(a, b, once), True),
        (source(a, b, replace(once, tariff=None)), False),
    ):
        chart = speed_cost(found)
        assert chart is not None
        assert chart.heading.startswith("With too few launches: On average, ") == hedged


def test_a_machine_with_two_prices_has_a_place_for_each_device() -> None:
    found = speed_cost(made_up(2))
    assert found is not None
    assert [place.name for place in found.places] == ["Made-up A CPU", "Made-up A GPU", "Made-up B CPU"]


def test_cells_that_were_not_compared_have_a_reason() -> None:
    a = contender("A", {CELL: STEADY, OTHER: STEADY})
    b = contender("B", {CELL: STEADY}, change=observed(data_digest="2222"))
    failed = examples.failed(examples.request(OTHER))
    b = replace(b, run=replace(b.run, records=[*b.run.records, failed]))
    assert excluded(source(a, b)).rows == (
        (
            "A and B",
            "mnist-cnn/torch/cpu",
            "data: A da7a, B 2222. Different images differ in the cost to read, decode and feed them.",
        ),
        ("B", "cifar-cnn/torch/cpu", "failed: It failed."),
    )


# Prices and amounts.


def test_amounts_have_their_interval_and_prices_their_device() -> None:
    assert amounts.amount(Estimate(0.0123, 0.0119, 0.0128), "EUR") == f"0.0123{NB}EUR (0.0119 to 0.0128)"
    assert amounts.amount(Estimate(1234.0)) == "1,230"
    assert amounts.amount(None) == "–"
    assert amounts.hourly(hourly(0.125)) == f"0.125{NB}EUR"
    assert amounts.hourly(hourly(0.125, 0.375)) == f"0.125{NB}EUR (CPU) or 0.375{NB}EUR (GPU)"
    assert amounts.hourly(Tariff({"cuda": 0.375})) == "0.375 (GPU; no price for the CPU)"
    assert amounts.origin(Tariff({}, source="Price list of a test")) == "Price list of a test"
    assert amounts.origin(Tariff({})) == ""


@pytest.fixture(params=["XXX-9", "XXX0", "XXX9"])
def _zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the clock be nine hours ahead of UTC, at UTC, or nine hours behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_zone")
def test_the_day_of_prices_is_the_same_in_all_time_zones() -> None:
    tariff = Tariff({"cpu": 1.0}, date="2026-11-20", source="Price list of a test")
    assert amounts.origin(tariff) == "Price list of a test, 20 November 2026"
