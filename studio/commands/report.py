"""`chakra-studio report`: write a run, or a comparison of runs, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from studio.commands.names import find_runs
from studio.commands.terminal import printable, written_line
from studio.comparing import Compared
from studio.et import Progress
from studio.store.arrays import appearing


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `report`.

    Attributes:
        sides: Names of runs, as `names.find_runs` takes them; the others are compared with the first.
        out: The HTML file to write.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    sides: tuple[str, ...]
    out: Path
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reported:
    """The file written and the runs in it."""

    file: Path
    sides: tuple[Compared, ...]


def run(request: Request, *, progress: Progress | None = None) -> Reported:
    """Read the runs and write the file; it appears when it is complete.

    Raises:
        ConfigError: Nothing is called so, or the file cannot be written.
        StudioError: What is named cannot be read, or holds no times.
    """
    sides = find_runs(request.sides, request.workspace, ranks=request.ranks, progress=progress, least=1)
    if progress:
        # Imported late: drawing figures is slow to import.
        progress("drawing", 0, len(sides) + 1)
    from studio.reporting import report

    html = report(sides, progress)
    with appearing(request.out, "--out") as stream:
        stream.write(html)
    return Reported(request.out, tuple(sides))


def text(reported: Reported) -> str:
    """Say which files were written."""
    return printable(written_line([reported.file]))
