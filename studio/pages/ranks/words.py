"""What the Ranks page says would be made of a job."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.pages.base.widgets import findings_list
from studio.units import format_counted
from studio.views.ranks import Planned


def planned_words(plan: Planned) -> Any:
    """Say what would be made."""
    size = (
        f"{format_counted(plan.mesh.world, 'rank')} in {format_counted(plan.graphs, 'graph')}, "
        f"{format_counted(plan.nodes, 'node')}, {format_counted(plan.groups, 'comm group')}."
    )
    told = [finding for finding in plan.findings if finding.level != "info"]
    return [
        html.P([html.Strong("Would make "), size, " This job stays as it is."]),
        findings_list(told) if told else None,
    ]
