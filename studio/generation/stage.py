"""The program of a pipeline stage: its passes in the order of the schedule, and what it exchanges with stages and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from studio.generation.context import ELEMENT_BYTES
from studio.generation.layers import append_layer_backward, append_layer_forward
from studio.generation.layout import Layout
from studio.generation.memory import (
    WEIGHT_BYTES,
    count_kept_activations,
    count_optimizer_traffic,
    count_stage_memory,
    count_unit_activations,
)
from studio.generation.models import Model
from studio.generation.notes import MemoryNotes
from studio.generation.passes import Passes
from studio.generation.program import AFTER, BEFORE, OWN, Program, Speed
from studio.generation.replicas import (
    Held,
    count_holders,
    count_shard_parameters,
    count_shards,
    gathers_in_pass,
    group_gradient_buckets,
    list_chunk_units,
    name_group,
)
from studio.generation.schedule import Pass, order_passes
from studio.generation.transformer import EXPERTS, build_stage_units
from studio.trace import CollectiveType

OPERATIONS = {"sgd": 4}
"""Operations of an optimizer for a parameter, where they are not Adam's."""
ADAM_OPERATIONS = 12
_Kept = tuple[str, dict[str, list[int]], list[Callable[[], None]]]


@dataclass(slots=True)
class Stage:
    """The program of a pipeline stage.

    Attributes:
        place: Place of its ranks in their expert parallel groups, where those differ.
        held: The units of weights on a rank.
        chunks: Names of layers of each chunk.
        closing: The bucket of gradients that each unit closes.
        activations: Bytes that each unit keeps for a micro-batch, and that it makes again.
        notes: What a rank holds over time.
        order: Its passes in a step.
        coming: Uses of weights that are still to come in the step, with the node that gathers them where there is one.
        losses: The node that makes the loss of each micro-batch.
        kept: What the pass of weights' gradients still has to make, by micro-batch and chunk.
        gradient_makers: The nodes that made the gradients that are not summed yet, by unit.
        reduced: What the optimizer waits for.
        ready: What made the weights of the step.
        stowed: The copy to host memory of each layer's activations of a micro-batch, and its bytes.
        fetched: The copy back of each layer's activations that is waited for.
    """

    model: Model
    layout: Layout
    stage: int
    speed: Speed | None
    place: int = 0
    program: Program = field(init=False)
    passes: Passes = field(init=False)
    held: dict[str, Held] = field(init=False)
    chunks: list[list[str]] = field(init=False)
    closing: dict[str, tuple[str, ...]] = field(init=False)
    activations: dict[str, tuple[int, int]] = field(init=False)
    notes: MemoryNotes = field(init=False)
    order: tuple[Pass, ...] = field(init=False)
    coming: dict[tuple[str, str, str], int | None] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)
    kept: dict[tuple[int, int], list[_Kept]] = field(default_factory=dict)
    gradient_makers: dict[str, list[int]] = field(default_factory=dict)
    reduced: list[int] = field(default_factory=list)
    ready: int = 0
    stowed: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    fetched: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = Program(self.speed)
        self.passes = Passes(self.program, self.model, self.layout, self.place)
        units = list_chunk_units(self.model, self.layout, self.stage)
        self.held = {name: unit for chunk in units for name, unit in chunk.items()}
        self.activations = {name: count_unit_activations(self.model, self.layout, name) for name in self.held}
        constant = count_stage_memory(self.model, self.layout, self.stage)
        self.notes = MemoryNotes(self.program, sum(constant.values()) - constant["activations"])
        self.chunks = [
            [name for name in chunk if name.startswith("layer") and not name.endswith(EXPERTS)]
            for chunk in units
        ]
        layout = self.layout
        self.order = order_passes(
            layout.schedule, self.stage, layout.pp, layout.micro_batches, layout.virtual_stages
        )
        self.closing = {
            bucket[-1]: bucket for bucket in group_gradient_buckets(self.model, self.layout, self.stage)
        }

    def nodes(self) -> list[dict[str, object]]:
        """Return its nodes."""
        layout = self.layout
        for step in range(layout.steps):
            self.reduced = []
            self.coming = dict.fromkeys(self._iterate_uses(step))
            for part in self.order:
                at = f"step{step}.mb{part.number}"
                if part.way == "fwd":
                    self._append_forward(at, step, part)
                elif part.way == "weight":
                    self._append_weights_backward(at, part)
                else:
                    self._append_backward(at, step, part)
                if layout.zero >= 2:
                    self._sum_rest(at, last=part.number == layout.micro_batches - 1)
            self._sum_rest(f"step{step}.mb{layout.micro_batches - 1}", last=True)
            self._update(f"step{step}")
        return self.program.nodes

    def _is_first(self, part: Pass) -> bool:
        return self.stage == 0 and part.chunk == 0

    def _is_last(self, part: Pass) -> bool:
        return self.stage == self.layout.pp - 1 and part.chunk == self.layout.virtual_stages - 1

    def _append_forward(self, at: str, step: int, part: Pass) -> None:
        if self._is_first(part):
            x = self.passes.embedding_forward(at, self._gather_weights(at, "embedding", "fwd"))
            self._take("embedding", part)
        else:
            x = self._append_message(at, step, part, [], sends=False)
        for name in self.chunks[part.chunk]:
            x = append_layer_forward(self.passes, f"{at}.{name}", x, self._gather_weights(at, name, "fwd"))
            self._take(name, part)
            self._append_stow(at, name, part, x)
        if self._is_last(part):
            self.losses[part.number] = self.passes.head_forward(
                at, x, self._gather_weights(at, "head", "fwd")
            )
            self._take("head", part)
        else:
            self._append_message(at, step, part, [x], sends=True)

    def _append_backward(self, at: str, step: int, part: Pass) -> None:
        """Append a backward pass, or its first half, which leaves gradients of weights to a later pass."""
        self.passes.later = [] if part.way == "input" else None
        if self._is_last(part):
            grad = self.passes.head_backward(
                at, self.losses.pop(part.number), self._gather_weights(at, "head", "bwd")
            )
            self._close(at, "head", part)
        else:
            grad = self._append_message(at, step, part, [], sends=False)
        names = self.chunks[part.chunk][::-1]
        self._append_fetch(at, part, names[:1])
        for place, name in enumerate(names):
            ready = self._gather_weights(at, name, "bwd")
            self.program.sent += [node] if (node := self.fetched.pop(name, 0)) else []
            # The next layer's are on their way while this one is at work.
            self._append_fetch(at, part, names[place + 1 : place + 2])
            if self.layout.recompute == "full":
                # The whole forward pass of the layer, from its kept input, once the gradient is there, as Megatron-LM does.
                ready = append_layer_forward(self.passes, f"{at}.{name}.again", grad, ready)
                self._take(name, part, again=True)
            grad = append_layer_backward(self.passes, f"{at}.{name}", grad, ready)
            self._close(at, name, part)
        if self._is_first(part):
            self.passes.embedding_backward(at, grad)
            self._close(at, "embedding", part)
        else:
            self._append_message(at, step, part, [grad], sends=True)
        self.passes.later = None

    def _append_stow(self, at: str, unit: str, part: Pass, after: int) -> None:
        """Append the copy of a layer's activations to host memory, where they are held there."""
        if self.layout.offloads_activations:
            size = count_kept_activations(self.model, self.layout, int(unit.removeprefix("layer")))
            name = f"{at}.{unit}.activations.to_host"
            node = self.program.copy(name, [after], size, self.layout.host_gbytes, to_host=True)
            self.stowed[part.number, unit] = node, size

    def _append_fetch(self, at: str, part: Pass, units: list[str]) -> None:
        """Append the copies of layers' activations from host memory, from now on."""
        for unit in units:
            if (part.number, unit) in self.stowed:
                stowed, size = self.stowed.pop((part.number, unit))
                self.fetched[unit] = self.program.copy(
                    f"{at}.{unit}.activations.from_host",
                    [stowed, self.program.last["compute"]],
                    size,
                    self.layout.host_gbytes,
                    to_host=False,
                )

    def _append_weights_backward(self, at: str, part: Pass) -> None:
        """Append the gradients of weights that a backward pass has left."""
        for unit, nodes, later in self.kept.pop((part.number, part.chunk)):
            self.passes.weights |= nodes
            for make in later:
                make()
            self._close(at, unit, part)

    def _close(self, at: str, unit: str, part: Pass) -> None:
        """Note that a unit's part of a backward pass is over, and sum its gradients where it closes a bucket."""
        layout, weights = self.layout, self.passes.weights
        gradients = {name: weights.pop(name) for name in (f"{unit}{EXPERTS}", unit) if name in weights}
        if self.passes.later is not None:
            self.kept.setdefault((part.number, part.chunk), []).append((unit, gradients, self.passes.later))
            self.passes.later = []
            return
        for again in (True, False):
            self.notes.give((part.number, unit, again))
        last = part.number == layout.micro_batches - 1
        for name, nodes in gradients.items():
            if count_holders(layout, self.held[name]) == 1:
                if last and layout.offloads_optimizer:
                    self.reduced.append(
                        self._append_host_copy(f"{at}.{name}.grads", nodes, self._count_updated(name))
                    )
                elif last:
                    self.reduced += nodes
            elif last or layout.zero >= 2:
                self.gradient_makers[name] = nodes
                if layout.grad_overlap and name in self.closing:
                    self._append_sum(at, self.closing[name], [], last=last)

    def _take(self, unit: str, part: Pass, *, again: bool = False) -> None:
        """Note what a unit's forward pass leaves in memory, or makes again."""
        self.notes.take((part.number, unit, again), self.activations[unit][again])

    def _append_message(self, at: str, step: int, part: Pass, after: list[int], *, sends: bool) -> int:
        """Append one end of a message between stages, and return its node.

        A message is tagged by the micro-batch, the chunk that receives it, and its way. Stages are a ring where they are
        interleaved.
        """
        layout, way = self.layout, "fwd" if part.way == "fwd" else "bwd"
        chunk = part.chunk
        if sends and way == "fwd":
            chunk += self.stage == layout.pp - 1
        elif sends:
            chunk -= self.stage == 0
        number = step * layout.micro_batches + part.number
        tag = 2 * (number * layout.virtual_stages + chunk) + (way == "bwd")
        ahead = AFTER if sends == (way == "fwd") else BEFORE
        # Of two stages in a ring the one before is the one after.
        peer = BEFORE if layout.pp == 2 and layout.virtual_stages > 1 else ahead
        name = f"{at}.chunk{part.chunk}" if layout.virtual_stages > 1 else at
        name = f"{name}.{'send' if sends else 'recv'}.{way}"
        ends = (OWN, peer) if sends else (peer, OWN)
        node = self.program.transfer(name, ends, tag, after, ELEMENT_BYTES * self.passes.own, way)
        if layout.schedule in ("interleaved", "zb-h1"):
            # These go on while they send, as Megatron-LM does with interleaving; the others do not.
            self.program.sent = []
        return node

    def _gather_weights(self, at: str, unit: str, way: str) -> int:
        """Append what gathers the weights of a unit, with ZeRO-3, and of the next ones; returns the node that its pass waits for.

        What is gathered ahead stands before the unit's own gradients are scattered: all ranks of a group take both in one order, as
        one communicator does.
        """
        if (at, unit, way) not in self.coming:
            return self.ready
        # Uses come in order, so that this one is the first.
        for use in list(islice(self.coming, 1 + self.layout.prefetch)):
            if self.coming[use] is None:
                self.coming[use] = self._gather(*use)
        node = self.coming.pop((at, unit, way))
        assert node is not None
        return node

    def _gather(self, at: str, unit: str, way: str) -> int:
        """Append what gathers a unit's weights and those of its experts, once the unit before the one at work is over."""
        after = [self.program.last.get("compute", 0), self.ready]
        for name in (unit, f"{unit}{EXPERTS}"):
            held = self.held.get(name)
            if held is not None and gathers_in_pass(self.layout, name, held, way):
                size = WEIGHT_BYTES * count_shard_parameters(self.layout, held)
                node = self.program.collective(
                    f"{at}.{name}.weights.all_gather.{way}",
                    name_group(self.layout, held),
                    CollectiveType.ALL_GATHER,
                    after,
                    size,
                )
                after = [node, *after]
        return after[0]

    def _iterate_uses(self, step: int) -> Iterator[tuple[str, str, str]]:
        """Yield the uses of weights that a step gathers, in order: micro-batch, unit, pass."""
        for part in self.order:
            at, units = f"step{step}.mb{part.number}", list(self.chunks[part.chunk])
            units = [
                *(["embedding"] if self._is_first(part) else []),
                *units,
                *(["head"] if self._is_last(part) else []),
            ]
            way = "fwd" if part.way == "fwd" else "bwd"
            if part.way == "weight":
                continue
            for unit in units if way == "fwd" else reversed(units):
                names = (name for name in (unit, f"{unit}{EXPERTS}") if name in self.held)
                if any(gathers_in_pass(self.layout, name, self.held[name], way) for name in names):
                    yield at, unit, way

    def _sum_rest(self, at: str, *, last: bool) -> None:
        """Append the sums of gradients that wait for the end of the backward passes."""
        for bucket in self.closing.values():
            if bucket[0] in self.gradient_makers:
                # Sums do not hold up the pipeline, as in Megatron-LM without --overlap-grad-reduce.
                self._append_sum(at, bucket, [*self.program.sent, self.program.last["compute"]], last=last)

    def _append_sum(self, at: str, bucket: tuple[str, ...], after: list[int], *, last: bool) -> None:
        """Append the sum of a bucket's gradients over replicas: scattered with ZeRO, and then of shards over those that have the same."""
        layout, first = self.layout, self.held[bucket[0]]
        after = [node for unit in bucket for node in self.gradient_makers.pop(unit)] + after
        name, group = f"{at}.{self._name_bucket(bucket)}.grads", name_group(layout, first)
        if layout.zero == 0:
            size = layout.reduced_bytes * sum(self.held[unit].parameters for unit in bucket)
            after = [
                self.program.collective(f"{name}.all_reduce", group, CollectiveType.ALL_REDUCE, after, size)
            ]
        else:
            shard = layout.reduced_bytes * sum(
                count_shard_parameters(layout, self.held[unit]) for unit in bucket
            )
            shards = count_shards(layout, first)
            if shards > 1:
                kind, size = CollectiveType.REDUCE_SCATTER, shard * shards
                after = [self.program.collective(f"{name}.reduce_scatter", group, kind, after, size)]
            if last and shards < count_holders(layout, first):
                kind = CollectiveType.ALL_REDUCE
                after = [self.program.collective(f"{name}.all_reduce", "replica", kind, after, shard)]
        if last:
            count = sum(self._count_updated(unit) for unit in bucket)
            self.reduced.append(self._append_host_copy(name, after, count))

    def _name_bucket(self, bucket: tuple[str, ...]) -> str:
        """Return what a bucket's collectives are named after: its unit, or of several its number."""
        return bucket[0] if len(bucket) == 1 else f"bucket{list(self.closing.values()).index(bucket)}"

    def _update(self, step: str) -> None:
        """Append what follows the last micro-batch: the optimizer, and what gathers the weights it made with ZeRO-1 and 2."""
        layout = self.layout
        shared = count_shared_gradients(self.model, layout, self.stage)
        # The last of each stream, transfers among them: what follows must not be begun before they are.
        done = [*self.reduced, *self.program.last.values()]
        for stream, count in shared.items():
            size = layout.reduced_bytes * count
            name = f"{step}.{'norms' if stream == 'tp' else 'embedding'}.grads.all_reduce"
            done.append(self.program.collective(name, stream, CollectiveType.ALL_REDUCE, done, size))
        self._step_optimizer(step, done)
        for bucket in reversed(self.closing.values()) if layout.zero in (1, 2) else ():
            first = self.held[bucket[0]]
            if count_shards(layout, first) > 1:
                size = WEIGHT_BYTES * sum(count_shard_parameters(layout, self.held[unit]) for unit in bucket)
                self.ready = self.program.collective(
                    f"{step}.{self._name_bucket(bucket)}.weights.all_gather", f"{name_group(layout, first)}.gather",
                    CollectiveType.ALL_GATHER, [self.ready], size,
                )  # fmt: skip

    def _count_updated(self, unit: str) -> int:
        """Return the parameters of a unit that a rank updates."""
        held = self.held[unit]
        return count_shard_parameters(self.layout, held) if self.layout.zero else held.parameters

    def _append_host_copy(self, name: str, after: list[int], count: int) -> int:
        """Append the copy of gradients to host memory, where the optimizer is there; returns what the optimizer waits for."""
        layout = self.layout
        if not layout.offloads_optimizer:
            return after[-1]
        size = layout.gradient_bytes * count
        return self.program.copy(f"{name}.to_host", after, size, layout.host_gbytes, to_host=True)

    def _step_optimizer(self, step: str, after: list[int]) -> None:
        """Append the optimizer, on the device or on the host, from which the weights then come back."""
        layout = self.layout
        count = sum(map(self._count_updated, self.held))
        moved = count_optimizer_traffic(layout, count)
        flop = OPERATIONS.get(layout.optimizer, ADAM_OPERATIONS) * count
        if not layout.offloads_optimizer:
            self.ready = self.program.compute(f"{step}.optimizer", after, flop, moved, "other")
            return
        node = self.program.on_host(f"{step}.optimizer", after, flop, moved, layout.host_gbytes)
        size = WEIGHT_BYTES * count
        name = f"{step}.weights.from_host"
        self.ready = self.program.copy(name, [node], size, layout.host_gbytes, to_host=False)


def count_shared_gradients(model: Model, layout: Layout, stage: int) -> dict[str, int]:
    """Return the gradients that are summed after the last micro-batch, as elements by comm group.

    Of norms and other weights that tensor parallel ranks hold whole, over `tp` with sequence parallelism, since each has seen a
    part of the sequence; of an embedding that the first and the last stage hold, over `emb`.
    """
    share = layout.shards if layout.zero >= 2 else 1
    elements = {}
    if layout.sequence_parallel:
        whole = sum(unit.replicated for unit in build_stage_units(model, layout, stage).values())
        elements["tp"] = -(-whole // share)
    if model.tied and layout.pp > 1 and stage in (0, layout.pp - 1):
        elements["emb"] = -(-layout.vocabulary(model) * model.hidden // layout.tp // share)
    return elements
