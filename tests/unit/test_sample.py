"""Read the sample that is committed in reports/sample."""

from pathlib import Path

from benchmarks.sample import MAX_BYTES, require_no_photo
from kit.analysis.run_analysis import analyze_run
from kit.model.progress import Silent
from kit.planning import catalog
from kit.report.render import write_report
from kit.storage.run_folder import RunFolder
from kit.storage.unpacking import unpack
from scenarios.contract.reasons import Status

SAMPLE = Path(__file__).parents[2] / "reports/sample"
LAUNCHES = 90  # 6 networks, 3 frameworks, 5 rounds


def test_the_sample_is_small_has_no_photo_and_its_pack_still_makes_a_report(tmp_path: Path) -> None:
    assert sum(file.stat().st_size for file in SAMPLE.iterdir()) < MAX_BYTES
    run = RunFolder.open(unpack(SAMPLE / "run.tar.xz", tmp_path, Silent())).read()
    assert not run.unusable
    assert sum(record.status is Status.OK for record in run.records) == LAUNCHES
    committed = SAMPLE / "index.html"
    require_no_photo(committed.read_bytes(), run.pictures.values())
    view = write_report(tmp_path / "again.html", analyze_run(run, catalog.scenarios(), catalog.frameworks()))
    assert view.title in committed.read_text()
