"""Trends: a series is chosen, jobs that were never measured appear, a mark opens its job, and what changed can be compared."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Studio
from tests.fleet_jobs import recorded

pytestmark = pytest.mark.e2e


def test_a_series_is_chosen_measured_and_leads_to_its_jobs(studio: Studio, page):
    jobs = [
        studio.add(recorded(late), f"nightly <b>gpt</b> run {number}")
        for number, late in enumerate((0, 1, 20))
    ]
    page.goto(f"{studio.url}/trends?job={jobs[0]}")
    change = page.locator("#trends-body li")
    change.get_by_text(
        "Step time rose 17.1 % from nightly <b>gpt</b> run 1 to nightly <b>gpt</b> run 2"
    ).wait_for()
    assert "communication 61.0 µs → 80.0 µs of a step" in change.inner_text()
    assert page.locator("#trends-body tbody tr").count() == 3
    # Another process imports a job: the page asks every few seconds, here at once.
    studio.add(recorded(21), "nightly <b>gpt</b> run 3")
    page.evaluate("dash_clientside.set_props('trends-look-again', {n_intervals: 1})")
    page.locator("#trends-body tbody tr").nth(3).wait_for()
    page.locator("#trends-series").click()
    page.get_by_role("option", name="transformer_8r (1 job)").click()
    page.wait_for_url("**series=transformer_8r*")
    page.get_by_text("a trend needs two").wait_for()
    page.go_back()
    change.wait_for()
    mark = page.locator("#trends-figure .points path").nth(2)
    mark.wait_for()
    box = mark.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(f"**/overview?job={jobs[2]}&run=recorded")
    page.go_back()
    page.get_by_role("link", name="Compare them").click()
    page.wait_for_url(f"**/compare?job={jobs[1]}&run=recorded&with={jobs[2]}%2Frecorded")
    page.get_by_text("B is 38.0 µs (17.1 %) slower than A").wait_for()
