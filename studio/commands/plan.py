"""Find the fastest layouts of a model on some ranks of a GPU.

Every layout that divides (tensor, pipeline, data parallel degrees, micro-batch, sharding, sequence parallelism) and fits in the GPU's memory
is simulated, but for those that a lower bound of their time rules out: the fastest and the front are those of simulating all. What you give
of a layout, such as --tp 8 or --zero 1, is fixed. The batch is the same for all; give it with --global-batch.

Printed are the fastest, the front of step time against memory, and where the time of the best of each kind of layout goes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.given_system import combine_parts
from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.simulation_request import SimulationRequest, with_system_file
from studio.commands.base.terminal import describe_written, escape_controls, shorten
from studio.commands.base.workload_options import (
    COUNT,
    add_workload_options,
    choose_model,
    collect_given_options,
)
from studio.et.write import write_with_copies
from studio.generation.models import Model
from studio.generation.options import OPTIONS
from studio.layout_search.layout_plan import MFU, TOP_AT_MOST, LayoutPlan
from studio.layout_search.layout_plan import plan as find_layouts
from studio.layout_search.memory import OFFLOAD_WORDS
from studio.layout_search.running import generate_job
from studio.layout_search.search import Item, Progress
from studio.layout_search.space import Candidate, list_degrees
from studio.layout_search.tables import write_layouts
from studio.layout_search.unfit import describe_layout
from studio.layout_search.why import list_part_times, list_reasons
from studio.units import format_bytes, format_counted, format_ns, format_si

_WIDE = 110
_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `plan`.

    Attributes:
        model: The name of a model, or its numbers.
        ranks: How many ranks.
        given: What is fixed, by the keys of `studio.generation.options.OPTIONS`.
        preset, system, network: The system, as in `simulate`; none is that of the GPU.
        settings: KEY=VALUE each, set on the system.
        top: How many of the fastest are asked for.
        output: Parquet file for every layout that fits; None for none.
        folder: Folder for jobs of the fastest; None for none.
        keep: So many jobs are written there.
    """

    model: str | Model
    ranks: int
    given: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None
    system: Path | None = None
    network: Path | None = None
    settings: tuple[str, ...] = ()
    top: int = 10
    output: Path | None = None
    folder: Path | None = None
    keep: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The layouts that `plan` prints.

    Attributes:
        request: What was asked for.
        plan: The layouts.
        jobs: Folders of the jobs that were written, the fastest first.
    """

    request: Request
    plan: LayoutPlan
    jobs: tuple[Path, ...] = ()


def run(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Find the fastest layouts, and write what is asked for.

    Raises:
        ConfigError: A name is not known, nothing divides, or no layout fits.
        StudioError: A file cannot be written.
    """
    simulated = with_system_file(
        SimulationRequest(
            (),
            preset=request.preset,
            system=request.system,
            network=request.network,
            settings=request.settings,
        )
    )
    files = simulated.system is not None or simulated.network is not None
    preset = simulated.preset
    given = dict(request.given)
    system = combine_parts(simulated, ranks=request.ranks) if files else None
    layouts = find_layouts(
        request.model, ranks=request.ranks, preset=preset, system=system, settings=request.settings if not files else (),
        top=request.top, progress=progress, **given,
    )  # fmt: skip
    if request.output is not None:
        write_layouts(request.output, layouts)
    jobs = []
    for place, item in enumerate(layouts.ranked[: request.keep] if request.folder else ()):
        assert request.folder is not None
        folder = (
            request.folder / f"{place + 1}-{item.candidate.layout.name.replace('=', '').replace(',', '-')}"
        )
        write_with_copies(
            generate_job(layouts.setting, item.candidate.options), folder, layouts.frame.model.name
        )
        jobs.append(folder)
    return Outcome(request, layouts, tuple(jobs))


def report(outcome: Outcome) -> dict[str, Any]:
    """Return what `--json` prints; docs/formats.md describes it."""
    layouts = outcome.plan
    rows = layouts.rows()
    return {
        "model": layouts.frame.model.name,
        "ranks": layouts.frame.ranks,
        "gpu": layouts.gpu.name,
        "memory_capacity_bytes": int(layouts.gpu.memory_gbytes * 1e9),
        "system": layouts.system_name,
        "batch": layouts.frame.batch,
        "batch_from": layouts.frame.batch_from,
        "sequence": layouts.frame.sequence,
        "fixed": {
            key: value for key, value in layouts.frame.given.items() if key not in ("batch", "sequence")
        },
        "without_host": layouts.without_host or None,
        "tried": {**{degree.key: degree.words for degree in list_degrees()}, "offload": OFFLOAD_WORDS},
        "divide": len(layouts.items) + layouts.unfit,
        "refused": sum(layouts.refused.values()),
        "fit": len(layouts.items),
        "simulated": len(layouts.simulated),
        "mfu_definition": MFU,
        "compute_times": layouts.compute_times,
        "layouts": rows,
        "why": list_reasons(layouts),
        "files": [
            str(path)
            for path in (*([outcome.request.output] if outcome.request.output else []), *outcome.jobs)
        ],
    }


def text(outcome: Outcome) -> str:
    """Format a search for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(outcome))


def _format_lines(outcome: Outcome) -> Iterator[str]:
    layouts = outcome.plan
    frame = layouts.frame
    yield f"{frame.model.name} on {frame.ranks:,} × {layouts.gpu.name}, system {layouts.system_name}"
    yield f"  batch of {frame.batch:,} × {frame.sequence:,} tokens ({frame.batch_from}); {layouts.compute_times}"
    yield from _describe_counts(layouts)
    yield ""
    yield "fastest"
    yield from _format_table(layouts, layouts.ranked)
    yield ""
    yield "front of step time against memory: no layout takes less of both"
    yield from _format_table(layouts, layouts.front)
    yield ""
    yield from _format_account(layouts)
    yield from (f"  {line}" for line in list_reasons(layouts))
    yield ""
    if outcome.jobs:
        for folder in outcome.jobs:
            yield describe_written((folder,))
            yield f"  chakra-studio simulate {shlex.quote(str(folder))}{_format_system_options(outcome)}"
    else:
        yield f"the job of the best: {generate_command(outcome.request, layouts.best.candidate)} -o JOB"
    if outcome.request.output is not None:
        yield describe_written((outcome.request.output,))


def _describe_counts(layouts: LayoutPlan) -> Iterator[str]:
    divide = len(layouts.items) + layouts.unfit
    yield (
        f"  {format_counted(divide, 'layout divides', 'layouts divide')}, {len(layouts.items):,} of them fit in {layouts.gpu.memory_gbytes:g} GB; "
        f"{sum(layouts.refused.values()):,} more do not divide or are not modelled"
    )
    if layouts.without_host:
        yield "  none fits without host memory, so a part goes there (offload). What would fit without:"
        yield f"  {layouts.without_host}"
    if layouts.nearest_unfit is not None:
        near = layouts.nearest_unfit
        yield f"  the nearest that does not fit: {describe_layout(near.candidate)}, {format_si(near.held.total, 'B')}"
    left = layouts.left_out
    words = f"  simulated {len(layouts.simulated):,} of the {len(layouts.items):,} layouts that fit"
    if left:
        words += f"; the others take at least {_format_step_time(layouts.step_ns(left[0]))} and change none of these tables"
    yield words
    failed = [item for item in layouts.items if item.error]
    if failed:
        yield f"  {format_counted(len(failed), 'layout')} cannot be simulated: {shorten(failed[0].error.splitlines()[0], _WIDE)}"


def _format_step_time(ns: float) -> str:
    return format_ns(round(ns))


def _format_table(layouts: LayoutPlan, items: list[Item]) -> Iterator[str]:
    yield f"  {'step':>9} {'tokens/s/GPU':>12} {'MFU':>6} {'memory':>9}  layout"
    for item in items:
        yield (
            f"  {_format_step_time(layouts.step_ns(item)):>9} {layouts.tokens_per_s(item):>12,.0f} {100 * layouts.mfu(item):>4.1f} % "
            f"{format_bytes(item.held.total):>9}  {describe_layout(item.candidate)}"
        )


def _format_account(layouts: LayoutPlan) -> Iterator[str]:
    names, rows = list_part_times(layouts)
    unit, scale = next(
        (unit, scale) for unit, scale in _UNITS if rows[0][1] * scale >= 1 or scale == _UNITS[-1][1]
    )
    yield f"where the time of a step goes in the best simulated of each kind, in {unit}, mean of ranks"
    yield "  " + " ".join(f"{name:>{max(8, len(name))}}" for name in ("step", *names)) + "  layout"
    for item, step, parts in rows:
        cells = zip(("step", *names), (step, *parts), strict=True)
        words = [f"{value * scale:>{max(8, len(name))}.3f}" for name, value in cells]
        least = layouts.least_of_kind_ns(item.candidate.kind)
        more = (
            f" (others of its kind at least {_format_step_time(least)})"
            if least < layouts.step_ns(item)
            else ""
        )
        yield f"  {' '.join(words)}  {item.candidate.kind}: {item.candidate.layout.name}{more}"


def _format_system_options(outcome: Outcome) -> str:
    request = outcome.request
    words = []
    for option, value in (
        ("preset", request.preset),
        ("system", request.system),
        ("network", request.network),
    ):
        words += [f"--{option}", shlex.quote(str(value))] if value is not None else []
    if not words:
        words = ["--preset", outcome.plan.system_name]
    words += [f"--set {shlex.quote(setting)}" for setting in request.settings]
    return " " + " ".join(words)


def generate_command(request: Request, candidate: Candidate) -> str:
    """Return the command that generates the job of a layout."""
    name = request.model if isinstance(request.model, str) else request.model.name
    words = ["chakra-studio generate llm", f"--model {shlex.quote(name)}", f"--ranks {request.ranks}"]
    for option in OPTIONS:
        value = request.given.get(option.key) if option.part == "shape" else candidate.options.get(option.key)
        if value is None or value == option.default:
            continue
        if option.kind == "switch":
            if bool(value) is not (candidate.layout.tp > 1):
                words.append(option.names[0].split("/")[0 if value else 1])
        elif option.kind == "flag":
            words.append(option.names[0])
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"{option.names[0]} {shlex.quote(text)}")
    return " ".join(words)


_existing = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio plan --model llama3-70b --gpu h100 --ranks 512 -o layouts.parquet",
)
@click.option("--model", metavar="NAME", help="A preset, such as llama3-70b, or custom.")
@click.option(
    "--config",
    metavar="FILE",
    type=PathOption(exists=True, dir_okay=False),
    help="A config.json in Hugging Face's form.",
)
@click.option("--ranks", type=COUNT, required=True, metavar="N", help="Ranks of the job.")
@click.option(
    "--top",
    type=click.IntRange(min=1, max=TOP_AT_MOST),
    default=10,
    metavar="N",
    help="Rank so many of the fastest; each of them is simulated.  [default: 10]",
)
@click.option(
    "--preset", metavar="NAME", help="The system, by name, or a system file (.yml).  [default: that of --gpu]"
)
@click.option(
    "--system", type=_existing, metavar="S.json", help="ASTRA-sim's system file, or a system file (.yml)."
)
@click.option("--network", type=_existing, metavar="N.yml", help="ASTRA-sim's network file.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the system; may be repeated.",
)
@add_workload_options
@click.option(
    "-o",
    "--out",
    "output",
    metavar="FILE",
    type=PathOption(dir_okay=False),
    help="Parquet file for every layout that fits.",
)
@click.option(
    "--jobs",
    "folder",
    metavar="DIR",
    type=PathOption(file_okay=False),
    help="Folder for the job of the best layout.",
)
@click.option(
    "--keep", type=COUNT, default=1, metavar="N", help="Write the jobs of the N best to --jobs.  [default: 1]"
)
@json_option
def command(as_json: bool, **values: Any) -> None:
    """Carry out `plan`."""
    given = collect_given_options(values)
    shape = [option.names[0] for option in OPTIONS if option.part == "shape" and given[option.key]]
    model = choose_model(values["model"], values["config"], shape)
    more = {
        key: values[key]
        for key in ("preset", "system", "network", "settings", "top", "output", "folder", "keep")
    }
    outcome = run(Request(model, values["ranks"], given, **more), progress=build_progress_line())
    show(outcome, as_json, report, text)
