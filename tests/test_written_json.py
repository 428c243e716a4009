"""What `--json` prints of commands that write files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.samples import sample_path
from tests.conftest import ROOT

SAMPLE = sample_path("transformer_8r")
COMMANDS = {
    "info": ("info", SAMPLE),
    "check": ("check", SAMPLE),
    "cut": ("cut", SAMPLE, "-o", "OUT", "--ranks", "0-3"),
    "merge": ("merge", SAMPLE, "-o", "OUT.et"),
    "split": ("split", "MASTER", "-o", "OUT"),
    "jsonize": ("jsonize", "FILE", "-o", "OUT.json"),
    "anonymize": ("anonymize", SAMPLE, "-o", "OUT", "--no-simulate"),
    "visualize": ("visualize", SAMPLE, "-o", "OUT.svg"),
    "export": ("export", "astra-sim", SAMPLE, "-o", "OUT", "--preset", "hgx-h100"),
    "operators": ("operators", SAMPLE),
    "memory": ("memory", SAMPLE),
    "kernels": ("kernels", SAMPLE),
    "collectives": ("collectives", SAMPLE),
    "breakdown": ("breakdown", SAMPLE),
    "critical-path": ("critical-path", SAMPLE),
    "compare": ("compare", SAMPLE, "FOLDER"),
    "scale": ("scale", SAMPLE, "-o", "OUT", "--dp", "4"),
    "generate": ("generate", "llm", "--model", "gpt3-125m", "--ranks", "2", "--gpu", "h100"),
    "simulate": ("simulate", SAMPLE, "--preset", "hgx-h100", "--out", "kept", "--workspace", "WORKSPACE"),
    "runs": ("runs", "--workspace", "WORKSPACE"),
    "explain": ("explain", "all_reduce", "1MiB", "--preset", "hgx-h100", "--npus", "8"),
    "presets": ("presets", "hgx-h100"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """What commands read, by the words that stand for it."""
    folder: Path = tmp_path_factory.mktemp("made")
    printed("convert", SAMPLE, folder / "job")
    printed("merge", SAMPLE, "-o", folder / "master.et")
    workspace = ("--workspace", folder / "workspace")
    printed("simulate", SAMPLE, "--preset", "hgx-h100", "--out", "kept", *workspace)
    return {
        "FOLDER": folder / "job",
        "MASTER": folder / "master.et",
        "FILE": next((folder / "job").glob("*.0.et")),
        "OUT": folder / "out",
        "OUT.et": folder / "out.et",
        "OUT.json": folder / "out.json",
        "OUT.svg": folder / "out.svg",
        "WORKSPACE": folder / "workspace",
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_key_is_in_the_manual(command: str, made: dict[str, Path], tmp_path: Path) -> None:
    """README says that they are: those of the outermost object, in the row of the command."""
    manual = (ROOT / "docs" / "formats.md").read_text()
    rows = manual[manual.index("## JSON of the commands") :]
    row = next(line for line in rows.splitlines() if line.startswith(f"| `{command}` |"))
    words = COMMANDS[command]
    places = {word: tmp_path / word if word.startswith("OUT") else place for word, place in made.items()}
    told = printed(*[places.get(str(word), word) for word in words])
    keys = told[0] if isinstance(told, list) else told
    assert [key for key in keys if not re.search(rf"`{key}`", row)] == []


def printed(*words: object) -> Any:
    done = CliRunner().invoke(main, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_convert_names_its_files_and_report_what_is_in_its_file(tmp_path: Path) -> None:
    sample, folder, page = sample_path("transformer_8r"), tmp_path / "out", tmp_path / "report.html"
    told = printed("convert", sample, folder)
    assert sorted(map(Path, told["files"])) == sorted(folder.iterdir())
    assert told["findings"] == []
    told = printed("report", folder, "-o", page)
    assert told == {"file": str(page), "sides": [{"name": str(folder), "job": "", "run": "recorded"}]}
    assert page.stat().st_size > 100_000
