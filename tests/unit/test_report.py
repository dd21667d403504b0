"""The report: what it must say, that nothing in a record can become markup, that it needs nothing from outside."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kit.analysis.run_analysis import analyze_run
from kit.analysis.summaries import ratios, summarise
from kit.model.errors import UsageError
from kit.model.plan import PlannedLaunch
from kit.model.record import HostSamples
from kit.planning import catalog
from kit.report import charts, text
from kit.report import tuned as tuned_section
from kit.report.parts import Bar
from kit.report.render import render, write_report
from kit.report.view import make_view
from scenarios.contract.reasons import Status
from scenarios.contract.result import Search, Tried, Tuning
from tests import examples
from tests.examples import cell, failed, machine, record, request


class Document(HTMLParser):
    """Tags with their attributes, and the text outside style and SVG."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def plan(requests):
    fields = [name for name in PlannedLaunch.model_fields if name != "named"]
    return examples.plan([PlannedLaunch(named=False, **{name: getattr(r, name) for name in fields}) for r in requests])


def view_of(records, requests=None, probes=(), tunings=(), **changes):
    titles = {name: f.title for name, f in catalog.frameworks().items()}
    planned = plan(requests or [r.request for r in records]).model_copy(update=changes)
    return make_view(analyze_run(planned, machine(), records, probes, catalog.scenarios(), tunings), titles)


def document(records, requests=None, probes=()) -> Document:
    return Document(render(view_of(records, requests, probes)))


def test_every_measured_number_is_shown_with_its_unit():
    shown = document([record(request(cell()), images_per_s=12345.0)]).text
    assert "12,300" in shown
    assert "≈ 4.86 s" in shown  # 60,000 images at 12,345 a second, projected
    assert "1.50 / 2.00 / 3.00" in shown
    assert "61,700 (b256)" in shown
    assert "one launch have no interval" in shown


def test_synthetic_data_is_marked_wherever_it_was_measured():
    real, made = request(cell("cifar-cnn"), data="real"), request(cell("mnist-cnn"))
    page = document([record(real), record(made)])
    assert "accuracies say nothing about the real task: mnist-cnn." in page.text
    # once in the summary, once at the section, once in the section's table
    assert [a.get("class") for t, a in page.tags if t == "span"].count("badge") == 3


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_what_failed_is_shown_with_reason_and_remedy_and_without_a_speed(status):
    page = document([failed(request(cell()), status, message="The disk fell off.", remedy="Put it back on.")])
    for words in (
        str(status),
        "The disk fell off.",
        "Put it back on.",
        "mnist-cnn/torch/cpu #1",
        "Nothing was measured",
    ):
        assert words in page.text


def test_launches_without_a_record_are_shown_as_not_run():
    done, planned = request(cell()), request(cell("cifar-cnn"))
    page = document([record(done)], [done, planned])
    assert "1 planned launches have no record" in page.text
    assert f"1: {planned.key} #1" in page.text


def test_cuda_against_cpu_is_a_ratio_of_equal_cells_only():
    cpu, cuda = request(cell(device="cpu")), request(cell(device="cuda"))
    other = request(cell("cifar-cnn", device="cuda"))
    records = [record(cpu, images_per_s=100.0), record(cuda, images_per_s=2000.0), record(other, images_per_s=1.0)]
    found = ratios(summarise(records), records)
    assert [(r.numerator.key, r.ratio) for r in found] == [(cuda.key, 20.0)]
    assert "20×" in document(records).text


def test_the_fastest_is_named_only_where_several_frameworks_ran():
    alone = [record(request(cell(scenario))) for scenario in ("mnist-cnn", "cifar-cnn")]
    assert "Trained fastest" not in document(alone).text
    rival = record(request(cell(framework="onnxruntime")), images_per_s=2000.0)
    single = "several frameworks ran a scenario: ONNX Runtime in 1 (of one launch each: near ones may change places)."
    assert single in document([*alone, rival]).text
    both = [
        record(request(cell(framework=name), launch=n), images_per_s=speed + n)
        for name, speed in (("torch", 1000.0), ("onnxruntime", 2000.0))
        for n in (1, 2, 3)
    ]
    other = record(request(cell("cifar-cnn")), images_per_s=1.0)
    assert "several frameworks ran a scenario: ONNX Runtime in 1." in document([*both, other]).text
    even = [record(request(cell(framework="tensorflow"), launch=n), images_per_s=2000.0 + n) for n in (1, 2, 3)]
    assert "several frameworks ran a scenario: a tie of the fastest in 1." in document([*both, *even]).text


def test_cells_that_differ_in_more_than_the_framework_are_no_contest():
    rival = cell(framework="onnxruntime")
    for other in (replace(rival, device="cuda"), replace(rival, precision="bf16"), replace(rival, lane="tuned")):
        page = document([record(request(cell())), record(request(other), images_per_s=2000.0)])
        assert "Trained fastest" not in page.text
    real = record(request(rival, data="real"), images_per_s=2000.0)
    assert "Trained fastest" not in document([record(request(cell())), real]).text


def test_a_curve_of_very_many_epochs_is_drawn_with_its_last_one():
    records = [record(request(cell(framework=name)), epochs=2000) for name in ("torch", "tensorflow", "onnxruntime")]
    view = view_of(records)
    (section,) = view.sections
    drawn = {point.epoch for point in section.curve}
    assert len(drawn) <= 300
    assert max(drawn) == 2000
    assert "<svg" in render(view)


def test_each_batch_size_of_a_scenario_has_its_own_row_and_section():
    sizes = {32: 111.0, 64: 222.0}
    cells = {batch: replace(cell(), batch=batch) for batch in sizes}
    view = view_of([record(request(cells[batch]), images_per_s=speed) for batch, speed in sizes.items()])
    assert [row[:2] for row in view.summary.rows] == [("mnist-cnn/b32", "111 ★"), ("mnist-cnn/b64", "222 ★")]
    assert [section.label for section in view.sections] == ["mnist-cnn/b32", "mnist-cnn/b64"]


def test_a_cell_is_the_geometric_mean_of_its_launches_and_shows_their_spread():
    first = request(cell())
    records = [record(replace(first, launch=n + 1), images_per_s=v) for n, v in enumerate((500.0, 1000.0, 2000.0))]
    (summary,) = summarise(records)
    assert (summary.lowest, summary.highest, summary.launches) == (500.0, 2000.0, 3)
    assert summary.images_per_s == pytest.approx(1000.0)
    assert "3: 500 to 2,000" in document(records).text


def test_whole_epochs_show_their_accuracy_and_a_learning_curve():
    html = render(view_of([record(request(cell("cifar-cnn")), epochs=6)]))
    assert "84.00 %" in html
    assert "Accuracy over epochs" in html
    assert "≈ 50" not in html


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def test_no_text_from_a_record_becomes_markup():
    wanted = request(cell())
    hostile = replace(wanted, scenario=HOSTILE, framework=HOSTILE, variant=HOSTILE, key=HOSTILE)
    ok = record(wanted).model_copy(update={"request": hostile, "key": HOSTILE, "data_note": HOSTILE, "engine": HOSTILE})
    bad = failed(wanted, message=HOSTILE, remedy=HOSTILE)
    html = render(
        make_view(
            analyze_run(
                plan([wanted]).model_copy(update={"profile": HOSTILE, "run": HOSTILE}),
                machine(cpu_model=HOSTILE),
                [ok, bad],
                [],
                catalog.scenarios(),
            ),
            {},
        )
    )
    page = Document(html)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "iframe", "object", "link"}
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    assert HOSTILE in page.text


def test_texts_that_xml_or_utf_8_cannot_hold_are_shown_without_them(tmp_path):
    wanted = request(cell())
    odd = "a\x00\x1b[2J\ufffe\ud800b"
    shown = record(wanted, epochs=2).model_copy(update={"request": replace(wanted, framework=odd), "engine": odd})
    page = write_report(tmp_path / "report.html", analyze_run(plan([wanted]), machine(os=odd), [shown], [], {}))
    assert "a??[2J??b" in page.read_text(encoding="utf-8")


def test_a_failed_launch_whose_proof_has_no_check_is_shown():
    left = examples.result(request(cell()))
    unproven = failed(request(cell())).model_copy(
        update={"result": replace(left, proof=replace(left.proof, checks=[]))}
    )
    assert "0 of 0" in document([unproven]).text


def test_the_file_needs_nothing_from_outside():
    html = render(view_of([record(request(cell()))]))
    references = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"url\((?!#)|@import", html)
    assert "default-src 'none'" in html


def test_a_chart_labels_each_bar_with_its_number():
    svg = charts.bars("Training, images/s", (Bar("A & B", "cpu", 1234.0), Bar("A & B", "cuda", 99999.0)))
    assert svg.startswith("<svg")
    assert "e+" not in svg  # axis numbers as people write them
    for words in ("Training, images/s", "A &amp; B", "1,230", "100,000", "cuda"):
        assert words in svg
    lanes = [Bar("A", f"{device}{lane}", 1.0) for device in ("cpu", "cuda") for lane in ("", " bf16", " tuned")]
    svg = charts.bars("t", tuple(lanes))
    assert all(f'fill="{shade}"' in svg for shades in charts.DEVICE_COLOURS.values() for shade in shades[:3])


@pytest.mark.parametrize(
    ("value", "expected"), [(12345.6, "12,300"), (0.012345, "0.0123"), (999.9, "1,000"), (0.0, "0"), (None, "–")]
)
def test_numbers_have_three_significant_digits(value, expected):
    assert text.number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.85, "850 ms"), (12.34, "12.3 s"), (252.0, "4.20 min"), (9000.0, "2.50 h"), (None, "–")]
)
def test_durations_choose_their_unit(value, expected):
    assert text.seconds(value) == expected


def test_times_are_shown_in_utc_to_the_minute():
    assert text.moment("2026-01-02T03:04:05+01:00") == "2026-01-02 02:04 UTC"
    assert text.moment("some time") == "some time"


def test_the_report_replaces_the_old_one_whole(tmp_path):
    target = tmp_path / "index.html"
    target.write_text("<!doctype html> old")
    of = request(cell())
    assert write_report(target, analyze_run(plan([of]), machine(), [record(of)], [], {})) == target
    assert target.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("kind", ["plan", "folder", "pipe"])
def test_the_report_replaces_nothing_else(tmp_path, kind):
    target = tmp_path / "plan.json"
    {"plan": lambda: target.write_text("{}"), "folder": target.mkdir, "pipe": lambda: os.mkfifo(target)}[kind]()
    with pytest.raises(UsageError, match="no report"):
        write_report(target, analyze_run(plan([request(cell())]), machine(), [], [], {}))
    assert list(tmp_path.iterdir()) == [target]
    assert kind != "plan" or target.read_text() == "{}"


def probe(device="cpu"):
    asked = request(key=f"ceilings/torch/{device}/fp32", purpose="probe", device=device)
    return record(asked)


def watched(of, **series):
    """A record whose launch the host watched for three samples."""
    host_samples = HostSamples(at=[1.0, 6.0, 11.0], series=series, core_busy=[1.0, 0.5], cost_s=0.002)
    return record(of).model_copy(update={"host_samples": host_samples})


def test_intervals_ties_and_the_clearly_slower_are_told_apart():
    speeds = {"torch": 1000.0, "tensorflow": 1005.0, "onnxruntime": 800.0}
    records = [
        record(request(cell(framework=name), launch=n), images_per_s=speed * (1 + 0.01 * (n % 3)))
        for name, speed in speeds.items()
        for n in range(1, 6)
    ]
    view = view_of(records)
    (row,) = view.summary.rows
    shown = dict(zip(view.summary.headers, row, strict=True))
    assert "★" in shown["TensorFlow cpu"]
    assert "☆" in shown["PyTorch cpu"]
    assert not {"★", "☆"} & set(shown["ONNX Runtime cpu"])
    assert all("±" in shown[name] for name in shown if name != "Scenario")
    verdicts = {row[1]: row[3] for row in view.frameworks.rows}
    assert "tie" in verdicts["mnist-cnn/torch/cpu"]
    assert "tie" not in verdicts["mnist-cnn/onnxruntime/cpu"]
    training = view.sections[0].bars["Training, images/s"]
    assert all(bar.low < bar.value < bar.high for bar in training)
    without = tuple(replace(bar, low=None, high=None) for bar in training)
    assert charts.bars("t", training).count("mark-rule") == charts.bars("t", without).count("mark-rule") + 1


def test_what_holds_a_cell_back_stands_beside_the_ceilings():
    page = document([record(request(cell()))], probes=[probe()]).text
    assert "100 GFLOP/s" in page  # the ceiling
    assert "What holds it back" in page
    assert "15.4 GFLOP/s" in page  # 1,000 images/s of 15.4 MFLOP
    assert "15.4 %" in page


def test_what_the_host_saw_becomes_warnings_charts_and_energy():
    quiet = document([watched(request(cell()), cpu_busy=[1.9, 1.9, 1.9], cpu_steal=[0.0, 0.0, 0.0])])
    series = {"cpu_busy": [4.0, 4.0, 4.0], "cpu_steal": [0.0, 0.0, 0.0], "cpu_energy_j": [0.0, 500.0, 1000.0]}
    busy = view_of([watched(request(cell()), **series)])
    assert "Other processes" not in quiet.text
    assert [t.title for t in busy.timelines] == ["CPUs busy"]
    assert any("2.1" in cause and "Other processes" in cause for _, cause, _ in busy.warnings.rows)
    assert busy.energy.headers == ("Cell", "cpu")
    assert "svg" in charts.timeline(busy.timelines[0])
    assert any("Sampling the host took 0.20 % of one CPU" in paragraph for paragraph in busy.method)
    assert busy.launches.rows[0][-1] == "100 % / 50 %"


def test_what_made_a_tuned_cell_fast_is_shown_with_all_that_was_tried():
    stock = cell()
    tuned = replace(stock, lane="tuned")
    records = [
        record(request(of, launch=n), images_per_s=speed * (1 + 0.001 * n))
        for of, speed in ((stock, 1000.0), (tuned, 1600.0))
        for n in (1, 2, 3)
    ]
    search = record(request(tuned, purpose="tune"))
    tried = [Tried(examples.SETTINGS, [1.5, 1.4], [1500.0]), Tried({"layout": "nhwc"}, [], [], "It crashed.")]
    tuning = Tuning(examples.SETTINGS, [Search("training", examples.SETTINGS, [Tried({}, [], [1000.0]), *tried], 50.0)])
    search = search.model_copy(update={"result": replace(search.result, tuning=tuning)})
    view = view_of(records, tunings=[search])
    ((name, settings, source, gained, gain, interval),) = view.tuned.rows
    assert (name, settings) == ("mnist-cnn/torch/cpu/tuned/fp32", "layout: nhwc, allocator: tcmalloc")
    assert (source, gained, gain) == ("searched, 2026-01-01 00:00 UTC", "training 1.45×", "1.6×")
    assert "Tuned against stock in training: 1.6×." in view.verdict
    assert tuned_section.METHOD in view.method
    assert re.fullmatch(r"1\.\d+ to 1\.\d+", interval)
    assert [row[2:] for row in view.tried.rows] == [
        ("as in stock", text.MISSING, "", "1,000 images/s", ""),
        ("layout: nhwc, allocator: tcmalloc", "1.45×", "1.40 to 1.50", "1,500 images/s", "chosen"),
        ("layout: nhwc", text.MISSING, "", "", "It crashed."),
    ]
    page = Document(render(view)).text
    assert "What made it fast" in page
    assert "It crashed." in page
    kept = view_of(records, tunings=[search.model_copy(update={"started_at": "2025-12-31T00:00:00+00:00"})])
    assert [row[2] for row in kept.tuned.rows] == ["searched in an earlier run, 2025-12-31 00:00 UTC"]
    crashed = Tuning(
        {}, [Search("training", {}, [Tried({}, [], [], "It crashed.")], 5.0), Search("latency", {}, [], 0.0)]
    )
    broken = view_of(records, tunings=[search.model_copy(update={"result": replace(search.result, tuning=crashed)})])
    assert [row[1:3] for row in broken.tuned.rows] == [("as in stock", "the search broke off: It crashed.")]
    assert [row[-1] for row in broken.tried.rows] == ["It crashed.", "no time was left for it"]
    pinned = view_of(records, pinned={tuned.key: {}})
    assert [row[1:] for row in pinned.tuned.rows] == [("as in stock", "pinned", "", text.MISSING, "the same as stock")]
    assert pinned.tried is None
    assert "What made it fast" not in document([record(request(stock))]).text
