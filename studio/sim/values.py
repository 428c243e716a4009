"""Checks of values: each raises a `ConfigError` with setting, value and allowed values."""

from __future__ import annotations

import math

from studio.errors import ConfigError


def check_choice(key: str, value: object, allowed: tuple[str, ...]) -> None:
    """Check a choice."""
    if value not in allowed:
        raise ConfigError(f"{key} is {value!r}; allowed: {', '.join(allowed)}")


def check_whole(key: str, value: object, least: int, most: int, hint: str = "") -> None:
    """Check a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{key} is {value!r}; allowed: {describe_allowed_whole(least, most)}", hint=hint)


def describe_allowed_whole(least: int, most: int) -> str:
    """Describe the range of an integer."""
    return f"a whole number from {least} to {most}"


def describe_allowed_number(least: float | None, above: float | None, most: float | None = None) -> str:
    """Describe the range of a number."""
    limit = f"at least {least:g}" if least is not None else f"above {above:g}"
    return f"a number {limit}" + (f" and at most {most:g}" if most is not None else "")


def is_finite(value: float) -> bool:
    """Return whether a number is one that a float can hold; whole numbers may be far beyond."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_number(
    key: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> None:
    """Check a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value):
        high_enough = (least is None or value >= least) and (above is None or value > above)
        if high_enough and (most is None or value <= most):
            return
    raise ConfigError(f"{key} is {value!r}; allowed: {describe_allowed_number(least, above, most)}")
