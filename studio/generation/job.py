"""Make the job of a model and a layout: one graph for each pipeline stage, and the ranks that run it."""

from __future__ import annotations

from itertools import product

from studio.errors import ConfigError
from studio.et.build import build_graph
from studio.generation.faults import NO_FAULTS, Faults, add_faults
from studio.generation.groups import build_comm_groups, group_ranks, list_names_by_rank, list_peers_by_rank
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import Speed, describe_times
from studio.generation.routing import is_even
from studio.generation.stage import Stage
from studio.generation.transformer import compute_largest_node_flop
from studio.trace import GENERATED, RECIPE, Attribute, Finding, Rank, Trace, ValueKind

MOST_NODES = 4_000_000
_NODES_A_LAYER, _NODES_OF_EXPERTS, _NODES_OF_A_RING_STEP = 36, 24, 8


def make_job(
    model: Model, layout: Layout, speed: Speed | None = None, faults: Faults = NO_FAULTS, recipe: str = ""
) -> Trace:
    """Return a training job as if every rank had been traced before it ran.

    Args:
        model: What is trained.
        layout: How ranks share it.
        speed: The GPU that durations are of, and what it reaches; None leaves them to the roofline of a simulated system.
        faults: What goes wrong.
        recipe: What a user said of it, kept as metadata (`build_workload`); "" keeps nothing.

    Raises:
        ConfigError: The job would have too many nodes, or a node too many operations.

    Example:
        >>> from studio.generation.wish import Wish, build_layout
        >>> from studio.generation.models import find_model
        >>> model = find_model("llama3-8b")
        >>> make_job(model, build_layout(model, Wish(ranks=8, tp=8)))
        Trace(8 ranks, 1 graph, 8,344 nodes, 1 comm group, 1 finding)
    """
    # Ranks whose experts get other numbers of tokens have graphs of their own.
    places = 1 if is_even(model, layout) else layout.ep
    _refuse_size(model, layout, places)
    graphs, stage_slots = [], []
    for stage, place in product(range(layout.pp), range(places)):
        graph, slots = build_graph(Stage(model, layout, stage, speed, place).nodes())
        keys = [graph.strings[key] for key in graph.slot_key.tolist()]
        graphs.append(graph)
        stage_slots.append(list(zip(keys, slots, strict=True)))
    groups = group_ranks(layout)
    names, peers = list_names_by_rank(groups, layout.ranks), list_peers_by_rank(groups, layout.ranks)
    stage_of, place_of = (
        {rank: place for group in groups[kind].tolist() for place, rank in enumerate(group)}
        for kind in ("pp", "ep")
    )
    ranks = []
    description = f"model {model.name}, {layout.name}, zero {layout.zero}, batch {layout.batch}{faults.words}"
    for number in range(layout.ranks):
        index = stage_of[number] * places + place_of[number] % places
        slots = tuple(
            names[number][str(value)] if key == "pg_name" else peers[number][int(value)]
            for key, value in stage_slots[index]
        )
        metadata = _build_metadata(number, layout.ranks, description, recipe)
        ranks.append(Rank(number, index, slots, "1.0.0", metadata))
    words = f"Generated, not recorded: {description} ({layout.batch_from}); {describe_times(speed)}."
    finding = Finding("info", "generated", words)
    return add_faults(
        Trace(tuple(graphs), tuple(ranks), build_comm_groups(model, layout), (finding,)), faults
    )


def _refuse_size(model: Model, layout: Layout, places: int) -> None:
    """Raise a ConfigError for too many nodes, of so many ranks whose experts differ, and for a node of too many operations."""
    each = _NODES_A_LAYER + (_NODES_OF_EXPERTS if model.experts else 0)
    each += _NODES_OF_A_RING_STEP * layout.cp if layout.cp_kind == "ring" and layout.cp > 1 else 0
    nodes = places * layout.steps * layout.micro_batches * (model.layers + 2 * layout.pp) * each
    if nodes > MOST_NODES:
        skewed = f" on {places} ranks whose experts differ" if places > 1 else ""
        raise ConfigError(
            f"{layout.micro_batches:,} micro-batches of {model.layers} layers in {layout.steps} steps{skewed} would be about "
            f"{nodes:,} nodes; allowed: {MOST_NODES:,}.",
            hint="Use a smaller --batch, a larger --micro-batch or fewer --steps.",
        )
    largest = compute_largest_node_flop(model, layout)
    if largest >= 1 << 63:
        raise ConfigError(
            f"A single node of this job would have {largest:.2g} operations; allowed: below 2^63, about 9.2e18.",
            hint="Use a smaller --micro-batch, --seq or model.",
        )


def _build_metadata(number: int, ranks: int, description: str, recipe: str) -> tuple[Attribute, ...]:
    """Return what a rank says of itself."""
    return (
        Attribute("schema", ValueKind.STRING, "chakra-studio-generated"),
        Attribute("rank", ValueKind.INT64, number),
        Attribute("world_size", ValueKind.INT64, ranks),
        Attribute(GENERATED, ValueKind.STRING, f"chakra-studio generate llm: {description}"),
        *((Attribute(RECIPE, ValueKind.STRING, recipe),) if recipe else ()),
    )
