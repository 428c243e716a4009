"""Sentences of the Graph page about paths, gates and differences."""

from __future__ import annotations

from studio.analysis.graph.critical import list_gates
from studio.comparing import RECORDED
from studio.units import format_count, format_counted, format_ns
from studio.views.address import list_run_options
from studio.views.graph import build_part, get_graph
from studio.views.graph_paint import schedule_of
from studio.views.graph_request import Request


def name_of(asked: Request, row: int) -> str:
    """Return the name of a node for a sentence."""
    graph = get_graph(asked)
    return graph.strings[int(graph.name[row])] or f"node {int(graph.id[row])}"


def describe_paths(asked: Request) -> str:
    """Describe the paths between two nodes."""
    if asked.anchor < 0:
        return "A path has two ends: select the node where it begins, press P, and select the other."
    start, other = name_of(asked, asked.anchor), name_of(asked, asked.centre)
    if asked.anchor == asked.centre:
        return f"The path begins at {start}: select the node where it ends."
    part = build_part(asked)
    if len(part.rows) == 2 and not len(part.edges):
        return f"No path of dependencies leads from {start} to {other}, nor back."
    nodes = format_counted(len(part.rows), "node")
    if part.left_out:
        every = format_count(len(part.rows) + part.left_out)
        if len(part.edges) < len(part.rows) - 1:
            return f"The beginning and the end of a shortest path between {start} and {other}: {nodes}; {every} are on any path."
        return f"A shortest path between {start} and {other}: {nodes}; {every} are on any path."
    return f"All paths between {start} and {other}: {nodes} and {format_counted(len(part.edges), 'dependency', 'dependencies')}."


def gate_sentence(asked: Request) -> str:
    """Describe the chain of gates that ends at a node."""
    plan, row = schedule_of(asked), asked.centre
    chain = list_gates(plan, row, len(get_graph(asked)))
    text = f"What {name_of(asked, row)} waited for last, and so on up: {format_counted(len(chain), 'node')}"
    drawn = len(build_part(asked).rows)
    if drawn < len(chain):
        text += f", the last {format_count(drawn)} drawn"
    if plan.basis == "nodes" or plan.start_ns[row] < 0:
        return f"{text}."
    waited = int((plan.start_ns[chain[1:]] - plan.end_ns[chain[:-1]]).clip(0).sum())
    since = format_ns(int(plan.end_ns[row] - plan.start_ns[chain[0]]))
    return f"{text}; {since} from the first beginning to its end, {format_ns(waited)} of it between nodes."


def describe_difference(asked: Request) -> str:
    """Say which runs are compared, and what the sign means."""
    if asked.against is None or asked.run is None:
        return " There is no other run of this job to compare with: simulate it on another system."
    names = {option["value"]: option["label"] for option in list_run_options(asked.session, asked.job)}
    other, shown = (names.get(run or RECORDED, run) for run in (asked.against, asked.run))
    return f" Colour: how much longer (+) or shorter (−) a node takes with {other} than with {shown}."
