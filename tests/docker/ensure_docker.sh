#!/bin/bash
# Start a Docker daemon and provide a base image for the tests in this folder. Run this as root on Debian or Ubuntu.
# If a daemon answers and has the base image, or can pull it, nothing changes. It is safe to run this again.
set -euo pipefail

base=${KIT_BASE_IMAGE:-debian:bookworm-slim}

install_missing() { # package:command pairs
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair#*:}" >/dev/null || missing+=("${pair%%:*}")
  done
  if ((${#missing[@]})); then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${missing[@]}"
  fi
}

start_daemon() {
  local log
  log=$(mktemp --tmpdir dockerd-XXXXXX.log)
  install_missing docker.io:dockerd iptables:iptables
  setsid nohup dockerd >"$log" 2>&1 </dev/null &
  for _ in {1..120}; do
    docker info >/dev/null 2>&1 && return
    sleep 0.5
  done
  echo "dockerd does not answer; the end of $log:" >&2
  tail -n 20 "$log" >&2
  return 1
}

make_base_image() { # with Debian's own tool: the same packages as in the published slim image
  install_missing debootstrap:debootstrap
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  debootstrap --variant=minbase bookworm "$root"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -c . | docker import - "$base"
}

docker info >/dev/null 2>&1 || start_daemon
docker image inspect "$base" >/dev/null 2>&1 || docker pull --quiet "$base" || make_base_image
echo "Docker $(docker version --format '{{.Server.Version}}') with $base"
