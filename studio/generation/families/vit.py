"""Vision transformers: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021, table 1, at 224 × 224 with 1,000 classes."""

from __future__ import annotations

from collections.abc import Iterator

from studio.generation.families.network import Network, Part, build_elementwise, build_linear

_IMAGE, _COLOURS, _CLASSES = 224, 3, 1_000
_NORM, _GELU = 5, 8
_SOURCE = "Dosovitskiy et al., An Image is Worth 16x16 Words, 2021, table 1; 224 × 224, 1,000 classes; batch of its training"


def build_vision_transformer(name: str, layers: int, hidden: int, feed_forward: int, patch: int) -> Network:
    """Return a vision transformer of these numbers."""
    patches = (_IMAGE // patch) ** 2
    tokens = patches + 1
    parts = [
        build_linear("patches", patches, (_COLOURS * patch * patch, hidden)),
        # The class token and learned positions.
        build_elementwise("positions", tokens * hidden, 1, (tokens + 1) * hidden),
    ]
    for layer in range(layers):
        parts += _build_layer(f"layer{layer}", tokens, hidden, feed_forward)
    parts += [
        build_elementwise("norm", tokens * hidden, _NORM, 2 * hidden),
        build_linear("head", 1, (hidden, _CLASSES)),
    ]
    return Network(name, "vit", tuple(parts), 4_096, _SOURCE)


def _build_layer(name: str, tokens: int, hidden: int, feed_forward: int) -> Iterator[Part]:
    stream = tokens * hidden
    yield build_elementwise(f"{name}.attn.norm", stream, _NORM, 2 * hidden)
    yield build_linear(f"{name}.attn.qkv", tokens, (hidden, 3 * hidden))
    yield Part(f"{name}.attn.core", "attention", 4 * tokens * stream, 3 * stream, stream)
    yield build_linear(f"{name}.attn.proj", tokens, (hidden, hidden))
    yield Part(f"{name}.attn.residual", "other", stream, 2 * stream, stream)
    yield build_elementwise(f"{name}.mlp.norm", stream, _NORM, 2 * hidden)
    yield build_linear(f"{name}.mlp.fc1", tokens, (hidden, feed_forward))
    yield build_elementwise(f"{name}.mlp.act", tokens * feed_forward, _GELU)
    yield build_linear(f"{name}.mlp.fc2", tokens, (feed_forward, hidden))
    yield Part(f"{name}.mlp.residual", "other", stream, 2 * stream, stream)
