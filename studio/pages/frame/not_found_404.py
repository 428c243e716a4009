"""The page for addresses that do not exist."""

from __future__ import annotations

from typing import Any

import dash
from dash import dcc, html

dash.register_page(__name__, name="Not found", title="Not found · Chakra Studio", order=99)


def layout(**_query: str) -> Any:
    """Return the page."""
    return html.Div(
        [
            html.H1("There is no such page"),
            html.P("The address may be mistyped. The pages are listed on the left."),
            dcc.Link("Go to Home", href="/", className="cs-button"),
        ],
        className="cs-empty",
    )
