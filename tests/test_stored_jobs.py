"""Commands that take one job take a stored one by its id or name, and the prefix of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.et import read
from studio.samples import sample_path
from studio.store.workspace import Workspace

COMMANDS = {
    "operators": (),
    "complete": ("--yes", "-o", "out"),
    "scale": ("--dp", "4", "-o", "out"),
    "anonymize": ("--no-simulate", "-o", "out"),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A workspace with one job, and its id."""
    root = tmp_path_factory.mktemp("workspace")
    return root, Workspace(root).save(read(sample_path("transformer_8r")), "eight ranks")


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_stored_job_is_taken_by_id_and_by_name(stored, verb: str, tmp_path: Path, monkeypatch) -> None:
    root, job = stored
    said = []
    for name in (job, "eight ranks"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        result = CliRunner().invoke(main, [verb, name, *COMMANDS[verb], "--workspace", str(root)])
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
    assert said[0] == said[1]


@pytest.mark.parametrize("verb", COMMANDS)
def test_what_is_called_nothing_is_told_with_the_nearest(
    stored, verb: str, tmp_path: Path, monkeypatch
) -> None:
    root, job = stored
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [verb, job[:-1], *COMMANDS[verb], "--workspace", str(root)])
    assert result.exit_code == 1, result.output
    assert "no file or folder" in result.stderr
    assert job in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_prefix_of_files_is_taken(tmp_path: Path) -> None:
    words = ["convert", str(sample_path("transformer_8r")), str(tmp_path / "job")]
    assert CliRunner().invoke(main, words).exit_code == 0
    [prefix] = {path.name.split(".")[0] for path in (tmp_path / "job").glob("*.et")}
    result = CliRunner().invoke(main, ["operators", str(tmp_path / "job" / prefix)])
    assert result.exit_code == 0, result.output
