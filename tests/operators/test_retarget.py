"""Coverage of recorded device time by formulas, and the durations that another GPU would take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import report_recomputed
from studio.errors import ConfigError
from studio.et.build import build_graph
from studio.operators import list_operators
from studio.operators.calls import Part, collect_calls
from studio.operators.retarget import ACROSS_MAKERS, Retargeting
from studio.operators.roofline import describe_memory_excess, find_peak
from studio.operators.table import OPERATORS, find_operator
from studio.operators.tensors import Call, NotRecordedError, read_tensors, read_values
from studio.operators.work import Work
from studio.sim.presets import PRESETS
from studio.sim.retargeting import retarget
from studio.sim.settings import GPUS
from studio.sim.systems import SYSTEMS
from studio.sim.systems.gpu import Gpu
from studio.sim.systems.gpus import SYSTEM_OF, find_gpu, find_recorded_gpu, match_gpu
from studio.trace import Attribute, Graph, Rank, Strings, Trace, ValueKind
from tests import operators_table
from tests.conftest import ROOT
from tests.examples import examples
from tests.recordings import read_recording

_SLOW = Gpu("slow", {"fp32": 10.0, "bf16": 100.0}, 1000.0, 40.0)
_FAST = Gpu("fast", {"fp32": 20.0, "bf16": 200.0}, 2000.0, 80.0)


def _graph(kernel_ns: int = 4000, size: int = 64) -> Graph:
    """Return a call of aten::mm that launches a kernel, a kernel of no operator, a copy from the host, and a gap."""
    device = {"is_cpu_op": False, "stream": 7}
    graph, _ = build_graph(
        [
            {"id": 1, "type": "COMP_NODE", "name": "aten::mm", "duration_micros": 3, "attrs": {"is_cpu_op": True}},
            {"id": 2, "type": "COMP_NODE", "name": "gemm", "ctrl_deps": [1], "duration_micros": kernel_ns / 1000, "attrs": device},
            {"id": 3, "type": "COMP_NODE", "name": "own_kernel", "duration_micros": 8, "attrs": device},
            {"id": 4, "type": "COMP_NODE", "name": "Memcpy HtoD (Pinned -> Device)", "duration_micros": 5, "attrs": device},
            {"id": 5, "type": "COMP_NODE", "name": "host gap", "duration_micros": 9, "attrs": {"is_cpu_op": True, "gap": "program"}},
            {"id": 6, "type": "COMP_NODE", "name": "device gap", "duration_micros": 2, "attrs": {**device, "gap": "idle"}},
        ]
    )  # fmt: skip
    texts = [*graph.strings, f"[[{size}, 32], [32, {size}]]", '["c10::BFloat16", "c10::BFloat16"]']
    io = np.full((len(graph), 6), -1, np.int32)
    io[0, 1], io[0, 2] = len(texts) - 2, len(texts) - 1
    return replace(graph, io=io, strings=Strings.of(texts))


def _trace(graph: Graph, device: str = "") -> Trace:
    named = (Attribute("device_name", ValueKind.STRING, device),) if device else ()
    return Trace((graph,), (Rank(0, 0, metadata=named),))


def test_parts_of_a_graph() -> None:
    calls = collect_calls(_graph())
    assert calls.part.tolist() == [
        Part.NONE,
        Part.COMPUTE,
        Part.COMPUTE,
        Part.HOST_LINK,
        Part.NONE,
        Part.NONE,
    ]
    assert calls.known.tolist() == [False, True, False, False, False, False]
    assert calls.flop.tolist() == [2 * 64 * 32 * 64]
    assert calls.bytes.tolist() == [2 * (64 * 32 + 32 * 64 + 64 * 64)]


def test_the_same_gpu_changes_nothing() -> None:
    graph = _graph()
    made, result = retarget(_trace(graph), _SLOW, _SLOW)
    assert made.graphs[0].duration_ns.tolist() == graph.duration_ns.tolist()
    assert (result.recorded_ns, result.new_ns, result.nodes_by_bandwidth) == (12000, 12000, 1)


def test_a_gpu_twice_as_fast_halves_kernels_and_keeps_the_rest() -> None:
    made, result = retarget(_trace(_graph()), _FAST, _SLOW)
    assert made.graphs[0].duration_ns.tolist() == [3000, 2000, 4000, 5000, 9000, 2000]
    assert (result.by_formula_ns, result.by_bandwidth_ns, result.kept_ns) == (4000, 8000, 5000)
    assert (
        "33 % of compute time by rooflines of operators, 67 % by memory bandwidth alone, host gaps kept"
        in result.words
    )


def test_a_copy_between_gpus_takes_the_time_it_took() -> None:
    """The link between two GPUs bounds it; a GPU with twice the memory bandwidth does not make that faster."""
    names = {
        "own_kernel": 6000,
        "Memcpy PtoP (Device -> Device)": 700,
        "Memcpy DtoD (Device -> Device)": 500,
    }
    device = {"is_cpu_op": False, "stream": 7}
    graph, _ = build_graph(
        [
            {"id": at, "type": "COMP_NODE", "name": name, "duration_micros": micros, "attrs": device}
            for at, (name, micros) in enumerate(names.items(), 1)
        ]
    )
    assert collect_calls(graph).part.tolist() == [Part.COMPUTE, Part.PEER_LINK, Part.COMPUTE]
    made, result = retarget(_trace(graph), _FAST, _SLOW)
    assert made.graphs[0].duration_ns[1] == graph.duration_ns[1]
    assert made.graphs[0].duration_ns[2] < graph.duration_ns[2]
    assert (result.peer_ns, result.kept_ns) == (700_000, 700_000)
    assert "copies between GPUs kept too (700 µs; the link between them is not told)" in result.words
    listed = list_operators(_trace(graph))
    assert listed.peer_link_ns == 700_000
    assert listed.time_ns == 6_500_000


@given(
    kernel_ns=st.integers(1, 10**7),
    size=st.integers(1, 4096),
    rates=st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)),
    bandwidth=st.floats(1, 1e5),
)
@settings(max_examples=examples(20), deadline=None)
def test_durations_are_positive_and_fall_as_the_peak_rises(
    kernel_ns: int, size: int, rates: tuple[float, float], bandwidth: float
) -> None:
    trace = _trace(_graph(kernel_ns, size))
    times = [
        retarget(trace, Gpu("made up", {"bf16": rate}, bandwidth, 1.0), _SLOW)[0].graphs[0].duration_ns
        for rate in sorted(rates)
    ]
    assert all((time > 0).all() for time in times)
    assert (times[0] >= times[1]).all()


def test_a_type_the_gpu_lacks_runs_on_another_or_by_bandwidth() -> None:
    assert find_peak(_SLOW, "fp8") == 100.0
    assert find_peak(_SLOW, "fp64") is None
    made, result = retarget(_trace(_graph()), Gpu("vectors", {"fp64": 1.0}, 500.0, 1.0), _SLOW)
    assert made.graphs[0].duration_ns[1] == 8000
    assert result.by_formula_ns == 0


def test_the_recorded_gpu_is_named_or_asked_for() -> None:
    made, result = retarget(_trace(_graph(), "NVIDIA H100 80GB HBM3"), "b200")
    assert (result.gpu, result.recorded_gpu) == ("NVIDIA B200 SXM 180 GB", "NVIDIA H100 SXM5 80 GB")
    told = {entry.name: entry.value for entry in made.ranks[0].metadata}
    assert told == {
        "device_name": "NVIDIA B200 SXM 180 GB",
        "recomputed_from_device": "NVIDIA H100 80GB HBM3",
    }
    # What was recomputed is of the new GPU: from there back again it is as it was, to the rounding of a nanosecond.
    back = retarget(made, "h100")[0].graphs[0].duration_ns
    assert np.abs(back - _graph().duration_ns).max() <= 3
    for device in ("", "Radeon"):
        with pytest.raises(ConfigError) as raised:
            retarget(_trace(_graph(), device), "b200")
        assert "--recorded-gpu" in raised.value.hint
    with pytest.raises(ConfigError, match="--gpu is 'b20'"):
        retarget(_trace(_graph(), "B200"), "b20")
    lone, _ = build_graph([{"id": 1, "type": "COMP_NODE", "attrs": {"is_cpu_op": True}}])
    with pytest.raises(ConfigError, match="no operation of a device"):
        retarget(_trace(lone, "H100"), "b200")


def test_gpus_are_those_of_the_systems() -> None:
    assert set(GPUS) == set(SYSTEM_OF)
    names = {find_gpu(name).name for name in GPUS}
    assert names == {system.gpu.name for system in SYSTEMS.values() if system.gpu is not None}
    assert set(SYSTEM_OF.values()) <= {*PRESETS, *SYSTEMS}
    assert match_gpu("AMD Instinct MI300X VF") == "mi300x"


def test_names_are_matched_once() -> None:
    names = [name for operator in OPERATORS for name in operator.names]
    assert len(names) == len(set(names))
    assert OPERATORS[find_operator("aten::add_")].family == "element by element"
    assert OPERATORS[find_operator("triton_poi_fused_add_0")].family == "fused by the compiler"


def _work(name: str, shapes: str, types: str, values: str = "[]") -> Work:
    call = Call(name, read_tensors(shapes, types), read_values(values))
    return OPERATORS[find_operator(name)].work(call)


def test_formulas_by_hand() -> None:
    half = '["c10::Half", "c10::Half", "c10::Half", "Scalar"]'
    grouped = _work(
        "aten::_scaled_dot_product_flash_attention",
        "[[2, 8, 4, 16], [2, 2, 4, 16], [2, 2, 4, 16], [], []]",
        '["c10::Half", "c10::Half", "c10::Half", "Scalar", "Scalar"]',
        '["", "", "", "0.", "True"]',
    )
    # Of each of 2 · 8 heads, 10 pairs are looked at, 16 wide, twice; keys and values have 2 heads.
    assert grouped == Work(2 * 2 * 8 * 10 * 32, 2 * 2 * (8 + 2 + 2 + 8) * 4 * 16, "fp16")
    ragged = "[[9, 8, 16], [9, 8, 16], [9, 8, 16], [3]]"
    with pytest.raises(NotRecordedError, match="lengths"):
        _work("aten::_flash_attention_forward", ragged, half.replace("Scalar", "int"), "[]")
    linear = _work("aten::linear", "[[2, 3, 4], [5, 4], [5]]", '["float", "float", "float"]')
    assert linear == Work(2 * 6 * 4 * 5, 4 * (24 + 20 + 5 + 30), "fp32")
    assert _work("aten::mul", "[[8, 1], [4]]", '["float", "float"]') == Work(32, 4 * (8 + 4 + 32), "fp32")
    adam = _work(
        "aten::_fused_adamw_",
        "[[[10]], [[10]], [[10]], [[10]]]",
        '["GenericList[Tensor(float)]", "GenericList[Tensor(float)]", "GenericList[Tensor(float)]", "GenericList[Tensor(float)]"]',
    )
    assert adam == Work(160, 4 * (40 + 30), "fp32")


def test_indexing_moves_the_elements_that_are_chosen() -> None:
    """Not all of the tensor: 46 rows of 8,192 by a list of one index, 5 columns of 6 rows by one for the second dimension."""
    kinds = '["c10::BFloat16", "GenericList[Tensor(long int)]", "c10::BFloat16"]'
    assert _work("aten::index", "[[8192, 2880], [[46]]]", kinds) == Work(0, 2 * 46 * 2880 * 2 + 46 * 8)
    put = _work("aten::index_put_", "[[8192, 2880], [[46]], [1]]", kinds)
    assert put == Work(0, 2 + 46 * 2880 * 2 + 46 * 8)
    # Kineto tells the shapes of a list without its types; two indices are broadcast to 3 by 5.
    listed = '["float", "TensorList"]'
    assert _work("aten::index", "[[7, 9, 4], [[3, 1], [5]]]", listed) == Work(0, 2 * 60 * 4 + 8 * 8)
    for shapes, types in (
        ("[[8192, 2880], []]", '["c10::BFloat16", ""]'),
        ("[[8192, 2880], [[8192]]]", listed),
        ("[[8192, 2880], [[8192]]]", '["float", "GenericList[Tensor(bool)]"]'),
    ):
        with pytest.raises(NotRecordedError, match="how many elements the indices choose"):
            _work("aten::index", shapes, types)


def test_a_generated_kernel_reaches_no_more_than_it_goes_through() -> None:
    kinds = '["c10::BFloat16", "float", "Scalar", "Scalar"]'
    poi, red = "triton_poi_fused_slice_1", "triton_red_fused_sum_2"
    # A slice of 60 of 1,000 elements, written to a buffer of 60.
    sliced = "[[10, 100], [60], [], []]"
    assert _work(poi, sliced, kinds, '["", "", "60"]') == Work(60, 2 * 60 + 4 * 60, "fp32")
    assert _work(poi, sliced, kinds, '["", "", "6", "10"]') == Work(60, 2 * 60 + 4 * 60, "fp32")
    assert _work(poi, sliced, kinds) == Work(1000, 2 * 1000 + 4 * 60, "fp32")
    # A reduction goes through rows and along each.
    assert _work(red, "[[10, 100], [10]]", kinds, '["", "", "10", "100"]') == Work(1000, 2040, "fp32")
    assert _work("triton_for_fused_3", sliced, kinds, '["", "", "60"]').flop == 1000


def test_no_operator_of_a_public_recording_beats_the_memory(shared: Path) -> None:
    trace = read_recording(shared / "traces" / "foreign" / "xdit_sd35_rank_0.json.gz")
    gpu = find_recorded_gpu(trace)
    rows = {row.operator: row for row in list_operators(trace).rows}
    sliced = rows["triton_poi_fused__unsafe_view_clone_slice_transpose_13"]
    # 148 calls that read and write 1,619,712 elements of 2 bytes.
    assert sliced.bytes == 148 * 1_619_712 * 2 * 2
    assert not [row.operator for row in rows.values() if describe_memory_excess(gpu, row.bytes_per_s)]


def test_calls_and_kernels_without_a_call_are_counted_apart() -> None:
    """Two kernels of one name; the recording holds the call that launched the first one alone, the other took half as long."""
    device = {"is_cpu_op": False, "stream": 7}
    graph, _ = build_graph(
        [
            {"id": 1, "type": "COMP_NODE", "name": "aten::mm", "duration_micros": 3, "attrs": {"is_cpu_op": True}},
            {"id": 2, "type": "COMP_NODE", "name": "gemm", "ctrl_deps": [1], "duration_micros": 8, "attrs": device},
            {"id": 3, "type": "COMP_NODE", "name": "gemm", "duration_micros": 4, "attrs": device},
        ]
    )  # fmt: skip
    texts = [*graph.strings, "[[64, 32], [32, 64]]", '["c10::BFloat16", "c10::BFloat16"]']
    io = np.full((len(graph), 6), -1, np.int32)
    io[0, 1], io[0, 2] = len(texts) - 2, len(texts) - 1
    [row] = list_operators(_trace(replace(graph, io=io, strings=Strings.of(texts)))).rows
    flop = 2 * 64 * 32 * 64
    assert (row.count, row.called_ns, row.called_flop) == (1, 8000, flop)
    assert (row.by_name_count, row.by_name_ns, row.by_name_flop) == (1, 4000, flop)
    assert (row.time_ns, row.flop, row.called_bytes) == (12_000, 2 * flop, row.by_name_bytes)


def test_kernels_of_a_replayed_graph_are_listed_by_their_names() -> None:
    """A mark around the step launched the graph; a kernel that was launched by itself is told by what launched it."""
    device = {"is_cpu_op": False, "stream": 7}
    graph, _ = build_graph(
        [
            {"id": 1, "type": "COMP_NODE", "name": "step 7", "duration_micros": 3, "attrs": {"is_cpu_op": True}},
            {"id": 2, "type": "COMP_NODE", "name": "norm", "ctrl_deps": [1], "duration_micros": 8, "attrs": {**device, "launched_by": "hipGraphLaunch"}},
            {"id": 3, "type": "COMP_NODE", "name": "norm", "ctrl_deps": [1], "duration_micros": 4, "attrs": {**device, "launched_by": "hipGraphLaunch"}},
            {"id": 4, "type": "COMP_NODE", "name": "gemm", "ctrl_deps": [1], "duration_micros": 2, "attrs": {**device, "launched_by": "hipLaunchKernel"}},
        ]
    )  # fmt: skip
    told = [(row.name, row.count, row.time_ns, row.why) for row in list_operators(_trace(graph)).uncovered]
    assert told == [
        ("norm", 2, 12_000, "replayed graph, no operator recorded"),
        ("step 7", 1, 2_000, "no formula for this operator"),
    ]


def test_experts_by_the_tiles_of_their_kernels() -> None:
    name = "bmm_{}_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_dynBatch{}_sm100f"
    kernels = (
        ("routing", (4, 1, 1)),
        (name.format("MxE4m3", "_swiGlu"), (8, 342, 1)),
        (name.format("Bfloat16", ""), (24, 342, 1)),
    )
    tensors = read_tensors("[[888, 3072], [888, 128]]", '["c10::BFloat16", "c10::BFloat16"]')
    row = OPERATORS[find_operator("vllm::moe_forward")]
    work = row.work(Call("vllm::moe_forward", tensors, kernels=kernels))
    # Four experts a token: 342 tiles of 16 hold 3,552 rows that lie with 128 experts in any way.
    assert work.flop == 2 * (4 * 888) * (1024 * 3072 + 512 * 3072)
    assert work.type == "fp8"
    assert work.bytes > 128 * (1024 + 512) * 3072 / 2
    for fewer in (kernels[:2], (kernels[0], (kernels[1][0], (8, 340, 1)), kernels[2])):
        with pytest.raises(NotRecordedError):
            row.work(Call("vllm::moe_forward", tensors, kernels=fewer))


@pytest.mark.parametrize(
    "file",
    [
        "h100_timesformer__1016002.json.gz",
        "mi300_resnet_act_checkpoint.json.gz",
        "b200_eager.json.gz",
    ],
)
def test_coverage_of_device_time(shared: Path, file: str) -> None:
    found = list_operators(read_recording(shared / "traces" / "foreign" / file))
    assert found.on_device
    assert found.coverage is not None
    assert found.coverage >= 0.9
    assert found.covered_ns + sum(row.time_ns for row in found.uncovered) == found.time_ns


def test_between_makers_the_error_of_a_recorded_pair_is_told(shared: Path) -> None:
    """Recomputed compute time of each of two recordings of one step, held against that of the other; the manual has both."""
    told = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    section = told.partition(report_recomputed.BEGIN)[2].partition(report_recomputed.END)[0]
    rows = list(report_recomputed.rows(shared / "traces" / "foreign"))
    assert [row.gpu for row in rows] == ["mi300x", "h100"]
    for row in rows:
        assert (
            f"| {row.gpu} | {row.made_ns / 1e6:.2f} ms | {row.recorded_ns / 1e6:.2f} ms | {100 * row.error:+.1f} % |"
            in section
        )
    assert round(max(abs(row.error) for row in rows), 2) == ACROSS_MAKERS
    words = Retargeting("AMD Instinct MI300X", "NVIDIA H100 SXM5 80 GB", 100, 50, 92, 8, 3, 0, 0).words
    assert words.endswith(
        "; between makers of GPUs this was off by up to 40 % on a recorded pair (docs/accuracy.md)"
    )
    same = Retargeting("NVIDIA B200", "NVIDIA H100", 100, 50, 92, 8, 3, 0, 0)
    assert "between makers" not in same.words


def test_the_table_of_the_documentation_is_current() -> None:
    assert operators_table.DOCUMENT.read_text(encoding="utf-8") == operators_table.written()
