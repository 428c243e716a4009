"""What a release says of itself agrees: version, hashes, the list of packages, the container file."""

from __future__ import annotations

import json
import re

import yaml

from scripts import sbom
from studio import __version__
from studio.cli import load_command
from tests.conftest import ROOT


def test_the_version_is_one():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["version"] == __version__
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == __version__


def test_every_package_that_is_needed_has_the_hashes_of_its_files():
    """In the version that the tests run with; pip takes one of them on every platform, and installs nothing else."""
    text = (ROOT / "constraints-hashes.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    form = re.compile(r'([a-z0-9-]+==\S+)( ; sys_platform == "win32")?(\s+--hash=sha256:[0-9a-f]{64})+')
    assert [line for line in lines if not form.fullmatch(line)] == []
    pinned = {line.split()[0] for line in lines}
    needed = {*sbom.runtime_packages(), *sbom.WINDOWS_ALONE}
    assert pinned == {f"{name}=={version}" for name, version in sbom.pins().items() if name in needed}
    # A wheel for each Python and platform.
    assert len(sbom.hashes()["numpy"]) >= 12


def test_the_list_of_packages_is_complete_and_always_the_same(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    made = sbom.bill_of_materials()
    assert json.dumps(made) == json.dumps(sbom.bill_of_materials())
    assert made["metadata"]["timestamp"] == "2026-01-01T00:00:00Z"
    named = {one["name"]: one for one in made["components"]}
    assert set(named) == {*sbom.runtime_packages(), *sbom.WINDOWS_ALONE}
    for one in made["components"]:
        assert one["licenses"][0]["expression"]
        assert one["externalReferences"][0]["hashes"]
    known = {one["bom-ref"] for one in (*made["components"], made["metadata"]["component"])}
    assert {one["ref"] for one in made["dependencies"]} == known
    assert {name for one in made["dependencies"] for name in one["dependsOn"]} <= known


def test_the_container_starts_the_studio_with_options_that_it_has():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    [program] = json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[0])
    verb, *words = json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])
    assert program == "chakra-studio"
    # Paths need not exist to be understood.
    asked = load_command(verb).make_context(verb, list(words), resilient_parsing=True).params
    assert (asked["host"], asked["browser"]) == ("0.0.0.0", False)
    assert f"EXPOSE {asked['port']}" in text
