"""Read ASTRA-sim's text workloads: a kind of parallelism and a list of layers, expanded to all ranks.

The first line names the kind of parallelism and sizes, the second the number of layers; then each layer has a line:
name, a reserved number, then for forward pass, input gradient and weight gradient compute time (µs), collective and its
bytes, and the time of the weight update. The graph has the structure that the reference's converter gives the kinds it
knows; the other kinds follow ASTRA-sim's and SimAI's description of how they run.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from studio.errors import TraceError, TraceFormatError
from studio.et.format import GroupsPart, NpusNeededError, Part, RankPart, Reading
from studio.et.records import NodeRecord, build_rank_part
from studio.et.text_layers import Layer, Phase, Workload, parse_workload
from studio.trace import Attribute, CollectiveType, CommGroup, Finding, NodeType, ValueKind

LARGEST_NPUS = 1 << 16
MOST_NODES = 1_000_000

_COLLECTIVES = {
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
    "BROADCAST": CollectiveType.BROADCAST,
    "REDUCE": CollectiveType.REDUCE,
    "GATHER": CollectiveType.GATHER,
    "SCATTER": CollectiveType.SCATTER,
    "BARRIER": CollectiveType.BARRIER,
}
_SUFFIXES = ("_DP_EP", "_EP", "_DP", "_TP")
"""What a collective's name may end in: the group it runs in."""

_TWO_IN_ONE = {"ALLREDUCEALLTOALL": ("ALLREDUCE", "ALLTOALL")}
"""Collectives that are one name for two, one after the other."""

_TENSOR, _DATA, _EXPERT, _REPLICATED_EXPERT, _WORLD = "tp", "dp", "ep", "dp_ep", ""
"""Kinds of groups, by what collectives' names may end in."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind of parallelism schedules layers.

    Attributes:
        run: Adds one pass.
        model: Group of the collectives of the forward pass and of input gradients.
        data: Group of those of weight gradients.
        data_first: Whether neighbouring ranks are replicas of the same part of the model.
        sized: Whether a number that follows the kind at once is the size of the model-parallel groups.
        marks_input_gradient: Whether the names of those collectives say it.
    """

    run: Callable[[_Builder], None]
    model: str = _WORLD
    data: str = _WORLD
    data_first: bool = False
    sized: bool = False
    marks_input_gradient: bool = False


def sniff(head: bytes) -> bool:
    """Whether `head` starts a text workload: a kind of parallelism, then a number of layers."""
    return _HEAD.match(head) is not None


# ---------------------------------------------------------------------------------------------------
# Groups


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which ranks form which groups.

    Attributes:
        npus: All of them.
        tensor: Ranks that share a layer; 0 where it is not known, and every collective is one of all NPUs.
        pipeline, expert: Stages, and ranks that share the experts.
        data_first: Whether neighbouring ranks are replicas rather than parts of a layer.
    """

    npus: int
    tensor: int = 0
    pipeline: int = 1
    expert: int = 1
    data_first: bool = False

    @property
    def replicas(self) -> int:
        return self.npus // (self.tensor * self.pipeline)

    def size(self, word: str) -> int:
        """Return how many ranks a group has."""
        if word == _WORLD or not self.tensor:
            return self.npus
        shared = {_TENSOR: self.tensor, _DATA: self.replicas, _EXPERT: self.expert}
        return shared.get(word, self.replicas // self.expert)

    def key(self, word: str, rank: int) -> tuple[int, ...]:
        """Return what identifies a rank's group."""
        if self.data_first:
            (part, replica), stage = divmod(rank, self.replicas), 0
        else:
            rest, part = divmod(rank, self.tensor)
            replica, stage = divmod(rest, self.pipeline)
        keys = {
            _TENSOR: (stage, replica),
            _DATA: (part, stage),
            _EXPERT: (part, stage, replica // self.expert),
            _REPLICATED_EXPERT: (part, stage, replica % self.expert),
        }
        return keys[word]

    def groups(self, word: str) -> tuple[list[CommGroup], list[str]]:
        """Return the groups of one kind, and the name of each rank's."""
        members: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.npus):
            members.setdefault(self.key(word, rank), []).append(rank)
        groups, names = [], [""] * self.npus
        for index, ranks in enumerate(members.values()):
            groups.append(CommGroup(f"{word}{index}", tuple(ranks)))
            for rank in ranks:
                names[rank] = f"{word}{index}"
        return groups, names


def _build_layout(workload: Workload, reading: Reading) -> tuple[_Layout, list[Finding]]:
    """Return how the ranks of a job are grouped, and findings about it.

    Raises:
        NpusNeededError: Neither the file nor the user says how many there are.
        TraceError: The number of NPUs does not fit the sizes of the groups.
    """
    name, kind, findings = reading.name, _KINDS[workload.kind], []
    tensor = workload.number("model_parallel_npu_group", *([""] if kind.sized else [])) or 0
    stages, experts = max(workload.number("pp") or 1, 1), max(workload.number("ep") or 1, 1)
    npus = reading.size.npus or workload.number("all_gpus") or 0
    if not npus:
        npus = tensor * stages * experts
        if npus <= 1:
            raise NpusNeededError([name])
        message = f"{name}: the number of NPUs is missing; taken as {npus:,}, one replica."
        findings.append(Finding("info", "npus-assumed", message, "Give it with --npus NUMBER.", file=name))
    _check_size(name, npus, tensor * stages)
    sized = _WORLD not in (kind.model, kind.data)
    layout = _Layout(npus, tensor, stages, data_first=kind.data_first) if sized and tensor else _Layout(npus)
    if sized and not tensor:
        message = f"{name}: group sizes are missing; every collective runs over all {npus:,} NPUs."
        hint = "Write model_parallel_NPU_group: NUMBER after the kind of parallelism in line 1."
        findings.append(Finding("info", "groups-unknown", message, hint, file=name))
    if layout.tensor and stages > 1:
        message = (
            f"{name}: the {stages:,} pipeline stages shape the groups only; every rank runs all layers, and no "
            "messages pass between stages."
        )
        findings.append(Finding("info", "pipeline-ignored", message, file=name))
    if layout.tensor and experts > 1:
        if layout.replicas % experts == 0:
            return replace(layout, expert=experts), findings
        message = f"{name}: ep: {experts:,} does not divide the {layout.replicas:,} replicas; experts are not shared."
        findings.append(Finding("warning", "expert-groups", message, "Correct line 1.", file=name))
    return layout, findings


def _check_size(name: str, npus: int, part: int) -> None:
    """Raise if so many NPUs cannot be opened or divided into parts of this size."""
    if not 1 <= npus <= LARGEST_NPUS:
        message = f"{name}: {npus:,} NPUs; 1 to {LARGEST_NPUS:,} can be opened."
        raise TraceError(message, hint="Say --npus NUMBER.")
    if part and npus % part:
        raise TraceError(
            f"{name}: {npus:,} NPUs are not a multiple of the {part:,} that one replica of the model takes.",
            hint="Give --npus a multiple of it, or correct line 1.",
        )


# ---------------------------------------------------------------------------------------------------
# The graph


@dataclass(slots=True)
class _Builder:
    """Collects the nodes of a rank; a group is named by its kind, which each rank replaces by a name.

    Attributes:
        name: Name of the file.
        workload: What is run.
        kind: How.
        layout: Who takes part.
        nodes: So far.
        unknown: Names of collectives that are not known, by how often.
        alone: Collectives of a single rank, left out.
        unused: Collectives that this kind of parallelism does not run.
        last: Node that the next pass waits for, where passes follow each other as a whole.
        gradient: Per layer the node that must end before its next forward pass.
    """

    name: str
    workload: Workload
    kind: _Kind
    layout: _Layout
    nodes: list[NodeRecord] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    alone: int = 0
    unused: int = 0
    last: int | None = None
    gradient: dict[int, int] = field(default_factory=dict)

    @property
    def layers(self) -> Sequence[Layer]:
        return self.workload.layers

    def compute(self, layer: Layer, what: str, phase: Phase, *after: int | None) -> int:
        """Add a node that computes; returns its id."""
        return self._add(f"COMP_NODE_{layer.name}_{what}", NodeType.COMP, after, phase.compute_ns)

    def forward(self, layer: Layer, *after: int | None) -> int | None:
        """Add the collective of a forward pass; returns its id, None where there is none."""
        return self._communicate(layer, layer.forward, self._get_kind(layer).model, "", after)

    def input_gradient(self, layer: Layer, *after: int | None) -> int | None:
        """Add the collective of an input gradient."""
        mark = "IG_COMM__" if self.kind.marks_input_gradient else ""
        return self._communicate(layer, layer.input_gradient, self._get_kind(layer).model, mark, after)

    def weight_gradient(self, layer: Layer, *after: int | None) -> int | None:
        """Add the collective of a weight gradient."""
        return self._communicate(layer, layer.weight_gradient, self._get_kind(layer).data, "", after)

    def skip(self, phase: Phase) -> None:
        """Count a collective that is not run."""
        self.unused += phase.collective != ""

    def _get_kind(self, layer: Layer) -> _Kind:
        return _KINDS.get(layer.kind, self.kind)

    def _communicate(
        self, layer: Layer, phase: Phase, group: str, mark: str, after: Sequence[int | None]
    ) -> int | None:
        if not phase.collective:
            return None
        suffix = next((end for end in _SUFFIXES if phase.collective.endswith(end)), "")
        collective, word = phase.collective.removesuffix(suffix), suffix[1:].lower() or group
        size = self.layout.size(word)
        if size == 1:
            self.alone += 1
            return None
        last: int | None = None
        for part in _TWO_IN_ONE.get(collective, (collective,)):
            name = f"COMM_COLL_NODE_{layer.name}_{mark}{part}"
            known = _COLLECTIVES.get(part)
            last = self._add(name, NodeType.COMP if known is None else NodeType.COMM_COLL, after)
            after = [last]
            if known is None:
                self.unknown[part] = self.unknown.get(part, 0) + 1
                continue
            attrs = self.nodes[last].attrs
            attrs.append(Attribute("comm_type", ValueKind.INT64, int(known)))
            attrs.append(Attribute("comm_size", ValueKind.INT64, phase.bytes))
            if size < self.layout.npus:
                attrs.append(Attribute("pg_name", ValueKind.STRING, word))
        return last

    def too_many(self) -> TraceError:
        """Return the message about a workload that is too large."""
        return TraceError(
            f"{self.name}: more than {MOST_NODES:,} nodes a rank.",
            hint="Give --passes a smaller number.",
        )

    def _add(self, name: str, node_type: NodeType, after: Sequence[int | None], duration_ns: int = 0) -> int:
        row = len(self.nodes)
        if row == MOST_NODES:
            raise self.too_many()
        waits = list(dict.fromkeys(row for row in after if row is not None))
        self.nodes.append(NodeRecord(row, name, int(node_type), data=waits, duration_ns=duration_ns))
        return row


def _run_micro(run: _Builder) -> None:
    """Only the collectives of weight gradients, all at once."""
    for layer in run.layers:
        run.weight_gradient(layer)


def _run_data(run: _Builder) -> None:
    """Reduce gradients during the backward pass; a layer waits for its own before it runs again."""
    last: int | None = None
    for index, layer in enumerate(run.layers):
        last = run.compute(layer, "FWD", layer.forward, last, run.gradient.get(index))
        run.skip(layer.forward)
        run.skip(layer.input_gradient)
    for index in reversed(range(len(run.layers))):
        last = _add_weight_gradient(run, index, last)
        if index:
            last = run.compute(run.layers[index], "BWD_IG", run.layers[index].input_gradient, last)


def _add_weight_gradient(run: _Builder, index: int, *after: int | None) -> int:
    """Add a layer's weight gradient and its collective, which nothing in this pass waits for."""
    layer = run.layers[index]
    computed = run.compute(layer, "BWD_WG", layer.weight_gradient, *after)
    reduced = run.weight_gradient(layer, computed)
    run.gradient[index] = computed if reduced is None else reduced
    return computed


def _run_model(run: _Builder) -> None:
    """As hybrid, without collectives of weight gradients: every rank has its own weights."""
    last, sent = _add_forward(run), None
    for index in reversed(range(len(run.layers))):
        layer = run.layers[index]
        computed = run.compute(layer, "BWD_IG", layer.input_gradient, last, sent)
        sent = run.input_gradient(layer, computed) if index else None
        last = run.gradient[index] = run.compute(layer, "BWD_WG", layer.weight_gradient, computed)
        run.skip(layer.weight_gradient)


def _run_hybrid(run: _Builder) -> None:
    """Each layer waits for the previous layer's collective; input gradients are sent beside the weight gradient."""
    last, sent = _add_forward(run), None
    for index in reversed(range(len(run.layers))):
        layer = run.layers[index]
        computed = run.compute(layer, "BWD_IG", layer.input_gradient, last, sent)
        sent = run.input_gradient(layer, computed) if index else None
        last = _add_weight_gradient(run, index, computed)


def _add_forward(run: _Builder) -> int | None:
    """Add a forward pass in which each layer waits for the collective of the one before it; returns its last node."""
    last: int | None = None
    for index, layer in enumerate(run.layers):
        computed = run.compute(layer, "FWD", layer.forward, last, run.gradient.get(index))
        sent = run.forward(layer, computed)
        last = computed if sent is None else sent
    return last


def _run_transformer(run: _Builder) -> None:
    """Wait for all input gradients; before some layers part of the forward pass is repeated."""
    last = _add_forward(run)
    # The first number is how many follow.
    checkpoints = sorted(run.workload.numbers.get("checkpoints", ())[1:])
    initiates = set(run.workload.numbers.get("checkpoint_initiates", ())[1:])
    for index in reversed(range(len(run.layers))):
        if index in initiates:
            before = bisect_right(checkpoints, index)
            first = checkpoints[before - 1] if before else 0
            for earlier in range(first, index):
                if earlier > first and earlier in initiates:
                    break
                repeated = run.layers[earlier]
                last = run.compute(repeated, "FWD_IN_BWD", repeated.forward, last)
                sent = run.forward(repeated, last)
                last = last if sent is None else sent
        layer = run.layers[index]
        computed = run.compute(layer, "BWD_IG", layer.input_gradient, last)
        sent = run.input_gradient(layer, computed)
        last = _add_weight_gradient(run, index, computed if sent is None else sent)


def _run_dlrm(run: _Builder) -> None:
    """The first layer exchanges embeddings, which only the last bottom layer waits for; so do their gradients."""
    bottom = run.workload.number("dlrm_last_bottom_layer", "") or 0
    last: int | None = None
    exchanged: int | None = None
    for index, layer in enumerate(run.layers):
        waits = exchanged if index == bottom else None
        last = run.compute(layer, "FWD", layer.forward, run.gradient.get(index), last, waits)
        sent = run.forward(layer, last)
        exchanged = exchanged if index else sent
    returned: int | None = None
    for index in reversed(range(len(run.layers))):
        last = _add_weight_gradient(run, index, last, None if index else returned)
        if index:
            last = run.compute(run.layers[index], "BWD_IG", run.layers[index].input_gradient, last)
        if index and index == bottom + 1:
            returned = run.input_gradient(run.layers[0], last)


def _run_inference(run: _Builder) -> None:
    """Run forward passes one after another."""
    if run.last is not None:
        run.gradient[0] = run.last
    run.last = _add_forward(run)
    for layer in run.layers:
        run.skip(layer.input_gradient)
        run.skip(layer.weight_gradient)


_KINDS: Mapping[str, _Kind] = {
    "MICRO": _Kind(_run_micro),
    "DATA": _Kind(_run_data),
    "MODEL": _Kind(_run_model),
    "HYBRID_DATA_MODEL": _Kind(_run_hybrid, _TENSOR, _DATA, marks_input_gradient=True),
    "HYBRID_MODEL_DATA": _Kind(_run_hybrid, _TENSOR, _DATA, data_first=True),
    "HYBRID_DLRM": _Kind(_run_dlrm),
    "HYBRID_DLRM_ENHANCED": _Kind(_run_dlrm),
    "HYBRID_TRANSFORMER": _Kind(_run_transformer, _TENSOR, _DATA, sized=True),
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _Kind(_run_transformer, _TENSOR, _DATA, sized=True),
    "HYBRID_CUSTOMIZED": _Kind(_run_hybrid, _TENSOR, _DATA),
    "DISTRIBUTED_INFERENCE": _Kind(_run_inference),
}

_HEAD = re.compile(
    rb"\s*(?:" + "|".join(_KINDS).encode() + rb")(?:[ \t][^\r\n]*)?\r?\n\s*[0-9]{1,7}[ \t]*(?:\r?\n|$)"
)


def read(reading: Reading) -> list[Part]:
    """Expand a workload to the ranks that run it.

    Raises:
        TraceFormatError: It has no layers.
        NpusNeededError: Neither the file nor the user says how many NPUs run it.
        TraceError: The number of NPUs or passes does not fit it.
    """
    workload = parse_workload(bytes(reading.data).decode("utf-8", "replace"), reading.name)
    name, passes = reading.name, 1 if reading.size.passes is None else reading.size.passes
    if not workload.layers:
        raise TraceFormatError(
            f"{name}: a workload without layers.", hint="Expected a line per layer from line 3 on."
        )
    layout, findings = _build_layout(workload, reading)
    if not 1 <= passes <= MOST_NODES:
        raise TraceError(
            f"{name}: {passes:,} passes; 1 to {MOST_NODES:,} can be opened.", hint="Say --passes NUMBER."
        )
    builder = _Builder(name, workload, _KINDS[workload.kind], layout)
    builder.kind.run(builder)
    # Every pass adds as many nodes as the first.
    if len(builder.nodes) * passes > MOST_NODES:
        raise builder.too_many()
    for _ in range(passes - 1):
        builder.kind.run(builder)
    if reading.size.passes is None and reading.size.npus is None:
        findings.append(
            Finding("info", "one-pass", f"{name}: one pass; --passes NUMBER opens more.", file=name)
        )
    metadata = [
        Attribute("parallelism", ValueKind.STRING, workload.kind),
        Attribute("passes", ValueKind.INT64, passes),
    ]
    part = build_rank_part(reading, builder.nodes, metadata=metadata)
    noticed = [*part.findings, *workload.findings, *findings, *_build_findings(builder, name)]
    return _build_rank_parts(part, layout, noticed)


def _build_findings(builder: _Builder, name: str) -> list[Finding]:
    findings = []
    if builder.unknown:
        names = ", ".join(f"{word} ({count:,})" for word, count in list(builder.unknown.items())[:6])
        message = f"{name}: unknown collectives, kept as nodes that take no time: {names}."
        findings.append(
            Finding("warning", "unknown-collective", message, "They send nothing in a simulation.", file=name)
        )
    if builder.alone:
        message = f"{name}: collectives in groups of one rank, which move nothing, were left out: {builder.alone:,} per rank."
        findings.append(Finding("info", "lone-collective", message, file=name))
    if builder.unused:
        message = f"{name}: collectives that {builder.workload.kind} does not run were left out: {builder.unused:,} per rank."
        findings.append(Finding("info", "unused-collective", message, file=name))
    return findings


def _build_rank_parts(part: RankPart, layout: _Layout, findings: Sequence[Finding]) -> list[Part]:
    """Return a part for every rank: all have the same graph, and each the names of its own groups."""
    words = [str(word) for word in part.rank.slots]
    groups: list[CommGroup] = []
    names: dict[str, list[str]] = {}
    for word in words:
        of_word, names[word] = layout.groups(word)
        groups += of_word
    parts: list[Part] = [GroupsPart(tuple(groups), tuple(findings))]
    for number in range(layout.npus):
        slots = tuple(names[word][number] for word in words)
        parts.append(RankPart(replace(part.rank, slots=slots), part.graph, number))
    return parts
