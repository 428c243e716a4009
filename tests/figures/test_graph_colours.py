"""Hues of numbers and categories, and legends that tell them."""

from __future__ import annotations

import numpy as np
import pytest

from studio.figures import graph_colours as figure
from studio.figures.theme import choose_palette
from studio.units import format_ns
from tests.figures.test_graph import contrast


def test_numbers_spread_over_the_scale_by_their_size():
    hues, legend = figure.scale_colours(np.array([1.0, 10.0, 1000.0, np.nan, 0.0]), format_ns)
    assert hues == ["s0", "s3", "s8", "none", "s0"]
    assert [(one.hue, one.title, one.count) for one in legend] == [
        ("s0", "0 ns to 1 ns", 2),
        ("s3", "10 ns", 1),
        ("s8", "1.00 µs", 1),
        ("none", "not known", 1),
    ]
    assert figure.scale_colours(np.array([7.0, 7.0]), format_ns)[0] == ["s0", "s0"]


def test_differences_have_a_true_middle_and_two_sides():
    hues, legend = figure.colour_differences(np.array([-100.0, 0.0, 1.0, 100.0, np.nan]), format_ns)
    assert hues == ["d0", "d4", "d4", "d8", "none"]
    assert legend[0].title == "-100 ns"
    assert figure.colour_differences(np.zeros(2), format_ns)[0] == ["d4", "d4"]


def test_the_most_frequent_categories_have_colours_of_their_own():
    codes = np.array([5] * 9 + [3] * 8 + list(range(10, 18)) + [-1])
    hues, legend = figure.colour_categories(codes, str, "none of them")
    assert (hues[0], hues[9], hues[-1]) == ("c0", "c1", "none")
    assert [one.title for one in legend][:2] == ["5", "3"]
    assert [(one.title, one.count) for one in legend][-2:] == [("3 more", 3), ("none of them", 1)]


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_every_hue(dark):
    for rule in figure.build_hue_styles(choose_palette(dark), dark):
        assert contrast(rule["style"]["color"], rule["style"]["background-color"]) >= 4.5
