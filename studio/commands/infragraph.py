"""Make a network file of an InfraGraph infrastructure, or an infrastructure of a system.

FILE is an infrastructure (YAML or JSON; - for standard input); what is written is a network.yml with single links, for `simulate
--network FILE --model full`. NPUs are its components of kind xpu; a component with two neighbours that is no switch counts as part
of a wire, one with a single neighbour is left out. With --preset in place of FILE a system is written as an infrastructure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.options import PathOption, json_option, refuse_own_input
from studio.commands.base.output import show
from studio.commands.base.streams import DASH, open_path_or_stdin
from studio.commands.base.terminal import escape_controls
from studio.et.write import write_together
from studio.sim.infragraph import Wire, read_network
from studio.sim.infragraph_writer import as_yaml, build_infrastructure
from studio.sim.links import link_graph
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.units import format_counted


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `infragraph`.

    Attributes:
        file: The infrastructure; None where a system is written as one.
        target: The file to write.
        system: A preset or system file; None where an infrastructure is read.
        npus: NPUs of the system.
        wires: Rates and latencies of links by name.
    """

    file: Path | None
    target: Path
    system: str | None = None
    npus: int | None = None
    wires: dict[str, Wire] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """The network that was written, and what was left out of it.

    Attributes:
        file: The file.
        name: The network.
        npus, switches, links: How many; links count once for both directions.
        notes: What was left out or assumed.
    """

    file: Path
    name: str
    npus: int
    switches: int
    links: int
    notes: tuple[str, ...] = ()


def run(request: Request) -> Written:
    """Write the network or the infrastructure.

    Raises:
        ConfigError: The infrastructure or the system cannot be written as the other.
    """
    if request.file is not None:
        if request.target != DASH:
            refuse_own_input([request.file], request.target)
        with open_path_or_stdin(request.file) as path:
            network = read_network(path, request.wires)
        table: dict[str, Any] = network.table()
        written = Written(
            request.target,
            network.name,
            len(network.npus),
            len(network.switches),
            len(network.links),
            network.notes,
        )
    else:
        assert request.system is not None
        chosen = preset(request.system, npus=request.npus)
        config = interpret(chosen.parts).config
        graph = config.links if config.links is not None else link_graph(config.topology)
        dims = [dim.size for dim in config.topology.dims if dim.size > 1]
        table = build_infrastructure(graph, chosen.name, chosen.title, dims[0] if dims else 0)
        notes = []
        if len(dims) > 2:
            notes.append(
                f"Of the dimensions {' × '.join(map(str, dims))} nodes of {dims[0]} are kept: an infrastructure has no place for "
                f"more, and {graph.npus // dims[0]} nodes are read as one dimension."
            )
        if config.costs is not None:
            notes.append("Costs of collectives are no part of an infrastructure.")
        links = len(graph.links) // 2
        written = Written(request.target, chosen.name, graph.npus, graph.switches, links, tuple(notes))
    content = as_yaml(table)
    if request.target == DASH:
        click.echo(content, nl=False)
        return written
    with write_together() as put:
        put(request.target, [content.encode()])
    return written


def report(written: Written) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "file": str(written.file),
        "name": written.name,
        "npus": written.npus,
        "switches": written.switches,
        "links": written.links,
        "notes": list(written.notes),
    }


def text(written: Written) -> str:
    """Format the outcome for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(written))


def _format_lines(written: Written) -> Iterator[str]:
    yield (
        f"{written.name}: {format_counted(written.npus, 'NPU')}, {format_counted(written.switches, 'switch', 'switches')}, "
        f"{format_counted(written.links, 'link')} in both directions"
    )
    yield from written.notes
    yield "Written." if written.file == DASH else f"Written: {written.file}"


def _parse_wires(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, Wire]:
    """Read NAME=RATE or NAME=RATE:LATENCY."""
    wires = {}
    for each in given:
        name, equals, numbers = each.partition("=")
        rate, _, latency = numbers.partition(":")
        try:
            wire = Wire(float(rate), float(latency or 0))
        except ValueError:
            wire = Wire(0.0, 0.0)
        if (
            not equals
            or not name
            or not 0 < (wire.bytes_per_ns or 0) < 1e12
            or not 0 <= wire.latency_ns < 1e12
        ):
            raise click.BadParameter(f"{each!r}; allowed: NAME=GB/s or NAME=GB/s:ns, such as pcie=32:500.")
        wires[name] = wire
    return wires


@click.command(
    help=__doc__, epilog="Example: chakra-studio infragraph cluster.yaml -o network.yml --link pcie=32:500"
)
@click.argument("file", required=False, type=PathOption(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "-o",
    "target",
    required=True,
    metavar="FILE",
    type=PathOption(dir_okay=False, allow_dash=True),
    help="The file to write; - prints it.",
)
@click.option(
    "--preset", "system", metavar="NAME|FILE", help="Write this preset or system file as an infrastructure."
)
@click.option("--npus", type=click.IntRange(min=1), metavar="N", help="NPUs of the system.")
@click.option(
    "--link",
    "wires",
    multiple=True,
    callback=_parse_wires,
    metavar="NAME=GB/s[:ns]",
    help="Rate and latency of a link, ahead of the file's; repeatable.",
)
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Carry out `infragraph`."""
    if (given["file"] is None) == (given["system"] is None):
        raise click.UsageError("Give an infrastructure, or --preset with a system: one of both.")
    if as_json and given["target"] == DASH:
        raise click.UsageError("--json prints about the file written, and -o is standard output already.")
    show(run(Request(**given)), as_json, report, text, err=given["target"] == DASH)
