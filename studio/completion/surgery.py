"""Remove nodes from a graph and insert copies of others, keeping indirect dependencies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from studio.trace import (
    NONE,
    Attributes,
    Bool,
    Dependencies,
    Graph,
    Int32,
    Int64,
    Strings,
    Trace,
    UInt64,
    ValueKind,
)

_ROOM = np.uint64(4)


@dataclass(frozen=True, slots=True)
class Added:
    """A node to put in: a copy of another one in another place.

    Attributes:
        template: The row that it copies: type, attributes, duration.
        name: Its name.
        parents: Rows that it waits for.
        children: Rows that wait for it.
        slots: Slots that take the place of those of the copied node.
        size: Its `comm_size`; None keeps that of the copied node.
        start_ns: Its recorded start, -1 for none.
        before: Whether its id comes right before that of the copied node, else right after: what is ready begins by rising ids.
    """

    template: int
    name: str
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    slots: Mapping[int, int] = field(default_factory=dict)
    size: int | None = None
    start_ns: int = NONE
    before: bool = False


def list_parents(graph: Graph, row: int) -> list[int]:
    """Return the rows that a node waits for, over both kinds of dependencies, without those that are not there."""
    return [parent for parent in (*graph.data.of(row).tolist(), *graph.ctrl.of(row).tolist()) if parent >= 0]


def order_by_data(graph: Graph) -> list[int]:
    """Return the rows so that each comes after those it waits for by data; rows of circles are left out."""
    waiting = np.diff(graph.data.offsets).astype(np.int64)
    children: list[list[int]] = [[] for _ in range(len(graph))]
    for row in range(len(graph)):
        for parent in graph.data.of(row).tolist():
            if parent >= 0:
                children[parent].append(row)
            else:
                waiting[row] -= 1
    ready = np.flatnonzero(waiting == 0).tolist()
    order = []
    while ready:
        row = ready.pop()
        order.append(row)
        for child in children[row]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return order


def find_latest(graph: Graph, rows: Sequence[int]) -> Int64:
    """Return (N,) the last place in `rows` of a node that each node is or waits for by data, -1 where there is none."""
    latest = np.full(len(graph), NONE, np.int64)
    latest[list(rows)] = np.arange(len(rows))
    for row in order_by_data(graph):
        for parent in graph.data.of(row).tolist():
            if parent >= 0 and latest[parent] > latest[row]:
                latest[row] = latest[parent]
    return latest


def find_earliest(graph: Graph, rows: Sequence[int]) -> Int64:
    """Return (N,) the first place in `rows` of a node that is each node or waits for it by data, `len(rows)` where there is none."""
    earliest = np.full(len(graph), len(rows), np.int64)
    earliest[list(rows)] = np.arange(len(rows))
    for row in reversed(order_by_data(graph)):
        for parent in graph.data.of(row).tolist():
            if parent >= 0 and earliest[row] < earliest[parent]:
                earliest[parent] = earliest[row]
    return earliest


def edit_graph(
    graph: Graph, drop: Iterable[int], added: Sequence[Added], links: Iterable[tuple[int, int]] = ()
) -> Graph:
    """Return a graph without some nodes and with others.

    Args:
        graph: The graph.
        drop: Rows to take out; who waited for one waits for what it waited for.
        added: Nodes to put in.
        links: (parent, child) rows to join by data before any is taken out.
    """
    gone = np.zeros(len(graph), np.bool_)
    gone[list(drop)] = True
    kept = np.flatnonzero(~gone)
    new_row = np.full(len(graph), NONE, np.int64)
    new_row[kept] = np.arange(len(kept))
    joined: dict[int, list[int]] = {}
    for parent, child in links:
        joined.setdefault(child, []).append(parent)
    reach = _Reach(graph, gone, joined)
    data, ctrl = [], []
    for row in kept.tolist():
        needs = graph.data.of(row).tolist() + joined.get(row, [])
        data.append(_map_parents(needs, gone, new_row, reach.by_data))
        # What was taken out waited for by order too; who needs its data comes after that.
        after = graph.ctrl.of(row).tolist() + [parent for parent in needs if parent >= 0 and gone[parent]]
        given = set(data[-1])
        ctrl.append(
            [parent for parent in _map_parents(after, gone, new_row, reach.by_any) if parent not in given]
        )
    for place, node in enumerate(added):
        for child in node.children:
            data[int(new_row[child])].append(len(kept) + place)
        data.append(_map_parents(list(node.parents), gone, new_row, reach.by_data))
        ctrl.append([])
    order = np.concatenate([kept, np.array([node.template for node in added], np.int64)])
    strings, first = with_texts(graph.strings, [node.name for node in added])
    name = graph.name[order].copy()
    name[len(kept) :] = first + np.arange(len(added))
    # Room for one id on each side of every old one.
    ids = (graph.id[order] + np.uint64(1)) * _ROOM
    ids[len(kept) :] += np.array([-1 if node.before else 1 for node in added], np.int64).view(np.uint64)
    start = graph.start_ns[order].copy()
    start[len(kept) :] = [node.start_ns for node in added]
    stays = new_row[graph.extra_row] != NONE
    return replace(
        graph,
        id=ids,
        type=graph.type[order],
        name=name,
        start_ns=start,
        duration_ns=graph.duration_ns[order],
        ctrl=build_dependencies(ctrl, (graph.ctrl.dangling + np.uint64(1)) * _ROOM),
        data=build_dependencies(data, (graph.data.dangling + np.uint64(1)) * _ROOM),
        io=graph.io[order] if len(graph.io) else graph.io,
        attrs=_select_attributes(graph, order, len(kept), added),
        extra_row=new_row[graph.extra_row][stays].astype(np.int32),
        extra=graph.extra[stays],
        strings=strings,
    )


class _Reach:
    """What nodes that are taken out waited for, of the nodes that stay."""

    def __init__(self, graph: Graph, gone: Bool, joined: Mapping[int, Sequence[int]]) -> None:
        self.graph, self.gone, self.joined = graph, gone, joined
        self.known: dict[tuple[int, bool], tuple[int, ...]] = {}

    def by_data(self, row: int) -> tuple[int, ...]:
        """Return the rows that stay and whose data it needed, over any number of rows that go."""
        return self._find_reached(row, any_kind=False)

    def by_any(self, row: int) -> tuple[int, ...]:
        """Return the rows that stay and that came before it, for data or by order."""
        return self._find_reached(row, any_kind=True)

    def _find_reached(self, row: int, *, any_kind: bool) -> tuple[int, ...]:
        if (row, any_kind) not in self.known:
            seen, reached, ahead = {row}, dict[int, None](), [row]
            while ahead:
                at = ahead.pop()
                parents = list_parents(self.graph, at) if any_kind else self.graph.data.of(at).tolist()
                for parent in (*parents, *self.joined.get(at, ())):
                    if parent < 0:
                        continue
                    if not self.gone[parent]:
                        reached[parent] = None
                    elif parent not in seen:
                        seen.add(parent)
                        ahead.append(parent)
            self.known[row, any_kind] = tuple(reached)
        return self.known[row, any_kind]


def _map_parents(
    parents: list[int], gone: Bool, new_row: Int64, reach: Callable[[int], tuple[int, ...]]
) -> list[int]:
    """Return the new rows of parents, those that are gone replaced by what they waited for; dangling ones as they are."""
    mapped: dict[int, None] = {}
    for parent in parents:
        if parent < 0:
            mapped[parent] = None
        elif gone[parent]:
            mapped.update((int(new_row[other]), None) for other in reach(parent))
        else:
            mapped[int(new_row[parent])] = None
    return list(mapped)


def build_dependencies(lists: Sequence[Sequence[int]], dangling: UInt64) -> Dependencies:
    """Return dependencies in which each node waits for the rows of its list, -1-k for the k-th of the dangling ids."""
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(parents) for parents in lists], out=offsets[1:])
    rows = np.array([row for parents in lists for row in parents], np.int32)
    return Dependencies(offsets, rows, dangling)


def _select_attributes(graph: Graph, order: Int64, kept: int, added: Sequence[Added]) -> Attributes:
    attrs = graph.attrs
    count = np.diff(attrs.offsets)[order]
    offsets = np.zeros(len(order) + 1, attrs.offsets.dtype)
    np.cumsum(count, out=offsets[1:])
    at = np.repeat(attrs.offsets[order] - offsets[:-1], count) + np.arange(int(offsets[-1]))
    value = attrs.value[at].copy()
    size = graph.strings.find("comm_size")
    for place, node in enumerate(added):
        for index in range(int(offsets[kept + place]), int(offsets[kept + place + 1])):
            if attrs.slot[at[index]]:
                value[index] = node.slots.get(int(value[index]), int(value[index]))
            elif node.size is not None and attrs.key[at[index]] == size:
                value[index] = node.size
    return Attributes(
        offsets,
        attrs.key[at],
        attrs.doc[at],
        attrs.kind[at],
        value,
        attrs.length[at],
        attrs.slot[at],
        attrs.items,
    )


def with_texts(strings: Strings, texts: Sequence[str]) -> tuple[Strings, int]:
    """Return a pool with more texts at its end, and the index of the first of them."""
    more = Strings.of(texts)
    data = np.concatenate([strings.data, more.data])
    offsets = np.concatenate([strings.offsets, more.offsets[1:] + strings.offsets[-1]])
    return Strings(data, offsets), len(strings)


def intern_texts(strings: Strings, texts: Sequence[str]) -> tuple[Strings, list[int]]:
    """Return a pool that has some texts, and their indices."""
    codes = {text: strings.find(text) for text in texts}
    new = [text for text, code in codes.items() if code == NONE]
    pool, first = with_texts(strings, new)
    codes.update((text, first + place) for place, text in enumerate(new))
    return pool, [codes[text] for text in texts]


def with_values(graph: Graph, key: str, rows: Sequence[int], values: Sequence[int]) -> Graph:
    """Return a graph with other values of a whole-number attribute in some rows."""
    new = dict(zip(rows, values, strict=True))
    at, where = graph.rows_with(key)
    value = graph.attrs.value.copy()
    for row, index in zip(at.tolist(), where.tolist(), strict=True):
        value[index] = new.get(row, value[index])
    return replace(graph, attrs=replace(graph.attrs, value=value))


def with_numbers(graph: Graph, key: str, rows: Int64, values: Int64) -> Graph:
    """Return a graph with an attribute of some nodes set to whole numbers, and added where they have none of that name.

    Args:
        graph: The graph.
        key: The attribute.
        rows: (M,) nodes, rising.
        values: (M,) their numbers.
    """
    owners, where = graph.rows_with(key)
    here = np.isin(owners, rows)
    owners, where = owners[here].astype(np.int64), where[here]
    attrs = graph.attrs
    value, kind = attrs.value.copy(), attrs.kind.copy()
    value[where] = values[np.searchsorted(rows, owners)]
    # Narrow and unsigned kinds cannot hold every number.
    kind[where] = ValueKind.INT64
    attrs = replace(attrs, value=value, kind=kind)
    lacking = ~np.isin(rows, owners)
    if not lacking.any():
        return replace(graph, attrs=attrs)
    strings, [code] = intern_texts(graph.strings, [key])
    return replace(graph, strings=strings, attrs=_with_added(attrs, code, rows[lacking], values[lacking]))


def _with_added(attrs: Attributes, key: int, rows: Int64, values: Int64) -> Attributes:
    """Return attributes with a whole number added at the end of some nodes."""
    places = attrs.offsets[rows + 1]
    more = np.zeros(len(attrs.offsets), np.int64)
    more[rows + 1] = 1

    def insert_values(column: NDArray[Any], new: object) -> NDArray[Any]:
        result: NDArray[Any] = np.insert(column, places, cast("Any", new))
        return result

    return replace(
        attrs,
        offsets=attrs.offsets + np.cumsum(more),
        key=insert_values(attrs.key, key),
        doc=insert_values(attrs.doc, NONE),
        kind=insert_values(attrs.kind, ValueKind.INT64),
        value=insert_values(attrs.value, values),
        length=insert_values(attrs.length, 0),
        slot=insert_values(attrs.slot, False),
    )


def append_attributes(before: Attributes, key: Int64, kind: Int64, value: Int64, *, each: int) -> Attributes:
    """Return attributes with those of more nodes behind all others.

    Args:
        before: Attributes of the nodes there are.
        key: (M,) names of those of the nodes that come behind, a node after the other.
        kind: (M,) their kinds, of one value apiece.
        value: (M,) their values.
        each: How many of them each node has.
    """
    count = len(key)
    ends = before.offsets[-1] + np.arange(each, count + 1, each)
    return Attributes(
        np.concatenate((before.offsets, ends.astype(before.offsets.dtype))),
        np.concatenate((before.key, key.astype(before.key.dtype))),
        np.concatenate((before.doc, np.full(count, NONE, before.doc.dtype))),
        np.concatenate((before.kind, kind.astype(before.kind.dtype))),
        np.concatenate((before.value, value.astype(before.value.dtype))),
        np.concatenate((before.length, np.zeros(count, before.length.dtype))),
        np.concatenate((before.slot, np.zeros(count, np.bool_))),
        before.items,
    )


def with_slot(graph: Graph, like: int) -> tuple[Graph, int]:
    """Return a graph with one more slot, of the attribute of another slot, and its number."""
    keys: Int32 = np.append(graph.slot_key, graph.slot_key[like]).astype(np.int32)
    return replace(graph, slot_key=keys), len(keys) - 1


def compact_graph(graph: Graph, slots: Sequence[int | str]) -> tuple[Graph, tuple[int | str, ...]]:
    """Return a graph and a rank's slots as reading its file gives them: numbered by first use, without those nobody uses."""
    order = _order_slots(graph)
    return _with_slots(graph, order), tuple(slots[number] for number in order)


def compact_trace(trace: Trace) -> Trace:
    """Return a job whose graphs have no slots that nobody uses."""
    orders = [_order_slots(graph) for graph in trace.graphs]
    ranks = tuple(
        replace(rank, slots=tuple(rank.slots[number] for number in orders[rank.graph]))
        for rank in trace.ranks
    )
    graphs = tuple(_with_slots(graph, order) for graph, order in zip(trace.graphs, orders, strict=True))
    return replace(trace, graphs=graphs, ranks=ranks)


def _order_slots(graph: Graph) -> list[int]:
    """Return the slots by first use."""
    numbers, first = np.unique(graph.attrs.value[graph.attrs.slot], return_index=True)
    return [int(number) for number in numbers[np.argsort(first)]]


def _with_slots(graph: Graph, order: Sequence[int]) -> Graph:
    """Return a graph whose slots are numbered anew."""
    if list(order) == list(range(len(graph.slot_key))):
        return graph
    place = np.full(len(graph.slot_key), NONE, np.int64)
    place[list(order)] = np.arange(len(order))
    value = graph.attrs.value.copy()
    value[graph.attrs.slot] = place[value[graph.attrs.slot]]
    attrs = replace(graph.attrs, value=value)
    return replace(graph, slot_key=graph.slot_key[list(order)], attrs=attrs)
