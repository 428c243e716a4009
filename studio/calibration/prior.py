"""Spread of cost parameters within a GPU generation, used as a prior where a machine's tables say little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from studio.sim.costs.parameters import NAMES
from studio.sim.costs.shapes import Float64

SPREAD: Mapping[str, float] = {
    "base LL128": 0.18,
    "base Simple": 0.18,
    "base NVLS": 0.18,
    "base between": 1.0,
    "base direct LL": 0.42,
    "base direct Simple": 0.18,
    "hop LL inside": 0.18,
    "hop LL128 inside": 0.18,
    "hop Simple inside": 0.45,
    "hop direct inside": 0.63,
    "settle LL": 0.4,
    "efficiency LL inside": 0.38,
    "efficiency LL128 inside": 0.3,
    "efficiency Simple inside": 0.05,
    "efficiency NVLS inside": 0.08,
    "efficiency direct inside": 0.05,
    "efficiency LL between": 0.45,
    "efficiency LL128 between": 0.3,
    "efficiency Simple between": 0.15,
    "efficiency NVLS between": 0.15,
    "efficiency direct between": 0.3,
    "host interval": 0.9,
    "shared both ways": 1.0,
    "shared between switches": 0.7,
}
"""Standard deviation of a parameter's logarithm over the machines of a generation; 0.5 where none is given. Chosen by leaving tables out
(`python -m benchmarks.accuracy`): what predicts tables that were not fitted best."""
_ELSE = 0.5

TOGETHER: Sequence[tuple[str, str, float, float]] = (
    ("launch ", "", 0.5, 0.12),
    ("copy ", "", 0.25, 0.1),
    ("hop ", " between", 0.65, 0.35),
)
"""Parameters that a machine has in common: start and end of their names, how far all of them lie from the generation's
together, and how far each one from the others. A machine whose all-reduces take long to launch takes long for its
all-gathers too."""

ALIKE: Sequence[tuple[tuple[str, ...], float]] = (
    (("efficiency Simple inside", "efficiency direct inside"), 0.8),
    (("efficiency Simple between", "efficiency direct between"), 0.7),
    (("ramp LL inside", "ramp LL between"), 0.7),
    (("ramp LL128 inside", "ramp LL128 between"), 0.7),
)
"""Parameters whose deviations go together, and their correlation: rings and messages use the same ports, and how many channels a library
opens for a size is the same inside nodes and between them."""

OF_A_NETWORK: Sequence[tuple[tuple[str, ...], float]] = (
    (("efficiency Simple between", "efficiency LL128 between"), 0.8),
    (("efficiency Simple between", "efficiency NVLS between"), 0.8),
    (("efficiency LL128 between", "efficiency NVLS between"), 0.8 * 0.8),
    (("efficiency LL128 between", "efficiency direct between"), 0.8 * 0.7),
    (("efficiency NVLS between", "efficiency direct between"), 0.8 * 0.7),
)
"""The same of what a machine reaches between nodes: where its network carries less than it states, all protocols reach less. Where tables tell
of LL128 alone (every second size of ABCI's A100), Simple follows. LL goes by the host's memory, and by itself. Machines have this in common
with no others: libraries, transports and families of machines are not known better by it."""

WIDER: Mapping[str, float] = {"nccl-pcie": 3.0, "rccl": 2.0}
"""Libraries whose machines differ more in what they make of their ports: PCIe trees with and without peer access, and
GPUs of one name with other fabrics."""

OF_NVLINKS = ("efficiency Simple inside", "efficiency direct inside")
_OTHER_PORTS = 2.4
"""What machines reach of their ports inside a node by large messages, and how much further machines of the libraries in `WIDER` lie apart
in it: NVLinks of one generation lie within 3 to 6 % of each other, so that a slow collective over several nodes tells of the network."""


def build_precision(
    library: str = "", widen: float = 1.0, names: Sequence[str] = NAMES, *, one_network: bool = False
) -> Float64:
    """Return the precision matrix (K, K) of the logarithms of the parameters of a machine around its generation's.

    Args:
        library: The machine's library; "" for what all have in common.
        widen: Factor on all spreads.
        names: The parameters.
        one_network: Whether all that is measured between nodes was on one network.
    """
    spread = np.array([SPREAD.get(name, _ELSE) for name in names])
    reached = np.array([name.startswith("efficiency") for name in names])
    spread[reached] *= WIDER.get(library, 1.0)
    if library in WIDER:
        spread[[name in OF_NVLINKS for name in names]] *= _OTHER_PORTS
    covariance = np.diag(spread**2)
    for start, end, common, each in TOGETHER:
        which = np.array([name.startswith(start) and name.endswith(end) for name in names])
        rows = np.flatnonzero(which)
        covariance[np.ix_(rows, rows)] = common**2 + each**2 * np.eye(len(rows))
    for alike, correlation in (*ALIKE, *OF_A_NETWORK) if one_network else ALIKE:
        rows = np.array([place for place, name in enumerate(names) if name in alike])
        for first in rows:
            for second in rows[rows != first]:
                covariance[first, second] = correlation * spread[first] * spread[second]
    return np.asarray(np.linalg.inv(covariance * widen**2))
