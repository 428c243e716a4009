"""The page that `visualize` writes: opened from a file, it searches, selects, follows dependencies and runs no name."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from studio.cli import main
from tests.e2e.conftest import becomes
from tests.et.chakra_bytes import attr, file_of, num, sized

HOSTILE = "<img src=x onerror=alert(1)></script>&amp;"


@pytest.mark.e2e
def test_the_page_is_searched_and_tells_what_a_node_says(page, tmp_path):
    job, target = tmp_path / "job.0.et", tmp_path / "graph.html"
    job.write_bytes(
        file_of(
            num(1, 1) + sized(2, HOSTILE) + num(3, 4) + attr(HOSTILE, sized(29, HOSTILE)),
            num(1, 2) + sized(2, "reduce") + num(3, 7) + sized(5, b"\x01"),
            num(1, 3) + sized(2, "after") + num(3, 4) + sized(4, b"\x02"),
        )
    )
    result = CliRunner().invoke(main, ["visualize", str(job), "-o", str(target), "--critical-path"])
    assert result.exit_code == 0, result.output
    page.goto(target.as_uri())
    assert page.locator("h1").inner_text() == "job · rank 0"
    assert "critical path" in page.locator("#legend").inner_text()
    page.keyboard.press("/")
    page.keyboard.type("REDUCE")
    becomes(page, lambda: page.locator("#found").inner_text(), "1 found")
    page.keyboard.press("Enter")
    becomes(page, lambda: page.locator("#side h2").inner_text(), "reduce")
    # What it waits for is a button that leads there; names are text.
    page.locator("#side button", has_text="onerror").click()
    becomes(page, lambda: page.locator("#side h2").inner_text(), HOSTILE)
    assert page.locator("#side dd").last.inner_text() == HOSTILE
    assert page.locator("img").count() == 0
    # A click on the middle of the drawing selects the node that lies there.
    page.locator("body").press("Escape")
    becomes(page, lambda: page.locator("#side h2").inner_text(), "No node is selected")
    page.locator("#fit").click()
    box = page.locator("#canvas").bounding_box()
    page.wait_for_timeout(50)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    becomes(page, lambda: page.locator("#side h2").inner_text(), "reduce")
