"""The kinds of collectives."""

from __future__ import annotations

from typing import Literal, get_args

CollectiveKind = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "broadcast",
    "reduce_scatter_block",
    "barrier",
]
"""All collectives; the compatible mode carries out the first four."""
COLLECTIVE_KINDS: tuple[str, ...] = get_args(CollectiveKind)
REFERENCE_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives whose algorithms the compatible mode knows."""
ROOTED_KINDS: tuple[CollectiveKind, ...] = ("broadcast", "reduce", "scatter", "gather")
"""Collectives in which one member, the root, has a part of its own."""
