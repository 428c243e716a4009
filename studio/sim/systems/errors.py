"""What is known of how far simulated collectives are from measured ones, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studio.sim.systems.files import System

NOT_MEASURED = "from the data sheet; not measured"
NO_COSTS = "messages on links; not measured"


def measured_error_words(system: System) -> str:
    """Return how far simulated collectives of a system are from measured ones.

    Example:
        >>> from studio.sim.systems import SYSTEMS
        >>> measured_error_words(SYSTEMS["torus-8x8"])
        'messages on links; not measured'
    """
    classes = classes_of(system)
    if not classes:
        return NOT_MEASURED if system.costs is not None or system.gpu is not None else NO_COSTS
    errors = ", ".join(f"{name} {_error(one)}" for name, one in classes.items())
    return f"{errors} (GMF | gm|e|, median of {len(tables_of(system))} tables)"


def classes_of(system: System) -> Mapping[str, Any]:
    """Return the errors by class of collectives, as the calibration keeps them; empty where nothing was measured."""
    errors = system.calibration.get("errors")
    return errors if isinstance(errors, Mapping) else {}


def tables_of(system: System) -> Sequence[str]:
    """Return the names of the measured tables that the costs were fitted to."""
    tables = system.calibration.get("tables")
    return [str(name) for name in tables] if isinstance(tables, list | tuple) else []


def _error(one: Mapping[str, Any]) -> str:
    return f"{100 * one['gmf']:.0f} % | {100 * one['gm_error']:.0f} %"
