"""Recognise collectives by the names that operators, recorders, annotations and kernels give them."""

from __future__ import annotations

import re
from functools import lru_cache

from studio.kernel_names import LIBRARIES, join_expressions
from studio.trace import NONE, CollectiveType, NodeType

SEND, RECEIVE = -2, -3
"""Stand beside CollectiveType for the two sides of a message."""

_OPERATORS = {
    CollectiveType.ALL_REDUCE: ("allreduce", "allreducecoalesced", "allreducesparse"),
    CollectiveType.BROADCAST: ("broadcast", "broadcastoop"),
    CollectiveType.REDUCE: ("reduce", "reduceoop"),
    CollectiveType.ALL_GATHER: (
        "allgather",
        "allgatherbase",
        "allgatherv",
        "allgathercoalesced",
        "allgatherintotensor",
        "allgatherintotensorout",
        "allgatherintotensorcoalesced",
        "allgatheroop",
        "allgathersingle",
    ),
    CollectiveType.GATHER: ("gather",),
    CollectiveType.SCATTER: ("scatter",),
    CollectiveType.REDUCE_SCATTER: (
        "reducescatter",
        "reducescatterv",
        "reducescatterbase",
        "reducescattertensor",
        "reducescattertensorcoalesced",
        "reducescatteroop",
        "reducescattersingle",
    ),
    CollectiveType.REDUCE_SCATTER_BLOCK: ("reducescatterblock",),
    CollectiveType.ALL_TO_ALL: ("alltoall", "alltoallbase", "alltoallsingle", "alltoallv", "alltoallvsingle"),
    CollectiveType.BARRIER: ("barrier", "monitoredbarrier", "allreducebarrier"),
    SEND: ("send", "isend"),
    RECEIVE: ("recv", "irecv", "recvanysource"),
}
_BY_NAME = {name: int(kind) for kind, names in _OPERATORS.items() for name in names}

NO_COLLECTIVES = frozenset(
    ("", "wait", "init", "coalesced", "startcoalescing", "endcoalescing", "groupstart", "groupend")
)
"""What recorders write where nothing is communicated."""

_PREFIX = re.compile(r"(_?c10d(_functional)?(_autograd)?::|nccl:|rccl:|gloo:|mpi:|ucc:|xccl:|hccl:)")
KERNEL = re.compile(join_expressions(LIBRARIES), re.IGNORECASE)
"""Matches kernels of communication libraries, old and new."""
_LIBRARY_NAME = re.compile(r"nccl|rccl|hccl|hcom|(?<=one)ccl(?!reduce)")
"""What stands before the collective in names. Of oneCCL `reduce_base` is a step of several collectives, not a reduce."""
_KERNEL_KINDS = (
    ("allreduce", CollectiveType.ALL_REDUCE),
    ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("allgather", CollectiveType.ALL_GATHER),
    ("alltoall", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST),
    ("reduce", CollectiveType.REDUCE),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
)

BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2,
    "long": 8, "long int": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "short int": 2, "int16": 2,
    "char": 1, "signed char": 1, "int8": 1, "byte": 1, "unsigned char": 1, "uint8": 1, "bool": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
    "complexhalf": 4, "complexfloat": 8, "complexdouble": 16,
    "float8_e5m2": 1, "float8_e4m3fn": 1, "float8_e5m2fnuz": 1, "float8_e4m3fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes of an element by the names recorders give its type."""


def infer_operator_kind(name: str) -> int | None:
    """Return the collective that an operator, recorder or annotation names, None where it names none.

    Example:
        >>> infer_operator_kind("c10d::_allgather_base_"), infer_operator_kind("all_to_allv"), infer_operator_kind("aten::add")
        (2, 6, None)
    """
    return _BY_NAME.get(simplify_name(name))


@lru_cache(maxsize=1 << 12)
def simplify_name(name: str) -> str:
    """Return the name of a collective without namespace, underscores and case."""
    return _PREFIX.sub("", name, count=1).replace("_", "").replace("-", "").lower()


def infer_kernel_kind(name: str) -> int | None:
    """Return the collective in a kernel's name; None for kernels that carry out several.

    Example:
        >>> infer_kernel_kind("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"), infer_kernel_kind("ncclDevKernel_SendRecv")
        (7, None)
        >>> infer_kernel_kind("ncclAllReduceRingLLKernel_sum_f32(ncclColl)"), infer_kernel_kind("oneccl_reduce_base<float>")
        (0, None)
    """
    text = name.split("(", maxsplit=1)[0].replace("_", "").replace("-", "").lower()
    # Up to NCCL 2.7 the collective stood before the word kernel.
    texts = (text.split("kernel", 1)[-1], *_LIBRARY_NAME.split(text, maxsplit=1)[1:])
    return next(
        (int(kind) for token, kind in _KERNEL_KINDS if any(part.startswith(token) for part in texts)), None
    )


def choose_node_type(kind: int) -> NodeType:
    """Return the type of node that carries out a collective or one side of a message."""
    return {SEND: NodeType.COMM_SEND, RECEIVE: NodeType.COMM_RECV}.get(kind, NodeType.COMM_COLL)


def get_element_bytes(dtype: str) -> int:
    """Return the size of an element, -1 where the type is not known.

    Example:
        >>> get_element_bytes("c10::BFloat16"), get_element_bytes("Float"), get_element_bytes("?")
        (2, 4, -1)
    """
    return BYTES.get(dtype.rpartition("::")[2].lower(), NONE)
