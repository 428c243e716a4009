"""Hold recordings recomputed for a GPU of another maker against recordings of the same step on that GPU.

    python -m benchmarks.report_recomputed shared/traces/foreign docs/accuracy.md

The table takes the place of the part of the report between its two marks; the rest of it stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import studio
from benchmarks.sections import replace_section
from studio.operators.report import list_operators
from studio.sim.systems.gpus import find_recorded_gpu, find_short_name

BEGIN, END = "<!-- recomputed: begin -->", "<!-- recomputed: end -->"
PAIRS = (("h100_qwen1.5_0.5b__1016005.json.gz", "mi300_qwen1.5_0.5b__1016005.json.gz"),)
"""Recordings of the same step of the same model on two GPUs."""


@dataclass(frozen=True, slots=True)
class Row:
    """A recording, recomputed for the GPU of another.

    Attributes:
        recording: Its file.
        gpu: Short name of the GPU it is recomputed for.
        made_ns: Its compute time then.
        recorded_ns: That of the recording on this GPU.
    """

    recording: str
    gpu: str
    made_ns: int
    recorded_ns: int

    @property
    def error(self) -> float:
        """How much longer the recomputed one takes, as a share."""
        return self.made_ns / self.recorded_ns - 1


def main(traces: Path, target: Path) -> None:
    """Write the table into the report."""
    lines = [
        "## Recomputed for a GPU of another maker",
        "",
        (
            f"Made by `python -m benchmarks.report_recomputed foreign {target.name}`; not edited. Recordings of one step of the same model on "
            "two GPUs (`github.com/AMD-AGI/TraceLens`, test data), each recomputed for the GPU of the other (`--gpu`): compute time, without "
            "communication and copies over the link to the host. Libraries choose other kernels there, which reach another share of the "
            "roofline; see [operators](operators.md#another-gpu)."
        ),
        "",
        "| recording | for | recomputed | recorded there | error |",
        "| --- | --- | ---: | ---: | ---: |",
        *(
            f"| `{row.recording}` | {row.gpu} | {row.made_ns / 1e6:.2f} ms | {row.recorded_ns / 1e6:.2f} ms | {100 * row.error:+.1f} % |"
            for row in rows(traces)
        ),
        "",
    ]
    replace_section(target, (BEGIN, END), lines)


def rows(traces: Path) -> Iterator[Row]:
    """Yield each recording of each pair, recomputed for the GPU of the other."""
    for pair in PAIRS:
        for name, other in (pair, pair[::-1]):
            there = studio.read(traces / other)
            gpu = find_recorded_gpu(there)
            made = studio.retarget(studio.read(traces / name), gpu)[1]
            yield Row(name, find_short_name(gpu) or gpu.name, made.new_ns, list_operators(there).time_ns)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
