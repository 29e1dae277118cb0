# Two commands: `make demo` runs the whole pipeline on an embedded corpus, `make test` checks everything.
# Both set up .venv first, once, from constraints.txt.

PYTHON ?= python3
ENV := .venv/.ready
RUN := .venv/bin

.PHONY: demo walk test test-slow lint types format setup clean help

help:
	@echo "make demo        the whole pipeline on the embedded corpus (about 3 minutes on two cores)"
	@echo "make walk        docs/walk.md anew: three pairs of the demo, from raw line to score"
	@echo "make test        lint, types and tests"
	@echo "make test-slow   the slow tests: whole runs, kills, real text"
	@echo "make format      format the code"
	@echo "make clean       remove .venv and caches (what was computed lies in .repro and stays)"

setup: $(ENV)

$(ENV): pyproject.toml constraints.txt
	@echo "Setting up .venv (a few minutes the first time) ..."
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is %d.%d; name another with PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv .venv
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "setuptools>=77"
	@$(RUN)/python -m pip install --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	@$(RUN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(ENV)

demo: $(ENV)
	@$(RUN)/repro run demo

walk: demo
	@$(RUN)/python docs/walk.py

lint: $(ENV)
	@echo "Format and lint ..."
	@$(RUN)/ruff format --check --quiet . || { echo "not formatted: run make format"; exit 1; }
	@$(RUN)/ruff check --quiet .
	@$(RUN)/deptry .

types: $(ENV)
	@echo "Types ..."
	@$(RUN)/mypy

test: lint types
	@echo "Tests ..."
	@$(RUN)/pytest -n auto --dist loadfile

test-slow: $(ENV)
	@$(RUN)/pytest -n $$(($$(nproc) * 3 / 2)) --dist loadfile --no-loadscope-reorder --durations 0 -m slow

format: $(ENV)
	@$(RUN)/ruff format --quiet .
	@$(RUN)/ruff check --fix --quiet .

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
