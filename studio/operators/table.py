"""The table of operators whose work is known: one row per signature, with its formula in words and its source.

Names are those of PyTorch and of libraries that run on it. A row matches a name, its form that works in place
(`aten::add_`), and, where it ends in `*`, all names that begin so. FLOP count a multiply-add as two; bytes count every
operand once, however often caches make a kernel read it, so that they are what has to be moved at least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from studio.operators import elements, matrices, tables
from studio.operators.tensors import Call
from studio.operators.work import Work

_BLAS = "BLAS, ?gemm: a multiply-add for each element of the result and of the inner dimension"
_CONVOLUTION = "torch.nn.Conv2d; Chellapilla et al. 2006, convolution as a matrix product"
_ATTENTION = "Vaswani et al. 2017; Dao et al. 2022 (FlashAttention), algorithm 1: two products"
_GRADIENT = "Dao et al. 2022 (FlashAttention), algorithm 4: five products, one of them the scores anew"
_DEFINITION = "the operator's definition in the PyTorch documentation"
_INDUCTOR = "PyTorch's Inductor: buffers that a kernel reads and writes are its arguments"
_FBGEMM = "FBGEMM, fbgemm_gpu: the operator's definition"


@dataclass(frozen=True, slots=True)
class Operator:
    """Operators of one signature.

    Attributes:
        family: What they are called together.
        names: Their names.
        work: The formula.
        flop: The operations in words.
        bytes: The bytes in words.
        source: Where the formula is from.
        needs_values: Whether it needs arguments that are no tensors.
        needs_kernels: Whether it needs the kernels that were launched.
    """

    family: str
    names: tuple[str, ...]
    work: Callable[[Call], Work]
    flop: str
    bytes: str
    source: str = _DEFINITION
    needs_values: bool = False
    needs_kernels: bool = False


_ALL_ONCE = "every operand once"
_PRODUCT = "2·n·k·m per matrix"
_TAPS = "2 · results · taps · input channels of a group"
_SCORES = "2 · heads · pairs of query and key · (width + width of values)"
_FIVE = "2 · heads · pairs of query and key · (3 · width + 2 · width of values)"


def _list_aten_names(words: str) -> tuple[str, ...]:
    return tuple(f"aten::{word}" for word in words.split())


VIEWS = "views and allocation"

_VIEWS = """view _unsafe_view view_as reshape _reshape_alias as_strided t transpose permute expand expand_as slice select
narrow unsqueeze squeeze flatten unflatten empty empty_like empty_strided new_empty new_empty_strided resize resize_as
detach alias unbind split split_with_sizes unsafe_split chunk lift_fresh lift to contiguous result_type resolve_conj
resolve_neg set item is_nonzero movedim swapaxes numpy_T diagonal real imag view_as_real view_as_complex conj
unsafe_chunk zeros ones zeros_like ones_like full full_like new_zeros new_ones new_full record_stream pin_memory
atleast_1d meshgrid broadcast_tensors ravel type_as""".replace("\n", " ")
_ONE = """add sub rsub mul div neg abs sign ceil floor round trunc frac clamp clamp_min clamp_max maximum minimum relu
threshold sqrt rsqrt reciprocal square addcmul addcdiv lerp masked_fill where logical_and logical_or logical_not
logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor remainder fmod floor_divide hardtanh leaky_relu
nan_to_num tril triu __and__ __or__ __lshift__ __rshift__ true_divide relu6 fmax fmin""".replace("\n", " ")
_COMPARISONS = "eq ne lt le gt ge isnan isinf isfinite isin"
_MANY = """exp exp2 expm1 log log2 log1p log10 sin cos tan tanh sigmoid pow erf erfinv atan asin acos sinh cosh gelu
silu softplus elu selu hardsigmoid hardswish mish log_sigmoid_forward logit celu""".replace("\n", " ")
_TWO_INPUTS = """threshold_backward sigmoid_backward tanh_backward hardtanh_backward leaky_relu_backward
native_dropout_backward masked_scale""".replace("\n", " ")
_MANY_BACKWARD = "gelu_backward silu_backward elu_backward softplus_backward hardswish_backward mish_backward"


_EXPERTS = (
    *(f"{library}::{way}place_fused_experts" for library in ("vllm", "sglang") for way in ("out", "in")),
    "vllm::rocm_aiter_fused_moe",
)


OPERATORS: tuple[Operator, ...] = (
    # --- matrix products
    Operator("matrix product", _list_aten_names("mm bmm matmul mv dot vdot _int_mm"), matrices.build_product_formula(), _PRODUCT, _ALL_ONCE, _BLAS),
    Operator("matrix product", _list_aten_names("addmm baddbmm addmv _addmm_activation"), matrices.build_product_formula(1), _PRODUCT, _ALL_ONCE, _BLAS),
    Operator("matrix product", (*_list_aten_names("linear mkldnn_linear _mkldnn_linear"), "vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16", "mkldnn::_linear_pointwise"), matrices.build_product_formula(transposed=True), _PRODUCT, _ALL_ONCE, _BLAS),
    Operator("matrix product", _list_aten_names("_scaled_mm"), matrices.compute_scaled_product_work, _PRODUCT, "every operand once, the result in 16 bits", _BLAS),
    Operator("matrix product", _list_aten_names("_grouped_mm"), matrices.compute_grouped_product_work, "2·n·k·m, n over all groups", _ALL_ONCE, _BLAS),
    Operator("matrix product", ("vllm::moe_forward",), matrices.compute_experts_work, "2·n·k·m of both products, n and m by the tiles of TensorRT-LLM's kernels", "weights of the experts in use, rows once", "TensorRT-LLM, batched GEMM kernels: names and grids; vLLM, fused_moe", needs_kernels=True),
    Operator("matrix product", _EXPERTS, matrices.compute_routed_experts_work, "2·n·k·m of all products, n over the experts of each token", "weights of as many experts as can be in use, tokens read and written, routing", "vLLM and SGLang, fused_experts: hidden_states, w1, w2, topk_weights"),
    # --- convolution
    Operator("convolution", _list_aten_names("convolution _convolution convolution_overrideable"), matrices.build_convolution_formula(3, 4, 5, 6), _TAPS, _ALL_ONCE, _CONVOLUTION, needs_values=True),
    Operator("convolution", _list_aten_names("conv1d conv2d conv3d cudnn_convolution_relu miopen_convolution_relu"), matrices.build_convolution_formula(3, 4, 5), _TAPS, _ALL_ONCE, _CONVOLUTION, needs_values=True),
    Operator("convolution", _list_aten_names("cudnn_convolution"), matrices.build_convolution_formula(3, 2, 4), _TAPS, _ALL_ONCE, _CONVOLUTION, needs_values=True),
    Operator("convolution", (*_list_aten_names("miopen_convolution miopen_depthwise_convolution mkldnn_convolution"), "mkldnn::_convolution_pointwise"), matrices.build_convolution_formula(4, 3, 5), _TAPS, _ALL_ONCE, _CONVOLUTION, needs_values=True),
    Operator("convolution", _list_aten_names("_slow_conv2d_forward thnn_conv2d"), matrices.build_convolution_formula(4, 5, -1), _TAPS, _ALL_ONCE, _CONVOLUTION, needs_values=True),
    Operator("convolution", _list_aten_names("_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d"), matrices.build_convolution_formula(4, 5, 6), _TAPS, _ALL_ONCE, _CONVOLUTION, needs_values=True),
    Operator("convolution", _list_aten_names("conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose miopen_convolution_transpose slow_conv_transpose2d slow_conv_transpose3d"), matrices.build_convolution_formula(-1, -1, -1, transposed=True), "2 · inputs · taps · output channels of a group", "input and weight once", _CONVOLUTION),
    Operator("convolution gradient", _list_aten_names("convolution_backward convolution_backward_overrideable"), matrices.build_convolution_backward_formula(7, 10), f"{_TAPS}, for each of input and weight that has one", _ALL_ONCE, _CONVOLUTION, needs_values=True),
    # --- attention
    Operator("attention", _list_aten_names("_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu"), matrices.build_attention_formula(4), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention", _list_aten_names("_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"), matrices.build_attention_formula(6), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention", _list_aten_names("_scaled_dot_product_fused_attention_overrideable"), matrices.build_attention_formula(5), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention", _list_aten_names("_flash_attention_forward"), matrices.build_attention_formula(8, heads_first=False, from_the_end=True, ragged=3), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention", _list_aten_names("_efficient_attention_forward"), matrices.build_attention_formula(9, heads_first=False, ragged=4), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention", _list_aten_names("_cudnn_attention_forward"), matrices.build_attention_formula(10, ragged=4), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention", ("flash_attn::_flash_attn_forward", "aiter::_flash_attn_forward", "aiter::fmha_v3_fwd"), matrices.build_attention_formula(5, heads_first=False, from_the_end=True), _SCORES, _ALL_ONCE, _ATTENTION, needs_values=True),
    Operator("attention gradient", _list_aten_names("_scaled_dot_product_flash_attention_backward"), matrices.build_attention_backward_formula(11), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    Operator("attention gradient", _list_aten_names("_scaled_dot_product_flash_attention_for_cpu_backward"), matrices.build_attention_backward_formula(7), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    Operator("attention gradient", _list_aten_names("_scaled_dot_product_efficient_attention_backward"), matrices.build_attention_backward_formula(11), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    Operator("attention gradient", _list_aten_names("_scaled_dot_product_cudnn_attention_backward"), matrices.build_attention_backward_formula(14), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    Operator("attention gradient", _list_aten_names("_flash_attention_backward"), matrices.build_attention_backward_formula(11, heads_first=False, from_the_end=True, ragged=6), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    Operator("attention gradient", _list_aten_names("_efficient_attention_backward"), matrices.build_attention_backward_formula(14, heads_first=False, ragged=6), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    Operator("attention gradient", ("flash_attn::_flash_attn_backward",), matrices.build_attention_backward_formula(11, heads_first=False, from_the_end=True), _FIVE, "each operand and gradient once", _GRADIENT, needs_values=True),
    # --- normalisation and softmax
    Operator("normalisation", (*_list_aten_names("native_layer_norm native_batch_norm cudnn_batch_norm miopen_batch_norm native_group_norm _native_batch_norm_legit _batch_norm_with_update"), "aiter::_groupnorm_run"), elements.build_first_tensor_formula(7, 2), "7 per element: mean, variance, normalise, scale, shift", "input and result once"),
    Operator("normalisation", (*_list_aten_names("rms_norm _fused_rms_norm"),), elements.build_first_tensor_formula(5, 2), "5 per element: square, sum, normalise, scale", "input and result once"),
    Operator("normalisation", ("_C::rms_norm", "sgl_kernel::rmsnorm", "aiter::rms_norm", "aiter::rmsnorm", "aiter::rmsnorm2d_fwd", "aiter::rmsnorm2d_fwd_ck", "vllm::rocm_aiter_rms_norm"), elements.build_first_tensor_formula(5, 2), "5 per element: square, sum, normalise, scale", "input and result once", "vLLM, csrc/layernorm_kernels.cu; AITER, rmsnorm"),
    Operator("normalisation", ("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add", "aiter::rmsnorm2d_fwd_with_add_ck", "vllm::rocm_aiter_rmsnorm2d_fwd_with_add"), elements.build_first_tensor_formula(6, 4), "6 per element: add, square, sum, normalise, scale", "input and residual read and written", "vLLM, csrc/layernorm_kernels.cu; AITER, rmsnorm"),
    Operator("normalisation gradient", _list_aten_names("native_layer_norm_backward native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward native_group_norm_backward batch_norm_backward _fused_rms_norm_backward"), elements.build_first_tensor_formula(14, 3), "14 per element: twice the forward pass", "gradient, input and its gradient once"),
    Operator("softmax", _list_aten_names("_softmax _log_softmax _safe_softmax"), elements.build_first_tensor_formula(5, 2), "5 per element: maximum, subtract, exponential, sum, divide", "input and result once"),
    Operator("softmax gradient", _list_aten_names("_softmax_backward_data _log_softmax_backward_data"), elements.build_first_tensor_formula(4, 3), "4 per element", "gradient, result and gradient of the input once"),
    # --- element by element
    Operator("element by element", _list_aten_names(_ONE), elements.build_elementwise_formula(), "1 per element of the result", _ALL_ONCE),
    Operator("element by element", _list_aten_names(_COMPARISONS), elements.build_elementwise_formula(out="bool"), "1 per element of the result", _ALL_ONCE),
    Operator("element by element", _list_aten_names(_MANY), elements.build_elementwise_formula(8), "8 per element of the result, as if the function were a polynomial", _ALL_ONCE, "a convention: the memory bounds these on every GPU here"),
    Operator("element by element", _list_aten_names(_TWO_INPUTS), elements.build_elementwise_formula(2), "2 per element", _ALL_ONCE),
    Operator("element by element", _list_aten_names(_MANY_BACKWARD), elements.build_elementwise_formula(10), "10 per element", _ALL_ONCE, "a convention: the memory bounds these on every GPU here"),
    Operator("element by element", tuple(f"{library}::{gate}_and_mul" for library in ("_C", "sgl_kernel", "aiter") for gate in ("silu", "gelu", "gelu_tanh")), elements.build_largest_tensor_formula(5, 1.5), "10 per element of the result", "the halves of the input, and the result", "vLLM, csrc/activation_kernels.cu"),
    Operator("element by element", ("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), elements.compute_rotary_work, "3 per element of queries and keys: two products and a sum", "queries and keys read and written, and positions", "Su et al. 2021 (RoFormer); vLLM, csrc/pos_encoding_kernels.cu"),
    Operator("element by element", ("_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant"), elements.compute_single_pass_work, "1 per element", _ALL_ONCE, "vLLM, csrc/quantization"),
    Operator("element by element", _list_aten_names("native_dropout _fused_dropout"), elements.build_first_tensor_formula(3, 2.5), "3 per element", "input, result, and a byte of mask for each"),
    Operator("fused by the compiler", ("triton_poi_*", "triton_red_*", "triton_per_*"), elements.compute_generated_work, "1 per element of the largest buffer, of no more than the kernel goes through", "every buffer once, of each no more elements than the kernel goes through, where their number is recorded", _INDUCTOR, needs_values=True),
    Operator("fused by the compiler", ("triton_for_*",), elements.compute_single_pass_work, "1 per element of the largest buffer", "every buffer once", _INDUCTOR),
    # --- reductions
    Operator("reduction", _list_aten_names("sum nansum mean prod max min amax amin aminmax argmax argmin all any norm linalg_vector_norm count_nonzero var_mean var std std_mean logsumexp nonzero bincount _amp_foreach_non_finite_check_and_unscale"), elements.build_reduction_formula(), "1 per element of the input", "the input once, the result where its dimensions are told", needs_values=True),
    Operator("scan or sort", _list_aten_names("cumsum cumprod logcumsumexp cummax"), elements.build_first_tensor_formula(1, 2), "1 per element", "input and result once"),
    Operator("scan or sort", _list_aten_names("sort argsort topk"), elements.build_first_tensor_formula(0, 1), "none counted", "the input once"),
    # --- tables
    Operator("look-up", _list_aten_names("embedding"), elements.build_lookup_formula(0, 1), "none", "rows read and written, and indices"),
    Operator("look-up", _list_aten_names("index_select"), elements.build_lookup_formula(0, 2), "none", "rows read and written, and indices"),
    Operator("look-up", _list_aten_names("gather take_along_dim"), elements.compute_gather_work, "none", "elements read and written, and indices"),
    Operator("look-up", _list_aten_names("index"), elements.compute_index_work, "none", "elements that the indices choose read and written, and indices"),
    Operator("look-up", _list_aten_names("_embedding_bag _embedding_bag_forward_only embedding_bag"), elements.compute_embedding_bag_work, "1 per element of the rows", "rows read, bags written, and indices"),
    Operator("look-up gradient", _list_aten_names("embedding_dense_backward"), elements.compute_embedding_gradient_work, "1 per element of the gradient", "gradient and rows of the table; the table cleared", needs_values=True),
    Operator("look-up gradient", _list_aten_names("scatter_add index_add index_reduce scatter scatter_reduce"), elements.build_scatter_formula(3, 2), "1 per element", "rows and source read, rows written"),
    Operator("look-up gradient", _list_aten_names("index_put _index_put_impl"), elements.compute_index_put_work, "none", "values read, elements that the indices choose written, and indices"),
    Operator("look-up gradient", ("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache"), elements.build_first_tensor_formula(0, 4), "none", "keys and values read and written", "vLLM, csrc/cache_kernels.cu"),
    Operator("look-up", (tables.LOOKUP,), tables.compute_lookup_work, "1 per element of the rows, 2 where they are scaled", "rows read, bags written, indices and offsets; a row has as many elements as tables have for each number of the optimizer, else the mean of the widths that the gradient has", _FBGEMM),
    Operator("look-up gradient", (tables.GRADIENT,), tables.compute_lookup_gradient_work, "3 per element of the rows", "gradient, indices and offsets read, rows and their number read and written, with the arguments of its look-up", _FBGEMM),
    Operator("look-up", ("fbgemm::bounds_check_indices",), tables.compute_read_work, "none", _ALL_ONCE, _FBGEMM),
    Operator("copy", ("fbgemm::permute_2D_sparse_data", "fbgemm::permute_sparse_features"), tables.compute_permute_work, "none", "lengths, values and scales read and written", _FBGEMM),
    Operator("copy", ("fbgemm::permute_pooled_embs_auto_grad", "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction*"), elements.build_first_tensor_formula(0, 2), "none", "the tensor read and written", _FBGEMM),
    Operator("scan or sort", ("fbgemm::asynchronous_complete_cumsum",), elements.build_first_tensor_formula(1, 2), "1 per element", "input and result once", _FBGEMM),
    Operator("quantization", ("fbgemm::FloatToFP8RowwiseQuantized",), tables.compute_quantize_work, "2 per element", "input once, a byte per element and 8 per row", _FBGEMM),
    Operator("quantization", ("fbgemm::FP8RowwiseQuantizedToFloat",), tables.compute_dequantize_work, "1 per element", "input once, 4 bytes per element", _FBGEMM),
    Operator("quantization", ("fbgemm::FloatToHFP8Quantized",), elements.build_first_tensor_formula(1, 1.25), "1 per element", "4 bytes read and 1 written per element", _FBGEMM),
    Operator("quantization", ("fbgemm::HFP8QuantizedToFloat",), elements.build_first_tensor_formula(1, 5), "1 per element", "1 byte read and 4 written per element", _FBGEMM),
    # --- pooling
    Operator("pooling", _list_aten_names("max_pool2d_with_indices avg_pool2d max_pool2d quantized_max_pool2d"), elements.build_pooling_formula(1, 2, 3), "1 per element under the window", _ALL_ONCE, needs_values=True),
    Operator("pooling", _list_aten_names("_adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d"), elements.build_first_tensor_formula(1, 1), "1 per element of the input", "the input once"),
    Operator("pooling", _list_aten_names("max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward"), elements.build_largest_tensor_formula(1, 2), "1 per element", "gradients of input and result, the input's size each"),
    Operator("pooling", _list_aten_names("upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d"), elements.compute_resampling_work, "none counted", "input and result once", needs_values=True),
    # --- optimizers
    Operator("optimizer", _list_aten_names("_foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_sqrt _foreach_neg _foreach_lerp _foreach_zero _foreach_copy _foreach_pow _foreach_reciprocal _foreach_maximum _foreach_clamp_min _foreach_clamp_max _foreach_sign _foreach_exp _foreach_abs"), elements.build_lists_formula(1), "1 per element", "lists read, the first written"),
    Operator("optimizer", _list_aten_names("_foreach_addcdiv _foreach_addcmul"), elements.build_lists_formula(3), "3 per element", "lists read, the first written"),
    Operator("optimizer", _list_aten_names("_foreach_norm"), elements.build_lists_formula(2), "2 per element", "lists read"),
    Operator("optimizer", _list_aten_names("_fused_adam _fused_adamw"), elements.build_fused_optimizer_formula(16, 3), "16 per parameter", "parameters and both moments read and written, gradients read", "Kingma and Ba 2015, algorithm 1"),
    Operator("optimizer", _list_aten_names("_fused_sgd"), elements.build_fused_optimizer_formula(4, 2), "4 per parameter", "parameters and momentum read and written, gradients read"),
    # --- moving
    Operator("copy", _list_aten_names("copy _to_copy clone _copy_from repeat roll flip repeat_interleave"), elements.compute_copy_work, "none", "source and target once"),
    Operator("copy", _list_aten_names("cat stack _cat"), elements.compute_join_work, "none", "every tensor read and written"),
    Operator("copy", _list_aten_names("constant_pad_nd replication_pad1d replication_pad2d replication_pad3d reflection_pad1d reflection_pad2d reflection_pad3d"), elements.compute_pad_work, "none", "tensor and result once", needs_values=True),
    Operator("copy", _list_aten_names("_local_scalar_dense"), elements.compute_no_work, "none", "one element"),
    Operator("fill", _list_aten_names("fill zero arange normal uniform random bernoulli exponential eye linspace randperm"), elements.compute_fill_work, "none", "the target once"),
    Operator("copy", ("Memcpy DtoD*", "__amd_rocclr_copy*"), elements.compute_copy_work, "none", "as many as the recorder tells, read and written", "the profiler's size of the copy"),
    Operator("fill", ("Memset*", "__amd_rocclr_fill*"), elements.compute_fill_work, "none", "as many as the recorder tells", "the profiler's size of the fill"),
    # --- loss
    Operator("loss", _list_aten_names("nll_loss_forward nll_loss2d_forward"), elements.build_first_tensor_formula(0, 0), "none", "an element per row"),
    Operator("loss", _list_aten_names("nll_loss_backward nll_loss2d_backward"), elements.build_largest_tensor_formula(0, 1), "none", "the gradient once"),
    Operator("loss", _list_aten_names("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div"), elements.build_elementwise_formula(3), "3 per element", _ALL_ONCE),
    Operator("loss", _list_aten_names("mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward"), elements.build_elementwise_formula(3), "3 per element", _ALL_ONCE),
    # --- nothing to compute
    Operator(VIEWS, _list_aten_names(_VIEWS), elements.compute_no_work, "none", "none: the operators that they call are counted"),
)  # fmt: skip


def _index_operators() -> tuple[dict[str, int], tuple[tuple[str, int], ...]]:
    exact = {
        name: row for row, operator in enumerate(OPERATORS) for name in operator.names if name[-1] != "*"
    }
    starts = tuple(
        (name[:-1], row)
        for row, operator in enumerate(OPERATORS)
        for name in operator.names
        if name[-1] == "*"
    )
    return exact, starts


_EXACT, _STARTS = _index_operators()


@lru_cache(maxsize=1 << 16)
def find_operator(name: str) -> int:
    """Return the row of the table that an operator's name matches, -1 where there is none.

    Example:
        >>> OPERATORS[find_operator("aten::add_")].family, find_operator("my::own")
        ('element by element', -1)
    """
    row = _EXACT.get(name)
    if row is None and name.endswith("_"):
        row = _EXACT.get(name[:-1])
    if row is None:
        row = next((row for start, row in _STARTS if name.startswith(start)), None)
    return -1 if row is None else row
