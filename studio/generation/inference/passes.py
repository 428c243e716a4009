"""The forward pass of a step of inference on one rank, node by node, with its reads and writes of the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from studio.generation.efficiency import Work
from studio.generation.inference.batches import Load
from studio.generation.inference.counts import (
    ACTIVATION_BYTES,
    BYTES,
    Precision,
    attention_flop,
    cache_shares,
    cached_width,
    layer_cache_bytes,
)
from studio.generation.passes import Passes
from studio.generation.transformer import keys, outputs, queries, values
from studio.operators.roofline import peak
from studio.trace import CollectiveType

_SAMPLING = 3
"""Operations of a logit in softmax and in the choice of a token, as in the loss of a training step."""

_ONE = Load(1, 1, 1, 1)


@dataclass(slots=True)
class StepPasses(Passes):
    """The forward passes of a rank's parts over a batch.

    Attributes:
        load: What the step computes; its new tokens are the tokens of the layout.
        precision: Data types.
        cached: The node that wrote keys and values of the layer at work.
    """

    load: Load = _ONE
    precision: Precision = field(default_factory=Precision)
    cached: int = 0

    def matmul(self, name: str, after: Sequence[int], m: int, k: int, n: int) -> int:
        """Append a product of an (m, k) matrix of activations and a (k, n) matrix of a layer's weights."""
        return self.product(name, after, (m, k, n), self.precision.weight_bytes)

    def product(
        self,
        name: str,
        after: Sequence[int],
        shape: tuple[int, int, int],
        size: int,
        matrices: float = 1.0,
    ) -> int:
        """Append a product of activations and weights.

        Args:
            name: Its name.
            after: The nodes it reads from.
            shape: Its m, k and n.
            size: Bytes of a weight.
            matrices: How many matrices of this shape are read, each for some of the m rows.
        """
        m, k, n = shape
        moved = ACTIVATION_BYTES * (m * k + m * n) + round(size * matrices * k * n)
        node = self.program.compute(name, after, 2 * m * k * n, moved, "matmul")
        speed = self.program.speed
        if speed is not None and size == BYTES["fp8"]:
            # Units of a GPU for fp8 are faster: as many operations take the time of fewer in bf16.
            rates = [peak(speed.gpu, kind) or 1.0 for kind in ("bf16", "fp8")]
            work = Work(round(2 * m * k * n * rates[0] / rates[1]), moved)
            self.program.nodes[-1]["duration_micros"] = speed.micros(work)
        return node

    def _attention(self, name: str, after: Sequence[int], times: int, layer: int) -> int:
        """Append what writes new keys and values into the cache, and attention of new tokens over all that it holds.

        Heads that share keys and values read them once (grouped-query attention), and scores never leave the chip. All layers attend
        to all tokens.
        """
        del layer
        model, tp, load = self.model, self.layout.tp, self.load
        each, shares = layer_cache_bytes(model, self.precision), cache_shares(model, tp)
        elements = cached_width(model) * load.tokens
        self.cached = self.program.compute(
            f"{name.replace('.core.', '.cache.')}", after, elements // shares,
            (ACTIVATION_BYTES * elements + each * load.tokens) // shares, "other",
        )  # fmt: skip
        flop = times * attention_flop(model, load) // tp
        moved = ACTIVATION_BYTES * load.tokens * (queries(model) + outputs(model)) // tp
        moved += each * load.cached // shares
        if model.kv_rank:
            # Keys and values that are made of what was cached before are written and read.
            moved += 2 * ACTIVATION_BYTES * load.behind * (keys(model) + values(model)) // tp
        return self.program.compute(name, [*after, self.cached], flop, moved, "attention")

    def embedding_forward(self, at: str, ready: int, waits: Sequence[int] = ()) -> int:
        """Append the embedding, which waits for other nodes as well; returns the node that makes the residual stream."""
        node = self.elementwise(f"{at}.embedding.fwd", [ready, *waits], self.width, 1, 2)
        return self.leave(f"{at}.embedding", "fwd", node)

    def sample(self, at: str, x: int) -> int:
        """Append the output layer of the tokens whose logits are asked for, and the choice of the next token of each.

        Tensor parallel ranks gather the logits, and each of them chooses.
        """
        model, tp = self.model, self.layout.tp
        vocabulary, count = self.layout.vocabulary(model), self.load.logits
        part = f"{at}.head"
        normed = self.elementwise(f"{part}.norm.fwd", [x], count * model.hidden, 5, 2)
        shape = count, model.hidden, vocabulary // tp
        node = self.product(f"{part}.logits.fwd", [normed], shape, ACTIVATION_BYTES)
        if tp > 1:
            size = ACTIVATION_BYTES * count * vocabulary // tp
            node = self.program.collective(
                f"{part}.logits.all_gather.fwd", "tp", CollectiveType.ALL_GATHER, [node], size
            )
        return self.elementwise(f"{part}.sample.fwd", [node], count * vocabulary, _SAMPLING, 1)
