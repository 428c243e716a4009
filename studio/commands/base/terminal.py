"""Format text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from studio.units import format_count


def printable(text: str) -> str:
    r"""Escape control characters, which names in files may contain.

    Example:
        >>> printable("a\x1b[2Jb\n\u202ec")
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


def written_line(files: Sequence[Path]) -> str:
    """Say how many files were written, and name the first and the last.

    Example:
        >>> written_line([Path("a.et")]), written_line([Path("a.0.et"), Path("a.1.et")])
        ('1 file written: a.et', '2 files written: a.0.et … a.1.et')
    """
    more = len(files) > 1
    count = f"{format_count(len(files))} {'files' if more else 'file'} written: {files[0]}"
    return count + (f" … {files[-1]}" if more else "")
