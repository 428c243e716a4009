"""Findings: from the list to the node, to the repair, to the repaired job and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from studio.doctor import CHECKS
from studio.et import read, write
from tests.doctor.broken_jobs import comp, healthy
from tests.e2e.accessibility import ALL, SERIOUS, hold_against
from tests.e2e.conftest import LOOK, Held, Studio, becomes, quiet, until
from tests.e2e.going import go
from tests.handmade import collective, trace_of

pytestmark = pytest.mark.e2e


def broken():
    """Two ranks: a node waits for itself, two for each other, and they reduce different sizes."""
    return trace_of(
        [
            [comp(1, 2), comp(2, 1), comp(3, 3, 99), collective(4, "ALL_REDUCE", size, 3), comp(5, 4)]
            for size in (64, 32)
        ]
    )


@pytest.fixture
def studio(studio: Studio, tmp_path: Path) -> Studio:
    """A studio with a job in which much is wrong, and one in which nothing is, both read from files."""
    for trace, name in ((broken(), "broken"), (healthy(), "healthy")):
        write(trace, tmp_path / name, name)
        studio.add(read(tmp_path / name), name)
    return studio


def titles(page) -> list[str]:
    return page.locator(".fi-head strong").all_inner_texts()


def test_what_is_wrong_is_listed_the_worst_first(studio: Studio, page):
    # The job is checked as soon as it is opened: Overview and the navigation say what was found, without Findings.
    page.goto(studio.address("overview", "broken"))
    page.wait_for_selector("#findings-badge [title^='4 errors']")
    page.locator("#overview-findings .cs-level-error").first.wait_for()
    quiet(page)
    go(page, f"{studio.url}/")
    page.locator("#home-jobs tr", has_text="broken").locator("text=4 errors").wait_for()
    go(page, studio.address("overview", "broken"))
    page.locator("#overview-findings .cs-level-error").first.wait_for()
    quiet(page)
    # However long the next page takes to come, callbacks of the page that is left hear nothing of its view.
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data or ""))
    coming = Held(page, "_pages_content")
    page.click("nav >> text=Findings")
    until(page, lambda: len(coming) == 1)
    for _look in range(3):
        page.evaluate(LOOK)
    coming.let_go()
    page.locator("#findings-list").wait_for()
    assert not [text for text in asked if "overview-" in text]
    assert titles(page)[:4] == [
        "Dependencies on missing nodes",
        "Nodes that wait for themselves",
        "Dependency cycles",
        "Collectives on which ranks disagree",
    ]
    assert page.locator(".fi-count").first.inner_text() == "4 errors"
    wrong = page.locator(".cs-level-error.cs-level, .cs-level-warning.cs-level").count()
    assert page.locator("#findings-badge").inner_text() == str(wrong)
    page.click("nav >> text=Overview")
    page.wait_for_selector(".cs-facts")
    # What is asked for in the middle of a reload fails, and is complained of.
    quiet(page)
    page.reload()
    page.wait_for_selector("#findings-badge [title^='4 errors']")
    page.click("nav >> text=Findings")
    page.locator(
        "text=This job will hang in a simulator at collective 0 of the group of all ranks"
    ).wait_for()


def see_what_was_looked_for_in_a_clean_job(studio: Studio, page):
    """The Overview leads to it."""
    go(page, studio.address("overview", "healthy"))
    page.click("text=Findings: what follows")
    page.locator("h2", has_text="No problems in this job").wait_for()
    page.wait_for_function("!document.querySelector('#findings-badge *')")
    page.locator(".fi-passed li", has_text="Dependency cycles").wait_for()
    assert page.locator(".fi-passed li").count() == len(CHECKS)


def open_a_finding_by_keyboard(studio: Studio, page):
    """It leads to its nodes; what is open and selected is in the address."""
    go(page, studio.address("findings", "broken"))
    head = page.locator(".fi-head", has_text="Dependency cycles")
    head.focus()
    page.keyboard.press("Enter")
    page.locator(".fi-details", has_text="None of these nodes ever starts").wait_for()
    assert head.get_attribute("aria-expanded") == "true"
    page.click(".fi-nodes a >> nth=1")
    page.locator("#inspector h2", has_text="n2").wait_for()
    assert page.evaluate("window.studio.view.readView().finding") == "cycle"
    hold_against(page, ALL, impacts=SERIOUS)
    # A task ends before the answer has come: asked again for that, the page still shows what the address says.
    held = Held(page, "findings-body")
    head.click()
    until(page, lambda: held)
    # The check of the job may end by itself meanwhile, so that it was asked for twice already.
    asked = len(held)
    page.evaluate("dash_clientside.set_props('findings-tasks-changed', { data: 'ended' })")
    until(page, lambda: len(held) > asked)
    held.let_go()
    page.locator(".fi-details").wait_for(state="detached")


def preview_apply_and_undo_a_repair(studio: Studio, page):
    """The repaired job is a new one; deleting it goes back to the job it was made of."""
    go(page, studio.address("findings", "broken", finding="self-loop"))
    page.locator(".fi-repair", has_text="Would change: 2 dependencies removed.").wait_for()
    page.locator(".fi-changes", has_text="rank 0: node 3 (n3) waited for node 3 (n3)").wait_for()
    before = page.evaluate("window.studio.view.readView().job")
    page.click("text=Repair as a new job")
    page.locator(".fi-origin", has_text="Repaired from broken").wait_for()
    assert page.evaluate("window.studio.view.readView().job") != before
    assert "Nodes that wait for themselves" not in titles(page)
    becomes(page, page.locator("#job-pick").input_value, "broken (repaired)")
    # Twice, as people do: the job it was made of stays.
    page.dblclick("text=Undo: delete this job")
    page.locator(".fi-head", has_text="Nodes that wait for themselves").wait_for()
    assert page.evaluate("window.studio.view.readView().job") == before
    assert page.locator(".fi-origin").count() == 0
    quiet(page)
    assert studio.job("broken") == before


def repair_all_that_can_be_at_once(studio: Studio, page):
    go(page, studio.address("findings", "broken"))
    page.locator("#findings-list").wait_for()
    page.evaluate("document.querySelector('#findings-body').title = 'the same'")
    page.click("text=Repair 3 kinds of problems at once")
    page.locator(".fi-origin").wait_for()
    # The page follows to the repaired job; drawn anew it would be empty for a moment, after it has shown the job.
    quiet(page)
    # Listed once the repaired job was examined, which may take longer than the page stays quiet.
    becomes(page, lambda: titles(page)[:1], ["Collectives on which ranks disagree"])
    assert page.get_attribute("#findings-body", "title") == "the same"
    assert titles(page)[1:].count("Repaired") == 3


def test_findings_lead_to_their_nodes_and_are_repaired(studio: Studio, page):
    open_a_finding_by_keyboard(studio, page)
    preview_apply_and_undo_a_repair(studio, page)
    repair_all_that_can_be_at_once(studio, page)
    see_what_was_looked_for_in_a_clean_job(studio, page)
