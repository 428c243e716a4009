"""Benchmark: how long a started studio takes to answer the browser's first requests.

    python benchmarks/start.py [--turns 5]

The best of all turns is shown: other programs only add to it. The first turn, which compiles Python's own files,
does not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.serving import root_of, serve_workspace

ASKED = ("/", "/_dash-layout", "/_dash-dependencies")


def measure_start(workspace: str, *options: str) -> tuple[float, float]:
    """Start a studio, ask it and stop it; return the seconds to its address and to the last answer."""
    start_s = time.perf_counter()
    with serve_workspace(workspace, *options) as address:
        address_s = time.perf_counter() - start_s
        for path in ASKED:
            urllib.request.urlopen(root_of(address) + path).read()  # noqa: S310 (our own server)
        answered_s = time.perf_counter() - start_s
    return address_s, answered_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    print(f"best of {turns}, {os.cpu_count()} cores\n")
    print("| start | seconds to the address | to the last first answer |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as workspace:
        for name, options in (("empty workspace", ()), ("with a sample open", ("--sample",))):
            measure_start(workspace, *options)
            times = [measure_start(workspace, *options) for _ in range(turns)]
            print(f"| {name} | {min(a for a, _ in times):.2f} | {min(b for _, b in times):.2f} |")


if __name__ == "__main__":
    main()
