"""The switches of the extended mode, and the model behind each.

`Extensions.off()` switches everything off; a simulation then gives the reference's answers wherever the
reference has one. `Extensions()` is what a user of the extended mode gets who sets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from studio.errors import ConfigError
from studio.notebook import format_record
from studio.sim.settings import DEFAULT, MAX_DEVICES, check_limits
from studio.sim.values import check_number, check_whole

Collectives = Literal["all", "reference"]
TieOrder = Literal["symmetric", "reference"]
DimensionOrder = Literal["ascending", "descending", "balanced"]
ChunkOrder = Literal["arrival", "smallest"]
GroupSizes = Literal["any", "powers_of_two"]
HostSlots = Literal["per_thread", "one"]
ComputeSlots = Literal["per_stream", "one"]
CollectiveOrder = Literal["sequence", "ready"]
CommunicationTimes = Literal["simulated", "recorded"]
RankStarts = Literal["together", "recorded"]
ComputeTimes = Literal["roofline", "recorded"]

EXTENDED_MODE = "extended mode (--model full)"
"""What hints call the mode that runs what the reference refuses, with the option that takes it."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """The switches of the extended mode.

    Comm groups of any name and METADATA nodes need no switch: the compatible mode refuses them.

    Attributes:
        collectives: `all` carries out all ten collectives by messages; with `reference` a broadcast only
            takes its recorded duration, and reduce, gather, scatter, barrier and reduce-scatter-block are
            refused. With `all`, too, ranks may bring different sizes to an all-to-all: each sends by its own
            size in every dimension, in as many chunks as all others.
        tie_order: What happens first among the events of one rank in one tick. `symmetric` does not depend
            on rank numbers or on the order in which messages were sent, so that equal ranks stay equal, also
            where messages share links;
            `reference` is the order of registration. With `symmetric` what waits for a METADATA or INVALID
            node, which take no time, goes on at once, and each comm group takes turns in queues and trees
            of its own; with `reference` it goes on when another node of the rank ends, or none is under way.
        group_sizes: `any` lets halving-doubling and trees run on any number of ranks and in comm groups, and
            halving-doubling carry out an all-to-all, see `studio.sim.programs`.
        communication_slots: Communication nodes under way on one NPU: sends, memory nodes, and collectives
            of different comm groups. Those of one group go one at a time. With several slots each group has
            queues of its own, so that groups do not wait for each other's chunks.
        compute_speeds: Speed of single NPUs relative to the recorded or roofline time, by NPU; 2 halves the
            time of a compute node. NPUs that are not listed have speed 1.
        dimension_order: The order in which the chunks of a collective pass the dimensions. `balanced` gives
            every chunk the order that loads the dimensions most evenly (the greedy schedule of Themis,
            Rashidi et al., ISCA 2022).
        chunk_order: Which of the waiting chunks of equal priority starts first in a dimension: the one that
            came first, or the one with the fewest bytes left to send there.
        host_slots: CPU nodes under way on one NPU. `per_thread`: one for each thread that nodes name (`thread`,
            else `tid`), so that threads run side by side; nodes that name none share one more. `one`: a single
            one for all of them, as in the reference.
        compute_slots: The same for compute nodes and the streams they name (`stream`, on each `device`).
        compute_times: Where the system has a roofline, which compute nodes take its time: all that say their operations
            and bytes (`roofline`), or only those without a recorded duration (`recorded`). A node with neither takes
            1 ns; see `studio.sim.compute`.
        recompute_for: The GPU whose time operations of a recorded device take, by its short name; None keeps what was
            recorded. See `studio.operators.retarget` for the rule.
        recorded_gpu: The GPU that the durations are of; None is the one that the trace names.
        collective_order: Which collective of a comm group begins first where several are ready. `sequence`: that
            of the lowest number (`comm_seq`), before which none of a higher one begins, in groups whose members
            number all of theirs. `ready`: the one that is ready first, as in the reference.
        communication_times: How long communication takes. `simulated`: as long as its messages do. `recorded`: a
            collective, on each rank, as long after the last member has begun it as in the recording; a receive
            likewise after both sides have; a send its own recorded time; see `studio.sim.matched.find_meetings`. No
            message is simulated then, communication takes no slot, and dependencies that only keep collectives
            in their sequence do not count, for in the recording they may overlap.
        rank_starts: When ranks begin: all `together`, or as far apart as their first nodes in the recording.
    """

    collectives: Collectives = DEFAULT["collectives"]
    tie_order: TieOrder = DEFAULT["tie-order"]
    group_sizes: GroupSizes = DEFAULT["group-sizes"]
    communication_slots: int = DEFAULT["communication-slots"]
    compute_speeds: Mapping[int, float] | None = DEFAULT["compute-speeds"]
    dimension_order: DimensionOrder = DEFAULT["dimension-order"]
    chunk_order: ChunkOrder = DEFAULT["chunk-order"]
    host_slots: HostSlots = DEFAULT["host-slots"]
    compute_slots: ComputeSlots = DEFAULT["compute-slots"]
    compute_times: ComputeTimes = DEFAULT["compute-times"]
    recompute_for: str | None = DEFAULT["recompute-for"]
    recorded_gpu: str | None = DEFAULT["recorded-gpu"]
    collective_order: CollectiveOrder = DEFAULT["collective-order"]
    communication_times: CommunicationTimes = DEFAULT["communication-times"]
    rank_starts: RankStarts = DEFAULT["rank-starts"]

    __repr__ = format_record

    def __post_init__(self) -> None:
        check_limits(self)
        for npu, speed in (self.compute_speeds or {}).items():
            check_number(f"compute_speeds of NPU {npu}", speed, above=0)

    @staticmethod
    def off() -> Extensions:
        """Return the extended mode with every extension off."""
        return Extensions(
            collectives="reference",
            tie_order="reference",
            group_sizes="powers_of_two",
            host_slots="one",
            compute_slots="one",
            collective_order="ready",
        )


@dataclass(frozen=True, slots=True)
class Link:
    """A link in one direction.

    Attributes:
        source, target: Devices: NPUs from 0 to N-1, switches from N on.
        bytes_per_ns: Bandwidth.
        latency_ns: Latency; may be fractional.
    """

    source: int
    target: int
    bytes_per_ns: float
    latency_ns: float = 0.0

    def __post_init__(self) -> None:
        check_whole("link source", self.source, 0, MAX_DEVICES)
        check_whole("link target", self.target, 0, MAX_DEVICES)
        check_number(f"bytes_per_ns of link {self.source} to {self.target}", self.bytes_per_ns, above=0)
        check_number(f"latency_ns of link {self.source} to {self.target}", self.latency_ns, least=0)
        if self.source == self.target:
            raise ConfigError(
                f"link {self.source} to {self.target} joins a device to itself",
                hint="Give it another source or target, or leave it out.",
            )


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Any network: NPUs, switches, and links of their own bandwidth and latency in each direction.

    A failed link is one that is not listed.

    Attributes:
        npus: NPUs.
        switches: Switches; numbered on from the NPUs.
        links: The links. Several between the same two devices are several.
    """

    npus: int
    switches: int
    links: tuple[Link, ...]

    __repr__ = format_record

    def __post_init__(self) -> None:
        check_whole("npus", self.npus, 1, MAX_DEVICES)
        check_whole("switches", self.switches, 0, MAX_DEVICES)
        if not self.links:
            raise ConfigError("links is empty; allowed: at least one link")
        devices = self.npus + self.switches
        for index, link in enumerate(self.links):
            for end, device in (("source", link.source), ("target", link.target)):
                if device >= devices:
                    switches = f", switches from {self.npus} to {devices - 1}" if self.switches else ""
                    raise ConfigError(
                        f"links[{index}] has {end} {device}; allowed: NPUs from 0 to {self.npus - 1}{switches}"
                    )
