"""Specification, catalog, weights, request and result: what is equal, and what is refused."""

from __future__ import annotations

import json
import math
import sys
import types
import typing
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios import catalog, spec
from scenarios.contract import codec
from scenarios.contract.codec import ContractError, from_json, to_json
from scenarios.contract.ranges import MAX_INT
from scenarios.contract.request import SCHEMA, Request
from scenarios.contract.result import Check, Proof, Result, Window
from scenarios.spec import Adadelta, Adam, Augment, Conv, Dense, Dropout, Flatten, MaxPool, Scenario, Sgd
from scenarios.weights import check_weights, initial_weights
from scenarios.weights import digest as weights_digest

CATALOG = catalog.load()
EVERY = [scenario for variants in CATALOG.values() for scenario in variants.values()]
MNIST = CATALOG["mnist-cnn"][""]

# ---- catalog and specification ---------------------------------------------------------------------------------


def test_the_catalog_has_the_published_scenarios_with_their_defaults() -> None:
    defaults = {name: (v[""].batch, v[""].output.activation, type(v[""].optimizer)) for name, v in CATALOG.items()}
    assert defaults == {
        "catdog-cnn": (32, "sigmoid", Adam),
        "cifar-cnn": (32, "linear", Adam),
        "cifar-mlp": (32, "softmax", Sgd),
        "fashion-mlp": (32, "softmax", Adam),
        "mnist-cnn": (64, "softmax", Adam),
        "mnist-cnn-dropout": (128, "softmax", Adadelta),
    }
    assert set(CATALOG["catdog-cnn"]) == {"", "conv", "conv-dropout", "no-augment", "128", "deep"}
    assert {name for name, variants in CATALOG.items() if "sigmoid" in variants} == {"cifar-mlp", "fashion-mlp"}
    assert len({spec.digest(scenario) for scenario in EVERY}) == len(EVERY)


@pytest.mark.parametrize(
    ("name", "variant", "count"),
    [
        ("mnist-cnn", "", 225_034),
        ("mnist-cnn-dropout", "", 1_199_882),
        ("cifar-cnn", "", 122_570),
        ("fashion-mlp", "", 1_399_510),
        ("cifar-mlp", "", 12_230_010),
        ("catdog-cnn", "", 813_217),
        ("catdog-cnn", "deep", 1_515_585),
    ],
)
def test_numbers_of_parameters(name: str, variant: str, count: int) -> None:
    """Counted by hand from the layers."""
    assert sum(math.prod(p.shape) for p in spec.parameters(CATALOG[name][variant])) == count


def broken(**changes: Any) -> Scenario:
    return replace(MNIST, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": ()}, "last layer"),
        ({"layers": (Flatten(), Dense(10))}, "last layer"),
        ({"layers": (Dense(10, activation="softmax"),)}, "Flatten"),
        ({"layers": (Flatten(), Conv(3), Dense(10, activation="softmax"))}, r"\(H, W, C\)"),
        ({"layers": (Flatten(), Dense(9, activation="sigmoid"), Dense(10, activation="softmax"))}, "last layer"),
        ({"layers": (MaxPool(29), Flatten(), Dense(10, activation="softmax"))}, "leaves nothing"),
        ({"layers": (Flatten(), Dropout(1.0), Dense(10, activation="softmax"))}, "rate"),
        ({"layers": (Flatten(), Dense(1, activation="sigmoid"))}, "binary"),
        ({"dataset": "mnits"}, "unknown data set 'mnits', known: mnist"),
        ({"batch": 0}, "at least 1"),
    ],
)
def test_scenarios_that_do_not_fit_together_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=rf"mnist-cnn: .*{words}"):
        broken(**changes)


def test_the_digest_depends_only_on_what_is_computed() -> None:
    base = CATALOG["catdog-cnn"]["conv-dropout"]
    assert spec.digest(replace(base, title="Other", study="other")) == spec.digest(base)
    changed = {
        "name": "other",
        "dataset": "mnist",
        "image": (60, 60, 3),
        "layers": (*base.layers[:-3], Dropout(0.4), *base.layers[-2:]),
        "loss": None,  # depends on the layers
        "optimizer": Adadelta(learning_rate=1e-3),
        "batch": 33,
        "epochs": 26,
        "variant": "other",
        "augment": Augment(shear=0.3),
        "scaling": "bilinear",
        "inference_batch": 1,
        "proof_batch": 1,
    }
    assert {field.name for field in fields(base)} - set(changed) == {"title", "study"}
    digests = {spec.digest(replace(base, **{k: v})) for k, v in changed.items() if v is not None}
    assert len(digests | {spec.digest(base)}) == len(changed)
    assert spec.digest(replace(MNIST, scaling="bilinear")) == spec.digest(MNIST)  # type: ignore[arg-type]
    sgd, same_numbers = replace(base, optimizer=Sgd(1.0)), replace(base, layers=(MaxPool(3), *base.layers[1:]))
    assert spec.digest(sgd) != spec.digest(replace(base, optimizer=Adam(1.0)))
    assert spec.digest(same_numbers) != spec.digest(base)


def test_without_randomness_keeps_the_positions_of_layers() -> None:
    for scenario in EVERY:
        quiet = spec.without_randomness(scenario)
        assert spec.parameters(quiet) == spec.parameters(scenario)
        assert quiet.augment is None
        assert all(layer.rate == 0 for layer in quiet.layers if isinstance(layer, Dropout))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must define SCENARIO"),
        ("from scenarios.catalog.mnist_cnn import SCENARIO", "'mnist-cnn' is not available"),
        (
            (
                "from dataclasses import replace\nfrom scenarios.catalog.mnist_cnn import SCENARIO as S\n"
                "SCENARIO = replace(S, name='ceilings')"
            ),
            "'ceilings' is not available",
        ),
        (
            (
                "from dataclasses import replace\nfrom scenarios.catalog.mnist_cnn import SCENARIO as S\n"
                "SCENARIO = replace(S, name='x')\nVARIANTS = (SCENARIO,)"
            ),
            "its own variant name",
        ),
    ],
)
def test_a_broken_catalog_module_is_named(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "__path__", [*catalog.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "scenarios.catalog.zz_added", raising=False)
    (tmp_path / "zz_added.py").write_text(text)
    with pytest.raises(ValueError, match=rf"zz_added\.py.*{words}"):
        catalog.load()
    monkeypatch.delitem(sys.modules, "scenarios.catalog.zz_added")


# ---- weights ---------------------------------------------------------------------------------------------------


def test_weights_depend_on_the_seed_and_their_initializer() -> None:
    for make in (initial_weights, check_weights):
        first = make(MNIST, 1)
        assert weights_digest(first) == weights_digest(make(MNIST, 1)) != weights_digest(make(MNIST, 2))
        assert [(p.name, p.shape) for p in spec.parameters(MNIST)] == [(n, v.shape) for n, v in first.items()]
        assert {value.dtype for value in first.values()} == {np.dtype(np.float32)}
    initial, check = initial_weights(MNIST, 0), check_weights(MNIST, 0)
    limit = math.sqrt(6 / (1600 + 128))
    assert limit * 0.999 < np.abs(initial["5/kernel"]).max() <= limit
    assert initial["5/kernel"].std() == pytest.approx(limit / math.sqrt(3), rel=0.01)
    assert not any(value.any() for name, value in initial.items() if name.endswith("bias"))
    assert check["5/kernel"].std() == pytest.approx(math.sqrt(2 / 1600), rel=0.01)
    assert all(value.all() for name, value in check.items() if name.endswith("bias"))
    deep = initial_weights(CATALOG["catdog-cnn"]["deep"], 0)
    assert deep["9/kernel"].std() == pytest.approx(math.sqrt(2 / (9 * 64)), rel=0.02)


def test_weights_digest_covers_names_shapes_values_and_order() -> None:
    base = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float32)}
    others = [
        {"c": base["a"], "b": base["b"]},
        {"a": base["a"].reshape(3, 2), "b": base["b"]},
        {"a": np.nextafter(base["a"], 9).astype(np.float32), "b": base["b"]},
        {"b": base["b"], "a": base["a"]},
    ]
    assert weights_digest(base) not in {weights_digest(other) for other in others}
    assert weights_digest({"a": np.asfortranarray(base["a"]), "b": base["b"]}) == weights_digest(base)


# ---- files between orchestrator and worker ---------------------------------------------------------------------


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the contract, each number within its range."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        low, high = arguments[1].low, arguments[1].high
        return st.integers(low, high) if arguments[0] is int else st.floats(low, high)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{f.name: values_of(hints[f.name]) for f in fields(kind) if f.name != "schema"})
    if origin is list:
        return st.lists(values_of(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.text(), values_of(arguments[1]), max_size=2)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(each) for each in arguments])
    if kind is int:
        return st.integers(-MAX_INT, MAX_INT)
    return st.floats(allow_nan=False, allow_infinity=False) if kind is float else st.from_type(kind)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(result=values_of(Result), request_=values_of(Request))
def test_documents_are_read_back_equal(result: Result, request_: Request) -> None:
    assert from_json(Result, to_json(result)) == result
    assert from_json(Request, to_json(request_)) == request_


PROOF = Proof(True, [Check("logits", 1e-6, 5e-4, True)], "keras", 1.5, False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"surprise": 1}, "unknown keys surprise"),
        ({"cached": None}, r"Proof\.cached: None"),
        ({"cached": 1}, r"Proof\.cached: 1"),
        ({"seconds": "1"}, r"Proof\.seconds"),
        ({"checks": {}}, r"Proof\.checks"),
        ({"checks": [{"name": "x"}]}, r"Proof\.checks\[0\]: missing keys error, passed, tolerance"),
        ({"schema": SCHEMA + 1}, "newer"),
    ],
)
def test_invalid_documents_are_refused_with_the_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        from_json(Proof, json.dumps(json.loads(to_json(PROOF)) | change))


@pytest.mark.parametrize("value", [None, True, 1.0])
def test_only_integers_are_read_as_integers(value: object) -> None:
    with pytest.raises(ContractError, match=rf"Window\.steps: {value}"):
        from_json(Window, json.dumps({"start_at": 0, "seconds": 1, "steps": value, "images": 1}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff\xfe"])
def test_text_that_is_not_a_document_is_refused(text: str | bytes) -> None:
    with pytest.raises(ContractError):
        from_json(Proof, text)


def test_text_that_is_nested_almost_too_deeply_is_refused() -> None:
    for depth in range(100, 1001):  # at some depth, the parser succeeds and the message about the value fails
        with pytest.raises(ContractError):
            from_json(Proof, to_json(PROOF).replace("1.5", "[" * depth + "]" * depth))


def test_numbers_that_json_does_not_have_are_not_written(tmp_path: Path) -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ContractError, match="Proof"):
            codec.write(tmp_path / "result.json", replace(PROOF, seconds=value))
    codec.write(tmp_path / "good.json", PROOF)
    assert from_json(Proof, (tmp_path / "good.json").read_text()) == PROOF
