"""Parse lists of ranks as people type them."""

from __future__ import annotations

from studio.errors import ConfigError


def parse_ranks(text: str) -> list[int]:
    """Parse ranks such as `0-7,16`.

    Raises:
        ConfigError: It is no list of ranks.

    Example:
        >>> parse_ranks("0-2,8")
        [0, 1, 2, 8]
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        are_numbers = all(end.isascii() and end.isdecimal() and len(end) < 8 for end in ends)
        if not are_numbers or int(ends[1]) < int(ends[0]):
            raise ConfigError(f"ranks has {part[:40]!r}; allowed: numbers and ranges such as 0-7,16")
        ranks += range(int(ends[0]), int(ends[1]) + 1)
    return ranks
