"""The tab "By size" of Collectives."""

from __future__ import annotations

from types import SimpleNamespace

from studio.pages.collectives.classes import format_sizes

MIB = 1 << 20


def test_sizes_that_would_read_the_same_are_told_in_bytes() -> None:
    """Gradients of the first and of the last stage differ in the fourth digit."""

    def of(least: int, most: int, kind: str = "ALL_REDUCE"):
        return SimpleNamespace(type=kind, members=32, least_bytes=least, most_bytes=most)

    first, last = 541 * MIB, 541 * MIB + 8192
    other = of(first, first, "ALL_GATHER")
    shown = format_sizes([of(first, first), of(last, last), of(8, MIB), other, of(0, 0), of(0, 0)])
    assert shown == ["567,279,616 B", "567,287,808 B", "8 B to 1.00 MiB", "541 MiB", "–", "–"]
