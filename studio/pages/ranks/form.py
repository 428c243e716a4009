"""The form of the Ranks page: the layout as a text and by dimension, the numbers, and what follows from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from studio.completion.clues import describe_dimension
from studio.completion.layout import MOST_BYTES
from studio.completion.mesh import NAMES, PIPELINE, Mesh, parse_layout
from studio.completion.rules import EXPERT, SCALABLE, TENSOR, Layers, Rule, explain_refusal, get_size
from studio.completion.spread import Spread, parse_share
from studio.errors import ConfigError
from studio.jobs.completing import Completing, Scaling
from studio.pages.base.asked import RANKS, build_click_request
from studio.pages.base.export import build_export_buttons, with_copy_button
from studio.pages.base.widgets import build_aria_label, build_hint, build_rounded_value, build_table
from studio.units import format_count

_DEBOUNCE_MS = 250
_LAYOUT = (
    "The dimensions of the mesh of ranks with their sizes, the one whose ranks have adjacent numbers first: tp=4,dp=8 is tensor "
    "parallel over ranks 0–3, and data parallel over ranks 0, 4, 8 and so on."
)
_FILE = (
    "YAML or JSON: dimensions with sizes and strides, and ranks of comm groups of which the recording tells the size only, or the "
    "dimension along which they lie. Its dimensions go into the form, its groups count until another file is taken."
)
_UPLOAD_NAME: dict[str, Any] = {"data-upload-name": "A file of the layout"}
_DISTANCE = "How far apart in rank numbers two neighbours along the dimension are."
_WHY = "Comm groups and messages of the recorded ranks that show the dimension."
_ALSO = (
    "Members of a comm group show where a dimension begins and ends. What it is called follows from what the group exchanges, which "
    "is less sure: rename it above. The name does not change what an assumed rank does; it decides what can be scaled."
)
_NODE = "Standard deviation of the logarithm of each compute node's duration on assumed ranks, 0 to 1. Factors are log-normal with mean 1. measured takes it between the known ranks."
_RANK = "The same of a factor that all compute nodes of an assumed rank share, 0 to 1; measured draws between the known ranks, best the lightest and the heaviest."
_SEED = "Equal seeds draw the same durations."

_GROWING = (
    (TENSOR, "tensor ranks", "Ranks that share each operator: where shapes of a recording say how operators are divided, or of a generated job, which is made anew.", "Tensor-parallel ranks"),
    (PIPELINE, "pipeline stages", "Stages of the larger job: the first and the last stay, those between are copies.", "Pipeline stages"),
    (EXPERT, "expert ranks", "Ranks along the expert dimension; tokens are taken to be routed evenly.", "Ranks along the expert dimension"),
)  # fmt: skip
_STRONG = (
    "Each replica does the work of one of before on samples of its own, so that the batch grows with them (weak scaling); or the batch "
    "stays and each replica has fewer micro-batches (strong scaling), where the trace shows them."
)
_BATCHES = {"weak": "grows with them", "strong": "stays, and is shared"}
_SHARES = {"divided": "share the layers", "kept": "add layers"}
_LAYERS = "The same model over more stages, each with fewer layers; or as many layers in each stage as before: a deeper model."

_ALIKE = {"jitter": "0", "imbalance": "0", "seed": "0", "damaged": ""}
"""Fields of how copies differ, and what they begin with."""
_LONGEST_TEXT = 400
"""Characters of a field in the address."""

Fields = Mapping[str, str]
"""Texts of the controls by name."""


def build_completing_fields(layout: str) -> dict[str, str]:
    """Return what the form that completes a job begins with."""
    return {"layout": layout, **_ALIKE}


def build_scaling_fields(mesh: Mesh, replicas: int) -> dict[str, str]:
    """Return what the form that scales a job begins with: twice as large."""
    grown = {name: str(get_size(mesh, name)) for name, *_ in _GROWING}
    first = {"strong": next(iter(_BATCHES)), "layers": next(iter(_SHARES))}
    return {"layout": mesh.layout, "ranks": str(2 * mesh.world), "dp": str(2 * replicas), **grown, **first}


def write_form(fields: Fields, begun: Fields) -> str:
    """Return what the address keeps of a form: the fields that are no longer as they began.

    Example:
        >>> write_form({"layout": "dp=8", "ranks": "64"}, {"layout": "dp=8", "ranks": "16"})
        '{"ranks":"64"}'
    """
    changed = {name: fields[name] for name in begun if name in fields and fields[name] != begun[name]}
    return json.dumps(changed, separators=(",", ":"), ensure_ascii=False) if changed else ""


def read_form(text: str, begun: Fields) -> dict[str, str]:
    """Return the fields of a form as the address says; what it cannot say is left as it begins.

    Example:
        >>> read_form('{"ranks":"64","strong":"no such"}', {"ranks": "16", "strong": "weak"})
        {'ranks': '64', 'strong': 'weak'}
    """
    try:
        values = json.loads(text or "{}")
    except ValueError:
        return dict(begun)
    values = values if isinstance(values, dict) else {}
    allowed = {"strong": _BATCHES, "layers": _SHARES}
    kept = {
        name: value[:_LONGEST_TEXT]
        for name, value in values.items()
        if name in begun and isinstance(value, str) and value in allowed.get(name, (value,))
    }
    return {**begun, **kept}


def build_control_id(name: str) -> dict[str, str]:
    """Return the id of a control."""
    return {"ranks": name}


def build_text_field(name: str, label: str, value: str, width: int | str) -> Any:
    """Return a field for a text or a number."""
    return dmc.TextInput(
        id=build_control_id(name),
        value=value,
        size="xs",
        w=width,
        debounce=_DEBOUNCE_MS,
        **build_aria_label(label),
    )


def build_labelled_controls(label: str, about: str, *controls: Any) -> Any:
    """Return controls with the word before them."""
    content = [label, build_hint(label, about)] if about else [label]
    return html.Span([html.Span(content, className="cs-dim"), *controls], className="rk-field")


def build_layout_fields(layout: str) -> list[Any]:
    """Return the field of the layout, and the place of those of its dimensions."""
    return [
        build_labelled_controls(
            "Layout", _LAYOUT, build_text_field("layout", "Layout of the ranks", layout, 220)
        ),
        html.Span("or", className="cs-dim"),
        html.Span(id="ranks-dims", className="rk-dims"),
    ]


def build_dimension_fields(sizes: Sequence[tuple[str, int]]) -> list[Any]:
    """Return a name and a number for each dimension."""
    parts: list[Any] = []
    for index, (name, size) in enumerate(sizes):
        if index:
            parts.append(html.Span("×", className="cs-dim"))
        choose = dmc.Select(
            id=build_control_id(f"name-{index}"),
            data=[{"value": short, "label": describe_dimension(short)} for short in NAMES],
            value=name,
            size="xs",
            w=142,
            allowDeselect=False,
            comboboxProps={"shadow": "sm"},
            **build_aria_label(f"Kind of dimension {index}"),
        )
        number = build_text_field(f"size-{index}", f"Ranks along dimension {index}", str(size), 64)
        parts.append(html.Span([choose, number], className="rk-dim"))
    return parts


def format_dimensions(fields: Fields) -> str:
    """Return the layout that the fields of dimensions say."""
    count = sum(name.startswith("size-") for name in fields)
    return ",".join(f"{fields[f'name-{index}']}={fields[f'size-{index}'].strip()}" for index in range(count))


def build_advanced_fold(fields: Fields, *, is_damaged: bool) -> Any:
    """Return the fold of how copies differ, and whether damaged ranks are copied."""
    damaged = dcc.Checklist(
        [{"label": " Complete it although something could not be read", "value": "yes"}],
        ["yes"] if fields["damaged"] else [],
        id=build_control_id("damaged"),
        className="rk-check",
    )
    return html.Details(
        [
            html.Summary("Advanced: let durations of assumed ranks differ"),
            html.Div(
                [
                    build_labelled_controls(
                        "each node",
                        _NODE,
                        build_text_field("jitter", "Spread of each node", fields["jitter"], 64),
                    ),
                    build_labelled_controls(
                        "each rank",
                        _RANK,
                        build_text_field("imbalance", "Spread of each rank", fields["imbalance"], 64),
                    ),
                    build_labelled_controls(
                        "seed", _SEED, build_text_field("seed", "Seed", fields["seed"], 64)
                    ),
                ],
                className="rk-line",
            ),
            html.Div(damaged, hidden=not is_damaged),
        ],
        className="rk-fold",
        open=is_damaged or any(fields[name] != text for name, text in _ALIKE.items()),
    )


def build_file_button() -> Any:
    """Return the button that takes a file of a layout, and the place of what was taken."""
    button = html.Button("Layout file…", className="cs-button-quiet", type="button")
    drop = dcc.Upload(button, id="ranks-file", max_size=MOST_BYTES, multiple=False)
    return html.Span(
        [
            html.Span(drop, **_UPLOAD_NAME),
            build_hint("layout file", _FILE),
            html.Span(id="ranks-file-said", className="cs-dim", role="status"),
            dcc.Input(id=build_control_id("file"), type="hidden", value=""),
        ],
        className="rk-field",
    )


def format_file(name: str, text: str) -> str:
    """Return a file as the hidden field holds it."""
    return f"{name}\n{text}"


def parse_completing(fields: Fields) -> Completing:
    """Return what the form asks for.

    Raises:
        ConfigError: A number is none, or not allowed.
    """
    seed = parse_whole_number(fields, "seed", 0) or 0
    jitter, imbalance = (
        parse_share(name, fields.get(name, "").strip() or "0") for name in ("jitter", "imbalance")
    )
    spread = Spread(jitter, imbalance, seed)
    name, _, text = fields.get("file", "").partition("\n")
    file = (name, text) if name else None
    return Completing(fields["layout"], spread, damaged=bool(fields.get("damaged")), file=file)


def parse_whole_number(fields: Fields, name: str, least: int = 1) -> int | None:
    """Return a number of the form, None where the field is empty.

    Raises:
        ConfigError: It is no whole number, or less than `least`.
    """
    text = fields.get(name, "").strip().replace(",", "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) < least:
        raise ConfigError(f"{name} is {text!r}; allowed: a whole number from {least}")
    return int(text)


def build_question(layouts: Sequence[Mesh], why: str, chosen: str) -> Any:
    """Ask which of several layouts it is, the likeliest first."""
    if not why:
        return None
    buttons = [_build_choice(mesh.layout, is_chosen=mesh.layout == chosen) for mesh in layouts]
    return html.Div(
        [
            html.P([html.Strong("Which layout? "), f"It is not recorded: {why}. The likeliest comes first."]),
            html.Div(buttons, className="rk-line"),
        ],
        className="rk-question",
    )


def _build_choice(layout: str, *, is_chosen: bool) -> Any:
    pressed: dict[str, Any] = {"aria-pressed": "true" if is_chosen else "false"}
    return html.Button(
        layout, className="cs-button", **pressed, **build_click_request(RANKS, "layout", layout)
    )


def build_evidence_table(mesh: Mesh, also: Sequence[str]) -> Any:
    """Return a table row for each dimension of the mesh: its size, the evidence, and other sizes that fit."""
    rows = [
        (
            describe_dimension(axis.name),
            build_rounded_value(format_count(axis.size), axis.size),
            build_rounded_value(format_count(axis.stride), axis.stride),
            html.Bdi(axis.evidence or "given"),
            other or "nothing",
        )
        for axis, other in zip(mesh.axes, also, strict=True)
    ]
    head = (
        "Dimension",
        "Ranks",
        ["Apart", build_hint("apart", _DISTANCE)],
        ["What shows it", build_hint("what shows a dimension", _WHY)],
        ["Would fit, too", build_hint("what else would fit", _ALSO)],
    )
    return with_copy_button(build_table(head, rows, numeric=(1, 2)), "the dimensions")


def build_drawing_place(name: str, title: str, key: Any) -> Any:
    """Return a place for a drawing of ranks, with its title, caption and legend."""
    head = [html.H2(title), build_export_buttons(name, figure=name, title=f"the ranks: {title}")]
    return html.Div(
        [
            html.Div(head, className="cs-figure-head"),
            html.P(id=f"{name}-caption", className="cs-dim rk-caption"),
            html.Div(
                id=name,
                className="rk-drawing",
                tabIndex=0,
                role="region",
                **build_aria_label(f"Ranks: {title}"),
            ),
            key,
        ],
        className="rk-figure",
    )


def build_legend(*items: tuple[str, str]) -> Any:
    """Return what the looks of ranks mean, as (class, words)."""
    return html.Ul(
        [html.Li([html.Span(className=f"rk-key {look}"), words]) for look, words in items],
        className="rk-legend",
    )


def _build_select(name: str, label: str, choices: Mapping[str, str], chosen: str) -> Any:
    """Return a field with few values."""
    return dmc.Select(
        id=build_control_id(name),
        data=[{"value": value, "label": words} for value, words in choices.items()],
        value=chosen,
        size="xs",
        w=172,
        allowDeselect=False,
        comboboxProps={"shadow": "sm"},
        **build_aria_label(label),
    )


def build_scale_controls(mesh: Mesh, fields: Fields) -> list[Any]:
    """Return the fields of what else can grow, as far as the job has it, and of how."""
    parts: list[Any] = [
        build_labelled_controls(axis_words, about, build_text_field(name, label, fields[name], 64))
        for name, axis_words, about, label in _GROWING
        if (axis := mesh.axis(name)) is not None and axis.size > 1
    ]
    parts.append(
        build_labelled_controls(
            "the batch", _STRONG, _build_select("strong", "The batch", _BATCHES, fields["strong"])
        )
    )
    if get_size(mesh, PIPELINE) > 1:
        choose = _build_select("layers", "Layers of more stages", _SHARES, fields["layers"])
        parts.append(build_labelled_controls("more stages", _LAYERS, choose))
    return parts


def parse_scaling(fields: Fields, ranks: int) -> Scaling:
    """Return what the form asks for; a number that stays is left out.

    Raises:
        ConfigError: A number is none, or not allowed.
    """
    before = Mesh.of(parse_layout(fields["layout"]))
    pp, ep, tp = (
        number if (number := parse_whole_number(fields, name)) != get_size(before, name) else None
        for name in (PIPELINE, EXPERT, TENSOR)
    )
    layers: Layers = "kept" if fields.get("layers") == "kept" else "divided"
    return Scaling(
        fields["layout"], ranks, pp, ep, tp, strong=fields.get("strong") == "strong", layers=layers
    )


def build_rules_table(rules: Sequence[Rule]) -> Any:
    """Return the rules by which a job is scaled, and why other dimensions are not."""
    changes = [(rule.about, rule.change, rule.why) for rule in rules]
    refused = [(describe_dimension(name), explain_refusal(name)) for name in NAMES if name not in SCALABLE]
    return html.Div(
        [
            html.Div(
                [
                    html.H2("What this scaling changes"),
                    with_copy_button(
                        build_table(("Nodes", "What becomes of them", "Why"), changes), "the rules"
                    )
                    if changes
                    else html.P("Nothing: the job stays as it is.", className="cs-dim"),
                ],
                className="cs-section",
            ),
            html.Div(
                [
                    html.H2("Dimensions that cannot be scaled"),
                    with_copy_button(build_table(("Dimension", "Why not"), refused), "other dimensions"),
                ],
                className="cs-section",
            ),
        ],
        className="cs-columns",
    )
