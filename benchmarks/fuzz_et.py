"""Fuzz the Chakra reader: each file gives a trace or a TraceFormatError, in bounded time and memory.

    python benchmarks/fuzz_et.py [--mutations 10000] [--seed 1] [FILE ...]

Without files, a sample job of the package is mutated. The reading happens in a process of its own whose address
space is limited; its peak memory and slowest file are printed. Any other exception, a mutation that takes longer
than ten seconds or more than a gigabyte ends the run with exit code 1 and is left beside for a look.
"""

from __future__ import annotations

import argparse
import gzip
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import studio
from studio.errors import TraceFormatError
from studio.et import encode, wire
from studio.trace import Graph, Rank

ROOT = Path(__file__).resolve().parent.parent
ADDRESS_SPACE_BYTES = 6 << 30
"""Numba and its compiler reserve far more than they use; the peak that counts is the resident one."""
PEAK_BYTES = 1_000_000_000
LONGEST_S = 10


def mutate(raw: bytes, rng: Random) -> bytes:
    """Return `raw` with one to four faults: flipped bits, cuts, insertions, repeats, lies about lengths.

    Example:
        >>> mutate(b"abc", Random(3)) == mutate(b"abc", Random(3))
        True
    """
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_FAULTS)(data, rng)
    return bytes(data)


def _flip(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(data: bytearray, rng: Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, rng: Random) -> None:
    offset = rng.randrange(len(data) + 1)
    del data[offset : offset + rng.choice((1, 2, 7, 100))]


def _insert(data: bytearray, rng: Random) -> None:
    offset = rng.randrange(len(data) + 1)
    data[offset:offset] = rng.choice(
        (rng.randbytes(rng.randint(1, 40)), bytes(rng.randint(1, 9000)), b"\xff" * 11)
    )


def _repeat(data: bytearray, rng: Random) -> None:
    offset, size = rng.randrange(len(data) + 1), rng.choice((1, 30, 3000))
    data[offset:offset] = data[offset : offset + size] * rng.randint(1, 5)


def _lie(data: bytearray, rng: Random) -> None:
    """Overwrite bytes with a large varint."""
    offset = rng.randrange(len(data) + 1)
    value = rng.choice(
        (0, 1, 127, 128, 1 << 14, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
    )
    raw = bytearray()
    while value > 127:
        raw.append(value & 127 | 128)
        value >>= 7
    raw.append(value)
    data[offset : offset + rng.choice((0, 1, 2))] = raw


_FAULTS = (_flip, _flip, _set, _cut, _remove, _insert, _repeat, _lie, _lie)


def seeds(paths: list[Path]) -> Iterator[bytes]:
    """Yield the files to mutate: those named, else of the package's sample jobs one rank each."""
    for path in paths:
        raw = path.read_bytes()
        yield gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    if not paths:
        for sample in sorted((Path(studio.__file__).parent / "samples").glob("*.zip")):
            with zipfile.ZipFile(sample) as archive:
                chakra = [name for name in archive.namelist() if ".et" in name]
                if not chakra:
                    # A recording of PyTorch.
                    continue
                raw = archive.read(min(chakra))
            yield raw
            # The metadata and the first nodes alone: faults hit them more often.
            yield raw[:3000]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value as its holder and key."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def count_outcomes(
    attempt: Callable[[Random, int], str], mutations: int, seed: int, folder: Path
) -> Counter[str]:
    """Read mutated files and count what came of them, with the slowest and the peak of memory.

    Args:
        attempt: Makes and reads a mutation, given its number; returns what came of it. What it raises ends the run, as does a
            mutation that takes longer than `LONGEST_S`.
        mutations: How many.
        seed: Of the random numbers.
        folder: Where `attempt` leaves the mutation, for the message.
    """
    outcomes: Counter[str] = Counter()
    rng, slowest_s = Random(seed), 0.0  # noqa: S311 (no secret)
    before = signal.signal(signal.SIGALRM, _too_long)
    for number in range(mutations):
        signal.alarm(LONGEST_S)
        start_s = time.perf_counter()
        try:
            outcomes[attempt(rng, number)] += 1
        except BaseException:
            print(f"mutation {number} of seed {seed}: {folder}", file=sys.stderr)
            raise
        finally:
            signal.alarm(0)
        slowest_s = max(slowest_s, time.perf_counter() - start_s)
    signal.signal(signal.SIGALRM, before)
    outcomes["slowest ms"] = round(slowest_s * 1000)
    outcomes["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    return outcomes


def _too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {LONGEST_S} s")


def run(raw: list[bytes], mutations: int, seed: int, folder: Path) -> Counter[str]:
    """Read mutated Chakra files, one in five packed, one in four interpreted; count what came."""
    path = folder / "mutated.0.et"
    return count_outcomes(
        lambda rng, number: try_one(rng.choice(raw), rng, path, number), mutations, seed, folder
    )


def try_one(raw: bytes, rng: Random, path: Path, number: int) -> str:
    """Read one mutated file; returns the outcome."""
    content = mutate(raw, rng)
    if number % 5 == 0:
        # Faults of the packed stream itself, too.
        content = mutate(gzip.compress(content, 1, mtime=0), rng)
    path.write_bytes(content)
    native = number % 4 != 3
    wire.is_worth_compiling = lambda _total_bytes: native
    try:
        trace = studio.read(path)
    except TraceFormatError:
        return "TraceFormatError"
    # What was read can be written, and reads as the same.
    if number % 10 == 0:
        again = b"".join(encode.write(trace.graphs[0], trace.ranks[0]))
        path.write_bytes(again)
        assert b"".join(encode.write(*_read(path))) == again
    return "damaged trace" if any(finding.level == "error" for finding in trace.findings) else "trace"


def _read(path: Path) -> tuple[Graph, Rank]:
    trace = studio.read(path)
    return trace.graphs[0], trace.ranks[0]


def main() -> int:
    """Start a limited process, which mutates and reads, and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-et-"))
        command = [sys.executable, __file__, *sys.argv[1:], "--inside", str(folder)]
        return subprocess.run(command, check=False, cwd=ROOT).returncode
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    wire.load_kernel()
    outcomes = run(list(seeds(options.files)), options.mutations, options.seed, options.inside)
    for name, count in outcomes.items():
        print(f"{name:18} {count:>9,}")
    return 1 if outcomes["peak MB"] * 1_000_000 > PEAK_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
