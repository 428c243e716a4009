"""Recordings of rocprof and of the JAX profiler: hand-made files whose content is known, and public ones."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.part_words import NO_HOST
from studio.analysis.job.summary import summarise
from studio.cli import main
from studio.et import discover, perfetto, xla, xplane
from studio.et.job_files import recognise
from studio.et.link.dep_kinds import DepKind
from studio.et.source import open_sources
from studio.timeline import collect_node_times, recorded
from studio.trace import Rank, Trace, are_idle, list_node_attributes, read_int_column

METADATA = {"node": {"hostname": "node7"}, "pid": 42}
AGENTS = [
    {"id": {"handle": 5}, "type": 1, "name": "CPU"},
    {"id": {"handle": 9}, "type": 2, "product_name": "MI350X"},
]
NAMES = [
    {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel"]},
    {"kind": "RCCL_API", "operations": ["ncclAllReduce", "ncclGroupStart", "ncclGroupEnd"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
]
KERNELS = ["gemm", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "__amd_rocclr_copyBuffer"]


def record(start: int, length: int, correlation: int, **more: object) -> dict[str, object]:
    return {
        "thread_id": 42, "start_timestamp": start, "end_timestamp": start + length,
        "correlation_id": {"internal": correlation, "external": 0}, **more,
    }  # fmt: skip


def rocprof_file() -> dict[str, Any]:
    """A gemm on stream 3, an all-reduce that only the call around its launch names, and two copies."""

    def dispatch(kernel: int, start: int, correlation: int) -> dict[str, object]:
        info = {"agent_id": {"handle": 9}, "queue_id": {"handle": 77}, "kernel_id": kernel}
        return record(start, 50, correlation, dispatch_info=info, stream_id={"handle": 3})

    process = {
        "metadata": METADATA,
        "agents": AGENTS,
        "strings": {"buffer_records": NAMES},
        "kernel_symbols": [
            {"kernel_id": number, "formatted_kernel_name": name} for number, name in enumerate(KERNELS)
        ],
        "buffer_records": {
            "kernel_dispatch": [dispatch(0, 100, 1), dispatch(1, 200, 2), dispatch(2, 300, 3)],
            "hip_api": [
                record(at, 5, number, kind=0, operation=0) for number, at in ((1, 10), (2, 32), (3, 60))
            ],
            "rccl_api": [record(30, 20, 9, kind=1, operation=0)],
            "memory_copy": [
                record(
                    400,
                    10,
                    4,
                    kind=2,
                    operation=1,
                    dst_agent_id={"handle": 9},
                    bytes=4096,
                    stream_id={"handle": 4},
                )
            ],
            "memory_allocation": [record(5, 1, 5, kind=0, operation=0)],
        },
    }
    return {"rocprofiler-sdk-tool": [process]}


def attributes(trace: Trace) -> dict[str, dict[str, object]]:
    """The attributes of each node by its name."""
    [rank] = trace.ranks
    graph = trace.graph_of(rank)
    return {
        graph.strings[int(graph.name[row])]: {
            one.name: one.value for one in list_node_attributes(graph, row, rank.slots)
        }
        for row in range(len(graph))
    }


def test_rocprof_kernels_streams_copies_and_collectives(tmp_path: Path) -> None:
    path = tmp_path / "4_results.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rocprof_file()).encode()))
    trace = studio.read(path)
    found = attributes(trace)
    assert (found["gemm"]["stream"], found["gemm"]["device"], found["gemm"]["device_kind"]) == (
        3,
        0,
        "kernel",
    )
    assert found["MEMORY_COPY_HOST_TO_DEVICE"]["tensor_size"] == 4096
    assert found["__amd_rocclr_copyBuffer"]["device_kind"] == "memcpy"
    counts = {share.name: share.nodes for share in summarise(trace).types}
    assert (counts["COPY"], counts["COMM_COLL"]) == (2, 1)
    assert [share.name for share in summarise(trace).collectives] == ["ALL_REDUCE"]
    codes = {finding.code: finding.message for finding in trace.findings}
    assert "memory_allocation (1)" in codes["left-out"]
    assert "rocprof recording" in codes["no-host-trace"]


def test_rocprof_processes_of_one_file_are_ranks_by_their_devices(tmp_path: Path) -> None:
    content = rocprof_file()
    [first] = content["rocprofiler-sdk-tool"]
    agents = [*AGENTS, {"id": {"handle": 11}, "type": 2, "product_name": "MI350X"}]
    text = json.dumps(first["buffer_records"]).replace('"handle": 9}', '"handle": 11}')
    second = first | {"metadata": METADATA | {"pid": 41}, "buffer_records": json.loads(text)}
    content["rocprofiler-sdk-tool"] = [each | {"agents": agents} for each in (second, first)]
    path = tmp_path / "merged_results.json"
    path.write_text(json.dumps(content))
    trace = studio.read(path)
    assert [(rank.number, rank.metadata_number("pid")) for rank in trace.ranks] == [(0, 42), (1, 41)]
    assert "rank-assumed" in {finding.code for finding in trace.findings}


@pytest.mark.parametrize("alone", [True, False])
def test_rocprof_counters_hold_the_kernels_that_nothing_else_does(tmp_path: Path, alone: bool) -> None:
    content = rocprof_file()
    [process] = content["rocprofiler-sdk-tool"]
    kernels = process["buffer_records"]["kernel_dispatch"]
    counted = [{"thread_id": 42, "stream_id": each["stream_id"], "dispatch_data": each} for each in kernels]
    process["callback_records"] = {"counter_collection": counted}
    process["buffer_records"]["kernel_dispatch"] = [] if alone else kernels
    path = tmp_path / "4_results.json"
    path.write_text(json.dumps(content))
    trace = studio.read(path)
    assert attributes(trace)["gemm"]["stream"] == 3
    assert [share.name for share in summarise(trace).collectives] == ["ALL_REDUCE"]
    assert ("counter_collection (3)" in " ".join(finding.message for finding in trace.findings)) is not alone


def test_rocprof_events_of_hip_say_what_streams_wait_for(tmp_path: Path) -> None:
    """As releases with `--hip-event-trace` write them: the same event is recorded again after the wait."""
    content = rocprof_file()
    [process] = content["rocprofiler-sdk-tool"]
    process["strings"] = {
        "buffer_records": [
            *NAMES,
            {"kind": "HIP_EVENT", "operations": ["HIP_EVENT_RECORD", "HIP_EVENT_WAIT"]},
        ]
    }
    records = process["buffer_records"]
    records["kernel_dispatch"][1]["stream_id"] = {"handle": 5}
    records["hip_event"] = []
    for correlation, at, operation, stream in ((20, 16, 0, 3), (21, 28, 1, 5), (22, 62, 0, 5)):
        records["hip_api"].append(record(at, 1, correlation, kind=0, operation=0))
        where = {"agent_id": {"handle": 9}, "stream_id": {"handle": stream}, "hip_event_handle": 7}
        records["hip_event"].append(record(at + 90, 1, correlation, kind=3, operation=operation, **where))
    path = tmp_path / "4_results.json"
    path.write_text(json.dumps(content))
    trace = studio.read(path)
    graph = trace.graph_of(0)
    names = [graph.strings[code] for code in graph.name.tolist()]
    at = names.index(KERNELS[1])
    kinds = dict(
        zip(
            (names[row] for row in graph.data.of(at).tolist()),
            attributes(trace)[KERNELS[1]]["dep_kinds"],
            strict=True,
        )
    )
    assert kinds["gemm"] & DepKind.EVENT
    assert "hip_event" not in " ".join(finding.message for finding in trace.findings)


def put_two_processes(folder: Path, *, later: int = 0, alone: bool = False) -> Path:
    """Files as rocprofv3 names them: the first process on the second device, and the other way round."""
    for pid, handle in ((41, 11), (42, 9)):
        content = rocprof_file()
        process = content["rocprofiler-sdk-tool"][0]
        process["agents"] = [*AGENTS, {"id": {"handle": 11}, "type": 2, "product_name": "MI350X"}]
        process["metadata"] = METADATA | {"pid": pid}
        text = json.dumps(process["buffer_records"]).replace('"handle": 9}', f'"handle": {handle}}}')
        process["buffer_records"] = json.loads(text)
        text = json.dumps(content)
        text = text.replace(KERNELS[1], "softmax") if alone else text
        if later and pid == 42:
            text = re.sub(r'(_timestamp": )(\d+)', lambda match: f"{match[1]}{int(match[2]) + later}", text)
        path = folder / "node7" / f"{pid}_results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("behind", "kept"),
    [('"thread_id"', None), ('"hip_api"', 3), ('"memory_copy"', 4), ('"memory_allocation"', 5)],
)
def test_of_a_cut_rocprof_file_whole_records_are_read(
    tmp_path: Path, behind: str, kept: int | None, indent: int | None
) -> None:
    """It was refused as a whole, though names and agents come before records."""
    path = tmp_path / "results.json"
    raw = json.dumps(rocprof_file(), indent=indent)
    path.write_text(raw[: raw.index(behind) + 12])
    if kept is None:
        with pytest.raises(studio.TraceFormatError, match="cut off before the first record"):
            studio.read(path)
        return
    trace = studio.read(path)
    [damage] = [finding for finding in trace.findings if finding.code == "damaged-file"]
    assert f"cut off at byte {path.stat().st_size:,}" in damage.message
    found = attributes(trace)
    assert "gemm" in found
    is_told = [said.get("comm_type") for name, said in found.items() if name.startswith("ncclDevKernel")]
    assert is_told == [0 if kept > 3 else None]
    assert any("MEMORY_COPY" in name for name in found) == (kept > 4)


def test_rocprof_files_that_name_no_rank_are_ranks_by_device_where_they_communicate(tmp_path: Path) -> None:
    trace = studio.read(put_two_processes(tmp_path / "job"))
    assert [(rank.number, rank.file) for rank in trace.ranks] == [
        (0, "job/node7/42_results.json"),
        (1, "job/node7/41_results.json"),
    ]
    assert "rank-assumed" in {finding.code for finding in trace.findings}
    with pytest.raises(studio.StudioError, match="rank of 2 files is unknown"):
        studio.read(put_two_processes(tmp_path / "at another time", later=1000))
    with pytest.raises(studio.StudioError, match="2 jobs found, not one: 41_results, 42_results"):
        studio.read(put_two_processes(tmp_path / "alone", alone=True))


def test_of_a_host_that_was_not_recorded_no_time_is_its_own(tmp_path: Path) -> None:
    """Time for which the device had no work is a stall, and it is said what to record."""
    whole, path = rocprof_file(), tmp_path / "4_results.json.gz"

    def shares() -> tuple[int, int, str]:
        path.write_bytes(gzip.compress(json.dumps(whole).encode()))
        told = {
            command: CliRunner().invoke(main, [command, str(path)]).stdout
            for command in ("breakdown", "critical-path", "advise")
        }
        trace = studio.read(path)
        totals = build_recorded_side(trace, collect_node_times(trace, recorded(trace))).ledger().totals()
        assert ("host of rank" in told["critical-path"]) == bool(totals.of("host").any())
        words = {command: NO_HOST in text for command, text in told.items()}
        assert len(set(words.values())) == 1, words
        return int(totals.of("host").sum()), int(totals.of("stall").sum()), words["advise"]

    host, stall, said = shares()
    assert (host > 0, said) == (True, False)
    process = whole["rocprofiler-sdk-tool"][0]
    del process["buffer_records"]["hip_api"], process["buffer_records"]["rccl_api"]
    host, stall, said = shares()
    assert (host, stall > 0, said) == (0, True, True)


def test_rocprof_in_perfettos_format_says_the_same(tmp_path: Path) -> None:
    """As rocprofv3 writes it: names in the event, times and correlation as annotations."""
    trace = perfetto.load_messages()["Trace"]()
    trace.packet.add(sequence=1).track.CopyFrom(
        perfetto.load_messages()["Track"](uuid=8, name=b"COMPUTE AGENT [2] STREAM [3] (GPU)")
    )
    for name, category, begin, notes in (
        (b"gemm", b"kernel_dispatch", 100, {"corr_id": 1}),
        (b"MEMORY_COPY_HOST_TO_DEVICE", b"memory_copy", 400, {"copy_bytes": 4096}),
        (b"strange", b"other", 7, {}),
    ):
        packet = trace.packet.add(sequence=1, timestamp=begin)
        packet.event.type, packet.event.track_uuid, packet.event.name = perfetto.BEGIN, 8, name
        packet.event.categories.append(category)
        for key, value in {"begin_ns": begin, "end_ns": begin + 50, **notes}.items():
            packet.event.annotations.add(name=key.encode(), uint_value=value)
    path = tmp_path / "42_results.pftrace"
    path.write_bytes(trace.SerializeToString())
    read = studio.read(path)
    found = attributes(read)
    assert (found["gemm"]["stream"], found["gemm"]["device"]) == (3, 2)
    assert found["MEMORY_COPY_HOST_TO_DEVICE"]["tensor_size"] == 4096
    graph = read.graph_of(0)
    assert sorted(graph.start_ns[~are_idle(graph)].tolist()) == [0, 300]
    assert "other (1)" in {finding.code: finding.message for finding in read.findings}["left-out"]


@pytest.mark.parametrize(
    "tracks",
    [(b'STREAM [" 3 "] ',) * 2, (b"COMPUTE GPU [0] QUEUE [1] GPU", b"COPY to AGENT [0] THREAD [1] (CPU)")],
)
def test_rocprof_in_perfettos_format_of_newer_releases_tells_streams_and_devices(
    tmp_path: Path, tracks: tuple[bytes, bytes]
) -> None:
    """Tracks are streams or queues, and annotations tell the agent."""
    messages = perfetto.load_messages()
    trace = messages["Trace"]()
    for number, track in enumerate(tracks):
        trace.packet.add(sequence=1).track.CopyFrom(messages["Track"](uuid=8 + number, name=track))
    for name, category, begin, notes in (
        (b"gemm", b"kernel_dispatch", 100, {"agent": "GPU-0"}),
        (b"MEMORY_COPY_DEVICE_TO_HOST", b"memory_copy", 200, {"src_agent": "GPU-0", "dst_agent": "CPU-1"}),
    ):
        packet = trace.packet.add(sequence=1, timestamp=begin)
        packet.event.type, packet.event.name = perfetto.BEGIN, name
        packet.event.track_uuid = 8 + (category == b"memory_copy")
        packet.event.categories.append(category)
        for key, value in {"begin_ns": begin, "end_ns": begin + 50, "stream_ID": 3, **notes}.items():
            note = packet.event.annotations.add(name=key.encode())
            if isinstance(value, int):
                note.uint_value = value
            else:
                note.string_value = value.encode()
    path = tmp_path / "42_results.pftrace"
    path.write_bytes(trace.SerializeToString())
    found = attributes(studio.read(path))
    assert {
        (each["stream"], each["device"]) for each in (found["gemm"], found["MEMORY_COPY_DEVICE_TO_HOST"])
    } == {(3, 0)}


def test_of_a_cut_perfetto_trace_whole_packets_are_read(tmp_path: Path) -> None:
    trace = perfetto.load_messages()["Trace"]()
    for number in range(4):
        packet = trace.packet.add(sequence=1, timestamp=number)
        packet.event.type, packet.event.name = perfetto.BEGIN if number < 3 else 4, b"gemm"
        packet.event.categories.append(b"kernel_dispatch")
        for key, value in {"begin_ns": 100 * number, "end_ns": 100 * number + 50}.items():
            packet.event.annotations.add(name=key.encode(), uint_value=value)
    path = tmp_path / "42_results.pftrace"
    path.write_bytes(trace.SerializeToString())
    whole = studio.read(path)
    assert "counters and moments (1)" in " ".join(finding.message for finding in whole.findings)
    path.write_bytes(trace.SerializeToString()[: -len(trace.packet[3].SerializeToString()) - 9])
    cut = studio.read(path)
    kernels = [int((~are_idle(each.graph_of(0))).sum()) for each in (whole, cut)]
    assert kernels == [3, 2]
    assert "damaged-file" in {finding.code for finding in cut.findings}


def space(tmp_path: Path) -> Path:
    """One device: a kernel, a copy of 64 bytes, and an all-reduce of 1,024 floats whose program is in the file."""
    made = xplane.load_messages()["XSpace"]()
    program = xla.load_messages()["HloProto"]()
    program.hlo_module.name = b"jit_step"
    instructions = program.hlo_module.computations.add().instructions
    operand = instructions.add(name=b"x", opcode=b"parameter", id=1)
    operand.shape.element_type = 11
    operand.shape.dimensions.append(1024)
    reduce = instructions.add(name=b"all-reduce.1", opcode=b"all-reduce", id=2, operand_ids=[1])
    reduce.shape.CopyFrom(operand.shape)
    reduce.replica_groups.add(replica_ids=[0, 1, 2, 3])
    meta = made.planes.add(name="/host:metadata")
    meta.stat_metadata.add(key=1).value.name = b"Hlo Proto"
    meta.event_metadata.add(key=1).value.stats.add(metadata_id=1, bytes_value=program.SerializeToString())
    device = made.planes.add(name="/device:GPU:0")
    for number, name in enumerate((b"correlation_id", b"hlo_op", b"hlo_module", b"memcpy_details"), 1):
        device.stat_metadata.add(key=number).value.name = name
    for number, name in enumerate((b"gemm", b"ncclDevKernel_AllReduce_Sum_f32", b"MemcpyH2D"), 1):
        device.event_metadata.add(key=number).value.name = name
    stream = device.lines.add(id=7, name="Stream #7(Kernel)", timestamp_ns=1000)
    stream.events.add(metadata_id=1, offset_ps=5_000_400, duration_ps=2_000_000).stats.add(
        metadata_id=1, uint64_value=11
    )
    collective = stream.events.add(metadata_id=2, offset_ps=9_000_000, duration_ps=1_000_000)
    collective.stats.add(metadata_id=2, str_value=b"all-reduce.1")
    collective.stats.add(metadata_id=3, str_value=b"jit_step")
    copies = device.lines.add(id=8, name="Stream #8(MemcpyH2D)", timestamp_ns=1000)
    copies.events.add(metadata_id=3, offset_ps=0, duration_ps=500_000).stats.add(
        metadata_id=4, str_value=b"kind_src:pinned kind_dst:device size:64 dest:0 async:1"
    )
    device.lines.add(id=9, name="XLA Ops", timestamp_ns=1000).events.add(metadata_id=1, duration_ps=9)
    host = made.planes.add(name="/host:CPU")
    host.stat_metadata.add(key=1).value.name = b"correlation_id"
    host.stat_metadata.add(key=2).value.name = b"step_num"
    for number, name in enumerate((b"train", b"cuLaunchKernel"), 1):
        host.event_metadata.add(key=number).value.name = name
    thread = host.lines.add(id=3, name="python", timestamp_ns=1000)
    thread.events.add(metadata_id=1, offset_ps=0, duration_ps=4_000_000).stats.add(metadata_id=2)
    thread.events.add(metadata_id=2, offset_ps=1_000_000, duration_ps=100_000).stats.add(
        metadata_id=1, uint64_value=11
    )
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(made.SerializeToString())
    return path


def test_jax_kernels_streams_copies_and_collectives_with_sizes_of_the_program(tmp_path: Path) -> None:
    trace = studio.read(space(tmp_path))
    found = attributes(trace)
    assert (found["gemm"]["stream"], found["gemm"]["device"], found["gemm"]["correlation"]) == (7, 0, 11)
    assert "unattributed" not in found["gemm"], "its launch is inside the host's span"
    assert found["MemcpyH2D"]["tensor_size"] == 64
    [share] = summarise(trace).collectives
    assert (share.name, share.nodes, share.bytes) == ("ALL_REDUCE", 1, 4096)
    graph = trace.graph_of(0)
    gemm = [graph.strings[int(code)] for code in graph.name].index("gemm")
    assert graph.duration_ns[gemm] == 2000
    assert "XLA Ops (1)" in {finding.code: finding.message for finding in trace.findings}["left-out"]
    world = {one.name: one.value for one in trace.ranks[0].metadata}["world_size"]
    assert world == 4


def test_the_json_of_the_trace_viewer_says_the_same(tmp_path: Path) -> None:
    def named(kind: str, name: str, **place: int) -> dict[str, object]:
        return {"ph": "M", "name": kind, "args": {"name": name}, **place}

    text = (
        "%all-reduce.1 = f32[1024]{0} all-reduce(f32[1024]{0} %x), replica_groups={{0,1,2,3}}, to_apply=%sum"
    )
    events = [
        named("process_name", "/device:GPU:0", pid=1),
        named("thread_name", "Stream #7(Kernel)", pid=1, tid=1),
        {"ph": "X", "pid": 1, "tid": 1, "ts": 5.0004, "dur": 2, "name": "gemm", "args": {"correlation_id": "11"}},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 9, "dur": 1, "name": "ncclDevKernel_AllReduce_Sum_f32",
         "args": {"hlo_op": "all-reduce.1", "long_name": text}},
    ]  # fmt: skip
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()))
    trace = studio.read(path)
    found = attributes(trace)
    assert (found["gemm"]["stream"], found["gemm"]["correlation"]) == (7, 11)
    assert [(share.name, share.bytes) for share in summarise(trace).collectives] == [("ALL_REDUCE", 4096)]


def test_a_step_is_called_as_pytorch_calls_it(tmp_path: Path) -> None:
    """`StepTraceAnnotation` numbers it; the number 0 is written as no value."""
    trace = studio.read(space(tmp_path))
    assert "ProfilerStep#0" in attributes(trace)


def test_both_forms_of_a_profile_in_one_folder_are_one_recording(tmp_path: Path) -> None:
    """As JAX writes them; they were refused as two files without a rank."""
    path = space(tmp_path)
    for name in ("host.trace.json.gz", "perfetto_trace.json.gz"):
        event = {"ph": "M", "name": "process_name", "args": {"name": "/device:GPU:0"}, "pid": 1}
        (tmp_path / name).write_bytes(gzip.compress(json.dumps({"traceEvents": [event]}).encode()))
    with open_sources([tmp_path]) as files:
        [job] = discover(files)
    assert [Path(file.name).name for file, *_ in job.ranks] == [path.name]
    assert [file.why.endswith("host.xplane.pb, which says more") for file in job.left_out] == [True, True]
    assert studio.read(tmp_path).ranks[0].number == 0


def test_a_profile_cut_before_its_first_event_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = space(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * 0.3)])
    found = recognise(whole)
    assert found
    assert found.name == "xplane"
    with pytest.raises(studio.TraceFormatError, match=r"host\.xplane\.pb") as caught:
        studio.read(path)
    assert caught.value.hint


def test_of_a_cut_profile_whole_planes_are_read(tmp_path: Path) -> None:
    path = space(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    trace = studio.read(path)
    assert {"gemm", "MemcpyH2D"} <= attributes(trace).keys()
    [share] = summarise(trace).collectives
    assert (share.name, share.bytes) == ("ALL_REDUCE", 4096)
    assert "damaged-file" in {finding.code for finding in trace.findings}


@pytest.mark.parametrize(
    ("file", "kernels", "copies"),
    [("rocprof_908_results.json.gz", 43915, 6366), ("mi300_jax_conv.xplane.pb", 235, 35)],
)
def test_public_recordings_open_as_one_rank(shared: Path, file: str, kernels: int, copies: int) -> None:
    trace = studio.read(shared / "traces" / "foreign" / file)
    assert [type(rank) for rank in trace.ranks] == [Rank]
    graph = trace.graph_of(trace.ranks[0])
    rows, _ = read_int_column(graph, "stream")
    assert (~are_idle(graph)[rows]).sum() == kernels
    counts = {share.name: share.nodes for share in summarise(trace).types}
    assert counts["COPY"] == copies


def test_in_perfettos_format_too_the_call_around_the_launch_names_the_collective(tmp_path: Path) -> None:
    trace = perfetto.load_messages()["Trace"]()
    trace.packet.add(sequence=1).track.CopyFrom(
        perfetto.load_messages()["Track"](uuid=8, name=b"COMPUTE AGENT [2] STREAM [3] (GPU)")
    )
    for name, category, begin, notes in (
        (b"ncclDevKernel_Generic_1(x)", b"kernel_dispatch", 300, {"corr_id": 2}),
        (b"ncclAllReduce", b"rccl_api", 180, {"tid": 7}),
        (b"hipLaunchKernel", b"hip_api", 190, {"corr_id": 2, "tid": 7}),
    ):
        packet = trace.packet.add(sequence=1, timestamp=begin)
        packet.event.type, packet.event.track_uuid, packet.event.name = perfetto.BEGIN, 8, name
        packet.event.categories.append(category)
        for key, value in {"begin_ns": begin, "end_ns": begin + 50, **notes}.items():
            packet.event.annotations.add(name=key.encode(), uint_value=value)
    path = tmp_path / "42_results.pftrace"
    path.write_bytes(trace.SerializeToString())
    assert [share.name for share in summarise(studio.read(path)).collectives] == ["ALL_REDUCE"]


TABLE = b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
OLD = {"ph": "X", "pid": 6, "tid": 1, "ts": "1", "dur": "5", "name": "gemm", "args": {"BeginNs": "1000"}}


@pytest.mark.parametrize(
    ("name", "content", "what", "instead"),
    [
        ("1_kernel_trace.csv", TABLE, "a table of rocprof", "rocprofv3"),
        ("results.csv", b'"Index","KernelName","gpu-id"\n', "a table of rocprof", "rocprofv3"),
        ("results.json", json.dumps({"traceEvents": [OLD]}).encode(), "rocprof v1 or v2", "rocprofv3"),
    ],
)
def test_other_files_of_rocprof_are_called_by_name(
    tmp_path: Path, name: str, content: bytes, what: str, instead: str
) -> None:
    """They were a text file, or a recording of PyTorch in which nothing ran."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(studio.TraceFormatError, match=what) as caught:
        studio.read(path)
    assert instead in str(caught.value.hint)
