"""Generate a training job by the name of its model, and say what it is made of."""

from __future__ import annotations

from typing import Any

from studio.errors import ConfigError
from studio.generation.job import make_job
from studio.generation.layout import Layout, Schedule, Wish, layout_of
from studio.generation.memory import stage_memory
from studio.generation.models import Model, find_model
from studio.generation.program import Speed
from studio.generation.transformer import parameters, step_flop
from studio.generation.volumes import step_volumes
from studio.sim.systems.gpus import find_gpu
from studio.trace import Trace


def generate(  # noqa: PLR0913 (one call with many options)
    model: str | Model,
    *,
    ranks: int,
    tp: int = 1,
    pp: int = 1,
    dp: int | None = None,
    batch: int | None = None,
    micro_batch: int = 1,
    sequence: int | None = None,
    zero: int = 0,
    sequence_parallel: bool | None = None,
    schedule: Schedule = "1f1b",
    steps: int = 1,
    stage_layers: tuple[int, ...] | None = None,
    gpu: str | None = None,
    compute_efficiency: float = 1.0,
    memory_efficiency: float = 1.0,
) -> Trace:
    """Return a training job of a dense transformer that nobody recorded.

    Args:
        model: The name of a preset (`studio.generation.models.MODELS`), or the numbers of a model.
        ranks: How many ranks.
        tp: Tensor parallel ranks.
        pp: Pipeline stages.
        dp: Replicas; None follows from the others, and another number than that is refused.
        batch: Sequences of a step, of all replicas together; None is the published recipe where it fits, and the trace's finding
            says which.
        micro_batch: Sequences of a micro-batch.
        sequence: Tokens of a sequence; None is that of the model's training.
        zero: 0 replicates all, 1 shards the optimizer, 3 weights and gradients as well (FSDP).
        sequence_parallel: None is on where `tp` is above 1.
        schedule: `1f1b` or `gpipe`.
        steps: Training steps.
        stage_layers: Layers of each stage; None is even, the first and the last with fewer where they do not divide.
        gpu: Give compute nodes the durations of this GPU, such as `h100`; None leaves them to a simulated system's roofline.
        compute_efficiency: Share of the GPU's peak that is reached; 1 is a lower bound of time.
        memory_efficiency: Share of its memory's bandwidth that is reached.

    Raises:
        ConfigError: A name is not known, or numbers do not divide.

    Example:
        >>> import studio
        >>> studio.generate("llama3-8b", ranks=8, tp=8)
        Trace(8 ranks, 1 graphs, 8,344 nodes, 1 comm groups, 1 findings)
    """
    shape = find_model(model) if isinstance(model, str) else model
    wish = Wish(
        ranks, tp, pp, dp, batch, micro_batch, sequence, zero, sequence_parallel, schedule, steps,
        stage_layers,
    )  # fmt: skip
    layout = layout_of(shape, wish)
    return make_job(shape, layout, speed_of(gpu, compute_efficiency, memory_efficiency))


def speed_of(gpu: str | None, compute: float, memory: float) -> Speed | None:
    """Return how fast compute nodes run on a GPU; None where none is named.

    Raises:
        ConfigError: There is no GPU of this name, or an efficiency is out of its range or given without a GPU.
    """
    if gpu is None:
        if (compute, memory) != (1.0, 1.0):
            raise ConfigError("An efficiency was given, but no --gpu.", hint="Name one, such as --gpu h100.")
        return None
    return Speed(find_gpu(gpu), compute, memory)


def describe(model: Model, layout: Layout) -> dict[str, Any]:
    """Return what a job is made of, as `--json` prints it: all from closed forms, none from the graphs.

    `memory` is that of the stage whose ranks hold most, `memory_by_stage` of each; `collectives` are of a step and of all ranks.
    """
    stages = [stage_memory(model, layout, stage) for stage in range(layout.pp)]
    fullest = max(range(layout.pp), key=lambda stage: sum(stages[stage].values()))
    return {
        "model": model.name,
        "source": model.source,
        "parameters": parameters(model),
        "layout": layout.name,
        "world_size": layout.ranks,
        "zero": layout.zero,
        "sequence_parallel": layout.sequence_parallel,
        "schedule": layout.schedule,
        "stage_layers": list(layout.stage_layers),
        "steps": layout.steps,
        "batch": layout.batch,
        "batch_from": layout.batch_from,
        "micro_batch": layout.micro_batch,
        "micro_batches": layout.micro_batches,
        "sequence": layout.sequence,
        "padded_vocabulary": layout.vocabulary(model),
        "flop": step_flop(model, layout),
        "memory": {**stages[fullest], "total": sum(stages[fullest].values()), "stage": fullest},
        "memory_by_stage": stages,
        "collectives": [
            {"group": group, "type": kind, "count": count, "bytes": size}
            for (group, kind), (count, size) in sorted(step_volumes(model, layout).items())
        ],
    }
