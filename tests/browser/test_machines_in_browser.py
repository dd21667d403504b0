"""Open the page of three machines in headless Chromium: sorting, filtering, links, colors, paper and phones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.report.machines.page import write_machines
from tests.browser.tab import Open, Tab
from tests.unit.test_machines_page import SECTIONS, made_up

PHONE, PAPER, DESK = 390, 703, 1440  # px; paper: A4 without the margins
MAX_PAGES = 8  # of A4
RATIOS, BEST, OFFERS = "table.ratios", "table.best", "table.offers"
MISSING = "–"


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of three made-up machines. One has no GPU, and one has no price for its CPU."""
    target = tmp_path_factory.mktemp("machines") / "page.html"
    write_machines(target, made_up(3))
    return target


def shown(tab: Tab, table: str, column: int) -> list[str]:
    """Return the first line that the rows show in a column, from 0."""
    rows = tab.page.locator(f"{table} tbody tr:visible")
    return rows.evaluate_all("(all, n) => all.map(r => r.cells[n].innerText.trim().split('\\n')[0])", column)


def sorted_by(tab: Tab, table: str, column: int) -> list[str]:
    """Return what the rows are sorted by in a column, from 0."""
    rows = tab.page.locator(f"{table} tbody tr:visible")
    return rows.evaluate_all("(all, n) => all.map(r => r.cells[n].dataset.value ?? r.cells[n].innerText)", column)


def number(text: str) -> float:
    return float(text.replace(",", "").rstrip("×"))


def test_the_page_requests_nothing_and_logs_nothing(show: Open, machines: Path) -> None:
    tab = show(machines)
    assert tab.page.locator("h1").inner_text() == "Made-up A, Made-up B and Made-up C"
    tab.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert tab.requests == [tab.page.url]
    assert tab.messages == []
    blank = tab.page.locator("svg[role=img]").evaluate_all(
        "all => all.filter(e => !e.getBoundingClientRect().height).map(e => e.outerHTML.slice(0, 80))"
    )
    assert blank == []


@pytest.mark.parametrize(
    ("header", "column"), [("Made-up A", 2), ("Made-up B", 3), ("Made-up C", 4)], ids=["A", "B", "C"]
)
def test_a_click_on_a_header_sorts_ratios_as_numbers_with_missing_ones_last(
    show: Open, machines: Path, header: str, column: int
) -> None:
    tab = show(machines)
    everything = sorted(shown(tab, RATIOS, column))
    button = tab.page.locator(f"{RATIOS} thead").get_by_role("button", name=header)
    for direction in ("ascending", "descending"):
        button.click()
        texts = shown(tab, RATIOS, column)
        known = [number(text) for text in texts if text != MISSING]
        assert len(set(known)) > 2
        assert known == sorted(known, reverse=direction == "descending")
        assert texts[len(known) :] == [MISSING] * (18 if header == "Made-up B" else 0), "it has no GPU"
        assert sorted(texts) == everything
        sorted_header = tab.page.locator(f"{RATIOS} th[aria-sort]")
        assert sorted_header.get_attribute("aria-sort") == direction
        assert sorted_header.inner_text().startswith(header)


def test_names_are_sorted_as_text(show: Open, machines: Path) -> None:
    tab = show(machines)
    for table, header in ((RATIOS, "Network and cell"), (OFFERS, "Network")):
        tab.page.locator(f"{table} thead").get_by_role("button", name=header).click()
        names = shown(tab, table, 0)
        assert len(set(names)) == 6
        assert names == sorted(names, key=str.lower)


@pytest.mark.parametrize(
    ("header", "column", "missing"),
    [("images/s", 3, False), ("Time of a trained model", 5, False), ("Cost of a million images", 6, True)],
)
def test_the_keyboard_sorts_offers_as_numbers_with_missing_ones_last(
    show: Open, machines: Path, header: str, column: int, missing: bool
) -> None:
    tab = show(machines)
    tab.page.locator(f"{OFFERS} thead").get_by_role("button", name=header).focus()
    for key, descending in (("Enter", False), ("Space", True)):
        tab.page.keyboard.press(key)
        values = sorted_by(tab, OFFERS, column)
        known = [float(value) for value in values if value]
        assert len(set(known)) > 3
        assert known == sorted(known, reverse=descending)
        assert values[len(known) :] == [""] * (len(values) - len(known))
        assert (len(known) < len(values)) == missing


def test_words_filter_the_rows_of_one_table(show: Open, machines: Path) -> None:
    tab = show(machines)
    of_ratios = tab.page.get_by_role("searchbox", name="Speed of each cell")
    of_offers = tab.page.get_by_role("searchbox", name="Times and costs")
    all_ratios, all_offers = len(shown(tab, RATIOS, 0)), len(shown(tab, OFFERS, 0))
    assert all_ratios == 36
    of_ratios.fill("torch CUDA")
    assert len(shown(tab, RATIOS, 0)) == 6
    assert len(shown(tab, OFFERS, 0)) == all_offers
    statuses = tab.page.get_by_role("status").all_inner_texts()
    assert statuses == [f"6 of {all_ratios} rows", ""]
    of_offers.fill("mnist-cnn-dropout")
    assert 0 < len(shown(tab, OFFERS, 0)) < all_offers
    assert all("dropout" in name for name in shown(tab, OFFERS, 0))
    of_ratios.fill("no such cell")
    assert shown(tab, RATIOS, 0) == []
    of_ratios.fill("")
    of_offers.fill("")
    assert (len(shown(tab, RATIOS, 0)), len(shown(tab, OFFERS, 0))) == (all_ratios, all_offers)


def test_each_link_leads_to_a_visible_section(show: Open, machines: Path) -> None:
    tab = show(machines)
    links = tab.page.locator("nav a")
    anchors = links.evaluate_all("all => all.map(e => e.getAttribute('href').slice(1))")
    assert anchors == SECTIONS
    for index, anchor in enumerate(anchors):
        links.nth(index).click()
        assert tab.page.url.endswith(f"#{anchor}")
        heading = tab.page.locator(f"section#{anchor} > h2")
        assert heading.is_visible()
        assert heading.inner_text()
        box = heading.bounding_box()
        assert 0 < box["y"] < 900, "it is in the window"


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_axe_finds_no_serious_violation(show: Open, machines: Path, color_scheme: str, width: int) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": color_scheme, "bypass_csp": True}
    assert show(machines, **options).violations() == []


@pytest.mark.parametrize("width", [PHONE, 600, 800, DESK])
def test_the_page_does_not_scroll_sideways(show: Open, machines: Path, width: int) -> None:
    assert show(machines, viewport={"width": width, "height": 900}).wider_than(width) == []


def test_a_phone_shows_whole_rows_below_an_axis_of_their_width(show: Open, machines: Path) -> None:
    page = show(machines, viewport={"width": PHONE, "height": 900}).page
    for table in (RATIOS, BEST, OFFERS):
        widths = page.locator(f".scroll:has({table})").evaluate("e => [e.scrollWidth, e.clientWidth]")
        assert widths[0] <= widths[1], table
    axis, row = (page.locator(f"{RATIOS} {part} .plot svg.strip").first.bounding_box() for part in ("thead", "tbody"))
    assert (axis["x"], axis["width"]) == (row["x"], row["width"])
    assert page.locator(f"{OFFERS} tbody .lab").first.inner_text() == "images/s"


def test_colors_follow_the_system_and_paper_is_white(show: Open, machines: Path) -> None:
    background = "backgroundColor"
    assert show(machines, color_scheme="light").value("body", background) == "rgb(255, 255, 255)"
    dark = show(machines, color_scheme="dark")
    assert dark.value("body", background) == "rgb(18, 23, 28)"
    assert 1 <= dark.printed_pages() <= MAX_PAGES
    dark.page.emulate_media(media="print")
    assert dark.value("body", background) == "rgb(255, 255, 255)"
    assert not dark.page.locator(".filter label").first.is_visible()


def test_no_column_is_cut_off_on_paper(show: Open, machines: Path) -> None:
    page = show(machines, viewport={"width": PAPER, "height": 900}).page
    page.emulate_media(media="print")
    wide = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.outerHTML.slice(0, 200))"
    assert page.locator(".scroll").evaluate_all(wide) == []


def test_without_its_script_the_page_is_complete_and_has_no_dead_control(show: Open, machines: Path) -> None:
    rows = {table: len(shown(show(machines), table, 0)) for table in (RATIOS, OFFERS)}
    tab = show(machines, java_script_enabled=False)
    assert rows[RATIOS] == 36
    assert {table: tab.page.locator(f"{table} tbody tr").count() for table in rows} == rows
    assert tab.page.locator("main > section").count() == len(SECTIONS)
    assert tab.page.locator("button, input").count() == 0
