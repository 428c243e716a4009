"""What ranks compute, matched between them: the same operation on different ranks, and what it took."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import describe_group
from studio.analysis.collectives.members import Members
from studio.analysis.collectives.messages import match_channels
from studio.analysis.job.kinds import COMPUTE, computes_on_processor, infer_node_kinds
from studio.distinct import find_distinct
from studio.trace import NONE, Bool, Graph, Int64, Trace, is_flagged, read_dense_column


@dataclass(frozen=True, slots=True)
class Work:
    """Compute of the ranks of a stage, a column per rank.

    R ranks, K operations that all of them have: a name, and which of that name it is.

    Attributes:
        places: (R,) places of the ranks in the trace.
        rows: (K, R) the node of each rank.
        took_ns: (K, R) how long it took in the baseline.
        amount: (K, R) its operations, -1 where the trace tells none.
        total_ns: (R,) all compute of the rank, matched or not.
    """

    places: Int64
    rows: Int64
    took_ns: Int64
    amount: Int64
    total_ns: Int64

    @property
    def equal(self) -> Bool:
        """(K,) which operations are as much work on every rank, by what the trace says."""
        first = self.amount[:, :1]
        return np.asarray(((self.amount == first) & (first >= 0)).all(axis=1))


def list_compute_rows(graph: Graph) -> Int64:
    """Return the rows of nodes that compute: those of the device where it has any, else the operators of the host; no gaps.

    Kernels of communication libraries do not, whatever is known of them.
    """
    device = infer_node_kinds(graph) == COMPUTE
    if (graph.duration_ns[device] > 0).any() or read_dense_column(graph, "num_ops", 0)[device].any():
        return np.flatnonzero(device)
    on_host = computes_on_processor(graph) & is_flagged(graph, "is_cpu_op")
    return np.flatnonzero(on_host & (graph.duration_ns > 0))


def index_compute_rows(trace: Trace, places: Iterable[int]) -> dict[int, Int64]:
    """Return by place the rows of nodes that compute of some ranks, looked for once in a graph that ranks share."""
    of_graph: dict[int, Int64] = {}
    rows_of = {}
    for place in places:
        index = trace.ranks[place].graph
        if index not in of_graph:
            of_graph[index] = list_compute_rows(trace.graphs[index])
        rows_of[place] = of_graph[index]
    return rows_of


def match_work(scene: Scene, places: Int64) -> Work:
    """Return the compute of some ranks, matched by name and by which of that name it is."""
    trace = scene.trace
    codes = _Codes()
    rows_of = {}
    keys_of = {}
    for index in {trace.ranks[place].graph for place in places.tolist()}:
        graph = trace.graphs[index]
        rows = list_compute_rows(graph)
        rows_of[index] = rows
        keys_of[index] = _number_operations(graph, rows, codes)
    common = None
    for keys in keys_of.values():
        common = np.sort(keys) if common is None else np.intersect1d(common, keys, assume_unique=True)
    assert common is not None
    shape = len(common), len(places)
    table, took, amount = (np.full(shape, NONE, np.int64) for _ in range(3))
    total = np.zeros(len(places), np.int64)
    for column, place in enumerate(places.tolist()):
        index = trace.ranks[place].graph
        rows, keys = rows_of[index], keys_of[index]
        order = np.argsort(keys, kind="stable")
        picked = rows[order[np.searchsorted(keys[order], common)]]
        lasted = scene.took_ns(place)
        table[:, column], took[:, column] = picked, lasted[picked]
        amount[:, column] = read_dense_column(trace.graphs[index], "num_ops", NONE)[picked]
        total[column] = int(lasted[rows].sum())
    return Work(places, table, took, amount, total)


_TURNS = 1 << 32


class _Codes:
    """Numbers of the names of operations; graphs with the same texts, such as those of generated ranks, are read once."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._known: dict[bytes, dict[int, int]] = {}

    def of(self, graph: Graph, rows: Int64) -> Int64:
        """Return (S,) the number of the name of each row, the same in all graphs."""
        names, of = np.unique(graph.name[rows], return_inverse=True)
        pool = hashlib.blake2b(graph.strings.data.data, digest_size=16)
        pool.update(graph.strings.offsets.data)
        known = self._known.setdefault(pool.digest(), {})
        for name in names.tolist():
            if name not in known:
                text = graph.strings[name] if name >= 0 else ""
                known[name] = self._codes.setdefault(text, len(self._codes))
        return np.array([known[name] for name in names.tolist()], np.int64)[of]


def _number_operations(graph: Graph, rows: Int64, codes: _Codes) -> Int64:
    """Return a number of each row that equals that of the same operation elsewhere: name, and how many came before."""
    code = codes.of(graph, rows)
    order = np.lexsort((graph.id[rows], code))
    starts = np.append(True, np.diff(code[order]) != 0)[: len(order)]
    begin = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - begin
    return code * _TURNS + turn


def find_stages(trace: Trace, groups: dict[str, tuple[int, ...]]) -> list[Int64]:
    """Return the places of the ranks of each pipeline stage, by lowest rank.

    Ranks are of one stage where a comm group joins them, directly or by way of others, in which nobody sends messages to
    another member; without messages all ranks are one stage.

    Args:
        trace: The job.
        groups: Ranks of the comm groups that collectives use.
    """
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    channels = match_channels(trace)
    if not len(channels):
        return [np.arange(len(place))]
    label = np.arange(len(place))
    for ranks in groups.values():
        inside = np.array(ranks, np.int64)
        if (np.isin(channels.source, inside) & np.isin(channels.target, inside)).any():
            continue
        labels = find_distinct(label[[place[rank] for rank in ranks if rank in place]])
        if len(labels):
            label[np.isin(label, labels)] = labels[0]
    return [np.flatnonzero(label == first) for first in find_distinct(label).tolist()]


def index_group_ranks(scene: Scene) -> dict[str, tuple[int, ...]]:
    """Return the ranks of every comm group that a collective uses."""
    members = scene.members
    ranks_of = {}
    seen, first = np.unique(members.group, return_index=True)
    for group, at in zip(seen.tolist(), first.tolist(), strict=True):
        places = members.rank[members.offsets[at] : members.offsets[at + 1]].tolist()
        ranks_of[members.groups[group]] = tuple(scene.trace.ranks[place].number for place in places)
    return ranks_of


def find_parallel_groups(members: Members) -> list[list[int]]:
    """Return groups that do the same side by side: as many ranks, the same collectives in the same order, no rank in common.

    Groups are indices into `Members.groups`; those of one rank, or without collectives, are left out.
    """
    if not len(members):
        return []
    by_key: dict[tuple[int, bytes], list[tuple[list[int], set[int]]]] = {}
    order = np.lexsort((members.position, members.group))
    seen, first = np.unique(members.group[order], return_index=True)
    for group, collectives in zip(seen.tolist(), np.split(order, first[1:]), strict=True):
        at = int(collectives[0])
        ranks = set(members.rank[members.offsets[at] : members.offsets[at + 1]].tolist())
        if len(ranks) < 2:
            continue
        key = len(ranks), members.type[collectives].tobytes()
        families = by_key.setdefault(key, [])
        free = next((family for family in families if not family[1] & ranks), None)
        if free is None:
            free = ([], set())
            families.append(free)
        free[0].append(group)
        free[1].update(ranks)
    every = [groups for families in by_key.values() for groups, _ in families]
    return sorted(every, key=lambda groups: groups[0])


def select_complete(members: Members, collectives: Int64) -> tuple[Int64, Int64]:
    """Return those collectives of a group in which as many ranks take part as in any, and the same ones as in the first of these.

    Args:
        members: All collectives.
        collectives: Some of one group, at least one.

    Returns:
        (C,) the collectives, and (C, R) where their members stand.
    """
    count = np.diff(members.offsets)[collectives]
    most = int(count.max())
    chosen = collectives[count == most]
    where = members.offsets[chosen][:, None] + np.arange(most)
    ranks = members.rank[where]
    same = (ranks == ranks[0]).all(axis=1)
    return chosen[same], where[same]


def describe_groups(names: Sequence[str]) -> str:
    """Return how a sentence names parallel groups.

    Example:
        >>> describe_groups(["tp0"]), describe_groups(["tp0", "tp1", "tp2"])
        ('tp0', 'tp0 and 2 groups like it')
    """
    more = (
        f" and {len(names) - 1:,} groups like it"
        if len(names) > 2
        else f" and {describe_group(names[1])}"
        if len(names) == 2
        else ""
    )
    return f"{describe_group(names[0])}{more}"
