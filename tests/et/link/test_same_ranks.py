"""Comm groups of the same ranks, which a recorder of gloo does not name: threads of the program tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import studio
from studio.commands.link import count_communication
from studio.doctor.checks import examine
from studio.trace import Trace, list_node_attributes
from tests.et.link.test_inferred_groups import told
from tests.et.pytorch_files import THREAD, device_file, event, host_file, node, rank_files, tensor

BOTH = {"0": [0, 1], "1": [0, 1]}
MAIN, OTHER, THIRD = 1, 8, 9


def write_job(
    folder: Path, calls: Sequence[Sequence[tuple[int, int]]], groups: dict[str, list[int]] = BOTH
) -> Trace:
    """Ranks whose threads (number, elements) call for all-reduces one after the other; the profiler leaves out all threads but the first."""
    for number, own in enumerate(calls):
        nodes = [node(3 + turn, THREAD, 1, tid=tid) for turn, tid in enumerate((OTHER, THIRD))]
        events = []
        for turn, (tid, elements) in enumerate(own):
            call, part = 10 + 2 * turn, 11 + 2 * turn
            value, above = tensor(1 + turn, elements), {MAIN: 2, OTHER: 3, THIRD: 4}[tid]
            nodes.append(
                node(call, "c10d::allreduce_", above, rf_id=call, inputs=[[value], "<Object>"], tid=tid)
            )
            nodes.append(node(part, "gloo:all_reduce", call, rf_id=part, inputs=[value], tid=tid))
            if tid == MAIN:
                at = 100.0 * turn
                events.append(event("c10d::allreduce_", at, 5, rf=call))
                events.append(event("gloo:all_reduce", at + 10, 50, "user_annotation", tid=100, rf=part))
        listed = [{"pg_name": name, "ranks": ranks} for name, ranks in groups.items()]
        head = {"distributedInfo": {"rank": number, "world_size": len(calls), "pg_config": listed}}
        head |= {"baseTimeNanoseconds": 10**18, "host_name": "one"}
        rank_files(folder, number, host_file(nodes, pid=7 + number), device_file(events, **head))
    return studio.link(folder)


def groups_of(trace: Trace, number: int) -> list[tuple[int, str]]:
    """Elements and group of each all-reduce of a rank, by element count."""
    return sorted(
        (int(name.rpartition(" ")[2]) // 4, group)
        for name, found in told(trace, number).items()
        for group, _ in found
    )


def hangs(trace: Trace) -> list[str]:
    return [one.message for one in examine(trace) if one.level != "info" and "hang" in one.message]


@pytest.mark.parametrize(
    "calls",
    [
        ([(MAIN, 8), (OTHER, 4)] * 3, [(OTHER, 4), (MAIN, 8)] * 3),
        ([(OTHER, 4), (OTHER, 2), (MAIN, 8), (MAIN, 4)], [(MAIN, 8), (OTHER, 4), (MAIN, 4), (OTHER, 2)]),
    ],
    ids=["a size each", "sizes of both"],
)
def test_threads_tell_groups_apart_where_one_cannot_be(tmp_path, calls):
    """One group had all, in another order on each rank: the job was said to hang."""
    trace = write_job(tmp_path, calls)
    for number, own in enumerate(calls):
        assert groups_of(trace, number) == sorted((size, str(int(tid != MAIN))) for tid, size in own)
        assert count_communication(trace, trace.rank(number))["ALL_REDUCE"]["count"] == len(own)
    [said] = [one for one in trace.findings if one.code == "comm-group-inferred"]
    assert "'0': " in said.message
    assert "'1': " in said.message
    assert not [one for one in examine(trace) if one.code == "collectives-disagree"]
    assert not hangs(trace)


def test_what_several_threads_call_for_in_one_order_stays_in_one_group(tmp_path):
    """As forward and backward of a model do."""
    calls = [(MAIN, 8), (OTHER, 8), (OTHER, 4), (MAIN, 2)] * 2
    trace = write_job(tmp_path, [calls, calls])
    assert {group for number in range(2) for _, group in groups_of(trace, number)} == {"0"}


def test_two_threads_of_one_group_stay_together_beside_a_third_of_another(tmp_path):
    model, control = [(MAIN, 8), (OTHER, 4), (MAIN, 2)], [(THIRD, 1), (THIRD, 1)]
    trace = write_job(tmp_path, [[*model, *control, *model], [control[0], *model, *model, control[1]]])
    for number in range(2):
        assert groups_of(trace, number) == sorted(
            [*((size, "0") for _, size in (*model, *model)), *((size, "1") for _, size in control)]
        )
    assert not hangs(trace)


def test_collectives_wait_for_those_of_their_own_group_alone(tmp_path):
    """They waited for the one before in whatever group, since ranks are compared only later: two such ranks waited for each other."""
    trace = write_job(tmp_path, [[(MAIN, 8), (OTHER, 4)] * 3, [(OTHER, 4), (MAIN, 8)] * 3])
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        attrs = [
            {one.name: one.value for one in list_node_attributes(graph, row, rank.slots)}
            for row in range(len(graph))
        ]
        for row, own in enumerate(attrs):
            before = graph.data.rows[graph.data.offsets[row] : graph.data.offsets[row + 1]].tolist()
            others = [attrs[other]["pg_name"] for other in before if "comm_type" in attrs[other]]
            if "comm_type" in own:
                assert set(others) <= {own["pg_name"]}
    assert {group for _, group in groups_of(trace, 0)} == {"0", "1"}


def test_where_nothing_tells_groups_apart_no_job_that_ran_is_said_to_hang(tmp_path):
    """One thread calls for the same in another order on each rank, and there are fewer groups than sizes."""
    orders = [[8, 4, 2, 1], [4, 1, 8, 2], [2, 8, 1, 4], [1, 2, 4, 8]]
    calls = [[(MAIN, size) for size in order] for order in orders]
    trace = write_job(tmp_path, calls, {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]})
    assert {group for number in range(4) for _, group in groups_of(trace, number)} == {"0"}
    [found] = [one for one in examine(trace) if one.code == "collectives-disagree"]
    assert found.level == "warning"
    assert "nothing proves in which order" in found.message
    assert not hangs(trace)
