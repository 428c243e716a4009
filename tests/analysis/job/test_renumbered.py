"""Ranks that differ in the ids of their nodes alone share a graph; nothing else is taken for that."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace

import numpy as np

from studio.analysis.collectives.groups import sum_group_use
from studio.analysis.collectives.messages import match_messages
from studio.analysis.job import renumbered
from studio.analysis.job.renumbered import find_first_beside_ids, share_graphs
from studio.analysis.job.summary import count_unsized, summarise
from studio.completion.clues import collect_facts
from studio.doctor import examine
from studio.operators.report import list_operators
from studio.sim.systems.uses import uses_of
from studio.trace import Graph, Trace
from tests.handmade import collective, node, number_throughout, trace_of


def job() -> Trace:
    """Three ranks: two alike, of which each waits for itself, and one with another duration."""
    alike = [node(0, "COMP", micros=5), node(1, "COMP", 0, 1, micros=7)]
    other = [node(0, "COMP", micros=5), node(1, "COMP", 0, micros=9)]
    return trace_of([other, alike, alike])


def test_ranks_whose_ids_run_on_share_the_graph_of_the_first() -> None:
    trace = number_throughout(job())
    shared = share_graphs(trace)
    assert [rank.graph for rank in shared.ranks] == [0, 1, 1]
    assert shared.graph_of(2) is trace.graph_of(1)
    assert share_graphs(trace) is shared
    assert share_graphs(shared) is shared
    one = job()
    assert share_graphs(one) is one


def test_graphs_come_in_the_order_of_their_ranks() -> None:
    """Whatever order a job lists its graphs in, a finding names the node of the first rank that it is about."""
    trace = number_throughout(job())
    ranks = tuple(replace(rank, graph=2 - rank.graph) for rank in trace.ranks)
    turned = replace(trace, graphs=trace.graphs[::-1], ranks=ranks)
    assert share_graphs(turned).graph_of(2) is trace.graph_of(1)


def test_what_is_kept_goes_with_the_job() -> None:
    trace = number_throughout(job())
    share_graphs(trace)
    address = id(trace)
    assert address in renumbered._known
    del trace
    gc.collect()
    assert address not in renumbered._known


def renumber(graph: Graph, *ids: int) -> Graph:
    return replace(graph, id=np.array(ids, np.uint64))


def test_equal_columns_of_other_files_are_found() -> None:
    """Jobs that were stored have no array in common."""
    graphs = number_throughout(job()).graphs
    copies = [pickle.loads(pickle.dumps(graph)) for graph in graphs]
    assert find_first_beside_ids([*graphs, *copies]) == [0, 1, 1, 0, 1, 1]


def test_another_order_of_ids_or_another_column_is_another_graph() -> None:
    graph = job().graph_of(1)
    apart = [
        renumber(graph, 3, 2),
        renumber(graph, 4, 4),
        replace(graph, duration_ns=graph.duration_ns[::-1].copy()),
        replace(graph, name=graph.name[::-1].copy()),
    ]
    assert find_first_beside_ids([graph, *apart]) == [0, 1, 2, 3, 4]
    turned = [renumber(graph, 9, 1), renumber(graph, 8, 2), renumber(graph, 5, 5), renumber(graph, 6, 6)]
    assert find_first_beside_ids([graph, *turned]) == [0, 1, 1, 3, 3]


def test_what_such_ranks_have_in_common_is_said_once() -> None:
    """Of all of them, by the node of the first."""
    trace = number_throughout(job())
    [found] = [one for one in examine(trace) if one.level == "error"]
    assert found.message == "2 nodes of ranks 1–2 wait for themselves, the first is node 4 (n1)."
    told = summarise(trace)
    assert (told.graphs, told.nodes) == (3, 6)
    assert replace(told, graphs=2) == summarise(job())


def test_what_looks_at_no_ids_says_the_same() -> None:
    nodes = [
        node(0, "COMP", name="aten::mm", micros=5),
        collective(1, "ALL_REDUCE", 1 << 20, 0, group="a"),
        collective(2, "ALL_GATHER", 1 << 10, 1),
        node(3, "COMM_COLL", 2, comm_type=0),
    ]
    there = node(4, "COMM_SEND", 3, comm_dst=1, comm_tag=7, comm_size=64)
    back = node(4, "COMM_RECV", 3, comm_src=0, comm_tag=7, comm_size=64)
    trace = trace_of([[*nodes, there], [*nodes, back], nodes, nodes], {"a": [0, 1, 2, 3]})
    numbered = number_throughout(trace)
    assert len(share_graphs(numbered).graphs) == len(trace.graphs) == 3
    for look in (sum_group_use, match_messages, count_unsized, list_operators, uses_of):
        assert repr(look(numbered)) == repr(look(trace)), look
    known, same = collect_facts(numbered), collect_facts(trace)
    assert (known.uses, known.steps, known.clues) == (same.uses, same.steps, same.clues)
