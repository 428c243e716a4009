"""Checks of single settings: each raises a `ConfigError` that names setting, value found and values allowed."""

from __future__ import annotations

import math

from studio.errors import ConfigError


def one_of(key: str, value: object, allowed: tuple[str, ...]) -> None:
    """Check a choice."""
    if value not in allowed:
        raise ConfigError(f"{key} is {value!r}; allowed: {', '.join(allowed)}")


def whole(key: str, value: object, least: int, most: int, hint: str = "") -> None:
    """Check a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{key} is {value!r}; allowed: a whole number from {least} to {most}", hint=hint)


def number(
    key: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float = math.inf,
) -> None:
    """Check a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        high_enough = (least is None or value >= least) and (above is None or value > above)
        if high_enough and value <= most:
            return
    limit = f"at least {least:g}" if least is not None else f"above {above:g}"
    limit += f" and at most {most:g}" if most < math.inf else ""
    raise ConfigError(f"{key} is {value!r}; allowed: a number {limit}")
