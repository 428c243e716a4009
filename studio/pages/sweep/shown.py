"""What the Sweep page shows: the values of all outputs of its callback."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from dash import no_update


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page shows of a sweep: a field for each output of its callback, in their order. As it is: no sweep.

    Attributes:
        options, picked: The sweeps to choose from, and the one that is shown.
        keys, along: The settings that it varies, and the one that its results are drawn along.
        results: Its results, or why there are none.
        front, hides_front: The figure of cost and finish, and whether it is hidden.
        impossible: The points that are impossible.
        progress: How far it is.
        actions: The buttons for it.
        runs: The runs of the job.
        is_settled: Whether nothing is under way that the page asks for again.
        mark: What results and figure follow from: where that is the same they stay.
        filled: The choices that were made for the user.
    """

    options: Any = ()
    picked: str | None = None
    keys: Any = ()
    along: str | None = None
    results: Any = None
    front: Any = no_update
    hides_front: Any = True
    impossible: Any = None
    progress: Any = ""
    actions: Any = None
    runs: Any = None
    is_settled: bool = True
    mark: list[Any] | None = None
    filled: list[Any] | None = None

    def outputs(self) -> tuple[Any, ...]:
        """Return the values of the outputs."""
        return tuple(getattr(self, entry.name) for entry in fields(self))
