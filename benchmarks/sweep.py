"""Times sweeps of a thousand settings: `python benchmarks/sweep.py JOB [JOB...] [--preset NAME]`; JOB is a folder, file or archive.

Printed are CPU seconds of all processes together, and seconds on the clock; reading the job and starting processes are
counted, the kernel is in its cache.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studio.et import read
from studio.sim import engine
from studio.sweep.analysis import select_possible
from studio.sweep.space import parse_space
from studio.sweep.sweep import Sweep, run_sweep
from studio.sweep.systems import Base

VARIED = ("bandwidth[0]=200..650:50", "bandwidth[1]=10..100:10", "latency[1]=500..5000:500")
"""Ten values each, of a system of two dimensions."""


def cpu_s() -> float:
    """Return the CPU seconds of this process and those it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Time each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", type=Path)
    parser.add_argument("--preset", default="hgx-h100")
    options = parser.parse_args()
    engine.load_kernel()
    print("| job | ranks | points | CPU s | s |\n| --- | ---: | ---: | ---: | ---: |")
    for job in options.jobs:
        began, used = time.perf_counter(), cpu_s()
        trace = read(job)
        with tempfile.TemporaryDirectory() as folder:
            sweep = Sweep(parse_space(VARIED), Base(options.preset))
            swept = run_sweep(trace, sweep, Path(folder, "results.parquet"))
        found = len(select_possible(swept.rows))
        taken = time.perf_counter() - began
        print(f"| {job.name} | {len(trace.ranks)} | {found:,} | {cpu_s() - used:.1f} | {taken:.1f} |")


if __name__ == "__main__":
    main()
