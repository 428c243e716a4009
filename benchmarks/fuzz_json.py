"""Fuzz the PyTorch readers: each pair of files gives a trace or a StudioError, in bounded time and memory.

    python benchmarks/fuzz_json.py [--mutations 10000] [--seed 1] [FILE ...]

Execution traces and Kineto traces are mutated as bytes and as JSON values, read alone and linked. Any other exception,
or a mutation that takes longer than ten seconds, ends the run and is left beside for a look.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from fuzz_et import count_outcomes, mutate, places, seeds  # noqa: E402 (found by the line above)

import studio  # noqa: E402 (found by the line above)
from studio.errors import StudioError  # noqa: E402 (found by the line above)
from studio.et import encode  # noqa: E402 (found by the line above)

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, -1e308, 1e15, 2**31, 2**63, -(2**63) - 1, 10**400, "", "x", "7", "\x00\x07", "é" * 9,
    [], [[]], [1, 2], {}, {"name": 1}, [[[[[[[[1]]]]]]]], "[0, 1, ..., 7]", "aten::mm", "c10d::allreduce_", "gloo:send",
)  # fmt: skip


def mutated_json(raw: bytes, rng: Random) -> bytes:
    """Return a file with one to four of its values replaced, removed or moved; byte faults where it is no JSON."""
    try:
        value = json.loads(raw)
    except ValueError:
        return mutate(raw, rng)
    for _ in range(rng.randint(1, 4)):
        slots = list(places(value))
        if not slots:
            break
        holder, key = rng.choice(slots)
        kind = rng.random()
        if kind < 0.6:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
        elif kind < 0.75:
            del holder[key]
        else:
            other, where = rng.choice(slots)
            holder[key] = (
                json.loads(json.dumps(other[where])) if where in other or isinstance(other, list) else None
            )
    text = json.dumps(value, separators=rng.choice(((",", ":"), (", ", ": "))))
    # Not every writer keeps to the rules for control characters and numbers.
    return re.sub(r"\\u0007", "\x07", text).encode("utf-8", "surrogatepass")


def try_one(host: bytes, device: bytes, rng: Random, folder: Path, number: int) -> str:
    """Read one mutated file; returns the outcome."""
    change = mutated_json if rng.random() < 0.6 else mutate
    if rng.random() < 0.5:
        host = change(host, rng)
    else:
        device = change(device, rng)
    paths = [folder / "pytorch_et_0.json", folder / "kineto_0.json"]
    paths[0].write_bytes(host)
    paths[1].write_bytes(device)
    given = (paths, paths, paths[:1], paths[1:])[number % 4]
    try:
        trace = studio.read(given)
    except StudioError as error:
        return type(error).__name__
    if trace.graphs and number % 5 == 0:
        again = b"".join(encode.write(trace.graphs[0], trace.ranks[0]))
        paths[0].with_suffix(".et").write_bytes(again)
        studio.read(paths[0].with_suffix(".et"))
    return "damaged trace" if any(f.level == "error" for f in trace.findings) else "trace"


def run(pairs: list[tuple[bytes, bytes]], mutations: int, seed: int, folder: Path) -> Counter[str]:
    """Read mutated pairs of files; count what came."""
    return count_outcomes(
        lambda rng, number: try_one(*rng.choice(pairs), rng, folder, number), mutations, seed, folder
    )


def main() -> int:
    """Mutate, read and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="execution trace, Kineto trace, …"
    )
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    from tests.et.pytorch_files import small_rank

    raw = list(seeds(options.files)) if options.files else []
    pairs = [small_rank(0), *zip(raw[::2], raw[1::2], strict=True)]
    outcomes = run(pairs, options.mutations, options.seed, Path(tempfile.mkdtemp(prefix="fuzz-json-")))
    for name, count in outcomes.items():
        print(f"{name:18} {count:>9,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
