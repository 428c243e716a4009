"""Decode a long list of trace events piece by piece: objects that stay in the processor's cache, and not all at once.

Writers begin every event with `"ph"`. What looks like the place between two events is one if the pieces it makes are
JSON, each as a list of its own: no place within a text looks like it, since a text cannot hold a bare quote, and within
an event the pieces would not be complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_BETWEEN = re.compile(rb'\}\s{0,64},\s{0,64}(?=\{\s{0,64}"ph"\s{0,8}:)')
_BEFORE = re.compile(rb'"traceEvents"\s{0,64}:\s{0,64}\[')
_PIECE_BYTES = 2 << 20
_HEAD_BYTES = 1 << 20
_LOOK_BYTES = 1 << 20
_WORTH = 4


class Pieces:
    """The events of a file, in pieces.

    Attributes:
        data: The file.
        first: Where the first event begins.
        between: Where one piece ends, before the comma, and the next begins.
    """

    def __init__(self, data: bytes | memoryview, first: int, between: list[tuple[int, int]]) -> None:
        self.data, self.first, self.between = data, first, between

    def rest(self) -> bytes:
        """Return the file with the events of the last piece only."""
        return bytes(self.data[: self.first]) + bytes(self.data[self.between[-1][1] :])

    def lists(self, tick: Callable[[int], None]) -> Iterator[bytes]:
        """Yield all pieces but the last, each as a list of its own.

        Args:
            tick: Told where the piece ends.
        """
        for start, end in self.places():
            yield b"[" + self.data[start:end] + b"]"
            tick(end)

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield where each piece but the last begins and ends."""
        start = self.first
        for end, following in self.between:
            yield start, end
            start = following


def split_events(data: bytes | memoryview) -> Pieces | None:
    """Return a file's events in pieces, None where it is short or not written as profilers write."""
    if len(data) < _WORTH * _PIECE_BYTES:
        return None
    start = bytes(data[:64]).lstrip()[:1]
    before = _BEFORE.search(data, 0, _HEAD_BYTES) if start == b"{" else re.compile(rb"\s*\[").match(data)
    if before is None:
        return None
    between = []
    place = before.end() + _PIECE_BYTES
    while place < len(data):
        match = _BETWEEN.search(data, place, min(place + _LOOK_BYTES, len(data)))
        if match is None:
            break
        between.append((match.start() + 1, match.end()))
        place = match.end() + _PIECE_BYTES
    # A second list would count instead of the first.
    if not between or re.compile(rb'"traceEvents"').search(data, between[-1][1]):
        return None
    return Pieces(data, before.end(), between)
