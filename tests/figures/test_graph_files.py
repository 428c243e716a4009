"""What is drawn, as files that other programs read."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET

import networkx as nx
import pytest

from studio.analysis.graph.neighbours import build_adjacency, select_whole_graph
from studio.figures.graph import build_elements
from studio.figures.graph_files import SAID, render_csv, render_dot, render_graphml, render_svg, write_drawing
from studio.trace import NodeType
from tests.graphs import graph

HOSTILE = '<b onload="x">\0"\n\\&=1'


@pytest.fixture
def drawn():
    found = graph(4, data=[(0, 1), (1, 2)], ctrl=[(0, 3)], names={1: HOSTILE}, types={2: NodeType.COMM_COLL})
    near = build_adjacency(found)
    nodes = build_elements(found, select_whole_graph(near), near)
    nodes[0]["data"]["crit"] = 1
    block = {"id": "b0", "block": "0", "kind": "block", "name": HOSTILE, "label": HOSTILE, "short": "", "count": 9,
             "time": "", "bytes": "", "parts": [["comp", 0.5], ["coll", 0.5]]}  # fmt: skip
    frame = {"id": "f1", "block": "1", "kind": "frame", "name": "open", "label": "open", "w": 300, "h": 200}
    line = {"id": "b0>0", "source": "b0", "target": "0", "dep": "data", "far": 1, "lw": 2.0, "times": "12"}
    at = {"x": 10.0, "y": 20.0}
    return [
        {"group": "nodes", "data": frame, "position": at},
        {"group": "nodes", "data": block, "position": at},
        *nodes,
        {"group": "edges", "data": line},
    ]


def test_svg_holds_every_node_line_and_name_and_no_markup_of_a_name(drawn):
    for dark in (False, True):
        root = ET.fromstring(render_svg(drawn, dark=dark))
        tag = "{http://www.w3.org/2000/svg}"
        assert len(root.findall(f"{tag}g")) == 5
        assert len(root.findall(f"{tag}path")) == 4
        assert not list(root.iter(f"{tag}b"))
        titles = [one.text for one in root.iter(f"{tag}title")]
        assert sum("onload" in one for one in titles) == 2


def test_graphml_and_dot_hold_the_same_graph(drawn):
    network = nx.parse_graphml(render_graphml(drawn))
    assert sorted(network) == ["0", "1", "2", "3", "b0"]
    assert sorted((one, other) for one, other, *_ in network.edges) == [
        ("0", "1"),
        ("0", "3"),
        ("1", "2"),
        ("b0", "0"),
    ]
    assert network.nodes["2"]["type"] == "COMM_COLL"
    text = render_dot(drawn)
    assert text.count(" -> ") == 4
    assert '"0" -> "3" [style=dashed];' in text
    assert '"b0" -> "0" [label="12"];' in text
    assert '\\"x\\"' in text


def test_a_table_lists_what_is_drawn_and_is_no_formula(drawn):
    rows = list(csv.DictReader(io.StringIO(render_csv(drawn))))
    assert [row["id"] for row in rows] == ["f1", "b0", "0", "1", "2", "3"]
    assert rows[1]["count"] == "9"
    assert render_csv([{"group": "nodes", "data": {"id": "1", "name": "=1+1", "kind": "comp"}}]).endswith(
        "1,'=1+1,comp,,,,,\n"
    )


@pytest.mark.parametrize("kind", SAID)
def test_nothing_is_a_file_too(kind):
    assert write_drawing(kind, [])
