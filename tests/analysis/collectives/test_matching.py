from __future__ import annotations

import random
from itertools import pairwise, zip_longest

import numpy as np
import pytest

from studio.analysis.collectives.matching import (
    compute_issue_order,
    find_disagreement,
    match_by_name,
    match_collectives,
    waits_for_lower_ids,
)
from studio.analysis.collectives.members import collect_members
from studio.analysis.collectives.messages import match_channels, match_messages
from studio.sim.agreement import check_messages
from studio.timeline import read_recorded_times
from studio.trace import CommGroup
from tests.handmade import collective, node, trace_of
from tests.work import count_calls


def receive(number, source, size, *deps, tag=0):
    return node(number, "COMM_RECV", *deps, comm_src=source, comm_size=size, comm_tag=tag)


def send(number, target, size, *deps, tag=0):
    return node(number, "COMM_SEND", *deps, comm_dst=target, comm_size=size, comm_tag=tag)


def test_collectives_are_matched_by_order_in_their_group():
    """The group's first collective is node 1 on one rank and node 5 on the other; the world's lies between."""
    one = [
        collective(1, "ALL_REDUCE", 8, group="tp"),
        collective(2, "ALL_GATHER", 4),
        collective(3, "ALL_TO_ALL", 2, group="tp"),
    ]
    other = [
        collective(5, "ALL_REDUCE", 8, group="tp"),
        collective(6, "ALL_GATHER", 4),
        collective(9, "ALL_TO_ALL", 2, group="tp"),
    ]
    tp, world = match_collectives(trace_of([one, other], {"tp": [1, 0]}))
    assert (tp.name, tp.members, world.name, world.members) == ("tp", (1, 0), "", (0, 1))
    assert tp.rows().tolist() == [[0, 2], [0, 2]]
    assert world.rows().tolist() == [[1], [1]]
    assert find_disagreement(tp) is None
    assert find_disagreement(world) is None


def test_order_follows_dependencies_before_ids():
    """Node 1 waits for node 9, so the group's first collective is node 9's."""
    nodes = [collective(1, "ALL_GATHER", 4, 9), collective(9, "ALL_REDUCE", 8)]
    [world] = match_collectives(trace_of([nodes]))
    assert world.rows().tolist() == [[1, 0]]


def test_the_odd_rank_out_is_named_at_its_first_difference():
    """Two ranks of three agree; the third differs in its second collective."""
    usual = [
        collective(1, "ALL_REDUCE", 8),
        collective(2, "ALL_REDUCE", 2 << 20),
        collective(3, "ALL_REDUCE", 8),
    ]
    odd = [
        collective(4, "ALL_REDUCE", 8),
        collective(5, "ALL_GATHER", 2 << 20),
        collective(6, "ALL_REDUCE", 9),
    ]
    [world] = match_collectives(trace_of([usual, usual, odd]))
    found = find_disagreement(world)
    assert (found.position, found.rank, found.row, found.other_rank, found.other_row) == (1, 2, 1, 0, 1)


def test_a_rank_with_fewer_collectives_has_no_node_there():
    [world] = match_collectives(
        trace_of([[collective(1, "BARRIER", 0)], [collective(1, "BARRIER", 0), collective(2, "BARRIER", 0)]])
    )
    found = find_disagreement(world)
    assert (found.position, {found.row, found.other_row}) == (1, {-1, 1})
    assert world.rows().tolist() == [[0, -1], [0, 1]]


def test_a_member_that_never_takes_part_and_an_outsider_that_does():
    """Rank 1 is listed and silent; rank 2 names the group and is not in it."""
    nodes = [collective(1, "ALL_REDUCE", 8, group="dp")]
    idle = [node(1, "COMP", micros=1)]
    [dp] = match_collectives(trace_of([nodes, idle, nodes], {"dp": [0, 1]}))
    assert dp.outsiders == (2,)
    assert dp.rows().tolist() == [[0], [-1]]
    assert find_disagreement(dp).position == 0


def test_a_member_the_trace_does_not_have_is_left_out():
    nodes = [collective(1, "ALL_REDUCE", 8, group="dp")]
    [dp] = match_collectives(trace_of([nodes], {"dp": [0, 7]}))
    assert dp.sequence_of.tolist() == [0, -1]
    assert dp.rows().tolist() == [[0], [-1]]
    assert find_disagreement(dp) is None


def test_no_name_and_zero_both_mean_all_ranks():
    """One after the other, whichever way each is written."""
    nodes = [collective(1, "ALL_REDUCE", 8), collective(2, "ALL_GATHER", 8, group="0")]
    [world] = match_collectives(trace_of([nodes, nodes]))
    assert world.rows().tolist() == [[0, 1], [0, 1]]


def test_given_groups_replace_those_of_the_trace():
    nodes = [collective(1, "ALL_REDUCE", 8, group="g")]
    trace = trace_of([nodes, nodes], {"g": [0, 1]})
    [group] = match_collectives(trace, [CommGroup("g", (1,))])
    assert (group.members, group.outsiders) == ((1,), (0,))


def test_ranks_that_share_a_graph_use_groups_of_their_own():
    """One graph, four ranks, two groups: the slot holds the name."""
    ranks = [[collective(1, "ALL_REDUCE", 8, group=name)] for name in ("a", "a", "b", "b")]
    trace = trace_of(ranks, {"a": [0, 1], "b": [2, 3]})
    assert len(trace.graphs) == 1
    assert [(group.name, group.members, len(group.sequences)) for group in match_collectives(trace)] == [
        ("a", (0, 1), 1),
        ("b", (2, 3), 1),
    ]


def test_a_thousand_ranks_of_one_graph_are_little_work():
    """1,024 ranks, 128 groups of 8, 96 collectives in each: fewer function calls than there are collectives."""
    ranks, groups = {}, {}
    layers = [collective(at, "ALL_REDUCE", 1 << 20, *([at - 1] if at else []), group="g") for at in range(96)]
    template = trace_of([layers])
    from dataclasses import replace

    [first] = template.ranks
    for number in range(1024):
        name = f"tp{number // 8}"
        groups.setdefault(name, []).append(number)
        ranks[number] = replace(first, number=number, slots=(name,))
    listed = tuple(CommGroup(name, tuple(members)) for name, members in groups.items())
    trace = replace(template, ranks=tuple(ranks.values()), groups=listed)
    calls, found = count_calls(lambda: match_collectives(trace))
    more, differences = count_calls(lambda: [find_disagreement(group) for group in found])
    assert set(differences) == {None}
    assert calls + more < 1024 * 96
    assert len(found) == 128
    assert found[-1].rows().shape == (8, 96)


def test_issue_order_is_that_of_ids_where_nodes_wait_for_lower_ones():
    """File order does not count; node 2 waits for node 7 in the second graph."""
    plain, twisted = trace_of([
        [node(5, "COMP", 1), node(1, "COMP"), node(3, "COMP")],
        [node(2, "COMP", 7), node(7, "COMP"), node(3, "COMP")],
    ]).graphs  # fmt: skip
    assert waits_for_lower_ids(plain)
    assert compute_issue_order(plain).tolist() == [2, 0, 1]
    assert not waits_for_lower_ids(twisted)
    # 3 and 7 are ready at first; 2 is as soon as 7 is complete.
    assert compute_issue_order(twisted).tolist() == [2, 1, 0]


def test_nodes_of_a_cycle_come_last():
    [graph] = trace_of([[node(1, "COMP", 2), node(2, "COMP", 1), node(9, "COMP")]]).graphs
    assert compute_issue_order(graph).tolist() == [1, 2, 0]


# ---------------------------------------------------------------------------------------------------
# Sends and receives


def pairs(trace):
    found = match_messages(trace)
    columns = (
        found.source,
        found.target,
        found.tag,
        found.bytes,
        found.send_rank,
        found.send_row,
        found.receive_rank,
        found.receive_row,
    )
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_the_nth_send_meets_the_nth_receive():
    trace = trace_of([
        [send(1, 1, 8), send(2, 1, 8), send(3, 1, 8, tag=4)],
        [receive(1, 0, 8, tag=4), receive(2, 0, 8), receive(3, 0, 8)],
    ])  # fmt: skip
    assert pairs(trace) == [
        (0, 1, 0, 8, 0, 0, 1, 1),
        (0, 1, 0, 8, 0, 1, 1, 2),
        (0, 1, 4, 8, 0, 2, 1, 0),
    ]


def test_another_size_is_another_message():
    """As in the reference, 100 bytes sent are not 101 received."""
    trace = trace_of([[send(1, 1, 100)], [receive(1, 0, 101)]])
    assert pairs(trace) == [(0, 1, 0, 100, 0, 0, -1, -1), (0, 1, 0, 101, -1, -1, 1, 0)]


def paired_one_by_one(ranks):
    """Each half in the order of its place on its rank, waiting for the next one of the other side."""
    ends: dict[tuple[int, ...], tuple[list, list]] = {}
    halves = [(row, rank, half) for rank, nodes in enumerate(ranks) for row, half in enumerate(nodes)]
    for row, rank, (way, source, target, tag, size) in sorted(halves, key=lambda half: half[:2]):
        ends.setdefault((source, target, tag, size), ([], []))[way].append((rank, row))
    return sorted(
        (*key, *sent, *received)
        for key, both in ends.items()
        for sent, received in zip_longest(*both, fillvalue=(-1, -1))
    )


@pytest.mark.parametrize("largest", [1, 1 << 62])
def test_messages_that_several_ranks_claim_are_paired_in_the_order_of_their_places(largest):
    draw = random.Random(largest)
    for _ in range(20):
        ranks = [
            [
                (draw.randrange(2), *(draw.choice([-1, 0, 1]) for _ in "st"), draw.choice([0, largest]), 8)
                for _ in range(draw.randrange(6))
            ]
            for _ in range(3)
        ]
        names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
        trace = trace_of([
            [
                node(1 + row, ("COMM_SEND", "COMM_RECV")[way], **dict(zip(names, key, strict=True)))
                for row, (way, *key) in enumerate(nodes)
            ]
            for nodes in ranks
        ])  # fmt: skip
        assert pairs(trace) == paired_one_by_one(ranks)
        # What is wrong with messages is found in the channels that are looked at for it.
        channels = match_channels(trace)
        doubtful = channels.expand(channels.doubtful([rank.number for rank in trace.ranks]))
        groups = match_collectives(trace)
        assert list(check_messages(trace, doubtful, groups)) == list(
            check_messages(trace, match_messages(trace), groups)
        )


def test_a_pipeline_of_equal_ranks_is_matched_from_its_slots():
    """Ranks 1 to 3 share a graph: each receives from the one below and sends to the one above."""
    ranks = [
        [send(1, 1, 8)],
        *([receive(1, at - 1, 8), send(2, at + 1, 8, 1)] for at in (1, 2, 3)),
        [receive(1, 3, 8)],
    ]
    trace = trace_of(ranks)
    assert len(trace.graphs) == 3
    found = match_messages(trace)
    assert len(found) == 4
    assert np.all(found.send_rank + 1 == found.receive_rank)
    assert sorted(found.source.tolist()) == [0, 1, 2, 3]
    channels = match_channels(trace)
    # The two channels between ranks of one graph have the same exchange, and none of the four anything doubtful.
    assert (len(channels), len(channels.offsets) - 1) == (4, 3)
    assert channels.doubtful(range(5)).tolist() == []


def test_a_trace_without_messages_has_none():
    assert len(match_messages(trace_of([[node(1, "COMP")]]))) == 0


def test_numbers_match_collectives_whatever_their_order():
    """Rank 1 issues number 8 first; both are the second of their group."""
    one = [collective(1, "ALL_REDUCE", 4, comm_seq=7), collective(2, "ALL_GATHER", 8, comm_seq=8)]
    other = [collective(1, "ALL_GATHER", 8, comm_seq=8), collective(2, "ALL_REDUCE", 4, comm_seq=7)]
    trace = trace_of([one, other])
    [world] = match_collectives(trace)
    assert world.by_number
    assert world.rows().tolist() == [[0, 1], [1, 0]]
    assert find_disagreement(world) is None
    [plain] = match_collectives(trace, by_number=False)
    assert not plain.by_number
    assert find_disagreement(plain).position == 0


def test_a_missing_number_is_a_gap_and_equal_numbers_count_in_turn():
    """Number 5 was issued twice together; rank 1 lacks 6, and its 7 still meets the 7 of rank 0."""
    one = [collective(at, "ALL_REDUCE", 4, comm_seq=seq) for at, seq in enumerate((5, 5, 6, 7), start=1)]
    other = [collective(at, "ALL_REDUCE", 4, comm_seq=seq) for at, seq in enumerate((7, 5, 5), start=1)]
    [world] = match_collectives(trace_of([one, other]))
    assert world.rows().tolist() == [[0, 1, 2, 3], [1, 2, -1, 0]]
    assert [one.count for one in world.sequences] == [4, 3]
    found = find_disagreement(world)
    assert (found.position, {found.row, found.other_row}) == (2, {2, -1})


def test_order_counts_where_a_member_numbers_only_some():
    one = [collective(1, "ALL_REDUCE", 4, comm_seq=3), collective(2, "ALL_REDUCE", 8, comm_seq=4)]
    other = [collective(1, "ALL_REDUCE", 4), collective(2, "ALL_REDUCE", 8, comm_seq=3)]
    [world] = match_collectives(trace_of([one, other]))
    assert not world.by_number
    assert world.rows().tolist() == [[0, 1], [0, 1]]


def test_collectives_that_tell_nothing_but_a_name_meet_those_of_that_name():
    """Two stages of two ranks, as a simulator's timeline has them: by order the stages would wait for each other."""

    def stage(name, late, *, typed=False):
        made = []
        for at, turn in enumerate("aab"):
            one = node(at + 1, "COMM_COLL", name=f"{name}.{turn}", **({"comm_type": 0} if typed else {}))
            one.start_time_micros, one.duration_micros = 10 * at + late, 5
            made.append(one)
        return made

    trace = trace_of([stage("first", 1), stage("first", 3), stage("second", 500), stage("second", 500)])
    [found] = match_by_name(trace)
    assert found.rows().tolist() == [[0, 1, 2, -1, -1, -1]] * 2 + [[-1, -1, -1, 0, 1, 2]] * 2
    [ordered] = match_collectives(trace)
    assert ordered.rows().shape == (4, 3)
    members = collect_members(trace, read_recorded_times(trace))
    spread = [members.start_ns[low:high] for low, high in pairwise(members.offsets.tolist())]
    assert [int(one.max() - one.min()) for one in spread] == [2000] * 3 + [0] * 3
    assert [members.titles[at] for at in members.title.tolist()][2] == "first.b"

    # Types, numbers, equal names in turn, or names that have the rank in them leave the order to tell.
    for other in (
        [stage("first", 1, typed=True), stage("second", 1, typed=True)],
        [stage("same", 1), stage("same", 7)],
        [stage("rank0", 1), stage("rank1", 1)],
    ):
        [found] = match_by_name(trace_of(other))
        assert found.rows().tolist() == [[0, 1, 2]] * 2
