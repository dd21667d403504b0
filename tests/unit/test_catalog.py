"""What exists is what lies in the folders, and a broken file is named."""

from __future__ import annotations

import pytest

from kit import assets
from kit.model.errors import UsageError
from kit.planning import catalog

WHOLE = """
title = "Example"
devices = ["cpu", "cuda"]
modules = ["example", "other"]
cuda_major = 13
min_driver = 580
min_capability = [7, 5]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An asset folder with one framework, whose framework.toml it returns."""
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    file = tmp_path / "docker" / "example" / "framework.toml"
    adapter = tmp_path / "scenarios" / "frameworks" / "example" / "adapter.py"
    for path, text in ((file, WHOLE), (adapter, "raise ImportError('adapters are never imported')")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return file


def test_a_framework_is_its_two_files(folder):
    framework = catalog.frameworks()["example"]
    assert framework.modules == ("example", "other")
    assert (framework.title, framework.devices, framework.cuda_major) == ("Example", ("cpu", "cuda"), 13)
    assert (framework.min_driver, framework.min_capability, framework.folder) == (580, (7, 5), folder.parent)


def test_a_framework_without_cuda_says_nothing_of_cuda(folder):
    folder.write_text('title = "Example"\ndevices = ["cpu"]\nmodules = []\n')
    framework = catalog.frameworks()["example"]
    assert (framework.devices, framework.cuda_major, framework.min_capability) == (("cpu",), None, None)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("title", "titel", "titel"),
        ("cuda_major = 13", "", "cuda_major"),
        ('"cpu", "cuda"', '"cpu", "tpu"', "tpu"),
        ('["cpu", "cuda"]', '["cpu"]', "min_driver"),
        ("580", '"580"', "min_driver"),
        ('["example", "other"]', '"example"', "modules"),
        ("[7, 5]", "7.5", "min_capability"),
        ('"Example"', "", "framework.toml"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(folder, old, new, told):
    folder.write_text(WHOLE.replace(old, new))
    with pytest.raises(UsageError, match=told) as caught:
        catalog.frameworks()
    assert str(folder) in str(caught.value)


def test_an_absent_adapter_is_named(folder, tmp_path):
    (tmp_path / "scenarios/frameworks/example/adapter.py").unlink()
    with pytest.raises(UsageError, match=r"scenarios/frameworks/example/adapter\.py"):
        catalog.frameworks()


def test_no_framework_at_all_is_an_error_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    with pytest.raises(UsageError, match="KIT_ASSETS"):
        catalog.frameworks()


def test_a_broken_scenario_is_an_error_with_its_text(monkeypatch):
    def broken():
        raise ValueError("scenarios/catalog/x.py must define SCENARIO")

    monkeypatch.setattr(catalog, "load", broken)
    with pytest.raises(UsageError, match=r"catalog/x\.py"):
        catalog.scenarios()
