"""Benchmark: SQL over a workspace of a thousand jobs, and over one job of 16,384 ranks.

    python benchmarks/sql.py [--jobs 1000] [--turns 5]

Each job has a run. The best of all turns is shown: other programs only add to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import studio
from studio.sim.parts import NO_CUSTOM, Parts, interpret
from studio.sql.database import Database
from studio.sql.sources import build_file_source, build_workspace_source
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import Trace
from tests.handmade import collective, node, trace_of

RANKS = 16_384
LISTED = "SELECT j.name, j.nodes, r.makespan_ns, r.exposed_ns FROM jobs j JOIN runs r ON r.job = j.job ORDER BY r.makespan_ns DESC LIMIT 20"
ASKED = (
    "SELECT count(*) FROM nodes",
    "SELECT comm_group, count(*), sum(bytes) FROM nodes GROUP BY ALL ORDER BY 2 DESC LIMIT 10",
    "SELECT name, sum(duration_ns) FROM spans GROUP BY name ORDER BY 2 DESC LIMIT 10",
)
PARTS = Parts(
    {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]},
    {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 2,
        "all-reduce-implementation": ["ring"],
    },
)


def fill(workspace: Workspace, jobs: int) -> None:
    """Store jobs of four ranks, each with a run."""
    trace = trace_of(
        [[node(1, "COMP", micros=10 + rank), collective(2, "ALL_REDUCE", 1 << 20, 1)] for rank in range(4)]
    )
    run = Run("ring", studio.simulate(trace, interpret(PARTS, NO_CUSTOM).config), PARTS, 0.1)
    for number in range(jobs):
        workspace.save_run(workspace.save(trace, f"job {number}"), run)


def many_ranks() -> Trace:
    """A job of many ranks that share four graphs."""
    trace = studio.read(studio.sample_path("transformer_8r"))
    ranks = tuple(replace(trace.ranks[number % 4], number=number) for number in range(RANKS))
    return replace(trace, graphs=trace.graphs[:4], ranks=ranks)


def best(turns: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest turn."""
    spent = []
    for _ in range(turns):
        start_s = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start_s)
    return min(spent)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    print("| asked | seconds |\n| --- | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(folder)
        fill(workspace, given.jobs)

        def library() -> None:
            with Database(build_workspace_source(workspace)) as database:
                database.ask(LISTED)

        command = [sys.executable, "-m", "studio", "sql", LISTED, "--workspace", folder]
        print(f"| jobs and runs of {given.jobs:,} jobs, by the library | {best(given.turns, library):.2f} |")
        whole = best(given.turns, lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        print(f"| the same, the whole command with Python's start | {whole:.2f} |")
    trace = many_ranks()
    with Database(build_file_source("job", [], lambda _files: trace)) as database:
        for query in ASKED:
            first = best(1, lambda query=query: database.ask(query))  # type: ignore[misc]
            again = best(given.turns, lambda query=query: database.ask(query))  # type: ignore[misc]
            print(f"| {RANKS:,} ranks: `{query}` | {first:.2f}, again {again:.2f} |")


if __name__ == "__main__":
    main()
