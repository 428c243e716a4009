"""Report data lost to damage on stderr; exit with 4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from studio.trace import Finding
from studio.units import format_count

STATUS = 4
"""What a command ends with that did what it was asked for, with less than its input once held."""


def select_losses(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the distinct findings that mean lost nodes or values."""
    return tuple(dict.fromkeys(finding for finding in findings if finding.level == "error"))


def format_losses(findings: Iterable[Finding], *, allowed: bool) -> str:
    """Format one line about lost data: counts by kind, and the exit status.

    Args:
        findings: The losses, one or more.
        allowed: Whether the user said that they may be.

    Example:
        >>> one = Finding("error", "damaged-file", "a.et: the file ends inside a record")
        >>> format_losses([one], allowed=True)
        'Damaged input (damaged-file: 1): the result lacks what could not be read.'
    """
    codes = Counter(finding.code for finding in findings)
    kinds = ", ".join(f"{code}: {format_count(count)}" for code, count in codes.items())
    line = f"Damaged input ({kinds}): the result lacks what could not be read."
    return line if allowed else f"{line} Exit status {STATUS}; --allow-damaged makes it 0."
