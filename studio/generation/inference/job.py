"""Make the job of steps of inference: one graph for each pipeline stage and distinct batch, and the ranks that run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from studio.errors import ConfigError
from studio.et.build import build_graph
from studio.generation.groups import build_comm_groups, group_ranks, list_names_by_rank, list_peers_by_rank
from studio.generation.inference.batches import Batch, Load, Piece, advance_batch, sum_load
from studio.generation.inference.counts import ACTIVATION_BYTES, BF16, Precision
from studio.generation.inference.experts import append_experts_forward
from studio.generation.inference.passes import StepPasses
from studio.generation.job import MOST_NODES
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.program import AFTER, BEFORE, OWN, Program, Speed, describe_times
from studio.generation.routing import is_even
from studio.generation.transformer import has_experts
from studio.trace import GENERATED, Attribute, Finding, Graph, Rank, Trace, ValueKind

TOKEN_BYTES = 4
_NODES_A_LAYER = 16

MicroBatches = tuple[Batch, ...]
"""The micro-batches of a replica."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A small model that proposes tokens, which the model verifies in one pass.

    Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023.

    Attributes:
        model: It.
        layout: How the ranks of the first stage share it.
        tokens: How many it proposes for each sequence, one after the other.
    """

    model: Model
    layout: Layout
    tokens: int

    def batches(self, batch: Batch) -> Iterator[Batch]:
        """Yield what its passes work on, before the model verifies a batch: a token of each sequence that decodes."""
        drafting = [piece for piece in batch if piece.new == self.tokens + 1 == piece.logits]
        for number in range(self.tokens):
            yield tuple(Piece(piece.sequences, 1, piece.context + number) for piece in drafting)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of inference on a layout.

    Attributes:
        model: What is run.
        layout: Degrees and stages; its batch, sequence and schedule say nothing here.
        batches: The micro-batches of each replica's first step. Each further step goes on where the one before ended.
        precision: Data types.
        steps: How many.
        draft: What proposes tokens before each; None where nothing does.
    """

    model: Model
    layout: Layout
    batches: tuple[MicroBatches, ...]
    precision: Precision = BF16
    steps: int = 1
    draft: Draft | None = None


def make_steps(what: Steps, words: str, speed: Speed | None = None) -> Trace:
    """Return steps of inference as if every rank had been traced before it ran.

    Args:
        what: The steps.
        words: What they are, in words, for metadata and finding.
        speed: The GPU that durations are of; None leaves them to the roofline of a simulated system.

    Raises:
        ConfigError: The job would have too many nodes.
    """
    model, layout = what.model, what.layout
    passes = what.steps * max(len(micro) for micro in what.batches)
    refuse_too_many(passes * model.layers * _NODES_A_LAYER)
    graph_index: dict[tuple[int, MicroBatches, int], int] = {}
    graphs: list[Graph] = []
    keyed: list[list[tuple[str, int | str]]] = []
    ranks = []
    cell = layout.tp * layout.dp
    even = _is_even(what)
    members = group_ranks(layout)
    names, peers = list_names_by_rank(members, layout.ranks), list_peers_by_rank(members, layout.ranks)
    for number in range(layout.ranks):
        stage, inner = divmod(number, cell)
        micro = what.batches[inner // layout.tp]
        # Ranks whose experts get other numbers of tokens have graphs of their own.
        place = 0 if even else inner // layout.tp % layout.ep
        key = stage, micro, place
        if key not in graph_index:
            graph_index[key] = len(graphs)
            graph, slots = build_graph(build_stage_nodes(what, stage, micro, speed, place))
            keys = [graph.strings[key] for key in graph.slot_key.tolist()]
            graphs.append(graph)
            keyed.append(list(zip(keys, slots, strict=True)))
        index = graph_index[key]
        values = tuple(
            names[number][str(value)] if name == "pg_name" else peers[number][int(value)]
            for name, value in keyed[index]
        )
        ranks.append(Rank(number, index, values, "1.0.0", build_rank_metadata(number, layout.ranks, words)))
    groups = tuple(
        group for group in build_comm_groups(model, layout) if group.name[:2] in ("tp", "pp", "ep")
    )
    return Trace(tuple(graphs), tuple(ranks), groups, (build_finding(words, speed),))


def _is_even(what: Steps) -> bool:
    """Whether all ranks of each expert parallel group work on as many tokens."""
    for micro in what.batches:
        for batch in micro:
            parts = [(what.model, what.layout, sum_load(batch))]
            if what.draft is not None:
                parts += [
                    (what.draft.model, what.draft.layout, sum_load(each))
                    for each in what.draft.batches(batch)
                ]
            if not all(
                is_even(model, replace(layout, micro_batch=1, sequence=load.tokens))
                for model, layout, load in parts
            ):
                return False
    return True


def refuse_too_many(nodes: int) -> None:
    """Raise an error where a graph would have too many nodes.

    Raises:
        ConfigError: It would.
    """
    if nodes > MOST_NODES:
        raise ConfigError(
            f"A rank of this job would have about {nodes:,} nodes; allowed: {MOST_NODES:,}.",
            hint="Use fewer --steps or --micro-batches.",
        )


def build_rank_metadata(number: int, ranks: int, words: str) -> tuple[Attribute, ...]:
    """Return the metadata of a rank of a generated job."""
    return (
        Attribute("schema", ValueKind.STRING, "chakra-studio-generated"),
        Attribute("rank", ValueKind.INT64, number),
        Attribute("world_size", ValueKind.INT64, ranks),
        Attribute(GENERATED, ValueKind.STRING, f"chakra-studio generate inference: {words}"),
    )


def build_finding(words: str, speed: Speed | None) -> Finding:
    """Return the finding that says that a job was generated."""
    return Finding("info", "generated", f"Generated, not recorded: {words}; {describe_times(speed)}.")


def build_stage_nodes(
    what: Steps, stage: int, micro: MicroBatches, speed: Speed | None, place: int = 0
) -> Sequence[dict[str, object]]:
    """Return the nodes of a pipeline stage that works on these micro-batches, on a place of its expert parallel group."""
    program = Program(speed)
    last = what.layout.pp - 1
    sampled = [0] * len(micro)
    for step in range(what.steps):
        for number, first in enumerate(micro):
            batch, at = advance_batch(first, step), f"step{step}.mb{number}"
            passes = build_step_passes(program, what, sum_load(batch), place=place)
            size, tag = ACTIVATION_BYTES * passes.width, 2 * (step * len(micro) + number)
            tokens = TOKEN_BYTES * sum(piece.sequences for piece in batch)
            if stage:
                x = program.transfer(f"{at}.recv.fwd", (BEFORE, OWN), tag, [], size)
            else:
                ready = sampled[number]
                if step and last:
                    ready = program.transfer(f"{at}.recv.tokens", (BEFORE, OWN), tag + 1, [], tokens)
                x = passes.embedding_forward(at, _append_drafting(program, what, batch, at, (ready, place)))
            x = append_layers_forward(passes, what.layout, stage, at, x)
            if stage < last:
                program.transfer(f"{at}.send.fwd", (OWN, AFTER), tag, [x], size)
                continue
            sampled[number] = passes.sample(at, x)
            if last and step < what.steps - 1:
                following = tag + 2 * len(micro) + 1
                program.transfer(f"{at}.send.tokens", (OWN, AFTER), following, [sampled[number]], tokens)
    return program.nodes


def build_step_passes(
    program: Program, what: Steps, load: Load, draft: Draft | None = None, place: int = 0
) -> StepPasses:
    """Return the passes of a step over the layers of a rank, of the model or of what drafts for it."""
    model, layout = (draft.model, draft.layout) if draft else (what.model, what.layout)
    layout = replace(layout, micro_batch=1, sequence=load.tokens)
    return StepPasses(program, model, layout, place, load=load, precision=what.precision)


def append_layers_forward(passes: StepPasses, layout: Layout, stage: int, at: str, x: int) -> int:
    """Append the layers of a stage; returns the node that makes the output of the last."""
    start = sum(layout.stage_layers[:stage])
    for layer in range(start, start + layout.stage_layers[stage]):
        x = append_layer_forward(passes, f"{at}.layer{layer}", layer, x)
    return x


def append_layer_forward(passes: StepPasses, at: str, layer: int, x: int) -> int:
    """Append a layer; returns the node that makes its output."""
    x = passes.attention_forward(at, layer, x, 0)
    if has_experts(passes.model, layer):
        return append_experts_forward(passes, at, layer, x)
    return passes.feed_forward_forward(at, x)


def _append_drafting(program: Program, what: Steps, batch: Batch, at: str, begin: tuple[int, int]) -> int:
    """Append the passes of the draft model behind a node and on a place; returns the node that makes the last token it proposes."""
    ready, place = begin
    if what.draft is None:
        return ready
    for number, proposed in enumerate(what.draft.batches(batch)):
        passes = build_step_passes(program, what, sum_load(proposed), what.draft, place)
        name = f"{at}.draft{number}"
        x = passes.embedding_forward(name, ready)
        ready = passes.sample(name, append_layers_forward(passes, what.draft.layout, 0, name, x))
    return ready
