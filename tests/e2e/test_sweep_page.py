"""Sweep: settings typed in the form are simulated in the background, drawn as they come, and a point becomes a run."""

from __future__ import annotations

import pytest

from tests.e2e.accessibility import ALL, SERIOUS, hold_against
from tests.e2e.conftest import Studio, quiet, view
from tests.e2e.going import go

pytestmark = pytest.mark.e2e


def test_a_sweep_is_run_drawn_and_a_point_of_it_becomes_a_run(studio: Studio, page):
    page.goto(studio.address("sweep", "transformer_8r"))
    page.locator("#sweep-run:enabled").wait_for()
    settings = page.locator("#sweep-varied")
    # The job loads from memory, so the first settings bring one.
    assert "memory-type=PER_NPU_MEMORY_EXPANSION" in settings.input_value()
    rest = [line for line in settings.input_value().splitlines() if "mem" in line]
    settings.fill("\n".join(["bandwith[0]=1,2", *rest]))
    page.get_by_text("The nearest known key is 'bandwidth'.").wait_for()
    settings.fill("\n".join(["bandwidth[0]=100,200,400", "preset=hgx-h100,no-such", *rest]))
    page.get_by_text("= 6 points").wait_for()
    page.locator("#sweep-run:enabled").click()
    page.locator("#sweep-front .scatterlayer").first.wait_for()
    page.get_by_text("3 points cannot be simulated:").wait_for()
    page.locator("#sweep-actions").get_by_text("Delete").wait_for()
    assert page.locator(".sweep-points tbody tr").count() == 3
    page.locator(".sweep-points button").first.click()
    page.locator(".sweep-made a", has_text="Timeline").wait_for()
    page.locator("#sweep-under").fill("40 ms")
    page.locator("#sweep-under").blur()
    page.get_by_text("bandwidth[0] is bisected, 2 times, of 6 points").wait_for()
    # Opened anew, the address shows the same.
    page.wait_for_url("**/sweep?*sweep=*")
    page.reload()
    page.locator("#sweep-front .scatterlayer").first.wait_for()
    # The form is for another one: what was varied, and on what, stands beside the results.
    assert "Varied on " in page.inner_text("#sweep-progress")
    assert "bandwidth[0]=100,200,400; preset=hgx-h100,no-such" in page.inner_text("#sweep-progress")
    # One that is not there is said, and no other takes its place.
    go(page, studio.address("sweep", "transformer_8r", sweep="xx"))
    page.wait_for_selector("#view-missing >> text=There is no sweep 'xx'")
    page.get_by_text("The sweep that the address names is not there").wait_for()
    quiet(page)
    assert view(page)["sweep"] == "xx"
    page.click("#view-missing button")
    page.locator("#sweep-front .scatterlayer").first.wait_for()
    hold_against(page, ALL, "#content", SERIOUS)
