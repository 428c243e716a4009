"""Finding a Chromium: a wrong setting is told, and nothing is left out in silence."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "browser.py"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stand-ins for a browser are shell scripts")


def find(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a machine whose PATH holds this folder alone."""
    environment = {"PATH": str(folder), "HOME": str(folder)} | environment
    command = [sys.executable, str(SCRIPT), "--find", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.integration
def test_a_wrong_setting_is_an_error_even_where_a_browser_is_installed(tmp_path):
    program(tmp_path / "chromium", "exit 0")
    done = find(tmp_path, CHROMIUM=str(tmp_path / "typo"))
    assert done.returncode == 1
    assert f"CHROMIUM={tmp_path / 'typo'}: no such file" in done.stderr


@pytest.mark.integration
def test_the_setting_comes_first(tmp_path):
    program(tmp_path / "chromium", "exit 0")
    chosen = program(tmp_path / "mine", "exit 0")
    assert find(tmp_path, CHROMIUM=str(chosen)).stdout.strip() == str(chosen)


@pytest.mark.integration
def test_a_browser_that_does_not_start_is_passed_over(tmp_path):
    program(tmp_path / "chromium", "echo install the snap >&2; exit 1")
    works = program(tmp_path / "google-chrome", "exit 0")
    record = tmp_path / "record"
    assert find(tmp_path, "--record", str(record)).stdout.strip() == str(works)
    assert record.read_text().strip() == str(works)


@pytest.mark.integration
@pytest.mark.skipif(
    Path("/Applications/Google Chrome.app").exists(), reason="a browser is found in a fixed place"
)
def test_where_there_is_none_it_fails_and_says_what_was_tried(tmp_path):
    program(tmp_path / "chromium", "echo install the snap >&2; exit 1")
    done = find(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "install the snap" in done.stderr
    assert "CHROMIUM environment variable: not set" in done.stderr
