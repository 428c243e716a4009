"""The node list and the inspector, in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from studio.et import read
from studio.et.schema import load_schema
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.units import format_ns
from tests.e2e.accessibility import ALL, COLOURS, SERIOUS, hold_against
from tests.e2e.conftest import Held, Studio, becomes, quiet, until
from tests.e2e.conftest import view_within_job as view
from tests.e2e.going import go
from tests.handmade import node, trace_of
from tests.kernels import compiled

pytestmark = pytest.mark.e2e

JOB = "transformer_8r"
HOSTILE = "<img src=x onerror=window.harmed=1>"
API = "window.dash_ag_grid.getApi('nodes-grid')"


def wait_for_view(page, **expected: str) -> None:
    """Wait until the address says this and no more."""
    page.wait_for_url(lambda _: view(page) == expected)


def counted(page, text: str) -> None:
    """Wait until the page says how many nodes there are."""
    page.locator("#nodes-count", has_text=re.compile(f"^{text}$")).wait_for()


def shown(page, column: str) -> list[str]:
    """The texts of a column, from the top."""
    cells = page.locator(f".ag-center-cols-container .ag-row [col-id={column}]")
    rows = cells.evaluate_all(
        "cells => cells.map(c => [Number(c.parentNode.getAttribute('row-index')), c.innerText])"
    )
    return [text for _, text in sorted(rows)]


def filter_box(page, column: str):
    return page.locator(f".ag-header-cell[col-id={column}] .ag-floating-filter-input input")


@pytest.fixture
def nodes(studio: Studio, page):
    """The list of the sample's nodes."""
    page.goto(studio.address("nodes", JOB))
    counted(page, "2,488 nodes")
    page.locator(".ag-row [col-id=name]").first.wait_for()
    return page


def list_anew(studio: Studio, page) -> None:
    """Show all nodes of the sample again, as they are listed when the page is opened."""
    go(page, studio.address("nodes", JOB))
    counted(page, "2,488 nodes")
    until(page, lambda: page.locator("#inspector h2, .ag-row-selected").count() == 0)
    # The list stays where it was scrolled to.
    page.evaluate(f"{API}.ensureIndexVisible(0)")
    page.locator(".ag-row[row-index='0'] [col-id=name]").wait_for()
    quiet(page)


def search_sort_and_filter(nodes):
    """Typing leaves one step, each other change one of its own; back shows what was there before."""
    nodes.fill("#nodes-search", "grads")
    counted(nodes, "80 of 2,488 nodes")
    wait_for_view(nodes, q="grads")
    nodes.click(".ag-header-cell[col-id=bytes] .ag-header-cell-label")
    wait_for_view(nodes, q="grads", sort="bytes")
    nodes.click(".ag-header-cell[col-id=bytes] .ag-header-cell-label")
    wait_for_view(nodes, q="grads", sort="-bytes")
    nodes.locator(".ag-row[row-index='0'] [col-id=bytes]", has_text="62.5 MiB").wait_for()
    filter_box(nodes, "bytes").fill(">= 32 MiB")
    wait_for_view(
        nodes,
        q="grads",
        sort="-bytes",
        f='{"bytes":["matches",">= 32 MiB"]}',
    )
    nodes.locator("#nodes-count", has_text=" of 2,488").wait_for()
    until(nodes, lambda: set(shown(nodes, "bytes")) == {"62.5 MiB", "32.0 MiB"})
    nodes.go_back()
    wait_for_view(nodes, q="grads", sort="-bytes")
    counted(nodes, "80 of 2,488 nodes")
    until(nodes, lambda: filter_box(nodes, "bytes").input_value() == "")
    nodes.go_back()
    nodes.go_back()
    wait_for_view(nodes, q="grads")
    nodes.go_forward()
    wait_for_view(nodes, q="grads", sort="bytes")
    head = nodes.locator(".ag-header-cell[col-id=bytes]").first
    until(nodes, lambda: head.get_attribute("aria-sort") == "ascending")
    becomes(nodes, lambda: nodes.input_value("#nodes-search"), "grads")


def clear_sort_together_and_pick_a_rank(nodes):
    """What finds nothing is said and cleared, columns sort together, and one rank is picked."""
    nodes.fill("#nodes-search", "no such node")
    counted(nodes, "0 of 2,488 nodes")
    nodes.click("#nodes-empty button")
    counted(nodes, "2,488 nodes")
    wait_for_view(nodes)
    becomes(nodes, lambda: nodes.input_value("#nodes-search"), "")
    until(nodes, nodes.locator("#nodes-clear").is_hidden)
    # A filter that is no number is told with examples.
    nodes.expected += ["status of 400"]
    filter_box(nodes, "duration_ns").fill("soon")
    nodes.locator("#nodes-error", has_text="Duration: The filter 'soon' is not understood.").wait_for()
    filter_box(nodes, "duration_ns").fill("")
    counted(nodes, "2,488 nodes")
    nodes.locator("#nodes-error", has_text="Duration").wait_for(state="detached")
    # Several columns sort together.
    nodes.click(".ag-header-cell[col-id=type] .ag-header-cell-label")
    nodes.click(".ag-header-cell[col-id=duration_ns] .ag-header-cell-label", modifiers=["Control"])
    nodes.click(".ag-header-cell[col-id=duration_ns] .ag-header-cell-label", modifiers=["Control"])
    wait_for_view(nodes, sort="type,-duration_ns")
    # One rank is picked by its number.
    nodes.click("#nodes-rank")
    nodes.get_by_role("option", name="3", exact=True).click()
    counted(nodes, "297 of 2,488 nodes")
    wait_for_view(nodes, f='{"rank":["matches","3"]}', sort="type,-duration_ns")
    becomes(nodes, lambda: set(shown(nodes, "rank")), {"3"})
    # Below the list each filter says what it asks for, and goes by a click.
    nodes.click("#nodes-chips >> text=Rank 3")
    counted(nodes, "2,488 nodes")
    wait_for_view(nodes, sort="type,-duration_ns")
    until(nodes, nodes.locator("#nodes-chips").is_hidden)


def filter_by_keyboard(nodes):
    """From a column's header one step down to its filter, or into the filter's menu with all its operators."""
    nodes.locator(".ag-header-cell[col-id=duration_ns]").first.focus()
    nodes.keyboard.press("ArrowDown")
    nodes.keyboard.press("Enter")
    # At once: what is typed slowly is asked for before it is whole, and refused.
    nodes.keyboard.insert_text("> 0.5 ms")
    wait_for_view(nodes, f='{"duration_ns":["matches","> 0.5 ms"]}')
    nodes.locator(".ag-header-cell[col-id=duration_ns] .ag-floating-filter-button button").focus()
    nodes.keyboard.press("Enter")
    nodes.locator(".ag-filter").wait_for()
    nodes.keyboard.press("Shift+Tab")
    nodes.keyboard.press("ArrowDown")
    nodes.keyboard.press("ArrowDown")
    nodes.keyboard.press("Enter")
    wait_for_view(nodes, f='{"duration_ns":["blank"]}')
    nodes.keyboard.press("Escape")
    nodes.locator(".ag-filter").wait_for(state="detached")


def filter_by_a_quantity_of_the_list(nodes):
    """What is read in a cell and typed into the filter finds the row it was read in."""
    shown_first = nodes.locator(".ag-row[row-index='1'] [col-id=duration_ns]").inner_text()
    filter_box(nodes, "duration_ns").fill(shown_first)
    wait_for_view(
        nodes,
        f=json.dumps({"duration_ns": ["matches", shown_first]}, separators=(",", ":"), ensure_ascii=False),
    )
    nodes.locator("#nodes-count", has_text=" of 2,488").wait_for()
    until(nodes, lambda: set(shown(nodes, "duration_ns")) == {shown_first})


def test_the_list_is_searched_sorted_and_filtered(studio: Studio, nodes):
    search_sort_and_filter(nodes)
    for step in (
        clear_sort_together_and_pick_a_rank,
        filter_by_keyboard,
        filter_by_a_quantity_of_the_list,
    ):
        list_anew(studio, nodes)
        step(nodes)


def open_an_address(studio: Studio, page):
    """Filters, order, search and the selected row, wherever in the list it is, which then is in sight."""
    filters = quote(json.dumps({"type": ["contains", "coll"], "rank": ["equals", 5]}))
    go(page, studio.address("nodes", JOB, q="all_", f=filters, sort="-start_ns", rank=5, node=120))
    selected = page.locator(".ag-row-selected")
    selected.wait_for()
    becomes(page, selected.locator("[col-id=id]").inner_text, "120")
    assert selected.get_attribute("aria-selected") == "true"
    assert set(shown(page, "type")) == {"COMM_COLL"}
    assert set(shown(page, "rank")) == {"5"}
    becomes(page, lambda: page.input_value("#nodes-rank"), "5")
    becomes(page, lambda: page.input_value("#nodes-search"), "all_")
    becomes(page, filter_box(page, "type").input_value, "coll")
    page.locator("#inspector h2", has_text="step0.head.grads.all_reduce").wait_for()


def point_at_numbers(studio: Studio, page):
    """Numbers have units, and their exact value on hover."""
    go(page, studio.address("nodes", JOB, q="120", f=quote('{"rank":["equals",5],"id":["equals",120]}')))
    counted(page, "1 of 2,488 nodes")
    told = {"bytes": "62.5 MiB", "operations": "–", "start_ns": "14.412 ms", "duration_ns": "705 µs"}
    becomes(page, lambda: {name: (*shown(page, name), "")[0] for name in told}, told)
    page.hover(".ag-row [col-id=bytes]")
    page.locator(".ag-tooltip", has_text="65,540,096 bytes").wait_for()


def open_wrong_addresses(studio: Studio, page):
    """What is wrong with them is explained in place."""
    page.expected += ["status of 400"]
    for more, message in (
        ({"f": "{"}, "cannot be read"),
        ({"f": quote('{"colour":["equals","red"]}')}, "no column 'colour'"),
        ({"f": quote('{"bytes":["resembles",1]}')}, "resembles"),
        ({"sort": "colour"}, "no column 'colour'"),
    ):
        go(page, studio.address("nodes", JOB, **more))
        page.locator("#nodes-error", has_text=message).wait_for()
    go(page, studio.address("nodes", JOB))
    counted(page, "2,488 nodes")
    assert page.locator("#nodes-error").inner_text() == ""


def open_a_job_that_is_gone(studio: Studio, page):
    """It is said in place."""
    page.expected += ["status of 400"]
    go(page, f"{studio.url}/nodes?job=gone")
    page.locator("#nodes-error", has_text="gone").wait_for()


def test_an_address_brings_back_its_list(studio: Studio, page):
    open_an_address(studio, page)
    point_at_numbers(studio, page)


def test_wrong_addresses_are_explained_in_place(studio: Studio, page):
    """When one is opened, and when one follows on another."""
    open_wrong_addresses(studio, page)
    open_a_job_that_is_gone(studio, page)


def select_rows(nodes):
    """By click and by keyboard; the inspector follows."""
    nodes.click(".ag-row[row-index='2'] [col-id=name]")
    first = shown(nodes, "name")[2]
    nodes.locator("#inspector h2", has_text=first).wait_for()
    wait_for_view(nodes, rank="0", node=shown(nodes, "id")[2])
    steps = nodes.evaluate("history.length")
    for _ in range(3):
        nodes.keyboard.press("ArrowDown")
    nodes.locator(".ag-row-selected[row-index='5']").wait_for()
    nodes.locator("#inspector h2", has_text=shown(nodes, "name")[5]).wait_for()
    assert nodes.evaluate("history.length") == steps, "looking around leaves no steps"
    nodes.click("#inspector >> text=Close")
    wait_for_view(nodes, rank="0")
    until(nodes, lambda: nodes.locator(".ag-row-selected").count() == 0)
    nodes.click(".ag-row[row-index='1'] [col-id=type]")
    nodes.click("#inspector >> text=Close")
    nodes.locator(".ag-row[row-index='1'] [col-id=type]").focus()
    nodes.keyboard.press("ArrowDown")
    nodes.keyboard.press("Enter")
    nodes.locator(".ag-row-selected[row-index='2']").wait_for()


def follow_a_neighbour(nodes):
    """The list scrolls to a node that was selected in the inspector, and only then."""
    nodes.evaluate("window.studio.view.changeView({rank: 6, node: '300'})")
    row = nodes.locator(".ag-row-selected")
    row.wait_for()
    assert row.locator("[col-id=rank]").inner_text() == "6"
    neighbour = nodes.locator("#inspector .cs-neighbours a").first
    name = neighbour.inner_text()
    neighbour.click()
    nodes.locator("#inspector h2", has_text=name).wait_for()
    nodes.locator(".ag-row-selected [col-id=name]", has_text=name).wait_for()
    assert view(nodes)["rank"] == "6"


def check_accessibility_with_a_filter_open(nodes):
    """In both themes no serious barrier."""
    nodes.emulate_media(color_scheme="light")
    nodes.click(".ag-row[row-index='3'] [col-id=name]")
    # The inspector opens beside the list, whose columns give way: a click on what moves away meanwhile is none.
    nodes.locator("#inspector h2").wait_for()
    quiet(nodes)
    nodes.click(".ag-header-cell[col-id=name] .ag-floating-filter-button button")
    nodes.locator(".ag-filter").wait_for()
    nodes.mouse.move(0, 0)
    nodes.locator(".ag-tooltip").wait_for(state="detached")
    for scheme in ("light", "dark"):
        nodes.emulate_media(color_scheme=scheme)
        nodes.wait_for_selector(f"html[data-mantine-color-scheme='{scheme}']", state="attached")
        quiet(nodes)
        assert nodes.locator(".ag-filter").is_visible()
        # All that a theme changes is colours.
        hold_against(nodes, ALL if scheme == "light" else COLOURS, impacts=SERIOUS)


def test_rows_are_selected_and_the_page_is_accessible_meanwhile(studio: Studio, nodes):
    select_rows(nodes)
    list_anew(studio, nodes)
    follow_a_neighbour(nodes)
    list_anew(studio, nodes)
    check_accessibility_with_a_filter_open(nodes)


def click_on_a_heading_while_the_list_follows(nodes):
    """What was done to the grid is newer than the address that is just being followed."""
    nodes.evaluate("""() => {
        window.studio.view.changeView({ q: "grads" });
        document.querySelector(".ag-header-cell[col-id=bytes] .ag-header-cell-label").click();
        window.dash_clientside.studio_nodes.follow(window.studio.view.readView());
    }""")
    wait_for_view(nodes, q="grads", sort="bytes")
    counted(nodes, "80 of 2,488 nodes")
    quiet(nodes)
    assert view(nodes) == {"q": "grads", "sort": "bytes"}
    assert nodes.locator(".ag-header-cell[col-id=bytes]").first.get_attribute("aria-sort") == "ascending"


def switch_the_job(nodes, studio: Studio):
    """The other job is listed, unfiltered."""
    nodes.fill("#nodes-search", "grads")
    counted(nodes, "80 of 2,488 nodes")
    nodes.click("#job-pick")
    nodes.get_by_role("option", name="imbalance_8r").click()
    counted(nodes, "2,920 nodes")
    assert nodes.input_value("#nodes-search") == ""


def leave_while_something_waits(studio: Studio, nodes):
    """Letters typed just before the page was left search no other one, and its last rows bother nobody."""
    held = Held(nodes, "/nodes?")
    nodes.click(".ag-header-cell[col-id=bytes] .ag-header-cell-label")
    until(nodes, lambda: held)
    # In one go: what is typed is searched for 0.2 s later.
    nodes.evaluate(
        "job => { window.dash_clientside.studio_nodes.search('grads'); window.studio.view.goTo('/timeline', { job }); }",
        studio.job(JOB),
    )
    nodes.wait_for_selector("#timeline-scroll[data-ready]")
    held.let_go()
    quiet(nodes)
    assert view(nodes) == {}


def test_what_is_done_while_something_else_is_under_way_counts(studio: Studio, nodes):
    click_on_a_heading_while_the_list_follows(nodes)
    list_anew(studio, nodes)
    switch_the_job(nodes, studio)
    list_anew(studio, nodes)
    leave_while_something_waits(studio, nodes)


CHOOSE_RANK_EARLY = """() => {
    const timer = setInterval(() => {
        let grid = null;
        try { grid = window.dash_ag_grid && window.dash_ag_grid.getApi('nodes-grid'); } catch (_) { /* not there yet */ }
        if (!grid) return;
        clearInterval(timer);
        window.studio.view.changeView({ f: JSON.stringify({ rank: ['matches', '3'] }) });
    }, 1);
}"""


def test_a_filter_that_comes_while_the_list_is_made_stays(studio: Studio, page):
    """Dash tells a new grid of the filters it had last heard of; the address has the last word."""
    for _ in range(3):
        page.goto(studio.address("validate", JOB))
        page.wait_for_selector("h1 >> text=Validate")
        page.evaluate(CHOOSE_RANK_EARLY)
        page.click("nav >> text=Nodes")
        page.locator(".ag-row[row-index='0'] [col-id=rank]", has_text="3").wait_for()
        quiet(page)
        assert view(page) == {"f": '{"rank":["matches","3"]}'}
        becomes(page, lambda: set(shown(page, "rank")), {"3"})


def test_times_follow_the_run_that_is_shown(studio: Studio, page):
    """Those of the run are sorted by and filtered, with recorded ones beside them; as recorded, these stand alone."""
    nodes = [
        node(at, "COMP", *([at - 1] if at > 1 else []), name=f"op{at}", micros=10 * at) for at in (1, 2, 3)
    ]
    for at, one in enumerate(nodes):
        one.start_time_micros = 100 * (at + 1)
    nodes[2].attr.add(name="inclusive_ns", int64_val=90_000)
    keeper = Workspace(studio.workspace)
    job = keeper.save(trace_of([nodes] * 8), "thrice")
    parts = preset("hgx-h100-8").under("astra-sim")
    system = {**parts.system, "roofline-enabled": 0, "extended": {"compute-speeds": {"5": 0.1}}}
    parts = replace(parts, system=system)
    result = simulate(keeper.load(job), interpret(parts).config, native=compiled())
    run = keeper.save_run(job, Run("slow five", result, parts))
    page.goto(f"{studio.url}/nodes?job={job}&run={run}")
    counted(page, "24 nodes")
    headings = page.locator(".ag-header-cell-text")
    headings.filter(has_text=re.compile("^Duration in run$")).wait_for()
    label = keeper.run_info(job, run).label
    page.get_by_text(
        f"Times of the run {label}, {format_ns(result.makespan_ns)} in all, beside those recorded"
    ).wait_for()
    page.click(".ag-header-cell[col-id=duration_ns] .ag-header-cell-label")
    page.click(".ag-header-cell[col-id=duration_ns] .ag-header-cell-label")
    wait_for_view(page, run=run, sort="-duration_ns")
    page.locator(".ag-row[row-index='0'] [col-id=duration_ns]", has_text="300 µs").wait_for()
    assert shown(page, "rank")[:3] == ["5", "5", "5"]
    assert shown(page, "recorded_duration_ns")[:3] == ["30.0 µs", "20.0 µs", "10.0 µs"]
    assert shown(page, "start_ns")[:3] == ["300.000 µs", "100.000 µs", "0.000 µs"]
    assert shown(page, "end_ns")[:3] == ["600.000 µs", "300.000 µs", "100.000 µs"]
    assert shown(page, "recorded_start_ns")[:3] == ["200.000 µs", "100.000 µs", "0.000 µs"]
    filter_box(page, "duration_ns").fill("> 50 us")
    counted(page, "3 of 24 nodes")
    page.click("#nodes-clear")
    counted(page, "24 nodes")
    # A task that ends has the runs listed anew; what is chosen meanwhile counts.
    listing = Held(page, "run-pick")
    page.evaluate("dash_clientside.set_props('activity-known', { data: 'a task ended' })")
    until(page, lambda: listing)
    page.click("#run-pick")
    page.get_by_role("option", name="as recorded").click()
    listing.let_go()
    headings.filter(has_text=re.compile("^Duration$")).wait_for()
    page.locator(".ag-row[row-index='0'] [col-id=duration_ns]", has_text="30.0 µs").wait_for()
    page.locator(".ag-header-cell[col-id^=recorded]").first.wait_for(state="detached")
    assert "recorded" not in page.inner_text("#nodes-lacks")
    becomes(page, page.locator("#nodes-times").inner_text, "")
    headings.filter(has_text=re.compile("^Duration$")).hover()
    page.locator(".ag-tooltip", has_text="Own time: without the operators that it called.").wait_for()
    # A run that is gone takes no node with it.
    go(page, f"{studio.url}/nodes?job={job}&run=gone")
    page.wait_for_selector("#view-missing >> text=This job has no run 'gone'")
    counted(page, "24 nodes")
    headings.filter(has_text=re.compile("^Duration$")).wait_for()
    assert page.locator("#nodes-error").inner_text() == ""
    go(page, f"{studio.url}/overview?job={job}&run={run}")
    told = page.locator("#overview-types tbody tr")
    told.get_by_text("4.71 on rank 5").wait_for()
    # Rank 5 takes ten times the 60 µs of the others.
    assert told.inner_text().split("\t")[1:] == ["24", "3", "128 µs", "4.71 on rank 5", "60.0 µs", "1.00"]


# ---------------------------------------------------------------------------------------------------
# Nodes that samples do not have


def write(folder: Path, name: str, *records) -> Path:
    """Write a Chakra file."""
    content = b""
    for record in records:
        raw = record.SerializeToString()
        size, head = len(raw), b""
        while size > 127:
            head, size = head + bytes([size & 127 | 128]), size >> 7
        content += head + bytes([size]) + raw
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.fixture
def odd(studio: Studio, tmp_path: Path) -> Studio:
    """A studio with a job of odd nodes: markup for texts, many neighbours, long lists, gaps, repeated ids."""
    types = load_schema()
    nodes = []
    for rank in (0, 1):
        first = types.node(id=2**64 - 1, name=HOSTILE, type=7, data_deps=[404])
        first.attr.add(name="pg_name", string_val=f"{HOSTILE}{rank}")
        first.attr.add(name="comm_type", int64_val=0, doc_string="what it does")
        first.attr.add(name="comm_size", int64_val=2**60 + 1)
        first.attr.add(name="long").int64_list.values.extend(range(1000))
        first.attr.add(name="text", string_val="x" * 10_000)
        rest = [types.node(id=7, name=f"twin{i}", type=4, ctrl_deps=[2**64 - 1]) for i in range(130)]
        nodes.append(write(tmp_path, f"odd.{rank}.et", types.metadata(version="1"), first, *rest))
    studio.add(read(tmp_path), "odd")
    return studio


def see_markup_as_text(odd: Studio, page):
    """Markup in a trace is text in cells, tooltips, filters and the inspector."""
    go(page, odd.address("nodes", "odd", rank=1, node=2**64 - 1))
    page.locator("#inspector h2").wait_for()
    page.locator(".ag-row-selected").wait_for()
    page.evaluate(f"{API}.ensureIndexVisible(0)")
    becomes(page, lambda: (*shown(page, "name"), "")[0], HOSTILE)
    ends = page.locator(".ag-row[row-index='0'] .cs-ends > [aria-hidden]")
    assert [ends.get_attribute(f"data-{part}") for part in ("head", "tail")] == [HOSTILE[:-16], HOSTILE[-16:]]
    assert ends.evaluate("one => getComputedStyle(one, '::before').textOverflow") == "ellipsis"
    page.hover(".ag-row[row-index='0'] [col-id=name]")
    page.locator(".ag-tooltip", has_text=HOSTILE).wait_for()
    filter_box(page, "group").fill(HOSTILE)
    counted(page, "2 of 262 nodes")
    assert page.locator("img[src='x']").count() == 0
    assert page.evaluate("window.harmed") is None


def read_everything_of_a_node(odd: Studio, page):
    """Its rank's own group, exact numbers, kinds and docs, gaps by id; long lists and texts with their counts."""
    go(page, odd.address("nodes", "odd", rank=1, node=2**64 - 1))
    page.locator("#inspector h2", has_text=HOSTILE).wait_for()
    text = page.inner_text("#inspector")
    for part in (
        str(2**64 - 1), "ALL_REDUCE", f"{HOSTILE}1", "1.00 EiB", "int64 list", "what it does", "800 more",
        "6,000 more characters", "id 404: not in the file", "Waited for by 130", "and 30 more", "not recorded",
    ):  # fmt: skip
        assert part in text, part
    assert page.locator("#inspector [title='1,152,921,504,606,846,977']").count() == 1
    page.click("#inspector .cs-neighbours a >> nth=3")
    page.locator("#inspector h2", has_text="twin3").wait_for()
    wait_for_view(page, rank="1", node="7.3")
    page.locator(".ag-row-selected [col-id=name]", has_text="twin3").wait_for()


def open_a_node_that_is_not_there(odd: Studio, page):
    """It is said in the inspector, which closes."""
    go(page, odd.address("nodes", "odd", rank=0, node="12"))
    page.expected += ["status of 400"]
    page.locator("#inspector [role=alert]", has_text="no node '12'").wait_for()
    page.click("#inspector >> text=Close")
    wait_for_view(page, rank="0")


def miss_columns(odd: Studio, page):
    """Columns without values or room are said."""
    go(page, odd.address("nodes", "odd"))
    page.locator("#nodes-lacks", has_text="no node has: operations, start, end, duration").wait_for()
    page.set_viewport_size({"width": 760, "height": 600})
    page.locator("#nodes-lacks", has_text="hidden for lack of space: waits for").wait_for()
    assert page.evaluate(f"{API}.getColumn('bytes').isVisible()")


def test_odd_nodes_are_shown_as_they_are(odd: Studio, page):
    see_markup_as_text(odd, page)
    read_everything_of_a_node(odd, page)
    open_a_node_that_is_not_there(odd, page)
    miss_columns(odd, page)
