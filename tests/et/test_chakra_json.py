"""Chakra traces written as JSON: the same nodes as the `.et` files they were made of."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import studio
from studio.errors import TraceFormatError
from studio.trace import Trace, iterate_arrays, list_dependency_ids, list_node_attributes

JSONIZED = {
    "golden/public/feeder_chakra.0.jsonized.txt.gz": "public/chakra/feeder_chakra.0.et",
    "golden/torch/dlrm_4r_0.jsonized.txt.gz": "golden/torch/dlrm_4r_0.et.gz",
    "golden/torch/pp_2r_0.jsonized.txt.gz": "golden/torch/pp_2r_0.et.gz",
    "golden/torch/mnist_obs.jsonized.txt.gz": "golden/torch/mnist_obs.et.gz",
    "golden/stg/gpt_8r_dp2tp4.0.jsonized.txt.gz": "stg/gpt_8r_dp2tp4/gpt_8r_dp2tp4.0.et",
    "golden/stg/llama_16r_dp4tp4.0.jsonized.txt.gz": "stg/llama_16r_dp4tp4/llama_16r_dp4tp4.0.et",
    "golden/stg/llama_16r_tp4pp4_recompute.0.jsonized.txt.gz": "stg/llama_16r_tp4pp4_recompute/llama_16r_tp4pp4_recompute.0.et",
    "golden/stg/llama_32r_dp4tp4pp2.0.jsonized.txt.gz": "stg/llama_32r_dp4tp4pp2/llama_32r_dp4tp4pp2.0.et",
    "golden/stg/llama_8r_dp2tp2pp2.0.jsonized.txt.gz": "stg/llama_8r_dp2tp2pp2/llama_8r_dp2tp2pp2.0.et",
    "golden/stg/llama_8r_dp8_fsdp.0.jsonized.txt.gz": "stg/llama_8r_dp8_fsdp/llama_8r_dp8_fsdp.0.et",
    "golden/stg/llama_8r_tp8.0.jsonized.txt.gz": "stg/llama_8r_tp8/llama_8r_tp8.0.et",
}


def attributes(trace: Trace, row: int) -> dict[str, object]:
    found = list_node_attributes(trace.graphs[0], row, trace.ranks[0].slots)
    return {attr.name: (attr.kind.name, attr.value) for attr in found}


@pytest.mark.parametrize("name", JSONIZED)
def test_what_the_jsonizer_printed_is_the_file_it_came_from(shared, name):
    """Every column to the bit, the metadata, and what each rank brings; no difference is listed because there is none."""
    one = studio.read(shared / "traces" / name)
    other = studio.read(shared / "traces" / JSONIZED[name])
    for (column, a), (_, b) in zip(
        iterate_arrays(one.graphs[0]), iterate_arrays(other.graphs[0]), strict=True
    ):
        assert a.tobytes() == b.tobytes(), column
    assert one.ranks[0].metadata == other.ranks[0].metadata
    assert one.ranks[0].slots == other.ranks[0].slots
    assert [f.code for f in one.findings] == [f.code for f in other.findings]


def test_the_workload_graph_has_the_nodes_of_its_chakra_file(shared):
    """With deliberate differences, all of them the file's own.

    It has no control dependencies, no attribute but `is_cpu_op`, no inputs
    and outputs, and its names went through a search for `id` and `name` that wrote them with a capital.
    """
    folder = shared / "traces" / "public" / "chakra"
    one, other = studio.read(folder / "feeder_chakra.0.json.gz"), studio.read(folder / "feeder_chakra.0.et")
    a, b = one.graphs[0], other.graphs[0]
    assert len(a) == 3664
    for column in ("id", "type", "start_ns", "duration_ns"):
        assert (getattr(a, column) == getattr(b, column)).all(), column
    assert (a.data.offsets == b.data.offsets).all()
    assert (list_dependency_ids(a, a.data) == list_dependency_ids(b, b.data)).all()
    assert len(a.data.rows) == 181_878
    lower = [[graph.strings[code].lower() for code in graph.name.tolist()] for graph in (a, b)]
    assert lower[0] == lower[1]
    for row in range(len(a)):
        mine = attributes(one, row)
        assert mine.items() <= attributes(other, row).items()
        assert list(mine) == ["is_cpu_op"]
    assert len(a.ctrl.rows) == 0


def test_spellings_of_keys_and_values(tmp_path):
    nodes = [
        {"Id": "7", "Name": "x", "NodeType": "COMM_COLL_NODE", "ctrlDeps": 3, "runtime": 1.5, "comm_type": 0, "CommSize": "64"},
        {"id": 3, "node_type": 5, "data_deps": [], "comm_dst": 1, "tensor_size": 2**63, "involved_dim": [True, False]},
        {"id": 4, "type": 4, "ctrl_deps": [3], "dataDeps": ["7", 3.0], "mine": "text", "list": [1, 2], "half": 0.5},
    ]  # fmt: skip
    path = tmp_path / "w.0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"workload_graph": nodes}).encode()))
    trace = studio.read(path)
    graph = trace.graphs[0]
    assert graph.id.tolist() == [7, 3, 4]
    assert graph.type.tolist() == [7, 5, 4]
    assert graph.duration_ns.tolist() == [1500, 0, 0]
    assert [graph.ctrl.of(row).tolist() for row in range(3)] == [[1], [], [1]]
    assert graph.data.of(2).tolist() == [0, 1]
    assert attributes(trace, 0) == {
        "comm_type": ("INT64", 0),
        "comm_size": ("INT64", 64),
        "duration_ns": ("INT64", 1500),
    }
    assert attributes(trace, 1) == {
        "comm_dst": ("INT32", 1),
        "tensor_size": ("UINT64", 2**63),
        "involved_dim": ("BOOL_LIST", [True, False]),
    }
    assert attributes(trace, 2) == {
        "mine": ("STRING", "text"),
        "list": ("INT64_LIST", [1, 2]),
        "half": ("DOUBLE", 0.5),
    }
    assert trace.findings == ()


def test_values_that_cannot_be_kept_are_counted(tmp_path):
    path = tmp_path / "w.0.json"
    nodes = [
        {"Id": -1, "runtime": 10**30, "comm_size": "many", "data_deps": [1, "x"], "thing": {"a": 1}},
        "no node",
    ]
    path.write_text(json.dumps({"workload_graph": nodes}))
    trace = studio.read(path)
    [finding] = [finding for finding in trace.findings if finding.code == "bad-value"]
    for what in ("id (1)", "runtime (1)", "comm_size (1)", "data dependency (1)", "thing (1)", "node (1)"):
        assert what in finding.message
    assert len(trace.graphs[0]) == 1


def test_a_cut_file_is_read_up_to_the_cut(shared, tmp_path):
    folder = shared / "traces"
    with gzip.open(folder / "golden/torch/dlrm_4r_0.jsonized.txt.gz") as stream:
        printed = stream.read()
    with gzip.open(folder / "public/chakra/feeder_chakra.0.json.gz") as stream:
        graph = stream.read()
    for name, raw in (("a.0.json", printed), ("b.0.json", graph)):
        path = tmp_path / name
        path.write_bytes(raw[: len(raw) // 2])
        cut = studio.read(path)
        assert "damaged-file" in {finding.code for finding in cut.findings}
        path.write_bytes(raw)
        whole = studio.read(path)
        assert 100 < len(cut.graphs[0]) < len(whole.graphs[0])
        assert (cut.graphs[0].id == whole.graphs[0].id[: len(cut.graphs[0])]).all()


@pytest.mark.parametrize(
    "content", ['{"workload_graph": 3}', '{"workload_graph": [', '{"attr": [{"name": "x"']
)
def test_files_without_nodes_are_refused(tmp_path, content):
    path = tmp_path / "w.0.json"
    path.write_text(content)
    with pytest.raises(TraceFormatError, match=r"w\.0\.json: "):
        studio.read(path)


def test_numbers_as_the_jsonizer_writes_them(tmp_path):
    node = {
        "id": "18446744073709551615",
        "type": "TYPE_9",
        "startTimeMicros": "0",
        "attr": [
            {"name": "a", "doubleVal": "-Infinity"},
            {"name": "b", "bytesVal": "AAEC"},
            {"name": "c", "sint32List": {"values": [-1, 2]}},
            {"name": "d", "int64List": {}, "docString": "why"},
        ],
    }
    path = tmp_path / "w.0.json"
    path.write_text('{"version": "0.0.4"}' + json.dumps(node))
    trace = studio.read(path)
    assert trace.ranks[0].version == "0.0.4"
    assert trace.graphs[0].start_ns.tolist() == [0]
    assert attributes(trace, 0) == {
        "a": ("DOUBLE", -np.inf),
        "b": ("BYTES", b"\0\1\2"),
        "c": ("SINT32_LIST", [-1, 2]),
        "d": ("INT64_LIST", []),
    }
    assert {finding.code for finding in trace.findings} >= {"bad-value", "unknown-type"}
