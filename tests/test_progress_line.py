"""The line of progress in a terminal: how far it is, and what is known of the job that is read."""

from __future__ import annotations

import sys

import pytest

from studio.commands.base import output
from studio.et.seen import RankSeen, get_seen


class Terminal:
    """A standard error that is a terminal, and keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def open_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Terminal:
    """Pytest sets the standard error anew before each test, so that a fixture would be too early."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("COLUMNS", str(width))
    return made


def test_ranks_and_operations_are_counted_while_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, 120)
    line = output.build_progress_line()
    assert line
    seen = get_seen(line)
    assert seen
    seen.begin(128)
    line("reading", 0, 10)
    assert terminal.text.removesuffix("\033[K").endswith("  0%")
    seen.rank(0, RankSeen(0, {"compute": 40_000, "collective": 2_000}))
    seen.note_refused("a.7.et", "cut off")
    line("linking", 5, 10)
    assert "50%  1 of 128 ranks, 42.0 k operations, 1 file left out" in terminal.text
    line("simulating", 5, 10)
    assert terminal.text.split("\r")[-1].startswith("simulating")
    assert "ranks" not in terminal.text.split("\r")[-1]


def test_a_narrow_terminal_shows_how_far_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer line would stay where it is written over."""
    terminal = open_terminal(monkeypatch, 60)
    line = output.build_progress_line()
    assert line
    seen = get_seen(line)
    assert seen
    seen.begin(2)
    seen.rank(0, RankSeen(0, {"compute": 4}))
    line("reading", 5, 10)
    assert "50%" in terminal.text
    assert "ranks" not in terminal.text
