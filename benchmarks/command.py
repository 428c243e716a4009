"""Times `chakra-studio simulate` from cold: `python benchmarks/command.py FOLDER [--repeat N] [--case TEXT] [--large NPUS]`.

FOLDER holds records as `tests/golden.py` reads them. The cases are written as `.et`, YAML and JSON, one file per rank as
the reference simulator reads them; then the command runs as a user types it, in a process of its own, the kernels
compiled before. `--large` adds a pipeline of so many NPUs, one rank standing for many (may be repeated). Printed are the
rows of `benchmarks/README.md`: seconds of CPU of the whole process, the best of N runs, and its peak memory. Finish times
are checked against each other.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.folding import config, pipeline
from studio.et import wire, write
from studio.sim import astra, engine
from tests.golden import Record
from tests.golden_files import Written, write_case

ROOT = Path(__file__).resolve().parent.parent
CASES = {
    "tf96, 64 NPUs, unaware": ("tf96_64_unaware", {}),
    "tf96, 256, unaware": ("tf96_256_unaware", {}),
    "tf96, 256, aware": ("tf96_256_aware", {}),
    "all-reduce, ring of 1,024, unaware": ("ar_1GB_ring1024_unaware", {}),
    "torus of 64 x 64, unaware": ("ar_1GB_torus32x32_unaware", {"npus_count": [64, 64]}),
    "100 MB, switch of 1,024, aware": ("ar_1GB_ring1024_aware", {"topology": ["Switch"]}),
    "direct, switch of 256, aware": ("ar_1GB_switchdirect256_aware", {}),
}
"""Of each row the record it is made of, and what its network has instead."""
MEASURED = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(status)
"""
"""Runs a command from a small process: the peak of a process counts what it was forked from."""
ASKED_S = (0.8, 1.2, 1.3, 1.3, 1.6, 1.6, 1.0)


@dataclass(frozen=True)
class Run:
    """What one run of the command took."""

    cpu_s: float
    peak_mb: float
    finish_ns: int
    ranks: int


def record_of(name: str, folder: Path) -> Record:
    """Return the record of a case."""
    source, network = CASES[name]
    with gzip.open(folder / f"{source}.json.gz", "rt") as file:
        record: Record = json.load(file)
    record["network"] |= network
    if name.startswith("100 MB"):
        record["workload"]["all_ranks"][0]["attrs"]["comm_size"] = 100_000_000
    return record


def run(arguments: list[str]) -> Run:
    """Run the command once."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MEASURED, sys.executable, "-m", "studio", "simulate", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    output = done.stdout
    cpu_s, peak_kb = done.stderr.split()[-2:]
    [finish] = [line for line in output.splitlines() if line.startswith("  finish  ")][:1]
    npus = output.split(" on ", 1)[1].split(" NPUs", 1)[0]
    finish_ns = int(finish.rpartition("(")[2].removesuffix(" ns)").replace(",", ""))
    return Run(float(cpu_s), int(peak_kb) * 1024 / 1e6, finish_ns, int(npus.replace(",", "")))


def row(name: str, arguments: list[str], repeat: int, asked: str) -> str:
    """Return the row of a case."""
    runs = [run(arguments) for _ in range(repeat)]
    assert len({one.finish_ns for one in runs}) == 1
    best = min(runs, key=lambda one: one.cpu_s)
    cells = (name, f"{best.ranks:,}", f"{best.cpu_s:.2f}", asked, f"{best.peak_mb:.0f}", str(best.finish_ns))
    return f"| {' | '.join(cells)} |"


def write_large(npus: int, folder: Path) -> Written:
    """Write the pipeline of `benchmarks/folding.py`: four graphs, other groups and peers on every rank."""
    write(pipeline(npus), folder / "traces", "job")
    return Written(folder / "traces", astra.write_config(config(npus), folder / "system"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", default="", help="only rows whose name contains this")
    parser.add_argument("--large", type=int, action="append", default=[], metavar="NPUS")
    options = parser.parse_args()
    wire.load_kernel()
    engine.load_kernel()
    print(
        "| case | ranks | s of CPU | asked | peak MB | finish ns |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for name, asked in zip(CASES, ASKED_S, strict=True):
        if options.case in name:
            with tempfile.TemporaryDirectory() as target:
                written = write_case(record_of(name, options.folder), Path(target))
                print(row(name, written.arguments, options.repeat, str(asked)), flush=True)
    for npus in options.large:
        with tempfile.TemporaryDirectory() as target:
            written = write_large(npus, Path(target))
            print(row("pipeline, folded", written.arguments, options.repeat, ""), flush=True)


if __name__ == "__main__":
    main()
