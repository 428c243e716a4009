"""The sample jobs: reproducible, without a flaw, and showing what their descriptions promise."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import studio
from studio.errors import StudioError
from studio.samples import RECORDING, SAMPLES, sample_path
from studio.trace import CollectiveType, NodeType, Trace, ValueKind, list_node_attributes

ROOT = Path(__file__).resolve().parent.parent
NAMES = [sample.name for sample in SAMPLES]
every_sample = pytest.mark.parametrize("name", NAMES)

KINDS = {
    "num_ops": ValueKind.INT64,
    "tensor_size": ValueKind.UINT64,
    "comm_type": ValueKind.INT64,
    "comm_size": ValueKind.INT64,
    "pg_name": ValueKind.STRING,
    "comm_src": ValueKind.INT32,
    "comm_dst": ValueKind.INT32,
    "comm_tag": ValueKind.INT32,
    "is_cpu_op": ValueKind.BOOL,
    "op_type": ValueKind.STRING,
    "inputs": ValueKind.STRING_LIST,
    "outputs": ValueKind.STRING_LIST,
}
NEEDED = {
    NodeType.MEM_LOAD: {"is_cpu_op", "tensor_size"},
    NodeType.MEM_STORE: {"is_cpu_op", "tensor_size"},
    NodeType.COMP: {"is_cpu_op", "num_ops", "tensor_size", "op_type"},
    NodeType.COMM_SEND: {"is_cpu_op", "comm_size", "comm_src", "comm_dst", "comm_tag"},
    NodeType.COMM_RECV: {"is_cpu_op", "comm_size", "comm_src", "comm_dst", "comm_tag"},
    NodeType.COMM_COLL: {"is_cpu_op", "comm_size", "comm_type", "pg_name"},
}


class Seen(NamedTuple):
    """A node as a test wants it; `lane` is what it keeps busy, `before` the ids it waits for."""

    rank: int
    id: int
    name: str
    type: NodeType
    lane: str
    start_ns: int
    end_ns: int
    before: tuple[int, ...]
    attrs: dict[str, Any]
    kinds: dict[str, ValueKind]


@lru_cache
def trace_of(name: str) -> Trace:
    return studio.read([sample_path(name)])


@lru_cache
def nodes_of(name: str) -> tuple[Seen, ...]:
    """Every node of every rank, in file order."""
    trace = trace_of(name)
    return tuple(node for rank in trace.ranks for node in _rank_nodes(trace, rank))


def _rank_nodes(trace: Trace, rank) -> Iterator[Seen]:
    graph = trace.graph_of(rank)
    for row in range(len(graph)):
        found = list_node_attributes(graph, row, rank.slots)
        attrs = {attr.name: attr.value for attr in found}
        node_type = NodeType(int(graph.type[row]))
        start = int(graph.start_ns[row])
        rows = [*graph.ctrl.of(row).tolist(), *graph.data.of(row).tolist()]
        assert min(rows, default=0) >= 0
        yield Seen(
            rank.number,
            int(graph.id[row]),
            graph.strings[int(graph.name[row])],
            node_type,
            _lane(node_type, attrs),
            start,
            start + int(graph.duration_ns[row]),
            tuple(int(graph.id[other]) for other in rows),
            attrs,
            {attr.name: attr.kind for attr in found},
        )


def _lane(node_type: NodeType, attrs: dict[str, Any]) -> str:
    if node_type == NodeType.COMP:
        return "host" if attrs["is_cpu_op"] else "compute"
    memory = node_type in (NodeType.MEM_LOAD, NodeType.MEM_STORE)
    return "memory" if memory else "comm" if node_type > NodeType.COMP else "none"


@pytest.fixture(scope="module")
def writer() -> Iterator[ModuleType]:
    """The program that writes the samples."""
    spec = importlib.util.spec_from_file_location("make_samples", ROOT / "scripts" / "make_samples.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


# ---------------------------------------------------------------------------------------------------
# The files


@every_sample
def test_a_sample_can_be_written_again_byte_for_byte(writer: ModuleType, name: str) -> None:
    """The shipped traces are those the program writes; archives differ only where another zlib packs them."""
    job = next(job for job in writer.JOBS if job.name == name)
    files = list(writer.job_files(job))
    once, again = writer.pack(files), writer.pack(files)
    assert once == again
    with (
        zipfile.ZipFile(sample_path(name)) as shipped,
        zipfile.ZipFile(io.BytesIO(once)) as written,
    ):
        assert shipped.namelist() == written.namelist() == [file for file, _ in files]
        assert [shipped.read(file) for file in shipped.namelist()] == [content for _, content in files]
        assert {entry.date_time for entry in shipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_the_program_writes_every_sample_and_no_other(writer: ModuleType) -> None:
    assert [job.name for job in writer.JOBS] == NAMES
    assert [job.ranks for job in writer.JOBS] == [sample.ranks for sample in SAMPLES]
    archives = {path.name for path in sample_path(NAMES[0]).parent.glob("*.zip")}
    assert archives == {sample.file for sample in (*SAMPLES, RECORDING)}


@every_sample
def test_a_sample_is_small(name: str) -> None:
    assert sample_path(name).stat().st_size < 1_000_000


def test_an_unknown_sample_is_answered_with_the_nearest() -> None:
    with pytest.raises(StudioError, match="no sample 'transformer_32'") as caught:
        sample_path("transformer_32")
    assert caught.value.hint == "Did you mean 'transformer_32r'?"


@pytest.mark.integration
def test_the_list_of_samples_is_light() -> None:
    """The command line offers the names in its help; that must not load what reads traces."""
    code = "import sys, studio.samples; print(sorted({'numpy', 'numba', 'dash', 'google.protobuf'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------------------
# What holds for each of them


@every_sample
def test_a_sample_opens_without_findings(name: str) -> None:
    trace = trace_of(name)
    assert not trace.findings
    assert [rank.number for rank in trace.ranks] == list(range(len(trace.ranks)))
    assert {rank.version for rank in trace.ranks} == {"1.0.0"}
    schemas = {attr.value for rank in trace.ranks for attr in rank.metadata if attr.name == "schema"}
    assert schemas == {"chakra-studio-sample"}


@every_sample
def test_nodes_carry_the_attributes_their_type_needs(name: str) -> None:
    for node in nodes_of(name):
        assert NEEDED.get(node.type, set()) <= node.attrs.keys(), node
        wrong = {key for key, kind in node.kinds.items() if KINDS.get(key, kind) != kind}
        assert not wrong, node


@every_sample
def test_ids_are_distinct_and_names_too(name: str) -> None:
    for key in ("id", "name"):
        seen = Counter((node.rank, getattr(node, key)) for node in nodes_of(name))
        assert max(seen.values()) == 1


@every_sample
def test_a_rank_has_a_few_hundred_nodes_of_every_type_it_should(name: str) -> None:
    counts = Counter(node.rank for node in nodes_of(name))
    assert 200 <= min(counts.values()) <= max(counts.values()) <= 450
    wanted = {NodeType.METADATA, NodeType.MEM_LOAD, NodeType.MEM_STORE, NodeType.COMP, NodeType.COMM_COLL}
    for rank in counts:
        assert wanted <= {node.type for node in nodes_of(name) if node.rank == rank}


@every_sample
def test_no_node_starts_before_what_it_waits_for_has_ended(name: str) -> None:
    """With every duration positive, this also means that no rank's graph has a cycle."""
    nodes = nodes_of(name)
    ends = {(node.rank, node.id): node.end_ns for node in nodes}
    for node in nodes:
        assert node.start_ns > 0
        assert node.end_ns > node.start_ns or node.type == NodeType.METADATA
        assert all(ends[node.rank, other] <= node.start_ns for other in node.before), node


@every_sample
def test_a_lane_runs_one_node_at_a_time(name: str) -> None:
    lanes = defaultdict(list)
    for node in nodes_of(name):
        if node.lane != "none":
            lanes[node.rank, node.lane].append((node.start_ns, node.end_ns))
    for lane, spans in lanes.items():
        spans.sort()
        assert all(one[1] <= two[0] for one, two in pairwise(spans)), lane


@every_sample
def test_every_send_meets_its_receive(name: str) -> None:
    """One receive per send of equal source, destination, tag and size, at the same time; none is left over."""
    ends: dict[NodeType, Counter] = {NodeType.COMM_SEND: Counter(), NodeType.COMM_RECV: Counter()}
    for node in nodes_of(name):
        if node.type in ends:
            key = tuple(node.attrs[f"comm_{part}"] for part in ("src", "dst", "tag", "size"))
            ends[node.type][(*key, node.start_ns, node.end_ns)] += 1
            own = "comm_src" if node.type == NodeType.COMM_SEND else "comm_dst"
            assert node.attrs[own] == node.rank
            assert node.attrs["comm_size"] > 0
    assert ends[NodeType.COMM_SEND] == ends[NodeType.COMM_RECV]
    assert max(ends[NodeType.COMM_SEND].values(), default=1) == 1
    assert bool(ends[NodeType.COMM_SEND]) == (name != "imbalance_8r")


@every_sample
def test_the_members_of_a_group_run_the_same_collectives(name: str) -> None:
    """Same names, types and times in the same order; same sizes, but for the all-to-alls meant to differ."""
    groups = {group.name: group.ranks for group in trace_of(name).groups}
    runs: dict[tuple[str, int], list[tuple]] = defaultdict(list)
    for node in nodes_of(name):
        if node.type == NodeType.COMM_COLL:
            kind, size = CollectiveType(node.attrs["comm_type"]), node.attrs["comm_size"]
            assert size > 0
            equal_size = None if kind == CollectiveType.ALL_TO_ALL else size
            runs[node.attrs["pg_name"], node.rank].append(
                (node.name, kind, equal_size, node.start_ns, node.end_ns)
            )
    used = {group for group, _ in runs}
    assert used == {group for group in groups if not group.startswith("pp")}
    for group in used:
        first = runs[group, groups[group][0]]
        assert all(runs[group, rank] == first for rank in groups[group])
        assert {rank for other, rank in runs if other == group} == set(groups[group])


@every_sample
def test_backward_follows_forward_and_the_optimizer_comes_last(name: str) -> None:
    """Data dependencies alone lead from each step's update to a forward pass, through every kind of work."""
    trace = trace_of(name)
    graph = trace.graph_of(trace.ranks[-1])
    names = [graph.strings[int(code)] for code in graph.name]
    reached = [row for row, text in enumerate(names) if text.endswith(".adam")][-1:]
    seen = set(reached)
    while reached:
        fresh = {int(row) for at in reached for row in graph.data.of(at)} - seen
        seen |= fresh
        reached = list(fresh)
    types = {NodeType(int(graph.type[row])) for row in seen}
    assert {NodeType.MEM_LOAD, NodeType.MEM_STORE, NodeType.COMP, NodeType.COMM_COLL} <= types
    kinds = {names[row].rpartition(".")[2] for row in seen}
    assert {"fwd", "bwd", "dgrad", "wgrad", "all_reduce", "clip"} <= kinds


# ---------------------------------------------------------------------------------------------------
# What their descriptions say


@pytest.mark.parametrize(
    ("name", "dp", "tp", "pp"), [("transformer_8r", 2, 2, 2), ("transformer_32r", 4, 4, 2)]
)
def test_the_transformers_have_the_groups_of_their_parallelism(name: str, dp: int, tp: int, pp: int) -> None:
    trace = trace_of(name)
    total = dp * tp * pp
    assert len(trace.ranks) == total
    sizes = {"tp": tp, "dp": dp, "pp": pp, "world": total}
    members = defaultdict(list)
    for group in trace.groups:
        kind = group.name.rstrip("0123456789")
        assert len(group.ranks) == sizes[kind]
        members[kind] += group.ranks
    assert members.keys() == sizes.keys()
    assert all(sorted(ranks) == list(range(total)) for ranks in members.values())


def test_ranks_of_a_stage_share_a_graph() -> None:
    trace = trace_of("transformer_32r")
    assert len(trace.graphs) == 2
    assert [rank.graph for rank in trace.ranks] == [0] * 16 + [1] * 16


def test_ranks_that_jitter_each_have_a_graph() -> None:
    assert len(trace_of("transformer_8r").graphs) == 8


@pytest.mark.parametrize("name", ["transformer_8r", "transformer_32r"])
def test_gradients_are_reduced_while_the_backward_pass_goes_on(name: str) -> None:
    """On every rank some data parallel all-reduce runs at the same time as a weight gradient or its like."""
    nodes = nodes_of(name)
    for rank in range(len(trace_of(name).ranks)):
        own = [node for node in nodes if node.rank == rank]
        backward = [(n.start_ns, n.end_ns) for n in own if n.name.endswith((".dgrad", ".wgrad", ".bwd"))]
        reduced = [n for n in own if n.name.endswith(".grads.all_reduce")]
        assert any(n.start_ns < end and start < n.end_ns for n in reduced for start, end in backward)


def test_the_pipeline_runs_one_forward_one_backward() -> None:
    """The first stage is one micro-batch ahead, the last goes back at once."""
    phases: dict[int, list[str]] = {0: [], 31: []}
    for node in nodes_of("transformer_32r"):
        way = {"fwd": "F", "dgrad": "B"}.get(node.name.rpartition(".")[2])
        if node.rank in phases and way and ".attn.out_proj." in node.name:
            phases[node.rank].append(f"{way}{node.name.split('.')[1][2:]}")
    order = {rank: list(dict.fromkeys(steps)) for rank, steps in phases.items()}
    assert order[0] == ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"]
    assert order[31] == ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"]


def test_the_hot_expert_carries_1_6_times_the_mean() -> None:
    sizes = np.zeros(8)
    for node in nodes_of("imbalance_8r"):
        if node.attrs.get("comm_type") == CollectiveType.ALL_TO_ALL:
            sizes[node.rank] += node.attrs["comm_size"]
    assert int(sizes.argmax()) == 5
    assert sizes.max() / sizes.mean() == pytest.approx(1.6, abs=0.001)
    assert np.sort(sizes)[-2] / sizes.mean() < 1.0


def test_the_straggler_computes_a_quarter_slower() -> None:
    """Attention, which is equal work on all ranks, shows it; experts would hide it."""
    spent = np.zeros(8)
    for node in nodes_of("imbalance_8r"):
        if node.type == NodeType.COMP and ".attn." in node.name:
            spent[node.rank] += node.end_ns - node.start_ns
    others = np.delete(spent, 2)
    assert spent[2] / others.mean() == pytest.approx(1.25, rel=0.02)
    assert others.max() / others.min() < 1.03


def test_the_same_kind_of_step_takes_times_that_differ_a_little() -> None:
    """Jitter: two steps of the same job are near each other, not equal."""
    spans = []
    for step in ("step0.", "step1."):
        own = [node for node in nodes_of("transformer_8r") if node.name.startswith(step)]
        spans.append(max(node.end_ns for node in own) - min(node.start_ns for node in own))
    assert spans[0] != spans[1]
    assert spans[0] == pytest.approx(spans[1], rel=0.03)
