"""Open reports in headless Chromium: of a real run, of made-up runs with a GPU, failures or several launches."""

from __future__ import annotations

import pytest

from kit.report.section import Section
from kit.report.view import discover
from tests import report_runs
from tests.browser.tab import Open

REPORTS = ("real", "cuda", "failed", "three_launches", "studies")
every_report = pytest.mark.parametrize("name", REPORTS)
PHONE, PAPER, DESK = 390, 703, 1440  # px; paper: A4 without the margins
# Sheets of A4 without the folded parts: one for the answers, about four for 18 cells or eight for 36 cells, and one
# because fonts differ.
PAGES = {"real": 3, "cuda": 10, "failed": 1, "three_launches": 6, "studies": 60}
WRONG = """<!doctype html><html lang="en"><title>Wrong</title><main><h1>Wrong</h1>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><p style="color: #bbb; background: #fff">Pale</p></main></html>"""


@every_report
def test_a_report_requests_nothing_and_logs_nothing(show: Open, name):
    tab = show(name)
    assert tab.page.locator("h1").count() == 1
    assert tab.requests == [tab.page.url]
    assert tab.messages == []
    tab.unfold()
    tab.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert len(tab.requests) == 1


@pytest.mark.parametrize("markup", ['<img src="https://example.invalid/a.png">', "<script>1</script>"])
def test_requests_and_messages_are_noticed(show: Open, tmp_path, report_of, markup):
    page = tmp_path / "page.html"
    page.write_text(report_of("example").read_text().replace("</main>", f"{markup}</main>"))
    tab = show(page)
    assert any("Content Security Policy" in message for message in tab.messages)
    assert tab.requests[1:] == ["https://example.invalid/a.png"] * ("img" in markup)


def test_all_sections_are_shown_and_linked(show: Open):
    page = show("example").page
    anchors = page.evaluate("[...document.querySelectorAll('section[id]')].map(e => e.id)")
    sections = [each for each in discover() if isinstance(each, Section)]  # the run repeats no study
    assert set(anchors) == {section.anchor for section in sections}
    links = page.evaluate("[...document.querySelectorAll('a')].map(e => e.getAttribute('href').slice(1))")
    assert links == ["results", *(section.anchor for section in sections if not section.folded), "more"]
    blank = page.locator("svg[role=img]").evaluate_all("all => all.filter(e => !e.getBoundingClientRect().height)")
    assert blank == []


def test_the_picture_of_augmented_photos_is_shown(show: Open):
    tab = show("studies")
    image = tab.page.locator(".sheet img")
    image.scroll_into_view_if_needed()
    assert image.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [404, 132]
    assert tab.messages == []


def test_a_made_up_run_says_so(show: Open):
    for name in ("cuda", "failed", "three_launches"):
        assert "Made-up" in show(name).page.locator("h1").inner_text()
    assert len(report_runs.large(1).records) == 36


@every_report
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_does_not_scroll_sideways(show: Open, name, width):
    tab = show(name, viewport={"width": width, "height": 900})
    assert tab.wider_than(width) == []
    tab.unfold()
    assert tab.wider_than(width) == []


@pytest.mark.parametrize("name", ["real", "three_launches"])
def test_no_table_of_all_figures_is_cut_off_on_a_desk(show: Open, name):
    tab = show(name, viewport={"width": DESK, "height": 900})
    tab.unfold()
    widths = tab.page.locator("#figures .scroll").evaluate_all("all => all.map(e => [e.scrollWidth, e.clientWidth])")
    assert len(widths) == 3
    assert all(needed <= given for needed, given in widths)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_line_breaks_within_an_id_or_before_a_dot(show: Open, width):
    """A part that breaks is higher than one line."""
    page = show("three_launches", viewport={"width": width, "height": 900}).page
    lines = "all => all.map(e => e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight))"
    heights = page.locator("#training .net .whole").evaluate_all(lines)
    assert heights
    assert max(heights) < 1.5


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_values_of_studies_with_their_intervals_stay_in_their_cells(show: Open, width):
    page = show("studies", viewport={"width": width, "height": 900}).page
    cells = page.locator(".study tbody td.n")
    assert any("±" in text for text in cells.all_inner_texts())
    page.locator(".study tbody .n .fw").evaluate_all("all => all.forEach(e => e.append(' (1,100 to 1,400)'))")
    widths = cells.evaluate_all("all => all.map(e => [e.scrollWidth, e.clientWidth])")
    assert all(needed <= given for needed, given in widths)


def test_a_wide_element_is_noticed(show: Open, tmp_path, report_of):
    page = tmp_path / "page.html"
    page.write_text(report_of("example").read_text().replace("</main>", "<div style='width: 500px'>x</div></main>"))
    assert len(show(page, viewport={"width": PHONE, "height": 900}).wider_than(PHONE)) == 2


@every_report
@pytest.mark.parametrize(("color_scheme", "width"), [("light", PHONE), ("dark", DESK)])
def test_axe_finds_no_serious_violation(show: Open, name, color_scheme, width):
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": color_scheme, "bypass_csp": True}
    tab = show(name, **options)
    tab.unfold()
    assert tab.violations() == []


def test_axe_finds_violations(show: Open, tmp_path):
    page = tmp_path / "wrong.html"
    page.write_text(WRONG)
    found = show(page, bypass_csp=True).violations()
    assert sorted(violation.split()[0] for violation in found) == ["color-contrast", "image-alt"]


def test_colors_follow_the_system(show: Open):
    """All reports have the same stylesheet."""
    brightness = {}
    for scheme in ("light", "dark"):
        color = show("real", color_scheme=scheme).value("body", "backgroundColor")
        brightness[scheme] = sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(", "))) / 3
    assert brightness["light"] == 255
    assert brightness["dark"] < 40


@every_report
def test_paper_has_few_pages(show: Open, name):
    tab = show(name, color_scheme="dark")
    folded = tab.printed_pages()
    assert 1 <= folded <= PAGES[name]
    tab.unfold()
    assert tab.printed_pages() > folded  # what the reader opened is printed
    tab.page.emulate_media(media="print")
    assert tab.value("body", "backgroundColor") == "rgb(255, 255, 255)"


@every_report
def test_no_column_is_cut_off_on_paper(show: Open, name):
    page = show(name, viewport={"width": PAPER, "height": 900}).page
    page.emulate_media(media="print")
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    wide = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.outerHTML.slice(0, 300))"
    assert page.locator(".scroll").evaluate_all(wide) == []


@every_report
def test_the_keyboard_reaches_everything(show: Open, name):
    page = show(name).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open") is True


@pytest.mark.parametrize("name", ["cuda", "three_launches"])
def test_arrow_keys_highlight_a_framework(show: Open, name):
    tab = show(name)
    tab.page.locator("#only-0").focus()
    colors = {color: f"#training .strip .m.{color}" for color in ("c1", "c2", "c3")}
    opacities = [{color: tab.value(mark, "opacity") for color, mark in colors.items()}]
    for _ in colors:
        tab.page.keyboard.press("ArrowRight")
        opacities.append({color: tab.value(mark, "opacity") for color, mark in colors.items()})
    assert set(opacities[0].values()) == {"1"}
    assert opacities[1:] == [{color: "1" if color == chosen else "0.12" for color in colors} for chosen in colors]
