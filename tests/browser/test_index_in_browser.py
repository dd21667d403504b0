"""Open the index of 200 runs in headless Chromium: sorting, filtering, links, colors, paper and phones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kit.execution.reporting import report
from kit.report.run_index import write_index
from kit.storage.run_folder import REPORT_FILE, RunFolder
from kit.storage.run_list import SUMMARY_FILE, list_runs, save_summary
from tests import examples, report_runs
from tests.browser.tab import Open, Tab

RUNS, BROKEN = 200, 3
PHONE, PAPER, DESK = 390, 703, 1440  # px; paper: A4 without the margins
MAX_PAGES = 30  # of A4
LONG_NAME = "a-name-without-a-break" * 5
MACHINES = ("Made-up CPU of a test", "Another made-up CPU", "Made-up CPU with a long name " * 4)
MAKERS = (report_runs.cuda, report_runs.three_launches, report_runs.failed)


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the index of a folder with 200 runs. Three reports are real, and the other runs have copies of them."""
    out = tmp_path_factory.mktemp("runs")
    for maker in MAKERS:
        run = maker()
        folder = RunFolder.create(out / maker.__name__, run.plan, run.machine)
        for record in (*run.records, *run.probes):
            folder.save(record)
        report(folder)
    originals = {found.path.name: found.summary for found in list_runs(out)}
    for number in range(len(MAKERS), RUNS):
        name = MAKERS[number % len(MAKERS)].__name__
        plan = examples.plan([]).model_copy(
            update={
                "created_at": f"202{number % 7}-0{1 + number % 9}-1{number % 10}T00:00:00+00:00",
                "profile": ("quick", "standard", "full")[number % 3],
            }
        )
        machine = examples.machine(cpu_model=MACHINES[number % len(MACHINES)], id=str(number % len(MACHINES)))
        made = RunFolder.create(out / (f"{number}" if number > 10 else f"{number}{LONG_NAME}"), plan, machine)
        summary = originals[name]
        assert summary
        save_summary(made.path, summary.model_copy(update={"records": 0, "warnings": number % 23}))
        shutil.copyfile(out / name / REPORT_FILE, made.index)
    for number in range(RUNS - BROKEN, RUNS):
        (out / str(number) / "plan.json").write_text("{")
    (out / str(RUNS - BROKEN - 1) / SUMMARY_FILE).unlink()
    return write_index(out)


def column(tab: Tab, number: int) -> list[str]:
    """Return what the shown rows are sorted by in a column, from 0."""
    rows = tab.page.locator("tbody tr:visible")
    return rows.evaluate_all("(all, n) => all.map(r => r.cells[n].dataset.value ?? r.cells[n].textContent)", number)


def names(tab: Tab) -> list[str]:
    return tab.page.locator("tbody tr:visible th > small").all_inner_texts()


def test_the_index_has_a_row_for_each_run_the_newest_first(show: Open, index: Path) -> None:
    tab = show(index)
    assert len(names(tab)) == len(set(names(tab))) == RUNS
    dates = column(tab, 1)
    assert dates == sorted(dates, reverse=True)
    assert dates[-BROKEN:] == [""] * BROKEN
    assert f"{RUNS} runs on 4 machines" in tab.page.locator(".lede").inner_text()
    assert tab.page.locator(".notices").inner_text() == f"{BROKEN} runs cannot be read."
    assert tab.requests == [tab.page.url]
    assert tab.messages == []


@pytest.mark.parametrize(("header", "number"), [("Machine", 0), ("Date", 1), ("Profile", 2), ("What it found", 3)])
def test_a_click_on_a_header_sorts_the_rows(show: Open, index: Path, header: str, number: int) -> None:
    tab = show(index)
    button = tab.page.locator("thead").get_by_role("button", name=header)
    for direction in ("ascending", "descending"):
        button.click()
        values = column(tab, number)
        assert values == sorted(values, key=str.lower, reverse=direction == "descending")
        assert tab.page.locator("th[aria-sort]").get_attribute("aria-sort") == direction
        assert tab.page.locator("th[aria-sort]").inner_text().startswith(header)
    assert len(set(names(tab))) == RUNS


def test_the_keyboard_sorts_numbers_and_missing_ones_are_last(show: Open, index: Path) -> None:
    tab = show(index)
    tab.page.locator("thead").get_by_role("button", name="Warnings").focus()
    for _ in range(2):
        tab.page.keyboard.press("Enter")
        values = column(tab, 5)
        known = [int(value) for value in values if value]
        assert known == sorted(known, reverse=bool(_))
        assert values[len(known) :] == [""] * (BROKEN + 1), "broken runs, and the one without a summary"


def test_words_filter_the_rows(show: Open, index: Path) -> None:
    tab = show(index)
    field = tab.page.get_by_role("searchbox")
    field.fill("another STANDARD")
    shown = names(tab)
    assert 0 < len(shown) < RUNS
    assert {value.lower() for value in column(tab, 2)} == {"standard"}
    assert all("Another" in value for value in column(tab, 0))
    assert tab.page.get_by_role("status").inner_text() == f"{len(shown)} of {RUNS} rows"
    field.fill("no such run")
    assert names(tab) == []
    field.fill("")
    assert len(names(tab)) == RUNS


@pytest.mark.parametrize("section", ["Training", "Inference", "CPU or GPU"])
def test_a_link_leads_to_its_section_of_the_report(show: Open, index: Path, section: str) -> None:
    tab = show(index)
    row = tab.page.locator("tbody tr").filter(has=tab.page.locator("small", has_text="cuda"))
    with tab.page.expect_event("load"):
        row.get_by_role("link", name=section, exact=True).click()
    assert tab.page.url.startswith((index.parent / "cuda" / REPORT_FILE).as_uri())
    anchor = tab.page.url.partition("#")[2]
    assert tab.page.locator(f"section#{anchor} > h2").is_visible()
    assert abs(tab.page.locator(f"section#{anchor}").bounding_box()["y"]) < 100
    tab.page.go_back()
    with tab.page.expect_event("load"):
        row.get_by_role("link", name="Made-up CPU").click()
    assert tab.page.locator("h1").inner_text().startswith("Made-up CPU")


def test_without_its_script_the_index_is_complete_and_has_no_dead_control(show: Open, index: Path) -> None:
    tab = show(index, java_script_enabled=False)
    assert tab.page.locator("tbody tr").count() == RUNS
    assert tab.page.locator("button, input").count() == 0


@pytest.mark.parametrize(
    ("color_scheme", "width"), [("light", PHONE), ("light", DESK), ("dark", PHONE), ("dark", DESK)]
)
def test_axe_finds_no_serious_violation(show: Open, index: Path, color_scheme: str, width: int) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": color_scheme, "bypass_csp": True}
    assert show(index, **options).violations() == []


@pytest.mark.parametrize("width", [PHONE, 600, 800, DESK])
def test_the_index_does_not_scroll_sideways(show: Open, index: Path, width: int) -> None:
    tab = show(index, viewport={"width": width, "height": 900})
    assert tab.wider_than(width) == []
    inside = tab.page.locator(".scroll").evaluate("e => e.scrollWidth - e.clientWidth")
    assert inside <= 0 or width == 800, "only a narrow window scrolls the table"


def test_colors_follow_the_system_and_paper_is_white(show: Open, index: Path) -> None:
    background = "backgroundColor"
    assert show(index, color_scheme="light").value("body", background) == "rgb(255, 255, 255)"
    dark = show(index, color_scheme="dark")
    assert dark.value("body", background) == "rgb(18, 23, 28)"
    assert dark.printed_pages() <= MAX_PAGES
    dark.page.emulate_media(media="print")
    assert dark.value("body", background) == "rgb(255, 255, 255)"
    assert not dark.page.locator(".filter label").is_visible()
    dark.page.set_viewport_size({"width": PAPER, "height": 900})
    assert dark.page.locator(".scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
