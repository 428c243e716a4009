"""Jobs on GPUs as PyTorch 2.11 records them with NCCL: groups of calls, work from before the recording, streams that wait."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import studio
from studio.analysis.collectives.clocks import estimate_clock_offsets
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.kernels import list_kernels
from studio.analysis.job.ledger import PartTimes
from studio.analysis.job.step_times import StepTime
from studio.analysis.job.summary import describe_unknown_kernels, summarise
from studio.cli import main
from studio.commands.base import replay as replaying
from studio.doctor import examine
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.sim.replays import as_replay, build_idle_system
from studio.timeline import collect_node_times, recorded
from studio.trace import (
    CollectiveType,
    Graph,
    NodeType,
    Trace,
    are_idle,
    list_node_attributes,
    read_int_column,
)
from tests.et.pytorch_files import device_file, event, kernel, launch
from tests.kernels import compiled

SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
WAIT = "cudaStreamWaitEvent"
SOURCE: dict[str, Any] = {"Src Rank": 1}


def called(
    kind: str, at_us: float, peer: int = -1, elements: int = 1000, **more: Any
) -> list[dict[str, Any]]:
    """A call for communication with its recorder, which launches nothing by itself."""
    name = {"send": "c10d::send", "recv": "c10d::recv_"}.get(kind, f"c10d::{kind}_")
    ends: dict[str, Any] = {"send": {"Dst Rank": peer}, "recv": {"Src Rank": peer}}.get(kind, {})
    recorder = event(
        "record_param_comms", at_us + 1, 3, collective=kind, in_elements=elements, out_elements=elements, dtype="Float",
        group="0", group_ranks="[0, 1]", **ends, **more,
    )  # fmt: skip
    return [event(name, at_us, 5), recorder]


def pipeline(rank: int, elements: tuple[int, int] = (1000, 2000)) -> bytes:
    """A stage computes, then exchanges messages with the other in one group of calls, then computes with what came."""
    other = 1 - rank
    given, taken = elements[rank], elements[other]
    return device_file(
        [
            event("ProfilerStep#3", 0, 300, "user_annotation"),
            event("aten::mm", 10, 10),
            launch(12, 501),
            kernel("gemm", 20, 30, 501),
            *called("send", 30, other, given),
            *called("recv", 40, other, taken),
            event("nccl:coalesced", 50, 10, "user_annotation"),
            launch(51, 600, WAIT),
            launch(53, 502, "cuLaunchKernelEx"),
            kernel(SEND_RECEIVE, 60, 40, 502, stream=17),
            *called("wait", 64, elements=0),
            launch(66, 601, WAIT),
            event("aten::mm", 70, 10),
            launch(72, 503),
            kernel("gemm", 102, 30, 503),
        ],
        distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2},
        baseTimeNanoseconds=0,
    )


@pytest.fixture
def stages(tmp_path: Path) -> Trace:
    for rank in (0, 1):
        (tmp_path / f"kineto_{rank}.json").write_bytes(pipeline(rank))
    return studio.read(tmp_path)


def rows(graph: Graph, *types: NodeType) -> list[int]:
    return np.flatnonzero(np.isin(graph.type, types)).tolist()


def dependencies(graph: Graph) -> set[tuple[int, int]]:
    return {(int(source), row) for row in range(len(graph)) for source in graph.data.of(row)}


def account_of(trace: Trace) -> PartTimes:
    return build_recorded_side(trace, collect_node_times(trace, recorded(trace))).ledger().totals()


def test_messages_of_one_kernel_are_operations_beside_each_other(stages: Trace) -> None:
    """Before, the kernel was of unknown type and the messages had the time of their calls."""
    graph = stages.graphs[0]
    sent, received = rows(graph, NodeType.COMM_SEND), rows(graph, NodeType.COMM_RECV)
    assert (len(sent), len(received)) == (1, 1)
    both = [*sent, *received]
    told = [
        {attr.name: attr.value for attr in list_node_attributes(graph, row, stages.ranks[0].slots)}
        for row in both
    ]
    assert [(each["comm_size"], each["stream"]) for each in told] == [(4000, 17), (8000, 17)]
    assert (told[0]["comm_dst"], told[1]["comm_src"]) == (1, 1)
    assert graph.start_ns[both].tolist() == [graph.start_ns[both[0]]] * 2
    assert graph.duration_ns[both].tolist() == [40_000, 40_000]
    waits = dependencies(graph)
    gemms = [row for row in range(len(graph)) if graph.strings[int(graph.name[row])] == "gemm"]
    first, second = sorted(gemms, key=lambda row: int(graph.start_ns[row]))
    assert all((first, row) in waits for row in both)
    assert all((row, second) in waits for row in both)
    assert not {(both[0], both[1]), (both[1], both[0])} & waits
    assert not [finding for finding in stages.findings if finding.code == "unknown-collective"]


def test_their_time_counts_once_and_the_job_is_healthy(stages: Trace) -> None:
    assert account_of(stages).exposed_ns.tolist() == [40_000, 40_000]
    assert not {found.code for found in examine(stages)} & {"deadlock", "stream-order", "unlinked"}
    for step in replayed(stages):
        assert abs(step.difference) < 0.02, step


def test_messages_that_do_not_fit_each_other_are_told_of(tmp_path: Path) -> None:
    """Ranks with equal graphs that differ in peers alone; the error was a traceback."""
    for rank in (0, 1):
        content = pipeline(0).replace(b'"rank": 0', f'"rank": {rank}'.encode())
        content = content.replace(b'"Dst Rank": 1', f'"Dst Rank": {1 - rank}'.encode())
        content = content.replace(b'"Src Rank": 1', f'"Src Rank": {1 - rank}'.encode())
        (tmp_path / f"kineto_{rank}.json").write_bytes(content)
    with pytest.raises(studio.StudioError, match=r"receive|wait"):
        replayed(studio.read(tmp_path))


def replayed(trace: Trace) -> list[StepTime]:
    config = interpret(as_replay(build_idle_system(len(trace.ranks)))).config
    return replaying.compare_steps(simulate(trace, config, native=compiled()))


def test_collectives_of_one_kernel_are_one_of_their_bytes(tmp_path: Path) -> None:
    """And only those: of two groups of calls each kernel has its own, and a call with a kernel keeps it."""
    events = [
        *called("allreduce_coalesced", 10, elements=100),
        *called("allreduce_coalesced", 20, elements=200),
        event("nccl:coalesced", 30, 10, "user_annotation"),
        launch(33, 501),
        kernel(ALL_REDUCE, 40, 10, 501, stream=17),
        *called("allreduce_coalesced", 50, elements=300),
        event("nccl:coalesced", 60, 10, "user_annotation"),
        launch(63, 502),
        kernel(ALL_REDUCE, 70, 10, 502, stream=17),
        event("c10d::allreduce_", 80, 10),
        event("record_param_comms", 81, 8, collective="allreduce", in_elements=5, out_elements=5, dtype="Float", group="0"),
        launch(83, 503),
        kernel(ALL_REDUCE, 90, 10, 503, stream=17),
    ]  # fmt: skip
    (tmp_path / "kineto_0.json").write_bytes(
        device_file(events, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    )
    trace = studio.read(tmp_path)
    graph = trace.graphs[0]
    found = rows(graph, NodeType.COMM_COLL)
    told = [
        {attr.name: attr.value for attr in list_node_attributes(graph, row, trace.ranks[0].slots)}
        for row in found
    ]
    assert [(each["comm_type"], each["comm_size"], each.get("comm_calls", 1)) for each in told] == [
        (CollectiveType.ALL_REDUCE, 1200, 2),
        (CollectiveType.ALL_REDUCE, 1200, 1),
        (CollectiveType.ALL_REDUCE, 20, 1),
    ]


def cut(rank: int, left: int) -> bytes:
    """A recording that begins while the device still has collectives of an unrecorded step to do."""
    before = [kernel(ALL_REDUCE, 10 * place, 8, 100 + place) for place in range(left)]
    after = [
        event("ProfilerStep#5", 0, 75, "user_annotation"),
        event("c10d::allreduce_", 50, 10),
        event("record_param_comms", 51, 8, collective="allreduce", in_elements=5, out_elements=5, dtype="Float", group="0"),
        launch(53, 501),
        kernel(ALL_REDUCE, 60, 10, 501),
    ]  # fmt: skip
    return device_file(
        [*before, *after],
        distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2},
        baseTimeNanoseconds=0,
    )


def test_collectives_from_before_the_recording_match_nothing(tmp_path: Path) -> None:
    """Ranks have other numbers of them under way; before, such jobs were refused."""
    for rank, left in ((0, 3), (1, 2)):
        (tmp_path / f"kineto_{rank}.json").write_bytes(cut(rank, left))
    trace = studio.read(tmp_path)
    assert [len(rows(trace.graph_of(rank), NodeType.COMM_COLL)) for rank in trace.ranks] == [1, 1]
    assert [len(read_int_column(trace.graph_of(rank), "launched_before")[0]) for rank in trace.ranks] == [
        3,
        2,
    ]
    [told] = [found for found in trace.findings if found.code == "unattributed" and found.rank == 0]
    assert told.level == "info"
    assert "(launched before the recording began: 3)" in told.message
    assert "studio.collect" in told.hint
    [unknown] = [found for found in trace.findings if found.code == "unknown-collective" and found.rank == 0]
    assert "ncclDevKernel_AllReduce_Sum_f32_RING_LL (3)" in unknown.message
    counted = {share.name: share.nodes for share in summarise(trace).types}
    assert (counted["communication kernel"], counted["COMM_COLL"]) == (5, 2)
    assert describe_unknown_kernels(summarise(trace)).startswith("5 communication kernels, ")
    said = CliRunner().invoke(main, ["breakdown", str(tmp_path)])
    assert "UNNAMED COLLECTIVE group unknown  " in said.output
    assert not {found.code for found in examine(trace)} & {"unlinked", "collectives-disagree"}
    # What it did then stays communication.
    assert account_of(trace).exposed_ns.tolist() == [34_000, 26_000]
    assert all(abs(step.difference) < 0.02 for step in replayed(trace))


def waiting(call_us: float, correlation: int, stream: int) -> list[dict[str, Any]]:
    """A stream is made to wait; of CUDA 13 the event that tells so names no other stream."""
    said = event(
        "Stream Wait Event", call_us + 0.5, 1, "cuda_sync", pid=0, tid=stream, stream=stream, correlation=correlation,
        wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1, wait_on_cuda_event_id=14,
    )  # fmt: skip
    return [launch(call_us, correlation, WAIT), said]


def test_a_collective_on_the_callers_stream_waits_for_the_one_before_it_on_another(tmp_path: Path) -> None:
    """PyTorch 2.9 and newer run what is not asynchronous on the caller's stream.

    The wait within a call is one of the stream for itself; the wait before it is for the receive whose result is needed.
    """
    events = [
        event("aten::mm", 0, 9),
        launch(2, 500),
        kernel("gemm", 10, 5, 500),
        event("c10d::recv_", 20, 10),
        event("record_param_comms", 21, 8, collective="recv", in_elements=5, out_elements=5, dtype="Float", group="0", **SOURCE),
        *waiting(22, 600, 17),
        launch(25, 501),
        kernel(SEND_RECEIVE, 30, 10, 501, stream=17, collective="recv", in_elements=5, out_elements=5, dtype="Float", group="0"),
        event("record_param_comms", 31, 3, collective="wait"),
        *waiting(32, 601, 7),
        event("c10d::allreduce_", 40, 10),
        event("record_param_comms", 41, 8, collective="allreduce", in_elements=5, out_elements=5, dtype="Float", group="0"),
        *waiting(42, 602, 7),
        launch(45, 502),
        kernel(ALL_REDUCE, 50, 10, 502, collective="allreduce", in_elements=5, out_elements=5, dtype="Float", group="0"),
    ]  # fmt: skip
    (tmp_path / "kineto_0.json").write_bytes(
        device_file(events, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    )
    trace = studio.read(tmp_path)
    graph = trace.graphs[0]
    [received], [reduced] = rows(graph, NodeType.COMM_RECV), rows(graph, NodeType.COMM_COLL)
    [gemm] = [row for row in range(len(graph)) if graph.strings[int(graph.name[row])] == "gemm"]
    assert {(gemm, received), (received, reduced)} <= dependencies(graph)


def test_a_kernel_that_the_next_of_its_stream_overlaps_takes_the_time_until_then(tmp_path: Path) -> None:
    """Of kernels in a CUDA graph each may begin before the one before it has ended: their times add up to more than was."""
    events = [
        event("ProfilerStep#1", 0, 100, "user_annotation"),
        event("cudaGraphLaunch", 1, 3, "cuda_runtime", correlation=501),
        *(kernel(f"part_{place}", 10 + 20 * place, 25, 501) for place in range(3)),
    ]
    (tmp_path / "kineto_0.json").write_bytes(device_file(events))
    trace = studio.read(tmp_path)
    graph = trace.graphs[0]
    parts = [row for row in range(len(graph)) if graph.strings[int(graph.name[row])].startswith("part_")]
    assert graph.duration_ns[parts].tolist() == [20_000, 20_000, 25_000]
    assert [
        each.total_ns
        for each in list_kernels(trace, collect_node_times(trace, recorded(trace)))
        if each.name.startswith("part_")
    ] == [25_000] * 3
    assert all(abs(step.difference) < 0.01 for step in replayed(trace))


def test_clocks_are_compared_by_the_messages_of_the_device(stages: Trace) -> None:
    """Messages go both ways, in kernels; the calls that issue them return at once and tell nothing."""
    [told] = [found for found in stages.findings if found.code == "clock"]
    assert (told.level, "2 matched collectives or messages" in told.message) == ("info", True)
    assert estimate_clock_offsets(stages, ()) == []


RECORDED = Path(__file__).parents[2] / "data" / "nccl_4r"
"""Two steps of four ranks on one H100, each taken for a host of its own (PyTorch 2.11, NCCL 2.28.9), by `studio.collect`: every collective once,
some of them in groups of two ranks, messages alone and in groups of calls, three all-reduces in one kernel."""


@pytest.fixture(scope="module")
def real() -> Trace:
    return studio.read(RECORDED)


def test_a_real_job_has_the_communication_that_its_script_asks_for(real: Trace) -> None:
    counts = {
        CollectiveType(int(kind)).name: int(count)
        for graph in real.graphs
        for kind, count in zip(
            *np.unique(read_int_column(graph, "comm_type")[1], return_counts=True), strict=True
        )
    }
    assert counts == {
        "ALL_REDUCE": 6, "ALL_GATHER": 2, "BROADCAST": 2, "REDUCE": 2, "REDUCE_SCATTER": 2, "GATHER": 2, "SCATTER": 2, "BARRIER": 2,
    }  # fmt: skip
    # A ring of messages in one kernel, and a chain of lone ones from the last rank to the first.
    assert [len(rows(graph, NodeType.COMM_SEND)) for graph in real.graphs] == [2, 4, 4, 4]
    assert [len(rows(graph, NodeType.COMM_RECV)) for graph in real.graphs] == [4, 4, 4, 2]
    assert [sorted(group.ranks) for group in real.groups] == [[0, 1, 2, 3], [0, 2], [1, 3]]
    assert not {found.code for found in real.findings} & {
        "unknown-collective",
        "unattributed",
        "comm-group-inferred",
    }
    assert not [
        found for found in examine(real) if found.code in ("deadlock", "stream-order", "collectives-disagree")
    ]


def test_a_real_job_accounts_for_the_time_of_its_kernels_and_replays(real: Trace) -> None:
    """Exposed communication is what the raw events say: kernels of NCCL, but for what other work of the device overlaps.

    A stage that waits for a message of another stage is a bubble.
    """
    account = account_of(real)
    exposed = account.exposed_ns + account.of("bubble")
    for rank, told in enumerate(exposed.tolist()):
        events = json.loads(gzip.decompress((RECORDED / f"kineto_{rank}.json.gz").read_bytes()))[
            "traceEvents"
        ]
        work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        talking = [span_of(event) for event in work if "nccl" in event["name"]]
        others = [span_of(event) for event in work if "nccl" not in event["name"]]
        assert told == pytest.approx(1e3 * (union(talking + others) - union(others)), abs=100)
    for step in replayed(real):
        assert abs(step.difference) < 0.02, step


def span_of(one: dict[str, Any]) -> tuple[float, float]:
    return one["ts"], one["ts"] + one["dur"]


def union(spans: list[tuple[float, float]]) -> float:
    """How long at least one of some spans lasts."""
    total, reached = 0.0, -1.0
    for begin, end in sorted(spans):
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total


def buckets(*, gemm_us: float = 30, copied_us: float = 105, copy_called_us: float = 83) -> bytes:
    """Two all-reduces are called, end at 100 and 160 µs, and are waited for one after another, each before a copy of its result."""
    return device_file(
        [
            event("aten::mm", 10, 10),
            launch(12, 501),
            kernel("gemm", 20, gemm_us, 501),
            *called("allreduce", 30),
            launch(32, 600, "hipStreamWaitEvent"),
            launch(34, 502, "hipLaunchKernel", 1),
            kernel(ALL_REDUCE, 60, 40, 502, stream=17),
            *called("allreduce", 40),
            launch(42, 601, "hipStreamWaitEvent"),
            launch(44, 503, "hipLaunchKernel", 1),
            kernel(ALL_REDUCE, 101, 59, 503, stream=17),
            launch(60, 602, "hipStreamWaitEvent"),
            event("aten::copy_", copy_called_us - 1, 5),
            launch(copy_called_us, 504, "hipLaunchKernel"),
            kernel("copy of the first", copied_us, 5, 504),
            launch(120, 603, "hipStreamWaitEvent"),
            event("aten::copy_", 122, 5),
            launch(123, 505, "hipLaunchKernel"),
            kernel("copy of the second", 165, 5, 505),
        ],
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2},
        baseTimeNanoseconds=0,
    )


def collectives_before(graph: Graph, name: str) -> list[int]:
    """Return when the collectives ended that an operation of the device waits for."""
    [row] = [row for row in range(len(graph)) if graph.strings[int(graph.name[row])] == name]
    found = rows(graph, NodeType.COMM_COLL)
    ends = graph.start_ns + graph.duration_ns
    return [int(ends[source]) for source in graph.data.of(row).tolist() if source in found]


def test_the_first_of_several_collectives_is_waited_for_before_the_last(tmp_path: Path) -> None:
    """The last had been called when the first was waited for, and ends after the copy of the first."""
    (tmp_path / "kineto_0.json").write_bytes(buckets())
    trace = studio.read(tmp_path)
    [graph] = trace.graphs
    zero_us = 10  # when the first event began
    assert collectives_before(graph, "copy of the first") == [(100 - zero_us) * 1000]
    assert collectives_before(graph, "copy of the second") == [(160 - zero_us) * 1000]
    gaps = np.flatnonzero(are_idle(graph) & (graph.start_ns > (60 - zero_us) * 1000))
    assert graph.duration_ns[gaps].max() == 5_000
    for step in replayed(trace):
        assert abs(step.difference) < 0.02, step


@pytest.mark.parametrize(
    "other",
    [
        {"gemm_us": 82},  # the stream of the copy was at work until after the end of the collective
        {"copy_called_us": 101, "copied_us": 110},  # the copy was launched only after it
        {"copied_us": 99},  # no collective had ended
    ],
)
def test_a_collective_that_did_not_end_while_an_operation_waited_is_not_what_it_waited_for(
    tmp_path: Path, other: dict[str, float]
) -> None:
    (tmp_path / "kineto_0.json").write_bytes(buckets(**other))
    [graph] = studio.read(tmp_path).graphs
    assert collectives_before(graph, "copy of the first") == []
    assert len(collectives_before(graph, "copy of the second")) == 1


def listed(
    operator: str, at_us: float, correlation: int, *launches: tuple[str, list[list[int]], list[str]]
) -> list[dict[str, Any]]:
    """A call on a list of tensors as old recordings tell it: its shapes are empty, what it launches has them."""
    events = [event(operator, at_us, 20), event("record_param_comms", at_us + 1, 18)]
    for one in events:
        one["args"] |= {"Input Dims": [[], [], []], "Input type": ["TensorList", "", "Scalar"]}
    for place, (name, dims, types) in enumerate(launches):
        inner = event(name, at_us + 2 + 4 * place, 3, "user_annotation")
        inner["args"] |= {"Input Dims": dims, "Input type": types}
        events += [inner, launch(at_us + 2.5 + 4 * place, correlation + place, duration_us=1)]
        events.append(kernel("ncclKernel_SendRecv", at_us + 30 + place, 1, correlation + place, stream=17))
    return events


def sizes_of(folder: Path, events: list[dict[str, Any]]) -> list[int]:
    (folder / "kineto_0.json").write_bytes(
        device_file(events, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})
    )
    trace = studio.read(folder)
    return read_int_column(trace.graphs[0], "comm_size", trace.ranks[0].slots)[1].tolist()


def test_calls_on_lists_have_the_size_of_what_they_launch(tmp_path: Path) -> None:
    """Before, they had 0 bytes where no execution trace was beside, though `nccl:all_reduce` names its tensors."""
    events = [
        *listed("c10d::allreduce_", 0, 500, ("nccl:all_reduce", [[394_241]], ["float"])),
        *listed("c10d::allgather_", 100, 510, ("nccl:all_gather", [[3, 5]], ["c10::Half"])),
        *listed("c10d::reduce_scatter_", 200, 520, ("nccl:reduce_scatter", [[64]], ["double"])),
        *listed("c10d::alltoall_", 300, 530, ("nccl:all_to_all", [[2], [6]], ["int", "int"])),
        *listed("c10d::send", 400, 540, ("nccl:send 0->1", [[7]], ["float"])),
    ]
    assert sizes_of(tmp_path, events) == [1_576_964, 30, 512, 32, 28]


def test_what_is_launched_tells_no_size_that_is_not_the_calls_own(tmp_path: Path) -> None:
    """Of another kind, of an all-to-all's first tensor alone, or without a type: the size stays unknown."""
    events = [
        *listed("c10d::allgather_", 0, 500, ("nccl:_broadcast_oop", [[9]], ["float"])),
        *listed("c10d::alltoall_", 100, 510, ("nccl:all_to_all", [[2]], ["int"])),
        *listed("c10d::allreduce_", 200, 520, ("nccl:all_reduce", [[2]], ["?"])),
    ]
    assert sizes_of(tmp_path, events) == [0, 0, 0]


@pytest.mark.parametrize("told", [True, False])
def test_without_events_of_launches_a_collective_counts_once(tmp_path: Path, told: bool) -> None:
    """Call and kernel have one external id; both were collectives."""
    facts: dict[str, Any] = {
        "collective": "allreduce",
        "in_elements": 64,
        "out_elements": 64,
        "dtype": "Float",
    }
    facts |= {"group": "0", "group_ranks": "[0, 1]"}
    events = [
        event("c10d::allreduce_", 0, 50, external=18),
        event("record_param_comms", 5, 40, external=19, **facts),
        kernel(ALL_REDUCE, 100, 1000, 107, external=19, **(facts if told else {})),
    ]
    (tmp_path / "kineto_0.json").write_bytes(device_file(events))
    graph = studio.link(tmp_path / "kineto_0.json").graphs[0]
    [row] = rows(graph, NodeType.COMM_COLL)
    assert (graph.strings[int(graph.name[row])], int(graph.duration_ns[row])) == (ALL_REDUCE, 1_000_000)
    assert dict(zip(*map(np.ndarray.tolist, read_int_column(graph, "comm_size")), strict=True)) == {row: 256}


def test_several_launches_of_a_call_are_its_bytes_together(tmp_path: Path) -> None:
    one = ("nccl:all_reduce", [[100]], ["float"])
    assert sum(sizes_of(tmp_path, listed("c10d::allreduce_", 0, 500, one, one))) == 800


def test_real_collectives_on_lists_have_their_sizes(shared: Path) -> None:
    """The all-reduces of eight ranks of a DLRM: 394,241, 112 and 226,960 floats."""
    trace = studio.read(shared / "traces/public/param/dlrm_8gpu")
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        types = dict(
            zip(*map(np.ndarray.tolist, read_int_column(graph, "comm_type", rank.slots)), strict=True)
        )
        sizes = dict(
            zip(*map(np.ndarray.tolist, read_int_column(graph, "comm_size", rank.slots)), strict=True)
        )
        reduced = [sizes[row] for row, kind in types.items() if kind == CollectiveType.ALL_REDUCE]
        assert reduced == [1_576_964, 448, 907_840]
