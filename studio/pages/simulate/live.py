"""The side panel of the Simulate form: figures of the network, its drawing, and whether the job fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from dash import dcc, html

from studio.analysis.job.completeness import Completeness
from studio.figures.drawing import Drawing, describe_links, draw_topology
from studio.pages.base.asked import EDIT, build_click_request
from studio.pages.base.export import Table, build_export_buttons
from studio.pages.base.widgets import build_address, build_findings_list, build_hint, build_rounded_value
from studio.sim.charges import build_group_shape, build_network_ports
from studio.sim.config import SystemConfig, Topology
from studio.sim.topology import bound_all_reduce_ns, compute_bisection_rate, compute_npu_rate
from studio.trace import Finding
from studio.units import format_bytes, format_count, format_counted, format_ns, format_rate

_SIZE_BYTES = 1 << 30
_BISECTION = (
    "Bandwidth between two halves of the NPUs in one direction: the least over the cuts across one dimension. "
    "Source: Dally and Towles, Principles and Practices of Interconnection Networks, 2004, 3.3.1."
)
_PER_NPU = "Bandwidth at which one NPU can send, all its links together: 2 in a ring, n-1 fully connected, 1 to a switch."
_IDEAL = (
    f"A time no all-reduce of {format_bytes(_SIZE_BYTES)} per NPU can beat where messages share links (congestion aware); "
    "the unaware network lets chunks pass a port at the same time and can be faster: 2(n-1) × bytes over the bandwidth of all links of the "
    "dimensions concerned, or the latency across the system if that is longer. Source: Patarasuk and Yuan, JPDC 69(2), 2009."
)

_ALONE = (
    "What the cost model of the system says that an all-reduce of all NPUs takes where nothing else is under way: the least "
    "over the algorithms and protocols of its library."
)


def show_facts(config: SystemConfig, job: Completeness, job_id: str, *, recorded: bool) -> Any:
    """Return the figures of a network, and whether it has an NPU for each rank of the job, recorded or not."""
    topology = config.topology
    sizes = " × ".join(format_count(dim.size) for dim in topology.dims)
    npus = f"{sizes} = {format_count(topology.npus)}" if len(topology.dims) > 1 else sizes
    network = config.links or topology
    cut, each = compute_bisection_rate(network), compute_npu_rate(network)
    shown: list[tuple[Any, Any]] = [
        ("NPUs", npus),
        (
            ["bandwidth per NPU", build_hint("bandwidth per NPU", _PER_NPU)],
            build_rounded_value(format_rate(each), f"{each:,} bytes/ns"),
        ),
    ]
    if topology.npus > 1:
        bisection = build_rounded_value(format_rate(cut), f"{cut:,} bytes/ns")
        shown += [
            (["bisection", build_hint("bisection bandwidth", _BISECTION)], bisection),
            _build_all_reduce_fact(config),
        ]
    return [
        html.Dl(
            [html.Div([html.Dt(name), html.Dd(value)]) for name, value in shown],
            className="cs-facts sim-facts",
        ),
        show_fit(config, job, job_id, recorded=recorded),
    ]


def _build_all_reduce_fact(config: SystemConfig) -> tuple[Any, Any]:
    """Return name and value of the time of an all-reduce of all NPUs: what it costs alone, or what bounds it."""
    topology, what = config.topology, f"all-reduce of {format_bytes(_SIZE_BYTES)}"
    if config.costs is not None and config.flows and topology.npus > 1:
        ports = build_network_ports(topology)
        shape = build_group_shape(range(topology.npus), ports.per_node)
        charge = config.costs.charge("all_reduce", np.array([float(_SIZE_BYTES)]), shape, ports)
        alone, way = float(charge.total_ns[0]), charge.choices[int(charge.choice[0])]
        name = [f"{what}, by {way}", build_hint("the time of an all-reduce", _ALONE)]
        return name, build_rounded_value(format_ns(alone), f"{alone:,.0f} ns")
    ideal = bound_all_reduce_ns(config.links or topology, _SIZE_BYTES)
    return [f"{what}, at best", build_hint("ideal all-reduce time", _IDEAL)], build_rounded_value(
        format_ns(ideal), f"{ideal:,.0f} ns"
    )


def show_fit(config: SystemConfig, job: Completeness, job_id: str, *, recorded: bool) -> Any:
    """Return whether the system has as many NPUs as the job has ranks, and whether all of them are known."""
    npus = config.topology.npus
    if npus != job.world and (config.needs_every_rank or npus < len(job.known)):
        return html.P(
            [
                html.Span(
                    f"The job has {format_counted(job.world, 'rank')}, the system {format_counted(npus, 'NPU')}. ",
                    className="cs-level-error",
                ),
                html.Button("Fit to the job", className="cs-button", **build_click_request(EDIT, "fit")),
            ],
            className="sim-fit",
        )
    if job.is_whole:
        return html.P(
            f"The system has as many NPUs as the job has ranks: {format_count(job.world)}.",
            className="sim-fit cs-dim",
        )
    if not config.needs_every_rank:
        return html.P(f"{job.sentence()} Those that are known are replayed.", className="sim-fit cs-dim")
    return html.P(
        [
            html.Span(f"{job.sentence()} ", className="cs-level-error"),
            dcc.Link(
                "Complete the job",
                href=build_address("/ranks", {"job": job_id}),
                className="cs-button cs-ask-button",
            ),
            " ",
            html.Button(
                "Replay the known ranks",
                className="cs-button",
                title="Recorded times for communication, too; Undo brings back the settings there are now",
                **build_click_request(EDIT, "replay"),
            )
            if recorded
            else None,
        ],
        className="sim-fit",
    )


def draw_network(topology: Topology) -> dict[str, Any]:
    """Return the drawing of a network as plain data for the browser."""
    drawing: Drawing = draw_topology(topology)
    return asdict(drawing)


def build_legend(topology: Topology) -> Any:
    """Return a line per dimension: what its links are."""
    lines = html.Ul(
        [
            html.Li([html.Span(className=f"sim-key sim-key-{min(index, 3)}"), describe_links(dim, index)])
            for index, dim in enumerate(topology.dims)
        ],
        className="sim-legend",
    )
    head = ("dimension", "kind", "npus", "link_bytes_per_ns", "link_latency_ns")
    rows = [
        (index, dim.kind, dim.size, dim.bytes_per_ns, dim.latency_ns)
        for index, dim in enumerate(topology.dims)
    ]
    save = build_export_buttons(
        "topology", figure="sim-drawing", table=Table(head, rows), title="the network"
    )
    return html.Div([lines, save], className="cs-figure-head")


def describe_findings(findings: Sequence[Finding]) -> Any:
    """Say in a line what would go wrong in a run, and list all of it below on demand; or say that nothing would."""
    if not findings:
        return html.P("No problems: ready to run.", className="cs-dim sim-ready")
    listed = [finding for finding in findings if finding.level != "info"] or list(findings)
    worst = next((finding for finding in listed if finding.level == "error"), listed[0])
    counts = [
        format_counted(number, noun)
        for level, noun in (("error", "error"), ("warning", "warning"), ("info", "remark"))
        if (number := sum(finding.level == level for finding in listed))
    ]
    line = html.Summary(
        [
            html.Span(" and ".join(counts), className=f"cs-level-{worst.level} sim-told-count"),
            html.Span(worst.message, className="sim-told-first", title=worst.message),
        ]
    )
    return html.Details([line, build_findings_list(listed, most=20)], className="sim-told")
