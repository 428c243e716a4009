"""What the bar above every page tells: what runs in the background, and which run the page shows."""

from __future__ import annotations

import json
from typing import Any

from dash import dcc, html, no_update

from studio.errors import StudioError
from studio.pages._state import RECORDED, registry, session, simulations, workspace
from studio.pages._widgets import link
from studio.simulations import ACTIVE, listed
from studio.store.imports import list_imports
from studio.views.address import runs_of


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


def run_choice(shown: str | None) -> tuple[list[dict[str, str]], str | None, str | None, bool]:
    """Return the runs to choose from, the one that is shown, again for the script, and whether to hide the choice.

    Args:
        shown: The view's job and run, as a JSON list; both may be null.
    """
    job, wanted = json.loads(shown) if shown else (None, None)
    if not job:
        return [], None, None, True
    try:
        known = runs_of(session(), job)
    except StudioError:
        # The page says what is wrong with the job.
        return [], None, None, True
    if not known:
        return [], None, None, False
    value = wanted or known[0]["value"]
    if value not in {one["value"] for one in known}:
        gone = "as recorded" if value == RECORDED else f"{value[:40]} (gone)"
        known.append({"value": value, "label": gone})
    return known, value, value, False
