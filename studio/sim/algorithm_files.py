"""Hold an algorithm from a file against the built-in ones: the same collective, on the same system, one after the other.

Everything runs as steps over the links of the system, without the measured costs of a library, which know nothing of an
algorithm that is not its own; a preset has the latencies of its form in ASTRA-sim's model, since those of the full one are in the costs. An algorithm from a file waits and adds where the built-in ones do: the endpoint delay after
every message, and two reads and a write of local memory where one is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from studio.errors import ConfigError, StudioError, TraceError
from studio.et.build import build_graph
from studio.et.msccl import TYPES, iterate_rank_parts
from studio.et.msccl_play import MOST_BYTES, Algorithm, Played, play
from studio.sim import simulate
from studio.sim.algorithms import ALGORITHMS
from studio.sim.config import SystemConfig
from studio.sim.parts import CustomAlgorithms, Parts, interpret
from studio.sim.setting_edits import with_settings
from studio.trace import Rank, Trace
from studio.units import format_bytes

_PLAIN = ("preferred-dataset-splits=1", "active-chunks-per-dimension=1")
"""Settings without which an algorithm given as a trace cannot run, or could not be compared."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One algorithm, simulated.

    Attributes:
        name: What it is called.
        finish_ns: When the last rank is done, None where it cannot run.
        why_not: Why it cannot.
    """

    name: str
    finish_ns: int | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Contest:
    """An algorithm from a file beside the built-in ones.

    Attributes:
        algorithm: It.
        comm_size: Bytes, as Chakra counts them: of an all-gather the part of one rank.
        buffer_bytes: Bytes of the whole buffer.
        chunk_bytes: Bytes of a chunk of the algorithm.
        played: What it does.
        own: Its time.
        others: The times of the built-in algorithms.
        trace: It as a trace of every rank, as the simulator plays it.
        parts: The system, without measured costs.
    """

    algorithm: Algorithm
    comm_size: int
    buffer_bytes: int
    chunk_bytes: int
    played: Played
    own: Timed
    others: tuple[Timed, ...]
    trace: Trace
    parts: Parts

    @property
    def custom(self) -> CustomAlgorithms:
        """The algorithm as a system takes it."""
        return CustomAlgorithms({self.algorithm.collective: self.trace})  # type: ignore[dict-item]  # checked to be a kind


def simulate_contest(algorithm: Algorithm, parts: Parts, comm_size: int) -> Contest:
    """Simulate a collective by an algorithm from a file and by every built-in one.

    Raises:
        ConfigError: The collective, the size or the system does not fit the algorithm.
        TraceError: The algorithm cannot be carried out.
    """
    if algorithm.collective not in TYPES:
        raise ConfigError(
            f"{algorithm.name}: the collective is {algorithm.file_collective!r}; allowed: {', '.join(TYPES)}",
            hint="The simulator takes an algorithm for these. Opened as a file, any other is a job of sends and receives.",
        )
    if comm_size < 1:
        raise ConfigError("the size is 0 bytes; allowed: 1 byte and above")
    plain = _without_costs(parts)
    config = interpret(plain).config
    ranks = len(algorithm.gpus)
    if config.topology.npus != ranks:
        raise ConfigError(
            f"{algorithm.name} is for {ranks:,} GPUs, the system has {config.topology.npus:,}; allowed: as many",
            hint=f"Give --npus {ranks}, or a system of that size.",
        )
    buffer_bytes = comm_size * (ranks if algorithm.collective == "all_gather" else 1)
    chunk_bytes = -(-buffer_bytes // algorithm.chunks)
    played = play(algorithm, chunk_bytes, lambda size, adds: _compute_busy_ns(config, size, adds=adds))
    if not algorithm.least_bytes <= buffer_bytes <= algorithm.most_bytes:
        played.notes["size-outside"] = _explain_size(algorithm, buffer_bytes)
    for code in ("stuck", "unmatched"):
        if played.flaws.get(code):
            raise TraceError(
                f"{algorithm.name}: {played.flaws[code][0]}.",
                hint="Such an algorithm never ends: correct it.",
            )
    trace = _build_trace(played)
    job = _build_job(algorithm.collective, comm_size, ranks)
    custom = CustomAlgorithms({algorithm.collective: trace})  # type: ignore[dict-item]  # one of TYPES
    own = Timed(algorithm.name, int(max(simulate(job, interpret(plain, custom).config).finish_ns)))
    others = tuple(_simulate_built_in(algorithm.collective, plain, job))
    return Contest(algorithm, comm_size, buffer_bytes, chunk_bytes, played, own, others, trace, plain)


def with_latencies(parts: Parts, plain: Parts) -> Parts:
    """Return a system whose costs hold all latency with the latencies of its form in ASTRA-sim's model.

    Without the costs a message would take no time but that of its bytes, and algorithms of few steps would gain nothing.

    Args:
        parts: The system under the full model.
        plain: The same under ASTRA-sim's.
    """
    latencies, sizes = parts.network.get("latency"), parts.network.get("npus_count")
    known = plain.network.get("latency")
    has_none = isinstance(latencies, list | tuple) and not any(latencies)
    if not (_has_costs(parts) and has_none and known and sizes == plain.network.get("npus_count")):
        return parts
    return replace(parts, network={**parts.network, "latency": known})


def _has_costs(parts: Parts) -> bool:
    return any("costs" in (table or {}) for table in (parts.network, parts.system))


def _explain_size(algorithm: Algorithm, buffer_bytes: int) -> str:
    """Return what a size means that an algorithm is not meant for."""
    least, most = algorithm.least_bytes, algorithm.most_bytes
    meant = (
        f"from {format_bytes(least)} on"
        if most == MOST_BYTES
        else f"of {format_bytes(least)} to {format_bytes(most)}"
    )
    return f"it is meant for buffers {meant}, and this one has {format_bytes(buffer_bytes)}: a library would take another"


def _without_costs(parts: Parts) -> Parts:
    """Return a system without measured costs, and with what an algorithm given as a trace needs."""
    return with_settings(parts, (*(("costs=",) if _has_costs(parts) else ()), *_PLAIN))


def _compute_busy_ns(config: SystemConfig, size: int, *, adds: bool) -> int:
    """Return how long a GPU is busy with a message that came in, as with the built-in algorithms."""
    memory = config.local_memory_bytes_per_ns
    return config.packet_delay_ns + (3 * int(size / memory) if adds and memory else 0)


def _build_trace(played: Played) -> Trace:
    parts = list(iterate_rank_parts(played, "", []))
    ranks = tuple(Rank(place, place, part.rank.slots) for place, part in enumerate(parts))
    return Trace(tuple(part.graph for part in parts), ranks)


def _build_job(collective: str, comm_size: int, ranks: int) -> Trace:
    """Return a job of one collective over all ranks."""
    attrs = {"is_cpu_op": False, "comm_type": int(TYPES[collective]), "comm_size": comm_size}
    graph, slots = build_graph([{"id": 1, "type": "COMM_COLL_NODE", "name": collective, "attrs": attrs}])
    return Trace((graph,), tuple(Rank(number, 0, slots) for number in range(ranks)))


def _simulate_built_in(collective: str, parts: Parts, job: Trace) -> Iterator[Timed]:
    """Yield the time of every built-in algorithm, in every dimension of the system."""
    key = f"{collective.replace('_', '-')}-implementation"
    for row in ALGORITHMS.values():
        try:
            config = interpret(with_settings(parts, (f"{key}={row.name}",))).config
            yield Timed(row.name, int(max(simulate(job, config).finish_ns)))
        except StudioError as error:
            yield Timed(row.name, None, error.message)


def find_fastest(others: Sequence[Timed]) -> Timed | None:
    """Return the fastest algorithm, None where none can run."""
    return min(
        (timed for timed in others if timed.finish_ns is not None),
        key=lambda timed: timed.finish_ns or 0,
        default=None,
    )
