"""What the Validate page says of tables: names, errors, and every size for export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from studio.calibration.judging import CLASSES, Judgement
from studio.calibration.measures import RANGES, compute_quantile
from studio.pages.base.export import Table
from studio.pages.base.widgets import build_hint, build_rounded_value, build_table
from studio.units import format_counted

_GM = "gm|e|: the geometric mean of |simulated / measured − 1|, by which ASTRA-sim's authors judge theirs."
_GMF = "GMF: exp(mean |ln(simulated / measured)|) − 1, the factor by which times are typically off; stricter than gm|e|."
ERRORS = f"{_GMF} {_GM}"
"""What the two figures of an error are."""
_BIAS = "The geometric mean of simulated / measured, less 1: small sizes up to 64 KiB, middle up to 16 MiB, large above."
_NONE = html.Span("–", className="cs-dim", title="No size of the table lies in this range")
_CLASS = (
    "What the table is to the system. "
    + "; ".join(f"{name}: {about}" for name, about in CLASSES.items())
    + "."
)


def label_tables(judged: Sequence[Judgement]) -> list[str]:
    """Return what each table is called in a legend: collective, GPUs and nodes; with its name where these repeat.

    Example:
        >>> label_tables([])
        []
    """
    names = [_label_table(judgement) for judgement in judged]
    return [
        name if names.count(name) == 1 else f"{name} · {judgement.table.table_id}"
        for name, judgement in zip(names, judged, strict=True)
    ]


def _label_table(judgement: Judgement) -> str:
    measured = judgement.table
    where = (
        f"{measured.nodes} × {measured.gpus_per_node}" if measured.nodes > 1 else f"{measured.gpus_per_node}"
    )
    return f"{measured.collective.replace('_', '-')} · {where} GPUs"


def describe_errors(judged: Sequence[Judgement], *, corrected: bool) -> str:
    """Say how far all tables together are off."""
    counted = [judgement for judgement in judged if not judgement.reported] or list(judged)
    errors = [judgement.errors if corrected else judgement.uncorrected for judgement in counted]
    gmf, gm = (
        compute_quantile([each.gmf for each in errors], 0.5),
        compute_quantile([each.gm_error for each in errors], 0.5),
    )
    left_out = len(judged) - len(counted)
    more = f"; {format_counted(left_out, 'table')} reported and not counted" if left_out else ""
    curves = any(judgement.uncorrected != judgement.errors for judgement in judged)
    curve = (", with residual curves" if corrected else ", without residual curves") if curves else ""
    return (
        f"On {judged[0].system}{curve}: GMF {100 * gmf:.1f} %, gm|e| {100 * gm:.1f} % in the median of "
        f"{format_counted(len(counted), 'table')}{more}. Marks are measured, lines simulated; open marks are extrapolated."
    )


def build_error_table(judged: Sequence[Judgement]) -> Any:
    """Return the errors of each table."""
    head = [
        "table",
        html.Span(["class", build_hint("the class", _CLASS)]),
        html.Span(["gm|e|", build_hint("gm|e|", _GM)]),
        html.Span(["GMF", build_hint("GMF", _GMF)]),
        html.Span(["bias, small", build_hint("the bias", _BIAS)]),
        "middle",
        "large",
        "without curve: gm|e|",
        "GMF",
        "remarks",
    ]
    rows = [_build_row(judgement) for judgement in judged]
    if not any(judgement.extrapolated.any() or judgement.reported for judgement in judged):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return build_table(head, rows, numeric=range(2, 9))


def _build_row(judgement: Judgement) -> list[Any]:
    errors, plain = judgement.errors, judgement.uncorrected
    remarks: list[Any] = ["extrapolated"] if judgement.extrapolated.any() else []
    if judgement.reported:
        remarks.append(html.Span([" not counted", build_hint("why it is not counted", judgement.reported)]))
    return [
        judgement.table.table_id,
        html.Span(judgement.relation, className="cs-type"),
        _format_share(errors.gm_error),
        _format_share(errors.gmf),
        *(
            _format_share(errors.bias[name], signed=True) if name in errors.bias else _NONE
            for name, _ in RANGES
        ),
        _format_share(plain.gm_error),
        _format_share(plain.gmf),
        html.Span(remarks, className="cs-type"),
    ]


def _format_share(value: float, *, signed: bool = False) -> Any:
    text = f"{100 * value:+.1f} %" if signed else f"{100 * value:.1f} %"
    return build_rounded_value(text.replace("-", "−"), repr(value))


def build_size_table(judged: Sequence[Judgement]) -> Table:
    """Return every size of every table, for export."""
    rows = [
        (
            judgement.table.table_id,
            int(size),
            float(measured),
            float(simulated),
            float(plain),
            choice,
            bool(outside),
        )
        for judgement in judged
        for size, measured, simulated, plain, choice, outside in zip(
            judgement.table.size_bytes,
            judgement.table.time_us,
            judgement.simulated_us,
            judgement.uncorrected_us,
            judgement.choices,
            judgement.extrapolated,
            strict=True,
        )
    ]
    head = (
        "table",
        "size_bytes",
        "measured_us",
        "simulated_us",
        "without_curve_us",
        "choice",
        "extrapolated",
    )
    return Table(head, rows)
