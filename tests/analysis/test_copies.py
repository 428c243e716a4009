"""Copies (memcpy, memset) are a type, a category and a part of the time of their own, in every place the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from studio.analysis.job.export import to_pandas
from studio.analysis.job.kinds import COMPUTE, CPU, infer_node_kinds
from studio.analysis.job.kinds import COPY as COPIES
from studio.analysis.job.nodes import NodeIndex, Query
from studio.analysis.job.summary import summarise
from studio.analysis.timeline.coverage import Category, classify_spans
from studio.et.build import build_graph
from studio.figures.graph import LOOKS
from studio.figures.theme import choose_palette
from studio.pages.overview.words import _COLOUR
from studio.timeline import recorded
from studio.trace import COPY, NodeType, Rank, Trace, are_copies, get_shown_type, get_shown_types

ASSETS = Path(__file__).parents[2] / "assets"
NODES = (
    ("gemm", {"is_cpu_op": False, "device_kind": "kernel"}),
    ("anything", {"is_cpu_op": False, "device_kind": "memcpy"}),
    ("anything else", {"device_kind": "memset"}),
    ("Memcpy DtoH (Device -> Pinned)", {"is_cpu_op": False}),
    ("__amd_rocclr_fillBufferAligned", {}),
    ("Memcpy on the host", {"is_cpu_op": True}),
    ("not Memcpy", {}),
)


def job() -> Trace:
    """One rank of NODES, one after another, each on a stream."""
    nodes = [
        {
            "id": number,
            "type": "COMP_NODE",
            "name": name,
            "duration_micros": 1,
            "attrs": {**attrs, "stream": 7},
        }
        for number, (name, attrs) in enumerate(NODES)
    ]
    graph, slots = build_graph(nodes)
    graph.start_ns[:] = np.arange(len(NODES)) * 1000
    return Trace((graph,), (Rank(0, 0, slots),))


def test_copies_are_told_by_kind_and_by_name_but_not_on_the_host() -> None:
    graph = job().graphs[0]
    expected = [False, True, True, True, True, False, False]
    assert are_copies(graph).tolist() == expected
    assert [get_shown_type(graph, row) == COPY for row in range(len(graph))] == expected
    assert (get_shown_types(graph) == COPY).tolist() == expected
    assert set(graph.type.tolist()) == {NodeType.COMP}, "the file's types stay"


def test_every_view_shows_them_as_copies() -> None:
    trace = job()
    assert [(share.name, share.nodes) for share in summarise(trace).types] == [("COPY", 4), ("COMP", 3)]
    index = NodeIndex(trace)
    assert [node.type for node in index.rows(Query(), 0, 3)] == ["COMP", "COPY", "COPY"]
    assert to_pandas(trace, 0)["type"].tolist().count("COPY") == 4
    kinds = infer_node_kinds(trace.graphs[0])
    assert kinds.tolist() == [COMPUTE, COPIES, COPIES, COPIES, COPIES, CPU, COMPUTE]
    timeline = recorded(trace)
    shown = classify_spans(timeline, trace)
    by_row = {int(row): Category(int(kind)).name for row, kind in zip(timeline.row, shown, strict=True)}
    assert [by_row[row] for row in range(5)] == ["COMPUTE", "COPY", "COPY", "COPY", "COPY"]
    assert by_row[5] == "HOST"


def test_scripts_and_python_have_the_same_categories() -> None:
    """The numbers in a tile are places in the script's list."""
    source = (ASSETS / "timeline" / "chart.mjs").read_text()
    listed = re.search(r"CATEGORIES = \[(.*)\]", source)
    assert listed is not None
    assert re.findall(r"\w+", listed[1]) == [kind.name.lower() for kind in Category]
    look = re.search(r"COLOURS = .*?\[(.*?)\]", (ASSETS / "timeline" / "look.mjs").read_text(), re.DOTALL)
    assert look is not None
    assert len(re.findall(r"\w+", look[1])) == len(Category)


@pytest.mark.parametrize("dark", [False, True])
def test_tokens_and_figures_have_one_colour_for_copies(dark: bool) -> None:
    tokens = re.findall(r"--cs-copy: (#\w+);", (ASSETS / "tokens.css").read_text())
    assert tokens[dark] == choose_palette(dark).copy
    assert (LOOKS[COPY].colour, _COLOUR["COPY"]) == ("copy", "copy")
