"""Recognise kernels that move data between GPUs by themselves, without a communication library such as NCCL.

They are those of PyTorch's symmetric memory, the custom all-reduces of vLLM, SGLang, TensorRT-LLM, FlashInfer and AITER, and
DeepEP, whose dispatch and combine are all-to-alls. No recorder describes them: what they carry out stands in their names,
how much in the tensors of the operator that launched them.
"""

from __future__ import annotations

import re

from studio.trace import CollectiveType

_KERNELS = tuple(
    (int(kind), re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (CollectiveType.ALL_REDUCE, r"multimem_(one_shot_)?all_?reduce|(one|two)_?shot_?all_?reduce"),
        (
            CollectiveType.ALL_REDUCE,
            r"all_?reduce_(fusion|prototype)|cross_device_reduce_[12]stage|lamport_?all_?reduce",
        ),
        (CollectiveType.ALL_GATHER, r"multimem_all_?gather|cross_device_all_?gather"),
        (CollectiveType.REDUCE_SCATTER, r"multimem_reduce_?scatter|reduce_?scatter_cross_device"),
        (CollectiveType.ALL_TO_ALL, r"deep_ep::(intranode|internode|internode_ll)::(dispatch|combine)\b"),
    )
)
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


def direct_kernel_kind(name: str) -> int | None:
    """Return the collective that a kernel carries out without a communication library, None where it is none.

    Example:
        >>> direct_kernel_kind("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)")
        0
        >>> direct_kernel_kind("void reduce_kernel<512, 1>(float*)") is None
        True
    """
    return next((kind for kind, pattern in _KERNELS if pattern.search(name)), None)
