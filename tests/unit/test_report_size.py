"""Test the size of the report of many cells, and the robust slope of many launches."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.made_up_run import write_run
from kit.analysis import robust
from kit.analysis.run_analysis import analyze_run
from kit.planning import catalog
from kit.report.render import write_report
from kit.storage.run_folder import RunFolder


def test_the_report_of_36_cells_with_3_launches_has_less_than_500_kb(tmp_path):
    write_run(tmp_path / "run", 108, seconds=3)
    analysis = analyze_run(RunFolder.open(tmp_path / "run").read(), catalog.scenarios())
    assert len(analysis.cells) == 36
    write_report(tmp_path / "report.html", analysis)
    assert (tmp_path / "report.html").stat().st_size < 500_000


@pytest.mark.parametrize("count", [robust.ALL_SLOPES, robust.ALL_SLOPES + 1, robust.ALL_SLOPES + 2])
@pytest.mark.parametrize("digits", [0, 2, 15])  # all values equal, many ties, none
def test_the_slope_of_a_long_series_is_exactly_the_median_of_all_slopes(count, digits):
    noise = np.random.default_rng(0)
    values = np.round(noise.normal(1, 0.1, count), digits)
    first, second = np.triu_indices(count, 1)
    assert robust.theil_sen(values) == np.median((values[second] - values[first]) / (second - first))
