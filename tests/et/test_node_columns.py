"""The kernel of merged traces (ET+) gives what decoding every node gives, and leaves what is not written as usual to that."""

from __future__ import annotations

import gzip
import json
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import TraceFormatError
from studio.et import etplus, etplus_nodes
from studio.et.format import Reading
from studio.trace import iterate_arrays
from tests.examples import examples

TEXT = st.sampled_from(
    [
        "aten::mm",
        "c10d::allreduce_",
        "ncclDevKernel_AllReduce",
        "## process_group:init ##",
        "ä\\\n",
        '"nodes": [',
        "",
    ]
)
ODD = st.sampled_from(["7", 7.0, True, 2**70, [1], {"x": 1}, None])
"""What a whole number may be written as by whom nobody knows."""
TIMES = (
    st.floats(0, 1e9) | st.integers(0, 2000) | st.sampled_from([None, "soon", -2.5, 2**60, 1e300, 0.1 + 0.2])
)
WAITS = (
    st.none()
    | st.integers(0, 12)
    | st.lists(st.integers(0, 12) | st.none(), max_size=3)
    | st.sampled_from(["x", 1.5])
)
SIDES = st.fixed_dictionaries(
    {},
    optional={
        "values": st.sampled_from([[], [[6, 7, 0, 64, 4, "cpu"]], ["<None>", False, None], "it's", None, 3]),
        "shapes": st.sampled_from([[], [[64, 1]], [[[], [4]], []]]),
        "types": st.sampled_from([[], ["Tensor(float)"], ["GenericList[Int]", "None"]]),
        "strides": st.just([[1]]),
    },
)
NAMED = st.sampled_from(
    ["rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema", "pg_name", "dtype", "in_msg_nelems",
     "collective_name", "else"]
)  # fmt: skip
ATTRIBUTES = st.fixed_dictionaries(
    {"name": NAMED, "type": st.just("uint64")},
    optional={
        "value": st.integers(-2, 9) | st.sampled_from(["", "aten::mm(Tensor a)", "allreduce", "Float"]) | ODD
    },
)
NODES = st.fixed_dictionaries(
    {"id": st.integers(0, 12), "name": TEXT, "ctrl_deps": st.integers(0, 12)},
    optional={
        "inputs": SIDES,
        "outputs": SIDES,
        "attrs": st.lists(ATTRIBUTES, max_size=4),
        "ts": TIMES,
        "inclusive_dur": TIMES,
        "exclusive_dur": TIMES,
        "inter_thread_dep": WAITS,
        "sync_dep": WAITS,
        "cat": st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "ä", None, 3]),
        "stream": st.sampled_from([7, 20, "7", None, 1.5]),
        "pg_name": st.sampled_from(["0", 5, None]),
        "nested": st.just({"nodes": [{"id": 1}]}),
    },
)
RARE = st.sampled_from(
    [{"id": "7"}, {"id": 2**64}, {"id": -1}, {"name": 3}, {"ctrl_deps": [4, 5]}, {"ctrl_deps": None}, {"attrs": {}},
     {"attrs": [{"value": 1}, {}]}, {"inputs": None}, {"attrs": [{"name": 5, "value": 1}]}, {}]
)  # fmt: skip


def outcome(raw: bytes) -> object:
    try:
        [part] = etplus.read(Reading("rank0.json", raw))
    except TraceFormatError as error:
        return str(error)
    rest = [getattr(part, name) for name in part.__dataclass_fields__ if name != "graph"]
    return [(name, str(column.dtype), column.tolist()) for name, column in iterate_arrays(part.graph)], repr(
        rest
    )


def both(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> tuple[object, object]:
    """The outcomes of the kernel and of decoding."""
    found = []
    for compiled in (True, False):
        monkeypatch.setattr(etplus_nodes, "is_worth_compiling", lambda _size, compiled=compiled: compiled)
        found.append(outcome(raw))
    return found[0], found[1]


def test_the_kernel_reads_what_decoding_reads(monkeypatch) -> None:
    @settings(deadline=None, max_examples=examples(150))
    @given(
        st.lists(NODES, max_size=10, unique_by=lambda node: node["id"]),
        RARE,
        st.sampled_from([None, 1]),
        st.booleans(),
        st.integers(0, 2**32),
    )
    def check(
        nodes: list[dict[str, object]], rare: dict[str, object], indent: int | None, last: bool, seed: int
    ):
        rng = Random(seed)
        head = {"schema": "1.1.1-chakra.0.0.4", "pid": 5, "time": "now", "start_ts": 1, "finish_ts": 2}
        content = {**head, "nodes": nodes} if last else {"schema": "1.1.1", "nodes": nodes, **head}
        raw = json.dumps(content, indent=indent, ensure_ascii=rng.random() < 0.5).encode()
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] = rng.choice(b'{}[],"\\x0\xff')
        variants = [raw, bytes(damaged), raw[: rng.randrange(len(raw))]]
        variants.append(raw.replace(b'"nodes"', b'"nodes": [], "nodes"', 1))
        variants.append(raw[:-1] + b', "nodes": [{"id": 3}]}')
        if nodes:
            other = [*nodes, {**nodes[0], **rare}]
            variants.append(json.dumps({**head, "nodes": other}).encode())
            variants.append(raw.replace(b'"attrs"', b'"inputs": {"values": [5]}, "attrs"', 1))
        for data in variants:
            by_kernel, decoded = both(monkeypatch, data)
            assert by_kernel == decoded

    check()


@pytest.mark.parametrize("name", ["dlrm_4r_2", "ddp_mlp_4r_0"])
def test_a_recording_is_read_by_the_kernel_which_leaves_none_of_it_to_others(
    monkeypatch, shared, name
) -> None:
    raw = gzip.decompress(
        (shared / f"traces/golden/torch_synthetic_device/{name}.etplus.json.gz").read_bytes()
    )
    by_kernel, decoded = both(monkeypatch, raw)
    assert by_kernel == decoded
    monkeypatch.setattr(etplus_nodes, "is_worth_compiling", lambda _size: True)
    monkeypatch.setattr(etplus_nodes, "_read_content", None)
    assert outcome(raw) == decoded


def test_times_of_many_digits_are_those_of_the_decoder(monkeypatch) -> None:
    times = [0.30000000000000004, 123456789.12345678901, 1790857026000000.125, 9007199254740.991]
    nodes = [
        {"id": number, "name": "x", "ctrl_deps": 0, "ts": time, "inclusive_dur": 1, "exclusive_dur": 1}
        for number, time in enumerate(times)
    ]
    monkeypatch.setattr(etplus_nodes, "is_worth_compiling", lambda _size: True)
    monkeypatch.setattr(etplus_nodes, "_read_content", None)
    [part] = etplus.read(Reading("rank0.json", json.dumps({"schema": "1.1.1", "nodes": nodes}).encode()))
    assert part.graph.start_ns.tolist() == [round(time * 1000) for time in times]
    assert part.graph.id.dtype == np.uint64


@pytest.mark.parametrize("cached", [True, False])
def test_short_files_are_decoded_without_the_kernel(monkeypatch, cached: bool) -> None:
    from studio.et import node_columns

    monkeypatch.setattr(node_columns.KERNEL, "loaded", object() if cached else None)
    monkeypatch.setattr(type(node_columns.KERNEL), "is_cached", lambda kernel: kernel.loaded is not None)
    assert not node_columns.is_worth_compiling(node_columns.WORTH_BYTES - 1)
    assert node_columns.is_worth_compiling(node_columns.WORTH_BYTES) is cached
    assert node_columns.is_worth_compiling(node_columns.COLD_BYTES + 1)
