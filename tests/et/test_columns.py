"""Attributes that were collected by name come to the nodes in the order in which they were added."""

from __future__ import annotations

import numpy as np
import pytest

from studio.et.columns import AttributeColumns, Texts
from studio.trace import ValueKind


@pytest.mark.parametrize("twice", [False, True])
def test_a_node_has_its_attributes_in_the_order_they_were_added(twice):
    """Also where it is given one of them twice at once."""
    texts = Texts()
    columns = AttributeColumns(texts)
    columns.numbers("size", np.array([2, 0]), np.array([20, 0]))
    columns.numbers("size", np.array([1, 1] if twice else [1, 2]), np.array([10, 11]))
    columns.words("name", np.array([1]), ["all"])
    columns.ragged("shape", np.array([2, 0]), np.array([2, 1]), np.array([7, 8, 9]), ValueKind.INT64_LIST)
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
