"""Make /opt/venv and install the packages of the lock in it, as root in the container of a build.

/build is a temporary volume. The image that is made from this container does not contain it.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

BUILD = Path("/build")

venv.create("/opt/venv", symlinks=True, with_pip=True)  # as `python3 -m venv`
proxies = json.loads((BUILD / "proxies.json").read_text())
options = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--no-cache-dir"]
pip = ["/opt/venv/bin/pip", "install", *options, "--requirement", str(BUILD / "requirements.lock")]
variables = {**os.environ, **proxies, "PIP_CONFIG_FILE": str(BUILD / "pip.conf")}
sys.exit(subprocess.run(pip, env=variables, check=False).returncode)
