"""Comparisons in a browser: chosen with a click each, said, drawn on one axis, selected on both sides, reopened by link."""

from __future__ import annotations

import pytest

import studio as library
from studio.samples import sample_path
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from tests.e2e.accessibility import ALL, COLOURS, SERIOUS, hold_against
from tests.e2e.conftest import Studio, quiet, until, view
from tests.e2e.going import go
from tests.kernels import compiled

pytestmark = pytest.mark.e2e


def parts(bandwidth: float) -> Parts:
    """Eight NPUs in a ring; the recording's memory nodes need remote memory, and its metadata the extended mode."""
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [bandwidth], "latency": [500]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"],
        "extended": {},
    }
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 25}
    return Parts(network, system, memory)


@pytest.fixture(scope="module")
def simulated() -> list[Run]:
    """Two runs of the sample on networks of different speed."""
    trace = library.read(sample_path("transformer_8r"))
    return [
        Run(name, simulate(trace, interpret(parts(bandwidth)).config, native=compiled()), parts(bandwidth))
        for name, bandwidth in (("ring of 50", 50), ("ring of 400", 400))
    ]


@pytest.fixture
def runs(studio: Studio, simulated: list[Run]) -> list[str]:
    """Ids of these runs in the workspace."""
    store, job = Workspace(studio.workspace), studio.job("transformer_8r")
    return [store.save_run(job, run) for run in simulated]


def state(page):
    return page.evaluate("window.studio.compare.state()")


def drawn(page) -> None:
    page.wait_for_selector("#compare-waterfall .bars")
    page.wait_for_selector("#compare-canvas[data-ready]")


def test_a_comparison_from_the_first_click_to_the_link(studio: Studio, page, runs: list[str]) -> None:
    """Home collects two jobs; the page says how much and why, draws both, selects a node on both, swaps, and reopens."""
    page.goto(studio.url)
    page.wait_for_selector("#home-jobs table")
    page.get_by_role("button", name="Compare transformer_8r").click()
    page.get_by_role("button", name="Compare imbalance_8r").click()
    page.click("#compare-tray >> text=Compare 2")
    drawn(page)
    assert "B is 42.9 ms (96.4 %) slower than A: compute +27.4 ms" in page.inner_text("#compare-verdict")
    assert "47.0 % of both sides matched by structure" in page.inner_text("#compare-matching")
    assert page.locator("#compare-tray").is_hidden()

    # The first row of A, zoomed by keyboard; a click selects the node there and its partner in B.
    page.focus("#compare-canvas")
    before = state(page)["shown"]
    page.keyboard.press("w")
    page.keyboard.press("d")
    page.wait_for_url("**from=*")
    zoomed = state(page)["shown"]
    assert zoomed["to"] - zoomed["from"] == pytest.approx(0.7 * (before["to"] - before["from"]), rel=0.01)
    page.keyboard.press("0")
    page.wait_for_url(lambda url: "from=" not in url)
    page.locator("tr", has_text="step1.embedding.grads.all_reduce").first.locator("a").first.click()
    page.wait_for_selector("#inspector h2")
    until(page, lambda: state(page)["selected"])
    assert "A takes 634 µs · B takes 2.43 ms (+1.79 ms)" in page.inner_text("#compare-status")
    bars = state(page)["selected"]
    page.keyboard.press("Escape")
    middle = (bars[0]["start"] + bars[0]["end"]) / 2
    page.locator("#compare-canvas").scroll_into_view_if_needed()
    spot = page.evaluate("([row, at]) => window.studio.compare.point(0, row, at)", [bars[0]["row"], middle])
    page.mouse.click(spot["x"], spot["y"])
    until(page, lambda: view(page).get("node") == bars[0]["node"])

    # The numbers behind the timelines, of both sides; a table of the page copies exact values, their unit in the head.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    with page.expect_download() as saved:
        page.locator("[data-figure=compare-canvas] [data-export=csv]").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0].startswith("side,run,rank,lane,lane_name,node,name")
    assert {line.split(",")[0] for line in lines[1:]} == {"A", "B"}
    page.locator(".cs-compare-nodes .cs-copy").first.click()
    page.wait_for_selector(".cs-compare-nodes .cs-copy >> text=Copied")
    copied = [line.split("\t") for line in page.evaluate("navigator.clipboard.readText()").splitlines()]
    assert copied[0][2:] == ["A (ns)", "B (ns)", "B − A (ns)", "all ranks (ns)"]
    assert all(int(line[3]) - int(line[2]) == int(line[4]) for line in copied[1:])

    # Aligned by the second step, which then stands at one place.
    go(page, f"{page.url}&align=step:1&layout=overlay")
    drawn(page)
    until(page, lambda: any(state(page)["offsets"]))
    assert state(page)["mode"] == "overlay"
    link = page.url

    page.click("#compare-swap")
    page.wait_for_selector("text=B is 42.9 ms (49.1 %) faster than A")
    page.go_back()
    page.wait_for_selector("text=B is 42.9 ms (96.4 %) slower than A")
    assert page.url == link

    # Recorded against simulated, two systems, three sides: one click for each.
    job = studio.job("transformer_8r")
    page.goto(f"{studio.url}/compare?job={job}&run=recorded&with={job}/{runs[0]}")
    drawn(page)
    assert "matched by rank and id" in page.inner_text("#compare-matching")
    page.click("#compare-add")
    page.locator("[role=option]:visible", has_text="ring of 400").click()
    page.wait_for_selector("#compare-verdict >> text=C is")
    drawn(page)
    assert state(page)["sides"] == 3
    assert page.locator("td:text-is('bandwidth')").count() == 1
    assert page.locator("td:text-is('chunks')").count() == 0
    page.click("#compare-settings")
    page.wait_for_selector("td:text-is('scheduling-policy')")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-mantine-color-scheme='{scheme}']", state="attached")
        quiet(page)
        drawn(page)
        # All that a theme changes is colours.
        hold_against(page, ALL if scheme == "light" else COLOURS, "#content", SERIOUS)


def test_the_run_that_is_shown_is_chosen_in_the_bar(studio: Studio, page) -> None:
    """On whatever page: two recordings, compared from the tray."""
    for name in ("imbalance_8r", "transformer_8r"):
        page.goto(studio.address("nodes", name, run="recorded"))
        until(page, lambda name=name: name in page.input_value("#job-pick"))
        until(page, lambda: page.input_value("#run-pick") == "as recorded")
        page.click("#compare-shown")
    page.click("#compare-tray >> text=Compare 2")
    page.wait_for_url(f"**/compare?job={studio.job('imbalance_8r')}&run=recorded&with=*")
