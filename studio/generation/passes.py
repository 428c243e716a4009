"""Forward and backward passes of the parts of a transformer on one rank, node by node.

With sequence parallelism (Korthikanti et al., 2022) an all-gather stands before each tensor parallel part and a reduce-scatter
after it, in both passes, and the backward pass gathers the input of the first product again; without it an all-reduce follows
each part in the forward pass and precedes it in the backward pass. In multi-head latent attention every rank compresses its own
tokens, and what is gathered is compressed, as in Megatron-LM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from studio.generation.context import ELEMENT_BYTES, append_attention
from studio.generation.efficiency import ALIGNED_ELEMENTS
from studio.generation.layout import OPERAND_BYTES, Layout
from studio.generation.models import Model
from studio.generation.program import Program
from studio.generation.routing import count_own_tokens
from studio.generation.transformer import (
    Product,
    compute_entering_width,
    compute_key_width,
    compute_output_width,
    compute_query_width,
    compute_value_width,
    list_down_products,
    list_feed_forward_products,
    list_up_products,
)
from studio.trace import CollectiveType

_NORM, _NORM_BACK, _ACTIVATION, _ACTIVATION_BACK = 5, 8, 8, 10
"""Operations of an element, as the compute nodes of norms and activation functions count them."""
_SCORE_BYTES = {1: (8, 5), 2: (14, 5)}
"""Bytes of a score in unfused attention, and of dropout on it, by pass. Forward: it is written, read and written by the softmax,
read by the product; backward: its gradient is written, the softmax reads two and writes one, three products read one each."""
_UNFUSED_KERNELS = {1: 6, 2: 10}
"""Kernels of unfused attention, by pass: two products with the copies around them, softmax and dropout; backward twice the products."""
_FUSED_HEADS, _PLAIN_SOFTMAX = 4, 5
"""Megatron-LM's fused softmax (`fused_softmax.py`) takes multiples of so many heads of a micro-batch; else its scale, mask and casts
are so many kernels more."""
_LOSS = (7, 11)
"""Tensors of 2 bytes that the loss and its backward pass read and write: PyTorch's cross-entropy in 4 bytes, kernel by kernel: the cast,
the logarithm of the softmax, the choice of the target; backward their gradients, that of the choice filled first."""
_IN_BF16 = (".router.", ".logits.")
"""Products that fp8 leaves out, as Transformer Engine and DeepSeek-V3 do."""
LOSS_REDUCTIONS = ("max", "target", "sum")
"""What Megatron-LM's cross-entropy over a divided vocabulary reduces: 4 bytes of each token every time."""
LOSS_BYTES = 4


@dataclass(slots=True)
class Passes:
    """The passes of a rank's parts.

    Attributes:
        program: Where nodes go to.
        model, layout: What is computed, and how it is divided.
        place: The rank's place in its expert parallel group.
        weights: The nodes that made the gradients of each unit's weights, of the pass at work.
        later: Where products that make gradients of weights go to, so that a later pass makes them; None makes them at once.
    """

    program: Program
    model: Model
    layout: Layout
    place: int = 0
    weights: dict[str, list[int]] = field(default_factory=dict)
    later: list[Callable[[], None]] | None = None

    @property
    def width(self) -> int:
        """Elements of a micro-batch's residual stream."""
        return self.layout.tokens * self.model.hidden

    @property
    def own(self) -> int:
        """Elements of it that the rank holds outside of tensor parallel parts."""
        return self.width // (self.layout.tp if self.layout.sequence_parallel else 1)

    def matmul(self, name: str, after: Sequence[int], m: int, k: int, n: int) -> int:
        """Append a product of an (m, k) and a (k, n) matrix; that of a weight's gradient makes that of its bias as well."""
        dtype = self.dtype(name)
        moved = OPERAND_BYTES[dtype] * (m * k + k * n) + ELEMENT_BYTES * m * n
        aligned = not (m % ALIGNED_ELEMENTS or k % ALIGNED_ELEMENTS or n % ALIGNED_ELEMENTS)
        kernels = 2 if self.model.biases and name.endswith("wgrad") else 1
        flop = 2 * m * k * n
        return self.program.compute(
            name, after, flop, moved, "matmul", kernels=kernels, aligned=aligned, dtype=dtype
        )

    def dtype(self, name: str) -> str:
        """Return the data type of what a product multiplies: routers and the output layer stay in bf16."""
        return "bf16" if any(part in name for part in _IN_BF16) else self.layout.dtype

    def weight(self, unit: str, make: Callable[[], list[int]]) -> None:
        """Append what makes gradients of a unit's weights, or leave it to a later pass.

        Args:
            unit: Whose weights they are.
            make: Appends the products and returns their nodes.
        """

        def append() -> None:
            self.weights[unit] += make()

        if self.later is None:
            append()
        else:
            self.later.append(append)

    def elementwise(
        self, name: str, after: Sequence[int], elements: int, passes: int, tensors: int, *, kernels: int = 1
    ) -> int:
        """Append a computation of so many operations an element, over so many tensors read and written."""
        moved = ELEMENT_BYTES * tensors * elements
        return self.program.compute(name, after, passes * elements, moved, "other", kernels=kernels)

    def enter(self, part: str, way: str, node: int, width: int | None = None) -> int:
        """Append what makes the sequence whole before a tensor parallel part; of tokens of a width, that of the stream unless said."""
        if not self.layout.sequence_parallel:
            return node
        size = ELEMENT_BYTES * count_own_tokens(self.layout) * (width or self.model.hidden)
        return self.program.collective(
            f"{part}.all_gather.{way}", "tp", CollectiveType.ALL_GATHER, [node], size
        )

    def again(self, part: str, width: int | None = None) -> int:
        """Append what gathers the input of a first product again for the gradient of its weight."""
        if not self.layout.sequence_parallel:
            return 0
        after = [self.program.last["compute"]]
        size = ELEMENT_BYTES * count_own_tokens(self.layout) * (width or self.model.hidden)
        return self.program.collective(
            f"{part}.input.all_gather.bwd", "tp", CollectiveType.ALL_GATHER, after, size
        )

    def leave(self, part: str, way: str, node: int, width: int | None = None) -> int:
        """Append the sum over tensor parallel ranks after such a part."""
        if self.layout.tp == 1:
            return node
        scatter = self.layout.sequence_parallel
        kind = CollectiveType.REDUCE_SCATTER if scatter else CollectiveType.ALL_REDUCE
        word = "reduce_scatter" if scatter else "all_reduce"
        size = ELEMENT_BYTES * self.layout.tokens * (width or self.model.hidden)
        return self.program.collective(f"{part}.{word}.{way}", "tp", kind, [node], size)

    def embedding_forward(self, at: str, ready: int) -> int:
        """Append the embedding; returns the node that makes the residual stream."""
        node = self.elementwise(f"{at}.embedding.fwd", [ready], self.width, 1, 2, kernels=3)
        return self.leave(f"{at}.embedding", "fwd", node)

    def embedding_backward(self, at: str, grad: int) -> int:
        """Append the gradient of the embedding, or leave it to a later pass; returns the gradient it is given."""
        self.weights["embedding"] = []

        def make() -> list[int]:
            whole = self.enter(f"{at}.embedding", "bwd", grad)
            return [self.elementwise(f"{at}.embedding.wgrad", [whole], self.width, 1, 2, kernels=3)]

        self.weight("embedding", make)
        return grad

    def attention_forward(self, at: str, layer: int, x: int, ready: int) -> int:
        """Append the forward pass of a layer's attention and residual; returns the node that makes its output."""
        model, layout = self.model, self.layout
        tokens, tp, hidden = layout.tokens, layout.tp, model.hidden
        part = f"{at}.attn"
        node = self.elementwise(f"{part}.norm.fwd", [x, ready], self.own, _NORM, 2)
        for product in list_down_products(model):
            self.matmul(
                f"{part}.{product.name}.fwd", [node], count_own_tokens(layout), hidden, product.columns
            )
        if model.kv_rank:
            node = self._append_compressed_norm(f"{part}.compressed.norm.fwd", _NORM, 2)
        core = self.append_attended(part, layer, self.enter(part, "fwd", node, compute_entering_width(model)))
        out = self.matmul(f"{part}.proj.fwd", [core], tokens, compute_output_width(model) // tp, hidden)
        out = self.leave(part, "fwd", out)
        return self.residual(part, [out, x])

    def append_attended(self, part: str, layer: int, whole: int) -> int:
        """Append queries, keys and values of what a layer's attention is given, and attention; returns the node that makes its result."""
        tokens, tp = self.layout.tokens, self.layout.tp
        projections = [
            self.matmul(f"{part}.{product.name}.fwd", [whole], tokens, product.rows, product.columns // tp)
            for product in list_up_products(self.model)
        ]
        return self._append_attention(f"{part}.core.fwd", projections, 1, layer)

    def residual(self, part: str, parts: Sequence[int]) -> int:
        """Append the sum of a part and the residual stream, behind dropout or the norm after the part where a model has one."""
        out = parts[0]
        if self.model.post_norms:
            out = self.elementwise(f"{part}.post_norm.fwd", [out], self.own, _NORM, 2)
        dropout = self.model.dropout
        return self.elementwise(
            f"{part}.residual.fwd", [out, *parts[1:]], self.own, len(parts) - 1, len(parts) + 1 + 2 * dropout,
            kernels=1 + dropout,
        )  # fmt: skip

    def residual_backward(self, part: str, unit: str, grad: int) -> int:
        """Append the backward pass of the norm after a part, where a model has one."""
        if not self.model.post_norms:
            return grad
        node = self.elementwise(f"{part}.post_norm.bwd", [grad], self.own, _NORM_BACK, 3)
        self.weights[unit].append(node)
        return node

    def feed_forward_forward(self, at: str, x: int) -> int:
        """Append the forward pass of a dense layer's feed-forward part and residual."""
        part = f"{at}.mlp"
        normed = self.elementwise(f"{part}.norm.fwd", [x], self.own, _NORM, 2)
        return self.residual(part, [self.dense_forward(part, normed, self.model.feed_forward), x])

    def dense_forward(self, part: str, normed: int, width: int) -> int:
        """Append both products of a feed-forward part of an inner width, and what ranks exchange around them."""
        tokens, tp = self.layout.tokens, self.layout.tp
        first, second = list_feed_forward_products(self.model, width)
        whole = self.enter(part, "fwd", normed)
        wide = self.matmul(f"{part}.fc1.fwd", [whole], tokens, first.rows, first.columns // tp)
        active = self.activation(f"{part}.act.fwd", wide, tokens * width // tp)
        out = self.matmul(f"{part}.fc2.fwd", [active], tokens, second.rows // tp, second.columns)
        return self.leave(part, "fwd", out)

    def feed_forward_backward(self, at: str, unit: str, grad: int, ready: int) -> int:
        """Append the backward pass of a dense layer's feed-forward part and residual."""
        part = f"{at}.mlp"
        inner = self.residual_backward(part, unit, grad)
        dx = self.dense_backward(part, unit, [inner, ready], self.model.feed_forward)
        return self.norm_backward(part, unit, [dx, grad])

    def dense_backward(self, part: str, unit: str, grads: Sequence[int], width: int) -> int:
        """Append the backward pass of both products of a feed-forward part; returns the node that makes its input's gradient."""
        tokens, tp = self.layout.tokens, self.layout.tp
        first, second = list_feed_forward_products(self.model, width)
        whole = self.enter(part, "bwd", grads[0])
        active = self.matmul(
            f"{part}.fc2.dgrad", [whole, *grads[1:]], tokens, second.columns, second.rows // tp
        )
        shape = second.rows // tp, tokens, second.columns
        self.weight(unit, lambda: [self.matmul(f"{part}.fc2.wgrad", [whole], *shape)])
        wide = self.activation(f"{part}.act.bwd", active, tokens * width // tp)
        return self.entry_backward(part, unit, (first,), wide, self.model.hidden)

    def attention_backward(self, at: str, unit: str, layer: int, grad: int, ready: int) -> int:
        """Append the backward pass of a layer's attention and residual; returns the node that makes its input's gradient."""
        model, layout = self.model, self.layout
        part = f"{at}.attn"
        whole = self.enter(part, "bwd", self.residual_backward(part, unit, grad))
        size = compute_output_width(model) // layout.tp
        core = self.matmul(f"{part}.proj.dgrad", [whole, ready], layout.tokens, model.hidden, size)
        shape = size, layout.tokens, model.hidden
        self.weight(unit, lambda: [self.matmul(f"{part}.proj.wgrad", [whole], *shape)])
        if layout.recompute == "selective":
            core = self._append_attention(f"{part}.core.again", [core], 1, layer)
        node = self._append_attention(f"{part}.core.bwd", [core], 2, layer)
        node = self.entry_backward(part, unit, list_up_products(model), node, compute_entering_width(model))
        if model.kv_rank:
            node = self._append_compressed_norm(f"{part}.compressed.norm.bwd", _NORM_BACK, 4, after=node)
            node = self._append_compression_backward(part, unit, node)
        return self.norm_backward(part, unit, [node, grad])

    def _append_compression_backward(self, part: str, unit: str, grad: int) -> int:
        """Append the backward pass of the products that compress queries, keys and values."""
        own, node = count_own_tokens(self.layout), grad
        for product in list_down_products(self.model):
            name, shape = f"{part}.{product.name}", (self.model.hidden, own, product.columns)
            node = self.matmul(f"{name}.dgrad", [grad], own, product.columns, self.model.hidden)
            self.weight(unit, partial(self._append_weight_product, f"{name}.wgrad", grad, shape))
        return node

    def _append_weight_product(self, name: str, grad: int, shape: tuple[int, int, int]) -> list[int]:
        return [self.matmul(name, [grad], *shape)]

    def _append_compressed_norm(self, name: str, passes: int, tensors: int, after: int = 0) -> int:
        """Append the norms of compressed queries, keys and values, of the tokens that the rank has."""
        elements = count_own_tokens(self.layout) * (self.model.query_rank + self.model.kv_rank)
        return self.elementwise(name, [after or self.program.last["compute"]], elements, passes, tensors)

    def entry_backward(self, part: str, unit: str, products: Sequence[Product], grad: int, width: int) -> int:
        """Append the backward pass of the products that a part begins with; returns the node that makes their input's gradient.

        The gradient of the weight stands behind that of the input, so that it overlaps the communication after it.
        """
        tokens, tp = self.layout.tokens, self.layout.tp
        # A later pass gathers the input itself.
        deferred = self.later is not None
        whole = 0 if deferred else self.again(part, width)
        dx = grad
        for product in products:
            dx = self.matmul(
                f"{part}.{product.name}.dgrad", [grad], tokens, product.columns // tp, product.rows
            )
        dx = self.leave(part, "bwd", dx, width)

        def make() -> list[int]:
            after = [grad, self.again(part, width) if deferred else whole]
            return [
                self.matmul(
                    f"{part}.{product.name}.wgrad", after, product.rows, tokens, product.columns // tp
                )
                for product in products
            ]

        self.weight(unit, make)
        return dx

    def norm_backward(self, part: str, unit: str, grads: Sequence[int]) -> int:
        """Append the backward pass of the norm that a part begins with, and of the residual around it."""
        # The norm's input and weights, the sum with the residual's gradient, and the dropout before it.
        tensors, kernels = (7, 4) if self.model.dropout else (4, 3)
        node = self.elementwise(f"{part}.norm.bwd", grads, self.own, _NORM_BACK, tensors, kernels=kernels)
        self.weights[unit].append(node)
        return node

    def _append_attention(self, name: str, after: Sequence[int], times: int, layer: int) -> int:
        """Append attention: forward where `times` is 1, backward where it is 2.

        Its scores never leave the chip (as in FlashAttention), unless attention is unfused.
        """
        model, layout = self.model, self.layout
        width = (
            compute_query_width(model)
            + compute_key_width(model)
            + compute_value_width(model)
            + compute_output_width(model)
        )
        moved = times * ELEMENT_BYTES * layout.tokens * width // layout.tp
        kernels, stored = times, 0
        if layout.attention == "unfused":
            kernels = _UNFUSED_KERNELS[times]
            if times == 1 and layout.micro_batch * (model.heads // layout.tp) % _FUSED_HEADS:
                kernels += _PLAIN_SOFTMAX
            score, dropped = _SCORE_BYTES[times]
            scores = model.heads * layout.sequence * layout.tokens // layout.tp
            stored = (score + (dropped if model.dropout else 0)) * scores
        return append_attention(
            self.program, model, layout, name, after, layer=layer, moved=moved, scores=stored, kernels=kernels
        )

    def activation(self, name: str, after: int, elements: int) -> int:
        """Append the activation function: it reads what the first product made and writes the second's input, or back."""
        factor = 2 if self.model.gated else 1
        backward = name.endswith(".bwd")
        passes, written = (_ACTIVATION_BACK, 2) if backward else (_ACTIVATION, 1)
        return self.elementwise(name, [after], elements, passes, factor * written + 1)

    def head_forward(self, at: str, x: int, ready: int) -> int:
        """Append the output layer and the loss; returns the node that makes the loss."""
        layout, model = self.layout, self.model
        vocabulary = layout.vocabulary(model) // layout.tp
        part = f"{at}.head"
        normed = self.elementwise(f"{part}.norm.fwd", [x, ready], self.own, _NORM, 2)
        whole = self.enter(part, "fwd", normed)
        node = self.matmul(f"{part}.logits.fwd", [whole], layout.tokens, model.hidden, vocabulary)
        elements = layout.tokens * vocabulary
        node = self.elementwise(f"{part}.loss.fwd", [node], elements, 3, _LOSS[0], kernels=4)
        for word in LOSS_REDUCTIONS if layout.tp > 1 else ():
            size = LOSS_BYTES * layout.tokens
            node = self.program.collective(
                f"{part}.loss.{word}.all_reduce.fwd", "tp", CollectiveType.ALL_REDUCE, [node], size
            )
        # What the host launches last in a pass, nothing in it waits for.
        self.program.launched = 0
        return node

    def head_backward(self, at: str, loss: int, ready: int = 0) -> int:
        """Append the backward pass of the loss and the output layer."""
        layout, model = self.layout, self.model
        vocabulary = layout.vocabulary(model) // layout.tp
        part = f"{at}.head"
        self.weights["head"] = []
        elements = layout.tokens * vocabulary
        grad = self.elementwise(f"{part}.loss.bwd", [loss, ready], elements, 2, _LOSS[1], kernels=4)
        product = Product("logits", model.hidden, vocabulary * layout.tp, "columns")
        dx = self.entry_backward(part, "head", (product,), grad, model.hidden)
        return self.norm_backward(part, "head", [dx])
