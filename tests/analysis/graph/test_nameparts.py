"""Names in parts: what a reading of each name, one after another, says of them."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from studio.analysis.graph.nameparts import NameParts
from tests.examples import examples
from tests.graphs import graph

PIECES = ("a", "b", "step12", "attention_scores", ".", "/", ":", "::", "@", "<", "(", " ", "void ", "\0", "é")
NAMES = st.lists(
    st.tuples(st.sampled_from(("a", "void ", "b(", "")), st.lists(st.sampled_from(PIECES), max_size=7)).map(
        lambda name: name[0] + "".join(name[1])
    ),
    min_size=1,
    max_size=9,
)


def parts_of(name: bytes) -> list[bytes]:
    """The parts of a name; "" for what stands between separators that follow each other, but doubled ones."""
    declared = name.startswith(b"void ") and len(name) > len(b"void ")
    begin = len(b"void ") if declared else 0
    stop = re.search(rb"[@<( ]", name[begin:])
    end = begin + stop.start() if stop and stop.start() else len(name)
    cuts = [
        at
        for at in range(len(name))
        if name[at] in b"./:" and (at + 1 == len(name) or name[at + 1] not in b"./:")
    ]
    inside = [] if declared else [at for at in cuts if begin <= at < end]
    bounds = [begin - 1, *inside, end]
    parts = [name[low + 1 : high] for low, high in pairwise(bounds)]
    # The first of doubled separators belongs to no part.
    return [part[:-1] if part[-1:] in (b".", b"/", b":") else part for part in parts]


@settings(max_examples=examples(150))
@given(NAMES, st.booleans())
@example(["a.:", ":b"], False)
def test_parts_are_those_that_each_name_has(names, are_last):
    """Whether other texts come before the names or after them, there are copies of them or not."""
    columns = {"b/x.y": {0: 1}} if are_last else {}
    found = graph(len(names), names=dict(enumerate(names)), numbers=columns)
    parts, rows = NameParts(found), np.arange(len(names))
    expected = [parts_of(name.encode()) for name in names]
    for depth in range(4):
        keys = parts.keys(rows, depth).tolist()
        at_depth = [some[depth] if depth < len(some) and some[depth] else None for some in expected]
        assert [key >= 0 for key in keys] == [part is not None for part in at_depth]
        for one, this in zip(keys, at_depth, strict=True):
            assert [key == one for key in keys] == [part == this for part in at_depth]
        labels = parts.labels(rows, depth)
        for label, part, name in zip(labels, at_depth, names, strict=True):
            assert label == (name if part is None else part.decode("utf-8", "replace"))


def test_names_that_do_not_come_first_are_the_same_names():
    names = ["step1.a", "step2.b"]
    first = graph(2, names=dict(enumerate(names)))
    later = graph(3, names={0: "other", 1: names[0], 2: names[1]})
    later = type(later)(
        **{name: getattr(later, name) for name in later.__slots__} | {"name": np.array([1, 2, 1], np.int32)}
    )
    assert NameParts(later).labels(np.array([0, 1, 2]), 0) == ["step1", "step2", "step1"]
    assert NameParts(first).labels(np.array([0, 1]), 1) == ["a", "b"]


def test_a_text_that_no_name_holds_is_in_none():
    parts = NameParts(graph(2, names={0: "ProfilerStep#1", 1: "x"}))
    assert parts.containing("Step#", ignore_case=False).tolist() == [True, False]
    assert parts.containing("step#", ignore_case=False).tolist() == [False, False]
