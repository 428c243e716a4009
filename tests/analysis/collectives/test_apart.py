"""Matched collectives of which members do different things, and groups of which not all members are open."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.collectives.apart import describe_apart
from studio.analysis.collectives.arrivals import find_arrivals
from studio.analysis.collectives.imbalance import Metric, compute_amounts
from studio.analysis.collectives.meeting import find_meeting
from studio.analysis.collectives.members import collect_members
from studio.analysis.collectives.size_classes import list_size_classes
from studio.analysis.collectives.times import CollectiveTimes, compute_collective_times
from studio.et import write
from studio.timeline import read_recorded_times
from studio.trace import Attribute, CollectiveType, Trace, ValueKind
from tests.et.pytorch_files import device_file, event, kernel, launch
from tests.handmade import collective, trace_of
from tests.test_cli import run


def at(number: int, begins: int, ends: int, size: int, kind: str = "ALL_REDUCE", **more):
    """A collective with times in µs."""
    made = collective(number, kind, size, **more)
    made.start_time_micros, made.duration_micros = begins, ends - begins
    return made


def shifted() -> Trace:
    """Rank 0 reduces twice, then exchanges; rank 1 exchanges second, and reduces other bytes third and fourth."""
    first = [
        *(at(1, 10, 30, 1000), at(2, 40, 60, 2000), at(3, 100, 140, 500), at(4, 200, 240, 800)),
        at(5, 300, 340, 70, "ALL_TO_ALL"),
    ]
    other = [
        *(at(1, 20, 30, 1000), at(2, 50, 65, 9000, "ALL_TO_ALL"), at(3, 130, 140, 600), at(4, 230, 240, 0)),
        at(5, 320, 340, 90, "ALL_TO_ALL"),
    ]
    return trace_of([first, other])


def times_of(trace: Trace) -> CollectiveTimes:
    return compute_collective_times(trace, read_recorded_times(trace))


def test_what_members_do_not_do_together_is_no_collective() -> None:
    """Before, the second had the kind of rank 0 and the bytes of rank 1; sizes that are not known contradict nothing."""
    found = times_of(shifted())
    assert found.position.tolist() == [0, 3, 4]
    assert found.type.tolist() == [CollectiveType.ALL_REDUCE] * 2 + [CollectiveType.ALL_TO_ALL]
    assert found.bytes.tolist() == [1000, 800, 90]
    assert found.apart.tolist() == [[0, 0], [1, 2]]
    assert describe_apart(found.apart_by_group()) == (
        "left out: 2 collectives whose members differ in type or size, first collective 1 of the group of all ranks; nothing "
        "tells that they met, so no waiting, skew or bandwidth is computed from them (see check)"
    )
    assert describe_apart([("", np.zeros(0, np.int64))]) == ""


def test_nobody_waits_in_what_is_no_collective() -> None:
    trace = shifted()
    times = read_recorded_times(trace)
    met = find_arrivals(trace, times, is_recording=True)
    [group] = met.groups
    assert group.apart.tolist() == [1, 2]
    assert met.begun_ns[:5].tolist() == [20_000, -1, -1, 230_000, 320_000]
    assert met.partners(0, 5)[0].tolist() == [1, -1, -1, 1, 1]
    assert met.meets(0, 5).tolist() == [True, False, False, True, True]
    assert [find_meeting(trace, times, met, trace.ranks[0], row) is None for row in range(5)] == [
        *(False, True, True, False, False)
    ]


@pytest.mark.parametrize("metric", ["waiting", "lateness", "bus"])
def test_the_heatmap_compares_only_members_of_one_collective(metric: Metric) -> None:
    trace = shifted()
    members = collect_members(trace, read_recorded_times(trace))
    assert members.apart.tolist() == [False, True, True, False, False]
    value = compute_amounts(members, metric)[0].reshape(5, 2)
    assert np.isnan(value[1:3]).all()
    assert not np.isnan(value[0]).any()


def test_the_commands_say_what_they_left_out(tmp_path: Path) -> None:
    write(shifted(), tmp_path / "job", "job")
    listed = run("collectives", str(tmp_path / "job"), "--allow-damaged").output
    assert "2 collectives whose members differ in type or size" in listed
    split = run("breakdown", str(tmp_path / "job"), "--allow-damaged").output
    assert "2 collectives whose members differ in type or size" in split
    told = json.loads(run("collectives", str(tmp_path / "job"), "--json", "--allow-damaged").stdout)
    assert told["apart"] == [{"group": "", "positions": [1, 2]}]


def test_a_replay_says_what_it_left_out_as_the_lists_do(tmp_path: Path) -> None:
    """Nothing fixes the order of the first two, which each rank has in its own: a warning, and the job is simulated."""
    reduce, exchange = (10, 30, 1000), (40, 60, 9000, "ALL_TO_ALL")
    ranks = [
        [at(1, *reduce), at(2, *exchange), at(3, 100, 140, 500)],
        [at(1, *reduce[:2], *exchange[2:]), at(2, *exchange[:2], reduce[2]), at(3, 100, 140, 500)],
    ]
    write(trace_of(ranks), tmp_path / "job", "job")
    told = json.loads(run("simulate", str(tmp_path / "job"), "--replay", "--json").stdout)
    assert [row["position"] for row in told["collectives"]] == [2]
    assert told["apart"] == [{"group": "", "positions": [0, 1]}]


# ---------------------------------------------------------------------------------------------------
# Groups of which not all members are open


def of_world(trace: Trace, world: int) -> Trace:
    """Return a job whose ranks tell how many there are."""
    told = (Attribute("world_size", ValueKind.INT64, world),)
    return replace(trace, ranks=tuple(replace(rank, metadata=told) for rank in trace.ranks))


def both(size: int, kind: str = "ALL_REDUCE", **more) -> list[list]:
    return [[at(1, 10, 20, size, kind, **more)], [at(1, 10, 20, size, kind, **more)]]


def test_the_group_of_all_ranks_has_those_that_are_not_open_too() -> None:
    """Of eight ranks two are open: the bus bandwidth is that of eight, 2 x 7/8 of the algorithm bandwidth."""
    found = times_of(of_world(trace_of(both(8000)), 8))
    assert (found.members.tolist(), found.is_open.tolist()) == ([8], [False])
    assert found.bus_bytes_per_ns.tolist() == [0.8 * 2 * 7 / 8]


def test_without_a_list_of_members_the_bus_bandwidth_is_not_known() -> None:
    """Broadcasts and reduces have it all the same: their factor is 1, whatever the number of ranks."""
    for kind, known in (("ALL_REDUCE", False), ("ALL_TO_ALL", False), ("BROADCAST", True)):
        trace = of_world(trace_of(both(8000, kind, group="dp")), 8)
        found = times_of(trace)
        assert (found.members.tolist(), found.is_open.tolist()) == ([2], [True])
        assert found.algorithm_bytes_per_ns.tolist() == [0.8]
        assert np.isnan(found.bus_bytes_per_ns).tolist() == [not known]
        [one] = list_size_classes(trace, found)
        assert (one.is_open, math.isnan(one.bus_bytes_per_ns)) == (True, not known)
    sized = Attribute("process_groups", ValueKind.STRING, '[{"pg_name": "dp", "ranks": [], "group_size": 4}]')
    told = replace(
        trace, ranks=tuple(replace(rank, metadata=(*rank.metadata, sized)) for rank in trace.ranks)
    )
    assert (times_of(told).members.tolist(), times_of(told).is_open.tolist()) == ([4], [False])
    listed = of_world(trace_of(both(8000, group="dp"), {"dp": [0, 1]}), 8)
    assert times_of(listed).bus_bytes_per_ns.tolist() == [0.8]


def test_what_a_gather_takes_in_and_gives_tells_its_members() -> None:
    """An all-gather of 1000 bytes to 4000 has four members; one that does not tell has no bandwidth at all."""
    trace = of_world(trace_of(both(1000, "ALL_GATHER", group="dp", bytes_out=4000)), 8)
    found = times_of(trace)
    assert (found.members.tolist(), found.is_open.tolist()) == ([4], [False])
    assert (found.whole_bytes.tolist(), found.bus_bytes_per_ns.tolist()) == ([4000], [0.4 * 3 / 4])
    members = collect_members(trace, read_recorded_times(trace))
    assert (members.size.tolist(), members.is_open.tolist()) == ([4], [False])
    reduced = times_of(of_world(trace_of(both(1000, "REDUCE_SCATTER", group="dp", bytes_out=250)), 8))
    assert reduced.members.tolist() == [4]
    silent = of_world(trace_of(both(1000, "ALL_GATHER", group="dp")), 8)
    assert times_of(silent).whole_bytes.tolist() == [0]
    assert np.isnan(times_of(silent).algorithm_bytes_per_ns).all()
    assert np.isnan(
        compute_amounts(collect_members(silent, read_recorded_times(silent)), "algorithm")[0]
    ).all()


def old_recording(rank: int) -> bytes:
    """An all-gather and an all-reduce as recordings without comm groups tell them, of one of 128 ranks."""
    gather, inner = (
        event("c10d::_allgather_base_", 0, 10),
        event("nccl:all_reduce", 101, 8, "user_annotation"),
    )
    gather["args"] |= {"Input Dims": [[64_000], [1000], []], "Input type": ["float", "float", ""]}
    inner["args"] |= {"Input Dims": [[2000]], "Input type": ["float"]}
    reduce = event("c10d::allreduce_", 100, 10)
    events = [
        *(gather, launch(2, 501), kernel("ncclKernel_AllGather", 20, 20, 501, stream=17)),
        *(reduce, inner, launch(102, 502), kernel("ncclKernel_AllReduce", 120, 10, 502, stream=17)),
    ]
    return device_file(events, distributedInfo={"backend": "nccl", "rank": rank, "world_size": 128})


def test_recordings_that_name_no_group_do_not_take_the_open_ranks_for_it(tmp_path: Path) -> None:
    """The all-gather of 4,000 bytes to 256,000 has 64 members of 128 ranks, of which two are open; the all-reduce tells none."""
    for rank in (0, 1):
        (tmp_path / f"kineto_{rank}.json").write_bytes(old_recording(rank))
    trace = studio.read(tmp_path)
    found = times_of(trace)
    assert (found.members.tolist(), found.is_open.tolist()) == ([64, 2], [False, True])
    assert found.bus_bytes_per_ns[0] == 256_000 / 20_000 * 63 / 64
    listed = run("collectives", str(tmp_path), "--allow-damaged").output
    assert "2+: the files name no comm group with a list of ranks, and the job has 128" in listed
    times = read_recorded_times(trace)
    met = find_arrivals(trace, times, is_recording=True)
    rank, graph = trace.ranks[0], trace.graph_of(trace.ranks[0])
    told = [find_meeting(trace, times, met, rank, row) for row in range(len(graph))]
    assert [(one.members, one.is_open) for one in told if one] == [(64, False), (2, True)]
