"""FLOP of matrix products, convolutions and attention equal an oracle that reads the files itself."""

from __future__ import annotations

import ast
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest

from studio.operators.calls import collect_calls
from tests.recordings import read_recording

_Shapes = list[Any]
_Values = list[Any]


def _mm(shapes: _Shapes, values: _Values) -> int:
    (n, k), (again, m) = shapes[0], shapes[1]
    assert again == k
    return 2 * n * k * m


def _addmm(shapes: _Shapes, values: _Values) -> int:
    return _mm(shapes[1:], values[1:])


def _bmm(shapes: _Shapes, values: _Values) -> int:
    return shapes[0][0] * _mm([shapes[0][1:], shapes[1][1:]], values)


def _window(size: int, taps: int, step: int, pad: int, spread: int) -> int:
    """Count the places of a window by sliding it."""
    last = size + pad - spread * (taps - 1) - 1
    return sum(1 for _ in range(-pad, last + 1, step))


def _convolution(stride: int, padding: int, dilation: int) -> Callable[[_Shapes, _Values], int]:
    def flop(shapes: _Shapes, values: _Values) -> int:
        batch, weight = shapes[0][0], shapes[1]
        places = prod(
            _window(size, taps, values[stride][d], values[padding][d], values[dilation][d])
            for d, (size, taps) in enumerate(zip(shapes[0][2:], weight[2:], strict=True))
        )
        results = batch * weight[0] * places
        return 2 * results * weight[1] * prod(weight[2:])

    return flop


def _convolution_backward(shapes: _Shapes, values: _Values) -> int:
    gradient, _, weight = shapes[:3]
    each = 2 * prod(gradient) * weight[1] * prod(weight[2:])
    return each * (int(values[10][0]) + int(values[10][1]))


def _looked_at(queries: int, keys: int, causal: bool) -> int:
    return sum(1 for row in range(queries) for key in range(keys) if not causal or key <= row)


def _attention(heads_first: bool, causal: int, first: int, products: tuple[int, int]) -> Callable[..., int]:
    """Return the FLOP of some products as wide as the queries, and some as wide as the values."""

    def flop(shapes: _Shapes, values: _Values) -> int:
        query, key, value = shapes[first : first + 3]
        queries, keys = (query[2], key[2]) if heads_first else (query[1], key[1])
        heads = query[1] if heads_first else query[2]
        pairs = _looked_at(queries, keys, values[causal])
        return 2 * query[0] * heads * pairs * (products[0] * query[3] + products[1] * value[3])

    return flop


ORACLE: dict[str, Callable[[_Shapes, _Values], int]] = {
    "aten::mm": _mm,
    "aten::addmm": _addmm,
    "aten::bmm": _bmm,
    "aten::mkldnn_convolution": _convolution(4, 3, 5),
    "aten::miopen_convolution": _convolution(4, 3, 5),
    "aten::cudnn_convolution": _convolution(3, 2, 4),
    "aten::convolution_backward": _convolution_backward,
    "aten::_flash_attention_forward": _attention(False, 8, 0, (1, 1)),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(True, 4, 0, (1, 1)),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention(True, 7, 1, (3, 2)),
}


def _content(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return content


def _told(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and FLOP of every call in a file of either kind."""
    content = _content(path)
    for event in content.get("traceEvents", ()):
        if event.get("cat") == "cpu_op" and event["name"] in ORACLE:
            args = event["args"]
            values = [ast.literal_eval(text) if text else None for text in args["Concrete Inputs"]]
            yield event["name"], ORACLE[event["name"]](args["Input Dims"], values)
    nodes = {node["id"]: node for node in content.get("nodes", ())}
    # A distributed tensor's operator calls the one of the part that the rank has, which does the work.
    outer = set()
    for node in nodes.values():
        above = nodes.get(node["ctrl_deps"])
        while node["name"] in ORACLE and above is not None and above["id"] != above["ctrl_deps"]:
            if above["name"] == node["name"]:
                outer.add(above["id"])
            above = nodes.get(above["ctrl_deps"])
    for node in nodes.values():
        if node["name"] in ORACLE and node["id"] not in outer:
            given = node["inputs"]
            shapes = given["shapes"]
            shapes = ast.literal_eval(shapes) if isinstance(shapes, str) else shapes
            values = given["values"]
            values = ast.literal_eval(values) if isinstance(values, str) else values
            yield node["name"], ORACLE[node["name"]](shapes, values)


JOBS = (
    ("torch/mnist_obs", "torch/mnist_obs/pytorch_et.json.gz"),
    ("torch/ddp_gpt_2r", "torch/ddp_gpt_2r/pytorch_et_0.json.gz"),
    ("torch/tp_mlp_2r", "torch/tp_mlp_2r/pytorch_et_0.json.gz"),
    ("torch_synthetic_device/mnist_1r", "torch_synthetic_device/mnist_1r/pytorch_et_0.json.gz"),
    ("foreign/h100_qwen1.5_0.5b__1016005.json.gz", "foreign/h100_qwen1.5_0.5b__1016005.json.gz"),
    ("foreign/h100_timesformer__1016002.json.gz", "foreign/h100_timesformer__1016002.json.gz"),
    ("foreign/mi300_resnet_act_checkpoint.json.gz", "foreign/mi300_resnet_act_checkpoint.json.gz"),
)


@pytest.mark.parametrize(("job", "file"), JOBS, ids=[job for job, _ in JOBS])
def test_all_calls(shared: Path, job: str, file: str) -> None:
    traces = shared / "traces"
    told = Counter(_told(traces / file))
    trace = read_recording(traces / job)
    graph = trace.graph_of(trace.ranks[0])
    calls = collect_calls(graph)
    found: Counter[tuple[str, float]] = Counter()
    for row, flop in zip(calls.row.tolist(), calls.flop.tolist(), strict=True):
        name = graph.strings[int(graph.name[row])]
        if name in ORACLE and flop:
            found[name, flop] += 1
    assert told
    assert found == told
