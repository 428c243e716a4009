"""Times the simulator on the speed cases: `python benchmarks/simulate.py FOLDER [--repeat N] [--case TEXT]`.

FOLDER holds records as `tests/golden.py` reads them, one case per `*.json.gz`. Printed are the tables of
`benchmarks/README.md`. Every case runs in a process of its own, compiled kernel in its cache, nothing folded,
every event of every rank kept in its order; the best of N runs counts, in seconds of CPU, of which the neighbours on
a shared machine take less than of others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studio.sim import engine, simulate
from studio.sim.config import SystemConfig
from studio.sim.plan import make_plan
from studio.sim.result import read_result
from studio.trace import NodeType, Trace
from tests.golden import case

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = {
    "tf96_64_unaware": (0.72, 49),
    "tf96_64_aware": (0.67, 50),
    "tf96_256_unaware": (6.9, 163),
    "tf96_256_aware": (7.7, 180),
    "ar_1GB_switchdirect256_aware": (0.78, 73),
    "ar_1GB_ring1024_unaware": (9.1, 356),
    "ar_1GB_ring1024_aware": (10.0, 356),
    "ar_1GB_switch1024_unaware": (6.7, 356),
    "ar_1GB_switchhd1024_unaware": (1.0, 357),
    "ar_1GB_torus32x32_unaware": (0.92, 58),
    "ar_1GB_ring4096_unaware": (220.0, 5458),
}
"""Wall seconds and peak MB of the reference simulator, once each on two shared cores."""

ASKED = {
    "tf96_256_unaware": "0.2; to result 0.6",
    "tf96_256_unaware, own times": "0.2; to result 0.6",
    "ar_1GB_ring1024_unaware": "0.5",
    "ar_1GB_ring4096_unaware": "10",
}
OWN_TIMES = ", own times"
"""Marks the variant of a case in which every rank computes for another time: no two ranks share a graph."""
VARIED = "tf96_256_unaware"
HEADINGS = (
    *("case", "M events", "engine s", "M events/s", "Trace to result s", "asked s", "reference s", "ratio"),
    *("peak MB", "of the case", "reference MB", "finish ns"),
)
LOAD = "from studio.sim import engine; engine.load_kernel()"


def best(repeat: int, act: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs."""
    taken = []
    for _ in range(repeat):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return min(taken)


def peak_mb() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def with_own_times(trace: Trace) -> Trace:
    """Return a trace in which no two ranks compute for the same time."""
    graphs, ranks = [], []
    for rank in trace.ranks:
        graph = trace.graphs[rank.graph]
        duration = graph.duration_ns.copy()
        duration[graph.type == NodeType.COMP] += 100 * rank.number
        ranks.append(replace(rank, graph=len(graphs)))
        graphs.append(replace(graph, duration_ns=duration))
    return replace(trace, graphs=tuple(graphs), ranks=tuple(ranks))


def measure(name: str, folder: Path, repeat: int) -> list[str]:
    """Return the cells of a case."""
    engine.load_kernel()
    with gzip.open(folder / f"{name.removesuffix(OWN_TIMES)}.json.gz", "rt") as file:
        trace, config = case(json.load(file))
    if name.endswith(OWN_TIMES):
        trace = with_own_times(trace)
    idle_mb = peak_mb()
    engine_s = whole_s = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        plan = make_plan(trace, config)
        planned = time.process_time()
        engine.execute(plan)
        ran = time.process_time()
        result = read_result(trace, config, plan)
        whole_s = min(whole_s, time.process_time() - began)
        engine_s = min(engine_s, ran - planned)
    reference_s, reference_mb = REFERENCE.get(name, (None, None))
    return [
        name,
        f"{result.callbacks / 1e6:.1f}",
        f"{engine_s:.3f}",
        f"{result.callbacks / engine_s / 1e6:.0f}",
        f"{whole_s:.3f}",
        ASKED.get(name, ""),
        f"{reference_s:g}" if reference_s else "",
        f"{reference_s / whole_s:.0f} ×" if reference_s else "",
        f"{peak_mb():.0f}",
        f"{peak_mb() - idle_mb:.0f}",
        str(reference_mb or ""),
        str(result.makespan_ns),
    ]


def start_times() -> list[tuple[str, str, str]]:
    """Measure the start of a studio; returns rows of name, seconds and target."""
    with tempfile.TemporaryDirectory() as empty:
        cold = {**os.environ, "NUMBA_CACHE_DIR": empty}
        command = [sys.executable, "-c", LOAD]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        cold_s = best(1, lambda: subprocess.run(command, cwd=ROOT, env=cold, check=True))
        cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    engine.load_kernel()
    ready_s = best(5, lambda: subprocess.run([sys.executable, "-c", LOAD], cwd=ROOT, check=True))
    trace, config = small()
    compiled_ms = 1e3 * best(20, lambda: simulate(trace, config, native=True))
    interpreted_ms = 1e3 * best(5, lambda: simulate(trace, config, native=False))
    return [
        ("compiling, the first time", f"{cold_s:.1f} s ({cpu_s:.1f} s of CPU)", "15 s"),
        ("a process with the compiled engine, from the cache", f"{ready_s:.2f} s", "0.5 s"),
        ("all-reduce of 1 GB on 8 NPUs, warm", f"{compiled_ms:.1f} ms", "20 ms"),
        ("the same, interpreted", f"{interpreted_ms:.1f} ms", ""),
    ]


def small() -> tuple[Trace, SystemConfig]:
    """Return an all-reduce on a ring of eight."""
    from tests.golden import trace_of_workload
    from tests.sim.test_parity_sample import ring_config

    node = {"id": 1, "type": "COMM_COLL", "name": "sum", "attrs": {"comm_type": 0, "comm_size": 1 << 30}}
    return trace_of_workload({"all_ranks": [node]}, 8), ring_config(8)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", default="", help="only cases whose name contains this, and no start times")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(f"| {' | '.join(measure(options.one, options.folder, options.repeat))} |")
        return
    if not options.case:
        print("| start | taken | asked |\n| --- | ---: | ---: |")
        for row in start_times():
            print(f"| {' | '.join(row)} |", flush=True)
        print()
    print(f"| {' | '.join(HEADINGS)} |\n| --- |{' ---: |' * (len(HEADINGS) - 1)}")
    names = sorted(path.name.removesuffix(".json.gz") for path in options.folder.glob("*.json.gz"))
    for name in [*names, *[VARIED + OWN_TIMES for name in names if name == VARIED]]:
        if options.case in name:
            command = [
                sys.executable,
                __file__,
                str(options.folder),
                f"--repeat={options.repeat}",
                f"--one={name}",
            ]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
