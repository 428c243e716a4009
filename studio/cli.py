"""The command line: options, help texts and exit statuses; `studio/commands/` does the work."""

from __future__ import annotations

import difflib
import io
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from studio import __version__
from studio.commands.terminal import printable
from studio.errors import StudioError
from studio.trace import Finding, Level

if TYPE_CHECKING:
    from studio.commands.for_astra_sim import Reader
    from studio.comparing import Compared

_T = TypeVar("_T")
_WIDTH = 100
_BAR = 30
_SHOW_EVERY_S = 0.1
_EXAMPLES = """\b
Examples:
  chakra-studio                       open the studio
  chakra-studio traces/               open the job in a folder
  chakra-studio job.*.et job.json     open these files
  chakra-studio --port 9000 --sample  open a sample job on another port"""
_RANK = re.compile(r"(?P<file>.+)=(?P<number>[0-9]{1,9})", re.DOTALL)


class _ServeByDefault(click.Group):
    """A click group that serves paths when the first word is not a command: `chakra-studio traces/`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "-h", "--version"}
        if not args or (args[0] not in self.commands and args[0] not in own):
            _refuse_mistyped(ctx, args, self.commands)
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print expected errors without a traceback."""
        for stream in (sys.stdout, sys.stderr):
            # A terminal that knows few letters shows the others as escapes, rather than none at all.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except StudioError as error:
            _fail(ctx, error.message, error.hint)
        except BrokenPipeError:
            raise
        except OSError as error:
            what = error.strerror or type(error).__name__
            place = ": ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
            _fail(ctx, f"{place}: {what}." if place else f"{what}.", _HINTS.get(type(error), ""))
        except MemoryError:
            _fail(ctx, "Not enough memory.", "Close other programs, or open fewer ranks.")


def _refuse_mistyped(ctx: click.Context, args: Sequence[str], commands: Iterable[str]) -> None:
    """Raise a usage error if the first word looks like a mistyped command."""
    # Options are looked at by the command they belong to.
    word = args[0] if args and not args[0].startswith("-") else ""
    near = difflib.get_close_matches(word, commands, n=1)
    if near and not Path(args[0]).exists():
        raise click.UsageError(
            f"There is no command {args[0]!r}, and no file of this name. Did you mean {near[0]!r}?", ctx
        )


def _suggest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? " for a mistyped word; "" if no known word is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


_HINTS: Mapping[type[OSError], str] = {
    PermissionError: "Check who may read and write it.",
    IsADirectoryError: "Name a file, or remove the folder of this name.",
    NotADirectoryError: "A part of this path is a file, not a folder.",
    FileExistsError: "Choose another name, or remove what is there.",
}


def _fail(ctx: click.Context, message: str, hint: str) -> None:
    """Print an error and leave with status 1."""
    if sys.stderr.isatty():
        # Where a progress line was cut off.
        click.echo("\r\033[K", nl=False, err=True)
    lines = "\n".join(printable(line) for line in message.split("\n"))
    click.secho(f"Error: {lines}", fg="red", err=True)
    if hint:
        click.echo(f"Hint: {printable(hint)}", err=True)
    ctx.exit(1)


def _say(text: str) -> None:
    click.echo(printable(text))


@click.group(
    cls=_ServeByDefault,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": _WIDTH},
    options_metavar="",
    epilog=_EXAMPLES,
    subcommand_metavar="[COMMAND] [PATHS]... [OPTIONS]",
)
@click.version_option(__version__, prog_name="chakra-studio")
def main() -> None:
    """Open Chakra execution traces in the browser; everything stays on this machine.

    Without a command it serves, so the options of serve apply. A path with the name of a command is written with
    its folder: ./info.
    """


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


_rank_option = click.option(
    "--rank",
    "ranks",
    multiple=True,
    metavar="FILE=NUMBER",
    callback=_ranks,
    help="Rank of a file whose name and metadata do not give it; may be repeated.",
)


_allow_damaged = click.option(
    "--allow-damaged",
    is_flag=True,
    help="Exit with 0, not 4, if damaged input was read in part.",
)


def _size_options(command: Callable[..., Any]) -> Callable[..., Any]:
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


@main.command(epilog="Example: chakra-studio traces/ --port 9000 --workspace ~/jobs")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="NUMBER",
    help="Port; 0 for any free one.  [default: 8050, or the next free one]",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Another host name under which the studio may be reached.",
)
@click.option("--workspace", metavar="DIR", type=click.Path(path_type=Path), help="Folder for imported jobs.")
@click.option("--browser/--no-browser", default=True, help="Open a browser, if there is one.")
@click.option("--app", is_flag=True, help="Open a window of its own in a Chromium-based browser.")
@click.option(
    "--token/--no-token",
    "ask_token",
    default=True,
    help="Ask for the token that the printed address holds; without it, every account of this machine has access.",
)
@click.option("--sample/--no-sample", default=False, help="Start with a sample job open.")
@_rank_option
@_size_options
def serve(
    paths: tuple[Path, ...],
    host: str,
    port: int | None,
    allow_host: tuple[str, ...],
    workspace: Path | None,
    browser: bool,
    app: bool,
    ask_token: bool,
    sample: bool,
    ranks: dict[str, int],
    npus: int | None,
    passes: int | None,
) -> None:
    """Serve the studio; the default without a command.

    PATHS are files, folders or archives of traces to open first.
    """
    from studio.commands.serve import Request, run
    from studio.et.format import JobSize

    size = JobSize(npus, passes)
    request = Request(paths, host, port, allow_host, workspace, browser, sample, ranks, size, app, ask_token)
    run(request, announce=_say, progress=_progress_line())


@main.command(epilog="Example: chakra-studio info traces/ --json")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_allow_damaged
@_rank_option
@_size_options
@click.pass_context
def info(
    ctx: click.Context,
    paths: tuple[Path, ...],
    as_json: bool,
    allow_damaged: bool,
    ranks: dict[str, int],
    npus: int | None,
    passes: int | None,
) -> None:
    """Summarize a job: ranks, nodes, collectives, comm groups, findings.

    JSON is an object for one job and a list for several. The exit code is 4 if a file was damaged, so that something
    is missing from the output.
    """
    from studio.commands import info as command
    from studio.et.format import JobSize

    jobs = command.run(command.Request(paths, ranks, JobSize(npus, passes)), progress=_progress_line())
    _print(jobs, as_json, command.report, command.text)
    _end_with_losses(ctx, (finding for job in jobs for finding in job.trace.findings), allow_damaged)


def _repairs(_ctx: click.Context, _param: click.Parameter, codes: tuple[str, ...]) -> tuple[str, ...]:
    """Validate the names of repairs."""
    if codes:
        from studio.doctor import REPAIRS

        unknown = next((code for code in codes if code not in REPAIRS), None)
        if unknown is not None:
            raise click.BadParameter(
                f"there is no repair {unknown!r}; {_suggest(unknown, REPAIRS)}there are {', '.join(REPAIRS)}."
            )
    return codes


@main.command(epilog="Example: chakra-studio check traces/ --fail-on warning --repair mended/")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Exit with 1 if there is a finding of this level or worse.",
)
@click.option(
    "--repair",
    "target",
    metavar="OUT",
    type=click.Path(file_okay=False, path_type=Path),
    help="Repair what can be repaired and write the job into this folder.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="CODE",
    callback=_repairs,
    help="Make only this repair; may be repeated.",
)
@_rank_option
@click.pass_context
def check(
    ctx: click.Context,
    paths: tuple[Path, ...],
    as_json: bool,
    fail_on: Level,
    target: Path | None,
    only: tuple[str, ...],
    ranks: dict[str, int],
) -> None:
    """Find problems of a job: what, where, what follows, and what can be repaired.

    The worst comes first. The files given are not changed. The exit code is 0 if there is no finding of the level of
    --fail-on or worse, 1 if there is one, and 2 for wrong arguments; with --repair the findings that remain count.
    """
    from studio.commands import check as command

    if only and target is None:
        raise click.UsageError("--only needs --repair with a folder for the repaired job.")
    request = command.Request(paths, target, only, ranks)
    done = command.run(request, progress=_progress_line())
    _print(done, as_json, command.report, command.text)
    if command.worst_at_least(done, fail_on):
        ctx.exit(1)


_for_option = click.option(
    "--for",
    "reader",
    type=click.Choice(["astra-sim"]),
    help="Leave out what this simulator cannot run, and count it.",
)


@main.command(epilog="Example: chakra-studio convert traces.zip out/")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--gzip", "compress", is_flag=True, help="Compress the files of a folder.")
@_for_option
@_allow_damaged
@_rank_option
@_size_options
@click.pass_context
def convert(
    ctx: click.Context,
    source: Path,
    target: Path,
    compress: bool,
    reader: Reader | None,
    allow_damaged: bool,
    ranks: dict[str, int],
    npus: int | None,
    passes: int | None,
) -> None:
    """Write the traces IN as Chakra files, or their recorded times as a timeline.

    OUT is a file ending in .et or .et.gz, for a single rank, or a folder, which gets <job>.<rank>.et for every rank
    and <job>.json with the comm groups. A file ending in .json becomes a Chrome trace of all ranks, and one in
    .pftrace a trace in Perfetto's own format, both with flows; one in .csv gets their issue and callback lines.

    What can be read of damaged files is written; the exit code is then 4.
    """
    if compress and target.name.endswith(".et") and not target.is_dir():
        raise click.UsageError(
            f"--gzip compresses the files of a folder; for one file, name it {target.name}.gz."
        )
    from studio.commands import convert as command
    from studio.et.format import JobSize

    request = command.Request(source, target, compress, reader, ranks, JobSize(npus, passes))
    converted = command.run(request, progress=_progress_line(), notice=_warn)
    click.echo(command.text(converted))
    _end_with_losses(ctx, converted.findings, allow_damaged)


@main.command(epilog="Example: chakra-studio link run1/ -o linked/ --json")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", "target", required=True, metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the Chakra files.",
)  # fmt: skip
@click.option(
    "--without", multiple=True, metavar="KIND",
    help="Leave out a kind of dependency (host-order, call-parent, launch, stream-order, events, sync, threads, data, "
    "sequence), host-gaps, align-clocks or metadata-nodes; may be repeated.",
)  # fmt: skip
@click.option("--gzip", "compress", is_flag=True, help="Compress the files.")
@_for_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_allow_damaged
@_rank_option
@click.pass_context
def link(
    ctx: click.Context,
    paths: tuple[Path, ...],
    target: Path,
    without: tuple[str, ...],
    compress: bool,
    reader: Reader | None,
    as_json: bool,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Link PyTorch execution traces with Kineto traces and write Chakra files.

    PATHS are the files of all ranks of one job, or the folder they are in. Prints per rank: operators, how many of them
    are in the Kineto trace, device operations, how many of them belong to an operator, and the collectives. What can
    be read of damaged files is linked; the exit code is then 4.
    """
    from studio.commands import link as command

    options = command.options_without(
        without, lambda message: click.BadParameter(message, param_hint="--without")
    )
    request = command.Request(paths, target, options, compress, reader, ranks)
    linked = command.run(request, progress=_progress_line())
    _print(linked, as_json, command.report, command.text)
    _end_with_losses(ctx, linked.trace.findings, allow_damaged)


_existing = click.Path(exists=True, dir_okay=False, path_type=Path)


@main.command(
    epilog="Example: chakra-studio simulate traces/ --preset hgx-h100-8 --set preferred-dataset-splits=8"
)
@click.argument("workload", nargs=-1, required=True)
@click.option(
    "--system", "--system-configuration", type=_existing, metavar="S.json", help="ASTRA-sim's system file."
)
@click.option(
    "--network", "--network-configuration", type=_existing, metavar="N.yml", help="ASTRA-sim's network file."
)
@click.option(
    "--comm-groups",
    "--comm-group-configuration",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="G.json",
    help="Comm groups, instead of those beside the traces.",
)
@click.option(
    "--remote-memory",
    "--remote-memory-configuration",
    type=_existing,
    metavar="M.json",
    help="Remote memory.",
)
@click.option("--preset", metavar="NAME", help="A system by name; `chakra-studio presets` lists them.")
@click.option(
    "--mode",
    type=click.Choice(["compatible", "extended"]),
    help="ASTRA-sim's answers, or also what ASTRA-sim lacks.  [default: what the system file asks for]",
)
@click.option(
    "--congestion",
    type=click.Choice(["aware", "unaware"]),
    help="Whether messages wait for each other on links.",
)
@click.option("--num-queues-per-dim", metavar="N", help="Queues per dimension  [default: 1]")
@click.option("--injection-scale", metavar="X", help="Factor on the endpoint delay  [default: 1]")
@click.option(
    "--rendezvous-protocol", metavar="BOOLEAN", help="Whether senders wait for receivers  [default: false]"
)
@click.option("--comm-scale", metavar="X", hidden=True, help="Accepted and without effect, as in ASTRA-sim.")
@click.option(
    "--compute-scale", metavar="X", hidden=True, help="Accepted and without effect, as in ASTRA-sim."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of the files; may be repeated.",
)
@click.option(
    "--replay",
    is_flag=True,
    help="Use recorded times, for communication too, and compare the steps with the recording. Needs no system.",
)
@click.option("--out", metavar="RUN", help="Keep the simulation in the workspace under this name.")
@click.option(
    "--events",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write issue and callback lines; a Chrome trace if FILE ends in .json, Perfetto's format if in .pftrace.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after this time.",
)
@click.option(
    "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of imported jobs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: everything, per rank and per link.")
@_allow_damaged
@_rank_option
@_size_options
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    workload: tuple[str, ...],
    settings: tuple[str, ...],
    time_limit: float | None,
    as_json: bool,
    allow_damaged: bool,
    **given: Any,
) -> None:
    """Simulate a job on a system and print how long it takes.

    WORKLOAD is a folder, files, the prefix of files <prefix>.<rank>.et, or the id of a job in the workspace.
    The system is a preset, or ASTRA-sim's files; --set changes keys of either.
    """
    from studio.commands import simulate as command
    from studio.et.format import JobSize

    words = ("num_queues_per_dim", "injection_scale", "rendezvous_protocol", "comm_scale", "compute_scale")
    options = {word.replace("_", "-"): given.pop(word) for word in words}
    request = command.Request(
        workload,
        options={key: value for key, value in options.items() if value is not None},
        settings=settings,
        time_limit_s=time_limit,
        size=JobSize(given.pop("npus"), given.pop("passes")),
        **given,
    )
    outcome = command.run(request, progress=_progress_line(), notice=_wait)
    _print(outcome, as_json, command.report, command.text)
    _end_with_losses(ctx, outcome.result.trace.findings, allow_damaged, warned=False)


@main.command(epilog="Example: chakra-studio runs")
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of imported jobs."
)
def runs(job: str | None, as_json: bool, workspace: Path | None) -> None:
    """List stored simulations of all jobs, or of the JOB with this id or name."""
    from studio.commands import runs as command

    _print(command.run(command.Request(workspace, job)), as_json, command.report, command.text)


@main.command(epilog="Example: chakra-studio compare traces/ fast --fail-if-slower 2")
@click.argument("sides", metavar="A B [C]...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: everything, in nanoseconds.")
@click.option(
    "--fail-if-slower",
    type=click.FloatRange(min=0),
    metavar="PCT",
    help="Exit with 3 if a run finishes more than this many percent later than A.",
)
@click.option(
    "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of imported jobs."
)
@_allow_damaged
@_rank_option
@click.pass_context
def compare(
    ctx: click.Context,
    sides: tuple[str, ...],
    as_json: bool,
    fail_if_slower: float | None,
    workspace: Path | None,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Compare runs with the first: how much longer they take, and why.

    Each of A, B and up to six more is a folder, files or the prefix of files of traces that hold times, or, in the
    workspace, a run (RUN or JOB/RUN) or a job: its recording (JOB/recorded), else its newest run. Jobs and runs go by
    id or name. Nodes are matched by rank and id, or by structure if the jobs differ.

    The exit code is 0, 1 for an error, 2 for wrong arguments, 3 if --fail-if-slower finds a slower run, and 4 if a side
    was read from damaged files.
    """
    from studio.commands import compare as command
    from studio.comparing import SIDES_AT_MOST

    if not 2 <= len(sides) <= SIDES_AT_MOST:
        raise click.UsageError(f"Name 2 to {SIDES_AT_MOST} runs to compare, not {len(sides)}.")
    shown = command.run(command.Request(sides, workspace, ranks), progress=_progress_line())
    _print(shown, as_json, command.report, command.text)
    slower = fail_if_slower is not None and command.slower_than(shown, fail_if_slower)
    # That a run is slower is what the user asked about; that a side is damaged is said all the same.
    _end_with_losses(ctx, _findings_of(shown.sides), allow_damaged or slower, warned=False)
    if slower:
        ctx.exit(3)


@main.command(epilog="Example: chakra-studio report fast slow -o report.html")
@click.argument("sides", metavar="A [B]...", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The HTML file to write.",
)
@click.option(
    "--workspace", type=click.Path(file_okay=False, path_type=Path), help="Folder of imported jobs."
)
@_allow_damaged
@_rank_option
@click.pass_context
def report(
    ctx: click.Context,
    sides: tuple[str, ...],
    out: Path,
    workspace: Path | None,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Write a run, or a comparison of runs with the first, as one HTML file that opens from disk.

    A and the others are named as for compare. The file holds its figures and needs no network.
    """
    from studio.commands import report as command

    written = command.run(command.Request(sides, out, workspace, ranks), progress=_progress_line())
    click.echo(command.text(written))
    _end_with_losses(ctx, _findings_of(written.sides), allow_damaged, warned=False)


@main.command(epilog="Example: chakra-studio presets")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def presets(as_json: bool) -> None:
    """List the systems for --preset, with the sources of their numbers."""
    from studio.commands import presets as command

    _print(command.run(), as_json, command.report, command.text)


def _print(result: _T, as_json: bool, report: Callable[[_T], Any], text: Callable[[_T], str]) -> None:
    """Print a command's result as JSON or text."""
    # ASCII: names may hold what a terminal would obey, and not every terminal knows every letter.
    click.echo(json.dumps(report(result), indent=2) if as_json else text(result))


def _warn(finding: Finding) -> None:
    """Print a warning or error of a reader."""
    if finding.level != "info":
        click.secho(printable(f"{finding.level.capitalize()}: {finding.message}"), fg="yellow", err=True)


def _end_with_losses(
    ctx: click.Context, findings: Iterable[Finding], allowed: bool, *, warned: bool = True
) -> None:
    """Report lost data on stderr and exit with status 4, unless `--allow-damaged` is given.

    Args:
        ctx: The command.
        findings: What the readers noticed.
        allowed: Whether the user said that input may be damaged.
        warned: Whether the findings themselves were shown already.
    """
    from studio.commands.losses import STATUS, losses, lost_line

    lost = losses(findings)
    if not lost:
        return
    for finding in () if warned else lost:
        _warn(finding)
    click.secho(lost_line(lost, allowed=allowed), fg="yellow", err=True)
    if not allowed:
        ctx.exit(STATUS)


def _findings_of(sides: Iterable[Compared]) -> Iterator[Finding]:
    return (finding for side in sides for finding in side.side.trace.findings)


def _wait(what: str) -> None:
    """Say what the command waits for when it cannot show progress."""
    click.echo(f"{what[0].upper()}{what[1:]} ...", err=True)


def _progress_line() -> Callable[[str, int, int], None] | None:
    """Return a progress callback that updates one terminal line; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    # Reading reports from two threads.
    lock, shown, shown_s = threading.Lock(), "", 0.0

    def show(phase: str, done: int, total: int) -> None:
        nonlocal shown, shown_s
        with lock:
            now_s, ends = time.monotonic(), done >= total
            if phase == shown and not ends and now_s - shown_s < _SHOW_EVERY_S:
                return
            shown, shown_s = phase, now_s
            filled = _BAR * done // max(total, 1)
            bar = "#" * filled + "." * (_BAR - filled)
            # Cleared at the end: what follows, an error above all, starts on a line of its own.
            end = "\r\033[K" if ends else ""
            line = f"\r{phase:10} [{bar}] {100 * done // max(total, 1):3}%{end}"
            click.echo(line, nl=False, err=True, color=True)

    return show


if __name__ == "__main__":
    main()
