"""The facts about a node that the inspector lists: what it is, when it ran, whom it met, and what it has to do with the finish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dash import dcc, html

from studio.analysis.collectives.groups import find_group_name
from studio.analysis.collectives.meeting import MEETS, Meeting, find_meeting
from studio.analysis.job.kinds import infer_counted_type, label_counted_type
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.node_refs import format_node_ref
from studio.analysis.job.nodes import NodeIndex
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_address
from studio.trace import Attribute, Graph, NodeType, Rank, Trace, get_assumed_source, label_collective
from studio.units import format_bytes, format_ns, format_offset, format_rate, format_si
from studio.views.address import choose_shown_run

_MEMBERS_SHOWN = 16
_MOST_NODES = 500_000
"""Of larger jobs who waited for whom is told where another page has worked it out already."""
_BANDWIDTH = (
    "By the time from when all had begun. algbw: the size of the whole array by that time; busbw: made comparable with the bandwidth "
    "of links, whatever the number of ranks (nccl-tests)."
)


def list_node_facts(
    index: NodeIndex, rank: Rank, row: int, attributes: list[Attribute], view: dict[str, Any]
) -> list[tuple[Any, Any]]:
    """Return what is known of a node, each fact with its name."""
    trace = index.trace
    simulated = bool(choose_shown_run(get_session(), view["job"], view))
    return [
        *_list_facts(trace, rank, row, attributes, view),
        *_list_times(index, trace.graph_of(rank), row, _find_lasted(attributes), simulated=simulated),
        *_list_simulated_facts(trace, rank, row, view),
        *_list_meeting_facts(trace, rank, row, view),
        *_list_path_facts(trace, rank, row, view),
    ]


def _list_facts(
    trace: Trace, rank: Rank, row: int, attributes: list[Attribute], view: dict[str, Any]
) -> list[tuple[str, Any]]:
    keep = {name: view.get(name) for name in ("job", "run", "rank", "node")}
    graph = trace.graph_of(rank)
    number = int(graph.type[row])
    values = {attribute.name: attribute.value for attribute in attributes}
    facts: list[tuple[str, Any]] = [
        ("rank", _build_fact_link(str(rank.number), "/timeline", keep, "See its lanes in the timeline")),
        *_list_assumed_facts(rank, keep),
        ("id", str(int(graph.id[row]))),
        ("type", _build_type_link(graph, rank, row, keep)),
    ]
    if number == NodeType.COMM_COLL and isinstance(kind := values.get("comm_type"), int):
        name = label_collective(kind)
        only = {**keep, "by": "type", "only": name}
        facts.append(
            ("collective", _build_fact_link(name, "/collectives", only, "See all collectives of this type"))
        )
    group = find_group_name(trace, rank, row)
    if group is not None:
        listed = trace.group(group)
        shown = _build_group_link(group, number, keep)
        facts.append(("comm group", [shown, *(_build_member_links(listed.ranks, keep) if listed else [])]))
    facts += _list_peer_facts(trace, number, values, keep)
    if isinstance(size := values.get("comm_size"), int):
        facts.append(("bytes", _build_rounded_value(format_bytes(size), size)))
    if isinstance(operations := values.get("num_ops"), int):
        facts.append(("operations", _build_rounded_value(format_si(operations, "FLOP"), operations)))
    return facts


def _build_type_link(graph: Graph, rank: Rank, row: int, keep: dict[str, Any]) -> Any:
    shown = label_counted_type(infer_counted_type(graph, row))
    filters = {"rank": ["matches", str(rank.number)], "type": ["equals", shown]}
    view = {**keep, "f": json.dumps(filters, separators=(",", ":"))}
    return _build_fact_link(shown, "/nodes", view, "List the nodes of this type of the rank")


def _build_group_link(group: str, number: int, keep: dict[str, Any]) -> Any:
    """Return a comm group as a link to its collectives, of a message to what its ranks send each other."""
    shown = group or "(unnamed)"
    if number == NodeType.COMM_COLL:
        only = {**keep, "by": "group", "only": group}
        return _build_fact_link(shown, "/collectives", only, "See the collectives of the group")
    traffic = {**keep, "tab": "traffic", "of": group or None}
    return _build_fact_link(shown, "/collectives", traffic, "See what the ranks of the group send each other")


def _build_member_links(ranks: tuple[int, ...], keep: dict[str, Any]) -> list[Any]:
    """Return the ranks of a group, each as a link to its lanes."""
    links = [part for number in ranks[:_MEMBERS_SHOWN] for part in (", ", _build_lanes_link(number, keep))]
    more = len(ranks) - _MEMBERS_SHOWN
    return [" · ranks ", *links[1:], f" and {more:,} more" if more > 0 else ""]


def _build_lanes_link(rank: int, keep: dict[str, Any], words: str = "", **node: str) -> Any:
    """Return a rank as a link to its lanes in the timeline, with a node of it selected where one is told."""
    view = {name: keep.get(name) for name in ("job", "run")} | {"rank": rank, **node}
    return _build_fact_link(words or str(rank), "/timeline", view, f"See rank {rank}'s lanes in the timeline")


def _list_peer_facts(
    trace: Trace, number: int, values: Mapping[str, Any], keep: dict[str, Any]
) -> list[tuple[str, Any]]:
    """Say of a message which rank is at its other end."""
    ways: dict[int, tuple[str, str]] = {
        NodeType.COMM_SEND: ("sends to", "comm_dst"),
        NodeType.COMM_RECV: ("receives from", "comm_src"),
    }
    label, key = ways.get(number, ("", ""))
    peer = values.get(key)
    if not isinstance(peer, int):
        return []
    words = f"rank {peer}"
    return [(label, words if trace.rank(peer) is None else _build_lanes_link(peer, keep, words))]


def _list_assumed_facts(rank: Rank, keep: dict[str, Any]) -> list[tuple[str, Any]]:
    """Say of a rank that was not recorded which it is equal to."""
    source = get_assumed_source(rank)
    if source is None:
        return []
    words = f"assumed equal to rank {source}"
    return [
        ("recorded", _build_fact_link(words, "/ranks", {"job": keep["job"]}, "See which ranks were recorded"))
    ]


def _build_fact_link(text: str, path: str, view: dict[str, Any], title: str) -> Any:
    """Return a fact as a link to the page that shows more about it."""
    return dcc.Link(text, href=build_address(path, view), title=title)


def _list_simulated_facts(trace: Trace, rank: Rank, row: int, view: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return when the node ran in the simulation that is shown, if one is."""
    run = choose_shown_run(get_session(), view["job"], view)
    if not run:
        return []
    times = get_session().times(view["job"], run)
    first = int(times.first[trace.ranks.index(rank)])
    start = int(times.start_ns[first + row]) if first >= 0 else -1
    if start < 0:
        return [("in the run", "did not run")]
    end = int(times.end_ns[first + row])
    whole = int(times.end_ns.max())
    return [
        (
            "issued in run",
            _build_rounded_value(format_offset(start, whole), f"{start:,} ns after the beginning"),
        ),
        ("callback", _build_rounded_value(format_offset(end, whole), f"{end:,} ns after the beginning")),
        ("took in run", _build_rounded_value(format_ns(end - start), f"{end - start:,} ns")),
    ]


def _list_meeting_facts(trace: Trace, rank: Rank, row: int, view: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return how long a node of communication waited for another rank, and how fast it went then, in what is shown."""
    if int(trace.graph_of(rank).type[row]) not in MEETS:
        return []
    run = choose_shown_run(get_session(), view["job"], view)
    is_known = get_session().kept_of_job("use", view["job"], run or "") is not None
    if run is None or not (is_known or trace.node_count <= _MOST_NODES):
        return []
    times = get_session().times(view["job"], run)
    account = get_session().rank_use(view["job"], run)[0]
    met = find_meeting(trace, times, account.arrivals, rank, row)
    if met is None:
        return []
    facts: list[tuple[str, Any]] = [
        ("waited", _describe_waiting(trace, account, met, rank, row, view)),
        (
            "took then",
            _build_rounded_value(
                format_ns(met.took_ns), f"{met.took_ns:,} ns from when all had begun to its end here"
            ),
        ),
    ]
    if met.algorithm_bytes_per_ns > 0:
        shown = format_rate(met.algorithm_bytes_per_ns)
        if met.bus_bytes_per_ns > 0:
            shown = f"{shown} (algbw), {format_rate(met.bus_bytes_per_ns)} (busbw)"
        facts.append(("bandwidth", html.Span(shown, title=_BANDWIDTH)))
    return facts


def _describe_waiting(
    trace: Trace, account: Ledger, met: Meeting, rank: Rank, row: int, view: dict[str, Any]
) -> Any:
    """Say how long a node waited for another rank; by when ranks were ready, where all are recorded to begin together."""
    place = trace.ranks.index(rank)
    unseen_ns = 0 if met.waited_ns else account.unseen_at(place, row)
    others = f"the last of {met.members:,} to begin" if met.members > 2 else "which began later"
    if unseen_ns:
        others = "which was ready last: all are recorded to begin together, so that this is from when each was ready"
    # Members that ran alike count once.
    met_by, together = account.arrivals.members(place, row), account.arrivals.together(place, row)
    why = "it began last" if met.last_rank == rank.number else "all began together"
    if account.is_recording and len(together) == len(met_by) > 1:
        which = "it" if met.last_rank == rank.number else f"rank {met.last_rank}"
        why = f"{which} was ready last, and all are recorded to begin together"
        if met.last_rank != rank.number:
            why += "; until then this rank was busy, or waited in another node"
    ns = met.waited_ns or unseen_ns
    if not ns:
        return f"for nobody: {why}"
    return [
        _build_rounded_value(format_ns(ns), f"{ns:,} ns"),
        " for ",
        _build_lanes_link(met.last_rank, view, f"rank {met.last_rank}", node=_find_last_node(trace, met)),
        f", {others}",
    ]


def _find_last_node(trace: Trace, met: Meeting) -> str:
    last = trace.rank(met.last_rank)
    assert last is not None, "it is a rank of the job"
    return format_node_ref(trace.graph_of(last), met.last_row)


def _list_path_facts(trace: Trace, rank: Rank, row: int, view: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return why the node is on the critical path, where that is shown."""
    run = choose_shown_run(get_session(), view["job"], view)
    if view.get("crit") != "1" or run is None:
        return []
    words = get_session().whole_path(view["job"], run).why(trace, trace.ranks.index(rank), row)
    keep = {name: view.get(name) for name in ("job", "run", "rank", "node", "crit")}
    shown = (
        _build_fact_link(words, "/timeline", keep, "See the path in the timeline") if words else "not on it"
    )
    return [("critical path", shown)]


def _find_lasted(attributes: list[Attribute]) -> object:
    """Return how long a recorded call lasted with what it called; None for other nodes."""
    values = {attribute.name: attribute.value for attribute in attributes}
    return None if "stream" in values else values.get("inclusive_ns")


def _list_times(
    index: NodeIndex, graph: Graph, row: int, lasted_ns: object, *, simulated: bool
) -> list[tuple[str, Any]]:
    """Return recorded start and duration, labelled as recorded if a simulation is shown too; of a call also how long until it returned."""
    kind = "recorded " if simulated else ""
    start, duration = int(graph.start_ns[row]), int(graph.duration_ns[row])
    shown = format_offset(start - index.origin_ns, index.end_ns)
    hint = (
        f"{start - index.origin_ns:,} ns after the first recorded start of the job; {start:,} ns in the file"
    )
    is_call = isinstance(lasted_ns, int) and lasted_ns > duration > 0 and start >= 0
    own = f"{duration:,} ns"
    own += ", without what it called; the Timeline draws it where it lay between that" if is_call else ""
    facts: list[tuple[str, Any]] = [
        (f"{kind}start", _build_rounded_value(shown, hint) if start >= 0 else "not recorded"),
        (
            f"{kind}{'own time' if is_call else 'duration'}",
            _build_rounded_value(format_ns(duration), own) if duration else "0, or not recorded",
        ),
    ]
    if isinstance(lasted_ns, int) and is_call:
        hint = f"{lasted_ns:,} ns from its start until it returned, with what it called"
        facts.append((f"{kind}whole time", _build_rounded_value(format_ns(lasted_ns), hint)))
    return facts


def _build_rounded_value(shown: str, value: Any) -> Any:
    return html.Span(shown, title=f"{value:,}" if isinstance(value, int) else str(value))
