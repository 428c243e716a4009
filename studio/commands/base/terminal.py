"""Format text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from studio.units import format_count

QUIET = "studio.quiet"
"""Where click's context says that `--quiet` was given."""


def note_quiet(ctx: click.Context, _param: click.Parameter, given: bool) -> bool:
    """Note in the context whether `--quiet` was given, which `output.build_progress_line` asks."""
    ctx.meta[QUIET] = given
    return given


def escape_controls(text: str) -> str:
    r"""Escape control characters, which names in files may contain.

    Example:
        >>> escape_controls("a\x1b[2Jb\n\u202ec")
        'a\\x1b[2Jb\\n\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, width: int) -> str:
    """Cut a text to fewer than `width` letters.

    Example:
        >>> shorten("transformer", 11), shorten("llama", 11)
        ('transform…', 'llama')
    """
    return text if len(text) < width else f"{text[: width - 2]}…"


def describe_written(files: Sequence[Path]) -> str:
    """Say how many files were written, and name the first and the last.

    Example:
        >>> describe_written([Path("a.et")]), describe_written([Path("a.0.et"), Path("a.1.et")])
        ('1 file written: a.et', '2 files written: a.0.et … a.1.et')
    """
    more = len(files) > 1
    count = f"{format_count(len(files))} {'files' if more else 'file'} written: {files[0]}"
    return count + (f" … {files[-1]}" if more else "")


def align_columns(rows: Sequence[Sequence[str]], least: Sequence[int]) -> list[str]:
    """Return the lines of a table: the first column at the left, the others at the right, never touching.

    Args:
        rows: Cells; the first row is the head.
        least: The least width of each column.

    Example:
        >>> align_columns([("link", "carried", "messages"), ("a", "648 TiB", "6,439,305,216")], (6, 8, 8))
        ['link   carried       messages', 'a      648 TiB  6,439,305,216']
    """
    widths = [
        max(width, *(len(row[place]) + 2 * (place > 0) for row in rows)) for place, width in enumerate(least)
    ]
    return [
        f"{row[0]:{widths[0]}}"
        + "".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
