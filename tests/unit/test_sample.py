"""Read the samples that are committed in reports/sample."""

from pathlib import Path

import pytest

from benchmarks.sample import MAX_BYTES, PACK, PAGE, require_no_photo
from kit.analysis.run_analysis import analyze_run
from kit.model.progress import Silent
from kit.planning import catalog
from kit.report.render import write_report
from kit.storage.run_folder import RunFolder
from kit.storage.unpacking import unpack
from scenarios.contract.reasons import Status

SAMPLE = Path(__file__).parents[2] / "reports/sample"
FOLDERS = [SAMPLE, *sorted(entry for entry in SAMPLE.iterdir() if entry.is_dir())]  # of all scenarios, of studies


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_sample_is_small_has_no_photo_and_its_pack_still_makes_a_report(folder: Path, tmp_path: Path) -> None:
    assert {file.name for file in folder.iterdir() if file.is_file()} == {PACK, PAGE}
    assert sum((folder / name).stat().st_size for name in (PACK, PAGE)) < MAX_BYTES
    run = RunFolder.open(unpack(folder / PACK, tmp_path, Silent())).read()
    assert not run.unusable
    cuda = [record for record in run.records if record.cell.device == "cuda"]
    assert all(record.status is Status.SKIPPED for record in cuda), "the machine has no GPU"
    assert all(record.status is Status.OK for record in run.records if record not in cuda)
    assert len(cuda) < len(run.records)
    assert not run.not_run
    committed = folder / PAGE
    require_no_photo(committed.read_bytes(), run.pictures.values())
    view = write_report(tmp_path / "again.html", analyze_run(run, catalog.scenarios(), catalog.frameworks()))
    assert view.title in committed.read_text()
