"""A real studio for the browser tests: the command as users start it, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
from playwright.sync_api import BrowserContext, Error, Route

from studio.samples import SAMPLES, sample_path
from studio.store.workspace import Workspace
from studio.trace import Trace
from tests.processes import unmarked
from tests.waiting import PATIENCE_S, wait_until

_ANSWERED_S = 5
"""A test may hold a request for good."""


@dataclass(frozen=True)
class Studio:
    """A running studio.

    Attributes:
        url: Its address, without a slash at the end.
        workspace: Its folder.
        token: What it printed at the end of the address to open.
    """

    url: str
    workspace: Path
    token: str

    def let_in(self, context: BrowserContext) -> None:
        """Give a browser the cookie that it would get from the printed address, without opening a page."""
        [cookie] = self._cookies
        context.add_cookies([{"name": cookie.name, "value": cookie.value, "url": self.url}])

    def ask(self, path: str = "") -> HTTPResponse:
        """Ask for an address as a program does."""
        return urlopen(Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"}))

    @cached_property
    def _cookies(self) -> CookieJar:
        jar = CookieJar()
        build_opener(HTTPCookieProcessor(jar)).open(f"{self.url}/?token={self.token}").close()
        return jar

    def add(self, trace: Trace, name: str) -> str:
        """Put a job into the workspace, which the running studio sees at once; return its id."""
        return Workspace(self.workspace).save(trace, name)

    def job(self, name: str) -> str:
        """Return the id of the newest job of this name."""
        found = []
        for path in (self.workspace / "jobs").glob("*/job.json"):
            info = json.loads(path.read_text())
            if info["name"] == name:
                found.append((info["created"], info["id"]))
        return max(found)[1]

    def address(self, page: str, name: str, **view: object) -> str:
        """Return the address of a page that shows a job, by its name."""
        more = "".join(f"&{key}={value}" for key, value in view.items())
        return f"{self.url}/{page}?job={self.job(name)}{more}"


@contextmanager
def running(workspace: Path, *arguments: str) -> Iterator[Studio]:
    """Run `chakra-studio` on a free port until the block ends, then see that it stops cleanly."""
    command = [
        sys.executable,
        "-m",
        "studio",
        "--no-browser",
        "--port",
        "0",
        "--workspace",
        str(workspace),
        *arguments,
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = next((text for text in process.stdout if "is at http" in text), "")
        address = re.search(r"(http://[^/\s]+)\S*[?&]token=(\S+)", line)
        assert address, "the studio did not start"
        yield Studio(address[1], workspace, address[2])
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="session")
def started_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One studio per worker, with the samples open."""
    paths = [str(sample_path(sample.name)) for sample in SAMPLES]
    with unmarked():
        studio = running(tmp_path_factory.mktemp("workspace"), *paths)
        started = studio.__enter__()
    yield started
    studio.__exit__(None, None, None)


@pytest.fixture
def studio(started_studio: Studio, request: pytest.FixtureRequest) -> Iterator[Studio]:
    """A studio with the samples open and nothing else; their jobs are named after the samples' archives.

    The test's page has been let in.
    """
    if "page" in request.fixturenames:
        started_studio.let_in(request.getfixturevalue("page").context)
    before = _files(started_studio.workspace)
    contents = {path: path.read_bytes() for path in before if path.name == "job.json"}
    yield started_studio
    if "page" in request.fixturenames:
        leave(request.getfixturevalue("page"), started_studio)
    for path in _files(started_studio.workspace) - before:
        path.unlink(missing_ok=True)
    for folder in ("jobs", "trash", "imports"):
        for path in (started_studio.workspace / folder).glob("*"):
            if (
                path.is_dir()
                and not path.name.startswith(".")
                and not any(path in file.parents for file in before)
            ):
                shutil.rmtree(path, ignore_errors=True)
    for path, content in contents.items():
        path.parent.mkdir(exist_ok=True)
        # What is read while it is written looks damaged.
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def leave(page, studio: Studio) -> None:
    """Leave the page once it has an answer to all it has asked for, after some seconds at most: it asks for nothing then."""
    end = time.monotonic() + _ANSWERED_S
    while not page.is_closed() and page.context.under_way and time.monotonic() < end:
        page.evaluate("1")
        time.sleep(0.01)
    if page.is_closed():
        return
    with suppress(Error):  # the test has taken the network away, or what answers
        page.unroute_all(behavior="ignoreErrors")
        page.goto(f"{studio.url}/assets/logo.svg")


def _files(workspace: Path) -> set[Path]:
    """Return the files of a workspace, but for the locks by which studios know of each other."""
    return {path for path in workspace.rglob("*") if path.is_file() and not path.name.endswith(".lock")}


def until(page, condition: Callable[[], object] | str) -> None:
    """Wait until a condition in Python, or in JavaScript, is true.

    The pages' content policy forbids Playwright's own way to wait for a condition in the browser.
    """
    holds = (lambda: page.evaluate(condition)) if isinstance(condition, str) else condition
    wait_until(holds, lambda: page.wait_for_timeout(30))


def becomes(page, read: Callable[[], object], wanted: object) -> None:
    """Wait until what is read is what is wanted; where that never comes, show what is read instead."""
    end = time.monotonic() + PATIENCE_S
    while (value := read()) != wanted and time.monotonic() < end:
        page.wait_for_timeout(30)
    assert value == wanted


BUSY = """Boolean(document.querySelector('._dash-loading-callback')) || document.getAnimations().some(
    one => one instanceof CSSTransition && one.playState === 'running')"""
"""Whether the page waits for answers, or has colours on their way to those of another theme."""


LOOK = f"""() => new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(
    () => done([{BUSY}, window.shortTimers()]))), 15))"""
"""Answers two frames and a moment later, by the clock of the page, whether it is busy and what it has put off."""


def quiet(page) -> None:
    """Wait until the page asks for nothing, is about to ask for nothing and draws nothing.

    Playwright's "networkidle" is said once in the life of a document, and no more when its parts change.
    """
    calm = 0
    end = time.monotonic() + PATIENCE_S
    put_off = 0
    # What is always put off anew, as a drawing that moves, is not waited for.
    while calm < (10 if put_off else 3):
        assert time.monotonic() < end, f"never quiet: {[one.url for one in page.context.under_way]}"
        busy, put_off = page.evaluate(LOOK)
        calm = 0 if busy or page.context.under_way else calm + 1


def view(page) -> dict[str, str]:
    """What the address says."""
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def view_within_job(page) -> dict[str, str]:
    """What the address says, without the job."""
    return {key: value for key, value in view(page).items() if key != "job"}


def intercept(page, matches: Callable[[str], bool], act: Callable[[Route], None]) -> None:
    """Hand the requests to matching addresses to `act`, from now on.

    Chromium says that it does a moment before it does: a request tells.
    """
    caught: list[Route] = []

    def probe(route: Route) -> None:
        caught.append(route)
        route.continue_()

    page.route(matches, act)
    page.route(f"**{PROBE}", probe)
    until(
        page,
        lambda: page.evaluate("path => fetch(path, { cache: 'no-store' }).then(() => 0)", PROBE) or caught,
    )


PROBE = "/assets/logo.svg?caught"


class Held(list[Route]):
    """Requests that wait until they are let go, from now on: those to Dash that match, or those to an address.

    Args:
        page: The page that makes them.
        part: A part of the page that their answers would change, or part of an address that begins with a slash.
    """

    def __init__(self, page, part: str) -> None:
        super().__init__()
        self.part, self.open = part, False
        path = part if part.startswith("/") else "/_dash-update"
        intercept(page, lambda address: path in address, self.hold)

    def hold(self, route: Route) -> None:
        """Keep a request, or let it pass."""
        asks = self.part.startswith("/") or self.part in json.loads(route.request.post_data or "{}")["output"]
        if asks and not self.open:
            self.append(route)
        else:
            route.continue_()

    def let_go(self) -> None:
        """Let all go on, and those that come."""
        self.open = True
        for route in self:
            with suppress(Error):  # of a page that was left
                route.continue_()
