"""Build the error for a model of which no layout fits: the memory of the nearest layout, and what would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from studio.errors import ConfigError
from studio.generation.options import BY_KEY
from studio.generation.transformer import count_parameters
from studio.layout_search.memory import Held, compute_peak_memory
from studio.layout_search.search import Item
from studio.layout_search.space import Candidate, Frame, list_candidates, list_degrees
from studio.operators.roofline import Gpu
from studio.sim.systems.family import Family
from studio.units import format_counted, format_si

_LEAST_BYTES = 16
"""Of a parameter at least, divided by all ranks: weights, gradients and optimizer."""
_MOST_TRIES = 32
_MOST_RANKS = 1 << 20


def build_unfit_error(
    frame: Frame, nearest: Item, count: int, gpu: Gpu, family: Family | None = None
) -> ConfigError:
    """Return the error that no layout fits, with the memory of the nearest layout and what would fit.

    Args:
        frame: What was asked for.
        nearest: The layout that holds least.
        count: How many layouts divide.
        gpu: The GPU that is too small.
        family: The sizes that the system comes in; None where it has one only.
    """
    parts = ", ".join(f"{part} {format_si(size, 'B')}" for part, size in nearest.held.parts.items() if size)
    none = f"None of the {count:,} layouts" if count > 1 else "Not even the only layout"
    message = (
        f"{none} of {frame.model.name} on {format_counted(frame.ranks, 'rank')} fits in the {gpu.memory_gbytes:g} GB of "
        f"{gpu.name}. The nearest, {describe_layout(nearest.candidate)}, holds {format_si(nearest.held.total, 'B')}: {parts}."
    )
    return ConfigError(
        message,
        hint=" ".join(_iterate_remedies(frame, gpu, family))
        or "Use a smaller model or --seq, or a GPU with more memory.",
    )


def describe_layout(candidate: Candidate) -> str:
    """Return a layout in words, such as `tp=8,dp=4,pp=2, micro-batch 1, zero 1`."""
    layout = candidate.layout
    more = [f"micro-batch {layout.micro_batch}"]
    more += [f"zero {layout.zero}"] if layout.zero else []
    more += ["no sequence parallelism"] if layout.tp > 1 and not layout.sequence_parallel else []
    for key in ("schedule", "recompute", "offload"):
        value = candidate.options.get(key)
        more += (
            [f"{key} {value}"]
            if key in BY_KEY and value is not None and value != BY_KEY[key].choices[0]
            else []
        )
        if key == "schedule" and layout.virtual_stages > 1:
            more.append(f"virtual-stages {layout.virtual_stages}")
    return ", ".join([layout.name, *more])


def _iterate_remedies(frame: Frame, gpu: Gpu, family: Family | None) -> Iterator[str]:
    """Yield what would fit without host memory: an option that was fixed, set free, or more ranks."""
    capacity = gpu.memory_gbytes * 1e9
    varied = {degree.key for degree in list_degrees()}
    for key in frame.given:
        if key in varied:
            free = replace(frame, given={name: value for name, value in frame.given.items() if name != key})
            least = _find_least(free)
            if least is not None and least[1].total <= capacity:
                option = BY_KEY[key].names[0].partition("/")[0]
                yield f"Without {option} {describe_layout(least[0])} fits."
    ranks = find_fewest_ranks(frame, gpu, family) if family is not None else None
    if ranks is not None:
        yield f"With {ranks[0]:,} ranks {describe_layout(ranks[1])} fits."


def describe_remedies(frame: Frame, gpu: Gpu, family: Family | None) -> str:
    """Say what would fit without host memory, where nothing does on these ranks with what was fixed."""
    return (
        " ".join(_iterate_remedies(frame, gpu, family))
        or "A smaller model or --seq, or a GPU with more memory."
    )


def _find_least(frame: Frame) -> tuple[Candidate, Held] | None:
    """Return the layout that holds least."""
    held = [
        (candidate, compute_peak_memory(frame.model, candidate.layout))
        for candidate in list_candidates(frame)[0]
    ]
    return min(held, key=lambda pair: pair[1].total, default=None)


def find_fewest_ranks(frame: Frame, gpu: Gpu, family: Family) -> tuple[int, Candidate] | None:
    """Return the least number of ranks on which a layout fits, and the one that holds least there; None where none is found.

    Numbers up to a node are tried one after another, then whole nodes, `_MOST_TRIES` in all from the least that could hold
    weights, gradients and optimizer; beyond them doubled numbers. Where the batch was not given each rank gets a sequence.
    """
    capacity = gpu.memory_gbytes * 1e9
    ranks = max(frame.ranks + 1, int(_LEAST_BYTES * count_parameters(frame.model) / capacity))
    for tried in range(2 * _MOST_TRIES):
        if ranks > family.node:
            ranks = -(-ranks // family.node) * family.node
        if ranks > _MOST_RANKS:
            return None
        if family.fits(ranks):
            batch = frame.batch if frame.batch_from == "given" else ranks
            node = family.sizes(ranks)[0]
            least = _find_least(replace(frame, ranks=ranks, node=node, given={**frame.given, "batch": batch}))
            if least is not None and least[1].total <= capacity:
                return ranks, least[0]
        ranks = ranks + 1 if tried < _MOST_TRIES else ranks * 2
    return None
