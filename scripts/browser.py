"""Finds a Chromium for the browser tests, or installs one; prints its path.

Tried in this order: the CHROMIUM environment variable, Debian's headless shell of Chromium where it is installed
or root can install it, an installed Chromium or Chrome, Debian's chromium, Playwright's own download. Ends with 1 and the list of what was tried when none
can be had: the browser tests are never left out in silence.

    python scripts/browser.py             find or install
    python scripts/browser.py --find      find only
    python scripts/browser.py --record F  write the path to the file F as well

Needs the standard library alone; Playwright only for the last resort.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# The same browser without windows: a page takes a seventh less processor time in it.
SHELL = "chromium-headless-shell"
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FIXED_PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
# Environment variables of Windows that hold the folders programs are installed in.
PROGRAM_FOLDERS = ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")
PROGRAM_PATHS = ("Chromium/Application/chrome.exe", "Google/Chrome/Application/chrome.exe")


def main() -> None:
    """Prints the path of a Chromium that starts, or says what was tried and ends with 1."""
    parser = argparse.ArgumentParser(description="Finds a Chromium for the browser tests, or installs one.")
    parser.add_argument("--find", action="store_true", help="do not install one")
    parser.add_argument("--record", type=Path, help="file that the path is written to as well")
    options = parser.parse_args()
    tried: list[str] = []
    for way in (
        (find_configured, find_installed)
        if options.find
        else (find_configured, debian_shell, find_installed, debian_package, playwright_download)
    ):
        path = way(tried)
        if path:
            if options.record:
                options.record.write_text(path + "\n", encoding="utf-8")
            print(path)
            return
    tries = "\n".join(f"  - {line}" for line in tried)
    sys.exit(
        "No Chromium for the browser tests. Tried:\n"
        f"{tries}\n"
        "Install Chromium or Chrome, or set CHROMIUM=/path/to/chromium, and run `make test` again."
    )


def find_configured(tried: list[str]) -> str | None:
    """Return the browser that CHROMIUM names; a wrong value is an error."""
    path = os.environ.get("CHROMIUM")
    if not path:
        tried.append("CHROMIUM environment variable: not set")
        return None
    problem = why_not(path)
    if problem:
        sys.exit(
            f"CHROMIUM={path}: {problem}\nSet it to the program file of a Chromium or Chrome, or unset it."
        )
    return path


def find_installed(tried: list[str]) -> str | None:
    """The first installed Chromium or Chrome that starts."""
    starts = False
    for path in candidates():
        starts = True
        problem = why_not(path)
        if not problem:
            return path
        tried.append(f"{path}: {problem}")
    if not starts:
        tried.append(f"an installed browser: none of {', '.join(NAMES)} on PATH, none in the usual folders")
    return None


def candidates() -> Iterator[str]:
    """Paths of the browsers present on this machine, best first."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            yield path
    folders = [Path(os.environ[variable]) for variable in PROGRAM_FOLDERS if os.environ.get(variable)]
    places = [Path(place) for place in FIXED_PLACES]
    places += [folder / path for folder in folders for path in PROGRAM_PATHS]
    yield from (str(place) for place in places if place.is_file())


def why_not(path: str) -> str | None:
    """Return why this browser does not work; None if it does."""
    if not Path(path).is_file():
        return "no such file"
    if sys.platform == "win32":
        # There `chrome --version` opens a window instead of answering.
        return None
    # Some distributions install a stub of this name that only points to another packager.
    return failure([path, "--version"], seconds=60)


def debian_shell(tried: list[str]) -> str | None:
    """Debian's headless shell of Chromium; root installs it. Others are not asked for a password to save time."""
    if not shutil.which(SHELL):
        if not (is_root() and shutil.which("apt-get")):
            return None
        say(f"installing Debian's {SHELL} with apt-get")
        problem = apt_install(SHELL, [])
        if problem:
            tried.append(f"apt-get install {SHELL}: {problem}")
            return None
    path = shutil.which(SHELL)
    problem = why_not(path) if path else f"{SHELL} is not on PATH"
    if problem:
        tried.append(f"{SHELL}: {problem}")
        return None
    return path


def debian_package(tried: list[str]) -> str | None:
    """Debian's chromium, installed with apt-get as root or through a sudo that asks for no password."""
    if not shutil.which("apt-get"):
        tried.append("Debian's package: no apt-get on this machine")
        return None
    sudo = [] if is_root() else ["sudo", "-n"]
    if sudo and failure([*sudo, "true"], seconds=20):
        tried.append("Debian's package: neither root nor a sudo without password")
        return None
    say("installing Debian's chromium with apt-get")
    problem = apt_install("chromium", sudo)
    if problem:
        tried.append(f"apt-get install chromium: {problem}")
        return None
    return find_installed(tried)


def apt_install(package: str, sudo: list[str]) -> str | None:
    """Install a package; return what was wrong when it fails."""
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "Acquire::Retries=1"]
    # An update may fail for one source of many; the install then tells.
    failure([*apt, "update"], seconds=120)
    return failure([*apt, "install", "--no-install-recommends", package], seconds=600)


def playwright_download(tried: list[str]) -> str | None:
    """Playwright's own build of Chromium, with the libraries it needs where they may be installed."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        tried.append("Playwright's download: playwright is not installed in this Python")
        return None
    say("downloading Chromium with Playwright")
    install = [sys.executable, "-m", "playwright", "install"]
    libraries = ["--with-deps"] if is_root() and shutil.which("apt-get") else []
    problem = failure([*install, *libraries, "chromium"], seconds=900)
    if problem and libraries:
        # The libraries may be there although their packages cannot be had.
        problem = failure([*install, "chromium"], seconds=900)
    if problem:
        tried.append(f"playwright install chromium: {problem}")
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    problem = why_not(path)
    if problem:
        tried.append(f"{path}: {problem}")
        return None
    return path


def is_root() -> bool:
    """Whether packages can be installed without sudo."""
    geteuid: Callable[[], int] | None = getattr(os, "geteuid", None)
    return geteuid is not None and geteuid() == 0


def failure(command: list[str], *, seconds: int) -> str | None:
    """Runs a command; what it says is wrong when it fails, None when it succeeds."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    # apt says "E: ...", Playwright "Error: ..." above a stack.
    telling = [line for line in lines if line.startswith("E: ") or "error" in line.lower()] or lines[-1:]
    return telling[0] if telling else f"exit code {done.returncode}"


def say(line: str) -> None:
    """Print progress on standard error; standard output has only the path."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
