"""Times reading the files of equal ranks: `python benchmarks/read_alike.py`.

Ranks of a transformer that differ in comm groups only, and the same with ids that run on from rank to rank, are written
and read: every file in full, and as one job, in which a file that is like one before is compared with it. Seconds of CPU
of one process, interpreted, imports not counted, the best of three; the first file of a job is always read in full.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.folding import transformer
from studio.et import chakra, read, write
from studio.et.format import Reading
from studio.trace import Trace
from tests.handmade import number_throughout


def measure_cpu(work: Callable[[], object]) -> float:
    """Return the seconds of CPU that something takes, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def describe_case(name: str, trace: Trace) -> str:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [path for path in write(trace, folder, "job") if path.suffix == ".et"]
        size = paths[0].stat().st_size
        some = paths[:24]
        alone = measure_cpu(lambda: [chakra.read(Reading(path.name, path.read_bytes())) for path in some])
        together = measure_cpu(lambda: read(folder))
    each, alike = 1000 * alone / len(some), 1000 * together / len(paths)
    return (
        f"| {name} | {len(paths):,} | {size / 1000:,.1f} | {each:.2f} | {alike:.3f} | {each / alike:.0f} × |"
    )


def main() -> None:
    """Print the table."""
    print(
        "| ranks that differ in | files | KB each | each in full, ms a file | as one job, ms a file | ratio |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for npus in (64, 1024):
        trace = transformer(npus)
        print(describe_case("comm groups", trace), flush=True)
        print(describe_case("comm groups and ids", number_throughout(trace)), flush=True)


if __name__ == "__main__":
    main()
