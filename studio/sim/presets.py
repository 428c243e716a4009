"""Named systems, each with the source of its numbers.

The numbers of the vendors' systems are those of the configurations that ASTRA-sim ships for them, in its
units: GB/s of 2^30 bytes per link, nanoseconds. Some are data-sheet figures, some were tuned by its
authors to match measurements; `source` says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from studio.errors import ConfigError
from studio.notebook import line, one_line, table
from studio.sim.config import Congestion, SystemConfig
from studio.sim.fabrics import Speed, rail_optimized
from studio.sim.fields import nearest
from studio.sim.models import with_model
from studio.sim.parts import Parts, Table, interpret
from studio.sim.settings import ALGORITHM_SETTINGS

_ASTRA = "ASTRA-sim, github.com/astra-sim/astra-sim, as of 2026"
_RING_MEMORY = 50
"""Local memory bandwidth in the shipped configurations of TPU v3 and DGX V100, GB/s of 10^9 bytes."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named system.

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

    __repr__ = one_line

    @property
    def config(self) -> SystemConfig:
        """The system as the simulator takes it, under the full model; `studio.simulate` takes another."""
        return interpret(with_model(self.parts, "full")).config


class Presets(Mapping[str, Preset]):
    """The presets by name.

    Example:
        >>> import studio
        >>> studio.presets["hgx-h100-8"].config.topology.npus
        8
        >>> list(studio.presets)[:3]
        ['hgx-h100-8', 'hgx-h100-16', 'hgx-h100-32']
    """

    def __init__(self, listed: Sequence[Preset]) -> None:
        self._presets = {one.name: one for one in listed}

    def __getitem__(self, name: str) -> Preset:
        return self._presets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._presets)

    def __len__(self) -> int:
        return len(self._presets)

    def __repr__(self) -> str:
        return line("Presets", [repr(name) for name in self])

    def _repr_html_(self) -> str:
        """Return the presets as a table."""
        rows = [(one.name, one.config.topology.npus, one.title, one.source) for one in self.values()]
        return table(repr(self), ("name", "NPUs", "what it is", "source of the numbers"), rows)


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


def _preset(
    name: str, title: str, source: str, network: Table, system: Table, congestion: Congestion = "unaware"
) -> Preset:
    dims = len(network["topology"])  # type: ignore[arg-type]  # written below, a list
    table: dict[str, object] = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "collective-optimization": "localBWAware",
        **{setting.key: ["ring"] * dims for setting in ALGORITHM_SETTINGS if not setting.extended},
        **system,
    }
    names = dict.fromkeys(("network", "system", "memory", "options"), f"preset {name}")
    return Preset(name, title, source, Parts(network, table, congestion=congestion, names=names))


def _network(
    topology: Sequence[str], sizes: Sequence[int], gb_per_s: Sequence[float], latency_ns: Sequence[float]
) -> Table:
    return {"topology": topology, "npus_count": sizes, "bandwidth": gb_per_s, "latency": latency_ns}


def _rails() -> Table:
    graph = rail_optimized(4, 8, inside=Speed(450, 936.25), rail=Speed(50, 1000))
    return {
        "bandwidth-unit": "GB/s",
        **_network(["Switch", "Switch"], [8, 4], [450, 50], [936.25, 1000]),
        "switches": graph.switches,
        "links": [[link.source, link.target, link.bytes_per_ns, link.latency_ns] for link in graph.links],
    }


_H100 = {
    "endpoint-delay": 1,
    "active-chunks-per-dimension": 2,
    "preferred-dataset-splits": 4,
    "local-mem-bw": 3350,
    "roofline-enabled": 1,
    "peak-perf": 700,
}
_H100_SOURCE = (
    "400 GB/s per GPU and direction and 936.25 ns per hop, which its authors set after measured collectives "
    "(370.67 GB/s of bus bandwidth at most); NVIDIA's H100 SXM data sheet gives NVLink 900 GB/s in both directions "
    "together, 450 in one, and HBM3 3,350 GB/s; 700 TFLOP/s as shipped (data sheet: 989, dense BF16)"
)
_H100_NODES = f"{_H100_SOURCE}; between nodes 50 GB/s per GPU, which is a port of 400 Gb/s, and 1,000 ns"
_TPU = {"endpoint-delay": 1, "local-mem-bw": _RING_MEMORY}
_TPU_SOURCE = (
    "80 GB/s per link and direction; Jouppi et al., A Domain-Specific Supercomputer for Training Deep Neural "
    "Networks, CACM 63(7), 2020, give a TPU v3 chip 4 links of 656 Gbit/s, which is 82 GB/s"
)


def _shipped_source(file: str, what: str) -> str:
    """Format the source of a preset that ships with ASTRA-sim."""
    return f"{_ASTRA}, inputs/network/{file}.yml: {what}"


_ALL = (
    _preset(
        "hgx-h100-8",
        "HGX H100, 8 GPUs behind one NVSwitch level",
        _shipped_source("hgx_h100_8gpu", _H100_SOURCE),
        _network(["Switch"], [8], [400], [936.25]),
        _H100,
    ),
    _preset(
        "hgx-h100-16",
        "2 HGX H100 nodes of 8 GPUs",
        _shipped_source("hgx_h100_16gpu", _H100_NODES),
        _network(["Switch", "Ring"], [8, 2], [400, 50], [936.25, 1000]),
        _H100,
    ),
    _preset(
        "hgx-h100-32",
        "4 HGX H100 nodes of 8 GPUs in a ring",
        _shipped_source("hgx_h100_32gpu", _H100_NODES),
        _network(["Switch", "Ring"], [8, 4], [400, 50], [936.25, 1000]),
        _H100,
    ),
    _preset(
        "dgx-v100-4",
        "4 GPUs of a DGX V100 in a ring",
        _shipped_source(
            "dgx_v100_4gpu",
            "3.125 GB/s per link and 3.39 ns, without a measurement (the file says so); NVIDIA gives NVLink of the V100 "
            "25 GB/s per link and direction, 6 links per GPU. Its file for 8 GPUs holds placeholders",
        ),
        _network(["Ring"], [4], [3.125], [3.39]),
        _TPU,
    ),
    _preset(
        "tpu-v3-8",
        "TPU v3, 8 chips in a ring",
        _shipped_source("tpu_v3_8", f"1,000 ns and {_TPU_SOURCE}"),
        _network(["Ring"], [8], [80], [1000]),
        _TPU,
    ),
    _preset(
        "tpu-v3-32-ring",
        "TPU v3, 32 chips in a ring",
        _shipped_source("tpu_v3_32_ring", f"2,000 ns and {_TPU_SOURCE}"),
        _network(["Ring"], [32], [80], [2000]),
        _TPU,
    ),
    _preset(
        "tpu-v3-32-torus",
        "TPU v3, 32 chips in a 4×8 torus",
        _shipped_source("tpu_v3_32_2dtorus", f"1,000 ns and {_TPU_SOURCE}"),
        _network(["Ring", "Ring"], [4, 8], [80, 80], [1000, 1000]),
        _TPU,
    ),
    _preset(
        "torus-8x8",
        "8×8 torus with links of 62 GB/s, as of 64 TPU v2 chips",
        "Link rate: Jouppi et al., A Domain-Specific Supercomputer for Training Deep Neural Networks, CACM 63(7), "
        "2020: 4 links of 496 Gbit/s per TPU v2 chip, which is 62 GB/s; 700 GB/s of HBM likewise. Latency: assumed, "
        "1,000 ns as in ASTRA-sim's inputs/network/tpu_v3_32_2dtorus.yml",
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
    _preset(
        "hgx-h100-32-rails",
        "4 HGX H100 nodes of 8 GPUs on 8 rail switches, link by link; extended mode",
        "NVIDIA's H100 SXM data sheet: NVLink 900 GB/s in both directions together, 450 in one; HBM3 3,350 GB/s; 989 "
        "TFLOP/s, dense BF16. Rails: a port of 400 Gb/s per GPU, which is 50 GB/s (NVIDIA DGX SuperPOD reference "
        "architecture, DGX H100: compute fabric, rail-optimized). GB of 10^9 bytes. Latencies per hop as in "
        "ASTRA-sim's inputs/network/hgx_h100_16gpu.yml: 936.25 and 1,000 ns",
        _rails(),
        {**_H100, "peak-perf": 989, "extended": {}},
        congestion="aware",
    ),
)

PRESETS = Presets(_ALL)
"""Every preset by name, in the order they are listed."""
presets = PRESETS
"""What notebooks call them."""
