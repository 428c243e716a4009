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
    compute_cached_width,
    count_attention_flop,
    count_cache_shares,
    count_latent_flop,
    count_layer_cache_bytes,
)
from studio.generation.passes import Passes
from studio.generation.transformer import (
    compute_key_width,
    compute_output_width,
    compute_query_width,
    compute_value_width,
    list_up_products,
)
from studio.operators.roofline import find_peak
from studio.trace import CollectiveType

_SAMPLING = 3
"""Operations of a logit in softmax and in the choice of a token, as in the loss of a training step."""

_ONE = Load(1, 1, 1, 1)


@dataclass(slots=True)
class StepPasses(Passes):
    """The forward passes of a rank's parts over a batch.

    Multi-head latent attention has both of its forms in a step that decodes and reads prompts: see `_append_latent` and `_append_expanded`.

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
            rates = [find_peak(speed.gpu, kind) or 1.0 for kind in ("bf16", "fp8")]
            work = Work(round(2 * m * k * n * rates[0] / rates[1]), moved)
            self.program.nodes[-1]["duration_micros"] = speed.micros(work)
        return node

    def _append_attention(self, name: str, after: Sequence[int], times: int, layer: int) -> int:
        """Append what writes new keys and values into the cache, and attention of new tokens over all that it holds.

        Heads that share keys and values read them once (grouped-query attention), and scores never leave the chip. All layers attend
        to all tokens.
        """
        del layer
        model, tp, load = self.model, self.layout.tp, self.load
        self._write_cache(name.replace(".core.", ".cache."), after)
        flop = times * count_attention_flop(model, load) // tp
        moved = (
            ACTIVATION_BYTES * load.tokens * (compute_query_width(model) + compute_output_width(model)) // tp
        )
        moved += count_layer_cache_bytes(model, self.precision) * load.cached // count_cache_shares(model, tp)
        return self.program.compute(name, [*after, self.cached], flop, moved, "attention")

    def _write_cache(self, name: str, after: Sequence[int]) -> None:
        """Append what writes new keys and values, or what they are compressed to, into the cache."""
        model, tokens, shares = self.model, self.load.tokens, count_cache_shares(self.model, self.layout.tp)
        elements = compute_cached_width(model) * tokens
        moved = ACTIVATION_BYTES * elements + count_layer_cache_bytes(model, self.precision) * tokens
        self.cached = self.program.compute(name, after, elements // shares, moved // shares, "other")

    def append_attended(self, part: str, layer: int, whole: int) -> int:
        """Append queries, keys and values of what a layer's attention is given, and attention; returns the node that makes its result."""
        model, load = self.model, self.load
        if not model.kv_rank:
            # Named, since a class with slots has no super() without arguments.
            return Passes.append_attended(self, part, layer, whole)
        first = list_up_products(model)[0]
        query = self.matmul(
            f"{part}.{first.name}.fwd", [whole], load.tokens, first.rows, first.columns // self.layout.tp
        )
        self._write_cache(f"{part}.cache.fwd", [whole])
        if load.reading.tokens:
            query = self._append_expanded(part, [query, self.cached])
        return self._append_latent(part, [query, self.cached]) if load.decoding.tokens else query

    def _append_expanded(self, part: str, after: Sequence[int]) -> int:
        """Append attention of prompts: to keys and values, made of all that the cache then holds of them, which are written and read."""
        model, tp, read = self.model, self.layout.tp, self.load.reading
        up = list_up_products(model)[1]
        expansion = self.matmul(f"{part}.{up.name}.fwd", after, read.cached, up.rows, up.columns // tp)
        width = read.tokens * (compute_query_width(model) + compute_output_width(model)) + read.cached * (
            compute_key_width(model) + compute_value_width(model)
        )
        flop = 2 * read.pairs * (compute_query_width(model) + compute_output_width(model)) // tp
        moved = ACTIVATION_BYTES * width // tp
        return self.program.compute(f"{part}.core.fwd", [*after, expansion], flop, moved, "attention")

    def _append_latent(self, part: str, after: Sequence[int]) -> int:
        """Append attention of tokens that decode to what the cache holds, as it is, with the matrix that would expand it in two.

        What makes keys of it is applied to queries, what makes values of it to the results: a matrix of each head (DeepSeek-V2, 2024,
        section 2.1.2).
        """
        model, own, decoding = self.model, self.model.heads // self.layout.tp, self.load.decoding
        rows, size = decoding.tokens * own, self.precision.weight_bytes
        shape = rows, model.head_size, model.kv_rank
        query = self.product(f"{part}.q_absorb.fwd", after, shape, size, matrices=own)
        moved = ACTIVATION_BYTES * rows * (2 * model.kv_rank + model.rope_size)
        moved += count_layer_cache_bytes(model, self.precision) * decoding.cached
        flop = count_latent_flop(model, self.load) // self.layout.tp
        node = self.program.compute(f"{part}.latent.fwd", [*after, query], flop, moved, "attention")
        shape = rows, model.kv_rank, compute_output_width(model) // model.heads
        return self.product(f"{part}.v_absorb.fwd", [node], shape, size, matrices=own)

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
