"""What becomes of the nodes of a job when a dimension of its mesh grows: one row each, with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.completion.clues import collect_facts
from studio.completion.mesh import NAMES, PIPELINE, Mesh
from studio.errors import ConfigError
from studio.trace import NONE, NodeType, Trace, label_collective

DATA = "dp"
EXPERT = "ep"
TENSOR = "tp"
SCALABLE = (TENSOR, DATA, PIPELINE, EXPERT)
"""Dimensions that can grow."""
Layers = Literal["divided", "kept"]
"""Layers of a pipeline stage when there are more stages: the same model over more of them, or a deeper one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one kind of node when there are more replicas, or stages, or ranks for the experts.

    Attributes:
        about: The nodes, in words.
        change: What becomes of them.
        why: Where that comes from.
        case: When it holds: a dimension; `weak` or `strong` of the data dimension; `divided` or `kept` layers of a stage;
            `generated` of all dimensions of a generated job, with `generated-weak` or `generated-strong` of its replicas.
    """

    about: str
    change: str
    why: str
    case: str = DATA


RULES = (
    Rule("all-reduce of the data dimension", "size stays", "every replica holds all gradients of its shard of the model"),
    Rule("reduce-scatter of the data dimension", "size stays", "its size is the whole buffer, of which each rank keeps a part"),
    Rule("all-gather of the data dimension", "size is divided", "its size is one rank's part of weights that all replicas share (ZeRO, Rajbhandari et al., SC 2020)"),
    Rule("compute on a part that a reduce-scatter of the data dimension left", "operations, bytes and duration are divided", "an optimizer works on its own part of the weights (ZeRO)"),
    Rule("all other nodes", "stay", "a replica does the same work on its own samples: weak scaling", "weak"),
    Rule("micro-batches of a replica", "their number is divided; the last ones are taken out", "the batch is shared by more replicas: strong scaling", "strong"),
    Rule("nodes of a micro-batch that stays, and those of none", "stay", "a micro-batch is as large as before; sums over micro-batches keep their operations", "strong"),
    Rule("layers of a pipeline stage", "their number is divided; the last ones of each stage are taken out", "the same model on more stages (GPipe, Huang et al., NeurIPS 2019); layers are taken to be alike", "divided"),
    Rule("layers of a pipeline stage", "stay", "a deeper model: every stage has as many layers as before", "kept"),
    Rule("pipeline stages that are added", "are copies of a middle stage, or of the first without its embedding", "all but the first and the last stage run the same program", PIPELINE),
    Rule("messages between pipeline stages", "sizes stay", "the activations of a micro-batch are as large wherever the model is cut", PIPELINE),
    Rule("all-to-all of the expert dimension", "size stays, the mean of the ranks where they differ", "as many tokens per rank go to the experts, shared evenly by more ranks: balanced routing is assumed (GShard, Lepikhin et al., ICLR 2021)", EXPERT),
    Rule("compute of the experts", "stays, the mean of the ranks where they differ", "with balanced routing each rank gets as many tokens as it sends", EXPERT),
    Rule("matrix products of the tensor dimension", "the size that it divides, operations and duration are divided", "a product whose result an all-reduce of the dimension sums is divided along what it sums over, and so is that size wherever operators pass it on (Megatron-LM, Shoeybi et al., 2019)", TENSOR),
    Rule("attention of the tensor dimension", "heads, operations and duration are divided", "each rank has its own heads (Megatron-LM); of heads × width, which a product sums over, the heads are outermost", TENSOR),
    Rule("other operators on tensors of a divided size", "elements and duration are divided", "they work on a rank's part; views and what the host does stay", TENSOR),
    Rule("all-reduce of the tensor dimension", "size stays", "every rank has the whole activations, summed", TENSOR),
    Rule("collectives of weights of a divided size in other dimensions", "size is divided", "each rank has a smaller part of these weights", TENSOR),
    Rule("the whole generated job", "is made anew", "its model and options are known (docs/generation.md)", "generated"),
    Rule("batch of a generated job", "grows with the replicas", "each works on as many samples as before: weak scaling", "generated-weak"),
    Rule("batch of a generated job", "stays; more replicas share it", "strong scaling", "generated-strong"),
    Rule("all-reduce of the weights of experts, and their optimizer, by names", "operations and sizes are divided", "the experts are shared by more ranks, so that each holds fewer of them (GShard)", EXPERT),
)  # fmt: skip
"""What scaling changes."""
_COLLECTIVES: Mapping[str, str] = {
    "reduce-scatter": "REDUCE_SCATTER",
    "all-gather": "ALL_GATHER",
    "all-reduce": "ALL_REDUCE",
    "all-to-all": "ALL_TO_ALL",
}
"""Collectives that rules are about, as their words name them."""
_EXCUSES: Mapping[str, str] = {
    "sp": "a trace does not say how operators divide the sequence",
    "cp": "a trace does not say how operators divide the context",
}


def select_rules(
    before: Mesh, after: Mesh, *, strong: bool = False, layers: Layers = "divided", generated: bool = False
) -> tuple[Rule, ...]:
    """Return the rules that hold between two meshes, in the order of the table.

    Args:
        before: The mesh.
        after: The larger one.
        strong: Whether more replicas share the batch.
        layers: Whether more stages share the layers of the model.
        generated: Whether the job was generated, and is made anew.
    """
    cases = {axis.name for axis in after.axes if axis.size != get_size(before, axis.name)}
    if DATA in cases:
        cases.add("strong" if strong else "weak")
    if PIPELINE in cases:
        cases.add(layers)
    if cases and generated:
        cases = {"generated", *(f"generated-{case}" for case in cases & {"weak", "strong"})}
    return tuple(rule for rule in RULES if rule.case in cases)


def select_applying_rules(rules: Sequence[Rule], trace: Trace, mesh: Mesh) -> tuple[Rule, ...]:
    """Return the rules but for those about a collective that a job has none of, or none of along their dimension.

    Args:
        rules: The rules that hold.
        trace: The job before it is scaled.
        mesh: Its mesh.
    """
    present = _collect_present(trace, mesh)
    return tuple(
        rule
        for rule in rules
        if not _get_collective(rule) or any(_is_about(rule, *collective) for collective in present)
    )


def _collect_present(trace: Trace, mesh: Mesh) -> set[tuple[str, str]]:
    """Return which collectives a job has along which dimensions."""
    first = {rank.graph: rank for rank in reversed(trace.ranks)}
    exchanging = find_gradient_groups(trace) if mesh.axis(DATA) is None else frozenset()
    members = {group.name: group.ranks for group in trace.groups}
    along: dict[str, list[str]] = {}
    pairs_present: set[tuple[str, str]] = set()
    for index, rank in first.items():
        nodes = collect_comm_nodes(trace.graphs[index])
        pairs = np.column_stack((nodes.collective, nodes.group_slot))[nodes.type == NodeType.COMM_COLL]
        for kind, slot in np.unique(pairs, axis=0).tolist():
            name = str(rank.slots[slot]) if slot != NONE else ""
            if name not in along:
                along[name] = _list_dimensions(members.get(name), mesh)
                # Replicas that are added join the groups of gradients.
                along[name] += [DATA] if name in exchanging else []
            pairs_present.update((label_collective(kind), dimension) for dimension in along[name])
    return pairs_present


def _list_dimensions(members: Sequence[int] | None, mesh: Mesh) -> list[str]:
    """Return the dimensions along which the members of a group differ; None is all ranks."""
    if members is None:
        return [axis.name for axis in mesh.axes if axis.size > 1]
    return [axis.name for axis in mesh.axes if len({axis.place(rank) for rank in members}) > 1]


def _is_about(rule: Rule, collective: str, dimension: str) -> bool:
    """Return whether a rule about a collective is about one of a kind along a dimension."""
    # A reduce-scatter has two spellings, of which one begins with the other.
    is_of_kind = collective.startswith(_get_collective(rule))
    return is_of_kind and (
        dimension == rule.case or f"of the {NAMES.get(rule.case)} dimension" not in rule.about
    )


def find_gradient_groups(trace: Trace) -> frozenset[str]:
    """Return the comm groups that exchange gradients or weights, by their names or those of their nodes."""
    uses: dict[str, set[str]] = {}
    for use in collect_facts(trace).uses:
        uses.setdefault(use.name, set()).add(use.likely)
    return frozenset(name for name, likely in uses.items() if likely == {DATA})


def _get_collective(rule: Rule) -> str:
    """Return the collective without which a rule has nothing to apply to; "" for none."""
    return next((kind for word, kind in _COLLECTIVES.items() if word in rule.about), "")


def get_size(mesh: Mesh, name: str) -> int:
    """Return the size of a dimension, 1 where there is none of this name."""
    axis = mesh.axis(name)
    return axis.size if axis else 1


def explain_refusal(name: str) -> str:
    """Return why a dimension cannot be scaled."""
    return _EXCUSES.get(name, "")


def build_refusal(name: str) -> ConfigError:
    """Return the error for a dimension that cannot be scaled."""
    return ConfigError(
        f"the {NAMES[name]} dimension ({name}) cannot be scaled: {_EXCUSES[name]}; allowed: {', '.join(SCALABLE)}",
        hint="Record the job with that layout, or scale its replicas by --dp.",
    )
