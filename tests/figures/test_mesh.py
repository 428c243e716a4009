"""The drawing of a mesh of ranks: every rank of few, the first, the last and the recorded ones of many."""

from __future__ import annotations

import pytest

from studio.completion.mesh import Mesh, parse_layout
from studio.figures.drawing import Drawing
from studio.figures.mesh import build_assumed_cell, describe_directions, draw_mesh


def drawn(layout: str, recorded: tuple[int, ...] = (0,)) -> Drawing:
    mesh = Mesh.of(parse_layout(layout))
    return draw_mesh(mesh, lambda rank: build_assumed_cell(rank, None if rank in recorded else 0), recorded)


def numbers(drawing: Drawing) -> list[str]:
    return [shape.text for shape in drawing.shapes if shape.look.startswith("rk-number")]


@pytest.mark.parametrize(
    ("layout", "ranks"),
    [("dp=1", 1), ("tp=8", 8), ("dp=64", 64), ("tp=8,dp=8", 64), ("tp=4,dp=8,pp=2", 64)],
)
def test_every_rank_of_few_is_drawn_once(layout: str, ranks: int):
    assert sorted(map(int, numbers(drawn(layout)))) == list(range(ranks))


@pytest.mark.parametrize(
    ("layout", "other"),
    [
        ("dp=1024", 513),
        ("tp=8,dp=128", 513),
        ("dp=16384", 8193),
        ("tp=8,dp=512,pp=4", 8193),
        ("tp=8,cp=4,ep=4,dp=32,pp=4", 1),
    ],
)
def test_many_ranks_stay_readable_and_recorded_ones_in_sight(layout: str, other: int):
    world = Mesh.of(parse_layout(layout)).world
    drawing = drawn(layout, recorded=(0, other))
    shown = numbers(drawing)
    assert {"0", str(other), str(world - 1)} <= set(shown)
    assert len(shown) == len(set(shown)) <= 200
    assert drawing.width < 1500
    assert f"{len(shown):,} of them are drawn" in drawing.sentence
    more = [shape for shape in drawing.shapes if shape.look == "rk-more"]
    assert more
    # Cells lie beside each other, none over another.
    corners = [shape.at[:2] for shape in drawing.shapes if shape.kind == "rect"]
    assert len(corners) == len(set(corners))


def test_a_rank_says_where_it_is_and_what_it_repeats():
    titles = [shape.title for shape in drawn("tp=2,dp=2").shapes if shape.kind == "rect"]
    assert titles == [
        "rank 0: recorded · tp 0 · dp 0",
        "rank 1: assumed equal to rank 0 · tp 1 · dp 0",
        "rank 2: assumed equal to rank 0 · tp 0 · dp 1",
        "rank 3: assumed equal to rank 0 · tp 1 · dp 1",
    ]
    assert describe_directions(Mesh.of(parse_layout("tp=2"))) == "in rows: tensor (tp)"
