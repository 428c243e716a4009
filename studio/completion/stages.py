"""Build pipeline stages without a recorded rank from recorded stages.

A stage is the layers, and messages with the stage before and the one after. Each of its micro-batches receives activations, sends
activations on, receives gradients and sends gradients back. The first stage has the embedding in place of the stage before, the
last the output layer and the loss in place of the stage after:

- a middle stage is the first without its embedding, or the last without output layer and loss, with the messages that take their
  place, of the sizes of the other side;
- a first or last stage is a middle one without the messages of that side. What stands there, embedding or loss, nobody recorded:
  it is left out, and that is said.

The embedding and the loss are told by the names of nodes, beside layers with numbers in theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from studio.completion.clues import iterate_slots
from studio.completion.layers import match_embedding, match_output, parse_layers
from studio.completion.mesh import PIPELINE, Axis, Mesh
from studio.completion.surgery import (
    Added,
    compact_graph,
    edit_graph,
    find_earliest,
    find_latest,
    list_parents,
    with_slot,
    with_values,
)
from studio.errors import TraceError
from studio.trace import NONE, PEER_KEYS, Bool, Graph, Int64, NodeType, Rank, Trace, read_dense_column
from studio.units import format_counted

Kind = Literal["first", "middle", "last"]
Side = Literal["before", "after"]
_WITHOUT: Mapping[Kind, str] = {
    "first": "the embedding",
    "middle": "",
    "last": "the output layer and the loss",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage of a job that is completed.

    Attributes:
        rank: The known rank that its ranks copy; its number is that of the recording, its graph and slots the stage's.
        graph: The graph.
        of: The stage whose recording it is or was built from.
        lacks: What belongs to it and was never recorded; "" where nothing does.
        words: How it was built; "" where it was recorded.
        opened: Slots of a neighbour that took the place of the embedding, or of output layer and loss, and on which side it is.
    """

    rank: Rank
    graph: Graph
    of: int
    lacks: str = ""
    words: str = ""
    opened: Mapping[int, Side] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Messages of a stage with a neighbour, in order: the k-th of each belongs to the k-th micro-batch.

    Attributes:
        sends, receives: Rows.
        slot: The slot that holds the neighbour.
    """

    sends: tuple[int, ...]
    receives: tuple[int, ...]
    slot: int


def classify_stage(stage: int, stages: int) -> Kind:
    """Return which kind of stage one is.

    Example:
        >>> [classify_stage(stage, 3) for stage in range(3)]
        ['first', 'middle', 'last']
    """
    return "first" if stage == 0 else "last" if stage == stages - 1 else "middle"


def build_stages(trace: Trace, mesh: Mesh) -> dict[int, Stage]:
    """Return every pipeline stage: those of which a rank is known, the others built from them.

    Raises:
        TraceError: A stage cannot be built; names what is missing.
    """
    pipeline = mesh.axis(PIPELINE) or Axis(PIPELINE, 1, mesh.world)
    known: dict[int, Stage] = {}
    for rank in sorted(trace.ranks, key=lambda rank: rank.number):
        stage = mesh.stage(rank.number)
        known.setdefault(stage, Stage(rank, trace.graph_of(rank), stage))
    stages = dict(known)
    for stage in range(pipeline.size):
        if stage not in known:
            stages[stage] = _build_stage(stage, known, pipeline)
    if len(stages) > len(known):
        _agree_on_tags(stages, known, pipeline)
        _refuse_circles(stages, known, pipeline)
    return dict(sorted(stages.items()))


def _build_stage(stage: int, known: Mapping[int, Stage], pipeline: Axis) -> Stage:
    """Return a stage made of a known one: of its own kind if there is one, else the next that takes the fewest steps."""
    kind = classify_stage(stage, pipeline.size)
    preference: Mapping[Kind, Sequence[Kind]] = {
        "first": ("middle", "last"),
        "middle": ("middle", "first", "last"),
        "last": ("middle", "first"),
    }
    for wanted in preference[kind]:
        near = [candidate for candidate in known if classify_stage(candidate, pipeline.size) == wanted]
        if near:
            of = min(near, key=lambda candidate: (abs(candidate - stage), candidate))
            break
    source = known[of]
    built = source
    try:
        if classify_stage(of, pipeline.size) == "first":
            built = _open_end(built, pipeline, "before")
        elif classify_stage(of, pipeline.size) == "last":
            built = _open_end(built, pipeline, "after")
        if kind != "middle":
            built = _close_end(built, pipeline, "before" if kind == "first" else "after")
    except _UnclearError as unclear:
        example = stage * pipeline.stride
        listed = ", ".join(map(str, sorted(known)))
        raise TraceError(
            f"No rank of pipeline stage {stage} of {pipeline.size} is known (known: stages {listed}), and it cannot be built from "
            f"stage {of}: {unclear}.",
            hint=f"Record one of its ranks too, such as rank {example}.",
        ) from None
    lacks = "" if classify_stage(of, pipeline.size) == kind else _WITHOUT[kind]
    graph, slots = compact_graph(built.graph, built.rank.slots)
    built = replace(built, graph=graph, rank=replace(built.rank, slots=slots))
    return replace(built, of=of, lacks=lacks, words=_describe_stage(stage, of, pipeline.size, lacks))


def _describe_stage(stage: int, of: int, stages: int, lacks: str) -> str:
    """Say how a stage was built."""
    kind = classify_stage(of, stages)
    without = f" without {_WITHOUT[kind]}" if kind != classify_stage(stage, stages) and _WITHOUT[kind] else ""
    return f"stage {stage} is built from stage {of}{without}" + (f", and lacks {lacks}" if lacks else "")


class _UnclearError(Exception):
    """What a graph does not tell."""


def _collect_sides(stage: Stage, pipeline: Axis) -> dict[Side, _Sides]:
    """Return the messages of a stage with the stages before and after.

    Raises:
        _UnclearError: It has messages with others, or not as many in each direction.
    """
    rank, graph = stage.rank, stage.graph
    rows: dict[Side, tuple[list[int], list[int], list[int]]] = {
        "before": ([], [], []),
        "after": ([], [], []),
    }
    own = pipeline.place(rank.number)
    for slot, key, using in iterate_slots(graph):
        value = rank.slots[slot]
        if key not in PEER_KEYS or not isinstance(value, int) or value == rank.number:
            continue
        sends = [row for row in using.tolist() if graph.type[row] == NodeType.COMM_SEND]
        receives = [row for row in using.tolist() if graph.type[row] == NodeType.COMM_RECV]
        if not sends and not receives:
            continue
        away = (pipeline.place(value) - own) % pipeline.size
        rest = value - rank.number - (pipeline.place(value) - own) * pipeline.stride
        if rest or away not in (1, pipeline.size - 1):
            raise _UnclearError(
                f"rank {rank.number} exchanges messages with rank {value}, in no neighbouring stage"
            )
        after = pipeline.place(value) == own + 1 or (away == 1 and pipeline.size > 2)
        side = stage.opened.get(slot, "after" if after else "before")
        rows[side][0].extend(sends)
        rows[side][1].extend(receives)
        rows[side][2].append(slot)
    by_side: dict[Side, _Sides] = {}
    for side, (sent, received, slots) in rows.items():
        if slots:
            if len(sent) != len(received) or len(slots) > 2:
                raise _UnclearError(
                    f"rank {rank.number} sends {format_counted(len(sent), 'message')} to the stage {side} it and receives {len(received):,}"
                )
            by_side[side] = _Sides(
                tuple(_order_rows(graph, sent)), tuple(_order_rows(graph, received)), slots[0]
            )
    return by_side


def _order_rows(graph: Graph, rows: Sequence[int]) -> list[int]:
    return sorted(rows, key=lambda row: (int(graph.start_ns[row]), row))


def _list_peer_slots(stage: Stage, side: _Sides) -> list[int]:
    """Return the slots that hold the neighbour of a side: senders and receivers may use one each."""
    peer = stage.rank.slots[side.slot]
    keys = ((slot, key) for slot, key, _ in iterate_slots(stage.graph))
    return [slot for slot, key in keys if key in PEER_KEYS and stage.rank.slots[slot] == peer]


def _open_end(stage: Stage, pipeline: Axis, new: Side) -> Stage:
    """Return a first or last stage as a middle one: messages with a neighbour in place of the embedding, or output and loss.

    Raises:
        _UnclearError: The graph does not tell what to take out.
    """
    graph, rank = stage.graph, stage.rank
    sides = _collect_sides(stage, pipeline)
    neighbour_side = sides.get("after" if new == "before" else "before")
    what = "the embedding" if new == "before" else "the output layer and the loss"
    if neighbour_side is None:
        raise _UnclearError(f"rank {rank.number} exchanges no messages with the next stage")
    part = match_embedding(graph) if new == "before" else match_output(graph)
    layers = parse_layers(graph) != NONE
    if not part.any() or not layers.any():
        raise _UnclearError(
            f"names of rank {rank.number} do not tell {what} from the layers"
            + ("" if layers.any() else " (no node names the number of a layer)")
        )
    # What comes in from the neighbour that is there, and what goes out to it.
    came, goes = find_latest(graph, neighbour_side.receives), find_earliest(graph, neighbour_side.sends)
    into: list[set[int]] = [set() for _ in neighbour_side.sends]
    out: list[set[int]] = [set() for _ in neighbour_side.sends]
    _collect_boundary(graph, part, layers, (came, goes), new, (into, out))
    if not all(into) or not all(out):
        lacking = next(k for k in range(len(into)) if not into[k] or not out[k])
        raise _UnclearError(f"micro-batch {lacking} of rank {rank.number} does not pass {what}")
    neighbour = _get_neighbour(rank.number, pipeline, -1 if new == "before" else 1)
    slots, remap, widened = list(rank.slots), dict[int, int](), graph
    for slot in _list_peer_slots(stage, neighbour_side):
        widened, remap[slot] = with_slot(widened, slot)
        slots.append(neighbour)
    sizes = read_dense_column(graph, "comm_size", NONE)
    added = []
    for k, (begin, end) in enumerate(zip(neighbour_side.sends, neighbour_side.receives, strict=True)):
        received, sent = tuple(sorted(into[k])), tuple(sorted(out[k]))
        flow = "activations", "gradients"
        names = flow if new == "before" else flow[::-1]
        added.append(
            Added(
                end,
                f"assumed receive of {names[0]} {k}",
                children=received,
                slots=remap,
                size=int(sizes[begin]),
                start_ns=_find_start(graph, received),
                before=new == "before",
            )
        )
        added.append(
            Added(
                begin,
                f"assumed send of {names[1]} {k}",
                parents=sent,
                slots=remap,
                size=int(sizes[end]),
                start_ns=_find_end(graph, sent),
                before=new == "after",
            )
        )
    opened_graph = edit_graph(widened, np.flatnonzero(part).tolist(), added)
    opened: dict[int, Side] = dict.fromkeys(remap.values(), new)
    return replace(stage, graph=opened_graph, rank=replace(rank, slots=tuple(slots)), opened=opened)


def _collect_boundary(
    graph: Graph,
    part: Bool,
    layers: Bool,
    flows: tuple[Int64, Int64],
    new: Side,
    boundary: tuple[list[set[int]], list[set[int]]],
) -> None:
    """Collect the layers' nodes that wait for the part taken out, and those it waits for, by micro-batch.

    A node belongs to the micro-batch whose message is the first to go out after it; what the layers pass back to the embedding, or
    on to the loss, to that whose message was the last to come in before it.

    Args:
        graph: The graph.
        part: (N,) which nodes are taken out.
        layers: (N,) which nodes belong to layers.
        flows: (N,) of the neighbour that is there: the last receive before each node, the first send after it.
        new: The side on which a neighbour comes.
        boundary: Sets to add to: nodes that wait for the part, nodes that the part waits for.
    """
    came, goes = flows
    into, out = boundary
    count = len(into)
    for row in range(len(graph)):
        for parent in graph.data.of(row).tolist():
            if parent < 0:
                continue
            if part[parent] and layers[row] and not part[row]:
                # The layers wait for the embedding (forward), or for the loss (backward).
                k = int(goes[parent])
                if k < count and (new == "before" or k == came[parent]):
                    into[k].add(row)
            elif part[row] and layers[parent] and not part[parent]:
                k = int(came[parent])
                if k != NONE and k == came[row] and (new == "before" or k <= goes[row]):
                    out[k].add(parent)


def _close_end(stage: Stage, pipeline: Axis, side: Side) -> Stage:
    """Return a middle stage as a first or last one: without the messages of a side.

    The backward pass of a last stage begins once its forward pass has ended: what waited for gradients of the stage after waits for
    what sent it activations.

    Raises:
        _UnclearError: It exchanges no messages on that side.
    """
    neighbour_side = _collect_sides(stage, pipeline).get(side)
    if neighbour_side is None:
        raise _UnclearError(f"rank {stage.rank.number} exchanges no messages with the stage {side} it")
    links = list(zip(neighbour_side.sends, neighbour_side.receives, strict=True)) if side == "after" else []
    closed_graph = edit_graph(stage.graph, (*neighbour_side.sends, *neighbour_side.receives), (), links)
    return replace(stage, graph=closed_graph)


def _get_neighbour(rank: int, pipeline: Axis, step: int) -> int:
    """Return the rank in the stage before or after, going round at the ends."""
    place = pipeline.place(rank)
    return rank + ((place + step) % pipeline.size - place) * pipeline.stride


def _find_start(graph: Graph, rows: Sequence[int]) -> int:
    starts = graph.start_ns[list(rows)]
    return int(starts.min()) if len(starts) and (starts >= 0).all() else NONE


def _find_end(graph: Graph, rows: Sequence[int]) -> int:
    starts = graph.start_ns[list(rows)]
    return (
        int((starts + graph.duration_ns[list(rows)]).max()) if len(starts) and (starts >= 0).all() else NONE
    )


def _list_messages(stage: Stage, step: int, pipeline: Axis) -> tuple[list[int], list[int]]:
    """Return the rows, in order, by which a stage sends to the stage so many steps further, and receives from it."""
    peer = _get_neighbour(stage.rank.number, pipeline, step)
    rows: dict[int, None] = {}
    for slot, key, using in iterate_slots(stage.graph):
        if key in PEER_KEYS and stage.rank.slots[slot] == peer:
            rows.update(dict.fromkeys(using.tolist()))
    kinds = stage.graph.type
    sends = [row for row in rows if kinds[row] == NodeType.COMM_SEND]
    receives = [row for row in rows if kinds[row] == NodeType.COMM_RECV]
    return _order_rows(stage.graph, sends), _order_rows(stage.graph, receives)


def _agree_on_tags(stages: dict[int, Stage], known: Mapping[int, Stage], pipeline: Axis) -> None:
    """Give messages of stages that were never recorded the tags that the other side has for them.

    Raises:
        TraceError: One side sends another number of messages than the other receives.
    """
    for stage in range(pipeline.size - 1):
        if stage in known and stage + 1 in known:
            continue
        for sender, receiver in ((stage, stage + 1), (stage + 1, stage)):
            sends, _ = _list_messages(stages[sender], receiver - sender, pipeline)
            _, receives = _list_messages(stages[receiver], sender - receiver, pipeline)
            if len(sends) != len(receives):
                raise TraceError(
                    f"Pipeline stage {sender} sends {format_counted(len(sends), 'message')} to stage {receiver}, which receives {len(receives):,}: "
                    "the stages known do not run the same micro-batches.",
                    hint="Record one rank of each of these stages.",
                )
            # A stage that was recorded keeps its tags.
            ends = [(sender, sends), (receiver, receives)]
            (giver, given), (taker, taken) = ends[::-1] if receiver in known else ends
            tags = read_dense_column(stages[giver].graph, "comm_tag", 0)[given].tolist()
            if tags != read_dense_column(stages[taker].graph, "comm_tag", 0)[taken].tolist():
                graph = with_values(stages[taker].graph, "comm_tag", taken, tags)
                stages[taker] = replace(stages[taker], graph=graph)


def _refuse_circles(stages: Mapping[int, Stage], known: Mapping[int, Stage], pipeline: Axis) -> None:
    """Raise an error where the stages would wait for each other for ever.

    Ranks of a stage run one graph, so that its collectives hold nobody up; messages between stages may.

    Raises:
        TraceError: They would; names a stage.
    """
    first = np.cumsum([0, *(len(stages[stage].graph) for stage in range(pipeline.size))])
    stuck = _find_stuck(int(first[-1]), _iterate_waits(stages, first, pipeline))
    if stuck == NONE:
        return
    stage = int(np.searchsorted(first, stuck, side="right")) - 1
    graph = stages[stage].graph
    name = graph.strings[int(graph.name[int(stuck - first[stage])])]
    missing = ", ".join(str(number) for number in sorted(stages) if number not in known)
    raise TraceError(
        f"Pipeline stages would wait for each other for ever, among them stage {stage} for {name!r}: stages {missing} were built "
        "from others, whose order of micro-batches does not fit.",
        hint="Record one rank of each of these stages.",
    )


def _iterate_waits(stages: Mapping[int, Stage], first: Int64, pipeline: Axis) -> Iterator[tuple[int, int]]:
    """Yield who waits for whom over one rank of every stage, whose nodes are numbered one stage after the other."""
    for stage in range(pipeline.size):
        for row in range(len(stages[stage].graph)):
            for parent in list_parents(stages[stage].graph, row):
                yield int(first[stage] + row), int(first[stage] + parent)
    for stage in range(pipeline.size - 1):
        for sender, receiver in ((stage, stage + 1), (stage + 1, stage)):
            sends, _ = _list_messages(stages[sender], receiver - sender, pipeline)
            _, receives = _list_messages(stages[receiver], sender - receiver, pipeline)
            for send, receive in zip(sends, receives, strict=False):
                yield int(first[receiver] + receive), int(first[sender] + send)


def _find_stuck(count: int, waits: Iterable[tuple[int, int]]) -> int:
    """Return the first of `count` nodes that can never begin, -1 where all can."""
    children: list[list[int]] = [[] for _ in range(count)]
    waiting = np.zeros(count, np.int64)
    for child, parent in waits:
        children[parent].append(child)
        waiting[child] += 1
    ready = np.flatnonzero(waiting == 0).tolist()
    while ready:
        for child in children[ready.pop()]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    stuck = np.flatnonzero(waiting > 0)
    return int(stuck[0]) if len(stuck) else NONE
