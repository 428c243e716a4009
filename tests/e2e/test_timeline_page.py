"""The timeline in a browser: what is drawn, said, selected and kept in the address."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

import studio as library
from studio.analysis.timeline.counters import count_in_flight
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.window import compute_idle_times, compute_shares
from studio.samples import sample_path
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.timeline import recorded
from studio.units import format_ns, format_offset
from tests.e2e.accessibility import ALL, SERIOUS, hold_against
from tests.e2e.conftest import Held, Studio, quiet, until
from tests.e2e.conftest import view_within_job as view
from tests.e2e.going import go
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

pytestmark = pytest.mark.e2e

JOB = "transformer_8r"
PARTS = Parts(
    {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]},
    {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 2,
        "all-reduce-implementation": ["ring"],
    },
)


def opened(studio: Studio, page, name: str = JOB, **more: object):
    """Show the timeline of a job and wait until all that is in sight is drawn."""
    go(page, studio.address("timeline", name, **more))
    page.wait_for_selector("#timeline-scroll[data-ready]")
    # What was shown before in the same document is scrolled, and its search may have the focus.
    page.evaluate("document.querySelector('#timeline-scroll').scrollTop = 0; document.activeElement.blur()")
    quiet(page)
    return page


def moment(page, key: str) -> float:
    """The moment that the address names, in nanoseconds; one that equals nothing while it names none."""
    return float(view(page).get(key, "nan"))


def point(page, row: int, ns: float) -> dict[str, float]:
    """Where on the page a moment of a row is drawn."""
    return page.evaluate("([row, ns]) => window.studio.timeline.point(row, ns)", [row, ns])


def pixels(page, row: int, times: list[float]) -> list[tuple[int, ...]]:
    """The colours of moments of a row."""
    return [
        tuple(one)
        for one in page.evaluate(
            """([row, times]) => {
                const canvas = document.querySelector('#timeline-scroll canvas'), box = canvas.getBoundingClientRect();
                const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
                const pen = copy.getContext('2d', {willReadFrequently: true}), ratio = canvas.width / box.width;
                pen.drawImage(canvas, 0, 0);
                return times.map(time => {
                    const at = window.studio.timeline.point(row, time);
                    return [...pen.getImageData((at.x - box.left) * ratio, (at.y - box.top) * ratio, 1, 1).data];
                });
            }""",
            [row, times],
        )
    ]


def token(page, name: str) -> tuple[int, ...]:
    """A colour of the stylesheet."""
    text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()")
    return (*(int(text[at : at + 2], 16) for at in (1, 3, 5)), 255)


@pytest.fixture(scope="module")
def recording():
    """The sample's spans of the first row, its compute: node, start and end after the first start of the job."""
    trace = library.read(sample_path(JOB))
    timeline = recorded(trace, [0])
    origin = int(recorded(trace).start_ns.min())
    part = timeline.of_lane(next(at for at, lane in enumerate(timeline.lanes) if lane.kind == "stream"))
    rows = zip(
        timeline.row[part].tolist(),
        timeline.start_ns[part].tolist(),
        timeline.end_ns[part].tolist(),
        strict=True,
    )
    return trace, [(row, start - origin, end - origin) for row, start, end in rows]


def look_at_bars(page, spans) -> None:
    """In the middle of a node its colour, in a gap between two the background."""
    long = sorted(spans, key=lambda one: one[1] - one[2])[:5]
    assert set(pixels(page, 0, [(start + end) / 2 for _, start, end in long])) == {
        token(page, "--cs-compute")
    }
    gaps = sorted((after[1] - one[2], one[2]) for one, after in pairwise(spans))[-3:]
    found = pixels(page, 0, [end + 0.4 * gap for gap, end in gaps])
    assert token(page, "--cs-compute") not in found
    assert token(page, "--cs-bg") in found


def point_at_a_bar(studio: Studio, page, recording) -> None:
    """The figures are the library's, printed as everywhere."""
    trace, spans = recording
    graph = trace.graph_of(trace.ranks[0])
    opened(studio, page)
    span = page.evaluate("window.studio.timeline.stats().to") / 1.01
    node, start, end = max(spans, key=lambda one: one[2] - one[1])
    at = point(page, 0, (start + end) / 2)
    page.mouse.move(at["x"], at["y"])
    name = graph.strings[int(graph.name[node])]
    issued, back = (format_offset(time, round(span)) for time in (start, end))
    expected = f"rank 0 · {name} · issued {issued} · callback {back} · {format_ns(end - start)}"
    page.locator("#timeline-status", has_text=expected).wait_for()
    page.mouse.click(at["x"], at["y"])
    page.wait_for_url(lambda _: view(page) == {"rank": "0", "node": str(graph.id[node])})
    page.locator("#inspector h2", has_text=name).wait_for()
    page.mouse.move(5, 5)
    page.locator("#timeline-status", has_text=expected).wait_for()


def walk_the_selection(studio: Studio, page, recording) -> None:
    """Along the lane, and the dependencies."""
    trace, spans = recording
    graph = trace.graph_of(trace.ranks[0])
    ids = [int(graph.id[node]) for node, _, _ in spans]
    opened(studio, page, rank=0, node=ids[10])
    page.wait_for_selector("#inspector h2")
    page.keyboard.press(".")
    page.wait_for_url(lambda _: view(page).get("node") == str(ids[11]))
    page.keyboard.press(",")
    page.wait_for_url(lambda _: view(page).get("node") == str(ids[10]))
    page.keyboard.press("[")
    page.wait_for_url(lambda _: view(page).get("node") not in {None, str(ids[10])})
    row = spans[10][0]
    waits = {int(graph.id[one]) for one in [*graph.data.of(row), *graph.ctrl.of(row)]}
    assert int(view(page)["node"]) in waits
    page.go_back()
    page.wait_for_url(lambda _: view(page).get("node") == str(ids[10]))
    page.mouse.move(5, 5)
    page.keyboard.press("c")
    page.wait_for_url(lambda _: view(page).get("deps") == "chain")
    page.locator("#timeline-status", has_text=re.compile(r"chain of \d+ nodes$")).wait_for()


def outline_the_critical_path(studio: Studio, page, recording) -> None:
    """X draws it, the sentence sums it up, and the inspector says why a node is on it."""
    trace, _ = recording
    graph = trace.graph_of(trace.ranks[7])
    row = next(row for row, name in enumerate(graph.name) if graph.strings[name] == "step0.mb0.head.proj.fwd")
    opened(studio, page, rank=7, node=graph.id[row])
    page.keyboard.press("x")
    page.locator("#timeline-path-words", has_text="60 % compute of stage 1").wait_for()
    assert view(page)["crit"] == "1"
    assert page.locator("#timeline-path").get_attribute("aria-pressed") == "true"
    page.locator("#inspector dd", has_text="687 µs of compute: 1.5 % of the finish").wait_for()
    page.locator("#timeline-path").click()
    until(page, lambda: page.locator("#timeline-path-words").inner_text() == "")


def test_bars_are_drawn_pointed_at_and_walked_along(studio: Studio, page, recording) -> None:
    page.emulate_media(color_scheme="light")
    opened(studio, page)
    look_at_bars(page, recording[1])
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-mantine-color-scheme='dark']", state="attached")
    quiet(page)
    look_at_bars(page, recording[1])
    point_at_a_bar(studio, page, recording)
    walk_the_selection(studio, page, recording)
    outline_the_critical_path(studio, page, recording)


def move_by_keys_and_wheel(studio: Studio, page) -> None:
    """The window of the address moves, and back undoes it."""
    opened(studio, page)
    at = point(page, 0, 20e6)
    page.mouse.move(at["x"], at["y"])
    page.keyboard.press("w")
    page.wait_for_url(re.compile("from="))
    first = view(page)
    assert int(first["from"]) < 20e6 < int(first["to"])
    assert point(page, 0, 20e6)["x"] == pytest.approx(
        at["x"], abs=1.5
    )  # what is under the pointer stays there
    page.wait_for_timeout(1300)  # a gesture of its own
    page.keyboard.press("d")
    page.wait_for_url(lambda _: moment(page, "from") > int(first["from"]))
    page.go_back()
    page.wait_for_url(lambda _: view(page) == first)
    page.wait_for_function(
        "from => Math.abs(window.studio.timeline.stats().from - from) < 1", arg=int(first["from"])
    )
    page.go_back()
    page.wait_for_url(lambda _: view(page) == {})
    page.wait_for_function("() => window.studio.timeline.stats().from < 0")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    page.wait_for_url(re.compile("from="))
    page.wait_for_timeout(300)
    page.keyboard.press("0")
    page.wait_for_url(lambda _: "from" not in view(page))


def drag(studio: Studio, page) -> None:
    """It pans, and with Shift marks a window."""
    opened(studio, page, **{"from": 10_000_000, "to": 20_000_000})
    at = point(page, 0, 15e6)
    page.mouse.move(at["x"], at["y"])
    page.mouse.down()
    page.mouse.move(at["x"] - 200, at["y"], steps=4)
    page.mouse.up()
    page.wait_for_url(lambda _: moment(page, "from") > 10_500_000)
    assert int(view(page)["to"]) - int(view(page)["from"]) == pytest.approx(10_000_000, abs=2)
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(at["x"] - 100, at["y"], steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.wait_for_url(re.compile("mark="))
    low, high = map(int, view(page)["mark"].split("-"))
    table = page.locator("#timeline-window-table")
    trace = library.read(sample_path(JOB))
    timeline = recorded(trace)
    gantt = Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))
    for by in ("part", "category"):
        page.click(f"[data-window-by={by}]")
        busy = {(one.rank, one.what): one.time_ns for one in compute_shares(gantt, low, high, by)}
        told = format_ns(busy[5, "compute"])
        table.locator("tbody tr").nth(5).locator("td", has_text=told).first.wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("[data-window-by=name]")
    table.locator("th", has_text="of the window").wait_for()
    page.click("#timeline-window-copy")
    page.locator("#timeline-window-copy", has_text="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[0].split("\t") == ["rank", "what", "nodes", "time_ns", "share_of_window"]
    assert len(copied) == 1 + len(list(compute_shares(gantt, low, high, "name")))
    page.click("[data-window-per=all]")
    table.locator("th", has_text="most / mean").wait_for()
    page.click("[data-window-by=counters]")
    table.locator("th", has_text="maximum").wait_for()
    nodes = count_in_flight(gantt)[0].steps.extent(low, high)
    cells = table.locator("tbody tr").first.locator("td")
    assert cells.all_inner_texts() == [
        "nodes in flight",
        f"{nodes.mean:#.3g}",
        f"{nodes.most:.0f}",
        format_offset(nodes.most_from_ns, 10_000_000),
        format_ns(nodes.most_until_ns - nodes.most_from_ns),
    ]
    assert page.locator("[data-window-per=all]").is_hidden()
    page.click("#timeline-window-copy")
    until(page, lambda: "nodes in flight" in page.evaluate("navigator.clipboard.readText()"))
    copied = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[1].split("\t")[:3] == ["nodes in flight", "nodes", repr(nodes.mean)]
    page.locator("#timeline-scroll").focus()
    page.keyboard.press("z")
    page.wait_for_url(lambda _: (moment(page, "from"), moment(page, "to")) == (low, high))
    page.keyboard.press("Escape")
    page.wait_for_url(lambda _: "mark" not in view(page))
    page.wait_for_selector("#timeline-window", state="hidden")


def search_mark_pin_and_order(studio: Studio, page, recording) -> None:
    trace, _ = recording
    opened(studio, page)
    page.keyboard.press("/")
    page.keyboard.type("/attn.*dgrad/")
    page.locator("#timeline-hits", has_text=re.compile(r"^\d+$")).wait_for()
    everywhere = [
        len(re.findall(r"(?m)attn.*dgrad", "\n".join(names_of(trace, rank)))) for rank in trace.ranks
    ]
    assert page.inner_text("#timeline-hits") == str(sum(everywhere))
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("node="))
    first = view(page)
    page.locator("#timeline-hits", has_text=f"1 of {sum(everywhere)}").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda _: (view(page)["rank"], view(page)["node"]) != (first["rank"], first["node"]))
    page.keyboard.press("Shift+Enter")
    page.wait_for_url(lambda _: (view(page)["rank"], view(page)["node"]) == (first["rank"], first["node"]))
    page.expected.append("400")
    page.fill("#timeline-search", "/(/")
    page.locator("#timeline-hits", has_text="cannot be read").wait_for()
    page.fill("#timeline-search", "no such thing")
    page.locator("#timeline-hits", has_text="none").wait_for()
    page.fill("#timeline-search", "")
    page.wait_for_url(lambda _: "q" not in view(page))
    page.keyboard.press("Escape")
    page.evaluate("document.querySelector('#timeline-scroll').scrollTop = 0")
    quiet(page)
    at = point(page, 0, 20e6)
    page.mouse.move(at["x"], at["y"])
    page.keyboard.press("m")
    page.wait_for_url(lambda _: abs(moment(page, "flags") - 20e6) < 1e5)
    page.keyboard.press("m")
    page.wait_for_url(lambda _: "flags" not in view(page))
    page.keyboard.press("p")
    page.wait_for_url(lambda _: view(page).get("pin") == "0")
    height = point(page, 0, 0)["y"]
    page.evaluate("document.querySelector('#timeline-scroll').scrollTop = 500")
    assert point(page, 0, 0)["y"] == height
    page.click("[data-order=idle]")
    page.wait_for_url(lambda _: view(page).get("order") == "idle")
    timeline = recorded(trace)
    idle = compute_idle_times(Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))).tolist()
    expected = [0, *sorted(range(1, 8), key=lambda rank: (-idle[rank], rank))]
    page.wait_for_function(
        "expected => window.studio.timeline.scene.lanes.list.map(one => one.rank).join() === expected",
        arg=",".join(map(str, expected)),
    )


def step_before_the_search_has_answered(studio: Studio, page) -> None:
    """The step waits for it."""
    opened(studio, page)
    held = Held(page, "/timeline/search?")
    page.fill("#timeline-search", "dgrad")
    page.press("#timeline-search", "Enter")
    until(page, lambda: held)
    assert "node" not in view(page)
    held.let_go()
    page.locator("#timeline-hits", has_text=re.compile("^1 of")).wait_for()
    page.wait_for_url(re.compile("node="))


def search_beside_the_inspector(studio: Studio, page) -> None:
    """Whatever was found, the lanes stay where they are."""
    size = page.viewport_size
    opened(studio, page, rank=0, node=100)
    page.locator("#inspector h2").wait_for()

    def tops() -> list[float]:
        found = []
        for width in (1024, 1280, 1440, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            quiet(page)
            found.append(page.locator("#timeline-scroll").bounding_box()["y"])
        return found

    before = tops()
    page.fill("#timeline-search", "dgrad")
    page.locator("#timeline-hits", has_text=re.compile(r"^\d+$")).wait_for()
    assert tops() == before
    page.set_viewport_size(size)


def select_in_a_narrow_window(studio: Studio, page) -> None:
    """The lanes stay where they are, though there is less room beside the inspector."""
    size = page.viewport_size
    places = []
    for selected in ({}, {"rank": 0, "node": 100}):
        opened(studio, page, **selected)
        if selected:
            page.locator("#inspector h2").wait_for()
        found = []
        for width in (641, 760, 900, 1000):
            page.set_viewport_size({"width": width, "height": 800})
            quiet(page)
            box = page.locator("#timeline-scroll").bounding_box()
            found.append((box["y"], box["height"]))
        places.append(found)
        page.set_viewport_size(size)
    assert places[0] == places[1]


def names_of(trace, rank) -> list[str]:
    """Names of all nodes of a rank."""
    graph = trace.graph_of(rank)
    return [graph.strings[at] for at in graph.name.tolist()]


def fold_ranks_and_hide_categories(studio: Studio, page) -> None:
    opened(studio, page)
    box = page.locator("#timeline-scroll").bounding_box()
    at = point(page, 0, 0)
    page.mouse.click(box["x"] + 30, at["y"])
    page.wait_for_url(lambda _: view(page) == {"fold": "0"})
    page.click("#timeline-fold")
    page.wait_for_url(lambda _: view(page) == {"fold": "all"})
    page.click("#timeline-fold")
    page.wait_for_url(lambda _: view(page) == {})
    quiet(page)
    before = page.evaluate("window.studio.timeline.stats().drawn")
    page.click("#timeline-legend >> text=compute")
    page.wait_for_url(lambda _: view(page) == {"hide": "compute"})
    page.wait_for_function("before => window.studio.timeline.stats().drawn < before", arg=before)
    page.go_back()
    page.wait_for_function("before => window.studio.timeline.stats().drawn === before", arg=before)


def save(page, kind: str) -> None:
    """Choose one way to save from the menu, which closes with it."""
    page.click("#timeline-page .cs-menu summary")
    page.click(f"#timeline-{kind}")
    page.wait_for_selector("#timeline-page .cs-menu:not([open])")


def save_what_is_shown(studio: Studio, page) -> None:
    opened(studio, page)
    quiet(page)
    with page.expect_download() as table:
        save(page, "csv")
    lines = table.value.path().read_text().splitlines()
    assert lines[0].startswith("rank,lane,lane_name,node,name,type,bytes,issue_ns,callback_ns")
    assert len(lines) > 1000
    save(page, "table")
    page.get_by_text(f"the first 1,000 of {len(lines) - 1:,} rows").wait_for()
    page.keyboard.press("Escape")
    save(page, "counters-table")
    page.get_by_text("Counters in the visible window").wait_for()
    assert page.locator("dialog.cs-numbers tbody tr").count() == 2
    page.keyboard.press("Escape")
    with page.expect_download() as course:
        save(page, "counters-csv")
    assert course.value.path().read_text().startswith("counter,unit,from_ns,until_ns,value\nnodes in flight,")
    with page.expect_download() as picture:
        save(page, "png")
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as drawing:
        save(page, "svg")
    root = ET.fromstring(drawing.value.path().read_text())
    texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"rank 0", "stream 7", "memory"} <= texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) > 300
    with page.expect_download() as events:
        save(page, "json")
    found = json.loads(events.value.path().read_text())["traceEvents"]
    assert sum(one["ph"] == "X" for one in found) == 2488
    with page.expect_download() as binary:
        save(page, "perfetto")
    assert binary.value.suggested_filename.endswith(".pftrace")
    packets = perfetto_trace_pb2.Trace.FromString(binary.value.path().read_bytes()).packet
    assert (
        sum(one.track_event.type == perfetto_trace_pb2.TrackEvent.TYPE_SLICE_BEGIN for one in packets) == 2488
    )


def open_and_close_the_list_of_keys(studio: Studio, page) -> None:
    opened(studio, page)
    page.keyboard.press("?")
    page.wait_for_selector("#timeline-keys[open]")
    hold_against(page, ALL, "#content", SERIOUS)
    page.keyboard.press("Escape")
    page.wait_for_selector("#timeline-keys", state="hidden")


def test_the_window_is_moved_marked_searched_folded_and_saved(studio: Studio, page, recording) -> None:
    move_by_keys_and_wheel(studio, page)
    drag(studio, page)
    fold_ranks_and_hide_categories(studio, page)
    step_before_the_search_has_answered(studio, page)
    search_beside_the_inspector(studio, page)
    select_in_a_narrow_window(studio, page)
    search_mark_pin_and_order(studio, page, recording)
    save_what_is_shown(studio, page)
    open_and_close_the_list_of_keys(studio, page)


def untimed():
    """Eight ranks that compute and then reduce; their files hold no starts."""
    return trace_of([[node(1, "COMP", micros=20), collective(2, "ALL_REDUCE", 1 << 20, 1)]] * 8)


@pytest.fixture
def simulated(studio: Studio) -> tuple[str, str]:
    """A job of eight ranks without recorded times, with one run; its id and the run's."""
    keeper = Workspace(studio.workspace)
    trace = untimed()
    tables = Parts({**PARTS.network, "bandwidth": [5]}, PARTS.system)
    slow = Run("a slow ring", simulate(trace, interpret(tables).config, native=compiled()), tables)
    run = Run("eight in a ring", simulate(trace, interpret(PARTS).config, native=compiled()), PARTS)
    found = keeper.save(trace, "no times")
    keeper.save_run(found, slow)
    return found, keeper.save_run(found, run)


def see_a_run(studio: Studio, page, simulated) -> None:
    """A job without times of its own shows its newest run."""
    found, run_id = simulated
    run = Workspace(studio.workspace).load_run(found, run_id)
    timeline = run.result.timeline([5])
    go(page, f"{studio.url}/timeline?job={found}")
    page.wait_for_selector("#timeline-scroll[data-ready]")
    until(page, lambda: "eight in a ring" in page.locator("#run-pick").input_value())
    # What was ready above may have been the timeline that the same document showed before.
    until(page, "Boolean(window.studio.timeline.scene)")
    quiet(page)
    page.locator("#run-pick").evaluate("box => { box.style.width = '60px'; }")
    page.hover("#run-pick")
    assert "eight in a ring" in page.locator("#run-pick").get_attribute("title")  # it has no room now
    rows = [at for at, lane in enumerate(timeline.lanes) if lane.kind == "communication"]
    part = timeline.of_lane(rows[0])
    start, end = int(timeline.start_ns[part][0]), int(timeline.end_ns[part][0])
    at = point(page, len(timeline.lanes) * 5 + rows[0], (start + end) / 2)
    page.mouse.move(at["x"], at["y"])
    issued, back = (format_offset(time, run.result.makespan_ns) for time in (start, end))
    words = f"issued {issued} · callback {back} · {format_ns(end - start)}"
    page.locator(
        "#timeline-status", has_text=re.compile(f"^rank 5 · .*{re.escape(words)} · 8 ranks begin together$")
    ).wait_for()
    slow = next(one for one in Workspace(studio.workspace).runs(found) if one.name == "a slow ring")
    page.select_option("#timeline-ghost", slow.id)
    page.wait_for_url(lambda _: view(page).get("ghost") == slow.id)
    page.wait_for_function("span => window.studio.timeline.scene.chart.span === span", arg=slow.makespan_ns)
    other = Workspace(studio.workspace).load_run(found, slow.id).result.timeline([5])
    part = other.of_lane(rows[0])
    there = int(other.end_ns[part][0]) - int(other.start_ns[part][0])
    at = point(page, len(timeline.lanes) * 5 + rows[0], (start + end) / 2)
    page.mouse.move(at["x"], at["y"])
    page.locator(
        "#timeline-status",
        has_text=f" · a slow ring {format_ns(there)}: here −{format_ns(there - end + start)}",
    ).wait_for()
    page.click("#timeline-differences")
    page.locator(
        "#timeline-window-table td.cs-better", has_text=f"▼ −{format_ns(there - end + start)}"
    ).first.wait_for()
    page.expected.append("400")
    go(page, f"{studio.url}/timeline?job={found}&run=gone")
    page.wait_for_selector("#timeline-error >> text=has no run")


def see_a_job_without_times(studio: Studio, page) -> None:
    """It says what to do."""
    found = Workspace(studio.workspace).save(untimed(), "no times either")
    go(page, f"{studio.url}/timeline?job={found}")
    page.wait_for_selector("text=No times yet")
    assert page.locator("a", has_text="Simulate it").get_attribute("href") == f"/simulate?job={found}"


def point_at_a_crowded_lane(studio: Studio, page) -> None:
    """Where bars would be too narrow the lane shows how busy it is, and a click finds the node."""
    opened(studio, page, "imbalance_8r")
    page.wait_for_function("() => window.studio.timeline.stats().binned > 0")
    page.locator("#timeline-detail", has_text="crowded").wait_for()
    at = point(page, 0, 15e6)
    page.mouse.move(at["x"], at["y"])
    page.locator(
        "#timeline-status",
        has_text=re.compile(r"rank 0 · .* · issued .* · callback .* · busy: compute 100 %"),
    ).wait_for()
    page.mouse.click(at["x"], at["y"])
    page.wait_for_url(re.compile("node="))
    page.wait_for_selector("#inspector h2")


def test_runs_crowded_lanes_and_jobs_without_times_are_shown(studio: Studio, page, simulated) -> None:
    point_at_a_crowded_lane(studio, page)
    see_a_run(studio, page, simulated)
    see_a_job_without_times(studio, page)
