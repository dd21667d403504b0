#!/usr/bin/env bash
# Run a command in a clean clone, in a new container that has only what the README asks for: python3 with venv, make,
# git and certificates. So a missing install step cannot hide behind what this machine has installed.
#
#   tests/docker/fresh_machine.sh make test
#
# The pip configuration of this machine (index, wheel folder, CA bundle) is passed in read-only, as a user behind a
# proxy would do. It needs a Docker daemon and a base image, see ensure_docker.sh. It does nothing as root inside.
set -euo pipefail
cd "$(dirname "$0")/../.."

base=${KIT_BASE_IMAGE:-debian:bookworm-slim}
image=kit-tests:fresh-machine
settings=$(mktemp -d)
trap 'rm -rf "$settings"' EXIT

docker build --quiet --tag "$image" --build-arg "BASE=$base" - <tests/docker/fresh_machine.Dockerfile >/dev/null

# Write the pip configuration, and list each local file or folder that it names.
python3 - "$settings/pip.conf" >"$settings/paths" <<'PYTHON'
import ast, os, re, subprocess, sys
from pathlib import Path

listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
found = {}
for scope in ("global", "install", ":env:"):  # later ones override earlier ones, as in pip
    found |= dict(re.findall(rf"^{scope}\.(index-url|extra-index-url|find-links|cert)=(.*)$", listing.stdout, re.M))
found = {name: " ".join(ast.literal_eval(value).split()) for name, value in found.items()}
certificate = found.pop("cert", None) or os.environ.get("SSL_CERT_FILE")
if certificate:
    found["cert"] = "/run/host/ca.pem"
    print(f"{certificate}:/run/host/ca.pem")
for value in " ".join(found[name] for name in found if name != "cert").split():
    path = Path(value.removeprefix("file://"))
    path = path.parent if path.name == "simple" else path  # an index refers to files next to it
    if path.is_absolute() and path.exists():
        print(f"{path}:{path}")
Path(sys.argv[1]).write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in found.items()))
PYTHON
mapfile -t paths <"$settings/paths"

options=(--volume "$settings/pip.conf:/etc/pip.conf:ro" --volume "$PWD:/run/host/kit:ro")
for path in "${paths[@]}"; do
  options+=(--volume "$path:ro")
  [[ $path != *:/run/host/ca.pem ]] || options+=(--env SSL_CERT_FILE=/run/host/ca.pem)
done

docker run --rm --init "${options[@]}" "$image" sh -euc '
  git config --global safe.directory "*"
  git clone --quiet /run/host/kit kit
  cd kit
  exec "$@"' sh "$@"
