"""Recordings of ranks that begin and end at different collectives, as where profilers are started by time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
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
    replay = studio.preset("hgx-h100", npus=len(trace.ranks)).config.with_extensions().with_recorded_times()
    windows = find_recorded_windows(trace).values()
    span = max(end for _, end in windows) - min(begin for begin, _ in windows)
    assert studio.simulate(trace, replay).makespan_ns == pytest.approx(span, rel=0.02)


def named_steps(
    folder: Path,
    number: int,
    steps: range,
    sizes: tuple[int, ...] = (8, 8),
    begins: Sequence[int] = range(0, 20 * PERIOD_US, PERIOD_US),
    **head: Any,
) -> None:
    """A rank of NCCL whose recorder numbers no collectives and names no machine; of each step it says which it is."""
    events = []
    for place, step in enumerate(steps):
        begin = 1000 * number + begins[place]
        events.append(event(f"ProfilerStep#{step}", begin, PERIOD_US, "user_annotation"))
        for at, elements in enumerate(sizes):
            part = begin + 5_000 * at + 100
            facts = {
                "collective": "allreduce",
                "in_elements": elements,
                "out_elements": elements,
                "dtype": "Float",
            }
            mark = 500 + 10 * place + at
            events += [
                event("c10d::allreduce_", part, 10),
                event("record_param_comms", part + 1, 8, group="0", **facts),
                launch(part + 3, mark),
                kernel(ALL_REDUCE, part + 20, 3_000, mark),
            ]
    head = {"distributedInfo": {"backend": "nccl", "rank": number, "world_size": 3}} | head
    folder.mkdir(exist_ok=True)
    (folder / f"kineto_{number}.json").write_bytes(device_file(events, **head))


def test_recordings_without_numbers_and_clocks_are_matched_by_the_names_of_their_steps(tmp_path):
    """Nothing else tells apart recordings of a job that repeats itself; the n-th of each were matched, and clocks moved by a step."""
    for number, steps in enumerate((range(2, 6), range(3, 7), range(4, 8))):
        named_steps(tmp_path, number, steps)
    trace = studio.read(tmp_path)
    own = [read_dense_column(graph, "comm_seq", -1) for graph in trace.graphs]
    assert [[number for number in one.tolist() if number >= 0] for one in own] == [
        list(range(first, first + 8)) for first in (0, 2, 4)
    ]
    # The ends that met lie a period and a bit apart.
    moved = [rank.metadata_number("clock_offset_ns") for rank in trace.ranks]
    assert moved == [0, PERIOD_US * 1000 - 1_000_000, 2 * (PERIOD_US * 1000 - 1_000_000)]
    assert not [one for one in examine(trace) if one.level == "error"]


def test_steps_that_no_two_recordings_share_are_not_matched(tmp_path):
    """Rank 1 was recorded when the others had been, and rank 2 a step after that."""
    for number, steps in enumerate((range(2, 4), range(7, 9), range(9, 11))):
        named_steps(tmp_path, number, steps)
    trace = studio.read(tmp_path)
    own = [read_dense_column(graph, "comm_seq", -1) for graph in trace.graphs]
    assert [int(one[one >= 0].min()) for one in own] == [0, 4, 8]
    assert [one.metadata_number("clock_matched") for one in trace.ranks] == [0, 0, 0]
    first, second, *_ = examine(trace)
    # Each rank may count its steps from its own beginning.
    assert (first.code, first.level, first.ranks) == ("mixed-runs", "warning", (0, 1, 2))
    assert (
        "rank 0 took part in none of the collectives of the group of all ranks that rank 1 took part in"
        in first.message
    )
    assert (second.code, second.advice[:28]) == ("collectives-disagree", "These ranks are of different")
    assert second.level == "warning"
    assert "hang" not in second.message


def test_steps_that_each_rank_counts_from_its_own_beginning_are_told_by_what_lies_between_collectives(
    tmp_path,
):
    """No clock is common, but steps last differently long; the files were said to be of several runs."""
    begins = [1000 * ms for ms in (0, 21, 45, 66, 93, 114, 140, 163)]
    for number, first in enumerate((2, 40, 4)):
        named_steps(tmp_path, number, range(first, first + 8), begins=begins)
    trace = studio.read(tmp_path)
    own = [read_dense_column(graph, "comm_seq", -1) for graph in trace.graphs]
    assert [int(one[one >= 0].min()) for one in own] == [0, 0, 0]
    assert [rank.metadata_number("clock_offset_ns") for rank in trace.ranks] == [0, -1_000_000, -2_000_000]
    assert not {one.code for one in examine(trace)} & {
        "mixed-runs",
        "collectives-disagree",
        "border-collectives",
    }


def test_where_steps_are_counted_by_each_rank_what_was_under_way_at_the_time_counts(tmp_path):
    """On one machine times tell that both began together."""
    for number in range(2):
        named_steps(
            tmp_path, number, range(3 * number, 3 * number + 3), baseTimeNanoseconds=10**18, host_name="one"
        )
    trace = studio.read(tmp_path)
    own = [read_dense_column(graph, "comm_seq", -1) for graph in trace.graphs]
    assert [int(one[one >= 0].min()) for one in own] == [0, 0]


def test_a_rank_that_lacks_a_collective_of_a_step_all_began_with_is_told(tmp_path):
    named_steps(tmp_path, 0, range(2, 6))
    named_steps(tmp_path, 1, range(2, 6), sizes=(8, 8, 8))
    named_steps(tmp_path, 2, range(2, 6))
    assert "collectives-disagree" in {
        one.code for one in examine(studio.read(tmp_path)) if one.level == "error"
    }
