"""Recognise kernels that move data between GPUs by themselves, without a communication library such as NCCL.

Their names are those of `studio.kernel_names`. No recorder describes them: what they carry out stands in their names,
how much in the tensors of an operator that is this collective. Dispatch and combine of experts are all-to-alls, whose sizes go
by where tokens are sent: no tensor of an operator tells them.
"""

from __future__ import annotations

import re

from studio.kernel_names import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER, UNNAMED, join_expressions
from studio.trace import CollectiveType

_KERNELS = tuple(
    (int(kind), re.compile(join_expressions(names), re.IGNORECASE))
    for kind, names in (
        (CollectiveType.ALL_REDUCE, ALL_REDUCE),
        (CollectiveType.ALL_GATHER, ALL_GATHER),
        (CollectiveType.REDUCE_SCATTER, REDUCE_SCATTER),
        (CollectiveType.ALL_TO_ALL, ALL_TO_ALL),
    )
)
_UNNAMED = re.compile(join_expressions(UNNAMED), re.IGNORECASE)
OPERATORS = (
    "symm_mem::",
    "vllm::",
    "_C_custom_ar::",
    "sglang::",
    "sgl_kernel::",
    "aiter::",
    "trtllm::",
    "flashinfer::",
    "deep_ep::",
)
"""Namespaces of operators that launch such kernels."""


def infer_direct_kind(name: str) -> int | None:
    """Return the collective that a kernel carries out without a communication library, None where it is none.

    Example:
        >>> infer_direct_kind("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)")
        0
        >>> infer_direct_kind("void reduce_kernel<512, 1>(float*)") is None
        True
    """
    return next((kind for kind, pattern in _KERNELS if pattern.search(name)), None)


def talks_without_kind(name: str) -> bool:
    """Whether a kernel communicates without a communication library and its name does not tell which collective that is.

    Example:
        >>> talks_without_kind("void deep_ep::intranode::notify_dispatch<8>(int const*, int*)")
        True
        >>> talks_without_kind("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)")
        False
    """
    return _UNNAMED.search(name) is not None


_TOLD_BY = (
    (int(CollectiveType.ALL_REDUCE), "allreduce"),
    (int(CollectiveType.ALL_GATHER), "allgather"),
    (int(CollectiveType.REDUCE_SCATTER), "reducescatter"),
)
_OTHER_TENSORS = re.compile(r"moe|matmul|gemm|scaledmm")
"""Operators that do more than their collective: their first tensor is another than what is communicated."""


def find_tensor_place(operator: str, kind: int) -> int | None:
    """Return which of an operator's tensors is what it communicates, None where none is known to be.

    Operators that do much else, such as a whole layer of experts, launch such kernels too: their tensors tell no size.

    Example:
        >>> find_tensor_place("_C_custom_ar::all_reduce", 0), find_tensor_place("symm_mem::one_shot_all_reduce_copy", 0)
        (0, 1)
        >>> find_tensor_place("vllm::moe_forward", 0) is None
        True
    """
    name = operator.rpartition("::")[2].replace("_", "").lower()
    if not any(kind == known_kind and word in name for known_kind, word in _TOLD_BY) or _OTHER_TENSORS.search(
        name
    ):
        return None
    # Copying into symmetric memory first, they name that memory before the tensor, and it may be larger.
    return 1 if "allreducecopy" in name else 0
