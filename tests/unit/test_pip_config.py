"""Test what is read from pip's configuration, with the real pip, and that downloads use its certificates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import requests

from kit.cli.options import Packages
from kit.datasets.download import download
from kit.datasets.registry import RemoteFile
from kit.environments.package_sources import Sources
from kit.host import pip_config
from kit.host.pip_config import ca_bundle, certificates, read  # before a fixture replaces it
from kit.model.errors import DataError, UsageError
from kit.model.progress import Silent


def configured(folder: Path, text: str) -> dict[str, str]:
    """Return an environment in which this is pip's last configuration file."""
    (folder / "pip.conf").write_text(text)
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PIP_CONFIG_FILE": str(folder / "pip.conf")}


def test_pips_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "it's a bundle.pem"
    bundle.touch()
    places = "find-links =\n    https://one.example/wheels\n    https://two.example/wheels\n"
    environment = configured(tmp_path, f"[global]\nindex-url = https://index.example/simple\n{places}cert = {bundle}\n")
    monkeypatch.setattr(pip_config, "read", read)
    sources = Sources.from_environment(environment)
    assert sources.index_url == "https://index.example/simple"
    assert sources.find_links == "https://one.example/wheels"
    assert sources.ca_bundle == ca_bundle(environment) == bundle
    variables = {"KIT_FIND_LINKS": "https://own.example", "PIP_INDEX_URL": "https://i"}
    own = Sources.from_environment(environment | variables)
    assert (own.find_links, own.index_url) == ("https://own.example", "https://i")


def test_downloads_trust_the_certificates_of_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = []

    def get(*args: object, verify: str | None, **kwargs: object) -> None:
        trusted.append(verify)
        raise requests.ConnectionError("No.")

    monkeypatch.setattr("requests.get", get)
    (tmp_path / "ca.pem").touch()
    for bundle in (tmp_path / "ca.pem", None, tmp_path / "missing.pem"):
        monkeypatch.setenv("KIT_CA_BUNDLE", str(bundle or ""))
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        pip_config.certificates.cache_clear()
        with pytest.raises((DataError, UsageError), match=r"missing\.pem is not a file|KIT_CA_BUNDLE if a certificate"):
            download(RemoteFile("x", 1, ""), ["http://127.0.0.1/x"], tmp_path / "x", Silent(), None)
    assert trusted == [str(tmp_path / "ca.pem"), None]


def test_the_option_of_a_command_counts_for_downloads_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    (tmp_path / "ca.pem").touch()
    assert certificates() is None
    certificates.cache_clear()
    Packages(ca_bundle=str(tmp_path / "ca.pem")).sources()
    assert certificates() == str(tmp_path / "ca.pem")
