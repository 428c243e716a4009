"""Link the two files of one rank, before ranks are compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from studio.distinct import find_distinct
from studio.et.allocations import build_empty_allocations
from studio.et.link.attribute import DeviceOperations, attribute_operations
from studio.et.link.batches import spread_batches
from studio.et.link.communication import find_communication
from studio.et.link.depend import Plan, derive_dependencies
from studio.et.link.facts import Communication
from studio.et.link.gaps import build_empty_gaps
from studio.et.link.idle import build_empty_idles, find_held_up
from studio.et.link.join import Joined
from studio.et.link.lanes import end_before_callbacks
from studio.et.link.named_steps import NamedSteps, find_named_steps
from studio.et.link.operations import Operations, from_device, from_host
from studio.et.link.options import LinkOptions
from studio.et.link.pair import Pair
from studio.et.link.unlinked import UnlinkedCounts, judge_unlinked
from studio.et.recording import DeviceTrace, Head, HostTrace
from studio.trace import NONE, NSIGHT, Finding, Int64
from studio.units import format_counted, format_ns

_LEAST_HELD_UP = 0.01
"""The part of a recording for which the device has to hold up its first operation to be taken for busy."""
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Clock:
    """Offset and drift that bring a rank's clock to that of the others.

    Attributes:
        offset_ns: Added to its times.
        drift_ppb: How much slower it runs, in 10^-9.
        about_ns: The time the drift counts from.
        residual_ns: Median distance of matched ends that stays, -1 where nothing was matched.
        matched: Collectives matched with those of another rank.
    """

    offset_ns: int = 0
    drift_ppb: float = 0.0
    about_ns: int = 0
    residual_ns: int = NONE
    matched: int = 0


@dataclass(slots=True)
class RankDraft:
    """A rank that is being linked.

    Attributes:
        number: The rank, None where nothing tells it.
        host: Its execution trace; None also where it did not fit the Kineto trace.
        device: Its Kineto trace.
        joined: How both fit, None where one is missing.
        host_operations: Operators of the execution trace, roots not counted.
        operations, launched, communication, plan: What was made of them.
        steps: The steps that annotations name, by the name without numbers.
        clock: Set once all ranks are known.
        findings: Findings about the rank.
    """

    number: int | None
    host: HostTrace | None
    device: DeviceTrace | None
    joined: Joined | None
    host_operations: int
    operations: Operations
    launched: DeviceOperations | None
    communication: Communication
    plan: Plan
    steps: dict[str, NamedSteps] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    findings: list[Finding] = field(default_factory=list)

    @property
    def files(self) -> str:
        """Names of its files."""
        return " + ".join(trace.file for trace in (self.host, self.device) if trace is not None)


def select_outline(rank_draft: RankDraft) -> RankDraft:
    """Return the part of a draft that other ranks need: communication and times."""
    none, none32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
    host, device = rank_draft.host, rank_draft.device
    if host is not None:
        empty = none32.reshape(0, 6)
        host = HostTrace(host.file, "", NONE, {}, none, none, {}, [], [], empty, [], {}, {}, host.damaged)
    if device is not None:
        device = replace(device, name=none32, thread=none32, names=[], comm={}, record_function=none)
        device = replace(device, external=none, correlation=none, stream=none, device=none, bytes=none)
        device = replace(device, wait_stream=none, wait_record=none, inputs=none32, input_texts=[])
        device = replace(device, grid=none.reshape(0, 3), flops=none, allocations=build_empty_allocations())
    operations = replace(rank_draft.operations, name=none32, names=[], id=none, parent=none, depth=none)
    operations = replace(operations, event=none, frame=np.zeros(0, np.bool_))
    return RankDraft(
        rank_draft.number, host, device, None, rank_draft.host_operations, operations,
        rank_draft.launched, rank_draft.communication, Plan(none, none, build_empty_gaps(), build_empty_idles(), none, none, none32, none, {}), rank_draft.steps, rank_draft.clock,
    )  # fmt: skip


def select_essence(rank_draft: RankDraft) -> RankDraft:
    """Return a draft without what served to make it and is not wanted to finish it."""
    none = np.zeros(0, np.int64)
    operations = replace(rank_draft.operations, parent=none, begin=none, finish=none)
    device = rank_draft.device
    if device is not None:
        device = replace(
            device, record_function=none, external=none, wait_stream=none, wait_record=none, comm={}
        )
    return replace(rank_draft, operations=operations, device=device)


def draft_rank(pair: Pair, options: LinkOptions) -> RankDraft:
    """Link the files of one rank as far as possible."""
    host, device, joined = pair.host, pair.device, pair.joined
    count = _count_operators(host, joined)
    findings: list[Finding] = []
    if host is not None and device is not None and len(device) and joined is not None and not joined.count:
        findings.append(_build_nothing_linked_finding(host, device, joined))
        host = None
    if host is not None:
        event = joined.event if joined is not None else np.full(len(host), NONE, np.int64)
        operations = from_host(host, device, event)
    elif device is not None:
        operations = from_device(device)
    else:
        raise ValueError("a pair without files")
    launched = attribute_operations(operations, device) if device is not None else None
    communication = find_communication(operations, host, device, launched)
    operations = end_before_callbacks(operations, communication)
    plan = derive_dependencies(operations, host, device, launched, communication, options)
    if launched is not None:
        launched, communication, plan = spread_batches(launched, communication, plan)
    rank_draft = RankDraft(
        pair.number,
        host,
        device,
        joined,
        count,
        operations,
        launched,
        communication,
        plan,
        find_named_steps(operations) if len(communication.operators) + len(communication.devices) else {},
    )
    rank_draft.findings = [*findings, *_build_missing_findings(pair), *_build_draft_findings(rank_draft)]
    return rank_draft


def _count_operators(host: HostTrace | None, joined: Joined | None) -> int:
    """Return how many operators an execution trace holds, without roots and notes."""
    if joined is not None:
        return joined.operators
    return 0 if host is None else int((~host.roots & ~host.notes).sum())


def _build_nothing_linked_finding(host: HostTrace, device: DeviceTrace, joined: Joined) -> Finding:
    return Finding(
        "error",
        "nothing-linked",
        f"{host.file} and {device.file}: none of {joined.operators:,} operators could be linked: {joined.why}. "
        "The job shows the Kineto trace alone; tensors and exact sizes of the execution trace are missing.",
        "Record both in one profiler session with PyTorch 2.3 or newer: "
        "profile(execution_trace_observer=ExecutionTraceObserver(…)).",
        file=device.file,
    )


def _build_missing_findings(pair: Pair) -> list[Finding]:
    if pair.host is not None and pair.device is None:
        message = (
            f"{pair.host.file}: an execution trace without its Kineto trace: no times, no device operations; "
            "durations are 0."
        )
        hint = "Open it together with the Kineto trace of the same rank."
        return [Finding("warning", "no-device-trace", message, hint, file=pair.host.file)]
    if pair.device is not None and not len(pair.device) and pair.host is not None:
        return [_build_nothing_beside_finding(pair.host, pair.device)]
    if pair.device is not None and not len(pair.device):
        if pair.device.damaged or pair.device.has_others:
            rest = "lies behind the damage" if pair.device.damaged else "is of kinds that are not read"
            message = (
                f"{pair.device.file}: it holds no operations that can be read: what else it holds {rest}."
            )
            return [Finding("error", "no-events", message, file=pair.device.file)]
        message = f"{pair.device.file}: it holds no operations: nothing was recorded while the program ran."
        hint = (
            "With a schedule the profiler records after its wait and warmup steps only: call prof.step() in every "
            "step, for at least that many. Without one it records from start() to stop()."
            if pair.device.head.recorder == Head().recorder
            else "Start its recorder before the program works, and stop it after that."
        )
        return [Finding("error", "no-events", message, hint, file=pair.device.file)]
    if pair.device is not None and pair.host is None:
        article = "an" if pair.device.head.recorder == NSIGHT else "a"
        message = (
            f"{pair.device.file}: {article} {pair.device.head.recorder} without an execution trace. Which operator reads what another "
            "wrote is not known, and collectives have a size only where their events state it."
        )
        # Only PyTorch writes an execution trace beside its recording.
        pytorch = pair.device.head.recorder == Head().recorder
        hint = (
            "Open it together with the execution trace of the same rank, if there is one."
            if pytorch
            else "Its recorder writes none. Figures rest on the times and streams of the device, which are there."
        )
        return [Finding("warning", "no-host-trace", message, hint, file=pair.device.file)]
    return []


def _build_nothing_beside_finding(host: HostTrace, device: DeviceTrace) -> Finding:
    """Return a finding about a Kineto trace without operations beside an execution trace."""
    operators = _count_operators(host, None)
    if not operators:
        message = f"{device.file}: it holds no operations, and {host.file} none either: the rank did nothing while it was recorded."
        return Finding("info", "no-events", message, file=device.file)
    message = (
        f"{device.file}: it holds no operations, and {host.file} {format_counted(operators, 'operator')}: none of them ran on "
        "a thread that the profiler recorded, or it recorded at another time. They have no times; durations are 0."
    )
    hint = "Record with studio.collect, which records all threads, and both files in one session."
    return Finding("warning", "no-events", message, hint, file=device.file)


def _build_draft_findings(rank_draft: RankDraft) -> list[Finding]:
    """Return findings about a linked rank."""
    findings = []
    files, joined = rank_draft.files, rank_draft.joined
    unlinked = judge_unlinked(_count_unlinked(rank_draft))
    if joined is not None and rank_draft.host is not None and joined.count < joined.operators:
        left = joined.operators - joined.count
        message = f"{files}: {left:,} of {format_counted(joined.operators, 'operator')} {'has' if left == 1 else 'have'} no event and so no times."
        findings.append(
            Finding(unlinked, "unlinked", message, "Their names are in the node list (attribute unlinked).")
        )
    if joined is not None and joined.alone:
        count = sum(joined.alone.values())
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in joined.alone.items())
        message = (
            f"{files}: {count:,} of {joined.events:,} events of the program in the Kineto trace belong to no operator of "
            f"the execution trace and are left out ({reasons}); the first is {joined.first_alone!r}."
        )
        findings.append(Finding("info", "event-alone", message))
    if rank_draft.launched is not None and rank_draft.launched.why:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in rank_draft.launched.why.items())
        count = sum(rank_draft.launched.why.values())
        message = f"{files}: {count:,} of {len(rank_draft.launched):,} device operations belong to no operator ({reasons})."
        hint = "They are kept with their times and streams (attribute unattributed)."
        earlier = int(rank_draft.launched.earlier.sum())
        if earlier:
            hint += (
                " Those launched before are what was left of an unrecorded step: wait for the device before the first "
                "recorded step, as studio.collect does."
            )
        findings.append(Finding("info" if earlier == count else unlinked, "unattributed", message, hint))
    if rank_draft.device is not None and rank_draft.launched is not None:
        findings += _build_busy_findings(files, rank_draft.operations, rank_draft.device, rank_draft.launched)
        findings += _build_device_findings(files, rank_draft.device, rank_draft.launched)
    if rank_draft.communication.unknown:
        names = ", ".join(
            f"{name} ({count:,})" for name, count in list(rank_draft.communication.unknown.items())[:6]
        )
        message = f"{files}: collectives of unknown type, size or group: {names}. Their time counts as communication."
        findings.append(
            Finding(
                "warning",
                "unknown-collective",
                message,
                "In a simulation they keep their recorded time, on every network.",
            )
        )
    if rank_draft.plan.dropped:
        reasons = ", ".join(f"{name}: {count:,}" for name, count in rank_draft.plan.dropped.items())
        message = f"{files}: dependencies that the recorded times contradict were left out ({reasons})."
        findings.append(Finding("info", "contradicted-dependency", message))
    return findings


def _count_unlinked(rank_draft: RankDraft) -> UnlinkedCounts:
    joined, launched = rank_draft.joined, rank_draft.launched
    lost = joined.operators - joined.count if joined is not None and rank_draft.host is not None else 0
    if launched is None:
        return UnlinkedCounts(rank_draft.host_operations, 0, lost, 0)
    loose = int(((launched.operator < 0) & ~launched.earlier).sum())
    return UnlinkedCounts(rank_draft.host_operations, len(launched), lost, loose)


def _build_busy_findings(
    files: str, operations: Operations, device: DeviceTrace, launched: DeviceOperations
) -> list[Finding]:
    """Return a finding where the device did not begin what it was given first for a part of the recording that counts."""
    events = launched.event
    if not len(events):
        return []
    timed = operations.timed
    started = min(int(operations.start_ns[timed].min(initial=_NEVER)), int(device.start_ns[events].min()))
    ends = device.start_ns[events] + device.duration_ns[events]
    ended = max(int(operations.end_ns[timed].max(initial=0)), int(ends.max()))
    held = find_held_up(device, launched, started)
    if held is None or held[1] < _LEAST_HELD_UP * (ended - started):
        return []
    begin, had = held
    message = (
        f"{files}: the device may have been busy with work from before the recording for its first {format_ns(begin - started)} "
        f"of {format_ns(ended - started)}: it began the first operation recorded {format_ns(had)} after it had been given it. "
        "Time before that counts as host and stall, though what the device did then is not known."
    )
    hint = (
        "Look at the run from there on (breakdown --from), and wait for the device before the first recorded step, as "
        "studio.collect does."
    )
    return [Finding("warning", "busy-before", message, hint)]


def _build_device_findings(files: str, device: DeviceTrace, launched: DeviceOperations) -> list[Finding]:
    """Return a finding where one process worked on several devices, which count as one rank."""
    events = launched.event
    numbers = find_distinct(device.device[events])
    if len(numbers) < 2:
        return []
    start = device.start_ns[events]
    end = start + device.duration_ns[events]
    busy = [
        _measure_covered_ns(start[is_own], end[is_own])
        for is_own in (device.device[events] == number for number in numbers)
    ]
    message = (
        f"{files}: one process with {len(numbers):,} devices, which count as one rank: it is busy while any of them is, "
        f"{format_ns(_measure_covered_ns(start, end))} in all. A device was busy for {format_ns(sum(busy) / len(busy))} on average, "
        f"{format_ns(max(busy))} at most."
    )
    hint = "Lanes of the timeline tell the devices apart. Figures by rank need one process per device."
    return [Finding("warning", "several-devices", message, hint)]


def _measure_covered_ns(start: Int64, end: Int64) -> int:
    """Return how long at least one of some intervals lasts."""
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])
    begins = np.maximum(start[order], np.append(start[order][:1], reached[:-1]))
    return int(np.maximum(end[order] - begins, 0).sum())
