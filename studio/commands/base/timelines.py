"""Write timelines for other viewers: issue and callback lines, simulator logs, Chrome traces, Perfetto files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from studio.analysis.timeline.calls import find_calls
from studio.analysis.timeline.chrome import HEAD, iterate_chrome_events
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.perfetto import INSTALL, explain_unwritable, iterate_perfetto_events
from studio.commands.base.forms import CHROME, LINES, LOG, PERFETTO
from studio.errors import StudioError, TraceError
from studio.et import events
from studio.et.events import finish_line, format_log_line, list_line_ends
from studio.et.write import write_together
from studio.files import open_file
from studio.sim.result import SimResult, compute_exposed_ns
from studio.store.durable_files import write_atomically
from studio.timeline import recorded
from studio.trace import Trace


@dataclass(frozen=True, slots=True)
class TimelineForm:
    """A form in which a timeline can be written.

    Attributes:
        name: What `--to` calls it.
        suffix: The end of file names that ask for it.
        title: What it is, in words.
        in_cycles: Whether it counts time in cycles, line by line in the order of events across ranks.
    """

    name: str
    suffix: str
    title: str
    in_cycles: bool = False


FORMS = (
    TimelineForm("csv", LINES.suffixes[0], "issue and callback lines", in_cycles=True),
    TimelineForm("log", LOG.suffixes[0], "a simulator's log", in_cycles=True),
    TimelineForm("chrome", CHROME.suffixes[0], "a Chrome trace"),
    TimelineForm("perfetto", PERFETTO.suffixes[0], "a trace in Perfetto's own format"),
)
SUFFIXES = tuple(form.suffix for form in FORMS)
"""Forms of a timeline, by the suffix that asks for them."""


def find_timeline_form(path: Path) -> TimelineForm | None:
    """Return the form that a file's name asks for, None where it asks for none."""
    return next((form for form in FORMS if form.suffix == path.suffix), None)


def refuse_unwritable(path: Path) -> None:
    """Raise an error early if the format needs a package that is not installed.

    Raises:
        StudioError: The form is Perfetto's own, and the package that writes it is not there.
    """
    reason = explain_unwritable() if path.suffix == ".pftrace" else ""
    if reason:
        raise StudioError(
            f"{path}: {reason[0].lower()}{reason[1:]}",
            hint=f"{INSTALL}, or name a file ending in .json: a Chrome trace, which Perfetto opens, too.",
        )


def is_timeline(path: Path) -> bool:
    """Whether a file is one that `write_timeline` wrote."""
    with open_file(path) as stream:
        start = stream.read(4096)
    if path.suffix == ".pftrace":
        # A Perfetto file is a sequence of packets, each starting with this byte.
        return start[:1] == b"\n"
    return (path.suffix in (".csv", ".log") and events.sniff(start)) or (
        path.suffix == ".json" and start.startswith(HEAD.encode())
    )


def write_timeline(trace: Trace, path: Path) -> Path:
    """Write the recorded times in the format that the suffix names.

    Raises:
        TraceError: No node has a start.
        StudioError: The form is Perfetto's own, and the package that writes it is not there.
    """
    pieces = iterate_timeline(trace, path.suffix, str(path))
    with write_together() as put:
        put(path, pieces)
    return path


def iterate_timeline(trace: Trace, suffix: str, name: str) -> Iterator[bytes]:
    """Return the recorded times in the format of a suffix, piece by piece.

    Args:
        trace: The job.
        suffix: One of `SUFFIXES`.
        name: What is written, for messages.

    Raises:
        TraceError: No node has a start.
        StudioError: The form is Perfetto's own, and the package that writes it is not there.
    """
    if not any((graph.start_ns >= 0).any() for graph in trace.graphs):
        raise TraceError(
            f"{name}: no node of the trace has a start, so there is no timeline to write.",
            hint="Simulate the trace first: chakra-studio simulate … --events FILE writes a timeline.",
        )
    calls = find_calls(trace)
    if suffix in _LINES:
        pieces = [of_graph.pieces for of_graph in calls]
        cuts = [(cut.row, cut.start_ns, cut.end_ns) for cut in pieces]
        return (line.encode(errors="replace") for line in _LINES[suffix](trace, cuts))
    return iterate_gantt_file(Gantt(trace, recorded(trace), calls=calls), suffix)


_LINES: dict[str, Callable[[Trace, events.Cuts], Iterator[str]]] = {
    ".csv": events.write,
    ".log": events.write_log,
}


def holds_order(path: Path) -> bool:
    """Whether this format holds the order of events across ranks, which needs every rank simulated."""
    form = find_timeline_form(path)
    return form is None or form.in_cycles


def write_events(result: SimResult, path: Path) -> None:
    """Write events in the format of the suffix, atomically.

    A file ending in `.json` becomes a Chrome trace, one in `.pftrace` a trace in Perfetto's own format, any other gets a
    line per event, in the order they happened, one in `.log` as ASTRA-sim logs them. For those every rank must have been
    simulated.

    Raises:
        ConfigError: The file cannot be written.
        StudioError: The package that writes Perfetto's format is not there.
    """
    refuse_unwritable(path)
    with write_atomically(path, "--events") as stream:
        if holds_order(path):
            stream.writelines(
                map(format_log_line, format_event_lines(result))
                if path.suffix == ".log"
                else format_event_lines(result)
            )
            if path.suffix == ".log":
                stream.writelines(_finish_lines(result))
            return
        numbers = [rank.number for rank in result.trace.ranks]
        stands_for = [numbers[place] for place in result.representative.tolist()]
        gantt = Gantt(result.trace, result.timeline(sorted(set(stands_for))), stands_for=stands_for)
        # Below the text, which stays empty: Perfetto's format is none.
        stream.buffer.writelines(iterate_gantt_file(gantt, path.suffix))


def _finish_lines(result: SimResult) -> Iterator[str]:
    columns = result.finish_ns.tolist(), compute_exposed_ns(result).tolist()
    for rank, finish, exposed in zip(result.trace.ranks, *columns, strict=True):
        yield finish_line(rank.number, finish, exposed)


def format_event_lines(result: SimResult) -> Iterator[str]:
    """Yield the events as `issue,sys->id=0,tick=0,node->id=1,node->name=…,node->type=4` and `callback,…`."""
    numbers = [rank.number for rank in result.trace.ranks]
    ends = [list_line_ends(graph) for graph in result.trace.graphs]
    of_rank = [ends[rank.graph] for rank in result.trace.ranks]
    columns = (result.event_end, result.event_rank, result.event_ns, result.event_row)
    for ended, rank, tick, row in zip(*(column.tolist() for column in columns), strict=True):
        word = "callback" if ended else "issue"
        yield f"{word},sys->id={numbers[rank]},tick={tick},{of_rank[rank][row]}\n"


def iterate_gantt_file(gantt: Gantt, suffix: str) -> Iterator[bytes]:
    """Yield the bytes of a Chrome trace (`.json`) or Perfetto file (`.pftrace`).

    Raises:
        StudioError: The package that writes Perfetto's format is not there.
    """
    if suffix == ".pftrace":
        return iterate_perfetto_events(gantt)
    return (piece.encode() for piece in iterate_chrome_events(gantt))
