"""The matrix of comm groups and ranks: each has a cell of its own up to as many as can be seen."""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.groups import GroupUse
from studio.figures.groups import MOST_CELLS, draw_group_matrix


def matrix(groups: int, ranks: int):
    """Groups of one rank each, the g-th with g + 1 bytes."""
    group = np.arange(groups)
    one = np.ones(groups, np.int64)
    names = tuple(f"g{number}" for number in range(groups))
    use = GroupUse(names, tuple(range(ranks)), group, group % ranks, one, group + 1, one)
    return draw_group_matrix(use, dark=False)


def test_groups_and_ranks_share_cells_only_where_they_could_not_be_told_apart():
    each = matrix(MOST_CELLS, MOST_CELLS)
    assert each.data[0].z.shape == (MOST_CELLS, MOST_CELLS)
    assert (each.layout.xaxis.title.text, each.layout.yaxis.title.text) == ("rank", "comm group")
    shared = matrix(2 * MOST_CELLS + 1, 3 * MOST_CELLS)
    assert shared.data[0].z.shape == (134, 150)
    # Groups 0 to 2 of ranks 0 to 3: the colour is of the one with most bytes, and the cell tells how many it stands for.
    assert shared.data[0].z[0][0] == 3
    assert shared.data[0].customdata[0][0].startswith("3 members of groups here, 3 nodes, the most of one")
    assert shared.data[0].x[0] == "0–3"
    assert shared.data[0].text[0][0] == "g0 … g2"
    titles = shared.layout.xaxis.title.text, shared.layout.yaxis.title.text
    assert titles == ("ranks, 4 to a cell", "comm groups, 3 to a cell")
    assert shared.data[0].colorbar.title.text == "most bytes of a member"


def test_blank_cells_do_not_repeat_the_name_of_their_row():
    """Of a thousand ranks in groups of a few most cells are blank, and names were most of the figure's bytes."""
    heat = matrix(8, 64).data[0]
    blank = np.isnan(heat.z)
    assert blank.sum() == 8 * 63
    assert not any(heat.text[blank])
    assert heat.text[~blank].tolist() == [f"g{number}" for number in range(8)]


def test_ranks_are_named_where_nodes_and_groups_begin():
    def named(ranks: int) -> list[str]:
        return list(matrix(8, ranks).layout.xaxis.ticktext)

    assert named(8) == [str(rank) for rank in range(8)]
    assert named(32) == ["0", "8", "16", "24"]
    assert named(1024) == ["0", "256", "512", "768"]
