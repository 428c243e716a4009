"""Collectives by size, from hand-drawn ranks and from a recording."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.collectives.size_classes import SizeClass, list_size_classes
from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.blame import compute_collective_waits
from studio.et import write
from studio.sim.attained import find_attained
from studio.timeline import read_recorded_times
from studio.trace import NONE, Trace
from tests.handmade import collective, trace_of
from tests.test_cli import run


def at(number: int, begins: int, ends: int, size: int, kind: str = "ALL_REDUCE"):
    """A collective with times in µs."""
    made = collective(number, kind, size)
    made.start_time_micros, made.duration_micros = begins, ends - begins
    return made


def list_with_last(trace: Trace) -> list[SizeClass]:
    """Return the classes of a recording with the ranks that others waited for."""
    side = build_recorded_side(trace, read_recorded_times(trace))
    times = compute_collective_times(trace, side.times)
    return list_size_classes(trace, times, compute_collective_waits(trace, side.ledger(), times))


def test_times_count_from_the_last_arrival_and_name_who_comes_last() -> None:
    """Three all-reduces of 1000 bytes on two ranks: rank 1 comes last twice, and once both come together."""
    first = [at(1, 10, 30, 1000), at(2, 40, 60, 1000), at(3, 100, 140, 1000), at(4, 200, 203, 8, "BARRIER")]
    other = [at(1, 20, 30, 1000), at(2, 40, 60, 1000), at(3, 110, 140, 1000), at(4, 200, 203, 8, "BARRIER")]
    trace = trace_of([first, other])
    reduces, barrier = list_with_last(trace)
    assert (reduces.type, reduces.members, reduces.count, reduces.total_bytes) == ("ALL_REDUCE", 2, 3, 3000)
    assert (reduces.least_ns, reduces.median_ns, reduces.p99_ns, reduces.most_ns) == (
        10_000,
        20_000,
        30_000,
        30_000,
    )
    assert (reduces.skew_ns, reduces.most_skew_ns) == (10_000, 10_000)
    assert (reduces.last_rank, reduces.last_share) == (1, 1.0)
    # 1000 bytes in 20 µs; an all-reduce of two ranks sends half of it twice.
    assert (reduces.algorithm_bytes_per_ns, reduces.bus_bytes_per_ns) == (0.05, 0.05)
    assert barrier.last_rank == NONE
    assert math.isnan(barrier.bus_bytes_per_ns)
    assert find_attained(trace, [reduces, barrier]) is None


def test_who_is_waited_for_longest_comes_last() -> None:
    """Rank 0 comes 1 µs late twice, rank 1 once, by 8 µs: of two ranks as often late the first was named before."""
    first = [at(1, 11, 30, 1000), at(2, 41, 60, 1000), at(3, 100, 140, 1000)]
    other = [at(1, 10, 30, 1000), at(2, 40, 60, 1000), at(3, 108, 140, 1000)]
    trace = trace_of([first, other])
    (found,) = list_with_last(trace)
    assert (found.last_rank, found.last_share) == (1, 0.8)


def test_time_and_rate_of_a_row_belong_together_of_an_even_number_too() -> None:
    """Two all-reduces of 1000 bytes in 10 and 40 µs: the median is 25 µs, in which 1000 bytes are 40 MB/s."""
    rank = [at(1, 10, 20, 1000), at(2, 40, 80, 1000)]
    trace = trace_of([rank, rank])
    (found,) = list_size_classes(trace, compute_collective_times(trace, read_recorded_times(trace)))
    assert (found.median_ns, found.algorithm_bytes_per_ns) == (25_000, 0.04)


def test_the_text_names_both_ends_of_a_class_of_several_sizes(tmp_path: Path) -> None:
    """Thirty sizes from 1 to 1.93 KiB; the largest alone is not what moves in the median time."""
    rank = [at(number, 100 * number, 100 * number + 10, 992 + 32 * number) for number in range(1, 31)]
    write(trace_of([rank, rank]), tmp_path, "job")
    line = run("collectives", tmp_path).stdout.splitlines()[2]
    assert "1.00 KiB to 1.91 KiB" in line


def test_the_text_shows_the_whole_array_that_bandwidths_are_of(tmp_path: Path) -> None:
    """An all-gather of 1 MiB by each of two ranks in 100 µs: 2 MiB, half of which each port carries."""
    rank = [at(1, 100, 200, 1 << 20, "ALL_GATHER")]
    write(trace_of([rank, rank]), tmp_path, "job")
    lines = run("collectives", tmp_path).stdout.splitlines()
    assert lines[1].startswith("whole array: of an all-gather or gather")
    assert lines[3].split()[2:6] == ["1.00", "MiB", "2.00", "MiB"]
    assert "10.5 GB/s" in lines[3]


def test_many_sizes_share_classes_between_powers_of_two() -> None:
    """Thirty sizes from 1000 bytes on fall into the classes of 512 and 1024."""
    rank = [at(number, 100 * number, 100 * number + 10, 1000 + number) for number in range(1, 31)]
    trace = trace_of([rank, rank])
    found = {
        each.least_bytes: each.most_bytes
        for each in list_size_classes(trace, compute_collective_times(trace, read_recorded_times(trace)))
    }
    assert found == {1001: 1023, 1024: 1030}


def test_what_a_system_attains_is_what_it_takes_alone() -> None:
    """The time that the simulator charges, over the median."""
    rank = [at(1, 100, 1100, 1 << 20)]
    trace = trace_of([rank] * 8)
    found = list_size_classes(trace, compute_collective_times(trace, read_recorded_times(trace)))
    attained = find_attained(trace, found, "hgx-h100")
    assert attained is not None
    bare = trace_of([[collective(1, "ALL_REDUCE", 1 << 20)]] * 8)
    assert attained.ns == (studio.simulate(bare, studio.preset("hgx-h100", npus=8).config).makespan_ns,)
    assert attained.share(0, 1_000_000) == pytest.approx(attained.ns[0] / 1e6)


def test_what_was_faster_than_the_system_knows_is_said_to_be(tmp_path: Path) -> None:
    """128 MiB among eight ranks in 1 µs is more than NVLink carries; in 100 ms it is not."""
    for micros, is_faster in ((1, True), (100_000, False)):
        folder = tmp_path / str(micros)
        write(trace_of([[at(1, 100, 100 + micros, 1 << 27)]] * 8), folder, "job")
        last = run("collectives", folder, "--preset", "hgx-h100").stdout.splitlines()[-1]
        assert ("was recorded faster than the costs of this system know" in last) == is_faster


def test_sums_of_a_recording_are_those_of_its_collectives(shared: Path) -> None:
    """Of the command's JSON: counts, bytes and times of all classes together."""
    folder = shared / "traces" / "torch" / "dlrm_4r"
    trace = studio.read(folder)
    times = compute_collective_times(trace, read_recorded_times(trace))
    rows = json.loads(run("collectives", folder, "--json").stdout)["collectives"]
    assert sum(row["count"] for row in rows) == len(times)
    assert sum(row["total_bytes"] for row in rows) == int(times.bytes.sum())
    assert sum(row["total_ns"] for row in rows) == int((times.end_ns - times.arrived_ns).sum())
    assert len({(row["type"], row["members"], row["least_bytes"]) for row in rows}) == len(rows)
    assert np.all([row["least_ns"] <= row["median_ns"] <= row["p99_ns"] <= row["most_ns"] for row in rows])
