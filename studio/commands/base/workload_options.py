"""Click options that describe a generated job, made from the table in `studio.generation.options`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from studio.generation.configs import read_config
from studio.generation.inference.options import STEP_OPTIONS
from studio.generation.models import Model
from studio.generation.options import OPTIONS, Option
from studio.generation.workload import CUSTOM

COUNT = click.IntRange(min=1)


def _parse_counts(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    try:
        return None if value is None else tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 7,8,8,7.") from None


def declare(option: Option, of: str = "") -> Callable[[Any], Any]:
    """Return the decorator that gives a command an option of the table; `of` is what it is of, where not of all."""
    more: dict[str, Any] = {}
    if option.kind == "count":
        more = {"type": COUNT, "metavar": "N"}
    elif option.kind == "flag":
        more = {"is_flag": True}
    elif option.kind == "choice":
        more = {"type": click.Choice([str(choice) for choice in option.choices])}
    elif option.kind == "counts":
        more = {"callback": _parse_counts, "metavar": "N,..."}
    elif option.kind == "share":
        more = {"type": float, "metavar": "SHARE"}
    elif option.kind == "number":
        more = {"type": float, "metavar": "NUMBER"}
    elif option.kind == "name":
        more = {"metavar": "NAME"}
    shown = option.rule
    if not shown and option.kind != "flag" and option.default is not None:
        shown = str(option.default)
    of = "Of a model of one's own: " if option.part == "shape" else of
    hint = f"{of}{option.hint}" + (f"  [default: {shown}]" if shown else "")
    return click.option(*option.names, option.key, default=None, help=hint, **more)


def add_workload_options(function: Any) -> Any:
    """Give a command every option of a workload."""
    for option in reversed(OPTIONS):
        function = declare(option)(function)
    return function


def step_options(function: Any) -> Any:
    """Give a command every option of steps of inference that training has not."""
    for option in reversed(STEP_OPTIONS):
        function = declare(option, "Of inference: ")(function)
    return function


def collect_given_options(values: Mapping[str, Any], options: Iterable[Option] = OPTIONS) -> dict[str, Any]:
    """Return what a user said of a workload, by option; choices that are numbers as numbers."""
    given = {}
    for option in options:
        value = values[option.key]
        if option.kind == "choice" and value is not None:
            value = next(choice for choice in option.choices if str(choice) == value)
        given[option.key] = None if option.kind == "flag" and not value else value
    return given


def choose_model(name: str | None, config: Path | None, shape: list[str]) -> str | Model:
    """Return the model that is asked for: a name, or what a file describes.

    Args:
        name: What `--model` says.
        config: What `--config` says.
        shape: Options given that say numbers of a model of one's own.
    """
    if name is not None and config is not None:
        raise click.UsageError("Give either --model or --config.")
    if shape and (config is not None or name not in (None, CUSTOM)):
        raise click.UsageError(f"{', '.join(shape)}: for --model custom only.")
    if config is not None:
        return replace(read_config(config), source=config.name)
    if name is None and not shape:
        raise click.UsageError("Give --model, --config or numbers: --layers, --hidden, --heads and --seq.")
    return name or CUSTOM
