"""Kernels that communicate, as systems of today and of before name them: told from compute, with no size that nothing tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import studio
from studio.analysis.job.kinds import COMMUNICATION, COMPUTE, infer_node_kinds, is_library_kernel
from studio.doctor import examine
from studio.operators.calls import Part, collect_calls
from studio.sim import simulate
from studio.sim.doubts import doubts_of
from studio.sim.presets import preset
from studio.trace import CollectiveType, Trace, list_node_attributes, read_int_column
from tests.et.pytorch_files import device_file, event, kernel, launch
from tests.handmade import node, trace_of

SOME = "some"
"""A kernel that communicates, of which the name does not tell what."""
KERNELS = {
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)": CollectiveType.ALL_REDUCE,
    "void aiter::reduce_scatter_cross_device_store<std::bfloat16_t, 8>(aiter::RankData*)": CollectiveType.ALL_REDUCE,
    "void aiter::allgather_lastdim<std::bfloat16_t, 4>(aiter::RankData*)": CollectiveType.ALL_GATHER,
    "void aiter::reduce_scatter_split_lastdim<__half, 4>(aiter::RankData*)": CollectiveType.REDUCE_SCATTER,
    "void quickreduce::allreduce_prototype_twoshot<x, __half>(__half const*)": CollectiveType.ALL_REDUCE,
    "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__half, 4u, true>(x)": CollectiveType.ALL_REDUCE,
    "void flashinfer::trtllm_moe_allreduce_fusion::moefinalize_allreduce_fusion_kernel_oneshot_lamport<1>(x)": CollectiveType.ALL_REDUCE,
    "void tensorrt_llm::kernels::lowPrecisionTwoShotHierAllReduceKernel<__half, 8>(x)": CollectiveType.ALL_REDUCE,
    "void tensorrt_llm::kernels::minimax_ar::minimax_reduce_rms_kernel_lamport<__half, 8>(x)": CollectiveType.ALL_REDUCE,
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>(int const*)": CollectiveType.ALL_TO_ALL,
    "c10d::intra_node_comm::hybridCubeMeshAllReduceKernel<true>(c10::BFloat16*)": CollectiveType.ALL_REDUCE,
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)": CollectiveType.ALL_GATHER,
    "c10d::nvshmem_extension::allToAllV(void*, void*, long*, int, int)": CollectiveType.ALL_TO_ALL,
    "c10d::nvshmem_extension::exchangeSplitAndOffset(long*, int, int)": SOME,
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": SOME,
    "void deep_ep::internode_ll::combine<true, 6144, 8>(void*)": CollectiveType.ALL_TO_ALL,
    "void deep_ep::elastic::hybrid_dispatch_impl<false, false, 24>(x)": CollectiveType.ALL_TO_ALL,
    "void deep_ep::intranode::notify_dispatch<8>(int const*, int*)": SOME,
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*)": SOME,
    "EpDispatchIntraNodeKernel_bf16": CollectiveType.ALL_TO_ALL,
    "void mori::moe::EpCombineIntraNodeKernel<hip_bfloat16, true>(x)": CollectiveType.ALL_TO_ALL,
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int, void**)": CollectiveType.ALL_GATHER,
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_fp8<8, __nv_fp8_e5m2>(int)": CollectiveType.REDUCE_SCATTER,
    "void userbuffers_fp16_sum_inplace_gpu_mc<8>(int, int)": CollectiveType.ALL_REDUCE,
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": SOME,
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": CollectiveType.ALL_REDUCE,
    "ncclBroadcastRingLLKernel_copy_i8(ncclColl)": CollectiveType.BROADCAST,
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": CollectiveType.ALL_GATHER,
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(x)": CollectiveType.ALL_REDUCE,
    "ncclSendRecvKernel_copy_i8(ncclColl)": SOME,
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": SOME,
    "mscclKernel_Sum_half_LL_false(ncclDevComm*)": SOME,
    "void mscclpp::executionKernel<mscclpp::LL16Packet, true>(int)": SOME,
    "void tensorrt_llm::kernels::nccl_device::fusedAllReduceRMSNorm<__half>(x)": CollectiveType.ALL_REDUCE,
    "void (anonymous namespace)::dispatchKernel<(unsigned int)16, true, false>(int*, unsigned long)": CollectiveType.ALL_TO_ALL,
    "void combineKernel<float, __nv_bfloat16, 16ul, true, true>(__nv_bfloat16*)": CollectiveType.ALL_TO_ALL,
    "void a2a_dispatch_send_kernel<true, 16>(unsigned long)": CollectiveType.ALL_TO_ALL,
    "hcom_allReduce__503_0_1": CollectiveType.ALL_REDUCE,
    "hcom_reduceScatter__612_4_1": CollectiveType.REDUCE_SCATTER,
    "hcom_send__612_4_1": SOME,
    "rccl_whatever": SOME,
    "oneccl_allreduce_pcie": CollectiveType.ALL_REDUCE,
    "oneccl_reduce_base<float, 2, 16, 1, 1, 2>": SOME,
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)": None,
    "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(char*)": None,
    "void at::native::elementwise_kernel<128, 2, at::native::broadcast>(x)": None,
    "void cutlass::reduction::kernel::ReduceSplitK<x>(x)": None,
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)": None,
    "void deep_ep::elastic::dispatch_copy_epilogue_impl<true, false>(x)": None,
    "void aiter::local_device_load_rmsnorm<std::bfloat16_t, 512, 1>(aiter::RankSignals)": None,
    "triton_red_fused_all_reduce_mean_0": None,
    "_fwd_kernel_ep_scatter_2": None,
    "void allocate_blocks_kernel(int*)": None,
    "void sendMessageToDraw(float*)": None,
    "void dispatchKernel<float>(float*)": None,
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, false, true>>(x)": None,
}
WORLD = {"backend": "nccl", "rank": 0, "world_size": 2}
BF16 = "c10::BFloat16"


def read_calls(folder: Path, *calls: tuple[Sequence[str], str, list[Any], list[str]], **more: Any) -> Trace:
    """Read a recording in which operators, each around the next, launch a kernel; the innermost one has these tensors."""
    events = [event("ProfilerStep#3", 0, 200 * len(calls), "user_annotation")]
    for number, (operators, name, dims, types) in enumerate(calls):
        begun = 10 + 200 * number
        for depth, operator in enumerate(operators):
            events.append(event(operator, begun + depth, 40 - 2 * depth))
        events[-1]["args"] |= {"Input Dims": dims, "Input type": types}
        events += [launch(begun + 20, 501 + number), kernel(name, begun + 50, 100, 501 + number, **more)]
    for rank in (0, 1):
        content = device_file(events, distributedInfo=WORLD | {"rank": rank}, baseTimeNanoseconds=0)
        (folder / f"kineto_{rank}.json").write_bytes(content)
    return studio.read(folder)


def communication(trace: Trace) -> list[dict[str, Any]]:
    graph = trace.graphs[0]
    rows, _ = read_int_column(graph, "comm_type")
    slots = trace.ranks[0].slots
    return [{one.name: one.value for one in list_node_attributes(graph, row, slots)} for row in rows.tolist()]


def test_kernels_that_communicate_are_told_from_those_that_compute(tmp_path):
    trace = read_calls(tmp_path, *((["aten::whatever"], name, [], []) for name in KERNELS))
    graph = trace.graphs[0]
    types, kinds, parts = dict(zip(*map(np.ndarray.tolist, read_int_column(graph, "comm_type")), strict=True)), infer_node_kinds(graph), collect_calls(graph).part  # fmt: skip
    for name, kind in KERNELS.items():
        [row] = np.flatnonzero(graph.name == graph.strings.find(name)).tolist()
        told = kind if isinstance(kind, CollectiveType) else None
        assert (types.get(row), kinds[row]) == (told, COMPUTE if kind is None else COMMUNICATION), name
        assert parts[row] == (Part.COMPUTE if kind is None else Part.COMMUNICATION), name
    unknown = [one.message for one in trace.findings if one.code == "unknown-collective"]
    assert "notify_dispatch" in unknown[0] or len(unknown) == 2


def test_kernels_in_files_of_other_tools_are_communication_by_name_but_operators_of_the_processor_are_not():
    names = [*KERNELS, "symm_mem::one_shot_all_reduce"]
    nodes = [
        node(number, "COMP", name=name, is_cpu_op=name.startswith("symm_mem"))
        for number, name in enumerate(names)
    ]
    [graph] = trace_of([nodes]).graphs
    assert is_library_kernel(graph).tolist() == [kind is not None for kind in KERNELS.values()] + [False]


@pytest.mark.parametrize(
    ("operators", "dims", "types", "size"),
    [
        # Handles of memory stand before the tensor.
        (["_C_custom_ar::all_reduce"], [[], [8, 16], [8, 16], []], ["Scalar", BF16, BF16, "Scalar"], 256),
        # Symmetric memory, which may be larger, stands before it.
        (["symm_mem::one_shot_all_reduce_copy"], [[99, 16], [8, 16], []], [BF16, BF16, ""], 256),
        (["aiter::fused_allreduce_rmsnorm_"], [[], [8, 16], [8, 16]], ["Scalar", BF16, BF16], 256),
        # A layer's operator does much else.
        (["vllm::moe_forward"], [[8, 16]], [BF16], None),
        (["trtllm::moe_finalize_allreduce"], [[64, 16], [8, 16]], [BF16, BF16], None),
        (["symm_mem::all_gather_matmul"], [[64, 16]], [BF16], None),
        (["aten::mm"], [[8, 16]], [BF16], None),
    ],
)
def test_sizes_are_those_of_operators_that_are_the_collective_and_of_no_other(
    tmp_path, operators, dims, types, size
):
    name = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"
    said = communication(read_calls(tmp_path, (operators, name, dims, types)))[0]
    assert (said.get("bytes_in"), said["comm_size"]) == (size, size or 0)
    assert "size" in said["comm_inferred"]


def test_the_operator_around_tells_the_size_that_the_innermost_does_not(tmp_path):
    name = "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(x)"
    outer = event("vllm::all_reduce", 8, 60)
    outer["args"] |= {"Input Dims": [[8, 16], []], "Input type": [BF16, ""]}
    inner = event("sgl_kernel::all_reduce", 10, 40)
    inner["args"] |= {"Input Dims": [[], []], "Input type": ["Scalar", "Scalar"]}
    path = tmp_path / "run.json"
    path.write_bytes(
        device_file([outer, inner, launch(12, 501), kernel(name, 60, 9, 501)], distributedInfo=WORLD)
    )
    assert communication(studio.read(path))[0]["comm_size"] == 256


def test_nccls_own_operation_tells_the_size_where_no_call_was_recorded(tmp_path):
    """Before PyTorch 1.11 nothing else did; of one that launched two kernels, how much each moves is not known."""
    name = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
    gather = "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)"
    trace = read_calls(
        tmp_path,
        (["nccl:all_reduce"], name, [[1000, 1000]], ["float"]),
        (["nccl:all_gather", "aten::x"], gather, [], []),
        (["nccl:all_gather"], gather, [[16]], ["float"]),
        (["nccl:all_reduce"], gather, [[16]], ["float"]),
    )
    assert [one.get("comm_size") for one in communication(trace)] == [4_000_000, 0, 64, 0]


def test_a_kernel_that_takes_the_place_of_the_librarys_carries_out_the_call_once(tmp_path):
    """PyTorch's own all-reduce within a node, and oneCCL's steps, which tell nothing: the call does."""
    for number, name in enumerate(("c10d::intra_node_comm::oneShotAllReduceKernel<8>(x)", "oneccl_reduce_base<float, 2>")):  # fmt: skip
        recorder = event(
            "record_param_comms", 12, 30, collective="allreduce", in_elements=64, out_elements=64, dtype="Float",
            group="0", group_ranks="[0, 1]",
        )  # fmt: skip
        events = [event("c10d::allreduce_", 10, 40), recorder, launch(20, 501), kernel(name, 60, 9, 501)]
        path = tmp_path / f"run{number}.json"
        path.write_bytes(device_file(events, distributedInfo=WORLD))
        [said] = communication(studio.read(path))
        assert (said["comm_type"], said["comm_size"], said["pg_name"]) == (0, 256, "0")


def test_what_has_no_recorded_size_is_said_where_it_is_simulated_and_checked(tmp_path):
    """It was taken to move nothing, and for a collective of empty tensors, which waits for nobody."""
    dispatch = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)"
    trace = read_calls(tmp_path, *[(["vllm::moe_forward"], dispatch, [[8, 16]], [BF16])] * 2)
    system = preset("hgx-h100", 2)
    result = simulate(trace, system.config)
    [doubt] = [one for one in doubts_of(result, system) if one.code == "unknown-size"]
    assert doubt.message.startswith("4 communication nodes of unknown size move nothing here and take only latency; recorded they took 200 µs")  # fmt: skip
    assert not doubt.impossible
    [found] = [one for one in examine(trace) if one.code == "size-zero"]
    assert found.message.startswith("4 communication nodes of ranks 0–1 have unknown sizes, which the recording does not tell")  # fmt: skip
    assert "record_shapes" in found.advice
    # 2 at once meet: where nobody knows how much they move they are no collectives of nothing.
    assert "Clocks compared by 2 matched" in next(
        one.message for one in trace.findings if one.code == "clock"
    )
