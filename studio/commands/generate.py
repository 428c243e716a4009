"""Generate a job of a named model, without any trace: training, or steps of inference.

KIND is llm, training of a decoder-only transformer, or inference, steps of one: by the name of a preset, from a config.json
(--config), or of your own numbers (--model custom). Ranks are numbered as in Megatron-LM: tensor parallel ranks are adjacent,
then context, data and pipeline. In inference --batch is the sequences that decode, or the prompts of a prefill.
vit, resnet and dlrm are training of other networks, data parallel, the tables of dlrm divided among ranks.
cases are small jobs to test with, and have options of their own: see `generate cases --help`.

Compute nodes hold operations and bytes, which the roofline of a simulated system times; --gpu gives them durations. Without
-o the counts alone are printed: parameters, operations, memory of an NPU by part, bytes of each collective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base import generate_cases
from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.terminal import describe_written, escape_controls
from studio.commands.base.workload_options import (
    COUNT,
    add_workload_options,
    choose_model,
    collect_given_options,
    step_options,
)
from studio.et import Progress
from studio.et.write import write_with_copies
from studio.generation.families.counts import describe as describe_network
from studio.generation.families.job import OPTIONS as NETWORK_OPTIONS
from studio.generation.families.job import build_asked_network
from studio.generation.families.presets import NETWORKS
from studio.generation.inference.generate import describe as describe_steps
from studio.generation.inference.generate import generate_steps
from studio.generation.inference.options import INFERENCE, STEP_OPTIONS, build_asked_steps
from studio.generation.job import make_job
from studio.generation.llm import describe
from studio.generation.models import Model
from studio.generation.options import BY_KEY, OPTIONS
from studio.generation.program import describe_times
from studio.generation.workload import build_workload
from studio.trace import Trace
from studio.units import format_bytes, format_counted, format_si


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `generate`.

    Attributes:
        model: The name of a model, or its numbers.
        ranks: How many ranks.
        given: What else is said, by the keys of `studio.generation.options.OPTIONS`, or of inference `INFERENCE`.
        target: Folder for the job; None makes none.
        kind: `llm`, `inference` or a family of networks.
    """

    model: str | Model
    ranks: int
    given: Mapping[str, Any] = field(default_factory=dict)
    target: Path | None = None
    kind: str = "llm"


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated job.

    Attributes:
        composition: What it is made of, as `--json` prints it.
        trace: The job, None where only counts were asked for.
        files: The files written.
    """

    composition: Mapping[str, Any]
    trace: Trace | None
    files: tuple[Path, ...]


def run(request: Request, *, progress: Progress | None = None) -> Generated:
    """Generate a job and write it.

    Raises:
        ConfigError: Numbers do not divide, or are out of their ranges.
    """
    trace = None
    if request.kind in NETWORKS:
        wanted = build_asked_network(str(request.model), request.ranks, request.given, request.kind)
        figures = describe_network(wanted.network, wanted.replicas)
        if request.target is not None:
            trace = wanted.job()
    elif request.kind == "inference":
        asked = build_asked_steps(request.model, request.ranks, request.given)
        figures = describe_steps(asked.model, asked.wish, asked.speed.gpu if asked.speed else None)
        if request.target is not None:
            trace = generate_steps(asked)
    else:
        workload = build_workload(request.model, request.ranks, request.given)
        gpu = workload.speed.gpu if workload.speed else None
        figures = {
            **describe(workload.model, workload.layout, gpu),
            "compute_times": describe_times(workload.speed),
        }
        if request.target is not None:
            trace = make_job(
                workload.model, workload.layout, workload.speed, workload.faults, workload.recipe
            )
    if trace is None or request.target is None:
        return Generated(figures, None, ())
    files = write_with_copies(trace, request.target, figures["model"], progress=progress)
    return Generated(figures, trace, tuple(files))


def report(done: Generated) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        **done.composition,
        "files": [str(path) for path in done.files],
        "graphs": len(done.trace.graphs) if done.trace else None,
    }


def text(done: Generated) -> str:
    """Format the result for a terminal."""
    figures = done.composition
    active = figures.get("active_parameters", figures["parameters"])
    of_token = "" if active == figures["parameters"] else f", {active:,} of a token"
    lines = [
        f"{figures['model']}: {figures['parameters']:,} parameters{of_token} ({figures['source'] or 'given'})"
    ]
    if "kv_transfer" in figures:
        for part in ("prefill", "decode"):
            lines += [f"{part}, {format_counted(figures[part]['world_size'], 'rank')}:"]
            lines += [f"  {line}" for line in (*_format_step(figures[part]), *_format_memory(figures[part]))]
        joined = format_counted(figures["joined_sequences"], "sequence decodes", "sequences decode")
        lines.append(f"{joined} in the step after prompts have arrived")
    else:
        format_part = (
            _format_network
            if "family" in figures
            else _format_step
            if "phase" in figures
            else _format_training
        )
        lines += format_part(figures)
        lines += _format_memory(figures)
    if figures["collectives"]:
        lines.append("collectives and messages of a step: nodes of all ranks, and the bytes that ranks give:")
    lines += [
        f"  {row['group']:<4}{row['type']:<16}{row['count']:>14,}  {format_bytes(row['bytes'])}"
        for row in figures["collectives"]
    ]
    if done.files:
        lines.append(describe_written(done.files))
    return "\n".join(escape_controls(line) for line in lines)


def _format_memory(figures: Mapping[str, Any]) -> list[str]:
    memory = figures["memory"]
    parts = [
        f"{part.replace('_', ' ')} {format_bytes(memory[part])}"
        for part in memory
        if part not in ("total", "stage") and (memory[part] or part not in ("draft", "tables"))
    ]
    stage = "" if "family" in figures else f" of stage {memory['stage']}"
    most = f"{format_bytes(memory['total'])} on a rank{stage}, which holds most: {', '.join(parts)}"
    lines = [most]
    if any(figures.get("host_memory", {}).values()):
        host = figures["host_memory"]
        each = ", ".join(f"{part} {format_bytes(size)}" for part, size in host.items() if size)
        lines.append(f"{format_bytes(sum(host.values()))} in host memory besides: {each}")
    if not figures.get("unfit"):
        return lines
    cures = "; ".join(figures["remedies"]) or "no change of layout, data type or batch that was tried"
    return [*lines, figures["unfit"], f"what would fit: {cures}"]


def _format_training(figures: Mapping[str, Any]) -> list[str]:
    stages = ", ".join(map(str, figures["stage_layers"]))
    return [
        f"layout {figures['layout']}, zero {figures['zero']}, {figures['schedule']}, layers of stages {stages}",
        f"batch of {figures['batch']:,} × {figures['sequence']:,} tokens ({figures['batch_from']}), micro-batches of a replica: {figures['micro_batches']:,}",
        f"{format_si(figures['flop'])}FLOP in matrix products of a step",
        f"compute nodes: {figures['compute_times']}",
    ]


def _format_network(figures: Mapping[str, Any]) -> list[str]:
    return [
        f"layout {figures['layout']}, {figures['optimizer']}, gradients summed in buckets: {figures['buckets']}",
        f"batch of {figures['batch']:,} ({figures['batch_from']})",
        f"{format_si(figures['flop'])}FLOP in products and attention of a step",
    ]


def _format_step(figures: Mapping[str, Any]) -> list[str]:
    stages = ", ".join(map(str, figures["stage_layers"]))
    drafting = f", {figures['draft']} drafted tokens a sequence" if figures["draft"] else ""
    drafting += f" by {figures['draft_model']}" if figures["draft_model"] else ""
    read = f"{format_counted(figures['new_tokens'], 'new token')}, {figures['cached_tokens']:,} in the KV cache after the step"
    cache = f"{format_bytes(figures['kv_bytes_per_token'])} of KV cache a token"
    return [
        f"layout {figures['layout']}, layers of stages {stages}, {figures['dtype']}, KV cache in {figures['kv_dtype']}",
        f"{figures['phase']} of {format_counted(figures['sequences'], 'sequence')}: {read}{drafting}",
        f"{format_si(figures['flop'])}FLOP in matrix products and attention of a step; {cache}",
    ]


class _Kinds(click.Command):
    """The command; of cases, which share no option with models, that of theirs."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of what is asked for."""
        if args[:1] == [_CASES]:
            own = generate_cases.command
            own.context_settings.update(self.context_settings)
            return own.make_context(f"{info_name} {_CASES}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


_CASES = "cases"


@click.command(
    cls=_Kinds,
    help=__doc__,
    epilog="Example: chakra-studio generate llm --model llama3-8b --ranks 8 --tp 8 -o JOB",
)
@click.argument("kind", type=click.Choice(["llm", "inference", *NETWORKS, _CASES]))
@click.option("--model", metavar="NAME", help="A preset, such as llama3-70b, or custom.")
@click.option(
    "--config", metavar="FILE", type=PathOption(exists=True, dir_okay=False),
    help="A config.json in Hugging Face's form, such as that of llama, mixtral, qwen3_moe or gemma3.",
)  # fmt: skip
@click.option("--ranks", type=COUNT, required=True, metavar="N", help="Ranks of the job.")
@add_workload_options
@step_options
@click.option(
    "-o", "--out", "target", metavar="DIR", type=PathOption(file_okay=False), help="Folder for the job."
)
@json_option
def command(as_json: bool, **values: Any) -> None:
    """Carry out `generate`."""
    kind = values["kind"]
    if kind == _CASES:
        raise click.UsageError("cases comes before its options: chakra-studio generate cases -o DIR.")
    options = collect_given_options(values, (*OPTIONS, *STEP_OPTIONS))
    allowed = NETWORK_OPTIONS if kind in NETWORKS else INFERENCE if kind == "inference" else BY_KEY
    foreign = [key for key in options if options[key] is not None and key not in allowed]
    if foreign:
        names = ", ".join((BY_KEY | INFERENCE)[key].names[0].partition("/")[0] for key in foreign)
        raise click.UsageError(f"{names}: not of {kind}.")
    given = {key: options[key] for key in allowed}
    if kind in NETWORKS and (values["model"] is None or values["config"] is not None):
        raise click.UsageError(f"Give --model: {', '.join(NETWORKS[kind])}.")
    shape = [option.names[0] for option in OPTIONS if option.part == "shape" and given.get(option.key)]
    model = values["model"] if kind in NETWORKS else choose_model(values["model"], values["config"], shape)
    request = Request(model, values["ranks"], given, values["target"], kind)
    show(run(request, progress=build_progress_line()), as_json, report, text)
