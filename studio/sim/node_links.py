"""Links inside nodes without a switch: which of them several collectives or messages pass.

In such a node every pair of NPUs has links of its own, so that collectives of different groups slow each other where both
have the two NPUs of a pair for members, and only there. A collective loads the links between its members in a node
alike, both ways; a message the one from its sender to its receiver. So links that the same collectives and messages pass carry
the same load at all times, in whatever node they lie, and one of them stands for all.

Where the links of an NPU go to fewer peers than its node has (a DGX-1), the links of a pair are known of groups only that
no more NPUs belong to than one is joined to. Larger groups load the NPU's port as a whole, and smaller ones both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from studio.distinct import find_distinct
from studio.sim.charges import FLOW_KINDS, SEND_RECV, passes_links
from studio.sim.flow_plans import SENDS, Bundles
from studio.trace import Bool, Int64


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """Links that can be too full, each of which stands for all that the same bundles pass.

    L links, E entries: a bundle that passes a link.

    Attributes:
        link: (E,) the link, rising.
        bundle: (E,) the bundle, rising within a link.
    """

    link: Int64
    bundle: Int64

    def __len__(self) -> int:
        """Return how many links there are."""
        return int(self.link[-1]) + 1 if len(self.link) else 0

    def of(self, links: Int64) -> NodeLinks:
        """Return some of the links, numbered as they are."""
        is_chosen = np.isin(self.link, links)
        return NodeLinks(self.link[is_chosen], self.bundle[is_chosen])


NO_LINKS = NodeLinks(np.zeros(0, np.int64), np.zeros(0, np.int64))


def find_links(bundles: Bundles, per_node: int, peers: int) -> NodeLinks:
    """Return the links inside nodes that more may pass at once than they carry.

    These are links that several bundles pass, and links of several messages; collectives of one group follow each other. Left
    out are links that nothing passes but groups which use all links of an NPU: its port carries as large a part of its whole.

    Args:
        bundles: The collectives and messages, by who takes part.
        per_node: NPUs of a node.
        peers: NPUs that the links of an NPU are divided among; 0 stands for a switch.
    """
    shapes = [shape for shape, _ in bundles.shapes]
    linked = np.array([passes_links(shape, peers) for shape in shapes], np.bool_)
    some = np.array([shape.per_node - 1 < peers for shape in shapes], np.bool_)
    if not linked.any() or not len(bundles.case):
        return NO_LINKS
    lengths = np.diff(bundles.offsets)
    # All flows of a bundle have its shape; one without flows passes nothing.
    first = bundles.case[np.minimum(bundles.offsets[:-1], len(bundles.case) - 1)]
    sorts = linked[bundles.shape[first]] & (lengths > 0)
    partial = sorts & some[bundles.shape[first]]
    if not partial[bundles.sort].any():
        return NO_LINKS
    messages = bundles.kind[first] == FLOW_KINDS.index(SEND_RECV)
    link, bundle = _list_passings(bundles, sorts[bundles.sort], messages[bundles.sort], per_node)
    order = np.lexsort((bundle, link))
    link, bundle = link[order], bundle[order]
    begins = np.flatnonzero(np.diff(link, prepend=-1))
    counts = np.diff(begins, append=len(link))
    sort = bundles.sort[bundle]
    at_once = np.maximum(counts, _reduce_any(messages[sort] & (lengths[sort] > 1), begins) * 2)
    kept = (at_once > 1) & _reduce_any(partial[sort], begins)
    return _find_distinct_links(bundle, begins[kept], counts[kept])


def _reduce_any(values: Bool, begins: Int64) -> Bool:
    """Return whether any of the values is true, by part."""
    if not len(begins):
        return np.zeros(0, np.bool_)
    by_part: Bool = np.logical_or.reduceat(values, begins)
    return by_part


def _list_passings(bundles: Bundles, linked: Bool, messages: Bool, per_node: int) -> tuple[Int64, Int64]:
    """Return each passing of a bundle over a link: the link, as a number of the pair of NPUs, and the bundle.

    Args:
        bundles: The bundles.
        linked: (B,) whether it passes links.
        messages: (B,) whether it is messages.
        per_node: NPUs of a node.
    """
    entries = np.flatnonzero(linked[bundles.bundle])
    bundle, place = bundles.bundle[entries], bundles.place[entries]
    sends = bundles.role[bundles.part_offsets[bundles.part[entries]]] == SENDS
    order = np.lexsort((place, bundle))
    bundle, place, sends = bundle[order], place[order], sends[order]
    node = place // per_node
    begins = np.flatnonzero((np.diff(bundle, prepend=-1) != 0) | (np.diff(node, prepend=-1) != 0))
    counts = np.diff(begins, append=len(bundle))
    links, passing = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for count in find_distinct(counts[counts > 1]).tolist():
        here = begins[counts == count]
        first, second = np.nonzero(~np.eye(count, dtype=np.bool_))
        source, target = here[:, None] + first, here[:, None] + second
        passes = sends[source] | ~messages[bundle[source]]
        links.append((place[source] * per_node + place[target] % per_node)[passes])
        passing.append(bundle[source][passes])
    return np.concatenate(links), np.concatenate(passing)


def _find_distinct_links(bundle: Int64, begins: Int64, counts: Int64) -> NodeLinks:
    """Return one link of each that the same bundles pass.

    Args:
        bundle: Bundles, link after link, rising within each.
        begins: Where each link's bundles begin.
        counts: How many there are.
    """
    links: list[npt.NDArray[np.int64]] = []
    for count in find_distinct(counts).tolist():
        passed = bundle[begins[counts == count][:, None] + np.arange(count)]
        links.extend(np.unique(passed, axis=0))
    if not links:
        return NO_LINKS
    return NodeLinks(np.repeat(np.arange(len(links)), [len(each) for each in links]), np.concatenate(links))
