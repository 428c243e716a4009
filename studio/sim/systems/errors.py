"""What is known of how far simulated collectives are from measured ones, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studio.sim.systems.files import System
from studio.units import format_bytes

NOT_MEASURED = "from the data sheet; not measured"
NO_COSTS = "messages on links; not measured"


def describe_measured_errors(system: System) -> str:
    """Return how far simulated collectives of a system are from measured ones.

    Each table is simulated with the rate, the ports, the size of a node and the transport that its machine states, which take the
    place of the preset's.

    Example:
        >>> from studio.sim.systems import SYSTEMS
        >>> describe_measured_errors(SYSTEMS["torus-8x8"])
        'messages on links; not measured'
    """
    classes = get_error_classes(system)
    if not classes:
        return NOT_MEASURED if system.costs is not None or system.gpu is not None else NO_COSTS
    errors = ", ".join(f"{name} {_format_error(error)}" for name, error in classes.items())
    count = len(get_fitted_tables(system))
    tables = "table with the rates and transport of its machine"
    if count != 1:
        tables = "tables, each with the rates and transport of its machine"
    return f"{errors} (GMF | gm|e|, median of {count} {tables}{_format_range(classes)})"


def _format_range(classes: Mapping[str, Any]) -> str:
    """Return the range of sizes that the calibration measured; sizes outside of it were not measured."""
    sizes = [
        entry["sizes"]
        for entry in classes.values()
        if isinstance(entry, Mapping) and _is_pair(entry.get("sizes"))
    ]
    if not sizes:
        return ""
    return f", {format_bytes(min(least for least, _ in sizes))} to {format_bytes(max(most for _, most in sizes))}"


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(item, int | float) for item in value)
    )


def get_error_classes(system: System) -> Mapping[str, Any]:
    """Return the errors by class of collectives, as the calibration keeps them; empty where nothing was measured."""
    errors = system.calibration.get("errors")
    return errors if isinstance(errors, Mapping) else {}


def get_fitted_tables(system: System) -> Sequence[object]:
    """Return the measured tables that the costs were fitted to."""
    tables = system.calibration.get("tables")
    return tables if isinstance(tables, list | tuple) else []


def _format_error(error: object) -> str:
    """Return GMF and gm|e| of a class; what an edited file lacks is left open."""
    error = error if isinstance(error, Mapping) else {}
    return f"{format_error_percent(error.get('gmf'))} | {format_error_percent(error.get('gm_error'))}"


def format_error_percent(share: object) -> str:
    """Return a share as a percentage.

    Example:
        >>> format_error_percent(0.123), format_error_percent(0.004), format_error_percent("much")
        ('12 %', 'under 1 %', '?')
    """
    if not isinstance(share, int | float):
        return "?"
    return "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"
