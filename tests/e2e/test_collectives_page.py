"""The Collectives page in a browser, on the sample that is out of balance and on a real job that was linked."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import Studio, intercept, quiet, until, view
from tests.e2e.going import go
from tests.e2e.test_standing_still import MOST_SHIFT, SHIFTS

pytestmark = pytest.mark.e2e

ORDERS = {"lead": "waiting", "Gini": "gini", "max / mean": None, "amount": "excess"}
"""What the address says of an order of rows."""


def ready(page) -> None:
    page.wait_for_selector("#collectives-heat[data-ready]")


def is_settled(page, name: str, value: str | None) -> bool:
    return view(page).get(name) == value


def test_the_rank_that_carries_too_much_is_found_and_followed(studio: Studio, page) -> None:
    """The worst row is on top and names rank 5; a click on its cell selects the node, here and on other pages."""
    asked = []
    page.on("request", lambda request: asked.append(request.url.split("?")[0].rsplit("/", 1)[1]))
    page.goto(studio.address("collectives", "imbalance_8r"))
    ready(page)
    # The picture is asked for before Dash has begun, and not again when it has; tables come when they are wanted.
    assert asked.count("collectives") == 2  # the page, and its picture
    assert asked.index("collectives", 1) < asked.index("_dash-update-component")
    assert "imbalances.csv" not in asked
    top = page.locator(".cs-worst li").first
    assert "layer1.moe" in top.inner_text()
    assert "1.7× rank 5" in top.inner_text()
    assert "22.4 MiB would have to move" in top.inner_text()
    assert page.inner_text("#collectives-detail") == "54 collectives × 8 ranks"
    with page.expect_download() as download:
        page.click("#collectives-worst [data-export=csv]")
    head, first, *rest = Path(download.value.path()).read_text().splitlines()
    assert head == (
        "collective,metric,max_over_mean,most_bytes,mean_bytes,to_move_bytes,worst_rank,ranks_above_mean"
    )
    assert first == (
        "step0.mb0.layer1.moe.dispatch.all_to_all.fwd,size,1.699951171875,57040896,33554432,23486464,5,5"
    )
    assert len(rest) + 1 == page.locator(".cs-worst li").count()
    at = page.evaluate("window.studio.collectives.map.pointOf(0, 5)")
    page.mouse.move(at["x"], at["y"])
    page.wait_for_selector("#collectives-status >> text=1.7 × the mean")
    assert "rank 5" in page.inner_text(".cs-heat-tip")
    page.mouse.click(at["x"], at["y"])
    page.wait_for_selector("#inspector h2 >> text=all_to_all")
    assert page.evaluate("window.studio.view.readView().rank") == "5"
    # Every control is in the address, and the address alone brings the same picture back.
    page.click(".cs-coll-arrange summary")
    page.click("#collectives-fold >> text=added up")
    page.wait_for_selector("#collectives-detail >> text=1 row × 8 ranks")
    page.goto(
        studio.address(
            "collectives", "imbalance_8r", by="type", fold=1, metric="size", sort="gini", order="load"
        )
    )
    ready(page)
    page.wait_for_selector("#collectives-detail >> text=2 rows × 8 ranks")
    assert page.evaluate("[...window.studio.collectives.data.numbers][0]") == 5
    assert "Gini" in page.get_attribute("#collectives-sort-hint button", "data-hint")
    # A row that adds up several collectives is opened by a click.
    at = page.evaluate("window.studio.collectives.map.pointOf(0, 0)")
    page.mouse.click(at["x"], at["y"])
    page.wait_for_selector("text=only ALL_TO_ALL")
    page.wait_for_selector("#collectives-detail >> text=32 collectives × 8 ranks")
    page.go_back()
    page.wait_for_selector("#collectives-detail >> text=2 rows × 8 ranks")
    # Every choice takes effect, also after those that the server settled as they were.
    for shown, tab in [("By size", "sizes"), ("Groups × ranks", "groups"), ("Collectives × ranks", None)]:
        page.click(f"#collectives-tab >> text={shown}")
        page.wait_for_selector(f".cs-coll-{tab or 'heat'}")
        assert view(page).get("tab") == tab
        quiet(page)
    for control, choices in [
        ("metric", ("duration", "lead", "size")),
        ("sort", ("Gini", "max / mean", "amount")),
    ]:
        for choice in choices:
            page.click(f"#collectives-{control}")
            page.click(f"[role=option]:visible >> text={choice}")
            until(page, partial(is_settled, page, control, ORDERS.get(choice, choice)))
            quiet(page)
    assert "amount to move" in page.input_value("#collectives-sort")


def test_pairs_of_ranks_groups_and_another_job_are_shown(studio: Studio, page) -> None:
    """Who sends what to whom, in all and in a group; what groups seem to be for; two jobs side by side in one scale."""
    page.goto(studio.address("collectives", "transformer_8r", tab="traffic"))
    ready(page)
    page.wait_for_selector("#collectives-detail >> text=8 ranks × 8 ranks")
    page.click(".cs-coll-choices >> text=pp0")
    until(page, lambda: view(page).get("of") == "=pp0")
    values = "window.studio.collectives.data.values.filter(value => value === value).length"
    until(page, lambda: page.evaluate(values) == 2)
    page.click("#collectives-tab >> text=Groups × ranks")
    page.wait_for_selector("#collectives-groups-figure .heatmaplayer image")
    # As wide as its place, whatever the window: all ranks are in sight without a scroll.
    size = page.viewport_size
    page.set_viewport_size({"width": 620, "height": 700})
    figure = page.locator("#collectives-groups-figure")
    until(page, lambda: figure.locator(".main-svg").first.bounding_box()["width"] < 520)
    assert figure.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.set_viewport_size(size)
    until(page, lambda: figure.locator(".main-svg").first.bounding_box()["width"] > 520)
    row = page.locator("#collectives-groups tr", has_text="pp0")
    assert "pipeline (inferred)" in row.inner_text()
    assert "messages with the next one" in row.locator("button").get_attribute("data-hint")
    go(page, studio.address("collectives", "imbalance_8r", **{"with": studio.job("transformer_8r")}))
    page.wait_for_selector("#collectives-other[data-ready]")
    assert "transformer_8r" in page.inner_text("#collectives-other-head")


def test_a_real_job_that_was_linked_shows_its_imbalance(studio: Studio, page, shared: Path) -> None:
    """dlrm_4r: four uneven all-to-alls, 1.375 in all, rank 3 with most; saved as CSV, SVG and PNG."""
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    with page.expect_file_chooser() as chooser:
        page.click("#home-pick-files")
    chooser.value.set_files(sorted((shared / "traces" / "torch" / "dlrm_4r").iterdir()))
    page.wait_for_url("**/overview?job=*")
    page.click("nav >> text=Collectives")
    ready(page)
    go(page, f"{page.url}&by=type&fold=1&metric=size")
    page.wait_for_selector("#collectives-detail >> text=2 rows × 4 ranks")
    # What is above the picture may come before what is beside it.
    page.wait_for_selector(".cs-worst li:first-child >> text=1.38× rank 3")
    with page.expect_download() as download:
        page.click("[data-export=csv]")
    head, first, *_ = Path(download.value.path()).read_text().splitlines()
    assert head.startswith("collective,type,group,step,mean_bytes,max_over_mean")
    assert first.startswith("ALL_TO_ALL,,,,32768,1.375,")
    assert first.endswith(",16384,20480,28672,36864,45056")
    for kind, begins in (("png", b"\x89PNG"), ("svg", b"<svg")):
        with page.expect_download() as download:
            page.click(f"[data-export={kind}]")
        assert Path(download.value.path()).read_bytes().startswith(begins)
    page.click("#collectives-metric")
    page.click("[role=option] >> text=lead")
    page.wait_for_selector("#collectives-title >> text=Who comes before the others")
    assert page.evaluate("window.studio.view.readView().metric") == "waiting"


def test_what_an_address_names_and_is_not_there_is_told_below_the_page(studio: Studio, page) -> None:
    """The page stays with its own job; what is not there is told, and a button takes it out of the address.

    What is told comes after the page is drawn, and moves nothing of it.
    """
    page.expected.append("400")
    page.goto(
        studio.address("collectives", "imbalance_8r", **{"with": "recorded", "rank": 77, "run": "recorded"})
    )
    ready(page)
    lines = page.locator("#view-missing .cs-missing")
    until(page, lambda: lines.count() == 2)
    assert "This job has no rank '77'. Its ranks are 0 to 7." in lines.nth(0).inner_text()
    assert "There is no 'recorded' to compare with." in lines.nth(1).inner_text()
    quiet(page)
    shifts = page.evaluate(SHIFTS)
    assert sum(value for value, _ in shifts) < MOST_SHIFT, shifts
    assert page.inner_text("#collectives-detail") == "54 collectives × 8 ranks"
    assert page.locator("#collectives-other canvas:visible").count() == 0
    # Said once.
    assert page.locator("#collectives-error *").count() == 0
    lines.nth(1).locator("button").click()
    until(page, lambda: lines.count() == 1)
    assert "with" not in view(page)
    assert view(page)["rank"] == "77"
    lines.locator("button").click()
    until(page, lambda: lines.count() == 0)
    # What is there and cannot be drawn is told where it would be.
    refusal = {"error": {"message": "It has no such figure.", "hint": "Show another."}}
    intercept(page, lambda url: "like=" in url, lambda route: route.fulfill(status=400, json=refusal))
    there = {"with": studio.job("transformer_8r")}
    go(page, studio.address("collectives", "imbalance_8r", **there))
    page.locator("#collectives-error", has_text="It has no such figure.").wait_for()
    # What is there to be compared is still compared, or offered.
    missing = f"gone/recorded,{studio.job('transformer_8r')}"
    go(page, studio.address("compare", "imbalance_8r", **{"with": missing}))
    page.wait_for_selector("#view-missing >> text=There is no 'gone/recorded' to compare with.")
    page.wait_for_selector("#compare-verdict >> text=B is")
    go(page, studio.address("overview", "imbalance_8r", run="gone"))
    page.wait_for_selector("#view-missing >> text=This job has no run 'gone'")
    page.wait_for_selector("#overview-ranks >> text=The run that the address names is not there.")
    quiet(page)
    assert page.locator("#overview-body .cs-error").count() == 0
    page.click("#view-missing button")
    page.wait_for_selector("#view-missing .cs-missing", state="detached")
    assert "run" not in view(page)
