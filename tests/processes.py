"""Child processes of tests: signals they can rely on, and none of them left running.

Every process that a test starts inherits an environment variable that names the test process. After each test module
all processes that carry it are looked for, wherever they were started; what is still there is killed and reported.
Servers and browsers that serve a whole session are started without the variable and end with their fixtures.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.waiting import PATIENCE_S

MARK = "CHAKRA_STUDIO_TEST"
"""The environment variable; its value is the id of the process that runs the tests."""

_KERNEL = 2
"""The process whose children are the threads of Linux itself."""


def reset_signals() -> None:
    """Give this process, and so its children, the signal handling of a terminal.

    A shell script starts background commands with SIGINT ignored, nohup with SIGHUP ignored, and children inherit
    that: a server under test would never hear Ctrl+C.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def mark_children() -> None:
    """Let every process that is started from now on carry the variable."""
    os.environ[MARK] = str(os.getpid())


@contextmanager
def unmarked() -> Iterator[None]:
    """Start processes in this block that may live as long as the session."""
    value = os.environ.pop(MARK, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[MARK] = value


def marked_processes() -> list[psutil.Process]:
    """Return the running processes that tests of this process started."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if _environment(process).get(MARK) == str(os.getpid()):
                processes.append(process)
    return processes


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process, also of one that has just been started.

    Whoever starts a program hears that it has begun a moment before the system shows its command line and environment.
    """
    while not (environment := process.environ()):
        is_new = process.create_time() > time.time() - PATIENCE_S
        # Threads of Linux itself have neither for good.
        is_thread = _KERNEL in {process.pid, process.ppid()}
        if not is_new or is_thread or process.cmdline() or process.status() == psutil.STATUS_ZOMBIE:
            return process.environ()
        time.sleep(0.001)
    return environment


_ended_children: object = None


def _may_have_started() -> bool:
    """Whether this process has children, or has had one that ended since it was asked last: asking the system is quick."""
    global _ended_children
    before, _ended_children = _ended_children, resource.getrusage(resource.RUSAGE_CHILDREN)
    children = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            children.append(path.read_text())
    # Systems without these files do not tell.
    return not children or any(children) or before != _ended_children


def kill_marked_processes() -> list[str]:
    """Kill what tests of this process left running; return the command lines."""
    killed: list[str] = []
    if kept := sys.modules.get("studio.sql.process"):
        # It is kept for the next query, and would end with this process.
        kept.end_spare()
    # Looking at every process of the machine takes a hundred times as long.
    if not _may_have_started():
        return killed
    for process in marked_processes():
        with suppress(psutil.Error):
            killed.append(" ".join(process.cmdline())[:200])
            process.kill()
    return killed
