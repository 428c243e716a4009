"""Pieces that several pages show: errors in place, empty states, tables, definitions of terms."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec
from urllib.parse import urlencode

from dash import ClientsideFunction, Input, Output, clientside_callback, dcc, html

from studio.doctor import Diagnosis
from studio.errors import StudioError
from studio.store.job_infos import JobInfo
from studio.trace import Finding, Level

P = ParamSpec("P")

TERMS = {
    "rank": "One process of the job, usually one accelerator; each rank has its own trace file.",
    "graph": "Ranks whose nodes and dependencies are equal, up to the comm groups and peers they name, share one graph.",
    "node": "One operation of a rank: compute, memory, or communication.",
    "control dependency": "The node may start only after the other was issued or finished, with no data passed (ctrl_deps).",
    "data dependency": "The node uses what the other produces (data_deps).",
    "collective": "Communication that all ranks of a comm group take part in, such as ALL_REDUCE.",
    "comm group": "The ranks that communicate together; PyTorch calls it a process group.",
    "recorded span": "From the first recorded start to the last recorded end, over all ranks. Traces without start times have none.",
    "operations": "Floating-point operations of compute nodes, added up over all ranks (attribute num_ops).",
    "bytes": "Payload a rank hands to communication (attribute comm_size), added up over ranks. 1 MiB = 1,048,576 bytes.",
}
"""Terms of art and what they mean; shown where they first appear on a page."""


def build_aria_label(text: str) -> dict[str, Any]:
    """Return the attribute that gives an element its accessible name."""
    return {"aria-label": text}


def build_term(name: str, shown: str | None = None) -> Any:
    """Return a term with its definition on hover and focus."""
    return html.Span([name if shown is None else shown, build_hint(name, TERMS[name])], className="cs-term")


def build_hint(name: str, text: str) -> Any:
    """Return a question mark that explains `name` on hover and focus: see `assets/frame/hints.mjs`."""
    about: dict[str, Any] = {"aria-label": f"What is {name}: {text}", "data-hint": text}
    return html.Button("?", className="cs-hint", **about)


def read_upload(contents: str) -> bytes:
    """Return the bytes of a file that Dash's upload sends as a data URL.

    Raises:
        ValueError: It is no base64.

    Example:
        >>> read_upload("data:text/plain;base64,aGk=")
        b'hi'
    """
    return base64.b64decode(contents.partition(",")[2])


def with_hint(name: str, text: str) -> Any:
    """Return a name with a question mark behind it that explains it on hover and focus."""
    return html.Span([name, build_hint(name, text)])


def as_sentence(words: str) -> str:
    """Return words that begin in lower case as a sentence; "" of none.

    Example:
        >>> as_sentence("no link was busy"), as_sentence("")
        ('No link was busy.', '')
    """
    return f"{words[0].upper()}{words[1:]}." if words else ""


def build_error_box(error: StudioError, *, title: str = "This cannot be shown") -> Any:
    """Return an error shown in place: what, where, and what to do."""
    return html.Div(
        [
            html.Strong(title),
            html.P(error.message),
            html.P(error.hint, className="cs-dim") if error.hint else None,
        ],
        role="alert",
        className="cs-error",
    )


def show_errors(callback: Callable[P, Any]) -> Callable[P, Any]:
    """Make a callback with one output show a `StudioError` in place of its result."""

    @wraps(callback)
    def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return callback(*args, **kwargs)
        except StudioError as error:
            return build_error_box(error)

    return run


def clear_with_job(place: str) -> None:
    """Clear an element when the page switches to another job."""
    clientside_callback(
        ClientsideFunction("studio_frame", "clear"),
        Output(place, "children", allow_duplicate=True),
        Input("job", "data"),
        prevent_initial_call=True,
    )


def build_loading(words: str) -> Any:
    """Return a placeholder for a page that is loading; it shows after 0.3 s."""
    line = html.Div(className="cs-loading-line", role="progressbar", **build_aria_label(words))
    return html.Div([html.P(words), line], className="cs-loading")


def build_no_job_notice() -> Any:
    """Return the content of a page while no job is open."""
    return html.Div(
        [
            html.H2("No job is open"),
            html.P("Pick one in the bar above, or open traces or a sample on Home."),
            dcc.Link("Go to Home", href="/", className="cs-button"),
        ],
        className="cs-empty",
    )


def build_page(title: str, *children: Any, controls: Sequence[Any] = ()) -> Any:
    """Return a page: its heading with the controls beside it, then the content."""
    head = html.Div([html.H1(title), *controls], className="cs-page-head")
    return html.Div([head, *children], className="cs-page")


def build_address(path: str, view: dict[str, Any], **changes: Any) -> str:
    """Return the address of a page with a view; None takes a part out."""
    parts = {key: value for key, value in {**view, **changes}.items() if value is not None}
    return f"{path}?{urlencode(parts)}" if parts else path


def build_table(
    head: Sequence[Any], rows: Sequence[Sequence[Any]], *, numeric: Sequence[int] = (), caption: str = ""
) -> Any:
    """Return a table; columns in `numeric` are right-aligned with figures of one width."""

    def build_cell(kind: Any, index: int, content: Any) -> Any:
        return kind(content, className="cs-num" if index in numeric else None)

    return html.Table(
        [
            html.Caption(caption, className="cs-caption") if caption else None,
            html.Thead(
                html.Tr(
                    [
                        # A column of buttons has no name; an empty header cell would be read aloud.
                        html.Th(name, scope="col", className="cs-num" if i in numeric else None)
                        if name
                        else html.Td()
                        for i, name in enumerate(head)
                    ]
                )
            ),
            html.Tbody(
                [html.Tr([build_cell(html.Td, i, content) for i, content in enumerate(row)]) for row in rows]
            ),
        ],
        className="cs-table",
    )


def build_rounded_value(text: str, value: Any, *, classes: str | None = None) -> Any:
    """Return a rounded figure with the exact value on hover, and in what is copied."""
    about: dict[str, Any] = {"data-exact": str(value)} if value != "" else {}
    return html.Span(text, title=str(value), className=classes, **about)


def build_findings_list(
    findings: Sequence[Finding | Diagnosis],
    *,
    most: int = 200,
    rest: str = "more are not shown; chakra-studio info lists all.",
) -> Any:
    """Return findings, worst first; says how many are not shown, with what `rest` says of them."""
    if not findings:
        return html.P("No problems while reading.", className="cs-dim")
    order = {"error": 0, "warning": 1, "info": 2}
    ranked = sorted(findings, key=lambda finding: order[finding.level])
    items = [
        html.Li(
            [
                html.Span(finding.level, className=f"cs-level cs-level-{finding.level}"),
                html.Div(
                    [
                        html.Span(finding.message),
                        html.Div(finding.hint, className="cs-dim")
                        if isinstance(finding, Finding) and finding.hint
                        else None,
                    ]
                ),
            ]
        )
        for finding in ranked[:most]
    ]
    hidden = len(ranked) - most
    more = html.P(f"{hidden:,} {rest}", className="cs-dim") if hidden > 0 else None
    return html.Div([html.Ul(items, className="cs-findings"), more])


_WORTH_A_BADGE: tuple[Level, ...] = ("error", "warning")
_PART = re.compile(r"(?<=[._/:])(?=[^._/:])")


def build_findings_badge(levels: Mapping[Level, int] | None) -> Any:
    """Return a badge with the number of errors and warnings; one that says so before the job was checked."""
    if levels is None:
        words = "The job is being checked"
        return html.Span("…", className="cs-badge", title=words, role="img", **build_aria_label(words))
    counts = [(level, levels[level]) for level in _WORTH_A_BADGE]
    parts = [f"{count:,} {level}{'s' if count != 1 else ''}" for level, count in counts if count]
    if not parts:
        return None
    words = ", ".join(parts)
    return html.Span(
        f"{sum(count for _, count in counts):,}",
        className=f"cs-badge cs-level-{'error' if counts[0][1] else 'warning'}",
        title=words,
        role="img",
        **build_aria_label(words),
    )


def build_breakable_name(name: str) -> list[Any]:
    """Return a name that may be broken between its parts, and elsewhere only where a part is too long."""
    parts = [part for part in _PART.split(name) if part]
    return [piece for part in parts for piece in (part, html.Wbr())][:-1] or [""]


def list_job_options(jobs: Sequence[JobInfo]) -> list[dict[str, str]]:
    """Return the entries of the job switch."""
    return [{"value": job.id, "label": job.name} for job in jobs]
