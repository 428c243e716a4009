"""Short names of kernels: what is left of a C++ signature, and what is no signature and stays."""

import pytest

from studio.analysis.job.function_names import short_function_name

COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(float)#1}>"
    "(at::TensorIteratorBase&, int const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<int>(int&)::{lambda(int)#1})"
)
NORM = (
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, float, int)"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (COPY, "elementwise_kernel · direct_copy_kernel_cuda"),
        (NORM, "fused_add_rms_norm_kernel"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_nn>(cutlass_80_tensorop_bf16_nn::Params)",
         "Kernel2 · cutlass_80_tensorop_bf16_nn"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 8, false>(float*, int) [clone .kd]", "softmax_warp_forward"),
        ("void internal::gemvx::kernel<int, 7, false>(int*)", "gemvx::kernel"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllGather_RING_LL"),
    ],
)  # fmt: skip
def test_a_signature_is_told_by_its_function_and_operation(name: str, short: str) -> None:
    assert short_function_name(name) == short


@pytest.mark.parametrize(
    "name",
    [
        "",
        "aten::mm(3)",
        "Memcpy DtoD (Device -> Device)",
        "aten::add.Tensor(Tensor self, Tensor other) -> Tensor",
        "torch::autograd::CppNode<(anonymous namespace)::Lookup>",
        "autograd::engine::evaluate_function: torch::autograd::CppNode<at::Scale>(int*)",
        "PjitFunction(forward_3d_conv)",
        "mb0.transformer.1.mha.attn_kernel.dq@0_COMP",
        "void f<(int*)",
        ")(int*)",
        "triton_poi_fused_add_0",
    ],
)
def test_what_is_no_signature_stays(name: str) -> None:
    assert short_function_name(name) == name
