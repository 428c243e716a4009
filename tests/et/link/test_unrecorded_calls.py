"""Calls that gloo's own threads made for hooks, which a recording lacks or has without times."""

from __future__ import annotations

import pytest

import studio
from studio.doctor import examine
from studio.et.link.unrecorded import find_unrecorded
from studio.sim import simulate
from studio.sim.check import check
from studio.sim.parts import interpret
from studio.sim.replays import as_replay, build_idle_system
from studio.trace import UNRECORDED_CALLS, Trace
from tests.et.pytorch_files import device_file, event, host_file, node, rank_files, tensor
from tests.kernels import compiled

GROUP = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}


def reduction(call_us: float, rf: int, elements: int, span: tuple[float, float], *, tid: int = 8):
    """A call, and the operation of gloo that carries it out, on a thread of its own."""
    begin, end = span
    call = event("c10d::allreduce_", call_us, 5, rf=rf)
    call["args"] |= {"Input Dims": [[[elements]], [], []], "Input type": ["TensorList", "", ""]}
    part = event("gloo:all_reduce", begin, end - begin, "user_annotation", tid=tid, rf=rf + 1)
    part["args"] |= {"Input Dims": [[elements]], "Input type": ["float"]}
    return [call, part]


def job(tmp_path, *, first: int, held_until_us: float = 120_000) -> Trace:
    """Kineto traces of two ranks that reduce twice in each of two steps.

    In the first step a hook goes on with the second reduction: on the calling thread of rank 1, and on gloo's thread of rank 0, which was
    not recorded; its first operation lasts until all that is done.

    Args:
        tmp_path: Where the files go.
        first: Elements of the first reduction of each step.
        held_until_us: When the first operation of rank 0 ends.
    """
    step = event("ProfilerStep#1", 0, 150_000, "user_annotation")
    later = event("ProfilerStep#2", 150_000, 150_000, "user_annotation")
    whole = [
        *reduction(10, 3, first, (50, 5_000)),
        *reduction(20_000, 5, 64, (20_050, 110_000), tid=9),
        event("aten::after", 121_000, 5, rf=7),
        *reduction(150_010, 13, first, (150_050, 155_000)),
        *reduction(170_000, 15, 64, (170_050, 180_000), tid=9),
        event("aten::after", 290_000, 5, rf=17),
    ]
    lacking = [
        *reduction(10, 3, first, (60, held_until_us)),
        event("aten::after", 121_000, 5, rf=7),
        *reduction(150_010, 13, first, (150_050, 155_000)),
        *reduction(170_000, 15, 64, (170_050, 180_000), tid=9),
        event("aten::after", 290_000, 5, rf=17),
    ]
    for number, events in enumerate((lacking, whole)):
        told = {"rank": number, "world_size": 2, "backend": "gloo", "pg_config": [GROUP]}
        content = device_file(
            [step, later, *events], distributedInfo=told, baseTimeNanoseconds=1, host_name="m"
        )
        (tmp_path / f"kineto_{number}.json").write_bytes(content)
    return studio.link(tmp_path)


def levels(trace: Trace) -> dict[str, str]:
    return {found.code: found.level for found in examine(trace)}


def finish(trace: Trace) -> list[int]:
    config = interpret(as_replay(build_idle_system(len(trace.ranks)))).config
    return simulate(trace, config, native=compiled()).finish_ns.tolist()


@pytest.mark.parametrize("first", [0, 16], ids=["empty tensors", "others"])
def test_calls_of_hooks_that_a_rank_lacks_are_no_error_and_the_job_replays(tmp_path, first):
    trace = job(tmp_path, first=first)
    assert [rank.metadata_number(UNRECORDED_CALLS) for rank in trace.ranks] == [1, -1]
    [told] = [one for one in trace.findings if one.code == "calls-unrecorded"]
    assert "(1 of rank 0)" in told.message
    found = levels(trace)
    assert "error" not in found.values()
    assert found["collectives-disagree"] == "warning"
    assert not {"clock-skew", "times-contradict", "deadlock"} & found.keys()
    assert trace.ranks[1].metadata_number("clock_offset_ns") == 0
    assert finish(trace) == pytest.approx([290_005_000, 290_005_000], abs=100)
    config = interpret(as_replay(build_idle_system(2))).config
    assert {one.code: one.level for one in check(trace, config)} == {"replay-unmatched": "warning"}


def test_a_rank_that_lacks_a_call_for_no_known_reason_is_an_error(tmp_path):
    """No operation of gloo went on while the other rank had the collective."""
    trace = job(tmp_path, first=16, held_until_us=5_000)
    assert trace.ranks[0].metadata_number(UNRECORDED_CALLS) == -1
    assert levels(trace)["collectives-disagree"] == "error"


@pytest.mark.parametrize(
    ("elements", "late_us", "found"), [(64, 0, {}), (72, 0, {"collectives-disagree": "warning"}), (64, 3_000, {})]
)  # fmt: skip
def test_what_was_called_for_on_all_ranks_is_not_missing_where_sizes_or_clocks_differ(
    tmp_path, elements, late_us, found
):
    """One operation of gloo goes on for long beside others on rank 0, as if a hook went on in it."""
    for number, size, shift in ((0, 64, 0), (1, elements, late_us)):
        events = [
            *reduction(10 + shift, 3, 16, (50 + shift, 4_000 + shift)),
            *reduction(5_000 + shift, 5, 8, (5_050 + shift, (5_900 if number else 110_000) + shift)),
            *reduction(6_000 + shift, 7, size, (6_050 + shift, 7_200 + shift), tid=9),
            *reduction(20_000 + shift, 9, 16, (20_050 + shift, 20_100 + shift), tid=9),
            event("aten::after", 121_000 + shift, 5, rf=11),
        ]
        told = {"rank": number, "world_size": 2, "backend": "gloo", "pg_config": [GROUP]}
        content = device_file(events, distributedInfo=told, baseTimeNanoseconds=1, host_name="m")
        (tmp_path / f"kineto_{number}.json").write_bytes(content)
    trace = studio.link(tmp_path)
    assert "calls-unrecorded" not in {one.code for one in trace.findings}
    assert {code: level for code, level in levels(trace).items() if level != "info"}.items() >= found.items()


def test_calls_without_times_keep_nobody_waiting_in_a_replay(tmp_path):
    """An execution trace holds the calls of a thread that was not recorded: their order, and so who met whom, is not known."""
    for number in (0, 1):
        elements = (64, 16) if number else (16, 64)
        nodes, events = [], []
        for place in (0, 1):
            rf = 3 + 10 * place
            nodes += [
                node(rf, "c10d::allreduce_", rf_id=rf, inputs=[[tensor(rf, 8)], "<Object>"]),
                node(rf + 1, "gloo:all_reduce", rf, rf_id=rf + 1),
                node(rf + 2, "c10d::allreduce_", rf_id=rf + 2, tid=5, inputs=[[tensor(rf + 2, elements[place])], "<Object>"]),
                node(rf + 3, "gloo:all_reduce", rf + 2, rf_id=rf + 3, tid=5),
            ]  # fmt: skip
            events += reduction(100 * place + 10, rf, 8, (100 * place + 20, 100 * place + 60))
        nodes.append(node(40, "aten::after", rf_id=40))
        events.append(event("aten::after", 300, 10, rf=40))
        device = device_file(events, distributedInfo={"rank": number, "world_size": 2, "backend": "gloo"})
        rank_files(tmp_path, number, host_file(nodes, pid=7), device)
    trace = studio.link(tmp_path)
    assert [rank.metadata_number(UNRECORDED_CALLS) for rank in trace.ranks] == [2, 2]
    assert "calls-unrecorded" not in {one.code for one in trace.findings}
    assert finish(trace) == pytest.approx([300_000, 300_000], abs=100)


def test_without_ranks_nothing_is_lacking():
    assert find_unrecorded([]) == []
