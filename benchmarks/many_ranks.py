"""Benchmark: import a job of many ranks with long Kineto traces, uncompressed and without execution traces.

    python benchmarks/many_ranks.py FOLDER [--ranks 12] [--megabytes 150] [--made DIR] [--turns 1] [--root DIR]

FOLDER holds the Kineto traces of one recorded job (`kineto_*`). Each rank is one of them, repeated until the file is long
enough, with ids and times of its own. They are imported as one job into a workspace of its own by a process of its own, and
opened again. Seconds of CPU are those of that process and of those that it starts; the peak is that of all of them together,
as the memory each has for itself, looked at ten times a second. `--root` names another checkout to measure.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_LOOK_S = 0.1


def main() -> int:
    """Write the files, import them, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--ranks", type=int, default=12)
    parser.add_argument("--megabytes", type=int, default=150, help="of each rank's file")
    parser.add_argument("--made", type=Path, help="where the long files are kept between runs")
    parser.add_argument("--turns", type=int, default=1, help="the one with the least CPU counts")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that is measured")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return _inside(Path(options.inside), options.made)
    with tempfile.TemporaryDirectory(prefix="benchmark-many-ranks-") as scratch:
        made = options.made or Path(scratch)
        files = make(options.folder, made, options.ranks, options.megabytes * 1_000_000)
        total_mb = sum(path.stat().st_size for path in files) / 1e6
        print(
            "| ranks | MB | s | s of CPU | MB/s a core | peak MB, all processes | stored MB | opened again, s of CPU |"
        )
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        turns = [_measure(options, made) for _ in range(options.turns)]
        best = min(turns, key=lambda turn: turn["cpu_s"])
        print(
            f"| {options.ranks} | {total_mb:,.0f} | {best['whole_s']:.0f} | {best['cpu_s']:.1f} | "
            f"{total_mb / best['cpu_s']:.0f} | {best['peak_mb']:,.0f} | {best['stored_mb']:,.0f} | "
            f"{best['open_cpu_s']:.1f} |"
        )
    return 0


# ---------------------------------------------------------------------------------------------------
# Long traces


def make(folder: Path, made: Path, ranks: int, size_bytes: int) -> list[Path]:
    """Write the files of the ranks that are not there; returns all of them."""
    from link import device_template, load_trace

    made.mkdir(parents=True, exist_ok=True)
    wanted = [made / f"kineto_{rank}.json" for rank in range(ranks)]
    for path in made.iterdir():
        if path not in wanted:
            raise SystemExit(f"{path}: not one of the {ranks} ranks; choose another folder with --made.")
    recorded = sorted(folder.glob("kineto*"))
    templates: dict[Path, tuple[dict[str, Any], Any]] = {}
    for rank, path in enumerate(wanted):
        if path.exists():
            continue
        source = recorded[rank % len(recorded)]
        if source not in templates:
            device = load_trace(source)
            templates[source] = device, device_template(device)
        device, piece = templates[source]
        aside = path.with_suffix(".part")
        _write(aside, _of_rank(device, rank, ranks), piece, (rank, size_bytes))
        aside.rename(path)
    return wanted


def _of_rank(device: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    """Return a trace that says that it is of a rank of a larger job."""
    told = dict(device.get("distributedInfo", {}))
    told |= {"backend": told.get("backend", "nccl"), "rank": rank, "world_size": ranks}
    if "pg_config" in told:
        told["pg_config"] = [
            {**group, "pg_size": ranks, "ranks": list(range(ranks))} for group in told["pg_config"]
        ]
    return device | {"distributedInfo": told}


def _write(path: Path, device: dict[str, Any], piece: Any, rank_and_size: tuple[int, int]) -> None:
    """Write a trace repeated to a size; ranks begin with other ids, and take a little longer for each repetition."""
    rank, size_bytes = rank_and_size
    steps = dict(piece.steps)
    piece.steps = {**steps, "t": steps["t"] + 137 * rank}
    rest = {name: value for name, value in device.items() if name != "traceEvents"}
    named = [event for event in device["traceEvents"] if event["ph"] == "M"]
    with path.open("w", encoding="utf-8") as stream:
        written = stream.write(
            json.dumps(rest)[:-1] + ', "traceEvents": [\n' + ",\n".join(map(json.dumps, named))
        )
        repetition = 3 * rank
        while written < size_bytes:
            written += stream.write(",\n" + piece.text(repetition))
            repetition += 1
        stream.write("\n]}\n")
    piece.steps = steps


# ---------------------------------------------------------------------------------------------------
# Measuring


def _measure(options: argparse.Namespace, made: Path) -> dict[str, float]:
    """Import in a process of its own, looked at from here."""
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="workspace-") as workspace:
        command = [sys.executable, __file__, str(options.folder), "--made", str(made), "--inside", workspace]
        environment = os.environ | {"PYTHONPATH": str(options.root)}
        process = subprocess.Popen(command, cwd=options.root, env=environment, stdout=subprocess.PIPE)
        done, peak = Event(), [0]
        watcher = Thread(target=_watch, args=(process.pid, done, peak))
        watcher.start()
        out, _ = process.communicate()
        done.set()
        watcher.join()
        if process.returncode:
            raise SystemExit(process.returncode)
        return {**json.loads(out), "peak_mb": peak[0] / 1e6}


def _watch(pid: int, done: Event, peak: list[int]) -> None:
    """Keep the most memory that a process and those it started had at a time: files that are mapped do not count."""
    while not done.wait(_LOOK_S):
        peak[0] = max(peak[0], sum(_own_bytes(each) for each in _family(pid)))


def _family(pid: int) -> Sequence[int]:
    """Return a process and all that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(told[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def _own_bytes(pid: int) -> int:
    """Return the memory of a process that is in no file."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    told = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return 1024 * (int(told.get("RssAnon", 0)) + int(told.get("RssShmem", 0)))


def _inside(workspace: Path, made: Path) -> int:
    """Import and open in this process, and print times."""
    from studio.jobs.importing import open_paths
    from studio.store.workspace import Workspace

    start_s, start_cpu_s = time.perf_counter(), _cpu_s()
    kept = Workspace(workspace)
    [job] = open_paths(kept, [made])
    whole_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - start_cpu_s
    opening_cpu_s = _cpu_s()
    kept.load(job)
    told = {
        "whole_s": whole_s,
        "cpu_s": cpu_s,
        "stored_mb": kept.info(job).stored_bytes / 1e6,
        "open_cpu_s": _cpu_s() - opening_cpu_s,
    }
    print(json.dumps(told))
    return 0


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    sys.exit(main())
