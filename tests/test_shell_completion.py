"""Completing what is typed in a shell, and `--quiet`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from studio.cli import list_verbs, load_command, main
from studio.commands.base.output import build_progress_line
from studio.commands.completion import SHELLS
from studio.store.workspace import Workspace


def completed(*typed: str) -> list[tuple[str, str]]:
    """Return the type and value of what a shell is offered for the last word."""
    shell = ShellComplete(main, {}, "chakra-studio", "_CHAKRA_STUDIO_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(list(typed[:-1]), typed[-1])]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["gen"], ("plain", "generate")),
        (["traces"], ("file", "traces")),
        (["infoo", "tra"], ("file", "tra")),
        (["info", "tra"], ("file", "tra")),
        (["compare", "tra"], ("file", "tra")),
        (["simulate", "x", "--preset", "hgx-h"], ("plain", "hgx-h100")),
        (["simulate", "--repl"], ("plain", "--replay")),
        (["generate", "llm", "--mod"], ("plain", "--model")),
        (["completion", "z"], ("plain", "zsh")),
    ],
    ids=" ".join,
)
def test_tab_completes(
    typed: list[str], offered: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Jobs of whoever runs the tests would be offered too.
    monkeypatch.setattr(Workspace, "default_root", classmethod(lambda _cls: tmp_path))
    assert offered in completed(*typed)


def test_without_a_word_all_commands_are_offered() -> None:
    assert [value for _, value in completed("")] == list_verbs()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_one_that_it_reads(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell]).output
    assert "_CHAKRA_STUDIO_COMPLETE" in script
    if program := which(shell):
        checked = subprocess.run([program, "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def leaves(command: click.Command) -> list[click.Command]:
    """Return a command, or those of a group."""
    if not isinstance(command, click.Group):
        return [command]
    return [leaf for part in command.commands.values() for leaf in leaves(part)]


def test_every_command_can_be_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in list_verbs():
        for leaf in leaves(load_command(verb)):
            assert any("--quiet" in one.opts for one in leaf.params), verb
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    # The option that all get, and the one of commands that leave out their summary too.
    for verb, words in (("info", ["x"]), ("jsonize", ["x", "-o", "y"])):
        for more, is_quiet in (([], False), (["-q"], True)):
            with load_command(verb).make_context(verb, [*words, *more]):
                assert (build_progress_line() is None) == is_quiet


def test_every_command_but_those_that_print_no_result_has_json() -> None:
    without = {"completion", "serve"}
    for verb in set(list_verbs()) - without:
        for leaf in leaves(load_command(verb)):
            assert any("--json" in one.opts for one in leaf.params), verb
