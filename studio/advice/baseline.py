"""The run that changes are compared with: a replay of the recording, or a simulation on a system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from studio.advice.terms import Baseline, Change
from studio.analysis.collectives.members import Members, collect_members
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.ledger import Ledger
from studio.errors import TraceError
from studio.notebook import format_record
from studio.sim.config import SystemConfig
from studio.sim.doubts import judge
from studio.sim.engine import Cancelled
from studio.sim.known import Known
from studio.sim.matched import replays_communication
from studio.sim.models import label_model, with_model
from studio.sim.parts import Parts, interpret
from studio.sim.play import play
from studio.sim.replays import as_replay, build_idle_system
from studio.sim.result import SimResult, compute_ledger
from studio.sim.systems.proposals import find_recorded_system
from studio.timeline import NodeTimes, read_recorded_times
from studio.trace import Int64, Trace, list_recorded_devices

Cancel = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Scene:
    """A job on a system, simulated.

    Attributes:
        trace, parts, config: The job and the system; a replay has one that no message uses.
        result: The simulation of them.
        times: Its times, of all ranks.
        members: Its collectives by member.
        baseline: Its finish, and how it was made.
        known: What simulations of the job on changed systems have in common.
    """

    trace: Trace
    parts: Parts
    config: SystemConfig
    result: SimResult
    times: NodeTimes
    members: Members
    baseline: Baseline
    known: Known

    __repr__ = format_record

    @property
    def is_replay(self) -> bool:
        """Whether communication takes its recorded time."""
        return replays_communication(self.config)

    def took_ns(self, place: int) -> Int64:
        """Return (N,) how long each node of the rank at a place took; 0 where it did not run."""
        first, count = int(self.times.first[place]), len(self.trace.graph_of(self.trace.ranks[place]))
        start, end = self.times.start_ns[first : first + count], self.times.end_ns[first : first + count]
        return np.where(start >= 0, end - start, 0)

    def starts_ns(self, place: int) -> Int64:
        """Return (N,) when each node of the rank at a place began; -1 where it did not run."""
        first, count = int(self.times.first[place]), len(self.trace.graph_of(self.trace.ranks[place]))
        return self.times.start_ns[first : first + count]

    def start_of(self, places: Int64, rows: Int64) -> Int64:
        """Return (M,) when nodes began, each given by the place of its rank and its row there; -1 where one did not run."""
        start: Int64 = self.times.start_ns[self.times.first[places] + rows]
        return start

    def took_of(self, places: Int64, rows: Int64) -> Int64:
        """Return (M,) how long nodes took, each given by the place of its rank and its row there; 0 where one did not run."""
        where = self.times.first[places] + rows
        start = self.times.start_ns[where]
        took: Int64 = np.where(start >= 0, self.times.end_ns[where] - start, 0)
        return took

    def measure_waits(self) -> tuple[NodeTimes, Ledger]:
        """Return where the time of the ranks went, with the times: of a replay those of its recording, which Overview shows."""
        if not self.is_replay:
            return self.times, compute_ledger(self.result)
        side = build_recorded_side(self.trace, read_recorded_times(self.trace))
        return side.times, side.ledger()

    def node_ids(self, place: int, rows: Int64, most: int) -> tuple[tuple[int, int], ...]:
        """Return rank and node id of the nodes of a rank that took longest, the longest first."""
        took = self.took_ns(place)[rows]
        chosen = rows[np.lexsort((rows, -took))][:most]
        rank = self.trace.ranks[place]
        return tuple((rank.number, int(self.trace.graph_of(rank).id[row])) for row in chosen.tolist())

    def finish_ns(self, change: Change, cancel: Cancel | None = None) -> int:
        """Return when the changed job, on the changed system, finishes."""
        return self.rerun(change, cancel)[0].makespan_ns

    def rerun(self, change: Change, cancel: Cancel | None = None) -> tuple[SimResult, Known]:
        """Simulate the changed job on the changed system; return the result, and what is known of that job.

        Raises:
            ConfigError: The system has no such setting, or not such a value.
            TraceError: The changed job cannot be simulated.
            Cancelled: `cancel` said so.
        """
        parts = change.of_parts(self.parts)
        config = self.config if parts is self.parts else interpret(parts).config
        trace = change.of_trace(self.trace)
        # Plans and matches of the job hold for every system, and matches of one whose times change.
        known = self.known.of_changed(trace)
        return play(trace, config, known=known, cancel=cancel, recorded=self.trace)[0], known


def replay_recording(trace: Trace, cancel: Cancel | None = None) -> Scene:
    """Replay a recording.

    Raises:
        TraceError: The job holds no recorded times of compute and communication.
    """
    recorded_ns = compute_recorded_finish(trace)
    if recorded_ns is None:
        raise TraceError(
            "The job holds no recorded times, so there is nothing to replay.",
            hint="Give a system to simulate it on (--preset).",
        )
    parts = as_replay(build_idle_system(max(infer_completeness(trace).world, 1)))
    return _build_scene(trace, parts, "replay of the recording", recorded_ns, cancel)


def simulate_on_system(trace: Trace, parts: Parts, cancel: Cancel | None = None) -> Scene:
    """Simulate a job on a system.

    Raises:
        ConfigError: The system cannot be simulated.
        TraceError: The job cannot be simulated on it.
    """
    config = interpret(parts).config
    npus = config.topology.npus
    named = parts.names.get("network", "")
    where = f"{named}, " if named.startswith("preset ") else ""
    words = f"simulation on {where}{npus:,} {'NPU' if npus == 1 else 'NPUs'}, model {label_model(config.model, config.congestion)}"
    return _build_scene(trace, parts, words, None, cancel)


def simulate_on_family(trace: Trace, cancel: Cancel | None = None) -> Scene | str:
    """Simulate a recording on the system of the family of its GPUs; else return why that cannot be done."""
    known_system = find_recorded_system(trace)
    if known_system is None:
        devices = list_recorded_devices(trace)
        if devices:
            return f"no system was given, and none is known of the recorded {devices[0][:60]}; give one (--preset)"
        return "no system was given, and the recording names no GPU of a known family"
    system, device = known_system
    parts = with_model(system.parts(infer_completeness(trace).world), "full")
    words = f"simulation on {system.name}, the family of the recorded {device[:60]}"
    try:
        return _build_scene(trace, parts, words, compute_recorded_finish(trace), cancel)
    except TraceError as error:
        return f"the recording cannot be simulated on {system.name}: {error.message.rstrip('.')}"


def compute_recorded_finish(trace: Trace) -> int | None:
    """Return the time from the first recorded start to the last recorded end of a job; None where it was not recorded."""
    times = read_recorded_times(trace)
    known = times.start_ns >= 0
    if not known.any():
        return None
    length = int(times.over_ns[known].max() - times.start_ns[known].min())
    return length or None


def _build_scene(
    trace: Trace, parts: Parts, words: str, recorded_ns: int | None, cancel: Cancel | None
) -> Scene:
    config = interpret(parts).config
    known = Known(trace)
    errors = [finding for finding in known.check(config) if finding.level == "error"]
    if errors:
        more = f" And {len(errors) - 1:,} more." if len(errors) > 1 else ""
        raise TraceError(f"{errors[0].message}{more}", hint=errors[0].hint)
    result, _ = play(trace, config, known=known, cancel=cancel)
    times = result.node_times()
    members = collect_members(trace, times, config.groups)
    impossible, doubtful = judge(result, parts, known=known)
    doubt = " ".join(doubtful.values())
    baseline = Baseline(result.makespan_ns, words, recorded_ns, doubt, impossible)
    return Scene(trace, parts, config, result, times, members, baseline, known)


__all__ = [
    "Cancel",
    "Cancelled",
    "Scene",
    "compute_recorded_finish",
    "replay_recording",
    "simulate_on_family",
    "simulate_on_system",
]
