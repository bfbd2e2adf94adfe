# Every target does its own set-up: `make demo` or `make test` is all a fresh clone needs.

PYTHON ?= python3
TORCH ?= 2.13.0
DEMO_FLAGS ?=
PYTEST_FLAGS ?= -n 2 --dist worksteal

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready-$(TORCH).stamp
CPU_BUILDS := https://download.pytorch.org/whl/cpu

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format reference matrix wheels clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY)  ## make .venv with the CPU build of torch and this package in it

demo: $(READY)  ## compile, check and time the three demo models (up to 10 minutes)
	$(BIN)/halide-backend demo $(DEMO_FLAGS)

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(READY)  ## ruff (lint and format) and mypy --strict, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## let ruff rewrite what lint would complain about
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY)  ## write the generated pages of docs/ again
	$(BIN)/python -m halide_backend.inspection.options_page docs/reference/options.md
	$(BIN)/python -m halide_backend.inspection.operations_page docs/reference/operations.md
	$(BIN)/python -m halide_backend.inspection.refusals_page docs/reference/refusals.md
	$(BIN)/python -m halide_backend.inspection.records_page docs/reference/records.md
	$(BIN)/python -m halide_backend.inspection.steps_page docs/reference/schedule-steps.md
	$(BIN)/python -m halide_backend.inspection.knobs_page docs/reference/schedule-knobs.md
	$(BIN)/python -m halide_backend.inspection.one_kernel_page docs/design/one-kernel.md

matrix:  ## run the tests on every supported torch (2.11, 2.13, 2.15)
	bash tests/matrix.sh

wheels:  ## build and check what PyPI takes: dist/*.tar.gz, and a manylinux_2_28 wheel for each Python (3.10 to 3.13) that is there
	bash packaging/wheels.sh

clean:  ## remove the environment and everything built or written here
	rm -rf $(VENV) .venv-* build dist *.egg-info demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find halide_backend kernels_cache tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f halide_backend/launch/*.so halide_backend/kernel_library/cuda/*.so halide_backend/packages/bytecode/*.so

# A CPU build carries the version 2.13.0+cpu, which pip prefers to PyPI's plain 2.13.0 (the one that brings 2 GB of
# CUDA libraries) as soon as any index offers it. The index is asked first, because pip would retry for minutes
# where it cannot be reached. torch goes in before the package, whose requirement it then satisfies already.
$(READY): pyproject.toml $(wildcard halide_backend/launch/*.[ch] halide_backend/kernel_library/cuda/*.cpp)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "$(PYTHON) is older than Python 3.10: run make PYTHON=python3.12 (or newer)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/*.stamp
	index=$$($(PYTHON) -c 'import urllib.request as u; u.urlopen("$(CPU_BUILDS)/torch/", timeout=5)' 2>/dev/null \
	  && echo "--extra-index-url $(CPU_BUILDS)"); \
	$(BIN)/python -m pip install --quiet $$index "torch==$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[test,lint,demo]"
	@touch $@
