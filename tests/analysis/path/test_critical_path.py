"""The critical path through all ranks, and slack: jobs whose answer can be seen, and what holds of any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.ledger import PARTS
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.segments import CAUSES
from studio.analysis.path.slack import compute_slack
from studio.analysis.path.words import compute_path_shares, describe_path, infer_pipeline_stages
from studio.sim import simulate
from studio.sim.compared import build_side
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.timeline import collect_node_times, recorded
from tests.examples import examples
from tests.handmade import collective, node, trace_of
from tests.recordings import read_recording


def at(start, made):
    """A node with the time it began, in µs after the beginning of the run."""
    made.start_time_micros = 100 + start
    return made


def comp(number, start, length, *deps, **attributes):
    return at(start, node(number, "COMP", *deps, micros=length, **attributes))


def reduce(number, start, length, *deps, group=""):
    made = at(start, collective(number, "ALL_REDUCE", 8, *deps, group=group))
    made.duration_micros = length
    return made


def found(trace):
    """The path of a recording in µs: (rank, node, start, end, cause), and slack by rank and node."""
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    return told(trace, side)


def told(trace, side):
    account = side.ledger()
    path = find_critical_path(trace, side.times, account)
    assert path.length_ns == account.makespan_ns
    spare = compute_slack(trace, side.times, account)
    segments = [
        (
            trace.ranks[place].number,
            int(trace.graph_of(trace.ranks[place]).id[row]) if row >= 0 else None,
            start // 1000,
            end // 1000,
            CAUSES[cause],
        )
        for place, row, start, end, cause in zip(
            *(column.tolist() for column in (path.rank, path.row, path.start_ns, path.end_ns, path.cause)),
            strict=True,
        )
    ]
    by_node = {
        (rank.number, int(trace.graph_of(rank).id[row])): int(spare[side.times.first[place] + row]) // 1000
        for place, rank in enumerate(trace.ranks)
        for row in range(len(trace.graph_of(rank)))
    }
    shares = compute_path_shares(trace, side.times, account, path)
    assert sum(share.ns for share in shares) == path.length_ns
    return segments, by_node, describe_path(shares)


def test_a_collective_is_joined_at_its_last_arrival():
    """Rank 1 computes until 30, rank 0 until 10 only; the all-reduce ends at 40, rank 0 goes on until 45."""
    trace = trace_of(
        [
            [comp(1, 0, 10), reduce(2, 10, 30, 1), comp(3, 40, 5, 2)],
            [comp(1, 0, 30), reduce(2, 30, 10, 1), comp(3, 40, 2, 2)],
        ]
    )
    segments, spare, sentence = found(trace)
    assert segments == [
        (1, 1, 0, 30, "compute"),
        (0, 2, 30, 40, "collective"),
        (0, 3, 40, 45, "compute"),
    ]
    assert spare == {(0, 1): 20, (0, 2): 0, (0, 3): 0, (1, 1): 0, (1, 2): 0, (1, 3): 3}
    assert sentence == "67 % compute of rank 1, 22 % ALL_REDUCE of all ranks, 11 % compute of rank 0"


def test_members_that_are_recorded_to_begin_together_are_joined_at_the_one_that_was_ready_last():
    """Both record the all-reduce from 30 on; rank 0 was ready at 10, rank 1 at 30."""
    trace = trace_of(
        [
            [comp(1, 0, 10), reduce(2, 30, 10, 1), comp(3, 40, 5, 2)],
            [comp(1, 0, 30), reduce(2, 30, 10, 1), comp(3, 40, 2, 2)],
        ]
    )
    assert [segment[:3] for segment in found(trace)[0]] == [(1, 1, 0), (0, 2, 30), (0, 3, 40)]


def test_a_receive_leads_to_its_send_and_messages_tell_stages():
    """Stage 0 computes until 20 and sends until 25; stage 1 has waited since 5, has it at 26 and computes until 50."""
    message = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 8}
    trace = trace_of(
        [
            [comp(1, 0, 20), at(20, node(2, "COMM_SEND", 1, micros=5, **message))],
            [
                comp(1, 0, 5),
                at(5, node(2, "COMM_RECV", 1, micros=21, **message)),
                comp(3, 26, 24, 2),
            ],
        ]
    )
    segments, spare, sentence = found(trace)
    assert segments == [(0, 1, 0, 20, "compute"), (1, 2, 20, 26, "message"), (1, 3, 26, 50, "compute")]
    assert spare[1, 1] == 15
    assert sentence == "48 % compute of stage 1, 40 % compute of stage 0, 12 % messages"


def test_gaps_are_told_by_what_their_rank_did_meanwhile():
    """A kernel is launched at 4 and begins at 10: the device works for another until 7, then waits to be given work."""
    host = {"is_cpu_op": True, "tid": 1}
    trace = trace_of(
        [
            [
                at(0, node(1, "COMP", micros=4, **host)),
                comp(2, 1, 6, stream=7),
                comp(3, 10, 5, 1, stream=8),
                comp(4, 18, 2, 3, stream=8),
            ]
        ]
    )
    segments, spare, _ = found(trace)
    assert segments == [
        (0, 1, 0, 4, "host"),
        (0, 3, 4, 7, "queueing"),
        (0, 3, 7, 10, "launch"),
        (0, 3, 10, 15, "compute"),
        (0, 4, 15, 18, "stall"),
        (0, 4, 18, 20, "compute"),
    ]
    assert spare == {(0, 1): 0, (0, 2): 13, (0, 3): 0, (0, 4): 0}


def test_time_before_a_recording_began_is_no_stall_and_is_told_last():
    """Rank 1 is recorded from 30 on, stalls from 35 to 37, and comes last to the all-reduce, at 40."""
    trace = trace_of(
        [
            [comp(1, 0, 10), reduce(2, 10, 40, 1)],
            [comp(1, 30, 5), comp(2, 37, 3, 1), reduce(3, 40, 10, 2)],
        ]
    )
    segments, _, sentence = found(trace)
    assert segments[:3] == [
        (1, 1, 0, 30, "before"),
        (1, 1, 30, 35, "compute"),
        (1, 2, 35, 37, "stall"),
    ]
    assert sentence == (
        "20 % ALL_REDUCE of all ranks, 16 % compute of rank 1, 4 % stalls of rank 1; "
        "60 % before the recording of rank 1, of which nothing is known"
    )


def test_a_wait_for_the_device_leads_to_what_was_waited_for():
    """The host launches at 5, waits from 6 to 40 for a kernel that ends at 38, and goes on at 40."""
    host = {"is_cpu_op": True, "tid": 1}
    trace = trace_of(
        [
            [
                at(0, node(1, "COMP", micros=6, **host)),
                comp(2, 8, 30, 1, stream=7),
                at(
                    38,
                    node(3, "COMP", 1, 2, name="cudaDeviceSynchronize", micros=2, waits_for="device", **host),
                ),
                at(40, node(4, "COMP", 3, micros=10, **host)),
            ]
        ]
    )
    segments, _, sentence = found(trace)
    assert segments == [
        (0, 1, 0, 6, "host"),
        (0, 2, 6, 8, "launch"),
        (0, 2, 8, 38, "compute"),
        (0, 3, 38, 40, "sync"),
        (0, 4, 40, 50, "host"),
    ]
    assert sentence == "60 % compute of rank 0, 32 % host of rank 0, 4 % launch gaps of rank 0, 4 % the rest"


def test_clocks_are_aligned_before_ranks_are_joined():
    """Rank 1's clock is 5 ms ahead: both end each all-reduce together, and rank 1 computes before the second one."""
    ranks = [
        [
            reduce(1, ahead, 100),
            comp(2, ahead + 100, 900 if late else 300, 1),
            reduce(3, ahead + 100 + (900 if late else 300), 100 + (0 if late else 600), 2),
            comp(4, ahead + 1100, 900, 3),
            reduce(5, ahead + 2000, 100, 4),
        ]
        for ahead, late in ((0, False), (5000, True))
    ]
    trace = trace_of(ranks)
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    path = find_critical_path(trace, side.times, side.ledger())
    assert path.length_ns == 2_100_000
    assert path.shift_ns.tolist() == [0, 5_000_000]
    assert [(int(rank), int(start) // 1000) for rank, start in zip(path.rank, path.start_ns, strict=True)][
        :2
    ] == [
        (1, 0),
        (1, 100),
    ]


def test_a_ring_of_messages_has_no_stages():
    def ring(rank):
        message = {"comm_tag": 0, "comm_size": 8}
        send = node(1, "COMM_SEND", comm_src=rank, comm_dst=(rank + 1) % 3, micros=1, **message)
        receive = node(2, "COMM_RECV", comm_src=(rank - 1) % 3, comm_dst=rank, micros=1, **message)
        return [at(0, send), at(0, receive)]

    trace = trace_of([ring(rank) for rank in range(3)])
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    assert infer_pipeline_stages(side.times, side.ledger().arrivals, 3).tolist() == [-1, -1, -1]


# ---------------------------------------------------------------------------------------------------
# Any job


RANKS = st.lists(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 40), st.lists(st.integers(1, 4), max_size=2, unique=True)),
        min_size=1,
        max_size=5,
    ),
    min_size=2,
    max_size=3,
)


def job(ranks, longer=(-1, -1), by=0):
    """Ranks that compute and meet in all-reduces, equally often; a number says which nodes before each waits for."""
    meets = min(sum(talks for talks, *_ in rank) for rank in ranks)

    def made(number, rank):
        nodes, left = [], meets
        for at, (talks, length, back) in enumerate(rank, start=1):
            deps = sorted({at - one for one in back if at - one > 0})
            lasts = length + (by if (number, at) == longer else 0)
            if talks and left:
                left -= 1
                one = collective(at, "ALL_REDUCE", 8, *deps)
                one.duration_micros = lasts
            else:
                one = node(at, "COMP", *deps, micros=lasts)
            nodes.append(one)
        return nodes

    return trace_of([made(number, rank) for number, rank in enumerate(ranks)])


def replayed(trace, joins):
    """A replay in which collectives begin with their last member, or ASTRA-sim's, in which each rank is by itself."""
    extensions = Extensions(communication_times="recorded" if joins else "simulated")
    system = SystemConfig(Topology((Dimension("switch", len(trace.ranks), 64.0),)), extensions=extensions)
    side = build_side(simulate(trace, system if joins else replace(system, replay_only=True)))
    return side, side.ledger()


@pytest.mark.parametrize("joins", [True, False])
def test_replays_and_slack_have_one_rule_of_when_a_collective_begins(joins):
    """Rank 0 comes to the all-reduce at 1, rank 1 at 2; it takes 1, then rank 0 computes for 1."""
    ranks = [[(talks, 1, [1]) for talks in order] for order in ([False, True, False], [False, False, True])]
    side, account = replayed(job(ranks), joins)
    spare = compute_slack(side.trace, side.times, account)
    assert spare.tolist() == ([1000, 0, 0, 0, 0, 0] if joins else [0] * 6)
    assert account.makespan_ns == (4000 if joins else 3000)
    waited = account.ns()[:, PARTS.index("waiting")]
    assert waited.tolist() == [1000 if joins else 0, 0]
    path = find_critical_path(side.trace, side.times, account)
    assert set(path.rank.tolist()) == ({0, 1} if joins else {0})
    longer, _ = replayed(job(ranks, (0, 1), 1), joins)
    assert longer.makespan_ns == 4000


@settings(max_examples=examples(30), deadline=None)
@given(RANKS, st.booleans())
def test_the_path_fills_the_finish_and_its_nodes_have_no_slack(ranks, joins):
    """Of a run; `CriticalPath` is checked to have neither gaps nor overlaps whenever it is made."""
    trace = job(ranks)
    side, account = replayed(trace, joins)
    path = find_critical_path(trace, side.times, account)
    assert path.length_ns == account.makespan_ns == path.ns.sum()
    spare = compute_slack(trace, side.times, account)
    assert (spare >= 0).all()
    rows = path.row >= 0
    assert (spare[side.times.first[path.rank[rows]] + path.row[rows]] == 0).all()


@settings(max_examples=examples(30), deadline=None)
@given(RANKS, st.booleans(), st.data())
def test_a_node_may_take_longer_by_its_slack_where_nothing_queues(ranks, joins, data):
    """Compute nodes alone in line: each waits for the one before, so that nothing queues; simulated anew."""
    chained = [[(talks, length, [1]) for talks, length, _ in rank] for rank in ranks]
    trace = job(chained)
    side, account = replayed(trace, joins)
    spare = compute_slack(trace, side.times, account)
    number = data.draw(st.integers(0, len(ranks) - 1))
    at = data.draw(st.integers(1, len(ranks[number])))
    room = int(spare[side.times.first[number] + at - 1]) // 1000
    longer, _ = replayed(job(chained, (number, at), room), joins)
    assert longer.makespan_ns == account.makespan_ns
    if side.trace.graph_of(side.trace.ranks[number]).type[at - 1] == 4:
        longer, _ = replayed(job(chained, (number, at), room + 1), joins)
        assert longer.makespan_ns == account.makespan_ns + 1000


# ---------------------------------------------------------------------------------------------------
# Real jobs


def test_a_run_that_was_folded_has_the_path_of_one_that_was_not():
    """Eight equal ranks in groups of two, of which one is simulated."""

    def rank(number):
        first = node(1, "COMP", micros=7)
        meet = collective(2, "ALL_REDUCE", 1 << 20, 1, group=f"pair{number // 2}")
        return [first, meet, node(3, "COMP", 1, micros=90), collective(4, "ALL_REDUCE", 1 << 20, 2, 3)]

    groups = {f"pair{pair}": (2 * pair, 2 * pair + 1) for pair in range(4)}
    trace = trace_of([rank(number) for number in range(8)], groups)
    dimensions = (Dimension("switch", 2, 64.0), Dimension("switch", 4, 16.0))
    algorithms = {"all_reduce": (Algorithm.parse("ring"),) * 2}
    config = SystemConfig(Topology(dimensions), algorithms=algorithms, extensions=Extensions())
    sides = [build_side(simulate(trace, config, fold=fold)) for fold in (True, False)]
    folded, every = ((side, find_critical_path(trace, side.times, side.ledger())) for side in sides)
    assert len(set(folded[0].times.first)) < len(set(every[0].times.first))
    assert folded[1].length_ns == every[1].length_ns
    assert folded[1].by_cause() == every[1].by_cause()
    spare = [compute_slack(trace, side.times, side.ledger()) for side in sides]
    for place in range(len(trace.ranks)):
        one, other = (
            values[side.times.first[place] :][:4] for values, side in zip(spare, sides, strict=True)
        )
        np.testing.assert_array_equal(one, other)


def test_the_unbalanced_sample_names_the_slow_rank_and_the_hot_expert():
    trace = studio.read(studio.sample_path("imbalance_8r"))
    side = build_side(trace)
    account = side.ledger()
    shares = compute_path_shares(trace, side.times, account, find_critical_path(trace, side.times, account))
    assert [share.what for share in shares[:3]] == [
        "compute of rank 2",
        "compute of rank 5",
        "ALL_TO_ALL ep0",
    ]


@pytest.mark.parametrize("name", ["torch/ddp_straggler_4r", "torch/pp_2r", "torch_synthetic_device/dlrm_4r"])
def test_paths_of_real_recordings_fill_their_finish(name, shared):
    trace = read_recording(shared / "traces" / name)
    side = build_side(trace)
    account = side.ledger()
    path = find_critical_path(trace, side.times, account)
    assert path.length_ns == account.makespan_ns
    assert (compute_slack(trace, side.times, account) >= -1).all()
