"""Recorded calls end when they return, and run between what they called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.advice.baseline import replay_recording
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job import own_time
from studio.analysis.job.blame import compute_blame
from studio.analysis.job.ledger import PARTS
from studio.analysis.job.nodes import NodeIndex
from studio.analysis.job.own_time import find_own_pieces
from studio.analysis.job.recorded import find_recorded_windows
from studio.analysis.job.summary import summarise
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.segments import CAUSES
from studio.session import build_recorded_gantt
from studio.sim.timed import build_timed_trace
from studio.timeline import collect_recorded_times, read_recorded_times, recorded
from studio.trace import compute_recorded_ends
from tests.examples import examples
from tests.handmade import at, collective, node, trace_of
from tests.recordings import link_recording

BEGIN = 100
"""When handmade recordings begin, in µs."""


def operator(
    number: int, start: int, own: int, whole: int = 0, *, thread: int = 1, name: str = "", **attributes
):
    """A call on a thread, which took so long itself, and with what it called; in µs."""
    if whole:
        attributes["inclusive_ns"] = whole * 1000
    made = node(number, "COMP", name=name or f"op{number}", is_cpu_op=True, tid=thread, **attributes)
    return at(BEGIN + start, own, made)


def pieces(trace):
    """When each call ran itself, in µs after the beginning; by id."""
    told: dict[int, list[tuple[int, int]]] = {}
    graph = trace.graphs[0]
    found = find_own_pieces(graph)
    for row, start, end in zip(
        found.row.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True
    ):
        told.setdefault(int(graph.id[row]), []).append((start // 1000 - BEGIN, end // 1000 - BEGIN))
    return told


def account(trace):
    side = build_recorded_side(trace, read_recorded_times(trace))
    return side, side.ledger()


# A call of 100 µs calls another for 30, which calls a third for 10; behind them an annotation lasts on.
NESTED = [
    operator(1, 0, 0, 150, name="ProfilerStep#1"),
    operator(2, 0, 70, 100),
    operator(3, 20, 20, 30),
    operator(4, 30, 10),
]


def test_a_call_runs_itself_between_what_it_calls():
    assert pieces(trace_of([NESTED])) == {2: [(0, 20), (50, 100)], 3: [(20, 30), (40, 50)]}


def test_a_recording_finishes_when_the_last_call_returns_and_all_say_so():
    """By its own time the call of rank 0 ends at 70 µs, before the only one of rank 1, which began and ended earlier."""
    trace = trace_of([NESTED, [operator(1, 0, 80)]])
    side, found = account(trace)
    assert found.finish_ns.tolist() == [100_000, 80_000]
    assert {PARTS[code]: ns for code, ns in enumerate(found.ns()[0].tolist()) if ns} == {"compute": 100_000}
    assert side.makespan_ns == summarise(trace).end_ns - summarise(trace).start_ns == 100_000
    assert find_recorded_windows(trace)[0] == (100_000, 200_000)
    index = NodeIndex(trace)
    assert (index.end_ns, index.node(1).end_ns, index.node(1).duration_ns) == (100_000, 100_000, 70_000)
    gantt = build_recorded_gantt(trace)
    assert gantt.finish_ns.tolist() == [100_000, 80_000]
    assert gantt.span_ns == gantt.account.makespan_ns == 100_000
    same = collect_recorded_times(trace, recorded(trace))
    assert same.over_ns.tolist() == read_recorded_times(trace).over_ns.tolist()


def test_the_critical_path_goes_through_what_calls_did_themselves():
    trace = trace_of([NESTED])
    side, found = account(trace)
    path = find_critical_path(trace, side.times, found)
    segments = zip(path.row.tolist(), path.start_ns.tolist(), path.end_ns.tolist(), strict=True)
    assert [(row, start // 1000, end // 1000) for row, start, end in segments] == [
        (1, 0, 20), (2, 20, 30), (3, 30, 40), (2, 40, 50), (1, 50, 100),
    ]  # fmt: skip
    assert {CAUSES[code] for code in path.cause.tolist()} == {"compute"}


def test_a_rank_that_others_waited_for_was_at_the_call_that_ran_meanwhile():
    """Rank 1 comes 40 µs later to the collective: most of that it was in a call, behind the one that this had called."""
    late = [operator(1, 0, 40, 90), operator(2, 10, 50), at(BEGIN + 90, 10, collective(3, "ALL_REDUCE", 8))]
    early = [operator(1, 0, 50), at(BEGIN + 50, 50, collective(3, "ALL_REDUCE", 8))]
    trace = trace_of([early, late])
    side, found = account(trace)
    blame = compute_blame(trace, side.times, found)
    assert (blame.ns.tolist(), blame.busy_row.tolist()) == ([40_000], [0])


def test_communication_that_goes_on_after_its_call_holds_up_no_thread():
    call = operator(2, 10, 5, name="gloo call")
    floats = at(BEGIN + 12, 60, collective(3, "ALL_REDUCE", 8, tid=1))
    assert pieces(trace_of([[operator(1, 0, 95, 100), call, floats]])) == {1: [(0, 10), (15, 100)]}


def test_time_before_a_thread_that_waited_for_another_is_nobodys():
    """The call began to wait at 30 µs and went on at 60: it took 50 of the 80 µs up to the gap, or behind it."""
    gap = operator(3, 60, 10, name="host gap", gap="thread")
    assert pieces(trace_of([[operator(1, 0, 50, 90), operator(2, 10, 10), gap]])) == {
        1: [(0, 10), (20, 40), (70, 90)]
    }


def test_a_wait_for_the_device_is_none_of_the_call_around_it():
    waits = operator(2, 60, 10, name="cudaDeviceSynchronize", waits_for="device", wait_ns=40_000)
    assert pieces(trace_of([[operator(1, 0, 50, 100), waits]])) == {1: [(0, 20), (70, 100)]}


def test_a_call_whose_times_contradict_each_other_is_taken_as_one_piece():
    assert pieces(trace_of([[operator(1, 0, 90, 100), operator(2, 10, 50)]])) == {}


def test_nested_calls_run_one_at_a_time_compiled_and_interpreted_alike(monkeypatch):
    @settings(max_examples=examples(60))
    @given(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 2)), min_size=1, max_size=14
        )
    )
    def check(spans):
        # Of intervals that overlap without covering each other the later one is left out.
        kept: list[tuple[int, int, int]] = []
        for start, length, thread in sorted(spans, key=lambda span: (span[2], span[0], -span[1])):
            end = start + length
            apart = (
                thread != other or end <= since or until <= start or (since <= start and end <= until)
                for since, until, other in kept
            )  # fmt: skip
            if all(apart):
                kept.append((start, end, thread))
        # Who runs at each moment: the one that began last, of several the one inside.
        runs = {
            (thread, moment): max(
                (
                    index
                    for index, (start, end, other) in enumerate(kept)
                    if other == thread and start <= moment < end
                ),
                default=None,
            )
            for thread in (1, 2)
            for moment in range(80)
        }
        own = [sum(index == at for at in runs.values()) for index in range(len(kept))]
        nodes = [
            operator(index, start, own[index], end - start if own[index] != end - start else 0, thread=thread)
            for index, (start, end, thread) in enumerate(kept)
        ]
        trace = trace_of([nodes])
        answers = []
        for compiled in (False, True):
            monkeypatch.setattr(own_time, "is_faster_compiled", lambda *_, is_so=compiled: is_so)
            answers.append(pieces(trace))
        assert answers[0] == answers[1]
        for index, (start, _, thread) in enumerate(kept):
            told = answers[0].get(index, [(start, start + own[index])] if own[index] else [])
            moments = {moment for since, until in told for moment in range(since, until)}
            assert moments == {
                moment for (at, moment), runner in runs.items() if at == thread and runner == index
            }

    check()


@pytest.mark.parametrize(
    ("name", "last"),
    [("ddp_gpt_2r", 0), ("pp_2r", 1), ("tp_mlp_2r", 1), ("fsdp_gpt_2r", 0), ("mnist_plain", 0)],
)
def test_a_recording_finishes_when_its_replay_does(shared: Path, name: str, last: int):
    trace = link_recording(shared / "traces" / "torch" / name)
    side, found = account(trace)
    assert found.numbers[int(found.finish_ns.argmax())] == last
    assert side.makespan_ns == pytest.approx(replay_recording(trace).result.makespan_ns, rel=1e-3)
    assert found.ns().sum(axis=1).tolist() == found.finish_ns.tolist()
    for graph, own in zip(trace.graphs, found.pieces, strict=True):
        told = np.zeros(len(graph), np.int64)
        np.add.at(told, own.row, own.end_ns - own.start_ns)
        assert (told[own.row] == graph.duration_ns[own.row]).all(), "pieces are the own time"


def test_simulated_times_know_nothing_of_when_recorded_calls_returned():
    trace = trace_of([[operator(1, 0, 70, 100), operator(2, 20, 30)]])
    fast = replace(trace, graphs=(replace(trace.graphs[0], duration_ns=trace.graphs[0].duration_ns // 2),))
    result = replay_recording(fast).result
    timed = build_timed_trace(result)
    graph = timed.graphs[0]
    assert (compute_recorded_ends(graph) == graph.start_ns + graph.duration_ns).all()
    assert build_recorded_side(timed, read_recorded_times(timed)).makespan_ns == result.makespan_ns
    assert studio.recorded(timed)
