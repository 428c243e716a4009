"""What is chosen before any single field: the system to start from, and the model of the simulation."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from studio.pages.base.widgets import build_aria_label, build_hint
from studio.pages.simulate.form import build_foretold_place
from studio.pages.simulate.system import list_model_options, list_preset_options

_MODEL = (
    "Full: all collectives, each timed on every dimension that it crosses, beside what else is under way, with the costs of "
    "real libraries where the system has them; recorded compute is kept. ASTRA-sim: the answers of its analytical "
    "simulator, to the nanosecond. Runs of different models are never ranked against each other."
)


def build_choice() -> Any:
    """Return the controls at the top of the form; callbacks in `system` set and read them by their ids."""
    return [
        _build_line(
            "System",
            dmc.Select(
                id="sim-preset",
                data=list_preset_options(),
                size="xs",
                placeholder="start from a preset",
                allowDeselect=False,
                searchable=True,
                nothingFoundMessage="No such preset",
                comboboxProps={"shadow": "sm"},
                **build_aria_label("Start from a preset"),
            ),
        ),
        _build_line(
            "Model",
            dmc.SegmentedControl(
                id="sim-mode",
                data=list_model_options("full"),
                size="xs",
                **build_aria_label("Model"),
            ),
            build_hint("the model", _MODEL),
            html.Span(id="sim-congestion"),
        ),
        build_foretold_place("model"),
    ]


def _build_line(name: str, *controls: Any) -> Any:
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Div(
        [html.Span(name, className="cs-dim sim-choice-name", **hidden), *controls],
        className="sim-choice-line",
    )
