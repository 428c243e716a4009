"""Why the best layout is: what it spends its time on, beside the best layout of each other kind."""

from __future__ import annotations

from studio.layout_search.layout_plan import LayoutPlan
from studio.layout_search.search import Item
from studio.units import format_ns

_MOST_PARTS = 2
_LEAST_SHARE = 0.005
"""Of the best step: smaller differences are not told."""
WORDS = {
    "compute": "computes",
    "bubble": "waits for other stages",
    "idle": "does nothing",
    "after_finish": "waits for the slowest rank at the end",
}


def list_part_times(plan: LayoutPlan) -> tuple[list[str], list[tuple[Item, float, list[float]]]]:
    """Return where the time of a step goes in the best layout of each kind.

    Returns:
        The names of parts, and rows of the layout, its step in seconds, and each part's seconds, mean over the ranks; they add up to the step.
    """
    names = plan.part_names()
    rows = []
    for item in plan.kinds:
        parts = plan.parts_s(item)
        rows.append((item, plan.step_ns(item) / 1e9, [parts.get(name, 0.0) for name in names]))
    return names, rows


def list_reasons(plan: LayoutPlan) -> list[str]:
    """Return a sentence for the best layout of each other kind: what makes it slower than the best."""
    best, *others = plan.kinds
    base = plan.parts_s(best)
    return [_explain_layout(plan, item, base, plan.step_ns(best) / 1e9) for item in others]


def _explain_layout(plan: LayoutPlan, item: Item, base: dict[str, float], step_s: float) -> str:
    parts = plan.parts_s(item)
    changes = {name: parts.get(name, 0.0) - base.get(name, 0.0) for name in {*parts, *base}}
    later = plan.step_ns(item) / 1e9 - step_s
    more = sorted(
        (name for name in changes if changes[name] > _LEAST_SHARE * step_s), key=lambda name: -changes[name]
    )
    less = sorted(
        (name for name in changes if changes[name] < -_LEAST_SHARE * step_s), key=lambda name: changes[name]
    )
    words = [f"{_describe_part(name)} {_format_time(changes[name])} more" for name in more[:_MOST_PARTS]]
    saved = [f"{_describe_part(name)} {_format_time(-changes[name])} less" for name in less[:_MOST_PARTS]]
    text = f"{item.candidate.layout.name} ({item.candidate.kind}) takes {_format_time(later)} longer than the best"
    text += f": it {' and '.join(words)}" if words else ""
    return text + (f", though it {' and '.join(saved)}" if words and saved else "") + "."


def _describe_part(name: str) -> str:
    return WORDS.get(name) or f"waits for {name.removeprefix('exposed ')} communication"


def _format_time(seconds: float) -> str:
    return format_ns(round(seconds * 1e9))
