"""Where ranks stand in a layout, and their comm groups."""

from __future__ import annotations

import numpy as np

from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import AFTER, BEFORE, OWN, RING_BEFORE, RING_NEXT
from studio.trace import CommGroup, Int64


def build_rank_mesh(layout: Layout) -> Int64:
    """Return (pp, dp, cp, tp) the rank at each place of a layout.

    Example:
        >>> from studio.generation.layout import Layout
        >>> build_rank_mesh(Layout(2, 1, 2, (1, 1), 1, 1, 8, order=("pp", "tp", "dp"))).ravel().tolist()
        [0, 2, 1, 3]
    """
    sizes = {"pp": layout.pp, "dp": layout.dp, "cp": layout.cp, "tp": layout.tp}
    outer = [axis for axis in reversed(layout.order) if axis in sizes]
    outer = [*(axis for axis in sizes if axis not in outer), *outer]
    ranks = np.arange(layout.ranks, dtype=np.int64).reshape([sizes[axis] for axis in outer])
    return ranks.transpose([outer.index(axis) for axis in sizes])


def group_ranks(layout: Layout) -> dict[str, Int64]:
    """Return (G, M) the ranks of each of G groups of M members, by kind, in order of their first members.

    `tp`, `cp`, `pp`; `dp` of ranks that hold the same weights, of experts `edp`; `ep` of ranks that divide experts; `shard` of those
    that ZeRO divides among, of experts `eshard`, and `replica` of those that hold the same shards; `emb` of the first and the last stage.
    """
    mesh = build_rank_mesh(layout)
    pp, dp, cp, tp = mesh.shape
    # Ranks of a stage that hold the same weights, context parallel ones adjacent.
    copies = np.moveaxis(mesh, 3, 1).reshape(pp * tp, dp * cp)
    stages = mesh.reshape(pp, -1).T

    def group_neighbours(count: int) -> Int64:
        return copies.reshape(-1, count)

    def group_strided(count: int, among: Int64 = copies) -> Int64:
        parts = among.reshape(len(among), -1, count)
        return parts.swapaxes(1, 2).reshape(-1, parts.shape[1])

    by_kind = {
        "tp": mesh.reshape(-1, tp),
        "cp": group_neighbours(cp),
        "dp": copies,
        "shard": group_neighbours(layout.shards),
        "eshard": group_strided(layout.ep, copies.reshape(-1, layout.shards)),
        "replica": group_strided(layout.shards),
        "pp": stages,
        "ep": group_neighbours(layout.ep),
        "edp": group_strided(layout.ep),
        "emb": stages[:, [0, -1]],
    }
    return {kind: ranks[np.argsort(ranks[:, 0], kind="stable")] for kind, ranks in by_kind.items()}


def list_names_by_rank(groups: dict[str, Int64], ranks: int) -> list[dict[str, str]]:
    """Return the comm group of each kind that each rank is in, whether or not it has other ranks."""
    names: list[dict[str, str]] = [{} for _ in range(ranks)]
    for kind, members in groups.items():
        for number, group in enumerate(members.tolist()):
            for rank in group:
                names[rank][kind] = f"{kind}{number}"
    return names


def list_peers_by_rank(groups: dict[str, Int64], ranks: int) -> list[dict[int, int]]:
    """Return the ranks that each rank sends to and receives from: of the stages beside it and in its context parallel ring.

    Stages are a ring as well: interleaved ones send from the last to the first.
    """
    peers: list[dict[int, int]] = [{OWN: rank} for rank in range(ranks)]
    for kind, before, after in (("pp", BEFORE, AFTER), ("cp", RING_BEFORE, RING_NEXT)):
        for group in groups[kind].tolist():
            for place, rank in enumerate(group):
                peers[rank][before] = group[place - 1]
                peers[rank][after] = group[(place + 1) % len(group)]
    return peers


def build_comm_groups(model: Model, layout: Layout) -> tuple[CommGroup, ...]:
    """Return the comm groups of a job that have more than one rank: `tp0`, `dp0`, `pp0` and so on."""
    kinds = ["tp", "cp", *(["dp"] if layout.shards == layout.copies else ["shard", "replica"]), "pp"]
    kinds += ["ep", "edp"] if model.experts else []
    kinds += ["eshard"] if model.experts and layout.shards != layout.copies else []
    kinds += ["emb"] if model.tied and layout.pp > 1 else []
    groups = group_ranks(layout)
    return tuple(
        CommGroup(f"{kind}{number}", tuple(members))
        for kind in kinds
        if groups[kind].shape[1] > 1
        for number, members in enumerate(groups[kind].tolist())
    )
