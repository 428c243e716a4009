"""A job in a few numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import studio
from studio.analysis.collectives.groups import sum_group_use
from studio.analysis.job.summary import Share, summarise
from studio.trace import NONE, Trace
from tests.analysis.jobs import five


def test_five_nodes_on_two_ranks_and_one_on_a_third():
    """Shared graphs count once per rank; least and most are of single ranks, also of those that have none."""
    found = summarise(five())
    assert (found.ranks, found.graphs, found.nodes) == (3, 2, 11)
    assert (found.data_dependencies, found.control_dependencies) == (10, 2)
    assert found.types == (
        Share("COMM_COLL", 5, 1, 2, 13216, 4000, 4608, 13216 / 3, NONE, 600, 300, NONE),
        Share("COMP", 4, 0, 2, duration_ns=400, duration_most_ns=200),
        Share("COMM_SEND", 2, 0, 1, 200, 0, 100, 200 / 3),
    )
    assert found.collectives == (
        Share("ALL_REDUCE", 3, 1, 1, 12192, 4000, 4096, 4064.0, NONE, 600, 300, NONE),
        Share("ALL_GATHER", 2, 0, 1, 1024, 0, 512, 1024 / 3),
        Share("SEND", 2, 0, 1, 200, 0, 100, 200 / 3),
    )
    assert found.operations == 8000
    assert (found.start_ns, found.end_ns, found.timed_nodes, found.duration_ns) == (5000, 5500, 6, 1000)
    assert found.schema == ("1.0.0", "1.1.1")


def test_a_trace_without_ranks_has_no_times():
    found = summarise(Trace((), ()))
    assert (found.ranks, found.nodes, found.types, found.collectives) == (0, 0, (), ())
    assert (found.start_ns, found.end_ns) == (-1, -1)


@pytest.mark.parametrize("name", ["gpt_8r_dp2tp4", "llama_16r_dp4tp4", "llama_8r_dp2tp2pp2"])
def test_real_jobs_have_the_counts_of_another_reader(shared: Path, name: str):
    """Nodes, types, dependencies, operations, and bytes of every comm group on every rank."""
    expected = json.loads((shared / "traces" / "expected.json").read_text())[f"stg/{name}"]["per_rank"]
    trace = studio.read(shared / "traces" / "stg" / name)
    found = summarise(trace)
    per_rank = list(expected.values())
    types = {kind for rank in per_rank for kind in rank["by_type"]}
    assert {share.name: share.nodes for share in found.types} == {
        kind.removesuffix("_NODE"): sum(rank["by_type"].get(kind, 0) for rank in per_rank) for kind in types
    }
    assert found.nodes == sum(rank["nodes"] for rank in per_rank)
    assert found.data_dependencies == sum(rank["data_deps"] for rank in per_rank)
    assert found.control_dependencies == sum(rank["ctrl_deps"] for rank in per_rank)
    assert found.operations == sum(rank["num_ops_sum"] for rank in per_rank)
    cells: dict[tuple[str, int], list[int]] = {}
    for number, rank in expected.items():
        for kind, one in rank["collectives"].items():
            cell = cells.setdefault((kind.rpartition("pg=")[2], int(number)), [0, 0])
            cell[0] += one["count"]
            cell[1] += one["comm_size_sum"]
    use = sum_group_use(trace)
    columns = (use.group.tolist(), use.rank.tolist(), use.count.tolist(), use.bytes.tolist())
    assert {
        (use.groups[group], use.ranks[rank]): [count, size]
        for group, rank, count, size in zip(*columns, strict=True)
        if count
    } == cells
