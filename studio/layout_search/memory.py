"""Which layouts fit in the memory of a GPU, by closed forms, and what would where none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from studio.generation.layout import Layout
from studio.generation.memory import fullest_stage
from studio.generation.models import Model


@dataclass(frozen=True, slots=True)
class Held:
    """What a rank of the fullest stage holds.

    Attributes:
        total: Bytes.
        parts: Bytes by part.
    """

    total: int
    parts: Mapping[str, int]


def most_held(model: Model, layout: Layout) -> Held:
    """Return what a rank of the stage that holds most does hold at the peak of a step."""
    parts = fullest_stage(model, layout)[1]
    return Held(sum(parts.values()), parts)
