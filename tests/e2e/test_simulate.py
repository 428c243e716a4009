"""The Simulate page in a real browser: form, drawing, runs, and what the address keeps."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace

import pytest

from studio.pages.simulate.edits import propose_draft
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.sim.settings import SETTINGS
from studio.store.runs import Run
from studio.store.workspace import Workspace
from tests.e2e.conftest import Held, quiet, until, view
from tests.e2e.going import go
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

pytestmark = pytest.mark.e2e

MIB = 1 << 20
NETWORK = (
    "topology: [ Ring, Switch ]\nnpus_count: [ 2, 2 ]\nbandwidth: [ 50, 12.5 ]\nlatency: [ 500, 700.5 ]\n"
)
SYSTEM = {
    "scheduling-policy": "FIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring", "direct"],
    "an-unknown-key": 1,
}


def stored(studio, name, trace) -> str:
    """Put a job into the workspace of the running studio, which sees it at once."""
    return Workspace(studio.workspace).save(trace, name)


@pytest.fixture
def small(studio) -> str:
    """A job of four ranks: some compute, then an all-reduce of 4 MiB."""
    nodes = [node(1, "COMP", micros=20), collective(2, "ALL_REDUCE", 4 * MIB, 1)]
    return stored(studio, "small", trace_of([nodes] * 4))


def opened(studio, page, job, **more):
    words = "".join(f"&{key}={value}" for key, value in more.items())
    page.goto(f"{studio.url}/simulate?job={job}{words}")
    ready(page)


def ready(page):
    page.wait_for_selector("#sim-drawing svg")
    quiet(page)


def elsewhere(page):
    """Leave for the Overview."""
    page.click("nav >> text=Overview")
    page.wait_for_selector("#overview-body .cs-facts")


def back(page):
    page.click("nav >> text=Simulate")
    page.locator("#overview-body").wait_for(state="detached")
    ready(page)


def unfold(page, name):
    """Open the fold of the form that has a field, which is drawn then."""
    [heading] = [setting.heading for setting in SETTINGS if setting.label == name]
    fold = page.locator("details.sim-fold", has=page.get_by_role("heading", name=heading, exact=True))

    def opens() -> bool:
        # The form may be made anew just now.
        fold.evaluate_all("folds => folds.forEach(fold => { fold.open = true; })")
        return fold.get_by_label(name, exact=True).is_visible()

    until(page, opens)


def chosen(page, run, what):
    """Choose from the menu of a run's line."""
    row = page.locator(".sim-runs tbody tr", has_text=run)
    row.locator("summary").click()
    row.get_by_role("button", name=what).click()


def field(page, name):
    return page.get_by_role("textbox", name=name, exact=True)


def typed(studio, page, name, text):
    """Type into a field and wait until the system of the address holds what was typed."""
    field(page, name).fill(text)
    written = re.compile(rf'[\[:," ]{re.escape(text)}[\],}}" ]')

    def kept():
        path = studio.workspace / "drafts" / f"{view(page).get('config')}.json"
        return path.is_file() and written.search(path.read_text(encoding="utf-8"))

    until(page, kept)


def simulated(page) -> int:
    """Run, and return the finish time of the new run in ns."""
    before = view(page).get("run")
    page.locator("#sim-run").click()
    until(page, lambda: view(page).get("run") not in (None, before))
    run = view(page)["run"]
    current = page.locator(
        f".sim-runs tr[aria-current]:has([data-view*='{run}']) td:nth-child(3) [data-exact]"
    )
    current.wait_for()
    return int(re.sub(r"\D", "", current.get_attribute("title")))


# ---------------------------------------------------------------------------------------------------
# The form: what it says of what is typed, and how that is taken back


def change_the_preset(studio, page):
    """It says that it was changed, and can be chosen again."""
    box = page.get_by_role("textbox", name="Start from a preset")
    title, first = box.input_value(), field(page, "Bandwidth of dimension 0").input_value()
    assert title
    assert "(changed)" not in title
    typed(studio, page, "Bandwidth of dimension 0", "123")
    until(page, lambda: box.input_value() == f"{title} (changed)")
    box.click()
    page.get_by_role("option", name=title, exact=True).click()
    until(page, lambda: field(page, "Bandwidth of dimension 0").input_value() == first)
    until(page, lambda: box.input_value() == title)


def resize_the_network(studio, page):
    """Figures and drawing follow what is typed; a system of another size is fitted to the job by a button."""
    page.get_by_text("as many NPUs as the job has ranks: 4").wait_for()
    assert page.locator(".sim-npu").count() == 4
    typed(studio, page, "NPUs of dimension 0", "6")
    until(page, lambda: page.locator(".sim-npu").count() == 6)
    page.get_by_text("The job has 4 ranks, the system 6 NPUs.").wait_for()
    page.locator(".sim-told-first", has_text="are missing").wait_for()
    page.get_by_role("button", name="Fit to the job").click()
    page.get_by_text("as many NPUs as the job has ranks: 4").wait_for()
    assert field(page, "NPUs of dimension 0").input_value() == "4"
    page.get_by_role("button", name="Add dimension").click()
    field(page, "NPUs of dimension 1").wait_for()
    page.get_by_text("4 × 2 = 8").wait_for()
    page.get_by_role("button", name="Move towards the NPU (dimension 1)").click()
    page.get_by_text("2 × 4 = 8").wait_for()
    until(page, lambda: page.locator(".sim-npu").count() == 8)


def type_what_is_wrong(studio, page):
    """It is told at its field, and the run kept back; fields of closed folds are drawn once they are looked for."""
    typed(studio, page, "Bandwidth of dimension 0", "-5")
    page.locator(".sim-said >> text=a number above 0").wait_for()
    until(page, lambda: page.locator("#sim-run").is_disabled())
    assert field(page, "Bandwidth of dimension 0").get_attribute("aria-invalid") == "true"
    assert field(page, "NPUs of dimension 0").get_attribute("aria-invalid") != "true"
    # Fields of closed folds are drawn once the browser's search may look for them, or the fold is opened.
    assert page.get_by_label("Chunks per collective", exact=True).count() == 0
    assert page.locator(".sim-fold .sim-wrong:visible").count() == 0
    page.evaluate("dash_clientside.set_props({ sim: 'peak-perf' }, { error: true })")
    page.locator(".sim-fold .sim-wrong:visible").wait_for()
    page.keyboard.press("Control+f")
    page.get_by_label("Chunks per collective", exact=True).wait_for(state="attached")
    unfold(page, "Chunks per collective")
    typed(studio, page, "Chunks per collective", "0")
    page.locator(".sim-field .sim-said >> text=a whole number from 1").wait_for()


def reload_and_take_back(studio, page, first):
    """A reload loses neither what was typed, nor what is wrong with it, nor the way back: a field as a whole each step."""
    page.reload()
    page.locator(".sim-said >> text=a number above 0").wait_for()
    quiet(page)
    rate, latency = field(page, "Bandwidth of dimension 0"), field(page, "Latency of dimension 0")
    assert (rate.input_value(), latency.input_value()) == ("-5", "77")
    undo = page.get_by_role("button", name="Undo")
    undo.click()
    page.locator(".sim-said >> text=a whole number from 1").wait_for(state="detached")
    assert page.locator("#sim-run").is_disabled()
    undo.click()
    until(page, lambda: rate.input_value() == "123")
    until(page, lambda: page.locator("#sim-run").is_enabled())
    assert latency.input_value() == "77"
    undo.click()
    until(page, lambda: latency.input_value() != "77")
    assert rate.input_value() == "123"
    undo.click()
    until(page, lambda: rate.input_value() == first)
    page.go_back()
    until(page, lambda: rate.input_value() == "123")


def test_the_form_follows_what_is_typed_tells_what_is_wrong_and_takes_it_back(studio, page, small):
    opened(studio, page, small)
    change_the_preset(studio, page)
    resize_the_network(studio, page)
    rate = field(page, "Bandwidth of dimension 0")
    first = rate.input_value()
    rate.fill("")
    rate.press_sequentially("123", delay=250)
    quiet(page)
    typed(studio, page, "Latency of dimension 0", "77")
    type_what_is_wrong(studio, page)
    reload_and_take_back(studio, page, first)


# ---------------------------------------------------------------------------------------------------
# Steps while the answer to another one is under way


def click_in_a_row(page):
    """Clicks are steps also where the answer to the first is still under way at the last.

    What was typed just before counts, and so does what is typed meanwhile, though the answer draws the field anew.
    """
    first = field(page, "Bandwidth of dimension 0").input_value()
    field(page, "Bandwidth of dimension 0").fill("321")
    add = page.get_by_role("button", name="Add dimension")
    asked = Held(page, "sim-edit-answered")
    for _ in range(3):
        add.click()
    until(page, lambda: len(asked) == 1)
    page.wait_for_timeout(300)
    assert len(asked) == 1
    field(page, "Latency of dimension 0").fill("44")
    asked.let_go()
    field(page, "NPUs of dimension 3").wait_for()
    until(page, lambda: field(page, "Latency of dimension 0").input_value() == "44")
    assert field(page, "Bandwidth of dimension 0").input_value() == "321"
    quiet(page)
    undo = page.get_by_role("button", name="Undo")
    for _ in range(5):
        undo.click()
    # What was typed meanwhile is a step before the answer to the click, after it, or both.
    for _ in range(2):
        quiet(page)
        added = field(page, "NPUs of dimension 1").count()
        if added or field(page, "Bandwidth of dimension 0").input_value() != first:
            undo.click()
    until(page, lambda: field(page, "NPUs of dimension 1").count() == 0)
    until(page, lambda: field(page, "Bandwidth of dimension 0").input_value() == first)


def walk_back_in_the_middle_of_a_step(studio, page):
    """The answer to the step comes when the address is elsewhere: the form goes there, too."""
    typed(studio, page, "Latency of dimension 0", "77")
    typed(studio, page, "Bandwidth of dimension 0", "456")
    before = view(page)["config"]
    asked = Held(page, "sim-edit-answered")
    page.get_by_role("button", name="Add dimension").click()
    until(page, lambda: asked)
    page.go_back()
    until(page, lambda: field(page, "Bandwidth of dimension 0").input_value() != "456")
    there = view(page)["config"]
    assert there != before
    # The answer brings the step's form, and with it the request for that of the address.
    with page.expect_response(
        lambda answer: '"changedPropIds":["sim-show.data"]' in (answer.request.post_data or "")
    ):
        asked.let_go()
    until(page, lambda: field(page, "Bandwidth of dimension 0").input_value() != "456")
    until(page, lambda: field(page, "NPUs of dimension 1").count() == 0)
    assert field(page, "Latency of dimension 0").input_value() == "77"
    assert view(page)["config"] == there


def click_on_a_row_that_has_moved(studio, page):
    """A row is removed, and another one moved before the form tells of it: only the first is done."""
    page.get_by_role("button", name="Add dimension").click()
    field(page, "NPUs of dimension 2").wait_for()
    quiet(page)
    for at in (1, 2):
        typed(studio, page, f"NPUs of dimension {at}", str(5 + at))
    quiet(page)
    asked = Held(page, "sim-edit-answered")
    page.get_by_role("button", name="Remove (dimension 0)").click()
    until(page, lambda: asked)
    page.get_by_role("button", name="Move towards the NPU (dimension 2)").click()
    asked.let_go()
    until(page, lambda: field(page, "NPUs of dimension 0").input_value() == "6")
    quiet(page)
    assert field(page, "NPUs of dimension 1").input_value() == "7"
    # The buttons go on working.
    page.get_by_role("button", name="Undo").click()
    field(page, "NPUs of dimension 2").wait_for()


def leave_in_the_middle_of_a_step(studio, page):
    """A page that was left keeps its system, and its order keeps nothing waiting."""
    typed(studio, page, "Latency of dimension 0", "4321")
    quiet(page)
    asked = Held(page, "sim-edit-answered")
    page.get_by_role("button", name="Add dimension").click()
    until(page, lambda: asked)
    elsewhere(page)
    asked.let_go()
    back(page)
    assert field(page, "Latency of dimension 0").input_value() == "4321"
    page.get_by_role("button", name="Add dimension").click()
    field(page, "NPUs of dimension 1").wait_for()


def change_the_model_while_a_field_is_taken_over(page):
    """It brings its own fields. The answer to the field says that the preset was changed, which asks anew meanwhile."""
    unfold(page, "Communication slots")
    asked = Held(page, "sim-step")
    field(page, "Bandwidth of dimension 0").fill("123")
    until(page, lambda: len(asked) == 1)
    page.get_by_text("ASTRA-sim", exact=True).click()
    until(page, lambda: len(asked) == 2)
    with page.expect_response(lambda answer: answer.request == asked[0].request):
        asked[0].continue_()
    until(page, lambda: len(asked) == 3)
    del asked[0]
    asked.let_go()
    until(page, lambda: page.get_by_label("Communication slots", exact=True).count() == 0)
    # In GB of 10^9 bytes before, of 2^30 in ASTRA-sim.
    assert float(field(page, "Bandwidth of dimension 0").input_value()) == pytest.approx(123e9 / 2**30)
    page.get_by_text("Full", exact=True).click()
    unfold(page, "Communication slots")
    unfold(page, "Compute speeds")
    field(page, "Compute speeds").fill("9: 2")
    page.locator(".sim-said >> text=NPU '9'").wait_for()
    page.get_by_text("ASTRA-sim", exact=True).click()
    until(page, lambda: page.get_by_label("Communication slots", exact=True).count() == 0)
    page.locator(".sim-said >> text=NPU '9'").wait_for(state="hidden")
    page.get_by_text("Full", exact=True).click()
    page.locator(".sim-congestion").wait_for(state="hidden")
    quiet(page)


def test_steps_count_while_the_answer_to_another_is_under_way(studio, page, small):
    opened(studio, page, small)
    change_the_model_while_a_field_is_taken_over(page)
    click_in_a_row(page)
    walk_back_in_the_middle_of_a_step(studio, page)
    leave_in_the_middle_of_a_step(studio, page)
    click_on_a_row_that_has_moved(studio, page)


# ---------------------------------------------------------------------------------------------------
# Runs


def run_what_was_typed_a_moment_ago(studio, page, job):
    typing = Held(page, "sim-step")
    field(page, "Latency of dimension 0").fill("98765")
    until(page, lambda: typing)
    page.locator("#sim-run").click()
    until(page, lambda: Workspace(studio.workspace).runs(job))
    assert Workspace(studio.workspace).runs(job)[0].tables.network["latency"] == [98765]
    typing.let_go()
    page.locator(".sim-made >> text=Simulated with the settings in the form.").wait_for()


def rename_edit_delete_and_restore(studio, page):
    chosen(page, "GB/s", re.compile("^Rename"))
    page.locator(".sim-runs .cs-renaming").wait_for()
    page.keyboard.press("Escape")
    page.locator(".sim-runs .cs-renaming").wait_for(state="detached")
    chosen(page, "GB/s", re.compile("^Rename"))
    page.fill(".sim-runs .cs-rename input, .sim-runs input.cs-rename", "base <b>line</b>")
    page.keyboard.press("Enter")
    page.locator(".sim-runs a:text-is('base <b>line</b>')").wait_for()
    typed(studio, page, "Latency of dimension 0", "5000")
    chosen(page, "base <b>line</b>", "Edit the system of base <b>line</b>")
    until(page, lambda: field(page, "Latency of dimension 0").input_value() != "5000")
    chosen(page, "base <b>line</b>", "Delete base <b>line</b>")
    page.get_by_text("No run of this job yet.").wait_for()
    page.locator("#sim-deleted >> text=Undo").click()
    page.locator(".sim-runs a:text-is('base <b>line</b>')").wait_for()
    assert "Open the timeline" in page.locator(".sim-result").inner_text()


def compare_a_run_with_the_form(studio, page):
    """Less bandwidth takes longer; the result that is shown says how it differs from the form, and loads its settings."""
    [before] = Workspace(studio.workspace).runs(view(page)["job"])
    assert before.tables.network["bandwidth"][0] > 40
    typed(studio, page, "Bandwidth of dimension 0", "40")
    assert simulated(page) > before.makespan_ns
    assert page.locator(".sim-runs tbody tr").count() == 2
    # The run that is shown is what the others are compared with.
    page.locator(".sim-runs tr[aria-current] >> text=shown").wait_for()
    page.locator(".sim-differs", has_text=re.compile("^bandwidth [0-9]")).first.wait_for()
    page.locator(".sim-result .js-plotly-plot").wait_for()
    made = page.locator(".sim-made")
    made.get_by_text("Simulated with the settings in the form.").wait_for()
    # It is not drawn anew while the form changes, so that its own button can be clicked at any time.
    page.evaluate("() => { document.querySelector('.sim-result').dataset.drawn = 'once'; }")
    typed(studio, page, "Bandwidth of dimension 0", "20")
    made.get_by_text("Settings that differ from the form: bandwidth 40 GB/s").wait_for()
    quiet(page)
    assert page.locator(".sim-result").get_attribute("data-drawn") == "once"
    page.get_by_role("button", name="Load its settings").click()
    until(page, lambda: field(page, "Bandwidth of dimension 0").input_value() == "40")
    made.get_by_text("Simulated with the settings in the form.").wait_for()
    page.get_by_role("button", name="Undo").click()
    until(page, lambda: field(page, "Bandwidth of dimension 0").input_value() == "20")


def test_runs_are_made_renamed_edited_deleted_restored_and_compared(studio, page, small):
    opened(studio, page, small)
    run_what_was_typed_a_moment_ago(studio, page, small)
    rename_edit_delete_and_restore(studio, page)
    compare_a_run_with_the_form(studio, page)


def left_running(studio, page, name):
    """A job whose simulation takes long, left for another page with the list of what runs open; returns the job's id."""
    nodes = [collective(n, "ALL_REDUCE", 64 * MIB, *([n - 1] if n > 1 else [])) for n in range(1, 3000)]
    # Ranks that compute for different times cannot stand for each other, which would be over in no time.
    job = stored(
        studio, name, trace_of([[*nodes, node(3000, "COMP", micros=rank + 1)] for rank in range(24)])
    )
    opened(studio, page, job)
    # A cost model has them over in no time, too.
    page.get_by_text("ASTRA-sim", exact=True).click()
    page.locator(".sim-congestion").wait_for()
    unfold(page, "Chunks per collective")
    # Half a minute on a quiet machine: a time left is told after a few seconds only, and the run must not be over by then.
    typed(studio, page, "Chunks per collective", "512")
    run_and_leave(page)
    return job


def run_and_leave(page):
    """Run, leave for another page, and open the list of what runs there."""
    page.locator("#sim-run").click()
    page.get_by_role("progressbar").wait_for()
    elsewhere(page)
    page.locator("#activity summary").wait_for()
    # What was opened before is still open.
    if not page.locator("#activity-list").is_visible():
        page.locator("#activity summary").click()


def test_a_simulation_goes_on_elsewhere_and_can_be_cancelled(studio, page):
    """It shows in the bar of every page, is found again there, and stops when it is told to, there and in the bar."""
    job = left_running(studio, page, "long")
    # Other tasks, as the search for advice of a job shown before, may be under way as well.
    item = page.locator("#activity-list li", has_text="simulation · long")
    until(page, lambda: re.search(r"simulation · long · \d+ %, .* nodes, .* left", item.inner_text()))
    item.locator("a").click()
    page.locator("#overview-body").wait_for(state="detached")
    page.get_by_role("progressbar").wait_for()
    # Whoever is about to press it has the same button before them all the time.
    cancel = page.get_by_role("button", name=re.compile("^Cancel "))
    cancel.focus()
    stand = page.locator(".sim-stand").inner_text()
    until(page, lambda: page.locator(".sim-stand").inner_text() != stand)
    assert cancel.evaluate("button => button === document.activeElement")
    cancel.click()
    page.get_by_text("was cancelled.").wait_for()
    page.get_by_role("button", name=re.compile("^Dismiss ")).click()
    page.get_by_text("No run of this job yet.").wait_for()
    until(page, lambda: page.get_by_text("was cancelled.").count() == 0)
    assert Workspace(studio.workspace).runs(job) == []
    run_and_leave(page)
    item.get_by_role("button", name=re.compile("^simulation .*: cancel$")).click()
    page.locator("#activity").wait_for(state="hidden")
    assert Workspace(studio.workspace).runs(job) == []


def open_a_link_to_a_run(studio, page, job):
    """Where nothing was edited before, the form has the settings of the run."""
    draft = propose_draft(Workspace(studio.workspace).load(job))
    tables = replace(draft.tables, network={**draft.tables.network, "latency": [4321]})
    result = simulate(Workspace(studio.workspace).load(job), interpret(tables).config, native=compiled())
    run = Workspace(studio.workspace).save_run(job, Run("slow", result, tables))
    opened(studio, page, job, run=run)
    page.locator(".sim-made", has_text="Simulated with the settings in the form.").wait_for()
    assert field(page, "Latency of dimension 0").input_value() == "4321"


def take_files_in_and_out(page, folder):
    """They come in by their content, and go out as they were."""
    (folder / "a.yml").write_text(NETWORK, encoding="utf-8")
    (folder / "b.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    (folder / "c.json").write_text(json.dumps({"7": [0, 1]}), encoding="utf-8")
    page.locator("#sim-upload input").set_input_files(
        [folder / name for name in ("a.yml", "b.json", "c.json")]
    )
    page.get_by_text("c.json: read as comm_group.json.").wait_for()
    until(page, lambda: field(page, "Latency of dimension 1").input_value() == "700.5")
    page.locator(".sim-told-first", has_text="an-unknown-key is no key of this file").wait_for()
    with page.expect_download() as download:
        page.locator("#sim-export").click()
    with zipfile.ZipFile(io.BytesIO(download.value.path().read_bytes())) as archive:
        assert json.loads(archive.read("system.json")) == SYSTEM
        assert json.loads(archive.read("comm_group.json")) == {"7": [0, 1]}
        network = archive.read("network.yml").decode()
    assert "bandwidth: [50, 12.5]" in network
    assert "latency: [500, 700.5]" in network
    (folder / "d.json").write_text('{"name": 1}', encoding="utf-8")
    page.locator("#sim-upload input").set_input_files([folder / "d.json"])
    page.get_by_text("d.json: not one of ASTRA-sim's files").wait_for()


def run_ranks_that_disagree(studio, page):
    """Rank 1 never takes part in the second all-reduce: both lists of what is wrong say so."""
    both = [collective(1, "ALL_REDUCE", MIB), collective(2, "ALL_REDUCE", MIB, 1)]
    job = stored(studio, "stuck", trace_of([both, both[:1]]))
    go(page, f"{studio.url}/simulate?job={job}")
    page.locator(".sim-told-first", has_text="rank 1").wait_for()
    page.get_by_role("button", name="Run anyway").click()
    report = page.locator("#sim-active [role=alert]")
    report.wait_for()
    text = report.inner_text()
    assert "rank 0" in text
    assert "node 2" in text


def test_runs_and_files_bring_their_settings_and_ranks_that_disagree_are_named(studio, page, small, tmp_path):
    open_a_link_to_a_run(studio, page, small)
    take_files_in_and_out(page, tmp_path)
    run_ranks_that_disagree(studio, page)
