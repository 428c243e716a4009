"""Systems to start from, each with where its numbers come from.

The numbers of the vendors' systems are those of the configurations that ASTRA-sim ships for them, in its
units: GB/s of 2^30 bytes per link, nanoseconds. Some are data-sheet figures, some were tuned by its
authors to match measurements; `source` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from studio.errors import ConfigError
from studio.sim.config import SystemConfig
from studio.sim.fields import nearest
from studio.sim.parts import IMPLEMENTATIONS, Parts, Table, imported

_ASTRA = "ASTRA-sim, configurations it ships for its analytical network (2026)"
_RING_MEMORY = 50
"""Local memory bandwidth in the shipped configurations of TPU v3 and DGX V100, GB/s of 10^9 bytes."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A system by name.

    Attributes:
        name: What `--preset` takes.
        title: What the system is, in a line.
        source: Where the numbers come from.
        parts: The system as ASTRA-sim would write it; names are set, so messages speak of the preset.
    """

    name: str
    title: str
    source: str
    parts: Parts

    @property
    def config(self) -> SystemConfig:
        """The system as the simulator takes it."""
        return imported(self.parts).config


def preset(name: str) -> Preset:
    """Return a preset.

    Raises:
        ConfigError: There is no preset of this name; names the nearest.

    Example:
        >>> preset("hgx-h100-16").config.topology.npus
        16
    """
    if name not in PRESETS:
        near = nearest(name, PRESETS)
        hint = f"The nearest is {near!r}." if near else "`chakra-studio presets` says what each of them is."
        raise ConfigError(f"preset is {name!r}; allowed: {', '.join(PRESETS)}", hint=hint)
    return PRESETS[name]


def _preset(name: str, title: str, source: str, network: Table, system: Table) -> Preset:
    dims = len(network["topology"])  # type: ignore[arg-type]  # written below, a list
    table: dict[str, object] = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "collective-optimization": "localBWAware",
        **{key: ["ring"] * dims for key in IMPLEMENTATIONS},
        **system,
    }
    names = dict.fromkeys(("network", "system", "memory", "options"), f"preset {name}")
    return Preset(name, title, source, Parts(network, table, names=names))


def _network(
    topology: Sequence[str], sizes: Sequence[int], gb_per_s: Sequence[float], latency_ns: Sequence[float]
) -> Table:
    return {"topology": topology, "npus_count": sizes, "bandwidth": gb_per_s, "latency": latency_ns}


_H100 = {
    "endpoint-delay": 1,
    "active-chunks-per-dimension": 2,
    "preferred-dataset-splits": 4,
    "local-mem-bw": 3350,
    "roofline-enabled": 1,
    "peak-perf": 700,
}
_H100_SOURCE = (
    f"{_ASTRA}: NVLink 4 through NVSwitch as 400 GB/s per GPU and direction and 936.25 ns, tuned "
    "by its authors against measurements (data sheet: 450 GB/s); 3,350 GB/s is the data sheet's HBM3; 700 TFLOP/s as "
    "shipped (data sheet: 989, dense BF16)"
)
_H100_NODES = f"{_H100_SOURCE}; between nodes 50 GB/s per GPU, one 400 Gb/s port each, and 1,000 ns"
_TPU = {"endpoint-delay": 1, "local-mem-bw": _RING_MEMORY}
_TPU_SOURCE = (
    f"{_ASTRA}: links of 80 GB/s (Jouppi et al., CACM 63(7), 2020, give 656 Gbit/s, which is 82 GB/s)"
)

_ALL = (
    _preset(
        "hgx-h100-8",
        "HGX H100, 8 GPUs behind one NVSwitch level",
        _H100_SOURCE,
        _network(["Switch"], [8], [400], [936.25]),
        _H100,
    ),
    _preset(
        "hgx-h100-16",
        "2 HGX H100 nodes of 8 GPUs",
        _H100_NODES,
        _network(["Switch", "Ring"], [8, 2], [400, 50], [936.25, 1000]),
        _H100,
    ),
    _preset(
        "hgx-h100-32",
        "4 HGX H100 nodes of 8 GPUs in a ring",
        _H100_NODES,
        _network(["Switch", "Ring"], [8, 4], [400, 50], [936.25, 1000]),
        _H100,
    ),
    _preset(
        "dgx-v100-4",
        "4 GPUs of a DGX V100 in a ring",
        f"{_ASTRA}: a ring of 3.125 GB/s and 3.39 ns as shipped, far below the 25 GB/s per link and direction "
        "of NVLink 2's data sheet; its file for 8 GPUs holds placeholders instead of numbers",
        _network(["Ring"], [4], [3.125], [3.39]),
        _TPU,
    ),
    _preset(
        "tpu-v3-8",
        "TPU v3, 8 chips in a ring",
        f"{_TPU_SOURCE} and 1,000 ns",
        _network(["Ring"], [8], [80], [1000]),
        _TPU,
    ),
    _preset(
        "tpu-v3-32-ring",
        "TPU v3, 32 chips in a ring",
        f"{_TPU_SOURCE} and 2,000 ns",
        _network(["Ring"], [32], [80], [2000]),
        _TPU,
    ),
    _preset(
        "tpu-v3-32-torus",
        "TPU v3, 32 chips in a 4×8 torus",
        f"{_TPU_SOURCE} and 1,000 ns",
        _network(["Ring", "Ring"], [4, 8], [80, 80], [1000, 1000]),
        _TPU,
    ),
    _preset(
        "torus-8x8",
        "8×8 torus with links of 62 GB/s, as of 64 TPU v2 chips",
        "Link rate: Jouppi et al., A Domain-Specific Supercomputer for Training Deep Neural Networks, CACM 63(7), "
        "2020: 4 links of 496 Gbit/s per TPU v2 chip, which is 62 GB/s; 700 GB/s of HBM likewise. Latency: assumed, "
        "1,000 ns as in ASTRA-sim's TPU v3",
        _network(["Ring", "Ring"], [8, 8], [62, 62], [1000, 1000]),
        {
            "endpoint-delay": 1,
            "local-mem-bw": 700,
            "preferred-dataset-splits": 4,
            "active-chunks-per-dimension": 2,
        },
    ),
    _preset(
        "switch-600-37",
        "Two levels of switches, 8 nodes of 8 GPUs: 600 GB/s within a node, 37.5 GB/s between nodes",
        "A generic design, no product: 600 GB/s is what the NVIDIA A100 data sheet gives for NVLink 3 (both directions "
        "together), 37.5 GB/s a 300 Gb/s port per GPU, 2,039 GB/s the data sheet's HBM2e; latencies are assumed, "
        "250 and 2,000 ns",
        _network(["Switch", "Switch"], [8, 8], [600, 37.5], [250, 2000]),
        {"local-mem-bw": 2039, "preferred-dataset-splits": 4, "active-chunks-per-dimension": 2},
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({one.name: one for one in _ALL})
"""Every preset by name, in the order they are listed."""
