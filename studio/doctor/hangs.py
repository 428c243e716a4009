"""Say at which collective a recorded job stands still, and which rank it waits for, from dumps of the flight recorder.

All members of a group issue the same collectives under the same numbers, so the first number that has not ended tells: a
member that never issued it keeps the others waiting, and so does one that issued something else. A rank that is missing
may itself wait in another group; then the search goes on there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from studio.doctor.diagnosis import NODES_NAMED, Case, Found, NodeAt
from studio.et.flight import CALLED_AT, DTYPE, SERIAL, STATE
from studio.sim.agreement import format_ranks
from studio.trace import (
    GROUP_KEYS,
    NONE,
    CollectiveType,
    Graph,
    NodeType,
    Rank,
    Trace,
    list_node_attributes,
    read_dense_column,
)
from studio.units import format_bytes, format_counted, format_ns

_LISTED = 8
_FRAMES = 3
_UNEVEN = frozenset(
    {CollectiveType.ALL_TO_ALL, CollectiveType.GATHER, CollectiveType.SCATTER, CollectiveType.BARRIER}
)
"""Collectives to which members may bring different sizes."""


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation of a rank, as its dump has it."""

    rank: int
    row: int
    serial: int
    name: str
    type: int
    bytes: int
    dtype: str
    state: str
    start_ns: int

    @property
    def ended(self) -> bool:
        return self.state == "completed"


_Calls = Mapping[int, Mapping[str, list[_Call]]]
"""The operations of each rank by comm group, in order."""


@dataclass(frozen=True, slots=True)
class _Stand:
    """The first collective of a group that has not ended on all members, or differs among them.

    Attributes:
        group: Name of the group.
        serial: Number of the collective.
        here: What each rank that issued it did.
        missing: Members whose dump says that they never issued it.
        unknown: Members that left no dump.
        odd: Members that issued something else than most.
    """

    group: str
    serial: int
    here: Mapping[int, _Call]
    missing: tuple[int, ...]
    unknown: tuple[int, ...]
    odd: tuple[int, ...]


def is_flight(trace: Trace) -> bool:
    """Whether a job was read from dumps of the flight recorder."""
    return any(graph.strings.find(STATE) != NONE for graph in trace.graphs)


def check_hangs(case: Case) -> Iterator[Found]:
    """Yield the collectives and messages at which a job stood still when its dumps were taken."""
    trace = case.trace
    if not is_flight(trace):
        return
    calls = {rank.number: _collect_calls(trace, rank) for rank in trace.ranks}
    members = {group.name: group.ranks for group in trace.groups}
    stands = list(_find_stands(calls, members))
    # What nobody else's wait explains comes first: there the hang began.
    ordered = sorted(stands, key=lambda stand: not _is_origin(stand, calls))
    for stand in ordered[:_LISTED]:
        yield _report_stand(trace, stand, calls)
    if len(ordered) > _LISTED:
        rest = len(ordered) - _LISTED
        yield Found(
            "error", f"{format_counted(rest, 'more group')} {'stands' if rest == 1 else 'stand'} still."
        )
    yield from _find_messages(trace, calls)


def _collect_calls(trace: Trace, rank: Rank) -> dict[str, list[_Call]]:
    """Return the operations of a rank by comm group, in order."""
    graph = trace.graph_of(rank)
    state, dtype = _index_texts(graph, STATE), _index_texts(graph, DTYPE)
    serial, kind, size = (read_dense_column(graph, key, NONE) for key in (SERIAL, "comm_type", "comm_size"))
    by_group: dict[str, list[_Call]] = {}
    groups = _index_groups(graph, rank)
    for row in sorted(state):
        call = _Call(
            rank.number,
            row,
            int(serial[row]),
            graph.strings[int(graph.name[row])],
            int(kind[row]) if graph.type[row] == NodeType.COMM_COLL else -int(graph.type[row]),
            int(size[row]),
            dtype.get(row, ""),
            state[row],
            int(graph.start_ns[row]),
        )
        by_group.setdefault(groups.get(row, ""), []).append(call)
    return by_group


def _index_texts(graph: Graph, key: str) -> dict[int, str]:
    rows, where = graph.rows_with(key)
    return {
        row: graph.strings[text]
        for row, text in zip(rows.tolist(), graph.attrs.value[where].tolist(), strict=True)
    }


def _index_groups(graph: Graph, rank: Rank) -> dict[int, str]:
    """Return the name of the group of each row that names one."""
    group_of: dict[int, str] = {}
    for key in reversed(GROUP_KEYS):
        rows, where = graph.rows_with(key)
        for row, value, bound in zip(
            rows.tolist(), graph.attrs.value[where].tolist(), graph.attrs.slot[where].tolist(), strict=True
        ):
            group_of[row] = str(rank.slots[value]) if bound else graph.strings[value]
    return group_of


def _index_collectives(calls: Iterable[_Call]) -> dict[int, _Call]:
    """Return the collectives among operations by their number; of those that share one, the last."""
    return {call.serial: call for call in calls if call.serial >= 0}


def _find_stands(calls: _Calls, members: Mapping[str, Sequence[int]]) -> Iterator[_Stand]:
    """Yield where each group stands still, if it does."""
    names = dict.fromkeys(name for of_rank in calls.values() for name in of_rank)
    for name in names:
        of_rank = {
            rank: numbered
            for rank, groups in calls.items()
            if (numbered := _index_collectives(groups.get(name, ())))
        }
        if not of_rank:
            continue
        listed = tuple(members.get(name, ())) or tuple(of_rank)
        open_ones = [
            call.serial for numbered in of_rank.values() for call in numbered.values() if not call.ended
        ]
        disputed = _find_first_dispute(of_rank)
        serials = [*([min(open_ones)] if open_ones else []), *([disputed] if disputed is not None else [])]
        if not serials:
            continue
        serial = min(serials)
        here = {rank: numbered[serial] for rank, numbered in of_rank.items() if serial in numbered}
        present = [rank for rank in listed if rank in calls]
        yield _Stand(
            name,
            serial,
            here,
            tuple(sorted(rank for rank in present if max(of_rank.get(rank, {NONE: 0})) < serial)),
            tuple(sorted(rank for rank in listed if rank not in calls)),
            _find_odd_ranks(here),
        )


def _find_first_dispute(of_rank: Mapping[int, Mapping[int, _Call]]) -> int | None:
    """Return the first number under which ranks issued different collectives, None where they never did."""
    by_serial: dict[int, dict[int, _Call]] = {}
    for rank, numbered in of_rank.items():
        for serial, call in numbered.items():
            by_serial.setdefault(serial, {})[rank] = call
    return min((serial for serial, here in by_serial.items() if _find_odd_ranks(here)), default=None)


def _find_odd_ranks(here: Mapping[int, _Call]) -> tuple[int, ...]:
    """Return the ranks that issued something else than most did."""
    contents = {rank: _get_content(call) for rank, call in here.items()}
    usual = Counter(contents.values()).most_common(1)
    return (
        tuple(sorted(rank for rank, content in contents.items() if content != usual[0][0])) if usual else ()
    )


def _get_content(call: _Call) -> tuple[int, int, str]:
    even = call.type not in _UNEVEN and not call.name.endswith("_v")
    return call.type, call.bytes if even else 0, call.dtype if even else ""


def _find_pending(calls: Mapping[str, list[_Call]], *, but: str) -> _Call | None:
    """Return the first operation of a rank that has not ended, in another group than this."""
    waiting = [
        call for name, group_calls in calls.items() if name != but for call in group_calls if not call.ended
    ]
    return min(waiting, key=lambda call: call.row, default=None)


def _is_origin(stand: _Stand, calls: _Calls) -> bool:
    """Whether a group stands still for a reason of its own, not because a member waits in another group."""
    if stand.odd or not stand.missing:
        return True
    return any(_find_pending(calls[rank], but=stand.group) is None for rank in stand.missing)


# ---------------------------------------------------------------------------------------------------
# In words


def _report_stand(trace: Trace, stand: _Stand, calls: _Calls) -> Found:
    """Return what is wrong at one group."""
    waiting = tuple(sorted(rank for rank, call in stand.here.items() if not call.ended))
    usual = next((call for rank, call in sorted(stand.here.items()) if rank not in stand.odd), None)
    assert usual is not None
    what = f"{_describe_call(usual)} (number {stand.serial} of {_label_group(stand.group)})"
    culprits: tuple[int, ...] = ()
    if stand.odd:
        culprits = stand.odd
        first = stand.here[stand.odd[0]]
        others = format_ranks(sorted(set(stand.here) - set(stand.odd)))
        message = (
            f"Ranks issued different collectives under one number: {format_ranks(stand.odd)} "
            f"{_describe_call(first)} where {others} issued {what}; it {_choose_verb(stand)} end."
        )
    elif stand.missing:
        held = {rank: _find_pending(calls[rank], but=stand.group) for rank in stand.missing}
        culprits = tuple(rank for rank, call in held.items() if call is None) or stand.missing
        elsewhere = tuple(rank for rank in stand.missing if rank not in culprits)
        message = (
            f"{what} does not end: {format_ranks(culprits)} never issued it; {format_ranks(waiting)} "
            f"{'waits' if len(waiting) == 1 else 'wait'} in it."
        )
        if elsewhere:
            message += f" Nor did {format_ranks(elsewhere)}, waiting in another group."
    elif stand.unknown:
        culprits = stand.unknown
        message = (
            f"{what} does not end: {format_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in it, and "
            f"{format_ranks(stand.unknown)} left no dump."
        )
    else:
        asleep = tuple(sorted(rank for rank, call in stand.here.items() if call.state == "scheduled"))
        begun = [rank for rank, call in stand.here.items() if call.state == "started"]
        culprits = asleep if begun else ()
        message = f"{what} was issued by every member and had not ended on {format_ranks(waiting)}."
        if begun and asleep:
            message += f" The device of {format_ranks(asleep)} had not begun it."
    evidence = list(_list_evidence(trace, stand, calls, culprits))
    is_certain = bool(stand.odd or stand.missing) and bool(waiting or stand.missing)
    nodes = [stand.here[rank] for rank in sorted(stand.here, key=lambda rank: (rank not in culprits, rank))]
    return Found(
        "error" if is_certain or stand.unknown else "warning",
        message,
        culprits or waiting,
        tuple(NodeAt(call.rank, call.row) for call in nodes[:NODES_NAMED]),
        1,
        tuple(evidence),
        advice=_choose_advice(stand, culprits),
    )


def _choose_verb(stand: _Stand) -> str:
    return "did" if all(call.ended for call in stand.here.values()) else "cannot"


def _choose_advice(stand: _Stand, culprits: Sequence[int]) -> str:
    """Return what to look at."""
    if stand.odd:
        return "Look at the calls named above: all members of a group must take the same way through the program."
    if stand.missing:
        return (
            f"Look at what {format_ranks(culprits)} did after the last operation: an exception, a branch that the others "
            "did not take, a slow data loader, or a wait in another group."
        )
    if stand.unknown:
        return f"See whether {format_ranks(stand.unknown)} crashed, and collect its dump if there is one."
    if culprits:
        return f"Look at what the device of {format_ranks(culprits)} was busy with before it."
    return "If it was no slow moment, nothing in the program keeps it: look at network, drivers and errors of the devices."


def _list_evidence(
    trace: Trace, stand: _Stand, calls: _Calls, culprits: Sequence[int]
) -> Iterator[tuple[str, str]]:
    for state in ("started", "scheduled", "completed"):
        ranks = sorted(rank for rank, call in stand.here.items() if call.state == state)
        if ranks:
            yield state, format_ranks(ranks)
    if stand.unknown:
        yield "no dump of", format_ranks(stand.unknown)
    for rank in [*culprits, *(rank for rank in stand.missing if rank not in culprits)][:_LISTED]:
        if rank not in calls:
            continue
        yield f"rank {rank}", _describe_whereabouts(trace, stand, rank, calls[rank])
    sample = next(
        (
            call
            for rank, call in sorted(stand.here.items())
            if rank not in culprits and _format_calls(trace, call)
        ),
        None,
    )
    if sample is not None:
        yield f"issued by rank {sample.rank} at", _format_calls(trace, sample)


def _describe_whereabouts(trace: Trace, stand: _Stand, rank: int, calls: Mapping[str, list[_Call]]) -> str:
    """Return what is known of a rank that keeps others waiting."""
    if rank in stand.here:
        call, how = stand.here[rank], stand.here[rank].state
    else:
        pending = _find_pending(calls, but=stand.group)
        every = [call for group_calls in calls.values() for call in group_calls]
        if pending is None and not every:
            return "its dump holds no operation"
        call = pending or max(every, key=lambda call: call.row)
        how = f"waits there ({call.state})" if pending else f"{call.state}, the last it issued"
    group = next(name for name, group_calls in calls.items() if call in group_calls)
    number = (
        f" (number {call.serial} of {_label_group(group)})"
        if call.serial >= 0
        else f" of {_label_group(group)}"
    )
    behind = _describe_lead(stand, call)
    at = _format_calls(trace, call)
    return f"{_describe_call(call)}{number}: {how}{behind}" + (f"; issued at {at}" if at else "")


def _describe_lead(stand: _Stand, call: _Call) -> str:
    """Return how long before the others' collective an operation was issued."""
    began = [
        other.start_ns for other in stand.here.values() if other.start_ns > 0 and other.rank != call.rank
    ]
    if call.rank in stand.here or not began or call.start_ns <= 0 or min(began) <= call.start_ns:
        return ""
    return f", {format_ns(min(began) - call.start_ns)} before the others went on"


def _format_calls(trace: Trace, call: _Call) -> str:
    """Return the innermost calls that issued an operation, "" where they were not recorded."""
    rank = trace.known_rank(call.rank)
    attributes = list_node_attributes(trace.graph_of(rank), call.row, rank.slots)
    lines = next((str(attr.value) for attr in attributes if attr.name == CALLED_AT), "").split("\n")
    own = [line for line in lines if line and "torch/distributed/" not in line.replace("\\", "/")]
    return " ← ".join((own or lines)[:_FRAMES])


def _describe_call(call: _Call) -> str:
    """Return an operation in words."""
    size = f" of {format_bytes(call.bytes)}" if call.bytes >= 0 else ""
    return f"{call.name}{size}{f' ({call.dtype})' if call.dtype else ''}"


def _label_group(name: str) -> str:
    return f"group {name}" if name else "all ranks"


# ---------------------------------------------------------------------------------------------------
# Messages


def _find_messages(trace: Trace, calls: _Calls) -> Iterator[Found]:
    """Yield messages of which one side waits and the other has nothing under way."""
    waiting: dict[tuple[str, int, int], tuple[list[_Call], list[_Call]]] = {}
    both: tuple[list[_Call], list[_Call]]
    for number, groups in calls.items():
        graph = trace.graph_of(number)
        rank = trace.known_rank(number)
        for name, group_calls in groups.items():
            for call in group_calls:
                if call.type not in (-NodeType.COMM_SEND, -NodeType.COMM_RECV) or call.ended:
                    continue
                attributes = {
                    attr.name: attr.value for attr in list_node_attributes(graph, call.row, rank.slots)
                }
                sends = call.type == -NodeType.COMM_SEND
                peer = attributes.get("comm_dst" if sends else "comm_src")
                if isinstance(peer, int) and peer in calls:
                    ends = (number, peer) if sends else (peer, number)
                    both = waiting.setdefault((name, *ends), ([], []))
                    both[0 if sends else 1].append(call)
    alone = [(key, sides) for key, sides in waiting.items() if len(sides[0]) != len(sides[1])]
    for (name, source, target), (sent, received) in alone[:_LISTED]:
        fewer, more = (source, received) if len(sent) < len(received) else (target, sent)
        call = more[min(len(sent), len(received))]
        done = "sent it" if fewer == source else "received it"
        yield Found(
            "error",
            f"{_describe_call(call)} of rank {call.rank} in {_label_group(name)} does not end: rank {fewer} never {done}.",
            (fewer,),
            (NodeAt(call.rank, call.row),),
            abs(len(sent) - len(received)),
            (
                ("from, to", f"rank {source}, rank {target}"),
                (
                    "under way",
                    f"{format_counted(len(sent), 'send')}, {format_counted(len(received), 'receive')}",
                ),
                *((("issued at", at),) if (at := _format_calls(trace, call)) else ()),
            ),
            advice=f"Look at what rank {fewer} did instead.",
        )
    if len(alone) > _LISTED:
        rest = len(alone) - _LISTED
        yield Found(
            "error", f"{format_counted(rest, 'more message')} {'waits' if rest == 1 else 'wait'} like this."
        )
