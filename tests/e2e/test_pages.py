"""What holds for every page: it shows a job in both themes without a complaint, and nothing in a trace can harm it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import expect

from studio.et.schema import load_schema
from tests.conftest import WINDOW
from tests.e2e.accessibility import COLOURS, GUIDELINES, hold_against
from tests.e2e.conftest import Held, Studio, becomes, quiet, until, view
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e

PAGES = {
    "": "h1",
    "overview": ".cs-facts",
    "workloads": "#workload-mesh svg",
    "ranks": "#ranks-after svg",
    "nodes": ".ag-row",
    "graph": "#graph-canvas canvas",
    "timeline": "#timeline-scroll[data-ready]",
    "collectives": "#collectives-heat[data-ready], .cs-empty",
    "simulate": "#sim-drawing svg",
    "sql": "#sql-grid .ag-row",
    "sweep": "#sweep-run:enabled",
    "compare": ".cs-compare-list",
    "trends": "#trends-figure .main-svg",
    "findings": "#findings-list",
    "validate": "h1",
    "explain": ".cs-explain-formula",
}
"""Every page, and what is there once it shows a job."""

HOSTILE = "<img src=x onerror=window.harmed=1>"


def test_every_registered_page_is_looked_at(studio: Studio, page) -> None:
    """A page that is added to the navigation is added to these tests.

    One step back leads to the page before, also from those that fill in the address; a choice of the user is a step.
    """
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector("nav a")
    links = page.eval_on_selector_all(
        "nav a", "links => links.map(link => new URL(link.href).pathname.slice(1))"
    )
    assert set(links) == set(PAGES)
    for name, filled_in in (("Trends", "series="), ("Validate", "system="), ("Explain", "npus=8")):
        page.locator("nav").get_by_text(name, exact=True).click()
        page.wait_for_url(f"**/{name.lower()}?*{filled_in}*")
        quiet(page)
        page.go_back()
        page.wait_for_url("**/overview?job=*")
    page.go_forward()
    page.wait_for_selector(".cs-explain-formula")
    quiet(page)
    page.locator("#explain-npus").fill("16")
    page.locator("#explain-npus").press("Enter")
    page.wait_for_url("**/explain?*npus=16*")
    quiet(page)
    page.go_back()
    page.wait_for_url("**/explain?*npus=8*")


FITS = """document.documentElement.scrollWidth <= innerWidth
    && [...document.querySelectorAll('.cs-figure')].every(one => one.scrollWidth <= one.clientWidth)"""
"""Nothing is cut off sideways."""

SEEN = """() => {
    const content = document.getElementById("content");
    const fields = [...content.querySelectorAll("input, select")].filter(one => one.offsetParent && one.type !== "radio");
    const chosen = [...content.querySelectorAll("input[type=radio]:checked")];
    return [content.innerText, ...[...fields, ...chosen].map(one => one.value)].join("\\n");
}"""


@pytest.mark.parametrize("name", PAGES, ids=lambda name: name or "home")
def test_a_page_shows_a_job_is_accessible_and_shows_another_one_in_place(
    studio: Studio, page, name: str
) -> None:
    """No complaint in the console; in both themes nothing cut off sideways and no rule of WCAG A or AA broken.

    Another job is shown as if it had been opened: the page is not drawn anew, empty, over what it shows of the job already;
    and nothing is left of the job before.
    """
    page.emulate_media(color_scheme="light")
    page.goto(studio.address(name, "transformer_8r", rank=0, node=40))
    page.wait_for_selector(PAGES[name])
    page.wait_for_selector("#inspector h2")
    quiet(page)
    # The least last: what is in sight costs the rules below their time.
    for width, height in ((2560, 1080), (1440, 900), (1024, 768)):
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator("html")).to_have_js_property("clientWidth", width)
        quiet(page)
        until(page, FITS)  # figures follow the window a moment later
    for scheme, rules in (("light", GUIDELINES), ("dark", COLOURS)):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-mantine-color-scheme='{scheme}']", state="attached")
        quiet(page)
        hold_against(page, rules)
    if name:
        show_another_job(studio, page, name)


def show_another_job(studio: Studio, page, name: str) -> None:
    """Choose another job, and compare with the same page of that job opened afresh."""
    other = studio.job("imbalance_8r")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WINDOW)
    page.evaluate("window.studio.view.changeView({ q: 'fc1', node: '40', rank: '3', tab: 'traffic' })")
    quiet(page)
    assert view(page)["q"] == "fc1"
    page.evaluate("document.querySelector('#_pages_content > *').id = 'the-same'")
    choose_job(page, name, "imbalance_8r", other)
    in_place = read_content(page, name)
    assert page.locator("#the-same").count() == 1
    page.goto(page.url)
    afresh = read_content(page, name)
    end = time.monotonic() + PATIENCE_S
    # What is computed in the background may have come in between, more than once: again, in place and afresh.
    while in_place != afresh and time.monotonic() < end:
        choose_job(page, name, "transformer_8r", studio.job("transformer_8r"))
        quiet(page)
        choose_job(page, name, "imbalance_8r", other)
        in_place = read_content(page, name)
        page.goto(page.url)
        afresh = read_content(page, name)
    assert in_place == afresh


def read_content(page, name: str) -> str:
    """Return what the page shows once it shows a job and nothing on it is still being computed."""
    page.wait_for_selector(PAGES[name])
    expect(page.locator("#content .cs-loading:visible")).to_have_count(0)
    quiet(page)
    return page.evaluate(SEEN)


def choose_job(page, name: str, job: str, identifier: str) -> None:
    """Choose a job in the bar."""
    page.locator("#job-pick").click()
    page.get_by_role("option", name=job, exact=True).click()
    page.wait_for_url(f"**/{name}?job={identifier}*")


def test_a_job_that_is_chosen_while_an_import_ends_is_shown(studio: Studio, page) -> None:
    """The jobs are listed anew then; what is chosen meanwhile counts."""
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector(".cs-facts")
    quiet(page)
    listing = Held(page, "job-pick")
    page.evaluate("dash_clientside.set_props('imported', { data: 'a job' })")
    until(page, lambda: listing)
    page.locator("#job-pick").click()
    page.get_by_role("option", name="imbalance_8r", exact=True).click()
    listing.let_go()
    page.wait_for_url(f"**/overview?job={studio.job('imbalance_8r')}*")
    becomes(page, page.locator("#job-pick").input_value, "imbalance_8r")


def test_dark_pages_do_not_flash(studio: Studio, page) -> None:
    """The theme is set before anything is drawn: the first paint already has the dark background."""
    page.emulate_media(color_scheme="dark")
    page.add_init_script(
        "new PerformanceObserver(list => { window.first ??= getComputedStyle(document.body || document.documentElement)"
        ".backgroundColor }).observe({type: 'paint', buffered: true})"
    )
    page.goto(studio.url)
    page.wait_for_selector("h1")
    until(page, "Boolean(window.first)")
    red, green, blue = page.evaluate("window.first.match(/\\d+/g).slice(0, 3).map(Number)")
    assert max(red, green, blue) < 80


def test_the_theme_is_chosen_and_remembered(studio: Studio, page) -> None:
    """System, light, dark, in turn; the choice survives a reload."""
    page.emulate_media(color_scheme="light")
    page.goto(studio.url)
    page.click("#theme-toggle")
    page.click("#theme-toggle")
    page.wait_for_selector("html[data-mantine-color-scheme='dark']", state="attached")
    page.reload()
    page.wait_for_selector("[title='Theme: dark']")
    assert page.evaluate("document.documentElement.dataset.mantineColorScheme") == "dark"


LIST_TWO_RUNS = """pause => {
  const list = (...runs) => {
    const value = runs.at(-1), data = runs.map(run => ({ value: run, label: run }));
    dash_clientside.set_props("run-pick", { data, value });
    dash_clientside.set_props("listed-run", { data: value });
  };
  list("one");
  return new Promise(done => setTimeout(() => { list("one", "two"); setTimeout(done, 100); }, pause));
}"""
"""Give the switch of runs the answers of two callbacks, the second some milliseconds later."""


LEAVE_AND_ANSWER = """to => {
  window.studio.view.visit(to);
  window.studio.view.changeView({ run: "recorded" }, { replace: true });
  return window.location.search;
}"""
"""Go to another page, and have the page that is left change the view before the next one is there."""


def test_the_bar_jumps_shares_and_sets_the_unit_of_times(studio: Studio, page) -> None:
    """Ctrl+K leads to pages, ranks and nodes by keyboard alone; Share copies the address; times follow the unit."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector(".cs-facts")
    # Another selection leaves the page as it is: drawn anew, it would jump. A second call may be on its way at first.
    # The headline is drawn again when a task ends, as the check of the job may just now.
    quiet(page)
    page.evaluate("document.querySelector('.cs-facts:not(.cs-headline)').dataset.same = ''")
    page.evaluate("window.studio.view.changeView({ node: '40', rank: '0' })")
    page.locator("#inspector h2").wait_for()
    quiet(page)
    assert page.locator(".cs-facts[data-same]").count() == 1

    # A select tells late what it was given: by then the next answer has come. That chooses no run.
    address = page.url
    for pause_ms in (0, 5, 10):
        page.evaluate(LIST_TWO_RUNS, pause_ms)
        quiet(page)
        assert page.url == address

    def jump(text: str, first: str) -> None:
        page.keyboard.press("Control+k")
        page.locator(".cs-palette input").fill(text)
        page.locator("#palette-0", has_text=first).wait_for()
        page.keyboard.press("Enter")

    jump("rank 2", "rank 2")
    page.wait_for_url("**/graph?*rank=2*")
    page.goto(studio.address("timeline", "transformer_32r"))
    page.wait_for_selector("#timeline-scroll canvas")
    jump("rank 31", "rank 31")
    until(page, lambda: page.locator("#timeline-scroll").evaluate("box => box.scrollTop") > 0)
    jump("nod", "Nodes")
    page.wait_for_url("**/nodes?*")
    jump("rank 3", "rank 3")
    page.locator(".ag-row[row-index='0'] [col-id=rank]", has_text="3").wait_for()
    jump("117", "node 117")
    page.locator("#inspector h2").wait_for()
    page.click("#share")
    page.get_by_text("Link to this view copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url

    # A late answer to the page that is left is none to the next one.
    assert "run=" not in page.evaluate(
        LEAVE_AND_ANSWER, studio.address("graph", "transformer_32r", rank=0, node=117)
    )
    page.wait_for_selector("#graph-canvas[data-ready]")
    page.evaluate("window.studio.view.changeView({ run: 'recorded' }, { replace: true })")
    assert view(page)["run"] == "recorded"

    page.click("#time-unit")
    page.get_by_role("option", name="time: ns").click()
    page.locator("#inspector").get_by_text(re.compile(r"^[0-9,]+ ns$")).first.wait_for()
    page.keyboard.press("Control+k")
    page.locator(".cs-palette input").fill("nothing is called like this")
    page.get_by_text("No matches.").wait_for()
    page.keyboard.press("Escape")
    assert not page.locator(".cs-palette").is_visible()


def hostile_file(folder: Path) -> Path:
    """Write a trace with markup in every text field there is."""
    types = load_schema()
    metadata = types.metadata(version=HOSTILE)
    metadata.attr.add(name=HOSTILE, string_val=HOSTILE, doc_string=HOSTILE)
    nodes = []
    for number in (1, 2):
        node = types.node(id=number, name=HOSTILE + str(number), type=7, data_deps=[1] if number == 2 else [])
        node.start_time_micros, node.duration_micros = 10 * number, 5
        for io in (node.inputs, node.outputs):
            io.values = io.shapes = io.types = HOSTILE
        node.attr.add(name=HOSTILE, string_val=HOSTILE, doc_string=HOSTILE)
        node.attr.add(name="list", doc_string=HOSTILE).string_list.values.extend([HOSTILE, HOSTILE])
        node.attr.add(name="bytes", bytes_val=HOSTILE.encode())
        node.attr.add(name="pg_name", string_val=HOSTILE)
        node.attr.add(name="comm_type", int64_val=0)
        node.attr.add(name="comm_size", int64_val=4096)
        nodes.append(node)
    path = folder / "<img src=x onerror=window.harmed=1>.0.et"
    records = [record.SerializeToString() for record in (metadata, *nodes)]
    content = b""
    for record in records:
        size = len(record)
        content += (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + record
    path.write_bytes(content)
    return path


def test_nothing_in_a_trace_runs_or_breaks_a_page(studio: Studio, page, tmp_path: Path) -> None:
    """Markup in the file's name and in every text of the trace is shown as text, on every page."""
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    with page.expect_file_chooser() as chooser:
        page.click("#home-pick-files")
    chooser.value.set_files(hostile_file(tmp_path))
    page.wait_for_url("**/overview?job=*")
    page.wait_for_selector(".cs-facts")
    job = page.evaluate("window.studio.view.readView().job")
    quiet(page)
    for name, ready in PAGES.items():
        page.evaluate(f"window.studio.view.goTo('/{name}', {{job: '{job}', rank: '0', node: '2'}})")
        page.wait_for_selector(ready)
        page.wait_for_selector("#inspector h2")
        assert HOSTILE in page.inner_text("#inspector")
        quiet(page)
        assert page.locator("img[src='x']").count() == 0
        assert page.evaluate("window.harmed") is None


def test_a_dropped_job_is_opened_and_its_nodes_are_found(studio: Studio, page, shared: Path) -> None:
    """Real traces of eight ranks and their comm groups, chosen in the browser, become a job with the right counts."""
    files = sorted((shared / "traces" / "stg" / "llama_8r_dp2tp2pp2").iterdir())
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    with page.expect_file_chooser() as chooser:
        page.click("#home-pick-files")
    chooser.value.set_files(files)
    page.wait_for_url("**/overview?job=*")
    page.wait_for_selector("text=2,816")
    page.click("nav >> text=Nodes")
    page.wait_for_selector(".ag-row")
    page.wait_for_selector("text=mb0.transformer.0.input_norm.y@0_COMP")


def test_a_wrong_file_is_refused_in_place(studio: Studio, page, tmp_path: Path) -> None:
    """The page says what the file is, and what could be opened instead."""
    wrong = tmp_path / "notes.0.et"
    wrong.write_text("These are notes, not a trace.\n" * 20)
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    with page.expect_file_chooser() as chooser:
        page.click("#home-pick-files")
    chooser.value.set_files(wrong)
    page.wait_for_selector("text=it looks like a text file")
    page.wait_for_selector("text=Formats that can be opened")


def test_jobs_are_renamed_deleted_and_restored(studio: Studio, page) -> None:
    """What the list of jobs offers, with the job switch in step."""
    page.goto(studio.url)
    page.click("text=Mixture of experts, out of balance")
    page.wait_for_url("**/overview?job=*")
    page.click("nav >> text=Home")
    row = page.locator("tr", has=page.get_by_role("button", name="Rename Mixture of experts, out of balance"))
    # A task ends while the answer to the click is under way: Dash asks anew, and drops that answer.
    quiet(page)
    listed = Held(page, "home-jobs.children")
    row.get_by_role("button", name="Rename").click()
    # Tasks of the job that has just come may end by themselves meanwhile, so others may ask, too.
    until(page, lambda: any("home-refresh.data" in route.request.post_data for route in listed))
    asked = len(listed)
    page.evaluate("dash_clientside.set_props('home-tasks-changed', { data: 'another task ended' })")
    until(page, lambda: len(listed) > asked)
    listed.let_go()
    page.fill(".cs-rename input", "renamed <b>job</b>")
    # What is typed stays where one ends then.
    page.evaluate("dash_clientside.set_props('home-tasks-changed', { data: 'and another one' })")
    quiet(page)
    assert page.input_value(".cs-rename input") == "renamed <b>job</b>"
    page.keyboard.press("Enter")
    # Names may be broken between their parts.
    link = page.get_by_role("link", name="renamed <b>job</b>", exact=True)
    link.wait_for()
    page.get_by_role("button", name="Delete renamed <b>job</b>").click()
    page.wait_for_selector("text=was deleted.")
    until(page, lambda: link.count() == 0)
    page.click("text=Undo")
    link.wait_for()


def test_enter_in_the_palette_means_what_was_typed(studio: Studio, page) -> None:
    """Also before its list has come: never an entry of the list before."""
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector(".cs-facts")
    page.keyboard.press("Control+k")
    page.locator(".cs-palette input").fill("timeline")
    page.locator("#palette-0", has_text="Timeline").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.locator("#palette-0").wait_for()
    held = Held(page, "/api/palette?")
    page.keyboard.type("findings")
    page.keyboard.press("Enter")
    until(page, lambda: any("q=findings" in route.request.url for route in held))
    assert "/overview" in page.url
    held.let_go()
    page.wait_for_url("**/findings?*")
    assert page.locator(".cs-palette").is_hidden()


def test_a_link_of_the_navigation_keeps_a_job_that_has_just_come(studio: Studio, page) -> None:
    """A click in the moment in which an import opens its job, before Dash has drawn the links anew."""
    page.goto(studio.url)
    page.wait_for_selector("#home-drop[data-upload-ready]")
    job = studio.job("imbalance_8r")
    page.evaluate(
        """address => {
          window.studio.view.visit(address);
          document.querySelector("a.cs-nav[href^='/nodes']").click();
        }""",
        f"/overview?job={job}",
    )
    page.wait_for_url(f"**/nodes?job={job}")
    page.wait_for_selector("#nodes-grid .ag-row")


@pytest.mark.parametrize("width", [740, 1024, 1201])
def test_the_bar_has_room_for_what_runs(studio: Studio, page, width: int) -> None:
    """No button is cut when the count of tasks comes."""
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(studio.address("nodes", "imbalance_8r"))
    page.wait_for_selector(".ag-row")
    page.evaluate(
        "() => { document.getElementById('activity').hidden = false;"
        " document.getElementById('activity-count').textContent = '2 running'; }"
    )
    assert page.evaluate("document.getElementById('theme-toggle').getBoundingClientRect().right") <= width


def test_an_unknown_job_is_an_error_in_place(studio: Studio, page) -> None:
    """An address with a job that is gone says so and names the way out."""
    page.goto(f"{studio.url}/overview?job=transformer-8r-000000")
    page.wait_for_selector("[role=alert] >> text=There is no job")


def test_back_walks_through_the_selection(studio: Studio, page) -> None:
    """A neighbour clicked in the inspector is one step of the browser's history."""
    page.goto(studio.address("overview", "transformer_8r", rank=0, node=40))
    page.wait_for_selector("#inspector h2")
    first = page.inner_text("#inspector h2")
    page.click("#inspector .cs-neighbours a")
    page.wait_for_function("name => document.querySelector('#inspector h2')?.innerText !== name", arg=first)
    page.go_back()
    page.wait_for_function("name => document.querySelector('#inspector h2')?.innerText === name", arg=first)


def test_the_job_before_is_dimmed_until_the_other_one_is_there(studio: Studio, page) -> None:
    page.goto(studio.address("overview", "transformer_8r"))
    page.wait_for_selector(".cs-facts")
    quiet(page)
    held = Held(page, "/_dash-update")
    page.evaluate("job => window.studio.view.goTo('/overview', { job })", studio.job("imbalance_8r"))
    shown = page.locator("#_pages_content")
    until(page, lambda: shown.evaluate("one => Number(getComputedStyle(one).opacity)") < 0.5)
    held.let_go()
    until(page, lambda: shown.evaluate("one => getComputedStyle(one).opacity") == "1")
    page.locator(".cs-page-head h1", has_text="imbalance_8r").wait_for()


def test_a_page_that_takes_long_says_what_it_does(studio: Studio, page) -> None:
    """While the studio works nothing is blank: words where the page will be, and a line below the bar."""
    held = []

    def hold(route) -> None:
        # The router's own answer brings the page in.
        first = (route.request.post_data or "")[:160]
        route.continue_() if '"_pages_content' in first or '".._pages' in first else held.append(route)

    page.route(lambda address: "_dash-update" in address, hold)
    for name, words in {
        "overview": "Reading the job…",
        "timeline": "Reading the times…",
    }.items():
        page.goto(studio.address(name, "transformer_8r"))
        page.get_by_text(words).wait_for()
        page.locator("._dash-loading-callback").wait_for()
    for route in held[-10:]:
        with suppress(Exception):  # those of the page that was left
            route.continue_()
    page.unroute_all()
