"""What is stated about packages in two places stays equal."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PIN = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*==[A-Za-z0-9.!+]+$")


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def stated():
    groups = [entry for group in PROJECT["dependency-groups"].values() for entry in group]
    entries = PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"] + groups
    return sorted({re.split(r"[<>=!~ ;\[]", entry)[0] for entry in entries if isinstance(entry, str)})


def test_constraints_hold_pins_and_nothing_else():
    """No address of an index and no path may slip in: the file serves every machine."""
    assert [line for line in pins() if not PIN.match(line)] == []


@pytest.mark.parametrize("name", stated())
def test_every_stated_package_is_pinned_once(name):
    assert [line.split("==")[0] for line in pins()].count(name) == 1


def test_the_lock_of_the_scripts_checkers_names_no_host():
    """Every package has a hash and no address, so any registry will do."""
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    packages = [package for place, package in lock["packages"].items() if place]
    assert packages
    assert [package for package in packages if "resolved" in package or "integrity" not in package] == []
