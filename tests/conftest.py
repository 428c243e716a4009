"""What tests of every folder share: the folder of real traces, and a browser that reports what went wrong."""

from __future__ import annotations

import atexit
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings
from psutil import cpu_count

from tests.examples import DEFAULT_EXAMPLES, PROFILE, examples
from tests.processes import kill_marked_processes, mark_children, reset_signals, unmarked
from tests.summary import SHARED_ABSENT, Summary, count_browsers, cpu_time, ending_driver
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, Playwright

ROOT = Path(__file__).resolve().parent.parent
BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A test's pages live for seconds: compiling their scripts for more speed than maglev's costs more than it gains.
    # So does collecting what they drop: it is collected less often where there is more room, compiled scripts never, since the
    # next page needs them again.
    "--js-flags=--no-opt --no-flush-bytecode --initial-heap-size=1024 --min-semi-space-size=32 --max-semi-space-size=64",
    # Pictures of pages are put together in the browser's own process: handing them to another one costs more than it gains.
    "--in-process-gpu",
    # All pages share a process, and with it what is compiled.
    "--process-per-site",
    # No other machine can be reached even if a page asks for one; the page fixture tells that it asked.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
LOCAL_HOSTS = {"127.0.0.1", "localhost"}
WINDOW = {"width": 1440, "height": 900}

SLOW_PROCESSOR = 3
# Requests leave and answers arrive up to 0.3 s later, in any order: what only works when they are fast breaks.
SLOW_ANSWERS = """(() => {
    const ask = window.fetch, wait = () => new Promise(done => setTimeout(done, Math.random() * 300));
    window.fetch = (...what) => wait().then(() => ask(...what)).then(answer => wait().then(() => answer));
})()"""

SHORT_TIMERS = """(() => {
    const set = window.setTimeout, clear = window.clearTimeout, waiting = new Set();
    window.setTimeout = (act, delay, ...values) => {
        if (typeof act !== "function" || delay > 500) return set(act, delay, ...values);
        const id = set(() => { waiting.delete(id); act(...values); }, delay);
        waiting.add(id);
        return id;
    };
    window.clearTimeout = id => { waiting.delete(id); clear(id); };
    window.shortTimers = () => waiting.size;
})()"""
"""Counts what a document has put off for half a second or less, so that a test knows when it need not wait for it."""

# No test asserts on time: on a busy machine any example may take long. `ci` is what `make test` runs, always the same
# examples; `dev` is for work on one test, `nightly` for long searches.
settings.register_profile("dev", deadline=None, max_examples=DEFAULT_EXAMPLES)
settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, max_examples=examples(DEFAULT_EXAMPLES)
)
settings.register_profile("nightly", deadline=None, max_examples=examples(DEFAULT_EXAMPLES))
settings.load_profile(PROFILE)

reset_signals()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the project's own options."""
    parser.addoption("--slow", action="store_true", help="browser tests as on a busy machine, far away")
    parser.addoption(
        "--flaky",
        choices=("retry", "forbid"),
        default="retry",
        help="whether a browser test that fails is run once more (and reported) or fails the run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Mark what tests start, keep them out of the user's workspace, and register the summary where it is printed."""
    mark_children()
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="workspace-of-tests-")
        config.add_cleanup(folder.cleanup)
        # Workers and what they start inherit it.
        os.environ["XDG_DATA_HOME"] = folder.name
        config.pluginmanager.register(Summary(), "studio-summary")


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than cores, for `--numprocesses auto`.

    A worker that drives a browser waits a sixth of its time: for an answer, for what a page draws a moment later, for what it puts
    off. `benchmarks/README.md` has what was measured.
    """
    return (cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Keep what collection makes out of every garbage collection but the process's last: it lives as long.

    What that does not collect DuckDB calls a leak, on the last lines of a run. Looking for garbage at Python's own pace takes a
    thirtieth of the tests' time, and little of what they leave is found by it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let browser tests be run once more, and start with them: they are the longest. What reads recorded jobs is no unit test."""
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)
    browser_tests = [item for item in items if item.get_closest_marker("e2e")]
    if config.getoption("--flaky") == "retry":
        for item in browser_tests:
            item.add_marker(pytest.mark.flaky(reruns=1))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        # Each worker begins with an equal run of consecutive items, then takes from the ends of the others' runs.
        others = [item for item in items if not item.get_closest_marker("e2e")]
        shares = [(_share(browser_tests, at, workers), _share(others, at, workers)) for at in range(workers)]
        items[:] = [item for pair in shares for part in pair for item in part]


def _share(items: list[pytest.Item], worker: int, workers: int) -> list[pytest.Item]:
    """Return the consecutive items a worker begins with."""
    return items[worker * len(items) // workers : (worker + 1) * len(items) // workers]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what is left running, and hand the processor time to the process that prints it."""
    kill_marked_processes()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu"] = asdict(cpu_time())


@pytest.fixture(scope="module", autouse=True)
def no_process_outlives_its_tests() -> Iterator[None]:
    """Kill and report what the tests of a module leave running."""
    yield
    left = kill_marked_processes()
    assert not left, "left running:\n" + "\n".join(left)


# ---------------------------------------------------------------------------------------------------
# Real traces


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces, beside the checkout or where CHAKRA_STUDIO_SHARED says; skips without it."""
    folder = Path(os.environ.get("CHAKRA_STUDIO_SHARED") or ROOT.parent / "shared").resolve()
    if not (folder / "traces").is_dir():
        pytest.skip(SHARED_ABSENT)
    return folder


# ---------------------------------------------------------------------------------------------------
# The browser


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of the Chromium that `make test` found or installed; fails, never skips, where there is none."""
    recorded = ROOT / ".venv" / "chromium-path"
    if not os.environ.get("CHROMIUM") and recorded.is_file():
        path = recorded.read_text(encoding="utf-8").strip()
        if Path(path).is_file():
            return path
    finder = [sys.executable, str(ROOT / "scripts" / "browser.py"), "--find"]
    found = subprocess.run(finder, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.fail(found.stderr, pytrace=False)
    return found.stdout.strip()


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """Playwright's driver, once per worker."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_S * 1000)
    with unmarked():
        manager = sync_playwright()
        driver = manager.start()
    yield driver
    with ending_driver():
        driver.stop()


@pytest.fixture(scope="session")
def browser(playwright: Playwright, chromium_path: str) -> Iterator[Browser]:
    """One headless Chromium for tests that need contexts of their own."""
    chromium = playwright.chromium.launch(executable_path=chromium_path, args=BROWSER_ARGUMENTS)
    yield chromium
    count_browsers()
    chromium.close()


@pytest.fixture(scope="session")
def profile(
    playwright: Playwright, chromium_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrowserContext]:
    """One headless Chromium with a profile of its own, which keeps the studio's scripts compiled between tests.

    `context.sessions` are those opened to speak with the browser beside Playwright.
    """
    context = playwright.chromium.launch_persistent_context(
        tmp_path_factory.mktemp("profile"),
        executable_path=chromium_path,
        args=BROWSER_ARGUMENTS,
        viewport=WINDOW,
    )
    watch(context)
    context.sessions, open_session = [], context.new_cdp_session

    def noted(page: Page) -> CDPSession:
        context.sessions.append(open_session(page))
        return context.sessions[-1]

    context.new_cdp_session = noted
    yield context
    count_browsers()
    context.close()


@pytest.fixture
def page(profile: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Page]:
    """An empty page at 1440×900, of a browser without cookies and storage.

    It may have served another test, and show the logo then: a new page costs twice as much. After a test that asked for what
    lasts and cannot be undone, see `Lasting`, it is closed.

    After the test it fails on every console error or warning, uncaught exception, failed request and
    request to another machine, of this page and of those it opened. A test that means one of them to
    happen appends a regular expression to `page.expected`; `page.complaints` holds what was noted so far.
    """
    kept = next(iter(profile.pages[1:]), None)
    lasting = Lasting()
    try:
        with watched(profile, request.config, kept) as page:
            kept = page
            lasting.note(page)
            yield page
    finally:
        end_sessions(profile)
        again = kept is not None and not request.config.getoption("--slow")
        again = again and lasting.undo(kept) and empty(kept)
        for left in profile.pages[1:]:
            if left is not kept or not again:
                left.close()
        session = profile.new_cdp_session(profile.pages[0])
        for origin in profile.origins:
            session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        end_sessions(profile)
        profile.origins.clear()
        profile.clear_cookies()
        profile.clear_permissions()


def end_sessions(profile: BrowserContext) -> None:
    """End what was opened to speak with the browser beside Playwright; what it has emulated ends with it."""
    from playwright.sync_api import Error

    for session in profile.sessions:
        with suppress(Error):  # its page was closed, or the test has ended it
            session.detach()
    profile.sessions.clear()


class Lasting:
    """What a test asks of its page that would hold for the documents after it: noted, and undone where it can be."""

    UNDONE = ("emulate_media", "on", "once", "set_default_timeout", "set_viewport_size")
    KEPT = (
        "add_init_script", "add_locator_handler", "expose_binding", "expose_function", "set_extra_http_headers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.called: list[str] = []
        self.handlers: list[tuple[str, Callable[..., Any]]] = []

    def note(self, page: Page) -> None:
        """Note what is asked of a page from now on."""
        for name in (*self.UNDONE, *self.KEPT):
            setattr(page, name, self._noting(page, name))

    def _noting(self, page: Page, name: str) -> Callable[..., Any]:
        method = getattr(type(page), name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.called.append(name)
            if name in {"on", "once"}:
                self.handlers.append((options.get("event", arguments[0]), options.get("f", arguments[-1])))
            return method(page, *arguments, **options)

        return call

    def undo(self, page: Page) -> bool:
        """Undo it; False where something cannot be undone.

        The page's own methods are called, not those that note.
        """
        if page.is_closed() or set(self.called) & set(self.KEPT):
            return False
        for event, handler in self.handlers:
            with suppress(KeyError):  # it was for once, and was called
                page.remove_listener(event, handler)
        kind = type(page)
        if "set_default_timeout" in self.called:
            kind.set_default_timeout(page, PATIENCE_S * 1000)
        if "emulate_media" in self.called:
            plain = {"color_scheme": "light", "reduced_motion": "no-preference", "forced_colors": "none"}
            kind.emulate_media(page, media="null", **plain)
        if "set_viewport_size" in self.called:
            kind.set_viewport_size(page, WINDOW)
        return True


def empty(page: Page) -> bool:
    """Leave what a test has shown, so that the page can serve the next one: what is compiled need not be again.

    Returns:
        Whether it is as good as new.
    """
    from playwright.sync_api import Error

    try:
        page.unroute_all(behavior="ignoreErrors")
        page.mouse.move(-1, -1)
        origin = page.evaluate("location.origin")
        if origin.startswith("http"):
            page.goto(f"{origin}/assets/logo.svg")
            page.evaluate("sessionStorage.clear()")
        else:
            page.goto("about:blank")
        session = page.context.new_cdp_session(page)
        # A browser keeps 50 entries: of tests that count theirs, the last ones would count wrongly.
        session.send("Page.resetNavigationHistory")
    except Error:
        # Its server is gone, or the document will not be left.
        return False
    return True


@contextmanager
def page_of_its_own(browser: Browser, config: pytest.Config, **options: Any) -> Iterator[Page]:
    """Open a page in a context of its own with these options, watched as `page` describes."""
    context = browser.new_context(**options)
    watch(context)
    with watched(context, config) as page:
        yield page
    context.close()


@contextmanager
def watched(context: BrowserContext, config: pytest.Config, kept: Page | None = None) -> Iterator[Page]:
    """Open a page of a context, or use one that was kept; what happened in it that should not fails the test."""
    context.complaints.clear()
    context.under_way.clear()
    context.set_default_timeout(PATIENCE_S * 1000)
    page = kept or context.new_page()
    page.complaints, page.expected = context.complaints, []
    if config.getoption("--slow"):
        page.add_init_script(SLOW_ANSWERS)
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOW_PROCESSOR})
    yield page
    # A last round trip: what the browser has already said arrives before the answer.
    if not page.is_closed():
        page.evaluate("1")
    surprises = [line for line in page.complaints if not any(re.search(text, line) for text in page.expected)]
    assert not surprises, "the browser complained:\n" + "\n".join(surprises)


def watch(context: BrowserContext) -> None:
    """Write down everything pages of this context do that a user should never see happen.

    `context.complaints` holds it, `context.under_way` the requests without an answer, `context.origins` who was asked.
    """
    complaints: list[str] = []
    context.complaints, context.under_way, context.origins = complaints, set(), set()

    def console(message) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def request(request) -> None:
        address = urlsplit(request.url)
        if address.scheme in {"http", "https", "ws", "wss"} and address.hostname not in LOCAL_HOSTS:
            complaints.append(f"request to another machine: {request.method} {request.url}")
        context.under_way.add(request)
        context.origins.add(f"{address.scheme}://{address.netloc}")

    def ended(request) -> None:
        context.under_way.discard(request)

    def failed(request) -> None:
        ended(request)
        # Leaving a page aborts what it was still asking for: no failure of the server or the page.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(f"request failed: {request.method} {request.url}: {request.failure}")

    context.add_init_script(SHORT_TIMERS)
    context.on("console", console)
    context.on("weberror", lambda error: complaints.append(f"uncaught exception: {error.error}"))
    context.on("request", request)
    context.on("requestfinished", ended)
    context.on("requestfailed", failed)
