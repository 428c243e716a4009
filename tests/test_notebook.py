"""The library as a notebook uses it: what there is, how it shows itself, and what it takes."""

from __future__ import annotations

import doctest
import inspect
import json
import pickle
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

import studio
from studio.figures import lanes
from studio.figures.collective_heat import draw_collective_heatmap
from studio.notebook import LINE
from studio.sim.compared import build_side
from studio.sim.result import SimResult
from studio.trace import CommGroup, Finding, Trace, compute_trace_digest
from tests import test_cli

CLASSES = [*(value for name in studio.__all__ if inspect.isclass(value := getattr(studio, name))), SimResult]
FIGURES = studio.figures.__all__
EVIL = "<img src=x onerror=alert(1)>\x00\nnext"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return studio.read(studio.sample_path("transformer_8r"))


@pytest.fixture(scope="module")
def result(trace: Trace):
    return studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())


def test_names_are_listed_load_and_have_an_example() -> None:
    assert dir(studio) == sorted([*studio.__all__, "__version__"])
    assert dir(studio.figures) == sorted(FIGURES)
    public = {name: getattr(studio, name) for name in studio.__all__}
    public |= {f"figures.{name}": getattr(studio.figures, name) for name in FIGURES}
    without = [
        name
        for name, value in public.items()
        if not doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    ]
    assert without == []


@pytest.mark.parametrize("kind", CLASSES)
def test_what_values_can_be_asked_has_an_example(kind: type) -> None:
    parts = {name: _function_of(part) for name, part in vars(kind).items() if name[0] != "_"}
    without = [
        name
        for name, part in parts.items()
        if inspect.isfunction(part) and not doctest.DocTestParser().get_examples(inspect.getdoc(part) or "")
    ]
    assert without == []


def _function_of(part: object) -> object:
    """Return what a property or a class method calls."""
    return getattr(part, "fget", None) or getattr(part, "__func__", part)


def reachable(*values: object) -> list[object]:
    """Every value that the fields of some values lead to."""
    found: dict[int, object] = {}
    todo = list(values)
    while todo:
        value = todo.pop()
        if id(value) in found or isinstance(value, str | bytes | int | float | np.ndarray | type | None):
            continue
        if isinstance(value, tuple | list):
            todo += value[:20]
            continue
        found[id(value)] = value
        if is_dataclass(value):
            todo += [getattr(value, spec.name) for spec in fields(value)]
    return list(found.values())


def test_the_repr_of_everything_is_a_line(trace: Trace, result) -> None:
    big = replace(
        trace,
        groups=(*trace.groups, CommGroup("g", tuple(range(5000)))),
        findings=(Finding("info", "x", "y" * 999),),
    )
    long = [
        (type(value).__name__, text)
        for value in reachable(
            big, result, result.timeline(), studio.compare(result, result), studio.examine(trace), studio.presets,
            studio.repair(trace, "cycle"), studio.LinkOptions(),
        )
        if len(text := repr(value)) > LINE or "\n" in text
        if not isinstance(value, dict)
    ]  # fmt: skip
    assert long == []


def test_a_shortened_line_leaves_fingerprints_whole(trace: Trace) -> None:
    ranks = tuple(range(5000))
    one = replace(trace, groups=(CommGroup("g", ranks),))
    other = replace(trace, groups=(CommGroup("g", (*ranks[:-1], 7000)),))
    assert repr(one.groups[0]) == repr(other.groups[0])
    assert compute_trace_digest(one) != compute_trace_digest(other)


def test_values_show_themselves_as_tables_in_which_names_are_text(trace: Trace, result) -> None:
    finding = Finding("warning", "x", EVIL, EVIL, rank=3, file=EVIL)
    evil = replace(trace, ranks=tuple(replace(rank, file=EVIL) for rank in trace.ranks), findings=(finding,))
    side = build_side(result)
    use = side.ledger()
    shown = [evil, finding, result, result.timeline(0), studio.compare(result, result), use, studio.presets,
             studio.examine(evil), *studio.examine(evil)]  # fmt: skip
    for value in shown:
        html = value._repr_html_()
        assert html.startswith("<table>"), type(value)
        assert "<img" not in html
        assert "\x00" not in html
    assert "&lt;img src=x" in evil._repr_html_()


def test_ranks_are_given_by_number_or_themselves(trace: Trace, result) -> None:
    rank = trace.rank(3)
    assert rank is not None
    for this, other in (
        (trace.graph_of(3), trace.graph_of(rank)),
        (studio.to_networkx(trace, 3).size(), studio.to_networkx(trace, rank).size()),
        (len(result.timeline(3)), len(result.timeline([rank]))),
        (len(studio.recorded(trace, 3)), len(studio.recorded(trace, rank))),
        (result.events_of(3)[0].tolist(), result.events_of(rank)[0].tolist()),
    ):
        assert this == other or this is other
    assert studio.to_pandas(trace, 3).equals(studio.to_pandas(trace, rank))
    assert trace.rank(rank) is rank
    assert trace.graph_of(np.int32(3)) is trace.graph_of(3)
    assert len(studio.recorded(trace, np.arange(2))) == len(studio.recorded(trace, [0, 1]))
    with pytest.raises(studio.TraceError, match="no rank 99"):
        trace.graph_of(99)
    with pytest.raises(studio.TraceError, match="no rank 7"):
        studio.read(studio.sample_path("training_2r")).graph_of(trace.ranks[7])


@pytest.mark.parametrize("wrong", [1.5, float("nan"), "12", b"1", None, [0, 1]])
def test_what_is_no_rank_is_said(trace: Trace, wrong: Any) -> None:
    """A number with a fraction was cut off, and a text taken for a rank by each of its letters."""
    with pytest.raises(studio.TraceError, match="allowed: a whole number, or a Rank of the trace"):
        trace.graph_of(wrong)
    with pytest.raises(studio.TraceError, match="allowed: a whole number, or a Rank of the trace"):
        studio.recorded(trace, [wrong])
    if isinstance(wrong, str | bytes | float):
        with pytest.raises(studio.TraceError, match="allowed: a whole number, or a Rank of the trace"):
            studio.recorded(trace, wrong)


def test_what_functions_return_can_be_kept(trace: Trace, result: SimResult) -> None:
    """By pickle, as programs of several processes send it."""
    for value in (
        trace,
        result,
        studio.recorded(trace),
        studio.compare(trace, result),
        studio.critical_path(result),
    ):
        assert repr(pickle.loads(pickle.dumps(value))) == repr(value)


def test_all_ranks_are_one_table(trace: Trace) -> None:
    frame, table = studio.to_pandas(trace), studio.to_arrow(trace)
    assert len(frame) == table.num_rows == trace.node_count
    assert list(frame.columns) == table.column_names
    assert frame["rank"].tolist() == table["rank"].to_pylist()
    assert frame["name"].tolist() == table["name"].to_pylist()
    assert [list(deps) for deps in frame["data_deps"]] == table["data_deps"].to_pylist()
    assert int(frame["bytes"].sum()) == sum(table["bytes"].to_pylist())
    parts = [studio.to_pandas(trace, rank) for rank in trace.ranks]
    assert sum(map(len, parts)) == len(frame)
    assert studio.to_arrow(trace, 0).num_rows == len(parts[0])


def test_the_timeline_draws_every_node_in_the_lanes_of_the_ranks_asked_for(trace: Trace, result) -> None:
    figure = studio.figures.timeline(trace, ranks=[1, trace.ranks[0]])
    shown = studio.recorded(trace, [0, 1])
    assert sum(len(bars.x) for bars in figure.data) == len(shown)
    labels = [label for label in figure.layout.yaxis.ticktext if label]
    assert {label.split(" · ")[0] for label in labels} == {"rank 0", "rank 1"}
    # In all categories together the bars are as long as the nodes took.
    last = max(
        float(base + length) for bars in figure.data for base, length in zip(bars.base, bars.x, strict=True)
    )
    assert last == pytest.approx((shown.end_ns.max() - shown.start_ns.min()) / 1e6)
    replayed = studio.figures.timeline(result, dark=True)
    assert sum(len(bars.x) for bars in replayed.data) == len(result.timeline())
    with pytest.raises(studio.TraceError, match="99"):
        studio.figures.timeline(trace, ranks=99)


def test_bars_of_a_large_timeline_are_joined_and_none_is_lost() -> None:
    row, category = np.repeat([0, 0, 1], 30_000), np.repeat([0, 1, 0], 30_000)
    start = np.tile(np.arange(30_000) * 10, 3)
    first = lanes._find_bar_starts(row, category, start, start + 4, 300_000)
    assert 0 < len(first) <= 20_000
    assert {0, 30_000, 60_000} <= set(first.tolist()), "no bar reaches into another row or category"


def test_collectives_are_a_heatmap_and_words_in_it_stay_words(trace: Trace, result) -> None:
    figure = studio.figures.collectives(result)
    heat = figure.data[0]
    assert len(heat.x) == 8
    assert np.isnan(heat.z.astype(float)).any(), "blank where a rank takes no part"
    recorded = studio.figures.collectives(trace, "waiting")
    assert recorded.data[0].z.shape[1] == 8
    evil = draw_collective_heatmap(np.array([[1.0]]), [EVIL], [0], "size", dark=False)
    assert "<img" not in evil.to_json()
    assert draw_collective_heatmap(np.zeros((0, 2)), [], [0, 1], "size", dark=False) is None


def test_a_topology_is_drawn_with_every_npu_it_has_room_for() -> None:
    preset = studio.presets["hgx-h100-8"]
    config = preset.config
    for system in (config, config.topology, preset):
        figure = studio.figures.topology(system)
        assert [text for text in figure.data[0].text if text.startswith("NPU ")] == [
            f"NPU {n}" for n in range(8)
        ]
        assert len(figure.data) == 1 + len(config.topology.dims)


def test_one_of_a_thing_is_singular(trace: Trace) -> None:
    one = replace(trace, ranks=trace.ranks[:1], graphs=trace.graphs[:1], groups=trace.groups[:1])
    assert repr(one) == "Trace(1 rank, 1 graph, 297 nodes, 1 comm group, 0 findings)"
    assert ", 1 rank, " in repr(studio.recorded(one))


def test_an_unknown_metric_is_named_with_those_there_are(trace: Trace) -> None:
    with pytest.raises(studio.ConfigError, match="metric is 'bandwidth'; allowed: size, duration, waiting"):
        studio.figures.collectives(trace, "bandwidth")


def test_the_critical_path_adds_up_to_the_finish(trace: Trace, result: SimResult) -> None:
    """Of a recording and of a simulation; its shares are a table, and names in it stay words."""
    for run, finish_ns in ((trace, build_side(trace).makespan_ns), (result, result.makespan_ns)):
        found = studio.critical_path(run)
        assert sum(share.ns for share in found.shares) == found.path.length_ns == finish_ns
        assert repr(found).startswith("WholePath(44.5 ms, ")
        assert len(repr(found)) <= LINE
    share = replace(found.shares[0], what=EVIL)
    assert "<img" not in replace(found, shares=(share,))._repr_html_()


def test_a_short_list_is_shown_in_full() -> None:
    """Of four ranks three were shown, and that they are four."""
    assert repr(CommGroup("tp0", (0, 1, 2, 3))) == "CommGroup(name='tp0', ranks=(0, 1, 2, 3), inferred=False)"
    assert "(0, 1, 2, …, 40 in all)" in repr(CommGroup("dp", tuple(range(40))))


def test_a_number_given_as_text_is_shown_as_text() -> None:
    """`tp is 8; allowed: a whole number` was no help."""
    with pytest.raises(studio.ConfigError, match=r"^tp is '8'; allowed: a whole number"):
        studio.generate("llama3-8b", ranks=8, tp="8")


@pytest.mark.parametrize("name", ["transformer_8r", "imbalance_8r"])
def test_the_library_assumes_the_memory_that_the_command_assumes(name: str) -> None:
    """A job that loads and stores was refused by the library on the presets on which the command answers."""
    sample = studio.sample_path(name)
    told: list[str] = []
    result = studio.simulate(
        studio.read(sample), studio.preset("hgx-h100", npus=8).config, notice=told.append
    )
    answer = json.loads(test_cli.run("simulate", sample, "--preset", "hgx-h100", "--json").output)
    assert result.makespan_ns == answer["finish_ns"]
    assert any(text.startswith("Remote memory of 64 GB/s") for text in told)
