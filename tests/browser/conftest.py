"""Make the reports that the tests open, and start headless Chromium.

Without Chromium the tests are skipped, unless KIT_REQUIRE_BROWSER is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from kit.analysis.run_analysis import analyze_run
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.host import machine_lock
from kit.model.progress import Silent
from kit.model.run import Run
from kit.model.tariff import Tariff
from kit.planning import catalog, studies
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.report.render import write_report
from tests import example_run, report_runs
from tests.browser.tab import Open, Tab
from tests.study_runs import study_run

FRAMEWORKS = ("tensorflow", "torch")  # of the studies, whose page would have twice as many rows with all
MISSING = "Chromium is missing (tests/browser/ensure_browser.sh installs it)"
RUNS: dict[str, Callable[[], Run]] = {
    "example": example_run.run,  # fills every section
    "cuda": report_runs.cuda,
    "failed": report_runs.failed,
    "three_launches": report_runs.three_launches,
    # It has every kind of sweep, too.
    "studies": lambda: study_run(*studies.load_all(), devices=("cpu", "cuda"), epochs=True, frameworks=FRAMEWORKS),
}
TARIFFS = {"example": Tariff({"cpu": 0.36, "cuda": 1.44}, "EUR", "2026-11-20", "Price list of a test")}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("KIT_REQUIRE_BROWSER"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def report_of(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the report of the run of this name. Each is made once."""
    folder, made = tmp_path_factory.mktemp("reports"), dict[str, Path]()

    def call(name: str) -> Path:
        if name not in made:
            made[name] = (
                measure(folder) if name == "real" else write(folder / f"{name}.html", RUNS[name](), TARIFFS.get(name))
            )
        return made[name]

    return call


@pytest.fixture
def show(browser: Browser, report_of: Callable[[str], Path]) -> Iterator[Open]:
    """Return a function that opens a report, or another page, in a new tab. options: of Playwright's contexts."""
    contexts = []

    def call(page: str | Path, **options) -> Tab:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        return Tab(context.new_page(), report_of(page) if isinstance(page, str) else page)

    yield call
    for context in contexts:
        context.close()


def write(target: Path, run: Run, tariff: Tariff | None = None) -> Path:
    """Write the report of a run."""
    write_report(target, analyze_run(run, catalog.scenarios()), tariff)
    return target


def measure(folder: Path) -> Path:
    """Measure one network with ONNX Runtime, whose environment is the smallest, and return the report."""
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("onnxruntime",), devices=("cpu",))
    options = Options("local", profile="quick", data="synthetic")
    prepared = workflow.prepare(selection, options, Sources.from_environment())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine_lock, "PATH", folder / "lock")
        outcome = workflow.start(prepared, folder / "run", Silent())
    assert all(record.ok for record in outcome.analysis.run.records)
    return outcome.report
