"""Texts of the Workloads form: what they say as options, in the address, and messages in the words of the form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from studio.errors import ConfigError
from studio.generation.families.job import OPTIONS as NETWORK_OPTIONS
from studio.generation.families.presets import NAMES
from studio.generation.inference.deployment import PHASES
from studio.generation.inference.options import INFERENCE, STEP_OPTIONS
from studio.generation.options import BY_KEY, LEAST_SHARE, OPTIONS, Option
from studio.generation.workload import CUSTOM
from studio.jobs.generating import Kind

STEP = "Step of inference"
"""The heading of what only steps of inference have."""
_APART = ("prefill_ranks", "prefill_tp", "prompts")
"""Options of disaggregated jobs, which the command alone makes."""
FIELDS = {option.key: option for option in OPTIONS} | {
    option.key: replace(option, heading=STEP, choices=PHASES if option.key == "phase" else option.choices)
    for option in STEP_OPTIONS
    if option.key not in _APART
}
"""The options that the form has, by key."""
OPTIONS_OF: Mapping[Kind, frozenset[str]] = {
    "llm": frozenset(BY_KEY),
    "inference": frozenset(INFERENCE) & frozenset(FIELDS),
    "network": frozenset(NETWORK_OPTIONS),
}
"""The options of a kind of job."""
FIRST = {"model": "llama3-8b", "ranks": "8", "gpu": "h100"}
"""What the form says at first; all other fields are empty."""
KEYS = ("model", "kind", "ranks", "gpu", *(key for key in FIELDS if key != "gpu"))
"""Every field, in the order of the form."""
_FLAG = re.compile(r"--(no-)?([a-z][a-z0-9-]*)")
_LARGEST_DIGITS = 12

Fields = Mapping[str, str]
"""Texts of the form by key; empty where nothing is said."""


def get_label(key: str) -> str:
    """Return what a field is called."""
    return FIELDS[key].label if key in FIELDS else _LABELS.get(key, key.capitalize())


_LABELS = {"kind": "Job"}


def infer_kind(fields: Fields) -> Kind:
    """Return what kind of job a form is of: the model may say it.

    Example:
        >>> [infer_kind({"model": model, "kind": kind}) for model, kind in (("llama3-8b", "inference"), ("resnet50", ""))]
        ['inference', 'network']
    """
    if fields["model"] in NAMES:
        return "network"
    return "inference" if fields.get("kind") == "inference" else "llm"


def collect_fields(ids: Sequence[Mapping[str, str]], values: Sequence[Any]) -> dict[str, str]:
    """Return the texts of the form by key."""
    return {
        component["workload"]: str(value or "").strip() for component, value in zip(ids, values, strict=True)
    }


def spell(fields: Fields) -> str:
    """Return the fields of a form that differ from their defaults, as text for the address.

    Example:
        >>> spell({"model": "llama3-70b", "ranks": "64", "gpu": "h100", "tp": "8"})
        'model=llama3-70b ranks=64 tp=8'
    """
    keys = [key for key in KEYS if fields.get(key, "") != FIRST.get(key, "")]
    return " ".join(f"{key}={fields.get(key, '').replace(' ', '')}" for key in keys)


def read_text(text: str) -> dict[str, str]:
    """Return the fields in the text of an address, the reverse of `spell`; unknown ones are left out.

    Example:
        >>> read_text("ranks=64 tp=8 colour=red")
        {'model': 'llama3-8b', 'ranks': '64', 'gpu': 'h100', 'tp': '8'}
    """
    parts = [part.partition("=") for part in text[:2000].split(" ")]
    return {**FIRST, **{key: value for key, _, value in parts if key in KEYS}}


def parse_fields(fields: Fields) -> tuple[dict[str, Any], dict[str, ConfigError]]:
    """Return what the form says by option, and what is wrong with single texts, by key."""
    given: dict[str, Any] = {}
    wrong: dict[str, ConfigError] = {}
    for key in (key for key in FIELDS if key in OPTIONS_OF[infer_kind(fields)]):
        option, text = FIELDS[key], fields.get(key, "")
        if not text or (option.part == "shape" and fields["model"] != CUSTOM):
            continue
        try:
            given[option.key] = _parse_value(option, text)
        except ValueError:
            wrong[option.key] = ConfigError(
                f"{option.label} is {text[:40]!r}; allowed: {_ALLOWED[option.kind]}."
            )
    return given, wrong


_ALLOWED = {
    "count": "a whole number of at least 1",
    "share": f"a number of at least {LEAST_SHARE:f}, at most 1",
    "number": "a number of at least 0",
    "counts": "whole numbers with commas between, such as 7,8,8,7",
}


def parse_ranks(fields: Fields) -> int:
    """Return the number of ranks.

    Raises:
        ConfigError: It is none.
    """
    try:
        return _parse_whole(fields["ranks"])
    except ValueError:
        text = repr(fields["ranks"][:40]) if fields["ranks"] else "empty"
        raise ConfigError(f"Ranks is {text}; allowed: {_ALLOWED['count']}.", key="ranks") from None


def _parse_value(option: Option, text: str) -> Any:
    if option.kind == "count":
        return _parse_whole(text)
    if option.kind == "share":
        share = float(text)
        if not 0 < share <= 1:
            raise ValueError
        return share
    if option.kind == "number":
        number = float(text)
        if not 0 <= number < math.inf:
            raise ValueError
        return number
    if option.kind == "counts":
        return tuple(_parse_whole(part) for part in text.split(","))
    if option.kind in ("flag", "switch"):
        return text == "on"
    if option.kind == "choice":
        return next((choice for choice in option.choices if str(choice) == text), text)
    return text


def _parse_whole(text: str) -> int:
    """Return a whole number of at least 1, with or without commas between thousands.

    Raises:
        ValueError: It is none.
    """
    plain = text.strip()
    if re.fullmatch(r"\d{1,3}(,\d{3})+", plain):
        plain = plain.replace(",", "")
    if not (plain.isascii() and plain.isdecimal()) or len(plain) > _LARGEST_DIGITS or int(plain) < 1:
        raise ValueError
    return int(plain)


def find_field(error: ConfigError) -> str:
    """Return the field that an error is about; "" where it is about none.

    Example:
        >>> find_field(ConfigError("--seq is 100; allowed: 8 to 64.")), find_field(ConfigError("No.", key="stage-layers"))
        ('sequence', 'stage_layers')
    """
    known = {name.lstrip("-"): option.key for option in FIELDS.values() for name in _list_flags(option)}
    known |= {"model": "model", "ranks": "ranks", "config": "model"}
    named = [error.key, error.key.replace("-", "_"), *(match[2] for match in _FLAG.finditer(error.message))]
    return next((key for name in named if (key := name if name in KEYS else known.get(name, ""))), "")


def _list_flags(option: Option) -> list[str]:
    return [name for names in option.names for name in names.split("/")]


def replace_options(words: str) -> str:
    """Return a message with the labels of fields in place of options of the command line.

    Example:
        >>> replace_options("--pp is 3; use --tp 8, or --no-sequence-parallel.")
        'Pipeline stages is 3; use tensor parallel 8, or sequence parallel off.'
    """
    labels = {flag.lstrip("-"): option.label for option in FIELDS.values() for flag in _list_flags(option)}
    labels |= {"model": "Model", "ranks": "Ranks", "npus": "Ranks", "config": "config.json"}

    def name_option(match: re.Match[str]) -> str:
        label = labels.get(match[2])
        if label is None:
            return match[0]
        begins = match.start() == 0 or words[: match.start()].rstrip().endswith((".", "!"))
        called = label if begins else lower_label(label)
        return f"{called} off" if match[1] else called

    return _FLAG.sub(name_option, words)


def lower_label(label: str) -> str:
    """Return a label as it stands within a sentence."""
    return label if label[:2].isupper() else f"{label[0].lower()}{label[1:]}"


def describe_default(key: str) -> str:
    """Return what counts where nothing is said of an option, in words."""
    option = FIELDS[key]
    if option.rule:
        return option.rule
    if option.kind in ("flag", "switch"):
        return "yes" if option.default else "no"
    return "" if option.default is None else str(option.default)
