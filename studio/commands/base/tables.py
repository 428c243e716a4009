"""What the commands on measured tables share: what tables do not say themselves, notes, percentages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from studio.calibration.reading.given import COLLECTIVES, Given
from studio.commands.base.options import PathOption
from studio.commands.base.terminal import escape_controls

tables_argument = click.argument("paths", metavar="TABLES...", nargs=-1, required=True, type=PathOption())


def add_given_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for what tables do not say themselves; the command gets them as `given`."""

    @click.option(
        "--gpus-per-node",
        type=click.IntRange(min=1),
        metavar="N",
        help="GPUs of a node that took part, where the text does not say.",
    )
    @click.option(
        "--nodes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Nodes that took part, where the text does not say.",
    )
    @click.option(
        "--collective",
        type=click.Choice(COLLECTIVES),
        metavar="NAME",
        help="The collective that was measured, such as all_gather, where the text does not say.",
    )
    @functools.wraps(command)
    def with_given(
        *args: Any, gpus_per_node: int | None, nodes: int | None, collective: str | None, **options: Any
    ) -> Any:
        return command(*args, given=Given(gpus_per_node, nodes, collective or ""), **options)

    return with_given


def warn_notes(notes: Iterable[str]) -> None:
    """Print what was left out or assumed."""
    for note in notes:
        click.secho(escape_controls(f"Note: {note}"), fg="yellow", err=True)


def format_share(share: float, *, signed: bool = False) -> str:
    """Format a share as a percentage of three digits at most.

    Example:
        >>> format_share(0.0334), format_share(-0.124, signed=True), format_share(2.121), format_share(0.0004)
        ('3.3 %', '-12.4 %', '212 %', '0.0 %')
    """
    value = 100 * share
    return f"{value:{'+' if signed else ''}.{0 if abs(value) >= 99.95 else 1}f} %"
