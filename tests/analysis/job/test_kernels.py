"""What runs by name, held against the raw files of a recording and hand-drawn ranks."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.analysis.job.kernels import describe_receives, list_kernels, mask_numbers
from studio.timeline import NodeTimes, read_recorded_times
from studio.trace import Trace
from tests.handmade import collective, node, trace_of


def at(begins: int, made):
    """The same node with a start."""
    made.start_time_micros = begins
    return made


def test_names_that_only_count_add_up_and_copies_have_a_rate() -> None:
    """Two layers under one name; the copy moves 4,000 bytes in 2 µs."""
    rank = [
        at(1, node(1, "COMP", name="step0.layer0.fc1", micros=10)),
        at(20, node(2, "COMP", name="step0.layer1.fc1", micros=30)),
        at(60, collective(3, "ALL_REDUCE", 8)),
        at(80, node(4, "MEM_LOAD", name="load", micros=2, tensor_size=4000)),
        # An annotation around all of it, which runs nothing.
        at(1, node(5, "COMP", name="ProfilerStep#1", micros=90)),
    ]
    rank[2].duration_micros = 5
    trace = trace_of([rank, rank])
    found = list_kernels(trace, read_recorded_times(trace))
    assert [(kernel.name, kernel.kind, kernel.count, kernel.total_ns) for kernel in found] == [
        ("step*.layer*.fc1", "compute", 4, 80_000),
        ("n3", "communication", 2, 10_000),
        ("load", "memory", 2, 4_000),
    ]
    first = found[0]
    assert (first.least_ns, first.median_ns, first.most_ns, first.longest) == (10_000, 20_000, 30_000, (0, 1))
    assert first.share == 80 / 94
    assert found[2].bytes_per_ns == 2.0
    assert found[1].bytes_per_ns is None


def test_a_receive_that_waits_from_when_it_was_posted_runs_nothing() -> None:
    """Posted at 1 µs for what is sent at 90: the message counts with its send; a receive on a stream is a kernel."""
    both = {"comm_tag": 0, "comm_size": 8}
    sends = [at(90, node(1, "COMM_SEND", name="send", micros=10, comm_dst=1, **both))]
    posts = [
        at(1, node(1, "COMM_RECV", name="recv", micros=99, comm_src=0, **both)),
        at(100, node(2, "COMM_RECV", name="nccl", micros=5, comm_src=0, stream=7, **both)),
    ]
    trace = trace_of([sends, posts])
    assert [(kernel.name, kernel.total_ns) for kernel in list_kernels(trace, read_recorded_times(trace))] == [
        ("send", 10_000),
        ("nccl", 5_000),
    ]
    assert describe_receives(trace).startswith("1 posted receive left out:")
    assert describe_receives(trace_of([sends])) == ""


def test_a_median_counts_every_rank_that_shares_a_graph() -> None:
    """Of 10, 10, 10, 20 and 40 µs: three ranks share the first graph, and two others have one each."""
    each = [[at(1, node(1, "COMP", name="fc", micros=micros))] for micros in (10, 10, 10, 20, 40)]
    trace = trace_of(each)
    assert [kernel.median_ns for kernel in list_kernels(trace, read_recorded_times(trace))] == [10_000]
    trace = trace_of([*each, each[-1]])
    assert [kernel.median_ns for kernel in list_kernels(trace, read_recorded_times(trace))] == [15_000]


@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["step", "Layer ", "x", "64x64", "mb_", ".", "7", "12", "", "é", "２", "ProfilerStep#1"]
            ),
            max_size=6,
        ).map("".join),
        min_size=1,
        max_size=30,
        unique=True,
    )
)
def test_names_are_those_of_their_families_one_by_one(names: list[str]) -> None:
    """However many are alike but for their numbers; what counts nothing keeps its numbers."""
    nodes = [
        at(number, node(number, "COMP", name=name or f"n{number}", micros=1))
        for number, name in enumerate(names, 1)
    ]
    expected = Counter(
        mask_numbers(name or f"n{number}")
        for number, name in enumerate(names, 1)
        if not name.startswith("ProfilerStep")
    )
    trace = trace_of([nodes])
    assert {one.name: one.count for one in list_kernels(trace, read_recorded_times(trace))} == expected


def test_ranks_simulated_as_one_count_each() -> None:
    """Three ranks share the times of one."""
    trace = trace_of([[node(1, "COMP", name="a", micros=1)]] * 3)
    [found] = list_kernels(trace, NodeTimes(np.zeros(3, np.int64), np.array([0]), np.array([700])))
    assert (found.count, found.total_ns, found.share) == (3, 2100, 1.0)


def raw_device_operations(folder: Path) -> dict[str, tuple[int, Decimal]]:
    """Count and total in ns, by name, of all that ran on a device, read from the Kineto files alone."""
    found: dict[str, tuple[int, Decimal]] = {}
    for path in sorted(folder.glob("kineto_*.json.gz")):
        text = gzip.decompress(path.read_bytes())
        for event in json.loads(text, parse_float=Decimal)["traceEvents"]:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                count, total = found.get(event["name"], (0, Decimal(0)))
                found[event["name"]] = count + 1, total + event["dur"] * 1000
    return found


def test_totals_equal_sums_over_the_raw_file(shared: Path) -> None:
    """Every kernel and copy of four ranks with a device, each to the nearest ns."""
    folder = shared / "traces" / "torch_synthetic_device" / "ddp_mlp_4r"
    trace: Trace = studio.read(folder)
    found = {kernel.name: kernel for kernel in list_kernels(trace, read_recorded_times(trace))}
    raw = raw_device_operations(folder)
    assert {name: kernel.count for name, kernel in found.items()} == {
        name: count for name, (count, _) in raw.items()
    }
    for name, (count, total) in raw.items():
        assert abs(found[name].total_ns - total) <= Decimal("0.5") * count, name
