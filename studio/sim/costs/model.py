"""The cost model: how long a collective takes alone, and what it puts on the ports of its members.

A collective of a library such as NCCL is one kernel per rank, which begins to move data when all members have come. The
library takes one of its ways (algorithm and protocol) by its own estimates; what that way takes is a launch, and then
base + steps × hop and bytes on the busiest port / rate, which overlap (`studio.sim.costs.ways`).

The bytes are sent over ports: each NPU has one inside its node (dimension 0 of the network) and one between nodes (all
further dimensions). What the ports can carry comes from the network's dimensions, so that another bandwidth changes
every answer; what the library makes of it (launches, bases, hops, efficiencies) is the machine's and is fitted or taken
from sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from studio.errors import ConfigError
from studio.notebook import format_record
from studio.sim.costs.curves import Curve, compute_correction
from studio.sim.costs.library import LIBRARIES, estimate_ways
from studio.sim.costs.parameters import (
    GROUPS,
    NAMES,
    TRANSPORTS,
    convert_parameter,
    get_default,
    list_members,
    to_groups,
)
from studio.sim.costs.shapes import (
    AS_KIND,
    BEHIND_A_SWITCH,
    Float64,
    GroupShape,
    Ports,
    Wiring,
    compute_buffer_bytes,
    compute_rate_between,
    compute_rate_inside,
)
from studio.sim.costs.ways import (
    HOST_OVERLAP,
    OVERLAP,
    RINGS,
    Terms,
    Way,
    combine,
    compute_sharing,
    compute_terms,
    list_ways,
)
from studio.sim.fields import Fields
from studio.sim.kinds import COLLECTIVE_KINDS

KINDS: tuple[str, ...] = (*COLLECTIVE_KINDS, "send_recv")
"""What the model knows costs of."""
ALGORITHMS = ("auto", "ring", "tree", "direct", "NVLS", "NVLS-tree")
PROTOCOLS = ("auto", "LL", "LL128", "Simple")
CHOICES = ("library", "least")
_WIRING: Mapping[str, str] = {"nics": "nics", "peers": "peers", "per-host": "per_host"}
"""Keys of a table of costs that say how a node is wired, and the attribute of each."""
_MISTUNED = 4.0
"""A way that takes this many times as long as the quickest is not taken, whatever the library's own estimates are: they were made for
hardware of other kinds, and no library is left so far off."""
_UNTUNED = frozenset({"broadcast", "reduce"})
"""Collectives between nodes that nothing is known of how libraries choose: their own estimates are up to four times off there."""
_DIRECT_LL_BYTES = 16 * 1024.0
"""NCCL sends messages of up to this size by LL (NCCL_P2P_LL_THRESHOLD)."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Times of collectives of one kind and group, alone on the network, one entry per size.

    S sizes.

    Attributes:
        total_ns: (S,) time from the last arrival of a member to the end, alone on the network.
        fixed_ns: (S,) the part of it in which no bytes move: the launch, and hops as far as bytes do not hide them.
        inside_bytes: (S,) bytes that the busiest member sends through its port inside the node.
        between_bytes: (S,) bytes that the busiest member sends through its port between nodes.
        inside_busy_ns: (S,) how long these bytes alone keep a whole port inside the node busy, at the rate that is reached.
        between_busy_ns: (S,) the same for the bytes of a member and its own share of the ports between nodes.
        choice: (S,) which of `choices` was the quickest.
        choices: Names of algorithm and protocol, such as `ring Simple`.
        extrapolated: (S,) whether the size or group lies outside of what the model was fitted to.
        latency_ns: (S,) the part of the time that is the latency of the network; it is part of `fixed_ns`, too.
        correction: Which residual curves the times are corrected by (`studio.sim.costs.curves`): the group's own, those
            of near groups, or none.
    """

    total_ns: Float64
    fixed_ns: Float64
    inside_bytes: Float64
    between_bytes: Float64
    inside_busy_ns: Float64
    between_busy_ns: Float64
    choice: npt.NDArray[np.int64]
    choices: tuple[str, ...]
    extrapolated: npt.NDArray[np.bool_]
    latency_ns: Float64
    correction: str = ""


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a way's time, by size.

    Attributes:
        own_ns: (S,) its time without the latency of the network.
        latency_ns: That latency.
        moving_ns: (S,) the part of its own time in which bytes move.
        inside_busy_ns: (S,) as in `Charge`, and so is the next.
    """

    own_ns: Float64
    latency_ns: float
    moving_ns: Float64
    inside_busy_ns: Float64
    between_busy_ns: Float64

    @property
    def total_ns(self) -> Float64:
        """(S,) all of its time."""
        return self.own_ns + self.latency_ns


_MOVING = ("moving_ns", "inside_busy_ns", "between_busy_ns")


@dataclass(frozen=True, slots=True)
class Range:
    """What a model was fitted to; outside of it its answers are extrapolated.

    Attributes:
        kinds: Collectives.
        ranks: Fewest and most ranks.
        nodes: Fewest and most nodes.
        sizes: Least and most bytes of the whole buffer.
    """

    kinds: tuple[str, ...]
    ranks: tuple[int, int]
    nodes: tuple[int, int]
    sizes: tuple[float, float]

    __repr__ = format_record

    def covers(self, kind: str, buffer: Float64, shape: GroupShape) -> npt.NDArray[np.bool_]:
        """Return which sizes of a collective in a group lie in it."""
        group = (
            kind in self.kinds
            and self.ranks[0] <= shape.ranks <= self.ranks[1]
            and self.nodes[0] <= shape.nodes <= self.nodes[1]
        )
        inside: npt.NDArray[np.bool_] = (buffer >= self.sizes[0]) & (buffer <= self.sizes[1]) & group
        return inside


@dataclass(frozen=True, slots=True)
class CostModel:
    """The costs of a machine's collectives.

    Attributes:
        library: Whose estimates choose, and whose parameters hold where `values` says nothing
            (`studio.sim.costs.library.LIBRARIES`).
        values: Parameters of this machine (`studio.sim.costs.parameters.NAMES`).
        choice: `library` takes the way that the library would take, `least` the quickest.
        algorithm: `auto`, or the algorithm to take wherever a collective has it.
        protocol: `auto`, or the protocol to take wherever the algorithm has it.
        wiring: How a node is wired.
        transport: How other nodes are reached (`studio.sim.costs.parameters.TRANSPORTS`); "" where it is not known.
        curves: Residual curves of collectives in groups that were measured.
        fitted: What `values` were fitted to; None where they come from data sheets.
    """

    library: str = "nccl-hopper"
    values: Mapping[str, float] = field(default_factory=dict)
    choice: str = "library"
    algorithm: str = "auto"
    protocol: str = "auto"
    wiring: Wiring = BEHIND_A_SWITCH
    transport: str = ""
    curves: tuple[Curve, ...] = ()
    fitted: Range | None = None

    __repr__ = format_record

    def value(self, name: str) -> float:
        """Return a parameter: this machine's, or the library's default."""
        known = self.values.get(name)
        return get_default(self.library, name, self.transport) if known is None else known

    def over(self, transport: str) -> CostModel:
        """Return the model of the same machine with another transport between nodes; "" where it is not known."""
        if transport == self.transport:
            return self
        values = {
            name: convert_parameter(name, value, self.transport, transport)
            for name, value in self.values.items()
        }
        return replace(self, transport=transport, values=values)

    def charge(
        self,
        kind: str,
        sizes: Float64,
        shape: GroupShape,
        ports: Ports,
        *,
        corrected: bool = True,
        gpus_per_thread: int = 1,
    ) -> Charge:
        """Return what collectives of a kind cost.

        Args:
            kind: A collective (`studio.sim.kinds`), or `send_recv` for a message between two ranks.
            sizes: (S,) `comm_size` as Chakra counts it: an all-gather's is one rank's part; an all-to-all's what a rank
                sends in all, its own part included.
            shape: The group.
            ports: The network.
            corrected: Whether residual curves are applied.
            gpus_per_thread: GPUs on which one thread of the host launches, one after the other: each takes a call of its own. 1 in
                jobs that have a process a GPU.
        """
        done = AS_KIND.get(kind, kind)
        buffer = compute_buffer_bytes(kind, np.asarray(sizes, np.float64), shape.ranks)
        known = self.fitted is None or self.fitted.covers(done, buffer, shape)
        outside = np.full(len(buffer), False) | np.logical_not(known)
        if shape.ranks < 2:
            none = np.zeros(len(buffer))
            fixed = none + self.value(f"launch {done}")
            return Charge(
                fixed, fixed, none, none, none, none, none.astype(np.int64), ("none",), outside, none
            )
        open_ways = self.possible(done, shape, ports)
        names = tuple(way.name for way in open_ways)
        parts = [self._compute_parts(way, done, buffer, shape, ports, gpus_per_thread) for way in open_ways]
        total = np.array([part.total_ns for part in parts])
        choice = self.choose(done, buffer, shape, ports, open_ways, total)
        pick = (choice, np.arange(len(buffer)))
        factor, source = compute_correction(self.curves if corrected else (), done, buffer, shape)
        # Curves correct what was measured, without any latency that the network adds.
        latency = np.array([part.latency_ns for part in parts])[choice]
        own = np.array([part.own_ns for part in parts])[pick]
        moving, inside_busy, between_busy = (
            np.array([getattr(part, name) for part in parts])[pick] for name in _MOVING
        )
        total, fixed = own * factor + latency, (own - moving) * factor + latency
        used = compute_rate_between(ports, shape.per_node, self.wiring.nics) if ports.between else 1.0
        inside = buffer * np.array([way.inside for way in open_ways])[choice]
        sent = buffer * np.array([way.between for way in open_ways])[choice]
        reached = compute_rate_inside(ports, shape.per_node, self.wiring.peers)
        least = np.maximum(inside / reached, sent / used if ports.between else 0.0)
        # The NICs of silent neighbours carry what is more than the member's own share.
        between = sent * min(1.0, ports.between / used)
        return Charge(
            np.maximum(total, fixed + least),
            fixed,
            inside,
            between,
            inside_busy * factor,
            between_busy * factor,
            choice,
            names,
            outside,
            latency,
            source,
        )

    def possible(self, kind: str, shape: GroupShape, ports: Ports) -> tuple[Way, ...]:
        """Return the ways that are open: those that the library and the node have, and of these the forced ones.

        NVLS adds up and sends to all in the switch that joins the GPUs of a node.
        """
        library = LIBRARIES[self.library]
        open_ways = [way for way in list_ways(kind, shape) if way.protocol in library.protocols]
        if not library.nvls or not ports.switched or self.wiring.peers:
            open_ways = [way for way in open_ways if not way.algorithm.startswith("NVLS")]
        if kind in RINGS and self.algorithm != "direct":
            open_ways = [way for way in open_ways if way.algorithm != "direct"]
        for key, forced in (("algorithm", self.algorithm), ("protocol", self.protocol)):
            kept = [way for way in open_ways if forced in ("auto", getattr(way, key))]
            open_ways = kept or open_ways
        return tuple(open_ways)

    def choose(
        self,
        kind: str,
        buffer: Float64,
        shape: GroupShape,
        ports: Ports,
        open_ways: Sequence[Way],
        totals: Float64 | None = None,
    ) -> npt.NDArray[np.int64]:
        """Return which of the ways is taken at each size.

        Args:
            kind: The collective.
            buffer: (S,) bytes of the whole buffer.
            shape: The group.
            ports: The network.
            open_ways: The ways (W).
            totals: (W, S) what they take; None works them out.
        """
        if kind not in RINGS:
            part = buffer / (1 if kind == "send_recv" else shape.ranks)
            wanted = np.where(part <= _DIRECT_LL_BYTES, "LL", "Simple")
            protocols = [way.protocol for way in open_ways]
            return np.array([protocols.index(name) if name in protocols else 0 for name in wanted])
        if totals is None:
            totals = np.array(
                [self._compute_parts(way, kind, buffer, shape, ports).total_ns for way in open_ways]
            )
        least = np.asarray(totals.argmin(axis=0), np.int64)
        if self.choice == "least" or (shape.nodes > 1 and kind in _UNTUNED):
            return least
        used = compute_rate_between(ports, shape.per_node, self.wiring.nics) if shape.nodes > 1 else 0.0
        library, inside = (
            LIBRARIES[self.library],
            compute_rate_inside(ports, shape.per_node, self.wiring.peers),
        )
        if library.searches:
            slower = sum(self.value(name) * share for name, share in compute_sharing(kind, shape).items())
            reached = 1 / (1 / self.value("efficiency Simple inside") + slower)
            inside *= min(1.0, reached / library.link_share)
        believed = estimate_ways(library, kind, buffer, shape, inside, used)
        unknown = np.full(len(buffer), np.inf)
        rows = np.array([believed.get(way.name, unknown) for way in open_ways])
        chosen, size = np.asarray(rows.argmin(axis=0), np.int64), np.arange(len(buffer))
        return np.where(totals[chosen, size] > _MISTUNED * totals[least, size], least, chosen)

    def times(self, way: Way, kind: str, buffer: Float64, shape: GroupShape, ports: Ports) -> Float64:
        """Return (S,) what a way takes, without residual curves, at sizes of the whole buffer."""
        return self._compute_parts(way, kind, buffer, shape, ports).total_ns

    def terms(self, way: Way, kind: str, buffer: Float64, shape: GroupShape, ports: Ports) -> Terms:
        """Return the terms of what a way takes, at sizes of the whole buffer."""
        library = LIBRARIES[self.library]
        return compute_terms(
            way, kind, buffer, shape, ports, self.wiring, shared=library.searches, channels=library.messages
        )

    def _compute_parts(
        self,
        way: Way,
        kind: str,
        buffer: Float64,
        shape: GroupShape,
        ports: Ports,
        gpus_per_thread: int = 1,
    ) -> _Parts:
        """Return the parts of a way's time."""
        split = self.terms(way, kind, buffer, shape, ports)
        waits = self._sum_parts(split.waits, len(buffer))
        inside, between = (
            self._sum_parts(split.inside, len(buffer)),
            self._sum_parts(split.between, len(buffer)),
        )
        moving = np.maximum(inside, between)
        total = self._sum_parts(split.launch, len(buffer)) + combine(waits, moving, OVERLAP[way.rates])
        host = np.full(len(buffer), gpus_per_thread * self.value("host interval"))
        own = combine(host, total, HOST_OVERLAP)
        return _Parts(
            own, split.latency_ns, moving, inside * split.inside_share, between * split.between_share
        )

    def _sum_parts(self, parts: Sequence[tuple[str, Float64]], count: int) -> Float64:
        total = np.zeros(count)
        for name, factor in parts:
            value = self.value(name)
            total += factor / value if name.startswith("efficiency") else factor * value
        return total

    @classmethod
    def from_table(cls, table: Mapping[str, object], named: str = "costs") -> CostModel:
        """Read a model from a table, as `to_table` writes it.

        Args:
            table: Keys and values, from YAML.
            named: Where it is from, for messages.

        Raises:
            ConfigError: A key is unknown, or a value not allowed.
        """
        fields = Fields(named, table, texts_are_numbers=True)
        known = {
            *GROUPS,
            "library",
            "choice",
            "algorithm",
            "protocol",
            *_WIRING,
            "transport",
            "curves",
            "fitted",
        }
        for key in table:
            if key not in known:
                raise ConfigError(
                    f"{named}: {key} is no key of a cost model",
                    key=str(key),
                    allowed=", ".join(sorted(known)),
                )
        values: dict[str, float] = {}
        for group in GROUPS:
            values |= _read_group(fields, group)

        def read_choice(key: str, names: Sequence[str], usual: str) -> str:
            return (
                fields.choice_in(key, table[key], {name: name for name in names}) if key in table else usual
            )

        return cls(
            library=read_choice("library", tuple(LIBRARIES), "nccl-hopper"),
            values=values,
            choice=read_choice("choice", CHOICES, "library"),
            algorithm=read_choice("algorithm", ALGORITHMS, "auto"),
            protocol=read_choice("protocol", PROTOCOLS, "auto"),
            wiring=Wiring(
                **{
                    name: fields.whole_in(key, table[key], 0, 1024)
                    for key, name in _WIRING.items()
                    if key in table
                }
            ),
            transport=read_choice("transport", TRANSPORTS, ""),
            curves=_read_curves(fields),
            fitted=_read_range(fields),
        )

    def to_table(self) -> dict[str, object]:
        """Return the model as a table that YAML can hold; `from_table` reads it."""
        table: dict[str, object] = {
            "library": self.library,
            "choice": self.choice,
            "algorithm": self.algorithm,
            "protocol": self.protocol,
            # Also where it is 0: a system file that does not say it has the NICs of its family.
            "nics": self.wiring.nics,
            **{key: count for key, name in _WIRING.items() if (count := getattr(self.wiring, name))},
            **to_groups({name: float(self.values[name]) for name in NAMES if name in self.values}),
        }
        if self.transport:
            table["transport"] = self.transport
        if self.fitted is not None:
            table["fitted"] = {
                "collectives": list(self.fitted.kinds),
                "ranks": list(self.fitted.ranks),
                "nodes": list(self.fitted.nodes),
                "sizes": list(self.fitted.sizes),
            }
        if self.curves:
            table["curves"] = [
                {
                    "collective": curve.kind,
                    "ranks": curve.shape.ranks,
                    "per-node": curve.shape.per_node,
                    "nodes": curve.shape.nodes,
                    "sizes": list(curve.sizes),
                    "factors": list(curve.factors),
                }
                for curve in self.curves
            ]
        return table


def _read_group(fields: Fields, group: str) -> dict[str, float]:
    if group not in fields:
        return {}
    table = fields.table[group]
    allowed = list_members(group)
    if not isinstance(table, Mapping):
        raise fields.error(group, table, f"a table of {', '.join(allowed)}: {GROUPS[group]}")
    values = {}
    for key, value in table.items():
        if key not in allowed:
            raise fields.error(group, str(key), ", ".join(allowed))
        most = 1.0 if group == "efficiency" else None
        values[f"{group} {key}"] = fields.number_in(f"{group}[{key}]", value, above=0, most=most)
    return values


def _read_curves(fields: Fields) -> tuple[Curve, ...]:
    curves = fields.table.get("curves", [])
    if not isinstance(curves, list | tuple):
        raise fields.error("curves", curves, "a list of residual curves")
    return tuple(_read_curve(fields.name, number, curve) for number, curve in enumerate(curves))


def _read_curve(named: str, number: int, table: object) -> Curve:
    place = f"curves[{number}]"
    keys = "collective, ranks, per-node, nodes, sizes, factors"
    if not isinstance(table, Mapping) or not set(keys.split(", ")) <= set(table):
        raise ConfigError(
            f"{named}: {place} is not a residual curve; allowed: {keys}", key=place, allowed=keys
        )
    fields = Fields(f"{named}: {place}", table, texts_are_numbers=True)
    kind = fields.choice_in("collective", table["collective"], {kind: kind for kind in KINDS})
    ranks, per_node, nodes = (
        fields.whole_in(key, table[key], 1, 1 << 30) for key in ("ranks", "per-node", "nodes")
    )
    sizes = tuple(fields.number_in("sizes", value, above=0) for value in fields.items("sizes"))
    factors = tuple(fields.number_in("factors", value, above=0) for value in fields.items("factors"))
    if len(sizes) != len(factors) or list(sizes) != sorted(set(sizes)):
        raise fields.error("sizes", list(sizes), "increasing sizes, as many as there are factors")
    return Curve(kind, GroupShape(ranks, per_node, nodes), sizes, factors)


def _read_range(fields: Fields) -> Range | None:
    if "fitted" not in fields:
        return None
    table = fields.table["fitted"]
    keys = "collectives, ranks, nodes, sizes"
    if not isinstance(table, Mapping) or not set(keys.split(", ")) <= set(table):
        raise fields.error("fitted", table, f"a table of {keys}")
    inner = Fields(f"{fields.name}: fitted", table, texts_are_numbers=True)
    kinds = tuple(
        inner.choice_in("collectives", kind, {kind: kind for kind in KINDS})
        for kind in inner.items("collectives")
    )
    ranks = [inner.whole_in("ranks", value, 1, 1 << 30) for value in inner.items("ranks")]
    nodes = [inner.whole_in("nodes", value, 1, 1 << 30) for value in inner.items("nodes")]
    sizes = [inner.number_in("sizes", value, least=0) for value in inner.items("sizes")]
    for key, pair in (("ranks", ranks), ("nodes", nodes), ("sizes", sizes)):
        if len(pair) != 2:
            raise inner.error(key, list(pair), "the least and the most")
    return Range(kinds, (ranks[0], ranks[1]), (nodes[0], nodes[1]), (sizes[0], sizes[1]))
