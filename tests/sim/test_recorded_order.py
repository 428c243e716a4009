"""Recordings whose dependencies are a converter's are replayed in the order of their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.advice.baseline import replay_recording
from studio.advice.terms import Change
from studio.analysis.job.step_times import step_times
from studio.cli import main
from studio.errors import TraceError
from studio.sim import simulate
from studio.sim.check import check
from studio.sim.extensions import Extensions
from studio.sim.parts import interpret
from studio.sim.recorded_order import order_by_times
from studio.sim.replays import as_replay, build_idle_system
from studio.trace import Attribute, Finding, Trace, ValueKind, compute_digest
from tests.handmade import at as began_at
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

SCHEMA = (Attribute("schema", ValueKind.STRING, "1.1.1-chakra.0.0.4"),)


def converted(ranks: Sequence[Sequence[Any]]) -> Trace:
    """A job with the dependencies of the reference's converter."""
    trace = trace_of(ranks)
    return replace(trace, ranks=tuple(replace(rank, metadata=SCHEMA) for rank in trace.ranks))


def at(start_us: int, micros: int, made: Any) -> Any:
    """A recorded node; recordings begin at 1 ms, as a start of 0 is none."""
    return began_at(1000 + start_us, micros, made)


def host(number: int, start_us: int, micros: int, *deps: int, name: str = "", call: int = 0, whole: int = 0):
    """An operator: what it took itself, its caller, and what it took with what it called where that is more."""
    more = {"inclusive_ns": 1000 * whole} if whole else {}
    made = at(start_us, micros, node(number, "COMP", *deps, name=name, is_cpu_op=True, tid=1, **more))
    made.ctrl_deps.extend([call] if call else [])
    return made


def kernel(number: int, start_us: int, micros: int, call: int, stream: int = 7, name: str = "kernel"):
    launched = (call,) if call else ()
    made = node(number, "COMP", *launched, name=name, is_cpu_op=False, tid=1, stream=stream)
    made.ctrl_deps.extend(launched)
    return at(start_us, micros, made)


def call(number: int, start_us: int, micros: int, *deps: int):
    """A call for an all-reduce that returns at once."""
    made = collective(number, "ALL_REDUCE", 8, *deps, is_cpu_op=False, tid=1)
    made.name = "c10d::allreduce_"
    return at(start_us, micros, made)


def replayed(trace: Trace, **changed: Any) -> list[list[tuple[int, int]]]:
    """When every node of every rank began and ended, in µs, rounded."""
    parts = as_replay(build_idle_system(len(trace.ranks)))
    config = interpret(parts).config
    assert isinstance(config.extensions, Extensions)
    config = replace(config, extensions=replace(config.extensions, **changed))
    result = simulate(trace, config, native=compiled())
    times = result.node_times()
    assert len(times.start_ns) == trace.node_count
    both = np.round(np.stack((times.start_ns, times.end_ns), axis=1) / 1000).astype(int)
    return [
        [(int(start), int(end)) for start, end in both[first : first + len(trace.graph_of(rank))]]
        for first, rank in zip(times.first.tolist(), trace.ranks, strict=True)
    ]


def recorded(trace: Trace) -> list[list[tuple[int, int]]]:
    """The same of the recording."""
    graphs = [trace.graph_of(rank) for rank in trace.ranks]
    begin = min(int(graph.start_ns[graph.start_ns >= 0].min()) for graph in graphs)
    return [
        [
            ((start - begin) // 1000, (start - begin + took) // 1000)
            for start, took in zip(graph.start_ns.tolist(), graph.duration_ns.tolist(), strict=True)
        ]
        for graph in graphs
    ]


JOBS: dict[str, Callable[[], Sequence[Sequence[Any]]]] = {
    "time between operators": lambda: [[host(1, 0, 10), host(2, 500, 10, 1), host(3, 520, 5, 2)]],
    "own time behind what was called": lambda: [
        [host(1, 0, 900, whole=1000), host(2, 100, 100, 1, call=1), host(3, 1200, 5, 2)]
    ],
    "threads side by side": lambda: [[host(1, 0, 400), host(2, 300, 400, 1), host(3, 400, 50, 2)]],
    "kernels beside operators": lambda: [
        [host(1, 0, 10), kernel(2, 5, 400, 1), host(3, 10, 10, 1), kernel(4, 405, 50, 3)]
    ],
    "a collective on a thread of gloo": lambda: [
        [call(1, 0, 10), host(2, 5, 800, 1, name="gloo:all_reduce", call=1), host(3, 900, 10, 2)],
        [call(1, 700, 10), host(2, 705, 100, 1, name="gloo:all_reduce", call=1), host(3, 900, 10, 2)],
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_a_replay_begins_every_node_when_it_began(name):
    """Though the file's dependencies chain them all, without what lay between."""
    trace = converted(JOBS[name]())
    assert replayed(trace) == recorded(trace)


def test_the_job_keeps_the_dependencies_of_its_file():
    trace = converted(JOBS["threads side by side"]())
    before = [compute_digest(graph) for graph in trace.graphs]
    config = interpret(as_replay(build_idle_system(1))).config
    result = simulate(trace, config, native=compiled())
    assert result.trace is trace
    assert [compute_digest(graph) for graph in trace.graphs] == before
    on_network = simulate(trace, studio.preset("hgx-h100", npus=1).config, native=compiled())
    assert on_network.makespan_ns == 850_000


def test_what_is_linked_or_of_another_kind_keeps_its_dependencies():
    trace = trace_of(JOBS["threads side by side"]())
    assert order_by_times(trace) is trace
    linked = (*SCHEMA, Attribute("link_linked", ValueKind.INT64, 3))
    known = replace(trace, ranks=tuple(replace(rank, metadata=linked) for rank in trace.ranks))
    assert order_by_times(known) is known


def changed(trace: Trace, rank: int, row: int, micros: int) -> Trace:
    """The job in the order of its recording, with another duration of a node."""
    ordered = order_by_times(trace)
    graph = ordered.graph_of(ordered.ranks[rank])
    took = graph.duration_ns.copy()
    took[row] = 1000 * micros
    graphs = (*ordered.graphs, replace(graph, duration_ns=took))
    ranks = list(ordered.ranks)
    ranks[rank] = replace(ranks[rank], graph=len(graphs) - 1)
    return replace(ordered, graphs=graphs, ranks=tuple(ranks))


def spans(trace: Trace, rank: int, count: int) -> list[tuple[int, int]]:
    return replayed(trace)[rank][:count]


def test_a_late_rank_lets_the_others_wait_where_gloo_carries_the_collective_out():
    """Rank 1 begins its call 100 µs later: gloo's operator of rank 0, and what waited for it, end so much later; the call does not."""
    ranks = [
        [call(1, 0, 10), host(2, 5, 800, 1, name="gloo:all_reduce", call=1), host(3, 900, 10, 2)],
        [host(4, 0, 690), call(1, 700, 10), host(2, 705, 100, 1, name="gloo:all_reduce", call=1), host(3, 900, 10, 2)],
    ]  # fmt: skip
    later = changed(converted(ranks), 1, 0, 790)
    assert spans(later, 0, 3) == [(0, 10), (5, 905), (1000, 1010)]


def test_operators_that_ran_beside_each_other_do_not_hold_each_other_up():
    """The third came right behind the first on its thread, while another thread was busy."""
    longer = changed(converted(JOBS["threads side by side"]()), 0, 1, 900)
    assert spans(longer, 0, 3) == [(0, 400), (300, 1200), (400, 450)]
    longer = changed(converted(JOBS["threads side by side"]()), 0, 0, 500)
    assert spans(longer, 0, 3) == [(0, 500), (300, 700), (500, 550)]


def test_a_faster_node_lets_what_waited_for_it_begin_earlier_and_keeps_the_gap():
    faster = changed(converted(JOBS["time between operators"]()), 0, 0, 4)
    assert spans(faster, 0, 3) == [(0, 4), (494, 504), (514, 519)]


def test_a_device_goes_on_when_its_stream_is_free_and_the_launch_was_made():
    """Of two kernels the second waited for the first; half as fast, both end later, and the host does not."""
    job = converted([[host(1, 0, 10), kernel(2, 5, 400, 1), host(3, 10, 10, 1), kernel(4, 405, 50, 3)]])
    assert replayed(job, compute_speeds={0: 0.5}) == [[(0, 10), (5, 805), (10, 20), (805, 905)]]


def test_a_thread_waits_for_the_copy_to_the_host_that_it_had_waited_for():
    ranks = [
        [host(1, 0, 500), kernel(2, 50, 440, 1, name="Memcpy DtoH (Device -> Pageable)"), host(3, 510, 5, 1)]
    ]
    assert spans(changed(converted(ranks), 0, 1, 640), 0, 3) == [(0, 500), (50, 690), (710, 715)]


def test_streams_wait_for_what_ended_last_on_another_while_they_stood_idle():
    ranks = [
        [host(1, 0, 5), kernel(2, 5, 300, 1), host(3, 6, 4, 1), kernel(4, 310, 50, 3, stream=20), host(5, 12, 1, 3)]
    ]  # fmt: skip
    slower = changed(converted(ranks), 0, 1, 400)
    assert spans(slower, 0, 4) == [(0, 5), (5, 405), (6, 10), (410, 460)]


def test_a_call_goes_on_behind_the_last_that_it_called():
    """The finish of the rank and the replayed step have it."""
    trace = converted([[host(1, 0, 900, whole=1000), host(2, 100, 100, 1, call=1)]])
    result = simulate(trace, interpret(as_replay(build_idle_system(1))).config, native=compiled())
    assert result.makespan_ns == 1_000_000
    [step] = step_times(trace, result.node_times(), result.finish_ns)
    assert (step.recorded_ns, step.replayed_ns) == (1_000_000, 1_000_000)


def test_advice_on_durations_counts_and_on_dependencies_is_refused():
    """The gaps are those of the recording, not of the job that was changed."""
    trace = converted(JOBS["time between operators"]())
    scene = replay_recording(trace)
    halved = replace(trace.graphs[0], duration_ns=trace.graphs[0].duration_ns // 2)
    assert scene.baseline.finish_ns == 525_000
    assert scene.finish_ns(Change((lambda job: replace(job, graphs=(halved,)),))) == 512_500
    free = replace(trace.graphs[0].data, rows=trace.graphs[0].data.rows[::-1])
    rewired = replace(trace.graphs[0], data=free)
    with pytest.raises(TraceError, match="the dependencies of the recording are those of a converter"):
        scene.finish_ns(Change((lambda job: replace(job, graphs=(rewired,)),)))


def test_what_took_time_and_does_not_say_when_is_told(tmp_path):
    """Then nothing is ordered by times."""
    ranks = [[host(1, 0, 10), host(2, 500, 10, 1), node(3, "COMP", 2, micros=5, is_cpu_op=True)]]
    trace = converted(ranks)
    untimed = replace(trace.graphs[0], start_ns=np.array([1_000_000, 1_500_000, -1]))
    trace = replace(trace, graphs=(untimed,))
    assert order_by_times(trace) is trace
    studio.write(trace, tmp_path, "job")
    done = CliRunner().invoke(main, ["simulate", str(tmp_path), "--replay"])
    assert done.exit_code == 0, done.output
    assert "more than 2 % off: 1 node took time and does not say when" in done.output


def test_collectives_on_which_recordings_differ_take_their_time_and_wait_for_nobody():
    """Which ones met is not known, but the job ran; a job that was not recorded is refused."""
    ranks = [[call(1, 0, 30)], [call(1, 500, 10), call(2, 600, 10, 1)]]
    trace = converted(ranks)
    config = interpret(as_replay(build_idle_system(2))).config
    [finding] = [one for one in check(trace, config) if one.code != "ranks-replayed"]
    assert (finding.level, finding.code) == ("warning", "replay-unmatched")
    assert replayed(trace) == recorded(trace)
    graphs = tuple(replace(graph, start_ns=np.full(len(graph), -1)) for graph in trace.graphs)
    codes = {(one.level, one.code) for one in check(replace(trace, graphs=graphs), config)}
    assert ("error", "collectives-disagree") in codes


def test_sizes_on_which_ranks_differ_do_not_keep_a_recording_from_its_replay():
    """What a member of a scatter receives is not recorded; times are."""
    ranks = [[at(0, 9, collective(1, "SCATTER", size, is_cpu_op=False, tid=1))] for size in (512, 0)]
    config = interpret(as_replay(build_idle_system(2))).config
    assert check(converted(ranks), config) == []
    assert replayed(converted(ranks)) == recorded(converted(ranks))


def test_a_recording_whose_communication_has_no_times_replays_what_it_has():
    """As where a plain profiler leaves out gloo's threads: the waiting is part of the time between operators."""
    ranks = [[host(1, 0, 30), collective(2, "ALL_REDUCE", 8, 1, tid=1), host(3, 500, 10, 1)]] * 2
    trace = converted(ranks)
    [finding] = check(trace, interpret(as_replay(build_idle_system(2))).config)
    assert (finding.level, finding.code) == ("warning", "replay-partly-unrecorded")
    assert finding.message.startswith("None of the 2 communication nodes has a recorded duration")
    assert [[nodes[0], nodes[2]] for nodes in replayed(trace)] == [[(0, 30), (500, 510)]] * 2


def test_timelines_are_replayed_in_their_order():
    """They have no dependencies, or those that a viewer's file holds."""
    nodes = [
        at(0, 30, node(1, "COMP")),
        at(40, 10, collective(2, "ALL_REDUCE", 8)),
        at(60, 5, node(3, "COMP")),
    ]
    bare = trace_of([nodes, nodes])
    assert replayed(bare) == recorded(bare)
    exported = trace_of([[at(0, 30, node(1, "COMP")), at(50, 5, node(2, "COMP", 1))]])
    assert replayed(exported) == [[(0, 30), (30, 35)]]
    told = replace(exported, findings=(Finding("info", "exported-timeline", "It was exported."),))
    assert replayed(told) == recorded(told)


@st.composite
def recordings(draw: st.DrawFn) -> list[list[Any]]:
    """Ranks of operators, gloo's among them, and kernels: at any time, called by any before, alike or not in what they communicate."""
    ranks = []
    for _ in range(draw(st.integers(1, 2))):
        nodes: list[Any] = []
        for number in range(1, draw(st.integers(2, 12))):
            start, took, more = (draw(st.integers(0, most)) for most in (40, 20, 20))
            above = draw(st.integers(0, number - 1))
            kind = draw(st.sampled_from(["host", "gloo", "kernel", "call"]))
            if kind == "kernel":
                nodes.append(kernel(number, start, took, above, stream=draw(st.integers(7, 8))))
            elif kind == "call":
                nodes.append(call(number, start, took))
            else:
                name = "gloo:all_reduce" if kind == "gloo" else "aten::add"
                nodes.append(host(number, start, took, name=name, call=above, whole=took + more))
        ranks.append(nodes)
    return ranks


@given(recordings())
def test_any_recording_replays_as_it_ran(ranks):
    """Whatever a converter made of it; what overlaps by less than what recorders round, 1 µs, follows each other, and late by no more."""
    trace = converted(ranks)
    for one, other in zip(replayed(trace), recorded(trace), strict=True):
        late = np.array(one)[:, 0] - np.array(other)[:, 0]
        assert ((late >= 0) & (late <= len(one))).all()
