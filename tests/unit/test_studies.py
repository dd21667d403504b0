"""Test the files of the studies: their lines, their faults, and the plans and commands made from them."""

from __future__ import annotations

import json
import os
import re
import shutil
from itertools import zip_longest

import pytest

from kit import assets
from kit.model.environment import EnvironmentKey
from kit.model.errors import UsageError
from kit.planning import catalog, studies
from kit.planning.toml_lines import line_of
from kit.report.published import published_speeds
from kit.storage.run_folder import RunFolder
from tests.command import Kit
from tests.examples import cell
from tests.study_runs import study_run

SCENARIOS, FRAMEWORKS = catalog.scenarios(), catalog.frameworks()
STUDIES = studies.load_all()
FILE = assets.ROOT / "scenarios/studies/mnist-cpu-vs-gpu.toml"

# The comment at the end of a line is the path to the value that begins there.
LINES = '''
title = """
[not.a.table]
"""  # -
top = 1  # top
[plain]  # plain
"quoted key" = [  # plain/quoted key
    1,
    2,
]
dotted.name = "x = 1"  # plain/dotted/name
inline = { a = 1, b = { c = 2 } }  # plain/inline/b/c
[cells.one]  # cells/one
# comment = 3
batch = [1, 2]  # cells/one/batch/1
[[parts]]  # parts/0
kind = "table"  # parts/0/kind
[[parts.rows]]  # parts/0/rows/0
[[parts.rows]]  # parts/0/rows/1
x = 1  # parts/0/rows/1/x
[[parts]]  # parts/1/missing
[parts.rows.deep]  # parts/1/rows/deep
'''


def test_the_line_of_each_value_is_found():
    marked = [
        (line, path)
        for line, text in enumerate(LINES.splitlines(), 1)
        if (path := text.partition("  # ")[2]) not in "-"
    ]
    assert len(marked) == 14
    for line, path in marked:
        keys = [int(key) if key.isdigit() else key for key in path.split("/")]
        assert line_of(LINES, keys) == line, path
    assert line_of(LINES, ["nowhere"]) == line_of(LINES, []) == 1


def read(tmp_path, old, new, base=FILE):
    text = base.read_text()
    assert old in text
    file = tmp_path / base.name
    file.write_text(text.replace(old, new, 1))
    return file, lambda: studies.read(file, SCENARIOS, FRAMEWORKS)


BAD = [
    ('scenario = "mnist-cnn"', 'scenario = "mnist"', "Unknown scenario 'mnist'.", "Did you mean 'mnist-cnn'?"),
    ("[cells.network]", '[cells.network]\nvariants = ["x"]', "Unknown variant of mnist-cnn 'x'.", "from: default."),
    ("[cells.network]", '[cells.network]\nframeworks = ["jax"]', "Unknown framework 'jax'.", "torch"),
    ("[cells.network]", '[cells.network]\ndevices = ["tpu"]', "Unknown devices 'tpu'.", "cpu, cuda"),
    ("[cells.network]", "[cells.network]\nsize = 3", "Unknown field 'size'.", "batch"),
    ("[cells.network]", "[cells.network]\nbatch = [70000]", "batch must be between 1 and 60,000", "batch"),
    ("[cells.network]", "[cells.network]\nworkers = [2]", "workers applies to scenarios that load photos", "workers"),
    ("[cells.network]", "[cells.network]\nepochs = -1", "greater than or equal to 0 (is -1)", "Correct the file."),
    ('kind = "bars"', 'kind = "pie"', "Unknown kind 'pie'.", "bars, causes, curves"),
    ('measures = ["epoch_s"]', 'measures = ["epoch"]', "Unknown measure 'epoch'.", "Did you mean 'epoch_s'?"),
    ('measures = ["epoch_s"]', 'measures = ["epoch_s"]\ncells = ["x"]', "Unknown selection of cells 'x'.", "network"),
    ('measures = ["epoch_s"]', "", "A part of kind table needs measures.", "Correct the file."),
    ('measures = ["epoch_s"]', 'measures = ["epoch_s"]\nx = "batch"', "has no x.", "Correct the file."),
    (
        'measures = ["epoch_s"]',
        'measures = ["epoch_s"]\npublished = true',
        "asks for published figures of epoch_s, but its cells have none.",
        "are of: cpu_use, speedup, test_accuracy, training_s.",
    ),
    ("value = 1.00", 'value = "fast"', "value: Input should be a valid number", "Correct the file."),
    ("value = 1.00", "", "either `value`, or `over` and `values`", "Correct the file."),
    ("value = 1.00", 'over = "batch"\nvalues = { x = 1 }', "Values has 'x', but batch is a number", "Correct"),
    ("value = 1.00", 'over = "variant"\nvalues = { x = 1 }', "Unknown variant of mnist-cnn 'x'.", "default"),
    ("value = 0.404", "value = 0.404\nepoch = 3", "cpu_use has no value for a single epoch.", "epoch_s"),
    ('device = "cuda"\nvalue = 352.21', 'device = "cpu"\nvalue = 3', "of training_s is there twice.", "Remove one"),
    (
        'device = "cuda"\nvalue = 352.21',
        'device = "cpu"\nhardware = "hardware not named"\nvalue = 3',  # that of the study
        "of training_s is there twice.",
        "Remove one",
    ),
    ("value = 0.404", "value = 40.4", "cpu_use is 40.4, but a share is at most 1.", "90% is 0.9"),
    ("value = 0.9927", "value = [0.9, 99.27]", "test_accuracy is 99.27, but a share is at most 1.", "90% is 0.9"),
    ("value = 350.68", "value = [351, 350]", "A range of training_s is from 351 to 350.", "the smaller end first"),
    ("value = 350.68", "value = [0, 350]", "training_s is 0 s.", "Give a value above 0."),
    ("value = 0.404", "value = -0.404", "cpu_use is -40.4%.", "Give a value above 0."),
    ("value = 1.00", "value = 0", "speedup is 0×.", "Give a value above 0."),
    ('conclusion = "speedup"', 'conclusion = "slow"', "Unknown conclusion 'slow'.", "accuracy, flattening"),
    ('question = "Does', '# question = "Does', "The field question is missing.", "Correct the file."),
]


@pytest.mark.parametrize("field", ["batch = [{}]", "epochs = {}"])
def test_a_huge_number_is_refused(tmp_path, field):
    file, load = read(tmp_path, "[cells.network]", "[cells.network]\n" + field.format("0x" + "f" * 1500))
    with pytest.raises(UsageError) as error:
        load()
    assert error.value.message == f"{file}: A whole number has more than 18 digits."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{'a.' * 1500}a = 1\n", "Line 1 has more than 2,000 characters."),
        ("# A comment.\n" * 20_000, "It has more than 250,000 characters."),
    ],
)
def test_a_text_that_would_take_minutes_is_refused(tmp_path, text, message):
    file, load = read(tmp_path, 'title = "', f'{text}title = "')
    with pytest.raises(UsageError, match=re.escape(f"{file}: {message}")):
        load()


@pytest.mark.parametrize(("old", "new", "message", "remedy"), BAD)
def test_a_fault_is_reported_with_file_line_and_what_exists(tmp_path, old, new, message, remedy):
    file, load = read(tmp_path, old, new)
    with pytest.raises(UsageError) as error:
        load()
    assert error.value.exit_code == 2
    found = re.fullmatch(rf"{re.escape(str(file))}, line (\d+): (.*)", error.value.message)
    assert found, error.value.message
    assert message in found[2]
    assert remedy in error.value.remedy
    # The line is one of those that were changed, or the head of the table around it.
    lines, line = file.read_text().splitlines(), int(found[1])
    pairs = zip_longest(lines, FILE.read_text().splitlines())
    first = next(number for number, (now, before) in enumerate(pairs, 1) if now != before)
    head = max((n for n, text in enumerate(lines[:first], 1) if text.startswith("[")), default=1)
    assert line in {head, *range(first, first + new.count("\n") + 1)}


SWEEP, CIFAR, PHOTOS, DENSE = (
    FILE.with_stem(name) for name in ("mnist-batch-sweep", "cifar-epochs", "catdog-depth", "mlp-cpu-vs-gpu")
)


@pytest.mark.parametrize(
    ("base", "old", "new", "where", "message", "remedy"),
    [
        (
            FILE,
            'device = "cpu"\nvalue = 350.68',
            'device = "cpu"\nbatch = 48\nvalue = 350.68',
            "batch = 48",
            "measure training_s of mnist-cnn on cpu, batch 48.",
            "They have mnist-cnn on cpu, batch 64; mnist-cnn on cuda, batch 64. Correct",
        ),
        (
            FILE,
            "[cells.network]",
            '[cells.network]\ndevices = ["cpu"]',
            'device = "cuda"\nvalue = 352.21',
            "measure training_s of mnist-cnn on cuda, batch 64.",
            "They have mnist-cnn on cpu, batch 64. Correct",
        ),
        (
            FILE,
            'measure = "cpu_use"',
            'measure = "gpu_use"',
            'device = "cpu"\nvalue = 0.404',
            "measure gpu_use of mnist-cnn on cpu, batch 64.",
            "They have mnist-cnn on cuda, batch 64. Correct",
        ),
        (
            SWEEP,
            "512 = 21.87",
            "500 = 21.87",
            "values = { 32 = 180.50",
            "measure training_s of mnist-cnn-dropout on cuda, batch 500.",
            "mnist-cnn-dropout on cuda, batch 128; mnist-cnn-dropout on cuda, batch 256, and 10 others.",
        ),
        (
            PHOTOS,
            "workers = 4\nbatch = 64",
            "workers = 3\nbatch = 64",
            "workers = 3",
            "measure images_per_s of catdog-cnn on cpu, batch 64, workers 3.",
            "They have catdog-cnn on cpu, batch 64, workers 1; ",
        ),
        (
            PHOTOS,
            '"no-augment", "128"]',
            '"128"]',
            "values = { default = 0.80",
            "measure best_accuracy of catdog-cnn+no-augment, batch 32.",
            "catdog-cnn on cpu, batch 32; ",
        ),
        (
            CIFAR,
            "values = { 1 = 0.5537, 15 =",
            "values = { 1 = 0.5537, 16 =",
            "values = { 1 = 0.5537, 16 =",
            "test_accuracy is published for epoch 16, but the study trains cifar-cnn on cpu, batch 32 for 15 epochs.",
            "Correct the epoch, or `epochs` of the selection.",
        ),
        (
            CIFAR,
            "epochs = 50",
            "epochs = 49",
            "epoch = 50\nvalue = 0.6798",
            "test_accuracy is published for epoch 50, but the study trains cifar-cnn on cuda, batch 32 for 49 epochs.",
            "Correct the epoch, or `epochs` of the selection.",
        ),
        (
            FILE,
            "[cells.network]",
            "[cells.network]\nepochs = 0",
            'measure = "training_s"',
            "but the study measures only its speed.",
            "Remove `epochs = 0` from the selection",
        ),
        (
            PHOTOS,
            "[cells.depth]",
            "[cells.depth]\nepochs = 0",
            "epochs = 0",
            "each variant' shows a whole training, but the selection depth measures only the speed.",
            "Remove `epochs = 0`",
        ),
        (
            PHOTOS,
            'y = "workers"',
            'y = "hidden_layers"',
            'y = "hidden_layers"',
            "batch size' is drawn over hidden_layers, but the cells of catdog-cnn on cpu do not vary it.",
            "They vary batch, workers. Name other `cells`",
        ),
        (
            DENSE,
            "hidden_layers = [1, 2, 3, 4, 5]",
            "hidden_layers = [1, 2, 3, 4, 5]\nbatch = [32, 64]",
            'cells = ["deep"]',
            "hidden layers' has no axis for batch, but the cells of fashion-mlp on cpu vary it.",
            "Name `cells` that have one value of batch.",
        ),
        (
            PHOTOS,
            'y = "workers"',
            'y = "batch"',
            'y = "batch"',
            "batch size' has batch on both axes.",
            "Choose another field",
        ),
    ],
)
def test_what_no_selection_can_measure_or_show_is_refused(tmp_path, base, old, new, where, message, remedy):
    file, load = read(tmp_path, old, new, base)
    with pytest.raises(UsageError) as error:
        load()
    line = file.read_text().partition(where)[0].count("\n") + 1
    assert error.value.message.startswith(f"{file}, line {line}: ")
    assert error.value.message.endswith(message)
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("cpu", "more", "axis", "message"),
    [
        (
            '"cpu"]\nworkers = [1, 2]',
            '"cuda"]\nworkers = [1]',
            "workers",
            "the cells of catdog-cnn on cuda do not vary it",
        ),
        ('"cpu"]\nworkers = [1, 2]', '"cpu"]', "workers", "some cells of catdog-cnn on cpu do not set them"),
        ('"cpu"]\nbatch = [32, 64]', '"cuda"]\nbatch = [32, 64]\nworkers = [4]', "batch", ""),
    ],
)
def test_the_chart_of_each_device_needs_values_on_its_axis(tmp_path, cpu, more, axis, message):
    text = FILE.read_text()
    for name, values in (("one", cpu), ("more", more)):
        text += f'[cells.{name}]\nscenario = "catdog-cnn"\ndevices = [{values}\n'
    text += '[[parts]]\nkind = "lines"\ntitle = "T"\ncells = ["one", "more"]\nmeasures = ["images_per_s"]\n'
    file = tmp_path / FILE.name
    file.write_text(f'{text}x = "{axis}"\n')
    if message:
        with pytest.raises(UsageError, match=message):
            studies.read(file, SCENARIOS, FRAMEWORKS)
    else:
        assert studies.read(file, SCENARIOS, FRAMEWORKS).file.parts[-1].x == axis


def test_a_syntax_error_and_a_wrong_name_name_the_file(tmp_path):
    file, load = read(tmp_path, 'title = "A', "title = A")
    with pytest.raises(UsageError, match=rf"{re.escape(str(file))}: .*line 1"):
        load()
    wrong = file.rename(tmp_path / "Bad name.toml")
    with pytest.raises(UsageError, match=rf"{re.escape(str(wrong))}: .* small letters, digits and hyphens"):
        studies.read(wrong, SCENARIOS, FRAMEWORKS)


def test_a_file_that_is_not_valid_stops_only_what_needs_its_study(kit: Kit, engine, tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run", (run := study_run("cifar-epochs")).plan, run.machine)
    for record in run.records:
        folder.save(record)
    plan = folder.path / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"studies": ["cifar-epochs", "gone"]}))
    root = tmp_path / "assets"
    shutil.copytree(FILE.parent, root / "scenarios/studies")
    monkeypatch.setattr(assets, "ROOT", root)
    monkeypatch.setattr(catalog, "scenarios", lambda: SCENARIOS)
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS)
    broken = root / "scenarios/studies/cifar-epochs.toml"
    broken.write_text(broken.read_text().replace('conclusion = "overfitting"', 'conclusion = "fame"'))
    line = broken.read_text().split("conclusion = ")[0].count("\n") + 1
    where = f"{broken}, line {line}: Unknown conclusion 'fame'."
    for command in (
        "study list",
        "study show cifar-epochs",
        "plan --study cifar-epochs",
        "plan --study mnist-cpu-vs-gpu --study cifar-epochs",
        "plan --all-studies",
    ):
        refused = kit(*command.split())
        assert (refused.code, refused.err.splitlines()[0]) == (2, where), command
        assert ("mnist-cpu-vs-gpu" in refused.out) == (command == "study list"), "the valid ones are listed"
    for command in ("study show mnist-cpu-vs-gpu", "plan --study mnist-cpu-vs-gpu --device cpu", "plan --all"):
        assert kit(*command.split()).code == 0, command
    listed = kit("list")
    assert (listed.code, f"The study cifar-epochs is missing here: {where}" in listed.out) == (0, True)
    assert kit("report", "run").code == 0
    html = folder.index.read_text()
    fault = f"scenarios/studies/cifar-epochs.toml, line {line}: Unknown conclusion &#39;fame&#39;."
    assert f"<li>The chapter of the study cifar-epochs is missing. {fault}</li>" in html
    assert "Not shown: the file of the study is not valid" in html
    assert "The chapter of the study gone is missing. scenarios/studies has no file of this name." in html
    assert str(tmp_path) not in html


def test_the_studies_have_all_published_figures():
    counts = {name: len(study.figures) for name, study in STUDIES.items()}
    assert counts == {
        "catdog-depth": 20,
        "cifar-epochs": 17,
        "mlp-cpu-vs-gpu": 1,
        "mnist-batch-sweep": 3 * 3 * 7,
        "mnist-cpu-vs-gpu": 6,
    }
    ladder = [f.value for f in STUDIES["catdog-depth"].figures if f.measure == "best_accuracy"]
    assert ladder == [0.80, 0.84, 0.90, 0.85, 0.94]
    (two,) = [f for f in STUDIES["mnist-batch-sweep"].figures if f.place.devices == 2 and f.value == 14.67]
    assert (two.measure, two.place.batch, two.hardware) == ("training_s", 2048, "2× Tesla P100")


def test_a_gpu_without_a_published_speed_gets_it_from_the_speedup():
    (deep,) = published_speeds(cell("catdog-cnn", device="cuda", variant="deep"), STUDIES, SCENARIOS)
    assert (deep.images_per_s, deep.hardware) == (300, "Tesla V100")  # 3 images/s on the CPU, about 100 times that
    assert not published_speeds(cell("catdog-cnn", device="cuda", variant="128"), {}, SCENARIOS)


@pytest.mark.parametrize(
    "option",
    ["--all", "--scenario=mnist-cnn", "--variant=deep", "--batch=3", "--workers=2", "--hidden-layers=2", "--against=r"],
)
@pytest.mark.parametrize("study", ["--study=mnist-cpu-vs-gpu", "--all-studies"])
def test_options_that_contradict_a_study_are_refused(kit: Kit, engine, study, option):
    refused = kit("plan", study, option)
    assert refused.code == 2
    assert f"so {option.partition('=')[0]} does not apply" in refused.err


def test_a_folder_of_assets_without_studies_has_none_to_run(kit: Kit, engine, tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "scenarios", lambda: SCENARIOS)
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS)
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    refused = kit("plan", "--all-studies")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "There are no studies.")


def test_the_commands_of_studies(kit: Kit, engine):
    assert engine.name
    key: EnvironmentKey = ("torch", "cuda")
    assert key in engine.refused
    assert kit("run", "--study", "mnist-cpu-vs-gpu", "--resume", "r").code == 2
    assert kit("plan", "--all-studies", "--study", "cifar-epochs").code == 2
    planned = json.loads(kit("plan", "--study", "mnist-cpu-vs-gpu", "--device", "cpu", "--json", "--rounds", "1").out)
    assert len(planned["launches"]) == 3
    listed = json.loads(kit("study", "list", "--json").out)
    assert [entry["name"] for entry in listed] == list(STUDIES)
    for name in STUDIES:
        shown, data = kit("study", "show", name).out, json.loads(kit("study", "show", name, "--json").out)
        assert STUDIES[name].file.question in shown
        assert f"kit run --study {name}" in shown
        assert len(data["published"]) == len(STUDIES[name].figures)
        speed_only = name == "catdog-depth"
        assert ("speed only" in shown) == speed_only == any(each["epochs"] == 0 for each in data["cells"])
        assert set(data["seconds"]["full"]) == {"cpu", "cuda"}
    assert kit("study", "show", "nowhere").code == 2


def test_a_study_file_that_is_no_plain_file_does_not_hang(tmp_path, monkeypatch, kit):
    folder = tmp_path / "assets/scenarios/studies"
    shutil.copytree(FILE.parent, folder)
    os.mkfifo(folder / "pipe.toml")
    monkeypatch.setattr(assets, "ROOT", tmp_path / "assets")
    monkeypatch.setattr(catalog, "scenarios", lambda: SCENARIOS)
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS)
    listed = kit("study", "list")
    assert (listed.code, "mnist-cpu-vs-gpu" in listed.out) == (2, True)
    assert "pipe.toml cannot be read: not a plain file." in listed.err
