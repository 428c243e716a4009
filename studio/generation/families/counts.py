"""What a step of a data parallel network computes, sends and holds, as closed forms.

Sources: Goyal et al., "Accurate, Large Minibatch SGD", 2017, and Li et al., "PyTorch Distributed", 2020 (a sum of all gradients, in
buckets); Naumov et al., 2019, section 3.1, and Mudigere et al., "Software-Hardware Co-design for Fast and Scalable Training of
Deep Learning Recommendation Models", ISCA 2022 (tables on one rank each, or columns of them; all-to-alls of rows that are taken, of what
they sum to, and of its gradients).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from studio.errors import ConfigError
from studio.generation.families.network import Network, Part, Tables
from studio.generation.models import format_nearest

ELEMENT_BYTES = WEIGHT_BYTES = 2
INDEX_BYTES, ROW_BYTES = 8, 4
"""Bytes of a row's number, and of an element of a table; what is sent of sums of rows is in two."""
_ROW_STATE_BYTES = 4
"""Row-wise Adagrad keeps one number a row."""
DDP_BUCKET = 25


@dataclass(frozen=True, slots=True)
class Replicas:
    """How ranks share a network: all hold it, but for tables.

    Attributes:
        ranks: How many.
        batch: Samples of a step, of all ranks.
        batch_from: Where that is from, in words.
        bucket: Bytes of gradients that are summed at once.
        gradient_bytes: Bytes of a gradient.
        steps: Training steps.
    """

    ranks: int
    batch: int
    batch_from: str = "given"
    bucket: int = DDP_BUCKET << 20
    gradient_bytes: int = 2
    steps: int = 1

    @property
    def samples(self) -> int:
        """Samples of a rank in a step."""
        return self.batch // self.ranks


def build_replicas(network: Network, ranks: int, values: dict[str, Any]) -> Replicas:
    """Return how ranks share a network, from what a user says.

    Raises:
        ConfigError: Numbers do not divide, or there are more ranks than columns of tables.
    """
    batch, words = values["batch"], "given"
    if batch is None:
        fits = network.batch % ranks == 0
        batch, words = (network.batch, "published recipe") if fits else (32 * ranks, "assumed, 32 a rank")
    if batch % ranks:
        below = batch // ranks * ranks
        near = format_nearest(batch, (number for number in (below, below + ranks) if number))
        raise ConfigError(
            f"--batch is {batch:,}, which {ranks:,} ranks do not divide.",
            hint=f"The nearest: --batch {near}.",
            key="batch",
        )
    most = len(network.tables.rows) * network.tables.width if network.tables else ranks
    if ranks > most:
        raise ConfigError(
            f"--ranks is {ranks:,}; {network.name} has {most:,} columns of tables.",
            hint=f"Allowed: 1 to {most:,}.",
        )
    gradient = 4 if values["grad_dtype"] == "fp32" else 2
    bucket = (values["bucket_mb"] or DDP_BUCKET) << 20
    return Replicas(ranks, batch, words, bucket, gradient, values["steps"])


def group_gradient_buckets(network: Network, replicas: Replicas) -> tuple[tuple[str, ...], ...]:
    """Return the parts whose gradients are summed at once, in the order in which the backward pass makes them."""
    filled: list[tuple[str, ...]] = []
    bucket: list[str] = []
    size = 0
    for part in reversed(network.parts):
        if not part.parameters:
            continue
        bucket.append(part.name)
        size += replicas.gradient_bytes * part.parameters
        if size >= replicas.bucket:
            filled.append(tuple(bucket))
            bucket, size = [], 0
    return (*filled, tuple(bucket)) if bucket else tuple(filled)


def split_tables(tables: Tables, ranks: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the pieces of tables that each rank holds: table and columns of it.

    A table is on one rank; where there are more ranks than tables each is cut into as many pieces of columns as all ranks need.
    The largest loads go first, each to the rank that has least.
    """
    cut = 1
    while len(tables.rows) * cut < ranks:
        cut *= 2
    columns = tables.width // cut
    held: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    loads = [(0, 0, rank) for rank in range(ranks)]
    by_load = sorted(range(len(tables.rows)), key=lambda table: -tables.rows_per_sample[table])
    for table in (table for table in by_load for _ in range(cut)):
        load, count, rank = min(loads)
        held[rank].append((table, columns))
        loads[rank] = load + tables.rows_per_sample[table] * columns, count + 1, rank
    return tuple(tuple(sorted(own_pieces)) for own_pieces in held)


def count_table_bytes(tables: Tables, replicas: Replicas, rank: int) -> dict[str, int]:
    """Return the bytes of a rank's all-to-alls, those of its busier direction: `indices` and `sums` of rows; and `lookup`.

    Gradients of sums come back as large as these were. `lookup` is what it reads of its tables, and writes.
    """
    own_pieces = split_tables(tables, replicas.ranks)[rank]
    cut = tables.width // own_pieces[0][1] if own_pieces else 1
    taken = sum(tables.rows_per_sample[table] for table, _ in own_pieces)
    columns = sum(width for _, width in own_pieces)
    own = len(tables.rows) * tables.width
    read = sum(tables.rows_per_sample[table] * width for table, width in own_pieces)
    return {
        "indices": INDEX_BYTES
        * max(replicas.samples * cut * sum(tables.rows_per_sample), replicas.batch * taken),
        "sums": ELEMENT_BYTES * max(replicas.batch * columns, replicas.samples * own),
        "lookup": replicas.batch * (ROW_BYTES * read + ELEMENT_BYTES * columns + INDEX_BYTES * taken),
        "operations": replicas.batch * read,
    }


def count_backward_flop(network: Network, part: Part) -> tuple[int, int]:
    """Return the operations of a part's backward pass for a sample: of its input's gradient, and of its weights'.

    The input of the network has no gradient.
    """
    if part.kind != "matmul":
        return 2 * part.flop, 0
    return (0 if part is network.parts[0] else part.flop), part.flop


def count_step_flop(network: Network, replicas: Replicas) -> int:
    """Return the operations of products and attention in a step of all ranks."""
    each = sum(
        part.flop + sum(count_backward_flop(network, part)) for part in network.parts if part.kind != "other"
    )
    return replicas.batch * each


def count_step_volumes(network: Network, replicas: Replicas) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what all ranks give to collectives in a step, by group and collective: how many nodes, and their bytes."""
    if replicas.ranks == 1:
        return {}
    size = replicas.gradient_bytes * network.dense
    volumes = {
        ("dp", "ALL_REDUCE"): (
            replicas.ranks * len(group_gradient_buckets(network, replicas)),
            replicas.ranks * size,
        )
    }
    if network.tables:
        sent = [count_table_bytes(network.tables, replicas, rank) for rank in range(replicas.ranks)]
        volumes["dp", "ALL_TO_ALL"] = (
            3 * replicas.ranks,
            sum(each["indices"] + 2 * each["sums"] for each in sent),
        )
    return volumes


def count_step_memory(network: Network, replicas: Replicas) -> dict[str, int]:
    """Return the bytes on the rank that holds most, by part; activations are what all parts make of a rank's samples."""
    tables = 0
    if network.tables:
        held = split_tables(network.tables, replicas.ranks)
        rows = network.tables.rows
        tables = max(
            sum(rows[table] * (ROW_BYTES * width + _ROW_STATE_BYTES) for table, width in own_pieces)
            for own_pieces in held
        )
    return {
        "parameters": WEIGHT_BYTES * network.dense,
        "gradients": replicas.gradient_bytes * network.dense,
        "optimizer": network.optimizer.kept * network.dense,
        "tables": tables,
        "activations": ELEMENT_BYTES * replicas.samples * sum(part.outputs for part in network.parts),
    }


def describe(network: Network, replicas: Replicas) -> dict[str, Any]:
    """Return what a job is made of, as `--json` prints it."""
    memory = count_step_memory(network, replicas)
    return {
        "model": network.name,
        "family": network.family,
        "source": network.source,
        "parameters": network.parameters,
        "layout": f"dp={replicas.ranks}",
        "world_size": replicas.ranks,
        "steps": replicas.steps,
        "batch": replicas.batch,
        "batch_from": replicas.batch_from,
        "optimizer": network.optimizer.name,
        "buckets": len(group_gradient_buckets(network, replicas)),
        "flop": count_step_flop(network, replicas),
        "memory": {**memory, "total": sum(memory.values()), "stage": 0},
        "collectives": [
            {"group": group, "type": kind, "count": count, "bytes": size}
            for (group, kind), (count, size) in sorted(count_step_volumes(network, replicas).items())
        ],
    }
