"""How a job divides a model and its batch among its ranks, and what may be chosen of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from studio.generation.efficiency import ALIGNED_ELEMENTS
from studio.generation.models import Model

Schedule = Literal["1f1b", "gpipe", "interleaved", "zb-h1"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
ContextKind = Literal["ring", "all-to-all"]
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)
Recompute = Literal["none", "selective", "full"]
RECOMPUTES: tuple[Recompute, ...] = get_args(Recompute)
Attention = Literal["flash", "unfused"]
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
GradientType = Literal["bf16", "fp32"]
GRADIENT_TYPES: tuple[GradientType, ...] = get_args(GradientType)
OptimizerName = Literal["adam", "adam-bf16", "adam-8bit", "adam-bf16-only", "sgd"]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
"""Adam with both moments in fp32, in bf16 or in 8 bits, or SGD with momentum in fp32, each with a copy of the weights in fp32; with bf16
only, Adam without the copy."""
Offload = Literal["none", "optimizer", "activations", "all"]
OFFLOADS: tuple[Offload, ...] = get_args(Offload)
HOST_GBYTES = 64.0
"""GB/s of a direction of PCIe 5.0 × 16, as data sheets of H100 give it (128 GB/s both together)."""
DataType = Literal["bf16", "fp8"]
DATA_TYPES: tuple[DataType, ...] = get_args(DataType)
OPERAND_BYTES = {"bf16": 2, "fp8": 1}
"""Bytes of an element that a matrix product multiplies; scales of fp8 are not counted."""
ZERO_STAGES = (0, 1, 2, 3)
AXES = ("tp", "cp", "ep", "dp", "pp")
"""What ranks differ in, in the default order of Megatron-LM (`--order` of its `RankGenerator`): adjacent ones first."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of ranks.

    Experts are divided among `ep` adjacent ranks of the `cp` × `dp` that hold the same other weights, each by `tp` as all else is.

    Attributes:
        tp, dp, pp: Tensor, data and pipeline parallel degrees.
        stage_layers: Layers of each pipeline stage.
        batch: Sequences of a step, of all replicas together.
        micro_batch: Sequences of a micro-batch.
        sequence: Tokens of a sequence.
        zero: 0 replicates all, 1 shards the optimizer, 2 gradients as well, 3 weights as well (FSDP).
        sequence_parallel: Whether norms and residuals are divided along the sequence among tensor parallel ranks.
        schedule: Order of micro-batches in a pipeline.
        steps: Training steps.
        batch_from: Where the batch is from, in words.
        recompute: What the backward pass computes again in place of keeping it: nothing, attention alone (selective), or whole layers
            from their inputs (full), as Korthikanti et al., 2022, name them.
        attention: Whether the scores of attention never reach memory (as in FlashAttention), or are written, read and kept.
        grad_overlap: Whether gradients are summed while the backward pass goes on, not after it.
        bucket: Bytes of gradients that are summed at once; None sums each layer's where they overlap, else a chunk's all together.
        grad_dtype: Data type in which gradients are kept and summed.
        virtual_stages: Chunks of layers of each stage, of an interleaved schedule.
        virtual_layers: Layers of each chunk in the order of the model; empty where a stage has one.
        shard: Ranks among which ZeRO divides; None for all that hold the same weights, else others hold the same shards (HSDP).
        prefetch: Units whose weights ZeRO-3 gathers ahead of the one at work.
        order: Axes of `AXES` in which ranks are numbered, adjacent ones first.
        cp: Context parallel degree: ranks that divide each sequence.
        cp_kind: How attention sees the whole of it: keys and values go round a ring, or heads are divided in its place.
        ep: Expert parallel degree: ranks that divide the experts of a layer.
        capacity_factor: Tokens that each expert takes, as a multiple of its even share, padded or dropped; None for what is routed.
        expert_skew: How unevenly tokens are routed: the n-th most wanted expert of a layer has a share of n ^ -skew.
        seed: Which experts are wanted.
        dtype: Data type of what the matrix products of layers multiply.
        optimizer: What the optimizer keeps.
        reduce_dtype: Data type in which gradients are summed; None for that in which they are kept.
        offload: What host memory holds: the optimizer, which runs there, activations of layers between their passes, or both.
        host_gbytes: GB/s between a rank and host memory, in each direction, and of the optimizer there.
    """

    tp: int
    dp: int
    pp: int
    stage_layers: tuple[int, ...]
    batch: int
    micro_batch: int
    sequence: int
    zero: int = 0
    sequence_parallel: bool = False
    schedule: Schedule = "1f1b"
    steps: int = 1
    batch_from: str = "given"
    recompute: Recompute = "none"
    attention: Attention = "flash"
    grad_overlap: bool = True
    bucket: int | None = None
    grad_dtype: GradientType = "bf16"
    virtual_stages: int = 1
    virtual_layers: tuple[int, ...] = ()
    shard: int | None = None
    prefetch: int = 1
    order: tuple[str, ...] = AXES
    cp: int = 1
    cp_kind: ContextKind = "ring"
    ep: int = 1
    capacity_factor: float | None = None
    expert_skew: float = 0.0
    seed: int = 1
    dtype: DataType = "bf16"
    optimizer: OptimizerName = "adam"
    reduce_dtype: GradientType | None = None
    offload: Offload = "none"
    host_gbytes: float = HOST_GBYTES

    @property
    def ranks(self) -> int:
        """How many ranks the job has."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def copies(self) -> int:
        """How many ranks hold the same weights: context and data parallel ones; those of experts, fewer (`holders`)."""
        return self.cp * self.dp

    def holders(self, group: str) -> int:
        """Return how many ranks hold the same weights: `dp` those of all but experts, `edp` those of experts."""
        return self.copies // self.ep if group == "edp" else self.copies

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a replica in a step."""
        return self.batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch that a rank works on: context parallel ranks divide each sequence."""
        return self.micro_batch * self.sequence // self.cp

    @property
    def shards(self) -> int:
        """Ranks among which ZeRO divides weights that all context and data parallel ranks hold."""
        return self.shard or self.copies

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient."""
        return 4 if self.grad_dtype == "fp32" else 2

    @property
    def reduced_bytes(self) -> int:
        """Bytes of a gradient while it is summed."""
        return 4 if (self.reduce_dtype or self.grad_dtype) == "fp32" else 2

    @property
    def offloads_optimizer(self) -> bool:
        """Whether the optimizer is in host memory."""
        return self.offload in ("optimizer", "all")

    @property
    def offloads_activations(self) -> bool:
        """Whether activations of layers are in host memory between their passes."""
        return self.offload in ("activations", "all")

    def chunk_layers(self, stage: int) -> tuple[range, ...]:
        """Return the layers of each chunk of a stage.

        Example:
            >>> Layout(1, 1, 2, (2, 2), 2, 1, 8, virtual_stages=2, virtual_layers=(1, 1, 1, 1)).chunk_layers(1)
            (range(1, 2), range(3, 4))
        """
        split = self.virtual_layers or self.stage_layers
        ends = tuple(accumulate(split))
        return tuple(range(ends[at] - split[at], ends[at]) for at in range(stage, len(split), self.pp))

    @property
    def name(self) -> str:
        """Its degrees, such as `tp=8,dp=4,pp=2`; `cp` and `ep` where they are above 1."""
        more = "".join(f",{key}={value}" for key, value in (("cp", self.cp), ("ep", self.ep)) if value > 1)
        return f"tp={self.tp},dp={self.dp},pp={self.pp}{more}"

    def vocabulary(self, model: Model) -> int:
        """Return the vocabulary; one that tensor parallel ranks do not share evenly is padded, so that each has a multiple of 8.

        Megatron-LM pads so too, to multiples of 128: tensor cores take 8 elements at once.
        """
        if model.vocabulary % self.tp == 0:
            return model.vocabulary
        shared = ALIGNED_ELEMENTS * self.tp
        return -(-model.vocabulary // shared) * shared
