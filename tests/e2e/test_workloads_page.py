"""A newcomer without any file: from the name of a model to a simulated job, advice, and twice as many GPUs beside it."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.conftest import Studio, until, view
from tests.e2e.test_ranks_page import COUNT_CLICKS

pytestmark = pytest.mark.e2e

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 4096,
}  # fmt: skip


def field(page, name: str):
    return page.get_by_role("textbox", name=name, exact=True)


def type_into(page, name: str, text: str) -> None:
    field(page, name).click()
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def simulated(page) -> None:
    """Wait until the time of a step is there."""
    until(page, lambda: "simulated on hgx-h100" in page.inner_text("#workload-times"))


def test_a_newcomer_makes_simulates_advises_and_compares_without_a_file(studio: Studio, page) -> None:
    """At most eight clicks; a click into a field counts as one."""
    page.goto(studio.url)
    page.evaluate(COUNT_CLICKS)
    page.get_by_role("link", name="No trace? Make a job from a model").click()
    page.wait_for_selector("#workload-mesh svg")
    type_into(page, "Model", "llama3-8b")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    # What is proposed fits, and is said to be proposed.
    until(page, lambda: "42.3 GB of 80 GB" in page.inner_text("#workload-facts"))
    assert "tensor 4 × data 2 · proposed: tensor parallel 4" in page.inner_text("#workload-verdict")
    assert page.locator("#workload-mesh rect.rk-assumed").count() == 8
    simulated(page)

    page.click("#workload-make")
    page.get_by_text("Made: llama3-8b, 8 × h100, tp=4,dp=2").wait_for()
    first = view(page)["job"]
    page.click("#workload-simulate")
    page.wait_for_url("**/simulate?job=*")
    until(page, lambda: "hgx-h100" in page.locator("#sim-preset").input_value())
    until(page, lambda: "(changed)" not in page.locator("#sim-preset").input_value())
    page.locator("#sim-result").get_by_text("finish", exact=True).wait_for()
    page.locator("nav").get_by_text("Overview", exact=True).click()
    page.locator(".cs-advice li").first.wait_for()
    page.get_by_text("generated from a model, not recorded").wait_for()

    page.locator("nav").get_by_text("Workloads", exact=True).click()
    page.wait_for_selector("#workload-make:enabled")
    type_into(page, "Ranks", "16")
    page.get_by_role("button", name="Simulate and compare").click()
    page.wait_for_url("**/compare?job=*")
    until(page, lambda: re.search(r"Finish: A .* B ", page.inner_text("#compare-verdict")))
    assert int(page.evaluate("sessionStorage.getItem('clicks')")) <= 8
    assert view(page)["job"] == first
    stored = [
        json.loads(path.read_text()) for path in (studio.workspace / "jobs").glob("llama3-8b*/job.json")
    ]
    assert sorted(job["summary"]["ranks"] for job in stored) == [8, 16]

    # The form remembers; what does not divide is said at its field, before anything is made.
    page.locator("nav").get_by_text("Workloads", exact=True).click()
    page.wait_for_selector("#workload-mesh svg")
    until(page, lambda: field(page, "Ranks").input_value() == "16")
    type_into(page, "Tensor parallel", "3")
    page.get_by_text("Tensor parallel is 3, which does not divide 32 heads").wait_for()
    assert page.locator("#workload-make").is_disabled()
    assert page.locator("#workload-simulate").is_disabled()
    assert field(page, "Tensor parallel").get_attribute("aria-invalid") == "true"
    type_into(page, "Tensor parallel", "1")
    until(page, lambda: "proposed: pipeline stages 4" in page.inner_text("#workload-verdict"))
    until(page, lambda: view(page)["workload"] == "ranks=16 tp=1")

    # A config.json of one's own, by the same form.
    page.set_input_files(
        "#workload-upload input",
        {"name": "mine.json", "mimeType": "application/json", "buffer": json.dumps(CONFIG).encode()},
    )
    until(page, lambda: field(page, "Model").input_value() == "mine.json")
    until(page, lambda: "5.50 billion" in page.inner_text("#workload-facts"))

    # Steps of inference of it have fields of their own, and those of training are gone.
    assert field(page, "Schedule").is_visible()
    type_into(page, "Job", "steps")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, lambda: "New tokens a step" in page.inner_text("#workload-facts"))
    until(page, lambda: field(page, "Context").is_visible())
    assert not field(page, "Schedule").is_visible()
    simulated(page)
