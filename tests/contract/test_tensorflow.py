"""Test the risks that only TensorFlow has: functions that are silently traced again, unwanted waits for the device, and
one runtime per process."""

from __future__ import annotations

import importlib
import itertools
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import test_training
from toys import RecordingMeter, noise, toy, zeros

from scenarios.adapter import Adapter, Arrays, Model, Options
from scenarios.catalog.catdog_cnn import SCENARIO as PHOTO_SCENARIO
from scenarios.data.augment import draw_maps
from scenarios.proof import photos
from scenarios.spec import Adadelta, Adam, Augment, Conv, Dense, Dropout, Flatten, MaxPool, Sgd
from scenarios.weights import check_weights

SCENARIO = toy(batch=8, optimizer=Adam())


@pytest.fixture
def tensorflow(adapter):
    if adapter.name != "tensorflow":
        pytest.skip("another adapter is under test")
    return adapter


@pytest.fixture
def compiled_loop(tensorflow, options: Options, monkeypatch) -> Adapter:
    """Return the adapter with `loop = compiled`, which is offered on CUDA only. The CPU runs it, too, but slowly."""
    axes = type(tensorflow).axes
    on_cuda = staticmethod(lambda options, scenario: axes(replace(options, device="cuda"), scenario))
    monkeypatch.setattr(type(tensorflow), "axes", on_cuda)
    return type(tensorflow)(replace(options, lane="tuned", settings={"loop": "compiled"}))


def test_the_step_is_traced_once(tensorflow, monkeypatch):
    """Use batches of any size, whole epochs and single steps, before and after `load`."""
    model = tensorflow.build(SCENARIO, zeros(SCENARIO))
    traced = []
    compute_loss = model._model.compute_loss
    monkeypatch.setattr(
        model._model, "compute_loss", lambda *given, **named: traced.append(1) or compute_loss(*given, **named)
    )
    for count in (5, 8, 35, 16):
        model.step(*noise(SCENARIO, count))
        model.train_epoch(Arrays(*noise(SCENARIO, count)), 0, RecordingMeter())
        model.load(zeros(SCENARIO))
    assert len(traced) == 1


def compilations(folder: Path) -> list[str]:
    """Return the names of XLA's steps of compilation in a profile that TensorFlow wrote to a folder."""
    xplane_pb2 = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    found = []
    for file in folder.glob("**/*.xplane.pb"):
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            names = (plane.event_metadata[event.metadata_id].name for line in plane.lines for event in line.events)
            found += [name for name in names if "Compile" in name]
    return found


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
@pytest.mark.parametrize("settings", [{"network": "compiled"}, {"network": "compiled", "loop": "graph"}], ids=str)
def test_xla_compiles_nothing_inside_a_window(tensorflow, options: Options, tmp_path, settings):
    tuned = type(tensorflow)(replace(options, lane="tuned", settings=settings))
    check_that_xla_compiles_nothing_inside_a_window(tuned, options, tmp_path)


def test_a_compiled_loop_is_prepared_for_windows_of_any_length(compiled_loop, options: Options, tmp_path):
    check_that_xla_compiles_nothing_inside_a_window(compiled_loop, options, tmp_path)


def check_that_xla_compiles_nothing_inside_a_window(compiled: Adapter, options: Options, folder: Path) -> None:
    """Use windows of two steps, of one step, and of a short last batch. What compiles before the first window must
    leave no trace in the training, which must agree with that of TensorFlow's kernels."""
    profiler = importlib.import_module("tensorflow").profiler.experimental

    class ProfilingMeter(RecordingMeter):
        def begin(self) -> None:
            super().begin()
            profiler.stop()
            profiler.start(str(folder / "windows"))

    def kernels() -> Model:
        tuned = replace(options, lane="tuned", settings={"network": "kernels", "loop": "graph"})
        return type(compiled)(tuned).build(scenario, check_weights(scenario, 0))

    scenario = replace(SCENARIO, batch=7)
    train, model, plain = Arrays(*noise(scenario, 38)), compiled.build(scenario, check_weights(scenario, 0)), kernels()
    profiler.start(str(folder / "before"))
    try:
        found = model.train_epoch(train, 0, ProfilingMeter(window=2))
    finally:
        profiler.stop()
    assert not compilations(folder / "windows")
    assert compilations(folder / "before")
    assert found.loss == pytest.approx(plain.train_epoch(train, 0, RecordingMeter()).loss, rel=1e-4)
    for name, values in plain.weights().items():
        assert model.weights()[name] == pytest.approx(values, rel=1e-4, abs=1e-5)


def test_a_compiled_loop_is_one_program_with_its_batches(compiled_loop):
    scenario = toy((Conv(4), Flatten()))
    model, rows = compiled_loop.build(scenario, zeros(scenario)), np.arange(6).reshape(3, 2)
    program = model._steps.experimental_get_compiler_ir([*noise(scenario, 6)], rows, 0, 3)(stage="hlo")
    assert program.count(" while(") == 1
    assert " gather(" in program
    assert "set-dimension-size" not in program, "XLA pads what has no fixed size"


@pytest.mark.parametrize("kind", ["arrays", "photos"])
def test_a_compiled_loop_trains_as_the_contract_says(compiled_loop, tmp_path, kind):
    test_training.test_an_epoch_has_every_image_once_in_its_own_order(compiled_loop, kind, tmp_path)
    if kind == "arrays":
        test_training.test_sums_are_those_of_the_network(compiled_loop, "softmax", 4)
        test_training.test_the_meter_ends_windows_and_stops_training(compiled_loop)
    else:
        test_training.test_photos_are_augmented_as_specified(compiled_loop, tmp_path)
        test_training.test_an_unreadable_photo_is_named(compiled_loop, tmp_path)


@pytest.mark.parametrize("optimizer", [Sgd(0.05), Adam(0.01), Adadelta()], ids=lambda o: type(o).__name__)
def test_a_compiled_loop_takes_every_fused_optimizer(compiled_loop, options: Options, optimizer):
    scenario = toy((Conv(4), MaxPool(), Dropout(0.0), Flatten()), optimizer=optimizer)
    weights, train = check_weights(scenario, 1), Arrays(*noise(scenario, 20))
    trained = []
    for settings in ({"loop": "compiled", "optimizer": "fused"}, {"network": "kernels"}):
        tuned = type(compiled_loop)(replace(options, lane="tuned", settings=settings))
        trained.append(tuned.build(scenario, weights))
        trained[-1].train_epoch(train, 0, RecordingMeter())
    for name, expected in trained[1].weights().items():
        change = np.abs(expected - weights[name]).max()
        assert change > 0
        assert np.abs(trained[0].weights()[name] - expected).max() <= 1e-3 * change, name


def test_photos_are_augmented_in_a_compiled_loop_as_in_the_stock_lane(tensorflow):
    """Use maps that reach far beyond each edge, and those of flips and of no change."""
    pipelines, graph_loop = (
        importlib.import_module(f"scenarios.frameworks.tensorflow.{name}") for name in ("pipelines", "graph_loop")
    )
    size = (24, 32)
    augments = Augment(shear=30.0, zoom=0.6, flip=True), Augment(shear=0.0, zoom=0.0, flip=True)
    maps = np.concatenate([draw_maps(augment, size, 32, np.random.default_rng(0)) for augment in augments])
    images = np.random.default_rng(2).random((len(maps), *size, 3), np.float32)
    expected = pipelines.warp(images, pipelines.projective_rows(maps)).numpy()
    assert np.abs(expected - images).max() > 0.5
    assert graph_loop.warp(images, maps.astype(np.float32)).numpy() == pytest.approx(expected, abs=2e-5)


def test_a_decoder_that_only_repeats_halved_colors_is_refused(tensorflow, monkeypatch, tmp_path):
    (found,) = photos.checks(tensorflow, PHOTO_SCENARIO, 0, tmp_path)
    assert found.passed
    tf = importlib.import_module("tensorflow")
    monkeypatch.setattr(tf.io, "decode_jpeg", partial(tf.io.decode_jpeg, fancy_upscaling=False))
    (found,) = photos.checks(tensorflow, PHOTO_SCENARIO, 0, tmp_path)
    assert not found.passed


def test_the_loop_in_the_graph_counts_in_int32(tensorflow, options: Options):
    """TensorFlow keeps int32 scalars on the host. It would read an int64 counter back from the GPU in each step."""
    tuned = replace(options, lane="tuned", settings={"loop": "graph"})
    model = type(tensorflow)(tuned).build(SCENARIO, zeros(SCENARIO))
    graph = model._steps.get_concrete_function().graph
    [loop] = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    parts = [graph, *(graph._get_function(loop.get_attr(name).name).graph for name in ("cond", "body"))]
    scalars = [tensor for part in parts for op in part.get_operations() for tensor in op.outputs if tensor.shape == ()]
    assert "int32" in {tensor.dtype.name for tensor in scalars}
    assert not [tensor.name for tensor in scalars if tensor.dtype.name == "int64"]


def test_an_epoch_waits_for_the_device_only_at_the_end_of_a_window(tensorflow, monkeypatch):
    waits = []
    monkeypatch.setattr("tensorflow.test.experimental.sync_devices", lambda: waits.append(1))
    model = tensorflow.build(SCENARIO, zeros(SCENARIO))
    model.train_epoch(Arrays(*noise(SCENARIO, 40)), 0, RecordingMeter(window=2))
    assert len(waits) == 2


def test_one_process_has_one_thread_count(tensorflow, options: Options):
    tensorflow.build(SCENARIO, zeros(SCENARIO)).step(*noise(SCENARIO, 1))
    with pytest.raises(RuntimeError, match=f"already runs with {options.threads} .* start a new process"):
        type(tensorflow)(replace(options, threads=options.threads + 1))


def test_one_unit_without_activation_is_correct_on_the_right_side_of_even_odds(tensorflow):
    scenario = toy(output="linear", units=1, batch=64)
    images, labels = noise(scenario, 64)
    model = tensorflow.build(scenario, check_weights(scenario, 0))
    positive = model.logits(images)[:, 0] > 0
    assert 0 < positive.sum() < 64
    sums = model.train_epoch(Arrays(images, labels), 0, RecordingMeter())
    assert sums.correct == (positive == labels).sum()


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
def test_each_setting_is_what_runs(tensorflow, compiled_loop, options: Options, monkeypatch):
    """Set both compilers, because the stock lane uses XLA on a GPU and TensorFlow's kernels on the CPU."""
    tf = importlib.import_module("tensorflow")
    function, made = tf.function, []
    monkeypatch.setattr(tf, "function", lambda *given, **named: made.append(named) or function(*given, **named))

    def built(**settings):
        return type(tensorflow)(replace(options, lane="tuned", settings=settings)).build(SCENARIO, zeros(SCENARIO))

    for compiler, provider in (("compiled", "XLA"), ("kernels", "TensorFlow kernels")):
        assert built(network=compiler).placement().provider == provider
        model = built(latency=compiler, throughput="compiled" if compiler == "kernels" else "kernels")
        for batch in (1, 8):
            model.predictor(batch)
        assert [named["jit_compile"] for named in made[-2:]] == [compiler == "compiled", compiler == "kernels"]
    stock = built().placement().training
    assert stock.startswith("Keras fit, ")
    assert built(loop="graph").placement().training == stock.replace("fit", "graph")
    compiled = compiled_loop.build(SCENARIO, zeros(SCENARIO)).placement()
    assert (compiled.training, compiled.provider) == (stock.replace("fit", "compiled"), "XLA")
    assert built(optimizer="fused").placement().training not in (stock, stock.replace("fit", "graph"))


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
@pytest.mark.parametrize("settings", [{"network": "compiled"}, {"loop": "graph"}, {"loop": "compiled"}], ids=str)
@pytest.mark.parametrize("name", ["", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"])
@pytest.mark.usefixtures("compiled_loop")
def test_tf32_in_the_graph_that_trains_is_found(tensorflow, options: Options, name, settings):
    """Change what an operator returns as if an operand were rounded to TF32, but only in graphs."""
    callbacks = importlib.import_module("tensorflow.python.framework.op_callbacks")

    def rounded(operator, inputs, attributes, outputs, op_name=None, graph=None):
        return [output * (1 + 3e-4) for output in outputs] if operator == name and graph else outputs

    tuned = replace(options, lane="tuned", settings=settings)
    scenario = toy((Conv(4), Conv(4), Flatten(), Dense(8)), batch=8)
    model = type(tensorflow)(tuned).build(scenario, check_weights(scenario, 0))
    callbacks.add_op_callback(rounded)
    try:
        assert model._rounds_to_tf32() == bool(name)
    finally:
        callbacks.remove_op_callback(rounded)


def test_plain_keras_can_be_timed_by_its_steps_alone(tensorflow, monkeypatch):
    """The benchmarks leave out what `fit` does before the first step and after the last one."""
    recipes = importlib.import_module("benchmarks.keras_recipes")  # imports TensorFlow
    readings = itertools.count()  # each reading of the clock is one second later
    monkeypatch.setattr(recipes, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    scenario = toy(batch=8)
    model = recipes.keras.Sequential([recipes.L.Input(scenario.image), recipes.L.Flatten(), recipes.L.Dense(10)])
    model.compile("sgd", recipes.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = noise(scenario, 40)
    clock = recipes.StepClock(model)

    def epoch() -> None:
        recipes.time.monotonic()
        model.fit(images, labels, batch_size=8, epochs=1, verbose=0)
        recipes.time.monotonic()

    for _ in range(2):
        assert clock.seconds(epoch) == 2 * 5 - 1
