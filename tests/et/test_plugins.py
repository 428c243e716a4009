"""Formats of other packages: the documented example works as it stands, and a broken one is named and harms nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from studio.et import plugins
from studio.et.format import Format
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def install(target: Path, module: str, source: str, points: dict[str, str]) -> None:
    """Put a package where Python finds it, with the metadata that an installer writes."""
    (target / f"{module}.py").write_text(source, encoding="utf-8")
    about = target / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n"
    )
    lines = [f"[{plugins.GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def documented() -> tuple[str, dict[str, str]]:
    """The module of the documented example, and its entry points."""
    [source] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [settings] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(source.splitlines()) + len(settings.splitlines()) < 60
    return source, tomllib.loads(settings)["project"]["entry-points"][plugins.GROUP]


def command(target: Path, *args: object) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(target), str(ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-m", "studio", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        cwd=target,
        env={**os.environ, "PYTHONPATH": paths},
    )


@pytest.mark.integration
def test_the_documented_example_is_installed_and_used_by_the_command(tmp_path: Path) -> None:
    packages, job = tmp_path / "packages", tmp_path / "job"
    packages.mkdir()
    job.mkdir()
    source, points = documented()
    install(packages, "toy_format", source, points)
    install(
        packages, "broken_format", "raise RuntimeError('no licence')\n", {"broken": "broken_format:FORMAT"}
    )
    for rank in range(2):
        (job / f"run.{rank}.toy").write_text(f"#toy\ngemm 0 {120 + rank}\nbroken\nallreduce 130 40 1048576\n")
    (job / "notes.txt").write_text("remember the milk")
    done = command(packages, "info", "--json", job)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["ranks"] == 2
    assert {share["name"]: share["nodes"] for share in told["summary"]["types"]} == {
        "COMP": 2,
        "COMM_COLL": 2,
    }
    assert [(share["name"], share["bytes"]) for share in told["summary"]["collectives"]] == [
        ("ALL_REDUCE", 2 * 1048576)
    ]
    findings = {finding["code"]: finding for finding in told["findings"]}
    assert "lines left out that are no operation: 1" in findings["toy-line"]["message"]
    assert "'broken' of the package broken-format" in findings["broken-plugin"]["message"]
    assert "no licence" in findings["broken-plugin"]["message"]
    refused = command(packages, "info", job / "notes.txt")
    assert refused.returncode == 1
    assert "Toy trace" in refused.stderr
    assert "'broken' of the package broken-format" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_plugins_that_cannot_be_used_are_named_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ours.py").write_text(
        "from studio.formats import Format\n"
        "GOOD = Format(name='good', title='Good', sniff=lambda head: 1 // (len(head) - 3), read=lambda reading: 1 // 0)\n"
        "EMPTY = Format(name='empty', title='Empty', sniff=lambda head: True, read=lambda reading: [7])\n"
        "TWICE = [GOOD, Format(name='chakra', title='', sniff=bool, read=list)]\n"
        "NUMBER = 7\n"
    )
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    points = [
        EntryPoint(name, value, plugins.GROUP)
        for name, value in (
            ("a", "ours:GOOD"), ("b", "ours:TWICE"), ("c", "ours:NUMBER"), ("d", "leaves:X"), ("e", "ours:MISSING"),
            ("f", "ours:EMPTY"),
        )
    ]  # fmt: skip
    found = plugins.load(points, frozenset({"chakra"}))
    assert [fmt.name for fmt in found.formats] == ["good", "empty"]
    said = " ".join(found.problems)
    for part in ("'b' (ours:TWICE): there is a format 'good'", "there is a format 'chakra'", "'c' (ours:NUMBER) is a int",
                 "'d' (leaves:X) cannot be loaded: SystemExit: 3", "'e' (ours:MISSING) cannot be loaded: AttributeError"):  # fmt: skip
        assert part in said
    good, empty = found.formats
    assert not good.sniff(b"abc"), "a test that fails says no"
    assert good.sniff(b"abcd")
    assert all(isinstance(fmt, Format) for fmt in found.formats)
    from studio.et.format import Reading
    from studio.formats import TraceFormatError

    for fmt, what in ((good, "ZeroDivisionError"), (empty, "returned a int")):
        with pytest.raises(TraceFormatError, match=f"x.toy: The format plug-in .* {what}|{what}"):
            fmt.read(Reading("x.toy", b""))
