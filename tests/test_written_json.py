"""What `--json` prints of commands that write files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from studio.cli import main
from studio.samples import sample_path


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
