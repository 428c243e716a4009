"""What Cytoscape is given: names that fit, shapes by type, and elements for any graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.graph.neighbours import build_adjacency, find_neighbourhood, select_whole_graph
from studio.analysis.job.node_refs import format_node_ref
from studio.figures import graph as figure
from studio.figures.theme import DARK, LIGHT
from studio.trace import CollectiveType, NodeType
from tests.graphs import graph

HOSTILE = "<img src=x onerror=alert(1)>"


def drawn(found, part=None):
    near = build_adjacency(found)
    elements = figure.build_elements(found, part or select_whole_graph(near), near)
    nodes = {one["data"]["id"]: one for one in elements if one["group"] == "nodes"}
    edges = [one["data"] for one in elements if one["group"] == "edges"]
    return nodes, edges


def test_nodes_carry_what_the_page_shows():
    found = graph(
        3,
        data=[(0, 1), (1, 2)],
        names={0: "a.b", 1: HOSTILE},
        types={1: NodeType.COMM_COLL, 2: NodeType.MEM_LOAD},
        numbers={"comm_type": {1: CollectiveType.REDUCE_SCATTER}, "comm_size": {1: 3 * 2**20}},
    )
    nodes, edges = drawn(found)
    assert nodes["0"]["data"]["kind"] == "comp"
    assert nodes["1"]["data"] == {
        "id": "1",
        "label": "reduce-scatter\n3.00 MiB",
        "short": "red-scatter",
        "name": HOSTILE,
        "type": "COMM_COLL REDUCE_SCATTER",
        "kind": "coll",
        "bytes": "3.00 MiB",
        "hidden": 0,
    }
    assert nodes["2"]["data"]["kind"] == "load"
    assert [(one["source"], one["target"], one["dep"]) for one in edges] == [
        ("0", "1", "data"),
        ("1", "2", "data"),
    ]


def test_a_data_and_a_control_dependency_between_two_nodes_are_two_edges():
    _, edges = drawn(graph(2, data=[(0, 1), (0, 1)], ctrl=[(0, 1)]))
    assert sorted(one["dep"] for one in edges) == ["ctrl", "data"]


def test_loops_cycles_and_dangling_dependencies_are_no_obstacle():
    nodes, edges = drawn(graph(3, data=[(0, 0), (0, 1), (1, 0), (-1, 2)], ctrl=[(2, 2)]))
    assert len(nodes) == 3
    assert len(edges) == 4
    assert drawn(graph(0)) == ({}, [])


def test_hidden_counts_the_dependencies_that_lead_out_of_the_part():
    found = graph(5, data=[(0, 1), (1, 2), (2, 3), (3, 4)], ctrl=[(0, 4)])
    nodes, _ = drawn(found, find_neighbourhood(build_adjacency(found), 2, 1))
    assert {ref: one["data"]["hidden"] for ref, one in nodes.items()} == {"1": 1, "2": 0, "3": 1}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
@settings(deadline=None)
def test_nodes_are_named_as_in_addresses_also_where_ids_repeat(ids, data):
    found = graph(len(ids), ids=ids)
    rows = sorted(data.draw(st.sets(st.integers(0, len(ids) - 1), min_size=1)))
    assert figure.format_node_refs(found, np.array(rows)) == [format_node_ref(found, row) for row in rows]


@given(
    st.text(max_size=60),
    st.integers(-1, 9),
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 2**62),
)
def test_labels_of_any_name_fit_into_two_short_lines(name, number, collective, size):
    lines = figure.label_node(name, number, collective, size).split("\n")
    assert len(lines) <= 2
    assert all(len(line) <= 15 for line in lines)
    assert len(figure.label_node_briefly(name, number, collective)) <= 11


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("mb0.transformer.0.ffn.dwdown@0_COMP", "transformer\n0.ffn.dwdown"),
        ("aten::convolution_backward_overrideable", "aten\nconvolu…deable"),
        ("aten::as_strided", "aten\nas_strided"),
        ("aten::expand", "aten::expand"),
        ("c10::impl::aten::sum", "c10::impl\naten::sum"),
        ("forward", "forward"),
        ("", ""),
    ],
)
def test_labels_show_the_last_levels(name, label):
    assert figure.label_node(name, NodeType.COMP) == label


def test_types_are_told_apart_without_colour():
    shapes = [one.shape for one in figure.LOOKS.values()] + [figure.OTHER.shape]
    assert len(set(shapes)) == len(shapes) == 13
    assert figure.get_look(42) == figure.OTHER
    assert figure.get_look(-1) == figure.OTHER


def test_the_legend_counts_what_is_drawn():
    found = graph(4, types={1: 42, 2: 43})
    assert [(one.title, count) for one, count in figure.count_looks(found, np.arange(4))] == [
        ("compute", 2),
        ("other", 2),
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_shapes_stand_out_in_both_themes(dark):
    """WCAG 2.1 AA: text 4.5:1 against its node, outlines 3:1 against the page."""
    colours = DARK if dark else LIGHT
    for rule in figure.build_stylesheet(dark):
        style = rule["style"]
        if "background-color" in style:
            assert contrast(colours.text, style["background-color"]) >= 4.5
            assert contrast(style["border-color"], colours.background) >= 3


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
