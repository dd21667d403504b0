# One target per action. CI calls the same targets. `make` without a target lists them.
PYTHON ?= python3
BIN := .venv/bin
RUN_ARGS ?=
BENCH_PAIRS ?= 4
WHEELS ?=
CHECK_ARGS ?=
LOCK = $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"
HAS_PYTHON = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kit needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
# uv and make separate folders by spaces.
HAS_NAME = @[ $(words $(WHEELS)) = 1 ] || { echo 'Name one folder without spaces: WHEELS=FOLDER.' >&2; exit 1; }
HAS_WHEELS = @ls $(WHEELS)/*.whl > /dev/null 2>&1 || { echo '"$(WHEELS)" has no wheels. Download them with: make wheels WHEELS=$(WHEELS)' >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help setup run test test-browser test-cuda-stubs test-docker test-slow test-gpu gpu-check wheels bench bench-tuned bench-aa sample lint format lock docs docs-faults images clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

setup: $(BIN)/kit ## create .venv with an executable kit

$(BIN)/kit: requirements-dev.lock pyproject.toml
	$(HAS_PYTHON)
	@echo 'Setting up .venv (about a minute) ...'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup ## measure this machine with kit run --all (RUN_ARGS adds options)
	$(BIN)/kit run --all $(RUN_ARGS)

test: setup ## run all quick tests, and say what was skipped and why
	$(BIN)/python -m pytest tests/unit -n auto
	$(BIN)/python -m tests.run_contract
	$(BIN)/python -m pytest tests/browser tests/cuda_stubs tests/docker tests/gpu -m "not slow"
	@echo "Not included: whole runs in containers (make test-docker), tests on an idle machine (make test-slow)."

test-browser: setup ## open reports in headless Chromium (needs chromium)
	$(BIN)/python -m pytest tests/browser

test-cuda-stubs: setup ## run ONNX Runtime on stubs of CUDA (needs gcc)
	$(BIN)/python -m pytest tests/cuda_stubs

test-docker: setup ## run all container tests, with whole runs (needs Docker)
	$(BIN)/python -m pytest tests/docker -m "not large"

test-slow: setup ## run the tests that need an idle machine or all images
	$(BIN)/python -m pytest tests/slow tests/docker/test_cuda_images.py

test-gpu: setup ## run the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest tests/gpu
	KIT_TEST_DEVICE=cuda $(BIN)/python -m tests.run_contract

gpu-check: $(if $(WHEELS),$(BIN)/offline,setup) ## check an NVIDIA GPU (30 minutes; WHEELS=, CHECK_ARGS=)
	$(if $(WHEELS),$(HAS_NAME))
	$(if $(WHEELS),$(HAS_WHEELS))
	$(if $(WHEELS),UV_NO_INDEX=1 UV_FIND_LINKS=$(abspath $(WHEELS))) $(BIN)/python -m tests.gpu_check $(CHECK_ARGS)

$(BIN)/offline: requirements.lock
	$(HAS_NAME)
	$(HAS_WHEELS)
	$(HAS_PYTHON)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-index --find-links $(WHEELS) --require-hashes -r $<
	@touch $@

wheels: ## download kit's packages for gpu-check to WHEELS (PYTHON=)
	$(HAS_NAME)
	$(HAS_PYTHON)
	@mkdir -p $(WHEELS)
	$(PYTHON) -m venv --clear .cache/wheels
	.cache/wheels/bin/pip download --quiet --require-hashes --only-binary :all: --dest $(WHEELS) -r requirements.lock
	.cache/wheels/bin/pip download --quiet --require-hashes --only-binary :all: --dest $(WHEELS) -r tests/contract/tools.lock
	@rm -rf .cache/wheels

bench: setup ## measure the overhead of kit (90 minutes; BENCH_PAIRS=4)
	$(BIN)/python -m benchmarks.overhead --framework tensorflow --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.overhead --framework torch --launches 15 --pairs 40 --images 320
	$(BIN)/python -m benchmarks.container --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.sampler_cost
	$(BIN)/python -m benchmarks.coverage
	$(BIN)/python -m benchmarks.gate_power

bench-tuned: setup ## measure the tuned lane and the image pipeline (hours)
	$(BIN)/python -m benchmarks.pipeline --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.tuned --pairs $(BENCH_PAIRS)
	$(BIN)/python -m benchmarks.tuned --pairs $(BENCH_PAIRS) --against keras --precision bf16

bench-aa: setup ## compare kit with itself, also slowed down (hours)
	$(BIN)/python -m benchmarks.against_itself
	$(BIN)/python -m benchmarks.against_itself --slowed --scenario mnist-cnn-dropout --framework tensorflow

sample: setup ## measure reports/sample, and draw README's pictures (1 to 2 h)
	$(BIN)/python -m benchmarks.sample

lint: setup ## check formatting, ruff, mypy --strict and the import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## format the code, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## update all locks and lists of device code (several GB)
	$(LOCK) pyproject.toml --universal -o requirements.lock
	$(LOCK) pyproject.toml --universal --group dev -c requirements.lock -o requirements-dev.lock
	$(LOCK) tests/contract/tools.in --no-annotate -c requirements-dev.lock -o tests/contract/tools.lock
	$(BIN)/python -m kit.environments.locks
	$(BIN)/python -m kit.environments.device_code

docs: setup ## generate docs/records.md and docs/exports.md
	$(BIN)/python -m tests.records_doc
	$(BIN)/python -m tests.exports_doc

docs-faults: setup ## generate docs/faults.md from the tests with faults
	$(BIN)/python -m tests.faults_doc

images: setup ## build all images for CPU and CUDA
	$(BIN)/kit build --device cpu --device cuda --engine docker

clean: ## remove leftovers of dead runs, .venv, caches of tools
	[ ! -x $(BIN)/kit ] || $(BIN)/kit clean
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
