"""Labels of folded blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from studio.analysis.graph.blocks import Block
from studio.figures.blocks import Figures, _build_block_data, _tell_apart

FIGURES = Figures([], 0, 0, [0.0, 1.0])


def labels(*blocks: tuple[tuple[int, ...], str, int], key: str = "short") -> list[str]:
    """Return the labels of blocks by path, name and number of nodes."""
    made = [
        _build_block_data(Block(path, name, np.arange(count), "calls"), replace(FIGURES))
        for path, name, count in blocks
    ]
    _tell_apart(made)
    return [data[key] for data in made]


@pytest.mark.parametrize("key", ["short", "label"])
def test_blocks_of_one_name_and_count_are_numbered_in_their_order(key):
    name = "ProfilerStep#1 › aten::as_strided"
    shown = labels(((0,), name, 4), ((2,), name, 4), ((1,), name, 3), key=key)
    assert [text.partition("\n")[0][-2:] for text in shown] == ["#1", "#3", "#2"]
    assert len({*shown}) == 3


@pytest.mark.parametrize("key", ["short", "label"])
def test_runs_that_begin_alike_are_told_apart_by_their_ends(key):
    start = "torch.distributed::a_rather_long_beginning to aten::"
    shown = labels(((0,), f"{start}sum", 4), ((1,), f"{start}mean", 4), key=key)
    assert [
        text.partition("\n")[0].endswith(end) for text, end in zip(shown, ("sum", "mean"), strict=True)
    ] == [True, True]


def test_what_lies_apart_or_differs_in_count_stays_as_it_is():
    name = "aten::mm"
    assert labels(((0, 0), name, 4), ((0, 1), name, 5), ((1, 0), name, 4)) == [
        "aten::mm\n4 nodes",
        "aten::mm\n5 nodes",
        "aten::mm\n4 nodes",
    ]
