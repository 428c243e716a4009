"""The form of a sweep: which system, which settings with their values, how many points, and prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from studio.errors import ConfigError, StudioError
from studio.jobs.advising import is_for_advice
from studio.jobs.sweeps import PREFIX, Asked, build_sweep
from studio.pages.base.asked import SWEEP, build_click_request
from studio.pages.base.state import get_session, get_workspace
from studio.pages.base.widgets import build_aria_label, build_hint
from studio.sim.models import get_model
from studio.sim.network import COSTS
from studio.sim.presets import PRESETS
from studio.sim.remote_memory import ASSUMED, needs_memory
from studio.sim.systems.proposals import propose
from studio.sweep.costs import EXAMPLE, Costs, build_costs
from studio.sweep.space import parse_space
from studio.sweep.sweep import refuse_impossible
from studio.units import format_count, format_counted, parse_ns

RUN = "run:"
_VALUES = (
    "One setting a line, KEY=VALUES, as --set takes them: values separated by commas, lists in brackets as one value, and "
    "ranges a..b, a..b:step or a..b*factor. Beside the keys of the system: preset, npus, model, and dp, the replicas that "
    "the job is scaled to."
)
_DRAW = "So many points of the grid, drawn at random with the same seed; empty simulates all of them."
_COSTS = (
    "A system costs NPUs × (price of a GPU + Σ over dimensions of its port's GB/s × price per GB/s). The prices here are round "
    "numbers to start with, nobody's; change them, and the front follows without a new sweep."
)

_UNDER = (
    "Looks for the cheapest point that finishes in this time instead of simulating all: at each combination of the other "
    "settings the values of one are halved until the border is found. Its values have to be rising numbers, and the finish is "
    "taken to fall or rise steadily with them. Without a name it is the first setting with such values."
)
_SCHEDULER = (
    "Address of a Dask scheduler, such as tcp://10.0.0.5:8786, whose workers simulate the points. They have to see the folder of "
    "the workspace. Empty simulates on this machine."
)


def build_form() -> Any:
    """Return the form."""
    return html.Div(
        [
            html.H2("A new sweep"),
            html.Label("System", htmlFor="sweep-system", className="cs-dim"),
            dmc.Select(id="sweep-system", data=[], size="xs", searchable=True, allowDeselect=False),
            html.Div(
                [
                    html.Label("Settings and their values", htmlFor="sweep-varied", className="cs-dim"),
                    build_hint("a setting with values", _VALUES),
                ]
            ),
            dcc.Textarea(id="sweep-varied", className="sweep-varied", spellCheck=False),
            html.Div(id="sweep-count", role="status", className="sweep-count"),
            _build_draw_row(),
            _build_bisection_row(),
            _build_scheduler_row(),
            html.Div(
                [
                    html.Span("Prices", className="cs-dim"),
                    build_hint("what a system costs", _COSTS),
                ],
                className="sweep-row",
            ),
            html.Div(
                [
                    _build_price_field("gpu", "a GPU", EXAMPLE.gpu),
                    _build_price_field("inside", "GB/s of a port, dimension 0", EXAMPLE.gb_per_s_port[0]),
                    _build_price_field(
                        "between", "GB/s of a port, further dimensions", EXAMPLE.gb_per_s_port[1]
                    ),
                ],
                className="sweep-prices",
            ),
        ],
        className="sweep-form",
    )


def _build_draw_row() -> Any:
    """Return the fields of a random draw, and the button that runs the sweep."""
    return html.Div(
        [
            html.Span("at random", className="cs-dim"),
            dmc.TextInput(
                id="sweep-draw", size="xs", w=72, placeholder="all", **build_aria_label("Points at random")
            ),
            build_hint("a random draw", _DRAW),
            html.Span(style={"flex": 1}),
            html.Button(
                "Run",
                id="sweep-run",
                className="cs-button cs-ask-button sweep-go",
                disabled=True,
                **build_click_request(SWEEP, "run"),
            ),
        ],
        className="sweep-row",
    )


def _build_bisection_row() -> Any:
    """Return the fields of a bisection: the time to come under, and the setting."""
    return html.Div(
        [
            html.Span("cheapest under", className="cs-dim"),
            dmc.TextInput(
                id="sweep-under",
                size="xs",
                w=72,
                placeholder="20 ms",
                debounce=300,
                **build_aria_label("Time"),
            ),
            html.Span("by", className="cs-dim"),
            dmc.TextInput(
                id="sweep-bisect",
                size="xs",
                placeholder="setting",
                debounce=300,
                className="sweep-wide",
                **build_aria_label("Setting to bisect"),
            ),
            build_hint("a bisection", _UNDER),
        ],
        className="sweep-row",
    )


def _build_scheduler_row() -> Any:
    """Return the field of the scheduler whose workers simulate the points."""
    return html.Div(
        [
            html.Span("scheduler", className="cs-dim"),
            dmc.TextInput(
                id="sweep-scheduler",
                size="xs",
                placeholder="this machine",
                debounce=300,
                className="sweep-wide",
                **build_aria_label("Address of a scheduler"),
            ),
            build_hint("a scheduler", _SCHEDULER),
        ],
        className="sweep-row",
    )


def _build_price_field(name: str, label: str, value: float) -> Any:
    return html.Div(
        [
            html.Label(label, htmlFor=f"sweep-price-{name}"),
            dmc.TextInput(id=f"sweep-price-{name}", value=f"{value:g}", size="xs", w=84, debounce=300),
        ],
        className="sweep-row",
    )


def parse_prices(gpu: str | None, inside: str | None, between: str | None) -> Costs:
    """Return the prices in the form.

    Raises:
        ConfigError: One is no number.
    """
    rates = [
        _parse_number("GB/s of a port, dimension 0", inside),
        _parse_number("GB/s of a port, further dimensions", between),
    ]
    return build_costs({"gpu": _parse_number("a GPU", gpu), "gb_per_s_port": rates}, "Prices")


def _parse_number(name: str, text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError as error:
        raise ConfigError(f"The price of {name} is {text!r}; allowed: a number from 0") from error


def list_systems(job: str) -> list[dict[str, str]]:
    """Return what can be varied: the systems of the job's runs, newest first, and presets."""
    runs = [
        {"value": f"{RUN}{info.id}", "label": f"as in run {info.label}"} for info in get_workspace().runs(job)
    ]
    return [
        *runs,
        *({"value": preset.name, "label": f"{preset.name} · {preset.title}"} for preset in PRESETS.values()),
    ]


def choose_first_system(job: str, shown: str | None) -> str:
    """Return the system to begin with: of the run that is shown, else of the newest, else the first that is proposed for the job.

    Neither replays, in which the network changes nothing, nor runs that the studio made for a sweep or for advice.
    """
    runs = [info for info in get_workspace().runs(job) if get_model(info.tables) != "replay"]
    own = [info.id for info in runs if info.id == shown]
    own += [info.id for info in runs if not (info.name.startswith(PREFIX) or is_for_advice(info.name))]
    return f"{RUN}{own[0]}" if own else propose(get_session().trace(job))[0].system


def choose_first_settings(job: str, system: str) -> str:
    """Return settings to begin with: rates and latency, and the memory that a job with loads and stores needs."""
    trace = get_session().trace(job)
    if system.startswith(RUN):
        tables = get_workspace().run_info(job, system.removeprefix(RUN)).tables
        network, has_memory = tables.network, tables.memory is not None
    else:
        network, has_memory = PRESETS[system].system.parts(len(trace.ranks)).network, False
    sizes = network.get("npus_count")
    lines = ["bandwidth[0]=100..900:100"]
    if isinstance(sizes, list | tuple) and len(sizes) > 1:
        lines += ["bandwidth[1]=25,50,100,200"]
    else:
        lines += ["costs.algorithm=ring,tree"] if COSTS in network else ["latency[0]=250,500,1000,2000"]
    if needs_memory(trace) and not has_memory:
        lines += [f"{key}={value}" for key, value in ASSUMED.items()]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the form; None and "" where nothing does.

    Attributes:
        system: The system that is varied.
        varied: Settings with their values, one a line.
        draw: Points at random.
        under: Time that a bisection looks for.
        bisect: The setting that it bisects.
        scheduler: Address of a scheduler.
    """

    system: str | None = None
    varied: str | None = None
    draw: str | None = None
    under: str | None = None
    bisect: str | None = None
    scheduler: str | None = None


def parse_form(job: str, typed: Typed) -> Asked:
    """Return what the form asks for.

    Raises:
        ConfigError: The number of points is none, or the time of a bisection is none, or a draw stands beside it.
    """
    system, varied, draw = typed.system, typed.varied, typed.draw
    lines = tuple(line.strip() for line in (varied or "").splitlines() if line.strip())
    text, name = (draw or "").strip(), system or ""
    if text and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(f"Points at random are {text!r}; allowed: a whole number, or nothing for all")
    run = name.removeprefix(RUN) if name.startswith(RUN) else ""
    under, key = (typed.under or "").strip(), (typed.bisect or "").strip()
    if key and not under:
        raise ConfigError(
            f"{key!r} is to be bisected, and no time is given to come under; allowed: both or none"
        )
    if under and text:
        raise ConfigError("Points at random are given beside a time to come under; allowed: one of both")
    return Asked(
        job,
        lines,
        "" if run else name,
        run,
        int(text) if text else None,
        bisect=(key or _find_rising_key(lines)) if under else "",
        under_ns=parse_ns(under) if under else 0,
        scheduler=(typed.scheduler or "").strip(),
    )


def _find_rising_key(lines: tuple[str, ...]) -> str:
    """Return the first setting whose values are rising numbers, the default for a bisection."""
    for axis in parse_space(lines).axes:
        numbers = axis.numbers
        if numbers is not None and len(numbers) > 1 and list(numbers) == sorted(numbers):
            return axis.key
    raise ConfigError(
        "no setting has rising numbers, among which to look for the cheapest; allowed: one or more",
        hint="Write a range, such as bandwidth[0]=100..900:100.",
    )


def describe_count(asked: Asked) -> tuple[Any, bool]:
    """Say how many points the form asks for, or what is wrong with it; and whether it can run."""
    try:
        sweep = build_sweep(get_session(), asked)
        refuse_impossible(sweep, len(get_session().trace(asked.job).ranks))
    except StudioError as error:
        return html.Span(
            [error.message, " ", html.Span(error.hint, className="cs-dim")], className="cs-level-error"
        ), False
    size = sweep.space.size
    if asked.bisect:
        others = size // len(next(axis for axis in sweep.space.axes if axis.key == asked.bisect).values)
        searches = "" if others == 1 else f", {format_count(others)} times"
        return f"{asked.bisect} is bisected{searches}, of {format_counted(size, 'point')}", True
    count = size if asked.draw is None else min(size, asked.draw)
    by = " × ".join(f"{len(axis.values):,}" for axis in sweep.space.axes)
    of = f" of {format_count(size)}" if count < size else ""
    return f"{by} = {format_counted(count, 'point')}{of}", True
