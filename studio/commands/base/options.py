"""Options that several commands have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

_RANK = re.compile(r"(?P<file>.+)=(?P<number>[0-9]{1,9})", re.DOTALL)


def _ranks(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, int]:
    """Parse `--rank FILE=NUMBER`."""
    ranks: dict[str, int] = {}
    for item in given:
        match = _RANK.fullmatch(item)
        if not match:
            raise click.BadParameter(f"{item!r} is not FILE=NUMBER, such as trace_a.et=0.")
        if match["file"] in ranks:
            raise click.BadParameter(f"{match['file']!r} is given twice.")
        ranks[match["file"]] = int(match["number"])
    return ranks


rank_option = click.option(
    "--rank",
    "ranks",
    multiple=True,
    metavar="FILE=NUMBER",
    callback=_ranks,
    help="Rank of a file whose name and metadata do not give it; may be repeated.",
)


allow_damaged = click.option(
    "--allow-damaged",
    is_flag=True,
    help="Exit with 0, not 4, if damaged input was read in part.",
)


def size_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for text workloads; the command gets them as `npus` and `passes`."""
    npus = click.option(
        "--npus",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of NPUs of a text workload that does not give it.",
    )
    passes = click.option(
        "--passes", type=click.IntRange(min=1), metavar="P", help="Passes of a text workload.  [default: 1]"
    )
    return npus(passes(command))


for_option = click.option(
    "--for",
    "reader",
    type=click.Choice(["astra-sim"]),
    help="Leave out what this simulator cannot run, and count it.",
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
workspace_option = click.option(
    "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of imported jobs."
)
paths_argument = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))


def suggest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? " for a mistyped word; "" if no known word is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""
