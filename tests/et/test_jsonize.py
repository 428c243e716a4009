"""Chakra files as JSON and back: the same bytes whatever they are, the jsonizer's own values, and refusals that name the place."""

from __future__ import annotations

import base64
import gzip
import io
import json

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import studio
from studio.cli import main
from studio.errors import TraceFormatError
from studio.et import jsonize
from studio.et.jsonize import Source, Tally, infer_content, write_chakra, write_json
from studio.trace import iterate_arrays
from tests.et.chakra_bytes import METADATA, file_of, framed, num, sized, varint
from tests.et.test_chakra_json import JSONIZED
from tests.examples import examples
from tests.strategies import NODE_BYTES, chakra_file, nodes


class Dribble(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def read(self, size=-1):
        return super().read(min(size, 7) if size >= 0 else 7)


def to_json(raw, *, lines=False, stream=io.BytesIO):
    tally = Tally()
    source = Source(stream(raw), "t.et")
    assert infer_content(source) == "chakra"
    return b"".join(write_json(source, tally, lines=lines)), tally


def to_chakra(text, stream=io.BytesIO):
    tally = Tally()
    source = Source(stream(text), "t.json")
    assert infer_content(source) == "json"
    return b"".join(write_chakra(source, tally)), tally


@settings(
    deadline=None,
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(st.lists(NODE_BYTES | nodes().map(lambda node: node.SerializeToString()), max_size=3), st.booleans())
def test_whatever_a_file_holds_comes_back_byte_for_byte(records, lines):
    """Fields in any order, repeated, unpacked, unknown; every value kind with every value."""
    raw = chakra_file(records)
    text, tally = to_json(raw, lines=lines)
    assert not tally.findings
    objects = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    assert len(objects) == 1 + len(records) if lines else len(objects["nodes"]) == len(records)
    back, again = to_chakra(text)
    assert back == raw
    assert (again.changed, again.kept) == (0, tally.kept)
    # Another program may indent it and sort its keys.
    assert to_chakra(json.dumps(objects, indent=1, sort_keys=True).encode())[0] == raw if not lines else True


ODD = {
    "damaged inside": framed(b"\x08"),
    "a length longer than need be": b"\x82\x00" + num(1, 7),
    "an empty node": framed(b""),
    "no UTF-8": framed(sized(2, b"\xff\xfe")),
    "a group": framed(b"\x63\x64"),
    "the default written": framed(num(1, 0) + num(6, 0)),
    "an empty list": framed(sized(4, b"")),
    "a number too long": framed(b"\x08" + b"\xff" * 9 + b"\x7f"),
    "NaN of other bits": framed(sized(10, sized(1, "x") + b"\x2d\x01\x00\xc0\x7f")),
    "two values": framed(sized(10, num(7, 1) + num(9, 2))),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_records_come_back(odd):
    raw = METADATA + odd + framed(num(1, 9))
    for lines in (False, True):
        text, tally = to_json(raw, lines=lines, stream=Dribble)
        assert to_chakra(text, stream=Dribble)[0] == raw
        assert tally.nodes == 2
        assert not tally.findings


@pytest.mark.parametrize("name", list(JSONIZED)[1:4])
def test_values_are_those_that_the_jsonizer_prints(shared, name):
    """Its objects read as the file they came from, to the byte, and equal ours, key by key."""
    golden = gzip.decompress((shared / "traces" / name).read_bytes())
    path = shared / "traces" / JSONIZED[name]
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert to_chakra(golden)[0] == raw
    text, _ = to_json(raw, lines=True)
    ours = [json.loads(line) for line in text.splitlines()]
    theirs, decode, at, whole = [], json.JSONDecoder().raw_decode, 0, golden.decode().strip()
    while at < len(whole):
        value, at = decode(whole, at)
        theirs.append(value)
    assert ours == theirs


def test_real_files_of_every_writer_come_back(shared):
    traces = shared / "traces"
    chosen = [
        *sorted((traces / "golden/generator").glob("*.0.et")),
        *sorted((traces / "golden/text").glob("*.0.et")),
        *sorted((traces / "public/astra-sim").rglob("*.0.et"))[:3],
        *sorted((traces / "golden/torch_synthetic_device").glob("mnist*.et.gz")),
    ]
    assert len(chosen) > 15
    for path in chosen:
        raw = path.read_bytes()
        plain = gzip.decompress(raw) if path.suffix == ".gz" else raw
        assert to_chakra(to_json(raw)[0])[0] == plain, path.name


def test_extremes_are_exact_and_readable():
    values = {
        7: -(2**31), 9: -(2**63), 13: 2**64 - 1, 27: 1,
    }  # fmt: skip
    attrs = [sized(10, sized(1, f"a{kind}") + num(kind, value)) for kind, value in values.items()]
    attrs += [sized(10, b"\x19" + raw) for raw in (b"\0" * 7 + b"\x80", b"\0" * 6 + b"\xf0\x7f")]
    attrs.append(sized(10, b"\x2d" + bytes.fromhex("cdcccc3d")))  # 0.1 in 32 bits
    raw = file_of(b"".join(attrs))
    [node] = json.loads(to_json(raw)[0])["nodes"]
    assert [next(value for key, value in attr.items() if key != "name") for attr in node["attr"]] == [
        -(2**31), str(-(2**63)), str(2**64 - 1), True, -0.0, "Infinity", 0.1,
    ]  # fmt: skip
    assert "@bytes" not in node


def test_changed_values_are_written_and_counted():
    raw = file_of(sized(2, "old") + num(1, 5), num(1, 6))
    value = json.loads(to_json(raw)[0])
    assert base64.b64decode(value["nodes"][0]["@bytes"]) == varint(7) + sized(2, "old") + num(1, 5)
    value["nodes"][0]["name"] = "new"
    back, tally = to_chakra(json.dumps(value).encode())
    assert back == file_of(num(1, 5) + sized(2, "new"), num(1, 6))
    assert tally.changed == 1


BAD = {
    "a key of no schema": ('{}{"id": 1, "colour": 2}', "'colour'", "startTimeMicros"),
    "a value out of range": ('{}{"id": "18446744073709551616"}', "id is '18446744073709551616'", "from 0 to"),
    "two values": ('{}{"attr": [{"name": "x", "boolVal": true, "int32Val": 1}]}', "attr[0] has 2 values", "one"),
    "a word for a number": ('{}{"attr": [{"floatVal": "many"}]}', "attr[0].floatVal is 'many'", "Infinity"),
    "too large for 32 bits": ('{}{"attr": [{"floatVal": 1e39}]}', "1e+39", "32 bits"),
    "half a character": ('{}{"name": "\\ud800"}', "half of a character", "Unicode"),
    "not base64": ('{}{"attr": [{"bytesVal": "?"}]}', "attr[0].bytesVal", "base64"),
    "an unknown type": ('{}{"type": "COMP_NOD"}', "'COMP_NOD'", "COMM_COLL_NODE"),
    "a key twice": ('{}{"id": 1, "id": 2}', "'id' stands twice", ""),
    "cut off": ('{"metadata": {}, "nodes": [{"id": 1}', "it ends", "']'"),
    "cut within a node": ('{"metadata": {}, "nodes": [{"id": ', "no JSON", "character"),
    "nodes first": ('{"nodes": [], "metadata": {}}', "'nodes'", "'metadata', then 'nodes'"),
    "a workload graph": ('{"workload_graph": []}', "workload_graph", "version"),
    "a list": ('[{"id": 1}]', "a list", "metadata"),
    "nested without end": ("{}" + "[" * 200_000, "no JSON", ""),
    "bytes of no record": ('{}{"@bytes": "Bw=="}', "@bytes is no record", ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "found", "allowed"), BAD.values(), ids=BAD)
def test_json_that_no_file_can_be_made_of_is_refused(text, found, allowed):
    with pytest.raises(TraceFormatError) as caught:
        to_chakra(text.encode())
    assert caught.value.message.startswith("t.json:")
    assert found in caught.value.message
    assert allowed in caught.value.message
    assert caught.value.hint


def test_larger_than_a_piece(monkeypatch):
    """What is read at a time is less than a record, and than an object."""
    monkeypatch.setattr(jsonize, "_PIECE", 64)
    raw = file_of(*(num(1, index) + sized(2, "n" * (index % 300)) for index in range(1, 400)))
    text, tally = to_json(raw)
    assert (tally.nodes, tally.findings) == (399, [])
    assert to_chakra(text)[0] == raw


# ---------------------------------------------------------------------------------------------------
# The command, and reading what it wrote


def run(*args, **given):
    return CliRunner().invoke(main, ["jsonize", *map(str, args)], **given)


def test_the_command_goes_there_and_back(tmp_path):
    raw = file_of(num(1, 1) + sized(2, "a"), sized(2, "b") + num(1, 2), num(1, 3) + sized(99, "new"))
    et, packed = tmp_path / "j.0.et", tmp_path / "out" / "j.0.jsonl.gz"
    et.write_bytes(gzip.compress(raw))
    told = json.loads(run(et, "-o", packed, "--json").stdout)
    assert (told["read"], told["nodes"], told["kept_as_bytes"], told["findings"]) == ("chakra", 3, 1, [])
    assert len(gzip.decompress(packed.read_bytes()).splitlines()) == 4
    piped = run("-", "-o", "-", input=packed.read_bytes())
    assert (piped.exit_code, piped.stdout_bytes) == (0, raw)
    assert "3 nodes written." in piped.stderr
    for other in (packed, tmp_path / "j.0.json"):
        assert run(et, "-o", other, "-q").output == ""
        one, two = studio.read(et), studio.read(other)
        for (column, a), (_, b) in zip(
            iterate_arrays(one.graphs[0]), iterate_arrays(two.graphs[0]), strict=True
        ):
            assert a.tobytes() == b.tobytes(), column
        assert [f.code for f in one.findings] == [f.code for f in two.findings]


def test_damage_is_said_and_nothing_is_half_written(tmp_path):
    cut = tmp_path / "cut.et"
    cut.write_bytes(file_of(num(1, 1), num(1, 2))[:-1])
    result = run(cut, "-o", tmp_path / "cut.json")
    assert result.exit_code == 4
    assert "is cut off or damaged" in result.stderr
    assert len(json.loads((tmp_path / "cut.json").read_text())["nodes"]) == 1
    broken = tmp_path / "broken.json"
    broken.write_text((tmp_path / "cut.json").read_text()[:-5])
    result = run(broken, "-o", tmp_path / "new.et")
    assert result.exit_code == 1
    assert "Hint:" in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"cut.et", "cut.json", "broken.json"}
    part = gzip.compress(file_of(*(num(1, i) for i in range(1, 99))))[:-20]
    cut.write_bytes(part)
    assert run(cut, "-o", tmp_path / "zip.json").exit_code == 4


def test_names_that_contradict_the_content_are_refused(tmp_path):
    et = tmp_path / "j.0.et"
    et.write_bytes(file_of(num(1, 1)))
    (tmp_path / "j.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("remember the milk")
    (tmp_path / "empty.et").write_bytes(b"")
    for args, said in (
        ((et, "-o", tmp_path / "k.et"), "of which JSON is made"),
        ((tmp_path / "j.json", "-o", tmp_path / "k.json"), "ending in .et"),
        ((tmp_path / "j.json", "-o", tmp_path / "k.et", "--lines"), "--lines"),
        ((et, "-o", et.with_suffix(".et")), "of which JSON is made"),
        ((tmp_path / "notes.txt", "-o", tmp_path / "k"), "a text file"),
        ((tmp_path / "empty.et", "-o", tmp_path / "k"), "an empty file"),
        ((tmp_path, "-o", tmp_path / "k"), "a folder"),
        ((tmp_path / "none.et", "-o", tmp_path / "k"), "no such file"),
    ):
        result = run(*args)
        assert (result.exit_code, said in result.stderr) == (1, True), (args, result.output)


def test_convert_chooses_by_one_table_or_refuses(tmp_path):
    from studio.commands.base.forms import FORMS

    et = tmp_path / "j.0.et"
    et.write_bytes(file_of(num(1, 1)))
    before = sorted(tmp_path.rglob("*"))
    for form in FORMS:
        for suffix in form.suffixes if form.writer != "convert" else ():
            result = CliRunner().invoke(main, ["convert", str(et), str(tmp_path / f"x{suffix}")])
            assert (result.exit_code, f"by `{form.writer}`" in result.stderr) == (1, True), suffix
    result = CliRunner().invoke(main, ["convert", str(et), str(tmp_path / "x.parquet")])
    assert (result.exit_code, "'.parquet' names no form" in result.stderr) == (1, True)
    assert sorted(tmp_path.rglob("*")) == before
    for folder in ("plain", "llama3.1-8b", "run.2024-05-01"):
        assert CliRunner().invoke(main, ["convert", str(et), str(tmp_path / folder)]).exit_code == 0
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["j.0.et"]
