"""Names of kernels that move data between GPUs: which collective they carry out, and those of which names do not tell it.

They are kernels of communication libraries, and those that reach into the memory of other GPUs by themselves: of PyTorch's symmetric
memory, NVSHMEM, Transformer Engine's userbuffers, MSCCL++, DeepEP, MORI, pplx, and the custom all-reduces and all-to-alls of vLLM,
SGLang, TensorRT-LLM, FlashInfer and AITER.
"""

from __future__ import annotations

ALL_REDUCE = (
    r"multimem_(one_shot_)?all_?reduce",
    r"(one|two)_?shot_?(hier)?_?all_?reduce|all_?reduce_(one|two)_?shot",
    r"all_?reduce_(fusion|prototype)|lamport_?all_?reduce|hybrid_?cube_?mesh_?all_?reduce|minimax_reduce_rms_kernel",
    r"cross_device_reduce_[12]stage",
    # The first half of AITER's fused all-reduce: it sums up a part and stores it on every GPU; the other half reads no other GPU's memory.
    r"reduce_?scatter_cross_device_store",
    r"userbuffers_fp16_sum_inplace_gpu_(rr|rw|mc)(_blocked2?)?\b",
    r"nccl_device::\w*all_?reduce",
)
ALL_GATHER = (
    r"multimem_all_?gather|cross_device_all_?gather|aiter::all_?gather_",
    r"userbuffers_fp16_sum_inplace_gpu_(rr|rw|mc)_ag",
)
REDUCE_SCATTER = (
    r"multimem_reduce_?scatter|aiter::reduce_?scatter_(?!cross_device_store)",
    r"userbuffers_fp16_sum_inplace_gpu_(rr|rw|mc)_rs",
)
ALL_TO_ALL = (
    # What they wait for before and after is not theirs: layouts and epilogues are work on the rank's own memory.
    r"\bdeep_ep::(\w+::)*(hybrid_)?(dispatch|combine)(_impl)?\b",
    r"\bep(dispatch|combine)\w*kernel|moea2a(dispatch|combine)kernel|moe_?all_?to_?all_?kernel",
    r"\b(dispatch|combine)kernel<[^()]*(\([a-z ]+\)[^()]*)?(true|false), ?(true|false)>|\ba2a_(dispatch|combine)_(send|recv)_kernel",
    r"c10d::\w+::all_?to_?all|kuserbuffers_all_?to_?all",
)
"""Kernels that carry out a collective without a library that is asked for it, as regular expressions for any case."""

UNNAMED = (
    r"\bdeep_ep::(\w+::)*((cached_)?notify(_dispatch|_combine)?|barrier|clean_low_latency_buffer)\b",
    r"kuserbuffers_(push|pull)|_on_stream_kernel|\bexchange_?split_?and_?offset",
    r"c10d::.*\b(barrier|put_signal|wait_signal)_kernel\b|c10d::\w+shmem_extension::",
)
"""Kernels that communicate without such a library, and do not tell of what kind: counts of tokens, messages, barriers."""

LIBRARIES = (
    r"(nccl|rccl|msccl)\w*(kernel|func)|(nccl|rccl)_",
    r"\boneccl_|\bmscclpp::|\bnvshmemi?_(?!extension)|\bhcom_|\bhccl(?!::)",
)
"""Kernels of communication libraries, old and new."""

MARKS = (
    "ccl", "nvshmem", "deep_ep", "userbuffers", "_on_stream_kernel", "splitandoffset", "split_and_offset", "c10d::", "allreduce",
    "all_reduce", "cross_device", "allgather", "all_gather", "reducescatter", "reduce_scatter", "alltoall", "all_to_all", "a2a",
    "minimax_reduce", "epdispatch", "epcombine", "dispatchkernel", "combinekernel", "hcom_",
)  # fmt: skip
"""Each name that matches any of these expressions holds one of these texts, in either case."""


def join_expressions(*expressions: tuple[str, ...]) -> str:
    """Return one regular expression for all.

    Example:
        >>> join_expressions(("a", "b"), ("c",))
        'a|b|c'
    """
    return "|".join(part for together in expressions for part in together)
