"""Validate: tables dropped on the page are kept and drawn, and the address holds what is chosen."""

from __future__ import annotations

import pytest

from studio.calibration.reading.csv_tables import write_csv
from tests.e2e.accessibility import ALL, SERIOUS, hold_against
from tests.e2e.conftest import Held, Studio, until
from tests.pages.test_validate import table

pytestmark = pytest.mark.e2e

DROP = """([name, text]) => {
    const carried = new DataTransfer();
    carried.items.add(new File([text], name));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        window.dispatchEvent(new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true }));
    }
}"""


def test_dropped_tables_are_drawn_and_choices_stand_in_the_address(studio: Studio, page):
    page.goto(f"{studio.url}/assets/logo.svg")
    upload = Held(page, "/async-upload")
    page.goto(f"{studio.url}/validate")
    page.get_by_text("No measured tables yet").wait_for()
    until(page, lambda: upload)
    # What takes the files has not been loaded yet: they are not taken for traces meanwhile.
    page.evaluate(DROP, ["notes.txt", "remember the milk"])
    upload.let_go()
    page.get_by_text("notes.txt: no measured times.").wait_for()
    tables = [table(), table("all_gather", 4, 2)]
    page.evaluate(DROP, ["my cluster.csv", write_csv(tables)])
    page.locator("#validate-figure .scatterlayer").first.wait_for()
    page.wait_for_url("**/validate?*tables=my_cluster*")
    assert page.locator(".cs-validate-table tbody tr").count() == 2
    # Right away, while the answer to the address may be under way: it does not take the choice back.
    page.locator("#validate-curve").get_by_text("without", exact=True).click()
    page.wait_for_url("**curve=without*")
    # Opened anew, the address shows the same.
    page.reload()
    page.locator("#validate-figure .scatterlayer").first.wait_for()
    assert page.locator("#validate-tables").input_value() == "my_cluster"
    hold_against(page, ALL, "#content", SERIOUS)
