"""Fill empty fields of the form with placeholders that show the value in effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studio.generation.models import Model
from studio.generation.options import BY_KEY, OPTIONS
from studio.pages.workloads.asking import Filled, compute_counts
from studio.pages.workloads.form import list_option_choices
from studio.pages.workloads.texts import FIELDS, Fields, describe_default, replace_options

_LONGEST = 22
_TRAINING = "training"


def list_placeholders(filled: Filled, keys: Sequence[str]) -> list[str]:
    """Return for each field what counts where it says nothing."""
    return [
        _format_placeholder(filled, key) if key in FIELDS else _TRAINING if key == "kind" else ""
        for key in keys
    ]


def _format_placeholder(filled: Filled, key: str) -> str:
    proposed = key in filled.proposed
    value = filled.proposed[key] if proposed else _get_effective_value(filled, key)
    words = _describe_value(key, value) if value is not None else replace_options(describe_default(key))
    words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
    return f"{words}, proposed" if proposed else words


def _get_effective_value(filled: Filled, key: str) -> Any:
    """Return the value that counts, as far as layout and model have it."""
    if filled.of is None:
        job_counts = compute_counts(filled)
        degrees = dict(part.split("=") for part in job_counts["layout"].split(","))
        if key in degrees:
            return int(degrees[key])
        return job_counts[key] if key in ("batch", "steps") and isinstance(job_counts.get(key), int) else None
    part = FIELDS[key].part
    owner = {"layout": filled.workload.layout, "shape": filled.workload.model}.get(part)
    return getattr(owner, key, None) if key != "gpu" else None


def _describe_value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return _describe_numbers(value)
    if isinstance(value, int):
        label = next(
            (choice["label"] for choice in list_option_choices(FIELDS[key]) if choice["value"] == str(value)),
            "",
        )
        return label or f"{value:,}"
    return str(value)


def _describe_numbers(values: Sequence[int]) -> str:
    """Return numbers in words, equal ones that follow each other as one.

    Example:
        >>> _describe_numbers((7, 8, 8, 8, 7))
        '7, 3 × 8, 7'
    """
    parts: list[list[int]] = []
    for value in values:
        if parts and parts[-1][1] == value:
            parts[-1][0] += 1
        else:
            parts.append([1, value])
    return ", ".join(f"{count} × {value}" if count > 1 else f"{value}" for count, value in parts)


def copy_shape(fields: Fields, model: Model) -> dict[str, str]:
    """Return texts for the numbers of a custom model that are those of another one; none where some are given.

    Example:
        >>> from studio.generation.models import find_model
        >>> copy_shape({}, find_model("gpt3-125m"))["layers"]
        '12'
    """
    shape = [option for option in OPTIONS if option.part == "shape"]
    if any(fields.get(option.key) for option in shape):
        return {}
    copied = {}
    for option in (*shape, BY_KEY["sequence"]):
        value = (not model.gated) if option.key == "gelu" else getattr(model, option.key, None)
        if isinstance(value, bool):
            copied[option.key] = "on" if value else ""
        elif isinstance(value, int) and value > 0 and not fields.get(option.key):
            copied[option.key] = str(value)
    return copied
