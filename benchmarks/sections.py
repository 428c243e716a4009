"""Sections of a report that programs write, each between two marks of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def replace_section(target: Path, marks: tuple[str, str], section: Iterable[str]) -> None:
    """Put the lines of a section between its two marks in a report, in the place of the last one."""
    text = target.read_text(encoding="utf-8") if target.exists() else ""
    before, _, behind = text.partition(marks[0])
    after = behind.partition(marks[1])[2]
    made = "\n".join([marks[0], *section, marks[1]])
    parts = [part for part in (before.rstrip(), made, after.strip()) if part]
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
