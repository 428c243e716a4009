"""The Findings page: problems of a job, their consequences, and repairs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import dash
from dash import Input, Output, State, callback, dcc, html, no_update

from studio.doctor import CHECKS, REPAIRS, Change, Diagnosis, Examination
from studio.doctor.diagnosis import LEVELS
from studio.errors import StudioError
from studio.jobs.checking import check_again, start_check
from studio.jobs.repairing import get_origin, start_repair
from studio.pages.base.asked import (
    FINDINGS,
    Asked,
    acknowledge_request,
    build_answer_output,
    build_click_request,
    build_stores,
)
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.followed import (
    build_tasks_input,
    build_ticks_input,
    follow_tasks,
    is_called_by_tasks,
    list_tasks_again,
)
from studio.pages.base.state import get_session, get_tasks, get_workspace
from studio.pages.base.still import merge_static_parts
from studio.pages.base.widgets import (
    build_address,
    build_aria_label,
    build_error_box,
    build_findings_badge,
    build_loading,
    build_no_job_notice,
    build_page,
    clear_with_job,
    show_errors,
)
from studio.pages.findings.under_way import show_repairs
from studio.sim.agreement import format_ranks
from studio.store.job_infos import JobInfo
from studio.store.tasks import ACTIVE, cancel, dismiss, list_tasks, wait
from studio.trace import Level, Trace
from studio.units import format_count

dash.register_page(__name__, path="/findings", name="Findings", title="Findings · Chakra Studio", order=8)

_AT_ONCE_S = 2.0
"""How long the page waits for a repair; after that it continues in the background."""
_LEVEL_WORDS = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("note", "notes")}


def layout(**_query: str) -> Any:
    """Return the page; its content follows the view."""
    return html.Div(
        [
            html.Div(id="findings-error"),
            html.Div(build_page("Findings", build_loading("Checking the job…")), id="findings-body"),
            html.Div(id="findings-repairs"),
            build_stores(FINDINGS),
            dcc.Store(id="findings-checked"),
            follow_tasks("findings"),
        ]
    )


@callback(
    Output("findings-body", "children"),
    Output("findings-checked", "data"),
    Input("view", "data"),
    build_tasks_input("findings"),
    State("findings-checked", "data"),
)
def show(view: dict[str, Any], _activity: str | None, shown: str | None) -> Any:
    """List the findings of a job, with the one that the view names open; those being made are shown once they are there."""
    job, mark = view.get("job"), json.dumps(view, sort_keys=True)
    if is_called_by_tasks() and shown == mark:
        # What the address says is there; where it is not, this call may have taken the place of the one that brings it.
        return no_update, no_update
    # Before the content is made: a check that ends meanwhile is then shown by the next change of tasks.
    is_checked = not job or get_session().levels_found(job) is not None
    return show_job(view), mark if is_checked else None


@show_errors
def show_job(view: dict[str, Any]) -> Any:
    """Return the content of the page."""
    if not view.get("job"):
        return build_no_job_notice()
    info, examination = get_workspace().info(view["job"]), get_session().examination_made(view["job"])
    if examination is None:
        return build_page("Findings", _show_origin(info), _show_unchecked(info.id))
    dash.set_props("findings-badge", {"children": build_findings_badge(get_session().levels_found(info.id))})
    return merge_static_parts(
        build_page(
            "Findings",
            _show_origin(info),
            _build_list(examination, view),
            _list_passed(examination),
            controls=[*_build_counts(examination), *_repair_all(examination, info.id)],
        )
    )


def _show_unchecked(job: str) -> Any:
    """Begin to check a job, or say why it is not checked, with a button that does it again."""
    if job not in get_session().unexamined:
        list_tasks_again(began=start_check(get_tasks(), get_session(), job))
        sentence = "Checking the job in the background. The bar above shows how far it is, and can cancel it."
        return html.Div([build_loading("Checking the job…"), html.P(sentence, className="cs-dim")])
    problem = get_session().unexamined[job]
    button = html.Button(
        "Check the job", className="cs-button", **build_click_request(FINDINGS, "check", job)
    )
    return html.Div([html.P(problem.message), html.P(problem.hint, className="cs-dim"), button])


@callback(
    Output("findings-error", "children"),
    build_answer_output(FINDINGS),
    Input(FINDINGS, "data"),
    prevent_initial_call=True,
)
def change(asked: Asked | None) -> Any:
    """Repair a job and open the new one; or delete a repaired job and return to its origin."""
    if not asked:
        return no_update, no_update
    # The button names the job: by the time of a second click the page may show another.
    job, _, rest = asked["of"].partition(" ")
    try:
        if asked["verb"] == "stop":
            cancel(get_tasks(), rest)
            list_tasks_again()
            return None, acknowledge_request(FINDINGS, asked)
        if asked["verb"] == "check":
            check_again(get_tasks(), get_session(), job)
            list_tasks_again()
            return None, acknowledge_request(FINDINGS, asked)
        if asked["verb"] == "repair":
            target = _repair_job(job, rest.split(","))
        else:
            get_workspace().delete(job)
            target = rest
    except StudioError as error:
        return build_error_box(error, title="That did not work"), acknowledge_request(FINDINGS, asked)
    if target is None:
        list_tasks_again()
        return None, acknowledge_request(FINDINGS, asked)
    # The job switch in the frame lists the jobs.
    dash.set_props("imported", {"data": time.time()})
    return None, acknowledge_request(FINDINGS, asked, go=build_address("/findings", {"job": target}))


def _repair_job(job: str, codes: Sequence[str]) -> str | None:
    """Repair a job in the background; return the new job's id, or None if it is not done within `_AT_ONCE_S`."""
    started = start_repair(get_tasks(), get_session(), job, codes)
    task = wait(get_tasks(), started.id, _AT_ONCE_S)
    if task is None or task.status == "cancelled":
        raise StudioError("The repair was cancelled.", hint="Repair again if the job is still needed.")
    if task.error:
        dismiss(get_tasks(), task.id)
        raise StudioError(task.error.message, hint=task.error.hint)
    if task.status in ACTIVE:
        return None
    dismiss(get_tasks(), task.id)
    return task.result


clear_with_job("findings-error")


@callback(
    Output("findings-repairs", "children"),
    Input("view", "data"),
    build_tasks_input("findings"),
    build_ticks_input("findings"),
)
def follow_repairs(view: dict[str, Any], _changed: str | None, _ticked: int | None) -> Any:
    """Show the repairs of the job that take longer than the page waits, and what they have made."""
    job = view.get("job")
    if not job:
        return None
    names = {info.id: info.name for info in get_workspace().jobs()}
    known = list_tasks(get_tasks(), "repair", job)
    return merge_static_parts(show_repairs(known, names, get_tasks().now(), get_tasks().live))


def _build_counts(examination: Examination) -> list[Any]:
    counts = [(level, examination.count(level)) for level in LEVELS]
    fine = html.Span("no problems", className="fi-count fi-fine")
    return [
        *(
            []
            if examination.count("error") or examination.count("warning") or not examination.diagnoses
            else [fine]
        ),
        *(_build_count(level, count) for level, count in counts if count),
    ]


def _build_count(level: Level, count: int) -> Any:
    text = f"{format_count(count)} {_LEVEL_WORDS[level][count != 1]}"
    return html.Span(text, className=f"cs-level-{level} fi-count")


def _repair_all(examination: Examination, job: str) -> list[Any]:
    """Return the save buttons, and one that makes all repairs of errors and warnings, if there are several."""
    codes = [code for code in REPAIRS if any(diagnosis.repair == code for diagnosis in examination.diagnoses)]
    bad = [
        code
        for code in codes
        if any(diagnosis.repair == code and diagnosis.level != "info" for diagnosis in examination.diagnoses)
    ]
    space = html.Span(style={"flex": 1})
    save = _save(examination)
    if len(bad) < 2:
        return [space, *save]
    titles = "; ".join(REPAIRS[code].title for code in bad)
    button = html.Button(
        f"Repair {len(bad)} kinds of problems at once",
        className="cs-button",
        title=f"{titles}. The repaired job is a new one; this one stays unchanged.",
        **build_click_request(FINDINGS, "repair", f"{job} {','.join(bad)}"),
    )
    return [space, button, *save]


def _save(examination: Examination) -> list[Any]:
    """Return the buttons that save the findings, if there are any."""
    if not examination.diagnoses:
        return []
    head = ("level", "code", "title", "ranks", "nodes", "message", "consequence", "advice", "repair")
    rows = [
        (
            diagnosis.level,
            diagnosis.code,
            diagnosis.title,
            format_ranks(diagnosis.ranks) if diagnosis.ranks else "",
            diagnosis.count,
            diagnosis.message,
            diagnosis.consequence or "",
            diagnosis.advice or "",
            diagnosis.repair or "",
        )
        for diagnosis in examination.diagnoses
    ]
    return [build_export_buttons("findings", table=Table(head, rows), title="the findings")]


def _show_origin(info: JobInfo) -> Any:
    """Say which job a repaired one was made from, with an undo button; None for other jobs."""
    source = get_origin(info)
    if source is None:
        return None
    try:
        before: Any = dcc.Link(
            get_workspace().info(source.job).name, href=build_address("/findings", {"job": source.job})
        )
        undo: Any = html.Button(
            "Undo: delete this job",
            className="cs-button-quiet",
            **build_click_request(FINDINGS, "undo", f"{info.id} {source.job}"),
        )
    except StudioError:
        before, undo = html.Span("a job that is no longer there"), None
    titles = "; ".join(REPAIRS[code].title for code in source.repairs if code in REPAIRS)
    return html.P(["Repaired from ", before, f": {titles}. ", undo], className="fi-origin")


def _build_list(examination: Examination, view: dict[str, Any]) -> Any:
    if not examination.diagnoses:
        return html.Div(
            [
                html.H2("No problems in this job"),
                html.P(f"{len(CHECKS)} checks ran, listed below, and the files were read without problems."),
            ],
            id="findings-list",
            className="fi-clean",
        )
    return html.Ul(
        [_build_item(diagnosis, key, view) for key, diagnosis in _key_diagnoses(examination.diagnoses)],
        id="findings-list",
        className="fi-list",
    )


def _key_diagnoses(diagnoses: Iterable[Diagnosis]) -> list[tuple[str, Diagnosis]]:
    """Pair findings with their names in addresses: the code, numbered from the second of a code on."""
    seen: dict[str, int] = {}
    pairs = []
    for diagnosis in diagnoses:
        number = seen[diagnosis.code] = seen.get(diagnosis.code, 0) + 1
        pairs.append((diagnosis.code if number == 1 else f"{diagnosis.code}.{number}", diagnosis))
    return pairs


def _build_item(diagnosis: Diagnosis, key: str, view: dict[str, Any]) -> Any:
    is_open = view.get("finding") == key
    opens: dict[str, Any] = {
        "data-view": json.dumps({"finding": None if is_open else key}),
        "aria-expanded": "true" if is_open else "false",
    }
    ranks = format_ranks(diagnosis.ranks) if diagnosis.ranks else "the whole job"
    head = html.Button(
        [
            html.Span(diagnosis.level, className=f"cs-level cs-level-{diagnosis.level}"),
            html.Strong(diagnosis.title),
            html.Span(ranks, className="cs-dim fi-ranks"),
            html.Span("can be repaired" if diagnosis.repair else "", className="cs-dim fi-repairs"),
        ],
        className="fi-head",
        **opens,
    )
    body = _build_details(diagnosis, view) if is_open else _build_cure(diagnosis)
    return html.Li(
        [head, html.P(html.Bdi(diagnosis.message), className="fi-message"), body],
        className="fi-open" if is_open else None,
    )


def _build_cure(diagnosis: Diagnosis) -> Any:
    """Return what to do about an error or a warning; None where that is not known, or nothing needs to be done."""
    if not diagnosis.advice or diagnosis.level == "info":
        return None
    return html.P([html.Strong("What to do. "), diagnosis.advice], className="cs-dim fi-message")


def _build_details(diagnosis: Diagnosis, view: dict[str, Any]) -> Any:
    facts = [(what, value) for what, value in diagnosis.evidence]
    return html.Div(
        [
            html.P([html.Strong("Consequence. "), diagnosis.consequence]) if diagnosis.consequence else None,
            html.P([html.Strong("What to do. "), diagnosis.advice]) if diagnosis.advice else None,
            html.Dl(
                [part for what, value in facts for part in (html.Dt(what), html.Dd(html.Bdi(value)))],
                className="fi-evidence",
            )
            if facts
            else None,
            _build_node_list(get_session().trace(view["job"]), diagnosis, view),
            _repair(diagnosis, view["job"]) if diagnosis.repair else None,
        ],
        className="fi-details",
    )


def _build_node_list(trace: Trace, diagnosis: Diagnosis, view: dict[str, Any]) -> Any:
    """List the first nodes of a finding; a click opens the inspector."""
    if not diagnosis.nodes:
        return None
    items = []
    graphs = {rank.number: trace.graph_of(rank) for rank in trace.ranks}
    for place, ref in zip(diagnosis.nodes, _list_refs(trace, diagnosis), strict=True):
        graph = graphs[place.rank]
        name = graph.strings[int(graph.name[place.row])] if graph.name[place.row] >= 0 else ""
        chosen: dict[str, Any] = {"data-view": json.dumps({"rank": place.rank, "node": ref})}
        href = build_address("/findings", view, rank=place.rank, node=ref)
        mark = html.Span(f"rank {place.rank}", className="cs-tag")
        items.append(html.Li([mark, html.A(html.Bdi(f"{ref} {name}".strip()[:160]), href=href, **chosen)]))
    more = diagnosis.count - len(items)
    rest = html.P(f"and {format_count(more)} more", className="cs-dim") if more > 0 else None
    return html.Div([html.H3("Nodes"), html.Ul(items, className="fi-nodes"), rest])


def _list_refs(trace: Trace, diagnosis: Diagnosis) -> list[str]:
    from studio.doctor.diagnosis import list_node_names

    return [ref for _, ref in list_node_names(trace, diagnosis)]


def _repair(diagnosis: Diagnosis, job: str) -> Any:
    """Show what a repair would change, and its button."""
    assert diagnosis.repair
    known, changes = REPAIRS[diagnosis.repair], get_session().repair_preview(job, diagnosis.repair)
    if not changes:
        blocked = "Nothing can be repaired yet: repair the findings above first, cycles most of all."
        return html.Div([html.H3(known.title), html.P(blocked, className="cs-dim")], className="fi-repair")
    return html.Div(
        [
            html.H3(known.title),
            html.P(known.consequence),
            *[_build_preview(change) for change in changes],
            html.Button(
                "Repair as a new job",
                className="cs-button",
                **build_click_request(FINDINGS, "repair", f"{job} {diagnosis.repair}"),
                **build_aria_label(f"{known.title}, as a new job"),
            ),
            html.Span("This job stays unchanged.", className="cs-dim"),
        ],
        className="fi-repair",
    )


def _build_preview(change: Change) -> Any:
    rest = change.count - len(change.first)
    shown = [html.Li(html.Bdi(text)) for text in change.first]
    if rest > 0 and shown:
        shown.append(html.Li(f"and {format_count(rest)} more", className="cs-dim"))
    return html.Div([html.P(f"Would change: {change.what}."), html.Ul(shown, className="fi-changes")])


def _list_passed(examination: Examination) -> Any:
    """List the checks that found no problem."""
    if not examination.passed:
        return None
    names: Sequence[Any] = [html.Li(check.title, title=check.consequence) for check in examination.passed]
    return html.Details(
        [
            html.Summary(f"{len(examination.passed)} of {len(CHECKS)} checks passed"),
            html.Ul(names, className="fi-passed"),
        ],
        open=not examination.diagnoses,
    )
