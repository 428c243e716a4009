"""Start a studio and find a browser, for scripts and benchmarks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
)


@contextmanager
def serve_workspace(workspace: Path | str, *arguments: str) -> Iterator[str]:
    """Serve a workspace on a free port until the block ends; yields the address.

    It asks for no token: what scripts serve are samples and made-up jobs.
    """
    options = ["--no-browser", "--no-token", "--port", "0", "--workspace", str(workspace)]
    command = [sys.executable, "-m", "studio", *options]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            addresses = (re.search(r"http://\S+", line) for line in server.stdout or ())
            yield next(match.group() for match in addresses if match is not None)
        finally:
            server.terminate()


def root_of(address: str) -> str:
    """Return an address without its path."""
    return "/".join(address.split("/")[:3])


def chromium() -> str:
    """Return the path of Chromium: the environment's `CHROMIUM`, or the one that `make` found."""
    return os.environ.get("CHROMIUM") or (ROOT / ".venv" / "chromium-path").read_text().strip()


def most_frames(browser: Browser) -> float:
    """Return how many frames a second the browser offers an empty page here: no page can draw more."""
    page = browser.new_page()
    page.goto("about:blank")
    count: int = page.evaluate(
        """() => new Promise(done => {
            const began = performance.now();
            let count = 0;
            requestAnimationFrame(function tick(now) {
                if (now - began < 3000) { count++; requestAnimationFrame(tick); } else done(count);
            });
        })"""
    )
    page.close()
    return count / 3
