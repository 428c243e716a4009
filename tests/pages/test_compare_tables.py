"""The lists of Compare of nodes that only one run has."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from studio.analysis.compare.alone import group_alone_by_name
from studio.analysis.compare.runs import compare
from studio.pages.compare.tables import _list_alone
from tests.analysis.compare.test_runs import side, timed
from tests.handmade import node


def ranks(*names: tuple[str, int]):
    """Two ranks that run the same operators one after the other, of these names and durations in µs; rank 1 twice as long."""
    return side(
        [
            [
                timed(node(place, "COMP", name=name), 1000 * place, micros * (1 + rank))
                for place, (name, micros) in enumerate(names, 1)
            ]
            for rank in range(2)
        ]
    )


BASE = ("gemm", 50)
MORE = [BASE, *((f"layer.{layer}.cast", 3) for layer in range(4)), ("sync", 7), BASE]


def test_nodes_of_one_run_alone_are_summed_up_by_name_the_largest_first():
    found = compare(ranks(BASE, BASE), ranks(*MORE))
    names = [
        (one.name, one.count, one.total_ns, one.ranks, one.rank, one.longest_ns)
        for one in group_alone_by_name(found.b, found.alignment, of_b=True)
    ]
    assert names == [("layer.*.cast", 8, 36_000, 2, 1, 6_000), ("sync", 2, 21_000, 2, 1, 14_000)]


def test_each_name_leads_to_its_nodes():
    found = compare(ranks(BASE, BASE), ranks(*MORE))
    shown = _list_alone(found, "Only in B", ["j", "r"], of_b=True)
    text = said(shown)
    assert "Only in B: 10 nodes, 57.0 µs together" in text
    assert text.index("layer.*.cast") < text.index("sync") < text.index("Single nodes, the longest")
    links = [urlsplit(address) for address in addresses(shown)]
    [listed] = [parse_qs(one.query) for one in links if one.path == "/nodes"]
    assert json.loads(listed["f"][0]) == {"name": ["equals", "sync"]}
    longest = next(parse_qs(one.query) for one in links if one.path == "/timeline")
    assert (longest["rank"], longest["node"]) == (["1"], ["2"])
    assert said(_list_alone(found, "Only in A", ["j", "r"], of_b=False)).endswith("none")


def said(part) -> str:
    """Return the words of a part, in order."""
    if isinstance(part, list | tuple):
        return " ".join(said(one) for one in part)
    return part if isinstance(part, str) else said(getattr(part, "children", None) or "")


def addresses(part) -> list[str]:
    """Return where the links in a part lead, in order."""
    if isinstance(part, list | tuple):
        return [address for one in part for address in addresses(one)]
    own = [part.href] if getattr(part, "href", None) else []
    return own + (addresses(part.children) if getattr(part, "children", None) is not None else [])
