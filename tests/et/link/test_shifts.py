"""Recordings of ranks that begin and end at different collectives, as where profilers are started by time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import studio
from studio.analysis.job.recorded import find_recorded_windows
from studio.doctor import examine
from studio.trace import Trace, read_dense_column
from tests.et.link.test_inferred_groups import collectives, write_rank
from tests.et.pytorch_files import device_file, event, kernel, launch

EVERYONE = {"0": [0, 1, 2, 3]}
PERIOD_US, LASTS_US = 20_000, 5_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def job(folder: Path, *recorded: range, sizes: tuple[int, ...] = (8,)) -> Trace:
    """Four ranks that reduce once a period, sizes taking turns, each recorded for some of that."""
    for number, own in enumerate(recorded):
        calls = [
            (PERIOD_US * turn, PERIOD_US * turn + 10 + number, sizes[turn % len(sizes)], 100) for turn in own
        ]
        write_rank(folder, number, calls, groups=EVERYONE, lasts=LASTS_US)
    return studio.link(folder)


def numbers(trace: Trace) -> list[list[int]]:
    return [[one["comm_seq"] for one in collectives(trace, rank.number)] for rank in trace.ranks]


@pytest.mark.parametrize("sizes", [(8,), (8, 16, 24)], ids=["all alike", "sizes that repeat"])
def test_recordings_that_begin_apart_are_matched_by_what_was_under_way(tmp_path, sizes):
    """They were matched from the first of each on, and called hanging or of other clocks."""
    recorded = range(6), range(1, 6), range(2, 8), range(5)
    trace = job(tmp_path, *recorded, sizes=sizes)
    assert numbers(trace) == [list(own) for own in recorded]
    assert [rank.metadata_number("clock_offset_ns") for rank in trace.ranks] == [0, 0, 0, 0]
    [one] = [one for one in examine(trace) if one.code == "border-collectives"]
    assert (one.level, one.count) == ("warning", 2 + 1 + 3 + 2 + 1 + 2 - 1)
    assert not [one for one in examine(trace) if one.level == "error"]


def test_where_nothing_tells_recordings_begin_together(tmp_path):
    """Rank 1 lacks one of a job that repeats itself, and was recorded at another time: which one is not known."""
    trace = job(tmp_path, range(5), range(40, 44), range(5), range(5))
    assert numbers(trace)[1] == [0, 1, 2, 3]


def recorded_on_a_machine_of_its_own(folder: Path, number: int, first: int, ahead_us: float) -> None:
    """A rank whose collectives NCCL numbers, by a clock that is ahead of that of the other."""
    events = []
    for turn in range(first, first + 6):
        begin = ahead_us + PERIOD_US * turn
        events += [
            event("c10d::allreduce_", begin, 10),
            event("record_param_comms", begin + 1, 8, collective="allreduce", in_elements=5, out_elements=5, dtype="Float",
                  group="0", Seq=turn),
            launch(begin + 3, 500 + turn),
            kernel(ALL_REDUCE, begin + 20, LASTS_US, 500 + turn),
        ]  # fmt: skip
    head = {"backend": "nccl", "rank": number, "world_size": 2}
    content = device_file(
        events, distributedInfo=head, baseTimeNanoseconds=10**18, host_name=f"machine{number}"
    )
    (folder / f"kineto_{number}.json").write_bytes(content)


def test_clocks_are_compared_by_collectives_of_one_number(tmp_path):
    """Both recorded six of them; the n-th of each were compared, which were a period apart."""
    recorded_on_a_machine_of_its_own(tmp_path, 0, 0, 0)
    recorded_on_a_machine_of_its_own(tmp_path, 1, 1, 3_000_000)
    trace = studio.read(tmp_path)
    assert [rank.metadata_number("clock_offset_ns") for rank in trace.ranks] == [0, -3_000_000_000]
    assert trace.ranks[1].metadata_number("clock_matched") == 5
    assert [one.level for one in examine(trace) if one.code == "border-collectives"] == ["warning"]
    assert [read_dense_column(graph, "comm_seq", -1).max() for graph in trace.graphs] == [5, 6]


def recorded_by_time(events: list[dict[str, Any]], late: float, early: float) -> list[dict[str, Any]]:
    """What of a recording a profiler keeps that begins and ends at other times, in parts of its length: what is whole between them."""
    spans = [one for one in events if is_span(one)]
    begin = min(one["ts"] for one in spans)
    length = max(one["ts"] + one["dur"] for one in spans) - begin
    low, high = begin + late * length, begin + (1 - early) * length
    kept = [one for one in spans if one["ts"] >= low and one["ts"] + one["dur"] <= high]
    whole = [one for one in kept if "ProfilerStep" not in one["name"]]
    return [*(one for one in events if not is_span(one)), *whole]


def is_span(one: dict[str, Any]) -> bool:
    return one.get("ph") == "X" and not one["name"].startswith("PyTorch Profiler")


@pytest.mark.parametrize(("run", "codes"), [("ddp_mlp_4r", {"border-collectives"}), ("ddp_gpt_2r", set())])
def test_real_recordings_cut_by_time_are_checked_without_an_error_and_replayed(shared, tmp_path, run, codes):
    """Some end while gloo carries a collective out: then its call alone is left, without its size."""
    for number, path in enumerate(sorted((shared / "traces/torch" / run).glob("kineto_*"))):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["traceEvents"] = recorded_by_time(
            trace["traceEvents"], 0.07 * (number % 3), 0.09 * ((number + 1) % 3)
        )
        (tmp_path / f"kineto_{number}.json").write_text(json.dumps(trace))
    trace = studio.read(tmp_path)
    found = examine(trace)
    assert not [one for one in found if one.level == "error"]
    assert {one.code for one in found} & {"border-collectives", "collectives-disagree", "clock-skew"} == codes
    assert sum(rank.metadata_number("clock_offset_ns") for rank in trace.ranks) == 0
    replay = studio.preset("hgx-h100", npus=len(trace.ranks)).config.extended().replaying()
    windows = find_recorded_windows(trace).values()
    span = max(end for _, end in windows) - min(begin for begin, _ in windows)
    assert studio.simulate(trace, replay).makespan_ns == pytest.approx(span, rel=0.02)
