"""Test that frameworks and scenarios are found in the asset folders, and that errors name the broken file."""

from __future__ import annotations

import pytest

from kit import assets
from kit.model.device_code import DeviceCode
from kit.model.errors import UsageError
from kit.planning import catalog

COMPLETE = """
title = "Example"
devices = ["cpu", "cuda"]
modules = ["example", "other"]
cuda_major = 13
min_driver = 580
max_capability = [12, 0]

[device_code]
"example==1.0/libexample.so" = ["sm_75", "compute_90+ptx85"]
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Make an asset folder with one framework. Return its framework.toml."""
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    file = tmp_path / "docker" / "example" / "framework.toml"
    adapter = tmp_path / "scenarios" / "frameworks" / "example" / "adapter.py"
    for path, text in ((file, COMPLETE), (adapter, "raise ImportError('adapters are never imported')")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return file


def test_a_framework_consists_of_two_files(config):
    framework = catalog.frameworks()["example"]
    assert framework.modules == ("example", "other")
    assert (framework.title, framework.devices, framework.cuda_major) == ("Example", ("cpu", "cuda"), 13)
    assert (framework.min_driver, framework.max_capability, framework.folder) == (580, (12, 0), config.parent)
    assert framework.device_code == {
        "example==1.0/libexample.so": (DeviceCode((7, 5)), DeviceCode((9, 0), ptx=(8, 5))),
    }


def test_a_framework_without_cuda_needs_no_cuda_fields(config):
    config.write_text('title = "Example"\ndevices = ["cpu"]\nmodules = []\n')
    framework = catalog.frameworks()["example"]
    assert (framework.devices, framework.cuda_major, framework.device_code) == (("cpu",), None, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title", "titel", "titel"),
        ("cuda_major = 13", "", "cuda_major"),
        ('"cpu", "cuda"', '"cpu", "tpu"', "tpu"),
        ('["cpu", "cuda"]', '["cpu"]', "min_driver"),
        ("580", '"580"', "min_driver"),
        ('["example", "other"]', '"example"', "modules"),
        ("[12, 0]", "12.0", "max_capability"),
        ("[12, 0]", "[-1, 0]", "max_capability"),
        ("= 580", "= -580", "min_driver"),
        ("sm_75", "sm_75b", "sm_75b"),
        ("sm_75", "sm_٧٥", "sm_٧٥"),
        ("sm_75", f"sm_{'7' * 5000}", "is not an architecture"),
        ("ptx85", f"ptx{'8' * 5000}", "is not an architecture"),
        ("example==1.0/", "", "device_code"),
        ('"example==1.0/libexample.so" = ["sm_75", "compute_90+ptx85"]', "", "device_code"),
        ('["sm_75", "compute_90+ptx85"]', "[75]", r"device_code\.example==1\.0/libexample\.so\.0"),
        ('"Example"', "", "framework.toml"),
    ],
)
def test_the_error_of_an_invalid_file_names_the_file_and_the_field(config, old, new, message):
    config.write_text(COMPLETE.replace(old, new))
    with pytest.raises(UsageError, match=message) as caught:
        catalog.frameworks()
    assert str(config) in str(caught.value)


def test_the_error_of_a_missing_adapter_names_its_file(config, tmp_path):
    (tmp_path / "scenarios/frameworks/example/adapter.py").unlink()
    with pytest.raises(UsageError, match=r"scenarios/frameworks/example/adapter\.py"):
        catalog.frameworks()


def test_no_framework_is_an_error_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    with pytest.raises(UsageError, match="KIT_ASSETS"):
        catalog.frameworks()


def test_a_broken_scenario_is_an_error_with_its_text(monkeypatch):
    def broken():
        raise ValueError("scenarios/catalog/x.py must define SCENARIO")

    monkeypatch.setattr(catalog, "load", broken)
    with pytest.raises(UsageError, match=r"catalog/x\.py"):
        catalog.scenarios()
