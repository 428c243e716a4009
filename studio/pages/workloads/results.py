"""What the Workloads page shows of a job before it is made: counts, memory by part, collectives, and the time of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from dash import html

from studio.completion.clues import describe_dimension
from studio.completion.mesh import NAMES, Mesh
from studio.errors import StudioError
from studio.figures.mesh import Cell, describe_directions, draw_mesh
from studio.generation.layout import Layout
from studio.generation.program import describe_times
from studio.jobs.generating import (
    StepTime,
    compute_least_step_ns,
    compute_utilization,
    is_small,
    simulate_step,
)
from studio.pages.base.asked import WORKLOADS, build_click_request
from studio.pages.base.export import Table, build_export_buttons, with_copy_button
from studio.pages.base.widgets import build_aria_label, build_hint, build_rounded_value, build_table
from studio.pages.workloads.asking import Filled
from studio.pages.workloads.form import describe_size
from studio.pages.workloads.texts import get_label, replace_options
from studio.units import format_bytes, format_count, format_counted, format_ns, format_si

Told = Mapping[str, Any]
"""What `describe` says of a job."""

PARAMETERS = "Weights of the whole model, each counted once, however ranks divide or repeat them."
FLOP = (
    "Floating-point operations in matrix products of a step of the whole job, forward and backward: about 6 × parameters × tokens, "
    "and attention (Narayanan et al., Megatron-LM, 2021). Recomputation is not counted."
)
FLOP_OF_STEPS = (
    "Floating-point operations in matrix products and attention of a step of the whole job (Pope et al., 2023); attention by the tokens "
    "that are attended to."
)
FLOP_OF_NETWORKS = (
    "Floating-point operations in products and attention of a step of the whole job, forward and backward."
)
MEMORY_OF_OTHERS = "What the fullest NPU holds, by closed forms. Fragmentation, workspaces and buffers of libraries are not counted: leave some room."
STEP = "Finish of a simulated step on the preset of this GPU."
MFU = "Model FLOP utilization: FLOP of a step ÷ (time of the step × NPUs × peak of a GPU in bf16)."
MEMORY = (
    "What the fullest NPU holds at its peak, by closed forms (ZeRO, 2020; Korthikanti et al., 2022). Fragmentation, workspaces and "
    "buffers of libraries are not counted: leave some room."
)
COLLECTIVES = "Of a step: nodes of all ranks, and the bytes that a rank gives to one (attribute comm_size)."
_PARTS = {
    "parameters": "Weights in bf16: 2 bytes each, divided by tensor and pipeline parallel ranks, and by replicas where all is sharded.",
    "gradients": "Gradients: 2 bytes a parameter, in fp32 4.",
    "optimizer": "A copy of the weights in fp32 and what the optimizer keeps: 12 bytes a parameter with Adam in fp32; none that is offloaded.",
    "activations": "What the forward pass keeps for the backward pass, of all micro-batches in flight.",
    "buffers": "Weights that full sharding has gathered: of the layer at work and of the next; gradients on their way, and room for what is offloaded.",
}
_PART_NAMES = {"kv_cache": "KV cache", "draft": "draft model"}
_KINDS = {
    "emb": "tied embedding (emb)",
    "edp": "replicas of experts (edp)",
    "eshard": "shards of experts (eshard)",
}
_MOST_ROWS = 6


def build_facts(filled: Filled, job_counts: Told) -> Any:
    """Return the counts of a job."""
    about = {"llm": FLOP, "inference": FLOP_OF_STEPS, "network": FLOP_OF_NETWORKS}[filled.wanted.kind]
    name, count, words = _describe_work(filled, job_counts)
    return html.Dl(
        [
            _build_fact(
                "Parameters",
                build_rounded_value(describe_size(job_counts["parameters"]), f"{job_counts['parameters']:,}"),
                PARAMETERS,
            ),
            _build_fact(
                "FLOP a step",
                build_rounded_value(format_si(job_counts["flop"], "FLOP"), f"{job_counts['flop']:,}"),
                about,
            ),
            _build_fact(f"{name} a step", build_rounded_value(format_count(count), words), f"{words}."),
            _build_fact(
                "Memory of an NPU",
                _build_memory_fact(filled, job_counts),
                MEMORY if filled.of else MEMORY_OF_OTHERS,
            ),
        ],
        className="cs-facts wl-facts",
    )


def _describe_work(filled: Filled, job_counts: Told) -> tuple[str, int, str]:
    """Return what a step of a job works on: its name, how many, and what they are in words."""
    if filled.wanted.kind == "network":
        return "Samples", job_counts["batch"], f"Batch: {job_counts['batch_from']}"
    if filled.wanted.kind == "inference":
        words = f"{job_counts['phase']} of {format_counted(job_counts['sequences'], 'sequence')}"
        cached = f"{job_counts['cached_tokens']:,} tokens in the KV cache after the step"
        return "New tokens", job_counts["new_tokens"], f"{words}; {cached}"
    each = f"{format_counted(job_counts['batch'], 'sequence')} of {job_counts['sequence']:,} tokens"
    return (
        "Tokens",
        job_counts["batch"] * job_counts["sequence"],
        f"{each}; batch: {job_counts['batch_from']}",
    )


def _build_fact(name: str, shown: Any, about: str) -> Any:
    return html.Div([html.Dt([name, build_hint(name, about)]), html.Dd(shown)])


def _build_memory_fact(filled: Filled, job_counts: Told) -> Any:
    total = job_counts["memory"]["total"]
    shown = build_rounded_value(format_si(total, "B"), format_counted(total, "byte"))
    if filled.memory_bytes is None:
        return shown
    return [shown, html.Span(f" of {_format_gigabytes(filled.memory_bytes)}", className="cs-dim wl-of")]


def _format_gigabytes(size: float) -> str:
    return f"{size / 1e9:g} GB"


def build_verdict(filled: Filled, job_counts: Told) -> Any:
    """Say how ranks are laid out and whether a job fits, and offer what would make it fit."""
    layout = _describe_layout(filled, job_counts)
    if filled.fits:
        return html.P(layout, className="wl-verdict")
    memory = job_counts["memory"]
    parts = sorted(((memory[part], part) for part in _list_parts(memory)), reverse=True)
    most = " and ".join(f"{_PART_NAMES.get(part, part)} {format_si(size, 'B')}" for size, part in parts[:2])
    words = f"Does not fit on {_format_gigabytes(filled.memory_bytes or 0)}: {format_si(memory['total'], 'B')}, of which {most}."
    buttons = [
        html.Button(
            _describe_change(change),
            className="cs-button",
            **build_click_request(WORKLOADS, "set", _spell_change(change)),
        )
        for change in filled.cures
    ]
    if filled.of is None:
        ways = replace_options("; ".join(job_counts.get("remedies", ())))
        cure = html.Div(
            f"It fits with: {ways}." if ways else "It fits on more ranks, or with a smaller batch.",
            className="wl-cures",
        )
        return html.Div(
            [html.P(layout, className="wl-verdict"), html.P([html.Strong(words)]), cure], className="wl-unfit"
        )
    cure = html.Div(
        [html.Span("It fits with", className="cs-dim"), *buttons]
        if buttons
        else "No layout of so many ranks fits: take more.",
        className="wl-cures",
    )
    return html.Div(
        [html.P(layout, className="wl-verdict"), html.P([html.Strong(words)]), cure], className="wl-unfit"
    )


def _describe_layout(filled: Filled, job_counts: Told) -> list[Any]:
    sizes = _list_degrees(filled.of.layout) if filled.of else _parse_degrees(job_counts)
    degrees = [f"{NAMES.get(name, name)} {size:,}" for name, size in sizes if size > 1] or ["one rank"]
    words: list[Any] = [html.Strong(" × ".join(degrees))]
    if filled.proposed:
        changed = ", ".join(_describe_change({key: value}) for key, value in filled.proposed.items())
        words.append(html.Span(f" · proposed: {changed}, the smallest that fits", className="cs-dim"))
    return words


def _describe_change(change: Mapping[str, Any]) -> str:
    settings = ((get_label(key).lower(), value) for key, value in change.items() if value is not None)
    return ", ".join(f"{label} {value}" for label, value in settings)


def _spell_change(change: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={'' if value is None else value}" for key, value in change.items())


# ---------------------------------------------------------------------------------------------------
# The time of a step


def build_times(filled: Filled, job_counts: Told) -> Any:
    """Return the time of a step, simulated where that takes about a second, else the least that it can be."""
    wanted, flop = filled.wanted, job_counts["flop"]
    least = compute_least_step_ns(wanted, flop)
    if least is None:
        return _build_time_facts(html.Span("choose a GPU", className="cs-dim"), None, None)
    if not is_small(wanted):
        shown = [
            build_rounded_value(f"over {format_ns(least)}", f"{least:,.0f} ns"),
            html.Span(" its FLOP at the peak; not simulated yet", className="cs-dim wl-of"),
        ]
        return _build_time_facts(shown, None, None)
    try:
        step = simulate_step(wanted)
    except StudioError as error:
        return _build_time_facts(html.Span(error.message, className="cs-dim wl-of"), None, None)
    name, count, _ = _describe_work(filled, job_counts)
    share = compute_utilization(wanted, flop, step.ns)
    return _build_time_facts(_format_step(step), share, count / (step.ns / 1e9), _explain_step(filled), name)


def _explain_step(filled: Filled) -> str:
    if filled.of is None and filled.wanted.kind != "inference":
        return STEP
    return f"{STEP} Compute nodes have {describe_times(filled.speed)}."


def _format_step(step: StepTime) -> list[Any]:
    return [
        build_rounded_value(format_ns(step.ns), f"{step.ns:,.0f} ns"),
        html.Span(f" simulated on {step.system}", className="cs-dim wl-of"),
    ]


def _build_time_facts(
    step: Any, share: float | None, tokens_a_second: float | None, about: str = STEP, name: str = "Tokens"
) -> Any:
    dash = html.Span("–", className="cs-dim")
    rate = (
        dash
        if tokens_a_second is None
        else build_rounded_value(format_si(tokens_a_second).strip(), f"{tokens_a_second:,.1f}")
    )
    attained = dash if share is None else build_rounded_value(f"{100 * share:.1f} %", f"{share:.6f}")
    return html.Dl(
        [
            _build_fact("Expected step time", step, about),
            _build_fact(f"{name} a second", rate, f"{name} of a step ÷ its time, of the whole job."),
            _build_fact("MFU", attained, MFU),
        ],
        className="cs-facts wl-facts",
    )


def build_waiting_times() -> Any:
    """Return the place of the times while they are not known."""
    return _build_time_facts(html.Span("…", className="cs-dim"), None, None)


# ---------------------------------------------------------------------------------------------------
# Mesh, memory, collectives


def build_drawing(layout: Layout) -> dict[str, Any]:
    """Return the drawing of the mesh of ranks of training."""
    return _build_mesh_drawing(_list_degrees(layout), layout.stage_layers)


def build_counts_drawing(job_counts: Told) -> dict[str, Any]:
    """Return the drawing of the mesh of ranks of a job of inference or another network, by its counts."""
    return _build_mesh_drawing(_parse_degrees(job_counts), job_counts.get("stage_layers", ()))


def _parse_degrees(job_counts: Told) -> list[tuple[str, int]]:
    parts = (part.partition("=") for part in job_counts["layout"].split(","))
    return [(name, int(size)) for name, _, size in parts]


def _build_mesh_drawing(degrees: Sequence[tuple[str, int]], layers: Sequence[int]) -> dict[str, Any]:
    # Experts are divided among ranks that other dimensions tell apart already.
    mesh = Mesh.of([(name, size) for name, size in degrees if name != "ep"])
    stages = mesh.axis("pp")

    def build_cell(rank: int) -> Cell:
        stage = stages.place(rank) if stages else 0
        where = f", stage {stage}" if len(layers) > 1 else ""
        held = f": {format_counted(layers[stage], 'layer')}" if layers else ""
        return Cell("rk-assumed", title=f"rank {rank}{where}{held}")

    caption = " · ".join(filter(None, (mesh.layout, describe_directions(mesh))))
    return {**asdict(draw_mesh(mesh, build_cell)), "caption": caption}


def _list_degrees(layout: Layout) -> list[tuple[str, int]]:
    """Return the degrees of a layout in the order of its ranks; those of 1 that few jobs have are left out."""
    degrees = [(name, int(getattr(layout, name))) for name in layout.order]
    return [(name, size) for name, size in degrees if size > 1 or name in ("tp", "dp", "pp")]


def _list_parts(memory: Mapping[str, int]) -> list[str]:
    return [part for part in memory if part not in ("total", "stage")]


def build_memory_section(filled: Filled, job_counts: Told) -> Any:
    """Return what NPUs hold, by part: a bar for each kind of stage, and the parts of the fullest."""
    fullest = job_counts["memory"]
    stages = job_counts.get("memory_by_stage") or [{part: fullest[part] for part in _list_parts(fullest)}]
    rows = _group_stages(stages)
    shown = rows[:_MOST_ROWS]
    whole = max(filled.memory_bytes or 0, *(sum(parts.values()) for _, parts in rows))
    head = ("stage", *_list_parts(fullest), "total")
    numbers = Table(head, [(at, *stages[at].values(), sum(stages[at].values())) for at in range(len(stages))])
    bars = [_build_limit(filled.memory_bytes, whole)] if filled.memory_bytes else []
    bars += [
        _build_bar(_label_stages(at, len(stages)), parts, whole, filled.memory_bytes) for at, parts in shown
    ]
    more = len(rows) - len(shown)
    return html.Div(
        [
            html.Div(
                [
                    html.H2(
                        [
                            "Memory of an NPU, by part",
                            build_hint("memory of an NPU", MEMORY if filled.of else MEMORY_OF_OTHERS),
                        ]
                    ),
                    build_export_buttons("memory", table=numbers),
                ],
                className="cs-figure-head",
            ),
            html.Div(bars, className="wl-bars", role="img", **build_aria_label(_describe_bars(rows, filled))),
            html.P(f"{format_count(more)} more kinds of stages; the table has all.", className="cs-dim")
            if more > 0
            else None,
            _build_parts_table(fullest, len(stages), _PARTS if filled.of else {}),
        ],
        className="cs-section",
    )


def _group_stages(stages: Sequence[Mapping[str, int]]) -> list[tuple[tuple[int, int], Mapping[str, int]]]:
    """Return the stages, those that follow each other and hold the same as one: (first, last) and the parts."""
    rows = []
    for _, group in groupby(enumerate(stages), key=lambda numbered: tuple(numbered[1].items())):
        places = list(group)
        rows.append(((places[0][0], places[-1][0]), places[0][1]))
    return rows


def _label_stages(at: tuple[int, int], stages: int) -> str:
    if stages == 1:
        return "every NPU"
    first, last = at
    return f"stage {first}" if first == last else f"stages {first} to {last}"


def _describe_bars(rows: Sequence[Any], filled: Filled) -> str:
    sizes = [f"{sum(parts.values()) / 1e9:.1f} GB" for _, parts in rows]
    of = f" of {filled.memory_bytes / 1e9:g} GB" if filled.memory_bytes else ""
    return f"Memory of an NPU by stage: {', '.join(sizes[:_MOST_ROWS])}{of}"


def _build_limit(memory: float, whole: float) -> Any:
    """Return the line above the bars that names the GPU's memory."""
    place = {"left": f"{100 * memory / whole:.3f}%"}
    name = html.Span(_format_gigabytes(memory), className="wl-limit-name cs-dim", style=place)
    return html.Div([html.Span(), html.Span(name, className="wl-axis"), html.Span()], className="wl-bar-row")


def _build_bar(name: str, parts: Mapping[str, int], whole: float, limit: float | None) -> Any:
    total = sum(parts.values())
    pieces = [
        html.Span(
            className=f"wl-part wl-part-{place}",
            style={"width": f"{100 * size / whole:.3f}%"},
            title=f"{_PART_NAMES.get(part, part)}: {format_si(size, 'B')}",
        )
        for place, (part, size) in enumerate(parts.items())
        if size
    ]
    mark = html.Span(className="wl-limit", style={"left": f"{100 * limit / whole:.3f}%"}) if limit else None
    over = limit is not None and total > limit
    return html.Div(
        [
            html.Span(name, className="wl-bar-name"),
            html.Span([*pieces, mark], className="wl-bar"),
            html.Span(format_si(total, "B"), className=f"wl-bar-total{' cs-level-error' if over else ''}"),
        ],
        className="wl-bar-row",
    )


def _build_parts_table(memory: Mapping[str, int], stages: int, about: Mapping[str, str]) -> Any:
    total = memory["total"]
    rows = [
        (
            html.Span(
                [
                    html.Span(className=f"cs-swatch wl-part-{place}"),
                    _PART_NAMES.get(part, part),
                    *_build_part_hint(part, about),
                ],
                className="cs-term",
            ),
            build_rounded_value(format_si(memory[part], "B"), memory[part]),
            f"{100 * memory[part] / total:.1f} %" if total else "–",
        )
        for place, part in enumerate(_list_parts(memory))
        if memory[part]
    ]
    rows.append((html.Span(html.Strong("together")), build_rounded_value(format_si(total, "B"), total), ""))
    where = "every NPU" if stages == 1 else f"stage {memory['stage']}, the fullest"
    return with_copy_button(build_table(("Part", where, "Share"), rows, numeric=(1, 2)), "memory by part")


def _build_part_hint(part: str, about: Mapping[str, str]) -> list[Any]:
    return [build_hint(part, about[part])] if part in about else []


def build_collectives_section(job_counts: Told) -> Any:
    """Return the collectives and messages of a step, with their bytes."""
    rows = [
        (
            _describe_group(collective["group"]),
            collective["type"].lower().replace("_", "-"),
            build_rounded_value(format_count(collective["count"]), collective["count"]),
            build_rounded_value(
                format_bytes(collective["bytes"] / collective["count"]),
                collective["bytes"] // collective["count"],
            ),
            build_rounded_value(format_bytes(collective["bytes"]), collective["bytes"]),
        )
        for collective in job_counts["collectives"]
    ]
    title = html.H2(["What a step sends", build_hint("what a step sends", COLLECTIVES)])
    if not rows:
        return html.Div(
            [title, html.P("Nothing: no two ranks share anything.", className="cs-dim")],
            className="cs-section",
        )
    head = ("Among", "Collective", "Nodes", "Bytes of one", "Bytes in all")
    return html.Div(
        [title, with_copy_button(build_table(head, rows, numeric=(2, 3, 4)), "collectives")],
        className="cs-section",
    )


def _describe_group(group: str) -> str:
    return describe_dimension(group) if group in NAMES else _KINDS.get(group, group)
