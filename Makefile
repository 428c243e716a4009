# `make run` and `make test` need a Python 3.11 to 3.14, make and a network; everything else they set up in .venv.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STEP := @scripts/step.sh

# The newest supported Python on PATH; PYTHON=/path/to/python overrides.
PYTHON ?= $(shell for name in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	$$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1 \
	&& { echo $$name; break; }; done)

# Bytecode is written when a module is first imported: compiling all of them here takes longer than the download.
PIP_OPTIONS := --quiet --no-compile --prefer-binary --disable-pip-version-check --no-input --progress-bar off
INSTALL := $(BIN)/python -m pip install $(PIP_OPTIONS) --constraint constraints.txt --build-constraint constraints.txt
COMPILE := $(STEP) "compiled reader and simulator, once per installation" $(BIN)/python -c \
	"from studio.commands.base.compiled import compile_kernels; compile_kernels()"
INPUTS := pyproject.toml constraints.txt
PYTEST := $(BIN)/python -m pytest
# Node comes from PyPI. What checks the scripts is fetched by it, in the versions of package-lock.json.
NODE := $(BIN)/node
SCRIPTS := node_modules/.package-lock.json
# Checks that need no test run two at a time, the longest first.
LINTS := lint-mypy lint-tsc lint-eslint lint-imports lint-ruff lint-format
# Types are checked while the tests run: tests of pages wait for their browsers a fifth of the time.
BEFORE_TESTS := $(filter-out lint-mypy,$(LINTS)) client
BESIDE_TESTS := WHOLE_LINES=1 $(MAKE) --no-print-directory lint-mypy
TOGETHER := WHOLE_LINES=1 $(MAKE) --no-print-directory -j2
# How many workers that is, and why, says tests/conftest.py.
PARALLEL := --numprocesses auto --dist worksteal --durations=20
# `retry` runs a browser test that fails once more and says so at the end; `forbid` does not.
FLAKY ?= retry
# Tests start some hundred Python programs. Compiling the packages anew for each would take longer than the tests.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run test lint $(LINTS) format unit client e2e coverage nightly chromium bench screenshots samples lock \
	docs hashes pythons s3 release wheel-check clean

help: ## this list
	@echo "usage: make <goal> [ARGS=\"...\"] [PYTHON=python3.11]"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---------------------------------------------------------------------------------------------------
# What people type

run: $(VENV)/ready-run ## start the studio: a sample job, or ARGS="path/to/traces"
	@exec $(BIN)/chakra-studio $(or $(ARGS),--sample)

test: $(VENV)/ready-test $(SCRIPTS) chromium ## every check: format, lint, types, import contracts, unit tests, doctests, browser tests
	+@$(TOGETHER) $(BEFORE_TESTS)
	+@HYPOTHESIS_PROFILE=ci scripts/beside.sh "$(BESIDE_TESTS)" $(PYTEST) $(PARALLEL) --flaky=$(FLAKY) $(ARGS)

lint: $(VENV)/ready-test $(SCRIPTS) ## format, lint, types and import contracts
	+@$(TOGETHER) $(LINTS)

lint-mypy: $(VENV)/ready-test
	$(STEP) "types (mypy --strict)" $(BIN)/mypy

lint-format: $(VENV)/ready-test
	$(STEP) "format (ruff format)" $(BIN)/ruff format --check .

lint-ruff: $(VENV)/ready-test
	$(STEP) "lint (ruff check)" $(BIN)/ruff check .

lint-imports: $(VENV)/ready-test
	$(STEP) "import contracts (lint-imports)" $(BIN)/lint-imports

lint-tsc: $(SCRIPTS)
	$(STEP) "types of the scripts (tsc)" $(NODE) node_modules/typescript/bin/tsc

lint-eslint: $(SCRIPTS)
	$(STEP) "lint of the scripts (eslint)" $(NODE) node_modules/eslint/bin/eslint.js .

format: $(VENV)/ready-test ## reformat the code and fix what ruff can fix
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

unit: client $(VENV)/ready-test ## unit tests and doctests: no browser, no other program, no recorded job; ARGS="tests/et -k gzip"
	@HYPOTHESIS_PROFILE=ci $(PYTEST) $(PARALLEL:auto=logical) -m "not (e2e or integration)" $(ARGS)

coverage: $(VENV)/ready-test ## unit tests with coverage, which must reach the floor in pyproject.toml
	@HYPOTHESIS_PROFILE=ci $(PYTEST) $(PARALLEL) -m "not e2e" --cov=studio $(ARGS)

nightly: $(VENV)/ready-test ## 130 times the examples, every real file, 10,000 mutations per format, every golden case (an hour)
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) $(PARALLEL) -m "not e2e" $(ARGS)
	@for program in benchmarks/fuzz_*.py; do echo "== $$program"; $(BIN)/python "$$program" || exit 1; done
	@cases="$${CHAKRA_STUDIO_SHARED:-../shared}/oracle/astra_sim_public.jsonl.gz"; \
	if test -e "$$cases"; then $(BIN)/python -m tests.parity "$$cases"; else echo "no golden cases at $$cases"; fi

client: $(VENV)/ready-test ## tests of the scripts' arithmetic
	$(STEP) "tests of the scripts (node --test)" $(NODE) --test "tests/client/*.test.mjs"

e2e: $(VENV)/ready-test chromium ## browser tests only
	@$(PYTEST) $(PARALLEL) -m e2e --flaky=$(FLAKY) $(ARGS)

# ---------------------------------------------------------------------------------------------------
# Setting up. A stamp holds until pyproject.toml or constraints.txt changes.

$(VENV)/ready-python:
	@test -n "$(PYTHON)" || { \
		echo "Chakra Studio needs Python 3.11, 3.12, 3.13 or 3.14, and none is on PATH."; \
		echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.14),"; \
		echo "or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { \
		echo "PYTHON=$(PYTHON) is no Python 3.11, 3.12, 3.13 or 3.14."; exit 1; } >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment: its venv module is missing."; \
		echo "Debian, Ubuntu: apt install python3-venv"; exit 1; } >&2
	$(STEP) "virtual environment in $(VENV)" $(PYTHON) -m venv --clear $(VENV)
	$(STEP) "pip that knows build constraints and dependency groups" \
		$(BIN)/python -m pip install $(PIP_OPTIONS) --constraint constraints.txt --upgrade pip
	@touch $@

$(VENV)/ready-run: $(VENV)/ready-python $(INPUTS)
	$(STEP) "packages the studio needs" $(INSTALL) --editable .
	$(COMPILE)
	@touch $@

# Collecting writes the bytecode of tests and of the packages they import, which every worker would compile anew.
$(VENV)/ready-test: $(VENV)/ready-python $(INPUTS)
	$(STEP) "packages the studio and its tests need" $(INSTALL) --editable . --group test --group lint
	$(COMPILE)
	-$(STEP) "bytecode of the tests, once per installation" $(PYTEST) --collect-only --quiet
	@touch $(VENV)/ready-run $@

$(SCRIPTS): package.json package-lock.json | $(VENV)/ready-test
	$(STEP) "what checks the scripts (npm ci)" env PATH="$(abspath $(BIN)):$$PATH" $(BIN)/npm ci --no-progress
	@touch $@

$(VENV)/ready-docs: $(VENV)/ready-test $(INPUTS)
	$(STEP) "packages the manual needs" $(INSTALL) --group docs
	@touch $@

# Looked for each time: browsers come and go without notice to make.
chromium: $(VENV)/ready-test
	$(STEP) "Chromium for the browser tests" $(BIN)/python scripts/browser.py --record $(VENV)/chromium-path

# ---------------------------------------------------------------------------------------------------
# Now and then

bench: $(VENV)/ready-test ## measure speed and memory (minutes; prints tables)
	@for program in benchmarks/*.py; do \
		test -e "$$program" || { echo "benchmarks/ holds no program"; exit 1; }; \
		echo "== $$program $(ARGS)"; $(BIN)/python "$$program" $(ARGS) || exit 1; done

screenshots: $(VENV)/ready-test chromium ## the README's pictures, written anew
	@$(BIN)/python scripts/screenshots.py $(ARGS)

samples: $(VENV)/ready-run ## the sample jobs inside the package, written anew
	@$(BIN)/python scripts/make_samples.py $(ARGS)

lock: $(VENV)/ready-test ## constraints.txt from pyproject.toml, newest versions
	@$(BIN)/python scripts/lock.py

hashes: $(VENV)/ready-test ## constraints-hashes.txt from constraints.txt: the files a release is installed from
	@$(BIN)/python scripts/hashes.py

# Material's notice is about itself, not about the manual.
docs: $(VENV)/ready-docs ## the manual in build/manual: links checked, its notebook run, every command of it tried
	$(STEP) "manual in build/manual" env NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(STEP) "commands of the manual" env CHAKRA_STUDIO_EVERY_COMMAND=1 $(PYTEST) --quiet tests/test_manual.py

pythons: $(VENV)/ready-test ## unit tests on the other supported Pythons that are found
	@scripts/pythons.sh $(ARGS)

# In an environment of its own: s3fs needs an older python-dateutil than the one in constraints.txt.
S3 := build/s3
s3: $(VENV)/ready-test ## watch a bucket of a server on this machine that speaks S3 (s3fs, moto)
	@mkdir -p build && grep -v '^python-dateutil==' constraints.txt > build/s3-constraints.txt
	$(STEP) "environment with s3fs and moto in $(S3)" sh -c '$(BIN)/python -m venv $(S3) && \
		$(S3)/bin/python -m pip install $(PIP_OPTIONS) --constraint build/s3-constraints.txt --editable . \
		flask-cors hypothesis "moto[s3]" psutil pytest pytest-rerunfailures pytest-xdist s3fs'
	@$(S3)/bin/python -m pytest --quiet tests/test_watch_s3.py tests/test_watch_remote.py $(ARGS)

wheel-check: $(VENV)/ready-test ## build sdist and wheel twice, compare, install the wheel by itself on each Python, simulate
	$(STEP) "the wheel builds reproducibly and works by itself" scripts/wheel_check.sh $(BIN)/python

release: $(VENV)/ready-test ## what is published, in dist/: sdist, wheel, list of packages (CycloneDX), checksums
	@rm -rf dist
	$(STEP) "the wheel builds reproducibly and works by itself" scripts/wheel_check.sh $(BIN)/python dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python scripts/sbom.py dist/chakra-studio.cdx.json
	@cp constraints.txt constraints-hashes.txt dist/
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

clean: ## remove .venv, caches and builds
	@rm -rf $(VENV) node_modules dist build .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
