# Every target sets up what it needs: a fresh machine has only Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
MPI := $(VENV)/.mpi-installed
DOCS := $(VENV)/.docs-installed
TORCH := .venv-torch
TORCH_INSTALLED := $(TORCH)/.torch-installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST ?= $(BIN)/python -m pytest

.PHONY: help demo docs test test-all test-slurm test-slurm-rest test-random test-torch soak fuzz cluster cluster-down lint types format coverage test-wheel wheel bench sample curves constraints clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("FreeTrain needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Nothing was installed. Try: make PYTHON=python3.12 demo") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 69; }

$(RUNTIME): $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing FreeTrain into $(VENV) ..."
	@$(INSTALL) --editable .
	@touch $@

$(DEV): $(RUNTIME)
	@echo "installing the development tools into $(VENV) ..."
	@$(INSTALL) --upgrade 'pip>=25.1'
	@$(INSTALL) --group dev
	@touch $@

$(MPI): $(RUNTIME)
	@echo "installing mpi4py and Open MPI into $(VENV) ..."
	@$(INSTALL) --editable '.[mpi]'
	@touch $@

$(DOCS): $(RUNTIME) zensical.toml
	@echo "installing what builds the site into $(VENV) ..."
	@$(INSTALL) --upgrade 'pip>=25.1'
	@$(INSTALL) --group docs
	@touch $@

$(TORCH_INSTALLED): pyproject.toml constraints.txt
	@echo "installing PyTorch and the libraries on it into $(TORCH) ..."
	@test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade 'pip>=25.1'
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group torch
	@touch $@

demo: $(MPI)  ## Replay the sample logs, then train live; writes demo-report/ and demo-live/
	@$(BIN)/freetrain demo --out demo-report --force
	@$(BIN)/freetrain demo --live --out demo-live --force

# Tests on a real Slurm start clusters of their own. They mostly wait, so that two files
# go at a time.
ON_SLURM = FREETRAIN_SLURM=1 $(PYTEST)
TWO_FILES = -n 2 --dist loadfile

test: $(DEV)  ## Quick tests, and the main path on a real Slurm where there is one or root can install it
	@quick=passed; slurm=passed; \
	$(PYTEST) -n auto -m "not slurm" || quick=FAILED; \
	if $(BIN)/python -m tests.cluster prepare; then $(ON_SLURM) -m main_path || slurm=FAILED; \
	else slurm="NOT RUN, for the reason above"; fi; \
	echo "quick tests: $$quick; main path on a real Slurm: $$slurm"; \
	test "$$quick" = passed -a "$$slurm" != FAILED

test-slurm-rest: $(DEV)
	@if $(BIN)/python -m tests.cluster prepare; then $(ON_SLURM) $(TWO_FILES) -m "slurm and not main_path"; \
	else echo "NO FURTHER TEST ON A REAL SLURM WAS RUN" >&2; fi

test-all: test test-slurm-rest test-torch lint types docs test-wheel  ## All tests: on a real Slurm, against the wheel, and of style, types and links

test-torch: $(TORCH_INSTALLED)  ## Tests with PyTorch, Transformers, Lightning and Accelerate, in a venv of their own
	@$(TORCH)/bin/python -m pytest -n 2 tests/integrations

test-random: $(DEV)  ## Property tests with new random examples, 500 of each, for what the same examples of `make test` miss
	@$(PYTEST) -n auto -m "hypothesis and not slurm" --hypothesis-profile=random

test-slurm: export FREETRAIN_SLURM_RELEASE = $(RELEASE)
test-slurm: $(DEV)  ## Only the tests on a real Slurm; RELEASE=24.11 or 26.05 for another
	@$(BIN)/python -m tests.cluster prepare
	@$(ON_SLURM) $(TWO_FILES) -m slurm

soak: $(DEV)  ## Train on a real Slurm through faults; ARGS="faults --faults 1000 --seed 1"
	@$(BIN)/python -m tests.soak $(or $(ARGS),faults)

fuzz: $(DEV)  ## Give every reader changed samples for MINUTES=5, and print counts
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5)

cluster: $(DEV)  ## Start a real Slurm of eight nodes on this machine; VARIANTS="gres memory"
	@$(BIN)/python -m tests.cluster up $(VARIANTS:%=--variant=%)

cluster-down: $(DEV)  ## Stop it, and leave nothing behind
	@$(BIN)/python -m tests.cluster down

lint: $(DEV)  ## Check style, formatting and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(DEV)  ## Check types
	@$(BIN)/mypy

format: $(DEV)  ## Rewrite the sources as the formatter wants them
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

coverage: $(DEV)  ## Run the tests and show which lines they never reach
	@$(PYTEST) -n auto -m "not slurm" --cov --cov-report=term

docs: $(DOCS)  ## Build the documents as a site in site/; a broken link fails
	@$(BIN)/zensical build --clean --strict

wheel: $(DEV)  ## Build the wheel into dist/
	@rm -rf dist
	@$(BIN)/python -m build --wheel --outdir dist . >/dev/null
	@ls dist/*.whl

test-wheel: wheel  ## Run the tests against the built wheel, the source folders out of the way
	@tests/against_wheel dist

bench: $(DEV)  ## Measure planner, replay, tick and windows; ratios within one run
	@$(BIN)/python -m tests.bench

sample: $(RUNTIME)  ## Make logs/samples/ anew; the same bytes every time
	@$(BIN)/freetrain trace generate --sample --out logs/samples --force
	@$(BIN)/freetrain trace generate --sample --gpus-per-node 8 --out logs/samples --force

curves: $(DEV)  ## Make freetrain/losscurve/curves/ anew; step times: docs/notes/recorded-curves.md
	@$(BIN)/python -m examples.record_curves curves --out freetrain/losscurve/curves

constraints: $(DEV) $(TORCH_INSTALLED)  ## Renew constraints.txt from what is installed
	@{ head -n 1 constraints.txt; for bin in $(BIN) $(TORCH)/bin; do $$bin/python -m pip list --format freeze --exclude-editable --exclude pip --exclude setuptools; done | sed 's/+.*//' | sort --ignore-case --unique; } > constraints.new
	@mv constraints.new constraints.txt

clean:  ## Remove what make made
	@rm -rf $(VENV) $(TORCH) dist site demo-report demo-live bench-results .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
