"""A Kineto trace alone is a job: one rank of as many as it says, with what is not known said."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.launch_words import describe_queue
from studio.analysis.job.launches import find_launches
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.words import compute_path_shares
from studio.cli import main
from studio.commands.base.timelines import write_timeline
from studio.doctor import examine
from studio.doctor.checks import run_checks
from studio.figures.queues import queue_lines
from studio.timeline import collect_node_times, recorded
from studio.trace import (
    CollectiveType,
    NodeType,
    Trace,
    compute_digest,
    list_node_attributes,
    read_int_column,
)
from tests.et.pytorch_files import device_file, event, host_file, kernel, launch, node, rank_files

WORLD = {"backend": "nccl", "rank": 5, "world_size": 8}
GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))},
    {"pg_name": "tp", "pg_desc": "tensor", "pg_size": 2, "ranks": [4, 5]},
]
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"


def training(**head: object) -> bytes:
    """An operator with a kernel, an all-reduce in a group of two by NCCL, and a kernel that waits for it."""
    return device_file(
        [
            event("aten::mm", 10, 18),
            launch(20, 501),
            kernel("gemm", 30, 200, 501),
            event("record_param_comms", 50, 40),
            launch(55, 601, "cudaStreamWaitEvent"),
            launch(60, 502, "cudaLaunchKernelExC"),
            kernel(
                NCCL, 240, 100, 502, stream=20, collective="allreduce", in_elements=64, out_elements=64,
                dtype="BFloat16", group="tp", group_ranks="[4, 5]",
            ),
            launch(95, 602, "cudaStreamWaitEvent"),
            launch(100, 503),
            kernel("relu", 345, 20, 503),
        ],
        baseTimeNanoseconds=1_700_000_000_000_000_000,
        **head,
    )  # fmt: skip


@pytest.fixture
def one_of_eight(tmp_path) -> Path:
    path = tmp_path / "profile__1016005.json"
    path.write_bytes(training(distributedInfo=WORLD | {"pg_config": GROUPS}))
    return path


def collective_of(trace: Trace) -> dict[str, object]:
    graph = trace.graphs[0]
    [row] = [row for row, kind in enumerate(graph.type.tolist()) if kind == NodeType.COMM_COLL]
    return {attr.name: attr.value for attr in list_node_attributes(graph, row, trace.ranks[0].slots)}


def test_one_gpu_of_eight_is_a_job_of_eight(one_of_eight):
    trace = studio.read(one_of_eight)
    assert [rank.number for rank in trace.ranks] == [5]
    assert [(group.name, group.ranks) for group in trace.groups] == [("0", tuple(range(8))), ("tp", (4, 5))]
    said = collective_of(trace)
    assert (said["comm_type"], said["comm_size"], said["pg_name"], said["stream"]) == (0, 128, "tp", 20)
    job = infer_completeness(trace)
    assert job.sentence() == (
        "The job has 8 ranks, of which 1 is known (rank 5): ranks 0–4, 6–7 are missing."
    )
    found = {diagnosis.code: diagnosis.level for diagnosis in run_checks(trace).diagnoses}
    assert found["missing-rank"] == "warning"
    assert "error" not in found.values()


@pytest.mark.parametrize(
    ("text", "size", "ranks"),
    [
        ("[0, 1, 2, ..., 63]", 64, tuple(range(64))),
        ("[4, 12, ..., 60]", 8, tuple(range(4, 64, 8))),
        ("[4, 12, ..., 61]", 8, None),
        ("[0, 1, ..., 7]", 4, None),
        ("[4, ..., 11]", 8, tuple(range(4, 12))),
    ],
)
@pytest.mark.parametrize("by_kernel", [False, True])
def test_abbreviated_lists_of_ranks_are_told_by_size_and_distance(tmp_path, text, size, ranks, by_kernel):
    """PyTorch writes 30 ranks of a group at most; the group was listed nowhere, and had the recorded rank alone."""
    groups = [{"pg_name": "tp", "pg_desc": "x", "pg_size": size, "ranks": text}]
    path = tmp_path / "run.json"
    content = training(
        distributedInfo=WORLD | {"rank": 4, "world_size": 64} | ({} if by_kernel else {"pg_config": groups})
    )
    said = f'"Process Group Ranks": "{text}", "Group size": {size}' if by_kernel else '"x": 0'
    path.write_bytes(content.replace(b'"Process Group Ranks": "[4, 5]"', said.encode()))
    found = {group.name: group.ranks for group in studio.read(path).groups}
    assert found.get("tp", (4,)) == (ranks or (4,))


def test_streams_wait_for_collectives_and_collectives_for_streams(one_of_eight):
    """No event says which stream waits for which; the calls, the times and how PyTorch uses NCCL do."""
    graph = studio.read(one_of_eight).graphs[0]
    names = [graph.strings[code] for code in graph.name.tolist()]
    gemm, nccl, relu = (names.index(name) for name in ("gemm", NCCL, "relu"))
    assert gemm in graph.data.of(nccl)
    assert nccl in graph.data.of(relu)
    assert gemm in graph.data.of(relu)


def test_what_is_missing_is_said_in_one_sentence_and_the_known_rank_is_replayed(one_of_eight):
    run = CliRunner().invoke
    for system in ([], ["--preset", "hgx-h100-8"]):
        refused = run(main, ["simulate", str(one_of_eight), *system])
        assert refused.exit_code == 1
        message, hint = refused.stderr.strip().splitlines()
        assert message.endswith("1 is known (rank 5): ranks 0–4, 6–7 are missing.")
        assert "--replay" in hint
    replayed = run(main, ["simulate", str(one_of_eight), "--replay"])
    assert replayed.exit_code == 0, replayed.stderr
    [step] = [line.split() for line in replayed.stdout.splitlines() if "whole trace" in line]
    assert step[2] == "5"
    assert abs(float(step[-2])) < 2
    with_events = run(main, ["simulate", str(one_of_eight), "--replay", "--preset", "hgx-h100-8"])
    assert with_events.exit_code == 0, with_events.stderr


def test_a_job_of_one_rank_needs_no_system(tmp_path):
    alone = tmp_path / "run.json"
    content = training(distributedInfo={"rank": 0, "world_size": 1}).replace(b"[4, 5]", b"[0]")
    alone.write_bytes(content)
    done = CliRunner().invoke(main, ["simulate", str(alone)])
    assert done.exit_code == 0, done.stderr
    assert "on one NPU, without a network" in done.stdout


def test_where_nothing_says_how_many_ranks_there_are(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(training().replace(b', "Process Group Ranks": "[4, 5]"', b""))
    job = infer_completeness(studio.read(path))
    assert job.is_open
    assert job.sentence().startswith("The files do not say how many ranks the job has: rank 0")
    refused = CliRunner().invoke(main, ["simulate", str(path)])
    assert (refused.exit_code, job.sentence() in refused.stderr) == (1, True)
    # A collective was of one rank.
    [listed] = json.loads(CliRunner().invoke(main, ["collectives", str(path), "--json"]).stdout)[
        "collectives"
    ]
    assert (listed["members"], listed["is_open"]) == (1, True)
    shown = CliRunner().invoke(main, ["collectives", str(path)]).stdout
    assert "1+: the files name no comm group with a list of ranks, nor how many the job has" in shown


def test_a_replayed_graph_is_one_launch_with_many_kernels(tmp_path):
    """CUDA and HIP graphs, without step markers: the kernels wait for the launch, and for each other in their stream."""
    path = tmp_path / "decode.json"
    events = [event("execute", 0, 50, "user_annotation"), launch(10, 900, "hipGraphLaunch")]
    events += [kernel(f"k{index}", 40 + 10 * index, 8, 900, external=None) for index in range(5)]
    path.write_bytes(device_file(events))
    trace = studio.read(path)
    graph = trace.graphs[0]
    names = [graph.strings[code] for code in graph.name.tolist()]
    streams = dict(zip(*map(list, read_int_column(graph, "stream")), strict=True))
    kernels = [names.index(f"k{index}") for index in range(5)]
    assert [streams[row] for row in kernels] == [7] * 5
    for before, after in pairwise(kernels):
        assert before in graph.data.of(after).tolist()
    assert len(graph.data.of(kernels[0])) + len(graph.ctrl.of(kernels[0])) > 0


@pytest.mark.parametrize(
    ("operator", "name", "kind", "size"),
    [
        (
            "symm_mem::multimem_all_reduce_",
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
            CollectiveType.ALL_REDUCE,
            2 * 888 * 2880,
        ),
        (
            "_C_custom_ar::all_reduce",
            "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
            CollectiveType.ALL_REDUCE,
            2 * 888 * 2880,
        ),
        ("aten::copy_", "void deep_ep::intranode::dispatch<8, 768>(int4*)", CollectiveType.ALL_TO_ALL, 0),
        ("aten::sum", "void at::native::reduce_kernel<512, 1>(float*)", None, 0),
    ],
)
def test_kernels_that_communicate_without_a_library_are_collectives(tmp_path, operator, name, kind, size):
    """Their names tell the collective, the operator that launched them how much; the group is inferred."""
    path = tmp_path / "run.json"
    called = event(operator, 10, 18)
    called["args"] |= {"Input Dims": [[888, 2880], []], "Input type": ["c10::BFloat16", ""]}
    parts = [event("vllm::all_reduce", 8, 30), called, launch(12, 501), kernel(name, 30, 200, 501)]
    path.write_bytes(device_file(parts, distributedInfo=WORLD | {"pg_config": GROUPS[:1]}))
    trace = studio.read(path)
    if kind is None:
        assert NodeType.COMM_COLL not in trace.graphs[0].type
        return
    said = collective_of(trace)
    assert (said["comm_type"], said["comm_size"]) == (int(kind), size)


def test_a_byte_order_mark_before_json_counts_for_nothing(tmp_path):
    """As PowerShell writes it."""
    content = b"\xef\xbb\xbf" + device_file([event("aten::mm", 0, 5)])
    for number, data in enumerate((content, gzip.compress(content))):
        path = tmp_path / f"{number}.json"
        path.write_bytes(data)
        assert len(studio.read(path).graphs[0]) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_json_in_utf_16_is_read(tmp_path, encoding, packed):
    """Some shells write what a program prints in it; it was binary data of an unknown kind."""
    path = tmp_path / "run.json"
    text = training(distributedInfo=WORLD).decode().replace("gemm", "gemm é")
    raw = ("" if encoding == "utf-16" else "\ufeff").encode("utf-16-be") + text.encode(encoding)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    graph = studio.read(path).graphs[0]
    assert "gemm é" in [graph.strings[code] for code in graph.name.tolist()]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    "text",
    [
        "issue,sys->id=0,tick=0,node->id=1,node->name=a,node->type=4\ncallback,sys->id=0,tick=9,node->id=1,node->name=a,node->type=4\n",
        "DATA all_gpus: 1\n1\na -1 5 NONE 0 6 NONE 0 7 NONE 0 1\n",
    ],
)
def test_lines_that_some_editors_and_shells_write_with_a_mark_are_read(tmp_path, encoding, text):
    """They were a text file of no known format."""
    path = tmp_path / "run.txt"
    path.write_bytes(text.encode(encoding))
    assert studio.read(path).graphs[0].strings


@pytest.mark.parametrize(
    ("content", "what", "instead"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 5\n",
            "a pointer of Git LFS",
            "git lfs pull",
        ),
        (b"<!DOCTYPE html>\n<html lang='en'>", "a web page", "raw file"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "packed by zstd", "zstd -d"),
        (b"\x50\x2a\x4d\x18\x04\x00\x00\x00", "packed by zstd", "zstd -d"),
        (b"\xfd7zXZ\x00\x00\x04", "packed by xz", "xz -d"),
        (b"\x5d\x00\x00\x80\x00\xff", "packed by lzma", "--format=lzma"),
        (b"\x02\x21\x4c\x18\x00", "packed by lz4", "lz4 -d"),
        (b"7z\xbc\xaf\x27\x1c\x00", "packed by 7-Zip", "7z x"),
        (b"Rar!\x1a\x07\x01\x00", "packed by RAR", "unrar x"),
    ],
)
def test_what_lies_in_place_of_a_file_is_named(tmp_path, content, what, instead):
    """They were text files, web pages too, and archives with a list of all formats as what to do."""
    (tmp_path / "rank1.json").write_bytes(content)
    with pytest.raises(studio.TraceFormatError, match=what) as caught:
        studio.read(tmp_path / "rank1.json")
    assert instead in str(caught.value.hint)
    (tmp_path / "rank2.json").write_bytes(content)
    with pytest.raises(studio.TraceFormatError, match=f"2 files, none .*rank1.json: .*{what}") as caught:
        studio.read(tmp_path)
    assert instead in str(caught.value.hint)
    (tmp_path / "rank2.json").unlink()
    (tmp_path / "rank0.json").write_bytes(training(distributedInfo=WORLD | {"rank": 0}))
    messages = [finding.message for finding in studio.read(tmp_path).findings]
    assert any(what in message and "rank1.json" in message for message in messages)


def test_gzip_members_one_after_another_are_one_trace(tmp_path):
    content = training(distributedInfo=WORLD | {"pg_config": GROUPS})
    whole, pieces = tmp_path / "whole.json.gz", tmp_path / "pieces.json.gz"
    whole.write_bytes(gzip.compress(content))
    # An empty member first, cuts inside of words.
    cuts = [0, 0, 17, 600, len(content)]
    pieces.write_bytes(b"".join(gzip.compress(content[a:b]) for a, b in pairwise(cuts)))
    assert [compute_digest(graph) for graph in studio.read(pieces).graphs] == [
        compute_digest(graph) for graph in studio.read(whole).graphs
    ]
    assert infer_completeness(studio.read(pieces)).world == 8


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("vllm_decode_full_graph_execution", 1),
        ("b200_eager", 8),
        ("h100_timesformer__1016002", 1),
    ],
)
def test_public_traces_of_one_process(shared, name, world):
    path = str(shared / "traces" / "foreign" / f"{name}.json.gz")
    run = CliRunner().invoke
    trace = studio.read(path)
    assert infer_completeness(trace).world == world
    assert not [finding for finding in examine(trace) if finding.level == "error"]
    done = run(main, ["simulate", path])
    if world == 1:
        assert done.exit_code == 0, done.stderr
    else:
        assert done.exit_code == 1
        assert "ranks 1–7 are missing." in done.stderr
    replayed = run(main, ["simulate", path, "--replay"])
    assert replayed.exit_code == 0, replayed.stderr


def test_an_operation_without_a_launch_waits_for_what_its_device_ended_last(tmp_path):
    """The launches lie before the recording: the copy's stream is idle for 100 µs, in which the device all-reduces for 90."""
    path = tmp_path / "cut.json"
    late = {"external": None}
    path.write_bytes(
        device_file(
            [
                event("aten::mm", 0, 4),
                launch(1, 900),
                kernel("fill", 10, 5, 900, stream=9),
                kernel("gemm", 0, 100, 1, **late),
                kernel("ncclDevKernel_Generic(x)", 105, 90, 2, stream=20, **late),
                kernel("copy", 200, 10, 3, **late),
            ]
        )
    )
    trace = studio.read(path)
    graph = trace.graphs[0]
    names = [graph.strings[code] for code in graph.name.tolist()]
    copy, nccl = names.index("copy"), names.index("ncclDevKernel_Generic(x)")
    [gap] = [row for row in graph.data.of(copy).tolist() if names[row] == "device gap"]
    assert nccl in graph.data.of(gap)
    assert graph.duration_ns[gap] == 5_000
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    account = side.ledger()
    path_found = find_critical_path(trace, side.times, account)
    shares = {share.what: share.ns for share in compute_path_shares(trace, side.times, account, path_found)}
    assert shares["UNNAMED COLLECTIVE"] == 90_000
    assert "messages" not in shares


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op"])
def test_a_range_that_launches_kernels_itself_holds_none_of_them_up(tmp_path, category):
    """Kernels waited for the end of the range, as programs mark them that have no operators of PyTorch: a replay took a fifth longer."""
    events = [event("[Executor] _forward", 0, 900, category)]
    for number in range(6):
        events += [launch(5 + 3 * number, 501 + number), kernel("gemm", 30 + 40 * number, 30, 501 + number)]
    path = tmp_path / "run.json"
    path.write_bytes(device_file(events, distributedInfo={"rank": 0, "world_size": 1}))
    replayed = CliRunner().invoke(main, ["simulate", str(path), "--replay", "--json"])
    assert abs(json.loads(replayed.stdout)["finish_ns"] - 900_000) < 2_000


@pytest.mark.parametrize("with_host", [False, True])
@pytest.mark.parametrize(
    ("inner", "sync_us", "kernel_us"),
    [(False, 330, 400), (True, 330, 400), (False, 130, 150), (True, 130, 150)],
    ids=["launches", "calls", "launches, waits, works on", "calls, waits, works on"],
)
def test_an_operator_that_works_on_holds_up_no_kernel_that_is_waited_for(
    tmp_path, with_host, inner, sync_us, kernel_us
):
    """Kernels waited for the end of their operator, and what it did after a wait was hidden by this: four fifths too long or a third too short."""
    events, nodes = [], []
    for turn in range(4):
        at, number = 500 * turn, 10 * turn
        events += [event("aten::x", at, 320, rf=number + 1), launch(at + 20, number + 501)]
        events += [kernel("gemm", at + 25, kernel_us, number + 501)]
        events += [launch(at + sync_us, number + 502, "cudaStreamSynchronize", 27 + kernel_us - sync_us)]
        events += [event("aten::after", at + 450, 10, rf=number + 3)]
        nodes += [node(number + 3, "aten::x", rf_id=number + 1)]
        nodes += [node(number + 5, "aten::after", rf_id=number + 3)]
        if inner:
            events += [event("aten::y", at + 18, 6, rf=number + 2)]
            nodes += [node(number + 4, "aten::y", number + 3, rf_id=number + 2)]
    device = device_file(events, distributedInfo={"rank": 0, "world_size": 1})
    files = rank_files(tmp_path, 0, host_file(nodes), device)
    replayed = CliRunner().invoke(
        main, ["simulate", *map(str, files if with_host else files[1:]), "--replay", "--json"]
    )
    assert abs(json.loads(replayed.stdout)["finish_ns"] - 1_960_000) < 5_000


def test_an_operator_that_works_on_holds_up_no_kernel_that_is_the_last(tmp_path):
    """Steps, which begin and end with the program, are nobody that waits."""
    events = [event("ProfilerStep#1", 0, 1_000, "user_annotation"), event("aten::mm", 0, 90)]
    events += [launch(10, 501), kernel("gemm", 30, 150, 501)]
    path = tmp_path / "run.json"
    path.write_bytes(device_file(events, distributedInfo={"rank": 0, "world_size": 1}))
    replayed = CliRunner().invoke(main, ["simulate", str(path), "--replay", "--json"])
    assert abs(json.loads(replayed.stdout)["finish_ns"] - 180_000) < 1_000


def several_processes(*, labelled: bool, repeat: int = 1) -> list[list[dict[str, object]]]:
    """The events of two processes with the same numbers of calls: of the second each kernel takes longer."""
    processes = []
    for rank in (0, 1):
        pid = 812 + rank
        events = [event("warm", 1, 1, "user_annotation", pid=pid), event("aten::mm", 10, 18, pid=pid)]
        events += [launch(20, 501, pid=pid), kernel("gemm", 30, 200 + 50 * rank, 501) | {"pid": rank}]
        events += [event("aten::y", 300 + at, 0.5, pid=pid) for at in range(repeat)]
        if labelled:
            events = [one | {"pid": f"[TP{1 - rank:02d}-DP00] {one['pid']}"} for one in events]
        processes.append(events)
    return processes


@pytest.mark.parametrize(("labelled", "mixed"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("repeat", [1, 30_000])
def test_each_process_of_a_merged_file_is_a_rank(tmp_path, labelled, mixed, repeat):
    """They were one rank: a kernel of one was taken for what another launched, and collectives counted twice and more."""
    first, second = several_processes(labelled=labelled, repeat=repeat)
    events = sorted([*first, *second], key=lambda one: one["ts"]) if mixed else [*first, *second]
    path = tmp_path / "merged.json"
    path.write_bytes(device_file(events))
    trace = studio.read(path)
    assert [rank.number for rank in trace.ranks] == [0, 1]
    times = {}
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        names = [graph.strings[code] for code in graph.name.tolist()]
        assert (names.count("gemm"), names.count("aten::mm"), names.count("aten::y")) == (1, 1, repeat)
        assert names.index("aten::mm") in graph.ctrl.of(names.index("gemm"))
        times[rank.number] = int(graph.duration_ns[names.index("gemm")])
    assert times == ({0: 250_000, 1: 200_000} if labelled else {0: 200_000, 1: 250_000})
    assert [one.code for one in trace.findings].count("rank-assumed") == 1


def test_processes_that_nothing_tells_apart_are_one_rank_and_said(tmp_path):
    first, second = several_processes(labelled=False)
    events = sorted([*first, *second], key=lambda one: one["ts"])
    path = tmp_path / "merged.json"
    path.write_bytes(device_file(events))
    trace = studio.read(path)
    assert len(trace.ranks) == 1
    [told] = [one.message for one in trace.findings if one.code == "several-processes"]
    assert "2 processes" in told
    # A runtime that notes its calls with the device is no process.
    path.write_bytes(device_file([*first, event("run", 9, 1, "mtia_runtime", pid=17)]))
    assert not [one for one in studio.read(path).findings if one.code == "several-processes"]


def test_a_process_with_several_devices_says_how_busy_each_was(tmp_path):
    """Two devices of 100 µs each, half of it at the same time."""
    path = tmp_path / "both.json"
    one, other = kernel("k", 0, 100, 1), kernel("k", 50, 100, 2)
    other["args"]["device"] = 1
    path.write_bytes(device_file([event("aten::mm", 0, 10), launch(1, 1), launch(4, 2), one, other]))
    trace = studio.read(path)
    [told] = [finding for finding in trace.findings if finding.code == "several-devices"]
    assert "2 devices" in told.message
    assert "150 µs in all" in told.message
    assert "100 µs on average, 100 µs at most" in told.message
    # Streams of the same number on two devices are two, whose lanes and queues say so; also those of an exported timeline.
    exported = studio.read(write_timeline(trace, tmp_path / "exported.json"))
    for each in (trace, exported):
        lanes = [lane.name for lane in recorded(each).lanes if lane.kind == "stream"]
        assert lanes == ["7 of device 0", "7 of device 1"]
    found = find_launches(trace)
    assert found is not None
    said = [describe_queue(queue, found.queues).split(":")[0] for queue in found.queues]
    assert sorted(said) == ["queue of rank 0, stream 7 of device 0", "queue of rank 0, stream 7 of device 1"]
    figure = queue_lines(found.queues, dark=False)
    assert {line.name for line in figure.data} == {"stream 7 of device 0", "stream 7 of device 1"}
