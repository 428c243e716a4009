"""The whole way through the studio, as somebody goes who sees it for the first time.

The console stays empty and no request leaves the machine (the page fixture sees to both); on every page no rule of
WCAG A or AA is broken when it is first shown.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.accessibility import GUIDELINES, hold_against
from tests.e2e.conftest import Studio, quiet, until, view
from tests.e2e.test_simulate import ready as form_ready
from tests.e2e.test_simulate import simulated, typed

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def none_held_yet(page) -> None:
    """No page has been held against the rules."""
    page.held_against_rules = set()


def dropped(studio: Studio, page, *paths: Path) -> None:
    """Choose files on Home and wait for the overview of what they are."""
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    with page.expect_file_chooser() as chooser:
        page.click("#home-pick-files")
    chooser.value.set_files(paths)
    page.wait_for_url("**/overview?job=*")
    page.wait_for_selector(".cs-facts")


def go(page, name: str, shown: str) -> None:
    """Follow a link of the navigation, wait for what the page shows; the first time hold it against the rules."""
    page.locator("nav").get_by_text(name, exact=True).click()
    page.wait_for_selector(shown)
    quiet(page)
    if name in page.held_against_rules:
        return
    page.held_against_rules.add(name)
    hold_against(page, GUIDELINES)


def found_and_opened(page) -> None:
    """Search the graph for what it begins with, then open a block by the keyboard."""
    canvas = page.locator("#graph-canvas")
    page.wait_for_selector("#graph-canvas[data-ready]")
    page.get_by_label("Search nodes").fill("type:all-reduce")
    until(page, lambda: page.locator(".cs-graph-count").count() == 1)
    page.keyboard.press("Escape")
    whole = canvas.get_attribute("data-ready")
    page.locator("#graph-show").get_by_text("Folded").click()
    until(page, lambda: canvas.get_attribute("data-ready") != whole)
    page.keyboard.press("ArrowDown")
    until(page, lambda: "block" in view(page))
    before = canvas.get_attribute("data-ready")
    page.keyboard.press("Enter")
    until(page, lambda: canvas.get_attribute("data-ready") != before)
    assert "open" in view(page)


def stepped(page) -> None:
    """Look closer into the timeline, and select a bar and the next one, by keys."""
    page.focus("#timeline-scroll")
    page.keyboard.press("w")
    until(page, lambda: "from" in view(page))
    page.keyboard.press(".")
    until(page, lambda: view(page).get("node"))
    chosen = view(page)["node"]
    page.keyboard.press(".")
    until(page, lambda: view(page)["node"] != chosen)


def compared_and_reported(page, tmp_path: Path, run: str) -> None:
    """Compare the run that is shown with another of the job, and save the report of both."""
    go(page, "Compare", "h1")
    page.goto(f"{page.url}&with={view(page)['job']}/{run}")
    page.wait_for_selector("#compare-canvas[data-ready]")
    verdict = page.locator("#compare-verdict")
    until(page, lambda: re.search(r"B is .* (faster|slower) than A", verdict.inner_text()))
    with page.expect_download() as download:
        page.click("#report")
    path = tmp_path / "report.html"
    download.value.save_as(path)
    text = path.read_text(encoding="utf-8")
    assert "From A to B" in text
    assert len(text) < 5_000_000


def the_verdict_names_both_causes(page) -> None:
    """The hot expert and the slow rank with their savings, within the first screen."""
    page.wait_for_selector("#overview-advice li")
    page.wait_for_selector("#overview-bars .bars")
    advice = page.locator("#overview-advice li")
    shown = [advice.nth(place) for place in range(advice.count())]
    causes = {}
    for item in shown:
        words = item.inner_text()
        for rank, said in ((5, "rank 5 brings 1.6"), (2, "Bring rank 2 to the compute time")):
            if said in words:
                causes.setdefault(rank, item)
                assert re.search(r"−[\d.]+ ms", words), words
    assert set(causes) == {2, 5}
    below = [item.bounding_box()["y"] + item.bounding_box()["height"] for item in causes.values()]
    assert max(below) <= page.viewport_size["height"]


def test_from_a_sample_to_a_report(studio: Studio, page, tmp_path: Path) -> None:
    """The sample that is out of balance: overview, graph, two systems, timeline by keys, collectives, compare, report."""
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    page.get_by_text("Mixture of experts, out of balance").first.click()
    page.wait_for_url("**/overview?job=*")
    page.wait_for_selector(".cs-facts")
    the_verdict_names_both_causes(page)

    go(page, "Graph", "#graph-canvas[data-ready]")
    page.get_by_label("Search nodes").fill("all_to_all")
    page.keyboard.press("Enter")
    page.wait_for_selector("#inspector h2")
    assert "all_to_all" in page.inner_text("#inspector h2")
    chosen = view(page)["node"]

    go(page, "Simulate", "#sim-drawing svg")
    form_ready(page)
    first = simulated(page)
    before = view(page)["run"]
    typed(studio, page, "Bandwidth of dimension 0", "40")
    assert simulated(page) > first

    go(page, "Timeline", "#timeline-scroll[data-ready]")
    # What was selected in the graph is selected here, in a run that did not exist then.
    assert view(page)["node"] == chosen
    page.focus("#timeline-scroll")
    page.keyboard.press("f")
    until(page, lambda: "from" in view(page))
    page.keyboard.press(".")
    until(page, lambda: view(page)["node"] != chosen)

    go(page, "Collectives", "#collectives-detail")
    assert page.locator(".cs-worst li").first.inner_text().count("rank 5") == 1
    compared_and_reported(page, tmp_path, before)


def test_real_traces_go_all_the_way(studio: Studio, page, shared: Path, tmp_path: Path) -> None:
    """Workloads of 32 and 64 ranks, a linked recording and the events of another simulator."""
    traces = shared / "traces"
    dropped(studio, page, *sorted((traces / "stg" / "llama_32r_dp4tp4pp2").iterdir()))
    go(page, "Graph", "#graph-canvas[data-ready]")
    found_and_opened(page)
    go(page, "Simulate", "#sim-drawing svg")
    form_ready(page)
    first = simulated(page)
    before = view(page)["run"]
    typed(studio, page, "Bandwidth of dimension 0", "20")
    assert simulated(page) > first
    go(page, "Timeline", "#timeline-scroll[data-ready]")
    stepped(page)
    go(page, "Collectives", "#collectives-detail")
    compared_and_reported(page, tmp_path, before)

    dropped(studio, page, *sorted((traces / "torch" / "dlrm_4r").iterdir()))
    go(page, "Collectives", "#collectives-detail")
    assert "rank 3" in page.locator(".cs-worst li").first.inner_text()
    go(page, "Timeline", "#timeline-scroll[data-ready]")
    go(page, "Graph", "#graph-canvas[data-ready]")

    # What the third file tells is held against these where they are read.
    for events in sorted((traces / "timeline").iterdir())[1:]:
        dropped(studio, page, events)
        go(page, "Timeline", "#timeline-scroll[data-ready]")
        stepped(page)

    dropped(studio, page, next(iter(sorted((traces / "stg").glob("llama70b_64r*")))))
    go(page, "Graph", "#graph-canvas[data-ready]")
    go(page, "Simulate", "#sim-drawing svg")
    form_ready(page)
    simulated(page)
    go(page, "Timeline", "#timeline-scroll[data-ready]")
    go(page, "Collectives", "#collectives-detail")
