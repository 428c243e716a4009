"""The inspector: what it says leads on, and it can be pinned."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import studio as library
from studio.analysis.collectives.arrivals import Arrivals, find_arrivals
from studio.analysis.job.node_refs import format_node_ref
from studio.timeline import NodeTimes, collect_node_times, recorded
from studio.trace import NodeType, Trace, list_node_attributes
from tests.e2e.accessibility import COLOURS, GUIDELINES, hold_against
from tests.e2e.conftest import Studio, becomes, quiet, until, view
from tests.e2e.going import go

pytestmark = pytest.mark.e2e

LINKS = """() => Object.fromEntries([...document.querySelectorAll("#inspector dt")].map((one) => {
    const links = [...one.nextSibling.querySelectorAll("a")].map((a) => [a.textContent, new URL(a.href)]);
    return [one.textContent, links.map(([words, to]) => [words, to.pathname, Object.fromEntries(to.searchParams)])];
}))"""
"""Words, path and view of the links of each fact."""


def shown_in_inspector(page) -> tuple[str, str]:
    """Name and id of the node that the inspector tells of; "" while it tells of none."""
    return tuple(
        page.evaluate(
            """() => {
                const facts = [...document.querySelectorAll("#inspector dt")].filter((one) => one.textContent === "id");
                return [document.querySelector("#inspector h2")?.textContent ?? "", facts[0]?.nextSibling.textContent ?? ""];
            }"""
        )
    )


def test_a_pinned_node_stays_while_the_selection_moves_to_other_nodes_pages_and_jobs(
    studio: Studio, page
) -> None:
    """By keyboard; it says of which job and rank it is, and a shared link holds it. Unpinned, the selection is shown again."""
    page.emulate_media(color_scheme="light")
    page.goto(studio.address("nodes", "transformer_8r", rank=3, node=40))
    page.wait_for_selector("#inspector h2")
    name, _ = shown_in_inspector(page)
    page.locator("#inspector button", has_text="Pin").focus()
    page.keyboard.press("Enter")
    pinned = page.locator(".cs-pinned", has_text="Pinned: rank 3 of transformer_8r, as recorded")
    pinned.wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Unpin"
    for scheme, rules in (("light", GUIDELINES), ("dark", COLOURS)):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-mantine-color-scheme='{scheme}']", state="attached")
        hold_against(page, rules, "#inspector")
    page.evaluate("window.studio.view.changeView({ rank: '0', node: '7' })")
    for path in ("/timeline", "/", "/overview"):
        page.click(f"nav a[href^='{path}?'], nav a[href='{path}']")
        page.wait_for_url(f"**{path}?*pin=*")
        quiet(page)
        assert shown_in_inspector(page) == (name, "40")
    other = studio.job("imbalance_8r")
    page.evaluate("job => window.studio.view.goTo('/overview', { job, node: '3' })", other)
    page.wait_for_selector(".cs-facts")
    quiet(page)
    page.goto(page.url)  # as somebody else opens a link to it
    pinned.wait_for()
    assert (view(page)["job"], shown_in_inspector(page)) == (other, (name, "40"))
    page.locator("#inspector button", has_text="Unpin").press("Enter")
    becomes(page, lambda: shown_in_inspector(page)[1], "3")
    assert "pin" not in view(page)
    assert page.evaluate("document.activeElement.textContent") == "Pin"
    assert page.locator(".cs-pinned").count() == 0


def test_a_pinned_node_is_selected_again_and_leads_to_its_neighbours_and_closes(studio: Studio, page) -> None:
    """What is clicked in it moves the selection; going back to before the pin unpins."""
    page.goto(studio.address("overview", "transformer_8r", rank=3, node=40))
    page.click("#inspector >> text=Pin")
    page.wait_for_selector(".cs-pinned")
    page.evaluate("window.studio.view.changeView({ rank: '0', node: '7' })")
    page.click("#inspector .cs-neighbours a >> nth=0")
    until(page, lambda: view(page)["rank"] == "3" and view(page)["node"] not in ("7", "40"))
    page.click("#inspector >> text=Select it")
    until(page, lambda: (view(page)["rank"], view(page)["node"]) == ("3", "40"))
    quiet(page)
    assert shown_in_inspector(page)[1] == "40"
    page.click("#inspector >> text=Close")
    until(page, lambda: page.locator("#inspector h2").count() == 0)
    assert not {"pin", "node"} & view(page).keys()
    for _ in range(5):
        page.go_back()
    until(page, lambda: page.locator("#inspector button", has_text=re.compile("^Pin$")).count() == 1)


LINKS = """() => Object.fromEntries([...document.querySelectorAll("#inspector dt")].map((one) => [
    one.textContent,
    [...one.nextSibling.querySelectorAll("a")].map((a) => [a.textContent, new URL(a.href).pathname, Object.fromEntries(new URL(a.href).searchParams)]),
]))"""


def first_node(trace: Trace, rank: int, kind: NodeType, **wanted: object) -> tuple[str, dict[str, object]]:
    """The first node of a type, in a comm group where one is told, with its attributes by name."""
    who = trace.rank(rank)
    graph = trace.graph_of(who)
    for row in np.flatnonzero(graph.type == kind).tolist():
        values = {one.name: one.value for one in list_node_attributes(graph, row, who.slots)}
        if wanted.items() <= values.items():
            return format_node_ref(graph, row), values
    raise AssertionError(f"no such node: {kind}, {wanted}")


def test_facts_lead_to_what_they_name(studio: Studio, page) -> None:
    """A comm group to its collectives and each of its ranks to its lanes, a type to its nodes, a message to its other end."""
    trace, job = library.read(library.sample_path("transformer_8r")), studio.job("transformer_8r")
    node, _ = first_node(trace, 1, NodeType.COMM_COLL, pg_name="dp1")
    page.goto(studio.address("overview", "transformer_8r", rank=1, node=node))
    page.locator("#inspector dt", has_text="collective").wait_for()
    facts = page.evaluate(LINKS)
    (group, path, asked), *members = facts["comm group"]
    assert (group, path, asked["by"], asked["only"]) == ("dp1", "/collectives", "group", "dp1")
    assert [(words, path, asked["rank"]) for words, path, asked in members] == [
        (str(rank), "/timeline", str(rank)) for rank in trace.group("dp1").ranks
    ]
    [(collective, path, asked)] = facts["collective"]
    assert (path, asked["by"], asked["only"]) == ("/collectives", "type", collective)
    [(kind, path, asked)] = facts["type"]
    assert (path, asked["f"]) == ("/nodes", f'{{"rank":["matches","1"],"type":["equals","{kind}"]}}')

    sent, values = first_node(trace, 1, NodeType.COMM_SEND)
    go(page, studio.address("overview", "transformer_8r", rank=1, node=sent))
    page.locator("#inspector dt", has_text="sends to").wait_for()
    [(group, path, asked), *_] = page.evaluate(LINKS)["comm group"]
    assert (group, path, asked["tab"], asked["of"]) == (values["pg_name"], "/collectives", "traffic", group)
    [(words, path, asked)] = page.evaluate(LINKS)["sends to"]
    assert (words, path, asked["job"]) == (f"rank {values['comm_dst']}", "/timeline", job)
    assert asked["rank"] == str(values["comm_dst"])


def longest_wait(trace: Trace, times: NodeTimes, met: Arrivals) -> tuple[int, int, int, int]:
    """The place of the rank that waited longest for another, that one's place, and the rows of their nodes."""
    found = []
    for place, rank in enumerate(trace.ranks):
        count = len(trace.graph_of(rank))
        other, rows = met.partners(place, count)
        first = int(times.first[place])
        mine = slice(first, first + count)
        waited = np.where((other >= 0) & (other != place), met.begun_ns[mine] - times.start_ns[mine], -1)
        row = int(np.argmax(waited))
        found.append((int(waited[row]), (place, int(other[row]), row, int(rows[row]))))
    return max(found)[1]


def test_the_rank_that_came_last_leads_to_its_node_there(studio: Studio, page) -> None:
    """One click from a collective that waits to the member it waited for."""
    trace = library.read(Path(__file__).parents[1] / "data" / "nccl_4r")
    studio.add(trace, "nccl_4r")
    times = collect_node_times(trace, recorded(trace))
    met = find_arrivals(trace, times, is_recording=True)
    place, last, row, last_row = longest_wait(trace, times, met)
    here, there = (
        format_node_ref(trace.graph_of(trace.ranks[at]), number)
        for at, number in ((place, row), (last, last_row))
    )
    page.goto(studio.address("overview", "nccl_4r", rank=trace.ranks[place].number, node=here))
    page.locator("#inspector dt", has_text="waited").wait_for()
    page.click(f"#inspector dd a >> text=rank {trace.ranks[last].number}")
    page.wait_for_url("**/timeline?*")
    assert (view(page)["rank"], view(page)["node"]) == (str(trace.ranks[last].number), there)
