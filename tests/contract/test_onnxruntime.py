"""Test the risk that only ONNX Runtime has: its backward pass is written by hand, operator by operator.

It must agree with `reference.py` on every layer, on ties, and under dropout.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scenarios import catalog
from scenarios.adapter import Arrays, DeviceUnavailable, NotOffered, Options
from scenarios.proof import reference
from scenarios.spec import Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario, Sgd
from scenarios.weights import check_weights

pytest.importorskip("onnxruntime")
import onnx
import onnxruntime
from onnxruntime_graphs import graphs
from toys import toy

from scenarios.frameworks.onnxruntime import settings
from scenarios.frameworks.onnxruntime.adapter import ADAPTER
from scenarios.frameworks.onnxruntime.export import export
from scenarios.frameworks.onnxruntime.graph import Graph
from scenarios.frameworks.onnxruntime.session import PROVIDERS
from scenarios.frameworks.rounding import step_rounds_to_tf32

DEVICE: Any = os.environ.get("KIT_TEST_DEVICE", "cpu")
STUBS = "KIT_TEST_CUDA_STUBS" in os.environ
OPTIONS = Options(device=DEVICE)
TWO_CLASSES = Dense(1, activation="sigmoid")
SOFTMAX = Dense(10, activation="softmax")
SIGMOIDS = Dense(10, activation="sigmoid")
GRADIENT = Sgd(1.0)

if DEVICE == "cuda" and PROVIDERS[DEVICE] not in onnxruntime.get_available_providers():
    # An environment of another framework may have a build without CUDA.
    pytest.skip("this build of ONNX Runtime has no CUDA", allow_module_level=True)


def scenario(*layers, image=(11, 13, 3), loss="categorical", optimizer=GRADIENT, batch=4):
    return Scenario(
        name="example",
        title="Example",
        dataset="mnist",
        image=image,
        layers=layers,
        loss=loss,
        optimizer=optimizer,
        batch=batch,
        epochs=1,
    )


def tied_images(count, shape, seed=0):
    """Return blobs of few gray levels on a constant background. Most pooling windows have their maximum repeatedly."""
    noise = np.random.default_rng(seed).random((count, *shape), dtype=np.float32)
    return np.where(noise > 0.7, np.round(noise * 4) / 4, 0).astype(np.float32)


def labels_for(example, count):
    return np.random.default_rng(1).integers(0, max(2, example.output.units), count)


def batch_of(example, count):
    return tied_images(count, example.image), labels_for(example, count)


def step_gradients(example, weights, images, labels, model=None):
    """Return the loss and the gradients (w0 - w1) of one step of SGD with learning rate 1."""
    model = model or ADAPTER(OPTIONS).build(example, weights)
    model.load(weights)
    loss = model.step(images, labels)
    return loss, {name: weights[name] - value for name, value in model.weights().items()}


def assert_gradients(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    "layers",
    [
        (Conv(5), MaxPool(2), Conv(12, padding="same"), MaxPool(2), Flatten(), Dense(7), SOFTMAX),
        (MaxPool(3), Conv(12, 2, "same"), Conv(4, 4, "same", activation="linear"), Dropout(0), Flatten(), SIGMOIDS),
        (Conv(9, 1), Conv(10, 5, "same"), MaxPool(4), Flatten(), Dense(6, "linear"), Dense(10, "linear")),
        (Flatten(), Dense(8), TWO_CLASSES),
    ],
    ids=["odd pools", "uneven padding", "wide kernels", "dense"],
)
def test_every_layer_agrees_with_the_reference_when_pooling_windows_tie(layers):
    example = scenario(*layers, loss="binary" if layers[-1] == TWO_CLASSES else "categorical")
    weights = check_weights(example, seed=3)
    images = tied_images(6, example.image)
    labels = labels_for(example, 6)
    expected = reference.evaluate(example, weights, images, labels)
    model = ADAPTER(OPTIONS).build(example, weights)
    np.testing.assert_allclose(model.logits(images), expected.logits, rtol=1e-4, atol=1e-5)
    loss, gradients = step_gradients(example, weights, images, labels, model)
    assert loss == pytest.approx(expected.loss, rel=1e-5)
    assert_gradients(gradients, expected.gradients)


def test_the_pool_gradient_goes_only_to_the_first_maximum():
    example = scenario(
        Conv(1, 1, activation="linear"), MaxPool(3), Flatten(), TWO_CLASSES, image=(3, 3, 1), loss="binary"
    )
    images = np.zeros((1, 3, 3, 1), np.float32)
    weights = check_weights(example, seed=0)
    for places in ([0, 1, 3], [2, 3], [5, 6, 8], [4, 7], range(9)):
        x = np.zeros(9, np.float32)
        x[list(places)] = 1
        images = x.reshape(1, 3, 3, 1)
        labels = np.array([1])
        expected = reference.evaluate(example, weights, images, labels)
        assert_gradients(step_gradients(example, weights, images, labels)[1], expected.gradients)


def test_saturated_sigmoids_have_the_clipped_loss_and_no_gradient():
    example = scenario(Flatten(), SIGMOIDS, image=(1, 1, 1))
    weights = check_weights(example, seed=0)
    weights["1/kernel"][:] = 0
    weights["1/bias"][:] = [-40, 40, -17, 17, -3, 3, -1, 1, 0, 0.5]  # sigmoid(-17) = 4e-8 is clipped
    images = np.ones((10, 1, 1, 1), np.float32)
    labels = np.arange(10)
    expected = reference.evaluate(example, weights, images, labels)
    loss, gradients = step_gradients(example, weights, images, labels)
    assert loss == pytest.approx(expected.loss, rel=1e-5)
    assert_gradients(gradients, expected.gradients)


def test_each_step_draws_a_new_dropout_mask_and_sends_the_gradient_through_it():
    example = scenario(Flatten(), Dense(400, "linear"), Dropout(0.25), TWO_CLASSES, image=(2, 2, 1), loss="binary")
    weights = check_weights(example, seed=0)
    model = ADAPTER(replace(OPTIONS, seed=5)).build(example, weights)
    images, labels = np.full((1, 2, 2, 1), 0.5, np.float32), np.array([0])
    masks = []
    for _ in range(3):
        loss, gradients = step_gradients(example, weights, images, labels, model)
        mask = gradients["3/kernel"][:, 0] != 0  # a dropped unit sends nothing to the output layer
        masks.append(mask)
        factors = {2: mask[None, :] / 0.75}
        expected = reference.evaluate(example, weights, images, labels, factors)
        assert loss == pytest.approx(expected.loss, rel=1e-5)
        assert_gradients(gradients, expected.gradients)
        assert 0.15 < 1 - mask.mean() < 0.35
    assert not np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[1], masks[2])
    again = ADAPTER(replace(OPTIONS, seed=5)).build(example, weights)
    same = step_gradients(example, weights, images, labels, again)[1]["3/kernel"][:, 0] != 0
    assert np.array_equal(same, masks[0])
    other = ADAPTER(replace(OPTIONS, seed=6)).build(example, weights)
    new = step_gradients(example, weights, images, labels, other)[1]["3/kernel"][:, 0] != 0
    assert not np.array_equal(new, masks[0])


class Recorder:
    """A meter that ends a window at every step and stops after `limit` steps."""

    def __init__(self, limit):
        self.batches, self.limit = [], limit

    def begin(self):
        assert not self.batches

    def due(self):
        return 1

    def step(self, images):
        self.batches.append(images)
        return True

    def mark(self):
        return len(self.batches) < self.limit


@pytest.fixture
def settings_of_cuda(monkeypatch):
    """Offer CUDA's settings on the CPU too. Steps then run at fixed addresses, but no graph is recorded."""

    def axes(options, net):
        return settings.axes(replace(options, device="cuda"), net)

    monkeypatch.setattr(ADAPTER, "axes", staticmethod(axes))


@pytest.mark.usefixtures("settings_of_cuda")
@pytest.mark.parametrize("optimizer", [Sgd(0.1), Adam()], ids=lambda o: type(o).__name__)
def test_steps_at_fixed_addresses_train_like_the_stock_lane(optimizer):
    example = scenario(Conv(4), MaxPool(), Flatten(), SOFTMAX, optimizer=optimizer)
    weights, images = check_weights(example, seed=0), tied_images(10, example.image)
    given, labels = images.copy(), labels_for(example, 10)
    replayed = {"step": "captured", "latency": "captured", "throughput": "captured"}
    models = [
        ADAPTER(replace(OPTIONS, lane="tuned", settings=chosen)).build(example, weights) for chosen in ({}, replayed)
    ]

    def assert_equal(found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)

    def use(act):
        """Do the same with both models, and compare what they return and their weights."""
        assert_equal(*map(act, models))
        stock, tuned = (model.weights() for model in models)
        for name in weights:
            assert_equal(tuned[name], stock[name])

    def train(data, epoch, limit=99):
        use(lambda m: [*vars(m.train_epoch(data, epoch, Recorder(limit))).values()])

    first, second = Arrays(images, labels), Arrays(images[::-1].copy(), labels)
    placed = {id(m): [m.resident_steps(images[:size], labels[:size]) for size in (4, 2, 4)] for m in models}
    use(lambda m: m.step(images[:3], labels[:3]))
    train(first, 0)  # 4, 4 and 2 images
    train(first, 1, limit=1)
    train(second, 0)
    for which in (0, 1, 2, 1, 0):
        use(lambda m, which=which: placed[id(m)][which](3) or 0)
    train(second, 1)
    use(lambda m: m.logits(images))
    for size in (1, 4):
        predictors = {id(m): m.predictor(size) for m in models}
        for start in (0, 5):
            use(lambda m, p=predictors, part=images[start : start + size]: p[id(m)](part))
        kept = predictors[id(models[1])](images[:size])
        before = kept.copy()
        predictors[id(models[1])](images[-size:])
        assert np.array_equal(kept, before), "a prediction overwrote the one before"
    use(lambda m: m.load(weights) or 0)
    use(lambda m: m.step(images[4:8], labels[4:8]))
    assert np.array_equal(images, given), "a step overwrote its batch"


@pytest.mark.usefixtures("settings_of_cuda")
def test_preparing_steps_at_fixed_addresses_changes_nothing():
    example = scenario(Flatten(), SOFTMAX, optimizer=Adam())
    options = replace(OPTIONS, lane="tuned", settings={"step": "captured"})
    model = ADAPTER(options).build(example, check_weights(example, seed=0))
    model.step(*batch_of(example, 4))
    before = {name: model._trainer.read(name).copy() for name in model._trainer._step.state}
    for size in (3, 4, 3):
        model._trainer.prepare(*batch_of(example, size))
        for name, value in before.items():
            assert np.array_equal(model._trainer.read(name), value), name
        assert model._trainer.steps == 1


@pytest.mark.usefixtures("settings_of_cuda")
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_gradients_of_the_layout_nhwc_agree_with_the_reference(padding, size):
    """It has no ConvTranspose."""
    example = scenario(Conv(9, 2), Conv(5, size, padding), Conv(12, size, padding), Flatten(), SOFTMAX)
    weights = check_weights(example, seed=3)
    images, labels = batch_of(example, 6)
    model = ADAPTER(replace(OPTIONS, lane="tuned", settings={"layout": "nhwc"})).build(example, weights)
    gradients = step_gradients(example, weights, images, labels, model)[1]
    assert_gradients(gradients, reference.evaluate(example, weights, images, labels).gradients)


@pytest.mark.parametrize(("limit", "batches"), [(99, [4, 4, 2]), (2, [4, 4])])
def test_an_epoch_counts_every_image_once_and_ends_when_the_meter_says(limit, batches):
    example = scenario(Flatten(), SOFTMAX, optimizer=Sgd(1e-30))
    weights = check_weights(example, seed=0)
    images = tied_images(10, example.image)
    logits = reference.forward(example, weights, images)
    labels = np.where(np.arange(10) % 2, reference.predictions(example, logits), 0)
    meter = Recorder(limit)
    sums = ADAPTER(OPTIONS).build(example, weights).train_epoch(Arrays(images, labels), 0, meter)
    assert meter.batches == batches
    assert sums.images == sum(batches)
    if sums.images == 10:
        assert sums.loss == pytest.approx(reference.losses(example, logits, labels).sum(), rel=1e-5)
        assert sums.correct == (reference.predictions(example, logits) == labels).sum()


def test_the_order_of_an_epoch_depends_on_seed_and_epoch():
    example = scenario(Flatten(), SOFTMAX, optimizer=Sgd(0.1))
    weights = check_weights(example, seed=0)
    images = tied_images(12, example.image)
    train = Arrays(images, labels_for(example, 12))

    def trained(seed, epoch):
        model = ADAPTER(replace(OPTIONS, seed=seed)).build(example, weights)
        model.train_epoch(train, epoch, Recorder(99))
        return model.weights()["1/kernel"]

    assert np.array_equal(trained(0, 0), trained(0, 0))
    assert not np.array_equal(trained(0, 0), trained(0, 1))
    assert not np.array_equal(trained(0, 0), trained(1, 0))


def test_loading_resets_the_optimizer_and_a_predictor_keeps_its_weights():
    example = scenario(Conv(4), MaxPool(), Flatten(), SOFTMAX, optimizer=Adam())
    weights = check_weights(example, seed=0)
    images, labels = tied_images(4, example.image), labels_for(example, 4)
    model = ADAPTER(OPTIONS).build(example, weights)
    predict = model.predictor(4)
    before = predict(images)
    model.step(images, labels)
    first = model.weights()
    model.step(images, labels)
    assert np.array_equal(predict(images), before)
    model.load(weights)
    model.step(images, labels)
    for name, value in model.weights().items():
        assert np.array_equal(value, first[name]), name


@pytest.mark.parametrize(
    "refused",
    [
        {"settings": {"memory": "planned"}},
        {"lane": "tuned", "settings": {"threads": "3"}},
        {"devices": 2},
        {"precision": "bf16"},
        {"device": "cpu", "precision": "tf32"},
    ],
    ids=str,
)
def test_what_is_not_offered_is_refused(refused):
    with pytest.raises(NotOffered):
        ADAPTER(replace(OPTIONS, **refused))


def test_a_version_that_does_not_report_where_nodes_run_is_not_offered(monkeypatch):
    monkeypatch.delattr(onnxruntime.InferenceSession.__base__, "get_provider_graph_assignment_info")
    with pytest.raises(NotOffered, match=r"Install 1\.24"):
        ADAPTER(OPTIONS)


def test_the_placement_names_provider_device_and_threads():
    example = scenario(Flatten(), SOFTMAX)
    model = ADAPTER(replace(OPTIONS, threads=2)).build(example, check_weights(example, seed=0))
    placement = model.placement()
    assert (placement.device, placement.provider, placement.threads) == (DEVICE, PROVIDERS[DEVICE], 2)
    if DEVICE == "cpu":
        assert placement.tf32 is None
        assert model.device_peak_bytes() is None


@pytest.mark.skipif(DEVICE == "cuda" or STUBS, reason="CUDA is available")
def test_cuda_without_a_gpu_is_an_error():
    with pytest.raises(DeviceUnavailable, match=r"is built without CUDA|cannot use CUDA here"):
        ADAPTER(Options(device="cuda"))


@pytest.mark.parametrize(
    "example", [pytest.param(e, id=e.label) for variants in catalog.load().values() for e in variants.values()]
)
def test_the_graphs_use_no_operator_that_is_newer_than_opset_18(example):
    """Builds of ONNX Runtime from 1.24 on have a CUDA kernel for each operator at opset 18, but not for later ones."""
    for serialized in graphs(example) + graphs(example, transposes=False, gathers=True):
        model = onnx.load_from_string(serialized)
        assert model.ir_version <= 8
        versions = {onnx.defs.get_schema(node.op_type, model.opset_import[0].version) for node in model.graph.node}
        assert not [schema.name for schema in versions if schema.since_version > 18]


def to_tf32(graph, tensor):
    """Add nodes that round a tensor to 10 bits after the point (Veltkamp 1968)."""
    scaled = graph_node(graph, "Mul", tensor, graph.scalar(2**13 + 1))
    return graph_node(graph, "Sub", scaled, graph_node(graph, "Sub", scaled, tensor))


NET = scenario(Conv(4, padding="same"), MaxPool(), Conv(10), Flatten(), Dense(8), SOFTMAX, optimizer=Adam())
graph_node = Graph.node


@pytest.mark.parametrize("rounded", [None, "Conv", "ConvTranspose", "MatMul", "Gemm"])
@pytest.mark.parametrize("example", [NET, catalog.load()["cifar-cnn"][""]], ids=lambda e: e.name)
def test_the_probe_sees_every_operator_that_rounds_to_tf32(example, rounded, monkeypatch):
    """MatMul is in the gradient of a convolution's kernel. ConvTranspose is the gradient of its input."""

    def node(graph, op, *inputs, **attributes):
        if op == rounded:
            inputs = [to_tf32(graph, tensor) for tensor in inputs[:2]] + list(inputs[2:])
        return graph_node(graph, op, *inputs, **attributes)

    monkeypatch.setattr(Graph, "node", node)
    assert step_rounds_to_tf32(ADAPTER(OPTIONS).build, example) == (rounded is not None)


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ({}, (False, True, "1", "")),
        ({"memory": "planned"}, (True, True, "1", "")),
        ({"memory": "no arena"}, (False, False, "1", "")),
        ({"idle": "sleep"}, (False, True, "0", "")),
        ({"denormals": "flushed"}, (False, True, "1", "1")),  # takes effect only in a process' first session
    ],
)
def test_each_setting_reaches_the_session(setting, seen):
    example = scenario(Flatten(), SOFTMAX)
    offered = ADAPTER.axes(OPTIONS, example)["training"]
    if not all(value in offered.get(name, []) for name, value in setting.items()):
        pytest.skip(f"{setting} is not offered on {DEVICE}")
    model = ADAPTER(replace(OPTIONS, lane="tuned", settings=setting)).build(example, check_weights(example, seed=0))
    options = model._trainer.session.get_session_options()

    def entry(name):
        try:
            return options.get_session_config_entry(name)
        except RuntimeError:  # not set
            return ""

    spins, flushes = entry("session.intra_op.allow_spinning"), entry("session.set_denormal_as_zero")
    assert (options.enable_mem_pattern, options.enable_cpu_mem_arena, spins, flushes) == seen


@pytest.mark.parametrize(
    "exported",
    [
        *(variants[""] for variants in catalog.load().values()),
        catalog.load()["cifar-mlp"]["sigmoid"],
        toy(units=1, output="linear"),
    ],
    ids=lambda each: each.label,
)
def test_an_exported_model_gives_the_probabilities_of_the_network(exported):
    weights = check_weights(exported, seed=5)
    content = export(exported, weights, {"scenario": exported.label, "digest": "d1"})
    model = onnx.load_model_from_string(content)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 18)]
    assert (model.ir_version, model.producer_name) == (8, "kit")
    assert {each.key: each.value for each in model.metadata_props} == {"scenario": exported.label, "digest": "d1"}
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [("images", list(exported.image))]
    for count in (1, 3):
        images = tied_images(count, exported.image)
        (found,) = session.run(["probabilities"], {"images": images})
        logits = reference.forward(exported, weights, images)
        expected = reference.probabilities(exported, logits)
        np.testing.assert_allclose(found, expected[:, -found.shape[1] :], atol=1e-5)
