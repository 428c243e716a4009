"""What the Ranks page says would be made of a job."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.pages.base.widgets import build_findings_list
from studio.units import format_counted
from studio.views.ranks import MOST_TRIED, Planned


def describe_plan(plan: Planned) -> Any:
    """Say what would be made."""
    ranks = format_counted(plan.mesh.world, "rank")
    size = (
        f"{ranks} in {format_counted(plan.graphs, 'graph')}, {format_counted(plan.nodes, 'node')}, "
        f"{format_counted(plan.groups, 'comm group')}."
        if plan.graphs
        else f"{ranks}. More than {MOST_TRIED:,} are tried only when they are made: what does not fit is said then."
    )
    findings = [finding for finding in plan.findings if finding.level != "info"]
    return [
        html.P([html.Strong("Would make "), size, " This job stays as it is."]),
        build_findings_list(findings) if findings else None,
    ]
