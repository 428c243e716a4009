from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from studio.analysis.collectives.imbalance import (
    build_matrix,
    build_rows,
    compute_amounts,
    compute_own_means,
    compute_spread,
    find_worst_rows,
    order_rows,
)
from studio.analysis.collectives.members import collect_members
from studio.analysis.job.steps import find_graph_steps
from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.timeline import collect_node_times, recorded
from tests.handmade import collective, node, trace_of
from tests.recordings import link_recording, read_recording


def at(start: int, micros: int, number: int, kind: str, size: int, **more):
    """A collective with recorded times, in µs."""
    made = collective(number, kind, size, **more)
    made.start_time_micros, made.duration_micros = start, micros
    return made


def members_of(trace):
    timeline = recorded(trace)
    return collect_members(trace, collect_node_times(trace, timeline) if len(timeline) else None)


def test_the_recorded_imbalance_of_a_real_job_is_found(shared: Path) -> None:
    """dlrm_4r: uneven all-to-alls, 1.375 at worst in all, with rank 3 carrying most; the all-reduces are even."""
    expected = json.loads((shared / "traces" / "expected.json").read_text())["torch/dlrm_4r"]
    given = [one["c10d"]["c10d::alltoall_base_"]["input_bytes"] for _, one in sorted(expected.items())]
    members = members_of(link_recording(shared / "traces" / "torch" / "dlrm_4r"))
    rows = build_rows(members, "type", fold=True)
    table = build_matrix(members, rows, "size")
    found = dict(zip(rows.sections, table.tolist(), strict=True))
    assert found["ALL_TO_ALL"] == given == [20480, 28672, 36864, 45056]
    assert found["ALL_REDUCE"] == [418896] * 4
    [worst] = find_worst_rows(table, compute_spread(table))
    assert rows.sections[worst.row] == "ALL_TO_ALL"
    assert (worst.max, worst.worst, worst.heavy) == (1.375, 3, (3, 2))
    assert worst.excess == 45056 - 32768 + 36864 - 32768
    assert sorted(build_rows(members, "step", fold=True).sections) == ["step 1", "step 2"]


def test_figures_of_a_collective_whose_members_come_late() -> None:
    """Rank 1 comes 3 µs late, rank 0 ends 1 µs late: who waits, who is late, how fast it was, rank by rank."""
    trace = trace_of([[at(1, 13, 7, "ALL_REDUCE", 9000)], [at(4, 9, 8, "ALL_REDUCE", 9000)]])
    members = members_of(trace)
    rows = build_rows(members)
    figures = {
        name: build_matrix(members, rows, name).tolist()[0] for name in ("size", "duration", "waiting")
    }
    assert figures == {"size": [9000, 9000], "duration": [13_000, 9000], "waiting": [3000, 0]}
    assert build_matrix(members, rows, "lateness").tolist() == [[0, 3000]]
    assert build_matrix(members, rows, "algorithm").tolist() == [[0.9, 1.0]]
    # Two ranks: the bus carries 2 (n-1) / n = 1 times as much.
    assert build_matrix(members, rows, "bus").tolist() == [[0.9, 1.0]]


def test_numbers_count_before_the_order_of_beginning() -> None:
    """Rank 1 begins its second collective first; the numbers say which belong together."""
    ranks = [
        [at(1, 5, 1, "ALL_REDUCE", 10, comm_seq=1), at(9, 5, 2, "ALL_REDUCE", 20, comm_seq=2)],
        [at(8, 5, 1, "ALL_REDUCE", 11, comm_seq=1), at(2, 5, 2, "ALL_REDUCE", 21, comm_seq=2)],
    ]
    members = members_of(trace_of(ranks))
    assert build_matrix(members, build_rows(members), "size").tolist() == [[10, 11], [20, 21]]


def test_without_times_only_sizes_are_known() -> None:
    trace = trace_of([[collective(1, "ALL_REDUCE", 64)], [collective(1, "ALL_REDUCE", 64)]])
    members = members_of(trace)
    assert not members.timed
    assert build_matrix(members, build_rows(members), "size").tolist() == [[64, 64]]
    assert np.isnan(compute_amounts(members, "waiting")[0]).all()


def side_by_side():
    """Two pairs of ranks each do an all-reduce of their own, the second pair twice as much; then all four do one."""

    def rank(pair: str, size: int):
        return [
            collective(1, "ALL_REDUCE", size, group=pair, name="step0.grads"),
            collective(2, "ALL_REDUCE", 8, 1, name="step1.norm"),
        ]

    return trace_of([rank("a", 10), rank("a", 30), rank("b", 20), rank("b", 20)], {"a": [0, 1], "b": [2, 3]})


def test_parallel_groups_share_a_row_unless_groups_are_asked_for() -> None:
    members = members_of(side_by_side())
    table = build_matrix(members, build_rows(members), "size")
    assert table.tolist() == [[10, 30, 20, 20], [8, 8, 8, 8]]
    rows = build_rows(members, "group")
    assert rows.sections == ("a", "b", "all ranks")
    apart = build_matrix(members, rows, "size")
    assert apart[:2].tolist() == pytest.approx(
        np.array([[10, 30, np.nan, np.nan], [np.nan, np.nan, 20, 20]]), nan_ok=True
    )
    assert build_rows(members, "step").sections == ("step 0", "step 1")
    assert build_matrix(members, build_rows(members, "type", fold=True), "size").tolist() == [
        [18, 38, 28, 28]
    ]


def test_overlapping_groups_and_repeated_names_keep_rows_apart() -> None:
    """Two groups of the same ranks never share a row, nor do two collectives of one name."""
    ranks = [
        [
            collective(1, "ALL_REDUCE", 1, group="a", name="x"),
            collective(2, "ALL_REDUCE", 2, 1, group="b", name="x"),
            collective(3, "ALL_REDUCE", 3, 2, group="a", name="x"),
        ]
        for _ in range(2)
    ]
    members = members_of(trace_of(ranks, {"a": [0, 1], "b": [0, 1]}))
    assert sorted(build_matrix(members, build_rows(members), "size").tolist()) == [[1, 1], [2, 2], [3, 3]]


def test_measures_by_hand() -> None:
    """1, 2, 3 and 6: mean 3; deviations 2, 1, 0, 3; pairs differ by 1+2+5+1+4+3 = 16 in all."""
    spread = compute_spread(
        np.array([[1.0, 2, 3, 6], [5, 5, 5, 5], [0, 0, 0, 0], [np.nan, 4, np.nan, np.nan]])
    )
    assert spread.max.tolist()[:2] == [2, 1]
    assert spread.variation.tolist()[:2] == pytest.approx([np.sqrt(14 / 4) / 3, 0])
    assert spread.gini.tolist()[:2] == pytest.approx([16 / (4 * 4 * 3), 0])
    assert spread.excess.tolist() == [3, 0, 0, 0]
    assert np.isnan(spread.max[2])
    assert (spread.max[3], spread.gini[3], spread.count[3]) == (1, 0, 1)


@pytest.mark.parametrize("grouped", [False, True])
def test_columns_without_a_figure_change_nothing(grouped: bool) -> None:
    """Where few ranks take part in each row only their figures are looked at; rows begin at different columns."""
    few = np.array([[1.0, 2, 3, 6], [5, 5, 5, 5], [0, 0, 0, 0], [np.nan, 4, np.nan, np.nan], [np.nan] * 4])
    means = np.array(
        [[1.5, 1.5, 4.5, 4.5], [5, 5, 5, 5], [0, 0, 0, 0], [np.nan, 4, np.nan, np.nan], [np.nan] * 4]
    )
    table, own = np.full((5, 12), np.nan), np.full((5, 12), np.nan)
    for row in range(5):
        table[row, row : row + 4], own[row, row : row + 4] = few[row], means[row]
    close, spread = (
        compute_spread(few, means if grouped else None),
        compute_spread(table, own if grouped else None),
    )
    for name in ("count", "mean", "max", "variation", "gini", "excess"):
        assert np.array_equal(getattr(spread, name), getattr(close, name), equal_nan=True), name
    assert spread.own.shape == ((5, 12) if grouped else (5, 1))
    there = close.worst >= 0
    assert (spread.worst - np.arange(5))[there].tolist() == close.worst[there].tolist()
    assert spread.worst[~there].tolist() == [-1]


def test_ranks_are_compared_within_their_group_only() -> None:
    """Two groups side by side in a row: one moves ten times as much, but each is nearly even."""
    names = {"1": (0, 1), "2": (2, 3)}
    sizes = (100, 300, 2000, 2000)
    trace = trace_of(
        [
            [collective(1, "ALL_REDUCE", size, group="1" if rank < 2 else "2")]
            for rank, size in enumerate(sizes)
        ],
        names,
    )
    members = collect_members(trace)
    rows = build_rows(members)
    table = build_matrix(members, rows, "size")
    assert table.tolist() == [list(sizes)]
    own = compute_own_means(members, rows, table)
    assert own.tolist() == [[200, 200, 2000, 2000]]
    [worst] = find_worst_rows(table, compute_spread(table, own))
    assert (worst.worst, worst.heavy, worst.most, worst.mean) == (1, (1,), 300, 200)
    # The other group has nothing to do with it: 100 bytes move from rank 1 to rank 0.
    assert (worst.max, worst.excess) == (1.5, 100)
    # Added up, ranks that some collective of the row joins are one group.
    folded = build_rows(members, "type", fold=True)
    assert compute_own_means(members, folded, build_matrix(members, folded, "size")).tolist() == own.tolist()


def test_rows_are_sorted_within_sections_and_sections_by_their_worst() -> None:
    spread = compute_spread(np.array([[1.0, 1], [1, 3], [2, 2], [0, 4]]))
    section = np.array([0, 0, 1, 1])
    assert order_rows(spread, section, "max").tolist() == [3, 2, 1, 0]
    assert order_rows(spread, section, "time").tolist() == [0, 1, 2, 3]


def test_simulated_ranks_that_stand_for_each_other_have_the_same_times() -> None:
    """Folded or not, a simulation gives the same figures."""
    ranks = [
        [node(1, "COMP", num_ops=1000, tensor_size=10, micros=5), collective(2, "ALL_REDUCE", 4096, 1)]
        for _ in range(4)
    ]
    trace = trace_of(ranks)
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [0]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "all-reduce-implementation": ["ring"],
        "preferred-dataset-splits": 1,
    }
    found = []
    for fold in (True, False):
        result = simulate(trace, from_parts(network, system), fold=fold)
        members = collect_members(trace, result.node_times())
        found.append(build_matrix(members, build_rows(members), "duration").tolist())
    assert found[0] == found[1]
    assert found[0][0][0] > 0


def test_steps_are_told_by_names_and_by_enclosing_annotations() -> None:
    """A name counts before the annotation around it; what begins outside of any belongs to none."""

    def timed(number: int, start: int, micros: int, name: str, **more):
        made = node(number, "COMP", name=name, micros=micros, **more)
        made.start_time_micros = start
        return made

    nodes = [
        timed(1, 10, 0, "ProfilerStep#7", inclusive_ns=20_000),
        timed(2, 12, 3, "aten::mm"),
        timed(3, 15, 3, "iteration_3/fwd"),
        timed(4, 40, 3, "aten::mm"),
    ]
    assert find_graph_steps(trace_of([nodes]).graphs[0]).tolist() == [7, 7, 3, -1]


def test_a_job_without_collectives_has_no_rows() -> None:
    members = members_of(trace_of([[node(1, "COMP")]]))
    rows = build_rows(members, "type", fold=True)
    assert len(rows) == 0
    assert build_matrix(members, rows, "size").shape == (0, 1)
    assert (
        find_worst_rows(
            build_matrix(members, rows, "size"), compute_spread(build_matrix(members, rows, "size"))
        )
        == []
    )


def test_the_library_reads_what_it_is_given(shared: Path) -> None:
    """Parallel groups of a real job: 368 collectives in 92 rows, each over all ranks of its pipeline stage."""
    trace = read_recording(shared / "traces" / "stg" / "llama_32r_dp4tp4pp2")
    members = collect_members(trace)
    rows = build_rows(members)
    assert (len(members), len(rows)) == (368, 92)
    assert set((~np.isnan(build_matrix(members, rows, "size"))).sum(axis=1).tolist()) <= {16, 32}


def test_of_rows_that_are_as_uneven_the_one_with_most_to_move_comes_first() -> None:
    """Of two ranks one waits 0.8, 5.9 or 2 ms and the other never: all ratios are 2."""
    table = np.array([[0.8, 0.0], [0.0, 5.9], [2.0, 0.0]])
    spread = compute_spread(table)
    assert spread.max.tolist() == [2.0, 2.0, 2.0]
    assert order_rows(spread, np.zeros(3, np.int64), "max").tolist() == [1, 2, 0]
    assert [offender.row for offender in find_worst_rows(table, spread, "max")] == [1, 2, 0]


def test_the_factor_of_the_worst_is_said_of_those_alone_of_which_it_is_true() -> None:
    """Rank 1 is above the mean by a hundredth; before, all above the mean were named."""
    table = np.array([[1000.0, 1140, 1550, 1552, 400]])
    [worst] = find_worst_rows(table, compute_spread(table))
    assert (worst.worst, worst.heavy, worst.highest) == (3, (3, 2, 1), (3, 2))
