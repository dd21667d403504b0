"""Drive one tab of the browser: what the page requested and logged, how wide it is, and what axe-core finds in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Page

AXE = files("axe_playwright_python").joinpath("axe.min.js")  # only this file of the package is used
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SERIOUS = {"serious", "critical"}
PDF_PAGE = re.compile(rb"/Type\s*/Page\b")
WIDE = """width => [...document.body.querySelectorAll("*")].filter(
    e => !e.closest(".scroll table, svg svg, .vh, .skip") && e.getBoundingClientRect().right > width + 0.5
).map(e => e.outerHTML.slice(0, 80))"""
FIND = """async tags => (await axe.run({runOnly: tags, resultTypes: ["violations"]})).violations.map(
    v => ({id: v.id, impact: v.impact, nodes: v.nodes.map(n => n.html.slice(0, 120) + " " + n.failureSummary)}))"""


class Tab:
    """A page in its own tab. requests: addresses that it asked for, also blocked ones. messages: of the console."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.goto(path.as_uri())

    def wider_than(self, width: int) -> list[str]:
        """Return the elements that reach beyond this width, and the document if it scrolls sideways."""
        scrolls = self.page.evaluate("document.scrollingElement.scrollWidth") > width
        return ["the page scrolls"] * scrolls + self.page.evaluate(WIDE, width)

    def unfold(self) -> None:
        """Open all folded parts."""
        self.page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")

    def violations(self) -> list[str]:
        """Return the serious violations that axe-core finds, one text for each rule."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate(FIND, AXE_TAGS)
        return [f"{v['id']} ({v['impact']}): {v['nodes'][:5]}" for v in found if v["impact"] in SERIOUS]

    def printed_pages(self) -> int:
        """Return the number of pages on paper."""
        return len(PDF_PAGE.findall(self.page.pdf(prefer_css_page_size=True)))

    def value(self, selector: str, style: str) -> str:
        """Return the computed style of the first element that matches."""
        return self.page.locator(selector).first.evaluate("(e, style) => getComputedStyle(e)[style]", style)


Open = Callable[..., Tab]
