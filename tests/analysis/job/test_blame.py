"""Whom ranks waited for, whose communication that was, and windows of a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.blame import compute_blame
from studio.analysis.job.group_times import COLUMNS, build_group_filter, sum_group_times
from studio.analysis.job.ledger import PARTS
from studio.analysis.job.windows import build_step_windows, build_whole_windows, build_windows_between
from studio.errors import ConfigError
from studio.sim.compared import build_side
from studio.timeline import collect_node_times, recorded
from tests.examples import examples
from tests.handmade import collective, node, trace_of
from tests.recordings import read_recording

US = 1000


def at(start, length, made):
    made.start_time_micros, made.duration_micros = 100 + start, length
    return made


def side_of_recording(trace):
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    return side, side.ledger()


def by_pair(trace, side, account, **more):
    """Each wait in µs: (waiter, waited for) to (time, what the other did, what it was at)."""
    told = compute_blame(trace, side.times, account, **more)
    found = {}
    for entry in range(len(told)):
        other = int(told.culprit[entry])
        graph = trace.graph_of(trace.ranks[account.places[other]])
        busy = int(told.busy_row[entry])
        doing = {
            part: int(told.doing[entry, code]) // US
            for code, part in enumerate(PARTS)
            if told.doing[entry, code]
        }
        name = graph.strings[int(graph.name[busy])] if busy >= 0 else None
        found[account.numbers[told.waiter[entry]], account.numbers[other]] = (
            int(told.ns[entry]) // US,
            doing,
            name,
        )
    return found


def test_what_a_rank_did_before_its_recording_is_not_known():
    """Rank 0 waits from 10 to 40 for rank 1, which is recorded from 30 on."""
    trace = trace_of(
        [
            [at(0, 10, node(1, "COMP")), at(10, 40, collective(2, "ALL_REDUCE", 8, 1))],
            [at(30, 10, node(1, "COMP")), at(40, 10, collective(2, "ALL_REDUCE", 8, 1))],
        ]
    )
    side, account = side_of_recording(trace)
    told = compute_blame(trace, side.times, account)
    assert account.before_ns.tolist() == [0, 30 * US]
    assert (told.ns.tolist(), told.before_ns.tolist()) == ([30 * US], [20 * US])
    assert told.mostly(np.array([0])) == ("before", 2 / 3)
    late = compute_blame(trace, side.times, account, build_windows_between(account, 25 * US, 50 * US))
    assert (late.before_ns.tolist(), late.mostly(np.array([0]))) == ([5 * US], ("compute", 2 / 3))


def two_groups():
    """Rank 2 is late at the all-reduce of all; rank 1, late at that of its pair, waits for rank 2 meanwhile.

    Rank 0 joins "pair" at 10, rank 1 at 60. Rank 1 joins all at 5, rank 2 at 40, after computing until 30.
    """
    ranks = [
        [at(0, 10, node(1, "COMP")), at(10, 60, collective(2, "ALL_REDUCE", 8, 1, group="pair"))],
        [
            at(5, 45, collective(1, "ALL_GATHER", 8, group="late")),
            at(50, 10, node(2, "COMP", 1, name="slow")),
            at(60, 10, collective(3, "ALL_REDUCE", 8, 2, group="pair")),
        ],
        [
            at(0, 30, node(1, "COMP", name="long")),
            at(40, 10, collective(2, "ALL_GATHER", 8, 1, group="late")),
        ],
    ]
    return trace_of(ranks, {"pair": (0, 1), "late": (1, 2)})


def test_a_wait_is_for_the_last_to_arrive_and_told_by_what_that_one_did():
    trace = two_groups()
    side, account = side_of_recording(trace)
    assert by_pair(trace, side, account) == {
        (0, 1): (50, {"waiting": 30, "communication": 10, "compute": 10}, "n1"),
        (1, 2): (35, {"compute": 25, "stall": 10}, "long"),
    }
    total = compute_blame(trace, side.times, account).of_culprits(len(account))
    assert (total // US).tolist() == [0, 50, 35]


def test_waits_in_a_window_and_in_a_group_alone():
    trace = two_groups()
    side, account = side_of_recording(trace)
    windows = build_windows_between(account, 30 * US, 55 * US)
    assert by_pair(trace, side, account, windows=windows) == {
        (0, 1): (25, {"waiting": 10, "communication": 10, "compute": 5}, "n1"),
        (1, 2): (10, {"stall": 10}, None),
    }
    late = by_pair(trace, side, account, wanted=build_group_filter(trace, "late"))
    assert list(late) == [(1, 2)]


def test_exposed_time_by_group_adds_up_to_the_ledger():
    trace = two_groups()
    _, account = side_of_recording(trace)
    told = sum_group_times(trace, account)
    rows = {
        (account.numbers[told.rank[entry]], told.group[entry], told.type[entry]): {
            part: int(ns) // US for part, ns in zip(COLUMNS, told.ns[entry], strict=True) if ns
        }
        for entry in range(len(told))
    }
    assert rows == {
        (0, "pair", "ALL_REDUCE"): {"waiting": 50, "communication": 10},
        (1, "late", "ALL_GATHER"): {"waiting": 35, "communication": 10},
        (1, "pair", "ALL_REDUCE"): {"communication": 10},
        (2, "late", "ALL_GATHER"): {"communication": 10},
    }
    assert told.ns.sum() == account.totals().of(*COLUMNS).sum()


def test_a_receive_waits_for_the_rank_that_sends():
    message = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 8}
    trace = trace_of(
        [
            [at(0, 30, node(1, "COMP", name="before")), at(30, 5, node(2, "COMM_SEND", 1, **message))],
            [at(10, 26, node(1, "COMM_RECV", **message))],
        ]
    )
    side, account = side_of_recording(trace)
    assert by_pair(trace, side, account) == {(1, 0): (20, {"compute": 20}, "before")}
    assert sum_group_times(trace, account).type == ("SEND", "RECV")


def test_a_step_is_from_its_first_node_to_the_next_one_on_each_rank():
    def rank(late):
        names = ("step3.fwd", "step3.bwd", "step4.fwd")
        return [
            at(late + 10 * index, 10, node(index + 1, "COMP", name=name)) for index, name in enumerate(names)
        ]

    trace = trace_of([rank(0), rank(7)])
    side, account = side_of_recording(trace)
    assert (build_step_windows(trace, side.times, account, 3) // US).tolist() == [[0, 20], [7, 27]]
    assert (build_step_windows(trace, side.times, account, 4) // US).tolist() == [[20, 30], [27, 37]]
    with pytest.raises(ConfigError, match="step 5; allowed: 3, 4"):
        build_step_windows(trace, side.times, account, 5)


JOBS = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=6),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(40), deadline=None)
@given(JOBS, st.tuples(st.integers(0, 90), st.integers(0, 90)))
def test_windows_groups_and_blame_add_up_on_any_recording(ranks, ends):
    """Windows as `Ledger.ns` has them; waits by rank are the waiting of the ledger."""
    trace = trace_of(
        [
            [
                at(start, length, collective(number, "ALL_REDUCE", 8) if talks else node(number, "COMP"))
                for number, (talks, start, length) in enumerate(rank, start=1)
            ]
            for rank in ranks
        ]
    )
    side, account = side_of_recording(trace)
    low, high = (min(end * US, account.makespan_ns) for end in sorted(ends))
    for windows in (build_whole_windows(account), build_windows_between(account, low, high)):
        ns = account.within(windows)
        np.testing.assert_array_equal(ns, account.ns(*windows[0].tolist()))
        told = sum_group_times(trace, account, windows)
        assert told.ns.sum() == ns[:, [PARTS.index(part) for part in COLUMNS]].sum()
        waits = compute_blame(trace, side.times, account, windows)
        assert (waits.culprit != waits.waiter).all()
        for rank in range(len(account)):
            expected = int(ns[rank, PARTS.index("waiting")])
            assert int(waits.ns[waits.waiter == rank].sum()) == expected


def test_the_straggler_is_named(shared):
    """Rank 3 has ten times the batch of rank 0, and the others wait for it."""
    trace = read_recording(shared / "traces" / "torch" / "ddp_straggler_4r")
    side = build_side(trace)
    account = side.ledger()
    total = compute_blame(trace, side.times, account).of_culprits(len(account))
    assert account.numbers[int(total.argmax())] == 3
