"""Explain what one collective costs on a system: every way to carry it out, with the numbers of its formula.

COLLECTIVE is such as all_reduce or ALL_TO_ALL, SIZE such as 64MiB: what Chakra calls comm_size, of an all-gather one rank's part.
The time of a way is (host^4 + own^4)^(1/4), own = launch + (waits^p + moving^p)^(1/p): waits are protocol and hops, moving is the
time of the bytes on the busiest port, and p tells how far both overlap. The host's time from call to call passes beside; latency that
the network states is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from studio.commands.base.options import json_option
from studio.commands.base.output import show
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError
from studio.sim.explaining import Explanation, Term, WayTime, assume_members, explain
from studio.sim.parts import interpret
from studio.sim.presets import describe_unevenness, preset
from studio.sim.rank_lists import parse_ranks
from studio.sim.setting_edits import with_settings
from studio.units import format_bytes, format_counted, format_ns, format_rate, parse_bytes


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `explain`.

    Attributes:
        collective: Its kind, in either spelling.
        size: Bytes as text.
        system: A preset or system file.
        npus: NPUs of the system.
        ranks: Members of the group as text, such as 0-7; "" is all.
        settings: KEY=VALUE each.
    """

    collective: str
    size: str
    system: str
    npus: int | None = None
    ranks: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """An explanation, the system it is of, and what to know about its size, if anything."""

    system: str
    explanation: Explanation
    uneven: str = ""


def run(request: Request) -> Explained:
    """Work out what the collective costs.

    Raises:
        ConfigError: The system, the collective, the size or the ranks are not allowed.
    """
    chosen = preset(request.system, npus=request.npus)
    parts = with_settings(chosen.parts, request.settings) if request.settings else chosen.parts
    config = interpret(parts).config
    kind = request.collective.lower().replace("-", "_")
    ranks = parse_ranks(request.ranks) if request.ranks else assume_members(kind, config.topology.npus)
    size = parse_bytes(request.size)
    if kind == "barrier" and size:
        raise ConfigError(
            f"the size is {request.size.strip()!r}, and a barrier has none; allowed: 0",
            hint="Write: barrier 0.",
        )
    return Explained(chosen.name, explain(config, kind, size, ranks), describe_unevenness(parts))


def report(explained: Explained) -> dict[str, Any]:
    """Return what `--json` prints."""
    explanation = explained.explanation
    return {
        "system": explained.system,
        "collective": explanation.kind,
        "comm_size": explanation.comm_size,
        "buffer_bytes": explanation.buffer_bytes,
        "group": asdict(explanation.shape),
        "ports": asdict(explanation.ports),
        "nics": explanation.nics,
        "library": explanation.library,
        "taken": explanation.way.name,
        "total_ns": explanation.total_ns,
        "algbw_bytes_per_ns": explanation.algorithm_bytes_per_ns,
        "busbw_bytes_per_ns": explanation.bus_bytes_per_ns,
        "residual_curve": explanation.correction or None,
        "extrapolated": explanation.extrapolated,
        "uneven_nodes": explained.uneven or None,
        "ways": [_build_way_report(way) for way in explanation.ways],
        "crossovers": [asdict(crossover) for crossover in explanation.crossovers],
    }


def _build_way_report(way: WayTime) -> dict[str, Any]:
    return {
        **asdict(way),
        "launch_ns": way.launch_ns,
        "waits_ns": way.waits_ns,
        "moving_ns": way.moving_ns,
    }


def text(explained: Explained) -> str:
    """Format the explanation for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(explained))


def _format_lines(explained: Explained) -> Iterator[str]:
    explanation = explained.explanation
    shape, taken = explanation.shape, explanation.way
    yield (
        f"{explanation.kind} of {format_bytes(explanation.comm_size)} by {format_counted(shape.ranks, 'rank')} on "
        f"{format_counted(shape.nodes, 'node')} of {explained.system}: {format_ns(explanation.total_ns)}, {taken.name}"
    )
    if explanation.kind != "barrier":
        yield f"algbw {format_rate(explanation.algorithm_bytes_per_ns)}, busbw {format_rate(explanation.bus_bytes_per_ns)}"
    if explanation.extrapolated:
        yield "extrapolated: the machine's parameters were fitted to other collectives, sizes or groups"
    if explained.uneven:
        yield explained.uneven
    if explanation.correction:
        yield f"the time holds a residual curve of the calibration ({explanation.correction})"
    yield ""
    yield f"  {'way':<18}{'time':>12}{'launch':>12}{'waits':>12}{'moving':>12}{'p':>6}"
    for way in explanation.ways:
        mark = "→" if way is taken else " "
        yield (
            f"{mark} {way.name:<18}{format_ns(way.total_ns):>12}{format_ns(way.launch_ns):>12}{format_ns(way.waits_ns):>12}"
            f"{format_ns(way.moving_ns):>12}{way.overlap:>6g}"
        )
    if explanation.not_quickest:
        yield f"  {explanation.not_quickest}"
    yield ""
    added = " + latency" if taken.latency else ""
    yield f"  {taken.name}: (host^4 + (launch + (waits^p + moving^p)^(1/p))^4)^(1/4){added}"
    for title, terms in (
        ("host", (taken.host,)),
        ("launch", taken.launch),
        ("waits", taken.waits),
        ("inside", taken.inside),
        ("between", taken.between),
        ("latency", taken.latency),
    ):
        yield from _format_terms(title, terms)
    crossovers = explanation.crossovers
    if crossovers:
        yield ""
        yield "  another way is taken"
    for crossover in crossovers:
        yield f"    from {format_bytes(crossover.size)} on: {crossover.after} in place of {crossover.before}"


def _format_terms(title: str, terms: Sequence[Term]) -> Iterator[str]:
    for term in terms:
        yield f"    {title:<8}{term.name:<32}{term.value:>14.5g} {'ns' if term.is_time else '':<2}  {format_ns(term.ns):>10}"


@click.command(
    help=__doc__, epilog="Example: chakra-studio explain all_reduce 64MiB --preset hgx-h100 --npus 16"
)
@click.argument("collective")
@click.argument("size")
@click.option("--preset", "system", required=True, metavar="NAME|FILE", help="A preset, or a system file.")
@click.option("--npus", type=click.IntRange(min=1), metavar="N", help="NPUs of the system.")
@click.option(
    "--ranks", default="", metavar="LIST", help="Members of the group, such as 0-7; all without it."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable.")
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Carry out `explain`."""
    show(run(Request(**given)), as_json, report, text)
