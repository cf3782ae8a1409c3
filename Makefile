# Every target sets up what it needs: on a machine with only Python and make, start with any of them.
PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= auto
BIN    := $(VENV)/bin
CODE   := ladder tests examples benchmarks

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-gpu lint fmt types imports golden matrix bench lock all clean

help: ## show this list
	@echo "usage: make TARGET [PYTHON=python3.12] [VENV=.venv] [JOBS=4]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## create .venv with everything pinned (runtime, TVM, NVRTC, tests, linters)

demo: $(VENV)/.compile ## the main job: int4-g128 at N=K=8192 for an H200, from declaration to a checked result
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev ## run the tests (GPU tests skip themselves where there is no driver)
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 $(ARGS)

test-gpu: $(VENV)/.dev ## run only the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu $(ARGS)

lint: $(VENV)/.dev ## style, formatting and spelling (ruff, typos)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/typos

fmt: $(VENV)/.dev ## mend style and formatting in place
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

types: $(VENV)/.dev ## mypy --strict
	$(BIN)/mypy

imports: $(VENV)/.dev ## packages import only packages to their left (import-linter)
	$(BIN)/lint-imports

golden: $(VENV)/.dev ## write the golden files anew; read the diff before committing it
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 --update-golden $(ARGS)

matrix: $(VENV)/.dev ## compile every family x type x architecture, report registers and spills
	$(BIN)/python -m benchmarks.matrix $(ARGS)

bench: $(VENV)/.compile ## time kernels on the GPU of this machine, against cuBLAS
	$(BIN)/python -m benchmarks.bench $(ARGS)

lock: $(VENV)/.dev ## write requirements/*.txt anew from pyproject.toml
	$(BIN)/pip install --quiet uv==0.13.9
	$(BIN)/uv pip compile $(LOCK) --extra cuda --extra compile --extra models --extra torch --extra plot --extra parquet --extra dev -o requirements/dev.txt
	$(BIN)/uv pip compile $(LOCK) --extra cuda --extra compile -c requirements/dev.txt -o requirements/compile.txt
	$(BIN)/uv pip compile $(LOCK) --extra cuda -c requirements/dev.txt -o requirements/run.txt
LOCK := -q --universal --python-version 3.10 --no-header --no-annotate pyproject.toml

all: lint types imports test ## what CI runs, in its order

clean: ## remove .venv, caches and build outputs
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info

# One environment; dev.txt contains compile.txt, so setting up the larger one also serves `demo`.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "ladder needs Python 3.10 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.compile: requirements/compile.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/compile.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@ $(VENV)/.compile
