"""Modules under Dash: late ones are waited for, each runs once, and every callback of Python's is there."""

from __future__ import annotations

import json
import re
import time
import zlib

import pytest

from studio.app import find_assets_folder
from tests.e2e.conftest import becomes, intercept, quiet, until

pytestmark = pytest.mark.e2e

LOADED = (
    "() => performance.getEntriesByType('resource').map(one => one.name).filter(one => /[.]mjs/.test(one))"
)


def delay(route) -> None:
    """Let a module arrive long after the callbacks that need it."""
    time.sleep(2)
    route.continue_()


@pytest.mark.parametrize(
    ("name", "late"), [("overview", "/base/view.mjs"), ("timeline", "/timeline/page.mjs")]
)
def test_a_page_waits_for_a_late_module(studio, page, name: str, late: str) -> None:
    """Dash calls its client-side callbacks before; the page complains of nothing, and shows all the same."""
    page.goto(studio.url)
    intercept(page, lambda address: late in address, delay)
    page.goto(studio.address(name, "imbalance_8r", rank=3, node=100))
    becomes(page, page.locator("#job-pick").input_value, "imbalance_8r")
    until(page, "document.querySelector('#inspector').textContent.length > 0")
    quiet(page)
    assert page.locator(".cs-toast[role=alert]:not(:empty)").count() == 0


def test_each_module_runs_once_and_a_page_loads_its_own(studio, page) -> None:
    page.goto(studio.address("timeline", "imbalance_8r"))
    quiet(page)
    addresses = [address.split("?")[0] for address in page.evaluate(LOADED)]
    assert len(addresses) == len(set(addresses)) > 20
    folders = {address.split("/assets/")[1].partition("/")[0] for address in addresses}
    assert "timeline" in folders
    assert not folders & {"graph", "collectives", "nodes"}


def test_a_page_brings_the_library_it_draws_with_when_it_is_visited(studio, page) -> None:
    """Once, also on the way back; until then Dash hears nothing of the page."""
    libraries = "() => ['dash_ag_grid', 'dash_cytoscape'].map(name => name in window)"
    page.goto(studio.address("overview", "imbalance_8r"))
    quiet(page)
    assert page.evaluate(libraries) == [False, False]
    page.locator("nav").get_by_text("Nodes", exact=True).click()
    page.locator(".ag-row").first.wait_for()
    page.go_back()
    page.locator("#overview-body h1").wait_for()
    page.go_forward()
    page.locator(".ag-row").first.wait_for()
    assert page.evaluate(libraries) == [True, False]
    scripts = page.locator("script[src*='dash_ag_grid/dash_ag_grid']")
    assert scripts.count() == 1
    page.goto(f"{studio.address('nodes', 'imbalance_8r')}".replace("/nodes?", "/nodes/?"))
    page.locator(".ag-row").first.wait_for()
    assert page.evaluate(libraries) == [True, False]


def test_a_library_that_does_not_come_is_reported_and_asked_for_again(studio, page) -> None:
    page.expected += ["dash_ag_grid", "Failed to load"]
    page.goto(studio.address("overview", "imbalance_8r"))
    quiet(page)
    page.route("**/dash_ag_grid/**", lambda route: route.abort())
    page.locator("nav").get_by_text("Nodes", exact=True).click()
    page.get_by_text("Parts of this page could not be loaded.").wait_for()
    assert page.locator("#overview-body h1").count() == 1
    page.unroute("**/dash_ag_grid/**")
    page.locator("nav").get_by_text("Nodes", exact=True).click()
    page.locator(".ag-row").first.wait_for()


@pytest.mark.parametrize("missing", ["/base/view.mjs", "/nodes/grid.mjs"])
def test_a_module_that_never_comes_is_reported(studio, page, missing: str) -> None:
    """One that all pages need, and one of a page that is loaded when it is opened."""
    page.expected += [re.escape(missing), "Failed to load", "Failed to fetch"]
    page.goto(studio.url)
    intercept(page, lambda address: missing in address, lambda route: route.abort())
    page.goto(studio.address("nodes", "imbalance_8r"))
    page.get_by_text("Parts of this page could not be loaded.").wait_for()


def test_every_client_side_callback_of_the_pages_is_there(studio, page) -> None:
    with studio.ask("/_dash-dependencies") as answer:
        callbacks = [one["clientside_function"] for one in json.load(answer)]
    wanted = {(one["namespace"], one["function_name"]) for one in callbacks if one}
    ours = sorted(name for name in wanted if name[0].startswith("studio_"))
    assert len(ours) > 20
    page.goto(studio.url)
    until(page, "Boolean(window.studio)")
    page.evaluate("async names => { for (const [space] of names) await studioLoader.load(space); }", ours)
    assert (
        page.evaluate("names => names.filter(([space, name]) => !(name in dash_clientside[space]))", ours)
        == []
    )


def test_dash_lists_one_module_and_an_update_reaches_the_browser(studio) -> None:
    """A module that is listed and imported would run twice. The others' addresses change with their content."""
    with studio.ask() as answer:
        head = answer.read().decode()
    assert re.findall(r'src="([^"?]+\.mjs)', head) == ["/assets/studio.mjs"]
    addresses = json.loads(re.search(r'<script type="importmap">(.+?)</script>', head)[1])["imports"]
    content = (find_assets_folder() / "base" / "view.mjs").read_bytes()
    assert addresses["/assets/base/view.mjs"] == f"/assets/base/view.mjs?m={zlib.crc32(content):08x}"
    with studio.ask(addresses["/assets/base/view.mjs"]) as answer:
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    with studio.ask("/assets/base/view.mjs") as answer:
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["ETag"]
        assert answer.headers.get_content_type() == "text/javascript"
