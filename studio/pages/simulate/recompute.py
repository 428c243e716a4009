"""Recompute for another GPU, on Simulate: offered for a recording of devices, and said where it is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from studio.analysis.job.memory import MemoryUse
from studio.errors import ConfigError
from studio.pages.base.asked import EDIT, build_click_request
from studio.pages.base.widgets import build_hint
from studio.sim.config import SystemConfig
from studio.sim.doubted_memory import describe_unfit
from studio.sim.settings import BY_KEY
from studio.sim.systems.gpus import SYSTEM_OF, find_gpu, find_recorded_gpu, match_gpu
from studio.trace import Trace, list_recorded_devices

_AS_RECORDED = "none"
_PLACE = "/device:"
"""Begins what XLA calls a device by its place, which says nothing of what it is."""
_UNNAMED = (
    "The recording does not name its GPU: choose it under Compute, Recorded on, to recompute for another one."
)


def show_recompute(trace: Trace, config: SystemConfig, origin: str) -> Any:
    """Return what compute is recomputed for, or the offer to; None where no device was recorded or named.

    Args:
        trace: The job.
        config: The system in the form.
        origin: The preset that the form began with.
    """
    device = next(iter(list_recorded_devices(trace)), "")
    if config.extensions is None or not (device or config.extensions.recompute_for):
        return None
    chosen = config.extensions.recompute_for
    of_system = next((name for name, system in SYSTEM_OF.items() if origin == system), None)
    offered = of_system if of_system not in (chosen, match_gpu(device)) else None
    kept = (
        f" Compute keeps these durations, not those of {find_gpu(offered).name}."
        if offered and match_gpu(device)
        else ""
    )
    if device.startswith(_PLACE):
        # Recomputing takes the peaks of both GPUs.
        offered, recorded_on = None, _UNNAMED
    else:
        recorded_on = f"Recorded on {device[:60]}."
    sentence = _describe_recompute(trace, config) if chosen else recorded_on + kept
    buttons = [
        html.Button(
            f"Recompute for {find_gpu(offered).name}",
            className="cs-button",
            **build_click_request(EDIT, "recompute", offered),
        )
        if offered
        else None,
        html.Button(
            "Keep recorded times",
            className="cs-button",
            **build_click_request(EDIT, "recompute", _AS_RECORDED),
        )
        if chosen
        else None,
    ]
    about = f"{BY_KEY['recompute-for'].about} Under Compute, Recompute for takes any GPU."
    return html.Div(
        [html.Span([sentence, build_hint("Recompute for", about)]), html.Div(buttons, className="sim-row")],
        className="sim-fit",
    )


def show_unfit(uses: Sequence[MemoryUse], config: SystemConfig, origin: str) -> Any:
    """Return a warning where a job held more memory than the GPU of the system in the form has; None where it fits.

    Args:
        uses: The memory of each device of each rank, as recorded.
        config: The system in the form.
        origin: The preset that the form began with.
    """
    chosen = config.extensions.recompute_for if config.extensions else None
    gpu = chosen or next((name for name, system in SYSTEM_OF.items() if origin == system), None)
    words = describe_unfit(uses, find_gpu(gpu)) if gpu else ""
    return html.P(words, className="sim-fit cs-level-warning") if words else None


def _describe_recompute(trace: Trace, config: SystemConfig) -> str:
    """Return in words for which GPU compute is recomputed, and from which; or what is missing to do so."""
    assert config.extensions is not None
    target = find_gpu(config.extensions.recompute_for or "").name
    try:
        recorded = config.extensions.recorded_gpu
        source = find_gpu(recorded) if recorded else find_recorded_gpu(trace)
    except ConfigError:
        return f"Compute: recomputed for {target}. The trace names no GPU whose peaks are known: choose it under Compute, Recorded on."
    return f"Compute: recomputed for {target} from {source.name}; the result says how much of it by rooflines of operators."
