"""Forward and backward passes of the parts of a transformer on one rank, node by node.

With sequence parallelism (Korthikanti et al., 2022) an all-gather stands before each tensor parallel part and a reduce-scatter
after it, in both passes, and the backward pass gathers the input of the first product again; without it an all-reduce follows
each part in the forward pass and precedes it in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import Program
from studio.generation.transformer import attention_flop, inner_width, keys, qkv_width, queries
from studio.trace import CollectiveType

ELEMENT_BYTES = 2
_NORM, _NORM_BACK, _ACTIVATION, _ACTIVATION_BACK = 5, 8, 8, 10
"""Operations of an element, as the compute nodes of norms and activation functions count them."""
LOSS_REDUCTIONS = ("max", "target", "sum")
"""What Megatron-LM's cross-entropy over a divided vocabulary reduces: 4 bytes of each token every time."""
LOSS_BYTES = 4


@dataclass(slots=True)
class Passes:
    """The passes of a rank's parts.

    Attributes:
        program: Where nodes go to.
        model, layout: What is computed, and how it is divided.
        weights: The nodes that made the gradients of each unit's weights, of the pass at work.
    """

    program: Program
    model: Model
    layout: Layout
    weights: dict[str, list[int]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Elements of a micro-batch's residual stream."""
        return self.layout.tokens * self.model.hidden

    @property
    def own(self) -> int:
        """Elements of it that the rank holds outside of tensor parallel parts."""
        return self.width // (self.layout.tp if self.layout.sequence_parallel else 1)

    def matmul(self, name: str, after: Sequence[int], m: int, k: int, n: int) -> int:
        """Append a product of an (m, k) and a (k, n) matrix."""
        moved = ELEMENT_BYTES * (m * k + k * n + m * n)
        return self.program.compute(name, after, 2 * m * k * n, moved, "matmul")

    def elementwise(self, name: str, after: Sequence[int], elements: int, passes: int, tensors: int) -> int:
        """Append a computation of so many operations an element, over so many tensors read and written."""
        moved = ELEMENT_BYTES * tensors * elements
        return self.program.compute(name, after, passes * elements, moved, "other")

    def enter(self, part: str, way: str, node: int) -> int:
        """Append what makes the sequence whole before a tensor parallel part."""
        if not self.layout.sequence_parallel:
            return node
        size = ELEMENT_BYTES * self.own
        return self.program.collective(
            f"{part}.all_gather.{way}", "tp", CollectiveType.ALL_GATHER, [node], size
        )

    def again(self, part: str) -> int:
        """Append what gathers the input of a first product again for the gradient of its weight."""
        if not self.layout.sequence_parallel:
            return 0
        after = [self.program.last["compute"]]
        size = ELEMENT_BYTES * self.own
        return self.program.collective(
            f"{part}.input.all_gather.bwd", "tp", CollectiveType.ALL_GATHER, after, size
        )

    def leave(self, part: str, way: str, node: int) -> int:
        """Append the sum over tensor parallel ranks after such a part."""
        if self.layout.tp == 1:
            return node
        scatter = self.layout.sequence_parallel
        kind = CollectiveType.REDUCE_SCATTER if scatter else CollectiveType.ALL_REDUCE
        word = "reduce_scatter" if scatter else "all_reduce"
        return self.program.collective(f"{part}.{word}.{way}", "tp", kind, [node], ELEMENT_BYTES * self.width)

    def embedding_forward(self, at: str, ready: int) -> int:
        """Append the embedding; returns the node that makes the residual stream."""
        node = self.elementwise(f"{at}.embedding.fwd", [ready], self.width, 1, 2)
        return self.leave(f"{at}.embedding", "fwd", node)

    def embedding_backward(self, at: str, grad: int) -> int:
        """Append the gradient of the embedding."""
        whole = self.enter(f"{at}.embedding", "bwd", grad)
        node = self.elementwise(f"{at}.embedding.wgrad", [whole], self.width, 1, 2)
        self.weights["embedding"] = [node]
        return node

    def layer_forward(self, at: str, x: int, ready: int) -> int:
        """Append the forward pass of a layer; returns the node that makes its output."""
        model, layout = self.model, self.layout
        tokens, tp, hidden = layout.tokens, layout.tp, model.hidden
        part = f"{at}.attn"
        normed = self.elementwise(f"{part}.norm.fwd", [x, ready], self.own, _NORM, 2)
        whole = self.enter(part, "fwd", normed)
        qkv = self.matmul(f"{part}.qkv.fwd", [whole], tokens, hidden, qkv_width(model) // tp)
        core = self._attention(f"{part}.core.fwd", [qkv], 1)
        out = self.matmul(f"{part}.proj.fwd", [core], tokens, queries(model) // tp, hidden)
        out = self.leave(part, "fwd", out)
        x = self.elementwise(f"{part}.residual.fwd", [out, x], self.own, 1, 3)
        part = f"{at}.mlp"
        normed = self.elementwise(f"{part}.norm.fwd", [x], self.own, _NORM, 2)
        whole = self.enter(part, "fwd", normed)
        wide = self.matmul(f"{part}.fc1.fwd", [whole], tokens, hidden, inner_width(model) // tp)
        active = self._activation(f"{part}.act.fwd", wide, _ACTIVATION, 1)
        out = self.matmul(f"{part}.fc2.fwd", [active], tokens, model.feed_forward // tp, hidden)
        out = self.leave(part, "fwd", out)
        return self.elementwise(f"{part}.residual.fwd", [out, x], self.own, 1, 3)

    def layer_backward(self, at: str, grad: int, ready: int) -> int:
        """Append the backward pass of a layer; returns the node that makes the gradient of its input."""
        model, layout = self.model, self.layout
        tokens, tp, hidden = layout.tokens, layout.tp, model.hidden
        inner, feed = inner_width(model) // tp, model.feed_forward // tp
        made = self.weights[at.rpartition(".")[2]] = []
        part = f"{at}.mlp"
        whole = self.enter(part, "bwd", grad)
        active = self.matmul(f"{part}.fc2.dgrad", [whole, ready], tokens, hidden, feed)
        made.append(self.matmul(f"{part}.fc2.wgrad", [whole], feed, tokens, hidden))
        wide = self._activation(f"{part}.act.bwd", active, _ACTIVATION_BACK, 2)
        grad = self._first_product(part, "fc1", wide, (tokens, hidden, inner), grad)
        part = f"{at}.attn"
        whole = self.enter(part, "bwd", grad)
        size = queries(model) // tp
        core = self.matmul(f"{part}.proj.dgrad", [whole], tokens, hidden, size)
        made.append(self.matmul(f"{part}.proj.wgrad", [whole], size, tokens, hidden))
        qkv = self._attention(f"{part}.core.bwd", [core], 2)
        return self._first_product(part, "qkv", qkv, (tokens, hidden, qkv_width(model) // tp), grad)

    def _first_product(
        self, part: str, name: str, grad: int, shape: tuple[int, int, int], residual: int
    ) -> int:
        """Append the backward pass of the product and norm that a part begins with, and of the residual around it.

        The gradient of the weight stands behind that of the input, so that it overlaps the communication after it.
        """
        tokens, hidden, width = shape
        whole = self.again(part)
        dx = self.matmul(f"{part}.{name}.dgrad", [grad], tokens, width, hidden)
        dx = self.leave(part, "bwd", dx)
        weight = self.matmul(f"{part}.{name}.wgrad", [grad, whole], hidden, tokens, width)
        norm = self.elementwise(f"{part}.norm.bwd", [dx, residual], self.own, _NORM_BACK, 4)
        unit = part.split(".")[-2] if part.rsplit(".", maxsplit=1)[-1] in ("attn", "mlp") else "head"
        self.weights[unit] += [weight, norm]
        return norm

    def _attention(self, name: str, after: Sequence[int], times: int) -> int:
        """Append attention as one node; its scores never leave the chip (as in FlashAttention)."""
        model, layout = self.model, self.layout
        flop = times * attention_flop(model, layout.micro_batch, layout.sequence) // layout.tp
        moved = times * ELEMENT_BYTES * layout.tokens * 2 * (queries(model) + keys(model)) // layout.tp
        return self.program.compute(name, after, flop, moved, "attention")

    def _activation(self, name: str, after: int, passes: int, outputs: int) -> int:
        """Append the activation function: it reads what the first product made and writes the second's input, or back."""
        elements = self.layout.tokens * self.model.feed_forward // self.layout.tp
        factor = 2 if self.model.gated else 1
        return self.elementwise(name, [after], elements, passes, factor * outputs + 1)

    def head_forward(self, at: str, x: int, ready: int) -> int:
        """Append the output layer and the loss; returns the node that makes the loss."""
        layout, model = self.layout, self.model
        vocabulary = layout.vocabulary(model) // layout.tp
        part = f"{at}.head"
        normed = self.elementwise(f"{part}.norm.fwd", [x, ready], self.own, _NORM, 2)
        whole = self.enter(part, "fwd", normed)
        node = self.matmul(f"{part}.logits.fwd", [whole], layout.tokens, model.hidden, vocabulary)
        node = self.elementwise(f"{part}.loss.fwd", [node], layout.tokens * vocabulary, 3, 1)
        for word in LOSS_REDUCTIONS if layout.tp > 1 else ():
            size = LOSS_BYTES * layout.tokens
            node = self.program.collective(
                f"{part}.loss.{word}.all_reduce.fwd", "tp", CollectiveType.ALL_REDUCE, [node], size
            )
        return node

    def head_backward(self, at: str, loss: int) -> int:
        """Append the backward pass of the loss and the output layer."""
        layout, model = self.layout, self.model
        vocabulary = layout.vocabulary(model) // layout.tp
        part = f"{at}.head"
        self.weights["head"] = []
        grad = self.elementwise(f"{part}.loss.bwd", [loss], layout.tokens * vocabulary, 2, 2)
        return self._first_product(part, "logits", grad, (layout.tokens, model.hidden, vocabulary), 0)
