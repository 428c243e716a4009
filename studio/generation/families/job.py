"""Make the job of a data parallel network: one graph, or with tables one for each rank, and the ranks that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from studio.errors import ConfigError
from studio.et.build import build_graph
from studio.generation.families.counts import (
    ELEMENT_BYTES,
    WEIGHT_BYTES,
    Replicas,
    build_replicas,
    count_backward_flop,
    count_table_bytes,
    group_gradient_buckets,
)
from studio.generation.families.network import Network, Part
from studio.generation.families.presets import find_network
from studio.generation.job import MOST_NODES
from studio.generation.options import BY_KEY, Option, fill_defaults
from studio.generation.program import Program, Speed
from studio.generation.workload import NETWORK, build_speed, format_recipe, with_recipe
from studio.trace import GENERATED, Attribute, CollectiveType, CommGroup, Finding, Rank, Trace, ValueKind

OPTIONS: dict[str, Option] = {
    key: BY_KEY[key]
    for key in (
        "batch",
        "bucket_mb",
        "grad_dtype",
        "steps",
        *(k for k, o in BY_KEY.items() if o.part == "speed"),
    )
}
"""What may be said of such a job: options of `studio.generation.options`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that a user asks for: a network, how ranks share it, and how fast its nodes run.

    Attributes:
        network: It.
        replicas: How ranks share it.
        speed: The GPU that durations are of, and what it reaches; None leaves them to the roofline of a simulated system.
        recipe: What was said, to be kept with the job.
    """

    network: Network
    replicas: Replicas
    speed: Speed | None
    recipe: str = ""

    def job(self) -> Trace:
        """Return the job.

        Raises:
            ConfigError: It would have too many nodes.
        """
        return with_recipe(make_network_job(self.network, self.replicas, self.speed), self.recipe)


def build_asked_network(model: str, ranks: int, given: Mapping[str, Any], family: str | None = None) -> Asked:
    """Return the job that a user asks for.

    Args:
        model: The name of a network.
        ranks: How many ranks.
        given: Options by key (`OPTIONS`); one that is None or not there takes its default.
        family: The family that the network has to be of; None for any.

    Raises:
        ConfigError: A name is not known, an option is not of such a job, or numbers do not divide.
    """
    network = find_network(model, family)
    values = fill_defaults(given, OPTIONS)
    speed = build_speed(values["gpu"], values["compute_efficiency"], values["memory_efficiency"])
    recipe = format_recipe(model, ranks, given, NETWORK)
    return Asked(network, build_replicas(network, ranks, values), speed, recipe)


def make_network_job(network: Network, replicas: Replicas, speed: Speed | None = None) -> Trace:
    """Return a training job as if every rank had been traced before it ran.

    Args:
        network: What is trained.
        replicas: How ranks share it.
        speed: The GPU that durations are of, and what it reaches; None leaves them to the roofline of a simulated system.

    Raises:
        ConfigError: The job would have too many nodes.

    Example:
        >>> from studio.generation.families.presets import find_network
        >>> make_network_job(find_network("resnet50"), Replicas(8, 256))
        Trace(8 ranks, 1 graph, 2,448 nodes, 1 comm group, 1 finding)
    """
    kinds = replicas.ranks if network.tables and replicas.ranks > 1 else 1
    nodes = kinds * replicas.steps * 4 * len(network.parts)
    if nodes > MOST_NODES:
        raise ConfigError(
            f"{replicas.steps:,} steps on {replicas.ranks:,} ranks would be about {nodes:,} nodes; allowed: {MOST_NODES:,}.",
            hint="Use fewer --steps.",
        )
    built = [build_graph(_Rank(network, replicas, rank, speed).nodes()) for rank in range(kinds)]
    words = f"model {network.name}, dp={replicas.ranks}, batch {replicas.batch}"
    ranks = []
    for number in range(replicas.ranks):
        index = number % kinds
        metadata = (
            Attribute("schema", ValueKind.STRING, "chakra-studio-generated"),
            Attribute("rank", ValueKind.INT64, number),
            Attribute("world_size", ValueKind.INT64, replicas.ranks),
            Attribute(GENERATED, ValueKind.STRING, f"chakra-studio generate {network.family}: {words}"),
        )
        ranks.append(Rank(number, index, tuple(f"{kind}0" for kind in built[index][1]), "1.0.0", metadata))
    groups = (CommGroup("dp0", tuple(range(replicas.ranks))),) if replicas.ranks > 1 else ()
    timed = "its roofline's durations" if speed else "no durations: a simulated system's roofline times it"
    finding = Finding(
        "info", "generated", f"Generated, not recorded: {words} ({replicas.batch_from}); {timed}."
    )
    return Trace(tuple(graph for graph, _ in built), tuple(ranks), groups, (finding,))


@dataclass(slots=True)
class _Rank:
    """The program of a rank.

    Attributes:
        reduced: What the optimizer waits for.
        gradient_makers: What made the gradients that are not summed yet, by part.
        ready: What made the weights of the step.
    """

    network: Network
    replicas: Replicas
    rank: int
    speed: Speed | None
    program: Program = field(init=False)
    reduced: list[int] = field(default_factory=list)
    gradient_makers: dict[str, int] = field(default_factory=dict)
    ready: int = 0

    def __post_init__(self) -> None:
        self.program = Program(self.speed)

    def nodes(self) -> list[dict[str, object]]:
        """Return its nodes."""
        closing = {bucket[-1]: bucket for bucket in group_gradient_buckets(self.network, self.replicas)}
        for step in range(self.replicas.steps):
            at = f"step{step}"
            self.reduced = []
            self._append_backward(at, self._append_forward(at), closing)
            self._update(at)
        return self.program.nodes

    def _append_forward(self, at: str) -> int:
        node, sums = self.ready, self._append_lookup(at)
        for part in self.network.parts:
            joins = self.network.tables is not None and part.name == self.network.tables.joins
            node = self._append_node(f"{at}.{part.name}.fwd", [node, sums if joins else 0], part, part.flop)
        return node

    def _append_node(self, name: str, after: list[int], part: Part, flop: int) -> int:
        samples = self.replicas.samples
        moved = ELEMENT_BYTES * samples * (part.inputs + part.outputs) + WEIGHT_BYTES * part.parameters
        return self.program.compute(name, after, samples * flop, moved, part.kind)

    def _append_lookup(self, at: str) -> int:
        """Append what takes and sums rows of tables; returns the node that brings all sums of the rank's samples."""
        tables = self.network.tables
        if tables is None:
            return 0
        sizes = count_table_bytes(tables, self.replicas, self.rank)
        rows = self._append_exchange(f"{at}.tables.indices", [self.ready], sizes["indices"])
        node = self.program.compute(
            f"{at}.tables.fwd", [rows, self.ready], sizes["operations"], sizes["lookup"], "other"
        )
        return self._append_exchange(f"{at}.tables.sums", [node], sizes["sums"])

    # One stream for all that the group exchanges, so that no rank begins with another one.
    def _append_exchange(self, name: str, after: list[int], size: int) -> int:
        if self.replicas.ranks == 1:
            return after[0]
        return self.program.collective(f"{name}.all_to_all", "dp", CollectiveType.ALL_TO_ALL, after, size)

    def _append_backward(self, at: str, grad: int, closing: dict[str, tuple[str, ...]]) -> None:
        """Append the backward pass; gradients are summed in buckets as they are made."""
        tables, back = self.network.tables, 0
        for part in reversed(self.network.parts):
            inputs, weights = count_backward_flop(self.network, part)
            given = grad
            if inputs:
                grad = self._append_node(f"{at}.{part.name}.dgrad", [given], part, inputs)
            if part.parameters:
                self.gradient_makers[part.name] = (
                    self._append_node(f"{at}.{part.name}.wgrad", [given], part, weights) if weights else grad
                )
            if part.name in closing:
                self._append_sum(at, closing[part.name])
            if tables is not None and part.name == tables.joins:
                sizes = count_table_bytes(tables, self.replicas, self.rank)
                back = self._append_exchange(f"{at}.tables.grads", [grad], sizes["sums"])
        if tables is not None:
            sizes = count_table_bytes(tables, self.replicas, self.rank)
            # Rows are read and written.
            self.reduced.append(
                self.program.compute(
                    f"{at}.tables.update", [back], sizes["operations"], 2 * sizes["lookup"], "other"
                )
            )

    def _append_sum(self, at: str, bucket: tuple[str, ...]) -> None:
        nodes = [self.gradient_makers.pop(name) for name in bucket]
        if self.replicas.ranks == 1:
            self.reduced += nodes
            return
        sizes = {part.name: part.parameters for part in self.network.parts}
        size = self.replicas.gradient_bytes * sum(sizes[name] for name in bucket)
        self.reduced.append(
            self.program.collective(
                f"{at}.{bucket[-1]}.grads.all_reduce", "dp", CollectiveType.ALL_REDUCE, nodes, size
            )
        )

    def _update(self, at: str) -> None:
        optimizer, count = self.network.optimizer, self.network.dense
        moved = (self.replicas.gradient_bytes + 2 * optimizer.kept + WEIGHT_BYTES) * count
        done = [*self.reduced, *self.program.last.values()]
        self.ready = self.program.compute(
            f"{at}.optimizer", done, optimizer.operations * count, moved, "other"
        )
