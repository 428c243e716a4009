"""Attributes that were collected by name come to the nodes in the order in which they were added."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists

from studio.et.columns import AttributeColumns, Texts, number_by_use, order_by_appearance
from studio.et.device_events import order_by_begin
from studio.et.link import intervals
from studio.et.wire import select_texts
from studio.trace import Strings, ValueKind
from tests.et.chakra_bytes import kernel


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_a_node_has_its_attributes_in_the_order_they_were_added(twice, compiled, monkeypatch):
    """Also where it is given one of them twice at once; put there by a compiled loop or without one."""
    monkeypatch.setattr(intervals, "_is_worth_compiling", lambda _count: compiled)
    done = []
    texts = Texts()
    columns = AttributeColumns(
        texts, lambda *given: done.append(intervals.put_attributes(*given)) or done[-1]
    )
    columns.numbers("size", np.array([2, 0]), np.array([20, 0]))
    columns.numbers("size", np.array([1, 1] if twice else [1, 2]), np.array([10, 11]))
    columns.words("name", np.array([1]), ["all"])
    columns.add_ragged("shape", np.array([2, 0]), np.array([2, 1]), np.array([7, 8, 9]), ValueKind.INT64_LIST)
    attributes, _, _ = columns.finish(4)
    words = list(texts.codes)
    found = [
        (node, words[attributes.key[entry]], int(attributes.value[entry]), int(attributes.length[entry]))
        for node in range(4)
        for entry in range(attributes.offsets[node], attributes.offsets[node + 1])
    ]
    size, rest = ("size", 11, 0), ("shape", 1, 2)
    assert found == [
        (0, "size", 0, 0),
        (0, "shape", 0, 1),
        (1, "size", 10, 0),
        *([(1, *size)] if twice else []),
        (1, "name", words.index("all"), 0),
        (2, "size", 20, 0),
        *([] if twice else [(2, *size)]),
        (2, *rest),
    ]
    assert attributes.items.tolist() == [9, 7, 8]
    assert [offsets is not None for offsets in done] == [compiled]


def test_attributes_of_many_nodes_are_put_alike_by_either_way(monkeypatch):
    """Of more nodes than the compiled loop takes at a time, after the nodes were moved."""
    random = np.random.default_rng(1)
    count = 3 * intervals._AT_A_TIME + 5

    def put(compiled: bool):
        monkeypatch.setattr(intervals, "_is_worth_compiling", lambda _count: compiled)
        made = AttributeColumns(Texts(), intervals.put_attributes)
        for index, rows in enumerate(some):
            made.numbers(f"number {index}", rows, rows + index)
            made.add_ragged(
                f"list {index}", rows, rows % 3, np.arange((rows % 3).sum()), ValueKind.INT64_LIST
            )
        made.move(places)
        attributes, _, _ = made.finish(count)
        return [
            getattr(attributes, name).tolist()
            for name in ("offsets", "key", "kind", "value", "length", "items")
        ]

    some = [np.flatnonzero(random.random(count) < share) for share in (1, 0.5, 0.01)]
    places = random.permutation(count)
    assert put(compiled=True) == put(compiled=False)


def test_codes_are_numbered_by_their_first_use_and_minus_one_is_none():
    used, first, number = order_by_appearance(np.array([3, -1, 1, 3, 0, 1]), 5)
    assert used.tolist() == [3, 1, 0]
    assert first.tolist() == [0, 2, 4]
    assert [int(number[code]) for code in used.tolist()] == [0, 1, 2]


def test_intervals_stand_by_begin_the_longer_first_and_equal_ones_as_they_came():
    start, end = np.array([5, 1, 5, 5, 1, 9]), np.array([6, 4, 9, 6, 8, 9])
    assert order_by_begin(start, end).tolist() == [4, 1, 2, 0, 3, 5]
    assert order_by_begin(start, end, -np.arange(6)).tolist() == [4, 1, 2, 3, 0, 5]
    assert order_by_begin(start[:0], end[:0]).tolist() == []


@pytest.mark.parametrize("native", [False, True])
@given(columns=lists(lists(integers(-1, 6), max_size=9), max_size=3))
def test_texts_are_numbered_by_first_use_column_after_column(native, columns):
    """Compiled or not; -1 is no text, and what no column uses has no number."""
    wanted = list(dict.fromkeys(code for column in columns for code in column if code >= 0))
    pool = Strings.of("t" * code for code in range(7))
    with kernel(native):
        order, number = number_by_use([np.array(column, np.int32) for column in columns], len(pool))
        chosen = list(select_texts(pool, order))
    assert order.tolist() == wanted
    assert [number[code] for code in wanted] == list(range(len(wanted)))
    assert all(number[code] == -1 for code in {-1, *range(7)} - set(wanted))
    assert chosen == ["t" * code for code in wanted]
