# One word an action; CI calls the same words. `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
RUN_ARGS ?=
BENCH_PAIRS ?= 4
LOCK = $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup run test test-docker test-gpu bench bench-tuned bench-aa lint format lock images clean

help: ## list these words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(BIN)/kit ## make the environment alone: .venv with an executable kit

$(BIN)/kit: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup ## measure this machine: kit run --all in the quick profile (RUN_ARGS adds options)
	$(BIN)/kit run --all $(RUN_ARGS)

test: setup ## all quick tests that this machine can run; says what it skipped and why
	$(BIN)/python -m pytest tests/unit -n auto
	$(BIN)/python -m tests.run_contract
	$(BIN)/python -m pytest tests/docker tests/gpu -m "not slow"
	@echo "Not in this: whole runs in containers (make test-docker)."

test-docker: setup ## the container tests, whole runs too; they need a Docker daemon and a base image
	$(BIN)/python -m pytest tests/docker

test-gpu: setup ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest tests/gpu
	KIT_TEST_DEVICE=cuda $(BIN)/python -m tests.run_contract

bench: setup ## what the kit costs against baselines, one JSON line each; 90 minutes (BENCH_PAIRS=4, of each launch)
	$(BIN)/python -m benchmarks.overhead --framework tensorflow --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.overhead --framework torch --launches 15 --pairs 40 --images 320
	$(BIN)/python -m benchmarks.container --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.sampler_cost
	$(BIN)/python -m benchmarks.coverage

bench-tuned: setup ## what the tuned lane and the image pipeline gain, one JSON line each; hours (BENCH_PAIRS=4)
	$(BIN)/python -m benchmarks.pipeline --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.tuned --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.tuned --pairs $(BENCH_PAIRS) --against keras --precision bf16

bench-aa: setup ## the kit against itself: unchanged, and one worker slowed by a tenth; hours
	$(BIN)/python -m benchmarks.against_itself
	$(BIN)/python -m benchmarks.against_itself --slowed --scenario mnist-cnn-dropout --framework tensorflow

lint: setup ## formatting, ruff, mypy --strict, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## format and mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## refresh all hash-locked lists
	$(LOCK) pyproject.toml --universal -o requirements.lock
	$(LOCK) pyproject.toml --universal --group dev -c requirements.lock -o requirements-dev.lock
	$(LOCK) tests/contract/tools.in --no-annotate -c requirements-dev.lock -o tests/contract/tools.lock
	$(BIN)/python -m kit.environments.lock_packages

images: setup ## build every image, CPU and CUDA
	$(BIN)/kit build --device cpu --device cuda --engine docker

clean: ## remove leftovers of dead runs, then the environment and caches of this folder
	[ ! -x $(BIN)/kit ] || $(BIN)/kit clean
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
