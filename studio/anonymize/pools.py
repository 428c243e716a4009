"""The texts of graphs as lists, read once for ranks whose pools are equal."""

from __future__ import annotations

import numpy as np

from studio.trace import Strings


class PoolReader:
    """Reads pools of texts; of those that are equal to the last one it returns the same list."""

    def __init__(self) -> None:
        self._last: tuple[Strings, list[str]] | None = None

    def read(self, strings: Strings) -> list[str]:
        """Return the texts of a pool, which the caller does not change."""
        if self._last is not None:
            last, texts = self._last
            if last is strings or (
                np.array_equal(last.offsets, strings.offsets) and np.array_equal(last.data, strings.data)
            ):
                return texts
        texts = list(strings)
        self._last = strings, texts
        return texts
