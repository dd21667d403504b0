"""Compare documents with committed files. `KIT_UPDATE_GOLDEN=1` writes the files again after an intended change."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kit.model.document import Document
from kit.model.pack import Manifest, PackedFile
from kit.model.plan import Pins
from kit.model.run_summary import RunSummary, SectionLink
from scenarios.contract.codec import to_json
from scenarios.contract.reasons import Code, Status
from tests import examples, records_doc

GOLDEN = Path(__file__).parents[1] / "golden"
DOCUMENTS = {
    "record-ok.json": examples.record(epochs=2),
    "record-failed.json": examples.failed(message="It failed.", remedy="Look."),
    "record-skipped.json": examples.failed(
        examples.request(device="cuda"), Status.SKIPPED, Code.NO_DEVICE, "No GPU.", "Use a GPU."
    ).model_copy(update={"request": None}),
    "record-probe.json": examples.record(
        replace(examples.request(), cell=examples.probe_cell(), spec="", purpose="probe")
    ),
    "record-tuning.json": examples.record(examples.request(lane="tuned", purpose="tune")),
    "plan.json": examples.plan([examples.planned(1), examples.planned(2), examples.planned(1, device="cuda")]),
    "machine.json": examples.machine(gpus=[examples.gpu()], driver="580.65.06", cuda_driver="13.0"),
    "manifest.json": Manifest(
        run="r1",
        kit="0.1.0",
        files=[PackedFile(name=name, size=2, sha256="0" * 64) for name in ("machine.json", "plan.json")],
    ),
    "summary.json": RunSummary(
        records=2,
        headline="It trains mnist-cnn at 1,000 images/s",
        detail="To train, PyTorch in 1 of 1 network",
        reliability="First look",
        warnings=1,
        problems="1 launch failed",
        sections=[SectionLink(anchor="training", title="Training")],
    ),
    "settings.json": Pins(cells={examples.request(lane="tuned").cell.key: examples.SETTINGS}),
}


def check(file: Path, text: str) -> None:
    """Compare a text with a committed file, or write the file on request."""
    if os.environ.get("KIT_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "if the change is intended, run again with KIT_UPDATE_GOLDEN=1"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_keep_their_format(name):
    document: Document = DOCUMENTS[name]
    check(GOLDEN / name, document.to_json())
    assert type(document).from_json((GOLDEN / name).read_text(), name) == document


def test_requests_and_results_keep_their_format():
    check(GOLDEN / "request.json", to_json(examples.request()) + "\n")
    check(GOLDEN / "result.json", to_json(examples.result(examples.request(), epochs=2)) + "\n")


def test_the_page_about_the_formats_is_current():
    assert records_doc.PAGE.read_text(encoding="utf-8") == records_doc.make_page(), "run `make docs`"


def test_every_document_type_is_covered():
    assert {type(document) for document in DOCUMENTS.values()} == set(Document.__subclasses__())
