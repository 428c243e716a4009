"""One recorded rank is enough: from its file to a completed job, a larger one, and two systems compared."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.accessibility import GUIDELINES, hold_against
from tests.e2e.conftest import Studio, quiet, until, view
from tests.e2e.test_pages import HOSTILE
from tests.et.pytorch_files import one_of_eight

pytestmark = pytest.mark.e2e

DROP = """([name, text]) => {
    const carried = new DataTransfer();
    carried.items.add(new File([text], name));
    document.getElementById("home-drop").dispatchEvent(
        new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
}"""
COUNT_ON = """() => {
    document.addEventListener("pointerdown", () =>
        sessionStorage.setItem("clicks", String(Number(sessionStorage.getItem("clicks")) + 1)), true);
}"""
COUNT_CLICKS = f"""() => {{
    sessionStorage.setItem("clicks", "0");
    ({COUNT_ON})();
}}"""


def name_of(page) -> str:
    return page.locator("#job-pick").input_value()


def follows(page) -> None:
    """Wait until the form has been drawn and may be sent."""
    page.wait_for_selector("#ranks-make:enabled")
    page.wait_for_selector("#ranks-before svg")


def simulated(page) -> None:
    """Run on the system in the form and wait for the result."""
    page.wait_for_selector("#sim-drawing svg")
    page.wait_for_selector("#sim-run:enabled")
    before = view(page).get("run")
    page.click("#sim-run")
    until(page, lambda: view(page).get("run") not in (None, before))
    page.wait_for_selector(".sim-assumed")


def test_one_kineto_file_becomes_64_ranks_on_two_systems(studio: Studio, page) -> None:
    """No command line and at most ten clicks; the field of a number counts as one."""
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    page.evaluate(COUNT_CLICKS)
    page.evaluate(DROP, [f"{HOSTILE}.json", one_of_eight().decode()])
    page.wait_for_url("**/overview?job=*")
    page.get_by_text("1 of 8 ranks is here. Complete the job?").wait_for()
    page.get_by_role("link", name="Complete the job").click()

    follows(page)
    # Before anything is made the ranks are drawn: the recorded one, and what each other is equal to.
    assert page.locator("#ranks-before rect.rk-recorded").count() == 1
    assert page.locator("#ranks-before rect.rk-assumed").count() == 7
    assert "group 0 of ranks 0, 1, 2, 3, … 7 (1 all-reduce)" in page.inner_text("#ranks-evidence")
    hold_against(page, GUIDELINES, "#content")
    file = page.locator("#ranks-file input[type=file]")
    odd, right = b"dimensions: 8", b'{"dimensions": [{"name": "dp", "size": 8, "stride": 1}], "groups": {}}'
    file.set_input_files({"name": "odd.yml", "mimeType": "text/yaml", "buffer": odd})
    page.get_by_text("odd.yml: dimensions is 8; allowed: a list of dimensions").wait_for()
    file.set_input_files({"name": "right.json", "mimeType": "application/json", "buffer": right})
    page.get_by_text("right.json: 0 comm groups").wait_for()
    follows(page)
    page.get_by_role("textbox", name="Ranks along dimension 0").evaluate("field => field.focus()")
    page.keyboard.type("5")
    page.get_by_text("layout dp=85 has 85 ranks; the job has 8").wait_for()
    assert page.locator("#ranks-make").is_disabled()
    page.keyboard.press("Backspace")
    follows(page)
    page.click("#ranks-make")
    page.wait_for_selector("#ranks-after svg")
    assert name_of(page).endswith("(completed)")
    page.get_by_text("7 of 8 ranks assumed equal to rank 0.").wait_for()

    follows(page)
    page.get_by_role("textbox", name="Ranks of the larger job").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("64")
    page.locator("#ranks-make", has_text="Make the job of 64 ranks").wait_for()
    assert page.get_by_role("textbox", name="Replicas").input_value() == "64"
    until(page, lambda: page.locator("#ranks-after rect.rk-assumed").count() == 56)
    assert page.locator("#ranks-after rect.rk-kept").count() == 8
    # What was entered is in the address.
    assert json.loads(view(page)["form"])["ranks"] == "64"
    page.reload()
    page.locator("#ranks-make", has_text="Make the job of 64 ranks").wait_for()
    assert page.get_by_role("textbox", name="Ranks of the larger job").input_value() == "64"
    page.evaluate(COUNT_ON)
    follows(page)
    page.click("#ranks-make")
    page.get_by_text("63 of 64 ranks assumed equal to rank 0.").wait_for()
    assert name_of(page).endswith("(completed, scaled ×8)")
    made = view(page)["job"]

    page.get_by_role("link", name="Simulate it").click()
    simulated(page)
    first = view(page).get("config")
    page.get_by_role("textbox", name="Bandwidth of dimension 0", exact=True).click()
    page.keyboard.press("Control+A")
    page.keyboard.type("40")
    until(page, lambda: view(page).get("config") != first)
    quiet(page)
    simulated(page)
    page.locator("nav").get_by_text("Compare", exact=True).click()
    page.locator(".cs-compare-list li").filter(has_not_text="recorded").locator("a").first.click()
    page.wait_for_selector("#compare-canvas[data-ready]")
    until(page, lambda: re.search(r"Finish: A .* B ", page.inner_text("#compare-verdict")))
    assert "A and B: 63 of 64 ranks assumed equal to rank 0." in page.inner_text("#compare-verdict")
    assert int(page.evaluate("sessionStorage.getItem('clicks')")) <= 10
    assert {side.partition("/")[0] for side in (view(page)["with"], f"{view(page)['job']}/")} == {made}
    assert not page.evaluate("window.harmed")

    runs = [
        json.loads(path.read_text()) for path in (studio.workspace / "jobs" / made).glob("runs/*/run.json")
    ]
    assert len({run["config_hash"] for run in runs}) == 2
    assert all(run["assumed"] == "63 of 64 ranks assumed equal to rank 0" for run in runs)
    page.goto(f"{studio.url}/overview?job={made}&rank=5&node=1")
    page.locator("#inspector", has_text="assumed equal to rank 0").wait_for()
    page.get_by_text("63 of 64 ranks assumed equal to rank 0").first.wait_for()
