"""Keep a process that answers queries: started, told what to do, ended at once, and kept for the next query."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa

_START = "import sys; sys.path[:] = sys.argv[1:]; from studio.sql.child import main; main()"  # As here, wherever that is.


class Ended(Exception):  # noqa: N818 - its caller says what that means
    """The process has ended before its answer."""

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


class Failed(Exception):  # noqa: N818 - likewise
    """The process that answers queries could not do what was asked of it.

    Attributes:
        facts: What the process tells of it, by key: see `child._Answering.describe_error`.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)
        self.facts = facts


class Process:
    """A child process that answers queries one after the other."""

    def __init__(self) -> None:
        # Arrow's own allocators take address space far ahead, which would count as memory.
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        self._popen = subprocess.Popen(  # noqa: S603 - this Python, nothing of a user
            [sys.executable, "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._requests = cast("IO[bytes]", self._popen.stdin)
        self._answers = cast("IO[bytes]", self._popen.stdout)
        self._is_asked = False
        # It ends by itself where nobody asks: somebody has to be told, or it stays in the list of processes.
        threading.Thread(target=self._popen.wait, name="end of a process for SQL", daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether it runs and has answered everything."""
        return not self._is_asked and self._popen.poll() is None

    def do(self, verb: str, table: pa.Table | None = None, **asked: Any) -> list[pa.Table]:
        """Ask for something, and return the pieces of the answer.

        Raises:
            Ended: The process has ended before the answer.
            Failed: It could not be done.
        """
        return list(self.each(verb, table, **asked))

    def each(self, verb: str, table: pa.Table | None = None, **asked: Any) -> Iterator[pa.Table]:
        """Yield the pieces of an answer as they come; raises as `do` does."""
        import pyarrow as pa

        self._is_asked = True
        try:
            line = json.dumps({"verb": verb, "brings_table": table is not None, **asked})
            self._requests.write(line.encode() + b"\n")
            if table is not None:
                with pa.ipc.new_stream(self._requests, table.schema) as writer:
                    writer.write_table(table)
            self._requests.flush()
            while (answer := self._read_answer()).get("piece"):
                yield pa.ipc.open_stream(self._answers).read_all()
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            # A pipe that is closed or ends in the middle.
            raise Ended(self.end()) from error
        self._is_asked = False
        if failure := answer.get("error"):
            raise Failed(failure)

    def _read_answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise Ended(self.end())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> int:
        """End it at once, also from another thread while it is asked; returns its exit status."""
        self._popen.kill()
        return self._popen.wait()

    def close(self) -> None:
        """End it, and close what leads to it."""
        self.end()
        for pipe in (self._requests, self._answers):
            with suppress(OSError, ValueError):
                pipe.close()


_spare: list[Process] = []
_lock = threading.Lock()


def start_ahead() -> None:
    """Start a process that the next one to ask will take: it starts while there is something else to do."""
    with _lock:
        if not _spare:
            _spare.append(Process())


def open_process(settings: Mapping[str, str], memory_bytes: int) -> Process:
    """Return a process with a connection of these settings, whose queries may take so much memory."""
    process = _take_spare()
    try:
        process.do("open", settings=settings, memory_bytes=memory_bytes)
    except Ended:
        # One that was kept may just have ended for having had nothing to do.
        process.close()
        process = Process()
        process.do("open", settings=settings, memory_bytes=memory_bytes)
    return process


def _take_spare() -> Process:
    with _lock:
        while _spare:
            process = _spare.pop()
            if process.is_ready:
                return process
            process.close()
    return Process()


def give_back(process: Process) -> None:
    """Keep a process for the next one to ask, unless it is busy, has ended, or there is one already."""
    with _lock:
        if process.is_ready and not _spare:
            _spare.append(process)
            return
    process.close()


@atexit.register
def end_spare() -> None:
    """End the process that is kept."""
    with _lock:
        while _spare:
            _spare.pop().close()
