"""What somebody waits for, so that work in the background can give way to it."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import suppress


class Awaited:
    """Counts what somebody waits for just now: answers to requests, and what they will soon need.

    Python runs one thread at a time, so that work in the background makes an answer take twice as long.
    """

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()
        self._preparing: str | None = None

    def begin(self) -> None:
        """Count one more; `end` has to follow."""
        with self._changed:
            self._count += 1

    def end(self) -> None:
        """Count one less."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def give_way(self, most_s: float) -> float:
        """Wait until nothing is waited for, at most for so many seconds; returns the seconds that it took."""
        began = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, most_s)
        return time.monotonic() - began

    def prepare(self, what: str, make: Callable[[], object]) -> None:
        """Begin to make something, in a thread of its own, that will be asked for soon.

        One thing is prepared at a time; what comes meanwhile is left to whoever asks for it. Where making it fails, whoever
        asks makes it again, and is told why.

        Args:
            what: Names it for `settle`.
            make: Makes it, and keeps it where it will be looked for.
        """
        with self._changed:
            if self._preparing is not None:
                return
            self._preparing = what
            self._count += 1

        def work() -> None:
            try:
                with suppress(Exception):
                    make()
            finally:
                with self._changed:
                    self._preparing = None
                    self._count -= 1
                    self._changed.notify_all()

        # What the request has chosen, such as the unit of times, holds there, too.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(work,), name="preparing an answer", daemon=True).start()

    def settle(self, what: str) -> None:
        """Wait while this is being prepared: two threads would make some of it twice."""
        with self._changed:
            self._changed.wait_for(lambda: self._preparing != what)
