"""The Graph page in a real browser: what is drawn, selected, searched and walked, and what the address says."""

from __future__ import annotations

import re

import pytest

import studio as library
from studio.cutting import Choice, cut
from studio.samples import sample_path
from tests.e2e.conftest import becomes, quiet, until, view
from tests.e2e.going import go

pytestmark = pytest.mark.e2e

CY = "document.getElementById('graph-cy')._cyreg.cy"
SAMPLE = "transformer_8r"
JOB = "one step of two ranks"
"""Half as many nodes as the sample has: their number is not what is looked at."""


@pytest.fixture(scope="module")
def one_step():
    """The first step of two ranks of the sample."""
    return cut(library.read(sample_path(SAMPLE)), Choice(ranks=frozenset({0, 1}), steps=frozenset({0}))).trace


@pytest.fixture
def studio(studio, one_step):
    """A studio with that job."""
    studio.add(one_step, JOB)
    return studio


def open_graph(studio, page, job=JOB, **view):
    go(page, studio.address("graph", job, **view))
    settled(page)


def settled(page):
    """Wait until what is drawn is what the server last sent, painted, and glides nowhere."""
    page.wait_for_selector("#graph-canvas[data-ready]")
    quiet(page)
    until(page, f"!{CY}.animated() && !{CY}.elements(':animated').length")


def drawn(page):
    return page.evaluate(f"{CY}.nodes().map(one => one.id())")


def at(page, ref):
    """The middle of a node on the screen."""
    place = page.evaluate(f"{CY}.getElementById('{ref}').renderedPosition()")
    box = page.locator("#graph-canvas").bounding_box()
    return box["x"] + place["x"], box["y"] + place["y"]


def selected(page, ref):
    until(page, f"{CY}.$('.cs-on').length === 1 && {CY}.$('.cs-on').id() === '{ref}'")


def see_a_small_graph_whole(studio, page):
    """It is drawn whole, with nothing cut off."""
    open_graph(studio, page)
    sentence = page.locator("#graph-sentence").inner_text()
    nodes, edges = re.fullmatch(r"All (\d+) nodes and (\d+) dependencies drawn\.", sentence).groups()
    assert page.evaluate(f"[{CY}.nodes().length, {CY}.edges().length]") == [int(nodes), int(edges)]
    box = page.evaluate(f"{CY}.elements().renderedBoundingBox()")
    canvas = page.locator("#graph-canvas").bounding_box()
    assert box["x1"] >= 0
    assert box["y1"] >= 0
    assert box["x2"] <= canvas["width"]
    assert box["y2"] <= canvas["height"]
    # The drawing has all the height that the window leaves.
    assert canvas["height"] > 600
    foot = page.locator(".cs-graph-foot").bounding_box()
    assert foot["y"] + foot["height"] <= 900.5


def select_clear_and_walk_back(studio, page):
    """A click selects, a click beside clears, and the back button walks back."""
    open_graph(studio, page)
    ref = drawn(page)[20]
    page.evaluate(f"void (window.sent = {CY}.nodes()[0])")
    page.mouse.click(*at(page, ref))
    selected(page, ref)
    page.wait_for_selector("#inspector h2")
    assert view(page)["node"] == ref
    # Selecting sends no elements again: the very objects drawn before are still there, and none has moved.
    assert page.evaluate(f"window.sent === {CY}.nodes()[0] && !window.sent.removed()")
    box = page.locator("#graph-canvas").bounding_box()
    page.mouse.click(box["x"] + 6, box["y"] + box["height"] - 6)
    until(page, f"{CY}.$('.cs-on').length === 0")
    assert "node" not in view(page)
    page.go_back()
    selected(page, ref)
    page.go_back()
    until(page, f"{CY}.$('.cs-on').length === 0")


def point_at_a_node(studio, page):
    """What is under the pointer is named in full."""
    open_graph(studio, page, node=60)
    page.mouse.move(*at(page, "60"))
    tip = page.locator("#graph-tip")
    tip.wait_for(state="visible")
    name = page.locator("#inspector h2").inner_text()
    assert tip.inner_text().startswith(name)
    assert "id 60" in tip.inner_text()


def change_the_theme(studio, page):
    """It changes the colours and nothing else."""
    open_graph(studio, page, node=60)
    colour = f"{CY}.getElementById('61').style('background-color')"
    light, places = page.evaluate(colour), page.evaluate(f"{CY}.nodes().map(one => one.position())")
    page.locator("#theme-toggle").click()
    page.locator("#theme-toggle").click()
    until(page, f"{colour} !== '{light}'")
    selected(page, "60")
    assert page.evaluate(f"{CY}.nodes().map(one => one.position())") == places


def walk_by_keys(studio, page):
    """Arrows, Escape and F, which are text in the search box."""
    open_graph(studio, page, node=60)
    before = page.evaluate(f"{CY}.getElementById('60').outgoers('node').map(one => one.id())")
    page.locator("#graph-canvas").focus()
    page.keyboard.press("ArrowDown")
    until(page, f"{CY}.$('.cs-on').id() !== '60'")
    assert view(page)["node"] in before
    page.keyboard.press("ArrowUp")
    until(page, f"{CY}.$('.cs-on').outgoers('node').length > 0")
    page.keyboard.press("Escape")
    until(page, f"{CY}.$('.cs-on').length === 0")
    page.evaluate(f"void {CY}.zoom(2)")
    page.keyboard.press("f")
    assert page.evaluate(f"{CY}.zoom()") < 1
    # What is typed into the search box is text, not keys.
    page.get_by_label("Search nodes").fill("")
    page.get_by_label("Search nodes").press("f")
    assert page.get_by_label("Search nodes").input_value() == "f"


def search_the_graph(studio, page):
    """The search counts its hits and steps through them."""
    open_graph(studio, page)
    page.locator("#graph-canvas").focus()
    page.keyboard.press("/")
    page.keyboard.type("all_reduce", delay=20)
    total = page.evaluate(f"{CY}.nodes().filter(one => one.data('name').includes('all_reduce')).length")
    assert total
    page.locator(".cs-graph-count", has_text=re.compile(f"^{total}$")).wait_for()
    until(page, f"{CY}.$('.cs-hit').length === {total}")
    page.keyboard.press("Enter")
    until(page, f"document.querySelector('.cs-graph-count').textContent === '1 of {total}'")
    page.keyboard.press("Enter")
    until(page, f"document.querySelector('.cs-graph-count').textContent === '2 of {total}'")
    # Faster than the answers: each of three clicks is a step.
    page.evaluate("for (let at = 0; at < 3; at++) document.getElementById('graph-next').click()")
    until(page, f"document.querySelector('.cs-graph-count').textContent === '5 of {total}'")
    page.evaluate("for (let at = 0; at < 5; at++) document.getElementById('graph-previous').click()")
    until(page, f"document.querySelector('.cs-graph-count').textContent === '{total} of {total}'")
    assert "all_reduce" in page.locator("#inspector h2").inner_text()
    assert view(page)["q"] == "all_reduce"
    assert page.evaluate("document.getElementById('graph-q').value") == "all_reduce"
    page.get_by_label("Search nodes").fill("no such node")
    page.get_by_text("no node found").wait_for()


def test_the_whole_graph_is_drawn_pointed_at_selected_walked_and_searched(studio, page):
    see_a_small_graph_whole(studio, page)
    select_clear_and_walk_back(studio, page)
    point_at_a_node(studio, page)
    change_the_theme(studio, page)
    walk_by_keys(studio, page)
    search_the_graph(studio, page)


def follow_a_link(studio, page):
    """A link shows its part, and the controls follow."""
    open_graph(studio, page, node=60, show="near", depth=2, dir="up", deps="data")
    selected(page, "60")
    first = drawn(page)
    for name, value in {"Depth": "2", "Direction": "upwards", "Dependencies": "data only"}.items():
        becomes(page, page.get_by_role("textbox", name=name).input_value, value)
    assert page.evaluate(f"{CY}.edges('[dep = \"ctrl\"]').length") == 0
    sentence = page.locator("#graph-sentence").inner_text()
    assert re.match(rf"{len(first)} of \d+ nodes drawn: within 2 data dependencies above ", sentence)
    # The same in the document that is open, whatever it showed before.
    open_graph(studio, page, show="whole")
    assert len(drawn(page)) > len(first)
    open_graph(studio, page, node=60, show="near", depth=2, dir="up", deps="data")
    becomes(page, lambda: drawn(page), first)


def use_the_controls(studio, page):
    """They change the drawing and the address, and go back with it."""
    open_graph(studio, page, node=60, show="near", depth=1)
    before = len(drawn(page))
    page.get_by_role("textbox", name="Depth").click()
    page.get_by_role("option", name="4", exact=True).click()
    until(page, f"{CY}.nodes().length > {before}")
    assert view(page)["depth"] == "4"
    page.get_by_role("textbox", name="Dependencies").click()
    page.get_by_role("option", name="control").click()
    until(page, f"{CY}.edges('[dep = \"data\"]').length === 0")
    assert view(page)["deps"] == "ctrl"
    page.go_back()
    until(page, f"{CY}.edges('[dep = \"data\"]').length > 0")
    page.go_back()
    until(page, f"{CY}.nodes().length === {before}")
    until(page, "document.getElementById('graph-depth').value === '1'")
    page.get_by_text("Whole", exact=True).click()
    until(page, f"{CY}.nodes().length > 100")
    assert view(page)["show"] == "whole"


def look_around(studio, page):
    """A click keeps the neighbourhood, a double click centres it."""
    open_graph(studio, page, node=60, show="near", depth=2)
    before = drawn(page)
    edge = page.evaluate(f"{CY}.nodes('[hidden > 0]')[0].id()")
    page.mouse.click(*at(page, edge))
    selected(page, edge)
    quiet(page)
    assert drawn(page) == before
    assert view(page)["at"] == "60"
    page.mouse.dblclick(*at(page, edge))
    until(
        page, f"{CY}.getElementById('60').length === 0 || {CY}.getElementById('{edge}').data('hidden') === 0"
    )
    selected(page, edge)
    assert "at" not in view(page)


def follow_a_neighbour(studio, page):
    """One of the inspector's that is not drawn becomes the centre."""
    open_graph(studio, page, node=60, show="near", depth=1, dir="up")
    there = page.locator("#inspector .cs-neighbours").last.locator("a").first
    there.click()
    until(page, f"{CY}.$('.cs-on').length === 1 && {CY}.$('.cs-on').id() !== '60'")
    assert view(page)["node"] in drawn(page)


def test_the_neighbourhood_of_a_node_follows_links_controls_and_clicks(studio, page):
    follow_a_link(studio, page)
    use_the_controls(studio, page)
    look_around(studio, page)
    follow_a_neighbour(studio, page)


def fold_and_unfold(studio, page):
    """Blocks are opened in place and closed again, by pointer and keys."""
    open_graph(studio, page, job=SAMPLE, show="fold", by="scope", open="none")
    places = f"Object.fromEntries({CY}.nodes().map(one => [one.id(), one.position()]))"
    corner = "(box => [Math.round(box.x1), Math.round(box.y1)])({}.renderedBoundingBox({{includeLabels: false, includeOverlays: false}}))"
    closed = page.evaluate(places)
    sentence = page.locator("#graph-sentence").inner_text()
    assert re.match(r"1 node drawn, 296 of 297 nodes folded into 2 blocks; .* within blocks\.", sentence)
    page.locator("#graph-canvas").focus()
    page.keyboard.press("ArrowDown")
    until(page, f"{CY}.$('.cs-on').length === 1")
    block = view(page)["block"]
    before = page.evaluate(corner.format(f"{CY}.$('.cs-on')"))
    page.mouse.dblclick(*at(page, f"b{block}"))
    until(page, f"{CY}.$('[kind = \"frame\"]').length === 1")
    settled(page)
    assert view(page) | {"open": block, "block": block, "show": "fold"} == view(page)
    after = page.evaluate(corner.format(f"{CY}.$('[kind = \"frame\"]')"))
    assert max(abs(one - other) for one, other in zip(before, after, strict=True)) < 6
    page.keyboard.press("Backspace")
    until(page, f"{CY}.$('[kind = \"frame\"]').length === 0")
    settled(page)
    # Closed again, everything stands where it stood.
    again = page.evaluate(places)
    assert all(again[ref][axis] == closed[ref][axis] for ref in closed for axis in "xy")
    page.keyboard.press("Enter")
    until(page, f"{CY}.$('[kind = \"frame\"]').length === 1")
    settled(page)
    # Both at once: the drawing may be gliding into sight.
    frame, inside = page.evaluate(
        f"[{CY}.$('[kind = \"frame\"]').renderedBoundingBox({{includeOverlays: false}}),"
        f" {CY}.$('[inside = \"{block}\"]').renderedBoundingBox()]"
    )
    assert frame["x1"] <= inside["x1"] <= inside["x2"] <= frame["x2"]
    assert frame["y1"] <= inside["y1"] <= inside["y2"] <= frame["y2"]
    # A search opens what is around its hit, and the address keeps it.
    page.keyboard.press("/")
    page.keyboard.type("all_reduce", delay=20)
    page.locator(".cs-graph-count").wait_for()
    page.keyboard.press("Enter")
    until(page, f"{CY}.$('.cs-on').length === 1 && {CY}.$('.cs-on').data('name').includes('all_reduce')")
    page.reload()
    settled(page)
    until(page, f"{CY}.$('.cs-on').length === 1 && {CY}.$('.cs-on').data('name').includes('all_reduce')")
    page.locator("#graph-canvas").focus()
    page.keyboard.press("Backspace")
    until(page, f"{CY}.$('.cs-on').data('kind') === 'block'")
    page.go_back()
    until(page, f"{CY}.$('.cs-on').length === 1 && {CY}.$('.cs-on').data('name').includes('all_reduce')")
    page.get_by_role("textbox", name="Fold by").click()
    page.get_by_role("option", name="comm group").click()
    until(page, f"{CY}.$('[name = \"no comm group\"]').length === 1")
    assert view(page)["by"] == "group"


def click_faster_than_the_answers(studio, page):
    """Two blocks are opened and two kinds hidden before any answer to the first."""
    open_graph(studio, page, job=SAMPLE, show="fold", by="type", open="none")
    blocks = page.evaluate(f"{CY}.nodes('[block]').map(one => one.data('block'))")[:2]
    assert len(blocks) == 2
    page.evaluate(f"refs => refs.forEach(ref => {CY}.$id('b' + ref).emit('dbltap'))", blocks)
    until(page, lambda: set(view(page)["open"].split(",")) == set(blocks))
    until(page, f"{CY}.$('[kind = \"frame\"]').length === 2")
    kinds = page.evaluate(
        "[...document.querySelectorAll('#graph-legend [data-filter]')].slice(0, 2).map(one => (one.click(), one.dataset.filter))"
    )
    assert set(view(page)["hide"].split(",")) == set(kinds)


def test_a_graph_is_folded_and_unfolded(studio, page):
    fold_and_unfold(studio, page)
    click_faster_than_the_answers(studio, page)


def see_what_holds_a_rank_up(studio, page):
    """The critical path is drawn, coloured, filtered and saved."""
    open_graph(studio, page, show="whole")
    page.locator("#graph-canvas").focus()
    page.keyboard.press("c")
    until(page, f"{CY}.nodes('[?crit]').length > 10")
    assert "Critical path" in page.locator("#graph-sentence").inner_text()
    page.get_by_role("textbox", name="Colour by").click()
    page.get_by_role("option", name="comm group").click()
    until(page, f"{CY}.nodes('[hue = \"c0\"]').length > 0")
    assert view(page) | {"crit": "1", "colour": "group"} == view(page)
    # The legend hides what it stands for, faintly and in place.
    page.locator("#graph-legend [data-filter=none]").click()
    until(page, f"{CY}.nodes('.cs-hidden').length === {CY}.nodes('[hue = \"none\"]').length")
    assert view(page)["hide"] == "none"
    # The map has the selected node, and leads to another.
    page.wait_for_selector("#graph-map[data-ready]")
    box = page.locator("#graph-map").bounding_box()
    page.locator("#graph-map").focus()
    page.keyboard.press("End")
    assert page.locator("#graph-map").get_attribute("aria-valuetext").startswith("100 % of the depth")
    page.keyboard.press("Enter")
    until(page, f"{CY}.$('.cs-on').length === 1 && {CY}.$('.cs-on').data('m')[1] === 1")
    page.locator("#graph-map-marks .cs-map-node").wait_for(state="attached")
    last = view(page)["node"]
    page.locator("#graph-canvas").focus()
    page.keyboard.press("p")
    until(page, f"{CY}.nodes().length === 1")
    page.locator("#graph-map").click(position={"x": box["width"] / 2, "y": box["height"] - 3})
    until(page, f"{CY}.nodes().length > 2")
    sentence = page.locator("#graph-sentence").inner_text()
    assert re.match(r"(All paths|A shortest path) between ", sentence)
    assert {last, view(page)["node"]} <= set(drawn(page))
    page.get_by_text("Gates", exact=True).click()
    page.get_by_text("waited for last, and so on up").wait_for()
    for kind, begins in {
        "svg": b"<svg ",
        "graphml": b"<graphml",
        "dot": b"digraph",
        "csv": b"id,name",
        "png": b"\x89PNG",
    }.items():
        page.locator(".cs-graph-save summary").click()
        with page.expect_download() as download:
            page.locator(f"[data-graph-save={kind}]").click()
        content = download.value.path().read_bytes()
        assert content[:100].strip().startswith(begins)
    page.locator("#graph-canvas").focus()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys of the Graph page").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.get_by_label("Search nodes").fill("/(/")
    page.get_by_text("/(/ is not a regular expression").wait_for()


def choose_another_rank(studio, page):
    """Another rank is one choice away, here of another job."""
    go(page, studio.address("graph", "transformer_32r"))
    settled(page)
    becomes(page, page.get_by_role("textbox", name="Rank").input_value, "0")
    page.get_by_role("textbox", name="Rank").click()
    page.get_by_role("textbox", name="Rank").fill("31")
    page.get_by_role("option", name="31").click()
    page.wait_for_url("**rank=31*")
    settled(page)
    becomes(page, page.get_by_role("textbox", name="Rank").input_value, "31")


def ask_for_what_is_not_there(studio, page):
    """A rank or a node that is not there is told."""
    go(page, studio.address("graph", JOB, rank=99))
    page.get_by_text("This job has no rank '99'.").first.wait_for()
    go(page, studio.address("graph", JOB, node="nonsense"))
    settled(page)
    page.get_by_text("This rank has no node 'nonsense'.").wait_for()
    assert len(drawn(page)) > 100


def close_the_job(studio, page):
    """Without a job the way to one is shown."""
    go(page, f"{studio.url}/graph")
    page.get_by_text("No job is open").wait_for()
    assert page.locator("#graph-canvas").is_hidden()


def test_what_holds_a_rank_up_is_saved_and_other_ranks_and_jobs_are_shown(studio, page):
    see_what_holds_a_rank_up(studio, page)
    choose_another_rank(studio, page)
    ask_for_what_is_not_there(studio, page)
    close_the_job(studio, page)
