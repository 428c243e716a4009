"""Spread the experts of a job over more ranks, which tokens reach evenly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from studio.completion.layers import match_names
from studio.completion.mesh import Mesh
from studio.completion.rules import EXPERT
from studio.completion.surgery import with_values
from studio.errors import ConfigError
from studio.trace import (
    NONE,
    Bool,
    CollectiveType,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    group_slots,
    read_dense_column,
)

_EXPERT = re.compile(r"expert|(?:^|[^a-z0-9])moe(?![a-z0-9])", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|adam|sgd|lamb|adagrad", re.IGNORECASE)


def with_balanced_experts(trace: Trace, mesh: Mesh, factor: int) -> Trace:
    """Return a job whose ranks send and compute the mean of what they did for the experts, and hold fewer of them.

    Args:
        trace: The job.
        mesh: Its mesh.
        factor: How many times as many ranks share the experts.

    Raises:
        ConfigError: Ranks of a stage do not work alike for the experts, nothing is exchanged along the expert dimension by
            all-to-all, or sizes of weights of experts do not divide.
    """
    along = _find_expert_groups(trace, mesh)
    sent = {
        rank.number: _match_exchanges(trace.graph_of(rank), rank, along, CollectiveType.ALL_TO_ALL)
        for rank in trace.ranks
    }
    if not any(rows.any() for rows in sent.values()):
        raise ConfigError(
            "ep cannot be scaled: no all-to-all goes along the expert dimension",
            hint="Only jobs that send tokens to their experts by all-to-all can be scaled so.",
        )
    _refuse_parts(trace, along)
    graphs: list[Graph] = []
    new_ranks: dict[int, Rank] = {}
    stages = sorted({mesh.stage(rank.number) for rank in trace.ranks})
    for stage in stages:
        ranks = [rank for rank in trace.ranks if mesh.stage(rank.number) == stage]
        tables = [_collect_numbers(trace.graph_of(rank), sent[rank.number]) for rank in ranks]
        if any(
            len(column) != len(first_column)
            for table in tables
            for column, first_column in zip(table, tables[0], strict=True)
        ):
            raise ConfigError(
                "ep cannot be scaled: ranks of a pipeline stage have different numbers of all-to-alls, or of nodes of experts",
                hint="What tokens would do on more ranks cannot be told from such a job.",
            )
        means = [np.rint(np.mean(column, axis=0)).astype(np.int64) for column in zip(*tables, strict=True)]
        place: dict[int, int] = {}
        for rank in ranks:
            if rank.graph not in place:
                place[rank.graph] = len(graphs)
                graphs.append(_balance_work(trace.graph_of(rank), sent[rank.number], means, factor))
            new_ranks[rank.number] = replace(rank, graph=place[rank.graph])
    return replace(trace, graphs=tuple(graphs), ranks=tuple(new_ranks[rank.number] for rank in trace.ranks))


def _find_expert_groups(trace: Trace, mesh: Mesh) -> frozenset[str]:
    """Return the comm groups whose members differ along the expert dimension."""
    axis = mesh.axis(EXPERT)
    if axis is None:
        return frozenset()
    return frozenset(
        group.name for group in trace.groups if len({axis.place(member) for member in group.ranks}) > 1
    )


def _match_exchanges(graph: Graph, rank: Rank, along: frozenset[str], *kinds: CollectiveType) -> Bool:
    """Return (N,) which nodes are collectives of some kinds in groups along the expert dimension."""
    slots = group_slots(graph)
    inside = np.array([str(value) in along for value in rank.slots] + [False], np.bool_)
    chosen: Bool = (graph.type == NodeType.COMM_COLL) & inside[slots]
    chosen &= np.isin(read_dense_column(graph, "comm_type", NONE), kinds)
    return chosen


def _refuse_parts(trace: Trace, along: frozenset[str]) -> None:
    """Refuse gathered or scattered parts along the expert dimension, of which it is not known what they are parts of."""
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        parts = _match_exchanges(graph, rank, along, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
        if parts.any():
            row = int(np.flatnonzero(parts)[0])
            raise ConfigError(
                f"ep cannot be scaled: node {graph.id[row]} ({graph.strings[int(graph.name[row])]!r}) of rank {rank.number} gathers "
                "or scatters parts along the expert dimension, and nothing tells whether of tokens or of weights",
                hint="Scale replicas by --dp instead.",
            )


def _match_expert_work(graph: Graph) -> Bool:
    """Return (N,) which compute nodes work on tokens for the experts, by their names."""
    chosen: Bool = (
        (graph.type == NodeType.COMP) & match_names(graph, _EXPERT) & ~match_names(graph, _OPTIMIZER)
    )
    return chosen


def _collect_numbers(graph: Graph, sent: Bool) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the bytes of a rank's all-to-alls, and durations, operations and tensor bytes of its work for the experts."""
    work = _match_expert_work(graph)
    return (
        read_dense_column(graph, "comm_size", 0)[sent],
        graph.duration_ns[work],
        read_dense_column(graph, "num_ops", 0)[work],
        read_dense_column(graph, "tensor_size", 0)[work],
    )


def _balance_work(graph: Graph, sent: Bool, means: Sequence[Int64], factor: int) -> Graph:
    """Return a graph with the mean of what ranks do for the experts, and a share of the weights of experts."""
    work = _match_expert_work(graph)
    duration = graph.duration_ns.copy()
    duration[work] = means[1]
    done = with_values(graph, "comm_size", np.flatnonzero(sent).tolist(), means[0].tolist())
    for key, column in (("num_ops", means[2]), ("tensor_size", means[3])):
        done = with_values(done, key, np.flatnonzero(work).tolist(), column.tolist())
    weights = match_names(graph, _EXPERT) & ~sent & ~work
    weights &= (graph.type == NodeType.COMM_COLL) | match_names(graph, _OPTIMIZER)
    for key in ("comm_size", "num_ops", "tensor_size"):
        rows = np.flatnonzero(weights & (read_dense_column(graph, key, NONE) > 0))
        values = read_dense_column(graph, key, NONE)[rows]
        bad = np.flatnonzero(values % factor)
        if len(bad):
            row = int(rows[bad[0]])
            raise ConfigError(
                f"{key} of node {graph.id[row]} ({graph.strings[int(graph.name[row])]!r}) is {int(values[bad[0]]):,}, which {factor} "
                "times as many ranks of experts cannot share evenly",
                hint="Choose a number that divides it.",
            )
        done = with_values(done, key, rows.tolist(), (values // factor).tolist())
    duration[weights & (graph.type == NodeType.COMP)] //= factor
    return replace(done, duration_ns=duration)
