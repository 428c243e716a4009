"""What tests of every folder share: the folder of real traces, and a browser that reports what went wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).resolve().parent.parent
SHARED_ABSENT = "the shared trace folder is absent"
BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No other machine can be reached even if a page asks for one; the page fixture tells that it asked.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
LOCAL_HOSTS = {"127.0.0.1", "localhost"}

SLOW_PROCESSOR = 3
# Requests leave and answers arrive up to 0.3 s later, in any order: what only works when they are fast breaks.
SLOW_ANSWERS = """(() => {
    const ask = window.fetch, wait = () => new Promise(done => setTimeout(done, Math.random() * 300));
    window.fetch = (...what) => wait().then(() => ask(...what)).then(answer => wait().then(() => answer));
})()"""

# No test asserts on time: on a busy machine any example may take long.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--slow`, which finds what depends on the order of answers."""
    parser.addoption("--slow", action="store_true", help="browser tests as on a busy machine, far away")


# ---------------------------------------------------------------------------------------------------
# Real traces


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces, beside the checkout or where CHAKRA_STUDIO_SHARED says; skips without it."""
    folder = Path(os.environ.get("CHAKRA_STUDIO_SHARED") or ROOT.parent / "shared").resolve()
    if not (folder / "traces").is_dir():
        pytest.skip(SHARED_ABSENT)
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names and counts the tests that had no traces to read."""
    skipped = terminalreporter.getreports("skipped")
    names = sorted(report.nodeid for report in skipped if SHARED_ABSENT in str(report.longrepr))
    if names:
        terminalreporter.section(SHARED_ABSENT)
        for name in names:
            terminalreporter.line(f"SKIPPED {name}")
        noun = "test" if len(names) == 1 else "tests"
        terminalreporter.line(f"{len(names)} {noun} skipped because {SHARED_ABSENT}")


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
def browser(chromium_path: str) -> Iterator[Browser]:
    """One headless Chromium for all browser tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path, args=BROWSER_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """An empty page, in a context of its own, at 1440×900.

    After the test it fails on every console error or warning, uncaught exception, failed request and
    request to another machine, of this page and of those it opened. A test that means one of them to
    happen appends a regular expression to `page.expected`; `page.complaints` holds what was noted so far.
    """
    with watched(browser, request.config, viewport={"width": 1440, "height": 900}) as page:
        yield page


@contextmanager
def watched(browser: Browser, config: pytest.Config, **options: Any) -> Iterator[Page]:
    """A page in a context of its own with these options, as `page` describes."""
    context = browser.new_context(**options)
    complaints: list[str] = []
    watch(context, complaints)
    page = context.new_page()
    page.complaints, page.expected = complaints, []
    if config.getoption("--slow"):
        context.add_init_script(SLOW_ANSWERS)
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOW_PROCESSOR})
    yield page
    # A last round trip: what the browser has already said arrives before the answer.
    if not page.is_closed():
        page.evaluate("1")
    context.close()
    surprises = [line for line in complaints if not any(re.search(text, line) for text in page.expected)]
    assert not surprises, "the browser complained:\n" + "\n".join(surprises)


def watch(context: BrowserContext, complaints: list[str]) -> None:
    """Writes down everything a page of this context does that a user should never see happen.

    `context.under_way` holds the requests without an answer.
    """
    context.under_way = set()

    def console(message) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def request(request) -> None:
        address = urlsplit(request.url)
        if address.scheme in {"http", "https", "ws", "wss"} and address.hostname not in LOCAL_HOSTS:
            complaints.append(f"request to another machine: {request.method} {request.url}")
        context.under_way.add(request)

    def ended(request) -> None:
        context.under_way.discard(request)

    def failed(request) -> None:
        ended(request)
        # Leaving a page aborts what it was still asking for: no failure of the server or the page.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(f"request failed: {request.method} {request.url}: {request.failure}")

    context.on("console", console)
    context.on("weberror", lambda error: complaints.append(f"uncaught exception: {error.error}"))
    context.on("request", request)
    context.on("requestfinished", ended)
    context.on("requestfailed", failed)
