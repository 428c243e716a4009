"""All checks in one table, and the examination that goes through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from studio.doctor import across, content, structure
from studio.doctor.diagnosis import LEVELS, Case, Diagnosis, Found
from studio.doctor.repairs import MENDED, REPAIRS
from studio.trace import Finding, Level, Trace

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked for.

    Attributes:
        code: Stable short name; findings and repairs go by it.
        title: What is found, in a few words.
        find: Yields what it finds in a job.
        consequence: What follows from it.
        advice: What to do about it; empty where the repair says it all.
    """

    code: str
    title: str
    find: Callable[[Case], Iterator[Found]]
    consequence: str
    advice: str = ""


CHECKS: tuple[Check, ...] = (
    Check(
        "missing-rank",
        "Missing ranks",
        across.missing_ranks,
        "A simulation needs every rank of its system: collectives and messages with a missing one never complete. Sums "
        "and means over ranks leave it out.",
        "Open the files of all ranks together.",
    ),
    Check(
        "dangling",
        "Dependencies on nodes that are not there",
        structure.dangling,
        "Simulators refuse the trace, or never start what waits for such a node.",
        "The file is cut off, or its nodes were filtered: export it again if you can.",
    ),
    Check(
        "self-loop",
        "Nodes that wait for themselves",
        structure.self_loops,
        "They never start, nor does anything that waits for them: a simulation hangs, or ends without them.",
    ),
    Check(
        "cycle",
        "Nodes that wait in a circle",
        structure.cycles,
        "None of them ever starts, nor does anything behind them: a simulation hangs, or ends without them. Converters "
        "that walk dependencies stop here.",
    ),
    Check(
        "duplicate-id",
        "Ids that several nodes have",
        structure.duplicate_ids,
        "Dependencies name nodes by id, so which of them is meant is lost; here the first was taken. Simulators keep one "
        "of the nodes and drop the others.",
    ),
    Check(
        "collectives-disagree",
        "Collectives on which ranks disagree",
        across.collectives,
        "All members of a group have to issue the same collectives, of the same size, in the same order: those that do "
        "not wait for each other for ever, in a simulator as on the machine.",
        "Where the order is not fixed, each collective has to depend on the one before, alike on all ranks; else look for "
        "the rank whose trace lacks nodes.",
    ),
    Check(
        "group-outsider",
        "Nodes that name a comm group their rank is not in",
        across.group_outsiders,
        "The rank waits in a collective of which the others know nothing.",
        "Correct the comm group file, or the group the nodes name.",
    ),
    Check(
        "receive-unmatched",
        "Receives that nobody sends",
        across.receives_unmatched,
        "The receiving rank waits for ever.",
        "Source, target, tag and size of both sides have to agree.",
    ),
    Check(
        "self-message",
        "Messages to the own rank",
        across.self_messages,
        "Simulators stop at a message from a rank to itself.",
    ),
    Check(
        "peer-missing",
        "Messages whose other end is not recorded",
        across.unknown_peers,
        "Nothing tells between which ranks they go: they are in no sum of traffic, no line joins them, and a simulation "
        "cannot send them.",
        "Give sends comm_dst and receives comm_src. Timelines of issue and callback events do not record them: simulate "
        "the traces they were made from.",
    ),
    Check(
        "foreign-message",
        "Messages in the name of another rank",
        across.foreign_messages,
        "They meet no other side, so their rank waits for ever.",
        "comm_src of a send and comm_dst of a receive are the own rank, or left out.",
    ),
    Check(
        "comm-untyped",
        "Collectives of no known type",
        content.comm_untyped,
        "No simulator knows what to do: the reference stops at them, and nothing is drawn or added up for them.",
        "Give them comm_type: 0 ALL_REDUCE, 1 REDUCE, 2 ALL_GATHER, 3 GATHER, 4 SCATTER, 5 BROADCAST, 6 ALL_TO_ALL, "
        "7 REDUCE_SCATTER, 8 REDUCE_SCATTER_BLOCK, 9 BARRIER.",
    ),
    Check(
        "size-missing",
        "Communication without a size",
        content.size_missing,
        "A simulation cannot know how long it takes, and stops; sums of bytes are too low.",
        "Give every such node comm_size in bytes; recordings name sizes from PyTorch 2.3 on.",
    ),
    Check(
        "size-negative",
        "Communication of a size below 0",
        content.size_negative,
        "No simulator takes it; the number has probably overflowed a narrow integer on its way.",
        "Write comm_size as a 64-bit integer.",
    ),
    Check(
        "comm-on-cpu",
        "Communication marked as work of the processor",
        content.comm_on_cpu,
        "It never reaches the network: the same cycles come out whatever the topology.",
    ),
    Check(
        "comm-call",
        "Calls of communication typed as communication",
        content.comm_calls,
        "The collective itself is the kernel that is launched, or was lost. Simulators stop at such a call, for it says "
        "neither what nor how much is sent.",
    ),
    Check(
        "unlinked",
        "Operations that linking left over",
        content.unlinked,
        "Unlinked operators have no times and count as 0 in a replay; device operations without operator keep their "
        "times and wait for their stream alone.",
        "Record both files in one profiler session: profile(execution_trace_observer=ExecutionTraceObserver(…)), "
        "PyTorch 2.3 or newer.",
    ),
    Check(
        "duration-missing",
        "Compute nodes without a duration",
        content.durations,
        "They take no time in a simulation, so the step comes out too short, and all of it seems to be communication.",
        "Link the trace with its device trace; or give the nodes num_ops and tensor_size, and the system a roofline.",
    ),
    Check(
        "size-zero",
        "Communication of 0 bytes",
        content.size_zero,
        "It takes no longer than its latency whatever the bandwidth; all-gathers of 0 bytes never complete in the "
        "reference.",
        "Check the exporter: sizes it does not know often become 0.",
    ),
    Check(
        "uneven-all-to-all",
        "All-to-alls of different sizes",
        across.uneven_sizes,
        "That is how expert and embedding parallelism works. The extended mode simulates it, the slowest pair "
        "deciding; the reference waits for ever.",
        "Simulate in the extended mode.",
    ),
    Check(
        "send-unmatched",
        "Sends that nobody receives",
        across.sends_unmatched,
        "A simulator delivers them all the same, so they use the network and hold nobody up.",
        "Source, target, tag and size of both sides have to agree.",
    ),
    Check(
        "group-unlisted",
        "Comm groups that are listed nowhere",
        across.unlisted_groups,
        "Where a rank is missing or names the group by another name, its members are wrong. The reference takes a group "
        "that is not in its comm group file for an error.",
    ),
    Check(
        "stream-order",
        "Kernels without the order of their stream",
        structure.streams,
        "A simulation starts them all as soon as they are launched: kernels overlap that cannot, and communication "
        "begins before the computation that feeds it.",
    ),
    Check(
        "comm-detached",
        "Communication that nothing is tied to",
        content.detached,
        "It starts at time 0 and holds nothing up, so it hardly counts in a simulation.",
        "The exporter has lost its dependencies: link the traces here instead, or convert them again.",
    ),
    Check(
        "clock-skew",
        "Clocks that are apart",
        across.clock_skew,
        "Start times of different ranks cannot be compared: waiting is put down to the wrong rank. A simulation, which "
        "goes by durations, is not affected.",
    ),
    Check(
        "comm-trailing",
        "Communication that no computation waits for",
        content.trailing,
        "It can overlap with all that is computed, and shows in the result only where it ends last. That is right for "
        "the gradients at the end of a step, and a sign of lost dependencies elsewhere.",
    ),
    Check(
        "duration-estimated",
        "Compute nodes a roofline gives their duration",
        content.estimated,
        "With a roofline a simulation computes their durations; without one they take no time.",
        "Simulate on a system with a roofline (roofline-enabled, peak-perf, local-mem-bw).",
    ),
    Check(
        "forward",
        "Dependencies on later nodes",
        structure.forward,
        "They are legal, and resolved here. Tools that read a file once from start to end lose them or stop.",
    ),
)
"""Every check, what hurts most first; where levels are equal findings are told in this order."""

_ALSO_TOLD = 2
_READER_CONSEQUENCE: dict[Level, str] = {
    "error": "Something of the files is lost: what is shown and simulated lacks it.",
    "warning": "What is shown and simulated may not be what was meant.",
    "info": "",
}
_TOLD_BY_CHECKS = frozenset(
    {"dangling-dependency", "duplicate-id", "unlinked", "unattributed", "group-inferred"}
)
"""What readers notice and a check finds in the trace itself, as it is by now and with more about it."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of examining a job.

    Attributes:
        diagnoses: What was found, the worst first.
        passed: The checks that found nothing.
    """

    diagnoses: tuple[Diagnosis, ...]
    passed: tuple[Check, ...]

    def count(self, level: Level) -> int:
        """Return how many diagnoses are of a level."""
        return sum(one.level == level for one in self.diagnoses)


def examine(trace: Trace) -> list[Diagnosis]:
    """Return everything that is wrong with a job, the worst first.

    Example:
        >>> from studio.et.build import graph_of_nodes
        >>> from studio.trace import Rank
        >>> graph, slots = graph_of_nodes([{"id": 1, "type": "COMP_NODE", "duration_micros": 5, "data_deps": [1]}])
        >>> [one.message for one in examine(Trace((graph,), (Rank(0, 0, slots),)))]
        ['1 node of rank 0 waits for itself, the first is node 1 (n1).']
    """
    return list(examination(trace).diagnoses)


def examination(trace: Trace, *, progress: Progress | None = None) -> Examination:
    """Examine a job.

    Args:
        trace: The job.
        progress: Told the checks done and the checks in all; may raise to stop.
    """
    case = Case(trace)
    found: list[Diagnosis] = []
    passed = []
    for at, check in enumerate(CHECKS):
        if progress:
            progress("checking", at, len(CHECKS))
        here = [_diagnosis(check, one) for one in check.find(case)]
        found += here
        if not here:
            passed.append(check)
    if progress:
        progress("checking", len(CHECKS), len(CHECKS))
    found += _from_reader(trace.findings)
    ranked = sorted(found, key=lambda one: LEVELS.index(one.level))
    return Examination(tuple(ranked), tuple(passed))


def _diagnosis(check: Check, found: Found) -> Diagnosis:
    return Diagnosis(
        code=check.code,
        level=found.level,
        title=check.title,
        message=found.message,
        ranks=found.ranks,
        nodes=found.nodes,
        count=found.count,
        evidence=found.evidence,
        consequence=found.consequence or check.consequence,
        advice=check.advice,
        repair=check.code if check.code in REPAIRS and found.count and found.mends else None,
    )


def _from_reader(findings: Iterable[Finding]) -> Iterator[Diagnosis]:
    """Yield what the reader noticed, but for what the checks say themselves; what it says of many files is told once."""
    alike: dict[tuple[str, Level, str], list[Finding]] = {}
    for finding in findings:
        if finding.code not in _TOLD_BY_CHECKS:
            alike.setdefault((finding.code, finding.level, finding.hint), []).append(finding)
    for (code, level, hint), same in alike.items():
        first, others = same[0], same[1:]
        place = (("file", first.file),) if first.file else ()
        at = (("at byte", f"{first.offset:,}"),) if first.offset >= 0 else ()
        rest = (("and", f"{len(others) - _ALSO_TOLD:,} more"),) if len(others) > _ALSO_TOLD else ()
        yield Diagnosis(
            code=code,
            level=level,
            title=_title(code),
            message=first.message,
            ranks=tuple(sorted({one.rank for one in same if one.rank is not None})),
            count=len(same),
            evidence=(*place, *at, *(("also", one.message) for one in others[:_ALSO_TOLD]), *rest),
            consequence=_READER_CONSEQUENCE[level],
            advice=hint,
        )


def _title(code: str) -> str:
    """Return the title of what readers and repairs leave with a job."""
    if code.removeprefix(MENDED) in REPAIRS:
        return "Mended"
    return f"From reading the files: {code.replace('-', ' ')}"
