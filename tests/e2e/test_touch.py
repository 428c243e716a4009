"""Fingers and sharp screens: one moves, two bring closer, a tap hits what is under it, on pixels half as large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from playwright.sync_api import Browser

import studio as library
from studio.samples import sample_path
from studio.timeline import recorded
from tests.conftest import page_of_its_own
from tests.e2e.conftest import Studio, quiet, until, view
from tests.e2e.going import go

pytestmark = pytest.mark.e2e

JOB = "transformer_8r"
Points = Sequence[tuple[float, float]]


@pytest.fixture
def screen(browser: Browser, started_studio: Studio, request: pytest.FixtureRequest) -> Iterator:
    """A page on a touch screen with two device pixels for one of the page."""
    size = {"width": 1180, "height": 820}
    with page_of_its_own(
        browser, request.config, viewport=size, device_scale_factor=2, has_touch=True
    ) as page:
        started_studio.let_in(page.context)
        yield page


def gesture(page, start: Points, end: Points, steps: int = 6) -> None:
    """Put fingers down, move them, lift them."""
    session = page.context.new_cdp_session(page)

    def send(kind: str, points: Points) -> None:
        touched = [{"x": x, "y": y, "id": at} for at, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    send("touchStart", start)
    for step in range(1, steps + 1):
        share = step / steps
        send(
            "touchMove",
            [(a + (c - a) * share, b + (d - b) * share) for (a, b), (c, d) in zip(start, end, strict=True)],
        )
        page.wait_for_timeout(40)
    send("touchEnd", [])
    session.detach()


def middle(page, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def sharp(page, selector: str) -> bool:
    """Whether a canvas has a pixel of its own for every one of the screen."""
    return page.locator(selector).first.evaluate(
        "one => Math.abs(one.width - 2 * one.clientWidth) <= 2 && Math.abs(one.height - 2 * one.clientHeight) <= 2"
    )


def pinched(page, selector: str, dx: float = 60) -> None:
    x, y = middle(page, selector)
    gesture(page, [(x - dx, y), (x + dx, y)], [(x - 2 * dx, y), (x + 2 * dx, y)])


def longest(trace, low: float, high: float) -> tuple[int, float]:
    """The longest node of the first row whose middle lies between two moments, and that middle."""
    timeline = recorded(trace, [0])
    origin = int(recorded(trace).start_ns.min())
    part = timeline.of_lane(next(at for at, lane in enumerate(timeline.lanes) if lane.kind == "stream"))
    spans = zip(
        timeline.row[part], timeline.start_ns[part] - origin, timeline.end_ns[part] - origin, strict=True
    )
    inside = [(int(end - start), int(row), int(start + end) / 2) for row, start, end in spans]
    _, row, at = max(one for one in inside if low < one[2] < high)
    return row, at


def move_and_zoom_the_timeline(studio: Studio, screen) -> None:
    go(screen, studio.address("timeline", JOB))
    screen.wait_for_selector("#timeline-scroll[data-ready]")
    quiet(screen)
    assert sharp(screen, "#timeline-scroll canvas")

    def seen():
        return screen.evaluate("(s => [s.from, s.to])(window.studio.timeline.stats())")

    whole = seen()
    pinched(screen, "#timeline-scroll")
    near = seen()
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.1)
    x, y = middle(screen, "#timeline-scroll")
    gesture(screen, [(x, y)], [(x - 200, y)])
    moved = seen()
    assert moved[0] > near[0]
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0], rel=1e-6)
    quiet(screen)
    trace = library.read(sample_path(JOB))
    row, at = longest(trace, *seen())
    bar = screen.evaluate("at => window.studio.timeline.point(0, at)", at)
    screen.touchscreen.tap(bar["x"], bar["y"])
    until(screen, lambda: view(screen).get("node") == str(trace.graph_of(trace.ranks[0]).id[row]))
    assert view(screen)["rank"] == "0"


def move_and_zoom_the_heatmap(studio: Studio, screen) -> None:
    go(screen, studio.address("collectives", "imbalance_8r"))
    screen.wait_for_selector("#collectives-heat[data-ready]")
    quiet(screen)
    assert sharp(screen, "#collectives-heat canvas")
    pinched(screen, "#collectives-heat")
    # One finger goes on from where the two have come to, whether that is drawn by then or not.
    x, y = middle(screen, "#collectives-heat")
    gesture(screen, [(x, y)], [(x, y - 150)])
    quiet(screen)
    assert "cols" in view(screen)
    low, high = map(int, view(screen)["rows"].split("-"))
    lines = screen.evaluate("window.studio.collectives.data.lines")
    assert low > lines / 4 + 2
    assert high + 1 - low == pytest.approx(lines / 2, abs=2)
    assert screen.evaluate("window.studio.collectives.data.window")[:2] == [low, high + 1]
    # Moved again, back down this time, it shows as much as before.
    gesture(screen, [(x, y)], [(x, y + 60)])
    quiet(screen)
    first, last = map(int, view(screen)["rows"].split("-"))
    assert first < low
    assert last - first == high - low
    screen.touchscreen.tap(x, y)
    until(screen, lambda: "rank" in view(screen))


def move_and_zoom_the_graph(studio: Studio, screen) -> None:
    go(screen, studio.address("graph", JOB))
    screen.wait_for_selector("#graph-map[data-ready]")
    screen.wait_for_selector("#graph-canvas[data-ready]")
    cy = "document.getElementById('graph-cy')._cyreg.cy"
    before = screen.evaluate(f"[{cy}.zoom(), {cy}.pan().x]")
    assert screen.evaluate(f"{cy}.renderer().getPixelRatio()") == 2
    pinched(screen, "#graph-canvas")
    until(screen, lambda: screen.evaluate(f"{cy}.zoom()") > 1.5 * before[0])
    x, y = middle(screen, "#graph-canvas")
    at = screen.evaluate(f"{cy}.pan().x")
    gesture(screen, [(x, y)], [(x - 120, y)])
    until(screen, lambda: screen.evaluate(f"{cy}.pan().x") < at - 60)
    # On the map two fingers zoom the drawing and go nowhere, one goes where it taps.
    near = screen.evaluate(f"{cy}.zoom()")
    pinched(screen, "#graph-map", dx=40)
    until(screen, lambda: screen.evaluate(f"{cy}.zoom()") == pytest.approx(2 * near, rel=0.02))
    assert screen.locator("#graph-map-aim").is_hidden()
    assert "node" not in view(screen)
    x, y = middle(screen, "#graph-map")
    screen.touchscreen.tap(x, y)
    until(screen, lambda: "node" in view(screen))


def move_and_zoom_the_comparison(studio: Studio, screen) -> None:
    other = studio.job("imbalance_8r")
    go(screen, studio.address("compare", JOB, **{"with": f"{other}/recorded"}))
    screen.wait_for_selector("#compare-canvas[data-ready]")
    # What stands above it comes later and pushes it down.
    screen.wait_for_selector("#compare-waterfall .bars")
    quiet(screen)
    assert sharp(screen, "#compare-canvas canvas")
    screen.locator("#compare-canvas").scroll_into_view_if_needed()

    def seen():
        return screen.evaluate("(s => [s.shown.from, s.shown.to])(window.studio.compare.state())")

    whole = seen()
    pinched(screen, "#compare-canvas")
    near = seen()
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.1)
    x, y = middle(screen, "#compare-canvas")
    gesture(screen, [(x, y)], [(x - 150, y)])
    assert seen()[0] > near[0]
    # A tap selects what is under it.
    trace = library.read(sample_path(JOB))
    row, at = longest(trace, *seen())
    bar = screen.evaluate("at => window.studio.compare.point(0, 0, at)", at)
    screen.touchscreen.tap(bar["x"], bar["y"])
    until(screen, lambda: view(screen).get("node") == str(trace.graph_of(trace.ranks[0]).id[row]))
    assert view(screen)["rank"] == "0"


def test_fingers_move_and_zoom_what_is_drawn(studio: Studio, screen) -> None:
    """On each page with a drawing of its own, one after the other."""
    move_and_zoom_the_timeline(studio, screen)
    move_and_zoom_the_heatmap(studio, screen)
    move_and_zoom_the_graph(studio, screen)
    move_and_zoom_the_comparison(studio, screen)
