"""Serve a trace of requests by a named model and say what requests see: times to tokens, rates, memory.

REQUESTS is a CSV file of when each request came, the tokens of its prompt and those generated, such as the Azure LLM inference
traces: TIMESTAMP, ContextTokens, GeneratedTokens, or arrival_s, prompt_tokens, output_tokens.

Continuous batching as in vLLM: a step has a budget of tokens, running sequences first, then parts of waiting prompts; the KV cache is
what weights leave of the GPU's memory, and where it is full the sequence admitted last is computed anew later. Times of steps are simulated
on the preset of the GPU. Each --load serves the same requests coming so many times as fast. -o writes figures of it all as one HTML file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from studio import __version__
from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.terminal import escape_controls
from studio.commands.base.workload_options import COUNT, declare
from studio.errors import ConfigError
from studio.et import Progress
from studio.generation.configs import read_config
from studio.generation.inference.options import INFERENCE, build_asked_steps
from studio.generation.inference.requests import read_requests
from studio.generation.inference.serving import (
    BUDGET,
    MEMORY_SHARE,
    SEQUENCES,
    build_server,
    compute_longest_request,
    describe_serving,
    serve_requests,
)
from studio.generation.models import Model
from studio.store.durable_files import write_atomically
from studio.units import format_bytes, format_counted, format_ns

_OPTIONS = (
    "tp",
    "pp",
    "stage_layers",
    "ep",
    "dtype",
    "kv_dtype",
    "draft",
    "draft_model",
    "seed",
    "compute_efficiency",
    "memory_efficiency",
)
_COLUMNS = ("mean", "p50", "p90", "p99", "most")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `requests`.

    Attributes:
        path: The CSV file.
        model: The name of a model, or its numbers.
        gpu: The GPU, or a system by its name.
        ranks: How many ranks.
        given: What else is said of layout and times, by the keys of `studio.generation.inference.options.INFERENCE`.
        budget, sequences, memory_share: Limits of the schedule.
        loads: How many times as fast requests come.
        out: HTML file to write; None writes none.
        skip_long: Whether requests longer than the context or the KV cache are left out.
        acceptance: Probability that a drafted token is accepted; None where none is drafted.
    """

    path: Path
    model: str | Model
    gpu: str
    ranks: int
    given: Mapping[str, Any] = field(default_factory=dict)
    budget: int = BUDGET
    sequences: int = SEQUENCES
    memory_share: float = MEMORY_SHARE
    loads: tuple[float, ...] = (1.0,)
    out: Path | None = None
    skip_long: bool = False
    acceptance: float | None = None


def run(request: Request, *, progress: Progress | None = None) -> dict[str, Any]:
    """Serve the requests at each load.

    Raises:
        ConfigError: The file or an option is wrong, the model does not fit, requests are longer than the cache, or the report
            cannot be written.
    """
    asked = build_asked_steps(request.model, request.ranks, {**request.given, "gpu": request.gpu})
    server = build_server(
        asked,
        request.gpu,
        budget=request.budget,
        sequences=request.sequences,
        memory_share=request.memory_share,
        acceptance=request.acceptance,
    )
    read = read_requests(request.path)
    most = compute_longest_request(server) if request.skip_long else None
    requests = tuple(each for each in read if most is None or each.tokens <= most)
    if not requests:
        raise ConfigError(
            f"All {len(read):,} requests are longer than {most:,} tokens, the longest allowed here.",
            hint="Choose a model with a longer context, a larger --tp, or a GPU with more memory.",
        )
    outcomes = []
    for number, load in enumerate(request.loads):
        if progress:
            progress("Serving", number, len(request.loads))
        outcomes.append(serve_requests(server, requests, load))
    if progress:
        progress("Serving", 1, 1)
    figures = {"requests": request.path.name, **describe_serving(server, outcomes, len(read) - len(requests))}
    if request.out is not None:
        # Imported late: drawing figures is slow to import.
        from studio.reporting.serving import build_serving_html

        with write_atomically(request.out, "--out") as stream:
            stream.write(build_serving_html(figures, f"Chakra Studio {__version__}"))
    return figures


def report(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `--json` prints."""
    return figures


def text(figures: Mapping[str, Any]) -> str:
    """Format the result for a terminal."""
    policy = figures["policy"]
    ranks = figures["world_size"] // figures["replicas"]
    held = format_bytes(policy["kv_cache_bytes_of_a_rank"])
    cache = f"{policy['kv_cache_tokens']:,} tokens, {held} on {'its rank' if ranks == 1 else f'each of its {ranks} ranks'}"
    lines = [
        f"{figures['model']} on {figures['world_size']} × {figures['gpu']}, {figures['layout']}, {figures['dtype']}, KV cache in {figures['kv_dtype']}",
        f"a step: up to {policy['token_budget']:,} tokens of {format_counted(policy['max_sequences'], 'sequence')}; KV cache of a replica: {cache}",
    ]
    if policy["pipeline_batches"] > 1:
        lines.append(
            f"{policy['pipeline_batches']} batches take turns in the pipeline, each with sequences of its own"
        )
    if policy["replicas_in_step"] > 1:
        lines.append(
            f"{policy['replicas_in_step']} replicas divide the experts: their steps begin and end together"
        )
    if policy["draft"]:
        by = policy["draft_model"] or "at no cost"
        lines.append(
            f"up to {policy['draft']} tokens a sequence are drafted, {by}; each is accepted with {policy['acceptance']:g}"
        )
    if figures["left_out"]:
        verb = "is" if figures["left_out"] == 1 else "are"
        lines.append(
            f"{format_counted(figures['left_out'], 'request')} {verb} left out: longer than the context or the KV cache"
        )
    for load in figures["loads"]:
        lines += ["", *_format_load(load, policy["kv_cache_blocks"])]
    error = f"{100 * figures['step_time_error']:.1f} %"
    lines += [
        "",
        f"{format_counted(figures['step_simulations'], 'step')} simulated; times of others differ by at most {error} where checked",
    ]
    return "\n".join(escape_controls(line) for line in lines)


def _format_load(load: Mapping[str, Any], blocks: int) -> list[str]:
    rate = "" if load["offered_per_s"] is None else f", {load['offered_per_s']:.3g} requests/s"
    done = f"{load['prompt_tokens_per_s']:,.0f} of prompts read, {load['requests_per_s']:.3g} requests/s done"
    lines = [
        f"load × {load['load']:g}: {format_counted(load['requests'], 'request')}{rate}",
        f"  {load['output_tokens_per_s']:,.0f} tokens/s generated, {done}",
        f"  {'':<26}" + "".join(f"{name:>11}" for name in _COLUMNS),
    ]
    for key, name in (
        ("ttft_ns", "time to first token"),
        ("tpot_ns", "time per output token"),
        ("latency_ns", "whole request"),
        ("queue_ns", "in the queue"),
    ):
        values = load[key]
        cells = "".join(
            f"{'–' if values[column] is None else format_ns(values[column]):>11}" for column in _COLUMNS
        )
        lines.append(f"  {name:<26}{cells}")
    cache = f"KV cache up to {100 * load['most_blocks'] / blocks:.0f} % full, {format_counted(load['preemptions'], 'preemption')}"
    most = f"at most {format_counted(load['most_running'], 'sequence runs', 'sequences run')} and {load['most_waiting']:,} wait"
    if load["drafted_tokens"]:
        share = load["accepted_tokens"] / load["drafted_tokens"]
        lines.append(
            f"  {format_counted(load['drafted_tokens'], 'token')} drafted, {100 * share:.0f} % of them accepted"
        )
    busy = f"busy {100 * load['busy_share']:.0f} % of the time"
    return [*lines, f"  {format_counted(load['steps'], 'step')}, {busy}; {most}, {cache}"]


def _parse_loads(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of numbers such as 0.5,1,2.") from None


def _add_workload_options(function: Any) -> Any:
    for key in reversed(_OPTIONS):
        function = declare(INFERENCE[key])(function)
    return function


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio requests azure.csv --model llama3.1-70b --gpu h100 --ranks 8 --tp 8 --load 0.5,1,2",
)
@click.argument("path", metavar="REQUESTS", type=PathOption(exists=True, dir_okay=False))
@click.option("--model", metavar="NAME", help="A preset, such as llama3.1-70b.")
@click.option(
    "--config", metavar="FILE", type=PathOption(exists=True, dir_okay=False),
    help="A config.json in Hugging Face's form, in place of --model.",
)  # fmt: skip
@click.option("--gpu", required=True, metavar="NAME", help="The GPU, such as h100, or a system by its name.")
@click.option(
    "--ranks", type=COUNT, required=True, metavar="N", help="Ranks; replicas are ranks / (tp × pp)."
)
@_add_workload_options
@click.option(
    "--token-budget", "budget", type=COUNT, default=BUDGET, show_default=True, metavar="N",
    help="New tokens of a step at most.",
)  # fmt: skip
@click.option(
    "--max-sequences", "sequences", type=COUNT, default=SEQUENCES, show_default=True, metavar="N",
    help="Sequences that run at once at most.",
)  # fmt: skip
@click.option(
    "--memory-share", type=float, default=MEMORY_SHARE, show_default=True, metavar="SHARE",
    help="Share of the GPU's memory that may be used.",
)  # fmt: skip
@click.option(
    "--load", "loads", default="1", show_default=True, metavar="FACTOR,...", callback=_parse_loads,
    help="How many times as fast requests come.",
)  # fmt: skip
@click.option(
    "--acceptance", type=float, metavar="SHARE",
    help="With --draft: the probability that a drafted token is accepted where those before it are.",
)  # fmt: skip
@click.option(
    "--skip-long", is_flag=True,
    help="Leave out requests longer than the model's context or the KV cache; how many is said.",
)  # fmt: skip
@click.option(
    "-o", "--out", type=PathOption(dir_okay=False), metavar="FILE", help="HTML file with figures to write."
)
@json_option
def command(as_json: bool, **values: Any) -> None:
    """Carry out `requests`."""
    if (values["model"] is None) == (values["config"] is None):
        raise click.UsageError("Give either --model or --config.")
    model: str | Model = values["model"]
    if values["config"] is not None:
        model = replace(read_config(values["config"]), source=values["config"].name)
    if model == "custom":
        raise ConfigError("--model is custom; allowed here: a preset, or --config.", key="model")
    request = Request(
        values["path"], model, values["gpu"], values["ranks"], {key: values[key] for key in _OPTIONS},
        values["budget"], values["sequences"], values["memory_share"], values["loads"], values["out"],
        values["skip_long"], values["acceptance"],
    )  # fmt: skip
    show(run(request, progress=build_progress_line()), as_json, report, text)
