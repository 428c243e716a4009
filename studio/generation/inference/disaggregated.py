"""Prefill and decode on ranks of their own, with the KV cache sent from one to the other.

Sources: Zhong et al., "DistServe", OSDI 2024; Patel et al., "Splitwise", ISCA 2024 (the cache of each layer is sent while the next
is computed). Prefill ranks come first. The prompts of prefill replica r go to decode replica r mod the number of those. Where
both divide heads among different numbers of ranks, a rank sends to all that hold some of its heads; what multi-head latent attention
caches is whole on every rank, and each rank that decodes is sent all of it. Meanwhile the others decode;
the step after their last one has the sequences that arrived as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from studio.errors import ConfigError
from studio.et.build import build_graph
from studio.generation.groups import build_comm_groups
from studio.generation.inference.batches import Batch, Piece, advance_batch, merge_pieces, sum_load
from studio.generation.inference.counts import count_layer_cache_bytes
from studio.generation.inference.deployment import StepWish, build_steps
from studio.generation.inference.job import (
    Steps,
    append_layer_forward,
    build_finding,
    build_rank_metadata,
    build_step_passes,
)
from studio.generation.models import Model
from studio.generation.program import OWN, Program, Speed
from studio.trace import CommGroup, Graph, Rank, Trace

_FIRST_PEER = -10
"""Peers of a rank are numbered downwards from here until its ranks are made."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Both parts of a disaggregated job.

    Attributes:
        prefill: One step that reads prompts.
        decode: Steps of the sequences that decode meanwhile; their last one has those that arrived as well.
    """

    prefill: Steps
    decode: Steps

    def source(self, replica: int) -> tuple[int, ...]:
        """Return the prefill replicas that send to a decode replica."""
        count = len(self.decode.batches)
        return tuple(number for number in range(len(self.prefill.batches)) if number % count == replica)


def split_wish(wish: StepWish) -> tuple[StepWish, StepWish]:
    """Return the options of the prefill ranks and of the decode ranks.

    Raises:
        ConfigError: One of them has no ranks, or an option is given that neither takes.
    """
    if not 0 < wish.prefill_ranks < wish.ranks:
        raise ConfigError(
            f"--prefill-ranks is {wish.prefill_ranks:,} of {wish.ranks:,} ranks; allowed: 1 to {max(wish.ranks - 1, 1):,}.",
            hint="The other ranks decode.",
            key="prefill_ranks",
        )
    if wish.pp > 1 or wish.micro_batches > 1 or wish.draft or wish.stage_layers or wish.ep > 1:
        raise ConfigError(
            f"--pp is {wish.pp}, --micro-batches {wish.micro_batches}, --draft {wish.draft} and --ep {wish.ep}; allowed where prefill "
            "and decode have ranks of their own: 1, 1, none and 1.",
            key="pp",
        )
    plain = replace(wish, prefill_ranks=0, prefill_tp=1, prompts=None)
    replicas = max(wish.prefill_ranks // wish.prefill_tp, 1)
    prefill = replace(
        plain, ranks=wish.prefill_ranks, phase="prefill", tp=wish.prefill_tp, dp=None, batch=wish.prompts or replicas,
        prompt=wish.prompt or wish.context, context=None, steps=1,
    )  # fmt: skip
    decode = replace(plain, ranks=wish.ranks - wish.prefill_ranks, phase="decode", prompt=None, cached=0)
    return prefill, decode


def build_roles(model: Model, wish: StepWish) -> Roles:
    """Return both parts of a disaggregated job.

    Raises:
        ConfigError: Numbers do not divide, or contradict each other.
    """
    first, second = split_wish(wish)
    return Roles(build_steps(model, first), build_steps(model, second))


def build_joined_batch(roles: Roles, replica: int) -> Batch:
    """Return the batch of a decode replica's last step: its own sequences, and those that have arrived."""
    own = advance_batch(roles.decode.batches[replica][0], roles.decode.steps)
    arrived = (piece for number in roles.source(replica) for piece in roles.prefill.batches[number][0])
    return merge_pieces([*own, *(Piece(piece.sequences, 1, piece.context + piece.new) for piece in arrived)])


def _count_shared_heads(roles: Roles, first: int, second: int) -> int:
    """Return the heads of keys and values that a tensor parallel rank of either part both hold, and the one is to send to the other.

    What keys and values are compressed to all ranks hold whole; each that decodes is sent it by one of those that read prompts.
    """
    heads = roles.prefill.model.kv_heads
    if roles.prefill.model.kv_rank:
        return heads if first == second % roles.prefill.layout.tp else 0
    first_heads, second_heads = heads // roles.prefill.layout.tp, heads // roles.decode.layout.tp
    return max(
        0,
        min((first + 1) * first_heads, (second + 1) * second_heads)
        - max(first * first_heads, second * second_heads),
    )


def _count_sent_bytes(roles: Roles, replica: int, heads: int) -> int:
    """Return the bytes of a layer that a prefill replica's prompts have in so many heads."""
    cached = sum_load(roles.prefill.batches[replica][0]).cached
    model = roles.prefill.model
    return cached * count_layer_cache_bytes(model, roles.prefill.precision) * heads // model.kv_heads


def iterate_transfers(roles: Roles) -> Iterator[tuple[int, int, int]]:
    """Yield what is sent for each layer: rank that sends, rank that receives, bytes."""
    before = roles.prefill.layout.ranks
    tp, other = roles.prefill.layout.tp, roles.decode.layout.tp
    for source in range(before):
        replica, place = divmod(source, tp)
        target = replica % len(roles.decode.batches)
        for peer in range(other):
            heads = _count_shared_heads(roles, place, peer)
            if heads:
                yield source, before + target * other + peer, _count_sent_bytes(roles, replica, heads)


def make_disaggregated(roles: Roles, words: str, speed: Speed | None = None) -> Trace:
    """Return a disaggregated job as if every rank had been traced before it ran.

    Args:
        roles: Both parts.
        words: What they are, in words, for metadata and finding.
        speed: The GPU that durations are of; None leaves them to the roofline of a simulated system.
    """
    before, total = roles.prefill.layout.ranks, roles.prefill.layout.ranks + roles.decode.layout.ranks
    peers: dict[int, list[tuple[int, int]]] = {number: [] for number in range(total)}
    for source, target, size in iterate_transfers(roles):
        peers[source].append((target, size))
        peers[target].append((source, size))
    graph_index: dict[tuple[object, ...], int] = {}
    graphs: list[Graph] = []
    keyed: list[list[tuple[str, int | str]]] = []
    ranks = []
    for number in range(total):
        sizes = tuple(size for _, size in peers[number])
        part = roles.prefill if number < before else roles.decode
        own = number if number < before else number - before
        replica = own // part.layout.tp
        key = (number < before, part.batches[replica], sizes)
        if key not in graph_index:
            graph_index[key] = len(graphs)
            nodes = (
                _build_prefill_nodes(roles, replica, sizes, speed)
                if number < before
                else _build_decode_nodes(roles, replica, sizes, speed)
            )
            graph, slots = build_graph(nodes)
            names = [graph.strings[text] for text in graph.slot_key.tolist()]
            graphs.append(graph)
            keyed.append(list(zip(names, slots, strict=True)))
        index = graph_index[key]
        group = own // part.layout.tp + (0 if number < before else before // roles.prefill.layout.tp)
        places = {OWN: number} | {_FIRST_PEER - at: rank for at, (rank, _) in enumerate(peers[number])}
        values = tuple(
            f"tp{group}" if name == "pg_name" else places[int(value)] for name, value in keyed[index]
        )
        ranks.append(Rank(number, index, values, "1.0.0", build_rank_metadata(number, total, words)))
    return Trace(tuple(graphs), tuple(ranks), _build_groups(roles), (build_finding(words, speed),))


def _build_groups(roles: Roles) -> tuple[CommGroup, ...]:
    """Return the tensor parallel groups, numbered through."""
    groups: list[CommGroup] = []
    first = 0
    for part in (roles.prefill, roles.decode):
        replicas = part.layout.ranks // part.layout.tp
        start = 0 if part is roles.prefill else roles.prefill.layout.ranks
        for group in build_comm_groups(part.model, part.layout):
            if group.name.startswith("tp"):
                place = first + int(group.name[2:])
                groups.append(CommGroup(f"tp{place}", tuple(start + rank for rank in group.ranks)))
        first += replicas
    return tuple(groups)


def _build_prefill_nodes(
    roles: Roles, replica: int, sizes: tuple[int, ...], speed: Speed | None
) -> list[dict[str, Any]]:
    """Return the nodes of a rank that reads prompts: after each layer's cache is written, it is sent."""
    program = Program(speed)
    what = roles.prefill
    passes = build_step_passes(program, what, sum_load(what.batches[replica][0]))
    x = passes.embedding_forward("step0.mb0", 0)
    for layer in range(what.model.layers):
        at = f"step0.mb0.layer{layer}"
        x = append_layer_forward(passes, at, layer, x)
        for place, size in enumerate(sizes):
            _move(program, f"{at}.kv.send.{place}", (OWN, _FIRST_PEER - place), layer, [passes.cached], size)
    passes.sample("step0.mb0", x)
    return program.nodes


def _build_decode_nodes(
    roles: Roles, replica: int, sizes: tuple[int, ...], speed: Speed | None
) -> list[dict[str, Any]]:
    """Return the nodes of a rank that decodes: receives are posted at once, and the last step waits for all."""
    program = Program(speed)
    what = roles.decode
    received = [
        _move(program, f"layer{layer}.kv.recv.{place}", (_FIRST_PEER - place, OWN), layer, [], size)
        for layer in range(what.model.layers)
        for place, size in enumerate(sizes)
    ]
    sampled = 0
    batches = [advance_batch(what.batches[replica][0], step) for step in range(what.steps)] + [
        build_joined_batch(roles, replica)
    ]
    for step, batch in enumerate(batches):
        at = f"step{step}.mb0"
        passes = build_step_passes(program, what, sum_load(batch))
        waits = received if step == what.steps else []
        x = passes.embedding_forward(at, sampled, waits)
        for layer in range(what.model.layers):
            x = append_layer_forward(passes, f"{at}.layer{layer}", layer, x)
        sampled = passes.sample(at, x)
    return program.nodes


def _move(program: Program, name: str, ends: tuple[int, int], tag: int, after: list[int], size: int) -> int:
    """Append one end of a transfer of keys and values, which compute does not wait for; it belongs to no comm group."""
    node = program.transfer(name, ends, tag, after, size)
    if node in program.sent:
        program.sent.remove(node)
    del program.nodes[-1]["attrs"]["pg_name"]
    return node


def count_transfers(roles: Roles) -> Mapping[str, int]:
    """Return how many messages carry the KV cache, and their bytes together."""
    sizes = [size for _, _, size in iterate_transfers(roles)]
    layers = roles.prefill.model.layers
    return {"messages": layers * len(sizes), "bytes": layers * sum(sizes)}
