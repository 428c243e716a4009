"""Two files per rank become one job: on small ranks drawn by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import studio
from studio.commands.link import Linked, report_rank, text
from studio.doctor import examine
from studio.errors import TraceError
from studio.et import DepKind, LinkOptions
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.sim.replays import as_replay, build_idle_system
from studio.trace import NodeType, Trace, list_node_attributes, read_dense_column, read_int_column
from tests.et.pytorch_files import (
    THREAD,
    device_file,
    event,
    host_file,
    kernel,
    launch,
    node,
    rank_files,
    small_rank,
    tensor,
)


@pytest.fixture
def job(tmp_path):
    """Two ranks whose clocks differ by 5 ms."""
    for number in (0, 1):
        rank_files(tmp_path / "run", number, *small_rank(number, shift_us=5000 * number, pid=7 + number))
    return tmp_path / "run"


def names(graph) -> list[str]:
    return [graph.strings[code] for code in graph.name.tolist()]


def attributes(trace, rank, row):
    return {attr.name: attr.value for attr in list_node_attributes(trace.graph_of(rank), row, rank.slots)}


def reasons(graph, slots=()) -> dict[tuple[str, str], DepKind]:
    """Data dependencies with their reasons, by names."""
    found = {}
    called = names(graph)
    for row in range(len(graph)):
        told = {attr.name: attr.value for attr in list_node_attributes(graph, row, slots)}
        for source, kinds in zip(graph.data.of(row).tolist(), told.get("dep_kinds", []), strict=True):
            found[called[source], called[row]] = DepKind(kinds)
    return found


def test_both_files_of_every_rank_make_one_job(job):
    trace = studio.read(job)
    assert [rank.number for rank in trace.ranks] == [0, 1]
    told = {attr.name: attr.value for attr in trace.ranks[0].metadata}
    assert [
        told[f"link_{key}"] for key in ("host_operations", "linked", "device_operations", "attributed")
    ] == [6, 6, 3, 3]
    assert [(group.name, group.ranks, group.inferred) for group in trace.groups] == [("0", (0, 1), False)]


def test_nodes_have_starts_own_durations_and_what_they_waited(job):
    trace = studio.link(job)
    graph = trace.graphs[0]
    rows = {name: row for row, name in enumerate(names(graph))}
    assert graph.start_ns[rows["gemm"]] == 30_000
    assert graph.duration_ns[rows["c10d::allreduce_"]] == 4_000
    item = attributes(trace, trace.ranks[0], rows["aten::item"])
    # It waited from the synchronising call at 135 us to the end of the copy at 350 us.
    assert item["wait_ns"] == 215_000
    assert item["inclusive_ns"] == 300_000
    # Of its own 85 us it spent 70 after that; before the wait they would be hidden by it.
    assert graph.duration_ns[rows["aten::item"]] == 15_000
    assert (70_000, 350_000) in zip(graph.duration_ns.tolist(), graph.start_ns.tolist(), strict=True)


def test_every_dependency_says_why(job):
    rank = studio.link(job).ranks[0]
    trace = studio.link(job)
    why = reasons(trace.graph_of(rank), rank.slots)
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
    assert why["aten::mm", "gemm"] == DepKind.LAUNCH
    assert why["gemm", nccl] == DepKind.DATA
    assert why["gemm", "Memcpy DtoH"] == DepKind.STREAM
    assert why[nccl, "Memcpy DtoH"] == DepKind.DATA
    assert why["c10d::allreduce_", "record_param_comms"] == DepKind.ORDER
    assert why["aten::mm", "c10d::allreduce_"] == DepKind.DATA


def test_nodes_stand_after_all_that_they_wait_for(job):
    graph = studio.link(job).graphs[0]
    assert "host gap" in names(graph)
    assert np.argmin(graph.start_ns[graph.start_ns >= 0]) == 0
    for dependencies in (graph.ctrl, graph.data):
        of = np.repeat(np.arange(len(graph)), np.diff(dependencies.offsets))
        assert (dependencies.rows < of).all()


def test_reasons_survive_writing_and_reading(job, tmp_path):
    trace = studio.link(job)
    studio.write(trace, tmp_path / "out", "run")
    again = studio.read(tmp_path / "out")
    assert again.ranks[0].metadata == trace.ranks[0].metadata
    assert [studio.trace.compute_digest(graph) for graph in again.graphs] == [
        studio.trace.compute_digest(graph) for graph in trace.graphs
    ]
    assert reasons(again.graphs[0], again.ranks[0].slots) == reasons(trace.graphs[0], trace.ranks[0].slots)


def test_nanoseconds_survive_writing_and_reading(tmp_path):
    host = host_file([node(3, "aten::mm", rf_id=3)])
    device = device_file([event("aten::mm", 1.001, 2.003, rf=3)], baseTimeNanoseconds=0)
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    studio.write(trace, tmp_path / "out", "run")
    again = studio.read(tmp_path / "out").graphs[0]
    assert (again.start_ns.tolist(), again.duration_ns.tolist()) == (
        trace.graphs[0].start_ns.tolist(),
        trace.graphs[0].duration_ns.tolist(),
    )
    assert trace.graphs[0].duration_ns.max() == 2_003


@pytest.mark.parametrize(
    ("switch", "kind"),
    [
        ("host_order", DepKind.ORDER),
        ("launch", DepKind.LAUNCH),
        ("stream_order", DepKind.STREAM),
        ("data", DepKind.DATA),
    ],
)
def test_kinds_of_dependencies_can_be_switched_off(job, switch, kind):
    rank = studio.link(job).ranks[0]
    on = reasons(studio.link(job).graph_of(rank), rank.slots)
    off = reasons(studio.link(job, options=LinkOptions(**{switch: False})).graph_of(rank), rank.slots)
    assert any(kind in why for why in on.values())
    if kind == DepKind.STREAM:  # without the order of a stream there is no time between its operations
        on = {pair: why for pair, why in on.items() if "device gap" not in pair}
    assert off == {pair: why & ~kind for pair, why in on.items() if why & ~kind}


def test_without_call_parents_there_are_no_control_dependencies(job):
    assert not len(studio.link(job, options=LinkOptions(call_parent=False)).graphs[0].ctrl.rows)


def test_without_gaps_there_are_no_nodes_for_them(job):
    with_gaps, without = (
        studio.link(job, options=LinkOptions(host_gaps=on)).graphs[0] for on in (True, False)
    )
    assert names(with_gaps).count("host gap") == 4
    assert "host gap" not in names(without)


def test_without_waiting_for_the_device_its_time_stays_with_the_operator(job):
    graph = studio.link(job, options=LinkOptions(sync=False)).graphs[0]
    assert graph.duration_ns[names(graph).index("aten::item")] == 300_000


def test_clocks_are_aligned_by_ends_of_collectives(job):
    trace = studio.link(job)
    nccl = [
        int(
            trace.graph_of(rank).start_ns[
                names(trace.graph_of(rank)).index("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
            ]
        )
        for rank in trace.ranks
    ]
    assert nccl[0] == nccl[1]
    told = {attr.name: attr.value for attr in trace.ranks[1].metadata}
    assert (told["clock_offset_ns"], told["clock_residual_ns"], told["clock_matched"]) == (-5_000_000, 0, 1)
    assert any(finding.code == "clock" and "5.00 ms" in finding.message for finding in trace.findings)


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_cut_file_is_blamed_and_not_the_clocks_of_whole_ranks(tmp_path, cut):
    """Rank 0 is no exception, although the clocks of the others usually count from it."""
    for number in range(3):
        paths = rank_files(tmp_path, number, *small_rank(number, shift_us=5000 * number, pid=7 + number))
        if number == cut:
            content = paths[1].read_bytes()
            paths[1].write_bytes(content[: content.index(b"nccl")])
    trace = studio.link(tmp_path)
    [said] = [one for one in trace.findings if one.code == "clock" and one.level == "warning"]
    assert said.rank == cut
    assert said.file == f"{tmp_path.name}/kineto_{cut}.json"
    assert f"kineto_{cut}.json is cut off or broken" in said.message
    whole = [rank for rank in trace.ranks if rank.number != cut]
    told = [{one.name: one.value for one in rank.metadata} for rank in whole]
    assert [one["clock_residual_ns"] for one in told] == [0, 0]
    assert told[1]["clock_offset_ns"] == -5_000_000 * (whole[1].number - whole[0].number)


def test_notes_of_the_profiler_are_no_operators(tmp_path):
    """What takes tensors, calls something or has a signature is one, whatever its name."""
    notes = [
        node(3, "## process_group:init ##", rf_id=1, inputs=["[]"]),
        node(4, "## my note ##", rf_id=2),
    ]
    work = [
        node(5, "## forward ##", rf_id=3),
        node(6, "aten::mm", 5, rf_id=4),
        node(7, "## kernel ##", rf_id=5, op_schema="my::kernel(Tensor a) -> Tensor"),
        node(8, "## timed ##", rf_id=6),
    ]
    tensors = node(9, "## moves ##", rf_id=7, inputs=[tensor(1)])
    tensors["inputs"]["types"] = ["Tensor(float)"]
    device = device_file([event("aten::mm", 10, 5, rf=4), event("## timed ##", 20, 5, rf=6)])
    trace = studio.link(rank_files(tmp_path, 0, host_file([*notes, *work, tensors]), device))
    figures = report_rank(trace, trace.ranks[0])
    assert (figures["host_operations"], figures["linked"], figures["host_events"]) == (5, 2, 2)
    graph = trace.graphs[0]
    lost = {names(graph)[row] for row in graph.rows_with("unlinked")[0].tolist()}
    assert lost == {"## forward ##", "## kernel ##", "## moves ##"}
    [said] = [one for one in trace.findings if one.code == "unlinked"]
    assert "3 of 5 operators" in said.message
    [checked] = [one for one in examine(trace) if one.code == "unlinked"]
    assert checked.count == 3


def test_clocks_can_be_left_alone(job):
    trace = studio.link(job, options=LinkOptions(align_clocks=False))
    assert int(trace.graph_of(trace.ranks[1]).start_ns.max()) > 5_000_000


def test_pairs_are_found_by_content_where_names_are_swapped(tmp_path):
    """Ranks 0 and 1 of the host side carry each other's number; the Kineto side tells its own."""
    first, second = small_rank(0, pid=7), small_rank(1, pid=8)
    rank_files(tmp_path, 0, second[0], first[1])
    rank_files(tmp_path, 1, first[0], second[1])
    trace = studio.link(tmp_path)
    assert [[attr.value for attr in rank.metadata if attr.name == "pid"] for rank in trace.ranks] == [
        [7],
        [8],
    ]
    assert [rank.number for rank in trace.ranks] == [0, 1]


def test_order_of_the_arguments_does_not_count(job):
    paths = sorted(job.iterdir())
    assert studio.link(paths) == studio.link(paths[::-1])


def test_files_of_different_processes_are_refused(tmp_path):
    host = host_file([node(3 + at, f"aten::op{at}", rf_id=3 + at) for at in range(9)], pid=1)
    paths = rank_files(tmp_path, 0, host, small_rank(0, pid=2)[1])
    with pytest.raises(TraceError, match=r"are not of the same process: process 1 in one, 2 in the other"):
        studio.link(paths)


def test_one_refused_rank_does_not_keep_the_others_out(tmp_path):
    rank_files(tmp_path, 0, *small_rank(0))
    strangers = host_file([node(3 + at, f"aten::op{at}", rf_id=3 + at) for at in range(9)], pid=1)
    rank_files(tmp_path, 1, strangers, small_rank(1, pid=2)[1])
    trace = studio.link(tmp_path)
    assert [rank.number for rank in trace.ranks] == [0]
    assert [finding.rank for finding in trace.findings if finding.code == "unrelated"] == [1]


def test_a_step_numbered_zero_is_not_taken_for_a_root(tmp_path):
    host = host_file([node(3, "ProfilerStep#10", rf_id=0), node(4, "aten::mm", 3, rf_id=4)])
    device = device_file(
        [event("ProfilerStep#10", 0, 50, "user_annotation", rf=0), event("aten::mm", 1, 2, rf=4)]
    )
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    assert trace.graphs[0].start_ns.tolist()[:4] == [-1, -1, -1, 1000]


def test_external_ids_count_only_where_names_agree(tmp_path):
    host = host_file([node(3 + at, f"aten::op{at}", rf_id=3 + at) for at in range(10)])
    right = device_file([event(f"aten::op{at}", at, 1, external=3 + at) for at in range(10)])
    assert {
        a.name: a.value for a in studio.link(rank_files(tmp_path / "a", 0, host, right)).ranks[0].metadata
    }["link_method"] == "external id"
    wrong = device_file([event(f"aten::op{at}", at, 1, external=3 + (at + at // 5) % 10) for at in range(10)])
    trace = studio.link(rank_files(tmp_path / "b", 0, host, wrong))
    assert [finding.code for finding in trace.findings if finding.level == "error"] == ["nothing-linked"]


def test_operators_are_joined_in_their_order_where_no_id_tells(tmp_path):
    """As PyTorch 2.3 writes them: behind a collective external ids are others, and threads of gloo have operators but no events."""
    names = [f"aten::op{at % 7}" for at in range(30)]
    followed = [node(10 + at, name, rf_id=10 + 2 * at) for at, name in enumerate(names)]
    left_out = [node(60 + at, "aten::op1", rf_id=25 + 2 * at, tid=2) for at in range(5)]
    host = host_file([*followed, *left_out])

    def link(folder: str, last: str) -> Trace:
        events = [
            event(name, 5 * at, 4, external=10 + 2 * at + (1 if at > 5 else 0), tid=7 if at < 20 else 8)
            for at, name in enumerate([*names[:-1], last])
        ]
        return studio.link(rank_files(tmp_path / folder, 0, host, device_file(events[::-1])))

    trace = link("a", names[-1])
    assert {one.name: one.value for one in trace.ranks[0].metadata}["link_method"] == "order"
    graph = trace.graphs[0]
    start_of = dict(zip(graph.id.tolist(), graph.start_ns.tolist(), strict=True))
    assert [start_of[10 + at] for at in range(30)] == [5000 * at for at in range(30)]
    assert [start_of[60 + at] for at in range(5)] == [-1] * 5
    # One name that differs, and nothing is proved.
    found = link("b", "aten::other").findings
    assert "nothing-linked" in [finding.code for finding in found]


def test_device_operations_without_an_operator_are_kept_and_counted(tmp_path):
    host = host_file([node(3, "aten::mm", rf_id=3)])
    device = device_file(
        [
            event("aten::mm", 10, 30, rf=3),
            launch(20, 1, "cudaGraphLaunch"),
            kernel("in graph, first", 30, 5, 1),
            kernel("in graph, second", 36, 5, 1),
            launch(25, 2, "cudaMemsetAsync"),
            kernel("Memset", 45, 1, 2, cat="gpu_memset", bytes=64),
            launch(26, 3, "cudaMemcpyPeerAsync"),
            kernel("Memcpy PtoP", 47, 1, 3, cat="gpu_memcpy"),
            kernel("launched before the recording", 1, 5, 99),
            kernel("of unknown origin", 60, 5, -1),
            launch(90, 4),
            kernel("outside of every operator", 95, 5, 4),
        ]
    )
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    told = {attr.name: attr.value for attr in trace.ranks[0].metadata}
    assert (told["link_device_operations"], told["link_attributed"]) == (7, 4)
    lost, _ = read_int_column(trace.graphs[0], "unattributed")
    assert sorted(names(trace.graphs[0])[row] for row in lost.tolist()) == [
        "launched before the recording",
        "of unknown origin",
        "outside of every operator",
    ]
    assert any(
        "3 of 7 device operations belong to no operator" in finding.message for finding in trace.findings
    )


@pytest.mark.parametrize(("without", "level"), [("an operator", "warning"), ("any operator", "info")])
def test_the_linker_and_the_check_agree_how_much_unlinked_operations_matter(tmp_path, without, level):
    """Where no file tells operators nothing was lost in linking; `info` shows the one, `check` the other."""
    kernels = [kernel("of unknown origin", 60 + at, 1, -1) for at in range(3)]
    device = device_file([event("aten::mm", 10, 5, rf=1), *kernels])
    paths = rank_files(tmp_path, 0, host_file([node(3, "aten::mm", rf_id=1)]), device)
    trace = studio.link(paths if without == "an operator" else paths[1:])
    [said] = [one for one in trace.findings if one.code == "unattributed"]
    [checked] = [one for one in examine(trace) if one.code == "unlinked"]
    assert (said.level, checked.level) == (level, level)


def test_streams_wait_for_recorded_events_of_others(tmp_path):
    host = host_file([node(3, "aten::a", rf_id=3), node(4, "aten::b", rf_id=4)])
    device = device_file(
        [
            event("aten::a", 0, 20, rf=3),
            launch(5, 1),
            kernel("producer", 30, 50, 1, stream=7),
            launch(10, 2, "cudaEventRecord"),
            event("aten::b", 30, 40, rf=4),
            launch(35, 3, "cudaStreamWaitEvent"),
            event(
                "Stream Wait Event", 36, 1, "cuda_sync", pid=0, tid=20, stream=20, correlation=3,
                wait_on_stream=7, wait_on_cuda_event_record_corr_id=2,
            ),
            launch(40, 4),
            kernel("consumer", 81, 9, 4, stream=20),
        ]
    )  # fmt: skip
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    assert reasons(trace.graphs[0])["producer", "consumer"] == DepKind.EVENT


def test_the_processor_waits_for_every_stream_of_the_device(tmp_path):
    host = host_file([node(3, "aten::a", rf_id=3), node(4, "aten::b", rf_id=4)])
    device = device_file(
        [
            event("aten::a", 0, 20, rf=3),
            launch(5, 1),
            kernel("one", 10, 50, 1, stream=7),
            launch(6, 2),
            kernel("other", 10, 90, 2, stream=20),
            launch(30, 3, "cudaDeviceSynchronize", 75),
            event("aten::b", 115, 5, rf=4),
        ]
    )
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    why = reasons(trace.graphs[0])
    # The gaps are what the operator did after its launch, 10 us before the call and 10 us after it; of the call 70 us were waiting, and 5 us are its own.
    gaps = [row for row, name in enumerate(names(trace.graphs[0])) if name == "host gap"]
    assert trace.graphs[0].duration_ns[gaps].tolist() == [13_000, 10_000, 10_000]
    row = names(trace.graphs[0]).index("cudaDeviceSynchronize")
    told = attributes(trace, trace.ranks[0], row)
    assert (told["waits_for"], told["wait_ns"], told["is_cpu_op"]) == ("device", 70_000, True)
    assert (trace.graphs[0].start_ns[row], trace.graphs[0].duration_ns[row]) == (100_000, 5_000)
    assert why["other", "cudaDeviceSynchronize"] == why["one", "cudaDeviceSynchronize"] == DepKind.SYNC


def test_a_call_waits_for_what_was_launched_before_the_recording_began(tmp_path):
    """Correlation ids tell what it was: 3 lies before the call's 9, 20 after it, so its operation was no part of the wait."""
    device = device_file(
        [
            kernel("before", 0, 40, 2, stream=7),
            kernel("last before", 40, 60, 3, stream=7),
            launch(10, 9, "cudaDeviceSynchronize", 95),
            event("aten::a", 110, 20),
            launch(115, 20),
            kernel("after", 120, 50, 20, stream=7),
        ]
    )
    path = tmp_path / "trace.json"
    path.write_bytes(device)
    trace = studio.link(path)
    [graph] = trace.graphs
    row = names(graph).index("cudaDeviceSynchronize")
    assert (graph.start_ns[row], graph.duration_ns[row]) == (100_000, 5_000)
    why = reasons(graph)
    assert why["last before", "cudaDeviceSynchronize"] == DepKind.SYNC
    assert why["cudaDeviceSynchronize", "host gap"] == DepKind.ORDER
    assert ("after", "cudaDeviceSynchronize") not in why


def test_a_wait_is_shorter_where_the_device_is_faster(tmp_path):
    """The host goes on 5 us after the device is done, then computes for 20: 130 us, and 50 less where the kernels take half."""
    device = device_file(
        [
            kernel("before", 0, 40, 2, stream=7),
            kernel("last before", 40, 60, 3, stream=7),
            event("aten::a", 1, 4),
            launch(10, 9, "cudaDeviceSynchronize", 95),
            event("aten::a", 110, 20),
        ]
    )
    path = tmp_path / "trace.json"
    path.write_bytes(device)
    trace = studio.link(path)
    [graph] = trace.graphs
    faster = np.where(read_dense_column(graph, "stream", -1) >= 0, graph.duration_ns // 2, graph.duration_ns)
    config = interpret(as_replay(build_idle_system(1))).config
    finishes = [
        int(simulate(replace(trace, graphs=(replace(graph, duration_ns=took),)), config).finish_ns[0])
        for took in (graph.duration_ns, faster)
    ]
    assert finishes == [130_000, 80_000]


def test_a_wait_that_took_no_time_counts_only_if_a_replay_is_in_time(tmp_path):
    """The operator takes 5 ms after its launch; in a replay its kernel begins then, after the call had returned."""
    device = device_file(
        [
            event("aten::a", 0, 5000),
            launch(5, 1),
            kernel("done", 10, 4000, 1, stream=7),
            launch(5010, 2, "cudaDeviceSynchronize", 8),
            event("aten::b", 5030, 5),
        ]
    )
    path = tmp_path / "trace.json"
    path.write_bytes(device)
    graph = studio.link(path).graphs[0]
    assert DepKind.SYNC not in reasons(graph).values()
    assert "cudaDeviceSynchronize" not in names(graph)


def test_a_wait_that_took_no_time_is_a_dependency_all_the_same(tmp_path):
    """What had ended holds nothing up in the recording; on a slower device, or with a faster host, it would."""
    device = device_file(
        [
            event("aten::a", 0, 20),
            launch(5, 1),
            kernel("done", 10, 5, 1, stream=7),
            launch(40, 2, "cudaDeviceSynchronize", 8),
            event("aten::item", 60, 40),
            launch(65, 3, "cudaMemcpyAsync"),
            kernel("copied", 70, 2, 3, stream=7),
            launch(80, 4, "cudaStreamSynchronize", 8),
            event("aten::b", 110, 5),
        ]
    )
    path = tmp_path / "trace.json"
    path.write_bytes(device)
    trace = studio.link(path)
    [graph] = trace.graphs
    row = names(graph).index("cudaDeviceSynchronize")
    assert (graph.start_ns[row], graph.duration_ns[row]) == (40_000, 8_000)
    assert reasons(graph)["done", "cudaDeviceSynchronize"] == DepKind.SYNC
    # Of a wait within an operator that computes the operator is the node; what comes after it waits.
    assert "cudaStreamSynchronize" not in names(graph)
    assert graph.duration_ns[names(graph).index("aten::item")] == 40_000
    assert reasons(graph)["copied", "host gap"] == DepKind.SYNC


@pytest.mark.parametrize(
    ("name", "kernel_us", "call_us", "waited"),
    [
        ("Memcpy DtoH (Device -> Pageable)", 1000, 1005, True),
        ("Memcpy DtoH (Device -> Pageable)", 50, 55, True),
        ("Memcpy DtoH (Device -> Host)", 1000, 1005, True),
        # Whether so short a call waited cannot be told of memory that is not named, and of this memory none does.
        ("Memcpy DtoH (Device -> Host)", 50, 55, False),
        ("Memcpy DtoH (Device -> Pinned)", 1000, 1005, False),
        ("Memcpy DtoD (Device -> Device)", 1000, 1005, False),
        # It returned while the device was busy, or long after the copy.
        ("Memcpy DtoH (Device -> Pageable)", 1000, 10, False),
        ("Memcpy DtoH (Device -> Pageable)", 1000, 1500, False),
    ],
)
def test_a_call_waits_for_its_copy_of_pageable_memory_behind_other_work(
    tmp_path, name, kernel_us, call_us, waited
):
    """However short the copy is, as of `.item()`: the call waits from its begin until the copy has ended."""
    copied = 20 + kernel_us
    path = tmp_path / "trace.json"
    path.write_bytes(
        device_file(
            [
                event("aten::mm", 0, 12),
                launch(5, 1),
                kernel("gemm", 18, kernel_us, 1, stream=7),
                event("aten::copy_", 20, call_us + 4),
                launch(22, 2, "cudaMemcpyAsync", call_us),
                kernel(name, copied, 2, 2, stream=7),
                event("aten::after", 20 + call_us + 10, 5),
            ]
        )
    )
    trace = studio.link(path)
    [graph] = trace.graphs
    row = names(graph).index("aten::copy_")
    assert attributes(trace, trace.ranks[0], row).get("wait_ns", 0) == (1_000 * kernel_us if waited else 0)
    # What it does after the wait is not hidden by it.
    assert graph.duration_ns[row] == 1_000 * (2 if waited else call_us + 4)
    assert (7_000 in graph.duration_ns.tolist()) == waited
    assert (DepKind.SYNC in reasons(graph).values()) == waited


def test_a_call_that_took_long_before_the_device_had_its_copy_did_not_wait(tmp_path):
    """Such as the first of a process: the device was done with what it had long before the copy began."""
    path = tmp_path / "trace.json"
    path.write_bytes(
        device_file(
            [
                event("aten::mm", 0, 12),
                launch(5, 1),
                kernel("gemm", 18, 50, 1, stream=7),
                event("aten::copy_", 20, 1009),
                launch(22, 2, "cudaMemcpyAsync", 1005),
                kernel("Memcpy DtoH (Device -> Pageable)", 1020, 2, 2, stream=7),
                event("aten::after", 1040, 5),
            ]
        )
    )
    [graph] = studio.link(path).graphs
    assert graph.duration_ns[names(graph).index("aten::copy_")] == 1_009_000
    assert DepKind.SYNC not in reasons(graph).values()


def test_operations_of_a_device_say_how_they_were_launched(tmp_path):
    device = device_file(
        [
            event("aten::a", 0, 20),
            launch(5, 1, "cudaGraphLaunch", 4),
            kernel("one", 15, 5, 1, stream=7),
            kernel("two", 20, 5, 1, stream=7),
            kernel("unknown", 30, 5, 77, stream=7),
        ]
    )
    path = tmp_path / "trace.json"
    path.write_bytes(device)
    trace = studio.link(path)
    told = {name: attributes(trace, trace.ranks[0], row) for row, name in enumerate(names(trace.graphs[0]))}
    assert [told[name].get("launch_ns") for name in ("one", "two", "unknown")] == [10_000, 15_000, None]
    assert told["two"]["launch_call_ns"] == 4_000
    assert told["two"]["launched_by"] == "cudaGraphLaunch"


def test_a_thread_waits_for_the_one_that_set_it_going(tmp_path):
    host = host_file(
        [node(3, "aten::main", rf_id=3), node(4, "aten::worker", rf_id=4), node(5, "aten::after", rf_id=5)]
    )
    device = device_file(
        [
            event("aten::main", 0, 100, rf=3),
            event("aten::worker", 120, 500, tid=8, rf=4),
            event("aten::after", 700, 10, rf=5),
        ]
    )
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    graph = trace.graphs[0]
    gaps = [row for row, name in enumerate(names(graph)) if name == "host gap"]
    assert sorted(graph.duration_ns[gaps].tolist()) == [20_000, 80_000]
    assert reasons(graph)["aten::worker", "host gap"] == DepKind.THREAD


def test_a_thread_is_set_going_by_nothing_within_an_operator_that_computes_on(tmp_path):
    """What a product calls first ends in a replay after the product's own time; and what stands for a thread waits for no other."""
    host = host_file(
        [
            node(3, "aten::before", rf_id=3),
            node(4, "aten::mm", rf_id=4),
            node(5, "aten::resolve_conj", 4, rf_id=5),
            node(6, THREAD, 1, tid=10),
            node(7, "aten::worker", 6, rf_id=7, tid=10),
            node(8, "aten::after", rf_id=8),
        ]
    )
    device = device_file(
        [
            event("aten::before", 10, 80, rf=3),
            event("aten::mm", 100, 3000, rf=4),
            event("aten::resolve_conj", 110, 5, rf=5),
            event("aten::worker", 400, 5000, tid=8, rf=7),
            event("aten::after", 3200, 10, rf=8),
        ]
    )
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    graph = trace.graphs[0]
    gaps = {
        int(graph.start_ns[row]): int(graph.duration_ns[row])
        for row, name in enumerate(names(graph))
        if name == "host gap"
    }
    assert gaps[80_000] == 310_000
    finished = simulate(trace, interpret(as_replay(build_idle_system(1))).config).finish_ns
    assert finished[0] == pytest.approx(5_390_000, abs=100)


def test_dependencies_never_form_a_cycle_even_where_clocks_disagree(tmp_path):
    """The kernel starts before its launch, its operator's caller after it."""
    host = host_file([node(3, "late", rf_id=3), node(4, "early", 3, rf_id=4)])
    device = device_file(
        [event("late", 50, 10, rf=3), event("early", 5, 10, rf=4), launch(8, 1), kernel("k", 1, 4, 1)]
    )
    trace = studio.link(rank_files(tmp_path, 0, host, device))
    assert_acyclic(trace.graphs[0])
    assert any(finding.code == "contradicted-dependency" for finding in trace.findings)


def assert_acyclic(graph) -> None:
    waiting = np.zeros(len(graph), np.int64)
    after: dict[int, list[int]] = {}
    for row in range(len(graph)):
        for source in (*graph.ctrl.of(row).tolist(), *graph.data.of(row).tolist()):
            waiting[row] += 1
            after.setdefault(source, []).append(row)
    ready = np.flatnonzero(waiting == 0).tolist()
    done = 0
    while ready:
        done += 1
        for row in after.get(ready.pop(), ()):
            waiting[row] -= 1
            if not waiting[row]:
                ready.append(row)
    assert done == len(graph)


def test_a_lone_execution_trace_opens_without_times(tmp_path):
    path = tmp_path / "et.json"
    path.write_bytes(small_rank()[0])
    trace = studio.read(path)
    assert set(trace.graphs[0].start_ns.tolist()) == {-1}
    assert [finding.code for finding in trace.findings] == ["no-device-trace", "rank-assumed"]
    kinds = trace.graphs[0].type.tolist()
    assert kinds.count(NodeType.COMM_COLL) == 1


def test_a_kineto_trace_without_operations_is_an_error_that_tells_of_the_schedule(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_bytes(device_file([]))
    [lacking, _rank] = studio.read(path).findings
    assert (lacking.level, lacking.code) == ("error", "no-events")
    assert "prof.step()" in lacking.hint


def test_a_kineto_trace_without_operations_leaves_its_execution_trace_in_the_job(tmp_path):
    """Both were left out without a word. The second rank did nothing, which is no reason to call it missing."""
    for number, nodes in enumerate((small_rank()[0], host_file([]))):
        rank_files(
            tmp_path, number, nodes, device_file([], distributedInfo={"rank": number, "world_size": 2})
        )
    trace = studio.link(tmp_path)
    assert [rank.number for rank in trace.ranks] == [0, 1]
    assert trace.graph_of(0).type.tolist().count(NodeType.COMM_COLL) == 1
    unrecorded, idle = [one for one in trace.findings if one.code == "no-events"]
    assert (unrecorded.level, unrecorded.rank, idle.level, idle.rank) == ("warning", 0, "info", 1)
    assert "did nothing" in idle.message
    assert "studio.collect" in unrecorded.hint
    assert not {one.code for one in studio.examine(trace)} & {"missing-rank", "unrelated"}


def test_a_lone_kineto_trace_opens_with_times_streams_and_collectives(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_bytes(small_rank()[1])
    trace = studio.read(path)
    assert "no-host-trace" in {finding.code for finding in trace.findings}
    graph = trace.graphs[0]
    row = graph.type.tolist().index(NodeType.COMM_COLL)
    assert attributes(trace, trace.ranks[0], row)["comm_size"] == 256
    assert names(graph)[graph.ctrl.of(row)[0]] == "nccl:all_reduce"


def test_without_metadata_nodes_the_reference_accepts_the_types(job):
    kinds = studio.link(job, options=LinkOptions(metadata_nodes=False)).graphs[0].type.tolist()
    assert NodeType.METADATA not in kinds


def comm(tmp_path, nodes, events, **head):
    trace = studio.link(rank_files(tmp_path, 0, host_file(nodes), device_file(events, **head)))
    graph = trace.graphs[0]
    rows = [row for row, kind in enumerate(graph.type.tolist()) if 5 <= kind <= 7]
    return trace, [
        (names(graph)[row], NodeType(int(graph.type[row])), attributes(trace, trace.ranks[0], row))
        for row in rows
    ]


T = tensor
GROUPS = json.dumps(
    [
        {"pg_name": "0", "ranks": [], "group_size": 4},
        {"pg_name": "7", "pg_desc": "tp", "ranks": [0, 2], "group_size": 2},
    ]
)


@pytest.mark.parametrize(
    ("operator", "inputs", "kind", "given", "taken"),
    [
        ("c10d::allreduce_", [[T(1), T(2)], "<Object>"], 0, 32, 32),
        ("c10d::reduce_", [[T(1)], "<Object>", "<Object>", 3, 0], 1, 16, 16),
        ("c10d::_allgather_base_", [T(1, 16), T(2, 4), "<Object>"], 2, 16, 64),
        ("c10d::allgather_", [[[T(1), T(2)]], [T(3)], "<Object>"], 2, 16, 32),
        ("c10d::gather_", [[[T(1), T(2)]], [T(3)], "<Object>", 0], 3, 16, 32),
        ("c10d::scatter_", [[T(1)], [[T(2), T(3)]], "<Object>", 0], 4, 32, 16),
        ("c10d::broadcast_", [[T(1)], "<Object>", 2, 0], 5, 16, 16),
        ("c10d::alltoall_base_", [T(1, 6), T(2, 4), "<Object>", [4, 2], [1, 3]], 6, 16, 24),
        ("c10d::_reduce_scatter_base_", [T(1, 4), T(2, 16), "<Object>"], 7, 64, 16),
        ("c10d::barrier", [T(1), "<Object>", []], 9, 16, 16),
    ],
)
def test_collectives_are_typed_and_sized_by_their_operators(tmp_path, operator, inputs, kind, given, taken):
    nodes = [node(3, operator, rf_id=3, inputs=inputs), node(4, "gloo:x", 3, rf_id=4)]
    events = [event(operator, 0, 9, rf=3), event("gloo:x", 2, 50, "user_annotation", tid=8, rf=4)]
    _, found = comm(tmp_path, nodes, events)
    [(name, node_type, told)] = found
    assert (name, node_type) == ("gloo:x", NodeType.COMM_COLL)
    assert (told["comm_type"], told["bytes_in"], told["bytes_out"]) == (kind, given, taken)
    assert told["comm_size"] == given
    assert told["is_cpu_op"] is False


@pytest.mark.parametrize(
    ("inputs", "group", "ranks"),
    [
        ([[T(1)], 33, ["7", "tp"], 2, "allreduce", [], [], 0, 2, 2], "7", (0, 2)),
        ([[T(1)], 33, ["9", ""], 2, "allreduce", [], [], 4, 2, 2], "9", (4, 6)),
        # Another layout may end with anything: of the ranks only the one that names the group is known.
        ([[T(1)], 33, ["9", ""], 2, "allreduce", 4, 2, 2], "9", (0,)),
        ([[T(1)], 33, ["", ""], 2, "allreduce", [], [], -1, -1, 4], "0", None),
        ([[T(1)], 33, 7, 2, "allreduce", [], [], 0, 2, 2], "0", None),
        ([[T(1)], 33, "7", 2, "allreduce", [], []], "0", None),
        ([[T(1)], ["7", "tp"], "allreduce"], "0", None),
    ],
)
def test_a_recorder_without_attributes_names_its_group_among_its_inputs(tmp_path, inputs, group, ranks):
    """As traces before 1.1 do; older ones have a number there, which names none."""
    listed = json.dumps([{"pg_name": "0", "ranks": [], "group_size": 4}])
    nodes = [
        node(3, "## process_group:init ##", rf_id=1, inputs=[listed]),
        node(4, "c10d::allreduce_", rf_id=2, inputs=[[T(1)], "<None>"]),
        node(5, "record_param_comms", 4, rf_id=3, inputs=inputs),
    ]
    path = tmp_path / "pytorch_et_0.json"
    path.write_bytes(host_file(nodes, schema="1.0.3-chakra.0.0.4"))
    trace = studio.link(path)
    graph = trace.graphs[0]
    [row] = [row for row, kind in enumerate(graph.type.tolist()) if kind == NodeType.COMM_COLL]
    assert attributes(trace, trace.ranks[0], row)["pg_name"] == group
    told = {each.name: each.ranks for each in trace.groups}
    assert told.pop("0") == (0, 1, 2, 3)
    assert told == ({group: ranks} if ranks else {})


def alone(tmp_path, *ranks):
    """The communication of each rank of a job of Kineto traces alone: type and size."""
    paths = []
    for number, events in enumerate(ranks):
        told = {"rank": number, "world_size": len(ranks), "backend": "gloo"}
        paths.append(tmp_path / f"kineto_{number}.json")
        paths[-1].write_bytes(device_file(events, distributedInfo=told))
    trace = studio.read(paths)
    found = []
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        rows = [row for row, kind in enumerate(graph.type.tolist()) if kind == NodeType.COMM_COLL]
        found.append([attributes(trace, rank, row) for row in rows])
    return [[(told["comm_type"], told["comm_size"]) for told in rank] for rank in found]


def test_a_scatter_has_the_size_that_its_root_gives_on_every_rank(tmp_path):
    """Of a Kineto trace alone: gloo names what the root gives, and nothing on the others; calls have lists without sizes."""
    lists = {"Input Dims": [[[64]], [], [], [], [], []], "Input type": ["TensorList", "", "", "Scalar"]}
    given = {"Input Dims": [[64]] * 3, "Input type": ["float"] * 3}
    call, part = (
        event("c10d::scatter_", 0, 90, rf=3),
        event("gloo:scatter", 5, 50, "user_annotation", tid=8, rf=4),
    )
    call["args"] |= lists
    root = {**part, "args": {**part["args"], **given}}
    assert alone(tmp_path, [call, part], [call, root], [call, part]) == [[(4, 768)]] * 3


def test_an_all_to_all_of_lists_has_the_size_that_gloo_names(tmp_path):
    """Of a Kineto trace alone: the call has lists of tensors without sizes."""
    lists = [[[5, 4]] * 2] * 2
    call, part = (
        event("c10d::alltoall_", 0, 90, rf=3),
        event("gloo:all_to_all", 5, 50, "user_annotation", tid=8, rf=4),
    )
    call["args"] |= {
        "Input Dims": [*lists, [], [], []],
        "Input type": ["TensorList", "TensorList", "", "Scalar", "Scalar"],
    }
    part["args"] |= {"Input Dims": lists[0], "Input type": ["float"] * 2}
    assert alone(tmp_path, [call, part], [call, part]) == [[(6, 160)]] * 2


def test_a_reduce_scatter_of_a_list_gives_as_many_parts_as_the_group_has_members(tmp_path):
    """Of a Kineto trace alone: gloo sums up one part after the other, and names the one it works on."""
    call, part = (
        event("c10d::reduce_scatter_", 0, 90, rf=3),
        event("gloo:all_reduce", 5, 50, "user_annotation", tid=8, rf=4),
    )
    call["args"] |= {"Input Dims": [[[50]], [], [], []], "Input type": ["TensorList", "", "", "Scalar"]}
    part["args"] |= {"Input Dims": [[50]], "Input type": ["float"]}
    assert alone(tmp_path, [call, part], [call, part]) == [[(7, 400)]] * 2


def test_a_monitored_barrier_is_carried_out_by_no_operation_of_the_library(tmp_path):
    """Of a Kineto trace alone, without record ids: the library's barriers are those of the other calls."""
    called = ("c10d::monitored_barrier_", "c10d::barrier", "c10d::barrier")
    calls = [event(name, 20 * place, 9) for place, name in enumerate(called)]
    parts = [event("gloo:barrier", at, 5, "user_annotation", tid=8) for at in (25, 45)]
    (tmp_path / "kineto_0.json").write_bytes(device_file([*calls, *parts]))
    [graph] = studio.read(tmp_path).graphs
    rows = np.flatnonzero(graph.type == NodeType.COMM_COLL)
    assert [names(graph)[row] for row in rows] == ["c10d::monitored_barrier_", "gloo:barrier", "gloo:barrier"]


def test_a_functional_collective_tells_the_size_that_its_call_has_in_a_list(tmp_path):
    above = event("_c10d_functional::reduce_scatter_tensor", 0, 90, rf=3)
    above["args"] |= {"Input Dims": [[32], [], [], []], "Input type": ["float", "", "Scalar", ""]}
    call = event("c10d::reduce_scatter_tensor_coalesced_", 10, 70, rf=4)
    call["args"] |= {
        "Input Dims": [[[16]], [[32]], [], []],
        "Input type": ["TensorList", "TensorList", "", ""],
    }
    part = event("gloo:reduce_scatter", 20, 50, "user_annotation", tid=8, rf=5)
    assert alone(tmp_path, [above, call, part], [above, call, part]) == [[(7, 128)]] * 2


def test_a_root_is_a_rank_of_the_job(tmp_path):
    """Calls name it by its place in the group."""
    above = node(3, "_c10d_functional::broadcast", rf_id=3, inputs=[T(1), 1, "7"])
    call = node(4, "c10d::broadcast_", 3, rf_id=4, inputs=[[T(1)], "<Object>", 1, 0])
    init = node(5, "## process_group:init ##", rf_id=5, inputs=[GROUPS])
    events = [event(above["name"], 0, 9, rf=3), event(call["name"], 1, 7, rf=4)]
    _, [(_, _, told)] = comm(tmp_path, [above, call, init], events)
    assert (told["pg_name"], told["comm_root"]) == ("7", 2)


def test_splits_of_an_all_to_all_are_bytes(tmp_path):
    nodes = [node(3, "c10d::alltoall_base_", rf_id=3, inputs=[T(1, 6), T(2, 4), "<Object>", [4, 2], [1, 3]])]
    _, [(_, _, told)] = comm(tmp_path, nodes, [event("c10d::alltoall_base_", 0, 9, rf=3)])
    assert (told["split_bytes_in"], told["split_bytes_out"]) == ([4, 12], [16, 8])


def test_messages_name_ranks_of_the_job(tmp_path):
    """The operator counts places in the group; its place 1 is rank 2."""
    nodes = [
        node(3, "## process_group:init ##", rf_id=3, inputs=[json.dumps([json.loads(GROUPS)[1]])]),
        node(4, "c10d::send", rf_id=4, inputs=[[T(1)], "<Object>", 1, 5]),
        node(5, "c10d::recv_", rf_id=5, inputs=[[T(1)], "<Object>", 1, 6]),
    ]
    events = [event("c10d::send", 0, 9, rf=4), event("c10d::recv_", 10, 9, rf=5)]
    _, found = comm(tmp_path, nodes, events, distributedInfo={"rank": 0})
    (_, send, sent), (_, receive, received) = found
    assert (send, sent["comm_src"], sent["comm_dst"], sent["comm_tag"], sent["comm_size"]) == (
        NodeType.COMM_SEND,
        0,
        2,
        5,
        16,
    )
    assert (receive, received["comm_src"], received["comm_dst"], received["comm_tag"]) == (
        NodeType.COMM_RECV,
        2,
        0,
        6,
    )


def test_functional_collectives_name_their_group_and_others_are_marked_inferred(tmp_path):
    nodes = [
        node(3, "## process_group:init ##", rf_id=3, inputs=[GROUPS]),
        node(4, "_c10d_functional::all_reduce", rf_id=4, inputs=[T(1), "sum", "7"]),
        node(5, "c10d::allreduce_", 4, rf_id=5, inputs=[[T(1)], "<Object>"]),
        node(6, "c10d::allreduce_", rf_id=6, inputs=[[T(2)], "<Object>"]),
    ]
    events = [
        event("_c10d_functional::all_reduce", 0, 9, rf=4),
        event("c10d::allreduce_", 1, 5, rf=5),
        event("c10d::allreduce_", 20, 5, rf=6),
    ]
    trace, [(_, _, named), (_, _, guessed)] = comm(tmp_path, nodes, events)
    assert (named["pg_name"], named["comm_inferred"]) == ("7", ["seq"])
    assert (guessed["pg_name"], guessed["comm_inferred"]) == ("0", ["group", "seq"])
    assert {group.name: group.ranks for group in trace.groups} == {"0": (0, 1, 2, 3), "7": (0, 2)}


def test_kernels_are_typed_by_metadata_before_names(tmp_path):
    """AMD's kernels are all called Generic; an all-to-all is a SendRecv kernel."""
    said = {"in_elements": 8, "out_elements": 8, "dtype": "BFloat16", "group": "0"}
    events = [
        event("aten::x", 0, 99, rf=3),
        *(launch(at, at) for at in (1, 2, 3, 4)),
        kernel("ncclDevKernel_Generic(x)", 10, 5, 1, collective="_allgather_base", **said),
        kernel("ncclDevKernel_SendRecv(x)", 20, 5, 2, collective="all_to_allv", **said),
        kernel("ncclKernel_ReduceScatter_RING_LL_Sum_float(x)", 30, 5, 3),
        kernel("ncclDevKernel_Generic(x)", 40, 5, 4),
    ]
    trace, found = comm(tmp_path, [node(3, "aten::x", rf_id=3)], events)
    assert [told["comm_type"] for _, _, told in found] == [2, 6, 7]
    assert [told["comm_size"] for _, _, told in found] == [16, 16, 0]
    assert found[2][2]["comm_inferred"] == ["type", "size", "group", "seq"]
    [unknown] = [finding for finding in trace.findings if finding.code == "unknown-collective"]
    assert "ncclDevKernel_Generic (1)" in unknown.message


def test_an_unknown_collective_is_told_and_stays_computation(tmp_path):
    nodes = [node(3, "c10d::all_shuffle_", rf_id=3, inputs=[[T(1)]])]
    trace, found = comm(tmp_path, nodes, [event("c10d::all_shuffle_", 0, 9, rf=3)])
    assert found == []
    assert any("c10d::all_shuffle_ (1)" in finding.message for finding in trace.findings)


def test_collectives_are_numbered_and_chained_as_issued_whichever_thread_begins_first(tmp_path):
    """The second call's operation begins 2 µs before the first's, on another thread; a recorded number stays."""
    nodes = [
        node(3, "c10d::allreduce_", rf_id=3, inputs=[[T(1)], "<Object>"]),
        node(4, "c10d::allgather_", rf_id=4, inputs=[[[T(2)]], [T(3)], "<Object>"]),
        node(5, "gloo:all_gather", 4, rf_id=5),
        node(6, "gloo:all_reduce", 3, rf_id=6),
    ]
    events = [
        event("c10d::allreduce_", 0, 2, rf=3),
        event("c10d::allgather_", 3, 2, rf=4),
        event("gloo:all_gather", 8, 20, "user_annotation", tid=9, rf=5),
        event("gloo:all_reduce", 10, 10, "user_annotation", tid=8, rf=6),
    ]
    trace, found = comm(tmp_path, nodes, events)
    told = {name: (one["comm_seq"], one["comm_inferred"]) for name, _, one in found}
    assert told == {"gloo:all_reduce": (0, ["group", "seq"]), "gloo:all_gather": (1, ["group", "seq"])}
    [graph] = trace.graphs
    assert DepKind.SEQUENCE in reasons(graph)["gloo:all_reduce", "gloo:all_gather"]
    assert_acyclic(graph)
    off = studio.link(tmp_path, options=LinkOptions(sequence=False)).graphs[0]
    assert ("gloo:all_reduce", "gloo:all_gather") not in reasons(off)


def hooked(tmp_path, *, lost: bool = False):
    """A thread of gloo goes on with a hook when its collective is done, 40 µs after its begin; it asks for another one.

    Args:
        tmp_path: Where the files go.
        lost: Whether the other one's operation ended after the recording.
    """
    nodes = [
        node(3, "c10d::allreduce_", rf_id=3, inputs=[[T(1)], "<Object>"]),
        node(4, "gloo:all_reduce", 3, rf_id=4),
        node(5, "aten::mul", rf_id=5, tid=2),
        node(6, "c10d::allreduce_", rf_id=6, tid=2, inputs=[[T(2)], "<Object>"]),
        *([] if lost else [node(7, "gloo:all_reduce", 6, rf_id=7, tid=3)]),
        node(8, "aten::after", rf_id=8),
    ]
    events = [
        event("c10d::allreduce_", 0, 5, rf=3),
        event("gloo:all_reduce", 10, 300, "user_annotation", tid=8, rf=4),
        event("aten::mul", 50, 20, tid=8, rf=5),
        event("c10d::allreduce_", 170, 5, tid=8, rf=6),
        *([] if lost else [event("gloo:all_reduce", 180, 60, "user_annotation", tid=9, rf=7)]),
        event("aten::after", 310, 10, rf=8),
    ]
    return comm(tmp_path, nodes, events)


def test_a_collective_ends_where_gloo_goes_on_with_what_was_to_follow_it(tmp_path):
    """What a hook does is no communication: it is work of the thread, with the 100 µs that it spent in Python."""
    trace, found = hooked(tmp_path)
    graph = trace.graphs[0]
    durations = [
        int(graph.duration_ns[row])
        for row, name in enumerate(names(graph))
        if name == "gloo:all_reduce" and graph.start_ns[row] == 10_000
    ]
    assert durations == [40_000]
    assert len(found) == 2
    gaps = [int(graph.duration_ns[row]) for row, name in enumerate(names(graph)) if name == "host gap"]
    assert 100_000 in gaps
    assert reasons(graph)["gloo:all_reduce", "aten::mul"] & DepKind.ORDER


def test_a_call_of_a_hook_whose_operation_was_not_recorded_any_more_can_be_linked(tmp_path):
    _, found = hooked(tmp_path, lost=True)
    assert [name for name, *_ in found] == ["gloo:all_reduce", "c10d::allreduce_"]


def test_clocks_are_not_compared_by_collectives_of_empty_tensors(tmp_path):
    for rank in (0, 1):
        nodes, events = [], []
        for at, elements in enumerate((0, 4)):
            nodes.append(
                node(3 + at, "c10d::allreduce_", rf_id=3 + at, inputs=[[T(1, elements)], "<Object>"])
            )
            events.append(
                event("c10d::allreduce_", 100_000 * at + (0 if elements else 70_000 * rank), 9, rf=3 + at)
            )
        device = device_file(events, distributedInfo={"rank": rank})
        rank_files(tmp_path, rank, host_file(nodes, pid=7 + rank), device)
    trace = studio.link(tmp_path)
    assert trace.ranks[1].metadata_number("clock_matched") == 1
    assert trace.ranks[1].metadata_number("clock_residual_ns") == 0


def test_a_clock_that_runs_slow_is_moved_and_stretched(tmp_path):
    """Rank 1 is 5 ms ahead and 50 ppm slow: over two seconds it loses 95 µs, and nothing stays once both are known."""
    for rank in (0, 1):
        nodes, events = [], []
        for at in range(20):
            nodes.append(node(3 + at, "c10d::allreduce_", rf_id=3 + at, inputs=[[T(1)], "<Object>"]))
            begin = 100_000 * at
            shifted = begin + 5000 - begin * 50e-6 if rank else begin
            events.append(event("c10d::allreduce_", shifted, 9, rf=3 + at))
        device = device_file(events, distributedInfo={"rank": rank})
        rank_files(tmp_path, rank, host_file(nodes, pid=7 + rank), device)
    trace = studio.link(tmp_path)
    [clock] = [figures["clock"] for figures in map(partial(report_rank, trace), trace.ranks[1:])]
    assert abs(clock["drift_ppb"] - 50_000) < 500
    assert abs(clock["offset_ns"] + 5_000_000) < 2000
    assert clock["residual_ns"] < 1000
    [said] = [finding.message for finding in trace.findings if finding.code == "clock"]
    assert "drift of up to 50.0" in said
    assert "+50.0" in text(Linked(trace, (tmp_path,)))
    found = [one for one in examine(trace) if one.code == "clock-skew"]
    assert [(one.level, one.ranks) for one in found] == [("info", (1,))]
    assert "Linking moved the clock of rank 1, by up to 5.00 ms" in found[0].message


@pytest.mark.parametrize(
    ("late_us", "moved_ns"), [((9000, 40, -9000), 0), ((9000, 5000, 3000), -5_000_000)], ids=["lost", "clear"]
)
def test_a_clock_is_not_moved_by_less_than_a_tenth_of_what_stays_apart(tmp_path, late_us, moved_ns):
    """Nor is it said that ranks share a clock whose files name no machine."""
    for rank in (0, 1):
        nodes, events = [], []
        for at, late in enumerate(late_us):
            nodes.append(node(3 + at, "c10d::allreduce_", rf_id=3 + at, inputs=[[T(1)], "<Object>"]))
            events.append(event("c10d::allreduce_", 100_000 * at + 10_000 + rank * late, 9, rf=3 + at))
        device = device_file(events, distributedInfo={"rank": rank})
        rank_files(tmp_path, rank, host_file(nodes, pid=7 + rank), device)
    trace = studio.link(tmp_path)
    assert trace.ranks[1].metadata_number("clock_offset_ns") == moved_ns
    [said] = [finding.message for finding in trace.findings if finding.code == "clock"]
    assert ("no distance of clocks stands out from that of the ends" in said) == (not moved_ns)
    assert "one machine" not in said


@pytest.mark.parametrize(("said", "kept"), [(1, True), (0, False), (None, False)])
def test_that_python_stacks_were_recorded_is_kept_with_the_rank(tmp_path, said, kept):
    head = {} if said is None else {"with_stack": said}
    nodes = [node(3, "aten::x", rf_id=3)]
    trace, _ = comm(tmp_path, nodes, [event("aten::x", 0, 9, rf=3)], **head)
    assert ("with_stack" in {item.name for item in trace.ranks[0].metadata}) == kept
