"""Check by closed formulas whether a job fits in a GPU's memory; where it does not, list the parts and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from studio.errors import ConfigError
from studio.generation.layout import RECOMPUTES, Layout
from studio.generation.memory import count_stage_memory, find_fullest_stage
from studio.generation.models import Model
from studio.generation.wish import Wish, build_layout

_LEAST_TOLD = 50_000_000
_MOST_TOLD = 5
_LARGEST_TENSOR_PARALLEL = 64
_MORE_RANKS = (2, 4, 8, 16, 32, 64)
Change = tuple[str, dict[str, Any]]
"""What is said on the command line, and the attributes of a wish that it changes."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes a job fit.

    Attributes:
        words: The change as the command line says it.
        change: The attributes of a wish that it changes; None leaves one to its rule.
        held: Bytes on the fullest rank then.
    """

    words: str
    change: Mapping[str, Any]
    held: int

    def __str__(self) -> str:
        return f"{self.words} ({format_gigabytes(self.held)})"


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job fits in memory.

    Attributes:
        words: Of what it is made where it does not fit; empty where it does.
        remedies: What would make it fit.
    """

    words: str = ""
    remedies: tuple[Remedy, ...] = ()


def describe_unfit(held: Mapping[str, int], memory_bytes: float) -> str:
    """Return the sentence that memory does not fit, with its parts; empty where it fits.

    Example:
        >>> describe_unfit({"weights": 90_000_000_000, "kv_cache": 3_000_000_000}, 80e9)
        'does not fit on 80 GB: 93 GB, of which weights 90 GB, KV cache 3 GB'
    """
    total = sum(held.values())
    if total <= memory_bytes:
        return ""
    names = {"kv_cache": "KV cache", "draft": "draft model"}
    named_sizes = {names.get(part, part): size for part, size in held.items() if size >= _LEAST_TOLD}
    parts = ", ".join(f"{name} {format_gigabytes(size)}" for name, size in named_sizes.items())
    return f"does not fit on {format_gigabytes(memory_bytes)}: {format_gigabytes(total)}, of which {parts}"


def format_gigabytes(size: float) -> str:
    """Write bytes in GB of 10^9, as makers of GPUs give them."""
    return f"{size / 1e9:.1f}".removesuffix(".0") + " GB"


def fit_in(model: Model, layout: Layout, memory_bytes: float, most_tp: int = _LARGEST_TENSOR_PARALLEL) -> Fit:
    """Return whether a job fits in so many bytes on every rank, and what would make it fit.

    Args:
        model: What is trained.
        layout: How ranks share it.
        memory_bytes: Memory of a GPU.
        most_tp: Tensor parallel ranks that a remedy may have.

    Example:
        >>> from studio.generation.models import find_model
        >>> model = find_model("llama3-8b")
        >>> fit = fit_in(model, build_layout(model, Wish(8, batch=8, recompute="full")), 80e9)
        >>> fit.words
        'does not fit on 80 GB: 136 GB, of which optimizer 96.4 GB, parameters 16.1 GB, gradients 16.1 GB, activations 7.6 GB'
        >>> [str(remedy) for remedy in fit.remedies]
        ['--zero 1 (51.7 GB)', '--tp 2 (68 GB)', '--pp 2 (70.7 GB)']
    """
    most = find_fullest_stage(model, layout)[1]
    words = describe_unfit(dict(sorted(most.items(), key=lambda part: -part[1])), memory_bytes)
    return Fit(words, _find_remedies(model, infer_wish(layout), memory_bytes, most_tp)) if words else Fit()


def infer_wish(layout: Layout) -> Wish:
    """Return what a user would say of a layout; a batch that nobody gave is left to its rule, as it would be with a change."""
    same = {spec.name for spec in fields(Wish)} & {spec.name for spec in fields(Layout)}
    given = {
        name: getattr(layout, name)
        for name in same
        if name not in ("order", "stage_layers", "virtual_stages", "batch")
    }
    return Wish(
        ranks=layout.ranks,
        **given,
        batch=layout.batch if layout.batch_from == "given" else None,
        stage_layers=layout.virtual_layers or layout.stage_layers,
        virtual_stages=layout.virtual_stages if layout.schedule == "interleaved" else None,
        bucket_mb=layout.bucket >> 20 if layout.bucket else None,
        order="-".join(layout.order),
    )  # fmt: skip


def _find_remedies(model: Model, wish: Wish, memory_bytes: float, most_tp: int) -> tuple[Remedy, ...]:
    """Return the least change of every kind that does, each by itself; where none does, two changes together.

    Ranks and batch stay what they are, so that more tensor parallel ranks or stages are fewer replicas; only where nothing else does
    there are more ranks, or what host memory can hold goes there.
    """
    kinds = list(_iterate_changes(model, wish, most_tp))
    alone = [_find_first_fitting(model, wish, changes, memory_bytes) for changes in kinds]
    remedies = [remedy for remedy in alone if remedy]
    for number, changes in enumerate(kinds) if not remedies else ():
        # The most of one kind, with the least of every later kind that is enough then.
        words, most = changes[-1]
        for others in kinds[number + 1 :]:
            both = [(f"{words} and {more}", {**most, **other}) for more, other in others]
            done = _find_first_fitting(model, wish, both, memory_bytes)
            remedies += [done] if done else []
    if not remedies:
        last = (_list_more_ranks(model, wish), _list_offloads(wish))
        tried = (_find_first_fitting(model, wish, changes, memory_bytes) for changes in last)
        remedies = [remedy for remedy in tried if remedy]
    return tuple(remedies[:_MOST_TOLD])


def _find_first_fitting(
    model: Model, wish: Wish, changes: list[Change], memory_bytes: float
) -> Remedy | None:
    for words, change in changes:
        layout = _apply_change(model, wish, change)
        if layout is None:
            continue
        held = count_held_within(model, layout, memory_bytes)
        if held is not None:
            return Remedy(words, change, held)
    return None


def count_held_within(model: Model, layout: Layout, memory_bytes: float) -> int | None:
    """Return the bytes on the fullest rank where they are at most so many, else None: known with the first stage that holds more."""
    held = 0
    for stage in _order_stages(layout.pp):
        held = max(held, sum(count_stage_memory(model, layout, stage).values()))
        if held > memory_bytes:
            return None
    return held


def _order_stages(stages: int) -> list[int]:
    """Return the stages, those first that mostly hold most."""
    first = [0, stages - 1] if stages > 1 else [0]
    return [*first, *(stage for stage in range(1, stages - 1))]


def _apply_change(model: Model, wish: Wish, change: Mapping[str, Any]) -> Layout | None:
    """Return the layout with a change, None where it does not divide."""
    try:
        return build_layout(model, replace(wish, **{"dp": None, **change}))
    except ConfigError:
        return None


def _iterate_changes(model: Model, wish: Wish, most_tp: int) -> Iterator[list[Change]]:
    """Yield changes by kind, each list from the least to the most."""
    if wish.attention == "unfused" and wish.recompute == "none":
        yield [
            ("--attention flash", {"attention": "flash"}),
            ("--recompute selective", {"recompute": "selective"}),
        ]
    if wish.recompute != "full":
        yield [(f"--recompute {RECOMPUTES[-1]}", {"recompute": RECOMPUTES[-1]})]
    free: dict[str, Any] = {"bucket_mb": None, "grad_overlap": None}
    if wish.zero < 3:
        yield [
            (f"--zero {stage}", {"zero": stage, **(free if stage == 3 else {})})
            for stage in range(wish.zero + 1, 4)
        ]
    smaller = [count for count in range(wish.micro_batch - 1, 0, -1) if wish.micro_batch % count == 0]
    if smaller:
        yield [(f"--micro-batch {count}", {"micro_batch": count}) for count in smaller]
    degrees = [degree for degree in range(wish.tp + 1, most_tp + 1) if wish.ranks % degree == 0]
    if degrees:
        yield [(f"--tp {degree}", {"tp": degree, "sequence_parallel": None}) for degree in degrees]
    experts = _list_expert_degrees(model, wish)
    if experts:
        yield [(f"--ep {degree}", {"ep": degree}) for degree in experts]
    stages = [count for count in range(wish.pp + 1, model.layers + 1) if wish.ranks % count == 0]
    if stages:
        yield [(f"--pp {count}", {"pp": count, "stage_layers": None}) for count in stages]


def _list_expert_degrees(model: Model, wish: Wish) -> list[int]:
    """Return larger degrees in which experts can be divided among ranks that hold the same other weights."""
    copies = wish.ranks // (wish.tp * wish.pp)
    return [
        degree
        for degree in range(wish.ep + 1, copies + 1)
        if copies % degree == 0 and model.experts and model.experts % degree == 0
    ]


def _list_offloads(wish: Wish) -> list[Change]:
    """Return what may go to host memory besides: the least first, without recomputation and with it."""
    kinds = {"none": ("optimizer", "activations", "all"), "all": ()}.get(wish.offload, ("all",))
    more = (
        [("", {})]
        if wish.recompute == "full"
        else [("", {}), (" and --recompute full", {"recompute": "full"})]
    )
    return [
        (f"--offload {kind}{words}", {"offload": kind, **change}) for words, change in more for kind in kinds
    ]


def _list_more_ranks(model: Model, wish: Wish) -> list[Change]:
    """Return more stages of as many more ranks, without recomputation and with it, or replicas that divide all and have as much work."""
    changes: list[Change] = []
    for times in _MORE_RANKS:
        ranks, stages = times * wish.ranks, times * wish.pp
        change = {"ranks": ranks, "pp": stages, "stage_layers": None}
        changes += [
            (f"--ranks {ranks} and --pp {stages}", change),
            (f"--ranks {ranks}, --pp {stages} and --recompute full", {**change, "recompute": "full"}),
        ]
        # A batch that nobody gave follows the ranks by its rule.
        batch: dict[str, Any] = {"batch": times * wish.batch} if wish.batch else {}
        batch_words = "".join(f", --batch {size}" for size in batch.values())
        free = {"bucket_mb": None, "grad_overlap": None}
        more = {"ranks": ranks, **batch, "zero": 3, "recompute": "full", **free}
        changes.append((f"--ranks {ranks}{batch_words}, --zero 3 and --recompute full", more))
        wide = _list_expert_degrees(model, replace(wish, ranks=ranks))[-1:]
        changes += [
            (
                f"--ranks {ranks}{batch_words}, --ep {degree}, --zero 3 and --recompute full",
                {**more, "ep": degree},
            )
            for degree in wide
        ]
    return changes
