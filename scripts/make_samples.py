"""Writes the sample jobs inside the package: transformer training steps as Chakra execution traces.

Each rank's program is laid down operation by operation, with the data every operation needs; then all ranks
run together on a small machine model, which gives the recorded times. Nothing is drawn at random: durations
vary with a hash of what they belong to, so the same bytes come out every time.

Run it as `make samples`; with a folder as its argument it writes there instead.
"""

from __future__ import annotations

import argparse
import heapq
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from studio.et.schema import get_value_field, load_schema
from studio.trace import CollectiveType, NodeType, ValueKind

ROOT: Final = Path(__file__).resolve().parent.parent
SCHEMA_VERSION: Final = "1.0.0"
SCHEMA_NAME: Final = "chakra-studio-sample"
# Zip knows no earlier date.
ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)

# The machine that "recorded" the jobs. Rates in units per microsecond.
FLOPS_PER_US: Final = 400e6
MEMORY_BYTES_PER_US: Final = 2_500_000.0
HOST_BYTES_PER_US: Final = 50_000.0
TENSOR_BYTES_PER_US: Final = 200_000.0
SPREAD_BYTES_PER_US: Final = 100_000.0
LAUNCH_US: Final = 3
COLLECTIVE_US: Final = 12
# A start of 0 would not be written, and read as "not recorded".
FIRST_START_US: Final = 1_000
JITTER: Final = 0.06

ELEMENT_BYTES: Final = 2
ADAM_FLOPS: Final = 12
# Weight, gradient and two moments are read, weight and moments written.
ADAM_BYTES: Final = 7 * ELEMENT_BYTES
GRAD_NORM_BYTES: Final = 4_096

STREAMS: Final = {"host": 0, "compute": 7, "memory": 11, "comm": 20, "receive": 21}


@dataclass(frozen=True, slots=True)
class Job:
    """A training job to write.

    Attributes:
        name: Prefix of its files.
        dp, tp, pp: Data, tensor and pipeline parallel degrees; ranks count tensor first, pipeline last.
        layers: Transformer layers of the whole model.
        micro_batches: Micro-batches of a step.
        hidden, feed_forward, heads, vocabulary: Sizes of the model.
        sequence, batch: Tokens of a sequence, sequences of a micro-batch.
        sequence_parallel: All-gather and reduce-scatter around the tensor parallel parts, not all-reduce.
        equal_ranks: Ranks of a pipeline stage take equal times, and so share a graph.
        hot_expert: The rank with the hot expert; None for a model without experts, which else has one per rank.
        straggler: A rank whose compute is slower.
    """

    name: str
    dp: int
    tp: int
    pp: int
    layers: int = 4
    steps: int = 2
    micro_batches: int = 2
    hidden: int = 2048
    feed_forward: int = 8192
    heads: int = 16
    vocabulary: int = 32_000
    sequence: int = 2048
    batch: int = 2
    sequence_parallel: bool = False
    equal_ranks: bool = False
    hot_expert: int | None = None
    straggler: int | None = None

    @property
    def ranks(self) -> int:
        """How many ranks the job has."""
        return self.dp * self.tp * self.pp

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.sequence * self.batch


JOBS: Final = (
    Job("transformer_8r", dp=2, tp=2, pp=2),
    Job(
        "transformer_32r",
        dp=4,
        tp=4,
        pp=2,
        steps=1,
        micro_batches=4,
        hidden=4096,
        feed_forward=16_384,
        heads=32,
        batch=1,
        sequence_parallel=True,
        equal_ranks=True,
    ),
    Job(
        "imbalance_8r",
        dp=8,
        tp=1,
        pp=1,
        micro_batches=1,
        feed_forward=4096,
        hot_expert=5,
        straggler=2,
    ),
)

EXPERTS_PER_TOKEN: Final = 2
# Load of the hot expert over the mean, layer by layer: 1.6 on average.
HOT_LOADS: Final = (1.5, 1.7, 1.55, 1.65)
# How the other experts share the rest, turned by one from layer to layer.
COLD_SHARES: Final = (0.95, 0.86, 1.0, 0.92, 0.88, 0.97, 0.82)
STRAGGLER_SLOWDOWN: Final = 1.25


# ---------------------------------------------------------------------------------------------------
# Who talks to whom


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's coordinates in the job, and the comm groups it belongs to."""

    rank: int
    dp: int
    tp: int
    pp: int
    groups: dict[str, tuple[str, tuple[int, ...]]]

    def group(self, kind: str) -> tuple[str, tuple[int, ...]]:
        """Name and ranks of the comm group of a kind: tp, dp, pp, ep or world."""
        return self.groups[kind]


def comm_groups(job: Job) -> dict[str, tuple[int, ...]]:
    """Every comm group of a job, by name."""
    cell = job.dp * job.tp
    ranks = range(job.ranks)
    lines: dict[str, list[tuple[int, ...]]] = {
        "tp": [tuple(range(first, first + job.tp)) for first in ranks if first % job.tp == 0],
        "dp": [tuple(range(first, first + cell, job.tp)) for first in ranks if first % cell < job.tp],
        "pp": [tuple(range(first, job.ranks, cell)) for first in range(cell)],
        "ep": [tuple(ranks)] if job.hot_expert is not None else [],
    }
    named = {
        f"{kind}{number}": members
        for kind, groups in lines.items()
        for number, members in enumerate(group for group in groups if len(group) > 1)
    }
    return named | {"world": tuple(ranks)}


def places(job: Job) -> list[Place]:
    """The place of every rank, by rank."""
    groups = comm_groups(job)
    ranks = []
    for rank in range(job.ranks):
        own = {
            name.rstrip("0123456789"): (name, members) for name, members in groups.items() if rank in members
        }
        pp, inner = divmod(rank, job.dp * job.tp)
        ranks.append(Place(rank, inner // job.tp, inner % job.tp, pp, own))
    return ranks


def expert_tokens(job: Job, layer: int) -> list[int]:
    """Tokens that the experts of each rank get in a layer, for a job with a hot expert."""
    hot_rank = job.hot_expert
    if hot_rank is None:
        return []
    mean = job.tokens * EXPERTS_PER_TOKEN
    hot = HOT_LOADS[layer % len(HOT_LOADS)]
    turned = [COLD_SHARES[(i + layer) % len(COLD_SHARES)] for i in range(job.ranks - 1)]
    counts = [int(mean * share * (job.ranks - hot) / sum(turned)) for share in turned]
    counts.insert(hot_rank, int(mean * hot))
    counts[0] += mean * job.ranks - sum(counts)
    return counts


# ---------------------------------------------------------------------------------------------------
# One rank's program


@dataclass(frozen=True, slots=True)
class Tensor:
    """What an operation leaves behind: its name, its size, and the node that makes it (0: there from the start)."""

    name: str
    size_bytes: int
    node: int = 0


@dataclass(slots=True)
class Node:
    """A node being written.

    Attributes:
        lane: The part of the rank that it keeps busy.
        meeting: Equal on the nodes of different ranks that run as one: a collective, or a send and its receive.
        work_us: How long it takes, before jitter.
    """

    id: int
    name: str
    type: NodeType
    lane: str
    work_us: float
    data: list[int] = field(default_factory=list)
    ctrl: list[int] = field(default_factory=list)
    attrs: list[tuple[str, ValueKind, Any]] = field(default_factory=list)
    meeting: str = ""
    start_us: int = 0
    duration_us: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations of a computation, bytes of its result, and what kind of operation it is."""

    flops: int
    out_bytes: int
    kind: str


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes of a collective on one rank: its size, what goes through the busiest link, the result."""

    own_bytes: int
    link_bytes: float
    out_bytes: int


class Program:
    """The nodes of one rank, added in program order.

    Attributes:
        last: The last node of each stream.
        weights, grads, reduced: Weights, their gradients, and these summed over the ranks, by the weight's name.
        saved: What the forward pass leaves for the backward pass.
        due: Buckets of gradients that can be reduced, as step and name.
    """

    def __init__(self, job: Job, place: Place) -> None:
        self.job, self.place = job, place
        self.nodes: list[Node] = []
        self.last: dict[str, int] = {}
        self.weights: dict[str, Tensor] = {}
        self.grads: dict[str, Tensor] = {}
        self.saved: dict[str, Tensor] = {}
        self.reduced: dict[str, Tensor] = {}
        self.due: list[tuple[str, str]] = []

    def add(
        self, name: str, node_type: NodeType, stream: str, work_us: float, needs: Sequence[Tensor]
    ) -> Node:
        """Append a node after what it needs and after the last node of its stream."""
        lane = "comm" if stream == "receive" else stream
        node = Node(len(self.nodes) + 1, name, node_type, lane, work_us)
        node.data = sorted({tensor.node for tensor in needs if tensor.node})
        previous = self.last.get(stream)
        if previous is not None and previous not in node.data:
            node.ctrl.append(previous)
        device = self.last.get("compute")
        if stream == "host" and device is not None and device not in node.data:
            # The host does not run ahead of the device.
            node.ctrl.append(device)
        self.last[stream] = node.id
        self.nodes.append(node)
        node.attrs += [
            ("is_cpu_op", ValueKind.BOOL, stream == "host"),
            ("stream", ValueKind.INT64, STREAMS[stream]),
        ]
        return node

    def finish(self, node: Node, needs: Sequence[Tensor], out_bytes: int) -> Tensor:
        """Note what a node reads and writes; returns what it writes."""
        made = Tensor(f"{node.name}:0", out_bytes, node.id)
        node.attrs += [
            ("inputs", ValueKind.STRING_LIST, [text for t in needs for text in (t.name, str(t.size_bytes))]),
            ("outputs", ValueKind.STRING_LIST, [made.name, str(made.size_bytes)]),
        ]
        return made

    def compute(self, name: str, needs: Sequence[Tensor], cost: Cost, *, stream: str = "compute") -> Tensor:
        """Append a computation."""
        touched = sum(tensor.size_bytes for tensor in needs) + cost.out_bytes
        work_us = LAUNCH_US + max(cost.flops / FLOPS_PER_US, touched / MEMORY_BYTES_PER_US)
        if self.job.straggler == self.place.rank and stream == "compute":
            work_us *= STRAGGLER_SLOWDOWN
        node = self.add(name, NodeType.COMP, stream, work_us, needs)
        node.attrs += [
            ("num_ops", ValueKind.INT64, cost.flops),
            ("tensor_size", ValueKind.UINT64, touched),
            ("op_type", ValueKind.STRING, cost.kind),
        ]
        return self.finish(node, needs, cost.out_bytes)

    def elementwise(self, name: str, needs: Sequence[Tensor], kind: str, *, passes: int = 1) -> Tensor:
        """Append a computation whose result has the size of its first input."""
        size_bytes = needs[0].size_bytes
        return self.compute(name, needs, Cost(passes * size_bytes // ELEMENT_BYTES, size_bytes, kind))

    def matmul(self, name: str, needs: Sequence[Tensor], shape: tuple[int, int, int]) -> Tensor:
        """Append a product of an (m, k) and a (k, n) matrix, shape being (m, k, n)."""
        m, k, n = shape
        return self.compute(name, needs, Cost(2 * m * k * n, m * n * ELEMENT_BYTES, "matmul"))

    def weight_grad(
        self, name: str, needs: Sequence[Tensor], weight: str, shape: tuple[int, int, int]
    ) -> None:
        """Append the gradient of a weight, added to that of the micro-batches before.

        Nothing waits for it soon: the time to send off the gradients that are due, behind the communication
        that the next part of the backward pass began with.
        """
        reduce_gradients(self)
        earlier = [self.grads[weight]] if weight in self.grads else []
        self.grads[weight] = self.matmul(name, [*needs, *earlier], shape)

    def norm_backward(self, name: str, weight: str, needs: Sequence[Tensor]) -> Tensor:
        """Append the backward pass of a norm: the gradient of its input, and beside it that of its weight."""
        earlier = [self.grads[weight]] if weight in self.grads else []
        made = self.elementwise(name, [*needs, *earlier], "norm", passes=8)
        self.grads[weight] = Tensor(f"{weight}.grad", self.weights[weight].size_bytes, made.node)
        return made

    def collective(
        self,
        name: str,
        kind: CollectiveType,
        group: str,
        needs: Sequence[Tensor],
        volume: Volume | None = None,
    ) -> Tensor:
        """Append a collective over the rank's group of a kind; without a volume each member gives its inputs."""
        group_name, members = self.place.group(group)
        volume = volume or even_volume(kind, len(members), sum(tensor.size_bytes for tensor in needs))
        rate = TENSOR_BYTES_PER_US if group == "tp" else SPREAD_BYTES_PER_US
        work_us = COLLECTIVE_US + volume.link_bytes / rate
        node = self.add(name, NodeType.COMM_COLL, "comm", work_us, needs)
        node.meeting = f"{name} {group_name}"
        node.attrs += [
            ("comm_type", ValueKind.INT64, int(kind)),
            ("comm_size", ValueKind.INT64, volume.own_bytes),
            ("pg_name", ValueKind.STRING, group_name),
        ]
        return self.finish(node, needs, volume.out_bytes)

    def send(self, name: str, to_stage: int, tag: int, tensor: Tensor) -> None:
        """Append a send to the rank of the same pipeline in another stage."""
        peer = self.place.group("pp")[1][to_stage]
        node = self._transfer(name, (self.place.rank, peer), tag, [tensor], tensor.size_bytes)
        self.finish(node, [tensor], tensor.size_bytes)

    def receive(self, name: str, from_stage: int, tag: int, size_bytes: int) -> Tensor:
        """Append a receive; it is posted early, so it waits for earlier receives alone."""
        peer = self.place.group("pp")[1][from_stage]
        node = self._transfer(name, (peer, self.place.rank), tag, [], size_bytes)
        return self.finish(node, [], size_bytes)

    def _transfer(
        self, name: str, ends: tuple[int, int], tag: int, needs: Sequence[Tensor], size_bytes: int
    ) -> Node:
        """Append one end of a point-to-point transfer."""
        sends = ends[0] == self.place.rank
        node_type, stream = (NodeType.COMM_SEND, "comm") if sends else (NodeType.COMM_RECV, "receive")
        node = self.add(name, node_type, stream, COLLECTIVE_US + size_bytes / SPREAD_BYTES_PER_US, needs)
        node.meeting = f"transfer {ends[0]} {ends[1]} {tag}"
        node.attrs += [
            ("comm_size", ValueKind.INT64, size_bytes),
            ("comm_src", ValueKind.INT32, ends[0]),
            ("comm_dst", ValueKind.INT32, ends[1]),
            ("comm_tag", ValueKind.INT32, tag),
            ("pg_name", ValueKind.STRING, self.place.group("pp")[0]),
        ]
        return node

    def copy(self, name: str, node_type: NodeType, tensor: Tensor, after: str = "memory") -> Tensor:
        """Append a copy between host and device memory, once the last node of stream `after` is through."""
        needs = [tensor] if tensor.node else []
        node = self.add(name, node_type, "memory", LAUNCH_US + tensor.size_bytes / HOST_BYTES_PER_US, needs)
        wait = self.last.get(after)
        if wait is not None and wait != node.id and wait not in (*node.data, *node.ctrl):
            node.ctrl.append(wait)
        node.attrs.append(("tensor_size", ValueKind.UINT64, tensor.size_bytes))
        return self.finish(node, [tensor], tensor.size_bytes)


def even_volume(kind: CollectiveType, members: int, own_bytes: int) -> Volume:
    """The volume of a collective to which each member gives the same number of bytes."""
    if kind == CollectiveType.ALL_GATHER:
        return Volume(own_bytes, (members - 1) * own_bytes, members * own_bytes)
    link_bytes = (members - 1) * own_bytes / members
    if kind == CollectiveType.REDUCE_SCATTER:
        return Volume(own_bytes, link_bytes, own_bytes // members)
    # An all-reduce is a reduce-scatter and an all-gather of what it leaves.
    return Volume(own_bytes, 2 * link_bytes, own_bytes)


def reduce_gradients(p: Program) -> None:
    """Append the all-reduces, over the data parallel ranks, of the buckets of gradients that are due."""
    for step, bucket in p.due:
        names = [name for name in p.weights if name == bucket or name.startswith(f"{bucket}.")]
        if p.job.hot_expert is not None:
            # An expert lives on one rank; there is nobody to share its gradient with.
            local = [name for name in names if ".moe.fc" in name]
            p.reduced |= {name: p.grads[name] for name in local}
            names = [name for name in names if name not in local]
        grads = [p.grads[name] for name in names]
        done = p.collective(f"{step}.{bucket}.grads.all_reduce", CollectiveType.ALL_REDUCE, "dp", grads)
        p.reduced |= dict.fromkeys(names, done)
    p.due.clear()


# ---------------------------------------------------------------------------------------------------
# The model, forward and backward. Every function takes the program and `prefix`, such as "step0.mb1.layer3".


def parameters(job: Job, place: Place) -> dict[str, int]:
    """Elements of the weights a rank holds, by name."""
    held: dict[str, int] = {}
    hidden, inner = job.hidden, job.feed_forward // job.tp
    if place.pp == 0:
        held["embedding"] = job.vocabulary * hidden // job.tp
    for layer in stage_layers(job, place.pp):
        held[f"layer{layer}.attn.norm"] = hidden
        held[f"layer{layer}.attn.qkv_proj"] = 3 * hidden * hidden // job.tp
        held[f"layer{layer}.attn.out_proj"] = hidden * hidden // job.tp
        part = "moe" if job.hot_expert is not None else "mlp"
        held[f"layer{layer}.{part}.norm"] = hidden
        if part == "moe":
            held[f"layer{layer}.moe.router"] = hidden * job.ranks
        held[f"layer{layer}.{part}.fc1"] = hidden * inner
        held[f"layer{layer}.{part}.fc2"] = hidden * inner
    if place.pp == job.pp - 1:
        held["head.norm"] = hidden
        held["head.proj"] = job.vocabulary * hidden // job.tp
    return held


def stage_layers(job: Job, stage: int) -> range:
    """The layers of a pipeline stage."""
    each = job.layers // job.pp
    return range(stage * each, (stage + 1) * each)


def activation_bytes(job: Job) -> int:
    """Bytes of the activations that go from layer to layer on one rank."""
    return job.tokens * job.hidden * ELEMENT_BYTES // (job.tp if job.sequence_parallel else 1)


def enter(p: Program, name: str, tensor: Tensor) -> Tensor:
    """The whole sequence, before a tensor parallel part in its forward direction (after it in backward)."""
    if not p.job.sequence_parallel:
        return tensor
    return p.collective(name.format("all_gather"), CollectiveType.ALL_GATHER, "tp", [tensor])


def leave(p: Program, name: str, tensor: Tensor) -> Tensor:
    """The sum over the tensor parallel ranks of what each of them has made of its part."""
    if p.job.tp == 1:
        return tensor
    if p.job.sequence_parallel:
        return p.collective(name.format("reduce_scatter"), CollectiveType.REDUCE_SCATTER, "tp", [tensor])
    return p.collective(name.format("all_reduce"), CollectiveType.ALL_REDUCE, "tp", [tensor])


def attention_cost(job: Job, kind: str) -> Cost:
    """A product over all pairs of tokens: scores (from queries and keys) or context (from probabilities)."""
    flops = 2 * job.batch * job.sequence**2 * job.hidden // job.tp
    pairs = job.batch * job.heads // job.tp * job.sequence**2
    values = job.tokens * job.hidden // job.tp
    return Cost(
        flops, ELEMENT_BYTES * {"scores": pairs, "context": values, "qk": 2 * values}[kind], "attention"
    )


def attention_forward(p: Program, prefix: str, x: Tensor) -> Tensor:
    """Attention and the residual around it."""
    job, layer, s = p.job, prefix.rpartition(".")[2], p.saved
    tokens, hidden = job.tokens, job.hidden
    normed = p.elementwise(f"{prefix}.attn.norm.fwd", [x, p.weights[f"{layer}.attn.norm"]], "norm", passes=5)
    whole = s[f"{prefix}.attn.in"] = enter(p, f"{prefix}.attn.{{}}.fwd", normed)
    qkv = s[f"{prefix}.attn.qkv"] = p.matmul(
        f"{prefix}.attn.qkv_proj.fwd",
        [whole, p.weights[f"{layer}.attn.qkv_proj"]],
        (tokens, hidden, 3 * hidden // job.tp),
    )
    scores = p.compute(f"{prefix}.attn.scores.fwd", [qkv], attention_cost(job, "scores"))
    probs = s[f"{prefix}.attn.probs"] = p.elementwise(
        f"{prefix}.attn.softmax.fwd", [scores], "softmax", passes=5
    )
    context = p.compute(f"{prefix}.attn.context.fwd", [probs, qkv], attention_cost(job, "context"))
    s[f"{prefix}.attn.context"] = context
    out = p.matmul(
        f"{prefix}.attn.out_proj.fwd",
        [context, p.weights[f"{layer}.attn.out_proj"]],
        (tokens, hidden // job.tp, hidden),
    )
    out = leave(p, f"{prefix}.attn.{{}}.fwd", out)
    return p.elementwise(f"{prefix}.attn.residual.fwd", [out, x], "add")


def attention_backward(p: Program, prefix: str, dy: Tensor) -> Tensor:
    """Gradient of attention's input, and of its weights."""
    job, layer, s = p.job, prefix.rpartition(".")[2], p.saved
    tokens, hidden = job.tokens, job.hidden
    qkv, probs = s[f"{prefix}.attn.qkv"], s[f"{prefix}.attn.probs"]
    whole = enter(p, f"{prefix}.attn.{{}}.bwd", dy)
    weight = f"{layer}.attn.out_proj"
    shape = (tokens, hidden, hidden // job.tp)
    d_context = p.matmul(f"{prefix}.attn.out_proj.dgrad", [whole, p.weights[weight]], shape)
    shape = (hidden // job.tp, tokens, hidden)
    p.weight_grad(f"{prefix}.attn.out_proj.wgrad", [s[f"{prefix}.attn.context"], whole], weight, shape)
    d_probs = p.compute(f"{prefix}.attn.context.bwd", [d_context, probs, qkv], attention_cost(job, "scores"))
    d_scores = p.elementwise(f"{prefix}.attn.softmax.bwd", [d_probs, probs], "softmax", passes=4)
    d_qk = p.compute(f"{prefix}.attn.scores.bwd", [d_scores, qkv], attention_cost(job, "qk"))
    # Values get their gradient in context.bwd, queries and keys in scores.bwd.
    d_qkv = [d_qk, d_probs]
    weight = f"{layer}.attn.qkv_proj"
    d_in = p.matmul(
        f"{prefix}.attn.qkv_proj.dgrad", [*d_qkv, p.weights[weight]], (tokens, 3 * hidden // job.tp, hidden)
    )
    d_in = leave(p, f"{prefix}.attn.{{}}.bwd", d_in)
    shape = (hidden, tokens, 3 * hidden // job.tp)
    p.weight_grad(f"{prefix}.attn.qkv_proj.wgrad", [s[f"{prefix}.attn.in"], *d_qkv], weight, shape)
    x = s[f"{prefix}.x"]
    return p.norm_backward(f"{prefix}.attn.norm.bwd", f"{layer}.attn.norm", [d_in, x, dy])


def mlp_forward(p: Program, prefix: str, x: Tensor) -> Tensor:
    """The feed-forward part and the residual around it."""
    job, layer, s = p.job, prefix.rpartition(".")[2], p.saved
    s[f"{prefix}.mlp.x"] = x
    normed = p.elementwise(f"{prefix}.mlp.norm.fwd", [x, p.weights[f"{layer}.mlp.norm"]], "norm", passes=5)
    whole = s[f"{prefix}.mlp.in"] = enter(p, f"{prefix}.mlp.{{}}.fwd", normed)
    out = feed_forward(p, f"{prefix}.mlp", whole, job.tokens)
    out = leave(p, f"{prefix}.mlp.{{}}.fwd", out)
    return p.elementwise(f"{prefix}.mlp.residual.fwd", [out, x], "add")


def mlp_backward(p: Program, prefix: str, dy: Tensor) -> Tensor:
    """Gradient of the feed-forward part's input, and of its weights."""
    layer, s = prefix.rpartition(".")[2], p.saved
    whole = enter(p, f"{prefix}.mlp.{{}}.bwd", dy)
    d_in = feed_forward_dgrad(p, f"{prefix}.mlp", whole, p.job.tokens)
    d_in = leave(p, f"{prefix}.mlp.{{}}.bwd", d_in)
    feed_forward_wgrad(p, f"{prefix}.mlp", s[f"{prefix}.mlp.in"], p.job.tokens)
    return p.norm_backward(f"{prefix}.mlp.norm.bwd", f"{layer}.mlp.norm", [d_in, s[f"{prefix}.mlp.x"], dy])


def feed_forward(p: Program, part: str, x: Tensor, tokens: int) -> Tensor:
    """Two products with GELU between them; `part` is such as "step0.mb0.layer1.mlp"."""
    hidden, inner, where = p.job.hidden, p.job.feed_forward // p.job.tp, _weights_of(part)
    wide = p.matmul(f"{part}.fc1.fwd", [x, p.weights[f"{where}.fc1"]], (tokens, hidden, inner))
    active = p.elementwise(f"{part}.gelu.fwd", [wide], "gelu", passes=8)
    p.saved[f"{part}.wide"], p.saved[f"{part}.active"] = wide, active
    return p.matmul(f"{part}.fc2.fwd", [active, p.weights[f"{where}.fc2"]], (tokens, inner, hidden))


def feed_forward_dgrad(p: Program, part: str, dy: Tensor, tokens: int) -> Tensor:
    """Gradient of `feed_forward`'s input and of its second weight."""
    hidden, inner, where = p.job.hidden, p.job.feed_forward // p.job.tp, _weights_of(part)
    d_active = p.matmul(f"{part}.fc2.dgrad", [dy, p.weights[f"{where}.fc2"]], (tokens, hidden, inner))
    p.weight_grad(
        f"{part}.fc2.wgrad", [p.saved[f"{part}.active"], dy], f"{where}.fc2", (inner, tokens, hidden)
    )
    d_wide = p.elementwise(f"{part}.gelu.bwd", [d_active, p.saved[f"{part}.wide"]], "gelu", passes=10)
    p.saved[f"{part}.d_wide"] = d_wide
    return p.matmul(f"{part}.fc1.dgrad", [d_wide, p.weights[f"{where}.fc1"]], (tokens, inner, hidden))


def feed_forward_wgrad(p: Program, part: str, x: Tensor, tokens: int) -> None:
    """Gradient of `feed_forward`'s first weight: after the input's, so that it overlaps its communication."""
    hidden, inner, where = p.job.hidden, p.job.feed_forward // p.job.tp, _weights_of(part)
    shape = (hidden, tokens, inner)
    p.weight_grad(f"{part}.fc1.wgrad", [x, p.saved[f"{part}.d_wide"]], f"{where}.fc1", shape)


def _weights_of(part: str) -> str:
    """The weights of a part: "layer1.mlp" of "step0.mb0.layer1.mlp"."""
    return ".".join(part.split(".")[-2:])


def to_experts(p: Program, name: str, layer: int, tensor: Tensor) -> Tensor:
    """All-to-all that takes tokens, or their gradients, to their experts.

    Its size is that of the tokens the rank's experts handle, as on the way back: what it gets here is what
    it gives there.
    """
    own_bytes, link_bytes = _expert_bytes(p, layer)
    volume = Volume(own_bytes, link_bytes, own_bytes)
    return p.collective(name, CollectiveType.ALL_TO_ALL, "ep", [tensor], volume)


def from_experts(p: Program, name: str, layer: int, tensor: Tensor) -> Tensor:
    """All-to-all that takes tokens, or their gradients, back from their experts."""
    own_bytes, link_bytes = _expert_bytes(p, layer)
    volume = Volume(own_bytes, link_bytes, EXPERTS_PER_TOKEN * activation_bytes(p.job))
    return p.collective(name, CollectiveType.ALL_TO_ALL, "ep", [tensor], volume)


def _expert_bytes(p: Program, layer: int) -> tuple[int, float]:
    """Bytes of the tokens a rank's experts handle, and what of the busiest rank's comes from elsewhere."""
    tokens = expert_tokens(p.job, layer)
    row_bytes = p.job.hidden * ELEMENT_BYTES
    return tokens[p.place.rank] * row_bytes, max(tokens) * row_bytes * (p.job.ranks - 1) / p.job.ranks


def moe_forward(p: Program, prefix: str, x: Tensor) -> Tensor:
    """Experts and the residual around them."""
    job, layer, s = p.job, prefix.rpartition(".")[2], p.saved
    index = int(layer.removeprefix("layer"))
    tokens = expert_tokens(job, index)[p.place.rank]
    s[f"{prefix}.moe.x"] = x
    normed = p.elementwise(f"{prefix}.moe.norm.fwd", [x, p.weights[f"{layer}.moe.norm"]], "norm", passes=5)
    weight = p.weights[f"{layer}.moe.router"]
    route = p.matmul(f"{prefix}.moe.router.fwd", [normed, weight], (job.tokens, job.hidden, job.ranks))
    s[f"{prefix}.moe.normed"], s[f"{prefix}.moe.route"] = normed, route
    spread_bytes = EXPERTS_PER_TOKEN * normed.size_bytes
    permuted = p.compute(
        f"{prefix}.moe.permute.fwd", [normed, route], Cost(job.tokens, spread_bytes, "permute")
    )
    arrived = s[f"{prefix}.moe.in"] = to_experts(p, f"{prefix}.moe.dispatch.all_to_all.fwd", index, permuted)
    out = feed_forward(p, f"{prefix}.moe", arrived, tokens)
    back = s[f"{prefix}.moe.back"] = from_experts(p, f"{prefix}.moe.combine.all_to_all.fwd", index, out)
    merge = Cost(2 * spread_bytes // ELEMENT_BYTES, normed.size_bytes, "unpermute")
    merged = p.compute(f"{prefix}.moe.unpermute.fwd", [back, route], merge)
    return p.elementwise(f"{prefix}.moe.residual.fwd", [merged, x], "add")


def moe_backward(p: Program, prefix: str, dy: Tensor) -> Tensor:
    """Gradient of the experts' input, of their weights and of the router's."""
    job, layer, s = p.job, prefix.rpartition(".")[2], p.saved
    index = int(layer.removeprefix("layer"))
    tokens = expert_tokens(job, index)[p.place.rank]
    normed, route, back = s[f"{prefix}.moe.normed"], s[f"{prefix}.moe.route"], s[f"{prefix}.moe.back"]
    merge = Cost(2 * back.size_bytes // ELEMENT_BYTES, back.size_bytes, "unpermute")
    d_back = p.compute(f"{prefix}.moe.unpermute.bwd", [dy, back, route], merge)
    d_out = to_experts(p, f"{prefix}.moe.combine.all_to_all.bwd", index, d_back)
    d_in = feed_forward_dgrad(p, f"{prefix}.moe", d_out, tokens)
    d_permuted = from_experts(p, f"{prefix}.moe.dispatch.all_to_all.bwd", index, d_in)
    feed_forward_wgrad(p, f"{prefix}.moe", s[f"{prefix}.moe.in"], tokens)
    d_normed = p.compute(
        f"{prefix}.moe.permute.bwd", [d_permuted, route], Cost(job.tokens, normed.size_bytes, "permute")
    )
    weight = f"{layer}.moe.router"
    shape = (job.tokens, job.ranks, job.hidden)
    d_route = p.matmul(f"{prefix}.moe.router.dgrad", [d_back, p.weights[weight]], shape)
    shape = (job.hidden, job.tokens, job.ranks)
    p.weight_grad(f"{prefix}.moe.router.wgrad", [normed, d_back], weight, shape)
    needs = [d_normed, d_route, s[f"{prefix}.moe.x"], dy]
    return p.norm_backward(f"{prefix}.moe.norm.bwd", f"{layer}.moe.norm", needs)


def embedding_forward(p: Program, prefix: str, tokens: Tensor) -> Tensor:
    """Rows of the embedding table, each rank holding a part of the vocabulary."""
    out_bytes = p.job.tokens * p.job.hidden * ELEMENT_BYTES
    cost = Cost(p.job.tokens * p.job.hidden, out_bytes, "embedding")
    # A lookup touches the rows it takes, not the table.
    rows = Tensor("embedding.rows", out_bytes, p.weights["embedding"].node)
    return leave(
        p, f"{prefix}.embedding.{{}}.fwd", p.compute(f"{prefix}.embedding.fwd", [tokens, rows], cost)
    )


def embedding_backward(p: Program, prefix: str, dy: Tensor) -> None:
    """Gradient of the embedding table."""
    whole = enter(p, f"{prefix}.embedding.{{}}.bwd", dy)
    earlier = [p.grads["embedding"]] if "embedding" in p.grads else []
    cost = Cost(p.job.tokens * p.job.hidden, p.weights["embedding"].size_bytes, "embedding")
    p.grads["embedding"] = p.compute(f"{prefix}.embedding.wgrad", [whole, *earlier], cost)


def head_forward(p: Program, prefix: str, x: Tensor, labels: Tensor) -> None:
    """Logits over the rank's part of the vocabulary, and the loss."""
    job, s = p.job, p.saved
    s[f"{prefix}.head.x"] = x
    normed = p.elementwise(f"{prefix}.head.norm.fwd", [x, p.weights["head.norm"]], "norm", passes=5)
    whole = s[f"{prefix}.head.in"] = enter(p, f"{prefix}.head.{{}}.fwd", normed)
    shape = (job.tokens, job.hidden, job.vocabulary // job.tp)
    logits = s[f"{prefix}.logits"] = p.matmul(
        f"{prefix}.head.proj.fwd", [whole, p.weights["head.proj"]], shape
    )
    stats_bytes = 4 * job.tokens
    stats_cost = Cost(3 * logits.size_bytes // ELEMENT_BYTES, stats_bytes, "softmax")
    stats = p.compute(f"{prefix}.loss.logsumexp.fwd", [logits], stats_cost)
    if job.tp > 1:
        stats = p.collective(f"{prefix}.loss.all_reduce.fwd", CollectiveType.ALL_REDUCE, "tp", [stats])
    s[f"{prefix}.loss"] = p.compute(
        f"{prefix}.loss.cross_entropy.fwd", [stats, labels], Cost(3 * job.tokens, stats_bytes, "loss")
    )


def head_backward(p: Program, prefix: str) -> Tensor:
    """Gradient of the last layer's output, from the loss."""
    job, s = p.job, p.saved
    part = job.vocabulary // job.tp
    d_logits = p.elementwise(
        f"{prefix}.loss.cross_entropy.bwd", [s[f"{prefix}.logits"], s[f"{prefix}.loss"]], "loss", passes=3
    )
    shape = (job.tokens, part, job.hidden)
    d_in = p.matmul(f"{prefix}.head.proj.dgrad", [d_logits, p.weights["head.proj"]], shape)
    d_in = leave(p, f"{prefix}.head.{{}}.bwd", d_in)
    shape = (job.hidden, job.tokens, part)
    p.weight_grad(f"{prefix}.head.proj.wgrad", [s[f"{prefix}.head.in"], d_logits], "head.proj", shape)
    return p.norm_backward(f"{prefix}.head.norm.bwd", "head.norm", [d_in, s[f"{prefix}.head.x"]])


# ---------------------------------------------------------------------------------------------------
# A training step


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[str, int]]:
    """The order in which a pipeline stage works through its micro-batches.

    Example:
        >>> list(one_forward_one_backward(0, 2, 2))
        [('forward', 0), ('forward', 1), ('backward', 0), ('backward', 1)]
    """
    ahead = min(stages - 1 - stage, micro_batches)
    for number in range(ahead):
        yield "forward", number
    for number in range(micro_batches):
        if number + ahead < micro_batches:
            yield "forward", number + ahead
        yield "backward", number


def write_program(job: Job, place: Place) -> list[Node]:
    """The nodes of a rank: its parameters, then all its steps."""
    p = Program(job, place)
    for name, elements in parameters(job, place).items():
        p.weights[name] = Tensor(f"{name}.weight", elements * ELEMENT_BYTES)
    _parameter_node(p)
    for number in range(job.steps):
        step = f"step{number}"
        inputs = _batch(p, step)
        for phase, micro_batch in one_forward_one_backward(place.pp, job.pp, job.micro_batches):
            prefix = f"{step}.mb{micro_batch}"
            tag = 1000 * number + 10 * micro_batch
            if phase == "forward":
                _forward(p, prefix, tag, inputs)
            else:
                _backward(p, prefix, tag, last=micro_batch == job.micro_batches - 1)
        _optimizer(p, step)
    return p.nodes


def _parameter_node(p: Program) -> None:
    """Append the node that tells what was run."""
    job = p.job
    fields = (
        "layers",
        "hidden",
        "feed_forward",
        "heads",
        "vocabulary",
        "sequence",
        "batch",
        "micro_batches",
        "steps",
    )
    node = Node(1, "job.parameters", NodeType.METADATA, "", 0)
    node.start_us = FIRST_START_US
    node.attrs = [(name, ValueKind.INT64, int(getattr(job, name))) for name in fields]
    shape = f"dp{job.dp} tp{job.tp} pp{job.pp}" + (f" ep{job.ranks}" if job.hot_expert is not None else "")
    node.attrs += [
        ("parallelism", ValueKind.STRING, shape),
        ("pipeline_stage", ValueKind.INT64, p.place.pp),
        ("sequence_parallel", ValueKind.BOOL, job.sequence_parallel),
    ]
    p.nodes.append(node)


def _batch(p: Program, step: str) -> Tensor:
    """The step's samples on the device: the first stage wants their tokens, the last their labels."""
    job = p.job
    size_bytes = 8 * job.tokens * job.micro_batches
    sample = p.compute(f"{step}.batch.next", [], Cost(job.tokens, size_bytes, "dataloader"), stream="host")
    return p.copy(f"{step}.batch.load", NodeType.MEM_LOAD, sample)


def _forward(p: Program, prefix: str, tag: int, inputs: Tensor) -> None:
    """A stage's forward pass of a micro-batch."""
    job, stage = p.job, p.place.pp
    if stage == 0:
        x = embedding_forward(p, prefix, inputs)
    else:
        x = p.receive(f"{prefix}.pipeline.recv.fwd", stage - 1, tag, activation_bytes(job))
    for layer in stage_layers(job, stage):
        where = f"{prefix}.layer{layer}"
        p.saved[f"{where}.x"] = x
        if layer == stage_layers(job, stage)[0]:
            p.saved[f"{where}.x"] = p.copy(f"{where}.activations.offload", NodeType.MEM_STORE, x)
        x = attention_forward(p, where, x)
        x = moe_forward(p, where, x) if job.hot_expert is not None else mlp_forward(p, where, x)
    if stage == job.pp - 1:
        head_forward(p, prefix, x, inputs)
    else:
        p.send(f"{prefix}.pipeline.send.fwd", stage + 1, tag, x)


def _backward(p: Program, prefix: str, tag: int, *, last: bool) -> None:
    """A stage's backward pass of a micro-batch; the last one sends off gradients as they are ready."""
    job, stage = p.job, p.place.pp
    step, first_layer = prefix.partition(".")[0], stage_layers(job, stage)[0]
    if stage == job.pp - 1:
        dx = head_backward(p, prefix)
        if last:
            p.due.append((step, "head"))
    else:
        dx = p.receive(f"{prefix}.pipeline.recv.bwd", stage + 1, tag + 1, activation_bytes(job))
    saved = f"{prefix}.layer{first_layer}"
    p.saved[f"{saved}.x"] = p.copy(
        f"{saved}.activations.fetch", NodeType.MEM_LOAD, p.saved[f"{saved}.x"], after="compute"
    )
    part, part_backward = ("moe", moe_backward) if job.hot_expert is not None else ("mlp", mlp_backward)
    for layer in reversed(stage_layers(job, stage)):
        for name, backward in ((part, part_backward), ("attn", attention_backward)):
            dx = backward(p, f"{prefix}.layer{layer}", dx)
            if last:
                p.due.append((step, f"layer{layer}.{name}"))
    if stage == 0:
        embedding_backward(p, prefix, dx)
        if last:
            p.due.append((step, "embedding"))
    else:
        p.send(f"{prefix}.pipeline.send.bwd", stage - 1, tag + 1, dx)
    reduce_gradients(p)


def _optimizer(p: Program, step: str) -> None:
    """Append the gradients' norm over all ranks and the update of every weight."""
    job = p.job
    gradients = list(dict.fromkeys(p.reduced.values()))
    elements = sum(parameters(job, p.place).values())
    norm = p.compute(f"{step}.grad_norm.local", gradients, Cost(2 * elements, GRAD_NORM_BYTES, "norm"))
    norm = p.collective(f"{step}.grad_norm.all_reduce", CollectiveType.ALL_REDUCE, "world", [norm])
    rate = p.compute(f"{step}.optimizer.learning_rate", [], Cost(64, 8, "schedule"), stream="host")
    scale = p.compute(f"{step}.optimizer.clip", [norm, rate], Cost(GRAD_NORM_BYTES, 8, "clip"))
    for part in dict.fromkeys(name.partition(".")[0] for name in p.weights):
        names = [name for name in p.weights if name.partition(".")[0] == part]
        size_bytes = sum(p.weights[name].size_bytes for name in names)
        flops = ADAM_FLOPS * size_bytes // ELEMENT_BYTES
        needs = [
            Tensor(f"{part}.state", (ADAM_BYTES // ELEMENT_BYTES - 1) * size_bytes),
            *dict.fromkeys(p.reduced[name] for name in names),
            scale,
        ]
        made = p.compute(f"{step}.optimizer.{part}.adam", needs, Cost(flops, size_bytes, "adam"))
        for name in names:
            p.weights[name] = Tensor(f"{name}.weight", p.weights[name].size_bytes, made.node)
    p.grads.clear()
    p.reduced.clear()
    p.saved.clear()


# ---------------------------------------------------------------------------------------------------
# All ranks together, on the machine


@dataclass(slots=True)
class Task:
    """Nodes that run as one: a node by itself, the members of a collective, the two ends of a transfer.

    Attributes:
        members: Index of the rank, and the node.
        order: Place in the program, which decides between tasks that could start at once.
        waits: Tasks to finish first.
        then: Tasks that wait for this one.
    """

    key: str
    members: list[tuple[int, Node]]
    order: int
    duration_us: int = 0
    waits: int = 0
    then: list[Task] = field(default_factory=list)


def run(job: Job, programs: Sequence[list[Node]]) -> None:
    """Give every node its start and duration.

    Each rank has one lane for each kind of work. A task starts when all its members wait for nothing more and
    their lanes are free, the earliest of the program first.
    """
    tasks = _tasks(job, programs)
    ready = sorted((task.order, task.key) for task in tasks.values() if not task.waits)
    running: list[tuple[int, str]] = []
    busy: set[tuple[int, str]] = set()
    now_us, done = FIRST_START_US, 0
    while ready or running:
        waiting = []
        for order, key in ready:
            task = tasks[key]
            lanes = {(rank, node.lane) for rank, node in task.members}
            if lanes & busy:
                waiting.append((order, key))
                continue
            busy |= lanes
            for _, node in task.members:
                node.start_us, node.duration_us = now_us, task.duration_us
            heapq.heappush(running, (now_us + task.duration_us, key))
        ready = waiting
        now_us = running[0][0]
        while running and running[0][0] == now_us:
            task = tasks[heapq.heappop(running)[1]]
            done += 1
            busy -= {(rank, node.lane) for rank, node in task.members}
            for later in task.then:
                later.waits -= 1
                if not later.waits:
                    ready.append((later.order, later.key))
        ready.sort()
    assert done == len(tasks), f"{job.name}: {len(tasks) - done} tasks wait for each other"


def _tasks(job: Job, programs: Sequence[list[Node]]) -> dict[str, Task]:
    """The tasks of all ranks, by key, with their durations and what they wait for."""
    tasks: dict[str, Task] = {}
    of: dict[tuple[int, int], Task] = {}
    for rank, nodes in enumerate(programs):
        for node in nodes:
            if node.type == NodeType.METADATA:
                continue
            key = node.meeting or f"{rank} {node.id}"
            task = tasks.setdefault(key, Task(key, [], node.id))
            task.members.append((rank, node))
            of[rank, node.id] = task
    for task in tasks.values():
        task.duration_us = _duration_us(job, task)
        before = {of[rank, dep].key for rank, node in task.members for dep in (*node.data, *node.ctrl)}
        task.waits = len(before)
        for key in sorted(before):
            tasks[key].then.append(task)
    return tasks


def _duration_us(job: Job, task: Task) -> int:
    """How long a task takes: its work, more or less."""
    rank, node = task.members[0]
    stage = rank // (job.dp * job.tp)
    who = f"{stage}" if job.equal_ranks else task.key
    mark = blake2b(f"{job.name} {who} {node.name}".encode(), digest_size=4).digest()
    share = int.from_bytes(mark, "big") / 2**32
    work_us = max(node.work_us for _, node in task.members)
    return max(1, round(work_us * (1 + JITTER * (2 * share - 1))))


# ---------------------------------------------------------------------------------------------------
# Files


def job_files(job: Job) -> Iterator[tuple[str, bytes]]:
    """The files of a job, with their names."""
    spots = places(job)
    programs = [write_program(job, place) for place in spots]
    run(job, programs)
    for place, nodes in zip(spots, programs, strict=True):
        yield f"{job.name}.{place.rank}.et", b"".join(_records(job, place, nodes))
    groups = {name: list(members) for name, members in comm_groups(job).items()}
    yield f"{job.name}.json", (json.dumps(groups) + "\n").encode()


def _records(job: Job, place: Place, nodes: Iterable[Node]) -> Iterator[bytes]:
    """The records of a rank's file, metadata first."""
    types = load_schema()
    head = types.metadata(version=SCHEMA_VERSION)
    _set_attribute(head.attr.add(), ("schema", ValueKind.STRING, SCHEMA_NAME))
    _set_attribute(head.attr.add(), ("rank", ValueKind.INT64, place.rank))
    _set_attribute(head.attr.add(), ("world_size", ValueKind.INT64, job.ranks))
    yield _frame(head.SerializeToString(deterministic=True))
    for node in nodes:
        record = types.node(id=node.id, name=node.name, type=int(node.type))
        record.ctrl_deps.extend(node.ctrl)
        record.data_deps.extend(node.data)
        record.start_time_micros, record.duration_micros = node.start_us, node.duration_us
        for attr in node.attrs:
            _set_attribute(record.attr.add(), attr)
        yield _frame(record.SerializeToString(deterministic=True))


def _set_attribute(message: Any, attr: tuple[str, ValueKind, Any]) -> None:
    name, kind, value = attr
    message.name = name
    if kind.is_list:
        values = getattr(message, get_value_field(kind))
        # An empty list is written too, as one.
        values.SetInParent()
        values.values.extend(value)
    else:
        setattr(message, get_value_field(kind), value)


def _frame(record: bytes) -> bytes:
    """A record with its length before it, seven bits a byte, the lowest first."""
    length, prefix = len(record), bytearray()
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*prefix, length)) + record


def pack(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip archive that is the same bytes whenever and wherever it is written."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files:
            entry = zipfile.ZipInfo(name, ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return whole.getvalue()


def main(into: Path) -> None:
    """Write every sample job into a folder."""
    into.mkdir(parents=True, exist_ok=True)
    for job in JOBS:
        content = pack(job_files(job))
        (into / f"{job.name}.zip").write_bytes(content)
        print(f"{job.name}.zip  {job.ranks} ranks  {len(content):,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the sample jobs inside the package.")
    parser.add_argument("into", nargs="?", type=Path, default=ROOT / "studio" / "samples", metavar="FOLDER")
    main(parser.parse_args().into)
