"""How far ranks are from their neighbours: numbers that are equal where messages take the same time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.sim.collectives import Phase
from studio.sim.config import SystemConfig
from studio.sim.fold_job import Neighbourhood, Unfoldable
from studio.trace import Int64


def number_hops(config: SystemConfig, ranks: Int64, peers: Int64) -> Int64:
    """Number pairs of ranks by their message times in both directions."""
    if config.congestion == "aware":
        return _number_links(config, ranks, peers)
    numbers = np.zeros(len(ranks), np.int64)
    open_ = np.ones(len(ranks), np.bool_)
    a, b = ranks, peers
    for index, dim in enumerate(config.topology.dims):
        x, y = a % dim.size, b % dim.size
        here = open_ & (x != y)
        far = np.abs(x - y)
        hops = np.minimum(far, dim.size - far) if dim.kind == "ring" else np.zeros(len(far), np.int64)
        numbers[here] = (1 + index) * config.topology.npus + hops[here]
        open_ &= ~here
        a, b = a // dim.size, b // dim.size
    return numbers


def _number_links(config: SystemConfig, ranks: Int64, peers: Int64) -> Int64:
    """Return a number per pair that says which links of its own a rank uses to reach another."""
    dim = config.topology.dims[0]
    far = (peers - ranks) % dim.size
    if dim.kind == "switch":
        return np.zeros(len(ranks), np.int64)
    if dim.kind == "fully_connected":
        raise Unfoldable("links do not correspond to neighbours in comm groups and pipelines")
    if ((far != 1) & (far != dim.size - 1)).any():
        raise Unfoldable("messages pass over links of other ranks")
    return far


def is_even(config: SystemConfig, phase: Phase, sizes: set[int]) -> bool:
    """Whether every rank reaches its neighbours in a phase in the same time: within one dimension, of these sizes, it does."""
    single = phase.algorithm.single and len(config.topology.dims) > 1
    return not single and phase.size in sizes


def number_world_hops(config: SystemConfig, phase: Phase, far: int, ranks: Int64) -> Int64:
    """Number ranks by the times of messages to and from the neighbour at a distance in a phase."""
    peers = Neighbourhood.of(phase).find(far, ranks)
    if config.congestion == "aware" and config.topology.dims[0].kind == "fully_connected":
        return np.zeros(len(ranks), np.int64)
    return number_hops(config, ranks, peers)


def check_links(config: SystemConfig, world: Sequence[tuple[Phase, int]]) -> None:
    """On a fully connected network a link must serve one neighbour only, however it is counted."""
    if config.topology.dims[0].kind == "fully_connected" and (
        len({Neighbourhood.of(phase).crosswise for phase, _ in world}) > 1
    ):
        raise Unfoldable("links do not correspond to neighbours")
