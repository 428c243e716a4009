"""Warn where the systems of a sweep have another GPU than the one whose recorded durations compute keeps."""

from __future__ import annotations

import contextlib

from studio.errors import StudioError
from studio.sim.generated import find_intended_gpu, generate_anew
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.retargeting import OTHER_GPU, describe_kept_durations, find_kept_device
from studio.sim.systems.gpu import Gpu
from studio.sim.systems.gpus import find_short_name
from studio.sweep.space import PRESET
from studio.sweep.sweep import Sweep
from studio.sweep.systems import build_parts_at
from studio.trace import Finding, Trace

_RECOMPUTE = "extended.recompute-for"


def check_preset_durations(trace: Trace, sweep: Sweep) -> Finding | None:
    """Return a warning that names the GPUs of the presets whose compute takes the durations of another GPU; None if none.

    A sweep that varies `recompute-for` is not warned of: whoever varies it knows.

    Args:
        trace: The job.
        sweep: What is to be simulated.
    """
    space, base = sweep.space, sweep.base
    if _RECOMPUTE in space.keys:
        return None
    first = space.point(0)
    names = next((axis.values for axis in space.axes if axis.key == PRESET), (base.preset,))
    gpus: dict[str, Gpu] = {}
    device = None
    for name in filter(None, names):
        point = {**first, PRESET: name} if PRESET in first else first
        # What is wrong with a point is its result.
        with contextlib.suppress(StudioError):
            gpu = preset(name).system.gpu
            if gpu is None:
                continue
            config = interpret(build_parts_at(base, point, len(trace.ranks))).config
            kept = find_kept_device(trace, config, gpu)
            if kept is not None:
                device = kept
                gpus[gpu.name] = gpu
    if device is None:
        return None
    words = describe_kept_durations(trace, device, f"the presets' {', '.join(gpus)}")
    if find_intended_gpu(trace) is not None:
        first_gpu = next(iter(gpus.values()))
        again = " Likewise for each other GPU, and sweep each job on its own preset." if len(gpus) > 1 else ""
        return Finding("warning", OTHER_GPU, words, f"{generate_anew(trace, first_gpu)}{again}")
    short = [find_short_name(gpu) for gpu in gpus.values()]
    chosen = short[0] if len(short) == 1 and short[0] else "GPU"
    each = "" if len(gpus) == 1 else "Sweep one preset at a time. "
    return Finding("warning", OTHER_GPU, words, f"{each}Add --set {_RECOMPUTE}={chosen} to recompute them.")
