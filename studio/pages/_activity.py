"""What runs in the background, wherever one is: the count in the bar above every page."""

from __future__ import annotations

from typing import Any

from dash import dcc, html, no_update

from studio.imports import list_imports
from studio.pages._state import registry, simulations, workspace
from studio.pages._widgets import link
from studio.simulations import ACTIVE, listed


def activity(known: str | None) -> tuple[Any, Any, Any, Any]:
    """Return what is under way: the count, the list, whether to hide both, and a text that tells two lists apart.

    Count and list are left as they are where `known` says that they are shown: somebody may have them open.
    """
    names = {job.id: job.name for job in workspace().jobs()}
    items = [
        (one.name, link("/simulate", {"job": one.job}), names.get(one.job, one.job))
        for one in listed(simulations())
        if one.status in ACTIVE
    ]
    items += [
        (one.name, "/", "import") for one in list_imports(registry()) if one.status in ("queued", "reading")
    ]
    mark = repr(items)
    if mark == known:
        return no_update, no_update, no_update, no_update
    shown = [
        html.Li([dcc.Link(name, href=href), html.Span(f" · {about}", className="cs-dim")])
        for name, href, about in items
    ]
    return f"{len(items)} running", shown, not items, mark
