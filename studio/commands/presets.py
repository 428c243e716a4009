"""List the systems for --preset, with the sources of their numbers and how far simulated times are from measured ones.

With NAME, a system or a system file: all about this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from studio.commands.base.options import json_option
from studio.commands.base.output import show
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError
from studio.sim.presets import PRESETS, Preset, preset
from studio.sim.systems.errors import format_error_percent, get_error_classes
from studio.units import format_bytes

_INDENT = 18


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `presets`.

    Attributes:
        name: The system to tell all about; None lists all.
        npus: Its size; None is that of its name, or the size it begins with.
    """

    name: str | None = None
    npus: int | None = None


def run(request: Request) -> Sequence[Preset]:
    """Return the presets, or the one that is asked for.

    Raises:
        ConfigError: There is no such system, or it does not come in this size.
    """
    if request.name is None:
        if request.npus is not None:
            raise ConfigError(
                f"--npus is {request.npus:,} without a system; allowed: beside NAME",
                hint="Such as chakra-studio presets hgx-h100 --npus 64.",
            )
        return tuple(PRESETS.values())
    chosen = preset(request.name, request.npus)
    if chosen.system.family is None and request.npus not in (None, chosen.system.npus):
        raise ConfigError(
            f"--npus is {request.npus:,} for the system {request.name}; allowed: {chosen.system.sizes_words}",
            hint="`chakra-studio presets` lists the sizes of each system.",
        )
    return (chosen,)


def report(presets: Sequence[Preset]) -> list[dict[str, Any]]:
    """Return the presets as plain data."""
    return [_report_preset(item) for item in presets]


def _report_preset(item: Preset) -> dict[str, Any]:
    system, parts = item.system, item.under("full")
    return {
        "name": item.name,
        "title": item.title,
        "source": item.source,
        "npus": item.npus,
        "sizes": system.sizes_words,
        "node": None if system.family is None else system.family.node,
        "nics": None if system.family is None else system.family.nics or None,
        "network": parts.network,
        "system": parts.system,
        "congestion": parts.congestion,
        "gpu": None if system.gpu is None else asdict(system.gpu),
        "costs": system.costs,
        "astra_sim": _report_astra_sim(item),
        "sources": dict(system.sources),
        "measured_error": item.measured_error,
        "calibration": dict(system.calibration),
    }


def _report_astra_sim(item: Preset) -> dict[str, Any]:
    parts = item.under("astra-sim")
    return {"network": parts.network, "system": parts.system, "congestion": parts.congestion}


def text(presets: Sequence[Preset]) -> str:
    """Format the presets for a terminal."""
    return "\n\n".join("\n".join(_format_lines(item)) for item in presets)


def _format_lines(item: Preset) -> Iterator[str]:
    yield f"{item.name:{_INDENT}}{item.title}"
    yield _format_line("sizes", item.system.sizes_words)
    yield _format_line("rates", _format_rates(item))
    if item.system.gpu is not None:
        yield _format_line("NPU", _format_gpu(item))
    yield _format_line("source", item.source)
    yield _format_line("error", item.measured_error)


def format_preset(presets: Sequence[Preset]) -> str:
    """Format all about one preset for a terminal."""
    [item] = presets
    lines = [
        *_format_lines(item),
        "",
        "  measured error",
        *_format_errors(item),
        "",
        "  where each number is from",
    ]
    lines += [f"    {key}: {source}" for key, source in item.system.sources.items()]
    if item.system.costs:
        lines += ["", "  costs of collectives", *_format_tree(item.system.costs, 4)]
    return "\n".join(escape_controls(line) for line in lines)


def _format_line(what: str, words: str) -> str:
    return f"{'':{_INDENT}}{what:7}{words}"


def _format_rates(item: Preset) -> str:
    """Return the rates of each dimension that the system can have, as its file has them."""
    network = item.system.network
    columns = (network["topology"], network["bandwidth"], network["latency"])
    unit = network.get("bandwidth-unit", "GiB/s")
    return " × ".join(
        f"{kind} {rate:g} {unit}" + (f" {latency:g} ns" if latency else "")
        for kind, rate, latency in zip(*columns, strict=True)  # type: ignore[call-overload]  # lists, checked when read
    )


def _format_gpu(item: Preset) -> str:
    gpu = item.system.gpu
    assert gpu is not None
    rates = ", ".join(f"{rate:g} {name}" for name, rate in gpu.tera_flops.items())
    return f"{gpu.name}: {rates} TFLOP/s dense, {gpu.memory_gbytes:g} GB of memory at {gpu.memory_bytes_per_ns:g} GB/s"


def _format_errors(item: Preset) -> Iterator[str]:
    classes = get_error_classes(item.system)
    if not classes:
        yield f"    {item.measured_error}"
    for name, error in classes.items():
        yield f"    {name}: {_format_figures(error)}"


def _format_figures(error: object) -> str:
    """Return what is known of a class: GMF, gm|e| and what they were found on."""
    if not isinstance(error, Mapping):
        return "?"
    named = (("gmf", "GMF"), ("gm_error", "gm|e|"), ("gmf-nine-of-ten", "GMF of nine tables in ten at most"))
    figures = [f"{words} {format_error_percent(error[key])}" for key, words in named if key in error]
    tables, sizes, ranks = (error.get(key) for key in ("tables", "sizes", "ranks"))
    figures += [f"{tables} {'table' if tables == 1 else 'tables'}"] if tables is not None else []
    if isinstance(sizes, list | tuple) and isinstance(ranks, list | tuple):
        figures += [
            f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}",
            f"{ranks[0]:,} to {ranks[-1]:,} ranks",
        ]
    return ", ".join(figures)


def _format_tree(table: Mapping[str, Any], indent: int) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield f"{'':{indent}}{key}:"
            yield from _format_tree(value, indent + 2)
        else:
            yield f"{'':{indent}}{key}: {value}"


@click.command(help=__doc__, epilog="Example: chakra-studio presets hgx-h100 --npus 64 --json")
@click.argument("name", required=False)
@click.option("--npus", type=click.IntRange(min=1), metavar="N", help="The size to show NAME in.")
@json_option
def command(name: str | None, npus: int | None, as_json: bool) -> None:
    """Carry out `presets`."""
    show(run(Request(name, npus)), as_json, report, text if name is None else format_preset)
