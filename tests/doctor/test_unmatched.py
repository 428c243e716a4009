"""A message that has lost its other half, or differs from it, is told and repaired at the same nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from studio.doctor import Diagnosis, examine, repair, run_checks
from studio.doctor.diagnosis import Case
from studio.doctor.messages import check_unmatched_receives
from studio.sim.check import check
from studio.trace import NodeType, Trace
from tests.handmade import at, collective, node, trace_of
from tests.sim.test_check import system

STEP_US = 1_000
Edit = Callable[[list[Any], list[Any]], None]


def two_steps(edit: Edit = lambda sender, receiver: None) -> Trace:
    """Two ranks and two steps with a message and an all-reduce each; the message is node 1, then node 3, on both ranks.

    Args:
        edit: Changes the nodes of rank 0, which sends, and of rank 1, which receives.
    """
    message = {"comm_size": 64, "comm_tag": 0}
    sender, receiver = [], []
    for step in range(2):
        number, start = 1 + 2 * step, (1 + step) * STEP_US
        deps = [number - 1] if step else []
        for nodes, kind, peer, wait in (
            (sender, "COMM_SEND", {"comm_dst": 1}, 0),
            (receiver, "COMM_RECV", {"comm_src": 0}, 5),
        ):
            nodes.append(at(start, 10 + wait, node(number, kind, *deps, **message, **peer)))
            nodes.append(at(start + 20, 30, collective(number + 1, "ALL_REDUCE", 8, number)))
    edit(sender, receiver)
    return trace_of([sender, receiver])


def with_value(nodes: Sequence[Any], number: int, key: str, value: int) -> None:
    [one] = [one for one in nodes if one.id == number]
    [attribute] = [attribute for attribute in one.attr if attribute.name == key]
    setattr(attribute, attribute.WhichOneof("value"), value)


def without(nodes: list[Any], number: int) -> None:
    """Remove a node; the one behind it waits for what it waited for."""
    [gone] = [one for one in nodes if one.id == number]
    nodes.remove(gone)
    for one in nodes:
        if number in one.data_deps:
            one.data_deps[:] = gone.data_deps


CASES: Mapping[str, tuple[Edit, str, int, list[int]]] = {
    "another tag": (lambda sends, _: with_value(sends, 1, "comm_tag", 99), "receive-unmatched", 1, [1]),
    "another size": (lambda sends, _: with_value(sends, 1, "comm_size", 12), "receive-unmatched", 1, [1]),
    "no send": (lambda sends, _: without(sends, 1), "receive-unmatched", 1, [1]),
    "no receive": (lambda _, receives: without(receives, 1), "send-unmatched", 0, [1]),
    "another target": (lambda sends, _: with_value(sends, 1, "comm_dst", 7), "receive-unmatched", 1, [1]),
}


def named(trace: Trace, one: Diagnosis) -> list[tuple[int, int]]:
    """Rank and id of the nodes of a finding."""
    return [(at.rank, int(trace.graph_of(_rank(trace, at.rank)).id[at.row])) for at in one.nodes]


def _rank(trace: Trace, number: int) -> Any:
    rank = trace.rank(number)
    assert rank is not None
    return rank


def changed(trace: Trace, code: str) -> list[tuple[int, int]]:
    """Rank and id of the nodes that a repair removes, or gives another tag or size."""
    done = repair(trace, code)
    assert not [one for one in examine(done.trace) if one.code == code]
    made = []
    for old, new in zip(trace.ranks, done.trace.ranks, strict=True):
        before, after = (contents(each, rank) for each, rank in ((trace, old), (done.trace, new)))
        made += [(old.number, number) for number in before if before[number] != after.get(number)]
    return made


def contents(trace: Trace, rank: Any) -> dict[int, tuple[int, int]]:
    """Tag and size of the messages of a rank, by id."""
    graph = trace.graph_of(rank)
    own = (graph.type == NodeType.COMM_SEND) | (graph.type == NodeType.COMM_RECV)
    columns = []
    for key in ("comm_tag", "comm_size"):
        owners, where = graph.rows_with(key)
        column = np.zeros(len(graph), np.int64)
        column[owners] = graph.attrs.value[where]
        columns.append(column)
    return {int(graph.id[row]): tuple(int(each[row]) for each in columns) for row in np.flatnonzero(own)}


def untimed(trace: Trace) -> Trace:
    return replace(
        trace, graphs=tuple(replace(graph, start_ns=np.full(len(graph), -1)) for graph in trace.graphs)
    )


@pytest.mark.parametrize("case", CASES)
def test_a_finding_names_the_node_that_its_repair_changes(case: str):
    """The first of two messages alike: by their order alone it would be the second half that is left over."""
    edit, code, rank, ids = CASES[case]
    trace = two_steps(edit)
    [one] = [one for one in examine(trace) if one.code == code]
    assert named(trace, one) == [(rank, number) for number in ids] == changed(trace, code)
    assert f"node {ids[0]} (n{ids[0]})" in one.message


@pytest.mark.parametrize("case", ["another tag", "another size"])
@pytest.mark.parametrize("timed", [True, False])
def test_both_halves_name_each_other_as_the_nearest(case: str, timed: bool):
    trace = two_steps(CASES[case][0]) if timed else untimed(two_steps(CASES[case][0]))
    told = {one.code: one.message for one in examine(trace)}
    sent, received = (f"rank {rank}'s {half} (" for rank, half in ((0, "send to rank 1"), (1, "receive from rank 0")))  # fmt: skip
    for code, near in (("receive-unmatched", sent), ("send-unmatched", received)):
        said, hint = told[code].split("; nearest is ")
        assert hint.startswith(near), code
        assert "node 1 (n1)" in hint, code
        assert "node 1 (n1)" in said, code


# A simulation stops before at a rank that is not there.
@pytest.mark.parametrize("case", [case for case in CASES if case != "another target"])
def test_the_check_before_a_simulation_names_the_same_node(case: str):
    edit, code, _, ids = CASES[case]
    [told] = [one.message for one in check(two_steps(edit), system()) if one.code == code]
    assert f"node {ids[0]} (n{ids[0]})) is never" in told


@pytest.mark.parametrize("case", ["no send", "no receive"])
def test_without_times_the_last_is_left_over(case: str):
    edit, code, rank, _ = CASES[case]
    trace = untimed(two_steps(edit))
    [one] = [one for one in examine(trace) if one.code == code]
    assert named(trace, one) == [(rank, 3)] == changed(trace, code)


def test_of_several_that_are_left_the_one_with_a_half_of_another_tag_is_corrected():
    """Three of five messages are whole, the second send is lost and the fourth has another tag."""
    halves = []
    for kind, peer, numbers in (("COMM_SEND", {"comm_dst": 1}, (1, 3, 4, 5)), ("COMM_RECV", {"comm_src": 0}, (1, 2, 3, 4, 5))):  # fmt: skip
        halves.append(
            [
                at(number**2 * 100, 10, node(number, kind, comm_size=64, comm_tag=tag, **peer))
                for number in numbers
                for tag in [9 if kind == "COMM_SEND" and number == 4 else 0]
            ]
        )
    trace = trace_of(halves)
    [one] = [one for one in examine(trace) if one.code == "receive-unmatched"]
    assert named(trace, one) == [(1, 2), (1, 4)]
    done = repair(trace, "receive-unmatched")
    assert [change.first for change in done.changes] == [
        ("rank 1: node 4 (n4): tag 0 became 9",),
        ("rank 1: node 2 (n2)",),
    ]


def test_ranks_that_wait_for_each_other_for_want_of_a_message_come_behind_it():
    found = run_checks(two_steps(CASES["another tag"][0])).diagnoses
    assert [one.code for one in found] == ["receive-unmatched", "deadlock", "send-unmatched"]
    assert "receives without a send" in found[1].advice
    assert not run_checks(two_steps()).diagnoses


def test_nothing_is_looked_at_closely_where_all_messages_are_whole(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        pytest.fail("looked at")

    trace = two_steps()
    case = Case(trace)
    assert len(case.messages) == 2
    for name in ("compute_issue_order", "find_lone_halves", "estimate_clock_leads"):
        where = (
            "studio.doctor.diagnosis"
            if name == "estimate_clock_leads"
            else "studio.analysis.collectives.unmatched"
        )
        monkeypatch.setattr(f"{where}.{name}", fail)
    assert not list(check_unmatched_receives(case))
