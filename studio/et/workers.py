"""Run work on the ranks of a job in several processes.

A worker is asked over pipes to call functions, and keeps for later what they leave with it. It imports neither the
program that started it nor anything that program did not.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from studio.errors import StudioError

Tick = Callable[[int], None]
State = dict[Any, Any]
Task = Callable[..., Any]
"""A function of a module, called with the worker's state, a function to report progress with, and its arguments."""

Item = TypeVar("Item")
Result = TypeVar("Result")
_MOST_WORKERS = 8


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """A process that calls functions, one after another."""

    def __init__(self) -> None:
        # The very package that runs here, wherever it was found.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(  # noqa: S603 (a fixed command)
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            # Whoever interrupts the program reaches this process through it.
            start_new_session=True,
        )

    def ask(self, task: Task, *arguments: Any, tick: Tick = lambda _done: None) -> Any:
        """Call a function in the worker; return its result or raise its error."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((task, arguments), self.process.stdin, protocol=5)
            self.process.stdin.flush()
            while True:
                kind, value = pickle.load(self.process.stdout)  # noqa: S301 (a process of ours)
                if kind == "tick":
                    tick(value)
                elif kind == "error":
                    raise value
                else:
                    return value
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise StudioError(
                "A worker process ended early; it may have run out of memory.",
                hint="Try again with more memory, or with fewer ranks.",
            ) from error

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
    state: State = {}

    def answer(kind: str, value: Any) -> None:
        pickle.dump((kind, value), target, protocol=5)
        target.flush()

    while True:
        try:
            task, arguments = pickle.load(source)  # noqa: S301 (the process that started this one)
        except EOFError:
            return
        try:
            result = task(state, lambda done: answer("tick", done), *arguments)
        except Exception as error:  # noqa: BLE001 (raised where it was asked)
            answer("error", error)
        else:
            answer("done", result)


class Team:
    """Workers that share items; each item stays with the worker that took it first."""

    def __init__(self, size: int) -> None:
        self.workers = [Worker() for _ in range(min(size, _MOST_WORKERS))]
        self.stopped = False

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        self.stopped = True
        for worker in self.workers:
            worker.close()

    def share(
        self, items: Sequence[Item], work: Callable[[Worker, Item], Result]
    ) -> list[tuple[Worker, Result]]:
        """Return each item's worker and result; free workers take the next item."""
        waiting = iter(enumerate(items))
        lock = threading.Lock()
        results: dict[int, tuple[Worker, Result]] = {}

        def run(worker: Worker) -> None:
            while not self.stopped:
                with lock:
                    following = next(waiting, None)
                if following is None:
                    return
                index, item = following
                results[index] = worker, work(worker, item)

        self._all([partial(run, worker) for worker in self.workers])
        return [results[index] for index in range(len(items))]

    def run_own(
        self, tasks: Sequence[tuple[Worker, Item]], work: Callable[[Worker, Item], Result]
    ) -> list[Result]:
        """Run items on the workers that hold them and return the results."""
        results: dict[int, Result] = {}

        def run(worker: Worker) -> None:
            for index, (whose, item) in enumerate(tasks):
                if whose is worker and not self.stopped:
                    results[index] = work(worker, item)

        self._all([partial(run, worker) for worker in self.workers])
        return [results[index] for index in range(len(tasks))]

    def _all(self, runs: Sequence[Callable[[], None]]) -> None:
        """Run each worker's part; the first error ends all."""
        with ThreadPoolExecutor(max_workers=len(runs)) as pool:
            futures = [pool.submit(self._catch, run) for run in runs]
            try:
                errors = [error for future in futures if (error := future.result()) is not None]
            except BaseException:
                self.close()
                raise
        if errors:
            raise errors[0]

    def _catch(self, run: Callable[[], None]) -> BaseException | None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 (raised once all have ended)
            first = not self.stopped
            self.close()
            return error if first else None
        return None
