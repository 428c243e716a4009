"""How the dimensions of a family's network follow from the number of NPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from studio.errors import ConfigError
from studio.sim.fields import Fields, show_value
from studio.sim.settings import MAX_NPUS
from studio.sim.systems.gpu import refuse_unknown

_KEYS = ("node", "torus", "rails", "nics", "allowed", "most", "start", "devices")


@dataclass(frozen=True, slots=True)
class Family:
    """What sizes a system comes in.

    Attributes:
        inside: NPUs along each dimension of a whole node, which is one number behind a switch; () for a torus without
            nodes.
        torus: Dimensions of a torus without nodes; 0 for nodes.
        rails: Whether the network is written down link by link, a switch for all NPUs of equal place in their nodes.
        nics: Network ports of a node; 0 where nodes have none of their own.
        allowed: The sizes it can have; () for any up to `most`.
        most: NPUs at most.
        start: NPUs where nothing says how many.
        devices: Words by which recordings name its NPUs; all of one entry have to be there.
    """

    inside: tuple[int, ...]
    torus: int = 0
    rails: bool = False
    nics: int = 0
    allowed: tuple[int, ...] = ()
    most: int = MAX_NPUS
    start: int = 8
    devices: tuple[str, ...] = ()

    @property
    def node(self) -> int:
        """NPUs of a whole node; 1 in a torus without nodes."""
        return math.prod(self.inside)

    def fits(self, npus: int) -> bool:
        """Whether the family comes in this size."""
        return npus in self.allowed if self.allowed else 1 <= npus <= self.most

    def describe_limits(self) -> str:
        """Return which sizes it comes in, the largest one too where `sizes_words` names none."""
        largest = not self.allowed and self.most == MAX_NPUS
        return f"{self.sizes_words}, {MAX_NPUS:,} at most" if largest else self.sizes_words

    @property
    def sizes_words(self) -> str:
        """The sizes it comes in, in words.

        Example:
            >>> Family((8,)).sizes_words, Family((), torus=2, most=1024).sizes_words
            ('any number of NPUs, in nodes of up to 8', 'up to 1,024 NPUs')
        """
        if self.allowed:
            return f"{', '.join(map(str, self.allowed))} NPUs"
        any_number = "any number of NPUs" if self.most == MAX_NPUS else f"up to {self.most:,} NPUs"
        return any_number if self.torus else f"{any_number}, in nodes of up to {self.node:,}"

    def sizes(self, npus: int) -> list[int]:
        """Return the size of each dimension; those outside of a node or of a small torus are 1.

        Nodes are filled as far as all can be filled alike: 12 NPUs of nodes of 8 are two nodes of 6.

        Example:
            >>> nodes = Family((8,))
            >>> nodes.sizes(64), nodes.sizes(4), nodes.sizes(12), nodes.sizes(1)
            ([8, 8], [4, 1], [6, 2], [1, 1])
            >>> Family((4, 4)).sizes(64), Family((), torus=3).sizes(32), Family((), torus=3).sizes(6)
            ([4, 4, 4], [4, 4, 2], [3, 2, 1])
        """
        if self.torus:
            return sorted(_factor_evenly(npus, [npus] * self.torus), reverse=True)
        inside = next(
            size
            for size in range(min(self.node, npus), 0, -1)
            if npus % size == 0 and _fits(size, self.inside)
        )
        return [*_factor_evenly(inside, self.inside), npus // inside]


def _fits(size: int, limits: Sequence[int]) -> bool:
    return len(limits) == 1 or math.prod(_factor_evenly(size, limits)) == size


def _factor_evenly(npus: int, limits: Sequence[int]) -> list[int]:
    """Return factors of a number, one per dimension and within the limits, as even as they can be, the largest first.

    Where there are none, their product is less.
    """
    factors = []
    for place, limit in enumerate(limits):
        left = len(limits) - place
        root = math.ceil(round(npus ** (1 / left), 9))
        takes = [size for size in range(1, min(limit, npus) + 1) if npus % size == 0]
        take = min((size for size in takes if size >= root), default=max(takes))
        factors.append(take)
        npus //= take
    return factors


def read_family(place: str, table: Mapping[str, object]) -> Family:
    """Read the table `family` of a system file.

    Raises:
        ConfigError: A key or value is not allowed.
    """
    fields = Fields(f"{place}: family", table)
    refuse_unknown(fields, _KEYS)
    if ("node" in fields) == ("torus" in fields):
        raise ConfigError(
            f"{fields.name}: {'both node and torus are' if 'node' in fields else 'neither node nor torus is'} there; allowed: one of them",
            hint="node: 8 for nodes of 8 NPUs behind a switch, torus: 3 for a torus of three dimensions.",
        )
    node = fields.table.get("node", [])
    listed = node if isinstance(node, list | tuple) else [node]
    inside = tuple(fields.whole_in("node", size, 1, MAX_NPUS) for size in listed)
    torus = fields.whole_in("torus", fields.table["torus"], 1, 6) if "torus" in fields else 0
    allowed = fields.table.get("allowed", "any")
    sizes = (
        ()
        if allowed == "any"
        else _read_whole_list(fields, "allowed", allowed, "any, or a list such as [4, 8]")
    )
    most = fields.whole_in("most", fields.table.get("most", MAX_NPUS), 1, MAX_NPUS)
    start = fields.whole_in("start", fields.table.get("start", math.prod(inside) if inside else 8), 1, most)
    devices = fields.table.get("devices", [])
    if not isinstance(devices, list | tuple) or not all(isinstance(item, str) for item in devices):
        raise fields.error("devices", devices, "a list of texts, such as [H100]")
    return Family(
        inside,
        torus,
        fields.flag_in("rails", fields.table.get("rails", False)),
        fields.whole_in("nics", fields.table.get("nics", 0), 0, MAX_NPUS),
        sizes,
        most,
        start,
        tuple(map(str, devices)),
    )


def _read_whole_list(fields: Fields, key: str, value: object, allowed: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise fields.error(key, value, allowed)
    return tuple(fields.whole_in(f"{key}[{index}]", item, 1, MAX_NPUS) for index, item in enumerate(value))


def refuse_size(name: str, family: Family, npus: int) -> None:
    """Raise a ConfigError for a size that a family does not come in."""
    if not family.fits(npus):
        raise ConfigError(
            f"--npus is {show_value(npus)} for the system {name}; allowed: {family.describe_limits()}",
            hint="`chakra-studio presets` lists the sizes of each system.",
            key="npus",
        )
