"""Text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return a text as a terminal may be given it: names from files, which it might obey, come as escapes.

    Example:
        >>> printable("a\x1b[2Jb\n\u202ec")
        'a\\x1b[2Jb\\n\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
