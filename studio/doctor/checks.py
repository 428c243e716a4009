"""The table of all checks, and the examination that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from studio.analysis.job.renumbered import share_graphs
from studio.doctor import across, clocks, content, deadlocks, hangs, messages, recordings, scale, structure
from studio.doctor.diagnosis import LEVELS, Case, Diagnoses, Diagnosis, Found
from studio.doctor.inferred import hedge_finding
from studio.doctor.repairs import REPAIRED, REPAIRS
from studio.notebook import format_record
from studio.trace import Finding, Level, Trace

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

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
    # What else is wrong may follow from it.
    Check(
        "mixed-runs",
        "Files of several runs",
        recordings.check_mixed_runs,
        "Ranks of different runs, or of different moments of one, took part in no collective together: waits between them, "
        "what they disagree on and differences of their clocks mean nothing.",
        "Open the files of one run together.",
    ),
    Check(
        "hang",
        "Operations that do not end",
        hangs.check_hangs,
        "All members of a group wait in a collective until the last one comes, so one rank that does not keeps the whole "
        "job, until the watchdog's time limit ends it.",
    ),
    Check(
        "missing-rank",
        "Missing ranks",
        across.check_missing_ranks,
        "A simulation needs every rank of its system: collectives and messages with a missing rank never "
        "complete. Sums and means over ranks leave it out.",
        "Open the files of all ranks together; the known ranks of a recording can be replayed as they are.",
    ),
    Check(
        "duplicate-id",
        "Duplicate node ids",
        structure.check_duplicate_ids,
        "Dependencies name nodes by id, so it is unknown which node is meant; here the first is used. Simulators "
        "keep one of the nodes and drop the others.",
    ),
    Check(
        "dangling",
        "Dependencies on missing nodes",
        structure.check_dangling,
        "Simulators refuse the trace, or never start the nodes that wait for a missing one.",
        "The file is cut off, or its nodes were filtered: export it again if you can.",
    ),
    Check(
        "self-loop",
        "Nodes that wait for themselves",
        structure.check_self_loops,
        "Neither they nor the nodes that wait for them ever start: a simulation hangs, or ends without them.",
    ),
    Check(
        "cycle",
        "Dependency cycles",
        structure.check_cycles,
        "None of these nodes ever starts, nor do those that wait for them: a simulation hangs, or ends without "
        "them. Converters that walk dependencies stop here.",
    ),
    # What is wrong with a node comes before what ranks disagree on because of it.
    Check(
        "type-unknown",
        "Nodes of an unknown type",
        content.check_unknown_types,
        "Simulators stop at them; they count as neither computation nor communication.",
        "Give them a type: 1 METADATA, 2 MEM_LOAD, 3 MEM_STORE, 4 COMP, 5 COMM_SEND, 6 COMM_RECV, 7 COMM_COLL.",
    ),
    Check(
        "comm-untyped",
        "Collectives of unknown type",
        content.check_untyped_collectives,
        "No simulator can run them: the reference stops at them, and nothing is drawn or summed up for them.",
        "Give them comm_type: 0 ALL_REDUCE, 1 REDUCE, 2 ALL_GATHER, 3 GATHER, 4 SCATTER, 5 BROADCAST, 6 "
        "ALL_TO_ALL, 7 REDUCE_SCATTER, 8 REDUCE_SCATTER_BLOCK, 9 BARRIER.",
    ),
    Check(
        "size-missing",
        "Communication without a size",
        content.check_missing_sizes,
        "A simulation cannot know how long it takes, and stops; sums of bytes are too low.",
        "Give every such node comm_size in bytes; recordings contain sizes since PyTorch 2.3.",
    ),
    Check(
        "size-negative",
        "Communication with a negative size",
        content.check_negative_sizes,
        "No simulator accepts it; the number has probably overflowed a narrow integer.",
        "Write comm_size as a 64-bit integer.",
    ),
    Check(
        "comm-on-cpu",
        "Communication marked as CPU work",
        content.check_comm_on_cpu,
        "It never reaches the network: the cycles are the same for every topology.",
    ),
    Check(
        "comm-call",
        "Communication calls typed as communication",
        content.check_comm_calls,
        "The collective itself is the kernel that the call launched, or was lost. Simulators stop at such a "
        "call, because it has neither a collective type nor a size.",
    ),
    Check(
        "self-message",
        "Messages from a rank to itself",
        messages.check_self_messages,
        "Simulators stop at such a message.",
    ),
    Check(
        "foreign-message",
        "Messages that belong to another rank",
        messages.check_foreign_messages,
        "They have no matching other side, so their rank waits forever.",
        "Set comm_src of a send and comm_dst of a receive to the rank itself, or leave them out.",
    ),
    Check(
        "peer-missing",
        "Messages whose other end is not recorded",
        messages.check_unknown_peers,
        "It is unknown between which ranks they go: sums of traffic leave them out, no line is drawn for them, "
        "and a simulation cannot send them.",
        "Give sends comm_dst and receives comm_src. Timelines of issue and callback events do not record them: "
        "simulate the traces they were made from.",
    ),
    Check(
        "peer-outside",
        "Messages with a rank that the job does not have",
        messages.check_outside_peers,
        "A simulation stops at them: their other end is nowhere.",
        "Correct comm_dst of the send, or comm_src of the receive; or open the files of all ranks together.",
    ),
    Check(
        "group-outsider",
        "Nodes that name a comm group their rank is not in",
        across.check_group_outsiders,
        "The rank waits in a collective that the other ranks do not take part in.",
        "Correct the comm group file, or the group that the nodes name.",
    ),
    Check(
        "collectives-disagree",
        "Collectives on which ranks disagree",
        across.check_collectives,
        "All members of a group must issue the same collectives, of the same size, in the same order, and name the same "
        "root. Otherwise they wait for each other forever, in a simulator as on the machine.",
        "If the order is not fixed, make each collective depend on the previous one, in the same way on all "
        "ranks; otherwise look for the rank whose trace lacks nodes.",
    ),
    Check(
        "border-collectives",
        "Communication that not all its ranks were recorded long enough to have",
        across.check_border_collectives,
        "The job ran. The model full and a replay give these collectives and messages the time they were recorded with, waiting "
        "included; ASTRA-sim hangs at them. Their times and bandwidths are of the ranks that recorded them.",
        "Record whole steps on all ranks, with studio.collect for example.",
    ),
    # Before ranks that wait for each other, which may follow from it.
    Check(
        "receive-unmatched",
        "Receives without a send",
        messages.check_unmatched_receives,
        "The receiving rank waits forever.",
        "Source, target, tag and size must be equal on both sides.",
    ),
    Check(
        "deadlock",
        "Ranks that wait for each other",
        deadlocks.check_deadlocks,
        "None of these nodes ever ends, nor do those that wait for them: in a simulator as on the machine.",
        "Change one of these waits: begin the communication in the same order on all ranks, and send before "
        "receiving on one side.",
    ),
    Check(
        "ends-early",
        "Recordings that stop before the others",
        recordings.check_early_ends,
        "What these ranks did from then on is not known: it counts as time after their finish, or as no time, and what the "
        "others waited for there has no cause.",
        "Record these ranks again, as long as the others: the process may have died, or its file was cut.",
    ),
    Check(
        "times-contradict",
        "Communication that ends before it began elsewhere",
        recordings.check_impossible_times,
        "The clocks of the ranks differ or drift, times of a rank were stretched, or one began its recording with another "
        "collective than the others: waits between ranks cannot be believed.",
        "Record the job again, with clocks that are synchronised; durations within a rank can be compared.",
    ),
    Check(
        "unlinked",
        "Operations that could not be linked",
        content.check_unlinked,
        "Unlinked operators have no times and count as 0 in a replay; device operations without an operator keep "
        "their times and wait for what their device did before.",
        "Record both files in one profiler session: profile(execution_trace_observer=ExecutionTraceObserver(…)), "
        "PyTorch 2.3 or newer.",
    ),
    Check(
        "duration-missing",
        "Compute nodes without a duration",
        content.check_durations,
        "They take no time in a simulation, so the step comes out too short, and all of it seems to be "
        "communication.",
        "Link the trace with its device trace; or give the nodes num_ops and tensor_size, and the system a "
        "roofline.",
    ),
    Check(
        "duration-units",
        "Durations in another unit on some ranks",
        scale.check_duration_units,
        "These ranks seem to be late everywhere, or the others to wait for them: replays, breakdowns and critical paths "
        "tell of the unit, not of the job.",
        "Look at what wrote the files of these ranks: durations are microseconds in Chakra files (duration_micros) "
        "and Kineto's (dur), nanoseconds in some profilers.",
    ),
    Check(
        "size-zero",
        "Communication of 0 bytes",
        content.check_zero_sizes,
        "It takes only its latency, whatever the bandwidth; all-gathers of 0 bytes never complete in the "
        "reference.",
        "Check the exporter: sizes it does not know often become 0.",
    ),
    Check(
        "uneven-all-to-all",
        "All-to-alls of different sizes",
        across.check_uneven_sizes,
        "Expert and embedding parallelism works like this, and the full model simulates it; ASTRA-sim's own program waits "
        "forever.",
        "For ASTRA-sim give all members one size.",
    ),
    Check(
        "send-unmatched",
        "Sends without a receive",
        messages.check_unmatched_sends,
        "A simulator delivers them anyway: they use the network, and no node waits for them.",
        "Source, target, tag and size must be equal on both sides.",
    ),
    Check(
        "group-unlisted",
        "Comm groups without a member list",
        across.check_unlisted_groups,
        "Members are taken from the nodes that name the group, which is wrong where a rank is missing or uses "
        "another name. The reference treats a group that is not in its comm group file as an error.",
    ),
    Check(
        "stream-order",
        "Kernels not ordered by their stream",
        structure.check_streams,
        "A simulation starts them all as soon as they are launched: kernels overlap that cannot, and "
        "communication begins before the computation that feeds it.",
    ),
    Check(
        "comm-detached",
        "Communication without dependencies",
        content.check_detached,
        "It starts at time 0 and delays nothing, so it hardly counts in a simulation.",
        "The exporter has lost its dependencies: link the traces here instead, or convert them again.",
    ),
    Check(
        "clock-skew",
        "Clocks that differ between ranks",
        clocks.check_clock_skew,
        "Start times of different ranks cannot be compared: waiting is attributed to the wrong rank. A "
        "simulation is not affected, because it uses durations.",
    ),
    Check(
        "comm-trailing",
        "Communication that no computation waits for",
        content.check_trailing,
        "It can overlap with all computation, and affects the result only where it ends last. That is right for "
        "the gradients at the end of a step, and elsewhere a sign of lost dependencies.",
    ),
    Check(
        "duration-estimated",
        "Compute nodes timed by a roofline",
        content.check_estimated_durations,
        "With a roofline a simulation computes their durations; without one they take no time.",
        "Simulate on a system with a roofline (roofline-enabled, peak-perf, local-mem-bw).",
    ),
    Check(
        "forward",
        "Dependencies on later nodes",
        structure.check_forward,
        "They are legal, and resolved here. Tools that read a file once from start to end lose them or stop.",
    ),
)
"""Every check, the most harmful first; findings of one level are listed in this order."""

_READER_WORDS: Mapping[str, str] = {
    "event-alone": "events that belong to no operator",
    "unattributed": "device operations that belong to no operator",
    "unlinked": "operators without times",
}
"""What findings of readers are about whose codes say too little."""
_OTHERS_LISTED = 2
_READER_CONSEQUENCE: dict[Level, str] = {
    "error": "Part of the files is lost and missing from all results.",
    "warning": "Figures that rest on it may be missing or off.",
    "info": "",
}
_MAY_FOLLOW = "The errors below may follow from that: make these files whole first, then repair."
_COVERED_BY_CHECKS = frozenset(
    {"dangling-dependency", "duplicate-id", "unlinked", "unattributed", "group-inferred", "unknown-type"}
)
"""Findings of readers that a check repeats with more detail."""
_SAME_AS: Mapping[str, tuple[str, ...]] = {
    "unattributed": ("unlinked",),
    "unlinked": ("unlinked",),
    "unknown-collective": ("comm-untyped", "size-missing"),
    "unknown-type": ("type-unknown",),
}
"""Findings of readers, and the checks that look for the same: where only the reader found it, it was found all the same."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of examining a job.

    Attributes:
        diagnoses: What was found, the worst first.
        passed: The checks that found nothing.
    """

    diagnoses: tuple[Diagnosis, ...]
    passed: tuple[Check, ...]

    __repr__ = format_record

    def count(self, level: Level) -> int:
        """Return how many diagnoses are of a level."""
        return sum(diagnosis.level == level for diagnosis in self.diagnoses)


def examine(trace: Trace) -> Diagnoses:
    """Return everything that is wrong with a job, the worst first.

    Example:
        >>> from studio.et.build import build_graph
        >>> from studio.trace import Rank
        >>> graph, slots = build_graph([{"id": 1, "type": "COMP_NODE", "duration_micros": 5, "data_deps": [1]}])
        >>> [one.message for one in examine(Trace((graph,), (Rank(0, 0, slots),)))]
        ['1 node of rank 0 waits for itself, the first is node 1 (n1).']
    """
    return Diagnoses(run_checks(trace).diagnoses)


def run_checks(trace: Trace, *, progress: Progress | None = None) -> Examination:
    """Examine a job.

    Args:
        trace: The job.
        progress: Told the checks done and the checks in all; may raise to stop.
    """
    checked = 0

    def report_progress() -> None:
        if progress:
            progress("checking", checked, len(CHECKS))

    # What ranks do alike is found once, of all of them; nodes are told by their rows.
    case = Case(share_graphs(trace), report_progress)
    diagnoses: list[Diagnosis] = []
    passed = []
    for index, check in enumerate(CHECKS):
        checked = index
        report_progress()
        here = [_build_diagnosis(check, hedge_finding(case, problem)) for problem in check.find(case)]
        diagnoses += here
        if not here:
            passed.append(check)
    if progress:
        progress("checking", len(CHECKS), len(CHECKS))
    open_checks = {check.code for check in passed}
    read = _join_damage(finding for finding in trace.findings if not _is_repeated(finding, open_checks))
    known = {code for finding in read for code in _SAME_AS.get(finding.code, ())}
    passed = [check for check in passed if check.code not in known]
    # What is lost of the files comes before what may follow from it.
    from_reader = list(_convert_findings(read))
    lost = [finding for finding in from_reader if finding.level == "error"]
    if lost and any(finding.level == "error" for finding in diagnoses):
        lost = [replace(finding, consequence=f"{finding.consequence} {_MAY_FOLLOW}") for finding in lost]
    rest = [finding for finding in from_reader if finding.level != "error"]
    ranked = sorted([*lost, *diagnoses, *rest], key=lambda diagnosis: LEVELS.index(diagnosis.level))
    return Examination(tuple(ranked), tuple(passed))


def _build_diagnosis(check: Check, problem: Found) -> Diagnosis:
    return Diagnosis(
        code=check.code,
        level=problem.level,
        title=check.title,
        message=problem.message,
        ranks=problem.ranks,
        nodes=problem.nodes,
        count=problem.count,
        evidence=problem.evidence,
        consequence=problem.consequence or check.consequence,
        advice=problem.advice or check.advice,
        repair=check.code if check.code in REPAIRS and problem.count and problem.is_repairable else None,
    )


LEAVES_WHOLE = frozenset({"nothing-linked"})
"""Errors of readers that leave a job that is whole by itself: the command that links fails, the job does not."""


def _join_damage(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, those of the content of compressed files that end early as part of that one."""
    read = list(findings)
    ended = {finding.file for finding in read if finding.code == "damaged-gzip"} - {""}
    lost = {
        finding.file: finding for finding in read if finding.code == "damaged-file" and finding.file in ended
    }
    return [
        replace(
            finding,
            message=f"{finding.message} In its content: {lost[finding.file].message.removeprefix(finding.file + ': ')}",
        )
        if finding.code == "damaged-gzip" and finding.file in lost
        else finding
        for finding in read
        if finding.code != "damaged-file" or finding.file not in lost
    ]


def _is_repeated(finding: Finding, passed: Set[str]) -> bool:
    """Whether a check repeats a finding of the reader: none of those that found nothing."""
    return finding.code in _COVERED_BY_CHECKS and passed.isdisjoint(_SAME_AS.get(finding.code, ()))


def _convert_findings(findings: Iterable[Finding]) -> Iterator[Diagnosis]:
    """Yield findings of the reader; the same finding about many files is yielded once."""
    alike: dict[tuple[str, Level, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.code, finding.level, finding.hint), []).append(finding)
    for (code, level, hint), same in alike.items():
        first, others = same[0], same[1:]
        place = (("file", first.file),) if first.file else ()
        offset = (("at byte", f"{first.offset:,}"),) if first.offset >= 0 else ()
        rest = (("and", f"{len(others) - _OTHERS_LISTED:,} more"),) if len(others) > _OTHERS_LISTED else ()
        yield Diagnosis(
            code=code,
            level="warning" if code in LEAVES_WHOLE else level,
            title=_label_code(code),
            message=first.message,
            ranks=tuple(sorted({finding.rank for finding in same if finding.rank is not None})),
            count=len(same),
            evidence=(
                *place,
                *offset,
                *(("also", finding.message) for finding in others[:_OTHERS_LISTED]),
                *rest,
            ),
            consequence=_READER_CONSEQUENCE[level],
            advice=hint,
        )


def _label_code(code: str) -> str:
    """Return the title of findings that readers and repairs leave in a job."""
    if code.removeprefix(REPAIRED) in REPAIRS:
        return "Repaired"
    return f"From reading the files: {_READER_WORDS.get(code) or code.replace('-', ' ')}"
