"""Test the head that all pages share, the script that sorts tables, and `open_page`."""

import re
import webbrowser
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

import pytest

from kit.cli.console import DISPLAYS, open_page
from kit.report.render import DOCTYPE, page_environment
from kit.report.table_script import TABLES, TABLES_HASH

PAGE = """{% from "page_head.html" import head %}
{% call head("<Title>", ": end", **options) %}
.own { color: red; }
{% endcall %}
<body>{% if tables %}<script>{{ tables }}</script>{% endif %}</body></html>"""


def page(**options: object) -> str:
    return page_environment().from_string(PAGE).render(options=options, tables=TABLES if options else "")


def policy(html: str) -> str:
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert found
    return found[1]


def test_a_page_without_tables_or_pictures_allows_neither_scripts_nor_pictures() -> None:
    html = page()
    assert html.encode().startswith(DOCTYPE)
    assert policy(html) == "default-src 'none'; style-src 'unsafe-inline'"
    assert "<title>&lt;Title&gt;: end</title>" in html
    assert html.index(".own { color: red; }") < html.index("</style>")


def test_the_policy_of_a_page_with_tables_allows_exactly_its_script() -> None:
    html = page(tables_hash=TABLES_HASH, pictures=True)
    assert policy(html) == f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{TABLES_HASH}'"
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert [sha256(text.encode()).digest() for text in scripts] == [b64decode(TABLES_HASH.removeprefix("sha256-"))]
    assert not re.search(r"innerHTML|eval|\bon\w+ *=|https?:", scripts[0])


@pytest.mark.parametrize(("display", "starts", "opened"), [("", True, 0), (":0", True, 1), (":0", False, 1)])
def test_a_page_opens_only_on_a_display(
    display: str, starts: bool, opened: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", display)
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or starts)
    open_page(Path("reports/a b.html"))
    assert asked == [Path("reports/a b.html").resolve().as_uri()] * opened
    out, err = capfd.readouterr()
    assert out == ""
    assert ("reports/a b.html" in err) == (not display or not starts)
