"""Mutable state shared by the modules that build a plan.

`plan` puts the array together out of what they lay out: `graph_plans` and `node_records` the graphs, `phase_lists` what
collectives go through, `slots` peers and comm groups, `rank_records` the ranks, `link_records` the network.
`rank_classes` finds the ranks that stand for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.sim.arena import Arena
from studio.sim.charges import Costs, has_shared_nics
from studio.sim.collectives import Phase
from studio.sim.config import SystemConfig
from studio.sim.flow_plans import Bundles, Flows, find_bundles
from studio.sim.flow_uses import Uses
from studio.sim.folding import Folding
from studio.sim.kernel import records as k
from studio.sim.kinds import CollectiveKind
from studio.sim.known import Known
from studio.sim.matched import collect_sequences, matches_by_number, replays_communication
from studio.trace import Graph, Int64, Rank, Trace


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph as the engine sees it: nodes in the order of their ids.

    N nodes, C dependencies.

    Attributes:
        graph: The graph.
        order: (N,) the row of each position.
        nodes: (N, NODE_WORDS) node records; children count from the graph's own list.
        children: (C,) positions of children, node after node.
        parents: (N,) parents per position.
        durations: (N,) how long the node at each position takes, in ns, where nothing but time passes.
        literals: Peers and groups that are no slots, as (key, value); numbered on from the graph's slots.
        collective_slots: Slots that name groups of collectives, and which varieties of collectives.
        peer_slots: Slots that name peers of messages.
        lanes: Threads and streams that have a slot of their own.
    """

    graph: Graph
    order: Int64
    nodes: Int64
    children: Int64
    parents: Int64
    durations: Int64
    literals: tuple[tuple[str, int | str], ...]
    collective_slots: dict[int, set[int]]
    peer_slots: frozenset[int]
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class Variety:
    """The parameters of a group's collective.

    Attributes:
        kind: The collective.
        root: Its root as the trace names it, a rank of the job; None where it names none.
        custom: The trace that gives it; None where an algorithm does.
    """

    kind: CollectiveKind
    root: int | None
    custom: Trace | None

    def __hash__(self) -> int:
        return hash((self.kind, self.root, id(self.custom)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Variety)
            and (self.kind, self.root) == (other.kind, other.root)
            and self.custom is other.custom
        )


class Planning:
    """Mutable state shared while a plan is built.

    Attributes:
        trace, config, npus, extensions: What is asked for; in a replay there may be fewer NPUs than in `config`.
        known: What earlier simulations of the trace have in common with this one; None knows nothing.
        arena: Room in the array.
        groups: The comm groups by name.
        varieties: The number of each variety of collectives.
        group_phases: Per comm group where its phases lie, by variety (extended mode).
        group_at: Where the record of each comm group lies.
        group_checked: What comm groups are known to be able to carry out.
        lists: Where lists of phases, programs and places in groups lie, by what decides about them.
        stream_phases, most_streams: The most phases of a stream, and streams of a collective.
        uses_direct: Whether any phase uses the direct algorithm.
        messages: About how many messages a rank sends in a list of phases, by where it lies.
        steps: About how many steps a graph takes, by its node table.
        longest_custom, longest_step: Most nodes of a collective given as a trace, and messages of a program's step.
        programs: Where the programs of the places lie, by recipe.
        ranks_at: Where the records of the ranks lie.
        collectives: Chunk, streams, phase lists and variety of the collectives that nodes name, by what decides about them.
        phases_of: The phases of a list, by where it lies.
        folding: Which ranks stand for which; None where each stands for itself.
        simulated: The ranks that are simulated.
        first_alike: For each graph the first one whose tables serve it too.
        follows: By graph, the collectives that follow each other by number.
        bundles: The collectives and messages as flows, by who takes part, where a cost model times them; else None.
        costs: What they cost.
        every_flow: Those in which ranks take part that are simulated, or that share ports with them; None until these are known.
        flows: Those that are simulated.
        uses: What they take of ports.
        rests_at: Where among the real numbers there is one for each of them.
    """

    def __init__(self, trace: Trace, config: SystemConfig, known: Known | None = None) -> None:
        self.trace, self.config, self.known = trace, config, known
        # A replay needs no network, so the known ranks of a job of which others are missing will do.
        npus = config.topology.npus
        self.npus = npus if config.needs_every_rank else min(npus, len(trace.ranks))
        self.arena = Arena(k.Head.WORDS)
        self.groups = {g.name: g for g in (trace.groups if config.groups is None else config.groups)}
        self.extensions = config.extensions
        self.varieties: dict[Variety, int] = {}
        self.group_phases: dict[str, Int64] = {}
        self.group_at: dict[str, int] = {}
        self.group_checked: set[tuple[str, Variety]] = set()
        self.lists: dict[tuple[object, ...], int] = {}
        self.stream_phases = 1
        self.most_streams = 1
        self.uses_direct = False
        self.messages: dict[int, int] = {}
        self.steps: dict[int, int] = {}
        self.longest_custom = 0
        self.longest_step = 0
        self.programs: dict[tuple[object, ...], Int64] = {}
        self.ranks_at = 0
        self.collectives: dict[tuple[int, ...], tuple[int, int, int, int, int]] = {}
        self.phases_of: dict[int, frozenset[Phase]] = {}
        self.folding: Folding | None = None
        self.simulated: Sequence[Rank] = trace.ranks
        self.first_alike: dict[int, int] = {}
        groups = config.groups
        self.bundles: Bundles | None = find_bundles(trace, config, known) if config.flows else None
        self.costs: Costs | None = self.bundles.charge(config) if self.bundles is not None else None
        self.every_flow: Flows | None = None
        self.flows: Flows | None = None
        self.uses: Uses | None = None
        self.rests_at = 0
        if self.bundles is not None:
            self.follows = self.bundles.follows
        else:
            self.follows = (
                collect_sequences(trace, groups) if matches_by_number(config) and not self.replays else {}
            )

    def places(self) -> list[int]:
        """Return the place in the trace of each rank that is simulated: its number, unless ranks are missing."""
        if self.folding is not None:
            return [rank.number for rank in self.simulated]
        return list(range(len(self.simulated)))

    @property
    def replays(self) -> bool:
        """Whether communication takes its recorded time."""
        return replays_communication(self.config) and not self.config.replay_only

    @property
    def shares_nics(self) -> bool:
        """Whether the NPUs of a node share its ports to other nodes; that is told by the cost model."""
        costs = self.config.costs
        return costs is not None and has_shared_nics(costs, self.config.topology.dims[0].size)

    @property
    def own_queues(self) -> bool:
        """Whether each comm group has queues of its own, and takes its turns in them by itself."""
        extensions = self.extensions
        return extensions is not None and (
            extensions.tie_order == "symmetric" or extensions.communication_slots > 1
        )

    @property
    def symmetric(self) -> bool:
        """Whether nothing depends on the order of a rank's events within a tick."""
        return self.extensions is not None and self.extensions.tie_order == "symmetric"

    def variety(self, variety: Variety) -> int:
        """Return the number of a variety of collectives."""
        return self.varieties.setdefault(variety, len(self.varieties))
