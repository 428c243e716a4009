"""Repairs: pure functions from trace to trace that report exactly what they changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from studio.analysis.collectives.matching import (
    Collectives,
    GroupMatching,
    compute_issue_order,
    find_disagreement,
)
from studio.analysis.collectives.messages import Messages
from studio.distinct import find_distinct
from studio.doctor import edit
from studio.doctor.across import drop_uneven_sizes
from studio.doctor.content import find_call_rows, find_on_cpu_rows
from studio.doctor.cycles import find_removal
from studio.doctor.diagnosis import Case, GraphCase
from studio.doctor.edit import Entries
from studio.doctor.structure import (
    describe_edge,
    find_copied_rows,
    find_forward_rows,
    find_repeated_rows,
    has_order,
)
from studio.errors import TraceError
from studio.et.link.dep_kinds import DepKind
from studio.notebook import format_record
from studio.sim.agreement import format_ranks, is_certain, label_group, label_node
from studio.trace import NONE, Bool, Finding, Graph, Int64, NodeType, Trace, UInt64
from studio.units import format_counted, format_ns

MENDED = "repaired-"
"""Prefix of the codes of findings about repairs, before the repair's own code."""
_SHOWN = 8
_ORDERS_TRIED = 16

Tick = Callable[[], None]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One kind of change that a repair made, with its count.

    Attributes:
        what: In words, with the count: `3 dependencies removed`.
        count: How many there are, over all ranks.
        first: The first of them, in words.
    """

    what: str
    count: int
    first: tuple[str, ...] = ()

    __repr__ = format_record


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
    mended, changes = known.apply(trace, tick)
    changes = [change for change in changes if change.count]
    if not changes:
        return Repaired(trace, ())
    changed = "; ".join(change.what for change in changes)
    finding = Finding("info", f"{MENDED}{code}", f"{known.title}: {changed}.", known.consequence)
    return Repaired(replace(mended, findings=(*trace.findings, finding)), tuple(changes))


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


# ---------------------------------------------------------------------------------------------------
# Dependencies


def _drop_dependencies(
    trace: Trace,
    tick: Tick,
    drop: Callable[[GraphCase, Entries], Bool],
    word: Callable[[GraphCase, int, int], str],
) -> tuple[Trace, list[Change]]:
    """Remove the dependencies that `drop` picks; `word` describes one of them."""
    graphs: dict[int, Graph] = {}
    count, first = 0, []
    for case in Case(trace, tick).graphs:
        tick()
        graph = case.graph
        for deps in (graph.ctrl, graph.data):
            dependencies = edit.list_entries(graph, deps)
            goes = np.flatnonzero(drop(case, dependencies))[:_SHOWN]
            pairs = zip(dependencies.of[goes].tolist(), dependencies.rows[goes].tolist(), strict=True)
            ids = deps.dangling
            first += [
                f"rank {case.ranks[0]}: {word(case, of, row if row >= 0 else -1 - int(ids[-1 - row]))}"
                for of, row in pairs
            ]
        graphs[case.index], dropped = edit.without_dependencies(graph, partial(drop, case))
        count += dropped * len(case.ranks)
    what = f"{format_counted(count, 'dependency', 'dependencies')} removed"
    return edit.with_graphs(trace, graphs), [Change(what, count, tuple(first[:_SHOWN]))]


def _drop_dangling(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    def describe(case: GraphCase, of: int, absent: int) -> str:
        return f"{label_node(case.graph, of)} waited for node {-1 - absent}, which is missing"

    return _drop_dependencies(
        trace, tick, lambda _, dependencies: np.asarray(dependencies.rows < 0), describe
    )


def _describe_removed_wait(case: GraphCase, of: int, waited: int) -> str:
    return describe_edge(case.graph, of, waited).replace(" waits for ", " waited for ", 1)


def _drop_self_loops(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    return _drop_dependencies(
        trace,
        tick,
        lambda _, dependencies: np.asarray(dependencies.rows == dependencies.of),
        _describe_removed_wait,
    )


def _open_cycles(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    keys: dict[int, Int64] = {}

    def drop(case: GraphCase, dependencies: Entries) -> Bool:
        size = max(len(case.graph), 1)
        if case.index not in keys:
            if (case.circles == NONE).all():
                keys[case.index] = np.zeros(0, np.int64)
            else:
                cut = find_removal(case)
                keys[case.index] = cut.of * size + cut.waited
        return np.asarray(
            (dependencies.rows >= 0) & np.isin(dependencies.of * size + dependencies.rows, keys[case.index])
        )

    return _drop_dependencies(trace, tick, drop, _describe_removed_wait)


def _add_stream_order(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    graphs: dict[int, Graph] = {}
    count, first = 0, []
    for case in Case(trace, tick).graphs:
        if (case.circles != NONE).any():
            continue
        order = case.streams
        before, after = order.before[~order.ordered], order.after[~order.ordered]
        graph, keep = _add_without_cycles(case.graph, before, after)
        if not keep.any():
            continue
        graphs[case.index] = graph
        pairs = list(zip(before[keep].tolist(), after[keep].tolist(), strict=True))
        count += len(pairs) * len(case.ranks)
        first += [
            f"rank {case.ranks[0]}: {describe_edge(case.graph, before, other)}"
            for other, before in pairs[:_SHOWN]
        ]
    what = f"{format_counted(count, 'dependency', 'dependencies')} added"
    return edit.with_graphs(trace, graphs), [Change(what, count, tuple(first[:_SHOWN]))]


def _add_without_cycles(graph: Graph, before: Int64, after: Int64) -> tuple[Graph, Bool]:
    """Return a graph with added dependencies, without those that would close a cycle, and which were added."""
    keep = np.ones(len(before), bool)
    while True:
        extended = edit.with_data_dependencies(graph, after[keep], before[keep], DepKind.STREAM)
        circles = GraphCase(0, extended, ()).circles
        closing = keep & (circles[before] != NONE) & (circles[before] == circles[after])
        if not closing.any():
            return extended, keep
        keep &= ~closing


def _chain_collectives(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Put the collectives of a group in one order on all members, where nothing else fixes another."""
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    wanted: dict[int, _Pairs] = {}
    names = []
    case = Case(trace, tick)
    for numbered, group in zip(case.groups, map(drop_uneven_sizes, case.ordered), strict=True):
        tick()
        difference = find_disagreement(group)
        if difference is None or is_certain(trace, group, difference):
            continue
        for members in _iterate_chains(trace, numbered, group, difference.other_rank):
            chains = {place[number]: chain for number, chain in members.items()}
            more = {index: (*wanted.get(index, ()), *chain) for index, chain in chains.items()}
            apart = {(trace.ranks[index].graph, chain) for index, chain in more.items()}
            if chains and all(_is_acyclic(_add_chain(trace.graphs[graph], chain)) for graph, chain in apart):
                wanted |= more
                names.append(label_group(group))
                break
    count = sum(map(len, wanted.values()))
    first = [
        f"rank {trace.ranks[index].number}: {describe_edge(trace.graph_of(trace.ranks[index]), after, before)}"
        for index, chain in wanted.items()
        for before, after in chain[:_SHOWN]
    ]
    what = f"{format_counted(count, 'dependency', 'dependencies')} added, {format_counted(len(names), 'group')} put in order"
    repaired = edit.change_ranks(trace, wanted, _add_chain, tick) if wanted else trace
    return repaired, [Change(what, count, tuple(first[:_SHOWN]))]


_Pairs = tuple[tuple[int, int], ...]
"""Rows: the second is to wait for the first."""
_Contents = list[tuple[int, int]]
"""Type and size of collectives, one after another."""


def _list_contents(sequence: Collectives) -> _Contents:
    return list(zip(sequence.type.tolist(), sequence.bytes.tolist(), strict=True))


def _iterate_chains(
    trace: Trace, numbered: GroupMatching, group: GroupMatching, usual: int
) -> Iterator[dict[int, _Pairs]]:
    """Yield chains to try, by member: as the collectives are numbered, else in the orders of `_list_orders`."""
    if numbered.by_number:
        if find_disagreement(drop_uneven_sizes(numbered)) is None:
            rows = zip(numbered.members, numbered.sequence_of.tolist(), numbered.rows().tolist(), strict=True)
            yield {number: tuple(pairwise(chain)) for number, index, chain in rows if index != NONE}
        return
    yield from (_build_chains(group, order) for order in _list_orders(trace, group, usual))


def _list_orders(trace: Trace, group: GroupMatching, usual: int) -> list[_Contents]:
    """Return the orders to try: as recorded on a usual member, the most frequent, then all others."""
    usual_index = int(group.sequence_of[group.members.index(usual)])
    rank = trace.rank(usual)
    assert rank is not None
    starts = trace.graph_of(rank).start_ns[group.sequences[usual_index].rows]
    contents = [_list_contents(sequence) for sequence in group.sequences]
    recorded = [contents[usual_index][place] for place in np.argsort(starts, kind="stable").tolist()]
    tried = [recorded] if (starts >= 0).all() else []
    return [*tried, contents[usual_index], *(order for order in contents if order != contents[usual_index])][
        :_ORDERS_TRIED
    ]


def _build_chains(group: GroupMatching, order: _Contents) -> dict[int, _Pairs]:
    """Return each member's collectives in a given order; empty where members have different ones."""
    chains: dict[int, _Pairs] = {}
    for number, index in zip(group.members, group.sequence_of.tolist(), strict=True):
        if index == NONE:
            continue
        own = _list_contents(group.sequences[index])
        if sorted(own) != sorted(order):
            return {}
        left: dict[tuple[int, int], list[int]] = {}
        for content, row in zip(own, group.sequences[index].rows.tolist(), strict=True):
            left.setdefault(content, []).append(row)
        chains[number] = tuple(pairwise(left[content].pop(0) for content in order))
    return chains


def _add_chain(graph: Graph, chain: object) -> Graph:
    """Return a graph in which the second of each pair waits for the first."""
    assert isinstance(chain, tuple)
    before, after = np.array(chain, np.int64).reshape(-1, 2).T
    return edit.with_data_dependencies(graph, after, before, 0)


def _is_acyclic(graph: Graph) -> bool:
    return bool((GraphCase(0, graph, ()).circles == NONE).all())


def _write_in_order(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    graphs: dict[int, Graph] = {}
    count = 0
    for case in Case(trace, tick).graphs:
        # Circles have no order, and have a finding of their own.
        if not len(find_forward_rows(case)) or not has_order(case):
            continue
        graphs[case.index] = edit.with_order(
            case.graph, np.argsort(compute_issue_order(case.graph), kind="stable")
        )
        count += len(case.graph) * len(case.ranks)
    return edit.with_graphs(trace, graphs), [
        Change(f"{format_counted(count, 'node')} put in another order", count)
    ]


# ---------------------------------------------------------------------------------------------------
# Nodes


def _renumber(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    graphs: dict[int, Graph] = {}
    count, removed, first, gone = 0, 0, [], []
    for case in Case(trace, tick).graphs:
        graph = case.graph
        copies = find_copied_rows(graph)
        if len(copies):
            removed += len(copies) * len(case.ranks)
            gone += [f"rank {case.ranks[0]}: {label_node(graph, row)}" for row in copies[:_SHOWN].tolist()]
            graph = graphs[case.index] = edit.without_nodes(graph, copies)
        rows = find_repeated_rows(graph)
        if not len(rows):
            continue
        fresh = _find_free_ids(graph.id, len(rows))
        ids = graph.id.copy()
        ids[rows] = fresh
        graphs[case.index] = replace(graph, id=ids)
        count += len(rows) * len(case.ranks)
        pairs = zip(rows[:_SHOWN].tolist(), fresh[:_SHOWN].tolist(), strict=True)
        first += [f"rank {case.ranks[0]}: {label_node(graph, row)} became node {new}" for row, new in pairs]
    return edit.with_graphs(trace, graphs), [
        Change(
            f"{format_counted(removed, 'copy', 'copies')} of nodes removed", removed, tuple(gone[:_SHOWN])
        ),
        Change(f"{format_counted(count, 'node')} numbered anew", count, tuple(first[:_SHOWN])),
    ]


def _find_free_ids(ids: UInt64, count: int) -> UInt64:
    """Return unused ids: those after the largest, or the lowest unused ones."""
    largest = int(ids.max())
    if largest + count < 2**63:
        return np.arange(largest + 1, largest + 1 + count, dtype=np.uint64)
    return np.setdiff1d(np.arange(len(ids) + count, dtype=np.uint64), ids)[:count]


def _clear_cpu_flags(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    def change(graph: Graph, rows: Int64) -> Graph:
        return edit.with_zero(graph, "is_cpu_op", rows)

    return _change_nodes(trace, tick, find_on_cpu_rows, change, "is_cpu_op set to false on")


def _convert_calls(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    def change(graph: Graph, rows: Int64) -> Graph:
        types = graph.type.copy()
        types[rows] = NodeType.COMP
        return replace(graph, type=types)

    return _change_nodes(trace, tick, find_call_rows, change, "type set to COMP for")


def _change_nodes(
    trace: Trace,
    tick: Tick,
    chosen: Callable[[GraphCase], Int64],
    change: Callable[[Graph, Int64], Graph],
    done: str,
) -> tuple[Trace, list[Change]]:
    """Change the nodes that `chosen` picks; `done` describes the change, before their number."""
    graphs: dict[int, Graph] = {}
    count, first = 0, []
    for case in Case(trace, tick).graphs:
        rows = chosen(case)
        if len(rows):
            graphs[case.index] = change(case.graph, rows)
            count += len(rows) * len(case.ranks)
            first += [
                f"rank {case.ranks[0]}: {label_node(case.graph, row)}" for row in rows[:_SHOWN].tolist()
            ]
    what = f"{done} {format_counted(count, 'node')}"
    return edit.with_graphs(trace, graphs), [Change(what, count, tuple(first[:_SHOWN]))]


def _drop_messages(
    trace: Trace, tick: Tick, halves: list[tuple[Int64, Int64]], noun: str
) -> tuple[Trace, list[Change]]:
    """Remove sends and receives, given by rank index and row."""
    place = np.concatenate([rank for rank, _ in halves])
    row = np.concatenate([rows for _, rows in halves])
    wanted = {
        index: tuple(find_distinct(row[place == index]).tolist()) for index in find_distinct(place).tolist()
    }
    first = [
        f"rank {trace.ranks[index].number}: {label_node(trace.graph_of(trace.ranks[index]), node)}"
        for index, rows in wanted.items()
        for node in rows[:_SHOWN]
    ]

    def change(graph: Graph, rows: object) -> Graph:
        assert isinstance(rows, tuple)
        return edit.without_nodes(graph, np.array(rows, np.int64))

    count = sum(map(len, wanted.values()))
    repaired = edit.drop_unused_slots(edit.change_ranks(trace, wanted, change, tick)) if wanted else trace
    return repaired, [Change(f"{format_counted(count, noun)} removed", count, tuple(first[:_SHOWN]))]


def _mend_receives(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Give receives the tag, size or source of the sends they evidently belong to, or those their target; remove the others."""
    case = Case(trace, tick)
    messages, unmatched = case.messages, case.unmatched
    corrected, change = _correct_receives(trace, tick, messages, unmatched.pairs)
    named, ends = _set_ends(corrected, tick, _list_wrong_ends(messages, unmatched.crossed))
    lone = np.setdiff1d(unmatched.receives, np.concatenate((unmatched.pairs, *unmatched.crossed), axis=1)[0])
    halves = messages.receive_rank[lone], messages.receive_row[lone]
    repaired, dropped = _drop_messages(named, tick, [halves], "receive")
    return repaired, [change, *ends, *dropped]


def _correct_receives(trace: Trace, tick: Tick, messages: Messages, pairs: Int64) -> tuple[Trace, Change]:
    """Give the receives (2, P) of the first line the tags and sizes of the sends of the second."""
    wanted: dict[int, list[tuple[int, int, int]]] = {}
    first: list[str] = []
    for receive, send in pairs.T.tolist():
        place, row = int(messages.receive_rank[receive]), int(messages.receive_row[receive])
        wanted.setdefault(place, []).append((row, int(messages.tag[send]), int(messages.bytes[send])))
        if len(first) < _SHOWN:
            rank = trace.ranks[place]
            words = [
                f"{name} {int(values[receive]):,} became {int(values[send]):,}"
                for name, values in (("tag", messages.tag), ("size", messages.bytes))
                if values[receive] != values[send]
            ]
            first.append(f"rank {rank.number}: {label_node(trace.graph_of(rank), row)}: {', '.join(words)}")

    def change(graph: Graph, rows: object) -> Graph:
        assert isinstance(rows, tuple)
        row, tag, size = np.array(rows, np.int64).T
        return edit.with_numbers(edit.with_numbers(graph, "comm_tag", row, tag), "comm_size", row, size)

    keys = {place: tuple(sorted(rows)) for place, rows in wanted.items()}
    repaired = edit.change_ranks(trace, keys, change, tick) if keys else trace
    count = pairs.shape[1]
    return repaired, Change(f"{format_counted(count, 'receive')} corrected", count, tuple(first))


def _drop_sends(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    case = Case(trace, tick)
    messages, sends = case.messages, case.unmatched.sends
    return _drop_messages(trace, tick, [(messages.send_rank[sends], messages.send_row[sends])], "send")


def _mend_self_messages(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Give messages of a rank to itself the rank they evidently go between, and remove the others."""
    corrected, changes = _correct_ends(trace, tick, lambda _case, near, far: near == far)
    messages = Case(corrected, tick).messages
    itself = messages.source == messages.target
    sent, received = itself & (messages.send_row != NONE), itself & (messages.receive_row != NONE)
    halves = [
        (messages.send_rank[sent], messages.send_row[sent]),
        (messages.receive_rank[received], messages.receive_row[received]),
    ]
    repaired, dropped = _drop_messages(corrected, tick, halves, "send or receive")
    return repaired, [*changes, *dropped]


def _name_own_ranks(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Set the near end of lone sends and receives to the rank that they are on."""
    messages = Case(trace, tick).messages
    numbers = np.array([*(rank.number for rank in trace.ranks), NONE], np.int64)
    ends = []
    for side in (0, 1):
        row, rank, near, _ = _get_side(messages, side)
        other_row = _get_side(messages, 1 - side)[0]
        ends += [
            (
                int(rank[message]),
                int(row[message]),
                _END_KEYS[side],
                int(numbers[rank[message]]),
                int(near[message]),
            )
            for message in np.flatnonzero(
                (row != NONE) & (other_row == NONE) & (numbers[rank] != near)
            ).tolist()
        ]
    return _set_ends(trace, tick, ends)


def _name_missing_ends(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    return _correct_ends(trace, tick, lambda _case, _near, far: far == NONE)


def _name_ends_inside(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    return _correct_ends(
        trace,
        tick,
        lambda case, _near, far: np.isin(np.arange(len(far)), np.concatenate(case.unmatched.outside)),
    )


_END_KEYS = ("comm_src", "comm_dst")
"""The attribute with the own rank of a send and of a receive; that of the other end is the other one's."""
_End = tuple[int, int, str, int, int]
"""Place of a rank in the job, a row, an attribute, and the number that it becomes and was."""


def _get_side(messages: Messages, side: int) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the rows and ranks of sends (0) or receives (1), the rank at their own end and that at the other."""
    if side:
        return messages.receive_row, messages.receive_rank, messages.target, messages.source
    return messages.send_row, messages.send_rank, messages.source, messages.target


def _correct_ends(
    trace: Trace, tick: Tick, is_meant: Callable[[Case, Int64, Int64], Bool]
) -> tuple[Trace, list[Change]]:
    """Give sends and receives the other end that they evidently belong to.

    Args:
        trace: The job.
        tick: Called now and then.
        is_meant: Returns (M,) which messages are to be corrected, of the job, and the rank at the own end and the other of each.
    """
    case = Case(trace, tick)
    meant = [is_meant(case, *_get_side(case.messages, side)[2:]) for side in (0, 1)]
    chosen = [pairs[:, meant[side][pairs[1 - side]]] for side, pairs in enumerate(case.unmatched.misnamed)]
    return _set_ends(trace, tick, _list_wrong_ends(case.messages, (chosen[0], chosen[1])))


def _list_wrong_ends(messages: Messages, pairs: tuple[Int64, Int64]) -> list[_End]:
    """Return what to correct, of receives and the sends they belong to, (2, Q) where the send is wrong and (2, W) where the receive is."""
    ends = []
    for side, both in enumerate(pairs):
        row, rank, _, far = _get_side(messages, side)
        # The half that names a wrong rank, and the one that says whom it belongs to.
        for wrong, right in (both if side else both[::-1]).T.tolist():
            ends.append(
                (int(rank[wrong]), int(row[wrong]), _END_KEYS[1 - side], int(far[right]), int(far[wrong]))
            )
    return ends


def _sort_by_key(chosen: tuple[tuple[str, int, int], ...]) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return rows and values by attribute."""
    parts = ((key, [(row, value) for name, row, value in chosen if name == key]) for key in _END_KEYS)
    return [(key, rows) for key, rows in parts if rows]


def _set_ends(trace: Trace, tick: Tick, ends: list[_End]) -> tuple[Trace, list[Change]]:
    wanted: dict[int, list[tuple[str, int, int]]] = {}
    for place, row, key, value, _ in ends:
        wanted.setdefault(place, []).append((key, row, value))
    first = tuple(
        f"rank {trace.ranks[place].number}: {label_node(trace.graph_of(trace.ranks[place]), row)}: {key} "
        f"{'none' if was == NONE else was} became {value}"
        for place, row, key, value, was in ends[:_SHOWN]
    )

    def change(graph: Graph, chosen: object) -> Graph:
        assert isinstance(chosen, tuple)
        for key, rows in _sort_by_key(chosen):
            graph = edit.with_peers(graph, key, *np.array(rows, np.int64).T)
        return graph

    keys = {place: tuple(sorted(rows)) for place, rows in wanted.items()}
    repaired = edit.change_ranks(trace, keys, change, tick) if keys else trace
    ranks = list(repaired.ranks)
    for place, chosen in keys.items():
        added = [value for _, rows in _sort_by_key(chosen) for value in sorted({value for _, value in rows})]
        ranks[place] = replace(ranks[place], slots=(*ranks[place].slots, *added))
    repaired = edit.drop_unused_slots(replace(repaired, ranks=tuple(ranks))) if keys else trace
    return repaired, [
        Change(
            f"{format_counted(len(ends), 'send or receive', 'sends or receives')} corrected", len(ends), first
        )
    ]


# ---------------------------------------------------------------------------------------------------
# Jobs


def _list_groups(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    case = Case(trace, tick)
    members = {
        usage.name: usage.members for usage in case.groups if usage.name and usage.name not in case.listed
    }
    known = {group.name for group in trace.groups}
    groups = [
        replace(group, ranks=members[group.name], inferred=False) if group.name in members else group
        for group in trace.groups
    ]
    assert known.issuperset(members), "every group that nodes name is listed or inferred"
    first = [f"{name}: {format_ranks(sorted(ranks))}" for name, ranks in members.items()]
    what = f"{format_counted(len(members), 'comm group')} listed"
    return replace(trace, groups=tuple(groups)), [Change(what, len(members), tuple(first[:_SHOWN]))]


def _align_clocks(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    offset = {clock.rank: clock.offset_ns for clock in Case(trace, tick).clocks if clock.is_skewed}
    wanted = {index: offset[rank.number] for index, rank in enumerate(trace.ranks) if rank.number in offset}
    # Times count from 0: where a clock would go below, all ranks move up by as much.
    starts = [trace.graph_of(rank).start_ns for rank in trace.ranks]
    earliest = [int(times[times >= 0].min(initial=2**62)) for times in starts]
    lift = max(0, -min((earliest[index] - by for index, by in wanted.items()), default=0))
    if lift:
        wanted = {index: wanted.get(index, 0) - lift for index in range(len(trace.ranks))}

    def change(graph: Graph, by: object) -> Graph:
        assert isinstance(by, int)
        moved = np.minimum(graph.start_ns, 2**63 - 1 + min(by, 0)) - by
        return replace(graph, start_ns=np.where(graph.start_ns >= 0, moved, graph.start_ns))

    repaired = edit.change_ranks(trace, wanted, change, tick) if offset else trace
    first = tuple(
        f"rank {rank}: by {format_ns(abs(by))} {'back' if by > 0 else 'on'}" for rank, by in offset.items()
    )
    return repaired, [Change(f"{format_counted(len(offset), 'clock')} moved", len(offset), first[:_SHOWN])]


REPAIRS: Mapping[str, Repair] = {
    entry.code: entry
    for entry in (
        Repair(
            "dangling",
            "Remove dependencies on missing nodes",
            "If these dependencies mattered, the nodes that had them now start too early.",
            _drop_dangling,
        ),
        Repair(
            "self-loop",
            "Remove dependencies of nodes on themselves",
            "Nothing else changes: no run can have obeyed them.",
            _drop_self_loops,
        ),
        Repair(
            "cycle",
            "Open the cycles",
            "No run can have obeyed all of these dependencies. Of equally small sets, the one that recorded "
            "times contradict is removed; the removed dependencies are not certain to be the wrong ones.",
            _open_cycles,
        ),
        Repair(
            "duplicate-id",
            "Remove nodes written twice, give other repeated ids new numbers",
            "Nodes that are alike in everything to an earlier one are removed. Dependencies stay with the first node of each id. Of "
            "several nodes that are ready, the one with the lowest id starts first, so the renumbered ones may start later.",
            _renumber,
        ),
        Repair(
            "comm-on-cpu",
            "Let communication use the network",
            "These nodes take the time that the network gives them instead of their recorded durations.",
            _clear_cpu_flags,
        ),
        Repair(
            "comm-call",
            "Treat the calls as computation",
            "They keep their durations and dependencies and send nothing, as before.",
            _convert_calls,
        ),
        Repair(
            "foreign-message",
            "Let messages begin and end on their own rank",
            "Only those without another half are changed: comm_src of a send and comm_dst of a receive become the rank it is on.",
            _name_own_ranks,
        ),
        Repair(
            "self-message",
            "Correct messages from a rank to itself, or remove them",
            "Where another rank waits for a message of that tag and size, or sends one, the message goes between the two. The "
            "others are removed: nodes that waited for them wait for their predecessors instead; a copy within a rank then takes "
            "no time.",
            _mend_self_messages,
        ),
        Repair(
            "peer-missing",
            "Name the other end of messages",
            "It is the rank that waits for a message of that tag and size from there, or sends one; the others stay as they are.",
            _name_missing_ends,
        ),
        Repair(
            "peer-outside",
            "Correct the other end of messages",
            "It becomes the rank that waits for a message of that tag and size from there, or sends one; the others stay as they "
            "are.",
            _name_ends_inside,
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
            _mend_receives,
        ),
        Repair(
            "send-unmatched",
            "Remove sends without a receive",
            "Of several alike those are removed that recorded times tell. Their bytes no longer load the network. Nodes that "
            "waited for them wait for their predecessors instead.",
            _drop_sends,
        ),
        Repair(
            "group-unlisted",
            "List the comm groups",
            "The ranks that name a group become its members, in order of their numbers, and are written to the "
            "comm group file.",
            _list_groups,
        ),
        Repair(
            "collectives-disagree",
            "Fix the order of collectives",
            "Each waits for the previous one in its group, in the recorded order or else that of most ranks, "
            "unless dependencies fix another order. They can no longer overlap each other.",
            _chain_collectives,
        ),
        Repair(
            "stream-order",
            "Keep kernels in the order of their stream",
            "Each waits for the previous one on its stream, by recorded start or, where none is recorded, by "
            "launch. A simulation can no longer run them side by side.",
            _add_stream_order,
        ),
        Repair(
            "clock-skew",
            "Align the clocks",
            "Start times of the ranks move, durations stay. Where a clock drifts, the median of its offset is "
            "subtracted.",
            _align_clocks,
        ),
        Repair(
            "forward",
            "Write nodes after the nodes they wait for",
            "Only the order of nodes in the files changes; ids stay.",
            _write_in_order,
        ),
    )
}
"""Every repair by its code, in the order they are applied together."""
