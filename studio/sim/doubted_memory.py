"""Doubts about memory: a job that held more than the GPU it is asked about has."""

from __future__ import annotations

from collections.abc import Sequence

from studio.analysis.job.memory import MemoryUse, find_gpu_peak
from studio.operators.roofline import Gpu
from studio.sim.doubt_facts import Facts, Found
from studio.sim.systems.gpus import find_gpu
from studio.units import format_bytes, format_si


def find_unfit(facts: Facts) -> Found:
    """Find a noted peak of device memory beyond the GPU that the job is recomputed for."""
    yield from _find_unfit_uses(facts, noted=True)


def find_perhaps_unfit(facts: Facts) -> Found:
    """Find the same of a peak that is estimated from tensors, which may be too high."""
    yield from _find_unfit_uses(facts, noted=False)


def _find_unfit_uses(facts: Facts, *, noted: bool) -> Found:
    extensions = facts.config.extensions
    if extensions is None or extensions.recompute_for is None:
        return
    uses = [use for use in facts.memory if use.noted == noted]
    words = describe_unfit(uses, find_gpu(extensions.recompute_for))
    if words:
        yield words, None


def describe_unfit(uses: Sequence[MemoryUse], gpu: Gpu) -> str:
    """Say that the memory of a GPU is smaller than the highest peak, with both; empty where it is not.

    What the allocator reserved beyond what it gave out is no reason: it reserves what it finds.
    """
    use = find_gpu_peak(uses)
    if use is None or use.peak_bytes <= gpu.memory_gbytes * 1e9:
        return ""
    begin, how = ("Does not fit", "") if use.noted else ("May not fit", " by an estimate from its tensors")
    how = " by the formulas of a generated job" if use.counted else how
    return (
        f"{begin}: rank {use.rank} holds {format_si(use.peak_bytes, 'B')} ({format_bytes(use.peak_bytes)}) of device "
        f"memory at its peak{how}; {gpu.name} has {gpu.memory_gbytes:g} GB."
    )
