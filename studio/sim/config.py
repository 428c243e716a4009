"""The system to simulate: network, collectives, memory, compute.

Every object is frozen and checks itself when it is made: a value that cannot be simulated raises a
`ConfigError` that names the setting, the value found and the values allowed. Units are in the names;
a size is in bytes, a time in nanoseconds, a rate in bytes per nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from studio.errors import ConfigError
from studio.notebook import format_record
from studio.sim.algorithms import ALGORITHMS, ALGORITHMS_ALLOWED, AlgorithmKind, AlgorithmRow, find_algorithm
from studio.sim.costs.model import CostModel
from studio.sim.extensions import EXTENDED_MODE, Extensions, LinkGraph
from studio.sim.kinds import COLLECTIVE_KINDS, REFERENCE_KINDS, CollectiveKind
from studio.sim.settings import DEFAULT, DIMENSION_SETTINGS, MAX_NPUS, check_limits
from studio.sim.values import check_choice, check_whole
from studio.trace import CommGroup, Trace
from studio.units import format_counted

DimensionKind = Literal["ring", "fully_connected", "switch"]
Congestion = Literal["aware", "unaware"]
ModelName = Literal["full", "astra-sim", "extended", "replay"]
Scheduling = Literal["lifo", "fifo", "explicit"]
CollectiveOptimization = Literal["baseline", "local_bw_aware"]
MemorySharing = Literal["per_npu", "per_node", "pool"]

DEFAULT_ENDPOINT_DELAY_NS = 10
"""What a packet waits at its rank where the configuration says nothing, and always in a comm group's ring."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of the network: NPUs that differ in one coordinate, and the links between them.

    Attributes:
        kind: How the NPUs of the dimension are connected.
        size: NPUs along the dimension, at least 2; 1 for a job of one rank, whose system is that one dimension.
        bytes_per_ns: Bandwidth of a link, exactly as the engine divides by it.
        latency_ns: Latency of a link; may be fractional.
        efficiency: Share of the bandwidth that messages get, above 0 and at most 1 (extended mode).
        message_overhead_ns: Fixed cost of every message that crosses the dimension (extended mode).

    Example:
        >>> Dimension("torus", 4, 50.0, 500.0)
        Traceback (most recent call last):
        ...
        studio.errors.ConfigError: dimension kind is 'torus'; allowed: ring, fully_connected, switch
    """

    kind: DimensionKind
    size: int
    bytes_per_ns: float
    latency_ns: float = 0.0
    efficiency: float = DEFAULT["efficiency"]
    message_overhead_ns: float = DEFAULT["message-overhead"]

    __repr__ = format_record

    def __post_init__(self) -> None:
        check_limits(self, "dimension ")


@dataclass(frozen=True, slots=True)
class Topology:
    """Network dimensions, the one nearest the NPU first: it varies fastest in the rank number.

    Example:
        >>> topology = Topology((Dimension("ring", 2, 200.0, 50.0), Dimension("switch", 4, 50.0, 2000.0)))
        >>> topology.npus, topology.address(5)
        (8, (1, 2))
    """

    dims: tuple[Dimension, ...]

    __repr__ = format_record

    def __post_init__(self) -> None:
        if not self.dims:
            raise ConfigError("topology has no dimensions; allowed: one or more")
        if self.npus > MAX_NPUS:
            raise ConfigError(f"topology has {self.npus:,} NPUs; allowed: up to {MAX_NPUS:,}")

    @property
    def npus(self) -> int:
        """NPUs of the system: the product of the sizes."""
        return math.prod(dim.size for dim in self.dims)

    def address(self, npu: int) -> tuple[int, ...]:
        """Return the coordinates of an NPU, one per dimension."""
        coordinates = []
        for dim in self.dims:
            npu, coordinate = divmod(npu, dim.size)
            coordinates.append(coordinate)
        return tuple(coordinates)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How a collective is carried out along one dimension.

    Attributes:
        kind: The algorithm.
        window: Peers a rank of the direct algorithm sends to at a time; None is all of them.
        single: Whether it runs over all ranks as one dimension (the forms named `one…`).

    Example:
        >>> Algorithm.parse("oneDirect4")
        Algorithm(kind='direct', window=4, single=True)
        >>> Algorithm("halving_doubling").name
        'halvingDoubling'
    """

    kind: AlgorithmKind
    window: int | None = None
    single: bool = False

    def __post_init__(self) -> None:
        check_choice("algorithm kind", self.kind, tuple(ALGORITHMS))
        if self.window is not None:
            if not self.row.windowed:
                raise ConfigError(
                    f"algorithm window is {self.window} for {self.kind}; allowed: only for direct"
                )
            check_whole("algorithm window", self.window, 1, MAX_NPUS)
        if self.single and not self.row.single:
            raise ConfigError(
                f"algorithm {self.kind} has no form over all ranks as one dimension",
                hint=f"Leave single out, or choose one that has it: {', '.join(row.name for row in ALGORITHMS.values() if row.single)}.",
            )

    @property
    def row(self) -> AlgorithmRow:
        """Its row in the table of algorithms."""
        return ALGORITHMS[self.kind]

    @property
    def name(self) -> str:
        """The spelling ASTRA-sim uses."""
        base = self.row.names[int(self.single)]
        return base if self.window is None else f"{base}{self.window}"

    @staticmethod
    def parse(text: str) -> Algorithm:
        """Return the algorithm ASTRA-sim spells `text`: ring, direct4, oneHalvingDoubling.

        Raises:
            ConfigError: There is no such algorithm.
        """
        match = find_algorithm(text)
        if match is None:
            raise ConfigError(f"collective algorithm is {text!r}; allowed: {ALGORITHMS_ALLOWED}")
        row, single, window = match
        return Algorithm(row.kind, window, single)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Compute nodes take the time their operations and bytes need, not the recorded duration.

    Attributes:
        peak_tera_ops_per_s: Peak performance in 10^12 operations per second. The memory bandwidth of the
            model is `SystemConfig.local_memory_bytes_per_ns`.
    """

    peak_tera_ops_per_s: float

    def __post_init__(self) -> None:
        check_limits(self, "roofline ")


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """Memory that load and store nodes reach: latency + size / bandwidth per request.

    Attributes:
        sharing: Who waits for whom: nobody, the NPUs of one node, or all NPUs.
        latency_ns: Time of an empty request.
        bytes_per_ns: Bandwidth.
        npus_per_node: NPUs per node, where a node's NPUs share one memory.
    """

    sharing: MemorySharing
    latency_ns: int
    bytes_per_ns: float
    npus_per_node: int = DEFAULT["num-npus-per-node"]

    def __post_init__(self) -> None:
        check_limits(self, "remote memory ")


@dataclass(frozen=True, slots=True)
class SharedBus:
    """The LogGP memory bus between NPU and local memory, in place of the endpoint delay.

    Attributes:
        latency_ns: L, time on the wire.
        overhead_ns: o, time a sender or receiver is busy per message.
        gap_ns: g, least time between two messages.
        gap_per_byte_ns: G, time per byte; used in single precision, as the model's origin does.
        reduction_delay_ns: Time per 100 bytes of a reduction.
    """

    latency_ns: int = DEFAULT["L"]
    overhead_ns: int = DEFAULT["o"]
    gap_ns: int = DEFAULT["g"]
    gap_per_byte_ns: float = DEFAULT["G"]
    reduction_delay_ns: int = DEFAULT["local-reduction-delay"]

    def __post_init__(self) -> None:
        check_limits(self, "shared bus ")


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """Everything the simulator needs besides the trace.

    Attributes:
        topology: The network.
        congestion: Whether messages wait for each other on links (`aware`) or not (`unaware`).
        scheduling: Which collective's chunks go first where several wait: the latest, the earliest, or
            those of the smallest `comm_priority`.
        collective_optimization: How an all-reduce crosses several dimensions: an all-reduce in each
            (`baseline`), or reduce-scatter up and all-gather down again (`local_bw_aware`).
        algorithms: Per collective one algorithm per dimension. Fewer than dimensions use the leading
            ones only; a `single` one stands for all dimensions and is the last.
        splits: Chunks a collective is cut into.
        active_chunks: Chunks under way per dimension.
        queues_per_dimension: Queues those chunks are spread over.
        endpoint_delay_ns: What a packet waits at its rank; None is 10 whatever the injection scale.
        injection_scale: Factor on a given `endpoint_delay_ns`.
        local_memory_bytes_per_ns: Bandwidth of local memory, for reductions and the roofline; 0 makes
            reductions free.
        roofline: Compute by operations and bytes; None takes recorded durations.
        replay_only: Every node takes its recorded duration, communication included.
        rendezvous: Point-to-point senders wait for a control message of the receiver.
        remote_memory: What load and store nodes use; None where there is none.
        shared_bus: The memory bus model; None is the plain endpoint delay.
        custom: Per collective the trace that each rank plays for it; ahead of `algorithms`.
        custom_nodes: The same for single collective nodes, by node id; ahead of both.
        groups: Comm groups in place of the trace's; None keeps the trace's.
        links: A network of single links in place of the topology's (extended mode). The topology still says
            which dimensions the collectives are carried out along.
        costs: What collectives and messages cost on this machine (extended mode). They are then no messages on links, but
            flows over the ports of the NPUs, see `studio.sim.flow_plans`; None is the network of links.
        extensions: What the simulation does beyond the reference, see `Extensions`; None is the compatible
            mode.

    Example:
        >>> import studio
        >>> from dataclasses import replace
        >>> config = studio.presets["hgx-h100-8"].config
        >>> replace(config, congestion="aware").topology.npus
        8
    """

    topology: Topology
    congestion: Congestion = DEFAULT["congestion"]
    scheduling: Scheduling = "lifo"
    collective_optimization: CollectiveOptimization = "baseline"
    algorithms: Mapping[CollectiveKind, tuple[Algorithm, ...]] = field(default_factory=dict)
    splits: int = DEFAULT["preferred-dataset-splits"]
    active_chunks: int = DEFAULT["active-chunks-per-dimension"]
    queues_per_dimension: int = DEFAULT["num-queues-per-dim"]
    endpoint_delay_ns: float | None = DEFAULT["endpoint-delay"]
    injection_scale: float = DEFAULT["injection-scale"]
    local_memory_bytes_per_ns: float = DEFAULT["local-mem-bw"]
    roofline: Roofline | None = None
    replay_only: bool = DEFAULT["replay-only"]
    rendezvous: bool = DEFAULT["rendezvous-protocol"]
    remote_memory: RemoteMemory | None = None
    shared_bus: SharedBus | None = None
    custom: Mapping[CollectiveKind, Trace] = field(default_factory=dict)
    custom_nodes: Mapping[int, Trace] = field(default_factory=dict)
    groups: tuple[CommGroup, ...] | None = None
    links: LinkGraph | None = None
    costs: CostModel | None = None
    extensions: Extensions | None = None

    __repr__ = format_record

    def __post_init__(self) -> None:
        check_limits(self)
        self._check_mode()
        self._check_costs()
        self._check_congestion()
        self._check_algorithms()
        self._check_groups()
        if self.roofline and not self.local_memory_bytes_per_ns:
            raise ConfigError(
                "local_memory_bytes_per_ns is 0; allowed with the roofline model: above 0",
                hint="Set local-mem-bw: the roofline needs the bandwidth of the local memory.",
            )

    @property
    def model(self) -> ModelName:
        """The model: whose answers a simulation gives, see `studio.sim.models`.

        Example:
            >>> SystemConfig(Topology((Dimension("ring", 4, 50.0),))).model
            'astra-sim'
        """
        if not self.needs_every_rank:
            return "replay"
        if self.extensions is None:
            return "astra-sim"
        return "full" if self.congestion == "aware" else "extended"

    @property
    def mode(self) -> Literal["compatible", "extended"]:
        """The mode: compatible or extended.

        Example:
            >>> import studio
            >>> studio.presets["hgx-h100-8"].config.mode
            'extended'
        """
        return "compatible" if self.extensions is None else "extended"

    def with_extensions(self, extensions: Extensions | None = None) -> SystemConfig:
        """Return the same system in the extended mode, which also runs what the reference refuses.

        Example:
            >>> SystemConfig(Topology((Dimension("ring", 4, 50.0),))).with_extensions().mode
            'extended'
        """
        return replace(self, extensions=extensions or self.extensions or Extensions())

    def with_recorded_times(self) -> SystemConfig:
        """Return the same system with every rank taking its recorded times, as `simulate --replay` does: it meets the recording.

        In the compatible mode that is ASTRA-sim's `replay-only`, where collectives take the recorded duration of each member,
        waiting included, and messages join no ranks.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("training_2r"))
            >>> system = studio.preset("hgx-h100-2").config.with_extensions().with_recorded_times()
            >>> times = studio.timeline.read_recorded_times(trace)
            >>> ran_ns = times.end_ns.max() - times.start_ns[times.start_ns >= 0].min()
            >>> abs(studio.simulate(trace, system).makespan_ns / int(ran_ns) - 1) < 0.01
            True
        """
        if self.extensions is None:
            return replace(self, replay_only=True)
        recorded = replace(self.extensions, communication_times="recorded", rank_starts="recorded")
        return replace(self, extensions=recorded, roofline=None)

    @property
    def packet_delay_ns(self) -> int:
        """What a packet waits at its rank, scaled and truncated.

        Example:
            >>> topology = Topology((Dimension("ring", 4, 50.0),))
            >>> SystemConfig(topology, injection_scale=2).packet_delay_ns
            10
            >>> SystemConfig(topology, endpoint_delay_ns=37.5, injection_scale=0.5).packet_delay_ns
            18
        """
        if self.endpoint_delay_ns is None:
            return DEFAULT_ENDPOINT_DELAY_NS
        return int(int(self.endpoint_delay_ns) * self.injection_scale)

    @property
    def needs_every_rank(self) -> bool:
        """Whether ranks meet over the network, so that none may be missing; not where all take their recorded times.

        Example:
            >>> import studio
            >>> config = studio.presets["hgx-h100-8"].config
            >>> config.needs_every_rank, config.with_extensions().with_recorded_times().needs_every_rank
            (True, False)
        """
        recorded = self.extensions is not None and self.extensions.communication_times == "recorded"
        return not (self.replay_only or recorded)

    def _check_mode(self) -> None:
        """Raise a ConfigError for extended settings in the compatible mode."""
        if self.extensions is not None:
            return
        dims = self.topology.dims
        alone = next((index for index, dim in enumerate(dims) if dim.size < 2), None)
        if alone is not None and len(dims) > 1:
            raise ConfigError(
                f"dimension size is 1 in dimension {alone}; allowed beside other dimensions in the compatible mode: 2 and more",
                hint="Leave the dimension out, or set the mode to extended.",
            )
        given = [f"algorithms for {kind}" for kind in self.algorithms if kind not in REFERENCE_KINDS]
        given += list(_iterate_extended(dims))
        given += ["links"] if self.links is not None else []
        given += ["costs"] if self.costs is not None else []
        if given:
            raise ConfigError(
                f"{given[0]} is given; allowed in the compatible mode: what the reference has",
                hint="Set the mode to extended, or take the setting out.",
            )

    def _check_costs(self) -> None:
        """Raise a ConfigError for what a cost model takes the place of."""
        if self.costs is None:
            return
        given = ["links"] if self.links is not None else []
        given += [f"custom for {kind}" for kind in self.custom] + [
            f"custom_nodes for {node}" for node in self.custom_nodes
        ]
        given += ["shared_bus"] if self.shared_bus is not None else []
        if given:
            raise ConfigError(
                f"{given[0]} is given beside costs; allowed: one of both",
                hint="The costs time collectives and messages. Take them out (--set costs=), or the other setting.",
            )

    @property
    def flows(self) -> bool:
        """Whether collectives and messages are timed by the cost model, as flows over the ports of the NPUs.

        Example:
            >>> import studio
            >>> studio.presets["hgx-h100-8"].config.flows
            True
        """
        recorded = self.extensions is not None and self.extensions.communication_times == "recorded"
        return self.costs is not None and not (self.replay_only or recorded)

    def _check_congestion(self) -> None:
        dims = self.topology.dims
        if self.links is not None:
            self._check_links(self.links)
        if self.congestion != "aware" or self.extensions is not None:
            return
        if len(dims) > 1:
            raise ConfigError(
                f"congestion is 'aware' on {len(dims)} dimensions; allowed in the compatible mode: one dimension",
                hint=f"Use congestion 'unaware', a topology of one dimension, or the {EXTENDED_MODE}.",
            )
        if dims[0].kind == "ring" and dims[0].size == 2:
            raise ConfigError(
                "congestion is 'aware' on a ring of 2 NPUs; allowed in the compatible mode: rings of 3 and more",
                hint=f"Two NPUs joined by one link are 'fully_connected' of size 2; the {EXTENDED_MODE} knows the ring.",
            )

    def _check_links(self, links: LinkGraph) -> None:
        if links.npus != self.topology.npus:
            raise ConfigError(
                f"links join {links.npus:,} NPUs; allowed: {self.topology.npus:,}, as many as the topology has"
            )
        for given in _iterate_extended(self.topology.dims):
            raise ConfigError(
                f"{given} is given beside links; allowed: one of both",
                hint="Give every link the bandwidth and the latency it has for messages.",
            )

    def _check_algorithms(self) -> None:
        for kind, listed in self.algorithms.items():
            check_choice("collective in algorithms", kind, COLLECTIVE_KINDS)
            if not listed:
                raise ConfigError(f"algorithms for {kind} is empty; allowed: one algorithm per dimension")
            if len(listed) > len(self.topology.dims):
                raise ConfigError(
                    f"algorithms for {kind} has {format_counted(len(listed), 'entry', 'entries')}; "
                    f"allowed: up to {len(self.topology.dims)}, one per dimension of the topology",
                    hint="Remove entries from the end, or add dimensions to the topology.",
                )

    def _check_groups(self) -> None:
        for group in self.groups or ():
            bad = [rank for rank in group.ranks if not 0 <= rank < self.topology.npus]
            if bad:
                raise ConfigError(
                    f"comm group {group.name!r} has rank {bad[0]}; allowed: 0 to {self.topology.npus - 1}"
                )


def _iterate_extended(dims: Sequence[Dimension]) -> Iterator[str]:
    """Yield the settings of dimensions that need the extended mode."""
    for setting in DIMENSION_SETTINGS:
        for index, dim in enumerate(dims):
            if setting.is_extended and getattr(dim, setting.attribute) != setting.default:
                yield f"{setting.attribute} of dimension {index}"
