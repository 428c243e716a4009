"""Whatever never finishes is told with ranks, nodes and the reason."""

from __future__ import annotations

import pytest

from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.sim.deadlock import DeadlockError
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}


def stuck(trace, *, options=None) -> DeadlockError:
    network = {**NETWORK, "npus_count": [len(trace.ranks)]}
    with pytest.raises(DeadlockError) as caught:
        simulate(trace, from_parts(network, SYSTEM, cli=options), native=compiled())
    return caught.value


def reasons(error: DeadlockError) -> list[tuple[int, tuple[int, ...], tuple[int, ...], str]]:
    return [(one.rank, one.nodes, one.waits_for, one.reason) for one in error.stuck]


def message(number, kind, peer, tag, *deps, size=8):
    key = "comm_dst" if kind == "COMM_SEND" else "comm_src"
    return node(number, kind, *deps, **{key: peer}, comm_size=size, comm_tag=tag)


def test_members_in_opposite_order_wait_for_each_other_in_a_circle():
    """Rank 0 begins with group 1, rank 1 with group 2, and each needs the other first."""

    def nodes(first, second):
        return [
            collective(1, "ALL_REDUCE", 100, group=first),
            collective(2, "ALL_REDUCE", 100, 1, group=second),
        ]

    error = stuck(trace_of([nodes("1", "2"), nodes("2", "1")], {"1": [0, 1], "2": [0, 1]}))
    assert reasons(error)[0] == (
        0,
        (1,),
        (1,),
        (
            "rank 0 waits in collective 0 of group 1, ALL_REDUCE of 100 B (node 1), for rank 1: "
            "rank 1 has begun 0 collectives of the group"
        ),
    )
    assert error.circle == (0, 1)
    assert "They wait in a circle: rank 0 waits for rank 1, which waits for rank 0." in error.message


def test_the_shortest_circle_is_told_and_those_behind_it_are_not_in_it():
    """0 waits for 1, 1 for 2, 2 for 1; 3 waits for 0."""
    trace = trace_of([
        [message(1, "COMM_RECV", 1, 1), message(2, "COMM_SEND", 3, 4, 1)],
        [message(1, "COMM_RECV", 2, 2), message(2, "COMM_SEND", 0, 1, 1), message(3, "COMM_SEND", 2, 3, 1)],
        [message(1, "COMM_RECV", 1, 3), message(2, "COMM_SEND", 1, 2, 1)],
        [message(1, "COMM_RECV", 0, 4)],
    ])  # fmt: skip
    error = stuck(trace)
    assert error.circle == (1, 2)
    assert [one.waits_for for one in error.stuck] == [(1,), (2,), (1,), (0,)]
    assert error.stuck[3].reason == (
        "rank 3 waits in its receive from rank 0 (8 bytes, tag 4, node 1 (n1)), for node 2 (n2) of rank 0, "
        "which it has not begun"
    )


def test_the_first_disagreement_in_type_or_size_is_told():
    """They agree on the first collective; the second has another size on rank 2."""

    def nodes(size):
        return [collective(1, "ALL_REDUCE", 64), collective(2, "ALL_REDUCE", size, 1)]

    error = stuck(trace_of([nodes(600), nodes(600), nodes(900)]))
    assert (
        "The first disagreement: collective 1 of the group of all ranks: rank 0 has begun ALL_REDUCE of 600 B (node 2), "
        "rank 2 has begun ALL_REDUCE of 900 B (node 2)." in error.message
    )
    assert [one.waits_for for one in error.stuck] == [(2,), (2,), (0, 1)]
    assert [cause.code for cause in error.causes] == ["collectives-disagree"]


def test_a_member_that_has_finished_is_told_with_how_far_it_came():
    error = stuck(trace_of([[collective(1, "ALL_REDUCE", 100), collective(2, "ALL_GATHER", 64, 1)],
                            [collective(1, "ALL_REDUCE", 100)]]))  # fmt: skip
    assert reasons(error) == [(
        0, (2,), (1,),
        ("rank 0 waits in collective 1 of the group of all ranks, ALL_GATHER of 64 B (node 2), for rank 1: "
         "rank 1 has finished after 1 collective of the group"),
    )]  # fmt: skip
    assert "All members of a comm group" in error.hint


def test_a_receive_without_send_is_told_with_peer_tag_and_size():
    error = stuck(trace_of([[message(1, "COMM_RECV", 1, 3)], [message(1, "COMM_SEND", 0, 4)]]))
    assert reasons(error) == [
        (
            0,
            (1,),
            (1,),
            "rank 0 waits in its receive from rank 1 (8 bytes, tag 3, node 1 (n1)), which rank 1 never sends",
        )
    ]
    assert "nearest is rank 1's send to rank 0 (8 bytes, tag 4, node 1 (n1))" in error.message
    assert "Every receive needs its send" in error.hint


def test_a_send_waits_for_its_receiver_where_it_has_to():
    """With the rendezvous protocol a send without receive never ends."""
    error = stuck(
        trace_of([[message(1, "COMM_SEND", 1, 3)], [node(1, "COMP", micros=1)]]),
        options={"rendezvous-protocol": "true"},
    )
    assert error.stuck[0].reason.endswith("which rank 1 never receives")


def test_nodes_that_wait_for_each_other_are_named():
    error = stuck(trace_of([[node(1, "COMP", micros=1), node(2, "COMP", 3), node(3, "COMP", 2)]] * 2))
    assert reasons(error)[1] == (
        1, (2, 3), (), "rank 1 never begins node 2 (n2) and 1 more, which waits for node 3 (n3)",
    )  # fmt: skip
    assert "2 nodes wait for each other in a circle: node 2 (n2) waits for node 3 (n3)" in error.message
    assert "may not wait for itself" in error.hint


def test_many_stuck_ranks_are_counted():
    """A hundred ranks wait for the one that takes no part; 64 of them are explained."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 1 << 20)]] * 99 + [[node(1, "COMP", micros=1)]])
    error = stuck(trace)
    assert (error.stuck_ranks, len(error.stuck)) == (99, 64)
    assert error.message.startswith("99 of 100 ranks never finish: rank 0 waits")
    assert "(and 95 more ranks)" in error.message
    assert {one.waits_for for one in error.stuck} == {(99,)}
