"""Benchmark: import a job into the workspace and open it, each in its own process.

    python benchmarks/import_job.py path/to/traces [--turns 5]

"Import" reads the files and stores the job; "open by path" finds that these very files were imported before;
"open" is what a page does: the job's numbers, its arrays and the fields of its first node. Seconds are those of the
work, as in a studio that runs, but with an empty workspace and the compiled kernel yet to be loaded from its cache;
seconds of CPU include the start of Python. The best of all turns is shown: other programs only add to it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from studio.et import wire
from studio.jobs.importing import open_paths
from studio.store.workspace import Workspace
from studio.trace import list_node_attributes


def import_paths(workspace: str, traces: str) -> str:
    """Import the traces, or find them imported; return how often progress was shown."""
    phases: list[str] = []
    job_id = open_paths(Workspace(workspace), [traces], progress=lambda phase, *_: phases.append(phase))[0]
    return f"{job_id} {len(phases)}"


def open_job(workspace: str, job_id: str) -> str:
    """Do what the first page of a job needs."""
    place = Workspace(workspace)
    info, trace = place.info(job_id), place.load(job_id)
    rank = trace.ranks[-1]
    graph = trace.graph_of(rank)
    assert sum(share.nodes for share in info.summary.types) == trace.node_count
    assert list_node_attributes(graph, 0, rank.slots)
    return f"{graph.strings[int(graph.name[0])]} of {trace.node_count:,}"


def measure(action: str, *arguments: str) -> tuple[float, float, float, str]:
    """Run one action in a process; return seconds, seconds of CPU, peak in MiB and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, action, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    elapsed_s, peak_mib, said = done.stdout.split(maxsplit=2)
    return float(elapsed_s), cpu_s, float(peak_mib), said


def benchmark(traces: str, turns: int) -> None:
    """Print the table."""
    wire.load_kernel()
    best: dict[str, tuple[float, float, float]] = {}
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as workspace:
            *first, said = measure("import", workspace, traces)
            job_id = said.split()[0]
            *by_path, again = measure("import", workspace, traces)
            assert again.split()[0] == job_id
            *opened, _ = measure("open", workspace, job_id)
            stored = Workspace(workspace).info(job_id).stored_bytes
        for name, figures in (("import", first), ("open by path", by_path), ("open", opened)):
            best[name] = min(best.get(name, (9e9, 0.0, 0.0)), (figures[0], figures[1], figures[2]))
    path = Path(traces)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    print(
        f"{path.name}: {size / 1e6:,.0f} MB, {stored / 1e6:,.1f} MB in the workspace, progress shown {said.split()[1]} times"
    )
    print(f"best of {turns}, {os.cpu_count()} cores\n")
    print("| step | seconds | of CPU | peak | times faster than importing |\n| --- | --- | --- | --- | --- |")
    for name, (elapsed_s, cpu_s, peak_mib) in best.items():
        ratio = f"{best['import'][0] / elapsed_s:.1f} ×" if name != "import" else ""
        print(f"| {name} | {elapsed_s:.2f} | {cpu_s:.2f} | {peak_mib:,.0f} MiB | {ratio} |")


def main() -> None:
    """Run the benchmark, or one action of it."""
    actions = {"import": import_paths, "open": open_job}
    if len(sys.argv) == 4 and sys.argv[1] in actions:
        start_s = time.perf_counter()
        said = actions[sys.argv[1]](*sys.argv[2:])
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{time.perf_counter() - start_s:.3f} {peak_mib:.0f} {said}")
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    benchmark(given.traces, given.turns)


if __name__ == "__main__":
    main()
