"""Repairs: pure functions from trace to trace that report exactly what they changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from studio.doctor.changes import Change, Tick
from studio.doctor.repair_dependencies import (
    add_stream_order,
    chain_collectives,
    drop_dangling,
    drop_self_loops,
    open_cycles,
    write_in_order,
)
from studio.doctor.repair_jobs import align_clocks, list_groups
from studio.doctor.repair_messages import (
    drop_sends,
    name_ends_inside,
    name_missing_ends,
    name_own_ranks,
    repair_receives,
    repair_self_messages,
)
from studio.doctor.repair_nodes import clear_cpu_flags, convert_calls, renumber
from studio.errors import TraceError
from studio.notebook import format_record
from studio.trace import Finding, Trace

REPAIRED = "repaired-"
"""Prefix of the codes of findings about repairs, before the repair's own code."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repaired job.

    Attributes:
        trace: The job; its findings tell of the repair. The very trace that was given where nothing had to be changed.
        changes: What was changed.
    """

    trace: Trace
    changes: tuple[Change, ...]

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair of what a check finds.

    Attributes:
        code: The check.
        title: What it does, in a few words, as the label of a button.
        consequence: What else follows from it.
        apply: Returns the repaired trace and what was changed.
    """

    code: str
    title: str
    consequence: str
    apply: Callable[[Trace, Tick], tuple[Trace, list[Change]]]


def repair(trace: Trace, code: str, tick: Tick = lambda: None) -> Repaired:
    """Repair what one check finds; the given trace stays unchanged.

    Args:
        trace: The job.
        code: The check, one of `REPAIRS`.
        tick: Called now and then; may raise to stop.

    Raises:
        TraceError: There is no such repair.

    Example:
        >>> from studio.et.build import build_graph
        >>> from studio.trace import Rank
        >>> graph, slots = build_graph([{"id": 1, "type": "COMP_NODE", "duration_micros": 5, "data_deps": [9]}])
        >>> done = repair(Trace((graph,), (Rank(0, 0, slots),)), "dangling")
        >>> [change.count for change in done.changes], done.trace.graph_of(0).data.rows.tolist()
        ([1], [])
    """
    known = REPAIRS.get(code)
    if known is None:
        raise TraceError(f"There is no repair {code[:40]!r}.", hint=f"There are: {', '.join(REPAIRS)}.")
    repaired, changes = known.apply(trace, tick)
    changes = [change for change in changes if change.count]
    if not changes:
        return Repaired(trace, ())
    changed = "; ".join(change.what for change in changes)
    finding = Finding("info", f"{REPAIRED}{code}", f"{known.title}: {changed}.", known.consequence)
    return Repaired(replace(repaired, findings=(*trace.findings, finding)), tuple(changes))


def repair_all(
    trace: Trace, codes: Iterable[str] | None = None, *, progress: Progress | None = None
) -> Repaired:
    """Repair what several checks find, or all of them, in the order of `REPAIRS`.

    Args:
        trace: The job.
        codes: The checks; None stands for all.
        progress: Told the repairs done and the repairs in all; may raise to stop.
    """
    wanted = list(REPAIRS) if codes is None else list(codes)
    for code in wanted:
        if code not in REPAIRS:
            repair(trace, code)
    changes: list[Change] = []
    for index, code in enumerate(code for code in REPAIRS if code in wanted):

        def tick(done: int = index) -> None:
            if progress:
                progress("repairing", done, len(wanted))

        tick()
        repaired = repair(trace, code, tick)
        trace, changes = repaired.trace, [*changes, *repaired.changes]
    return Repaired(trace, tuple(changes))


REPAIRS: Mapping[str, Repair] = {
    entry.code: entry
    for entry in (
        Repair(
            "dangling",
            "Remove dependencies on missing nodes",
            "If these dependencies mattered, the nodes that had them now start too early.",
            drop_dangling,
        ),
        Repair(
            "self-loop",
            "Remove dependencies of nodes on themselves",
            "Nothing else changes: no run can have obeyed them.",
            drop_self_loops,
        ),
        Repair(
            "cycle",
            "Open the cycles",
            "No run can have obeyed all of these dependencies. Of equally small sets, the one that recorded "
            "times contradict is removed; the removed dependencies are not certain to be the wrong ones.",
            open_cycles,
        ),
        Repair(
            "duplicate-id",
            "Remove nodes written twice, give other repeated ids new numbers",
            "Nodes that are alike in everything to an earlier one are removed. Dependencies stay with the first node of each id. Of "
            "several nodes that are ready, the one with the lowest id starts first, so the renumbered ones may start later.",
            renumber,
        ),
        Repair(
            "comm-on-cpu",
            "Let communication use the network",
            "These nodes take the time that the network gives them instead of their recorded durations.",
            clear_cpu_flags,
        ),
        Repair(
            "comm-call",
            "Treat the calls as computation",
            "They keep their durations and dependencies and send nothing, as before.",
            convert_calls,
        ),
        Repair(
            "foreign-message",
            "Let messages begin and end on their own rank",
            "Only those without another half are changed: comm_src of a send and comm_dst of a receive become the rank it is on.",
            name_own_ranks,
        ),
        Repair(
            "self-message",
            "Correct messages from a rank to itself, or remove them",
            "Where another rank waits for a message of that tag and size, or sends one, the message goes between the two. The "
            "others are removed: nodes that waited for them wait for their predecessors instead; a copy within a rank then takes "
            "no time.",
            repair_self_messages,
        ),
        Repair(
            "peer-missing",
            "Name the other end of messages",
            "It is the rank that waits for a message of that tag and size from there, or sends one; the others stay as they are.",
            name_missing_ends,
        ),
        Repair(
            "peer-outside",
            "Correct the other end of messages",
            "It becomes the rank that waits for a message of that tag and size from there, or sends one; the others stay as they "
            "are.",
            name_ends_inside,
        ),
        Repair(
            "receive-unmatched",
            "Correct receives to their sends, remove those without one",
            "Where a send between the same ranks is not received, and has the same tag or the same size, the receive gets "
            "its tag and size; of several alike it is the one in the place of the send. Where the one send of its tag and size that is "
            "not received comes from another rank, the receive gets that; where it goes to another rank, the send gets the receiver's. "
            "The others are removed, of several alike "
            "those that recorded times tell: nodes that waited for them wait for their predecessors instead, and the time they "
            "took is gone.",
            repair_receives,
        ),
        Repair(
            "send-unmatched",
            "Remove sends without a receive",
            "Of several alike those are removed that recorded times tell. Their bytes no longer load the network. Nodes that "
            "waited for them wait for their predecessors instead.",
            drop_sends,
        ),
        Repair(
            "group-unlisted",
            "List the comm groups",
            "The ranks that name a group become its members, in order of their numbers, and are written to the "
            "comm group file.",
            list_groups,
        ),
        Repair(
            "collectives-disagree",
            "Fix the order of collectives",
            "Each waits for the previous one in its group, in the recorded order or else that of most ranks, "
            "unless dependencies fix another order. They can no longer overlap each other.",
            chain_collectives,
        ),
        Repair(
            "stream-order",
            "Keep kernels in the order of their stream",
            "Each waits for the previous one on its stream, by recorded start or, where none is recorded, by "
            "launch. A simulation can no longer run them side by side.",
            add_stream_order,
        ),
        Repair(
            "clock-skew",
            "Align the clocks",
            "Start times of the ranks move, durations stay. Where a clock drifts, the median of its offset is "
            "subtracted.",
            align_clocks,
        ),
        Repair(
            "forward",
            "Write nodes after the nodes they wait for",
            "Only the order of nodes in the files changes; ids stay.",
            write_in_order,
        ),
    )
}
"""Every repair by its code, in the order they are applied together."""
