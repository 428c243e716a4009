"""Kill a process at every point at which it changes the disk, one point after the other.

A point lies before, in the middle of and after each write, before and after each fsync, rename, folder made and file or
folder removed. `kill_everywhere` runs an action once for each of its points, in forked copies of an interpreter that has
run it before, and kills each copy there with SIGKILL; so the points are the same every time and none is left out.
"""

from __future__ import annotations

import builtins
import io
import json
import os
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


@dataclass(frozen=True)
class Killed:
    """What a killed process leaves.

    Attributes:
        folder: Where it worked.
        point: What it was about to do or had just done.
        said: What it reported as done, in order.
    """

    folder: Path
    point: str
    said: list[list[str]]


def kill_everywhere(action: str, folder: Path) -> list[Killed]:
    """Run `module:function` with (folder, say) once for each of its points; the last one runs to its end.

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
    """Counts points, and kills this process at one of them."""

    def __init__(self, deadly: int, report: Callable[[str], None]) -> None:
        self.count, self.deadly, self.report = 0, deadly, report

    def pass_point(self, name: str) -> None:
        self.count += 1
        if self.count == self.deadly:
            self.report(name)
            os.kill(os.getpid(), signal.SIGKILL)


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


def _run_killed(action: Callable[..., None], folder: Path, deadly: int) -> tuple[str, list[list[str]]]:
    """Fork, run the action in the child until its point; return the point ("" at the end) and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def send(kind: str, words: object) -> None:
            os.write(writing, json.dumps([kind, words]).encode() + b"\n")

        _watch_disk(_Counter(deadly, lambda name: send("point", name)))
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
    points = [words for kind, words in lines if kind == "point"]
    return (points[0] if killed else ""), [words for kind, words in lines if kind == "said"]


def main(action: str, place: str) -> None:
    """Print one line per point: folder, point and what was said."""
    module, _, name = action.partition(":")
    function = getattr(__import__(module, fromlist=[name]), name)
    # What is imported and loaded at the first use is in every copy then.
    with tempfile.TemporaryDirectory() as unseen:
        function(Path(unseen), lambda *_words: None)
    point, deadly = "?", 0
    while point:
        deadly += 1
        folder = Path(place) / str(deadly)
        folder.mkdir()
        point, said = _run_killed(function, folder, deadly)
        print(json.dumps([folder.name, point, said]))


if __name__ == "__main__":
    main(*sys.argv[1:])
