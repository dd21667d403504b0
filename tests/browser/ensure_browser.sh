#!/usr/bin/env bash
# Install headless Chromium on Debian or Ubuntu, as root, unless it is there.
set -euo pipefail

command -v chromium >/dev/null && exit
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium >/dev/null
chromium --version
