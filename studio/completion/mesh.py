"""The mesh of a job's ranks: its dimensions, and what the known ranks tell about them.

Ranks of a parallel job are numbered like the digits of a number: the first dimension of the mesh changes fastest. A comm
group holds the ranks that differ in some of the dimensions only, so its members tell where dimensions begin and end; so do
the ranks that send each other messages, which are neighbours along the pipeline.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from studio.errors import ConfigError

NAMES: Mapping[str, str] = {
    "tp": "tensor",
    "sp": "sequence",
    "cp": "context",
    "ep": "expert",
    "dp": "data",
    "pp": "pipeline",
}
"""Dimensions by the short names that layouts use. Ranks that differ in the last one run different stages."""
PIPELINE = "pp"
_MOST_TOLD = 16
_NO_COPIES = "Such a job cannot be completed by copies of its ranks; record all of them."
_TERM = re.compile(r"\s*([a-z]{2})\s*=\s*([0-9]{1,7})\s*")


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension of the mesh.

    Attributes:
        name: Its short name, a key of `NAMES`.
        size: Ranks along it.
        stride: Distance of neighbours, in rank numbers.
        evidence: What shows that it is there, in words; empty where it was given.
    """

    name: str
    size: int
    stride: int
    evidence: str = ""

    def place(self, rank: int) -> int:
        """Return a rank's place along the dimension.

        Example:
            >>> Axis("dp", 4, 2).place(5)
            2
        """
        return rank // self.stride % self.size


@dataclass(frozen=True, slots=True)
class Mesh:
    """The dimensions of a job, the one that changes fastest first.

    Example:
        >>> mesh = Mesh.of([("tp", 4), ("dp", 2), ("pp", 2)])
        >>> mesh.world, mesh.layout
        (16, 'tp=4,dp=2,pp=2')
        >>> [axis.place(13) for axis in mesh.axes]
        [1, 1, 1]
    """

    axes: tuple[Axis, ...]

    @staticmethod
    def of(sizes: Sequence[tuple[str, int]]) -> Mesh:
        """Return the mesh of named sizes, the dimension that changes fastest first."""
        axes, stride = [], 1
        for name, size in sizes:
            axes.append(Axis(name, size, stride))
            stride *= size
        return Mesh(tuple(axes))

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def layout(self) -> str:
        """The mesh as the option --layout takes it."""
        return ",".join(f"{axis.name}={axis.size}" for axis in self.axes)

    def axis(self, name: str) -> Axis | None:
        """Return the dimension of a name, None where there is none."""
        return next((axis for axis in self.axes if axis.name == name), None)

    def stage(self, rank: int) -> int:
        """Return the pipeline stage of a rank, 0 where there is one only."""
        pipeline = self.axis(PIPELINE)
        return pipeline.place(rank) if pipeline else 0

    def translate(self, rank: int, source: int, target: int) -> int:
        """Return the rank that lies to `target` as `rank` lies to `source`, going round at the ends.

        Example:
            >>> Mesh.of([("tp", 4), ("dp", 2)]).translate(1, source=0, target=6)
            7
        """
        number = 0
        for axis in self.axes:
            place = axis.place(rank) + axis.place(target) - axis.place(source)
            number += place % axis.size * axis.stride
        return number


def parse_layout(text: str) -> tuple[tuple[str, int], ...]:
    """Parse a layout such as `tp=4,pp=2,dp=8`, the dimension that changes fastest first.

    Raises:
        ConfigError: It is none; names what is wrong and the dimensions there are.

    Example:
        >>> parse_layout("tp=4,dp=2")
        (('tp', 4), ('dp', 2))
    """
    sizes: dict[str, int] = {}
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None or match[1] not in NAMES or int(match[2]) < 1 or match[1] in sizes:
            known = ", ".join(f"{name} ({meaning})" for name, meaning in NAMES.items())
            raise ConfigError(
                f"layout has {term!r}; allowed: dimension=size, each of {known} once, sizes from 1",
                hint="Such as --layout tp=4,pp=2,dp=8, the dimension whose ranks have adjacent numbers first.",
            )
        sizes[match[1]] = int(match[2])
    return tuple(sizes.items())


@dataclass(frozen=True, slots=True)
class Clue:
    """What a comm group or messages tell about the mesh.

    Attributes:
        words: What it is, for people.
        spans: (stride, size) of the dimensions it covers; size 0 where only neighbours are known.
        name: The dimension it belongs to, as far as that can be told; "" where not.
        weight: How sure the name is.
    """

    words: str
    spans: tuple[tuple[int, int], ...]
    name: str = ""
    weight: float = 0.0

    def covers(self, low: int, high: int) -> bool:
        """Whether it covers the dimension of strides from `low` to below `high`."""
        return any(stride <= low and (not size or high <= stride * size) for stride, size in self.spans)


def find_bounds(clues: Sequence[Clue], world: int) -> list[int]:
    """Return the strides at which dimensions begin, and the world size.

    Raises:
        ConfigError: No mesh has all of them; names two that contradict each other.
    """
    reasons = {1: "the first rank", world: f"the job's {world:,} ranks"}
    for clue in clues:
        for stride, size in clue.spans:
            reasons.setdefault(stride, clue.words)
            if size:
                reasons.setdefault(stride * size, clue.words)
    bounds = sorted(reasons)
    for low, high in itertools.pairwise(bounds):
        if high % low or high > world:
            raise ConfigError(
                f"ranks form no mesh: {reasons[low]} asks for dimensions that end at a multiple of {low:,}, {reasons[high]} at {high:,}, "
                f"in a job of {world:,} ranks",
                hint=_NO_COPIES,
            )
    return bounds


def infer_mesh(clues: Sequence[Clue], world: int) -> Mesh:
    """Return the mesh that clues show; what nothing tells about is data parallel.

    Raises:
        ConfigError: The clues contradict each other.
    """
    bounds = find_bounds(clues, world)
    axes, taken = [], set[str]()
    for low, high in itertools.pairwise(bounds):
        about = [clue for clue in clues if clue.covers(low, high)]
        own = [
            clue for clue in about if len(clue.spans) == 1 and clue.spans[0] in ((low, high // low), (low, 0))
        ]
        named = sorted((clue for clue in (own or about) if clue.name), key=lambda clue: -clue.weight)
        free = [clue.name for clue in named if clue.name not in taken]
        name = (free or [name for name in ("dp", "tp", "cp", "ep", "sp", "pp") if name not in taken] or [""])[
            0
        ]
        if not name:
            raise ConfigError(
                f"ranks form a mesh of more than {len(NAMES)} dimensions; allowed: {', '.join(NAMES)}",
                hint=_NO_COPIES,
            )
        taken.add(name)
        evidence = (
            _join_words(clue.words for clue in (own or about))
            or "nothing recorded tells; its ranks exchange nothing that is known"
        )
        axes.append(Axis(name, high // low, low, evidence))
    return Mesh(tuple(axes) or (Axis("dp", 1, 1, "one rank"),))


def find_fitting_meshes(sizes: Sequence[tuple[str, int]], clues: Sequence[Clue]) -> Iterator[Mesh]:
    """Yield the meshes of given sizes that contradict no clue: in the order given, then in others."""
    # Many groups tell the same.
    spans = {span for clue in clues for span in clue.spans}
    messages = [clue for clue in clues if clue.name == PIPELINE]
    for order in _iterate_orders(list(sizes)):
        mesh = Mesh.of(order)
        starts = {axis.stride for axis in mesh.axes} | {mesh.world}
        if all(stride in starts and (not size or stride * size in starts) for stride, size in spans) and all(
            _agrees_on_pipeline(mesh, clue) for clue in messages
        ):
            yield mesh


def _iterate_orders(sizes: list[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """Yield the permutations, the given one first."""
    if len(sizes) < 2:
        yield sizes
        return
    for index, first in enumerate(sizes):
        for rest in _iterate_orders(sizes[:index] + sizes[index + 1 :]):
            yield [first, *rest]


def _agrees_on_pipeline(mesh: Mesh, clue: Clue) -> bool:
    """Whether what belongs to the pipeline goes along that of the mesh."""
    pipeline = mesh.axis(PIPELINE)
    return pipeline is not None and clue.spans[0][0] == pipeline.stride


def with_evidence(mesh: Mesh, clues: Sequence[Clue]) -> Mesh:
    """Return a mesh that was given, with what supports each dimension."""
    axes = []
    for axis in mesh.axes:
        about = _join_words(clue.words for clue in clues if clue.covers(axis.stride, axis.stride * axis.size))
        axes.append(replace(axis, evidence=f"given; {about}" if about else "given"))
    return Mesh(tuple(axes))


def _join_words(words: Iterable[str]) -> str:
    """Join what clues say, each once; the first of many."""
    each = list(dict.fromkeys(words))
    more = len(each) - _MOST_TOLD
    return "; ".join([*each[:_MOST_TOLD], *([f"and {more:,} more"] if more > 0 else [])])
