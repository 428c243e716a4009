"""Short names of kernels: what is left of a C++ signature, and what is no signature and stays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.job.function_names import shorten_distinctly, shorten_function_name
from tests.examples import examples

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
    assert shorten_function_name(name) == short


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
    assert shorten_function_name(name) == name


_TILES = (
    "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT{}_MI16x16x1_SN_LDSB1_VWB4_WSGRA0_WSGRB0_WS64_WG32_8_1"
)
_MUL = "void at::native::elementwise_kernel<128, {0}, at::native::BinaryFunctor<{1}, {1}, {1}, at::native::MulFunctor<float> > >(int)"


def test_names_that_look_the_same_keep_what_they_differ_in():
    """Of a long name the part in its middle that is cut, of a signature what the short name leaves out."""
    names = [_TILES.format("256x128x64"), _MUL.format(4, "c10::BFloat16"), _TILES.format("128x224x64"), _MUL.format(2, "float"), "attn_fwd"]  # fmt: skip
    first, second, third, fourth, fifth = shorten_distinctly(names, 59)
    assert "MT256x128x64" in first
    assert "MT128x224x64" in third
    assert (second, fourth) == (
        "elementwise_kernel · MulFunctor · c10::BFloat16",
        "elementwise_kernel · MulFunctor · float",
    )
    assert fifth == "attn_fwd"
    # The same name twice is no collision, and stays as it is.
    assert shorten_distinctly([names[1], names[1]], 59) == ["elementwise_kernel · MulFunctor"] * 2


@settings(max_examples=examples(100))
@given(st.lists(st.text("aB1_<>, ", max_size=30), min_size=2, max_size=6, unique=True))
def test_texts_of_names_that_look_the_same_differ_and_fit(middles):
    names = [f"{'k' * 60}_{middle}_{'z' * 60}" for middle in middles]
    shown = shorten_distinctly(names, 59)
    assert len(set(shown)) == len(names)
    assert all(len(text) < 59 for text in shown)
