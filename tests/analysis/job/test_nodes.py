"""The list of all nodes: what is in it, in which order, and how it is searched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.job.node_columns import COLUMNS, NUMBER_COLUMNS, TEXT_COLUMNS
from studio.analysis.job.node_conditions import Condition
from studio.analysis.job.node_refs import find_node, format_node_ref
from studio.analysis.job.nodes import Node, NodeIndex, Query
from studio.errors import TraceError
from studio.timeline import NodeTimes
from studio.trace import NONE, NodeType, Rank, Trace, label_collective, type_name
from tests.analysis.jobs import five, grouped, timed, with_strings
from tests.graphs import graph

# ---------------------------------------------------------------------------------------------------
# By hand


def names(index: NodeIndex, query: Query) -> list[tuple[int, str]]:
    return [(node.rank, node.name) for node in index.rows(query, 0, 100)]


def where(column: str, operator: str, value: str = "", to: str = "") -> Query:
    return Query(conditions=((Condition(column, operator, value, to),),))


def test_a_node_has_every_column():
    """Starts count from the first of the job, the group is the rank's, dangling dependencies count."""
    index = NodeIndex(five())
    assert len(index) == 11
    assert index.node(6) == Node(
        ref="11",
        rank=4,
        id=11,
        name="Reduce",
        type="COMM_COLL",
        collective="ALL_REDUCE",
        group="tp1",
        bytes=4096,
        operations=-1,
        start_ns=200,
        end_ns=500,
        duration_ns=300,
        recorded_start_ns=200,
        recorded_duration_ns=300,
        waits_for=1,
    )
    assert (index.node(7).ref, index.node(8).waits_for, index.node(9).id) == ("11.1", 2, 2**64 - 1)
    assert (index.node(8).bytes, index.node(8).collective, index.node(8).start_ns) == (100, "", -1)
    assert (index.node(9).start_ns, index.node(9).end_ns) == (100, -1)  # when it ended was not recorded
    assert (index.origin_ns, index.end_ns) == (5000, 500)


def test_times_are_those_of_a_run_and_recorded_ones_beside_them():
    """Ranks that one was simulated for share its times; 0 ns are a duration; the other list stays as it was."""
    recorded = NodeIndex(five())
    times = NodeTimes(np.array([0, 0, NONE]), np.array([0, 7, 7, 9, NONE]), np.array([7, 7, 9, 30, NONE]))
    index = NodeIndex(five(), times, like=recorded)
    taken = [
        (node.rank, node.name, node.duration_ns)
        for node in index.rows(Query(order=(("duration_ns", True),)), 0, 20)
    ]
    assert taken[:8] == [
        (0, "send", 21), (4, "send", 21), (0, "embed", 7), (4, "embed", 7),
        (0, "gather", 2), (4, "gather", 2), (0, "Reduce", 0), (4, "Reduce", 0),
    ]  # fmt: skip
    assert {duration for *_, duration in taken[8:]} == {-1}
    assert names(index, where("end_ns", "matches", "<= 7 ns")) == [
        (0, "embed"), (0, "Reduce"), (4, "embed"), (4, "Reduce"),
    ]  # fmt: skip
    assert names(index, where("recorded_start_ns", "equals", "200")) == [(0, "Reduce"), (4, "Reduce")]
    node = index.node(6)
    assert (node.start_ns, node.end_ns, node.recorded_start_ns, node.recorded_duration_ns) == (7, 7, 200, 300)
    assert (index.last_ns, index.end_ns, index.simulated, recorded.simulated) == (30, 500, True, False)
    assert recorded.node(6).start_ns == 200


def test_nodes_without_a_value_come_last_in_both_orders():
    index = NodeIndex(five())
    rising = [node.duration_ns for node in index.rows(Query(order=(("duration_ns", False),)), 0, 100)]
    falling = [node.duration_ns for node in index.rows(Query(order=(("duration_ns", True),)), 0, 100)]
    assert rising == [200, 200, 300, 300, *[-1] * 7]
    assert falling == [300, 300, 200, 200, *[-1] * 7]


def test_equal_nodes_stay_in_the_order_of_rank_and_row_also_when_it_falls():
    index = NodeIndex(five())
    assert names(index, Query(order=(("name", True),)))[:5] == [
        (0, "send"), (4, "send"), (0, "Reduce"), (4, "Reduce"), (7, "reduce"),
    ]  # fmt: skip
    assert names(index, Query(order=(("type", False), ("rank", True))))[:3] == [
        (7, "reduce"), (4, "Reduce"), (4, "gather"),
    ]  # fmt: skip


def test_search_finds_names_without_regard_to_case_and_ids_exactly():
    index = NodeIndex(five())
    assert names(index, Query("REDU")) == [(0, "Reduce"), (4, "Reduce"), (7, "reduce")]
    assert names(index, Query("11")) == [(0, "Reduce"), (0, "gather"), (4, "Reduce"), (4, "gather")]
    assert names(index, Query(str(2**64 - 1))) == [(0, "head"), (4, "head")]
    assert names(index, Query("1" * 5000)) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (where("group", "equals", "TP1"), [(4, "Reduce")]),
        (where("rank", "equals", "7"), [(7, "reduce")]),
        (where("collective", "startsWith", "all_g"), [(0, "gather"), (4, "gather")]),
        (where("bytes", "inRange", "100", "512"), [(0, "gather"), (0, "send"), (4, "gather"), (4, "send")]),
        (where("operations", "lessThan", "2e3"), [(0, "embed"), (4, "embed")]),
        (where("start_ns", "notBlank"), [(r, n) for r in (0, 4) for n in ("embed", "Reduce", "head")]),
        (where("bytes", "notEqual", "100"), [(0, "Reduce"), (0, "gather"), (4, "Reduce"), (4, "gather"), (7, "reduce")]),
        (where("id", "greaterThan", str(2**64 - 2)), [(0, "head"), (4, "head")]),
        (where("waits_for", "lessThan", "-1"), []),
        (
            Query("e", ((Condition("rank", "lessThan", "4"),), (Condition("name", "endsWith", "d"), Condition("type", "equals", "comm_coll")))),
            [(0, "embed"), (0, "Reduce"), (0, "gather"), (0, "send"), (0, "head")],
        ),
    ],
)  # fmt: skip
def test_filters(query: Query, expected):
    assert names(NodeIndex(five()), query) == expected


def test_columns_without_a_value_are_named():
    job = five()
    assert NodeIndex(job).empty_columns() == []
    alone = Trace(job.graphs[1:], (Rank(7, 0),))
    assert NodeIndex(alone).empty_columns() == ["group", "operations", "start_ns", "end_ns", "duration_ns"]
    run = NodeTimes(np.array([0]), np.array([5]), np.array([6]))
    lacking = ["group", "operations", "recorded_start_ns", "recorded_duration_ns"]
    assert NodeIndex(alone, run).empty_columns() == lacking


def test_a_node_is_found_in_the_list_it_belongs_to():
    job = five()
    index = NodeIndex(job)
    place = index.place(job.ranks[1], 4)
    assert index.node(place).name == "head"
    assert index.position(Query(), place) == 9
    assert index.position(Query("head"), place) == 1
    assert index.position(Query("embed"), place) is None


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (Condition("colour", "equals", "red"), "no column 'colour'"),
        (Condition("bytes", "equals", "many"), "'many' is not a number"),
        (Condition("bytes", "inRange", "1", "x"), "'x' is not a number"),
        (Condition("bytes", "contains", "1"), "cannot be compared by 'contains'"),
        (Condition("name", "lessThan", "1"), "cannot be compared by 'lessThan'"),
    ],
)
def test_a_wrong_filter_is_refused_with_what_is_allowed(condition: Condition, message: str):
    with pytest.raises(TraceError, match=message) as refusal:
        NodeIndex(five()).count(Query(conditions=((condition,),)))
    assert refusal.value.hint


def test_an_unknown_order_is_refused():
    with pytest.raises(TraceError, match="no column 'size'"):
        NodeIndex(five()).count(Query(order=(("size", False),)))


def test_names_that_are_no_utf8_are_found_by_what_is_shown():
    job = five()
    odd = with_strings(job.graphs[0], [b"\xffodd", "ÄRGER"])
    index = NodeIndex(Trace((odd,), (replace(job.ranks[0], graph=0),)))
    assert names(index, Query("�ODD")) == [(0, "�odd")]
    assert names(index, Query("ärger")) == [(0, "ÄRGER")]
    assert names(index, Query("\ud800")) == []


def test_a_job_without_nodes_is_an_empty_list():
    for job in (Trace((), ()), Trace((graph(0),), (Rank(0, 0),))):
        index = NodeIndex(job)
        index.warm()
        for column in COLUMNS:
            assert index.rows(Query("x", order=((column, True),)), 0, 10) == []


def test_threads_may_share_an_index():
    """Every thread gets the list it asked for, whichever others are made at the same time."""
    index = NodeIndex(five())
    queries = [Query(order=((column, falling),)) for column in COLUMNS for falling in (False, True)]
    expected = [[node.ref for node in NodeIndex(five()).rows(query, 0, 20)] for query in queries]
    wrong: list[Query] = []

    def ask() -> None:
        for query, refs in zip(queries, expected, strict=True):
            if [node.ref for node in index.rows(query, 0, 20)] != refs:
                wrong.append(query)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_refs_name_nodes_back():
    """Also the second and third of an id; wrong ones are refused."""
    made = graph(5, ids=[3, 1, 3, 3, 7])
    assert [format_node_ref(made, row) for row in range(5)] == ["3", "1", "3.1", "3.2", "7"]
    assert [find_node(made, format_node_ref(made, row)) for row in range(5)] == list(range(5))
    for wrong in ("8", "3.3", "", "x", "-1", "1.", "3.-1", "9" * 50, "0" * 5000, "3." + "0" * 5000, "٣"):
        with pytest.raises(TraceError):
            find_node(made, wrong)


# ---------------------------------------------------------------------------------------------------
# Against a list that is really built

TEXTS = st.sampled_from(
    ["", "a", "A", "b", "ab", "aB" * 40, "mha", "ß", "Ä", "ä", "a\0", "a\0\0", "\U0001f600"]
)
NUMBERS = st.integers(-(2**63), 2**63 - 1).filter(lambda n: n != -1) | st.integers(0, 5)


@st.composite
def jobs(draw: st.DrawFn) -> Trace:
    """One to three graphs, shared by up to four ranks with groups of their own."""
    graphs = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 6))
        rows = st.dictionaries(st.integers(0, max(count - 1, 0)), NUMBERS) if count else st.just({})
        types = dict.fromkeys(range(count), NodeType.COMP)
        types |= {row: draw(st.sampled_from([4, 5, 7, 7, 7, 99, -3])) for row in range(count)}
        slots = {row: draw(st.integers(0, 1)) for row in range(count) if draw(st.booleans())}
        made = graph(
            count,
            names={row: draw(TEXTS) for row in range(count)},
            types=types,
            ids=draw(st.lists(st.integers(0, 3) | st.integers(0, 2**64 - 1), min_size=count, max_size=count)),
            numbers={
                "comm_size": draw(rows),
                "num_ops": draw(rows),
                "comm_type": {row: draw(st.integers(0, 12)) for row in range(0, count, 2)},
                "pg_name": slots,
            },
        )
        times = st.tuples(st.integers(-1, 9), st.sampled_from([0, 0, 1, 2, 70_000, 2**40]))
        made = timed(made, {row: draw(times) for row in range(count)})
        graphs.append(replace(grouped(made, slots), slot_key=np.zeros(2, np.int32)))
    used = draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=4))
    ranks = [Rank(3 * number, at, (draw(TEXTS), draw(TEXTS))) for number, at in enumerate(used)]
    return Trace(tuple(graphs), tuple(ranks))


@st.composite
def runs(draw: st.DrawFn, job: Trace) -> NodeTimes | None:
    """Times of every rank, shared by some that have one graph, unknown for others; or no run at all."""
    if draw(st.booleans()):
        return None
    first: list[int] = []
    start: list[int] = []
    end: list[int] = []
    for at, rank in enumerate(job.ranks):
        alike = [first[other] for other in range(at) if job.ranks[other].graph == rank.graph]
        first.append(draw(st.sampled_from([NONE, len(start), len(start), *alike])))
        if first[-1] == len(start):
            for _ in range(len(job.graphs[rank.graph])):
                start.append(draw(st.sampled_from([NONE, 0, 3, 70_000, 2**40])))
                end.append(
                    start[-1] if start[-1] == NONE else start[-1] + draw(st.sampled_from([0, 1, 2**40]))
                )
    return NodeTimes(*(np.array(column, np.int64) for column in (first, start, end)))


def all_nodes(job: Trace, run: NodeTimes | None) -> list[Node]:
    """Build the list node by node from what the graphs and the run say."""
    starts = [int(start) for made in job.graphs for start in made.start_ns if start >= 0]
    found = []
    for at_rank, rank in enumerate(job.ranks):
        made = job.graphs[rank.graph]
        for row in range(len(made)):
            held = {}
            for at in range(made.attrs.offsets[row], made.attrs.offsets[row + 1]):
                held[made.strings[int(made.attrs.key[at])]] = int(made.attrs.value[at])
            kind = int(made.type[row])
            start, duration = int(made.start_ns[row]), int(made.duration_ns[row])
            recorded = start - min(starts) if start >= 0 else -1
            times = (recorded, recorded + duration if start >= 0 and duration else -1, duration or -1)
            if run is not None:
                place = int(run.first[at_rank])
                began, ended = (-1, -1) if place < 0 else (run.start_ns[place + row], run.end_ns[place + row])
                times = (int(began), int(ended), int(ended - began) if began >= 0 else -1)
            found.append(
                Node(
                    ref=format_node_ref(made, row),
                    rank=rank.number,
                    id=int(made.id[row]),
                    name=made.strings[int(made.name[row])],
                    type=type_name(kind),
                    collective=label_collective(held["comm_type"])
                    if kind == 7 and "comm_type" in held
                    else "",
                    group=str(rank.slots[held["pg_name"]]) if 5 <= kind <= 7 and "pg_name" in held else "",
                    bytes=held.get("comm_size", -1),
                    operations=held.get("num_ops", -1),
                    start_ns=times[0],
                    end_ns=times[1],
                    duration_ns=times[2],
                    recorded_start_ns=recorded,
                    recorded_duration_ns=duration or -1,
                    waits_for=0,
                )
            )
    return found


TEXT_TESTS = {
    "contains": lambda text, value, _: value in text,
    "notContains": lambda text, value, _: value not in text,
    "equals": lambda text, value, _: text == value,
    "notEqual": lambda text, value, _: text != value,
    "startsWith": lambda text, value, _: text.startswith(value),
    "endsWith": lambda text, value, _: text.endswith(value),
    "blank": lambda text, *_: text == "",
    "notBlank": lambda text, *_: text != "",
}
NUMBER_TESTS = {
    "equals": lambda number, value, _: number == value,
    "notEqual": lambda number, value, _: number != value,
    "lessThan": lambda number, value, _: number < value,
    "lessThanOrEqual": lambda number, value, _: number <= value,
    "greaterThan": lambda number, value, _: number > value,
    "greaterThanOrEqual": lambda number, value, _: number >= value,
    "inRange": lambda number, value, to: value <= number <= to,
    "blank": lambda number, *_: False,
    "notBlank": lambda number, *_: True,
}


def holds(node: Node, condition: Condition) -> bool:
    value = getattr(node, condition.column)
    if condition.column in TEXT_COLUMNS:
        return TEXT_TESTS[condition.operator](value.lower(), condition.value.lower(), None)
    if value == -1:
        return condition.operator == "blank"
    return NUMBER_TESTS[condition.operator](value, int(condition.value or 0), int(condition.to or 0))


conditions = st.one_of(
    st.builds(Condition, st.sampled_from(TEXT_COLUMNS), st.sampled_from(list(TEXT_TESTS)), TEXTS | st.just("all")),
    st.builds(
        Condition,
        st.sampled_from(NUMBER_COLUMNS),
        st.sampled_from(list(NUMBER_TESTS)),
        (NUMBERS | st.integers(-(2**70), 2**70)).map(str),
        NUMBERS.map(str),
    ),
)  # fmt: skip
queries = st.builds(
    Query,
    st.sampled_from(["", "", "a", "B", "1", "ä"]),
    st.lists(st.lists(conditions, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    st.lists(st.tuples(st.sampled_from(COLUMNS), st.booleans()), max_size=3).map(tuple),
)


@given(st.data(), jobs(), st.lists(queries, min_size=1, max_size=4))
def test_the_list_is_what_filtering_and_sorting_all_nodes_gives(
    data: st.DataObject, job: Trace, asked: list[Query]
):
    """Any filters, any orders, any run, ties stable, ranks sharing graphs but not groups; one index for all of them."""
    run = data.draw(runs(job))
    index = NodeIndex(job, run, like=NodeIndex(job))
    everything = all_nodes(job, run)
    for query in asked:
        expected = [
            node
            for node in everything
            if all(any(holds(node, one) for one in alternatives) for alternatives in query.conditions)
            and (query.search.lower() in node.name.lower() or query.search == str(node.id))
        ]
        for column, falls in reversed(query.order):
            there = [node for node in expected if getattr(node, column) not in ("", -1)]
            missing = [node for node in expected if getattr(node, column) in ("", -1)]
            if column in TEXT_COLUMNS:
                there.sort(key=lambda node, name=column: getattr(node, name).lower().encode(), reverse=falls)
            else:
                there.sort(key=lambda node, name=column: getattr(node, name), reverse=falls)
            expected = there + missing
        found = index.rows(query, 0, 10**6)
        assert [asdict(node) for node in found] == [asdict(node) for node in expected]
        assert index.count(query) == len(expected)
        middle = len(expected) // 2
        assert index.rows(query, middle, middle + 2) == expected[middle : middle + 2]


@pytest.mark.parametrize("most", [100, 10**5, 10**9, 2**32 + 10, 2**60])
@pytest.mark.parametrize("lie", [list, sorted, lambda numbers: sorted(numbers)[::-1]])
def test_numbers_of_any_range_sort_alike_however_they_lie(most: int, lie: Callable[[list[int]], list[int]]):
    """Ties stay in order of row, rising and falling; -1 for a node that did not run comes last."""
    numbers = [0, most, *np.random.default_rng(1).integers(0, most, 300).tolist()]
    start = np.array([*lie([*numbers, *numbers[:50]]), NONE])
    index = NodeIndex(
        Trace((graph(len(start)),), (Rank(0, 0),)), NodeTimes(np.zeros(1, np.int64), start, start)
    )
    for falls in (False, True):
        expected = sorted(range(len(start) - 1), key=lambda row: start[row] * (-1 if falls else 1))
        found = index.select(Query(order=(("start_ns", falls),)))
        assert found.tolist() == [*expected, len(start) - 1]


@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_short_and_long_names_sort_alike(texts: list[str]):
    """Names of up to 64 bytes are compared as numbers, longer ones as texts; the order is the same."""

    def order(extra: list[str]) -> list[str]:
        made = graph(len(texts) + len(extra), names=dict(enumerate([*texts, *extra])))
        index = NodeIndex(Trace((made,), (Rank(0, 0),)))
        found = [node.name for node in index.rows(Query(order=(("name", False),)), 0, 100)]
        return [name for name in found if name not in extra]

    assert order([]) == order(["z" * 65])
