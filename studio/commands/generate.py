"""Generate a training job of a named model, without any trace.

KIND is llm: a dense decoder-only transformer, by the name of a preset, from a config.json (--config), or of your own numbers
(--model custom). Ranks are numbered as in Megatron-LM: tensor parallel ranks are adjacent, then data, then pipeline.

Compute nodes hold operations and bytes, which the roofline of a simulated system times; --gpu gives them durations. Without
-o the counts alone are printed: parameters, operations, memory of an NPU by part, bytes of each collective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import click

from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import progress_line, show
from studio.commands.base.terminal import printable, written_line
from studio.errors import ConfigError
from studio.et import Progress
from studio.et.write import write_with_copies
from studio.generation.configs import read_config
from studio.generation.job import make_job
from studio.generation.layout import SCHEDULES, Layout, Schedule, Wish, layout_of
from studio.generation.llm import describe, speed_of
from studio.generation.models import Model, find_model
from studio.trace import Trace
from studio.units import format_bytes, format_si

_SHAPE = {
    "layers": "Transformer layers.",
    "hidden": "Width of the residual stream.",
    "heads": "Attention heads.",
    "kv_heads": "Heads of keys and values; as many as heads unless given.",
    "head_size": "Width of a head; hidden / heads unless given.",
    "feed_forward": "Inner width of the feed-forward part.",
    "vocabulary": "Tokens of the vocabulary.",
}
_NEEDED = ("layers", "hidden", "heads", "feed_forward", "vocabulary")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `generate`.

    Attributes:
        model: What is trained.
        wish: What is said of the layout.
        target: Folder for the job; None makes none.
        gpu: The GPU that durations are of; None gives none.
        compute_efficiency, memory_efficiency: Shares of its peak and bandwidth that are reached.
    """

    model: Model
    wish: Wish
    target: Path | None = None
    gpu: str | None = None
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated job.

    Attributes:
        model, layout: What it is of.
        trace: The job, None where only counts were asked for.
        files: The files written.
    """

    model: Model
    layout: Layout
    trace: Trace | None
    files: tuple[Path, ...]


def run(request: Request, *, progress: Progress | None = None) -> Generated:
    """Generate a job and write it.

    Raises:
        ConfigError: Numbers do not divide, or are out of their ranges.
    """
    model, layout = request.model, layout_of(request.model, request.wish)
    speed = speed_of(request.gpu, request.compute_efficiency, request.memory_efficiency)
    if request.target is None:
        return Generated(model, layout, None, ())
    trace = make_job(model, layout, speed)
    files = write_with_copies(trace, request.target, model.name, progress=progress)
    return Generated(model, layout, trace, tuple(files))


def report(done: Generated) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        **describe(done.model, done.layout),
        "files": [str(path) for path in done.files],
        "graphs": len(done.trace.graphs) if done.trace else None,
    }


def text(done: Generated) -> str:
    """Format the result for a terminal."""
    told = describe(done.model, done.layout)
    memory = told["memory"]
    parts = [f"{part} {format_bytes(memory[part])}" for part in memory if part not in ("total", "stage")]
    stages = ", ".join(map(str, told["stage_layers"]))
    lines = [
        f"{told['model']}: {told['parameters']:,} parameters ({told['source'] or 'given'})",
        f"layout {told['layout']}, zero {told['zero']}, {told['schedule']}, layers of stages {stages}",
        f"batch of {told['batch']:,} × {told['sequence']:,} tokens ({told['batch_from']}), micro-batches of a replica: {told['micro_batches']:,}",
        f"{format_si(told['flop'])}FLOP in matrix products of a step",
        f"{format_bytes(memory['total'])} on a rank of stage {memory['stage']}, which holds most: {', '.join(parts)}",
        "collectives and messages of a step: nodes of all ranks, and the bytes that ranks give:",
    ]
    lines += [
        f"  {row['group']:<4}{row['type']:<16}{row['count']:>14,}  {format_bytes(row['bytes'])}"
        for row in told["collectives"]
    ]
    if done.files:
        lines.append(written_line(done.files))
    return "\n".join(printable(line) for line in lines)


def _custom(given: dict[str, Any], sequence: int | None) -> Model:
    missing = [name for name in _NEEDED if given[name] is None]
    if missing or sequence is None:
        options = [f"--{name.replace('_', '-')}" for name in missing] + ([] if sequence else ["--seq"])
        raise ConfigError(f"--model custom needs {', '.join(options)} as well.")
    heads = given["heads"]
    if not given["head_size"] and given["hidden"] % heads:
        raise ConfigError(
            f"--hidden is {given['hidden']:,}, which {heads} heads do not share evenly.",
            hint="Give --head-size, or other numbers.",
        )
    return Model(
        "custom", given["layers"], given["hidden"], heads, given["kv_heads"] or heads,
        given["head_size"] or given["hidden"] // heads, given["feed_forward"], given["vocabulary"], sequence,
        gated=not given["gelu"], biases=given["biases"], tied=given["tied"],
    )  # fmt: skip


def _chosen(given: dict[str, Any], sequence: int | None) -> Model:
    """Return the model that is asked for."""
    name, config = given["model"], given["config"]
    if (name is None) == (config is None):
        raise click.UsageError("Give either --model or --config.")
    shaped = [f"--{key.replace('_', '-')}" for key in (*_SHAPE, "gelu", "biases", "tied") if given[key]]
    if name == "custom":
        return _custom(given, sequence)
    model = read_config(config) if config is not None else find_model(name)
    if shaped:
        raise click.UsageError(f"{', '.join(shaped)}: for --model custom only.")
    return model if config is None else replace(model, source=config.name)


def _layers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    try:
        return None if value is None else tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 7,8,8,7.") from None


_COUNT = click.IntRange(min=1)


@click.command(
    help=__doc__, epilog="Example: chakra-studio generate llm --model llama3-8b --ranks 8 --tp 8 -o JOB"
)
@click.argument("kind", type=click.Choice(["llm"]))
@click.option("--model", metavar="NAME", help="A preset, such as llama3-70b, or custom.")
@click.option(
    "--config", metavar="FILE", type=PathOption(exists=True, dir_okay=False),
    help="A config.json in Hugging Face's form: llama, mistral, qwen2, qwen3 or gpt2.",
)  # fmt: skip
@click.option("--ranks", type=_COUNT, required=True, metavar="N", help="Ranks of the job.")
@click.option("--tp", type=_COUNT, default=1, show_default=True, metavar="N", help="Tensor parallel ranks.")
@click.option("--pp", type=_COUNT, default=1, show_default=True, metavar="N", help="Pipeline stages.")
@click.option("--dp", type=_COUNT, metavar="N", help="Replicas.  [default: ranks / (tp × pp)]")
@click.option(
    "--zero", type=click.Choice(["0", "1", "3"]), default="0", show_default=True,
    help="What replicas share: nothing, the optimizer, or weights and gradients as well (FSDP).",
)  # fmt: skip
@click.option(
    "--sequence-parallel/--no-sequence-parallel", default=None,
    help="Divide norms along the sequence among tensor parallel ranks.  [default: on where tp is above 1]",
)  # fmt: skip
@click.option(
    "--schedule",
    type=click.Choice(SCHEDULES),
    default="1f1b",
    show_default=True,
    help="Order of micro-batches.",
)
@click.option("--stage-layers", metavar="N,...", callback=_layers, help="Layers of each stage.")
@click.option(
    "--batch",
    type=_COUNT,
    metavar="N",
    help="Sequences of a step, of all replicas.  [default: the published recipe where it fits]",
)
@click.option(
    "--micro-batch",
    type=_COUNT,
    default=1,
    show_default=True,
    metavar="N",
    help="Sequences of a micro-batch.",
)
@click.option(
    "--seq", "sequence", type=_COUNT, metavar="N", help="Tokens of a sequence.  [default: the model's]"
)
@click.option("--steps", type=_COUNT, default=1, show_default=True, metavar="N", help="Training steps.")
@click.option("--gpu", metavar="GPU", help="Give compute nodes the durations of this GPU, such as h100.")
@click.option(
    "--compute-efficiency", type=float, default=1.0, show_default=True, metavar="SHARE",
    help="Share of the GPU's peak that is reached; 1 is a lower bound of time.",
)  # fmt: skip
@click.option(
    "--memory-efficiency", type=float, default=1.0, show_default=True, metavar="SHARE",
    help="Share of its memory's bandwidth that is reached.",
)  # fmt: skip
@click.option("--layers", type=_COUNT, metavar="N", help=f"Of a custom model: {_SHAPE['layers']}")
@click.option("--hidden", type=_COUNT, metavar="N", help=_SHAPE["hidden"])
@click.option("--heads", type=_COUNT, metavar="N", help=_SHAPE["heads"])
@click.option("--kv-heads", type=_COUNT, metavar="N", help=_SHAPE["kv_heads"])
@click.option("--head-size", type=_COUNT, metavar="N", help=_SHAPE["head_size"])
@click.option("--feed-forward", type=_COUNT, metavar="N", help=_SHAPE["feed_forward"])
@click.option("--vocabulary", type=_COUNT, metavar="N", help=_SHAPE["vocabulary"])
@click.option("--gelu", is_flag=True, help="No gate in the feed-forward part, as in GPT.")
@click.option("--biases", is_flag=True, help="Biases of linear layers and norms, as in GPT.")
@click.option("--tied", is_flag=True, help="The output layer shares the embedding's matrix.")
@click.option(
    "-o", "--out", "target", metavar="DIR", type=PathOption(file_okay=False), help="Folder for the job."
)
@json_option
def command(as_json: bool, **given: Any) -> None:
    """Carry out `generate`."""
    sequence = given["sequence"]
    wish = Wish(
        given["ranks"], given["tp"], given["pp"], given["dp"], given["batch"], given["micro_batch"], sequence,
        int(given["zero"]), given["sequence_parallel"], cast("Schedule", given["schedule"]), given["steps"],
        given["stage_layers"],
    )  # fmt: skip
    request = Request(
        _chosen(given, sequence), wish, given["target"], given["gpu"], given["compute_efficiency"],
        given["memory_efficiency"],
    )  # fmt: skip
    show(run(request, progress=progress_line()), as_json, report, text)
