from __future__ import annotations

from pathlib import Path

import numpy as np

import studio
from studio.analysis.collectives.cell import describe_cell
from studio.analysis.collectives.heat import (
    Look,
    Shown,
    align_lines,
    build_heat,
    build_tile,
    find_strongest,
    label_line,
)
from tests.analysis.collectives.test_imbalance import at, members_of, side_by_side
from tests.handmade import collective, trace_of


def uneven():
    """Three collectives on four ranks: even, a little uneven, and one where rank 2 has most."""
    sizes = ([8, 8, 8, 8], [8, 8, 8, 16], [2, 2, 10, 2])
    return trace_of(
        [
            [
                collective(n, "ALL_TO_ALL", size[rank], *([n - 1] if n > 1 else []), name=f"n{n}")
                for n, size in enumerate(sizes, start=1)
            ]
            for rank in range(4)
        ]
    )


def test_the_most_uneven_row_and_the_heaviest_rank_come_first() -> None:
    heat = build_heat(members_of(uneven()), Look(sort="max", ranks="load"))
    assert [label_line(heat, line) for line in range(3)] == ["n3", "n2", "n1"]
    assert heat.columns.tolist()[0] == 2
    assert build_tile(heat, (0, 3, 0, 1)).values.ravel().tolist() == [10, 8, 8]


def test_a_node_is_found_where_it_is_drawn_and_told_in_words() -> None:
    trace = uneven()
    heat = build_heat(members_of(trace), Look(sort="max"))
    row = int(np.flatnonzero(trace.graph_of(trace.ranks[2]).id == 3)[0])
    assert heat.find(2, row) == (0, 2)
    words = describe_cell(Shown(trace, heat, Look(), relative=True), 0, 2)
    assert words.startswith(
        "rank 2 · n3 · 10 B (10 bytes), 2.5 × the mean of its group, 4 B · group of all ranks, 4 ranks"
    )


def test_words_say_who_was_waited_for() -> None:
    trace = trace_of([[at(1, 13, 7, "ALL_REDUCE", 9000)], [at(4, 9, 8, "ALL_REDUCE", 9000)]])
    shown = Shown(
        trace,
        build_heat(members_of(trace), Look("duration")),
        Look("duration"),
        relative=False,
        origin_ns=1000,
    )
    assert "arrived at 0.000 ms · 3.00 µs of it before rank 1 came" in describe_cell(shown, 0, 0)
    assert "the last to arrive, 3.00 µs after the first" in describe_cell(shown, 0, 1)


def test_a_bin_is_as_its_strongest_cell_and_names_it() -> None:
    """Of figures the largest, of ratios the one farthest from 1; the cell behind it can be asked for."""
    heat = build_heat(members_of(uneven()), Look(sort="time"))
    found = build_tile(heat, (0, 3, 0, 4), cells=4)
    assert (found.down, found.across, found.values.tolist()) == (3, 1, [[8, 8, 10, 16]])
    ratio = build_tile(heat, (0, 3, 0, 4), relative=True, cells=4)
    assert ratio.values.tolist() == [[0.5, 0.5, 2.5, 1.600000023841858]]
    assert ratio.figures is not None
    assert ratio.figures.tolist() == [[2, 2, 10, 16]]
    assert found.figures is None
    assert find_strongest(heat, (0, 3, 2, 3)) == (2, 2)
    assert find_strongest(heat, (0, 3, 0, 2), relative=True) == (2, 0)


def test_a_ratio_has_the_figure_that_it_is_of_whatever_the_mean_of_its_group() -> None:
    """Two groups that share a row have different means: neither is that of the row."""
    heat = build_heat(members_of(side_by_side()), Look())
    part = build_tile(heat, (0, len(heat.lines), 0, 4), relative=True)
    assert heat.spread.own.shape[1] > 1
    assert part.figures is not None
    assert part.figures.tolist() == heat.table[heat.lines].tolist()


def test_another_run_is_drawn_in_the_order_of_the_first() -> None:
    """Lines that the other lacks stay empty; its own others come last."""
    one = build_heat(members_of(uneven()), Look(sort="max"))
    ranks = [
        [collective(1, "ALL_TO_ALL", 4, name="n2"), collective(2, "ALL_TO_ALL", 6, 1, name="new")]
        for _ in range(4)
    ]
    other = align_lines(build_heat(members_of(trace_of(ranks)), Look(sort="max")), one)
    assert [label_line(other, line) for line in range(len(other.lines))] == ["", "n2", "", "new"]
    assert np.isnan(build_tile(other, (0, 4, 0, 4)).values[0]).all()


def test_one_section_alone_can_be_shown() -> None:
    heat = build_heat(members_of(uneven()), Look(by="name", only="n2"))
    assert [label_line(heat, line) for line in range(len(heat.lines))] == ["n2"]
    world = build_heat(members_of(side_by_side()), Look(by="group", only="0"))
    assert [label_line(world, line) for line in range(len(world.lines))] == ["step1.norm"]


def test_collectives_of_one_kernel_are_told_apart_by_their_type():
    """NCCL sends and receives for gathers and scatters by the same kernel: their lines had the same names."""
    trace = studio.read(Path(__file__).parents[2] / "data" / "nccl_4r")
    members = members_of(trace)
    heat = build_heat(members, Look())
    names = [label_line(heat, line) for line in range(len(heat.lines))]
    assert len(set(names)) == len(names)
    assert {"GATHER · ncclDevKernel_SendRecv #1", "SCATTER · ncclDevKernel_SendRecv #2"} <= set(names)
    assert "ncclDevKernel_AllGather_RING_LL #1" in names
