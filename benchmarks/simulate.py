"""Times the simulator on the speed cases: `python benchmarks/simulate.py FOLDER [--repeat N]`.

FOLDER holds records as `tests/golden.py` reads them, one case per `*.json.gz`. Printed is one row of
`benchmarks/README.md` per case: best of N runs, warm process, every event of every rank kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studio.sim import engine
from studio.sim.plan import make_plan
from studio.sim.result import result_of
from tests.golden import case

REFERENCE_S = {
    "tf96_64_unaware": 0.72,
    "tf96_64_aware": 0.67,
    "tf96_256_unaware": 6.9,
    "tf96_256_aware": 7.7,
    "ar_1GB_switchdirect256_aware": 0.78,
    "ar_1GB_ring1024_unaware": 9.1,
    "ar_1GB_ring1024_aware": 10.0,
    "ar_1GB_switch1024_unaware": 6.7,
    "ar_1GB_switchhd1024_unaware": 1.0,
    "ar_1GB_torus32x32_unaware": 0.92,
    "ar_1GB_ring4096_unaware": 220.0,
}
"""Wall seconds of the reference simulator, once each on two shared cores."""


def measure(path: Path, repeat: int) -> str:
    """Return the table row of a case."""
    with gzip.open(path, "rt") as file:
        trace, config = case(json.load(file))
    name = path.name.removesuffix(".json.gz")
    best_run = best_all = float("inf")
    for _ in range(repeat):
        began = time.perf_counter()
        plan = make_plan(trace, config)
        planned = time.perf_counter()
        engine.execute(plan)
        ran = time.perf_counter()
        result = result_of(trace, config, plan)
        best_run = min(best_run, ran - planned)
        best_all = min(best_all, time.perf_counter() - began)
    reference = REFERENCE_S.get(name)
    told = f"{reference:g}" if reference else "-"
    ratio = f"{reference / best_all:.0f}" if reference else "-"
    rate = result.callbacks / best_run / 1e6
    cells = name, f"{result.callbacks / 1e6:.1f}", f"{best_run:.3f}", f"{rate:.0f}", f"{best_all:.3f}"
    return f"| {' | '.join((*cells, told, ratio, f'{plan.m.nbytes / 1e6:.0f}', str(result.makespan_ns)))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    began = time.perf_counter()
    engine.compiled()
    print(f"engine ready after {time.perf_counter() - began:.2f} s\n")
    print(
        "| case | M events | engine s | M events/s | Trace to result s | reference s | ratio | MB | finish ns |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for path in sorted(options.folder.glob("*.json.gz")):
        if options.case in path.name:
            print(measure(path, options.repeat), flush=True)
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
