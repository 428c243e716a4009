"""Launch delays and queues, held against the raw files of recordings and a hand-drawn rank."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import numpy as np
import pytest

import studio
from studio.analysis.job.launches import find_launches
from tests.handmade import node, trace_of


def launched(number: int, begins: int, lasts: int, before: int, call: int, **attributes: object):
    """An operation of a device, launched some time before it begins (us) by a call of some length."""
    told = {"is_cpu_op": False, "device_kind": "kernel", "launched_by": "cudaLaunchKernel", **attributes}
    made = node(number, "COMP", name=f"k{number}", micros=lasts, **told)
    made.start_time_micros = begins
    for name, value in (("launch_ns", 1000 * before), ("launch_call_ns", 1000 * call)):
        made.attr.add(name=name, int64_val=value)
    return made


def test_delays_and_queues_of_a_rank_drawn_by_hand() -> None:
    """Launched at 0, 2 and 4 us on one stream, and at 90 as a graph of two on another.

    Stream 7: 1 to 10 us, 1 within 2 to 40 us, 1 within 4 to 41 us. The queue holds 1 for 2 us, 2 for 2, 3 for 6, 2 for 30,
    1 for 1, of 101 us all together.
    """
    rank = [
        launched(1, 1, 9, 1, 3, stream=7, correlation=1),
        launched(2, 10, 30, 8, 1, stream=7, correlation=2),
        launched(3, 40, 1, 36, 2, stream=7, correlation=3),
        launched(4, 95, 2, 5, 4, stream=8, correlation=4),
        launched(5, 97, 4, 7, 4, stream=8, correlation=4),
        node(6, "COMP", name="unknown", micros=1, is_cpu_op=False, device_kind="kernel", stream=7),
    ]
    rank[5].start_time_micros = 3
    found = find_launches(trace_of([rank, rank]))
    assert found is not None
    # 0 (it began during its call), 7, 34 and 1 us; each on two ranks.
    every = found.all
    assert (every.count, every.operations, found.unknown) == (8, 10, 2)
    assert (every.least_ns, every.median_ns, every.p99_ns, every.most_ns) == (0, 1_000, 34_000, 34_000)
    assert (every.late, every.short, found.call_ns) == (2, 2, 2_000)
    assert {name: (one.count, one.median_ns) for name, one in found.by_name.items()} == {
        "k1": (2, 0), "k2": (2, 7_000), "k3": (2, 34_000), "k4": (2, 1_000),
    }  # fmt: skip
    first, second = found.queues
    assert (first.rank, first.stream, first.count, first.most, first.waiting_most) == (0, 7, 3, 3, 2)
    assert first.mean == pytest.approx((1 * 2 + 2 * 2 + 3 * 6 + 2 * 30 + 1) / 101)
    assert first.waiting_mean == pytest.approx((1 + 8 + 36) / 101)
    assert first.empty == pytest.approx(1 - 41 / 101)
    assert (second.stream, second.count, second.most) == (8, 2, 2)
    assert (second.length[0], second.length[-1]) == (0, 1)
    assert (first.length * np.diff(first.edges_ns)).sum() == pytest.approx(85_000)


def test_a_job_without_launches_has_none() -> None:
    assert find_launches(trace_of([[node(1, "COMP", name="k", micros=1)]])) is None


@pytest.mark.parametrize("name", ["h100_qwen1.5_0.5b__1016005", "vllm_decode_full_graph_execution"])
def test_figures_equal_those_of_the_raw_file(shared, name):
    """An independent reading: events by correlation, exact decimals, the queue walked through event by event."""
    file = shared / f"traces/foreign/{name}.json.gz"
    found = find_launches(studio.read(file))
    assert found is not None
    events = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)["traceEvents"]
    events = [event for event in events if event.get("ph") == "X"]
    calls, work = {}, {}
    for event in events:
        begin, lasted = (int(Decimal(event[key]) * 1000) for key in ("ts", "dur"))
        number = event.get("args", {}).get("correlation")
        if event["cat"] in ("cuda_runtime", "cuda_driver"):
            calls[number] = begin, lasted
        elif event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            work.setdefault(number, []).append((begin, lasted))
    known = {number: sorted(work[number]) for number in work if number in calls}
    delay = {number: max(run[0][0] - sum(calls[number]), 0) for number, run in known.items()}
    took = {number: sum(lasted for _, lasted in run) for number, run in known.items()}
    every = found.all
    assert every.count == len(known)
    assert every.operations == sum(map(len, known.values()))
    assert found.unknown == sum(map(len, work.values())) - every.operations
    ordered = sorted(delay.values())
    assert (every.least_ns, every.most_ns) == (ordered[0], ordered[-1])
    assert every.median_ns == ordered[-(-len(ordered) // 2) - 1]
    assert every.p99_ns == ordered[-(-99 * len(ordered) // 100) - 1]
    assert every.late == sum(delay[number] > took[number] for number in known)
    assert every.short == sum(calls[number][1] > took[number] for number in known)
    changes = []
    for number, run in known.items():
        for begin, lasted in run:
            changes += [(min(calls[number][0], begin), 1), (begin + lasted, -1)]
    changes.sort()
    length = area = most = 0
    for (time, change), (following, _) in zip(changes, [*changes[1:], changes[-1]], strict=True):
        length += change
        area += length * (following - time)
        most = max(most, length)
    [queue] = found.queues
    assert queue.most == most
    assert queue.mean == pytest.approx(area / (changes[-1][0] - changes[0][0]))
    assert (queue.length * np.diff(queue.edges_ns)).sum() == pytest.approx(area)
