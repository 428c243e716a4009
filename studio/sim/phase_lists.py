"""Lay out the phases of collectives: algorithms, programs, and collectives given as traces.

A list of phases is laid out once, whoever goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from studio.sim.algorithms import Recipe, build_programs
from studio.sim.collectives import Phase
from studio.sim.fold_job import Neighbourhood
from studio.sim.kernel import records as k
from studio.sim.kinds import ROOTED_KINDS
from studio.sim.planning import Planning
from studio.sim.programs import Program
from studio.trace import Int64

KIND_CODE: dict[str, int] = {
    "all_reduce": k.Collective.ALL_REDUCE,
    "all_gather": k.Collective.ALL_GATHER,
    "reduce_scatter": k.Collective.REDUCE_SCATTER,
    "all_to_all": k.Collective.ALL_TO_ALL,
    "reduce": 4,
    "gather": 5,
    "scatter": 6,
    "broadcast": 7,
    "reduce_scatter_block": 8,
    "barrier": 9,
}
_SCALE = {
    "reduce_scatter": k.Phase.SHRINK,
    "scatter": k.Phase.SHRINK,
    "all_gather": k.Phase.GROW_BY,
    "gather": k.Phase.GROW_BY,
}
_OPS = {"send": k.Op.SEND, "send_wait": k.Op.SEND_WAIT, "receive": k.Op.RECEIVE, "reduce": k.Op.REDUCE}
ALGORITHM_CODE = {
    "ring": k.Algorithm.RING,
    "direct": k.Algorithm.DIRECT,
    "halving_doubling": k.Algorithm.HALVING,
    "double_binary_tree": k.Algorithm.TREE,
}
ROLE_CODE = {"normal": k.Phase.NORMAL, "up": k.Phase.UP, "down": k.Phase.DOWN}


def put_phase_list(planning: Planning, phases: Sequence[Phase], group_size: int = 0) -> int:
    """Lay out the records of phases; returns their offset.

    Args:
        planning: What the plan is made of.
        phases: The phases, in order.
        group_size: Ranks of the comm group they are for, where that matters; 0 for all ranks.
    """
    key = ("phases", group_size, *phases)
    if key not in planning.lists:
        records = np.zeros(8 + k.Phase.WORDS * len(phases), np.int64)
        records[0] = len(phases)
        for index, phase in enumerate(phases):
            record = records[8 + k.Phase.WORDS * index :]
            _fill_phase(planning, record, phase, phases)
            record[k.Phase.LAST] = index == len(phases) - 1
            if planning.folding is not None:
                record[k.Phase.NAME] = planning.folding.kinds.get(Neighbourhood.of(phase), 0)
            if planning.extensions is not None:
                _use_program(planning, record, phase, phase.size or group_size)
        planning.lists[key] = planning.arena.put(records)
        planning.phases_of[planning.lists[key]] = frozenset(phases)
        planning.messages[planning.lists[key]] = sum(map(partial(_estimate_messages, planning), phases))
        planning.stream_phases = max(planning.stream_phases, len(phases))
    return planning.lists[key]


def _estimate_messages(planning: Planning, phase: Phase) -> int:
    """Return about how many messages a rank sends in a phase."""
    n = phase.size or max((len(group.ranks) for group in planning.groups.values()), default=planning.npus)
    if phase.algorithm.kind in ("ring", "direct"):
        return 2 * n
    return 2 * n.bit_length()


def put_stream_lists(planning: Planning, streams: Sequence[Sequence[Phase]]) -> int:
    """Return a list of phases that stands for those of single streams."""
    if len(streams) == 1:
        return put_phase_list(planning, streams[0])
    lists = np.array([put_phase_list(planning, phases) for phases in streams], np.int64)
    head = np.zeros(8, np.int64)
    head[0], head[1] = len(streams[0]), planning.arena.put(lists)
    start = planning.arena.put(head)
    planning.messages[start] = planning.messages[int(lists[0])]
    planning.phases_of[start] = frozenset(phase for phases in streams for phase in phases)
    return start


def _use_program(planning: Planning, record: Int64, phase: Phase, ranks: int) -> None:
    """Make a phase run a program if the engine lacks its algorithm."""
    kind, algorithm = phase.kind, phase.algorithm
    row, tree = algorithm.row, algorithm.row.two_trees
    if kind == "barrier" and kind not in row.steps and not tree:
        # No bytes: a barrier only needs every rank to hear of every other.
        record[k.Phase.TYPE] = k.Collective.ALL_GATHER
        return
    odd = ranks & (ranks - 1) != 0 or (tree and phase.size == 0) or ranks == 1
    if kind not in ROOTED_KINDS and kind not in row.lacks and not (row.powers_of_two and odd):
        return
    record[k.Phase.ALGORITHM] = k.Algorithm.PROGRAM
    tables = []
    for bits in range(4):
        recipe = Recipe(
            kind,
            algorithm.kind,
            ranks,
            window=algorithm.window or 0,
            backwards=bool(bits & 1) and algorithm.kind in ("ring", "direct"),
            second=bool(bits & 2) and tree,
        )
        tables.append(_put_program_table(planning, recipe, phase))
    record[k.Phase.TABLE] = planning.arena.put(np.array(tables, np.int64))


def _put_program_table(planning: Planning, recipe: Recipe, phase: Phase) -> int:
    """Return where it is written at which step each rank, in a comm group each place, begins."""
    key = ("table", recipe, phase.stride, phase.root, phase.line)
    if key not in planning.lists:
        ranks = np.arange(planning.npus if phase.size else recipe.size)
        place = ranks // phase.stride % phase.size if phase.size else ranks
        root = 0
        takes_part = np.ones(len(ranks), np.bool_)
        if phase.root is not None:
            root = phase.root // phase.stride % phase.size if phase.size else phase.root
            for stride, size in phase.line:
                takes_part &= ranks // stride % size == phase.root // stride % size
        begin = _put_programs(planning, replace(recipe, root=root))
        planning.lists[key] = planning.arena.put(np.where(takes_part, begin[place], begin[-1]))
    return planning.lists[key]


def _put_programs(planning: Planning, recipe: Recipe) -> Int64:
    """Return (n + 1,) where the program of each place begins, and one that does nothing."""
    key = ("programs", recipe)
    if key not in planning.programs:
        begin = [_put_program(planning, program) for program in build_programs(recipe)]
        planning.programs[key] = np.array([*begin, _put_program(planning, ())], np.int64)
    return planning.programs[key]


def _put_program(planning: Planning, program: Program) -> int:
    ops: list[tuple[int, int, int, int]] = []
    # A packet waits at its rank before it is sent; a receive that comes first is posted at once.
    if not program or any(message.what.startswith("send") for message in program[0].messages):
        ops.append((k.Op.STEP, 0, 0, 0))
    for step in program:
        ops += [
            (_OPS[message.what], message.peer, message.divisor, message.factor) for message in step.messages
        ]
        ops.append((k.Op.STEP, step.times, k.Op.WORDS * len(step.messages), 0))
        planning.longest_step = max(planning.longest_step, len(step.messages))
    ops.append((k.Op.END, 0, 0, 0))
    return planning.arena.put(np.array(ops, np.int64))


def put_custom_list(planning: Planning, table: int, size: int) -> int:
    """Return a list of the one phase of a collective given as a trace, for all ranks or (size 0) for comm groups."""
    record = np.zeros(8 + k.Phase.WORDS, np.int64)
    record[0] = 1
    phase = record[8:]
    phase[k.Phase.ALGORITHM], phase[k.Phase.TABLE], phase[k.Phase.TREE] = k.Algorithm.CUSTOM, table, -1
    phase[k.Phase.N], phase[k.Phase.STRIDE] = size, 1 if size else 0
    phase[k.Phase.LAST] = 1
    return planning.arena.put(record)


def _fill_phase(planning: Planning, record: Int64, phase: Phase, phases: Sequence[Phase]) -> None:
    algorithm, dims = phase.algorithm, planning.config.topology.dims
    planning.uses_direct |= algorithm.kind == "direct"
    record[k.Phase.TYPE] = KIND_CODE[phase.kind]
    # Algorithms that the engine lacks run as programs.
    record[k.Phase.ALGORITHM] = ALGORITHM_CODE.get(algorithm.kind, k.Algorithm.PROGRAM)
    if algorithm.kind != "double_binary_tree" or phase.kind in ROOTED_KINDS:
        # The reference's trees run an all-reduce for every collective.
        record[k.Phase.SCALE] = _SCALE.get(phase.kind, k.Phase.KEEP)
    record[k.Phase.WINDOW] = algorithm.window or 0
    record[k.Phase.N], record[k.Phase.STRIDE] = phase.size, phase.stride
    record[k.Phase.DIM], record[k.Phase.ROLE] = phase.dim, ROLE_CODE[phase.role]
    record[k.Phase.TREE] = -1
    if algorithm.kind == "double_binary_tree":
        # All phases of an all-reduce count together.
        kind = "all_reduce" if any(p.kind == "all_reduce" for p in phases) else phase.kind
        record[k.Phase.TREE] = KIND_CODE[kind] * len(dims) + phase.dim
    record[k.Phase.LOCAL] = phase.size == 0
    free = phase.size == 0 or (algorithm.single and len(dims) > 1) or planning.config.links is not None
    record[k.Phase.MESSAGE_DIM] = -1 if free else phase.dim


def count_turn_words(planning: Planning, dims: int) -> tuple[int, int, int]:
    """Return the words for queues, for the turns of queues and for those of trees in some dimensions."""
    kinds = len(KIND_CODE) if planning.extensions is not None else 4
    return (
        4 * dims * planning.config.queues_per_dimension,
        3 * dims,
        kinds * len(planning.config.topology.dims),
    )
