"""Which layouts fit in the memory of a GPU, by closed forms, and what would where none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from studio.errors import ConfigError
from studio.generation.layout import OFFLOADS, Layout
from studio.generation.memory import find_fullest_stage
from studio.generation.models import Model
from studio.layout_search.space import Candidate, Frame, with_options

OFFLOAD_WORDS = "where no layout fits without: the first of optimizer, activations and all with which it fits"
"""What of `--offload` is tried, and why."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a rank of the fullest stage holds.

    Attributes:
        total: Bytes.
        parts: Bytes by part.
    """

    total: int
    parts: Mapping[str, int]


def compute_peak_memory(model: Model, layout: Layout) -> Held:
    """Return what a rank of the stage that holds most does hold at the peak of a step."""
    parts = find_fullest_stage(model, layout)[1]
    return Held(sum(parts.values()), parts)


def with_offload(frame: Frame, candidate: Candidate, capacity: float) -> tuple[Candidate, Held] | None:
    """Return a layout with the least of what host memory can hold that makes it fit; None where nothing does.

    Nothing is tried where the user said what goes there.

    Args:
        frame: What was asked for.
        candidate: The layout, which does not fit.
        capacity: Bytes of a GPU.
    """
    if "offload" in frame.given:
        return None
    for kind in OFFLOADS[1:]:
        held = compute_peak_memory(frame.model, replace(candidate.layout, offload=kind))
        if held.total <= capacity:
            try:
                return with_options(frame, candidate, offload=kind), held
            except ConfigError:
                # Some schedules read activations twice.
                continue
    return None
