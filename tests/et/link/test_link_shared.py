"""Every real pair of files: what linking has to find, and how it compares with what existing tools wrote."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.commands.link import count_communication, report_rank
from studio.errors import TraceError
from studio.et import LinkOptions
from studio.sim.matched import are_sequence_only
from studio.trace import Graph, NodeType, Rank, Trace, decode_value, read_dense_column, type_name
from tests.et.link.test_link import assert_acyclic, names
from tests.examples import examples
from tests.recordings import link_recording

RUNS = [
    "torch/ddp_gpt_2r", "torch/ddp_mlp_4r", "torch/ddp_straggler_4r", "torch/dlrm_4r", "torch/dp2tp2_mlp_4r",
    "torch/fsdp_gpt_2r", "torch/mnist_gz", "torch/mnist_obs", "torch/mnist_old", "torch/mnist_plain",
    "torch/mnist_stack", "torch/pp_2r", "torch/tp_mlp_2r",
    "torch_synthetic_device/ddp_mlp_4r", "torch_synthetic_device/dlrm_4r", "torch_synthetic_device/mnist_1r",
]  # fmt: skip
BY_OPERATOR = {
    "c10d::allreduce_": "ALL_REDUCE",
    "c10d::alltoall_base_": "ALL_TO_ALL",
    "c10d::_allgather_base_": "ALL_GATHER",
    "c10d::allgather_": "ALL_GATHER",
    "c10d::_reduce_scatter_base_": "REDUCE_SCATTER",
    "c10d::broadcast_": "BROADCAST",
    "c10d::reduce_": "REDUCE",
    "c10d::gather_": "GATHER",
    "c10d::scatter_": "SCATTER",
    "c10d::barrier": "BARRIER",
    "c10d::send": "SEND",
    "c10d::recv_": "RECV",
}
LOWER_GRADE = ("GATHER", "SCATTER", "REDUCE", "BARRIER")
"""Their reference adds every tensor argument; here their size is what a rank gives."""


def linked(shared: Path, run: str) -> Trace:
    return link_recording(shared / "traces" / run)


@pytest.fixture(scope="module")
def expected(shared):
    return json.loads((shared / "traces" / "expected.json").read_text())


def of_rank(expected, run: str, rank: Rank) -> dict:
    files = expected[run]
    key = f"pytorch_et_{rank.number}.json.gz"
    return files[key] if key in files else next(iter(files.values()))


@pytest.mark.parametrize("run", RUNS)
def test_operators_and_device_operations_are_all_linked(shared, expected, run):
    """100 % on every run but mnist_old, where the step numbered 0 must not be taken for the root."""
    trace = linked(shared, run)
    for rank in trace.ranks:
        want, got = of_rank(expected, run, rank), report_rank(trace, rank)
        assert got["linked"] == want["linked_by_record_function_id"]
        assert want["kineto_host_ops"] - got["linked"] == (1 if run == "torch/mnist_old" else 0)
        devices = sum((want["device_ops"] or {}).values())
        assert (got["host_operations"], got["host_events"]) == (got["linked"], want["kineto_host_ops"])
        assert (got["device_operations"], got["attributed"]) == (devices, devices)
        assert not len(trace.graph_of(rank).rows_with("unattributed")[0])


def test_the_event_that_is_left_over_is_counted_and_named(shared):
    """478 of the 479 events of mnist_old have an operator; the step has no number of its own."""
    [told] = [one for one in linked(shared, "torch/mnist_old").findings if one.code == "event-alone"]
    assert "1 of 479 events" in told.message
    assert "(no record function id: 1); the first is 'ProfilerStep#10'" in told.message
    assert not [
        one for one in linked(shared, "torch/ddp_mlp_4r").findings if one.code in ("event-alone", "unlinked")
    ]


@pytest.mark.parametrize("run", RUNS)
def test_collectives_have_the_counts_and_sizes_of_their_calls(shared, expected, run):
    trace = linked(shared, run)
    for rank in trace.ranks:
        want: dict[str, Counter[int]] = {}
        for operator, share in (of_rank(expected, run, rank)["c10d"] or {}).items():
            want.setdefault(BY_OPERATOR[operator], Counter()).update(share["sizes"])
        got = sizes(trace, rank)
        assert {name: sum(counts.values()) for name, counts in got.items()} == {
            name: sum(counts.values()) for name, counts in want.items()
        }
        for name in want.keys() - set(LOWER_GRADE):
            assert got[name] == want[name], (rank.number, name)


def sizes(trace: Trace, rank: Rank) -> dict[str, Counter[int]]:
    graph = trace.graph_of(rank)
    kind, size = read_dense_column(graph, "comm_type", -1), read_dense_column(graph, "comm_size", -1)
    found: dict[str, Counter[int]] = {}
    for row in np.flatnonzero(np.isin(graph.type, (5, 6, 7))).tolist():
        name = {5: "SEND", 6: "RECV"}.get(int(graph.type[row])) or studio.trace.label_collective(
            int(kind[row])
        )
        found.setdefault(name, Counter())[int(size[row])] += 1
    return found


@pytest.mark.parametrize("run", ["torch/dlrm_4r", "torch_synthetic_device/dlrm_4r"])
def test_the_uneven_all_to_all_of_dlrm(shared, run):
    trace = linked(shared, run)
    shares = [count_communication(trace, rank) for rank in trace.ranks]
    given = [share["ALL_TO_ALL"]["bytes"] for share in shares]
    assert given == [20480, 28672, 36864, 45056]
    assert max(given) / (sum(given) / 4) == 1.375
    assert {share["ALL_REDUCE"]["bytes"] for share in shares} == {418896}


def test_messages_of_the_pipeline_find_their_other_side(shared):
    from studio.analysis.collectives.messages import match_messages

    messages = match_messages(linked(shared, "torch/pp_2r"))
    trace = linked(shared, "torch/pp_2r")
    assert count_communication(trace, trace.ranks[0])["SEND"]["count"] == 8
    unmatched = [
        name for name in ("unmatched_sends", "unmatched_receives") if len(getattr(messages, name, ()))
    ]
    assert not unmatched


def test_groups_have_their_ranks(shared):
    trace = linked(shared, "torch/dp2tp2_mlp_4r")
    assert {group.name: group.ranks for group in trace.groups} == {
        "0": (0, 1, 2, 3), "1": (0, 2), "2": (1, 3), "3": (0, 1), "4": (2, 3),
    }  # fmt: skip
    used = {rank.number: set(rank.slots) for rank in trace.ranks}
    assert used == {0: {"1", "3"}, 1: {"2", "3"}, 2: {"1", "4"}, 3: {"2", "4"}}


@pytest.mark.parametrize("run", RUNS)
def test_dependencies_have_no_cycle_and_replay_takes_the_recorded_time(shared, run):
    """Within 0.4 % per rank, to the end of its last operator."""
    trace = linked(shared, run)
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        assert_acyclic(graph)
        whole = read_dense_column(graph, "inclusive_ns", -1)
        whole = np.where(whole < 0, graph.duration_ns, whole)
        timed = graph.start_ns >= 0
        timed[[row for row, name in enumerate(names(graph)) if name.startswith("ProfilerStep")]] = False
        recorded = int((graph.start_ns + whole)[timed].max() - graph.start_ns[timed].min())
        assert abs(replayed_ns(graph) / recorded - 1) < 0.004, rank.number


def replayed_ns(graph: Graph) -> int:
    """The end of the last node where each starts when all it waits for have ended; threads and streams run apart.

    Collectives may overlap that only their sequence keeps apart.
    """
    start = np.zeros(len(graph), np.int64)
    kept = np.split(np.where(are_sequence_only(graph), -1, graph.data.rows), graph.data.offsets[1:-1])
    waits = [[*graph.ctrl.of(row).tolist(), *data[data >= 0].tolist()] for row, data in enumerate(kept)]
    left = [len(sources) for sources in waits]
    after: dict[int, list[int]] = {}
    for row, sources in enumerate(waits):
        for source in sources:
            after.setdefault(source, []).append(row)
    ready, last = [row for row, count in enumerate(left) if not count], 0
    while ready:
        row = ready.pop()
        end = int(start[row] + graph.duration_ns[row])
        last = max(last, end)
        for target in after.get(row, ()):
            start[target] = max(start[target], end)
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    return last


def test_files_without_ids_say_that_nothing_was_linked(shared):
    trace = studio.link(
        [
            shared / "traces/public/param/dlrm_8gpu/dlrm_eg_0.json.gz",
            shared / "traces/public/param/dlrm_8gpu/worker0_step_12.1694128201545.pt.trace.json.gz",
        ]
    )
    figures = report_rank(trace, trace.ranks[0])
    assert (figures["host_operations"], figures["linked"]) == (1672, 0)
    assert figures["device_operations"] == figures["attributed"] == 261
    [finding] = [finding for finding in trace.findings if finding.level == "error"]
    assert finding.code == "nothing-linked"
    assert "none of 1,672 operators could be linked" in finding.message
    assert "no record-function ids" in finding.message


@pytest.mark.parametrize(
    ("host", "device"),
    [
        ("torch/mnist_obs/pytorch_et.json.gz", "public/hta/nccl_data.json.gz"),
        ("public/param/resnet_et.json.gz", "public/param/resnet_kineto.json.gz"),
        ("torch/ddp_mlp_4r/pytorch_et_0.json.gz", "torch/dlrm_4r/kineto_0.json.gz"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(shared, host, device):
    with pytest.raises(TraceError, match="are not of the same process"):
        studio.link([shared / "traces" / host, shared / "traces" / device])


def test_external_ids_link_where_they_are_right(shared):
    trace = studio.link(
        [shared / f"traces/public/hta/benchmark_simple_add_{side}.json.gz" for side in ("et", "trace")]
    )
    figures = report_rank(trace, trace.ranks[0])
    assert (figures["linked"], figures["attributed"], figures["device_operations"]) == (36, 4, 4)


def test_every_public_trace_opens(shared):
    """17 Kineto traces of CUDA, ROCm, MTIA and CPU, and every execution trace; the nine largest of it in `make nightly` alone."""
    paths = [*(shared / "traces/public/hta").glob("*.gz"), *(shared / "traces/public/param").rglob("*.gz")]
    assert len(paths) == 42
    chosen = [path for path in paths if path.stat().st_size < examples(1_500_000)]
    assert len(chosen) >= 33
    for path in chosen:
        trace = studio.read(path)
        assert trace.node_count, path
        assert not [finding for finding in trace.findings if finding.level == "error"], path


# ---------------------------------------------------------------------------------------------------
# What existing tools wrote

DIFFERENCES = {
    "roots": "the process root, dropped there as dangling, is kept",
    "ids": "ids stay those of the recording instead of being numbered anew",
    "gaps": "time between operators, and that of an idle stream, is a node of its own",
    "starts": "start times are written (a known fault there)",
    "communication": "collectives of gloo are COMM nodes (a known fault there)",
    "optimizer": "Optimizer.step keeps its duration (0 there)",
    "waiting": "an operator that waited for a thread or the device has its duration without the waiting; one that has "
    "set a thread going, without what it did afterwards, which is a gap",
    "library": "an operation of gloo has all its time, of which they leave out what its own thread called in it",
    "dependencies": "kernels of a stream are chained, threads and tensors add theirs",
}
"""Every deliberate difference, with its reason; all else is compared."""


def golden(shared: Path) -> list[tuple[str, str]]:
    return [
        (folder, path.name.removesuffix(".et.gz"))
        for folder in ("torch", "torch_synthetic_device")
        for path in sorted((shared / "traces/golden" / folder).glob("*.et.gz"))
        if not path.name.startswith("raw_")
    ]


def test_golden_files_agree_in_all_but_the_listed_differences(shared):
    compared = 0
    for folder, base in golden(shared):
        run, _, number = base.rpartition("_") if base[-1].isdigit() else (base, "", "0")
        theirs = studio.read(shared / "traces/golden" / folder / f"{base}.et.gz")
        ours = linked(shared, f"{folder}/{run}")
        assert_agree(_Nodes(theirs, theirs.ranks[0]), _Nodes(ours, ours.rank(int(number))), base)
        compared += 1
    assert compared == 36


COMPARED = (
    "rf_id", "device_kind", "is_cpu_op", "bytes_in", "bytes_out", "stream", "gap", "comm_type", "comm_size", "pg_name",
    "wait_ns",
)  # fmt: skip


class _Nodes:
    def __init__(self, trace: Trace, rank: Rank) -> None:
        self.graph = trace.graph_of(rank)
        self.names = names(self.graph)
        self.told: list[dict] = [{} for _ in range(len(self.graph))]
        attrs, strings = self.graph.attrs, self.graph.strings
        for name in COMPARED:
            where = np.flatnonzero(attrs.key == strings.find(name))
            rows = np.searchsorted(attrs.offsets, where, side="right") - 1
            for row, index in zip(rows.tolist(), where.tolist(), strict=True):
                self.told[row][name] = decode_value(attrs, index, strings, rank.slots)

    def host(self) -> list[int]:
        rows = [row for row, told in enumerate(self.told) if "rf_id" in told and self.is_host(row)]
        rows = [row for row in rows if "|process]" not in self.names[row]]
        return sorted(rows, key=lambda row: int(self.graph.id[row]))

    def is_host(self, row: int) -> bool:
        return "device_kind" not in self.told[row] and (
            self.told[row]["is_cpu_op"] or not {"bytes_in", "bytes_out"}.isdisjoint(self.told[row])
        )

    def device(self) -> list[tuple]:
        rows = [
            row
            for row, told in enumerate(self.told)
            if told.get("stream", -1) >= 0 and not told["is_cpu_op"] and "gap" not in told
        ]
        return sorted((self.device_facts(row) for row in rows), key=repr)

    def device_facts(self, row: int) -> tuple:
        told = self.told[row]
        [parent] = self.graph.ctrl.of(row).tolist()
        return (
            self.names[row], int(self.graph.duration_ns[row]) // 1000, told["stream"],
            type_name(int(self.graph.type[row])), told.get("comm_type"), told.get("comm_size"), told.get("pg_name"),
            self.names[parent],
        )  # fmt: skip


def assert_agree(theirs: _Nodes, ours: _Nodes, base: str) -> None:
    assert theirs.device() == ours.device(), base
    waited = 0
    for there, here in zip(theirs.host(), ours.host(), strict=True):
        assert theirs.names[there] == ours.names[here], base
        assert theirs.told[there]["rf_id"] == ours.told[here]["rf_id"], base
        kinds = int(theirs.graph.type[there]), int(ours.graph.type[here])
        assert kinds[0] == kinds[1] or (kinds[0] == NodeType.COMP and ours.names[here].startswith("gloo:")), (
            base
        )
        wanted = int(theirs.graph.duration_ns[there]) // 1000
        got = (int(ours.graph.duration_ns[here]) + ours.told[here].get("wait_ns", 0)) // 1000
        listed = "Optimizer.step" in ours.names[here] or ours.names[here].startswith("gloo:")
        if not listed and abs(wanted - got) > 1:
            assert got < wanted, (base, ours.names[here])
            assert not ours.names[here].startswith("aten::"), base
            waited += 1
    assert waited <= 60, base


def test_linking_without_host_gaps_keeps_the_time_operators_took(shared):
    with_gaps = linked(shared, "torch/ddp_mlp_4r").graphs[0]
    without = studio.link(
        shared / "traces/torch/ddp_mlp_4r", options=LinkOptions(host_gaps=False, threads=False)
    ).graphs[0]
    inclusive = read_dense_column(without, "inclusive_ns", -1)
    assert len(without) < len(with_gaps)
    assert int(without.duration_ns.sum()) > 0
    assert (without.duration_ns <= np.where(inclusive < 0, without.duration_ns, inclusive)).all()
