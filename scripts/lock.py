"""Writes constraints.txt: one version of every package, valid on every Python and platform supported.

Resolved with pip on the oldest supported Python, whose needs include those of the newer ones, then
checked: a pinned version with compiled parts must have a wheel for each supported Python on each platform
below. What comes as source alone is named; it must build without a compiler.

Run it as `make lock`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MANYLINUX = (17, 24, 26, 27, 28)
PLATFORMS = {
    "Linux x86-64": [f"manylinux_2_{minor}_x86_64" for minor in MANYLINUX] + ["manylinux2014_x86_64"],
    "Linux ARM": [f"manylinux_2_{minor}_aarch64" for minor in MANYLINUX] + ["manylinux2014_aarch64"],
    "macOS ARM": ["macosx_14_0_arm64"],
    "Windows x86-64": ["win_amd64"],
}
# Asked for by click, build and pytest on Windows alone, so a resolution elsewhere misses it.
OTHER_PLATFORMS = ["colorama"]
# What builds the packages: pip that knows dependency groups, hatchling's helper, and the source packages' need.
TOOLS = ["pip>=25.3", "editables>=0.5", "setuptools>=77", "wheel>=0.45"]
HEADER = """\
# One version of every package, used by `make run` and `make test`. Written by `make lock`; do not edit.
# Valid for Python {first} to {last} on {platforms}.
"""


def requirements(project: dict[str, dict[str, list[object]]]) -> list[str]:
    """Every requirement pyproject.toml states: to run, to build, and of each dependency group."""
    grouped = [entry for group in project["dependency-groups"].values() for entry in group]
    stated = project["project"]["dependencies"] + project["build-system"]["requires"] + grouped
    return [entry for entry in stated if isinstance(entry, str)] + OTHER_PLATFORMS + TOOLS


def pip(*arguments: str) -> str:
    """Standard output of one pip command; ends the program with pip's own message when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        sys.exit("\n".join(errors) or done.stderr)
    return done.stdout


def resolve(wanted: list[str]) -> dict[str, tuple[str, str]]:
    """Pin (`name==version`) and file name of the wanted packages and all they need, by normalised name."""
    report = json.loads(
        pip("install", "--dry-run", "--quiet", "--ignore-installed", "--report", "-", *wanted)
    )
    pins: dict[str, tuple[str, str]] = {}
    for item in report["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        pins[name] = (
            f"{name}=={item['metadata']['version']}",
            item["download_info"]["url"].rsplit("/", 1)[1],
        )
    return dict(sorted(pins.items()))


def check_wheels(pins: list[str]) -> None:
    """Ends the program when a pin has no wheel for a supported Python and platform."""
    with tempfile.TemporaryDirectory() as folder:
        for python in PYTHONS:
            for label, tags in PLATFORMS.items():
                print(f"{len(pins)} wheels for Python {python} on {label}", file=sys.stderr)
                platforms = [f"--platform={tag}" for tag in tags]
                where = [f"--target={folder}", f"--python-version={python}", "--only-binary=:all:"]
                pip("install", "--dry-run", "--quiet", "--no-deps", *where, *platforms, *pins)


def main() -> None:
    """Resolves, checks, and only then replaces constraints.txt."""
    if ".".join(map(str, sys.version_info[:2])) != PYTHONS[0]:
        sys.exit(
            f"make lock needs Python {PYTHONS[0]}, the oldest supported: run `make clean lock PYTHON=python3.11`"
        )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = resolve(requirements(project))
    for pin, file in pins.values():
        if not file.endswith(".whl"):
            print(f"{pin} comes as source alone ({file})", file=sys.stderr)
    check_wheels(
        [pin for pin, file in pins.values() if file.endswith(".whl") and not file.endswith("-any.whl")]
    )
    header = HEADER.format(first=PYTHONS[0], last=PYTHONS[-1], platforms=", ".join(PLATFORMS))
    lines = "".join(f"{pin}\n" for pin, _ in pins.values())
    (ROOT / "constraints.txt").write_text(header + lines, encoding="utf-8")
    print(f"constraints.txt: {len(pins)} packages")


if __name__ == "__main__":
    main()
