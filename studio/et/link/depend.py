"""Derive the dependencies of a rank with their reasons, and the time the processor spent itself.

All times and rows are of one process. Every dependency points back in one order of all nodes (by time, callers
before what they call), so there can be no cycle; what would point forward, because clocks of processor and device
disagree, is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.et.link.attribute import DeviceOperations
from studio.et.link.dep_kinds import DepKind
from studio.et.link.dependencies import Dependencies, select_dependencies
from studio.et.link.device_dependencies import (
    add_between_streams,
    add_device_dependencies,
    compute_device_begin,
)
from studio.et.link.facts import Communication
from studio.et.link.gaps import (
    Causes,
    Gaps,
    OwnTimes,
    begin_of_first_callee,
    find_floating_ends,
    find_gaps,
    replace_lost,
)
from studio.et.link.held import find_rests
from studio.et.link.idle import (
    Idles,
    build_empty_idles,
    find_idles,
    find_queued,
    list_idle_dependencies,
    order_with_idles,
)
from studio.et.link.lanes import (
    clear_times,
    find_carried_in_place,
    find_floating,
    find_inner,
    find_lost_calls,
    split_lanes,
)
from studio.et.link.launches import group_by_stream
from studio.et.link.operations import Operations
from studio.et.link.options import LinkOptions
from studio.et.link.sequence import Place, list_chains, order_by_issue
from studio.et.link.spans import (
    COMPUTING,
    add_callers,
    find_around,
    find_early_ends,
    find_inside,
    find_within_library,
    join_columns,
)
from studio.et.link.stream_waits import infer_stream_waits, infer_unlaunched_waits
from studio.et.link.tensors import find_awaited, find_tensor_dependencies
from studio.et.link.thread_dependencies import (
    add_blocking,
    add_holds,
    add_inner_order,
    add_lost_order,
    add_syncs,
    add_thread_order,
    order_lanes,
)
from studio.et.link.waits import Wait, find_waits, leave_out_untimely, measure_own_time
from studio.et.recording import DeviceTrace, HostTrace
from studio.trace import NONE, Bool, Int32, Int64


@dataclass(frozen=True, slots=True)
class Plan:
    """Dependencies of one rank. Rows: N operations, G gaps, D device operations, I idle times; E dependencies.

    Attributes:
        own_ns: (N,) time each operation took itself, without callees, gaps and waiting; -1 without times.
        wait_ns: (N,) time it waited for the device.
        gaps: (G,) gaps.
        idles: (I,) idle times of streams.
        source, target: (E,) rows; the target waits for the source. By target, then source.
        kinds: (E,) reasons, see DepKind.
        order: (N+G+D+I,) place of every row in the order of all nodes.
        dropped: Dependencies left out because the times speak against them, by reason.
    """

    own_ns: Int64
    wait_ns: Int64
    gaps: Gaps
    idles: Idles
    source: Int64
    target: Int64
    kinds: Int32
    order: Int64
    dropped: dict[str, int]


def derive_dependencies(
    operations: Operations,
    host: HostTrace | None,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    communication: Communication,
    options: LinkOptions,
) -> Plan:
    """Derive the dependencies of a rank.

    Args:
        operations: What the processor did.
        host: Its tensors.
        device: Events.
        launched: What ran on devices.
        communication: Its collectives and messages. Operations of a communication library read and write the tensors
            of the call they carry out.
        options: What to derive.
    """
    recorded = _Recorded(host, device, launched, communication)
    calls = _place_calls(operations, communication)
    operations = calls.operations
    waits = _find_device_waits(calls, recorded) if options.sync else []
    own, waited = measure_own_time(operations, waits, calls.around)
    gaps, causes = _find_all_gaps(calls, recorded, waits, own, options)
    follows = list_chains(order_by_issue(operations, device, launched, communication), communication)
    follows = follows if options.sequence else []
    begun = _compute_issue_times(operations, follows, calls.lost)
    order = _order_nodes(operations, gaps, device, launched, begun)
    first_device = len(operations) + len(gaps)
    draft = Dependencies()
    _add_sequence(draft, follows, first_device)
    lanes = order_lanes(operations, gaps, order, calls.lost)
    add_thread_order(draft, lanes)
    add_lost_order(draft, lanes, operations, calls.lost, order)
    add_inner_order(draft, lanes, operations, calls.inner, order, calls.library)
    instants = np.flatnonzero(operations.timed & (operations.end_ns == operations.start_ns))
    called = np.flatnonzero(gaps.call >= 0)
    gap_of_call = dict(zip(gaps.call[called].tolist(), (len(operations) + called).tolist(), strict=True))
    add_syncs(draft, lanes, first_device, waits, gap_of_call)
    add_holds(draft, lanes, causes, instants)
    add_blocking(draft, lanes, operations, _list_awaited(operations, recorded))
    mistaken = _add_callees(draft, calls)
    _add_streams_and_tensors(draft, operations, recorded, first_device)
    idles = build_empty_idles()
    if (
        device is not None
        and launched is not None
        and len(launched)
        and options.idle
        and options.stream_order
    ):
        times = _compute_recorded_times(operations, own, gaps, device, launched)
        idles, order = _add_idles(draft, times, device, launched, order, options.least_gap_ns)
    source, target, kinds, dropped = select_dependencies(draft, order, options.kinds)
    if mistaken and DepKind.CALL in options.kinds:
        dropped["call"] = dropped.get("call", 0) + mistaken
    return Plan(own, waited, gaps, idles, source, target, kinds, order, dropped)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What else was recorded of the rank, as in `derive_dependencies`."""

    host: HostTrace | None
    device: DeviceTrace | None
    launched: DeviceOperations | None
    communication: Communication


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the processor did, in lanes.

    N operations.

    Attributes:
        operations: With lanes of their own for what ran beside or within others.
        threads: (N,) threads as they were recorded.
        around: (N,) the operation around each.
        library: Operation of a communication library → the call it carries out.
        floating: (N,) which are noted down on the thread that called, beyond the end of the call.
        inner: (N,) the operation of the library within which each ran, else -1.
        lost: Calls that stand for a collective which the library did not note down any more.
    """

    operations: Operations
    threads: Int64
    around: Int64
    library: dict[int, int]
    floating: Bool
    inner: Int64
    lost: list[int]


def _place_calls(operations: Operations, communication: Communication) -> _Calls:
    """Put operations into lanes, and find which of them carry out others."""
    in_place = find_carried_in_place(operations, communication)
    operations = clear_times(operations, in_place)
    floating = find_floating(operations, communication)
    floating[list(in_place)] = False
    inner = find_inner(operations, communication, floating)
    split = split_lanes(operations, floating, inner)
    return _Calls(
        split,
        operations.thread,
        find_around(split),
        communication.issued_by | {call: call for call in in_place.values()},
        floating,
        inner,
        find_lost_calls(split, communication, in_place),
    )


def _find_device_waits(calls: _Calls, recorded: _Recorded) -> list[Wait]:
    """Return when the processor waited for which device operations, as far as a replay would wait, too."""
    device, launched = recorded.device, recorded.launched
    if device is None or launched is None:
        return []
    waits = find_waits(calls.operations, device, launched)
    return leave_out_untimely(waits, calls.operations, calls.around, device, launched)


def _find_all_gaps(
    calls: _Calls, recorded: _Recorded, waits: list[Wait], own: Int64, options: LinkOptions
) -> tuple[Gaps, Causes]:
    """Return the gaps of all threads with those of lost calls, and what held threads up; subtracts them from `own`."""
    operations, around, library, launched = calls.operations, calls.around, calls.library, recorded.launched
    launching = add_callers(np.zeros(0, np.int64) if launched is None else launched.operator, around)
    if recorded.host is not None:
        # Operators that compute are compared with those of other tools, which keep them whole.
        launching[operations.find_named(lambda name: name.startswith(COMPUTING))] = False
    rests = find_rests(operations, around, waits, recorded.device, launched, sync=options.sync)
    inside = find_inside(operations, around, library, launching, (rests.begin_ns, rests.held), options)
    telling = ~find_within_library(operations, around, library) & (calls.inner < 0)
    telling &= ~find_early_ends(operations, around, options.thread_gap_ns)
    ends = find_floating_ends(operations, calls.floating, calls.threads)
    own_times = OwnTimes(telling, library, begin_of_first_callee(operations, around), ends)
    gaps, causes = find_gaps(operations, waits, inside, own, own_times, options)
    return join_columns([gaps, replace_lost(operations, calls.lost, own, options)]), causes


def _add_sequence(draft: Dependencies, follows: Sequence[tuple[Place, Place]], first_device: int) -> None:
    """Add that collectives follow others of their group."""
    places = [[row + first_device * on_device for on_device, row in pair] for pair in follows]
    earlier, later = np.array(places, np.int64).reshape(-1, 2).T
    draft.add(earlier, later, DepKind.SEQUENCE)


def _list_awaited(operations: Operations, recorded: _Recorded) -> list[tuple[int, int]]:
    """Return which operations wait for communication, each with the operation that carries it out."""
    communication = recorded.communication
    awaited = [
        (row, communication.issued_by.get(row, row))
        for row, facts in communication.operators.items()
        if facts.blocks
    ]
    if recorded.host is not None:
        awaited += find_awaited(operations, recorded.host, communication.issued_by)
    return awaited


def _add_callees(draft: Dependencies, calls: _Calls) -> int:
    """Add that what is called comes after its caller, on whatever thread; returns how many have a caller that cannot be one."""
    thread = calls.operations.thread
    rows, mistaken = _find_waiting_callees(calls.operations, calls.library, calls.inner)
    draft.add(calls.operations.parent[rows], rows, DepKind.CALL)
    apart = [(call, row) for row, call in calls.library.items() if thread[row] != thread[call]]
    if apart:
        callers, rows = np.array(apart, np.int64).T
        draft.add(callers, rows, DepKind.THREAD)
    return mistaken


def _add_streams_and_tensors(
    draft: Dependencies, operations: Operations, recorded: _Recorded, first_device: int
) -> None:
    """Add what operations of devices wait for, and who reads tensors that others wrote."""
    host, device, launched = recorded.host, recorded.device, recorded.launched
    communication = recorded.communication
    if device is not None and launched is not None and len(launched):
        add_device_dependencies(draft, device, launched, first_device)
        unsaid = infer_stream_waits(operations, device, launched, communication.devices.keys())
        draft.add(unsaid[0] + first_device, unsaid[1] + first_device, DepKind.EVENT)
    if host is not None:
        readers = find_tensor_dependencies(operations, host, communication.issued_by)
        draft.add(*readers, DepKind.DATA)
        if launched is not None and device is not None and len(launched):
            add_between_streams(draft, device, launched, *readers, first_device)


def _find_waiting_callees(operations: Operations, library: dict[int, int], inner: Int64) -> tuple[Int64, int]:
    """Return the operations that wait for their caller, and how many have a caller that cannot be one.

    What runs within an operation of a library does not wait for it.

    Recorders note the last call begun, on whatever thread, so an operator may be written down as called by a
    collective that only ran at the time.
    """
    rows = np.flatnonzero((operations.parent >= 0) & ((inner < 0) | (operations.parent != inner)))
    above = operations.parent[rows]
    both = operations.timed[rows] & operations.timed[above] & ~operations.frame[above]
    crossing = both & (operations.thread[rows] != operations.thread[above])
    running = operations.end_ns[above] > operations.start_ns[rows]
    call = np.full(len(operations), NONE, np.int64)
    call[np.fromiter(library, np.int64, len(library))] = np.fromiter(library.values(), np.int64, len(library))
    issued = call[rows] == above
    mistaken = crossing & running & ~issued
    return rows[~mistaken], int(mistaken.sum())


# ---------------------------------------------------------------------------------------------------
# Order


def _compute_issue_times(
    operations: Operations, follows: Sequence[tuple[Place, Place]], lost: Sequence[int]
) -> Int64:
    """Return times (N,) to order operations by: their begin, but after the collective they follow in a group.

    Two threads may begin theirs the other way round. Where one had ended before the other began, they stay so. When a
    lost one ended is not known.
    """
    begin, finish = operations.begin.copy(), operations.finish.copy()
    finish[list(lost)] = np.iinfo(np.int64).max
    for (this_on_device, this), (on_device, other) in follows:
        if not (this_on_device or on_device) and begin[this] < finish[other]:
            begin[other] = max(begin[other], begin[this] + 1)
    return begin


def _order_nodes(
    operations: Operations,
    gaps: Gaps,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    begun: Int64,
) -> Int64:
    """Return the position (N+G+D,) of every node: by time, callers first, device operations after their launch."""
    begin = [begun, gaps.start_ns]
    if device is not None and launched is not None:
        begin.append(compute_device_begin(operations, device, launched))
    times = np.concatenate(begin)
    rank = np.repeat(np.arange(len(begin)), [len(part) for part in begin])
    depth = np.concatenate((operations.depth, np.zeros(len(times) - len(operations), np.int64)))
    order = np.empty(len(times), np.int64)
    order[np.lexsort((np.arange(len(times)), depth, rank, times))] = np.arange(len(times))
    return order


# ---------------------------------------------------------------------------------------------------
# Idle times of devices


def _compute_recorded_times(
    operations: Operations, own: Int64, gaps: Gaps, device: DeviceTrace, launched: DeviceOperations
) -> tuple[Int64, Int64]:
    """Return when every node began, and when it had taken the time that is its own."""
    start = np.concatenate((operations.begin, gaps.start_ns, device.start_ns[launched.event]))
    return start, start + np.concatenate((np.maximum(own, 0), gaps.duration_ns, launched.own_ns))


def _add_idles(
    draft: Dependencies,
    times: tuple[Int64, Int64],
    device: DeviceTrace,
    launched: DeviceOperations,
    order: Int64,
    least_ns: int,
) -> tuple[Idles, Int64]:
    """Add the idle times of streams with their dependencies; returns them and the order of all nodes."""
    streams = group_by_stream(device, launched)
    first_device = len(order) - len(launched)
    pairs = select_dependencies(draft, order, DepKind(sum(DepKind)))[:3]
    idles = find_idles(*times, streams, pairs, least_ns)
    waits = infer_unlaunched_waits(device, launched, idles.place, idles.start_ns)
    if len(waits[0]):
        draft.add(waits[0] + first_device, waits[1] + first_device, DepKind.EVENT)
        pairs = select_dependencies(draft, order, DepKind(sum(DepKind)))[:3]
        idles = find_idles(*times, streams, pairs, least_ns)
    idles = replace(idles, queued=find_queued(idles, device, launched))
    for source, target, kind in list_idle_dependencies(idles, first_device, len(order), pairs):
        draft.add(source, target, kind)
    return idles, order_with_idles(order, idles, first_device)
