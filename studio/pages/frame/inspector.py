"""The inspector: every fact about the selected node, the same on every page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dash import Dash, Input, Output, dcc, html

from studio.analysis.collectives.groups import find_group_name
from studio.analysis.graph.neighbours import list_predecessors, list_successors
from studio.analysis.job.completeness import group_ranges, infer_completeness
from studio.analysis.job.function_names import shorten_function_name
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.analysis.job.nodes import NodeIndex
from studio.errors import StudioError
from studio.pages.base.state import RECORDED, get_session, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import build_address, build_breakable_name, build_error_box
from studio.pages.frame.node_facts import list_node_facts
from studio.sim.kinds import COLLECTIVE_KINDS
from studio.trace import (
    Attribute,
    CollectiveType,
    Graph,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    label_collective,
    list_node_attributes,
)
from studio.units import format_count
from studio.views.address import choose_shown_run, rank_of

_NEIGHBOURS_SHOWN = 100
_ITEMS_SHOWN = 200
_TEXT_SHOWN = 4000


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
            html.Dl(_build_pairs(list_node_facts(index, rank, row, attributes, view))),
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


def _build_section(title: str, *children: Any) -> Any:
    """Return a part of the inspector that can be folded away."""
    return html.Details([html.Summary(html.H3(title)), *children], open=True)


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
