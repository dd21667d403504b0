"""Read pip's configuration, so that a machine on which pip works needs no second one."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kit.model.errors import UsageError


def read(environment: Mapping[str, str]) -> dict[str, str]:
    """Return pip's effective cert, index-url and find-links, from its files and from PIP_* variables."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    settings = {}
    for scope in ("global", "install", ":env:"):  # later ones override earlier ones, as in pip
        for name in ("cert", "index-url", "find-links"):
            found = re.findall(rf"^{scope}\.{name}=(['\"].*['\"])$", listing.stdout, re.MULTILINE)
            if found:  # newer versions of pip list each file; the last one counts
                settings[name] = ast.literal_eval(found[-1]).strip()  # pip prints the value as a literal of Python
    return settings


def ca_bundle(environment: Mapping[str, str], pip: Mapping[str, str] | None = None) -> Path | None:
    """Return the PEM file with the certificates of a proxy or mirror: KIT_CA_BUNDLE, pip's cert or SSL_CERT_FILE.

    pip: the result of `read`, if it is there. Raise UsageError if the file is missing or cannot be read.
    """
    named = environment.get("KIT_CA_BUNDLE") or (read(environment) if pip is None else pip).get("cert")
    name = named or environment.get("SSL_CERT_FILE")
    if not name:
        return None
    bundle, remedy = Path(name), "Set --ca-bundle or KIT_CA_BUNDLE to a PEM file that you may read."
    try:
        if not bundle.is_file():  # a pipe can be read only once
            raise UsageError(f"The CA bundle {bundle} is not a file.", remedy)
        bundle.read_bytes()
    except OSError as error:
        raise UsageError(f"The CA bundle {bundle} cannot be read: {error.strerror}.", remedy) from error
    return bundle.absolute()


@cache  # pip starts slowly
def certificates() -> str | None:
    """Return what `requests` verifies servers with: the path of `ca_bundle`, or None for its default. Raise UsageError
    as `ca_bundle` does."""
    bundle = ca_bundle(os.environ)
    return str(bundle) if bundle else None
