"""Small recordings with steps, one like the next, for tests of jobs over time."""

from __future__ import annotations

from pathlib import Path

from studio.et import write
from studio.trace import Trace
from tests.handmade import collective, node, trace_of


def recorded(late: int = 0, *, slow: int = 0, ranks: int = 2) -> Trace:
    """Ranks with two steps of 110 µs: 50 µs of compute, on the last rank `slow` more, then an all-reduce of 60 µs, `late` longer."""

    def rank(micros: int) -> list[object]:
        made = []
        for step in range(2):
            begin = 100 + step * (110 + slow + late)
            first = node(2 * step + 1, "COMP", micros=micros, name=f"step{step}.layer0.fwd")
            second = collective(2 * step + 2, "ALL_REDUCE", 1 << 20, 2 * step + 1)
            second.name = f"step{step}.layer0.reduce"
            first.start_time_micros = begin
            second.start_time_micros = begin + micros
            second.duration_micros = 110 + slow + late - micros
            made += [first, second]
        return made

    return trace_of([rank(50 + slow * (number == ranks - 1)) for number in range(ranks)])


def put(folder: Path, name: str, trace: Trace, *, prefix: str = "gpt") -> Path:
    """Write a recording into a folder of a watched folder."""
    target = folder / name
    write(trace, target, prefix)
    return target
