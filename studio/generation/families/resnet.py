"""Residual networks with bottlenecks: He et al., "Deep Residual Learning for Image Recognition", 2016, table 1.

The stride stands at the 3 × 3 convolution (version 1.5), as in torchvision and MLPerf.
"""

from __future__ import annotations

from collections.abc import Iterator

from studio.generation.families.network import MOMENTUM, Network, Part, build_elementwise, build_linear

_IMAGE, _COLOURS, _CLASSES, _EXPANSION = 224, 3, 1_000, 4
_NORM_AND_ACTIVATION = 6
_SOURCE = "He et al., Deep Residual Learning, 2016, table 1, with the stride at the 3 × 3 convolution; 224 × 224; batch of its training"


def build_residual_network(name: str, blocks: tuple[int, int, int, int]) -> Network:
    """Return a residual network with so many bottlenecks in each of its four stages."""
    parts = [*_build_convolution("conv1", (_COLOURS, 64), 7, _IMAGE, 2)]
    size, channels = _IMAGE // 4, 64
    parts.append(Part("pool", "other", 9 * 64 * size * size, 64 * (2 * size) ** 2, 64 * size * size))
    for stage, count in enumerate(blocks, 1):
        width = 32 << stage
        for block in range(count):
            stride = 2 if stage > 1 and block == 0 else 1
            parts += _build_bottleneck(f"layer{stage}.{block}", channels, width, size, stride)
            size, channels = size // stride, _EXPANSION * width
    parts.append(Part("average", "other", channels * size * size, channels * size * size, channels))
    parts.append(build_linear("head", 1, (channels, _CLASSES)))
    return Network(name, "resnet", tuple(parts), 256, _SOURCE, MOMENTUM)


def _build_bottleneck(name: str, channels: int, width: int, size: int, stride: int) -> Iterator[Part]:
    outputs, after = _EXPANSION * width, size // stride
    yield from _build_convolution(f"{name}.conv1", (channels, width), 1, size, 1)
    yield from _build_convolution(f"{name}.conv2", (width, width), 3, size, stride)
    yield from _build_convolution(f"{name}.conv3", (width, outputs), 1, after, 1)
    if stride > 1 or channels != outputs:
        yield from _build_convolution(f"{name}.shortcut", (channels, outputs), 1, size, stride)
    yield Part(
        f"{name}.residual", "other", 2 * outputs * after**2, 2 * outputs * after**2, outputs * after**2
    )


def _build_convolution(
    name: str, channels: tuple[int, int], kernel: int, size: int, stride: int
) -> Iterator[Part]:
    """Yield a convolution without bias, and the norm and activation after it."""
    inputs, outputs = channels
    weights, after = inputs * outputs * kernel * kernel, size // stride
    yield Part(name, "matmul", 2 * weights * after**2, inputs * size**2, outputs * after**2, weights)
    yield build_elementwise(f"{name}.norm", outputs * after**2, _NORM_AND_ACTIVATION, 2 * outputs)
