"""The inspector: every fact about the selected node, the same on every page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dash import Dash, Input, Output, dcc, html

from studio.analysis.collectives.groups import find_group_name
from studio.analysis.collectives.meeting import MEETS, Meeting, find_meeting
from studio.analysis.graph.neighbours import list_predecessors, list_successors
from studio.analysis.job.completeness import group_ranges, infer_completeness
from studio.analysis.job.function_names import shorten_function_name
from studio.analysis.job.kinds import infer_counted_type, label_counted_type
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.analysis.job.nodes import NodeIndex
from studio.errors import StudioError
from studio.pages.base.state import RECORDED, get_session, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_address, build_breakable_name, build_error_box
from studio.sim.kinds import COLLECTIVE_KINDS
from studio.trace import (
    Attribute,
    CollectiveType,
    Graph,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    get_assumed_source,
    label_collective,
    list_node_attributes,
)
from studio.units import format_bytes, format_count, format_ns, format_offset, format_rate, format_si
from studio.views.address import choose_shown_run, rank_of

_NEIGHBOURS_SHOWN = 100
_MEMBERS_SHOWN = 16
_ITEMS_SHOWN = 200
_TEXT_SHOWN = 4000
_MOST_NODES = 500_000
"""Of larger jobs who waited for whom is told where another page has worked it out already."""
_BANDWIDTH = (
    "By the time from when all had begun. algbw: the size of the whole array by that time; busbw: made comparable with the bandwidth "
    "of links, whatever the number of ranks (nccl-tests)."
)


def connect(app: Dash) -> None:
    """Make the inspector follow the selection."""

    # Called once something is selected.
    @app.callback(Output("inspector", "children"), Input("selection", "data"), prevent_initial_call=True)
    def show(selection: str | None) -> Any:
        view: dict[str, Any] = json.loads(selection or "{}")
        if not view:
            return None
        try:
            index = get_session().node_index(view["job"])
            rank = rank_of(index.trace, view)
            row = find_node(index.trace.graph_of(rank), view["node"])
            return merge_static_parts(_build_node(index, rank, row, view))
        except StudioError as error:
            return html.Div(
                [_build_head("No node", None, view), *_build_pinned_line(view), build_error_box(error)],
                className="cs-inspector",
            )


def format_pin(view: Mapping[str, Any], rank: Rank) -> str:
    """Return the pin that names the node of a view, as `assets/frame/pin.mjs` reads it: job, run, rank and node.

    The run is named even where the address leaves it open: which is shown then depends on what else was simulated.
    """
    run = choose_shown_run(get_session(), view["job"], view) or RECORDED
    return "/".join([view["job"], run, str(rank.number), view["node"]])


def _build_head(shown: str, rank: Rank | None, view: dict[str, Any], *, title: str | None = None) -> Any:
    """Return the name of the node, and buttons that pin and close; without a rank there is nothing to pin."""
    pinned = bool(view.get("pin"))
    buttons = [
        _build_button("Close", "Close the inspector", "close", node=None, **({"pin": None} if pinned else {}))
    ]
    if pinned:
        buttons.insert(0, _build_button("Unpin", "Follow the selection again", "pin", pin=None))
    elif rank is not None:
        stays = "Stay on this node while the selection moves, also to other pages"
        buttons.insert(0, _build_button("Pin", stays, "pin", pin=format_pin(view, rank)))
    return html.Div(
        [html.H2(build_breakable_name(shown), title=title), html.Span(buttons)],
        className="cs-inspector-head",
    )


def _build_button(words: str, title: str, held: str, **changes: Any) -> Any:
    """Return a button of the head, which keeps the focus where the inspector is drawn anew."""
    about = {**_build_view_change(**changes), "data-held": held}
    return html.Button(words, className="cs-button-quiet", title=title, **about)


def _build_pinned_line(view: dict[str, Any]) -> list[Any]:
    """Say of a pinned node that it is one, and of which job and run: the page may show others."""
    if not view.get("pin"):
        return []
    try:
        of = get_workspace().info(view["job"]).name
        run = choose_shown_run(get_session(), view["job"], view)
        of += f", {get_workspace().run_info(view['job'], run).label}" if run else ", as recorded"
    except StudioError:
        of = str(view["job"])[:60]
    select = html.Button(
        "Select it",
        className="cs-button-quiet",
        title="Make it the selection of the page again",
        **_build_view_change(**{name: view.get(name) for name in ("job", "run", "rank", "node")}),
    )
    where = f"rank {str(view.get('rank'))[:20]} of {of}"
    return [html.P([html.Strong("Pinned: "), html.Bdi(where), " ", select], className="cs-pinned")]


def _build_node(index: NodeIndex, rank: Rank, row: int, view: dict[str, Any]) -> Any:
    trace = index.trace
    graph = trace.graph_of(rank)
    attributes = list_node_attributes(graph, row, rank.slots)
    name = graph.strings[int(graph.name[row])] or "(no name)"
    return html.Div(
        [
            _build_head(_format_value(shorten_function_name(name)), rank, view, title=_format_value(name)),
            *_build_pinned_line(view),
            html.Dl(
                _build_pairs(
                    [
                        *_list_facts(trace, rank, row, attributes, view),
                        *_list_times(
                            index,
                            graph,
                            row,
                            _find_lasted(attributes),
                            simulated=bool(choose_shown_run(get_session(), view["job"], view)),
                        ),
                        *_list_simulated_facts(trace, rank, row, view),
                        *_list_meeting_facts(trace, rank, row, view),
                        *_list_path_facts(trace, rank, row, view),
                    ]
                )
            ),
            _build_neighbours("Waits for", list_predecessors(graph, row), graph, view),
            _build_neighbours("Waited for by", list_successors(graph, row), graph, view),
            _build_attributes(attributes),
            _build_inputs_outputs(graph, row),
            _list_unknown_fields(graph, row),
            _build_page_links(
                view,
                timed=int(graph.start_ns[row]) >= 0,
                explained=_build_explain_address(trace, rank, row, attributes, view),
                meets=int(graph.type[row]) == NodeType.COMM_COLL,
            ),
        ],
        className="cs-inspector",
    )


def _build_view_change(**changes: Any) -> dict[str, Any]:
    """Return the attribute that makes a click change the view."""
    return {"data-view": json.dumps(changes)}


def _build_pairs(facts: Sequence[tuple[Any, Any]]) -> list[Any]:
    return [part for label, value in facts for part in (html.Dt(label), html.Dd(value))]


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


def _build_section(title: str, *children: Any) -> Any:
    """Return a part of the inspector that can be folded away."""
    return html.Details([html.Summary(html.H3(title)), *children], open=True)


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


def _build_neighbours(title: str, rows: list[tuple[int, bool]], graph: Graph, view: dict[str, Any]) -> Any:
    """Return a list of neighbours, each one click away."""
    items = []
    # The page may have gone on to another rank than that of a pinned node.
    chosen = {name: view.get(name) for name in ("job", "run", "rank")} if view.get("pin") else {}
    for row, is_data in rows[:_NEIGHBOURS_SHOWN]:
        kind = html.Span("data" if is_data else "ctrl", className="cs-tag")
        if row < 0:
            missing = int((graph.data if is_data else graph.ctrl).dangling[-1 - row])
            items.append(html.Li([kind, html.Span(f"id {missing}: not in the file", className="cs-dim")]))
            continue
        ref = format_node_ref(graph, row)
        name = graph.strings[int(graph.name[row])] or f"node {ref}"
        address = build_address("", view, node=ref)
        items.append(
            html.Li(
                [
                    kind,
                    html.A(
                        html.Bdi(shorten_function_name(name)),
                        href=address,
                        title=f"{name} (id {ref})",
                        **_build_view_change(**chosen, node=ref),
                    ),
                ]
            )
        )
    more = len(rows) - len(items)
    return _build_section(
        f"{title} {format_count(len(rows))}",
        html.Ul(items, className="cs-neighbours") if items else html.P("nothing", className="cs-dim"),
        html.P(f"and {more:,} more", className="cs-dim") if more else None,
    )


def _build_attributes(attributes: list[Attribute]) -> Any:
    facts: list[tuple[Any, Any]] = []
    for attribute in attributes:
        kind = html.Span(ValueKind(attribute.kind).name.lower().replace("_", " "), className="cs-kind")
        label = html.Span([*build_breakable_name(_format_value(attribute.name) or "(no name)"), kind])
        doc = html.Div(_format_value(attribute.doc), className="cs-dim") if attribute.doc else None
        facts.append((label, html.Div([_build_value(attribute), doc])))
    body = html.Dl(_build_pairs(facts)) if facts else html.P("none", className="cs-dim")
    return _build_section(f"Attributes {len(attributes)}", body)


def _build_value(attribute: Attribute) -> Any:
    value = attribute.value
    if attribute.kind == ValueKind.NONE:
        return html.Span("no value", className="cs-dim")
    if isinstance(value, list):
        shown = "\n".join(_format_value(item) for item in value[:_ITEMS_SHOWN])
        more = f"\n… {len(value) - _ITEMS_SHOWN:,} more" if len(value) > _ITEMS_SHOWN else ""
        return html.Div(f"{shown}{more}" if value else "empty list", className="cs-value", tabIndex=0)
    text = _format_value(value)
    if (
        attribute.name == "comm_type"
        and isinstance(value, int)
        and value in CollectiveType._value2member_map_
    ):
        text = f"{value} ({label_collective(value)})"
    return html.Div(text, className="cs-value", tabIndex=0 if len(text) > 200 else None)


def _format_value(value: Any) -> str:
    text = value.hex(" ") if isinstance(value, bytes) else str(value)
    return (
        text
        if len(text) <= _TEXT_SHOWN
        else f"{text[:_TEXT_SHOWN]} … {len(text) - _TEXT_SHOWN:,} more characters"
    )


def _build_inputs_outputs(graph: Graph, row: int) -> Any:
    if not len(graph.io):
        return None
    parts = []
    for title, codes in (("Inputs", graph.io[row, :3]), ("Outputs", graph.io[row, 3:])):
        if codes[0] < 0:
            continue
        texts = [graph.strings[int(code)] for code in codes]
        facts = [
            (label, html.Div(_format_value(text), className="cs-value", tabIndex=0))
            for label, text in zip(("values", "shapes", "types"), texts, strict=True)
        ]
        parts.append(_build_section(title, html.Dl(_build_pairs(facts))))
    return html.Div(parts)


def _list_unknown_fields(graph: Graph, row: int) -> Any:
    """Show fields of the node that this version does not know, as bytes."""
    pieces = [graph.strings.raw(int(code)) for code in graph.extra[graph.extra_row == row]]
    if not pieces:
        return None
    return _build_section("Unknown fields", html.Div(_format_value(b"".join(pieces)), className="cs-value"))


def _build_explain_address(
    trace: Trace, rank: Rank, row: int, attributes: list[Attribute], view: dict[str, Any]
) -> str | None:
    """Return the link to Explain for a collective; None for other nodes and unknown sizes."""
    values = {attribute.name: attribute.value for attribute in attributes}
    kind, size = values.get("comm_type"), values.get("comm_size")
    number = int(trace.graph_of(rank).type[row])
    if number != NodeType.COMM_COLL or not isinstance(kind, int) or not isinstance(size, int):
        return None
    name = label_collective(kind).lower()
    listed = trace.group(find_group_name(trace, rank, row))
    run = choose_shown_run(get_session(), view["job"], view)
    world = infer_completeness(trace).world
    if name not in COLLECTIVE_KINDS or world < 2:
        return None
    keep = {name: view.get(name) for name in ("job", "rank", "node")}
    ranges = group_ranges(listed.ranks if listed else ())
    return build_address(
        "/explain",
        {
            **keep,
            "run": run or None,
            "collective": name,
            "size": str(size),
            "npus": None if run else str(world),
            "ranks": ",".join(f"{part.start}-{part.stop - 1}" for part in ranges) or None,
        },
    )


def _build_page_links(view: dict[str, Any], *, timed: bool, meets: bool, explained: str | None = None) -> Any:
    keep = {name: view.get(name) for name in ("job", "run", "rank", "node")}
    places = [("Graph", "/graph"), ("Nodes", "/nodes")]
    if timed or get_workspace().info(view["job"]).runs:
        places.append(("Timeline", "/timeline"))
    if meets:
        places.append(("Collectives", "/collectives"))
    links = [dcc.Link(name, href=build_address(path, keep)) for name, path in places]
    if explained:
        links.append(dcc.Link("Explain", href=explained, title="What this collective costs, by every way"))
    between = [part for anchor in links for part in (" · ", anchor)]
    return html.Div([html.H3("Open in"), html.Div(between[1:])])
