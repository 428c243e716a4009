"""Run work on the files of a job elsewhere: by any executor of the standard `concurrent.futures` kind.

Functions that are submitted are functions of modules, take and return what can be pickled, and read files by their path.
So an executor may run them in processes of this machine, as the one here does, or on other machines that see the same files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from studio.errors import ConfigError
from studio.et.workers import Worker, count_processors

P = ParamSpec("P")
T = TypeVar("T")
Call = tuple[Callable[..., T], tuple[Any, ...]]
_MOST_PROCESSES = 8
_AHEAD = 2
_POLL_S = 0.2
_CONNECT_S = 10
_RETRIES = 10


class LocalProcesses(Executor):
    """An executor of processes on this machine that do not import the main program."""

    def __init__(self, size: int | None = None) -> None:
        """Start processes.

        Args:
            size: How many; as many as there are processors, eight at most, where nothing is said.
        """
        count = max(1, min(size or count_processors(), _MOST_PROCESSES))
        self.workers = [Worker() for _ in range(count)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self.workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function of a module called by a process."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def _call(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        worker = self._idle.get()
        try:
            answer: T = worker.ask(fn, args, kwargs)
            return answer
        finally:
            self._idle.put(worker)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, once they have done what was submitted, or at once where it is cancelled."""
        if wait and not cancel_futures:
            self._threads.shutdown(wait=True)
        for worker in self.workers:
            worker.close()
        self._threads.shutdown(wait=wait, cancel_futures=True)


@contextmanager
def start_local_processes() -> Iterator[LocalProcesses]:
    """Yield processes of this machine, which end with the block, whatever they are doing."""
    executor = LocalProcesses()
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def connect_scheduler(address: str) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of the workers of a Dask scheduler, and how many threads they have.

    Work of a worker that ends early is done by another. Workers import this package and see files where this machine does.

    Args:
        address: Such as tcp://10.0.0.1:8786.

    Raises:
        ConfigError: Dask is not installed, nobody answers at the address, or the scheduler has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "a scheduler needs Dask, which is not installed",
            hint='Install it: pip install "chakra-studio[dask]".',
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError, OverflowError) as error:
        raise ConfigError(
            f"scheduler {address!r}: no Dask scheduler answers there ({str(error)[:120]})",
            hint="Start one (dask-scheduler), and give the address that it prints, such as tcp://127.0.0.1:8786.",
        ) from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise ConfigError(
                f"scheduler {address!r} has no workers", hint=f"Start some: dask-worker {address}."
            )
        # The same call twice is two calls; what a lost worker was doing is done again.
        yield client.get_executor(pure=False, retries=_RETRIES), threads


@contextmanager
def open_executor(scheduler: str | None) -> Iterator[Executor | None]:
    """Yield an executor of the workers of a Dask scheduler; None where none is named."""
    if scheduler is None:
        yield None
        return
    with connect_scheduler(scheduler) as (executor, _):
        yield executor


def call_in_order(
    executor: Executor, calls: Iterable[Call[T]], poll: Callable[[], None], ahead: int | None = None
) -> Iterator[T]:
    """Yield the results of calls in their order, with a few submitted ahead: results may be large.

    Args:
        executor: Who makes the calls.
        calls: Functions and arguments.
        poll: Called several times a second while a result is waited for; may raise to stop.
        ahead: How many calls are under way at a time; twice the processors here where nothing is said.
    """
    most = ahead or _AHEAD * count_processors()
    waiting: deque[Future[T]] = deque()
    try:
        for function, arguments in calls:
            waiting.append(executor.submit(function, *arguments))
            if len(waiting) >= most:
                yield _await_result(waiting.popleft(), poll)
        while waiting:
            yield _await_result(waiting.popleft(), poll)
    finally:
        for future in waiting:
            future.cancel()


def _await_result(future: Future[T], poll: Callable[[], None]) -> T:
    while True:
        try:
            return future.result(_POLL_S)
        except TimeoutError:
            if future.done():
                # Raised by the work itself, or done just now.
                return future.result()
            poll()
