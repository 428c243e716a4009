"""The distinct texts of a graph, stored as one block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from studio.distinct import find_distinct
from studio.notebook import format_parts
from studio.trace.vocabulary import NONE, Int64, UInt8
from studio.units import format_counted

_PIECE_BYTES = 1 << 20
"""So much of a pool is looked through at a time."""


class Strings(Sequence[str]):
    """The distinct texts of a graph, stored as one block.

    P texts, B bytes. Texts are UTF-8; values of kind BYTES share the pool and may hold anything.

    Attributes:
        data: (B,) the texts, one after another.
        offsets: (P+1,) text i is data[offsets[i]:offsets[i+1]].
    """

    __slots__ = ("_found", "_holding", "data", "offsets")

    def __init__(self, data: UInt8, offsets: Int64) -> None:
        self.data = data
        self.offsets = offsets
        # A pool never changes, and every check and every reader of an attribute asks for the same few names.
        self._found: dict[str, int] = {}
        self._holding: dict[tuple[bytes, ...], Int64] = {}

    def __reduce__(self) -> tuple[type[Strings], tuple[UInt8, Int64]]:
        """Return what makes an equal pool in another process."""
        return Strings, (self.data, self.offsets)

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Strings:
        """Return the pool that holds `texts` in this order.

        Example:
            >>> list(Strings.of(["a", "bc"]))
            ['a', 'bc']
        """
        raw = [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in texts]
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(r) for r in raw], out=offsets[1:])
        return cls(np.frombuffer(b"".join(raw), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        """Return it in a line."""
        return format_parts(
            "Strings", [format_counted(len(self), "text"), format_counted(len(self.data), "byte")]
        )

    def raw(self, index: int) -> bytes:
        """Return text `index` as stored bytes."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no one needs slices of a pool
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.raw(index).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        block = self.data.tobytes()
        bounds = self.offsets.tolist()
        for start, end in pairwise(bounds):
            yield block[start:end].decode("utf-8", "replace")

    def holding(self, letters: tuple[bytes, ...]) -> Int64:
        """Return the indices of the texts that hold any of some small letters, in either case, rising; perhaps others beside them.

        Looks through the pool once for each, which takes a hundredth of the time of a pattern on each text.

        Example:
            >>> Strings.of(["aten::mm", "ncclKernel", "RCCL"]).holding((b"ccl",)).tolist()
            [1, 2]
        """
        if letters not in self._holding:
            self._holding[letters] = self._look_for_letters(letters)
        return self._holding[letters]

    def _look_for_letters(self, letters: tuple[bytes, ...]) -> Int64:
        texts, more, places = self.data.data, max(map(len, letters)) - 1, []
        # Piece by piece, as a copy of all may be large.
        for begin in range(0, len(texts), _PIECE_BYTES):
            piece = bytes(texts[begin : begin + _PIECE_BYTES + more]).lower()
            for some in letters:
                places += [begin + match.start() for match in re.finditer(re.escape(some), piece)]
        return find_distinct(np.searchsorted(self.offsets, np.array(places, np.int64), "right") - 1)

    def find(self, text: str) -> int:
        """Return the index of `text`, or -1. Looks through the pool once for each text."""
        if text not in self._found:
            self._found[text] = self._look_for(text)
        return self._found[text]

    def _look_for(self, text: str) -> int:
        """Return the index of `text`, or -1. Compares only texts of equal length."""
        raw = text.encode("utf-8", "surrogateescape")
        alike = np.flatnonzero(np.diff(self.offsets) == len(raw))
        if len(alike) and raw:
            texts = self.data[self.offsets[alike, None] + np.arange(len(raw))]
            alike = alike[(texts == np.frombuffer(raw, np.uint8)).all(axis=1)]
        return int(alike[0]) if len(alike) else NONE
