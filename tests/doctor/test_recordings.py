"""Recordings of ranks that do not fit together: of several runs, shorter than the others, or with times that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import studio
from studio.doctor import Diagnosis, examine, repair_all
from studio.sim.check import check
from studio.sim.models import apply_model
from studio.trace import Attribute, Trace, ValueKind
from tests.doctor.broken_jobs import BROKEN, on_one_machine, reductions
from tests.handmade import at, collective, node, trace_of


def found(trace: Trace, code: str) -> list[Diagnosis]:
    return [one for one in examine(trace) if one.code == code]


# ---------------------------------------------------------------------------------------------------
# Several runs


def test_files_of_several_runs_are_told_first_and_no_clock_is_to_be_aligned():
    """Of two runs with other collectives, so that what ranks disagree on only follows."""
    trace = on_one_machine(
        reductions(
            [(0, 9), (20, 9)],
            [(5, 9), (25, 9)],
            [(9000, 9), (9020, 9), (9040, 9)],
            [(9001, 9), (9021, 9), (9041, 9)],
        )
    )
    first, *others = examine(trace)
    assert (first.code, first.level, first.ranks) == ("mixed-runs", "error", (0, 1, 2, 3))
    assert "ranks 0–1 for 34.0 µs from 0 ns on; ranks 2–3 for 50.0 µs from 9.00 ms on" in first.message
    assert "clock-skew" not in {one.code for one in others}
    [disagreement] = [one for one in others if one.code == "collectives-disagree"]
    assert disagreement.advice.startswith("These ranks are of different runs")
    assert repair_all(trace, ["clock-skew"]).changes == ()


def test_recordings_that_overlap_through_others_are_of_one_run():
    """Nor is it told where no machine is known: then clocks may count from anywhere."""
    spans = ([(0, 30), (40, 30)], [(50, 30), (100, 30)], [(120, 30), (160, 30)])
    assert not found(on_one_machine(reductions(*spans)), "mixed-runs")
    apart = reductions([(0, 10), (20, 10)], [(9000, 10), (9020, 10)])
    assert not found(apart, "mixed-runs")


def test_ranks_that_do_not_communicate_with_each_other_may_run_at_any_time():
    alone = trace_of([[at(start, 20, node(1, "COMP"))] for start in (1, 9000)])
    assert not found(on_one_machine(alone), "mixed-runs")
    groups = {"a": [0, 1], "b": [2, 3]}
    pairs = [
        [at(start, 20, collective(1, "ALL_REDUCE", 64, group=name))]
        for start, name in ((1, "a"), (2, "a"), (9000, "b"), (9001, "b"))
    ]
    assert not found(on_one_machine(trace_of(pairs, groups)), "mixed-runs")


# ---------------------------------------------------------------------------------------------------
# Stopping early


def test_a_rank_that_stops_early_is_named_with_what_it_lacks():
    [one] = found(BROKEN["ends-early"](), "ends-early")
    assert (one.level, one.ranks) == ("warning", (2,))
    assert one.message == (
        "The recording of rank 2 ends at 10.0 µs, those of the others at 90.0 ms: it lacks 1 of 2 collectives that the others have."
    )


def _stepping(*ends: int) -> Trace:
    """Ranks that do a step each of 50 ms, named by a node of as many µs, and all the same collectives."""
    return on_one_machine(
        trace_of(
            [
                [
                    at(1, 10, collective(1, "ALL_REDUCE", 64)),
                    *(
                        at(50_000 * step + 1, 10, node(2 + step, "COMP", 1, name=f"step{step}.mm"))
                        for step in range(steps)
                    ),
                ]
                for steps in ends
            ]
        )
    )


def test_steps_that_all_others_have_tell_it_as_well():
    [one] = found(_stepping(4, 4, 2), "ends-early")
    assert one.message.endswith("at 150 ms: it has not all of steps 2, 3.")
    assert not found(_stepping(4, 4, 4), "ends-early")


@pytest.mark.parametrize(
    "trace",
    [
        # It has all collectives, and the others computed on.
        reductions([(0, 10), (40_000, 50_000)], [(0, 10), (40_000, 50_000)], [(0, 10), (40_000, 10)]),
        # It lacks one, and ends when they do.
        reductions([(0, 10), (20, 90_000)], [(0, 10), (20, 90_000)], [(0, 90_000), (-1, 0)]),
    ],
    ids=["with all collectives", "at the same time"],
)
def test_a_rank_is_not_blamed_for_its_end_or_what_it_lacks_alone(trace: Trace):
    assert not found(on_one_machine(trace), "ends-early")


def test_a_rank_of_another_clock_that_shares_nothing_does_not_stop_early():
    trace = trace_of(
        [[at(begin + 1, 10, node(1, "COMP", name=f"step{step}.mm"))] for begin, step in ((0, 1), (10**9, 2))]
    )
    assert not found(trace, "ends-early")


# ---------------------------------------------------------------------------------------------------
# Times that cannot be


def test_a_collective_cannot_end_before_it_began_elsewhere():
    [one] = found(BROKEN["times-contradict"](), "times-contradict")
    assert (one.level, one.ranks, one.count) == ("warning", (0, 1), 1)
    assert one.message.startswith(
        "Rank 0 has ended 2 collectives of the group of all ranks at 30.0 µs, but rank 1 begins its 2nd at 3.00 ms"
    )
    assert dict(one.evidence)["collectives that contradict"] == "1 of 2"


@pytest.mark.parametrize(
    "ranks",
    [
        ([(0, 10), (20, 900)], [(5, 10), (910, 10)]),
        # Which of two that run at once is which does not matter.
        ([(0, 10), (1, 9_000)], [(9_000, 100), (2, 20)]),
    ],
    ids=["a wait", "in another order"],
)
def test_times_that_can_be_are_not_told(ranks):
    assert not found(on_one_machine(reductions(*ranks)), "times-contradict")


def test_calls_that_hand_a_collective_over_prove_nothing():
    def rank(start: int):
        return [at(start + 1, 10, collective(1, "ALL_REDUCE", 64, name="c10d::allreduce_"))]

    assert not found(on_one_machine(trace_of([rank(0), rank(5000)])), "times-contradict")


def messages_between(call_us: int | None, *, of_another_clock: bool = False) -> Trace:
    """Two messages from rank 0 to rank 1, which has received both after 110 µs; the second is noted down as sent after 5 ms."""
    sent = [
        at(1 + begin, 50, node(1 + turn, "COMM_SEND", comm_size=8, comm_dst=1, comm_tag=0))
        for turn, begin in enumerate((0, 5000))
    ]
    if call_us is not None:
        sent.append(at(1 + call_us, 10, node(9, "COMP", name="c10d::send")))
        sent[1].data_deps.append(9)
    received = [
        at(1 + begin, 50, node(1 + turn, "COMM_RECV", comm_size=8, comm_src=0, comm_tag=0))
        for turn, begin in enumerate((0, 60))
    ]
    trace = trace_of([sent, received])
    return trace if of_another_clock else on_one_machine(trace)


@pytest.mark.parametrize("call_us", [None, 4000])
def test_a_message_cannot_be_received_before_it_was_sent(call_us):
    """Pipelines have no collectives that would tell; gloo notes a send down late, so that its call counts."""
    [one] = found(messages_between(call_us), "times-contradict")
    assert (one.level, one.ranks, one.count) == ("warning", (0, 1), 1)
    sent = "5.00 ms" if call_us is None else "4.00 ms"
    assert one.message.startswith(
        f"Rank 1 has received 2 messages of rank 0 at 110 µs, but rank 0 begins to send the 2nd at {sent}"
    )
    assert dict(one.evidence)["messages that contradict"] == "1 of 2"


def test_messages_that_can_be_or_have_no_common_clock_are_not_told():
    assert not found(messages_between(80), "times-contradict")
    assert not found(messages_between(None, of_another_clock=True), "times-contradict")


def test_collectives_of_empty_tensors_may_end_before_others_come():
    def rank(start: int):
        return [
            at(start + 1, 10, collective(1, "ALL_REDUCE", 0)),
            at(9001, 10, collective(2, "ALL_REDUCE", 8)),
        ]

    assert not found(on_one_machine(trace_of([rank(0), rank(5000)])), "times-contradict")


def test_that_recorded_tensors_were_empty_is_a_note():
    [one] = found(trace_of([[at(1, 1, collective(1, "ALL_REDUCE", 0, bytes_in=0))]]), "size-zero")
    assert (one.level, one.count) == ("info", 1)
    assert one.message.startswith("1 communication node of rank 0 moves 0 bytes, as the recording tells")
    [one] = found(trace_of([[at(1, 1, collective(1, "ALL_REDUCE", 0))]]), "size-zero")
    assert one.level == "warning"


def test_clocks_that_are_not_known_may_be_moved_but_not_stretched():
    plain = [(0, 10), (5_000, 10), (10_000, 10), (15_000, 10)]
    assert not found(
        reductions(plain, [(70_000 + start, length) for start, length in plain]), "times-contradict"
    )
    [one] = found(reductions(plain, [(2 * start, 2 * length) for start, length in plain]), "times-contradict")
    assert one.message.startswith("However the clocks of ranks 0 and 1 are moved")


def test_a_clock_that_linking_moved_is_one_of_its_own():
    """A rank whose clock was moved to fit is not held to the clock of its machine."""
    trace = on_one_machine(reductions([(0, 10), (20, 10)], [(2_000, 10), (2_020, 10)]))
    moved = tuple(
        Attribute(one.name, one.kind, 5) if one.name == "clock_offset_ns" else one
        for one in trace.ranks[1].metadata
    )
    whole = replace(trace.ranks[1], metadata=(*moved, Attribute("clock_drift_ppb", ValueKind.DOUBLE, 0.0)))
    assert not found(replace(trace, ranks=(trace.ranks[0], whole)), "times-contradict")


# ---------------------------------------------------------------------------------------------------
# Borders


def _cut(*numbers: Sequence[int], busy_until: int = 0) -> Trace:
    """Ranks that reduce every 20 ms, each recorded for some of these collectives; rank 0 computes until then, in ms."""
    ranks = []
    for rank, own in enumerate(numbers):
        nodes = [
            at(1 + 20_000 * number, 5_000, collective(number + 1, "ALL_REDUCE", 64, comm_seq=number))
            for number in own
        ]
        late = [at(1 + 1000 * busy_until, 1, node(99, "COMP"))] if busy_until and rank == 0 else []
        ranks.append([*nodes, *late])
    return on_one_machine(trace_of(ranks))


def test_collectives_before_and_after_what_a_rank_recorded_are_no_error():
    """Ranks recorded by time stop at other collectives of a job that ran; each takes what it recorded of them."""
    trace = _cut(range(3), range(1, 5))
    [one] = found(trace, "border-collectives")
    assert (one.level, one.ranks, one.count, one.repair) == ("warning", (0, 1), 3, None)
    assert one.title == "Communication that not all its ranks were recorded long enough to have"
    assert not found(trace, "collectives-disagree")
    assert one.message.startswith(
        "The recordings of the ranks do not begin or end at the same collective: 1 of rank 0, 2 of rank 1 in the group of all ranks"
    )
    assert not found(trace, "deadlock")
    config = studio.preset("hgx-h100", npus=2).config
    for system in (config, config.with_extensions().with_recorded_times()):
        told = [(one.code, one.level) for one in check(trace, system) if one.level != "info"]
        assert ("border-collectives", "warning") in told
        assert "error" not in {level for _, level in told}
        start, end = studio.simulate(trace, system).node_times().of_nodes(trace)
        took = (end - start).tolist()
        assert took[0] == took[5] == took[6] == 5_000_000
    reference = check(trace, apply_model(config, "astra-sim"))
    assert {one.code: one.level for one in reference}["collectives-disagree"] == "error"


@pytest.mark.parametrize(
    "trace",
    [
        _cut(range(3), range(5), busy_until=150),
        _cut(range(5), [0, 1, 3, 4]),
        _cut(range(5), range(0)),
    ],
    ids=["goes on computing", "between others", "none at all"],
)
def test_what_a_rank_lacks_within_its_recording_is_an_error(trace):
    [one] = found(trace, "collectives-disagree")
    assert one.level == "error"
