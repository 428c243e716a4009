"""Simulate points: in this process, in processes of this machine, or by any executor.

An executor gets the job as a file, which all of its processes have to see, and points in pieces. Each process reads the
job once and keeps what its simulations have in common.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from studio.analysis.collectives.arrivals import match
from studio.analysis.job.ledger import PARTS
from studio.errors import StudioError
from studio.et.executors import call_in_order
from studio.et.workers import count_processors
from studio.files import describe_full_disk, is_full, open_private
from studio.sim.doubts import judge
from studio.sim.parts import interpret
from studio.sim.play import play
from studio.sim.result import compute_ledger
from studio.sweep.costs import Costs, compute_port_rates
from studio.sweep.space import PRESET
from studio.sweep.systems import Base, Jobs, build_parts_at
from studio.trace import Int64, Trace
from studio.units import format_bytes

MEANS = (*(part for part in PARTS if part != "communication"), "exposed", "idle", "after_finish")
"""Parts of the ledger whose mean over the ranks a result has."""
_LARGEST_PIECE = 32
_PIECES = 8

Point = tuple[int, Mapping[str, str]]
"""The number of a point, and its values by key."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result at a point.

    Attributes:
        index: The number of the point in the grid.
        finish_ns: When the last rank finished; None where the point is impossible.
        parts_ns: Mean over the ranks of each of `MEANS`.
        ranks: Ranks of the job there.
        npus: NPUs of the system.
        model: Whose answer it is.
        port_gb_per_s: What a port of an NPU carries in each dimension, which its price depends on.
        cost: What the system costs; None without costs.
        error: Why the point is impossible; "" where it is not.
        doubt: Why no such network could finish then; "" where nothing says so.
        doubtful: Why the finish is not to be believed as it stands though a network could have it: a sentence by the code of the doubt.
    """

    index: int
    finish_ns: int | None = None
    parts_ns: Mapping[str, float] = field(default_factory=dict)
    ranks: int = 0
    npus: int = 0
    model: str = ""
    port_gb_per_s: tuple[float, ...] = ()
    cost: float | None = None
    error: str = ""
    doubt: str = ""
    doubtful: Mapping[str, str] = field(default_factory=dict)


def run_point(jobs: Jobs, base: Base, costs: Costs | None, point: Point) -> Row:
    """Simulate a point; whatever makes it impossible is its result."""
    index, values = point
    try:
        known = jobs.at(values)
        ranks = len(known.trace.ranks)
        system = build_parts_at(base, values, ranks)
        config = interpret(system).config
    except StudioError as error:
        return Row(index, error=error.message)
    rates = compute_port_rates(config)
    price = costs.of(config.topology.npus, rates, values.get(PRESET, base.preset or "")) if costs else None
    facts = {
        "ranks": ranks,
        "npus": config.topology.npus,
        "model": config.model,
        "port_gb_per_s": rates,
        "cost": price,
    }
    errors = [finding.message for finding in known.check(config) if finding.level == "error"]
    if errors:
        return Row(index, error=errors[0], **facts)  # type: ignore[arg-type]  # each by its own type
    try:
        result, plan = play(known.trace, config, known=known)
    except StudioError as error:
        return Row(index, error=error.message, **facts)  # type: ignore[arg-type]  # the same
    matched = known.once("matched", config.groups, lambda: match(known.trace, config.groups))
    ledger = compute_ledger(result, plan.flows, matched)
    times = ledger.totals()
    means: dict[str, Int64] = {part: times.of(part) for part in PARTS}
    means |= {"exposed": times.exposed_ns, "idle": times.idle_ns, "after_finish": times.after_finish_ns}
    parts = {name: int(means[name].sum()) / ranks for name in MEANS}
    doubt, doubtful = judge(result, system, ledger, known)
    return Row(index, result.makespan_ns, parts, doubt=doubt, doubtful=doubtful, **facts)  # type: ignore[arg-type]  # the same


@dataclass(frozen=True, slots=True)
class Stored:
    """A job as a file.

    Attributes:
        path: The file.
        digest: Of its content: what a process keeps of a job is kept under it.
    """

    path: Path
    digest: str


def store_job(trace: Trace, path: Path, read: Mapping[int, Trace | str] | None = None) -> Stored:
    """Write a job for the processes of an executor, and as it was read for each number of NPUs where that matters.

    Raises:
        StudioError: The disk is full.
    """
    data = pickle.dumps((trace, read), protocol=5)
    try:
        with open_private(path) as file:
            file.write(data)
    except OSError as error:
        if not is_full(error):
            raise
        written = path.stat().st_size if path.exists() else 0
        path.unlink(missing_ok=True)
        full = describe_full_disk(
            path.parent, needed=f"about {format_bytes(len(data))}", removed_bytes=written, error=error
        )
        raise StudioError(f"{full}.", hint="Free some space, or name an output on another disk.") from error
    return Stored(path.resolve(), hashlib.blake2b(data, digest_size=16).hexdigest())


@lru_cache(maxsize=2)
def _load_jobs(stored: Stored) -> Jobs:
    data = stored.path.read_bytes()
    if hashlib.blake2b(data, digest_size=16).hexdigest() != stored.digest:
        raise StudioError(f"{stored.path} is not the file that the sweep wrote.", hint="Run the sweep again.")
    return Jobs(*pickle.loads(data))  # noqa: S301 (written by this sweep: its checksum says so)


def run_piece(stored: Stored, base: Base, costs: Costs | None, points: Sequence[Point]) -> list[Row]:
    """Simulate some points; for executors."""
    jobs = _load_jobs(stored)
    return [run_point(jobs, base, costs, point) for point in points]


class Here:
    """Simulates points in this process."""

    def __init__(
        self, trace: Trace, base: Base, costs: Costs | None, read: Mapping[int, Trace | str] | None = None
    ) -> None:
        self.jobs, self.base, self.costs = Jobs(trace, read), base, costs

    def run(self, points: Sequence[Point], poll: Callable[[], None]) -> Iterator[list[Row]]:
        """Yield the results of points in order, a few at a time; `poll` is asked in between and may raise to stop."""
        for point in points:
            poll()
            yield [run_point(self.jobs, self.base, self.costs, point)]


class Elsewhere:
    """Simulates points by an executor."""

    def __init__(
        self, stored: Stored, base: Base, costs: Costs | None, executor: Executor, workers: int = 0
    ) -> None:
        self.stored, self.base, self.costs, self.executor = stored, base, costs, executor
        self.workers = workers or count_processors()

    def run(self, points: Sequence[Point], poll: Callable[[], None]) -> Iterator[list[Row]]:
        """Yield the results of points in order, a few at a time; `poll` is asked in between and may raise to stop."""
        size = max(1, min(_LARGEST_PIECE, len(points) // (self.workers * _PIECES)))
        pieces = [points[begin : begin + size] for begin in range(0, len(points), size)]
        calls = [(run_piece, (self.stored, self.base, self.costs, piece)) for piece in pieces]
        yield from call_in_order(self.executor, calls, poll, ahead=2 * self.workers)


Runner = Here | Elsewhere
