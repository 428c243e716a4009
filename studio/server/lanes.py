"""Keep quick requests quick: files to save have threads of their own, and nobody holds a connection for nothing.

An answer that is streamed keeps a thread until its last byte is taken, which may be hours with a slow reader. So
they have a few threads for themselves, and wait for each other. A connection is closed where the other end does not
finish its request, or does not take its answer.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, MultiSocketServer
from waitress.task import ThreadedTaskDispatcher

EXPORTS_AT_ONCE: Final = 4
HEADERS_WITHIN_S: Final = 20
"""How long a request may take to say what it is, from its first byte or the connection on."""
STALLED_S: Final = 60
"""How long the other end may neither send the rest of a request nor take more of an answer."""

# A file to save is called like one, but for the report, whose address is typed more often.
_EXPORT: Final = re.compile(r"/api/(?:.*/)?[^/]+\.[a-z]+|/api/report")


def is_export(path: str) -> bool:
    """Return whether an address answers with a file to save, which may be long.

    Example:
        >>> is_export("/api/jobs/a/nodes.csv"), is_export("/api/report"), is_export("/api/jobs/a/nodes")
        (True, True, False)
    """
    return _EXPORT.fullmatch(path) is not None


def divide(server: BaseWSGIServer | MultiSocketServer, channels: Iterable[Any]) -> None:
    """Give exports of a waitress server their own threads, and its connections deadlines.

    Args:
        server: What `create_server` returned.
        channels: What it put into its map.
    """
    lanes = _Lanes(server.task_dispatcher)
    for part in {server, *channels}:
        if isinstance(part, BaseWSGIServer | MultiSocketServer):
            part.task_dispatcher = lanes
        if isinstance(part, BaseWSGIServer):
            part.channel_class = _Channel


class _Lanes:
    """A task dispatcher of two: one for exports, and one for all else."""

    def __init__(self, quick: ThreadedTaskDispatcher) -> None:
        self._quick, self._exports = quick, ThreadedTaskDispatcher()
        self._exports.set_thread_count(EXPORTS_AT_ONCE)

    def add_task(self, task: HTTPChannel) -> None:
        """Put a connection whose next request is complete into the queue of its lane."""
        request = task.requests[0]
        lane = self._exports if is_export(getattr(request, "path", "")) else self._quick
        lane.add_task(task)

    def shutdown(self, cancel_pending: bool = True, timeout: int = 5) -> None:
        """Let running requests end, within the time given."""
        ends = time.monotonic() + timeout
        self._quick.shutdown(cancel_pending, timeout)
        # What is exported has no end in sight; who stops the studio need not wait for it a second time.
        self._exports.shutdown(cancel_pending, max(ends - time.monotonic(), 0))


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection that is closed where the other end lets it wait."""

    _asked_since: float | None = None
    _has_asked = False

    def readable(self) -> bool:
        """Return whether to read from the connection; asked about once a second, so this is where time is noticed."""
        if self._is_overdue(time.time()):
            self.will_close = True
            # A socket whose other end takes nothing would otherwise never be looked at again.
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        return bool(super().readable())

    def _is_overdue(self, now: float) -> bool:
        if self.requests or self.total_outbufs_len:
            self._asked_since, self._has_asked = None, True
            return bool(self.total_outbufs_len) and now - self.last_activity > STALLED_S
        if self.request is None and self._has_asked:
            # Between two requests: the server's own limit on idle connections holds.
            self._asked_since = None
            return False
        if self._asked_since is None:
            self._asked_since = now if self._has_asked else self.creation_time
        if self.request is not None and self.request.headers_finished:
            return bool(now - self.last_activity > STALLED_S)
        return now - self._asked_since > HEADERS_WITHIN_S
