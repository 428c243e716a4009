"""Files of one job: those that are like one read before are read by comparison, with the very same result."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_et import mutate
from studio.errors import TraceFormatError
from studio.et import chakra
from studio.et.alike import JobReader
from studio.et.format import RankPart, Reading
from studio.et.templates import Symbols, Template
from studio.trace import SLOT_KEYS, UInt8
from tests.et.chakra_bytes import assert_same, attr, file_of, framed, num, sized, tag, varint
from tests.examples import PROFILE, examples
from tests.strategies import INT64, NODE_BYTES, TEXT, UINT64, chakra_file

UNHURRIED = settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
FILES = 3


def read_alike(files: list[bytes]) -> JobReader:
    """Read files as those of one job; each must come out as if it were read alone."""
    reader = JobReader()
    for number, raw in enumerate(files):
        reading = Reading(f"job.{number}.et", raw)
        try:
            [alone] = chakra.read(reading)
        except TraceFormatError:
            with pytest.raises(TraceFormatError):
                reader(reading)
            continue
        [part] = reader(reading)
        assert isinstance(part, RankPart)
        assert isinstance(alone, RankPart)
        assert_same(part, alone)
    return reader


def rank_bytes(number: int, nodes: int = 40, *, first_id: int = 1, group: str = "tp") -> bytes:
    """A rank that computes, reduces in a group of its own, and sends to the next rank."""
    records = []
    for row in range(nodes):
        raw = num(1, first_id + row) + sized(2, f"n{row}") + num(3, 4 + row % 3) + num(7, 10 + row)
        if row:
            raw += sized(5, varint(first_id + row - 1) + varint(first_id + row // 2))
        if row % 3 == 2:
            raw += attr("pg_name", sized(29, f"{group}{number}")) + attr("comm_size", num(9, 1 << 20))
        elif row % 3 == 1:
            raw += attr("comm_dst", num(7, number + row)) + attr("comm_src", num(7, number), "sender")
        records.append(raw)
    return file_of(*records)


def test_ranks_that_differ_in_groups_peers_and_ids_are_read_by_comparison() -> None:
    # Numbers and names of every width, and lengths that grow with them.
    files = [rank_bytes(number) for number in (0, 1, 9, 10, 99, 100, 127, 128, 300, 20_000)]
    assert read_alike(files).used == len(files) - 1
    files = [
        rank_bytes(3, first_id=first)
        for first in (1, 41, 81, 121, 161, 16_360, 2**40, 2**49 - 20, 2**49 + 99, 2**63)
    ]
    assert read_alike(files).used == len(files) - 1
    files = [rank_bytes(4, group="g" * length) for length in (1, 2, 60, 9)]
    assert read_alike(files).used == len(files) - 1
    # Where a length within the file gets longer itself, the file is read in full, and from then on known.
    files = [rank_bytes(number, group="g" * length) for number in (4, 5) for length in (1, 130, 400)]
    assert read_alike(files).used >= len(files) - 3


def test_equal_ids_share_a_graph() -> None:
    reader = JobReader()
    parts = [reader(Reading("a", rank_bytes(number)))[0] for number in range(3)]
    assert parts[0].graph is parts[1].graph is parts[2].graph
    other = reader(Reading("b", rank_bytes(0, first_id=7)))[0]
    assert other.graph is not parts[0].graph
    assert other.graph.name is parts[0].graph.name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("tp", "dp", id="two groups become one"),
        pytest.param("tp", "tp", id="one group becomes two"),
    ],
)
def test_groups_that_fall_together_or_apart_are_another_graph(one: str, other: str) -> None:
    def raw(first: str, second: str) -> bytes:
        return file_of(
            num(1, 1) + attr("pg_name", sized(29, first)), num(1, 2) + attr("pg_name", sized(29, second))
        )

    assert read_alike([raw(one, other), raw("xx", "xx"), raw("yy", "zz")]).used == 1


def test_what_a_file_is_said_to_have_wrong_names_that_file() -> None:
    raw = file_of(num(1, 5) + sized(5, varint(77)) + attr("comm_src", num(9, 1)))
    other = file_of(num(1, 5) + sized(5, varint(77)) + attr("comm_src", num(9, 2)))
    reader = JobReader()
    parts = [reader(Reading(name, content))[0] for name, content in (("a.et", raw), ("b.et", other))]
    assert reader.used == 1
    assert [{finding.message.split(":")[0] for finding in part.findings} for part in parts] == [
        {"a.et"},
        {"b.et"},
    ]


def test_shorter_values_with_something_behind_them_are_no_values_of_the_same_width() -> None:
    """All bytes but those of the id, or of the group, are the same, and the length is."""
    rest = num(3, 4) * 8
    long_id = file_of(num(1, 300) + sized(2, "n") + rest)
    short_id = file_of(num(1, 5) + sized(2, b"\1n" + rest))
    long_group = file_of(num(1, 1) + sized(10, sized(1, "pg_name") + sized(29, "abcde")))
    short_group = file_of(num(1, 1) + sized(10, sized(1, "pg_name") + sized(29, "ab") + sized(2, "d")))
    for one, other in ((long_id, short_id), (long_group, short_group)):
        assert len(one) == len(other)
        assert read_alike([one, other]).used == 0
        assert read_alike([one, one]).used == 1


def test_files_that_differ_otherwise_are_read_in_full_and_not_for_ever_remembered() -> None:
    files = [file_of(num(1, 1) + sized(2, f"name {number}")) for number in range(30)]
    reader = read_alike(files)
    assert reader.used == 0
    assert reader.template_count <= 8


def test_ranks_that_are_all_different_are_hardly_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing each file with all that were remembered took as long as reading it."""
    tried: list[int] = []
    read = Template.read

    def counted(template: Template, data: UInt8, *, adapt: bool = True) -> Symbols | None:
        tried.append(number)
        return read(template, data, adapt=adapt)

    monkeypatch.setattr(Template, "read", counted)
    reader = JobReader()
    for number in range(100):
        reader(Reading("a", file_of(num(1, 1) + sized(2, f"name {number}"))))
    assert {number for number in tried if number > 8} == set(range(15, 100, 8))


def test_ranks_with_times_of_their_own_are_read_without_a_thought_of_others() -> None:
    """One recording that stands for several ranks is read twice; from then on it is known."""

    def rank(number: int, begin: int) -> bytes:
        records = [
            num(1, row + 1) + sized(2, f"n{row}") + num(3, 4) + num(6, begin + row) + num(7, 1)
            for row in range(9)
        ]
        records.append(num(1, 10) + sized(2, "sum") + num(3, 7) + attr("pg_name", sized(29, str(number))))
        return file_of(*records)

    recorded = read_alike([rank(number, 1_000 + 17 * number) for number in range(6)])
    assert (recorded.template_count, recorded.used) == (0, 0)
    copied = read_alike([rank(number, 1_000) for number in range(6)])
    assert (copied.template_count, copied.used) == (1, 4)


@pytest.mark.parametrize("stages", [9, 16, 23, 64])
def test_replicas_of_many_stages_are_still_found_alike(stages: int) -> None:
    """The first replica has nothing that is alike, and no rank of later ones is missed for long."""
    reader = JobReader()
    for number in range(6 * stages):
        reader(Reading("a", rank_bytes(number, nodes=4 + number % stages)))
    assert reader.used > 0


# ---------------------------------------------------------------------------------------------------
# Hypothesis

SYMBOLS = 3


@st.composite
def node_shapes(draw: st.DrawFn) -> object:
    """A node but for its id, and the values of its groups and peers: a function that makes its record."""
    waits = draw(st.lists(st.tuples(st.sampled_from([4, 5]), st.integers(0, 4), st.booleans()), max_size=3))
    named = draw(
        st.lists(
            st.tuples(
                st.sampled_from(SLOT_KEYS), st.sampled_from([7, 9, 13, 15, 29]), st.integers(0, SYMBOLS - 1)
            ),
            max_size=3,
        )
    )
    fixed = draw(NODE_BYTES | st.just(b""))
    doc, has_id = draw(st.sampled_from(["", "doc"])), draw(st.integers(0, 9)) > 0

    def record(ids: list[int], me: int, numbers: list[int], texts: list[str]) -> bytes:
        raw = num(1, ids[me]) if has_id else b""
        for number, other, packed in waits:
            wanted = varint(ids[other % len(ids)])
            raw += sized(number, wanted * 2) if packed else tag(number, 0) + wanted
        for key, kind, symbol in named:
            value = sized(29, texts[symbol]) if kind == 29 else num(kind, numbers[symbol])
            raw += attr(key, value, doc)
        return raw + fixed

    return record


@st.composite
def rank_files(draw: st.DrawFn) -> list[bytes]:
    """Files of ranks that share their shape, with values of their own."""
    shapes = draw(st.lists(node_shapes(), min_size=1, max_size=5))
    files = []
    for _ in range(FILES):
        ids = draw(st.lists(st.integers(0, 300) | UINT64, min_size=len(shapes), max_size=len(shapes)))
        numbers = draw(st.lists(st.integers(0, 300) | INT64, min_size=SYMBOLS, max_size=SYMBOLS))
        texts = draw(st.lists(TEXT, min_size=SYMBOLS, max_size=SYMBOLS))
        records = [shape(ids, row, numbers, texts) for row, shape in enumerate(shapes)]
        files.append(file_of(*records, metadata=framed(sized(1, "0.0.4"))))
    return files


@UNHURRIED
@given(rank_files(), st.integers(0, 2**32))
def test_a_file_read_by_comparison_is_the_same_as_read_alone(files: list[bytes], seed: int) -> None:
    rng = Random(seed)
    read_alike([*files, *(mutate(raw, rng) for raw in files)])


@UNHURRIED
@given(st.lists(NODE_BYTES, min_size=1, max_size=4), st.integers(0, 2**32))
def test_odd_encodings_are_read_as_they_are(records: list[bytes], seed: int) -> None:
    raw, rng = chakra_file(records), Random(seed)
    read_alike([raw, *(mutate(raw, rng) for _ in range(3)), raw])


def test_every_changed_byte_of_a_rank_is_seen() -> None:
    raw = rank_bytes(130, nodes=9)
    files = [raw]
    for place in range(len(file_of()), len(raw)):
        # A low or the high bit, in turn; both are told apart from what they were by the same comparison.
        bits = (1, 128) if PROFILE == "nightly" else ((1, 128)[place % 2],)
        files += [raw[:place] + bytes([raw[place] ^ bit]) + raw[place + 1 :] for bit in bits]
    read_alike(files)
