"""What a GPU and its host reach of their data sheets, and the time of a compute node from its operations, bytes and kernels.

A node takes the longer of two times: that of its work, by the roofline with the shares that are reached, and that in which the host
launches its kernels. Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009; NVIDIA, "Matrix Multiplication Background User's
Guide" (tensor cores reach their rate where all sizes are multiples of 8 elements of 2 bytes); PyTorch eager mode launches kernel by
kernel, the forward pass from Python, the backward pass from its own thread.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from studio.errors import ConfigError
from studio.operators.roofline import Gpu, find_peak

ALIGNED_ELEMENTS = 8
"""Matrix products reach their rate where every size is a multiple of this."""
_SHARES = ("matmul", "odd_matmul", "memory")


@dataclass(frozen=True, slots=True)
class Work:
    """What a compute node has to do.

    Attributes:
        flop: Operations.
        moved: Bytes read and written.
        kernels: Kernels that the host launches for it.
        aligned: Whether all sizes of its matrix products are multiples of 8 elements.
        backward: Whether it is part of a backward pass.
        dtype: Data type of what its matrix products multiply.
    """

    flop: int
    moved: int
    kernels: int = 1
    aligned: bool = True
    backward: bool = False
    dtype: str = "bf16"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What is reached of a GPU's data sheet; as it stands, all of it: the roofline, a lower bound of time.

    Attributes:
        matmul: Share of its peak that matrix products reach.
        odd_matmul: The same of products with a size that is no multiple of 8 elements.
        memory: Share of its memory's bandwidth.
        forward_ns: Time in which the host launches a kernel of a forward pass.
        backward_ns: The same in a backward pass.
        kernel_ns: Time that a kernel takes besides its work, as in a CUDA graph, where the host launches none: to begin, to fill the GPU
            and to drain it.
        source: Where the numbers are from, in words; "" for numbers given.
        gpu: A word in the name of the GPU that the numbers are of; "" for numbers given.
    """

    matmul: float = 1.0
    odd_matmul: float = 1.0
    memory: float = 1.0
    forward_ns: float = 0.0
    backward_ns: float = 0.0
    kernel_ns: float = 0.0
    source: str = ""
    gpu: str = ""

    def __post_init__(self) -> None:
        """Refuse shares that no GPU reaches.

        Raises:
            ConfigError: A share is not above 0 and at most 1, or a time is negative.
        """
        for name in _SHARES:
            share = getattr(self, name)
            if not 0 < share <= 1:
                raise ConfigError(
                    f"The {name} efficiency is {share:g}; allowed: above 0, at most 1.", key=name
                )
        for name in ("forward_ns", "backward_ns", "kernel_ns"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name):g}; allowed: 0 and above.", key=name)

    def time_ns(self, work: Work, gpu: Gpu) -> float:
        """Return the time of a compute node on a GPU.

        Example:
            >>> from studio.sim.systems.gpus import find_gpu
            >>> a100 = find_gpu("a100")
            >>> round(Efficiency().time_ns(Work(312 * 10**9, 0), a100)), round(Efficiency(matmul=0.5).time_ns(Work(312 * 10**9, 0), a100))
            (1000000, 2000000)
        """
        rate = find_peak(gpu, work.dtype)
        assert rate is not None
        share = self.matmul if work.aligned else self.odd_matmul
        arithmetic = work.flop / (rate * 1e3 * share)
        memory = work.moved / (gpu.memory_bytes_per_ns * self.memory)
        launched = work.kernels * (self.backward_ns if work.backward else self.forward_ns)
        return max(max(arithmetic, memory) + work.kernels * self.kernel_ns, launched, 1.0)

    def describe_source(self, gpu: Gpu) -> str:
        """Return where its numbers are from, in words."""
        if not self.source:
            shares = f"{self.matmul:.0%} of its peak and {self.memory:.0%} of its memory's bandwidth"
            return "its roofline" if self == Efficiency() else f"its roofline with {shares}"
        carried = "" if self.gpu in gpu.name else f", carried over to {gpu.name}"
        return f"efficiencies {self.source}{carried}"


FITTED_GPU = "a100"
"""The GPU whose steps the numbers below were fitted to."""
FITTED = Efficiency(
    matmul=0.794,
    odd_matmul=0.370,
    memory=0.444,
    forward_ns=114_800.0,
    backward_ns=20_100.0,
    source="fitted to 100 steps of GPT on 8 A100",
    gpu="A100",
)
"""What `python -m benchmarks.measured_steps` fits to vTrain's table of steps on one node, see docs/accuracy.md."""
RECORDED = (
    Efficiency(0.657, 0.306, 0.588, 18_900.0, 18_900.0, source="as recorded in two public traces of H100", gpu="H100"),
    Efficiency(0.400, 0.186, 0.525, 15_600.0, 15_600.0, source="as recorded in two public traces of MI300X", gpu="MI300X"),
)  # fmt: skip
"""What operators reach in forward passes that were recorded, see docs/generation.md; odd sizes lose as much as on A100."""
SERVED = Efficiency(
    0.689, 0.689, 0.891, kernel_ns=4_740.0, source="fitted to 12 steps of inference on H100", gpu="H100"
)
"""What `python -m benchmarks.measured_gpu` fits to steps of inference, see docs/accuracy.md: layers compiled, decoding as a CUDA graph."""
_LIKE = (("H200", "H100"), ("GH200", "H100"), ("B200", "H100"), ("B300", "H100"), ("GB200", "H100"), ("GB300", "H100"), ("MI3", "MI300X"))  # fmt: skip
"""GPUs of which nothing was recorded, by a word of their name, and the one whose numbers are carried over; else those of A100."""


def choose_efficiency(gpu: Gpu) -> Efficiency:
    """Return what is reached of a GPU: as measured on it, or on the one most like it.

    Example:
        >>> from studio.sim.systems.gpus import find_gpu
        >>> [choose_efficiency(find_gpu(name)).gpu for name in ("a100", "h100", "b200", "mi325x", "v100")]
        ['A100', 'H100', 'H100', 'MI300X', 'A100']
    """
    known = {numbers.gpu: numbers for numbers in (FITTED, *RECORDED)}
    own = next((word for word in known if word in gpu.name), None)
    like = next((of for word, of in _LIKE if word in gpu.name), FITTED.gpu)
    return known[own or like]


def estimate_serving_efficiency(gpu: Gpu) -> Efficiency:
    """Return what steps of inference reach of a GPU: as measured on H100, of GPUs of AMD by as much less as was recorded there.

    Example:
        >>> from studio.sim.systems.gpus import find_gpu
        >>> [round(estimate_serving_efficiency(find_gpu(name)).matmul, 3) for name in ("h100", "h200", "a100", "mi300x")]
        [0.689, 0.689, 0.689, 0.419]
    """
    recorded = {numbers.gpu: numbers for numbers in RECORDED}
    on_gpu, on_served = choose_efficiency(gpu), recorded[SERVED.gpu]
    if on_gpu.gpu not in recorded:
        return SERVED
    return replace(
        SERVED,
        **{
            name: getattr(SERVED, name) * getattr(on_gpu, name) / getattr(on_served, name) for name in _SHARES
        },
    )


NUMBERS = tuple(spec.name for spec in fields(Efficiency) if spec.name not in ("kernel_ns", "source", "gpu"))
"""The numbers that are fitted to steps of training, by name."""
