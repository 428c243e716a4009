"""The edit that cuts the micro-batches of a pipeline into smaller ones, and puts their passes into another order.

Unlike other edits it adds nodes, so it is made last. Each node that every micro-batch repeats becomes as many nodes as its micro-batch
becomes micro-batches; sums of gradients, the optimizer and whatever else is work of the step stay as they are, and wait for the parts
of what they waited for. Dependencies that keep passes in their order are made anew for the new order; all others stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from studio.advice.edits import with_graphs
from studio.advice.orders import are_order_only
from studio.advice.passes import Passes
from studio.columns import join_ranges
from studio.completion.layers import MICRO_BATCH
from studio.distinct import find_distinct
from studio.trace import (
    NONE,
    Attributes,
    Bool,
    Dependencies,
    Graph,
    Int32,
    Int64,
    NodeType,
    Strings,
    Trace,
    are_copies,
)

_SIZES = ("num_ops", "tensor_size", "comm_size")
_MEMORY = "memory_"
_MESSAGES = (NodeType.COMM_SEND, NodeType.COMM_RECV)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How the graph of a rank is changed.

    N nodes.

    Attributes:
        passes: Its passes.
        order: Way and micro-batch of the passes of a step, in their new order.
        less_ns: (N,) how much less each part takes than the node; communication and copies of a replay.
    """

    passes: Passes
    order: tuple[tuple[int, int], ...]
    less_ns: Int64

    def mark(self) -> bytes:
        """Return what tells it from other plans of the same graph."""
        return repr(self.order).encode() + self.less_ns.tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class SplitMicroBatches:
    """Cuts every micro-batch into some equal parts.

    Operations and bytes are shared out. A compute node keeps the time of the shortest one of its rank, which is all launch, and shares
    out the rest.

    Attributes:
        parts: How many; 1 for another order alone.
        plans: By place of the rank.
        adds_nodes: Edits of which this is true are made after all others.
    """

    parts: int
    plans: Mapping[int, Plan]
    adds_nodes: ClassVar[bool] = True

    def __call__(self, trace: Trace) -> Trace:
        """Return the changed job."""
        marks = {place: plan.mark() for place, plan in self.plans.items()}
        return with_graphs(trace, marks, self._change_graph)

    def _change_graph(self, graph: Graph, place: int) -> Graph:
        return split_graph(graph, self.plans[place], self.parts)


def fits(graph: Graph, plan: Plan, parts: int) -> bool:
    """Whether the passes of a rank can run in the order of a plan: nothing needs data of what comes later."""
    return _Split(graph, plan, parts).in_order()


def split_graph(graph: Graph, plan: Plan, parts: int) -> Graph:
    """Return a graph with smaller micro-batches, in the order of a plan."""
    return _Split(graph, plan, parts).graph()


class _Split:
    """A graph that is changed: `old` and `part` name the new nodes, in their new order of issue.

    M new nodes; of each `old` is (M,) its row before, `part` (M,) which part of that it is, `turn` (M,) its new pass, -1 for none.
    """

    def __init__(self, graph: Graph, plan: Plan, parts: int) -> None:
        self.before, self.plan, self.parts = graph, plan, parts
        self.shared = plan.passes.number != NONE
        count = np.where(self.shared, parts, 1)
        old = np.repeat(np.arange(len(graph)), count)
        part = join_ranges(0, count)
        # What a pass does once is done with the last part.
        which = np.where(self.shared[old], part, parts - 1)
        turn = np.full(len(old), NONE, np.int64)
        rank = self._place_by_pass(old, which, turn) if plan.passes.ordered else self._place_by_id(old, which)
        order = np.argsort(rank, kind="stable")
        self.old, self.part, self.turn, self.rank = old[order], part[order], turn[order], rank[order]
        self.row = np.full((len(graph), parts), NONE, np.int64)
        self.row[self.old, self.part] = np.arange(len(self.old))

    def _place_by_id(self, old: Int64, which: Int64) -> Int64:
        """Return where each node stands where ids say what begins first: the parts of a micro-batch take its ids one after another."""
        passes = self.plan.passes
        by_id = np.empty(len(self.before), np.int64)
        by_id[np.argsort(self.before.id, kind="stable")] = np.arange(len(self.before))
        rank = by_id[old] * self.parts
        for index in range(len(passes.steps)):
            rows = np.flatnonzero((passes.at[old] == index) & self.shared[old])
            slots = np.sort(rank[rows] + which[rows])
            rank[rows[np.lexsort((by_id[old[rows]], which[rows]))]] = slots
        return rank

    def _place_by_pass(self, old: Int64, which: Int64, turn: Int64) -> Int64:
        """Return where each node stands in the new order of passes, and fill in the new pass of each."""
        passes, length = self.plan.passes, len(self.plan.order)
        new = {key: index for index, key in enumerate(self.plan.order)}
        listed = zip(passes.steps.tolist(), passes.ways.tolist(), passes.numbers.tolist(), strict=True)
        turns = np.array(
            [
                [step * length + new[way, number * self.parts + part] for part in range(self.parts)]
                for step, way, number in listed
            ],
            np.int64,
        )
        at = passes.at[old]
        inside = at != NONE
        turn[inside] = turns[at[inside], which[inside]]
        # Nodes of no pass stay between the passes of the steps that they stood between.
        is_in_pass = passes.at != NONE
        first = np.full(int(passes.steps.max()) + 1, len(is_in_pass))
        np.minimum.at(first, passes.steps[passes.at[is_in_pass]], passes.place[is_in_pass])
        steps_before = np.searchsorted(first, passes.place[old])
        base = np.where(inside, turn * 2 + 1, steps_before * length * 2)
        return np.asarray(base * len(is_in_pass) + passes.place[old], np.int64)

    def in_order(self) -> bool:
        """Whether each node comes after those that it waits for."""
        return not self.plan.passes.ordered or all(
            (parent < child).all() for child, parent in self._iterate_kept()
        )

    def _iterate_kept(self) -> Iterator[tuple[Int64, Int64]]:
        """Yield, for control and for data dependencies, nodes that wait and what they wait for, without the order of passes."""
        passes = self.plan.passes
        step = np.where(passes.at == NONE, NONE, passes.steps[passes.at])
        for deps, alone in zip(
            (self.before.ctrl, self.before.data), are_order_only(self.before), strict=True
        ):
            of, parent = deps.list_waiting(), deps.rows.astype(np.int64)
            keep = (parent >= 0) & ~(alone & self._are_between_passes(of, parent))
            of, parent, order = of[keep], parent[keep], alone[keep]
            both = self.shared[of] & self.shared[parent]
            same = both & (passes.number[of] == passes.number[parent]) & (step[of] == step[parent])
            children, parents = [], []
            for part, other_part in product(range(self.parts), repeat=2):
                # Part by part where both are of one micro-batch, else each for each.
                chosen = ~same & (self.shared[of] | (part == 0)) & (self.shared[parent] | (other_part == 0))
                chosen |= same & (part == other_part)
                child, before = self.row[of[chosen], part], self.row[parent[chosen], other_part]
                # An early part does not wait for what its pass does once, where that is an order only.
                stays = (
                    ~(order[chosen] & (before > child)) if passes.ordered else np.ones(len(child), np.bool_)
                )
                children.append(child[stays])
                parents.append(before[stays])
            yield np.concatenate(children), np.concatenate(parents)

    def _are_between_passes(self, of: Int64, parent: Int64) -> Bool:
        """Return which dependencies join two passes whose order can change."""
        at = self.plan.passes.at
        crosses: Bool = (at[of] != at[parent]) & (at[of] != NONE) & (at[parent] != NONE)
        return crosses & self.plan.passes.ordered

    def _list_pass_order(self) -> tuple[Int64, Int64]:
        """Return nodes that wait for an earlier pass in an order only, each with the last node there of each sort it waits for."""
        passes, graph, sort = self.plan.passes, self.before, self._number_streams()
        wanted: dict[int, set[int]] = {}
        for deps, order in zip((graph.ctrl, graph.data), are_order_only(graph), strict=True):
            of, parent = deps.list_waiting(), deps.rows.astype(np.int64)
            chosen = order & (parent >= 0) & self._are_between_passes(of, parent)
            for key, stream in zip(
                passes.key[of[chosen]].tolist(), sort[parent[chosen]].tolist(), strict=True
            ):
                wanted.setdefault(key, set()).add(stream)
        children, parents = [], []
        last: dict[int, int] = {}
        # What the pass at work has issued so far counts from the next pass on.
        coming: dict[int, int] = {}
        current = NONE
        keys, sorts = passes.key[self.old].tolist(), sort[self.old].tolist()
        for row, turn in enumerate(self.turn.tolist()):
            if turn == NONE:
                continue
            if turn != current:
                last.update(coming)
                coming, current = {}, turn
            for stream in sorted(wanted.get(keys[row], ())):
                if stream in last:
                    children.append(row)
                    parents.append(last[stream])
            coming[sorts[row]] = row
        return np.array(children, np.int64), np.array(parents, np.int64)

    def _number_streams(self) -> Int64:
        """Return (N,) what sort of stream a node runs on: by its type, whether it is a copy, and of messages the way."""
        graph, passes = self.before, self.plan.passes
        way = np.where(passes.at == NONE, 0, passes.ways[passes.at])
        way_code = np.where(np.isin(graph.type, _MESSAGES), 1 + way, 0)
        return np.asarray(graph.type.astype(np.int64) * 8 + way_code * 2 + are_copies(graph), np.int64)

    def graph(self) -> Graph:
        """Return the changed graph."""
        graph, old = self.before, self.old
        ctrl, data = self._iterate_kept()
        if self.plan.passes.ordered:
            ordering = self._list_pass_order()
            ctrl = np.append(ctrl[0], ordering[0]), np.append(ctrl[1], ordering[1])
        strings, name = self._name_nodes()
        number = np.arange(len(old)) if self.plan.passes.ordered else self.rank
        return replace(
            graph,
            id=(number + 1).astype(np.uint64),
            type=graph.type[old],
            name=name,
            start_ns=graph.start_ns[old],
            duration_ns=self._compute_durations(),
            ctrl=_build_dependencies(len(old), *ctrl),
            data=_build_dependencies(len(old), *data),
            io=graph.io[old] if len(graph.io) else graph.io,
            attrs=self._build_attributes(),
            extra_row=self.row[graph.extra_row, 0].astype(np.int32),
            strings=strings,
        )

    def _compute_durations(self) -> Int64:
        graph, old = self.before, self.old
        took, compute = graph.duration_ns[old], graph.type == NodeType.COMP
        known = graph.duration_ns[compute & self.shared & (graph.duration_ns > 0)]
        fixed = np.where(compute[old], np.minimum(took, known.min() if len(known) else 0), 0)
        smaller = np.rint(fixed + (took - fixed) / self.parts).astype(np.int64)
        talks = np.isin(graph.type, (*_MESSAGES, NodeType.COMM_COLL))
        smaller = np.where(talks[old], took - self.plan.less_ns[old], smaller)
        return np.where(self.shared[old] & (took > 0), np.maximum(smaller, 1), took)

    def _name_nodes(self) -> tuple[Strings, Int32]:
        """Return the texts with the names of more micro-batches, and the name of each node."""
        strings = self.before.strings
        name = self.before.name[self.old].copy()
        if self.parts == 1:
            return strings, name
        texts: dict[str, int] = {}
        shared_rows = np.flatnonzero(self.shared[self.old])
        pairs, of = np.unique(
            name[shared_rows].astype(np.int64) * self.parts + self.part[shared_rows], return_inverse=True
        )
        codes, before, pieces = [], NONE, ("", 0, "")
        for pair in pairs.tolist():
            code, part = divmod(pair, self.parts)
            if code != before:
                before, pieces = code, _split_at_number(strings[code])
            head, number, tail = pieces
            text = f"{head}{number * self.parts + part}{tail}"
            codes.append(texts.setdefault(text, len(strings) + len(texts)))
        name[shared_rows] = np.array(codes, np.int32)[of]
        more = Strings.of(texts)
        data = np.concatenate([strings.data, more.data])
        return Strings(data, np.append(strings.offsets, more.offsets[1:] + strings.offsets[-1])), name

    def _build_attributes(self) -> Attributes:
        """Return the attributes: sizes shared out, tags told apart, without what was held in memory, which nobody knows now."""
        attrs, strings, old = self.before.attrs, self.before.strings, self.old
        count = np.diff(attrs.offsets)[old]
        where, of = join_ranges(attrs.offsets[old], count), np.repeat(np.arange(len(old)), count)
        held = [code for code in find_distinct(attrs.key).tolist() if strings[code].startswith(_MEMORY)]
        stays = ~np.isin(attrs.key[where], held)
        where, of = where[stays], of[stays]
        value, key = attrs.value[where].copy(), attrs.key[where]
        is_shared = self.shared[old[of]] & ~attrs.slot[where] & (attrs.length[where] == 0)
        sizes = is_shared & np.isin(key, [strings.find(name) for name in _SIZES])
        value[sizes] = -(-value[sizes] // self.parts)
        tags = is_shared & (key == strings.find("comm_tag"))
        value[tags] = value[tags] * self.parts + self.part[of[tags]]
        offsets = np.append(0, np.cumsum(np.bincount(of, minlength=len(old)))).astype(attrs.offsets.dtype)
        doc, kind, length = attrs.doc[where], attrs.kind[where], attrs.length[where]
        return Attributes(offsets, key, doc, kind, value, length, attrs.slot[where], attrs.items)


def _split_at_number(name: str) -> tuple[str, int, str]:
    """Return the number of the micro-batch in the name of a node, with what stands before and after it."""
    match = MICRO_BATCH.search(name)
    assert match is not None, "work of a micro-batch is told by its name"
    return name[: match.start(1)], int(match[1]), name[match.end(1) :]


def _build_dependencies(count: int, child: Int64, parent: Int64) -> Dependencies:
    pairs = np.divmod(find_distinct(child * count + parent), count)
    offsets = np.append(0, np.cumsum(np.bincount(pairs[0], minlength=count)))
    return Dependencies(offsets.astype(np.int64), pairs[1].astype(np.int32), np.zeros(0, np.uint64))
