"""Findings: what is wrong with this job, what follows from it, and what can be mended?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import dash
from dash import Input, Output, callback, dcc, html, no_update

from studio.doctor import CHECKS, REPAIRS, Change, Diagnosis, Examination
from studio.doctor.diagnosis import LEVELS
from studio.errors import StudioError
from studio.jobs.mending import origin, start_mending
from studio.pages._asked import FINDINGS, Asked, answer, answered, asks, stores
from studio.pages._export import Table, exports
from studio.pages._state import session, tasks, workspace
from studio.pages._still import still
from studio.pages._widgets import (
    error_box,
    findings_badge,
    guarded,
    labelled,
    link,
    loading,
    no_job,
    page,
    unsaid_with_job,
)
from studio.sim.agreement import rank_list
from studio.store.tasks import ACTIVE, dismiss, wait
from studio.store.workspace import JobInfo
from studio.trace import Level, Trace
from studio.units import format_count

dash.register_page(__name__, path="/findings", name="Findings", title="Findings · Chakra Studio", order=8)

_AT_ONCE_S = 2.0
"""For how long a repair is waited for; after that it goes on in the background."""
_GOES_ON = (
    "The repair continues in the background. The bar above shows its progress; the new job will appear on Home."
)
_LEVEL_WORDS = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("note", "notes")}


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(
        [
            html.Div(id="findings-error"),
            html.Div(page("Findings", loading("Checking the job…")), id="findings-body"),
            stores(FINDINGS),
        ]
    )


@callback(Output("findings-body", "children"), Input("view", "data"))
@guarded
def show(view: dict[str, Any]) -> Any:
    """Show what is wrong with the job of the view, the finding of the view opened."""
    if not view.get("job"):
        return no_job()
    info, found = workspace().info(view["job"]), session().examination(view["job"])
    dash.set_props("findings-badge", {"children": findings_badge(found)})
    return still(
        page(
            "Findings",
            _mended_from(info),
            _list(found, view),
            _passed(found),
            controls=[*_counts(found), *_repair_all(found, info.id)],
        )
    )


@callback(
    Output("findings-error", "children"),
    answered(FINDINGS),
    Input(FINDINGS, "data"),
    prevent_initial_call=True,
)
def change(asked: Asked | None) -> Any:
    """Mend the job and open the new one; or delete a mended one and go back to what it was made of."""
    if not asked:
        return no_update, no_update
    # The button names the job: by the time of a second click the page may show another.
    job, _, rest = asked["of"].partition(" ")
    try:
        if asked["verb"] == "mend":
            there = _mend(job, rest.split(","))
        else:
            workspace().delete(job)
            there = rest
    except StudioError as error:
        return error_box(error, title="That did not work"), answer(FINDINGS, asked)
    if there is None:
        dash.set_props("activity-poke", {"data": time.time()})
        return html.P(_GOES_ON, className="cs-dim"), answer(FINDINGS, asked)
    # The job switch in the frame lists the jobs.
    dash.set_props("imported", {"data": time.time()})
    return None, answer(FINDINGS, asked, go=link("/findings", {"job": there}))


def _mend(job: str, codes: Sequence[str]) -> str | None:
    """Return the id of a job mended in the background; None where that takes longer than people like to wait."""
    started = start_mending(tasks(), session(), job, codes)
    task = wait(tasks(), started.id, _AT_ONCE_S)
    if task is None or task.status == "cancelled":
        raise StudioError("The repair was cancelled.")
    if task.error:
        dismiss(tasks(), task.id)
        raise StudioError(task.error.message, hint=task.error.hint)
    if task.status in ACTIVE:
        return None
    dismiss(tasks(), task.id)
    return task.result


unsaid_with_job("findings-error")


def _counts(found: Examination) -> list[Any]:
    counts = [(level, found.count(level)) for level in LEVELS]
    fine = html.Span("no problems", className="fi-count fi-fine")
    return [
        *([] if found.count("error") or found.count("warning") or not found.diagnoses else [fine]),
        *(_count(level, count) for level, count in counts if count),
    ]


def _count(level: Level, count: int) -> Any:
    text = f"{format_count(count)} {_LEVEL_WORDS[level][count != 1]}"
    return html.Span(text, className=f"cs-level-{level} fi-count")


def _repair_all(found: Examination, job: str) -> list[Any]:
    """Return the button that mends everything that misleads or stops a simulation, where there is more than one thing."""
    codes = [code for code in REPAIRS if any(one.repair == code for one in found.diagnoses)]
    bad = [
        code for code in codes if any(one.repair == code and one.level != "info" for one in found.diagnoses)
    ]
    space = html.Span(style={"flex": 1})
    save = _save(found)
    if len(bad) < 2:
        return [space, *save]
    titles = "; ".join(REPAIRS[code].title for code in bad)
    button = html.Button(
        f"Repair {len(bad)} kinds of problems at once",
        className="cs-button",
        title=f"{titles}. The repaired job is a new one; this one stays unchanged.",
        **asks(FINDINGS, "mend", f"{job} {','.join(bad)}"),
    )
    return [space, button, *save]


def _save(found: Examination) -> list[Any]:
    """Return the buttons that save what was found, where anything was."""
    if not found.diagnoses:
        return []
    head = ("level", "code", "title", "ranks", "nodes", "message", "consequence", "advice", "repair")
    rows = [
        (
            one.level,
            one.code,
            one.title,
            rank_list(one.ranks) if one.ranks else "",
            one.count,
            one.message,
            one.consequence or "",
            one.advice or "",
            one.repair or "",
        )
        for one in found.diagnoses
    ]
    return [exports("findings", table=Table(head, rows), title="the findings")]


def _mended_from(info: JobInfo) -> Any:
    """Return where a mended job comes from, and the way back; None for any other job."""
    made = origin(info)
    if made is None:
        return None
    try:
        before: Any = dcc.Link(workspace().info(made.job).name, href=link("/findings", {"job": made.job}))
        undo: Any = html.Button(
            "Undo: delete this job",
            className="cs-button-quiet",
            **asks(FINDINGS, "undo", f"{info.id} {made.job}"),
        )
    except StudioError:
        before, undo = html.Span("a job that is no longer there"), None
    titles = "; ".join(REPAIRS[code].title for code in made.repairs if code in REPAIRS)
    return html.P(["Repaired from ", before, f": {titles}. ", undo], className="fi-origin")


def _list(found: Examination, view: dict[str, Any]) -> Any:
    if not found.diagnoses:
        return html.Div(
            [
                html.H2("No problems in this job"),
                html.P(
                    f"{len(CHECKS)} checks ran, listed below, and the files were read without problems."
                ),
            ],
            id="findings-list",
            className="fi-clean",
        )
    return html.Ul(
        [_item(one, key, view) for key, one in _keyed(found.diagnoses)],
        id="findings-list",
        className="fi-list",
    )


def _keyed(diagnoses: Iterable[Diagnosis]) -> list[tuple[str, Diagnosis]]:
    """Return findings with the names addresses have for them: their code, numbered where it is not the first of it."""
    seen: dict[str, int] = {}
    made = []
    for one in diagnoses:
        number = seen[one.code] = seen.get(one.code, 0) + 1
        made.append((one.code if number == 1 else f"{one.code}.{number}", one))
    return made


def _item(one: Diagnosis, key: str, view: dict[str, Any]) -> Any:
    is_open = view.get("finding") == key
    opens: dict[str, Any] = {
        "data-view": json.dumps({"finding": None if is_open else key}),
        "aria-expanded": "true" if is_open else "false",
    }
    ranks = rank_list(one.ranks) if one.ranks else "the whole job"
    head = html.Button(
        [
            html.Span(one.level, className=f"cs-level cs-level-{one.level}"),
            html.Strong(one.title),
            html.Span(ranks, className="cs-dim fi-ranks"),
            html.Span("can be repaired" if one.repair else "", className="cs-dim fi-mends"),
        ],
        className="fi-head",
        **opens,
    )
    body = _details(one, view) if is_open else None
    return html.Li(
        [head, html.P(html.Bdi(one.message), className="fi-message"), body],
        className="fi-open" if is_open else None,
    )


def _details(one: Diagnosis, view: dict[str, Any]) -> Any:
    facts = [(what, value) for what, value in one.evidence]
    return html.Div(
        [
            html.P([html.Strong("Consequence. "), one.consequence]) if one.consequence else None,
            html.P([html.Strong("What to do. "), one.advice]) if one.advice else None,
            html.Dl(
                [part for what, value in facts for part in (html.Dt(what), html.Dd(html.Bdi(value)))],
                className="fi-evidence",
            )
            if facts
            else None,
            _nodes(session().trace(view["job"]), one, view),
            _repair(one, view["job"]) if one.repair else None,
        ],
        className="fi-details",
    )


def _nodes(found: Trace, one: Diagnosis, view: dict[str, Any]) -> Any:
    """Return the first nodes, each one click away from the inspector."""
    if not one.nodes:
        return None
    items = []
    graphs = {rank.number: found.graph_of(rank) for rank in found.ranks}
    for at, ref in zip(one.nodes, _refs(found, one), strict=True):
        graph = graphs[at.rank]
        name = graph.strings[int(graph.name[at.row])] if graph.name[at.row] >= 0 else ""
        chosen: dict[str, Any] = {"data-view": json.dumps({"rank": at.rank, "node": ref})}
        href = link("/findings", view, rank=at.rank, node=ref)
        mark = html.Span(f"rank {at.rank}", className="cs-tag")
        items.append(html.Li([mark, html.A(html.Bdi(f"{ref} {name}".strip()[:160]), href=href, **chosen)]))
    more = one.count - len(items)
    rest = html.P(f"and {format_count(more)} more", className="cs-dim") if more > 0 else None
    return html.Div([html.H3("Nodes"), html.Ul(items, className="fi-nodes"), rest])


def _refs(found: Trace, one: Diagnosis) -> list[str]:
    from studio.doctor.diagnosis import node_names

    return [ref for _, ref in node_names(found, one)]


def _repair(one: Diagnosis, job: str) -> Any:
    """Return what a repair would change, and the button that makes it."""
    assert one.repair
    known, changes = REPAIRS[one.repair], session().repair_preview(job, one.repair)
    if not changes:
        blocked = (
            "Nothing can be repaired yet: repair the findings above first, cycles most of all."
        )
        return html.Div([html.H3(known.title), html.P(blocked, className="cs-dim")], className="fi-repair")
    return html.Div(
        [
            html.H3(known.title),
            html.P(known.consequence),
            *[_preview(change) for change in changes],
            html.Button(
                "Repair as a new job",
                className="cs-button",
                **asks(FINDINGS, "mend", f"{job} {one.repair}"),
                **labelled(f"{known.title}, as a new job"),
            ),
            html.Span("This job stays unchanged.", className="cs-dim"),
        ],
        className="fi-repair",
    )


def _preview(change: Change) -> Any:
    rest = change.count - len(change.first)
    shown = [html.Li(html.Bdi(text)) for text in change.first]
    if rest > 0 and shown:
        shown.append(html.Li(f"and {format_count(rest)} more", className="cs-dim"))
    return html.Div([html.P(f"Would change: {change.what}."), html.Ul(shown, className="fi-changes")])


def _passed(found: Examination) -> Any:
    """Return what was looked for and not found."""
    if not found.passed:
        return None
    names: Sequence[Any] = [html.Li(check.title, title=check.consequence) for check in found.passed]
    return html.Details(
        [
            html.Summary(f"{len(found.passed)} of {len(CHECKS)} checks passed"),
            html.Ul(names, className="fi-passed"),
        ],
        open=not found.diagnoses,
    )
