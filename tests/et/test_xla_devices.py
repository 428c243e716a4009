"""Recordings of JAX on several devices: hand-made profiles whose collectives, groups, ranks and times are known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.ledger import EXPOSED
from studio.analysis.job.summary import summarise
from studio.et import xla, xplane
from studio.et.findings import merge_findings
from studio.et.job_files import discover
from studio.et.source import open_sources
from studio.timeline import collect_node_times, recorded
from studio.trace import Finding, NodeType, Trace

START_NS = 1_790_000_000_000_000_000


def program(name: str, operations: list[tuple[str, str, int, list[list[int]]]], devices: list[int]) -> Any:
    """A program on some devices; an operation has a name, an opcode, elements of 4 bytes that are given, and groups."""
    proto = xla.load_messages()["HloProto"]()
    module = proto.hlo_module
    module.name = name.encode()
    module.device_assignment.replica_count = 1
    module.device_assignment.computation_count = len(devices)
    for device in devices:
        module.device_assignment.computation_devices.add(device_ids=[device])
    instructions = module.computations.add(id=1).instructions
    for number, (operation, opcode, elements, groups) in enumerate(operations):
        given = instructions.add(name=b"x%d" % number, opcode=b"parameter", id=2 * number + 1)
        given.shape.element_type = 11
        given.shape.dimensions.append(elements)
        made = instructions.add(
            name=operation.encode(), opcode=opcode.encode(), id=2 * number + 2, operand_ids=[given.id]
        )
        made.shape.CopyFrom(given.shape)
        for group in groups:
            made.device_list.replica_groups.add(replica_ids=group)
    return proto


class Space:
    """A profile under construction."""

    def __init__(self, *programs: tuple[int, Any]) -> None:
        self.proto = xplane.load_messages()["XSpace"](hostnames=["node"])
        for number, made in programs:
            self.plane("/host:metadata").meta(
                f"{made.hlo_module.name.decode()}({number})", {"Hlo Proto": made.SerializeToString()}
            )

    def plane(self, name: str) -> Plane:
        """Add a plane."""
        return Plane(self.proto.planes.add(name=name))

    def write(self, path: Path) -> Path:
        """Write the profile."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.proto.SerializeToString())
        return path


class Plane:
    """A plane under construction; times are microseconds."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.stats: dict[str, int] = {}

    def put(self, to: Any, values: dict[str, Any]) -> None:
        """Add values to what has some."""
        for name, value in values.items():
            if name not in self.stats:
                self.stats[name] = len(self.stats) + 1
                self.proto.stat_metadata.add(key=self.stats[name]).value.name = name.encode()
            key = {bytes: "bytes_value", str: "str_value", int: "int64_value"}[type(value)]
            stat = {key: value.encode() if isinstance(value, str) else value}
            to.add(metadata_id=self.stats[name], **stat)

    def meta(self, name: str, values: dict[str, Any]) -> int:
        """Add what events have in common."""
        number = len(self.proto.event_metadata) + 1
        value = self.proto.event_metadata.add(key=number).value
        value.name = name.encode()
        self.put(value.stats, values)
        return number

    def line(self, number: int, name: str, *events: tuple[str, float, float, dict[str, Any]]) -> Plane:
        """Add a line with its events."""
        line = self.proto.lines.add(id=number, name=name, timestamp_ns=1000)
        for what, start, length, values in events:
            event = line.events.add(
                metadata_id=self.meta(what, {}), offset_ps=int(start * 1e6), duration_ps=int(length * 1e6)
            )
            self.put(event.stats, values)
        return self


def on_host(
    operation: str, start: float, length: float, device: int
) -> tuple[str, float, float, dict[str, Any]]:
    """An operation of a program that the host carries out for a device."""
    return (
        operation,
        start,
        length,
        {"hlo_op": operation, "hlo_module": "jit_f", "program_id": 6, "device_ordinal": device},
    )


def names_of(trace: Trace, rank: int) -> dict[str, int]:
    """The durations of a rank's nodes by name, without gaps."""
    graph = trace.graph_of(rank)
    return {
        graph.strings[int(code)]: int(length)
        for code, length in zip(graph.name, graph.duration_ns, strict=True)
        if not graph.strings[int(code)].endswith("gap")
    }


HALVES = program(
    "jit_f",
    [("psum.1", "all-reduce", 256, [[0, 1], [2, 3]]), ("ppermute.2", "collective-permute", 256, [])],
    [0, 1, 2048, 2049],
)
"""Two processes of two devices as processors number them; devices of a process sum among themselves."""


def processor(folder: Path, process: int) -> Path:
    """One of two processes whose two devices are its processor; the second device begins 3 µs after the first."""
    space = Space((6, HALVES))
    host = space.plane("/host:CPU")
    host.line(1, "python", ("train", 0, 100, {"step_num": 7}), ("ThreadpoolListener::Record", 1, 0, {}))
    for place in range(2):
        device, at = 2048 * process + place, 10 + 3 * place
        host.line(
            2 + place,
            f"pool/{place}",
            ("Execute", at, 80, {}),
            on_host("dot.1", at + 1, 20, device),
            on_host("psum.1", at + 22, 30 - 3 * place, device),
            ("Rendezvous", at + 23, 10, {}),
            ("end: psum.1", at + 51 - 3 * place, 0.5, {"hlo_op": "psum.1"}),
            on_host("ppermute.2", at + 60, 10, device),
        )
    environment = space.plane("Task Environment")
    environment.put(environment.proto.stats, {"profile_start_time": START_NS + 5_000 * process})
    return space.write(folder / f"node{process}.xplane.pb")


def test_each_device_of_processes_that_compute_on_processors_is_a_rank_with_its_groups(
    tmp_path: Path,
) -> None:
    for process in range(2):
        processor(tmp_path, process)
    trace = studio.read(tmp_path)
    assert [rank.number for rank in trace.ranks] == [0, 1, 2, 3]
    [share] = summarise(trace).collectives
    assert (share.name, share.nodes, share.bytes) == ("ALL_REDUCE", 4, 4 * 1024)
    assert {group.ranks for group in trace.groups} == {(0, 1), (2, 3)}
    operations = {"dot.1": 20_000, "psum.1": 27_000, "collective-permute (ppermute.2)": 10_000}
    assert names_of(trace, 1).items() >= operations.items()
    assert names_of(trace, 1).keys() - operations.keys() == {"ProfilerStep#7", "Execute"}
    told = {finding.code: finding.message for finding in trace.findings}
    assert "marks of thread pools (1), inside of collectives (4)" in told["left-out"]
    assert "one process with 2 devices" in told["device-ranks"]
    assert "several-devices" not in told
    assert "collective-permute (1)" in told["unknown-collective"]


def test_what_processes_of_one_machine_began_apart_stays_apart(tmp_path: Path) -> None:
    """Newer recorders count from the start of the profile, and say when that was."""
    for process in range(2):
        processor(tmp_path, process)
    trace = studio.read(tmp_path)
    starts: list[int] = []
    for rank in (0, 2):
        graph = trace.graph_of(rank)
        [row] = [row for row in range(len(graph)) if graph.strings[int(graph.name[row])] == "dot.1"]
        starts.append(int(graph.start_ns[row]))
    assert starts[1] - starts[0] == 5_000


def test_communication_without_a_type_is_no_compute_of_a_processor(tmp_path: Path) -> None:
    processor(tmp_path, 0)
    trace = studio.read(tmp_path)
    totals = build_recorded_side(trace, collect_node_times(trace, recorded(trace))).ledger().totals()
    communicating = sum(int(totals.of(part)[0]) for part in EXPOSED)
    assert communicating == 30_000 + 10_000


def test_collectives_of_devices_that_are_not_told_apart_are_said_and_not_counted(tmp_path: Path) -> None:
    """As old releases of jaxlib wrote it: two threads of one process are in a collective at once, and nothing says for which device."""
    space = Space((6, HALVES))
    host = space.plane("/host:CPU")
    for thread in range(2):
        name, start, length, values = on_host("psum.1", 10 + thread, 30, 0)
        del values["device_ordinal"]
        host.line(thread, f"pool/{thread}", (name, start, length, values))
    trace = studio.read(space.write(tmp_path / "host.xplane.pb"))
    assert summarise(trace).collectives == ()
    [told] = [finding.message for finding in trace.findings if finding.code == "unknown-collective"]
    assert "2 collectives of several devices on the host" in told


def gpus(path: Path, count: int, made: Any) -> Path:
    """One process with some GPUs; each computes for 50 µs, then sums with all others."""
    space = Space((3, made))
    host = space.plane("/host:CPU")
    host.line(
        1,
        "python",
        *(("cuLaunchKernel", number, 0.5, {"correlation_id": number + 1}) for number in range(2 * count)),
    )
    for device in range(count):
        plane = space.plane(f"/device:GPU:{device}")
        called = {"hlo_op": "psum.1", "hlo_module": "jit_f", "program_id": 3}
        plane.line(7, "Stream #7(Compute)", ("gemm", 50, 50, {"correlation_id": 2 * device + 1}))
        plane.line(
            8, "Stream #8(Nccl)", ("ncclDevKernel_AllReduce_Sum_f32", 100, 40, {"correlation_id": 2 * device + 2, **called})
        )  # fmt: skip
    return space.write(path)


def test_each_of_the_gpus_of_a_process_is_a_rank(tmp_path: Path) -> None:
    """They were one rank, whose collectives took a nanosecond in a simulation since it had nobody to talk to."""
    made = program("jit_f", [("psum.1", "all-reduce", 1024, [[0, 1, 2, 3]])], [0, 1, 2, 3])
    trace = studio.read(gpus(tmp_path / "host.xplane.pb", 4, made))
    assert [rank.number for rank in trace.ranks] == [0, 1, 2, 3]
    assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]
    for rank in range(4):
        assert names_of(trace, rank) == {"gemm": 50_000, "ncclDevKernel_AllReduce_Sum_f32": 40_000}
    # Devices of one process have one clock.
    [clock] = [finding.message for finding in trace.findings if finding.code == "clock"]
    assert "none was moved" in clock


def test_gpus_of_several_processes_follow_each_other(tmp_path: Path) -> None:
    made = program("jit_f", [("psum.1", "all-reduce", 1024, [[0, 2], [1, 3]])], [0, 1, 2, 3])
    for process in range(2):
        gpus(tmp_path / f"node{process}.xplane.pb", 2, made)
    trace = studio.read(tmp_path)
    assert [(rank.number, Path(rank.file).name) for rank in trace.ranks] == [
        (0, "node0.xplane.pb"), (1, "node0.xplane.pb"), (2, "node1.xplane.pb"), (3, "node1.xplane.pb"),
    ]  # fmt: skip
    assert {group.ranks for group in trace.groups} == {(0, 2), (1, 3)}
    [told] = [finding.message for finding in trace.findings if finding.code == "rank-assumed"]
    assert "2 processes of several devices" in told
    other = studio.read(tmp_path, ranks={"node0.xplane.pb": 1, "node1.xplane.pb": 0})
    assert [Path(rank.file).name for rank in other.ranks][:2] == ["node1.xplane.pb"] * 2


def test_machines_of_one_run_are_one_job_whatever_they_are_called(tmp_path: Path) -> None:
    """Names of machines need not differ by a number alone; they were a job each, of which each began with rank 0."""
    made = program("jit_f", [("psum.1", "all-reduce", 1024, [[0, 1, 2, 3]])], [0, 1, 2, 3])
    folder = tmp_path / "plugins" / "profile" / "2026_11_28"
    for name in ("alpha", "beta"):
        gpus(folder / f"{name}.xplane.pb", 2, made)
    with pytest.raises(studio.TraceError, match="The rank of 2 files is unknown") as caught:
        studio.read(tmp_path)
    assert 'ranks={"FILE": NUMBER}' in str(caught.value.hint)
    for opened in (tmp_path, folder):
        trace = studio.read(opened, ranks={"beta.xplane.pb": 0, "alpha.xplane.pb": 1})
        assert [Path(rank.file).name[:5] for rank in trace.ranks] == ["beta.", "beta.", "alpha", "alpha"]


@pytest.mark.parametrize(
    ("dates", "names", "jobs"),
    [
        (("2026_11_28_23_59_58", "2026_11_29_00_00_01"), ("node0", "node1"), 1),
        (("2026_11_28_23_59_58", "2026_11_29_00_00_01"), ("node0", "node0"), 2),
        (("2026_11_28_10_00_00", "2026_11_28_10_01_00"), ("node0", "node1"), 2),
        (("2026_11_28_10_00_00", "second"), ("node0", "node1"), 2),
    ],
)
def test_folders_that_the_machines_of_one_run_named_by_their_clocks_are_one_job(
    tmp_path, dates, names, jobs
) -> None:
    made = program("jit_f", [("psum.1", "all-reduce", 1024, [[0, 1, 2, 3]])], [0, 1, 2, 3])
    for date, name in zip(dates, names, strict=True):
        gpus(tmp_path / "plugins" / "profile" / date / f"{name}.xplane.pb", 2, made)
    with open_sources([tmp_path]) as files:
        assert len(discover(files)) == jobs
    if jobs == 1:
        trace = studio.read(tmp_path)
        assert [(rank.number, Path(rank.file).name) for rank in trace.ranks] == [
            (0, "node0.xplane.pb"), (1, "node0.xplane.pb"), (2, "node1.xplane.pb"), (3, "node1.xplane.pb"),
        ]  # fmt: skip
        assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]


def test_devices_that_may_be_any_of_a_job_say_so(tmp_path: Path) -> None:
    made = program("jit_f", [("psum.1", "all-reduce", 1024, [[0, 1, 2, 3]])], [0, 1, 2, 3])
    trace = studio.read(gpus(tmp_path / "host.xplane.pb", 2, made))
    assert [rank.number for rank in trace.ranks] == [0, 1]
    [told] = [finding.message for finding in trace.findings if finding.code == "rank-assumed"]
    assert "taken as ranks 0-1" in told


def test_programs_of_one_name_are_told_apart_by_number(tmp_path: Path) -> None:
    """A function that is compiled for two shapes makes two programs of one name."""
    made = [program("jit_f", [("psum.1", "all-reduce", size, [[0, 1]])], [0, 1]) for size in (8, 1024)]
    space = Space((1, made[0]), (2, made[1]))
    called = {"hlo_op": "psum.1", "hlo_module": "jit_f"}
    for device in range(2):
        space.plane(f"/device:GPU:{device}").line(
            7,
            "Stream #7(Nccl)",
            *(("nccl", 10 * number, 5, {**called, "program_id": number}) for number in (1, 2)),
            ("nccl", 40, 5, called),
        )
    trace = studio.read(space.write(tmp_path / "host.xplane.pb"))
    # Of the third nothing says which of the two it is of.
    assert summarise(trace).collectives[0].bytes == 2 * (32 + 4096)
    assert summarise(trace).collectives[0].nodes == 6


def tpu(path: Path, groups: tuple[tuple[int, int], ...] = ((0, 1),)) -> Path:
    """A loop holds a fusion and an all-gather beside it, whose start and wait stand among the rest as well."""
    every = sorted(device for group in groups for device in group)
    gather = ("all-gather-start.1", "all-gather-start", 256, [list(group) for group in groups])
    made = program("jit_f", [gather], every)
    wrapped = made.hlo_module.computations.add(id=9).instructions
    given = wrapped.add(name=b"y", opcode=b"parameter", id=100)
    given.shape.element_type = 11
    given.shape.dimensions.append(512)
    inner = wrapped.add(name=b"rs", opcode=b"reduce-scatter", id=101, operand_ids=[100])
    inner.shape.element_type = 11
    inner.shape.dimensions.append(256)
    inner.device_list.iota.groups, inner.device_list.iota.devices_per_group = 1, 2
    inner.device_list.iota.reshape.append(2)
    outer = made.hlo_module.computations[0].instructions
    outer.add(name=b"z", opcode=b"parameter", id=102).shape.CopyFrom(given.shape)
    outer.add(name=b"async-start.4", opcode=b"async-start", id=103, operand_ids=[102], called_ids=[9])
    space = Space((3, made))

    def operation(
        name: str, start: float, length: float, **more: int
    ) -> tuple[str, float, float, dict[str, Any]]:
        return name, start, length, {"hlo_op": name, "program_id": 3, **more}

    for device in range(2):
        plane = space.plane(f"/device:TPU:{device}")
        plane.line(1, "Steps", ("4", 10, 80, {}))
        plane.line(
            3,
            "XLA Ops",
            operation("while.1", 10, 60),
            operation("fusion.1", 10, 20),
            operation("all-gather-start.1", 30, 1),
            operation("fusion.2", 31, 19),
            operation("all-gather-done.1", 50, 20),
            operation("async-start.4", 70, 1),
            operation("async-done.4", 71, 19),
        )
        plane.line(
            4,
            "Async XLA Ops",
            operation("all-gather-start.1", 30, 40),
            operation("async-start.4", 70, 1, flow=5),
            operation("async-done.4", 71, 19, flow=5),
        )
        space.plane(f"/device:TPU:{device} SparseCore 0").line(3, "XLA Ops", operation("sparse.1", 15, 30))
    return space.write(path)


def test_asynchronous_operations_of_a_tpu_count_once_and_whole(tmp_path: Path) -> None:
    trace = studio.read(tpu(tmp_path / "host.xplane.pb"))
    assert names_of(trace, 0) == {
        "fusion.1": 20_000, "fusion.2": 19_000, "all-gather-start.1": 40_000, "async-start.4": 20_000,
        "sparse.1": 30_000,
    }  # fmt: skip
    shares = {share.name: (share.nodes, share.bytes) for share in summarise(trace).collectives}
    assert shares == {"ALL_GATHER": (2, 2 * 1024), "REDUCE_SCATTER": (2, 2 * 2048)}
    assert [group.ranks for group in trace.groups] == [(0, 1)]
    totals = build_recorded_side(trace, collect_node_times(trace, recorded(trace))).ledger().totals()
    # From 30 to 70 µs it gathers; from 30 to 45 the sparse core works, from 31 to 50 the other one.
    assert int(totals.of("overlapped")[0]) == 20_000
    left = {finding.code: finding.message for finding in trace.findings}["left-out"]
    for said in (
        "operations that hold others (2)",
        "starts of asynchronous operations (4)",
        "waits for asynchronous operations (4)",
    ):
        assert said in left


def test_tpus_of_several_processes_are_in_groups_of_the_right_size_by_an_order_that_is_said_to_be_assumed(
    tmp_path: Path,
) -> None:
    for process in range(2):
        tpu(tmp_path / f"host{process}.xplane.pb", ((0, 2), (1, 3)))
    trace = studio.read(tmp_path)
    assert [rank.number for rank in trace.ranks] == [0, 1, 2, 3]
    assert {group.ranks for group in trace.groups} >= {(0, 2), (1, 3)}
    [told] = [finding for finding in trace.findings if finding.code == "rank-assumed"]
    assert (told.level, "Numbers of TPUs follow their places" in told.message) == ("warning", True)


def test_lines_of_two_cores_of_a_tpu_are_two_streams(tmp_path: Path) -> None:
    trace = studio.read(tpu(tmp_path / "host.xplane.pb"))
    lanes = [lane.name for lane in recorded(trace).lanes if lane.kind == "stream" and lane.rank == 0]
    assert lanes == ["3", "5"]


def test_without_its_programs_nothing_is_guessed_of_the_host(tmp_path: Path) -> None:
    def named(kind: str, name: str, **place: int) -> dict[str, object]:
        return {"ph": "M", "name": kind, "args": {"name": name}, **place}

    events: list[dict[str, object]] = [
        named("process_name", "/host:CPU", pid=1),
        named("thread_name", "pool/1", pid=1, tid=1),
        {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "name": "all-reduce.1",
         "args": {"hlo_op": "all-reduce.1", "hlo_module": "jit_f", "device_ordinal": "1"}},
    ]  # fmt: skip
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    trace = studio.read(path)
    assert summarise(trace).collectives == ()
    [told] = [finding for finding in trace.findings if finding.code == "unknown-collective"]
    assert "which of 1 operations on the host are collectives is not known" in told.message
    assert ".xplane.pb" in told.hint


def test_as_many_events_as_the_viewer_takes_may_not_be_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xplane, "_MOST_SHOWN", 2)
    name = {"ph": "M", "name": "process_name", "args": {"name": "/host:CPU"}, "pid": 1}
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "name": "f"}
    path = tmp_path / "host.trace.json"
    path.write_text(json.dumps({"traceEvents": [name, event, {**event, "ts": 9}]}))
    assert "viewer-limit" in {finding.code for finding in studio.read(path).findings}


@pytest.mark.parametrize(
    ("shape", "axes", "groups"),
    [
        ([4], [], [[0, 1], [2, 3]]),
        ([2, 2], [1, 0], [[0, 2], [1, 3]]),
        ([3], [], []),
    ],
)
def test_groups_in_short_form(shape: list[int], axes: list[int], groups: list[list[int]]) -> None:
    made = program("jit_f", [("psum.1", "all-reduce", 8, [])], [0, 1, 2, 3])
    iota = made.hlo_module.computations[0].instructions[1].device_list.iota
    iota.groups, iota.devices_per_group = 2, 2
    iota.reshape.extend(shape)
    iota.transpose.extend(axes)
    programs = xla.Programs()
    programs.add(made.SerializeToString())
    found = programs.find(-1, "jit_f", "psum.1")
    assert found is not None
    assert [list(group) for group in found.groups] == groups
    assert found.members == 2


def test_groups_written_in_a_way_that_is_not_known_are_not_taken_for_all_devices() -> None:
    made = program("jit_f", [("psum.1", "all-reduce", 8, [])], [0, 1, 2, 3])
    # A field of a later release.
    made.hlo_module.computations[0].instructions[1].device_list.MergeFromString(b"\x1a\x02\x08\x01")
    programs = xla.Programs()
    programs.add(made.SerializeToString())
    found = programs.find(-1, "jit_f", "psum.1")
    assert found is not None
    assert (found.members, found.groups) == (0, ())


def test_findings_of_ranks_of_one_file_name_it_once() -> None:
    lone = [Finding("warning", "no-host-trace", "a: alone.", file="a", rank=rank) for rank in range(2)]
    assert [finding.message for finding in merge_findings(lone)] == ["a: alone."]


def test_collective_permutes_are_compute_nodes_in_the_schema(tmp_path: Path) -> None:
    processor(tmp_path, 0)
    graph = studio.read(tmp_path).graph_of(0)
    [row] = [
        row
        for row in range(len(graph))
        if graph.strings[int(graph.name[row])].startswith("collective-permute")
    ]
    assert graph.type[row] == NodeType.COMP
