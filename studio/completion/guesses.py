"""Guess the layouts of a job of which the members of comm groups are not listed, the likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from studio.completion.clues import Known
from studio.completion.mesh import NAMES, PIPELINE, Axis, Mesh, infer_mesh

MOST = 12
"""Layouts that are listed."""
_NODE = 8
"""Ranks that most machines join most closely: inner dimensions mostly fill a node, and seldom more."""
_DATA = "dp"


def guess_meshes(known: Known, world: int) -> tuple[Mesh, ...]:
    """Return layouts of a number of ranks that have a dimension for each comm group without members.

    What listed groups and messages tell is kept. The ranks of which they tell nothing are divided among the dimensions that
    the other groups seem to belong to, and data parallel ones, from those whose ranks have adjacent numbers outwards: those
    that fill a node of 8 come first.
    """
    mesh = infer_mesh(known.clues, world)
    known_names = {
        axis.name
        for axis in mesh.axes
        if any(clue.covers(axis.stride, axis.stride * axis.size) for clue in known.clues)
    }
    free = [axis for axis in mesh.axes if axis.name not in known_names]
    names = _guess_names(known, known_names)
    if len(free) != 1 or not names:
        return ()
    [axis] = free
    inner = [name for name in NAMES if name in names and name != _DATA]
    candidates = []
    for sizes in _list_factorizations(axis.size, len(inner) + 1):
        # Groups that seem to be data parallel need several replicas.
        if 1 in sizes[:-1] or (_DATA in names and sizes[-1] == 1):
            continue
        part = [*zip(inner, sizes[:-1], strict=True)] + ([(_DATA, sizes[-1])] if sizes[-1] > 1 else [])
        candidates.append((_compute_sort_key(sizes[:-1]), _split_axis(mesh, axis, part)))
    return tuple(mesh for _, mesh in sorted(candidates, key=lambda candidate: candidate[0])[:MOST])


def _guess_names(known: Known, known_names: set[str]) -> list[str]:
    """Return the dimensions that groups without members seem to belong to, one each for those of a rank."""
    most: list[str] = []
    for uses in known.unlisted_by_rank().values():
        own = sorted(uses, key=lambda use: (-use.weight, -use.count))
        left = [name for name in NAMES if name not in known_names and name != PIPELINE]
        chosen: list[str] = []
        for use in own:
            likely = use.likely if use.likely in left else next(iter(left), "")
            if likely:
                left.remove(likely)
                chosen.append(likely)
        most = max(most, chosen, key=len)
    return most


def _list_factorizations(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to write a number as a product of so many."""
    if parts == 1:
        yield (size,)
        return
    for first in range(1, size + 1):
        if size % first == 0:
            for rest in _list_factorizations(size // first, parts - 1):
                yield first, *rest


def _compute_sort_key(inner: Sequence[int]) -> tuple[bool, int, tuple[int, ...]]:
    """Return a key that is least for the likeliest inner sizes."""
    filled = math.prod(inner)
    return filled > _NODE, abs(_NODE - filled), tuple(-size for size in inner)


def _split_axis(mesh: Mesh, old: Axis, part: Sequence[tuple[str, int]]) -> Mesh:
    """Return a mesh in which a dimension is divided."""
    sizes: list[tuple[str, int]] = []
    for axis in mesh.axes:
        sizes += part if axis is old else [(axis.name, axis.size)]
    return Mesh.of(sizes)
