"""What would make steps of inference fit in memory, and the smallest layout that fits: closed forms alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from studio.errors import ConfigError
from studio.generation.fitting import format_gigabytes
from studio.generation.inference.deployment import DISAGGREGATED, StepWish, build_steps, resize_wish
from studio.generation.inference.disaggregated import build_joined_batch, build_roles
from studio.generation.inference.memory import find_fullest
from studio.generation.models import Model

PREFILL, DECODE = "prefill", "decode"
_TYPES = {"dtype": "weights", "kv_dtype": "cache"}
_MOST_STAGES = 64
_Change = tuple[str, StepWish]
"""What is said on the command line, and what is asked for then."""
Held = Callable[[StepWish], int]
"""Returns the bytes on the fullest rank of what is asked for."""


@dataclass(frozen=True, slots=True)
class StepRemedy:
    """A change that makes steps fit.

    Attributes:
        words: The change as the command line says it.
        wish: What is asked for then.
        held: Bytes on the fullest rank then.
    """

    words: str
    wish: StepWish
    held: int

    def __str__(self) -> str:
        return f"{self.words} ({format_gigabytes(self.held)})"


def find_fullest_of_role(model: Model, wish: StepWish, role: str) -> tuple[int, dict[str, int]]:
    """Return the stage whose ranks hold most, and what they hold, of a part of a disaggregated job.

    Ranks that decode need room for what arrives, too.

    Raises:
        ConfigError: Numbers do not divide, or contradict each other.
    """
    roles = build_roles(model, wish)
    if role == PREFILL:
        return find_fullest(roles.prefill)
    batches = tuple((build_joined_batch(roles, replica),) for replica in range(len(roles.decode.batches)))
    return find_fullest(replace(roles.decode, batches=batches, steps=1))


def find_remedies(
    model: Model, wish: StepWish, memory_bytes: float, role: str = DECODE
) -> tuple[StepRemedy, ...]:
    """Return what would make steps fit: the least change of every kind that does; where none does, smaller types and one more.

    More tensor parallel ranks or stages are fewer replicas, or where that does not do, more ranks.

    Args:
        model: What is run.
        wish: What is asked for.
        memory_bytes: Memory of a GPU.
        role: The part of a disaggregated job that has to fit.

    Example:
        >>> from studio.generation.models import find_model
        >>> wish = StepWish(2, tp=2, batch=32, context="4096")
        >>> [remedy.words for remedy in find_remedies(find_model("llama3-70b"), wish, 80e9)]
        ['--tp 4 with --ranks 4', '--pp 2 with --ranks 4', '--dtype fp8', '--batch 14']
    """

    def count_held(asked: StepWish) -> int:
        if asked.phase == DISAGGREGATED:
            return sum(find_fullest_of_role(model, asked, role)[1].values())
        return sum(find_fullest(build_steps(model, asked))[1].values())

    single = _find_single_remedies(model, wish, role, count_held, memory_bytes)
    if single:
        return tuple(single)
    small = replace(wish, precision=replace(wish.precision, weights="fp8", cache="fp8"))
    words = "--dtype fp8 and --kv-dtype fp8"
    if small == wish:
        return ()
    enough = _find_first_fitting([(words, small)], count_held, memory_bytes)
    more = [] if enough else _find_single_remedies(model, small, role, count_held, memory_bytes)
    return (enough,) if enough else tuple(replace(each, words=f"{words} and {each.words}") for each in more)


def _find_single_remedies(
    model: Model, wish: StepWish, role: str, held: Held, memory_bytes: float
) -> list[StepRemedy]:
    """Return the least change of every kind that does, each by itself."""
    decoding = wish.ranks - wish.prefill_ranks
    if role == PREFILL:
        kinds, fewer = _iterate_prefill_changes(wish), ("prompts", wish.prefill_ranks // wish.prefill_tp)
    else:
        kinds, fewer = (
            _iterate_changes(model, wish),
            ("batch", wish.micro_batches * decoding // (wish.tp * wish.pp)),
        )
    tried = [_find_first_fitting(changes, held, memory_bytes) for changes in kinds]
    tried.append(_find_most_fitting(wish, *fewer, held, memory_bytes))
    return [remedy for remedy in tried if remedy]


def _find_first_fitting(changes: Iterable[_Change], held: Held, memory_bytes: float) -> StepRemedy | None:
    for words, changed in changes:
        size = _try_count_held(held, changed)
        if size is not None and size <= memory_bytes:
            return StepRemedy(words, changed, size)
    return None


def _find_most_fitting(
    wish: StepWish, name: str, once: int, held: Held, memory_bytes: float
) -> StepRemedy | None:
    """Return the most sequences that fit, as a multiple of what replicas and micro-batches have one each of."""
    low, high = 0, (getattr(wish, name) or 0) // max(once, 1)
    best = None
    while high - low > 1:
        middle = (low + high) // 2
        tried = _find_first_fitting([_reduce_count(wish, name, middle * once)], held, memory_bytes)
        low, high, best = (middle, high, tried) if tried else (low, middle, best)
    return best


def _reduce_count(wish: StepWish, name: str, count: int) -> _Change:
    return f"--{name} {count}", replace(wish, **{name: count})  # type: ignore[arg-type]  # a count of its own fields


def _try_count_held(held: Held, wish: StepWish) -> int | None:
    try:
        return held(wish)
    except ConfigError:
        return None


def _iterate_changes(model: Model, wish: StepWish) -> Iterator[Iterator[_Change]]:
    """Yield changes of each kind, the smallest first."""
    yield _iterate_degrees(wish, "tp", model.kv_heads)
    if wish.phase != DISAGGREGATED:
        yield _iterate_degrees(wish, "pp", model.layers)
        if model.experts:
            yield _iterate_expert_degrees(model, wish)
    yield from _iterate_type_changes(wish)


def _iterate_prefill_changes(wish: StepWish) -> Iterator[Iterator[_Change]]:
    """Yield changes of the ranks that read prompts, of each kind, the smallest first."""
    degrees = range(wish.prefill_tp + 1, wish.prefill_ranks + 1)
    yield ((f"--prefill-tp {degree}", replace(wish, prefill_tp=degree)) for degree in degrees)
    yield from _iterate_type_changes(wish)


def _iterate_type_changes(wish: StepWish) -> Iterator[Iterator[_Change]]:
    for option, name in _TYPES.items():
        if getattr(wish.precision, name) != "fp8":
            smaller = replace(wish.precision, **{name: "fp8"})
            yield iter([(f"--{option.replace('_', '-')} fp8", replace(wish, precision=smaller))])


def _iterate_expert_degrees(model: Model, wish: StepWish) -> Iterator[_Change]:
    for degree in range(wish.ep + 1, model.experts + 1):
        yield f"--ep {degree}", replace(wish, ep=degree)


def _iterate_degrees(wish: StepWish, name: str, most: int) -> Iterator[_Change]:
    """Yield larger degrees: first of as many ranks, with fewer replicas, then of more ranks."""
    every: list[dict[str, Any]] = [
        {name: value, "dp": None, "stage_layers": None} for value in range(getattr(wish, name) + 1, most + 1)
    ]
    for change in every:
        if wish.ranks > 1 and (wish.ranks - wish.prefill_ranks) % change[name] == 0:
            yield f"--{name} {change[name]}", replace(wish, **change)
    alone = replace(wish, ranks=wish.ranks - wish.prefill_ranks)
    for change in every:
        changed = replace(wish, ranks=wish.prefill_ranks + resize_wish(alone, **change).ranks, **change)
        yield f"--{name} {change[name]} with --ranks {changed.ranks}", changed


def propose_steps(
    model: Model, wish: StepWish, memory_bytes: float, given: Mapping[str, Any], node: int = 8
) -> dict[str, int]:
    """Return degrees to take where nothing is said, so that steps fit: the smallest tensor × pipeline that does, fewer stages first.

    Args:
        model: What is run.
        wish: What is asked for.
        memory_bytes: Memory of a GPU.
        given: What is said, by key; degrees that are said stay.
        node: GPUs of a machine: tensor parallel ranks stay within one.

    Returns:
        `tp` and `pp` where they are above 1; empty where one rank has room, and where nothing fits.

    Example:
        >>> from studio.generation.models import find_model
        >>> propose_steps(find_model("llama3-70b"), StepWish(8, batch=32), 80e9, {})
        {'tp': 2}
    """
    tried = [
        [getattr(wish, name)] if given.get(name) is not None else [1 << power for power in range(most.bit_length())]
        for name, most in (("tp", min(node, wish.ranks)), ("pp", min(_MOST_STAGES, wish.ranks)))
    ]  # fmt: skip
    for tp, pp in sorted(product(*tried), key=lambda pair: (pair[0] * pair[1], pair[1])):
        if wish.ranks % (tp * pp):
            continue
        try:
            total = sum(find_fullest(build_steps(model, replace(wish, tp=tp, pp=pp)))[1].values())
        except ConfigError:
            continue
        if total <= memory_bytes:
            chosen = {"tp": tp, "pp": pp}
            return {name: degree for name, degree in chosen.items() if given.get(name) is None and degree > 1}
    return {}
