"""Merged traces (ET+): what the existing converter makes of them, with its known faults left out, and what it loses."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import studio
from studio.et import etplus_nodes
from studio.et.link.dep_kinds import DepKind
from studio.trace import (
    NodeType,
    Trace,
    compute_digest,
    decode_value,
    list_dependency_ids,
    list_node_attributes,
)

ROOT = Path(__file__).resolve().parent.parent.parent
SYNTHETIC = [
    *(f"torch_synthetic_device/ddp_mlp_4r_{rank}" for rank in range(4)),
    *(f"torch_synthetic_device/dlrm_4r_{rank}" for rank in range(4)),
    "torch_synthetic_device/mnist_1r_0",
]
ON_CPU = [
    "torch/pp_2r_0",
    "torch/dlrm_4r_2",
    "torch/mnist_old",
    "torch/dp2tp2_mlp_4r_0",
    "torch/fsdp_gpt_2r_1",
]


def attributes(trace: Trace, row: int) -> dict[str, object]:
    return {
        attr.name: attr.value for attr in list_node_attributes(trace.graphs[0], row, trace.ranks[0].slots)
    }


def rows(trace: Trace) -> dict[int, int]:
    return {number: row for row, number in enumerate(trace.graphs[0].id.tolist())}


def waits(trace: Trace, without: int = 0) -> list[set[int]]:
    """The ids each node waits for, those left out that it waits for on these grounds alone."""
    graph, strings = trace.graphs[0], trace.graphs[0].strings
    told = zip(*(part.tolist() for part in graph.rows_with("dep_kinds")), strict=True)
    grounds = {
        row: decode_value(graph.attrs, index, strings, trace.ranks[0].slots) or [] for row, index in told
    }
    numbers = list_dependency_ids(graph, graph.data).tolist()
    found = []
    for row, (start, end) in enumerate(pairwise(graph.data.offsets.tolist())):
        kinds = grounds.get(row) or [1] * (end - start)
        found.append(
            {number for number, kind in zip(numbers[start:end], kinds, strict=True) if kind & ~without}
        )
    return found


@pytest.mark.parametrize("name", SYNTHETIC + ON_CPU)
def test_the_nodes_are_those_of_the_converter(shared, name):
    """Deliberate differences from the golden `.et`, each a known fault of the tool that wrote it.

    - the process root is there; the converter drops it and leaves dependencies on it dangling;
    - durations keep their nanoseconds; the converter cuts them, and sets those of `Optimizer.step` to 0;
    - starts are there;
    - collectives of gloo are communication; the converter makes them computation;
    - kernels of a stream wait for each other.
    """
    golden = shared / "traces" / "golden"
    ours, theirs = studio.read(golden / f"{name}.etplus.json.gz"), studio.read(golden / f"{name}.et.gz")
    a, b, mine, other = ours.graphs[0], theirs.graphs[0], rows(ours), rows(theirs)
    assert [a.strings[a.name[mine[one]]] for one in mine.keys() - other.keys()] == [
        "[pytorch|profiler|execution_trace|process]"
    ]
    assert other.keys() <= mine.keys()
    here, there = waits(ours, DepKind.STREAM), waits(theirs)
    for number, row in other.items():
        at = mine[number]
        text = a.strings[a.name[at]]
        assert text == b.strings[b.name[row]]
        assert here[at] == there[row]
        if "Optimizer.step" not in text:
            assert 0 <= round(int(a.duration_ns[at]) - int(b.duration_ns[row])) <= 1000
        if text.startswith("c10d::") and b.type[row] == NodeType.COMP:
            continue
        assert a.type[at] == b.type[row]
        if b.type[row] == NodeType.COMM_COLL:
            told, wanted = attributes(ours, at), attributes(theirs, row)
            assert {key: told.get(key) for key in wanted if key in ("comm_type", "comm_size", "pg_name")} == {
                key: wanted[key] for key in wanted if key in ("comm_type", "comm_size", "pg_name")
            }


def test_gloo_runs_have_communication(shared):
    """The type of every collective of four ranks, and the bytes of the all-to-alls."""
    for rank, total in enumerate((20_480, 28_672, 36_864, 45_056)):
        trace = studio.read(shared / "traces" / "golden" / "torch" / f"dlrm_4r_{rank}.etplus.json.gz")
        found = [
            attributes(trace, row)
            for row in range(len(trace.graphs[0]))
            if trace.graphs[0].type[row] == NodeType.COMM_COLL
        ]
        types = Counter(one["comm_type"] for one in found)
        assert types == {6: 4, 0: 2}
        assert sum(one["comm_size"] for one in found if one["comm_type"] == 6) == total
        assert sum(one["comm_size"] for one in found if one["comm_type"] == 0) == 418_896


def test_device_nodes_and_kinds_of_dependencies(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("fuzz_readers", ROOT / "benchmarks" / "fuzz_readers.py")
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    path = tmp_path / "x.0.json"
    path.write_bytes(fuzz.MERGED)
    trace = studio.read(path)
    graph = trace.graphs[0]
    assert graph.start_ns.tolist() == [-1, -1, 10_500, 11_000, 15_000, 30_000]
    assert graph.duration_ns.tolist() == [0, 0, 4250, 9000, 12_000, 1000]
    assert graph.type.tolist() == [4, 4, 4, 4, 7, 4]
    assert [graph.ctrl.of(row).tolist() for row in range(6)] == [[], [0], [1], [2], [3], [3]]
    kernel, copy = attributes(trace, 4), attributes(trace, 5)
    assert (kernel["comm_type"], kernel["comm_size"], kernel["pg_name"]) == (0, 64, "0")
    assert "comm_inferred" not in kernel
    assert (kernel["device_kind"], copy["device_kind"], copy["stream"]) == ("kernel", "memcpy", 20)
    assert graph.data.of(3).tolist() == [2]
    assert attributes(trace, 3)["dep_kinds"] == [DepKind.ORDER | DepKind.THREAD | DepKind.SYNC]
    assert kernel["dep_kinds"] == [DepKind.LAUNCH]
    assert copy["dep_kinds"] == [DepKind.LAUNCH, DepKind.STREAM]
    assert graph.data.of(5).tolist() == [3, 4]


def test_a_merged_trace_in_which_nothing_was_linked_says_so(shared):
    trace = studio.read(shared / "traces/golden/public/param_dlrm0.etplus.NOTHING_LINKED.json.gz")
    assert "no-device-trace" in {finding.code for finding in trace.findings}
    assert (trace.graphs[0].start_ns == -1).all()


@pytest.mark.parametrize("name", ["torch_synthetic_device/dlrm_4r_2", "torch/fsdp_gpt_2r_1"])
def test_the_columns_are_those_that_reading_the_written_file_gives(shared, tmp_path, name):
    merged = studio.read(shared / "traces" / "golden" / f"{name}.etplus.json.gz")
    [path] = studio.write(merged, tmp_path / "written", "job")[:1]
    again = studio.read(path)
    assert compute_digest(again.graphs[0]) == compute_digest(merged.graphs[0])
    assert again.ranks[0].slots == merged.ranks[0].slots
    assert again.ranks[0].metadata == merged.ranks[0].metadata


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0, 1, None],
        [0.5, 1.0005, 2.5, 1e-4, -1.0, None],
        [3, 2.0005, None, -7],
        [True, 4],
        ["5", 6.0],
        [2**53 // 1000 + 1, 2**52 + 1, 2**53],
        [2**52 + 0.5, 9e15, 1e300],
        [10**400, 1.0],
        [math.nan, math.inf, 1],
    ],
)
def test_times_taken_together_are_those_taken_one_by_one(values):
    assert etplus_nodes._convert_all_to_ns(values).tolist() == [
        etplus_nodes._convert_to_ns(value) for value in values
    ]


@pytest.mark.parametrize(
    "values", [[], [1, 2], [1, None, 3], [True, 2], [2**63, 1], [-(2**63), 2**63 - 1], [1.0, "2", 3]]
)
def test_only_whole_numbers_of_64_bits_are_taken(values):
    rows, numbers = etplus_nodes._select_whole_numbers(values)
    taken = [
        (row, value) for row, value in enumerate(values) if type(value) is int and -(2**63) <= value < 2**63
    ]
    assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == taken
