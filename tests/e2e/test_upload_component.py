"""The upload script in a real browser: picking, dropping, resuming, cancelling, and names that want to run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flask import Flask, Response, request
from markupsafe import escape
from waitress import wasyncore
from waitress.server import create_server

from studio.errors import TraceFormatError
from studio.et.seen import JobSeen, RankSeen
from studio.et.source import SourceFile
from studio.server.uploads import build_uploads_blueprint
from studio.store import imports
from studio.store.imports import Announced, NpusNeededError, Progress, RanksNeededError
from studio.store.tasks import close_tasks, open_tasks
from tests.e2e.accessibility import ALL, SERIOUS, hold_against
from tests.e2e.conftest import until
from tests.server.test_uploads import LEFT_BY_WAITRESS
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings(LEFT_BY_WAITRESS)]

ASSETS = Path(__file__).resolve().parents[2] / "assets"
HEAD = """<!doctype html><html lang="en"><head><title>Uploads</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/assets/tokens.css"><link rel="stylesheet" href="/assets/home/upload.css"></head><body><main><h1>Chakra Studio</h1>"""
HOME = """<div id="home-drop"><p>Drop traces here</p><button id="home-pick-files">Choose files</button>
<button id="home-pick-folder">Choose a folder</button></div><div id="home-uploads"></div>"""
TAIL = """</main><script type="module">
import { startUploads } from "/assets/home/upload.mjs";
window.uploads = startUploads({ visit: address => location.assign(address), imported: () => {} });
</script></body></html>"""
HOSTILE = '<img src=x onerror=alert(1)>"><b>.0.et'


class Studio:
    """The routes, two pages, and gates that hold chunks and the reading back."""

    def __init__(self, folder: Path) -> None:
        self.chunks, self.reading = threading.Event(), threading.Event()
        self.chunks.set()
        self.reading.set()
        self.puts: list[tuple[str, int]] = []
        self.seen: JobSeen | None = None
        self.seen_bytes = 0
        self.folder = folder
        self.registry = imports.open_registry(open_tasks(folder), self.read)
        app = Flask("test", static_folder=ASSETS, static_url_path="/assets")
        app.register_blueprint(build_uploads_blueprint(self.registry))
        app.before_request(self.hold)
        app.add_url_rule("/", "home", lambda: HEAD + HOME + TAIL)
        app.add_url_rule("/other", "other", lambda: HEAD + TAIL)
        app.add_url_rule("/overview", "overview", self.overview)
        self.server = create_server(app, host="127.0.0.1", port=0, threads=8)
        self.url = f"http://127.0.0.1:{self.server.effective_port}/"
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def hold(self) -> None:
        if request.method == "PUT":
            self.puts.append((request.path.rsplit("/", 1)[1], int(request.args.get("offset", 0))))
            assert self.chunks.wait(PATIENCE_S)

    def overview(self) -> Response:
        return Response(f"{HEAD}<pre>{escape(request.args['job'])}</pre></main></body></html>")

    def read(self, files: list[SourceFile], progress: Progress) -> str:
        notes = [file for file in files if file.name.endswith("notes.et")]
        used = {file.path: f"rank {place}" for place, file in enumerate(files) if file not in notes}
        progress.files_sorted(used, {file.path: f"{file.name}: a text file" for file in notes})
        for index in range(len(files)):
            while not self.reading.wait(0.01):
                if self.seen:
                    progress.seen = self.seen
                    progress("reading", self.seen_bytes, 640 << 20)
                else:
                    progress("reading", index + 12, 64, "reading 12 of 64 ranks")
        for file in files:
            if file.path.read_bytes()[:4] == b"ask?" and file.name not in progress.ranks:
                raise RanksNeededError([file.name])
            if file.path.read_bytes()[:4] == b"npus":
                if progress.npus is None:
                    raise NpusNeededError([file.name])
                return json.dumps({file.name: progress.npus})
            if file.path.read_bytes()[:4] == b"bad!":
                raise TraceFormatError(f"{file.name}: no trace <b>.", hint="Open <i>another</i>.")
        return json.dumps({file.name: file.path.stat().st_size for file in files} | dict(progress.ranks))

    def run(self) -> None:
        while not self.stop.is_set():
            wasyncore.loop(timeout=0.02, map=self.server._map, count=1)
        for channel in list(self.server._map.values()):
            channel.close()

    def close(self) -> None:
        self.chunks.set()
        self.stop.set()
        self.thread.join()
        self.server.task_dispatcher.shutdown()
        close_tasks(self.registry.tasks)
        self.reading.set()


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    made = Studio(tmp_path / "workspace")
    yield made
    made.close()


def write(folder: Path, **files: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = []
    for name, size in files.items():
        path = folder / f"{name}.et"
        path.write_bytes(bytes(size))
        paths.append(path)
    return paths


def drop(page: Page, *paths: Path) -> None:
    """Drop files and folders of the disk, as a file manager does."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 300, "data": data})
        if kind == "dragOver":
            page.get_by_text("Drop traces to open them").wait_for()
    page.locator(".cs-up-overlay").wait_for(state="hidden")
    session.detach()


def job(page: Page) -> dict[str, int]:
    """Wait for the overview and give the job it shows."""
    page.wait_for_url("**/overview?job=*")
    return json.loads(page.locator("pre").inner_text())


def test_picked_files_become_a_job(studio: Studio, page: Page, tmp_path: Path) -> None:
    page.goto(studio.url)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files").click()
    chooser.value.set_files(write(tmp_path / "in", a=3_000_000, b=10, empty=0))
    assert job(page) == {"a.et": 3_000_000, "b.et": 10, "empty.et": 0}


def test_a_picked_folder_keeps_its_paths_and_leaves_hidden_files(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    write(tmp_path / "gpt", a=5)
    write(tmp_path / "gpt" / "sub", b=6)
    (tmp_path / "gpt" / ".DS_Store").write_bytes(b"x")
    page.goto(studio.url)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a folder").click()
    chooser.value.set_files(tmp_path / "gpt")
    assert job(page) == {"gpt/a.et": 5, "gpt/sub/b.et": 6}


def test_a_dropped_folder_is_read_to_its_last_file(studio: Studio, page: Page, tmp_path: Path) -> None:
    """The browser lists a folder a hundred entries at a time."""
    write(tmp_path / "big", **{f"r.{index}": 1 for index in range(230)})
    write(tmp_path / "big" / "deep", x=2)
    page.goto(studio.url)
    drop(page, tmp_path / "big", *write(tmp_path / "single", s=4))
    found = job(page)
    assert len(found) == 232
    assert (found["big/deep/x.et"], found["s.et"], found["big/r.229.et"]) == (2, 4, 1)


def test_a_synthetic_drop_with_hostile_names_runs_nothing(studio: Studio, page: Page) -> None:
    page.on("dialog", lambda dialog: pytest.fail("a file name ran"))
    studio.chunks.clear()
    page.goto(studio.url)
    page.evaluate(
        """name => {
            const data = new DataTransfer();
            data.items.add(new File(["bad!"], name));
            data.items.add(new File(["bb"], "b.1.et"));
            document.getElementById("home-drop").dispatchEvent(
                new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        HOSTILE,
    )
    row = page.locator(".cs-up-file", has_text=HOSTILE)
    row.wait_for()
    assert page.get_by_role("progressbar", name=f"Upload of {HOSTILE}").count() == 1
    studio.chunks.set()
    page.get_by_text(f"{HOSTILE}: no trace <b>.").first.wait_for()
    page.locator(".cs-up-card .cs-up-hint", has_text="Open <i>another</i>.").wait_for()
    assert page.locator("main img, main i, main b").count() == 0
    page.get_by_role("button", name="Dismiss").click()
    page.locator(".cs-up-card").wait_for(state="detached")
    until(page, lambda: imports.list_imports(studio.registry) == [])


def test_one_file_is_cancelled_and_the_others_are_read(studio: Studio, page: Page, tmp_path: Path) -> None:
    studio.chunks.clear()
    page.goto(studio.url)
    drop(page, *write(tmp_path / "in", a=600_000, b=600_001, c=600_002, d=600_003, e=600_004))
    page.locator(".cs-up-row[data-status=uploading]").nth(2).wait_for()
    assert page.locator(".cs-up-row[data-status=waiting]").count() == 2
    assert page.evaluate("() => !dispatchEvent(new Event('beforeunload', {cancelable: true}))")
    page.get_by_role("button", name="Cancel: b.et").click()
    page.get_by_role("button", name="Cancel: e.et").click()
    studio.chunks.set()
    assert job(page) == {"a.et": 600_000, "c.et": 600_002, "d.et": 600_003}


def test_all_is_cancelled(studio: Studio, page: Page, tmp_path: Path) -> None:
    studio.chunks.clear()
    page.goto(studio.url)
    drop(page, *write(tmp_path / "in", a=10, b=11))
    page.get_by_role("button", name="Cancel all").click()
    page.locator(".cs-up-card").wait_for(state="detached")
    studio.chunks.set()
    until(page, lambda: imports.list_imports(studio.registry) == [])
    assert page.evaluate("() => dispatchEvent(new Event('beforeunload', {cancelable: true}))")


def test_a_lost_connection_is_told_and_the_upload_goes_on_where_it_was(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    page.expected += ["ERR_CONNECTION_RESET", "ERR_FAILED"]
    losses = [0]

    def lose(route) -> None:
        if "offset=0" in route.request.url or losses[0] >= 3:
            route.continue_()
        else:
            losses[0] += 1
            route.abort("connectionreset")

    page.route("**/api/imports/*/files/*", lose)
    page.goto(studio.url)
    drop(page, *write(tmp_path / "in", a=5_000_000))
    page.get_by_text("connection lost, retrying in").first.wait_for()
    assert job(page) == {"a.et": 5_000_000}
    offsets = [offset for _, offset in studio.puts]
    assert losses == [3]
    assert offsets == sorted(set(offsets))


def test_a_first_picture_grows_while_ranks_are_read(studio: Studio, page: Page, tmp_path: Path) -> None:
    """It stays in place while bars are added, says what each rank sends, and is found again after a reload."""
    studio.reading.clear()
    studio.seen = seen = JobSeen()
    seen.begin(64)
    page.goto(studio.url)
    drop(page, *write(tmp_path / "in", a=10))
    card = page.locator(".cs-up-card")
    card.get_by_text("reading 0 B of 640 MiB").wait_for()
    picture = card.get_by_role("region", name="What is read so far")
    assert picture.count() == 0
    for rank in range(12):
        seen.rank(rank, RankSeen(rank, {"compute": 900, "collective": 100}, 0, 2_500_000, (rank + 1) << 20))
    studio.seen_bytes = 120 << 20
    picture.wait_for()
    card.get_by_text("reading 120 MiB of 640 MiB · 12 of 64 ranks").wait_for()
    facts = picture.locator("dl > div")
    assert facts.all_inner_texts() == [
        "Ranks read\n12 of 64",
        "Longest recording\n2.50 ms",
        "Compute\n10,800",
        "Collectives\n1,200",
    ]
    figure = picture.get_by_role("img")
    words = "Bytes sent by rank: 78.0 MiB so far, up to 12.0 MiB each"
    assert figure.get_attribute("aria-label") == f"{words}; most: rank 11 sends 12.0 MiB"
    before, bars = figure.bounding_box(), figure.locator("rect")
    assert bars.count() == 12
    first = bars.first.bounding_box()
    for rank in range(12, 40):
        seen.rank(rank, RankSeen(rank, {"compute": 900}, 0, 2_500_000, 6 << 20))
    seen.note_refused("in/a.63.et", "cut off after 12 bytes")
    until(page, lambda: bars.count() == 40)
    assert (figure.bounding_box(), bars.first.bounding_box()) == (before, first)
    assert bars.nth(39).locator("title").text_content() == "rank 39 sends 6.00 MiB"
    picture.get_by_text("in/a.63.et: cut off after 12 bytes, left out.").wait_for()
    page.reload()
    picture.wait_for()
    assert facts.first.inner_text() == "Ranks read\n40 of 64"
    studio.reading.set()
    card.get_by_role("link", name="Open job").wait_for()
    picture.wait_for(state="hidden")


def test_a_reading_is_found_again_after_a_reload_and_can_be_cancelled(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    studio.reading.clear()
    page.goto(studio.url)
    drop(page, *write(tmp_path / "in", a=10, notes=5))
    page.get_by_text("reading 12 of 64 ranks").wait_for()
    for _ in range(2):
        # What is used and what is not is said before anything is read.
        page.get_by_text("1 file used, 1 left out").wait_for()
        page.get_by_text("used: rank 0").wait_for()
        page.get_by_text("notes.et: a text file").wait_for()
        page.reload()
    page.get_by_text("reading 12 of 64 ranks").wait_for()
    page.get_by_role("button", name="Cancel: a").click()
    page.get_by_role("button", name="Read again").wait_for()
    studio.reading.set()
    page.get_by_role("button", name="Read again").click()
    page.get_by_role("link", name="Open job a").click()
    assert job(page) == {"a.et": 10, "notes.et": 5}


def test_an_interrupted_upload_goes_on_when_its_files_are_dropped_again(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    (path,) = write(tmp_path / "in", a=2_000_000)
    gone = imports.open_registry(open_tasks(studio.folder), studio.read)
    modified = path.stat().st_mtime_ns // 1_000_000
    half = imports.create_import(gone, [Announced("a.et", 2_000_000, modified)])
    with path.open("rb") as stream:
        imports.append_chunk(gone, half.id, "000001", 0, stream, 1_500_000)
    close_tasks(gone.tasks)
    page.goto(studio.url)
    page.get_by_text("interrupted: drop the same files again to continue").wait_for()
    drop(page, path)
    assert job(page) == {"a.et": 2_000_000}
    assert studio.puts == [("000001", 1_500_000)]


def test_a_thousand_files_show_eight_rows_and_a_summary(studio: Studio, page: Page) -> None:
    studio.chunks.clear()
    page.goto(studio.url)
    page.evaluate(
        """() => uploads.upload([...Array(1024).keys()].map(n => {
            const file = new File(["x"], `r.${n}.et`);
            return {path: `job/r.${n}.et`, file};
        }))"""
    )
    page.get_by_text("and 1,016 more: 142 uploading, 874 waiting").wait_for()
    assert page.locator(".cs-up-row").count() == 8
    studio.chunks.set()
    assert len(job(page)) == 1024
    assert len(studio.puts) == 21


def test_away_from_home_a_box_shows_the_upload_and_leads_to_the_job(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    studio.reading.clear()
    page.goto(f"{studio.url}other")
    drop(page, *write(tmp_path / "in", a=10))
    box = page.get_by_role("complementary", name="Imports")
    box.get_by_text("reading 12 of 64 ranks").wait_for()
    assert box.get_by_role("link", name="Show on Home").get_attribute("href") == "/"
    studio.reading.set()
    box.get_by_role("link", name="Open job").wait_for()
    assert page.url.endswith("/other")
    box.get_by_role("link", name="Open job").click()
    assert job(page) == {"a.et": 10}


def test_the_user_is_asked_for_a_rank_that_nothing_tells(studio: Studio, page: Page, tmp_path: Path) -> None:
    path = tmp_path / HOSTILE
    path.write_bytes(b"ask?")
    page.goto(studio.url)
    drop(page, path)
    page.get_by_label(f"Rank of {HOSTILE}").fill("7")
    page.get_by_role("button", name="Read with these ranks").click()
    assert job(page) == {HOSTILE: 7}


def test_the_user_is_asked_for_a_number_of_npus_that_nothing_tells(
    studio: Studio, page: Page, tmp_path: Path
) -> None:
    path = tmp_path / HOSTILE
    path.write_bytes(b"npus")
    page.goto(studio.url)
    drop(page, path)
    page.get_by_text("waiting for the number of NPUs").wait_for()
    page.get_by_label(f"NPUs that run {HOSTILE}").fill("12")
    page.get_by_role("button", name="Read with this number").click()
    assert job(page) == {HOSTILE: 12}


def test_a_list_rendered_anew_shows_its_imports_again(studio: Studio, page: Page, tmp_path: Path) -> None:
    """Dash removes and renders pages as the user moves about."""
    studio.reading.clear()
    page.goto(studio.url)
    drop(page, *write(tmp_path / "in", a=10))
    page.locator("#home-uploads").get_by_text("reading 12 of 64 ranks").wait_for()
    page.evaluate("document.querySelector('main').innerHTML = ''")
    page.get_by_role("complementary", name="Imports").wait_for()
    page.evaluate("html => { document.querySelector('main').innerHTML = html }", HOME)
    page.locator("#home-uploads").get_by_text("reading 12 of 64 ranks").wait_for()
    page.get_by_role("complementary", name="Imports").wait_for(state="hidden")
    with page.expect_file_chooser():
        page.get_by_text("Drop traces here").click()


def test_no_serious_barrier(studio: Studio, page: Page, tmp_path: Path) -> None:
    studio.chunks.clear()
    bad, ask = tmp_path / "bad.et", tmp_path / "ask.et"
    bad.write_bytes(b"bad!")
    ask.write_bytes(b"ask?")
    page.goto(studio.url)
    studio.chunks.set()
    drop(page, bad)
    page.locator(".cs-up-card[data-status=failed]").wait_for()
    drop(page, ask)
    page.get_by_label("Rank of ask.et").wait_for()
    studio.chunks.clear()
    drop(page, *write(tmp_path / "in", **{f"f{index}": 10 for index in range(20)}))
    page.get_by_text("and 12 more").wait_for()
    hold_against(page, ALL, impacts=SERIOUS)
