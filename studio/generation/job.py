"""Make the job of a model and a layout: one graph for each pipeline stage, and the ranks that run it."""

from __future__ import annotations

from dataclasses import dataclass, field

from studio.errors import ConfigError
from studio.et.build import graph_of_nodes
from studio.generation.layout import Layout
from studio.generation.memory import GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES
from studio.generation.models import Model
from studio.generation.passes import ELEMENT_BYTES, Passes
from studio.generation.program import AFTER, BEFORE, OWN, Program, Speed
from studio.generation.schedule import stage_order
from studio.generation.transformer import largest_node_flop, stage_units
from studio.trace import Attribute, CollectiveType, CommGroup, Finding, Rank, Trace, ValueKind

GENERATED = "generated_by"
"""Metadata of a rank that was generated: what made it."""
ADAM_OPERATIONS = 12
MOST_NODES = 4_000_000
_NODES_A_LAYER = 36


def make_job(model: Model, layout: Layout, speed: Speed | None = None) -> Trace:
    """Return a training job as if every rank had been traced before it ran.

    Args:
        model: What is trained.
        layout: How ranks share it.
        speed: The GPU that durations are of, and what it reaches; None leaves them to the roofline of a simulated system.

    Raises:
        ConfigError: The job would have too many nodes, or a node too many operations.

    Example:
        >>> from studio.generation.layout import Wish, layout_of
        >>> from studio.generation.models import find_model
        >>> model = find_model("llama3-8b")
        >>> make_job(model, layout_of(model, Wish(ranks=8, tp=8)))
        Trace(8 ranks, 1 graphs, 8,344 nodes, 1 comm groups, 1 findings)
    """
    nodes = layout.steps * layout.micro_batches * (model.layers + 2 * layout.pp) * _NODES_A_LAYER
    if nodes > MOST_NODES:
        raise ConfigError(
            f"{layout.micro_batches:,} micro-batches of {model.layers} layers in {layout.steps} steps would be about "
            f"{nodes:,} nodes; allowed: {MOST_NODES:,}.",
            hint="Use a smaller --batch, a larger --micro-batch or fewer --steps.",
        )
    largest = largest_node_flop(model, layout)
    if largest >= 1 << 63:
        raise ConfigError(
            f"A single node of this job would have {largest:.2g} operations; allowed: below 2^63, about 9.2e18.",
            hint="Use a smaller --micro-batch, --seq or model.",
        )
    groups = comm_groups(model, layout)
    graphs, stage_slots = [], []
    for stage in range(layout.pp):
        graph, slots = graph_of_nodes(_Stage(model, layout, stage, speed).nodes())
        keys = [graph.strings[key] for key in graph.slot_key.tolist()]
        graphs.append(graph)
        stage_slots.append(list(zip(keys, slots, strict=True)))
    ranks = []
    cell = layout.tp * layout.dp
    told = f"model {model.name}, {layout.name}, zero {layout.zero}, batch {layout.batch}"
    for number in range(layout.ranks):
        stage, inner = divmod(number, cell)
        names = {
            "tp": f"tp{number // layout.tp}",
            "dp": f"dp{stage * layout.tp + inner % layout.tp}",
            "pp": f"pp{inner}",
            "emb": f"emb{inner}",
        }
        peers = {OWN: number, BEFORE: number - cell, AFTER: number + cell}
        slots = tuple(
            names[str(value)] if key == "pg_name" else peers[int(value)] for key, value in stage_slots[stage]
        )
        metadata = (
            Attribute("schema", ValueKind.STRING, "chakra-studio-generated"),
            Attribute("rank", ValueKind.INT64, number),
            Attribute("world_size", ValueKind.INT64, layout.ranks),
            Attribute(GENERATED, ValueKind.STRING, f"chakra-studio generate llm: {told}"),
        )
        ranks.append(Rank(number, stage, slots, "1.0.0", metadata))
    timed = "its roofline's durations" if speed else "no durations: a simulated system's roofline times it"
    finding = Finding("info", "generated", f"Generated, not recorded: {told} ({layout.batch_from}); {timed}.")
    return Trace(tuple(graphs), tuple(ranks), groups, (finding,))


def comm_groups(model: Model, layout: Layout) -> tuple[CommGroup, ...]:
    """Return the comm groups of a job: `tp0`, `dp0`, `pp0` and so on, and of tied embeddings on two stages `emb0`."""
    cell, ranks = layout.tp * layout.dp, layout.ranks
    groups = []
    if layout.tp > 1:
        firsts = range(0, ranks, layout.tp)
        groups += [
            CommGroup(f"tp{n}", tuple(range(first, first + layout.tp))) for n, first in enumerate(firsts)
        ]
    if layout.dp > 1:
        starts = [stage * cell + place for stage in range(layout.pp) for place in range(layout.tp)]
        groups += [
            CommGroup(f"dp{n}", tuple(range(first, first + cell, layout.tp)))
            for n, first in enumerate(starts)
        ]
    if layout.pp > 1:
        groups += [CommGroup(f"pp{first}", tuple(range(first, ranks, cell))) for first in range(cell)]
        if model.tied:
            groups += [CommGroup(f"emb{first}", (first, ranks - cell + first)) for first in range(cell)]
    return tuple(groups)


@dataclass(slots=True)
class _Stage:
    """The program of a pipeline stage.

    Attributes:
        ends: The last compute node of each unit so far: weights are gathered no earlier than one unit ahead.
        losses: The node that makes the loss of each micro-batch.
        reduced: What the optimizer waits for.
        delayed: Units whose gradients are summed after the stage's backward passes, and what made them.
        ready: What made the weights of the step.
    """

    model: Model
    layout: Layout
    stage: int
    speed: Speed | None
    program: Program = field(init=False)
    passes: Passes = field(init=False)
    held: dict[str, int] = field(init=False)
    ends: list[int] = field(default_factory=list)
    losses: dict[int, int] = field(default_factory=dict)
    reduced: list[int] = field(default_factory=list)
    delayed: list[tuple[str, list[int]]] = field(default_factory=list)
    ready: int = 0

    def __post_init__(self) -> None:
        self.program = Program(self.speed)
        self.passes = Passes(self.program, self.model, self.layout)
        units = stage_units(self.model, self.layout, self.stage)
        self.held = {name: unit.held(self.layout.tp) for name, unit in units.items()}

    def nodes(self) -> list[dict[str, object]]:
        """Return its nodes."""
        layout = self.layout
        order = stage_order(layout.schedule, self.stage, layout.pp, layout.micro_batches)
        for step in range(layout.steps):
            self.reduced = []
            for way, number in order:
                tag = 2 * (step * layout.micro_batches + number)
                at = f"step{step}.mb{number}"
                if way == "fwd":
                    self._forward(at, number, tag)
                else:
                    self._backward(at, number, tag, last=number == layout.micro_batches - 1)
            self._update(f"step{step}")
        return self.program.nodes

    def _forward(self, at: str, number: int, tag: int) -> None:
        size = ELEMENT_BYTES * self.passes.own
        if self.stage == 0:
            x = self.passes.embedding_forward(at, self._weights(at, "embedding", "fwd"))
            self._end()
        else:
            x = self.program.transfer(f"{at}.recv.fwd", (BEFORE, OWN), tag, [], size)
        for name in self._layers():
            x = self.passes.layer_forward(f"{at}.{name}", x, self._weights(at, name, "fwd"))
            self._end()
        if self.stage == self.layout.pp - 1:
            self.losses[number] = self.passes.head_forward(at, x, self._weights(at, "head", "fwd"))
        else:
            self.program.transfer(f"{at}.send.fwd", (OWN, AFTER), tag, [x], size)

    def _backward(self, at: str, number: int, tag: int, *, last: bool) -> None:
        size = ELEMENT_BYTES * self.passes.own
        if self.stage == self.layout.pp - 1:
            grad = self.passes.head_backward(at, self.losses.pop(number))
            self._end()
            self._reduce(at, "head", last=last)
        else:
            grad = self.program.transfer(f"{at}.recv.bwd", (AFTER, OWN), tag + 1, [], size)
        for name in reversed(self._layers()):
            ready = self._weights(at, name, "bwd")
            grad = self.passes.layer_backward(f"{at}.{name}", grad, ready)
            self._end()
            self._reduce(at, name, last=last)
        if self.stage == 0:
            self.passes.embedding_backward(at, grad)
            self._end()
            self._reduce(at, "embedding", last=last)
        else:
            self.program.transfer(f"{at}.send.bwd", (OWN, BEFORE), tag + 1, [grad], size)
        for unit, made in self.delayed:
            self._sum(at, unit, [*made, *self.program.sent, self.program.last["compute"]])
        self.delayed = []

    def _layers(self) -> list[str]:
        return [name for name in self.held if name.startswith("layer")]

    def _end(self) -> None:
        self.ends = [*self.ends[-1:], self.program.last["compute"]]

    def _weights(self, at: str, unit: str, way: str) -> int:
        """Append what gathers a unit's weights, with ZeRO-3; returns the node that its pass waits for."""
        if self.layout.zero != 3 or self.layout.dp == 1:
            return self.ready
        # While a unit is at work the next one is gathered, and no more.
        early = self.ends[0] if len(self.ends) > 1 else 0
        return self.program.collective(
            f"{at}.{unit}.weights.all_gather.{way}", "dp.gather", CollectiveType.ALL_GATHER,
            [early, self.ready], WEIGHT_BYTES * self._shard(unit),
        )  # fmt: skip

    def _shard(self, unit: str) -> int:
        return -(-self.held[unit] // self.layout.dp)

    def _reduce(self, at: str, unit: str, *, last: bool) -> None:
        """Append the sum of a unit's gradients over replicas: after the last micro-batch, with ZeRO-3 after each."""
        made = self.passes.weights.pop(unit)
        if self.layout.dp == 1 or not (last or self.layout.zero == 3):
            if last:
                self.reduced += made
        elif self.layout.pp > 1:
            # Sums do not hold up the pipeline, as in Megatron-LM without --overlap-grad-reduce.
            self.delayed.append((unit, made))
        else:
            self._sum(at, unit, made)

    def _sum(self, at: str, unit: str, made: list[int]) -> None:
        scatter = self.layout.zero > 0
        kind = CollectiveType.REDUCE_SCATTER if scatter else CollectiveType.ALL_REDUCE
        # A shard may be padded, so that all are equal.
        size = GRADIENT_BYTES * (self._shard(unit) * self.layout.dp if scatter else self.held[unit])
        word = "reduce_scatter" if scatter else "all_reduce"
        self.reduced.append(self.program.collective(f"{at}.{unit}.grads.{word}", "dp", kind, made, size))

    def _update(self, step: str) -> None:
        """Append what follows the last micro-batch: the optimizer, and what gathers the weights it made with ZeRO-1."""
        layout = self.layout
        shared = shared_gradients(self.model, layout, self.stage)
        # The last of each stream, transfers among them: what follows must not be begun before they are.
        done = [*self.reduced, *self.program.last.values()]
        for stream, count in shared.items():
            size = GRADIENT_BYTES * count
            name = f"{step}.{'norms' if stream == 'tp' else 'embedding'}.grads.all_reduce"
            done.append(self.program.collective(name, stream, CollectiveType.ALL_REDUCE, done, size))
        sharded = layout.zero > 0
        count = sum(self._shard(unit) if sharded else self.held[unit] for unit in self.held)
        # Gradients are read; the copy and both moments in 4 bytes are read and written, and so are weights written.
        moved = (GRADIENT_BYTES + 2 * OPTIMIZER_BYTES + WEIGHT_BYTES) * count
        self.ready = self.program.compute(f"{step}.optimizer", done, ADAM_OPERATIONS * count, moved, "other")
        if layout.zero == 1 and layout.dp > 1:
            for unit in self.held:
                self.ready = self.program.collective(
                    f"{step}.{unit}.weights.all_gather", "dp.gather", CollectiveType.ALL_GATHER, [self.ready],
                    WEIGHT_BYTES * self._shard(unit),
                )  # fmt: skip


def shared_gradients(model: Model, layout: Layout, stage: int) -> dict[str, int]:
    """Return the gradients that are summed after the last micro-batch, as elements by comm group.

    Of norms and other weights that tensor parallel ranks hold whole, over `tp` with sequence parallelism, since each has seen a
    part of the sequence; of an embedding that the first and the last stage hold, over `emb`.
    """
    share = layout.dp if layout.zero == 3 else 1
    found = {}
    if layout.sequence_parallel:
        whole = sum(unit.replicated for unit in stage_units(model, layout, stage).values())
        found["tp"] = -(-whole // share)
    if model.tied and layout.pp > 1 and stage in (0, layout.pp - 1):
        found["emb"] = -(-layout.vocabulary(model) * model.hidden // layout.tp // share)
    return found
