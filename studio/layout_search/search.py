"""Find the fastest layouts without simulating all: branch and bound.

A layout is left out only where what was simulated already beats the least time it can take: for the fastest ones that are asked
for, and for the front of time against memory. So both are what simulating every layout would give. Of each kind of layout at least
the one that may be fastest is simulated, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from studio.layout_search.bound import Bounds
from studio.layout_search.memory import Held
from studio.layout_search.running import Answer, Runner
from studio.layout_search.space import Candidate

_AT_ONCE = 4
"""Layouts that are simulated between two looks at what is left: the same whoever simulates them."""
_BOUNDED_AT_ONCE = 16

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Item:
    """A layout that fits, and what is known of it so far.

    Attributes:
        candidate: The layout.
        held: What a rank holds.
        bound_ns: It takes no less.
        is_close: Whether that is the close bound.
        answer: What its simulation says; None where it was not simulated.
        error: Why it cannot be simulated; "" where it can.
    """

    candidate: Candidate
    held: Held
    bound_ns: int = 0
    is_close: bool = False
    answer: Answer | None = None
    error: str = ""

    @property
    def finish_ns(self) -> int:
        """When it finished; of one that was not simulated the bound."""
        return self.bound_ns if self.answer is None else self.answer.finish_ns


def build_item_key(item: Item) -> tuple[int, int, int]:
    """Return what layouts are ranked by: time, of equal ones the memory, then the order in which they are tried."""
    return item.finish_ns, item.held.total, item.candidate.number


def select_front(items: Sequence[Item]) -> list[Item]:
    """Return the simulated layouts that no other beats in both memory and time, from the least memory on."""
    layouts: list[Item] = []
    for item in sorted(items, key=lambda item: (item.held.total, item.finish_ns, item.candidate.number)):
        if item.answer is not None and (not layouts or item.finish_ns < layouts[-1].finish_ns):
            layouts.append(item)
    return layouts


def search(
    items: Sequence[Item], bounds: Bounds, runner: Runner, top: int, progress: Progress | None = None
) -> None:
    """Simulate layouts until the fastest and the front are known, and one of each kind.

    Args:
        items: All layouts that fit; what is found out is written into them.
        bounds: Quick bounds.
        runner: Who simulates.
        top: How many of the fastest are asked for.
        progress: Told how many layouts are decided, and how many there are.
    """
    for item in items:
        item.bound_ns = bounds.quick(item.candidate.options, item.candidate.layout)
    while True:
        left = _find_undecided(items, top)
        if progress is not None:
            progress("simulating layouts", len(items) - len(left), len(items))
        if not left:
            return
        left.sort(key=build_item_key)
        vague = [item for item in left[:_AT_ONCE] if not item.is_close]
        if vague:
            vague = [item for item in left if not item.is_close][:_BOUNDED_AT_ONCE]
            bounded = runner.bounds([item.candidate.options for item in vague])
            for item, bound in zip(vague, bounded, strict=True):
                if isinstance(bound, str):
                    item.error = bound
                else:
                    item.bound_ns, item.is_close = max(item.bound_ns, bound), True
            continue
        chosen = left[:_AT_ONCE]
        answers = runner.answers([item.candidate.options for item in chosen])
        for item, answer in zip(chosen, answers, strict=True):
            if isinstance(answer, str):
                item.error = answer
            else:
                item.answer = answer


def _find_undecided(items: Sequence[Item], top: int) -> list[Item]:
    """Return the layouts that may still be among those asked for."""
    done = sorted((item for item in items if item.answer is not None), key=build_item_key)
    last = done[top - 1].finish_ns if len(done) >= top else None
    kinds = {item.candidate.kind for item in done}
    best = select_front(done)
    return [
        item
        for item in items
        if item.answer is None
        and not item.error
        and not (
            last is not None
            and last < item.bound_ns
            and item.candidate.kind in kinds
            and any(other.held.total <= item.held.total and other.finish_ns < item.bound_ns for other in best)
        )
    ]
