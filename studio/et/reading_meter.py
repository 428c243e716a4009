"""How far reading is, in bytes of all files."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is going on, how much is done and how much there is; may raise to stop."""


class Meter:
    """Sums the bytes that were read and reports the total."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total = progress, max(total, 1)
        self._done: dict[str, int] = {}
        self._sum = 0

    def tick(self, name: str, done: int) -> None:
        """Record that `done` bytes of a file are read; raises what the progress callback raises."""
        self._sum += done - self._done.get(name, 0)
        self._done[name] = done
        self.look()

    def look(self) -> None:
        """Report what is known, for the callback to stop what goes on elsewhere."""
        if self._progress:
            self._progress("reading", min(self._sum, self._total), self._total)
