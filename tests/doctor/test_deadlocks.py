"""Ranks that wait for each other: the verdict of the doctor is that of a simulation."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from studio.doctor import examine
from studio.doctor.deadlocks import is_alike, is_searched
from studio.doctor.diagnosis import Case
from studio.doctor.waits import build_waits
from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.sim.deadlock import DeadlockError
from studio.trace import Trace
from tests.doctor.broken_jobs import started
from tests.examples import examples
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}
HANGING = {"deadlock", "collectives-disagree", "receive-unmatched"}


def message(number: int, kind: str, peer: int, tag: int, *deps: int, **more: Any) -> Any:
    key = "comm_dst" if kind == "COMM_SEND" else "comm_src"
    return node(number, kind, *deps, **{key: peer}, comm_size=8, comm_tag=tag, **more)


def send(number: int, peer: int, tag: int, *deps: int, **more: Any) -> Any:
    return message(number, "COMM_SEND", peer, tag, *deps, **more)


def receive(number: int, peer: int, tag: int, *deps: int, **more: Any) -> Any:
    return message(number, "COMM_RECV", peer, tag, *deps, **more)


def reduces(number: int, group: str, *deps: int, **more: Any) -> Any:
    return collective(number, "ALL_REDUCE", 64, *deps, group=group, **more)


def hangs(trace: Trace) -> bool:
    """Whether a simulation of the default mode never ends."""
    network = {
        "topology": ["FullyConnected"],
        "npus_count": [len(trace.ranks)],
        "bandwidth": [50],
        "latency": [500],
    }
    try:
        simulate(trace, from_parts(network, SYSTEM), native=compiled())
    except DeadlockError:
        return True
    return False


def will_hang(trace: Trace) -> bool:
    return any(finding.level == "error" and finding.code in HANGING for finding in examine(trace))


def may_hang(trace: Trace) -> bool:
    return any(
        finding.code in HANGING and " hang" in finding.message for finding in examine(trace)
    ) or will_hang(trace)


def deadlock_of(trace: Trace) -> Any:
    return next((finding for finding in examine(trace) if finding.code == "deadlock"), None)


@st.composite
def jobs(draw: st.DrawFn) -> Trace:
    """Ranks that take part in collectives of several groups and send each other messages, in orders that may differ."""
    count = draw(st.integers(2, 4))
    ranks = list(range(count))
    groups = {
        str(number + 1): draw(st.lists(st.sampled_from(ranks), min_size=2, max_size=count, unique=True))
        for number in range(draw(st.integers(1, 3)))
    }
    programs: list[list[tuple[str, Any, int]]] = [[] for _ in ranks]
    for event in range(draw(st.integers(1, 7))):
        if draw(st.booleans()):
            group = draw(st.sampled_from(sorted(groups)))
            for rank in groups[group]:
                programs[rank].append(
                    ("reduce", group, draw(st.sampled_from([64, 64, 64, 128]) if event == 2 else st.just(64)))
                )
        else:
            source, target = draw(st.permutations(ranks))[:2]
            tag = draw(st.integers(0, 2))
            programs[source].append(("send", target, tag))
            programs[target].append(("receive", source, tag))
    swaps = draw(st.lists(st.tuples(st.sampled_from(ranks), st.integers(0, 9)), max_size=3))
    for rank, place in swaps:
        if len(programs[rank]) > 1:
            at = place % (len(programs[rank]) - 1)
            programs[rank][at : at + 2] = programs[rank][at : at + 2][::-1]
    return trace_of([_nodes(draw, program) for program in programs], groups)


def _nodes(draw: st.DrawFn, program: list[tuple[str, Any, int]]) -> list[Any]:
    """The nodes of a program, with ids in any order: each behind the one before, or behind some of those before."""
    how = draw(st.sampled_from(["chain", "chain", "computing", "loose"]))
    ids = draw(st.permutations(range(1, 2 * len(program) + 2)))
    nodes, before, free = [node(ids[0], "COMP", micros=1)], [ids[0]], iter(ids[1:])
    for kind, about, value in program:
        deps = (
            before[-1:]
            if how != "loose"
            else draw(st.lists(st.sampled_from(before), max_size=2, unique=True))
        )
        if how == "computing" or (how == "loose" and draw(st.booleans())):
            work = next(free)
            nodes.append(node(work, "COMP", *deps, micros=draw(st.integers(1, 9))))
            deps = [work]
        number = next(free)
        if kind == "reduce":
            made = collective(number, "ALL_REDUCE", value, *deps, group=about)
        else:
            made = (send if kind == "send" else receive)(number, about, value, *deps)
        nodes.append(made)
        before.append(number)
    return nodes


@settings(max_examples=examples(50), deadline=None)
@given(jobs())
def test_the_verdict_is_that_of_a_simulation(trace):
    """Where the order is certain both ways; where it depends on times, what will hang hangs, and what hangs may hang."""
    found, simulated = will_hang(trace), hangs(trace)
    case = Case(trace)
    if is_alike(case) or not is_searched(case) or build_waits(case).certain:
        assert found == simulated
    assert simulated or not found
    assert may_hang(trace) or not simulated


@pytest.mark.parametrize(
    ("ranks", "groups"),
    [
        # Each receives before it sends what the other waits for.
        ([[receive(1, 1, 0), send(2, 1, 0, 1)], [receive(1, 0, 0), send(2, 0, 0, 1)]], {}),
        # Two groups in opposite order on two ranks, by dependencies.
        (
            [[reduces(1, "1"), reduces(2, "2", 1)], [reduces(1, "2"), reduces(2, "1", 1)]],
            {"1": [0, 1], "2": [0, 1]},
        ),
        # The same by turns: both are ready at once, and a rank carries out one at a time.
        (
            [[reduces(1, "1"), reduces(2, "2")], [reduces(2, "1"), reduces(1, "2")]],
            {"1": [0, 1], "2": [0, 1]},
        ),
        # Through three ranks, with a message in between.
        (
            [
                [receive(1, 2, 0), reduces(2, "1", 1)],
                [reduces(1, "1"), reduces(2, "2", 1)],
                [reduces(1, "2"), send(2, 0, 0, 1)],
            ],
            {"1": [0, 1], "2": [1, 2]},
        ),
    ],
)
def test_ranks_that_wait_for_each_other_are_found_and_a_simulation_agrees(ranks, groups):
    trace = trace_of(ranks, groups)
    found = deadlock_of(trace)
    assert found.level == "error"
    assert found.ranks == tuple(range(len(ranks)))
    assert hangs(trace)


def test_where_times_decide_some_orders_may_hang():
    """Each rank begins first what is ready first; which that is only durations say."""
    groups = {"1": [0, 1], "2": [0, 1]}

    def job(first: str, second: str) -> Trace:
        """Two ranks, of which the second may name the groups the other way round."""
        works = [node(1, "COMP", micros=1), node(2, "COMP", micros=1)]
        one = [*works, reduces(8, "1", 1), reduces(9, "2", 2)]
        return trace_of([one, [*works, reduces(8, first, 1), reduces(9, second, 2)]], groups)

    alike, opposite = job("1", "2"), job("2", "1")
    assert deadlock_of(alike) is None
    assert deadlock_of(opposite).level == "warning"
    assert "may hang" in deadlock_of(opposite).message
    assert hangs(opposite)
    # Recorded, with the numbers of its collectives, the job has ended.
    recorded = started(
        trace_of(
            [
                [node(1, "COMP", micros=1), node(2, "COMP", micros=1), *pair]
                for pair in (
                    (reduces(8, "1", 1, comm_seq=0), reduces(9, "2", 2, comm_seq=0)),
                    (reduces(8, "2", 1, comm_seq=0), reduces(9, "1", 2, comm_seq=0)),
                )
            ],
            groups,
        ),
        [0, 0, 10, 10],
    )
    found = deadlock_of(recorded)
    assert found is not None
    assert found.level == "info"
    assert "The job ran" in found.message


def test_groups_of_broadcasts_alone_keep_nobody_waiting_in_any_order():
    """No member of a broadcast waits for the others, so their order decides nothing."""
    ranks = []
    for first, second in (("1", "2"), ("2", "1")):
        works = [node(1, "COMP", micros=1), node(2, "COMP", micros=1)]
        sent = collective(3, "BROADCAST", 64, 1, group="3", comm_root=0)
        ranks.append([*works, sent, reduces(8, first, 1), reduces(9, second, 2)])
    trace = trace_of(ranks, {"1": [0, 1], "2": [0, 1], "3": [0, 1]})
    found = deadlock_of(trace)
    assert found is not None
    assert "may hang" in found.message


def test_orders_of_large_jobs_are_tried_too():
    """More than 400 communication nodes before the two whose order times decide."""
    groups = {"1": [0, 1], "2": [0, 1]}

    def rank(first: str, second: str) -> list[Any]:
        chain = [reduces(number, "1", *[number - 1] * (number > 1)) for number in range(1, 221)]
        works = [node(301, "COMP", 220, micros=1), node(302, "COMP", 220, micros=1)]
        return [*chain, *works, reduces(308, first, 301), reduces(309, second, 302)]

    found = deadlock_of(trace_of([rank("1", "2"), rank("2", "1")], groups))
    assert "may hang" in found.message
    assert deadlock_of(trace_of([rank("1", "2"), rank("1", "2")], groups)) is None


@pytest.mark.parametrize(("before", "told"), [(3, "info"), (220, None)])
def test_of_large_jobs_only_the_order_of_ids_is_told_of(before: int, told: str | None):
    """Most large jobs have some order that hangs, and none of them does: with few communication nodes it is worth knowing."""
    groups = {"1": [0, 1], "2": [0, 1]}

    def rank(*more: Any) -> list[Any]:
        chain = [reduces(number, "1", *[number - 1] * (number > 1)) for number in range(1, before + 1)]
        works = [node(301, "COMP", before, micros=1), node(302, "COMP", before, micros=1)]
        return [*chain, *works, reduces(308, "1", 301), reduces(309, "2", 302), *more]

    trace = trace_of([rank(send(402, 1, 0, 309)), rank(receive(402, 0, 0, 309))], groups)
    found = deadlock_of(trace)
    assert (found and found.level) == told
    assert not hangs(trace)


def test_calls_without_a_time_are_no_ground_of_an_error():
    """A recorder that leaves out threads tells not in which order they called."""
    groups = {"1": [0, 1]}
    ranks = [
        [node(1, "COMP", micros=1), reduces(2, "1", 1), collective(3, "ALL_REDUCE", size, 2, group="1")]
        for size in (64, 128)
    ]
    for times, level in (([0, 5, 9], "error"), ([0, 5, -1], "warning")):
        trace = started(trace_of(ranks, groups), times, [0, 5, 9])
        [found] = [one for one in examine(trace) if one.code == "collectives-disagree"]
        assert found.level == level


def test_what_hangs_in_every_order_will_hang():
    """Two receives behind computation, in either order, both behind what the other rank sends only after an answer."""
    loose = [node(1, "COMP", micros=1), node(2, "COMP", micros=1)]
    first = [*loose, reduces(3, "1", 1), reduces(4, "2", 2), send(5, 1, 0, 3)]
    second = [*loose, reduces(3, "1", 1), receive(4, 0, 0), reduces(6, "3", 2, 4), reduces(7, "2", 6)]
    third = [reduces(1, "2"), reduces(2, "3", 1)]
    trace = trace_of([first, second, third], {"1": [0, 1], "2": [0, 1, 2], "3": [1, 2]})
    found = deadlock_of(trace)
    assert found.level == "error"
    assert hangs(trace)


def test_the_message_names_each_wait_of_a_shortest_cycle():
    found = deadlock_of(
        trace_of([[receive(1, 1, 0), send(2, 1, 0, 1)], [receive(1, 0, 0), send(2, 0, 0, 1)]])
    )
    assert found.message == (
        "This job will hang: ranks 0–1 wait for each other. Rank 0's node 1 (n1) receives from node 2 (n2) of rank 1; "
        "rank 1's node 2 (n2) waits for node 1 (n1); rank 1's node 1 (n1) receives from node 2 (n2) of rank 0; "
        "rank 0's node 2 (n2) waits for node 1 (n1)."
    )


def test_sends_that_would_wait_for_their_receive_are_only_noted():
    """A simulator delivers what is sent; a machine may wait."""
    trace = trace_of([[send(1, 1, 0), receive(2, 1, 0, 1)], [send(1, 0, 0), receive(2, 0, 0, 1)]])
    found = deadlock_of(trace)
    assert found.level == "info"
    assert "needs sends that do not wait" in found.message
    assert not hangs(trace)


def test_the_order_of_streams_counts_by_times_never_by_ids():
    """Which ran first on a stream is what the times say; a simulation does not keep it, which is said."""
    groups = {"1": [0, 1], "2": [0, 1]}
    kernels = [node(1, "COMP", micros=1), reduces(2, "1", 1, stream=7), reduces(3, "2", 1, stream=7)]
    other = [node(1, "COMP", micros=1), reduces(3, "2", 1, stream=7), reduces(2, "1", 1, stream=7)]
    times = [0, 2000, 4000]
    opposite = started(trace_of([kernels, other], groups), times, times)
    found = deadlock_of(opposite)
    assert found.level == "warning"
    assert "keeps the order of streams" in found.message
    assert not hangs(opposite)
    # The same graphs with the times of one turned round: the ids never were in the way.
    assert deadlock_of(started(trace_of([kernels, other], groups), times, [0, 4000, 2000])) is None


@pytest.mark.parametrize(("thread", "hangs_there"), [("a worker", False), ("the program", True)])
def test_threads_are_told_apart_by_the_profilers_names_where_the_recorder_numbers_all_alike(
    thread, hangs_there
):
    """A call whose worker was not recorded begins before the worker of the call before it, on a thread of its own."""
    words = {"tid": 1, "micros": 1}
    nodes = [
        reduces(1, "1", thread=thread, **words),
        reduces(2, "1", 1, thread="the program", **words),
    ]
    late = [node(3, "COMP", micros=1), *nodes]
    trace = started(trace_of([nodes, late], {"1": [0, 1]}), [0, 4000], [0, 8000, 4000])
    assert (deadlock_of(trace) is not None) is hangs_there


def test_ranks_that_are_not_there_are_not_waited_for():
    """One rank of a job: what the others do is not known, so nothing hangs because of them."""
    nodes = [receive(1, 1, 0), reduces(2, "1", 1), send(3, 1, 0, 2)]
    codes = {finding.code for finding in examine(trace_of([nodes], {"1": [0, 1]}))}
    assert not codes & HANGING


@pytest.mark.parametrize("ranks", [1, 2])
def test_communication_marked_as_operations_of_the_processor_has_no_order_to_be_tried(ranks: int):
    """The search for orders broke on a rank without any communication that counts."""
    trace = trace_of(
        [
            [reduces(1, "", is_cpu_op=rank < ranks), reduces(2, "", 1, is_cpu_op=rank < ranks)]
            for rank in range(2)
        ]
    )
    assert {finding.code for finding in examine(trace)} == {"comm-on-cpu"}


def test_sizes_that_the_full_model_takes_keep_nobody_waiting():
    """In an order that times decide, too: that they differ is told by the check of what ranks disagree on."""
    ranks = [
        [
            node(1, "COMP", micros=5),
            node(2, "COMP", micros=5),
            *(collective(2 + n, "ALL_GATHER", size, n) for n in (1, 2)),
            node(5, "COMP", 3, 4, micros=5),
        ]
        for size in (64, 65)
    ]
    assert [one.code for one in examine(trace_of(ranks))] == ["collectives-disagree"]
