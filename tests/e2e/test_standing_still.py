"""Pages fill without moving what stands there: Chromium's own measure of layout shift."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Studio, quiet
from tests.e2e.test_compare_page import runs, simulated  # noqa: F401 - fixtures

pytestmark = pytest.mark.e2e

MOST_SHIFT = 0.02
SHIFTS = """() => new Promise((done) => {
  const shifts = [];
  const name = ({ node }) => node?.id || node?.className || String(node);
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput, sources } of list.getEntries())
      if (!hadRecentInput) shifts.push([value, sources.map(name)]);
  }).observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(shifts))));
})"""
"""Answers what has moved since the document began: the browser keeps it."""


@pytest.mark.parametrize(
    ("name", "ready", "width"),
    [
        ("overview", "#overview-groups .js-plotly-plot, #overview-bars .bars", 1440),
        ("ranks", "#ranks-said[data-drawn]", 1440),
        ("graph", "#graph-canvas canvas", 1440),
        ("timeline", "#timeline-counters canvas", 1440),
        ("simulate", "#sim-ranks .bars", 1440),
        ("compare", "#compare-waterfall .bars", 1440),
        # What is said of the list or the answer takes lines of its own there.
        ("nodes", "#nodes-lacks", 390),
        ("sql", "#sql-said [data-spent]", 390),
    ],
)
def test_nothing_moves_while_a_page_fills(
    studio: Studio,
    page,
    runs: list[str],  # noqa: F811 - the fixture above
    name: str,
    ready: str,
    width: int,
) -> None:
    """A job with a recording and two runs, opened afresh."""
    job = studio.job("transformer_8r")
    more = {"run": runs[0]} | ({"with": f"{job}/{runs[1]}"} if name == "compare" else {})
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(studio.address(name, "transformer_8r", **more))
    page.wait_for_selector(ready)
    quiet(page)
    found = page.evaluate(SHIFTS)
    assert sum(value for value, _ in found) < MOST_SHIFT, found


def test_a_narrow_window_shows_the_page_below_its_navigation(studio: Studio, page) -> None:
    """The pages stand in a line, and what is wider than the window scrolls by itself."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector("#overview-kernels table")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    pages, heading = page.locator(".cs-navbar").bounding_box(), page.locator("h1").bounding_box()
    assert pages["y"] + pages["height"] <= heading["y"]


def test_a_report_has_the_room_of_its_figures_before_they_are_drawn(
    studio: Studio, page, tmp_path: Path
) -> None:
    """In a narrow window, where the tables below stand close to the figures; long texts there are no thin columns."""
    path = tmp_path / "report.html"
    with studio.ask(f"/api/report?side={studio.job('transformer_8r')}/recorded") as answer:
        path.write_bytes(answer.read())
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    found = page.evaluate(SHIFTS)
    assert sum(value for value, _ in found) < MOST_SHIFT, found
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    rows = page.eval_on_selector_all("tr", "rows => rows.map((row) => row.clientHeight)")
    assert rows
    assert max(rows) < 160
