"""Commands that README and docs show: the fenced blocks and code spans they stand in, and what a page says about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "chakra-studio"
_BLOCK = re.compile(r"((?:^<!--[^>]*-->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"<!-- ([a-z ]+)(?:: ?([^>]*?))? -->")
_SPAN = re.compile(rf"`({PROGRAM} [^`]+)`")


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a page shows it.

    Attributes:
        line: The command line, in one piece.
        number: Its line in the file, counted from 1.
        block: The line at which its block begins.
        output: What the page shows below it; None if it shows nothing.
        remarks: What comments before its block say, such as `not run: serves until it is stopped`.
    """

    line: str
    number: int
    block: int
    output: str | None
    remarks: dict[str, str]


def commands_of(page: Path, *, spans: bool = False) -> list[Shown]:
    """Return the commands of a page in order; with `spans` also those in code spans of tables."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        number = text.count("\n", 0, block.start(3)) + 1
        remarks = {name.strip(): said or "" for name, said in _REMARK.findall(block[1])}
        reads = {"console": _console, "sh": _shell, "": _plain}.get(block[2])
        if reads:
            found += [
                Shown(line, number + at, number, output, remarks) for at, line, output in reads(block[3])
            ]
    if spans:
        for row in re.finditer(r"^\|.*\|$", text, re.MULTILINE):
            number = text.count("\n", 0, row.start()) + 1
            found += [
                Shown(line.replace("\\|", "|"), number, number, None, {}) for line in _SPAN.findall(row[0])
            ]
    return sorted(found, key=lambda shown: shown.number)


def _console(block: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield lines after `$ ` with what is below each."""
    lines = block.split("\n")[:-1]
    at = 0
    while at < len(lines):
        begun = at
        command = lines[at].removeprefix("$ ")
        assert lines[at].startswith("$ "), f"a console block begins with a command: {lines[at]!r}"
        while command.endswith("\\"):
            at += 1
            command = command[:-1] + lines[at].strip()
        at += 1
        output = []
        while at < len(lines) and not lines[at].startswith("$ "):
            output.append(lines[at])
            at += 1
        yield begun, command, "\n".join(output).strip("\n") or None


def _shell(block: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield every line that is no comment."""
    lines = iter(enumerate(block.split("\n")))
    for at, line in lines:
        command = line.strip()
        while command.endswith("\\"):
            command = command[:-1] + next(lines)[1].strip()
        if command and not command.startswith("#"):
            yield at, command, None


def _plain(block: str) -> Iterator[tuple[int, str, str | None]]:
    """Yield lines that call the program: blocks of no language hold formulas and drawings, too."""
    if block.startswith("$ "):
        yield from _console(block)
        return
    for at, line, output in _shell(block):
        if line.split()[0] == PROGRAM:
            yield at, line, output
