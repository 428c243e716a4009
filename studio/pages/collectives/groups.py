"""The tabs "Groups × ranks" and "Rank × rank" of Collectives: roles of comm groups, and bytes between ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dash import html

from studio.analysis.collectives.groups import GroupUse, select_shared_use, sum_group_use
from studio.analysis.collectives.roles import Role
from studio.analysis.collectives.traffic import Traffic, label_group
from studio.figures.groups import compute_widest_px, draw_group_matrix
from studio.pages.base.export import Table, build_export_buttons, with_copy_button
from studio.pages.base.figures import build_figure
from studio.pages.base.state import get_session
from studio.pages.base.widgets import build_hint, build_rounded_value, build_table
from studio.units import format_bytes, format_count, format_counted
from studio.views.traffic import UNNAMED, get_roles

_LISTED = 200


def build_traffic_side(traffic: Traffic, view: Mapping[str, Any]) -> list[Any]:
    """Return the side panel of the rank matrix: where its bytes come from, and the choice of a group."""
    total = traffic.message_bytes + traffic.split_bytes + traffic.shared_bytes
    facts = [
        ("messages", traffic.message_bytes, "COMM_SEND nodes, or receives whose send is missing."),
        (
            "all-to-alls, parts recorded",
            traffic.split_bytes,
            "The trace says how much goes to each member (split_bytes_in).",
        ),
        (
            "all-to-alls, equal shares",
            traffic.shared_bytes,
            "The trace does not say how much goes to whom: comm_size ÷ members to each.",
        ),
        (
            "all-to-alls, kept",
            traffic.kept_bytes,
            "The part of an all-to-all that a rank gives itself. It travels nowhere and is not drawn.",
        ),
        (
            "other collectives",
            traffic.elsewhere_bytes,
            "Bytes given to other collectives, not drawn: between which ranks they travel is up to the algorithm.",
        ),
    ]
    rows = [
        (
            html.Span([name, build_hint(name, about)]),
            build_rounded_value(format_bytes(size), format_counted(size, "byte")),
        )
        for name, size, about in facts
    ]
    chosen = view.get("of") or ""
    entries = [("", "all groups", total if not chosen else None)]
    entries += [
        (UNNAMED if name is None else f"={name}", label_group(name), size) for name, size in traffic.groups
    ]
    choices = [
        _build_choice(value, title, size, on=value == chosen) for value, title, size in entries[:_LISTED]
    ]
    more = len(entries) - _LISTED
    return [
        html.H2("What is counted"),
        with_copy_button(build_table(("What", "Bytes"), rows, numeric=(1,)), "what is counted"),
        html.H2("By group", className="cs-coll-gap"),
        html.Ul(choices, className="cs-coll-choices"),
        html.P(f"and {format_counted(more, 'more group')}", className="cs-dim") if more > 0 else None,
    ]


def _build_choice(value: str, title: str, size: int | None, *, on: bool) -> Any:
    change: dict[str, Any] = {
        "data-view": json.dumps({"of": value or None, "rows": None, "cols": None}),
        "aria-pressed": "true" if on else "false",
    }
    amount = (
        html.Span(build_rounded_value(format_bytes(size), format_counted(size, "byte")), className="cs-dim")
        if size is not None
        else None
    )
    return html.Li(html.Button([html.Bdi(title), amount], className="cs-coll-group", **change))


def build_groups_panel(job: str, view: Mapping[str, Any], *, dark: bool) -> Any:
    """Return the matrix of comm groups and ranks, with the inferred role of each group."""
    trace = get_session().trace(job)
    roles = get_roles(get_session(), job, view)
    use, alone = select_shared_use(sum_group_use(trace))
    notes = [_label_role(roles.get(name)) for name in use.groups]
    figure = draw_group_matrix(use, dark=dark, notes=notes)
    groups = _sum_groups(use, roles)
    export = build_export_buttons(
        "groups-and-ranks",
        figure="collectives-groups-figure",
        table=Table(
            ("group", "role_inferred", "ranks", "stride", "which", "nodes", "bytes"),
            [_list_plain_cells(group) for group in groups],
        ),
        title="Comm groups",
    )
    title = html.Div(
        [
            html.H2("Which groups there are, and what they are for"),
            html.Span("bytes per comm group and rank; roles are inferred", className="cs-dim"),
        ]
    )
    role = html.Span(["Role", build_hint("role", _ROLE_HINT)])
    table = build_table(
        ("Group", role, "Ranks", "Stride", "Which", "Nodes", "Bytes, all ranks"),
        [_build_cells(group) for group in groups[:_LISTED]],
        numeric=(2, 3, 5, 6),
    )
    return html.Div(
        [
            html.Div([title, export], className="cs-figure-head"),
            build_group_matrix("collectives-groups-figure", figure, use),
            with_copy_button(table, "comm groups"),
            count_left_out(alone),
        ],
        className="cs-page",
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """A comm group as the table lists it.

    Attributes:
        name: Its name, empty for all ranks.
        role: What it is for, where that is inferred.
        members: How many ranks.
        ranks: Which, the first of many.
        nodes: Nodes of all of them.
        sized: How many of these say how much they move.
        bytes: What these move together.
    """

    name: str
    role: Role | None
    members: int
    ranks: str
    nodes: int
    sized: int
    bytes: int


def _sum_groups(use: GroupUse, roles: Mapping[str, Role]) -> list[_Group]:
    """Return each group with what its ranks do together."""
    nodes, sized, size, members = (
        np.bincount(use.group, weights, minlength=len(use.groups)).astype(int).tolist()
        for weights in (use.count, use.sized, use.bytes, None)
    )
    groups = []
    for index, name in enumerate(use.groups):
        ranks = [use.ranks[rank] for rank in use.rank[use.group == index].tolist()]
        listed = ", ".join(map(str, ranks[:12])) + (f" … {ranks[-1]}" if len(ranks) > 12 else "")
        groups.append(
            _Group(name, roles.get(name), members[index], listed, nodes[index], sized[index], size[index])
        )
    return groups


def _build_cells(group: _Group) -> tuple[Any, ...]:
    """Return a group as a row of the table on the page."""
    amount = build_rounded_value(format_bytes(group.bytes), format_counted(group.bytes, "byte"))
    if group.nodes and not group.sized:
        amount = html.Span("not recorded", title="No node of this group has a size (comm_size).")
    stride = str(group.role.stride) if group.role and group.role.stride else "–"
    name = html.Bdi(group.name or "(all ranks)")
    kind = _build_role_cell(group.role)
    return name, kind, group.members, stride, group.ranks, format_count(group.nodes), amount


def _list_plain_cells(group: _Group) -> tuple[Any, ...]:
    """Return a group as a row of the table that is exported."""
    kind, stride = (group.role.kind, group.role.stride) if group.role else ("", 0)
    return group.name or "all ranks", kind, group.members, stride, group.ranks, group.nodes, group.bytes


def draw_used_matrix(use: GroupUse, *, dark: bool) -> Any:
    """Return the figure of groups and ranks; None where nobody communicates, as all cells would have one colour."""
    return draw_group_matrix(use, dark=dark) if use.count.any() else None


def build_group_matrix(name: str, figure: Any, use: GroupUse) -> Any:
    """Return the component that shows the matrix of groups and ranks, or a sentence where there is none."""
    if not figure:
        words = (
            f"No rank communicates in the {format_counted(len(use.groups), 'comm group')} that the job lists."
            if use.groups
            else "No collective names a comm group, and no group is listed."
        )
        return html.P(words, className="cs-dim")
    return build_figure(name, figure, maxWidth=compute_widest_px(use))


def count_left_out(alone: int) -> Any:
    """Say how many groups of a single rank the matrix omits; None if it omits none."""
    if not alone:
        return None
    subject = "1 group of one rank is" if alone == 1 else f"{format_count(alone)} groups of one rank are"
    return html.P(f"{subject} left out.", className="cs-dim")


_ROLE_HINT = (
    "Inferred, not written in the trace: by the distance of the group's ranks (neighbours: tensor; apart by the size of "
    "those: data; farthest of three nested groupings: pipeline) and by what it does (ALL_TO_ALL: expert; messages from "
    "each rank to the next: pipeline; groups with twice the collectives of neighbours or more: tensor, and those data)."
)


def _label_role(role: Role | None) -> str:
    if role is None or role.kind in ("unknown", "single"):
        return ""
    return f"{role.kind}?" if role.inferred else role.kind


def _build_role_cell(role: Role | None) -> Any:
    if role is None:
        return "–"
    shown = f"{role.kind} (inferred)" if role.inferred else role.kind
    return html.Span([shown, build_hint(f"the rule for {role.kind}", role.rule)])
