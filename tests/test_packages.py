"""What is stated about packages in two places stays equal."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from studio.analysis.timeline import perfetto
from studio.sql import database

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


def test_optional_packages_are_asked_for_in_the_versions_that_are_accepted():
    stated = {
        wanted.name: wanted.specifier
        for lines in PROJECT["project"]["optional-dependencies"].values()
        for wanted in map(Requirement, lines)
    }
    protobuf = ".".join(map(str, perfetto._PROTOBUF_AT_LEAST))
    assert {name: str(stated[name]) for name in ("duckdb", "protobuf")} == {
        "duckdb": f">={database._DUCKDB_AT_LEAST}",
        "protobuf": f">={protobuf}",
    }


def test_the_lock_of_the_scripts_checkers_names_no_host():
    """Every package has a hash and no address, so any registry will do."""
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    packages = [package for place, package in lock["packages"].items() if place]
    assert packages
    assert [package for package in packages if "resolved" in package or "integrity" not in package] == []


# ---------------------------------------------------------------------------------------------------
# Licences

GPL = re.compile(r"\b[AL]?GPL|GNU (Affero |Lesser |Library )?General Public", re.IGNORECASE)
GCC_EXCEPTION = re.compile(r"GPL-3\.0-or-later WITH GCC-exception-3\.1")
LGPL_ALLOWED: dict[str, str] = {}
"""Packages under the LGPL that may stay, and why: each is a decision."""
WINDOWS_ALONE = {"colorama"}


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def runtime_packages():
    """Name and metadata of every package the studio needs to run, directly or not, on this platform."""
    found = {}
    waiting = [Requirement(entry) for entry in PROJECT["project"]["dependencies"]]
    while waiting:
        needed = waiting.pop()
        name = normalised(needed.name)
        if name not in found:
            package = distribution(name)
            found[name] = package.metadata
            entries = map(Requirement, package.requires or [])
            waiting += [one for one in entries if not one.marker or one.marker.evaluate({"extra": ""})]
    return found


def licence_texts(metadata):
    """What a package says of its licence; of a whole text its beginning, which names it."""
    classifiers = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License")]
    texts = [metadata.get("License-Expression"), (metadata.get("License") or "")[:200], *classifiers]
    return [text for text in texts if text]


def is_gpl(text):
    return bool(GPL.search(GCC_EXCEPTION.sub("", text)))


def test_what_counts_as_gpl():
    refused = ("GPL-2.0-or-later", "AGPLv3", "MIT AND LGPL-2.1", "GNU General Public License v2 (GPLv2)")
    assert all(map(is_gpl, refused))
    assert not any(map(is_gpl, ("MIT", "BSD-3-Clause", "MIT AND GPL-3.0-or-later WITH GCC-exception-3.1")))


def test_no_package_needed_at_run_time_is_under_the_gpl():
    texts = {name: licence_texts(metadata) for name, metadata in runtime_packages().items()}
    assert [name for name, told in texts.items() if not told] == []
    assert [name for name, told in texts.items() if any(map(is_gpl, told)) and name not in LGPL_ALLOWED] == []


def test_the_licences_of_what_is_needed_are_stated():
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([a-z][a-z0-9-]+) \| ([^|]+) \|$", text, re.MULTILINE))
    del stated["package"]
    packages = runtime_packages()
    assert set(stated) - WINDOWS_ALONE == set(packages) - WINDOWS_ALONE
    told = {name: metadata.get("License-Expression") for name, metadata in packages.items()}
    assert {name: stated[name] for name, one in told.items() if one} == {n: e for n, e in told.items() if e}
    assert not any(map(is_gpl, stated.values()))
