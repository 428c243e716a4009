"""A rank as a pandas table and as a networkx graph."""

from __future__ import annotations

import networkx as nx
import pandas as pd
import pytest

import studio
from studio.analysis.job import export
from studio.errors import TraceError
from studio.samples import sample_path
from tests.handmade import node, trace_of


@pytest.fixture(scope="module")
def trace() -> studio.Trace:
    """Eight ranks."""
    return studio.read(sample_path("transformer_8r"))


def test_the_table_has_a_row_per_node(trace: studio.Trace) -> None:
    """Counts and sums agree with the columns; ids of dependencies are those of the file."""
    table = studio.to_pandas(trace, 3)
    graph = trace.graph_of(trace.ranks[3])
    assert len(table) == len(graph)
    assert table["duration_ns"].sum() == graph.duration_ns.sum()
    assert table["bytes"].sum() == table.loc[table["type"].str.startswith("COMM"), "bytes"].sum() > 0
    assert set(table["group"].dropna()) >= {"tp1", "dp1", "world"}
    known = set(table["id"])
    assert all(set(ids) <= known for ids in table["data_deps"])
    assert table["data_deps"].map(len).sum() == len(graph.data.rows)


def test_a_start_that_was_not_recorded_is_missing(shared) -> None:
    """Not 0 and not -1, which would pass for times."""
    table = studio.to_pandas(studio.read(shared / "traces" / "stg" / "llama_8r_tp8"), 0)
    assert table["start_ns"].isna().all()
    assert isinstance(table["start_ns"].dtype, pd.Int64Dtype)


def test_the_graph_is_the_dependencies(trace: studio.Trace) -> None:
    """Edges lead from what is waited for to what waits, and the sample has no cycle."""
    graph = studio.to_networkx(trace, 0)
    columns = trace.graph_of(trace.ranks[0])
    assert graph.number_of_edges() == len(columns.ctrl.rows) + len(columns.data.rows)
    assert nx.is_directed_acyclic_graph(graph)
    starts = nx.get_node_attributes(graph, "start_ns")
    assert all(starts[before] <= starts[after] for before, after in graph.edges())


def test_each_rank_has_its_own_groups_and_peers() -> None:
    """Ranks that share a graph differ in the values of its slots."""
    shared = studio.read(sample_path("transformer_32r"))
    groups = [set(studio.to_pandas(shared, rank)["group"].dropna()) for rank in (0, 4)]
    assert shared.ranks[0].graph == shared.ranks[4].graph
    assert groups[0] != groups[1]


def test_time_in_which_nothing_ran_is_no_compute() -> None:
    """It is written as compute; summed as such it would contradict what `info` says."""
    nodes = [
        node(1, "COMP", micros=5, is_cpu_op=True),
        node(2, "COMP", 1, name="host gap", micros=7, is_cpu_op=True, gap="program"),
        node(3, "COMP", 1, micros=11, is_cpu_op=False, stream=7),
        node(4, "COMP", 3, name="device gap", micros=13, is_cpu_op=False, stream=7, gap="stall"),
        node(5, "COMP", 4, name="ncclDevKernel_AllReduce", micros=17, is_cpu_op=False, stream=9),
    ]
    job = trace_of([nodes])
    table = studio.to_pandas(job, 0)
    expected = ["COMP", "host gap", "COMP", "device gap", "communication kernel"]
    assert table["type"].tolist() == expected == studio.to_arrow(job)["type"].to_pylist()
    assert [of["type"] for _, of in studio.to_networkx(job, 0).nodes(data=True)] == expected
    kernels = table[(table["type"] == "COMP") & ~table["is_cpu_op"]]
    assert kernels["duration_ns"].sum() == 11_000
    assert table["stream"].tolist()[2:] == [7, 7, 9]
    assert table["stream"].isna().tolist() == [True, True, False, False, False]
    assert "<td>gap</td><td>2</td>" in job._repr_html_()


def test_an_unknown_rank_is_named(trace: studio.Trace) -> None:
    """With those that exist."""
    with pytest.raises(TraceError, match="no rank 99"):
        studio.to_networkx(trace, 99)


def test_ranks_that_share_a_graph_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of all ranks is what the tables of each say, comm groups included, though each graph is looked at once."""
    trace = studio.generate("gpt3-125m", ranks=4, tp=2, batch=4)
    assert len(trace.graphs) == 1
    apart = [studio.to_pandas(trace, rank) for rank in trace.ranks]
    built = []
    ids = export._list_dependency_ids
    monkeypatch.setattr(export, "_list_dependency_ids", lambda *given: built.append(1) or ids(*given))
    whole = studio.to_pandas(trace)
    assert len(built) == 2
    for rank, own in zip(trace.ranks, apart, strict=True):
        mine = whole[whole["rank"] == rank.number].drop(columns="rank").reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, own, check_categorical=False)
    assert len(set(whole["group"].dropna())) > 2
