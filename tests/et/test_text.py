"""ASTRA-sim's text workloads: the reference's graphs for the kinds it knows, and hand-made ones for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import studio
from studio.errors import TraceError, TraceFormatError
from studio.et import NpusNeededError
from studio.trace import Trace, list_node_attributes, type_name

TRANSFORMER = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 3 ga: 1 all_gpus: 8 {checkpoints}
3
a -1 10 ALLREDUCE 64 5 NONE 0 7 NONE 0 1
moe -1 10 ALLTOALL_EP 1024 5 ALLTOALL_EP 1024 7 ALLGATHER_DP_EP 4096 1
b -1 10 NONE 0 5 REDUCESCATTER 1024 7 REDUCESCATTER 4096 1
"""


def nodes(trace: Trace, number: int) -> list[tuple[object, ...]]:
    """What a rank runs; ids are counted from its first node."""
    rank = trace.rank(number)
    graph = trace.graph_of(rank)
    first = int(graph.id[0])
    return [
        (
            type_name(int(graph.type[row])),
            graph.strings[graph.name[row]],
            int(graph.duration_ns[row]),
            sorted(int(graph.id[at]) - first for at in graph.data.of(row)),
            len(graph.ctrl.of(row)),
            sorted((attr.name, attr.value) for attr in list_node_attributes(graph, row, rank.slots)),
        )
        for row in range(len(graph))
    ]


def names(trace: Trace) -> list[str]:
    return [node[1].removeprefix("COMP_NODE_").removeprefix("COMM_COLL_NODE_") for node in nodes(trace, 0)]


def written(tmp_path: Path, text: str, name: str = "w.txt") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "kind",
    ["data_4l", "hybrid_data_model_4l", "hybrid_dlrm_4l", "hybrid_model_data_4l", "micro_2", "model_4l"],
)
def test_the_graphs_are_those_of_the_reference(shared, kind):
    """Types, names, durations, dependencies, collectives and sizes of four ranks and two passes.

    The one difference is deliberate: ids begin at 0 on every rank, in the reference they run on from rank to rank.
    """
    trace = studio.read(shared / "traces" / "text" / f"{kind}.txt", npus=4, passes=2)
    assert [rank.number for rank in trace.ranks] == [0, 1, 2, 3]
    for rank in trace.ranks:
        golden = studio.read(shared / "traces" / "golden" / "text" / f"{kind}.{rank.number}.et")
        assert nodes(trace, rank.number) == nodes(golden, rank.number)
        assert int(trace.graph_of(rank).id[0]) == 0
    assert len(trace.graphs) == 1


def test_groups_follow_from_the_sizes_in_the_first_line(tmp_path):
    trace = studio.read(written(tmp_path, TRANSFORMER.format(checkpoints="")))
    groups = {group.name: group.ranks for group in trace.groups}
    assert groups["tp0"] == (0, 1)
    assert groups["dp0"] == (0, 2, 4, 6)
    assert groups["ep0"] == (0, 2)
    assert groups["dp_ep1"] == (1, 5)
    assert len(trace.graphs) == 1
    of_rank_5 = {name: value for node in nodes(trace, 5) for name, value in node[5] if name == "pg_name"}
    assert set(trace.rank(5).slots) == {"tp2", "ep3", "dp_ep1", "dp1"}
    assert of_rank_5["pg_name"] in trace.rank(5).slots
    assert all(5 in groups[name] for name in trace.rank(5).slots)


def test_input_gradients_of_a_transformer_are_waited_for(tmp_path):
    trace = studio.read(
        written(tmp_path, TRANSFORMER.format(checkpoints="checkpoints: 0 checkpoint_initiates: 0"))
    )
    assert names(trace) == [
        "a_FWD", "a_ALLREDUCE", "moe_FWD", "moe_ALLTOALL", "b_FWD",
        "b_BWD_IG", "b_REDUCESCATTER", "b_BWD_WG", "b_REDUCESCATTER",
        "moe_BWD_IG", "moe_ALLTOALL", "moe_BWD_WG", "moe_ALLGATHER",
        "a_BWD_IG", "a_BWD_WG",
    ]  # fmt: skip
    waits = [node[3] for node in nodes(trace, 0)]
    assert waits[7] == [6]
    assert waits[9] == [7]


def test_checkpoints_repeat_part_of_the_forward_pass(tmp_path):
    text = TRANSFORMER.format(checkpoints="checkpoints: 1 0 checkpoint_initiates: 1 2")
    shown = names(studio.read(written(tmp_path, text)))
    assert shown[5:10] == ["a_FWD_IN_BWD", "a_ALLREDUCE", "moe_FWD_IN_BWD", "moe_ALLTOALL", "b_BWD_IG"]


def test_two_in_one_unknown_and_lone_collectives(tmp_path):
    text = (
        "HYBRID_CUSTOMIZED model_parallel_NPU_group: 1\n2\n"
        "a -1 1 ALLREDUCEALLTOALL 8 1 NONE 0 1 ALLREDUCE 8 1 DATA\nb -1 1 ALLREDUCE 8 1 NONE 0 1 ALLFOO 9 1\n"
    )
    trace = studio.read(written(tmp_path, text), npus=2)
    assert names(trace)[:4] == ["a_FWD", "a_ALLREDUCE", "a_ALLTOALL", "b_FWD"]
    assert {finding.code for finding in trace.findings} >= {"unknown-collective", "lone-collective"}
    assert "ALLFOO (1)" in next(f.message for f in trace.findings if f.code == "unknown-collective")


@pytest.mark.parametrize(
    "kind", ["HYBRID_DLRM 1", "HYBRID_DLRM_ENHANCED 1", "HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1"]
)
def test_the_spellings_of_dlrm(tmp_path, kind):
    layer = "{} -1 1 ALLTOALL 8 1 ALLTOALL 8 1 ALLREDUCE 8 1\n"
    text = f"{kind}\n4\n" + "".join(map(layer.format, "abcd"))
    trace = studio.read(written(tmp_path, text), npus=2)
    expected = studio.read(written(tmp_path, text.replace(kind, "HYBRID_DLRM 1"), "x.txt"), npus=2)
    assert nodes(trace, 0) == nodes(expected, 0)
    assert names(trace).index("a_ALLTOALL", 3) > names(trace).index("c_BWD_IG")


def test_inference_runs_forward_only(tmp_path):
    trace = studio.read(
        written(tmp_path, "DISTRIBUTED_INFERENCE\n1\na -1 2.5 ALLREDUCE 1e3 1 NONE 0 1 NONE 0 1\n"),
        npus=2,
        passes=2,
    )
    assert names(trace) == ["a_FWD", "a_ALLREDUCE"] * 2
    assert [node[2] for node in nodes(trace, 0)] == [2500, 0, 2500, 0]
    assert [node[3] for node in nodes(trace, 0)] == [[], [0], [1], [2]]


def test_the_number_of_npus_is_asked_for(tmp_path):
    path = written(tmp_path, "MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n")
    with pytest.raises(NpusNeededError, match="does not say how many NPUs") as refused:
        studio.read(path)
    assert refused.value.names == ("w.txt",)
    assert "npus=" in refused.value.hint


def test_numbers_that_do_not_fit_are_refused(tmp_path):
    path = written(tmp_path, TRANSFORMER.format(checkpoints=""))
    with pytest.raises(TraceError, match="7 NPUs are not a multiple of the 2"):
        studio.read(path, npus=7)
    with pytest.raises(TraceError, match="1 to 65,536"):
        studio.read(path, npus=1 << 30)
    with pytest.raises(TraceError, match="-8 NPUs; 1 to 65,536"):
        studio.read(path, npus=-8)
    with pytest.raises(TraceError, match="more than 1,000,000 nodes a rank"):
        studio.read(path, passes=100_000)


def test_what_is_damaged_is_told_and_the_rest_is_read(tmp_path):
    layer = "a -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n"
    trace = studio.read(written(tmp_path, "MICRO\n4\n" + layer + "b -1 x\n" + layer), npus=2)
    assert {finding.code for finding in trace.findings} == {"damaged-layer", "damaged-file"}
    assert len(trace.graphs[0]) == 2
    extra = studio.read(written(tmp_path, "MICRO\n1\n" + layer * 3), npus=2)
    assert [finding.code for finding in extra.findings] == ["extra-lines"]
    with pytest.raises(TraceFormatError, match="without layers"):
        studio.read(written(tmp_path, "MICRO\n0\n"), npus=2)


def test_every_file_of_a_folder_is_a_job_of_its_own(tmp_path):
    for name in ("one.txt", "two_2.txt"):
        written(tmp_path, "MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n", name)
    with pytest.raises(TraceError, match="2 jobs found, not one: one, two_2"):
        studio.read(tmp_path, npus=2)
