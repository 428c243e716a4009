#!/bin/sh
# Runs the unit tests on each supported Python but the one of .venv, which `make test` uses, in an environment of its own.
#   pythons.sh [version…]      (3.11 3.12 3.13 3.14 if none is named)
# A Python is looked for on PATH, then among those of pyenv. One that is not there is named, and skipped.
set -eu
constraints=$(pwd)/constraints.txt
export PIP_CONSTRAINT="$constraints" PIP_BUILD_CONSTRAINT="$constraints" HYPOTHESIS_PROFILE=ci
known=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
missing=""
failed=""

for version in ${*:-3.11 3.12 3.13 3.14}; do
    if [ "$version" = "$known" ]; then
        echo "Python $version: that of .venv, see make test"
        continue
    fi
    python=$(scripts/find_python.sh "$version")
    if [ -z "$python" ]; then
        missing="$missing $version"
        continue
    fi
    folder=build/pythons/$version
    [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --upgrade pip
    "$folder/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --editable . \
        --group test import-linter
    # As in .venv: else studios that tests start would compile in the background, longer than the tests take.
    "$folder/bin/python" -c "from studio.commands.base.compiled import compile_kernels; compile_kernels()"
    echo "Python $version: $("$folder/bin/python" -VV)"
    "$folder/bin/python" -m pytest --quiet --numprocesses logical --dist worksteal -m "not e2e" || failed="$failed $version"
done

[ -z "$missing" ] || echo "Not found, so not tested: Python$missing"
[ -z "$failed" ] || { echo "Unit tests fail on Python$failed" >&2; exit 1; }
