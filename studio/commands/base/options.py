"""Options that several commands have."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from studio.commands.base.param_type import ParamType
from studio.commands.base.terminal import note_quiet
from studio.errors import ConfigError, TraceError
from studio.sim.settings import GPUS
from studio.units import format_bytes, parse_bytes, parse_ns


class NameOrPath(click.types.StringParamType):
    """What names a job or a run, or is a path. An empty one, which a shell makes of an unset variable, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text.

        Raises:
            click.BadParameter: It is empty.
        """
        if not value:
            self.fail("it is empty; allowed: a name or a path; . is this folder.", param, ctx)
        return str(value)


class PathOption(click.Path):
    """A path that is given. An empty one, which a shell makes of an unset variable, is refused."""

    def __init__(self, **allowed: Any) -> None:
        super().__init__(path_type=Path, **allowed)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Raises:
            click.BadParameter: It is empty, or not of the kind that is allowed.
        """
        if not str(value):
            self.fail("it is empty; allowed: a path, such as out or ./out.", param, ctx)
        return super().convert(value, param, ctx)


EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that is read."""


def refuse_own_input(sources: Iterable[Path], target: Path) -> None:
    """Raise an error if the files of a job would be written among those it is read from.

    Written there, they would be read as further ranks of the same job the next time.

    Raises:
        TraceError: The folder is one of the sources.
    """
    if target.is_dir() and any(source.is_dir() and target.samefile(source) for source in sources):
        raise TraceError(
            f"{target}: the job is read from this folder, so nothing is written into it.",
            hint="Name another folder.",
        )


class Seconds(click.FloatRange):
    """A time in seconds, above 0 and finite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number.

        Raises:
            click.BadParameter: It is not above 0, or not finite.
        """
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no time; allowed: a number of seconds above 0.", param, ctx)
        return seconds


class Bytes(ParamType[int]):
    """A size, such as `2GiB`, of at least some bytes."""

    name = "size"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes.

        Raises:
            click.BadParameter: It is no size, or too small.
        """
        try:
            size = parse_bytes(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        if size < self.least:
            self.fail(f"{value} is less than {format_bytes(self.least)}.", param, ctx)
        return size


def parse_time(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Return the nanoseconds of a time such as `2ms` that an option is given; None where it is not.

    Raises:
        click.BadParameter: It is no time.
    """
    try:
        return None if text is None else parse_ns(text)
    except ConfigError as error:
        raise click.BadParameter(f"{error.message}. {error.hint}") from error


_RANK = re.compile(r"(?P<file>.+)=(?P<number>[0-9]{1,9})", re.DOTALL)


def _parse_ranks(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, int]:
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
    callback=_parse_ranks,
    help="Rank of a file, in place of what its metadata or its name say; may be repeated.",
)


allow_damaged = click.option(
    "--allow-damaged",
    is_flag=True,
    help="Exit with 0, not 4, if damaged input was read in part.",
)


def add_size_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for text workloads; the command gets them as `npus` and `passes`."""
    return _add_size_options(command, "Number of NPUs of a text workload that does not give it.")


def add_system_size_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for text workloads where the number of NPUs is that of a preset as well."""
    return _add_size_options(command, "Number of NPUs of the preset, and of a text workload.")


def _add_size_options(command: Callable[..., Any], npus_help: str) -> Callable[..., Any]:
    npus = click.option(
        "--npus",
        type=click.IntRange(min=1),
        metavar="N",
        help=npus_help,
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


scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Have the work done by the workers of a Dask scheduler, which see the files where they are.",
)
quiet_option = click.option(
    "--quiet", "-q", is_flag=True, callback=note_quiet, help="Show no progress and no summary."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
workspace_option = click.option(
    "--workspace", type=PathOption(file_okay=False), help="Folder of imported jobs."
)
paths_argument = click.argument("paths", nargs=-1, required=True, type=PathOption())


def add_gpu_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--gpu` and `--recorded-gpu`."""
    recorded = click.option(
        "--recorded-gpu",
        type=click.Choice(GPUS, case_sensitive=False),
        metavar="GPU",
        help="The GPU of the recording.  [default: the one that the trace names]",
    )
    return click.option(
        "--gpu",
        type=click.Choice(GPUS, case_sensitive=False),
        metavar="GPU",
        help="Recompute what a recorded device did for this GPU, such as b200, by each operator's roofline.",
    )(recorded(command))


def suggest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? " for a mistyped word; "" if no known word is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""
