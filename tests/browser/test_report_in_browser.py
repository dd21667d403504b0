"""Open a report in headless Chromium. Skipped if Chromium is missing, unless KIT_REQUIRE_BROWSER is set."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from PIL import Image

from kit.analysis.run_analysis import analyze_run
from kit.planning import catalog
from kit.report.render import write_report
from kit.report.view import discover
from tests import example_run

CHROMIUM = shutil.which("chromium")
MISSING = "Chromium is missing (tests/browser/ensure_browser.sh installs it)"
PHONE = 400  # px
MEASURE = """<body><iframe id="frame" width="{width}" height="2000" srcdoc="{page}"></iframe><script>
onload = () => {{
  const page = frame.contentDocument;
  const wide = [...page.querySelectorAll("body *")].filter(
    e => !e.closest(".scroll table, svg") && e.getBoundingClientRect().right > {width});
  document.body.dataset.sections = page.querySelectorAll("section").length;
  document.body.dataset.wide = wide.map(e => e.outerHTML.slice(0, 60)).join(" | ");
}};
</script></body>"""


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def values(self, tag, name):
        return [attributes[name] for found, attributes in self.tags if found == tag and name in attributes]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    target = tmp_path_factory.mktemp("report") / "index.html"
    return write_report(target, analyze_run(example_run.run(), catalog.scenarios()))


@pytest.fixture
def browse(tmp_path):
    """Open a page and return its DOM and the messages of its console."""
    if CHROMIUM is None and not os.environ.get("KIT_REQUIRE_BROWSER"):
        pytest.skip(MISSING)

    def call(page, *options):
        assert CHROMIUM, MISSING
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr")
        where = (f"--user-data-dir={tmp_path / 'profile'}", "--disable-background-networking")
        done = subprocess.run(
            [CHROMIUM, *flags, *where, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=300
        )
        return done.stdout, re.findall(r"CONSOLE.*", done.stderr)

    return call


def test_the_browser_shows_all_sections_without_a_console_message(report, browse):
    dom, console = browse(report, "--dump-dom")
    page = Page(dom)
    anchors = page.values("section", "id")
    assert set(anchors) == {section.anchor for section in discover()}
    open_anchors = [section.anchor for section in discover() if not section.folded]
    assert [link.removeprefix("#") for link in page.values("a", "href")] == ["results", *open_anchors, "more"]
    assert len([tag for tag, _ in page.tags if tag == "svg"]) >= 8
    assert console == []  # the Content-Security-Policy blocks every request, and the console names what it blocked


@pytest.mark.parametrize("markup", ['<img src="https://example.invalid/a.png">', "<script>1</script>"])
def test_the_console_names_what_the_page_must_not_do(report, browse, tmp_path, markup):
    page = tmp_path / "page.html"
    page.write_text(report.read_text().replace("</main>", f"{markup}</main>"))
    _, console = browse(page, "--dump-dom")
    assert any("Content Security Policy" in message for message in console)


def test_the_page_is_not_blank(report, browse, tmp_path):
    picture = tmp_path / "report.png"
    browse(report, f"--screenshot={picture}", "--window-size=1200,2000")
    with Image.open(picture) as image:
        colors = image.convert("RGB").getcolors(1 << 24)
    assert colors is not None
    assert len(colors) > 50


def test_nothing_overflows_a_narrow_window(report, browse, tmp_path):
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(MEASURE.format(width=PHONE, page=html.escape(report.read_text())))
    (sections,), (wide,) = (
        Page(browse(wrapper, "--dump-dom")[0]).values("body", f"data-{name}") for name in ("sections", "wide")
    )
    assert int(sections) > 0
    assert wide == ""
