"""What idle times of streams are put down to: to the host where a launch was on its way, to a stall where the device had its work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.segments import CAUSES
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.sim.replays import as_replay, build_idle_system
from studio.sim.result import compute_ledger
from studio.timeline import collect_node_times, recorded
from studio.trace import Trace, are_idle
from tests.et.pytorch_files import device_file, event, kernel, launch
from tests.kernels import compiled


def linked(folder: Path, *events: dict[str, Any]) -> Trace:
    path = folder / "kineto.json"
    path.write_bytes(device_file(events))
    return studio.read(path)


def gaps(trace: Trace) -> list[tuple[int, str]]:
    """Return the duration of each idle time and what it is put down to."""
    [graph] = trace.graphs
    rows, where = graph.rows_with("gap")
    words = {
        row: graph.strings[int(graph.attrs.value[at])]
        for row, at in zip(rows.tolist(), where.tolist(), strict=True)
    }
    return [(int(graph.duration_ns[row]), words[row]) for row in np.flatnonzero(are_idle(graph)).tolist()]


def mm(at_us: float, correlation: int) -> list[dict[str, Any]]:
    return [event("aten::mm", at_us, 10), launch(at_us + 8, correlation)]


def test_what_the_device_had_been_given_long_before_was_not_held_up_by_the_host(tmp_path):
    """All is launched at 20 µs, and the first kernel begins at 1,000, as after a graph that was launched before the recording."""
    trace = linked(tmp_path, *mm(0, 1), *mm(10, 2), kernel("a", 1000, 100, 1), kernel("b", 1110, 100, 2))
    assert gaps(trace) == [(990_000, "stall"), (10_000, "stall")]
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    account = side.ledger()
    parts = account.totals()
    assert parts.of("host").tolist() == [20_000]  # both operators
    assert parts.of("stall").tolist() == [990_000]
    assert parts.ns.sum() == 1_210_000
    path = find_critical_path(trace, side.times, account)
    spent = {CAUSES[code]: 0 for code in path.cause.tolist()}
    for start, end, code in zip(
        path.start_ns.tolist(), path.end_ns.tolist(), path.cause.tolist(), strict=True
    ):
        spent[CAUSES[code]] += end - start
    # The second operator ran while the stream stood idle.
    assert spent == {"host": 20_000, "stall": 990_000, "compute": 200_000}


def test_a_stream_that_stalls_while_another_computes_is_no_stall_of_its_rank(tmp_path):
    """Its second kernel waits from 120 to 600 µs for something that was not recorded; another stream is busy up to 500."""
    trace = linked(
        tmp_path,
        *mm(0, 1),
        *mm(10, 2),
        *mm(20, 3),
        kernel("a", 30, 90, 1, stream=7),
        kernel("other", 40, 460, 3, stream=8),
        kernel("b", 600, 100, 2, stream=7),
    )
    assert (480_000, "stall") in gaps(trace)
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    account = side.ledger()
    assert account.totals().of("stall").tolist() == [100_000]
    spent = find_critical_path(trace, side.times, account).by_cause()
    assert (spent["stall"], spent["queueing"]) == (100_000, 380_000)


def test_such_time_stays_in_a_replay_and_is_a_stall_there_too(tmp_path):
    trace = linked(tmp_path, *mm(0, 1), *mm(10, 2), kernel("a", 1000, 100, 1), kernel("b", 1110, 100, 2))
    config = interpret(as_replay(build_idle_system(1))).config
    account = compute_ledger(simulate(trace, config, native=compiled()))
    parts = account.totals()
    assert parts.of("host").tolist() == [20_000]
    assert parts.of("stall").tolist() == [990_000]
    assert parts.ns.sum() == 1_210_000


@pytest.mark.parametrize(("starts_us", "why"), [(30, "idle"), (105, "idle"), (115, "stall")])
def test_the_time_a_launch_takes_to_get_to_the_device_is_the_hosts(tmp_path, starts_us, why):
    """The call ends at 10 µs."""
    trace = linked(tmp_path, *mm(0, 1), kernel("a", starts_us, 100, 1))
    assert gaps(trace) == [((starts_us - 10) * 1000, why)]


def test_an_idle_time_in_which_the_launch_came_late_is_the_hosts(tmp_path):
    """Nothing tells what the first kernel waited for, but it was launched at the end of the idle time."""
    trace = linked(tmp_path, event("aten::mm", 0, 10), launch(1880, 1), kernel("a", 2000, 100, 1))
    assert gaps(trace) == [(2_000_000, "idle")]


def test_what_was_launched_before_the_recording_was_not_held_up_by_the_host(tmp_path):
    trace = linked(tmp_path, *mm(0, 50), kernel("early", 40, 20, 3), kernel("a", 65, 20, 50))
    assert gaps(trace) == [(40_000, "stall"), (5_000, "idle")]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        # Given at 10 µs, begun at 5,000: nothing recorded held it up.
        ([*mm(0, 1), kernel("a", 5000, 100, 1)], True),
        # Launched before the recording, which the device began late.
        ([*mm(0, 9), kernel("a", 5000, 100, 3), kernel("b", 5100, 100, 9)], True),
        # Such work from the beginning on is told of elsewhere, and accounts for the device.
        ([*mm(0, 9), kernel("a", 1, 4999, 3), kernel("b", 5000, 100, 9)], False),
        # The host gave it nothing before.
        ([*mm(4980, 1), event("aten::first", 0, 10), kernel("a", 5000, 100, 1)], False),
        # A launch takes as long, and so little of a recording does not count.
        ([*mm(0, 1), kernel("a", 105, 100, 1)], False),
        ([*mm(0, 1), kernel("a", 150, 100_000, 1)], False),
    ],
)
def test_a_recording_that_begins_while_the_device_may_be_busy_says_so(tmp_path, events, told):
    found = [one for one in linked(tmp_path, *events).findings if one.code == "busy-before"]
    assert bool(found) == told
    if told:
        assert "for its first 5.00 ms of 5." in found[0].message
