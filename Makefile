# `make` alone lists the targets. Everything runs in .venv, which any target makes when it is missing or out of date.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run test faults lab notebooks lint bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv and install everything, as pinned in constraints.txt

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit(f"Python {v[0]}.{v[1]} found; 3.11 to 3.13 is needed: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[notebooks,test]'
	@touch $@

run: $(READY)  ## execute the series into runs/notebooks/ and print a table
	$(BIN)/fsdp2-lab notebooks

test: $(READY)  ## run the whole test suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest

faults: $(READY)  ## meet every fault on real launches, two at a time: ten minutes on two cores
	$(BIN)/pytest tests/faults --faults-all --numprocesses 2

lab: $(READY)  ## open JupyterLab on the notebooks
	$(BIN)/jupyter lab --notebook-dir . --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb

notebooks: $(READY)  ## execute the series in place and keep its outputs
	$(BIN)/fsdp2-lab notebooks --in-place
	$(BIN)/python docs/figures.py

lint: $(READY)  ## format and lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure what recording costs a step, and what the launcher survives
	$(BIN)/python benchmarks/recording.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/warm.py

clean:  ## remove runs and checkpoints; .venv stays
	rm -rf runs checkpoints
