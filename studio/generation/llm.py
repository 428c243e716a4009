"""Generate a training job by the name of its model, and say what it is made of."""

from __future__ import annotations

from typing import Any

from studio.generation.families.job import build_asked_network
from studio.generation.families.presets import NAMES
from studio.generation.fitting import Fit, fit_in
from studio.generation.job import make_job
from studio.generation.layout import Layout
from studio.generation.memory import count_host_memory, count_stage_memory
from studio.generation.models import Model
from studio.generation.transformer import (
    count_active_parameters,
    count_parameters,
    count_recomputed_flop,
    count_step_flop,
)
from studio.generation.volumes import count_step_volumes
from studio.generation.workload import build_workload
from studio.operators.roofline import Gpu
from studio.trace import Trace


def generate(model: str | Model, *, ranks: int, **options: Any) -> Trace:
    """Return a training job of a model that nobody recorded.

    Args:
        model: The name of a preset (`studio.generation.models.MODELS`), `custom`, or the numbers of a transformer; or a network of
            another family (`studio.generation.families.presets.NAMES`), which takes few of the options.
        ranks: How many ranks.
        options: What else is said of layout, batch and compute times, by the keys of `studio.generation.options.OPTIONS`: `tp`,
            `pp`, `batch`, `micro_batch`, `zero`, `gpu` and so on, those of `chakra-studio generate llm`. One that is None takes
            its default. Where the batch is not given, the trace's finding says where it is from.

    Raises:
        ConfigError: A name is not known, or numbers do not divide.

    Example:
        >>> import studio
        >>> studio.generate("llama3-8b", ranks=8, tp=8)
        Trace(8 ranks, 1 graph, 8,344 nodes, 1 comm group, 1 finding)
    """
    if isinstance(model, str) and model.strip().lower() in NAMES:
        return build_asked_network(model, ranks, options).job()
    workload = build_workload(model, ranks, options)
    return make_job(workload.model, workload.layout, workload.speed, workload.faults, workload.recipe)


def describe(model: Model, layout: Layout, gpu: Gpu | None = None) -> dict[str, Any]:
    """Return what a job is made of, as `--json` prints it: all from closed forms, none from the graphs.

    `memory` is that of the stage whose ranks hold most, `memory_by_stage` of each; `collectives` are of a step and of all ranks.

    Args:
        model: What is trained.
        layout: How ranks share it.
        gpu: Whose memory it is held against (`fits`, `unfit`, `remedies`); None holds it against none.
    """
    fit = fit_in(model, layout, gpu.memory_gbytes * 1e9) if gpu else Fit()
    stages = [count_stage_memory(model, layout, stage) for stage in range(layout.pp)]
    fullest = max(range(layout.pp), key=lambda stage: sum(stages[stage].values()))
    return {
        "model": model.name,
        "source": model.source,
        "parameters": count_parameters(model),
        "active_parameters": count_active_parameters(model),
        "layout": layout.name,
        "world_size": layout.ranks,
        "zero": layout.zero,
        "sequence_parallel": layout.sequence_parallel,
        "schedule": layout.schedule,
        "virtual_stages": layout.virtual_stages,
        "stage_layers": list(layout.stage_layers),
        "order": "-".join(layout.order),
        "shards": layout.shards if layout.zero else 1,
        "grad_overlap": layout.grad_overlap,
        "dtype": layout.dtype,
        "grad_dtype": layout.grad_dtype,
        "reduce_dtype": layout.reduce_dtype or layout.grad_dtype,
        "optimizer": layout.optimizer,
        "offload": layout.offload,
        "steps": layout.steps,
        "batch": layout.batch,
        "batch_from": layout.batch_from,
        "micro_batch": layout.micro_batch,
        "micro_batches": layout.micro_batches,
        "sequence": layout.sequence,
        "padded_vocabulary": layout.vocabulary(model),
        "flop": count_step_flop(model, layout),
        "flop_recomputed": count_recomputed_flop(model, layout),
        "recompute": layout.recompute,
        "attention": layout.attention,
        "memory": {**stages[fullest], "total": sum(stages[fullest].values()), "stage": fullest},
        "memory_by_stage": stages,
        "host_memory": count_host_memory(model, layout, fullest),
        "fits": not fit.words if gpu else None,
        "unfit": fit.words,
        "remedies": [str(remedy) for remedy in fit.remedies],
        "collectives": [
            {"group": group, "type": kind, "count": count, "bytes": size}
            for (group, kind), (count, size) in sorted(count_step_volumes(model, layout).items())
        ],
    }
