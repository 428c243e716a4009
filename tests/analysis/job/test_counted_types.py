"""Nodes written as compute that are none are shown as what they are."""

from __future__ import annotations

import numpy as np
import pytest

from studio import read
from studio.analysis.graph.neighbours import build_adjacency, select_whole_graph
from studio.analysis.graph.search import number_kinds
from studio.analysis.job.kinds import infer_counted_type, infer_counted_types, label_counted_type
from studio.analysis.job.node_conditions import Condition
from studio.analysis.job.nodes import NodeIndex, Query
from studio.figures import graph as figure
from studio.figures.graph_exchange import write_dot, write_graphml
from studio.figures.theme import LIGHT
from studio.trace import Trace
from tests.handmade import collective, node, trace_of

KINDS = [
    "COMP",
    "host gap",
    "device gap",
    "device gap",
    "assumed arrival",
    "host gap",
    "communication kernel",
    "COPY",
    "COMM_COLL",
]


def job() -> Trace:
    return trace_of([
        [
            node(0, "COMP", name="gemm"),
            node(1, "COMP", 0, name="host gap", is_cpu_op=True, gap="between"),
            node(2, "COMP", 1, name="device gap", gap="idle"),
            node(3, "COMP", 2, name="device gap", gap="stall"),
            node(4, "COMP", 3, name="host", gap="arrival"),
            node(5, "COMP", 4, name="host gap", is_cpu_op=True, gap="idle"),
            node(6, "COMP", 5, name="ncclDevKernel_Generic_4(x)"),
            node(7, "COMP", 6, name="Memcpy DtoH"),
            collective(8, "ALL_REDUCE", 8, 7),
        ]
    ])  # fmt: skip


def test_one_node_has_the_type_that_it_has_among_all() -> None:
    graph = job().graphs[0]
    types = infer_counted_types(graph).tolist()
    assert [label_counted_type(number) for number in types] == KINDS
    assert [infer_counted_type(graph, row) for row in range(len(graph))] == types


def test_nodes_lists_and_filters_gaps_as_gaps() -> None:
    trace = job()
    index = NodeIndex(trace)
    assert [one.type for one in index.rows(Query(), 0, 9)] == KINDS
    gaps = Query(conditions=((Condition("type", "contains", "gap"),),))
    assert [one.id for one in index.rows(gaps, 0, 9)] == [1, 2, 3, 5]


def test_the_graph_tells_gaps_from_compute() -> None:
    graph = job().graphs[0]
    legend = {
        look.title: (look.colour, count) for look, count in figure.count_looks(graph, np.arange(len(graph)))
    }
    assert legend == {
        "compute": ("compute", 1), "host gap": ("host", 2), "device gap": ("border", 2), "assumed arrival": ("host", 1),
        "communication kernel": ("collective", 1), "copy": ("copy", 1), "collective": ("collective", 1),
    }  # fmt: skip
    kinds = [one["kind"] for one in figure.build_node_data(graph, np.arange(len(graph)))]
    assert kinds == ["comp", "gap", "idle", "idle", "arrival", "gap", "kernel", "copy", "coll"]
    assert {kind for kind, _ in number_kinds(graph).distinct} == set(infer_counted_types(graph).tolist())


def test_files_of_the_graph_say_what_gaps_count_as() -> None:
    trace = job()
    part = select_whole_graph(build_adjacency(trace.graphs[0]))
    text = b"".join(write_graphml(trace.graphs[0], trace.ranks[0], part)).decode()
    assert 'attr.name="counted_as"' in text
    assert [
        text.count(f">{name}</data>")
        for name in ("device gap", "assumed arrival", "communication kernel", "COMP")
    ] == [4, 1, 1, 8]
    assert (
        f'"fillcolor"="{LIGHT.border}40"'
        in b"".join(write_dot(trace.graphs[0], trace.ranks[0], part)).decode()
    )


@pytest.mark.parametrize("name", ["torch/dlrm_4r", "torch_synthetic_device/dlrm_4r"])
def test_it_is_so_for_every_node_of_a_recording(name: str, shared) -> None:
    graph = read(shared / "traces" / name).graphs[0]
    types = infer_counted_types(graph)
    assert [infer_counted_type(graph, row) for row in range(len(graph))] == types.tolist()
    assert "host gap" in {label_counted_type(number) for number in types.tolist()}
