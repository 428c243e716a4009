"""Measured times as sums of parameters: what a fit multiplies and adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from studio.calibration.tables import MeasuredTable
from studio.distinct import find_distinct
from studio.sim.costs.model import CostModel
from studio.sim.costs.parameters import NAMES
from studio.sim.costs.shapes import Float64, GroupShape, Ports
from studio.sim.costs.ways import HOST_OVERLAP, OVERLAP, Way, combine

_LEAST_NS = 1e-3


def build_group_shape(table: MeasuredTable, ports: Ports) -> GroupShape:
    """Return where the ranks of a table lie on a system.

    A table counts hosts as nodes; where the system's first dimension spans several of them, as the NVLink domain of a rack
    does, they are one node.
    """
    ranks = table.gpus_per_node * table.nodes
    if ports.per_node > table.gpus_per_node and table.nodes > 1 and ports.per_node % table.gpus_per_node == 0:
        hosts = ports.per_node // table.gpus_per_node
        if _is_rack(table):
            nodes = -(-table.nodes // hosts)
            return GroupShape(ranks, -(-ranks // nodes), nodes)
    return GroupShape(ranks, table.gpus_per_node, table.nodes)


def _is_rack(table: MeasuredTable) -> bool:
    return "NVL72" in table.interconnect or "NVL72" in table.hardware


def choose_ways(
    model: CostModel, table: MeasuredTable, shape: GroupShape, ports: Ports
) -> npt.NDArray[np.int64]:
    """Return which of the possible ways each size of a table took: as its kernels' names tell, else as the library would."""
    ways = model.possible(table.collective, shape, ports)
    choice = model.choose(table.collective, table.size_bytes, shape, ports, ways)
    for kernel in sorted(set(table.choices) - {""}):
        rows = np.flatnonzero(np.array(table.choices) == kernel)
        places = [place for place, way in enumerate(ways) if _may_be(kernel, way)]
        if places:
            among = [ways[place] for place in places]
            picked = model.choose(table.collective, table.size_bytes[rows], shape, ports, among)
            choice[rows] = np.array(places)[picked]
    return choice


def _may_be(kernel: str, way: Way) -> bool:
    """Whether a way may be what a kernel of this name carried out.

    Of NCCL's kernels only those of LL are built: each begins whatever function of its collective is asked for, the ones of trees all
    trees, the ones of rings everything else (NVIDIA/nccl, src/device/generate.py, `best_kernel`). So LL in a name tells no protocol,
    and RING only that it is no tree.
    """
    algorithm, _, protocol = kernel.partition(" ")
    if protocol == "LL":
        return (way.algorithm == "tree") == (algorithm == "tree")
    same = way.algorithm.lower() == algorithm
    return same and (way.protocol == protocol or way.algorithm.startswith("NVLS"))


@dataclass(frozen=True, slots=True)
class Design:
    """The times of tables as a model says them: launch, then waits and the larger of inside and between, overlapping.

    P points, K parameters.

    Attributes:
        names: (K,) parameters that occur.
        powers: (K,) −1 for efficiencies, which divide; else 1.
        latency: (P,) ns of the network's latency, on top of all else.
        launch: (P, K) factors of launches.
        waits: (P, K) factors of protocols and hops.
        inside: (P, K) factors of the bytes inside nodes.
        between: (P, K) factors of the bytes between nodes.
        overlap: (P,) how far waits and bytes overlap.
        calls: (P,) factors of the host's time from call to call: the GPUs on which one thread launches.
        table: (P,) which table each point is of.
    """

    names: tuple[str, ...]
    powers: Float64
    latency: Float64
    launch: Float64
    waits: Float64
    inside: Float64
    between: Float64
    overlap: Float64
    calls: Float64
    table: npt.NDArray[np.int64]

    def times(self, logs: Float64) -> tuple[Float64, Float64]:
        """Return the times for logarithms of the parameters, in ns, and the derivatives of their logarithms (P, K)."""
        values = np.exp(logs * self.powers)
        inside, between = self.inside @ values, self.between @ values
        crossing = between > inside
        moving = np.maximum(np.where(crossing, between, inside), _LEAST_NS)
        waits = np.maximum(self.waits @ values, _LEAST_NS)
        both = combine(waits, moving, self.overlap)
        inner = self.launch @ values + both
        host = self.calls * values[self.names.index("host interval")]
        total = combine(host, inner, HOST_OVERLAP)
        by_host, by_inner = (host / total) ** (HOST_OVERLAP - 1), (inner / total) ** (HOST_OVERLAP - 1)
        by_waits = (waits / both) ** (self.overlap - 1)
        by_moving = (moving / both) ** (self.overlap - 1)
        factors = np.where(crossing[:, None], self.between, self.inside) * by_moving[:, None]
        slopes = (self.launch + self.waits * by_waits[:, None] + factors) * (values * self.powers)
        slopes *= by_inner[:, None]
        slopes[:, self.names.index("host interval")] += by_host * host
        total = total + self.latency
        return total, slopes / total[:, None]


def build_design(
    model: CostModel,
    tables: Sequence[MeasuredTable],
    ports: Ports,
    names: Sequence[str] = NAMES,
) -> Design:
    """Return the design of tables of one machine."""
    columns = {name: column for column, name in enumerate(names)}
    count = sum(len(table.size_bytes) for table in tables)
    parts = np.zeros((4, count, len(names)))
    latency, overlap, calls = np.zeros(count), np.ones(count), np.ones(count)
    of_table = np.zeros(count, np.int64)
    start = 0
    for number, table in enumerate(tables):
        shape = build_group_shape(table, ports)
        ways = model.possible(table.collective, shape, ports)
        choice = choose_ways(model, table, shape, ports)
        for taken in find_distinct(choice):
            way, rows = ways[taken], np.flatnonzero(choice == taken)
            split = model.terms(way, table.collective, table.size_bytes[rows], shape, ports)
            for part, group in enumerate((split.launch, split.waits, split.inside, split.between)):
                for name, factor in group:
                    parts[part, start + rows, columns[name]] += factor
            latency[start + rows] = split.latency_ns
            overlap[start + rows] = OVERLAP[way.rates]
        calls[start : start + len(choice)] = table.gpus_per_thread
        of_table[start : start + len(choice)] = number
        start += len(choice)
    powers = np.array([-1.0 if name.startswith("efficiency") else 1.0 for name in names])
    launch, waits, inside, between = parts
    return Design(
        names=tuple(names),
        powers=powers,
        latency=latency,
        launch=launch,
        waits=waits,
        inside=inside,
        between=between,
        overlap=overlap,
        calls=calls,
        table=of_table,
    )
