"""What a process leaves that is killed at each point at which it changes the disk.

A point lies before, in the middle of and after each write, before and after each fsync, rename, folder made and file or
folder removed. `kill_everywhere` runs an action once and copies its folder at each of its points: what the system was asked
to write by then is there, what the process still holds back is not, as after SIGKILL. So none is left out, and the work
before a point is not done anew for each. At every `KILLED_EVERY`th point a forked copy of the interpreter is killed indeed;
what it leaves is examined alike.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

OPERATIONS = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
KILLED_EVERY = 20
"""Of how many points one is a process killed at indeed."""


@dataclass(frozen=True)
class Killed:
    """What a process leaves that is killed at a point.

    Attributes:
        folder: Where it worked, or the copy of it.
        point: What it was about to do or had just done.
        said: What it reported as done, in order.
    """

    folder: Path
    point: str
    said: list[list[str]]


def kill_everywhere(action: str, folder: Path) -> list[Killed]:
    """Run `module:function` with (folder, say), ended at each of its points; the last one runs to its end.

    Args:
        action: The function, importable; it gets an empty folder and a function that reports words.
        folder: Where the folders are made.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.kill_points", action, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [
        Killed(folder / name, point, said) for name, point, said in map(json.loads, done.stdout.splitlines())
    ]


class _Counter:
    """Counts points, and acts at each of them; what it does to the disk itself has none."""

    def __init__(self, act: Callable[[int, str], None]) -> None:
        self.count, self.act, self.acting = 0, act, False

    def pass_point(self, name: str) -> None:
        if self.acting:
            return
        self.count += 1
        self.acting = True
        self.act(self.count, name)
        self.acting = False


class _Writer(io.FileIO):
    """A file whose writes are points: before, after the first half, and after."""

    counter: _Counter

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        self.counter.pass_point(f"before a write to {Path(str(self.name)).name}")
        half = super().write(view[: len(view) // 2]) or 0
        self.counter.pass_point(f"within a write to {Path(str(self.name)).name}")
        rest = super().write(view[half:]) or 0
        self.counter.pass_point(f"after a write to {Path(str(self.name)).name}")
        return half + rest


def _watch_disk(counter: _Counter) -> None:
    """Make every change of the disk by this process a point."""
    plain_open = io.open

    def open_watched(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "w" in mode and "b" in mode:
            writer = _Writer(file, "w")
            writer.counter = counter
            # Buffered, as it is without us: what reaches the disk at once is what the system is asked to write.
            return io.BufferedWriter(writer)
        return plain_open(file, mode, *arguments, **options)

    io.open = builtins.open = open_watched
    for name in OPERATIONS:
        setattr(os, name, _watched(getattr(os, name), name, counter))


def _watched(operation: Callable[..., Any], name: str, counter: _Counter) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        counter.pass_point(f"before {name} {_names(arguments)}")
        answer = operation(*arguments, **options)
        counter.pass_point(f"after {name} {_names(arguments)}")
        return answer

    return call


def _names(arguments: tuple[Any, ...]) -> str:
    return " ".join(Path(str(part)).name for part in arguments)


def _run(
    action: Callable[..., None], folder: Path, act: Callable[[int, str], None]
) -> tuple[list[tuple[str, Any]], bool]:
    """Fork, and run the action in the child, which acts at each point.

    Returns:
        What it passed and said, in order, as ("point", [number, name]) and ("said", words); whether it was killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def send(kind: str, words: object) -> None:
            os.write(writing, json.dumps([kind, words]).encode() + b"\n")

        def pass_point(number: int, name: str) -> None:
            send("point", [number, name])
            act(number, name)

        _watch_disk(_Counter(pass_point))
        try:
            action(folder, lambda *words: send("said", [str(word) for word in words]))
        except BaseException as error:  # noqa: BLE001 (nothing may return into the parent's loop)
            send("error", repr(error))
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        lines = [json.loads(line) for line in stream]
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and os.waitstatus_to_exitcode(status):
        sys.exit(f"the action failed: {lines}")
    return lines, killed


def _print(folder: Path, point: str, said: list[list[str]]) -> None:
    print(json.dumps([folder.name, point, said]))


def main(action: str, place: str) -> None:
    """Print a line per point: folder, point and what was said; the last one is of a run to the end."""
    module, _, name = action.partition(":")
    function = getattr(__import__(module, fromlist=[name]), name)
    # What is imported and loaded at the first use is in every copy then.
    with tempfile.TemporaryDirectory() as unseen:
        function(Path(unseen), lambda *_words: None)
    whole = Path(place) / "whole"
    whole.mkdir()
    lines, _ = _run(
        function,
        whole,
        lambda number, _name: shutil.copytree(whole, Path(place) / str(number), symlinks=True) and None,
    )
    said, last = [], 0
    for kind, words in lines:
        if kind == "said":
            said.append(words)
        else:
            last, name = words
            _print(Path(place) / str(last), name, said)
    for deadly in range(1, last + 1, KILLED_EVERY):
        folder = Path(place) / f"killed-{deadly}"
        folder.mkdir()
        before, killed = _run(function, folder, _killer(deadly))
        if not killed:
            sys.exit(f"point {deadly} of {last} was not passed again")
        [_, [_, name]] = before[-1]
        _print(folder, name, [words for kind, words in before if kind == "said"])
    _print(whole, "", said)


def _killer(deadly: int) -> Callable[[int, str], None]:
    """Return what kills this process at one of its points."""

    def kill(number: int, _name: str) -> None:
        if number == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


if __name__ == "__main__":
    main(*sys.argv[1:])
