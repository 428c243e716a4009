"""Check an algorithm of a collective (MSCCL XML, MSCCL++ JSON), and time it beside ring, direct, halving-doubling and tree.

FILE is - for standard input, SIZE such as 64MiB: what Chakra calls comm_size, of an all-gather one rank's part. The result is
followed chunk by chunk: an all-reduce, all-gather, reduce-scatter or all-to-all that leaves a chunk wrong is an error, with the GPU
and the chunk, as is a step that waits for ever; the exit code is 1 then. All algorithms run as steps over the links of the system,
without the measured costs of a library; of a preset with the latencies of its form in the model astra-sim. With -o the algorithm is written as traces, with a system that simulates jobs by it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import show
from studio.commands.base.streams import open_path_or_stdin
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError
from studio.et.msccl import LARGEST_FILE_BYTES, build_findings, parse
from studio.files import read_start
from studio.sim.algorithm_files import Contest, Timed, find_fastest, simulate_contest, with_latencies
from studio.sim.astra import save
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.setting_edits import with_settings
from studio.trace import Finding
from studio.units import format_bytes, format_counted, format_ns, format_rate, parse_bytes

_FLAWS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `algorithm`.

    Attributes:
        file: The algorithm; `-` is standard input.
        size: Bytes as text.
        system: A preset or system file.
        settings: KEY=VALUE each.
        target: Folder for the traces of the algorithm and a system that has it; None writes none.
    """

    file: Path
    size: str
    system: str
    settings: tuple[str, ...] = ()
    target: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """An algorithm beside the built-in ones.

    Attributes:
        system: The system.
        contest: Times.
        findings: What is wrong with the algorithm.
        files: What was written.
    """

    system: str
    contest: Contest
    findings: tuple[Finding, ...]
    files: tuple[Path, ...] = ()


def run(request: Request) -> Outcome:
    """Check the algorithm and simulate the collective by it and by the built-in ones.

    Raises:
        TraceFormatError: The file is no algorithm.
        TraceError: The algorithm never ends.
        ConfigError: Collective, size or system do not fit.
    """
    target = request.target
    if target is not None and target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target}: the folder is not empty", hint="Name a new folder.")
    size = parse_bytes(request.size)
    with open_path_or_stdin(request.file) as path:
        algorithm = parse(read_start(path, LARGEST_FILE_BYTES + 1), path.name)
    chosen = preset(request.system, npus=len(algorithm.gpus))
    plain = with_latencies(chosen.parts, chosen.under("astra-sim"))
    parts = with_settings(plain, request.settings) if request.settings else plain
    result = simulate_contest(algorithm, parts, size)
    findings = tuple(build_findings(algorithm, result.played, path.name))
    return Outcome(chosen.name, result, findings, _write(result, target) if target is not None else ())


def _write(contest: Contest, target: Path) -> tuple[Path, ...]:
    """Write the traces and a system that has them, all or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        folder = Path(scratch, "made")
        save(contest.parts, folder, contest.custom)
        names = sorted(path.name for path in folder.iterdir())
        folder.replace(target)
    return tuple(target / name for name in names)


def report(outcome: Outcome) -> dict[str, Any]:
    """Return what `--json` prints."""
    contest = outcome.contest
    return {
        "system": outcome.system,
        "name": contest.algorithm.name,
        "collective": contest.algorithm.collective,
        "ranks": len(contest.algorithm.gpus),
        "comm_size": contest.comm_size,
        "buffer_bytes": contest.buffer_bytes,
        "chunks": contest.algorithm.chunks,
        "chunk_bytes": contest.chunk_bytes,
        "messages": contest.played.messages,
        "longest": contest.played.longest,
        "most_bytes_sent": contest.played.most_bytes,
        "flaws": {code: list(flaws) for code, flaws in contest.played.flaws.items()},
        "notes": dict(contest.played.notes),
        "latency_ns": [dim.latency_ns for dim in interpret(contest.parts).config.topology.dims],
        "finish_ns": contest.own.finish_ns,
        "others": [
            {"name": timed.name, "finish_ns": timed.finish_ns, "why_not": timed.why_not or None}
            for timed in contest.others
        ],
        "files": [str(path) for path in outcome.files],
    }


def text(outcome: Outcome) -> str:
    """Format the outcome for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(outcome))


def _format_lines(outcome: Outcome) -> Iterator[str]:
    contest, played = outcome.contest, outcome.contest.played
    ranks = len(contest.algorithm.gpus)
    yield (
        f"{contest.algorithm.name}: {contest.algorithm.collective} of {format_bytes(contest.comm_size)} by "
        f"{format_counted(ranks, 'GPU')} of {outcome.system}"
    )
    yield (
        f"{format_counted(contest.algorithm.chunks, 'chunk')} of {format_bytes(contest.chunk_bytes)}, "
        f"{format_counted(played.messages, 'message')}, at most {played.longest:,} one after the other; the busiest GPU "
        f"sends {format_bytes(played.most_bytes)}"
    )
    if not played.flaws:
        yield "the result is right: every chunk of every GPU holds what the collective promises"
    for finding in outcome.findings:
        yield f"{finding.level}: {finding.message}"
    for flaws in played.flaws.values():
        yield from (f"    {flaw}" for flaw in flaws[1:_FLAWS_SHOWN])
    yield ""
    yield f"  {'algorithm':<22}{'time':>12}{'algbw':>14}"
    best = find_fastest((contest.own, *contest.others))
    for timed in (contest.own, *contest.others):
        yield _format_row(timed, contest, marked=timed is best)
    yield f"  latency {_describe_latency(contest)}; messages are stored and forwarded whole, and not cut up on their way"
    if outcome.files:
        yield ""
        yield f"Written: {format_counted(len(outcome.files), 'file')} into {outcome.files[0].parent}"
        yield "Simulate jobs with it by --system and --network and the files there; a size other than this one needs other traces."


def _describe_latency(contest: Contest) -> str:
    """Return the latency of a hop in each dimension."""
    hops = [dim.latency_ns for dim in interpret(contest.parts).config.topology.dims]
    return f"{', '.join(format_ns(hop) for hop in hops)} a hop" if any(hops) else "none: the system says 0"


def _format_row(timed: Timed, contest: Contest, *, marked: bool) -> str:
    mark = "→" if marked else " "
    if timed.finish_ns is None:
        return f"{mark} {timed.name:<22}cannot run: {timed.why_not}"
    rate = format_rate(contest.buffer_bytes / max(timed.finish_ns, 1))
    return f"{mark} {timed.name[:21]:<22}{format_ns(timed.finish_ns):>12}{rate:>14}"


@click.command(help=__doc__, epilog="Example: chakra-studio algorithm ring.xml 64MiB --preset hgx-h100")
@click.argument("file", type=PathOption(exists=True, dir_okay=False, allow_dash=True))
@click.argument("size")
@click.option("--preset", "system", required=True, metavar="NAME|FILE", help="A preset, or a system file.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable.")
@click.option(
    "-o",
    "target",
    metavar="FOLDER",
    type=PathOption(file_okay=False),
    help="Write the algorithm as traces, with the system, into this folder.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **given: Any) -> None:
    """Carry out `algorithm`."""
    outcome = run(Request(**given))
    show(outcome, as_json, report, text)
    if outcome.contest.played.flaws:
        ctx.exit(1)
