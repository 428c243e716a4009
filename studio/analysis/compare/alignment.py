"""Match the nodes of one run with those of another.

Of one job nodes are the same by rank and row, which is by id. Nodes of different jobs are matched by structure: those
of one type, name, collective, size and role of their comm group belong together, the n-th in order of issue with the
n-th. What is told apart with certainty is matched first, and between two nodes matched so only nodes between their
partners are; then numbers in names, and at last sizes and groups, may differ.

The role of a comm group is how many ranks it has and how far apart they are, so that groups of other names, or of the
same names in a job of another size, are known again.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.collectives.matching import compute_issue_order, list_edges
from studio.notebook import format_record
from studio.trace import (
    GROUP_KEYS,
    NONE,
    SLOT_KEYS,
    CommGroup,
    Graph,
    Int64,
    Rank,
    Trace,
    UInt64,
    group_slots,
)

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
_PEER_KEYS = tuple(key for key in SLOT_KEYS if key not in GROUP_KEYS)
_NO_ROLE = (NONE, NONE)
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class GraphPairs:
    """Matched rows of two graphs.

    M pairs.

    Attributes:
        graph_a, graph_b: Indices into the graphs of the traces, of several that differ in times alone the first.
        row_a, row_b: (M,) rows that are one node.
        only_a, only_b: The others, rising.
    """

    graph_a: int
    graph_b: int
    row_a: Int64
    row_b: Int64
    only_a: Int64
    only_b: Int64

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Alignment:
    """Matched nodes of runs A and B.

    P pairs of ranks.

    Attributes:
        by: Whether nodes of all ranks were matched by their ids, or of some by structure.
        rank_a, rank_b: (P,) places in the traces of ranks that belong together.
        pairs_of: (P,) index into `pairs`; ranks with equal graphs share them.
        pairs: Which nodes belong together.
        alone_a, alone_b: Places of the ranks that have no partner.
        nodes_a, nodes_b: Nodes of all ranks together.
    """

    by: Literal["id", "structure"]
    rank_a: Int64
    rank_b: Int64
    pairs_of: Int64
    pairs: tuple[GraphPairs, ...]
    alone_a: Int64
    alone_b: Int64
    nodes_a: int
    nodes_b: int

    __repr__ = format_record

    @property
    def matched(self) -> int:
        """Matched pairs of nodes on all ranks."""
        sizes = np.array([len(pair.row_a) for pair in self.pairs], np.int64)
        return int(sizes[self.pairs_of].sum())

    @property
    def share(self) -> float:
        """Share of the nodes of both sides that have a partner, 0 to 1."""
        nodes = self.nodes_a + self.nodes_b
        return 2 * self.matched / nodes if nodes else 1.0

    def partner(self, rank_a: int, row_a: int) -> tuple[int, int] | None:
        """Return rank index and row of the node of B matched with a node of A, None where there is none."""
        return self._find_counterpart(self.rank_a, rank_a, row_a, back=False)

    def partner_back(self, rank_b: int, row_b: int) -> tuple[int, int] | None:
        """Return rank index and row of the node of A matched with a node of B."""
        return self._find_counterpart(self.rank_b, rank_b, row_b, back=True)

    def _find_counterpart(self, ranks: Int64, rank: int, row: int, *, back: bool) -> tuple[int, int] | None:
        places = np.flatnonzero(ranks == rank)
        if not len(places):
            return None
        pairs = self.pairs[int(self.pairs_of[places[0]])]
        own_rows, other_rows = (pairs.row_b, pairs.row_a) if back else (pairs.row_a, pairs.row_b)
        where = np.flatnonzero(own_rows == row)
        other = (self.rank_a if back else self.rank_b)[places[0]]
        return (int(other), int(other_rows[where[0]])) if len(where) else None


def align(trace_a: Trace, trace_b: Trace) -> Alignment:
    """Match the nodes of two runs, of one job or of two.

    Ranks belong together that have the same number; where the traces have none in common, by their order.
    """
    rank_a, rank_b = _match_ranks(trace_a, trace_b)
    roles: tuple[_Roles, _Roles] = (_Roles(trace_a), _Roles(trace_b))
    known: dict[tuple[object, ...], int] = {}
    pairs: list[GraphPairs] = []
    pairs_of = np.zeros(len(rank_a), np.int64)
    by_id = True
    same: dict[tuple[int, int], bool] = {}
    first_a, first_b = _find_first_alike(trace_a), _find_first_alike(trace_b)
    for index, (this, other) in enumerate(zip(rank_a.tolist(), rank_b.tolist(), strict=True)):
        own_rank, other_rank = trace_a.ranks[this], trace_b.ranks[other]
        graphs = first_a[own_rank.graph], first_b[other_rank.graph]
        if graphs not in same:
            same[graphs] = _have_same_nodes(trace_a.graphs[graphs[0]], trace_b.graphs[graphs[1]])
        groups = (None, None) if same[graphs] else (roles[0].of(own_rank), roles[1].of(other_rank))
        by_id = by_id and same[graphs]
        key = (*graphs, *groups)
        if key not in known:
            known[key] = len(pairs)
            pairs.append(_pair_nodes(trace_a, trace_b, graphs, groups))
        pairs_of[index] = known[key]
    return Alignment(
        "id" if by_id else "structure",
        rank_a,
        rank_b,
        pairs_of,
        tuple(pairs),
        np.setdiff1d(np.arange(len(trace_a.ranks)), rank_a),
        np.setdiff1d(np.arange(len(trace_b.ranks)), rank_b),
        trace_a.node_count,
        trace_b.node_count,
    )


def _match_ranks(trace_a: Trace, trace_b: Trace) -> tuple[Int64, Int64]:
    """Return the indices of matching ranks."""
    a, b = (np.array([rank.number for rank in trace.ranks], np.int64) for trace in (trace_a, trace_b))
    _, this, other = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    if not len(this):
        this = other = np.arange(min(len(a), len(b)))
    return this.astype(np.int64), other.astype(np.int64)


_RoleCodes = tuple[tuple[int, int], ...]


class _Roles:
    """The role of the comm group in each slot of a rank: how many ranks it has, and how far apart the first two are."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        everyone = len(trace.ranks)
        self._role = {
            group.name: _compute_role(group) for group in trace.groups if len(group.ranks) < everyone
        }
        peers = [{graph.strings.find(key) for key in _PEER_KEYS} for graph in trace.graphs]
        self._names_group = [
            [key not in codes for key in graph.slot_key.tolist()]
            for graph, codes in zip(trace.graphs, peers, strict=True)
        ]

    def of(self, rank: Rank) -> _RoleCodes:
        """Return the roles of slots; slots for all ranks, and slots that hold no group, have none."""
        names = zip(rank.slots, self._names_group[rank.graph], strict=True)
        return tuple(self._role.get(str(value), _NO_ROLE) if group else _NO_ROLE for value, group in names)


def _compute_role(group: CommGroup) -> tuple[int, int]:
    members = sorted(group.ranks)
    return len(members), members[1] - members[0] if len(members) > 1 else 0


def _pair_nodes(
    trace_a: Trace,
    trace_b: Trace,
    graphs: tuple[int, int],
    groups: tuple[_RoleCodes | None, _RoleCodes | None],
) -> GraphPairs:
    graph_a, graph_b = trace_a.graphs[graphs[0]], trace_b.graphs[graphs[1]]
    if groups[0] is None or groups[1] is None:
        rows = np.arange(len(graph_a))
        return GraphPairs(*graphs, rows, rows, rows[:0], rows[:0])
    row_a, row_b = match_rows(graph_a, graph_b, groups[0], groups[1])
    alone = [
        np.setdiff1d(np.arange(len(graph)), rows, assume_unique=True)
        for graph, rows in ((graph_a, row_a), (graph_b, row_b))
    ]
    return GraphPairs(*graphs, row_a, row_b, *alone)


def _find_first_alike(trace: Trace) -> list[int]:
    """Return for each graph the first with the same structure; recorded times may differ."""
    if len(trace.graphs) == 1:
        return [0]
    known: dict[bytes, int] = {}
    return [known.setdefault(_hash_structure(graph), index) for index, graph in enumerate(trace.graphs)]


def _hash_structure(graph: Graph) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    used, code = np.unique(graph.name, return_inverse=True)
    pool = list(graph.strings)
    texts = [pool[code] for code in used.tolist()]
    # Pools may hold the names in another order.
    place = np.argsort(np.argsort(np.array(texts, dtype=object), kind="stable"), kind="stable")
    state.update(repr(sorted(texts)).encode("utf-8", "surrogatepass"))
    columns = (graph.id, place[code] if len(code) else code, *_read_kinds(graph), group_slots(graph))
    for array in (*columns, graph.ctrl.offsets, graph.ctrl.rows, graph.data.offsets, graph.data.rows):
        state.update(np.ascontiguousarray(array).data)
    return state.digest()


def _have_same_nodes(a: Graph, b: Graph) -> bool:
    """Whether two graphs have the same nodes, row by row: ids, types and names."""
    if a is b:
        return True
    if not (np.array_equal(a.id, b.id) and np.array_equal(a.type, b.type)):
        return False
    codes_a, codes_b, _ = _name_codes(a, b)
    return np.array_equal(codes_a, codes_b)


# ---------------------------------------------------------------------------------------------------
# By structure


def match_rows(a: Graph, b: Graph, roles_a: _RoleCodes = (), roles_b: _RoleCodes = ()) -> tuple[Int64, Int64]:
    """Return matching rows of two graphs, by structure.

    Args:
        a: A graph.
        b: Another.
        roles_a: Per slot of `a` what tells comm groups of one kind from those of another.
        roles_b: Likewise of `b`.
    """
    orders = [np.argsort(compute_issue_order(graph), kind="stable") for graph in (a, b)]
    mates = np.full(len(a), NONE, np.int64), np.full(len(b), NONE, np.int64)
    for (code_a, code_b), rule in _iterate_rounds(a, b, roles_a, roles_b):
        _match_round((code_a[orders[0]], code_b[orders[1]]), mates, rule)
        if (mates[0] >= 0).all() or (mates[1] >= 0).all():
            break
    places = np.flatnonzero(mates[0] >= 0)
    return orders[0][places], orders[1][mates[0][places]]


_Rule = Literal["as many", "between", "any"]
_Codes = tuple[Int64, Int64]


def _iterate_rounds(
    a: Graph, b: Graph, roles_a: _RoleCodes, roles_b: _RoleCodes
) -> Iterator[tuple[_Codes, _Rule]]:
    """Yield codes (N,) per graph that matching nodes must share, the strictest first."""
    names_a, names_b, texts = _name_codes(a, b)
    kinds = _read_kinds(a), _read_kinds(b)
    groups = _group_codes(a, roles_a), _group_codes(b, roles_b)
    exact = _number_rows([names_a, *kinds[0], *groups[0]], [names_b, *kinds[1], *groups[1]])
    yield (
        _number_rows([exact[0], _number_contexts(a, exact[0])], [exact[1], _number_contexts(b, exact[1])]),
        "as many",
    )
    yield exact, "as many"
    yield exact, "between"
    plain = _number_plain_names(texts)
    plain_a, plain_b = plain[names_a], plain[names_b]
    alike = _number_rows([plain_a, *kinds[0], *groups[0]], [plain_b, *kinds[1], *groups[1]])
    yield alike, "as many"
    yield alike, "between"
    loose = _number_rows([plain_a, *kinds[0][:2]], [plain_b, *kinds[1][:2]])
    yield loose, "as many"
    yield loose, "between"
    yield exact, "any"
    yield alike, "any"
    yield loose, "any"


def _name_codes(a: Graph, b: Graph) -> tuple[Int64, Int64, list[str]]:
    """Return (N,) numbers of node names, equal for equal names, and the names."""
    number: dict[str, int] = {}
    columns = []
    for graph in (a, b):
        pool = list(graph.strings)
        used, inverse = np.unique(graph.name, return_inverse=True)
        codes = [number.setdefault(pool[code], len(number)) for code in used.tolist()]
        columns.append(np.array(codes, np.int64)[inverse] if codes else np.zeros(0, np.int64))
    return columns[0], columns[1], list(number)


def simplify_name(name: str) -> str:
    """Return a name in lower case without numbers, shared by the nodes of different steps and layers.

    Example:
        >>> simplify_name("mb3.Layer.12.attn@1_COMP")
        'mb#.layer.#.attn@#_comp'
    """
    return _NUMBERS.sub("#", name).lower()


def _number_plain_names(texts: Sequence[str]) -> Int64:
    number: dict[str, int] = {}
    return np.array([number.setdefault(simplify_name(text), len(number)) for text in texts], np.int64)


def _read_kinds(graph: Graph) -> tuple[Int64, Int64, Int64]:
    """Return (N,) type, collective and size of each node."""
    nodes = collect_comm_nodes(graph)
    collective, size = np.full(len(graph), NONE, np.int64), np.full(len(graph), NONE, np.int64)
    collective[nodes.rows], size[nodes.rows] = nodes.collective, nodes.bytes
    return graph.type.astype(np.int64), collective, size


def _group_codes(graph: Graph, roles: _RoleCodes) -> tuple[Int64, Int64]:
    """Return (N,) size and distance of the comm group of each node, -1 where it has no role."""
    table = np.array([*roles, _NO_ROLE], np.int64)
    slots = group_slots(graph)
    slots[slots >= len(roles)] = NONE
    return table[slots, 0], table[slots, 1]


def _number_rows(a: Sequence[Int64], b: Sequence[Int64]) -> _Codes:
    """Return one number per row for several columns, equal for equal rows."""
    code = np.zeros(len(a[0]) + len(b[0]), np.int64)
    for column_a, column_b in zip(a, b, strict=True):
        column = np.concatenate([column_a, column_b])
        _, number = np.unique(column, return_inverse=True)
        pair = code * (int(number.max(initial=0)) + 1) + number
        _, code = np.unique(pair, return_inverse=True)
    code = code.astype(np.int64)
    return code[: len(a[0])], code[len(a[0]) :]


def _number_contexts(graph: Graph, code: Int64) -> Int64:
    """Return (N,) a number that is equal for nodes that wait for equal nodes."""
    mixed = _mix(code)
    context = np.zeros(len(graph), np.uint64)
    for deps in (graph.ctrl, graph.data):
        of, parent = list_edges(deps)
        np.add.at(context, of, mixed[parent])
        context = _mix(context.view(np.int64))
    return context.view(np.int64)


def _mix(values: Int64) -> UInt64:
    mixed = values.view(np.uint64) * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _ODD
    return mixed ^ (mixed >> np.uint64(32))


def _match_round(codes: _Codes, mates: tuple[Int64, Int64], rule: _Rule) -> None:
    """Match unmatched nodes by code: the n-th of one side with the n-th of the other, in order of issue.

    `between`: only where as many firm pairs stand before both, those of a longest list in one order on both sides.
    """
    left = [np.flatnonzero(mate < 0) for mate in mates]
    code_a, code_b = codes[0][left[0]], codes[1][left[1]]
    if rule == "between":
        firm = np.flatnonzero(mates[0] >= 0)
        firm = firm[_find_longest_rising(mates[0][firm])]
        between = [
            np.searchsorted(rows_between, rows)
            for rows_between, rows in zip((firm, mates[0][firm]), left, strict=True)
        ]
        code_a, code_b = _number_rows([code_a, between[0]], [code_b, between[1]])
    this, other = _pair_nth(code_a, code_b, as_many=rule == "as many")
    mates[0][left[0][this]], mates[1][left[1][other]] = left[1][other], left[0][this]


def _pair_nth(a: Int64, b: Int64, *, as_many: bool) -> tuple[Int64, Int64]:
    """Return indices of the n-th of each code on both sides; `as_many`: only codes equally frequent on both."""
    codes = int(max(a.max(initial=-1), b.max(initial=-1))) + 1
    keep = np.ones(codes, bool)
    if as_many:
        keep = np.bincount(a, minlength=codes) == np.bincount(b, minlength=codes)
    this, other = np.flatnonzero(keep[a]), np.flatnonzero(keep[b])
    most = len(a) + len(b) + 1
    key_a, key_b = a[this] * most + _count_before(a[this]), b[other] * most + _count_before(b[other])
    _, at_a, at_b = np.intersect1d(key_a, key_b, assume_unique=True, return_indices=True)
    return this[at_a], other[at_b]


def _count_before(code: Int64) -> Int64:
    """Return (N,) how many of the same code come before each."""
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(code) else order
    nth = np.empty(len(code), np.int64)
    nth[order] = np.arange(len(code)) - np.repeat(starts, np.diff(np.append(starts, len(code))))
    return nth


def _find_longest_rising(values: Int64) -> Int64:
    """Return the indices of a longest rising subsequence of `values`."""
    if (np.diff(values) > 0).all():
        return np.arange(len(values))
    ends: list[int] = []
    at_end: list[int] = []
    before = np.full(len(values), NONE, np.int64)
    for place, value in enumerate(values.tolist()):
        length = bisect_left(ends, value)
        if length:
            before[place] = at_end[length - 1]
        if length == len(ends):
            ends.append(value)
            at_end.append(place)
        else:
            ends[length], at_end[length] = value, place
    chain, place = [], at_end[-1] if at_end else NONE
    links = before.tolist()
    while place != NONE:
        chain.append(place)
        place = links[place]
    return np.array(chain[::-1], np.int64)
