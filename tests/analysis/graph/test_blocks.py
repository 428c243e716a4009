"""Folding: every graph becomes few blocks, nothing is lost, and what is open changes nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.analysis.graph.blocks import MOST_BLOCKS, MOST_CHILDREN, BlockTree
from studio.analysis.graph.depth import compute_depths
from studio.analysis.graph.levels import Source, build_level, choose_level, list_levels
from studio.analysis.graph.nameparts import NameParts
from studio.analysis.graph.neighbours import MOST_ELEMENTS, build_adjacency
from studio.trace import NodeType
from tests.examples import examples
from tests.graphs import graph


def source_of(found, groups=()):
    return Source(found, build_adjacency(found), NameParts(found), tuple(groups))


def tree_of(found, by=None, then=("scope", "order")):
    source = source_of(found)
    names = list_levels(source)
    first = choose_level(names) if by is None else by
    return BlockTree(
        source, compute_depths(len(found), source.near.edges), first, [one for one in then if one in names]
    )


def names_of(tree, *path):
    return [(one.name, len(one.rows)) for one in tree.children(tree.find(path)).blocks]


def test_names_fold_scope_by_scope_and_shared_parts_go_into_one_block():
    texts = [
        f"mb{m}.transformer.{layer}.{part}@0_COMP"
        for m in (0, 1)
        for layer in range(3)
        for part in "abcdefghijkl"
    ]
    tree = tree_of(graph(len(texts), names=dict(enumerate(texts))))
    assert names_of(tree) == [("mb0.transformer", 36), ("mb1.transformer", 36)]
    assert [one.is_node for one in tree.children(tree.find((1,))).blocks] == [True] * 36
    assert tree.path_of(40) == (1, 4)
    assert tree.find((2,)) is None
    assert tree.find((1, 4, 0)) is None


def test_too_many_kinds_are_taken_together_in_their_order():
    texts = {row: f"module.{row // 2}.op" for row in range(600)}
    tree = tree_of(graph(600, data=[(one, one + 1) for one in range(599)], names=texts))
    found = names_of(tree)
    assert len(found) == 24
    assert found[0] == ("module.0 to 12", 26)
    assert sum(count for _, count in found) == 600
    opened = tree.fold([(0,)])
    assert len(opened.shown) == 23 + 26
    assert opened.count.tolist() == [1] * 48


def test_what_nothing_tells_apart_is_cut_into_runs_of_its_order():
    tree = tree_of(
        graph(5000, data=[(one + 1, one) for one in range(4999)], names=dict.fromkeys(range(5000), "x"))
    )
    folded = tree.fold(tree.to_begin_with())
    assert len(folded.shown) == 24
    # The last node of the file comes first, and runs lead from one to the next only.
    assert tree.find((0,)).rows.max() == 4999
    assert (folded.after - folded.before).tolist() == [1] * 23


def test_lines_stand_for_all_dependencies_between_blocks():
    texts = {0: "a.x", 1: "a.y", 2: "b.x", 3: "b.y"}
    found = graph(4, data=[(0, 2), (1, 2), (1, 3), (3, 0)], ctrl=[(0, 1), (0, 3)], names=texts)
    source = source_of(found)
    tree = BlockTree(source, compute_depths(4, source.near.edges), "scope", ["order"])
    # So few nodes are shown as they are; blocks are asked for by hand.
    folded = tree.fold([])
    lines = list(zip(folded.before.tolist(), folded.after.tolist(), folded.data_count.tolist(), strict=True))
    assert sorted(lines) == [(0, 1, 0), (0, 2, 1), (0, 3, 0), (1, 2, 1), (1, 3, 1), (3, 0, 1)]


@given(
    st.integers(0, 400),
    st.lists(st.tuples(st.integers(0, 399), st.integers(0, 399)), max_size=300),
    st.integers(1, 60),
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=6),
)
@settings(deadline=None, max_examples=examples(60))
def test_any_graph_folds_and_opens_without_losing_a_node_or_a_dependency(count, pairs, kinds, opened):
    """Cycles, loops and equal names included; opening what does not exist changes nothing."""
    pairs = [(one % max(count, 1), other % max(count, 1)) for one, other in pairs] if count else []
    texts = {row: f"part{row * 7 % kinds}.{row % 5}.op{row % 3}" for row in range(count)}
    found = graph(count, data=pairs, names=texts)
    tree = tree_of(found)
    folded = tree.fold([tuple(path) for path in opened])
    rows = np.concatenate([np.zeros(0, np.int64), *(one.rows for one in folded.shown)])
    assert np.sort(rows).tolist() == list(range(count))
    assert len(tree.children(tree.root).blocks) <= MOST_CHILDREN
    assert len(folded.shown) + len(folded.frames) <= max(MOST_BLOCKS, MOST_CHILDREN)
    apart = {(one, other) for one, other in pairs if folded.of[one] != folded.of[other]}
    assert folded.count.sum() == len(apart)
    assert all(tree.find(one.path).rows.tolist() == one.rows.tolist() for one in folded.shown)


def test_never_more_is_drawn_than_a_browser_can_move():
    texts = {row: f"a{row % 40}.b{row // 40 % 40}.c{row // 1600}" for row in range(40 * 40 * 25)}
    rows = np.random.default_rng(1).integers(0, len(texts), (2, 30_000))
    tree = tree_of(graph(len(texts), data=list(zip(*rows.tolist(), strict=True)), names=texts))
    everything = [(one,) for one in range(40)]
    folded = tree.fold(everything)
    assert len(folded.shown) + len(folded.frames) + len(folded.count) <= MOST_ELEMENTS
    assert folded.lines_left_out > 0
    # What was opened last is open, what was opened first gave way.
    assert folded.closed[0] == (0,)
    assert (39,) in [one.path for one in folded.frames]


def test_phases_are_told_by_names_types_and_the_generator_of_tensor_graphs():
    texts = {0: "layer0.forward", 1: "layer0.backward", 2: "Optimizer.step#SGD", 3: "other", 4: "all_reduce"}
    plain = build_level(source_of(graph(5, names=texts, types={4: NodeType.COMM_COLL})), "phase")
    assert [plain.label(row, 0) for row in range(5)] == [
        "forward", "backward", "optimizer", "phase unknown", "communication",
    ]  # fmt: skip
    stg = {0: "mb0.mha.qkv@0_COMP", 1: "mb0.mha.dqkv@0_COMP", 2: "mb0.ffn.xdown@0_COMP"}
    symbolic = build_level(source_of(graph(3, names=stg)), "phase")
    assert [symbolic.label(row, 0) for row in range(3)] == ["forward", "backward", "forward"]


def test_steps_hold_what_ran_meanwhile_and_calls_what_they_called():
    texts = {
        0: "ProfilerStep#7",
        1: "aten::linear",
        2: "aten::mm",
        3: "ProfilerStep#8",
        4: "aten::add",
        5: "kernel",
    }
    host = dict.fromkeys(range(5), 1)
    found = graph(6, data=[(2, 5)], names=texts, numbers={"tid": host, "is_cpu_op": host})
    found = replace(
        found,
        start_ns=np.array([0, 10, 12, 100, 110, -1]),
        duration_ns=np.array([90, 20, 5, 50, 8, 0]),
    )
    source = source_of(found)
    assert list_levels(source)[:1] == ["step"]
    steps = build_level(source, "step")
    assert [steps.label(row, 0) for row in range(6)] == [
        "step 7", "step 7", "step 7", "step 8", "step 8", "outside of steps",
    ]  # fmt: skip
    calls = build_level(source, "calls")
    assert calls.keys(np.arange(6), 0).tolist() == [0, 0, 0, 3, 3, 0]
    assert calls.keys(np.arange(6), 2).tolist() == [-1, -1, 2, -1, -1, 2]
    assert calls.label(5, 2) == "aten::mm"


@pytest.mark.parametrize("numbers", [(3, 1, 2), (987654321, 5, 123456789)])
def test_steps_are_blocks_in_the_order_in_which_they_ran_however_large_their_numbers(numbers):
    texts = {row: f"step{numbers[row // 40]}.op" if row < 120 else "other" for row in range(160)}
    tree = tree_of(graph(160, data=[(one, one + 1) for one in range(159)], names=texts))
    named = [f"step {number}" for number in numbers]
    assert names_of(tree) == [(name, 40) for name in [*named, "outside of steps"]]
    # The last step runs first.
    turned = tree_of(graph(160, data=[(one + 1, one) for one in range(159)], names=texts))
    assert names_of(turned) == [(name, 40) for name in ["outside of steps", *named[::-1]]]


def test_a_profiler_s_threads_have_calls_and_kernels_belong_to_what_launched_them(tmp_path):
    aten, kernel = "aten::linear", "void gemm::run"
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": kernel,
            "ts": 1,
            "dur": 2,
            "pid": 0,
            "tid": 7,
            "args": {"stream": 7},
        },
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": aten,
            "ts": 5,
            "dur": 20,
            "pid": 9,
            "tid": 9,
            "args": {"External id": 1},
        },
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "ts": 6,
            "dur": 9,
            "pid": 9,
            "tid": 9,
            "args": {"External id": 2},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": kernel,
            "ts": 30,
            "dur": 4,
            "pid": 0,
            "tid": 7,
            "args": {"stream": 7, "External id": 2, "correlation": 5},
        },
    ]
    launch = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": 8,
        "dur": 1,
        "pid": 9,
        "tid": 9,
    }
    events.append({**launch, "args": {"correlation": 5, "External id": 2}})
    events += [{**events[1], "name": "aten::add", "ts": 26 + at, "dur": 1, "args": {}} for at in range(3)]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = studio.read(path).graphs[0]
    source = source_of(found)
    names = [found.strings[name] for name in found.name.tolist()]
    assert choose_level(list_levels(source)) == "calls"
    calls = build_level(source, "calls")
    last = max(row for row, name in enumerate(names) if name == kernel)
    assert calls.label(last, 0) == aten
    assert calls.label(names.index(kernel), 0) == "launch not recorded"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("mb0.in_emb.w@1_X2_COMM", ["mb0", "in_emb", "w"]),
        ("autograd::engine::evaluate_function: AddmmBackward0", ["autograd", "engine", "evaluate_function"]),
        ("void at::native::add<float, 4>(int)", ["at::native::add"]),
        ("@x.y", ["@x", "y"]),
        ("plain", ["plain"]),
        ("a//b/", ["a", "b"]),
        ("", []),
    ],
)
def test_names_are_taken_apart_where_their_levels_end(name, parts):
    found = NameParts(graph(2, names={0: name, 1: "other.name"}))
    row = np.array([0])
    seen = [found.label(0, depth) for depth in range(6) if found.keys(row, depth)[0] >= 0]
    assert seen == parts
