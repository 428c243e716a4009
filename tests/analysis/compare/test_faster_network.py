"""Why a run takes longer although its network is but faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import studio
from studio.analysis.compare.faster_network import describe_faster_network
from studio.analysis.compare.runs import compare
from studio.analysis.compare.sides import Side, build_recorded_side
from studio.analysis.compare.words import describe_comparison
from studio.timeline import NodeTimes, collect_node_times, recorded
from tests.handmade import at, collective, node, trace_of

SLOW, FAST = ((100.0, 500.0), (25.0, 1000.0)), ((100.0, 500.0), (50.0, 1000.0))
MODEL = "the model full"


def sides(change: Any, speeds: Any = FAST, system: str = "one") -> tuple[Side, Side]:
    """Two ranks that compute and reduce, on a slow network and on another one, where `change` moves starts and ends."""
    nodes = [
        at(1, 4, node(1, "COMP")),
        at(5, 10, collective(2, "ALL_REDUCE", 64)),
        at(15, 5, collective(3, "ALL_REDUCE", 64)),
    ]
    trace = trace_of([nodes, nodes])
    made = replace(
        build_recorded_side(trace, collect_node_times(trace, recorded(trace))),
        is_recording=False,
        model=MODEL,
    )
    start, end = made.times.start_ns.copy(), made.times.end_ns.copy()
    change(start, end)
    later = replace(
        made,
        times=NodeTimes(made.times.first, start, end),
        finish_ns=np.array([end[:3].max(), end[3:].max()]) - made.origin_ns,
    )
    return replace(made, system="one", speeds=SLOW), replace(later, system=system, speeds=speeds)


def longer(_start: np.ndarray, end: np.ndarray) -> None:
    end[[2, 5]] += 3000


def test_collectives_that_take_longer_are_told() -> None:
    found = compare(*sides(longer))
    words = describe_faster_network(found)
    assert words == (
        "The network of B is faster in dimension 1 and slower nowhere, all else is the same: 1 of 2 collectives takes longer once all "
        "members have come, most of all ALL_REDUCE of all ranks (3.00 µs in all)."
    )
    assert describe_comparison(found).endswith(words)
    assert "The network of A is faster" not in describe_comparison(found)


def test_a_change_of_order_is_told() -> None:
    """Each reduction takes as long as before; the second one comes first, and there is a gap."""

    def swapped(start: np.ndarray, end: np.ndarray) -> None:
        for first in (0, 3):
            start[first + 2], end[first + 2] = 5000, 10_000
            start[first + 1], end[first + 1] = 13_000, 23_000

    words = describe_faster_network(compare(*sides(swapped)))
    assert "on 2 of 2 ranks nodes begin in another order, since what is ready first goes first" in words
    assert "none of 2 collectives takes longer once all members have come" in words


def test_the_faster_of_two_may_stand_first() -> None:
    slow, late = sides(longer)
    assert describe_faster_network(compare(late, slow)).startswith(
        "The network of A is faster in dimension 1"
    )


@pytest.mark.parametrize(
    ("speeds", "system"),
    [
        (SLOW, "one"),
        (((90.0, 500.0), (50.0, 1000.0)), "one"),
        (((100.0, 500.0), (50.0, 1001.0)), "one"),
        (FAST, "other"),
    ],
    ids=["as fast", "less bandwidth elsewhere", "more latency", "something else differs"],
)
def test_nothing_is_told_where_the_network_is_not_but_faster(speeds: Any, system: str) -> None:
    assert describe_faster_network(compare(*sides(longer, speeds, system))) == ""


def test_nothing_is_told_where_the_faster_network_makes_the_run_faster() -> None:
    def sooner(_start: np.ndarray, end: np.ndarray) -> None:
        end[[2, 5]] -= 3000

    assert describe_faster_network(compare(*sides(sooner))) == ""


def test_a_simulated_job_of_four_stages_says_why(shared) -> None:
    """Four nodes of four NPUs in ASTRA-sim's model: 40 GB/s between nodes finish later than 25."""
    trace = studio.read(shared / "traces" / "stg" / "llama_16r_tp4pp4_recompute")
    settings = [
        "costs=",
        "npus-count=[4,4]",
        "memory-type=PER_NPU_MEMORY_EXPANSION",
        "remote-mem-bw=64",
        "remote-mem-latency=1000",
    ]
    runs = [
        studio.simulate(trace, studio.preset("hgx-h100", npus=16, settings=[*settings, f"bandwidth[1]={speed}"]), model="astra-sim")
        for speed in (25, 40)
    ]  # fmt: skip
    found = studio.compare(*runs)
    assert found.difference_ns > 0
    assert "The network of B is faster in dimension 1 and slower nowhere" in describe_comparison(found)
    assert "on 16 of 16 ranks nodes begin in another order" in describe_comparison(found)
