"""Draw the graph of a rank as SVG, PDF, PNG or a page, or write it as GraphML or DOT.

JOB is a folder or files of traces, their prefix, or, in the workspace, a job or run. OUT's suffix says what is written: .svg, .pdf and
.png are drawings with a legend, .html is one page that is zoomed, moved and searched and needs nothing else, .graphml and .dot hold
every attribute for other programs. Colours say the type of a node; lines lead from what is waited for to what waits, dashed ones are
control dependencies.

A graph of some thousand nodes is drawn whole; --fold draws blocks of it instead, --around what lies around one node. PDF and PNG need
CairoSVG (chakra-studio[pictures]). What can be read of damaged files is drawn; the exit code is then 4.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click
import msgspec
import numpy as np

from studio.analysis.compare.sides import Side
from studio.analysis.graph.levels import LevelName
from studio.analysis.graph.neighbours import build_adjacency
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.analysis.path.critical import find_critical_path
from studio.analysis.path.of_rank import Crossing, rank_path
from studio.commands.base.forms import FORMS, Form, find_form
from studio.commands.base.names import find_stored_run
from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    NameOrPath,
    PathOption,
    add_size_options,
    allow_damaged,
    json_option,
    quiet_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.prefix import build_missing_job_error, find_by_prefix
from studio.commands.base.terminal import escape_controls
from studio.comparing import RECORDED, build_compared_recording
from studio.errors import StudioError, TraceError
from studio.et import Progress
from studio.et.format import UNSAID, JobSize
from studio.et.write import write_together
from studio.figures import svg_pictures
from studio.figures.graph_exchange import write_dot, write_graphml
from studio.figures.graph_files import Caption, render_dot, render_graphml, render_svg
from studio.figures.graph_page import render_graph_page
from studio.figures.rank_graph import Asked, PathHere, RankGraph, draw_rank, select_rank_part
from studio.session import Session
from studio.store.workspace import Workspace
from studio.trace import NONE, Finding, Int64, NodeType, Rank, Trace
from studio.units import format_counted

STANDARD = Path("-")
_KINDS = tuple(form.suffixes[0].removeprefix(".") for form in FORMS if form.writer == "visualize")
_PICTURES = ("pdf", "png")
_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_EXCHANGED = ("graphml", "dot")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `visualize`.

    Attributes:
        name: A path of traces, or a job or run of the workspace.
        target: The file that is written; `-` for standard output.
        kind: What is written to standard output; for a file its suffix says it.
        rank: Number of the rank; None for the first.
        around: The node in the middle, as addresses name nodes: its id.
        depth: How many dependencies away from it a node may be.
        fold: What the graph is folded by; None to draw each node.
        critical: Whether the critical path is marked.
        dark: Whether a drawing has light lines on a dark ground.
        workspace: Folder of imported jobs; None is the user's.
        size: NPUs and passes, where a workload leaves them open.
    """

    name: str
    target: Path
    kind: str = ""
    rank: int | None = None
    around: str = ""
    depth: int = 2
    fold: LevelName | None = None
    critical: bool = False
    dark: bool = False
    workspace: Path | None = None
    size: JobSize = UNSAID


@dataclass(frozen=True, slots=True)
class Visualized:
    """What was drawn or written.

    Attributes:
        target: Where to.
        kind: As what.
        title: Of what it is.
        words: What is in it.
        nodes, dependencies: How many are in it; blocks and their lines where it is folded.
        critical: How many nodes are marked as on the critical path; None where it was not asked for.
        crossings: Where the critical path comes from other ranks and goes to them.
        findings: What the readers noticed.
    """

    target: Path
    kind: str
    title: str
    words: str
    nodes: int
    dependencies: int
    critical: int | None
    findings: tuple[Finding, ...]
    crossings: tuple[dict[str, Any], ...] = ()


def run(request: Request, *, progress: Progress | None = None) -> Visualized:
    """Draw or write the graph of a rank.

    Raises:
        TraceError: There is no such rank or node, too much to draw, or the suffix is none that is written.
        ConfigError: Nothing is called so.
        StudioError: PDF and PNG cannot be made here.
    """
    kind = _choose_kind(request)
    if kind in _PICTURES and (problem := svg_pictures.explain_no_pictures()):
        raise StudioError(
            f"{request.target}: {problem}",
            hint="pip install 'chakra-studio[pictures]', or name a file ending in .svg or .html.",
        )
    job = _find(request, progress)
    name, trace, spans = job.name, job.trace, job.spans
    rank = _choose_rank(trace, request.rank)
    graph = trace.graph_of(rank)
    around = find_node(graph, request.around) if request.around else NONE
    path = _find_path_here(job, rank) if request.critical else None
    asked = Asked(around, request.depth, request.fold, request.critical, path)
    title = f"{name} · rank {rank.number}"
    if around != NONE:
        title += f" · around node {request.around}"
    if kind in _EXCHANGED and not request.fold:
        part = select_rank_part(build_adjacency(graph), asked)
        pieces = (write_graphml if kind == "graphml" else write_dot)(graph, rank, part)
        _put(request.target, pieces)
        words = f"{format_counted(len(part.rows), 'node')}, {format_counted(len(part.edges), 'dependency', 'dependencies')}."
        return Visualized(
            request.target, kind, title, words, len(part.rows), len(part.edges), None, trace.findings
        )
    drawn = draw_rank(graph, rank, asked, spans(rank) if spans else None)
    caption = Caption(escape_controls(title), drawn.caption, drawn.kinds, request.critical)
    _put(request.target, [_draw_picture(kind, drawn, trace, rank, caption, dark=request.dark)])
    lines = sum(element["group"] == "edges" for element in drawn.elements)
    critical = drawn.critical if request.critical else None
    return Visualized(
        request.target,
        kind,
        title,
        drawn.caption,
        len(drawn.rows),
        lines,
        critical,
        trace.findings,
        _report_crossings(trace, rank, path),
    )


def _choose_kind(request: Request) -> str:
    """Return what is to be written, by the suffix of the target."""
    if request.target == STANDARD:
        if not request.kind:
            raise TraceError(
                f"Standard output has no suffix that says what is written; allowed: {', '.join(_KINDS)}.",
                hint="--as svg",
            )
        return request.kind
    form: Form | None = find_form(request.target, "visualize")
    if form is None:
        problem = "this is a folder" if request.target.is_dir() else "the name has no suffix"
        allowed = ", ".join(f".{kind}" for kind in _KINDS)
        raise TraceError(
            f"{request.target}: {problem}; allowed: a file ending in {allowed}.", hint=f"{request.target}.svg"
        )
    return form.suffixes[0].removeprefix(".")


@dataclass(frozen=True, slots=True)
class _Found:
    """What is drawn: the job, of a simulation what tells the times of a rank's nodes, and the run of the workspace."""

    name: str
    trace: Trace
    spans: Callable[[Rank], tuple[Int64, Int64]] | None = None
    side: Side | None = None


def _find_path_here(job: _Found, rank: Rank) -> PathHere | None:
    """Return what is on a rank of the critical path through all ranks; None for jobs of one rank or without times."""
    if len(job.trace.ranks) < 2:
        return None
    side = job.side
    if side is None:
        if not any((graph.start_ns >= 0).any() for graph in job.trace.graphs):
            return None
        side = build_compared_recording(job.trace, job.name).side
    path = find_critical_path(side.trace, side.times, side.ledger())
    place = next(index for index, each in enumerate(side.trace.ranks) if each.number == rank.number)
    part = rank_path(path, place)
    by = tuple(_name_crossing(side.trace, rank, crossing) for crossing in part.crossings)
    return PathHere(part, by, tuple(each.number for each in side.trace.ranks))


def _name_crossing(trace: Trace, rank: Rank, crossing: Crossing) -> str:
    """Return the name of the collective or message by which the path changes the rank."""
    sides = [(rank, crossing.row), (trace.ranks[crossing.other], crossing.other_row)]
    nodes = [(trace.graph_of(of), row) for of, row in sides if row != NONE]
    communicate = [each for each in nodes if int(each[0].type[each[1]]) in _COMMUNICATION]
    graph, row = (communicate or nodes)[0]
    return graph.strings[int(graph.name[row])] or f"node {format_node_ref(graph, row)}"


def _report_crossings(trace: Trace, rank: Rank, path: PathHere | None) -> tuple[dict[str, Any], ...]:
    """Return where the path comes and goes, as plain values."""

    def report_node(of: Rank, row: int) -> dict[str, Any] | None:
        if row == NONE:
            return None
        graph = trace.graph_of(of)
        return {
            "rank": of.number,
            "id": format_node_ref(graph, row),
            "name": graph.strings[int(graph.name[row])],
        }

    return (
        tuple(
            {
                "way": "enters" if crossing.enters else "leaves",
                "at_ns": crossing.at_ns,
                "by": by,
                "node": report_node(rank, crossing.row),
                "rank": path.numbers[crossing.other],
                "other_node": report_node(trace.ranks[crossing.other], crossing.other_row),
            }
            for crossing, by in zip(path.on_rank.crossings, path.by, strict=True)
        )
        if path
        else ()
    )


def _find(request: Request, progress: Progress | None) -> _Found:
    """Return the job, or the job and the run, that is named."""
    paths: list[Path] = [Path(request.name)] if Path(request.name).exists() else find_by_prefix(request.name)
    if paths:
        return _Found(*read_one_job(paths, {}, progress, verb="Draw", size=request.size))
    root = request.workspace or Workspace.default_root()
    if not root.is_dir():
        raise build_missing_job_error(request.name, "jobs")
    session = Session(Workspace(root))
    job, run_id = find_stored_run(session.workspace, request.name)
    if run_id == RECORDED:
        return _Found(session.workspace.info(job).name, session.trace(job))
    side = session.load_side(job, run_id)
    trace, times = side.side.trace, side.side.times

    def get_spans(rank: Rank) -> tuple[Int64, Int64]:
        first = int(times.first[trace.ranks.index(rank)])
        count = len(trace.graph_of(rank))
        if first < 0:
            nothing = np.full(count, NONE, np.int64)
            return nothing, nothing
        return times.start_ns[first : first + count], times.end_ns[first : first + count]

    return _Found(side.name, trace, get_spans, side.side)


def _choose_rank(trace: Trace, number: int | None) -> Rank:
    if not trace.ranks:
        raise TraceError("This job has no ranks.", hint="Name a folder with at least one trace file.")
    return trace.ranks[0] if number is None else trace.known_rank(number)


def _draw_picture(
    kind: str, drawn: RankGraph, trace: Trace, rank: Rank, caption: Caption, *, dark: bool
) -> bytes:
    if kind == "html":
        return render_graph_page(drawn, trace.graph_of(rank), rank, caption).encode()
    if kind in _EXCHANGED:
        return (render_graphml if kind == "graphml" else render_dot)(drawn.elements).encode()
    text = render_svg(drawn.elements, dark=dark, caption=caption)
    if kind == "svg":
        return text.encode()
    dimensions = re.search(r'width="([0-9.]+)" height="([0-9.]+)"', text)
    assert dimensions is not None
    size = float(dimensions[1]), float(dimensions[2])
    return (svg_pictures.render_pdf if kind == "pdf" else svg_pictures.render_png)(text, size)


def _put(target: Path, pieces: Iterable[bytes]) -> None:
    if target == STANDARD:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    with write_together() as put:
        put(target, pieces)


def report(done: Visualized) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "target": str(done.target),
        "kind": done.kind,
        "title": done.title,
        "nodes": done.nodes,
        "dependencies": done.dependencies,
        "critical_nodes": done.critical,
        "crossings": list(done.crossings),
        "words": done.words,
        "findings": [msgspec.to_builtins(finding) for finding in done.findings],
    }


def text(done: Visualized) -> str:
    """Say what was written."""
    return (
        escape_controls(f"{done.title}: {done.words}")
        + "\n"
        + escape_controls(f"1 file written: {done.target}")
    )


@click.command(help=__doc__, epilog="Example: chakra-studio visualize traces/ -o rank0.html --critical-path")
@click.argument("name", metavar="JOB", type=NameOrPath())
@click.option(
    "-o", "--out", "target", required=True, metavar="OUT", type=PathOption(), help="The file that is written; - prints it."
)  # fmt: skip
@click.option("--as", "kind", type=click.Choice(_KINDS), help="What is printed where OUT is -.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="The rank.  [default: the first]")
@click.option("--around", metavar="ID", default="", help="Draw what lies around the node with this id.")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many dependencies away from it.  [default: 2]",
)
@click.option(
    "--fold", type=click.Choice(get_args(LevelName)), help="Draw blocks of nodes by what tells them apart."
)
@click.option(
    "--critical-path",
    "critical",
    is_flag=True,
    help="Mark the critical path through all ranks where it is on this one, and where it comes and goes.",
)
@click.option(
    "--theme",
    type=click.Choice(["light", "dark"]),
    default="light",
    help="Ground of drawings.  [default: light]",
)
@add_size_options
@json_option
@quiet_option
@workspace_option
@allow_damaged
@click.pass_context
def command(
    ctx: click.Context,
    /,
    depth: int | None,
    theme: Literal["light", "dark"],
    as_json: bool,
    quiet: bool,
    allow_damaged: bool,
    npus: int | None,
    passes: int | None,
    **given: Any,
) -> None:
    """Carry out `visualize`."""
    _refuse_contradictions(given, depth, as_json)
    request = Request(size=JobSize(npus, passes), depth=depth or 2, dark=theme == "dark", **given)
    done = run(request, progress=build_progress_line())
    for finding in done.findings:
        warn(finding)
    if request.target == STANDARD:
        if not quiet:
            click.echo(text(done).split("\n", maxsplit=1)[0], err=True)
    elif as_json or not quiet:
        show(done, as_json, report, text)
    end_with_losses(ctx, done.findings, allow_damaged)


def _refuse_contradictions(given: dict[str, Any], depth: int | None, as_json: bool) -> None:
    standard = given["target"] == STANDARD
    if given["around"] and given["fold"]:
        raise click.UsageError(
            "--around draws nodes and --fold blocks of the whole graph; allowed: one of them."
        )
    if depth is not None and not given["around"]:
        raise click.UsageError("--depth says how far from a node; allowed: together with --around.")
    if as_json and standard:
        raise click.UsageError("--json prints about the file written, and OUT is standard output already.")
    if given["kind"] and not standard:
        raise click.UsageError("--as says what is printed where OUT is -; the suffix of a file says it.")
    kind = given["kind"] or given["target"].suffix.lower().removeprefix(".")
    if given["critical"] and kind in (*_EXCHANGED, "gv") and not given["fold"]:
        raise click.UsageError(f"--critical-path is marked in drawings; {kind} holds the graph itself.")
