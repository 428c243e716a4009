"""Doubts about the range of a preset: collectives unlike those that its costs were fitted to, sizes that fill no nodes."""

from __future__ import annotations

import numpy as np

from studio.columns import group_places
from studio.sim.costs.model import Range
from studio.sim.costs.shapes import AS_KIND
from studio.sim.doubt_facts import Facts, Found
from studio.sim.presets import describe_unevenness
from studio.trace import Bool, CollectiveType
from studio.units import format_bytes, format_count

UNEVEN = "uneven-nodes"


def find_uneven_nodes(facts: Facts) -> Found:
    """Find a preset with more nodes than a machine would need."""
    words = describe_unevenness(facts.parts) if facts.parts is not None and facts.simulated else ""
    if words:
        yield words, None


def find_extrapolated(facts: Facts) -> Found:
    """Find collectives whose kind, size or group lies outside of what the system's costs were fitted to."""
    costs = facts.config.costs
    if not facts.costs or costs is None or costs.fitted is None or not len(facts.times):
        return
    beyond = _are_outside(facts, costs.fitted)
    count, every = int(facts.alike[beyond].sum()), int(facts.alike.sum())
    if count:
        what = f"{'collective' if every == 1 else 'collectives'} {'is' if count == 1 else 'are'}"
        yield (
            (
                f"{format_count(count)} of {format_count(every)} {what} extrapolated: the costs were fitted to "
                f"{_describe_range(costs.fitted)}."
            ),
            None,
        )


def _are_outside(facts: Facts, known: Range) -> Bool:
    """Return (C,) which collectives lie outside of a range."""
    times = facts.times
    outside = np.zeros(len(times), bool)
    # Group and type as one number: types begin at -1.
    types = int(times.type.max()) + 2
    code = times.group * types + times.type + 1
    for pair, own in group_places(code):
        group, kind = pair // types, pair % types - 1
        shape = facts.site(times.groups[group])[1]
        name = CollectiveType(kind).name.lower() if kind >= 0 else ""
        name = AS_KIND.get(name, name)
        if shape.ranks > 1 and kind != CollectiveType.BARRIER:
            outside[own] = ~known.covers(name, times.whole_bytes[own].astype(np.float64), shape)
    return outside


def _describe_range(known: Range) -> str:
    kinds = ", ".join(kind.replace("_", "-") for kind in known.kinds)
    ranks, nodes = (_format_span(pair) for pair in (known.ranks, known.nodes))
    low, high = (format_bytes(size) for size in known.sizes)
    return f"{kinds} of {low} to {high}, {ranks} ranks on {nodes} {'node' if nodes == '1' else 'nodes'}"


def _format_span(pair: tuple[int, int]) -> str:
    """Return a range in words.

    Example:
        >>> _format_span((1, 1)), _format_span((2, 16))
        ('1', '2 to 16')
    """
    return f"{pair[0]:,}" if pair[0] == pair[1] else f"{pair[0]:,} to {pair[1]:,}"
