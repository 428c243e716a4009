"""What people type into the search of a graph, and what it finds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from studio.analysis.graph.nameparts import NameParts
from studio.analysis.graph.search import find_rows, number_kinds
from studio.errors import TraceError
from studio.views.graph import _name_kind
from tests.handmade import collective, node, trace_of


@pytest.fixture
def job():
    return trace_of([[
        node(1, "COMP", name="layer0.Forward"),
        collective(7, "ALL_REDUCE", 64, 1, group="tp0", name="grads"),
        collective(8, "ALL_GATHER", 64, 7, group="dp1", name="layer1.x"),
        node(71, "MEM_LOAD", name="all-reduce.buffer"),
    ]])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("FORWARD", [0]),
        ("layer", [0, 2]),
        ("7", [1]),
        ("id:71", [3]),
        ("id:x", []),
        ("all-reduce", [1, 3]),
        ("type:all-reduce", [1]),
        ("type:all_reduce", [1]),
        ("type:compute", [0]),
        ("type:collective", [1, 2]),
        ("group:TP", [1]),
        ("group:nobody", []),
        ("/^layer[01]/", [0, 2]),
        ("/", []),
        ("type:", []),
        ("ä", []),
    ],
)
def test_a_search_finds(job, text, rows):
    found = job.graphs[0]
    groups = [str(one) for one in job.ranks[0].slots]
    assert find_rows(found, NameParts(found), number_kinds(found), text, _name_kind, groups).tolist() == rows


def test_a_wrong_regular_expression_is_told(job):
    found = job.graphs[0]
    with pytest.raises(TraceError, match=r"/\(a/ is not a regular expression"):
        find_rows(found, NameParts(found), number_kinds(found), "/(a/", _name_kind, [])


def test_parts_of_names_are_numbered_alike_if_and_only_if_they_are_the_same():
    pieces = ["a", "a\0", "a\0\0", "", "abcdefgh", "abcdefg", "abcdefghi", "bcdefgh", "é", "step12", "step1"]
    for chosen in (pieces, [piece for piece in pieces if "\0" not in piece and len(piece) < 9]):
        names = [f"{piece}.x" for piece in (*chosen, *chosen)]
        trace = trace_of([[node(row, "COMP", name=name) for row, name in enumerate(names)]])
        parts = NameParts(trace.graphs[0])
        rows = np.arange(len(names))
        keys, labels = parts.keys(rows, 0).tolist(), parts.labels(rows, 0)
        there = [row for row in rows.tolist() if keys[row] >= 0]
        assert len({(keys[row], labels[row]) for row in there}) == len({keys[row] for row in there})
        assert (
            len({keys[row] for row in there})
            == len({labels[row] for row in there})
            == len(set(chosen) - {""})
        )


@pytest.mark.integration
def test_graphs_are_searched_and_drawn_without_pandas_and_masked_arrays():
    """Both take longer to import than the drawing of a hundred thousand nodes."""
    script = """
import sys
import numpy as np
import studio
from studio.analysis.graph.nameparts import NameParts
from studio.analysis.graph.search import number_kinds
graph = studio.read(studio.sample_path("transformer_8r")).graphs[0]
parts = NameParts(graph)
parts.containing("a"), parts.matching("a"), parts.keys(np.arange(len(graph)), 0), number_kinds(graph)
from studio.analysis.graph.levels import Source, choose_level, list_levels
from studio.analysis.graph.neighbours import build_adjacency
from studio.figures.rank_graph import Asked, draw_rank
from studio.trace import Rank
assert len(draw_rank(graph, Rank(0, 0), Asked(fold="step")).elements) > 9
assert choose_level(list_levels(Source(graph, build_adjacency(graph), parts, ()))) == "step"
assert not {"pandas", "numpy.ma"} & set(sys.modules), sorted({"pandas", "numpy.ma"} & set(sys.modules))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
