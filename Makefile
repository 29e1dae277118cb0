# Two commands: `make demo` runs the whole pipeline on an embedded corpus, `make test` checks everything.
# Both set up .venv first, once: the demo what it needs, the tests the rest too (infra/install.py).

PYTHON ?= python3
ENV := .venv/.ready
RUNTIME := .venv/.runtime
RUN := .venv/bin

# Containers often set it. Without byte code every program of the pipeline and of the tests compiles its libraries again:
# a cached rerun takes 0.93 s in place of 0.44 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo lock walk reference docs notebook test test-slow lint types format setup clean help

help:
	@echo "make setup       .venv with the command repro (.venv/bin/repro), and what the tests need; runs nothing"
	@echo "make demo        the whole pipeline on the embedded corpus (some minutes on two cores)"
	@echo "make walk        docs/walk.md again: three pairs of the demo, from raw line to score"
	@echo "make reference   docs/commands.md, run-fields.md and python.md again, from the program"
	@echo "make docs        the documentation as a site: build/site/index.html"
	@echo "make notebook    versions, curves, sentences, rejected pairs and attention of a root, in a browser (marimo)"
	@echo "make test        lint, types and tests"
	@echo "make test-slow   the slow tests: whole runs, kills, real text"
	@echo "make lock        requirements.lock and requirements-dev.lock again"
	@echo "make format      format the code"
	@echo "make clean       remove .venv and caches (what was computed lies in .repro and stays)"

setup: $(ENV)

$(ENV) $(RUNTIME): INSTALL = $(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is %d.%d; name another with PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)' && $(PYTHON) -I infra/install.py .venv

$(ENV): pyproject.toml constraints.txt requirements-dev.lock
	@echo "Setting up .venv: the command repro, and what the tests need (a minute or two the first time) ..."
	@$(INSTALL) --dev
	@touch $(RUNTIME) $(ENV)

$(RUNTIME): pyproject.toml constraints.txt requirements.lock
	@echo "Setting up .venv (a minute or two the first time) ..."
	@$(INSTALL)
	@touch $(RUNTIME)

# Writes the locks again from pyproject.toml and constraints.txt, after either has changed.
lock: $(ENV)
	@$(PYTHON) -I infra/install.py .venv --lock

# An environment for development has what the demo needs.
demo: $(if $(wildcard $(ENV)),$(ENV),$(RUNTIME))
	@$(RUN)/repro run demo

walk: $(ENV) demo
	@$(RUN)/python docs/walk.py

reference: $(ENV)
	@$(RUN)/python docs/reference.py

# Warnings, also of links that lead nowhere, are errors.
docs: $(ENV)
	@$(RUN)/python -m sphinx -W --keep-going -n -q -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

notebook: $(ENV)
	@$(RUN)/marimo edit --skip-update-check docs/notebooks/explore.py

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
	@$(RUN)/pytest -n $$(($$(nproc) * 3 / 2)) --dist loadfile --no-loadscope-reorder --durations 0 -m "slow and not gpu"

format: $(ENV)
	@$(RUN)/ruff format --quiet .
	@$(RUN)/ruff check --fix --quiet .

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
