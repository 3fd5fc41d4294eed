# Every target sets up what it needs, and no more, in .venv, with the versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/ready-dev
CONSTRAINTS := constraints.txt
MINUTES ?= 60

.PHONY: help demo test test-slow test-all test-lowest fuzz crash soak audit lint types docs bench dist clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

demo: $(VENV)/ready-demo ## all methods on handwritten digits in bags: a table and a picture
	@$(BIN)/python -m bagwise.demo

test: $(READY) ## test the mathematics, losses, methods, estimator and tables, and every docstring's example
	$(BIN)/python -m pytest $(ARGS)

test-slow: $(READY) .venv-s3/ready ## test what starts processes, Ray or a browser, kills work, runs the README, or trains for long
	$(BIN)/python -m pytest -m slow

test-all: test test-slow ## test everything

test-lowest: ## run `make test` with the lowest versions that pyproject.toml allows
	$(MAKE) test VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt \
	  ARGS="-W ignore::DeprecationWarning"  # of old packages beside newer ones they use

fuzz: $(VENV)/ready-fuzz ## search at random for what breaks, for MINUTES=60; then write results/reliability
	BAGWISE_PROFILE=fuzz $(BIN)/python -m pytest tests/test_properties.py tests/test_bags.py tests/test_auto.py
	$(BIN)/python fuzz/run.py --minutes $(MINUTES)
	$(BIN)/python fuzz/log.py

soak: $(READY) ## random work in one process for MINUTES=60: memory, files and threads must not grow
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --log

audit: .venv-audit/ready ## look up known weaknesses of the pinned dependencies (needs the network)
	.venv-audit/bin/pip-audit --no-deps --disable-pip -r $(CONSTRAINTS)

crash: $(READY) ## kill, disturb and crowd commands at every operation on files (half an hour; Linux)
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 MPLBACKEND=agg $(BIN)/python fuzz/crash.py
	$(BIN)/python benchmarks/reliability_page.py

lint: $(READY) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## check types
	$(BIN)/mypy

docs: $(VENV)/ready-docs ## build the documentation site into build/site; warnings and failing examples are errors
	$(BIN)/python -m sphinx -W --keep-going -E -a -j auto docs build/site

bench: $(READY) ## measure everything again and write docs/benchmarks.md (a quarter of an hour)
	$(BIN)/python benchmarks/page.py

dist: $(READY) ## build the wheel and the source archive into dist/, and check them
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

clean: ## remove the environment, caches and compiled kernels
	rm -rf $(VENV) .venv-lowest .venv-s3 .venv-audit build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv-s3/ready: constraints-s3.txt  # an object store for tests; its own packages would not go with ours
	$(PYTHON) -m venv .venv-s3
	.venv-s3/bin/pip install --quiet -r constraints-s3.txt
	@touch $@

.venv-audit/ready:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet pip-audit
	@touch $@

extras_demo := torch,plots
extras_dev := dev
extras_docs := docs
extras_fuzz := fuzz

$(VENV)/ready-%: pyproject.toml $(CONSTRAINTS)
	@test -e $(BIN)/python || test -e $(BIN)/python.exe || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[$(extras_$*)]'
	@touch $@
