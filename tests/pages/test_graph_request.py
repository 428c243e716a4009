"""Which part of a graph an address asks for, and what is said about it."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from studio.errors import TraceError
from studio.session import Session
from studio.trace import NodeType, Rank, Trace
from studio.units import time_unit
from studio.views import graph as graph_view
from studio.views import graph_paint, graph_words
from tests.graphs import graph


@pytest.fixture
def jobs(monkeypatch):
    """Jobs by name, each of one rank."""
    chain = [(one, one + 1) for one in range(1999)]
    found = {
        "small": graph(5, data=[(0, 1), (1, 2), (2, 3), (3, 4)]),
        "large": graph(2000, data=chain, types={700: NodeType.COMM_COLL}),
        "plain": graph(2000, data=chain),
        "timed": replace(graph(2000, data=chain), duration_ns=np.full(2000, 2_000_000_000)),
        "empty": graph(0),
        "odd": graph(4, data=[(0, 0), (0, 1), (1, 0), (-1, 2)], ids=[7, 7, 8, 9]),
    }
    traces = {name: Trace((one,), (Rank(3, 0),)) for name, one in found.items()}
    traces["nothing"] = Trace((), ())
    monkeypatch.setattr(sys.modules[__name__], "SESSION", Given(traces))
    monkeypatch.setattr(graph_view, "choose_shown_run", lambda _session, _job, _view: None)
    return traces


class Given(Session):
    """A session of traces that lie in no workspace."""

    def __init__(self, traces):
        super().__init__(SimpleNamespace(require=lambda *_: None), budget_bytes=1 << 30)
        self.trace = traces.__getitem__


SESSION = Session(SimpleNamespace(), budget_bytes=0)


def ask(**view):
    return graph_view.read_request(SESSION, view)


def test_a_small_graph_is_whole_unless_a_neighbourhood_is_asked_for(jobs):
    assert ask(job="small", node="2") == (graph_view.Request(SESSION, "small", 0, "both"), "")
    near, note = ask(job="small", node="2", show="near", depth="1")
    assert (near.centre, near.depth, note) == (2, 1, "")
    assert graph_view.build_part(near).rows.tolist() == [1, 2, 3]


def test_a_neighbourhood_without_a_node_starts_at_the_first_communication_and_says_so(jobs):
    asked, note = ask(job="large", show="near")
    assert asked.centre == 700
    assert "first communication node" in note
    asked, note = ask(job="plain", show="near")
    assert asked.centre == 0
    assert "first node" in note


def test_a_large_graph_is_folded_and_opens_around_the_node_that_is_selected(jobs):
    asked, note = ask(job="large")
    assert (asked.mode, asked.by, asked.opened, note) == ("fold", "order", (), "")
    drawn = graph_view.build_asked_elements(asked)
    assert sum(one["data"]["count"] for one in drawn if one["group"] == "nodes") == 2000
    assert sum(one["group"] == "edges" for one in drawn) == 23
    # From afar only the first names of a block may have room: how many nodes it has tells blocks apart.
    blocks = [one["data"] for one in drawn if one["data"].get("kind") == "block"]
    assert [one["short"].partition("\n")[2] for one in blocks] == [f"{one['count']} nodes" for one in blocks]
    opened = graph_view.build_asked_elements(ask(job="large", show="fold", by="order", open="0")[0])
    assert [one["data"]["short"] for one in opened if one["data"].get("kind") == "frame"] == ["1 to 83"]
    asked, _ = ask(job="large", show="fold", by="order", open="none", node="1234")
    refs = [one["data"]["id"] for one in graph_view.build_asked_elements(asked) if one["group"] == "nodes"]
    assert "1234" in refs
    assert len(refs) < 100
    asked, note = ask(job="plain", show="whole")
    assert asked.mode == "fold"
    assert "The whole graph has 3,999 nodes and dependencies; 1,500 can be drawn." in note


def test_a_drawing_says_times_in_the_unit_that_is_chosen_also_where_another_is_kept(jobs):
    """Any text may be in the cookie: what is no unit counts as none."""
    said = []
    for unit in ("", "ms", "µs <b>", "ms"):
        token = time_unit.set(unit)
        try:
            asked, _ = ask(job="timed")
            labels = [one["data"].get("label", "") for one in graph_view.build_asked_elements(asked)]
        finally:
            time_unit.reset(token)
        said.append("".join(labels))
        assert asked.unit == (unit if unit == "ms" else "")
    assert said[0] == said[2] != said[1] == said[3]
    assert " min" in said[0]
    assert " ms" in said[1]


@pytest.mark.parametrize(
    ("text", "opened"),
    [("0,0.3", ((0,), (0, 3))), ("none", ()), ("0,0", ((0,),)), ("-1,x,9.9.9,²", ((9, 9, 9),)), ("", ())],
)
def test_any_text_in_the_address_says_which_blocks_are_open(jobs, text, opened):
    assert ask(job="plain", show="fold", open=text)[0].opened == opened
    assert graph_view.build_asked_elements(ask(job="plain", show="fold", open=text)[0])


def test_the_centre_stays_for_nodes_around_it_and_follows_those_further_away(jobs):
    assert ask(job="large", node="900")[0].centre == 900
    assert ask(job="large", node="902", at="900")[0].centre == 900
    assert ask(job="large", node="906", at="900")[0].centre == 906
    assert ask(job="large", show="near", at="900")[0].centre == 900


@pytest.mark.parametrize(
    ("depth", "used"),
    [("1", 1), ("10", 10), ("11", 10), ("0", 1), ("-1", 2), ("x", 2), ("9" * 30, 10), ("²", 2)],
)
def test_any_text_in_the_address_gives_a_depth(jobs, depth, used):
    assert ask(job="large", show="near", depth=depth)[0].depth == used


def test_other_values_that_are_not_allowed_count_as_none(jobs):
    asked, _ = ask(job="large", show="near", dir="sideways", deps="all", at="nonsense", node="nobody")
    assert (asked.direction, asked.deps, asked.centre) == ("both", "both", 700)


def test_odd_graphs_are_drawn(jobs):
    empty, note = ask(job="empty", show="near", node="1")
    assert (graph_view.build_asked_elements(empty), note) == ([], "")
    odd, _ = ask(job="odd")
    nodes = [one["data"]["id"] for one in graph_view.build_asked_elements(odd) if one["group"] == "nodes"]
    assert nodes == ["7", "7.1", "8", "9"]
    near, _ = ask(job="odd", show="near", node="7.1", deps="ctrl")
    assert graph_view.build_part(near).rows.tolist() == [1]


def test_ranks_that_are_not_there_are_refused(jobs):
    with pytest.raises(TraceError, match="no rank '4'"):
        ask(job="small", rank="4")
    with pytest.raises(TraceError, match="no ranks"):
        ask(job="nothing")


def test_hits_are_nodes_whose_name_contains_the_text_or_whose_id_it_is(jobs):
    jobs["named"] = Trace((graph(4, names={0: "A.b", 1: "a.B", 2: "c1"}, ids=[5, 6, 7, 1]),), (Rank(0, 0),))
    assert graph_view.find_hits(SESSION, "named", 0, "a.b").tolist() == [0, 1]
    assert graph_view.find_hits(SESSION, "named", 0, "1").tolist() == [2, 3]
    assert graph_view.find_hits(SESSION, "named", 0, "9" * 40).tolist() == []


def test_the_same_drawing_has_the_same_name_on_every_rank_that_shares_the_graph(jobs):
    small = jobs["small"]
    jobs["small"] = replace(small, ranks=(Rank(0, 0), Rank(1, 0)))
    assert graph_view.build_drawing_key(ask(job="small", rank="0")[0]) == graph_view.build_drawing_key(
        ask(job="small", rank="1")[0]
    )


def test_paths_gates_and_colours_are_drawn_of_any_graph(jobs):

    asked, _ = ask(job="large", show="path", node="705", anchor="702")
    assert graph_view.build_part(asked).rows.tolist() == [702, 703, 704, 705]
    assert graph_words.describe_paths(asked) == "All paths between n702 and n705: 4 nodes and 3 dependencies."
    asked, _ = ask(job="odd", show="path", node="9", anchor="8")
    assert graph_words.describe_paths(asked) == "No path of dependencies leads from n2 to n3, nor back."
    asked, _ = ask(job="small", show="gate", node="3")
    assert graph_view.build_part(asked).rows.tolist() == [0, 1, 2, 3]
    assert graph_words.gate_sentence(asked).startswith("What n3 waited for last, and so on up: 4 nodes")
    for show in ("fold", "near"):
        asked, _ = ask(job="large", show=show, crit="1", colour="slack", wide="1")
        drawn = graph_view.build_asked_elements(asked)
        assert all(one["data"].get("crit") == 1 for one in drawn)
        assert {one["data"]["hue"] for one in drawn if one["group"] == "nodes"} == {"s0"}


def test_differences_are_those_to_another_run(jobs, monkeypatch):
    """Without a choice the first other run is meant, never the one that is shown, and never times of 0."""
    runs = [{"value": one, "label": f"run {one}"} for one in ("b", "a")]
    for module in (graph_view, graph_words):
        monkeypatch.setattr(module, "list_run_options", lambda _session, _job: runs)
    monkeypatch.setattr(graph_view, "choose_shown_run", lambda _session, _job, view: view["run"])
    spans = {"a": 10, "b": 13}
    monkeypatch.setattr(
        graph_paint, "collect_node_spans", lambda *place: (np.zeros(5, np.int64), np.full(5, spans[place[3]]))
    )
    rows = [[0], [1, 2]]
    view = {"job": "small", "colour": "difference"}
    for shown, other in (("a", {}), ("a", {"with": "a"}), ("a", {"with": "b"}), ("a", {"with": "gone"})):
        asked = ask(**view, run=shown, **other)[0]
        assert (asked.against, asked.run) == ("b", "a")
        assert graph_paint._choose_hues(asked, rows)[2] == ["difference +3 ns", "difference +6 ns"]
    assert "with run b than with run a" in graph_words.describe_difference(asked)
    runs.pop(0)
    asked = ask(**view, run="a")[0]
    assert asked.against is None
    assert graph_paint._choose_hues(asked, rows)[2] == ["", ""]
    assert "no other run" in graph_words.describe_difference(asked)
