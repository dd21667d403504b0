"""Tests of the report: its content, the escaping of text from records, and that it needs no external resource."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from kit.analysis.pairing import Measure
from kit.analysis.run_analysis import analyze_run
from kit.analysis.summaries import summarize
from kit.model.errors import DiskError, UsageError
from kit.model.plan import PlannedLaunch
from kit.model.record import HostSamples
from kit.model.run import Run, UnusableFile
from kit.model.tariff import Tariff
from kit.planning import catalog, studies
from kit.report import sections, text
from kit.report.marks import make_marks
from kit.report.notices import Line
from kit.report.render import render, write_report
from kit.report.rows import Rows
from kit.report.run_index import write_index
from kit.report.section import Section
from kit.report.sections import method
from kit.report.view import discover, make_view
from scenarios.contract.cell import CEILINGS
from scenarios.contract.reasons import Code, Status
from scenarios.contract.result import Search, Tried, Tuning
from tests import example_run, examples
from tests.examples import cell, failed, machine, record, request

GOLDEN = Path(__file__).parents[1] / "golden/view.json"


class Document(HTMLParser):
    """The tags of a page with their attributes, and its text."""

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
    return examples.plan([PlannedLaunch(cell=r.cell, launch=r.launch, named=False) for r in requests])


def analyze(requests, records, probes=(), tunings=(), on=None, **changes):
    run = Run(plan(requests).model_copy(update=changes), on or machine(), records, probes, tunings)
    return analyze_run(run, catalog.scenarios())


def view_of(records, requests=None, probes=(), tunings=(), **changes):
    titles = {name: f.title for name, f in catalog.frameworks().items()}
    return make_view(analyze(requests or [r.request for r in records], records, probes, tunings, **changes), titles)


def data_of(view):
    return {section.anchor: data for section, data in (*view.open, *view.folded)}


def calls_of(view, section="training", table="table"):
    """Return the verdicts of a table of the report as text."""
    rows = [row for network in getattr(data_of(view)[section], table).networks for row in network.rows]
    return [" ".join([*row.call.frameworks, row.call.text]) for row in rows if row.call]


def tuned_of(records, **changes):
    return data_of(view_of(records, **changes))["tuned"]


def document(records, requests=None, probes=()) -> Document:
    return Document(render(view_of(records, requests, probes)))


def test_every_measured_number_is_shown_with_its_unit():
    shown = document([record(request(cell()), images_per_s=12345.0)]).text
    assert "12,300" in shown
    assert "≈ 4.86 s" in shown  # 60,000 images at 12,345 per second, projected
    assert "1.50 / 2.00 / –" in shown
    assert "61,700 256" in shown  # images/s, and images per call
    assert "One launch does not show how much launches differ" in shown


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "Example CPU, 1 core, no GPU"),
        ({"gpus": [examples.gpu(), examples.gpu(index=1)]}, "Example CPU, 1 core, 2 × NVIDIA H200"),
        ({"cpu_model": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"}, "Intel Xeon Gold 6148, 1 core, no GPU"),
        ({"cpu_model": "AMD EPYC 7B13 64-Core Processor", "cpus": 1}, "AMD EPYC 7B13, 1 CPU, no GPU"),
        ({"cpu_model": ""}, "Unknown CPU, 1 core, no GPU"),
    ],
)
def test_the_title_is_the_machine(changes, expected):
    assert make_view(analyze([request(cell())], [], on=machine(**changes)), {}).title == expected


def test_what_nvml_does_not_report_of_a_gpu_is_shown_as_unknown():
    refused = {"memory_bytes": None, "compute_capability": None, "power_limit_w": None}
    on = machine(gpus=[examples.gpu(), examples.gpu(index=1, **refused)])
    shown = Document(render(make_view(analyze([request(cell())], [], on=on), {}))).text
    assert "NVIDIA H200, 150 GiB, capability 9.0, power limit 700 W" in shown
    assert "NVIDIA H200, memory unknown, capability unknown" in shown


def test_synthetic_data_is_named_once():
    real, made = request(cell("cifar-cnn"), data="real"), request(cell("mnist-cnn"))
    view = view_of([record(real), record(made)])
    assert Document(render(view)).text.count("Synthetic data for mnist-cnn: ") == 1
    assert view.notices == ()
    networks = {row[0]: row[2] for row in data_of(view)["figures"].networks.rows}
    assert networks == {"cifar-cnn": "real", "mnist-cnn": "synthetic"}
    facts = [fact.text for fact in view_of([record(made)]).reliability.facts]
    assert [text for text in facts if "ynthetic" in text] == [
        "Synthetic data: speeds are estimates, accuracies say nothing"
    ]


def test_the_networks_say_how_photos_are_scaled():
    view = view_of([record(request(cell("catdog-cnn"))), record(request(cell("mnist-cnn")))])
    assert {row[0]: row[4] for row in data_of(view)["figures"].networks.rows} == {
        "catdog-cnn": "Cats and dogs, 64×64×3, photos scaled by nearest neighbor",
        "mnist-cnn": "MNIST, 28×28×1",
    }


def test_learning_curves_end_with_a_mark_and_have_a_table():
    long, short = (record(request(cell(framework=name)), epochs=n) for name, n in (("torch", 70), ("tensorflow", 2)))
    (chart,) = data_of(view_of([long, short]))["synthetic-curves"].charts
    assert [(line.name, len(line.marks)) for line in chart.lines.lines] == [
        (f"{name}, {part}", 1) for name in ("TensorFlow", "PyTorch") for part in ("test", "train")
    ]
    assert chart.table.headers == ("Epoch", "TensorFlow", "PyTorch")
    rows = {row[0]: row[1:] for row in chart.table.rows}
    assert [*rows] == [str(epoch) for epoch in range(1, 71, 3)], "at most 30 rows, with the last epoch"
    assert rows["1"] == ("79.0% / 80.0%", "79.0% / 80.0%")
    assert rows["4"] == ("–", "82.0% / 83.0%")


def test_learning_curves_say_which_values_of_a_sweep_and_which_lane_they_show():
    def trained(**changes):
        return record(request(cell(), data="real", **changes), epochs=2)

    curves = data_of(view_of([trained(), trained(batch=2048), trained(batch=2048, lane="tuned", precision="bf16")]))
    found = curves["curves"]
    assert [chart.lines.title for chart in found.charts] == [
        "Small CNN on MNIST, batch 64",
        "Small CNN on MNIST, batch 2048",
        "Small CNN on MNIST, batch 2048, tuned, bf16",
    ]
    assert all(len({line.dash for line in chart.lines.lines}) == 2 for chart in found.charts)
    assert len(data_of(view_of([trained()]))["curves"].charts[0].lines.title.split(",")) == 1


def test_the_means_of_a_gpu_are_those_of_each_batch_size():
    series = {"gpu0_use": [0.5] * 40}
    samples = HostSamples(at=[0.5 * i for i in range(40)], series=series, core_busy=[], cost_s=0.0)
    sizes = [record(request(cell(device="cuda"), batch=batch), host_samples=samples) for batch in (32, 2048)]
    means = data_of(view_of(sizes))["gpu-samples"].means
    assert [row[0] for row in means.rows] == ["Small CNN on MNIST, batch 32", "Small CNN on MNIST, batch 2048"]


def test_an_optimizer_has_its_usual_name():
    (row,) = data_of(view_of([record(request(cell("cifar-mlp")))]))["figures"].networks.rows
    assert row[5] == "SGD, learning rate 0.01"


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_what_failed_is_shown_with_reason_and_remedy_and_without_a_speed(status):
    page = document([failed(request(cell()), status, message="The disk fell off.", remedy="Put it back on.")])
    for words in (
        status.words,
        "The disk fell off.",
        "Put it back on.",
        "mnist-cnn/torch/cpu #1",
        "Nothing was measured",
    ):
        assert words in page.text


def test_launches_without_a_record_are_shown_as_not_run():
    done, planned = request(cell()), request(cell("cifar-cnn"))
    page = document([record(done)], [done, planned])
    assert "1 planned launch has no record. Continue with kit run --resume r1" in page.text
    assert f"1: {planned.cell.key} #1" in page.text


def test_cuda_against_cpu_is_a_ratio_of_equal_cells_only():
    cpu, cuda = request(cell(device="cpu")), request(cell(device="cuda"))
    other = request(cell("cifar-cnn", device="cuda"))
    records = [record(cpu, images_per_s=100.0), record(cuda, images_per_s=2000.0), record(other, images_per_s=1.0)]
    found = analyze_run(examples.run(records), catalog.scenarios()).ratios[Measure.TRAINING]
    assert [(r.numerator.key, r.ratio) for r in found] == [(cuda.cell.key, 20.0)]
    assert "20×" in document(records).text


def test_the_fastest_is_named_only_if_several_launches_show_it():
    alone = [record(request(cell(scenario))) for scenario in ("mnist-cnn", "cifar-cnn")]
    assert calls_of(view_of(alone)) == []
    rival = record(request(cell(framework="onnxruntime")), images_per_s=2000.0)
    view = view_of([*alone, rival])
    assert calls_of(view) == ["onnxruntime 2.0× as fast as PyTorch"]
    assert data_of(view)["training"].table.call == "In one launch each"
    equal = record(request(cell(framework="onnxruntime")), images_per_s=1010.0)
    assert calls_of(view_of([*alone, equal])) == ["too close to call"]
    assert "fastest" not in Document(render(view)).text.replace("Which framework trains fastest here?", "").replace(
        "Which framework serves fastest here?", ""
    )
    both = [
        record(request(cell(framework=name), launch=n), images_per_s=speed + n)
        for name, speed in (("torch", 1000.0), ("onnxruntime", 2000.0))
        for n in (1, 2, 3)
    ]
    other = record(request(cell("cifar-cnn")), images_per_s=1.0)
    view = view_of([*both, other])
    assert calls_of(view) == ["onnxruntime fastest, 2.00× as fast as PyTorch"]
    assert calls_of(view, "inference", "throughput") == ["onnxruntime fastest, 2.00× as fast as PyTorch"]
    even = [record(request(cell(framework="tensorflow"), launch=n), images_per_s=2000.0 + n) for n in (1, 2, 3)]
    assert calls_of(view_of([*both, *even])) == ["tensorflow onnxruntime tie"]


def test_two_launches_that_differ_much_leave_a_readable_scale_and_no_tie():
    """Their intervals reach from almost zero to billions of images/s."""
    records = [
        record(request(cell(framework=name), launch=n), images_per_s=speed)
        for name, speeds in (("torch", (500.0, 1500.0)), ("onnxruntime", (6000.0, 2000.0)))
        for n, speed in enumerate(speeds, 1)
    ]
    view = view_of(records)
    assert calls_of(view) == ["onnxruntime torch undecided"]
    table = data_of(view)["training"].table
    (row,) = table.networks[0].rows
    assert [value.small for value in row.values if value] == [("uncertain",), ("uncertain",)]
    assert [tick for _, tick in table.ticks] == ["500", "1,000", "2,000", "5,000", "10,000"]
    assert [dot.whisker for dot in row.strip.dots] == [(0.0, 100.0)] * 2
    training = render(view).partition('<section id="training"')[2].partition("</section>")[0]
    assert training.count('<line class="whisker fw') == 2, "a line that goes beyond the chart has no cap at its end"


def test_cells_that_differ_in_more_than_the_framework_are_not_compared():
    rival = cell(framework="onnxruntime")
    for other in (replace(rival, device="cuda"), replace(rival, precision="bf16"), replace(rival, lane="tuned")):
        assert calls_of(view_of([record(request(cell())), record(request(other), images_per_s=2000.0)])) == []
    real = record(request(rival, data="real"), images_per_s=2000.0)
    assert calls_of(view_of([record(request(cell())), real])) == []


def test_each_batch_size_of_a_scenario_has_its_own_rows():
    sizes = {32: 111.0, 64: 222.0}
    cells = {batch: replace(cell(), batch=batch) for batch in sizes}
    data = data_of(view_of([record(request(cells[batch]), images_per_s=speed) for batch, speed in sizes.items()]))
    rows = [(network.details, network.rows[0].values[0].number) for network in data["training"].table.networks]
    assert rows == [("mnist-cnn · batch\xa032", "111"), ("mnist-cnn · batch\xa064", "222")]
    assert [row[0] for row in data["figures"].training.rows] == ["mnist-cnn/b32", "mnist-cnn/b64"]


def test_a_cell_is_the_median_of_its_launches_and_shows_their_spread():
    first = request(cell())
    records = [record(replace(first, launch=n + 1), images_per_s=v) for n, v in enumerate((500.0, 1000.0, 3000.0))]
    (summary,) = summarize(examples.run(records))
    assert (summary.lowest, summary.highest, summary.launches) == (500.0, 3000.0, 3)
    assert summary.images_per_s == pytest.approx(1000.0)
    assert "3: 500 to 3,000" in document(records).text


def test_whole_epochs_show_their_accuracy_and_a_learning_curve():
    html = render(view_of([record(request(cell("cifar-cnn")), epochs=6)]))
    assert "84.00%" in html
    assert "≈ 50" not in html


def test_cells_without_room_in_a_chart_of_learning_curves_are_counted():
    frameworks = ("tensorflow", "onnxruntime", "torch", "jax", "mxnet", "cntk", "theano", "caffe")
    records = [record(request(cell("cifar-cnn", name)), epochs=2 + number) for number, name in enumerate(frameworks)]
    page = document(records).text
    assert "Not drawn: 2 more cells." in page
    assert "after 2 to 9 epochs" in page, "the heading is about all of them"


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def test_no_text_from_a_record_becomes_markup():
    wanted = request(cell())
    hostile = examples.change(wanted, scenario=HOSTILE, framework=HOSTILE, variant=HOSTILE)
    changes = {"cell": hostile.cell, "request": hostile, "data_note": HOSTILE, "engine": HOSTILE}
    ok = record(wanted).model_copy(update=changes)
    bad = failed(wanted, message=HOSTILE, remedy=HOSTILE)
    analysis = analyze([wanted], [ok, bad], on=machine(cpu_model=HOSTILE), profile=HOSTILE, run=HOSTILE)
    html = render(make_view(analysis, {}))
    page = Document(html)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "iframe", "object", "link"}
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    assert HOSTILE in page.text


def test_texts_that_xml_or_utf_8_cannot_hold_are_shown_without_them(tmp_path):
    wanted = request(cell())
    odd = "a\x00\x1b[2J\ufffe\ud800b"
    changes = {"cell": replace(wanted.cell, framework=odd), "engine": odd}
    shown = record(wanted, epochs=2).model_copy(update=changes)
    write_report(tmp_path / "report.html", analyze([wanted], [shown], on=machine(os=odd)))
    assert "a??[2J??b" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_failed_launch_whose_proof_has_no_check_is_shown():
    left = examples.result(request(cell()))
    unproven = failed(request(cell())).model_copy(
        update={"result": replace(left, proof=replace(left.proof, checks=[]))}
    )
    assert "0 of 0" in document([unproven]).text


def test_the_file_needs_no_external_resource():
    html = render(view_of([record(request(cell()))]))
    references = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"url\((?!#)|@import", html)
    assert "default-src 'none'" in html


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


def test_the_report_replaces_an_old_one_completely(tmp_path):
    target = tmp_path / "index.html"
    target.write_text("<!doctype html><title>CPU: kit report</title> old")
    of = request(cell())
    write_report(target, analyze([of], [record(of)]))
    assert target.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [target]


def test_a_report_replaces_one_with_megabytes_in_its_title(tmp_path):
    target, of = tmp_path / "index.html", request(cell())
    long = "&" * 1_000_000
    machine_of = machine(cpu_model=long)
    shown = failed(of, message=long, remedy=long).model_copy(update={"machine": machine_of})
    for _ in range(2):
        write_report(target, analyze([of], [shown], on=machine_of))
    assert len(target.read_text()) < 500_000


@pytest.mark.parametrize("kind", ["plan", "page", "index", "folder", "pipe"])
def test_the_report_replaces_nothing_else(tmp_path, kind):
    target = tmp_path / "plan.json"
    {
        "plan": lambda: target.write_text("{}"),
        "page": lambda: target.write_text("<!doctype html><title>My page</title>"),
        "index": lambda: write_index(tmp_path).rename(target),
        "folder": target.mkdir,
        "pipe": lambda: os.mkfifo(target),
    }[kind]()
    with pytest.raises(UsageError, match="not a report"):
        write_report(target, analyze([request(cell())], []))
    assert list(tmp_path.iterdir()) == [target]
    assert kind != "plan" or target.read_text() == "{}"


def test_a_report_that_cannot_be_written_is_a_disk_error(tmp_path):
    of = request(cell())
    with pytest.raises(DiskError, match="cannot be written"):
        write_report(tmp_path / "missing" / "index.html", analyze([of], [record(of)]))


def probe(device="cpu"):
    return record(request(scenario=CEILINGS, purpose="probe", device=device, batch=1))


def watched(of, **series):
    """Return a record with three samples of the host."""
    host_samples = HostSamples(at=[1.0, 6.0, 11.0], series=series, core_busy=[1.0, 0.5], cost_s=0.002)
    return record(of).model_copy(update={"host_samples": host_samples})


def test_intervals_of_several_launches_and_the_spread_of_a_single_one_are_drawn():
    several = [record(request(cell(), launch=n), images_per_s=1000.0 + n) for n in (1, 2, 3)]
    single = record(request(cell("cifar-cnn")), images_per_s=500.0)
    table = data_of(view_of([*several, single]))["training"].table
    (first,), (second,) = (network.rows[0].strip.dots for network in table.networks)
    assert first.whisker
    assert first.whisker[0] < first.at < first.whisker[1]
    assert first.band is None
    assert second.whisker is None
    assert second.band
    assert "± " in table.networks[0].rows[0].values[0].small[0]
    assert table.networks[1].rows[0].values[0].small == ()
    assert "describes the period of this run" in document(several).text
    assert "describes the period of this run" not in document([single]).text


def test_rows_of_a_network_differ_in_device_lane_and_precision():
    cells = [
        replace(cell(), device=device, **changes)
        for device in ("cuda", "cpu")
        for changes in ({}, {"precision": "bf16"}, {"lane": "tuned"}, {"devices": 2})
        if device == "cuda" or "devices" not in changes
    ]
    (network,) = data_of(view_of([record(request(of)) for of in cells]))["training"].table.networks
    assert [row.configuration for row in network.rows] == [
        *("CPU", "CPU bf16", "CPU tuned"),
        *("GPU", "GPU bf16", "GPU tuned", "2 GPUs"),
    ]
    assert {dot.device for row in network.rows[:3] for dot in row.strip.dots} == {"cpu"}


def test_the_gpu_section_shows_where_the_gpu_loses():
    speeds = {("mnist-cnn", "cpu"): 100.0, ("mnist-cnn", "cuda"): 50.0, ("cifar-cnn", "cpu"): 10.0}
    speeds["cifar-cnn", "cuda"] = 70.0
    once, *more = (
        [record(request(cell(name, device=device), launch=n), speed) for (name, device), speed in speeds.items()]
        for n in (1, 2, 3)
    )
    single = data_of(view_of(once))["gpu"]
    assert single.heading.endswith(
        "0.50× to 7.0× the speed of the CPU, best cell against best cell, in one launch each"
    )
    assert single.training.networks[0].rows[0].strip.dots[0].text == "PyTorch: 0.50×, in one launch each"
    records = [*once, *more[0], *more[1]]
    data = data_of(view_of(records))["gpu"]
    assert "0.50× to 7.0×" in data.heading
    assert data.heading.endswith("; slower for Small CNN on MNIST")
    zone = {network.rows[0].strip.zone for network in data.training.networks}
    slow, fast = (network.rows[0].strip.dots[0].at for network in data.training.networks)
    assert zone == {data.training.zones[0]}
    assert slow < data.training.zones[0] < fast
    assert [row.configuration for row in data.inference.networks[0].rows] == ["Throughput", "Latency"]
    without = data_of(view_of(records[:1]))["gpu"]
    assert without.heading == "Not measured: no cell on the GPU was selected"
    assert without.training is None


def test_a_plan_without_launches_says_so_and_gives_no_command():
    run = Run(examples.plan([]), machine(), [])
    failure = make_view(analyze_run(run, catalog.scenarios()), {}).failure
    assert failure
    assert failure.headline == "Nothing was measured, because the plan of the run has no launches"
    assert failure.steps == ()
    broken = Run(examples.plan([]), machine(), [], unusable=[UnusableFile("records/x.json", "x is broken.", "Mend x.")])
    failure = make_view(analyze_run(broken, catalog.scenarios()), {}).failure
    assert failure
    assert failure.reasons == ("x is broken.",)


def test_a_run_without_an_ok_launch_shows_the_reason_and_numbered_steps():
    broken = failed(request(cell()), message="The disk fell off.", remedy="Put it back on.")
    view = view_of([broken, failed(request(cell("cifar-cnn")), message="The disk fell off.", remedy="Put it back on.")])
    assert view.open == ()
    assert view.failure
    assert view.failure.reasons == ("2 launches (failed): The disk fell off.",)
    assert [step.text for step in view.failure.steps[:2]] == ["Put it back on.", "Check this machine:"]
    assert view.failure.steps[2] == Line("Retry the failed launches:", "kit run --resume r1 --retry-failed")
    skipped = failed(request(replace(cell(), precision="tf32")), Status.SKIPPED, Code.NOT_OFFERED)
    (*_, again) = view_of([skipped]).failure.steps
    assert again.text == "Run it again:"
    assert again.command.startswith("kit run --scenario mnist-cnn --framework torch ")
    assert again.command.endswith(" --profile quick")
    page = document([broken])
    assert "What to do next:" in page.text
    assert "How reliable" not in page.text
    assert "method" not in data_of(view)
    assert "ol" in {tag for tag, _ in page.tags}
    empty = make_view(analyze([request(cell())], []), {})
    assert empty.failure
    assert [step.command for step in empty.failure.steps] == ["kit run --resume r1"]


def test_files_that_cannot_be_used_are_listed_and_the_rest_is_shown():
    lost = UnusableFile("records/<b>.json", "records/<b>.json is not a valid record: empty.", "Restore it.")
    analysis = analyze([request(cell())], [record(request(cell()))])
    run = replace(analysis.run, unusable=[lost, replace(lost, file="records/c.json")])
    view = make_view(analyze_run(run, catalog.scenarios()), {})
    assert [line.text for line in view.notices] == [
        "2 files of records cannot be used, and are missing here. See “Failed or skipped”."
    ]
    assert ("not readable", lost.error, lost.remedy, "2: records/<b>.json and records/c.json") in data_of(view)[
        "problems"
    ].rows
    assert data_of(view)["problems"].summary == "2 files not readable"
    assert "training" in data_of(view)
    nothing = make_view(analyze_run(replace(run, records=[]), catalog.scenarios()), {})
    assert nothing.failure
    assert nothing.failure.headline == "Nothing can be shown: 2 files of records cannot be used"
    assert [step.text for step in nothing.failure.steps] == ["Restore it."]
    assert "<b>" not in render(nothing)


def test_skipped_cells_take_one_line():
    skipped = [
        failed(request(cell(name, device="cuda")), Status.SKIPPED, message="No NVIDIA GPU is visible.")
        for name in ("mnist-cnn", "cifar-cnn")
    ]
    view = view_of([record(request(cell())), *skipped])
    assert view.notices[0].text == "Skipped: 2 cells on the GPU. No NVIDIA GPU is visible."
    assert data_of(view)["problems"].summary == "2 launches skipped"
    failure = view_of([*skipped, failed(request(cell()))])
    assert data_of(failure)["problems"].summary == "2 launches skipped, 1 launch failed"


def test_no_line_break_separates_a_sign_from_its_number_in_answers_and_headings():
    view = view_of(
        [
            record(request(cell(framework=name), launch=n), 900.0 + 99 * n)
            for name in ("torch", "tensorflow")
            for n in (1, 2)
        ]
    )
    assert "± " in f"{view.answers.all} {view.reliability.facts}"
    html = render(view)
    top = html[html.index('<div class="answers">') : html.index("</header>")]
    assert "±\u00a0" in top
    assert "± " not in top


def test_frameworks_have_a_fixed_order_color_and_shape():
    marks = make_marks({"zebra": "Zebra", "torch": "PyTorch", "ant": "Ant", "tensorflow": "TensorFlow"})
    assert {name: mark.color for name, mark in marks.items()} == {
        "tensorflow": "c1",
        "torch": "c3",
        "ant": "c4",
        "zebra": "c5",
    }
    assert list(marks) == ["tensorflow", "torch", "ant", "zebra"]
    assert len({mark.outline for mark in marks.values()}) == len(marks)
    many = make_marks({f"f{n:02}": "" for n in range(20)})
    assert {mark.number for mark in many.values()} == set(range(1, 9))


def test_highlighting_a_framework_dims_the_others_without_a_script():
    rivals = [record(request(cell(framework=name))) for name in ("torch", "tensorflow")]
    html = render(view_of(rivals))
    assert "body:has(#only-3:checked) .fw:not(.c3)" in html
    radios = [a["id"] for tag, a in Document(html).tags if a.get("type") == "radio"]
    assert radios == ["only-0", "only-1", "only-3"]
    assert "radio" not in render(view_of(rivals[:1]))


def test_tables_charts_and_headings_are_accessible():
    page = Document(render(make_view(analyze_run(example_run.run(), catalog.scenarios()), {})))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    drawings = [a for tag, a in page.tags if tag == "svg" and a.get("class") in {"strip", "key"}]
    assert all(a.get("aria-hidden") == "true" or (a.get("role") == "img" and a.get("aria-label")) for a in drawings)
    assert all(a.get("scope") for tag, a in page.tags if tag == "th")
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for tag, a in page.tags if tag == "a"]
    assert set(links) <= set(ids)


def test_what_holds_a_cell_back_is_shown_with_the_ceilings():
    data = data_of(view_of([record(request(cell()))], probes=[probe()]))
    assert "100 GFLOP/s" in data["steps"].ceilings
    ((bar,),) = (network.bars for network in data["steps"].networks)
    ((_, limit, arithmetic, share, *_),) = data["ceilings"].evidence.rows
    assert bar.limit == limit == data["figures"].training.rows[0][6]
    assert (arithmetic, share) == ("15.4 GFLOP/s", "15.4%")  # 1,000 images/s of 15.4 MFLOP


def test_host_samples_become_warnings_charts_and_energy():
    quiet = document([watched(request(cell()), cpu_busy=[1.9, 1.9, 1.9], cpu_steal=[0.0, 0.0, 0.0])])
    series = {"cpu_busy": [4.0, 4.0, 4.0], "cpu_steal": [0.0, 0.0, 0.0], "cpu_energy_j": [0.0, 500.0, 1000.0]}
    busy = data_of(view_of([watched(request(cell()), **series)]))
    assert "Other processes" not in quiet.text
    machine_data = busy["machine"]
    assert [chart.title for chart in machine_data.charts] == ["CPUs busy"]
    assert any("2.1" in group.cause and "Other processes" in group.cause for group in busy["warnings"].groups)
    assert machine_data.energy.headers == ("Cell", "cpu")
    assert any("Sampling the host took 0.20% of one CPU" in paragraph for paragraph in busy["method"])
    assert busy["proof"].launches.rows[0][-1] == "100% / 50%"


def test_what_made_a_tuned_cell_fast_is_shown_with_all_candidates():
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
    data = data_of(view)
    ((name, settings, source, gained, gain, interval),) = data["tuned"]["chosen"].rows
    assert (name, settings) == ("mnist-cnn/torch/cpu/tuned/fp32", "layout: nhwc, allocator: tcmalloc")
    assert (source, gained, gain) == ("search, 2026-01-01 00:00 UTC", "training 1.45×", "1.6×")
    assert method.TUNED in data["method"]
    assert re.fullmatch(r"1\.\d+ to 1\.\d+", interval)
    assert [row[2:] for row in data["tuned"]["tried"].rows] == [
        ("as in stock", text.MISSING, "", "1,000 images/s", ""),
        ("layout: nhwc, allocator: tcmalloc", "1.45×", "1.40 to 1.50", "1,500 images/s", "chosen"),
        ("layout: nhwc", text.MISSING, "", "", "It crashed."),
    ]
    page = Document(render(view)).text
    assert "What made it fast" in page
    assert "It crashed." in page
    kept = tuned_of(records, tunings=[search.model_copy(update={"started_at": "2025-12-31T00:00:00+00:00"})])
    assert [row[2] for row in kept["chosen"].rows] == ["search in an earlier run, 2025-12-31 00:00 UTC"]
    crashed = Tuning(
        {}, [Search("training", {}, [Tried({}, [], [], "It crashed.")], 5.0), Search("latency", {}, [], 0.0)]
    )
    broken = tuned_of(records, tunings=[search.model_copy(update={"result": replace(search.result, tuning=crashed)})])
    assert [row[1:3] for row in broken["chosen"].rows] == [("as in stock", "the search stopped: It crashed.")]
    assert [row[-1] for row in broken["tried"].rows] == ["It crashed.", "no time was left"]
    pinned = tuned_of(records, pinned={tuned.key: {}})
    assert [row[1:] for row in pinned["chosen"].rows] == [("as in stock", "pinned", "", text.MISSING, "same as stock")]
    assert pinned["tried"].rows == ()
    assert "What made it fast" not in document([record(request(stock))]).text


def as_json(part):
    if isinstance(part, frozenset):
        return sorted(part)
    if isinstance(part, Rows):  # properties show what the templates see
        return vars(part) | {"several": part.several, "whiskers": part.whiskers, "bands": part.bands}
    return vars(part)


def test_the_content_of_all_sections_is_unchanged():
    """Write the golden file with `KIT_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_report.py`, then review it."""
    titles = {name: f.title for name, f in catalog.frameworks().items()}
    tariff = Tariff({"cpu": 0.36, "cuda": 1.44}, "EUR", "2026-11-20", "Price list of a test")
    view = make_view(analyze_run(example_run.run(), catalog.scenarios()), titles, studies.load_all(), tariff=tariff)
    assert set(data_of(view)) == {
        s.anchor for s in discover() if isinstance(s, Section)
    }  # the example fills every section
    content = {
        "title": view.title,
        "eyebrow": view.eyebrow,
        "lede": view.lede,
        "notices": view.notices,
        **data_of(view),
    }
    made = json.loads(json.dumps(content, default=as_json), parse_float=lambda digits: float(f"{float(digits):.6g}"))
    if os.environ.get("KIT_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    assert made == json.loads(GOLDEN.read_text())


def test_a_module_and_its_template_add_a_section(tmp_path, monkeypatch):
    (tmp_path / "weather.py").write_text(
        "from kit.report.section import Section\n"
        "SECTION = Section(45, 'weather', 'Weather', lambda source: source.run.plan.run, 'weather.html')\n"
    )
    (tmp_path / "weather.html").write_text("<p>Rain in {{ data }}.</p>")
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    try:
        page = document([record(request(cell()))])
    finally:
        sys.modules.pop("kit.report.sections.weather", None)
    assert "Rain in r1." in page.text
    anchors = [attributes["id"] for tag, attributes in page.tags if tag == "section" and "id" in attributes]
    assert anchors[anchors.index("weather") - 1 :][:3] == ["steadiness", "weather", "figures"]
