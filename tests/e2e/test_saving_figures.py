"""Saving figures, and the tables behind them, in a browser."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.e2e.conftest import Studio

pytestmark = pytest.mark.e2e

BAR = "[data-name=groups-and-ranks]"


def saved(page, kind: str) -> Path:
    """Press a button beside the matrix of groups and return the file that comes of it."""
    with page.expect_download() as download:
        page.click(f"{BAR} [data-export={kind}]")
    assert download.value.suggested_filename == f"groups-and-ranks.{kind}"
    return Path(download.value.path())


def test_a_figure_is_saved_and_its_numbers_are_copied(studio: Studio, page) -> None:
    """PNG, SVG and CSV hold the figure; the table behind it shows the same numbers and copies as TSV."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector("#overview-groups .heatmaplayer image")
    assert saved(page, "png").read_bytes().startswith(b"\x89PNG")
    drawn = ET.parse(saved(page, "svg")).getroot()
    assert drawn.tag.endswith("svg")
    assert any(one.tag.endswith("image") for one in drawn.iter())
    lines = saved(page, "csv").read_text().splitlines()
    assert lines[0] == "group,rank,nodes,bytes"
    page.click(f"{BAR} [data-export=table]")
    assert page.locator("dialog tbody tr").count() == len(lines) - 1
    page.click("dialog >> text=Copy as TSV")
    page.wait_for_selector("dialog >> text=Copied")
    assert page.evaluate("navigator.clipboard.readText()").splitlines() == [
        line.replace(",", "\t") for line in lines
    ]
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
