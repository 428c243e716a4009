"""Processes that call functions.

A worker is asked over pipes. It imports neither the program that started it nor anything that program did not.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from studio.errors import StudioError

_KEPT_MEMORY = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456"
"""Has the C library of most Linux systems keep up to 256 MiB that arrays no longer need, for the next ones. What is given back
at once the system has to clear each time it is taken again, which is half of what it does for a worker that links."""


def count_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """A process that calls functions, one after another."""

    def __init__(self) -> None:
        # Not above: how many processors there are is asked by every command, a process by few.
        import subprocess

        # The very package that runs here, wherever it was found.
        # NumPy's library for matrices starts a thread for each processor that waits busily at first; nothing here multiplies any.
        environment = {"GLIBC_TUNABLES": _KEPT_MEMORY, "OPENBLAS_NUM_THREADS": "1"} | os.environ
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(  # noqa: S603 (a fixed command)
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            # Whoever interrupts the program reaches this process through it.
            start_new_session=True,
        )

    def ask(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of a module in the worker; return its result or raise its error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((function, args, kwargs or {}), self.process.stdin, protocol=5)
            self.process.stdin.flush()
            well, value = pickle.load(self.process.stdout)  # noqa: S301 (a process of ours)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError, ValueError) as error:
            raise StudioError(
                "A worker process ended early; it may have run out of memory.",
                hint="Try again with more memory, or with fewer ranks.",
            ) from error
        if not well:
            raise value
        return value

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                # What was not read or taken any more is of no use.
                with suppress(BrokenPipeError):
                    stream.close()


def serve() -> None:
    """Run as a worker: call what arrives until the pipe closes."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    # Whatever prints must not print into the answers.
    sys.stdout = sys.stderr
    while True:
        try:
            function, args, kwargs = pickle.load(source)  # noqa: S301 (the process that started this one)
        except EOFError:
            return
        try:
            answer = True, function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (raised where it was asked)
            answer = False, error
        try:
            pickle.dump(answer, target, protocol=5)
            target.flush()
        except BrokenPipeError:
            # Who asked was ended meanwhile. Python would write what is left once more at its end, and complain.
            os._exit(1)
