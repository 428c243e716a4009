"""Benchmark: advice for the sample jobs, by replay and on H100s, and for a job of many ranks; all simulations included.

python benchmarks/advise.py
"""

from __future__ import annotations

import time
from dataclasses import replace

import studio
from studio.advice.advice import advise
from studio.completion.scale import scale
from studio.sim.parts import Parts
from studio.sim.presets import preset
from studio.trace import Trace

MEMORY = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 500, "remote-mem-bw": 50}
"""Loads and stores of the samples go over PCIe."""


def main() -> None:
    """Print what advice costs."""
    samples = {
        name: studio.read(studio.sample_path(name))
        for name in ("imbalance_8r", "transformer_8r", "transformer_32r")
    }
    # The first simulation of a process loads the kernel.
    advise(samples["transformer_8r"])
    print("| job | on | ranks | nodes | simulations | seconds of CPU |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, trace in samples.items():
        measure(name, "replay", trace, None)
        measure(name, "hgx-h100", trace, on_h100(len(trace.ranks)))
    large = scale(samples["transformer_32r"], ranks=1024)
    measure("transformer_32r, scaled", "hgx-h100", large, on_h100(1024))


def on_h100(npus: int) -> Parts:
    """Return a system of H100s whose NPUs load and store."""
    return replace(preset("hgx-h100", npus).parts, memory=MEMORY)


def measure(name: str, on: str, trace: Trace, parts: Parts | None) -> None:
    """Print a row of the table."""
    begun = time.process_time()
    found = advise(trace, parts)
    spent = time.process_time() - begun
    print(
        f"| {name} | {on} | {len(trace.ranks):,} | {trace.node_count:,} | {found.considered} | {spent:.2f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
