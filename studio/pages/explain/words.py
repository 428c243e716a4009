"""The sentences and tables of the Explain page."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.pages.base.export import Table
from studio.pages.base.widgets import build_hint, build_rounded_value, build_table
from studio.sim.explaining import Explanation, Term, WayTime
from studio.units import format_bytes, format_counted, format_ns, format_rate

_BUS = "busbw, as nccl-tests defines it: bytes of the buffer over time, times what a ring sends over each port per byte."
_FORMULA = (
    "Waits are those of the protocol and of hops. Moving is the time of the bytes on the busiest port. Both "
    "overlap, as a pipeline does: with p = 1 they would follow each other, with a large p the longer hides the other. The host's time "
    "from call to call passes beside; it is seen where the collective is shorter. Latency that the network states is added."
)
_TAKEN = "The library takes a way by its own estimates, which is not always the quickest."
_ABOUT_VALUE = (
    "What the parameter of this machine is worth: a time, or for efficiencies, ramps and copies a number."
)
ABOUT_WAYS = (
    "Launch: from the call to the first byte. Waits: latencies that follow each other, of the protocol once and of each hop. Moving: "
    "the bytes of the busiest port over what the way attains of its bandwidth. In the node, between nodes: bytes through the "
    "port of the busiest member, to others of its node and to other nodes. Hops: inside nodes + between nodes, one after the other."
)
_PARAMETER = (
    "As the costs of the system name it: base is a latency once per collective, hop one per hop; efficiency is the share of the "
    "port's bandwidth that large sizes attain, ramp how much is lost until then, copy what copying between buffers costs."
)
_ADDS = "What the term adds to the part of the formula that it stands under."


def describe_headline(explanation: Explanation) -> Any:
    """Say what the collective takes, and by which way."""
    shape = explanation.shape
    parts: list[Any] = [
        f"{explanation.kind.replace('_', '-')} of {format_bytes(explanation.comm_size)}, {format_counted(shape.ranks, 'rank')} on ",
        f"{format_counted(shape.nodes, 'node')}: ",
        html.Strong(build_rounded_value(format_ns(explanation.total_ns), f"{explanation.total_ns:,.0f} ns")),
        f" by {explanation.way.name}",
        build_hint("the way that is taken", _TAKEN),
        f" · busbw {format_rate(explanation.bus_bytes_per_ns)}",
        build_hint("busbw", _BUS),
    ]
    if explanation.extrapolated:
        parts.append(
            " · extrapolated: the machine's parameters were fitted to other collectives, sizes or groups"
        )
    if explanation.correction:
        parts.append(f" · corrected by the calibration's residual curve ({explanation.correction})")
    return parts


def format_formula(explanation: Explanation) -> Any:
    """Write the formula with the numbers of the way that is taken."""
    way = explanation.way
    added = f" + {format_ns(sum(term.ns for term in way.latency))} latency" if way.latency else ""
    return [
        html.Code(
            f"{format_ns(way.total_ns)} = (({format_ns(way.host.ns)} host)^4 + ({format_ns(way.launch_ns)} launch + "
            f"(({format_ns(way.waits_ns)} waits)^{way.overlap:g} + ({format_ns(way.moving_ns)} moving)^{way.overlap:g})"
            f"^(1/{way.overlap:g}))^4)^(1/4){added}"
        ),
        build_hint("the formula", _FORMULA),
    ]


def describe_crossovers(explanation: Explanation) -> str:
    """Say from which sizes on another way is taken."""
    crossovers = explanation.crossovers
    if not crossovers:
        return f"Thick: the way that is taken, {explanation.way.name} at every size."
    parts = [f"from {format_bytes(crossover.size)} on {crossover.after}" for crossover in crossovers]
    return f"Thick: the way that is taken. {crossovers[0].before} first, {', '.join(parts)}."


def build_way_table(explanation: Explanation) -> Any:
    """Return what each way takes at the size that is asked about."""
    rows = []
    for index, way in enumerate(explanation.ways):
        name: Any = html.Strong(f"{way.name} (taken)") if index == explanation.way_index else way.name
        times = (way.total_ns, way.launch_ns, way.waits_ns, way.moving_ns)
        rows.append(
            [
                name,
                *(build_rounded_value(format_ns(time), f"{time:,.1f} ns") for time in times),
                format_bytes(way.inside_bytes) if way.inside_bytes else "–",
                format_bytes(way.between_bytes) if way.between_bytes else "–",
                f"{_format_steps(way.steps_inside)} + {_format_steps(way.steps_between)}",
            ]
        )
    head = ["Way", "Time", "Launch", "Waits", "Moving", "In the node", "Between nodes", "Hops"]
    return build_table(head, rows, numeric=range(1, 8))


def _format_steps(steps: float) -> str:
    return f"{steps:,.1f}".removesuffix(".0")


def _build_name(name: str, about: str) -> Any:
    return html.Span([name, build_hint(name.lower(), about)])


def build_term_table(way: WayTime) -> Any:
    """Return the terms of a way's sums."""
    parts = (
        ("host", (way.host,)),
        ("launch", way.launch),
        ("waits", way.waits),
        ("in the node", way.inside),
        ("between nodes", way.between),
        ("network", way.latency),
    )
    rows = [
        [title, term.name, _build_value(term), build_rounded_value(format_ns(term.ns), f"{term.ns:,.1f} ns")]
        for title, terms in parts
        for term in terms
    ]
    return build_table(
        [
            "Part",
            _build_name("Parameter", _PARAMETER),
            _build_name("Value", _ABOUT_VALUE),
            _build_name("Adds", _ADDS),
        ],
        rows,
        numeric=(2, 3),
    )


def _build_value(term: Term) -> Any:
    return build_rounded_value(
        format_ns(term.value) if term.is_time else f"{term.value:.4g}", f"{term.value:.10g}"
    )


def build_curve_table(explanation: Explanation) -> Table:
    """Return the numbers behind the figure."""
    names = [way.name for way in explanation.ways]
    rows = [
        (round(size), names[int(choice)], *(round(float(time), 1) for time in times))
        for size, choice, times in zip(
            explanation.sizes.tolist(), explanation.choice, explanation.curves.T, strict=True
        )
    ]
    return Table(("comm_size", "taken", *(f"{name}_ns" for name in names)), rows)
