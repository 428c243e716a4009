from __future__ import annotations

import re

import pytest

from studio.figures.drawing import draw_topology
from studio.sim.config import Dimension, Topology


def drawing(*dims):
    return draw_topology(Topology(tuple(Dimension(kind, size, 50.0, 500.0) for kind, size in dims)))


def npus(found):
    return [int(shape.title.removeprefix("NPU ")) for shape in found.shapes if shape.look == "sim-npu"]


def links(found):
    return [shape for shape in found.shapes if shape.look.startswith("sim-link")]


def test_a_small_ring_is_drawn_with_every_npu_and_link():
    found = drawing(("ring", 6))
    assert npus(found) == list(range(6))
    assert len(links(found)) == 6


def test_two_npus_in_a_ring_have_one_line():
    assert len(links(drawing(("ring", 2)))) == 1


def test_all_pairs_are_joined():
    assert len(links(drawing(("fully_connected", 5)))) == 10


def test_numbers_count_the_innermost_dimension_first():
    """Four groups of two: the first group holds NPUs 0 and 1."""
    assert npus(drawing(("switch", 2), ("ring", 4))) == list(range(8))
    assert npus(drawing(("ring", 2), ("ring", 2), ("switch", 2))) == list(range(8))


@pytest.mark.parametrize(
    "dims",
    [
        [("ring", 4096)],
        [("fully_connected", 1000)],
        [("switch", 5000)],
        [("switch", 64), ("ring", 64)],
        [("ring", 16), ("ring", 16), ("ring", 16)],
        [("ring", 2)] * 5,
        [("fully_connected", 9), ("fully_connected", 9), ("switch", 9)],
    ],
    ids=str,
)
def test_many_are_folded_the_last_one_shown_and_nothing_lies_outside(dims):
    found = drawing(*dims)
    total = 1
    for _, size in dims:
        total *= size
    shown = npus(found)
    assert shown[0] == 0
    assert shown[-1] == total - 1
    assert len(set(shown)) == len(shown)
    assert len(found.shapes) < 1500
    folded = [shape.text for shape in found.shapes if shape.kind == "text"]
    assert bool(folded) == (len(shown) < total)
    for shape in found.shapes:
        numbers = [float(word) for word in re.findall(r"-?[\d.]+", shape.d)] or list(shape.at)
        if shape.kind == "rect":
            x, y, width, height = shape.at
            numbers = [x, y, x + width, y + height]
        # Control points of curves reach a third further out than the curves.
        slack = 24 if shape.kind == "path" else 0.1
        assert min(numbers) >= -slack
        assert max(numbers[::2]) <= found.width + slack
        assert max(numbers[1::2]) <= found.height + slack


def test_a_faster_link_is_drawn_wider():
    fast, slow = Dimension("switch", 4, 400.0), Dimension("ring", 4, 50.0)
    found = draw_topology(Topology((fast, slow)))
    width = {shape.look: shape.width for shape in links(found)}
    assert width["sim-link sim-dim-0"] > width["sim-link sim-dim-1"]
