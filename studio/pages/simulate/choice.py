"""What is chosen before any single field: the system to start from, and the model of the simulation."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from studio.pages.base.widgets import aria_label, hint
from studio.pages.simulate.form import foretold_at
from studio.pages.simulate.system import presets

_MODE = (
    "Compatible: the answers of ASTRA-sim's analytical simulator, to the nanosecond. Extended: what it refuses or "
    "leaves out as well, each with a switch below."
)


def choice() -> Any:
    """Return the controls at the top of the form; callbacks in `system` set and read them by their ids."""
    return [
        _line(
            "System",
            dmc.Select(
                id="sim-preset",
                data=presets(),
                size="xs",
                placeholder="start from a preset",
                allowDeselect=False,
                searchable=True,
                nothingFoundMessage="No such preset",
                comboboxProps={"shadow": "sm"},
                **aria_label("Start from a preset"),
            ),
        ),
        _line(
            "Model",
            dmc.SegmentedControl(
                id="sim-mode",
                data=[
                    {"value": "compatible", "label": "Compatible"},
                    {"value": "extended", "label": "Extended"},
                ],
                size="xs",
                **aria_label("Mode"),
            ),
            hint("the mode", _MODE),
            html.Span(id="sim-congestion"),
        ),
        foretold_at("model"),
    ]


def _line(name: str, *controls: Any) -> Any:
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Div(
        [html.Span(name, className="cs-dim sim-choice-name", **hidden), *controls],
        className="sim-choice-line",
    )
