"""Anonymous jobs: no word of the original is left wherever it stood, the structure stays, and both are checked, not believed."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from click.testing import CliRunner

import studio
from studio.analysis.job.summary import summarise
from studio.anonymize import words
from studio.anonymize.policy import FIELDS
from studio.anonymize.pools import PoolReader
from studio.anonymize.words import Renamer
from studio.cli import main
from studio.et import write
from studio.trace import Strings, iterate_arrays, list_node_attributes, read_int_column
from tests.et.chakra_bytes import attr, eight, framed, num, sized
from tests.handmade import node, trace_of

STRUCTURE = (
    "id",
    "type",
    "ctrl.offsets",
    "ctrl.rows",
    "ctrl.dangling",
    "data.offsets",
    "data.rows",
    "data.dangling",
)


def run(*args):
    return CliRunner().invoke(main, ["anonymize", *map(str, args)])


def done(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result


class Canaries:
    """Words that stand nowhere else, one for each place."""

    def __init__(self):
        self.words = []

    def __call__(self, shape="{}"):
        # No two contain each other, and none is part of a public term.
        number = len(self.words)
        self.words.append("Kanari" + "".join("oqjzwyuv"[int(digit)] for digit in f"{number:03o}"))
        return shape.format(self.words[-1])


@pytest.fixture
def caged(tmp_path):
    """A job of two ranks with a canary in every place where a text may stand; and the canaries."""
    say = Canaries()
    folder = tmp_path / say("{}-7b")
    folder.mkdir()
    groups = {"1": [0, 1], say("tp of {}"): [0], say(): [1]}
    prefix = say()
    (folder / f"{prefix}.json").write_text(json.dumps(groups))
    for rank in (0, 1):
        metadata = sized(1, say("1.0-{}"))
        for entry in (
            attr("schema", sized(29, "1.1.1-chakra.0.0.4")), attr("rank", num(9, rank)), attr(say(), num(9, 1)),
            attr("clock_host", sized(29, say("{}.example.org")), doc=say()), attr("schema", sized(29, say())),
        ):  # fmt: skip
            metadata += b"\x12" + entry[1:]
        metadata += sized(90, say())
        texts = attr("op_schema", sized(29, say("{}::fwd(Tensor self)"))) + attr("thread", sized(29, say()))
        texts += attr("inputs", sized(30, sized(1, say("{}.w")) + sized(1, "1024.0"))) + attr(
            "op_type", sized(29, say())
        )
        own = attr(say(), sized(29, say("/home/{}/x"))) + attr("note", sized(31, say().encode()))
        own += attr("notes", sized(32, sized(1, say().encode()))) + attr("list", sized(30, sized(1, say())))
        sizes = (
            attr("num_ops", num(9, 1000))
            + attr("tensor_size", num(13, 64))
            + attr("num_ops", eight(3, np.float64(8).tobytes()))
        )
        io = sized(
            8, sized(1, say("['{}']")) + sized(2, f"[[{1024 + rank}, 3]]") + sized(3, say("['Tensor({})']"))
        )
        first = (
            num(1, 5)
            + sized(2, say("model.{}.3.fwd"))
            + num(3, 4)
            + num(6, 777)
            + num(7, 25)
            + io
            + texts
            + own
            + sizes
        )
        second = num(1, 9) + sized(2, say("Größe{}é")) + num(3, 7) + num(6, 790) + num(7, 14)
        second += (
            sized(5, b"\x05")
            + sized(4, b"\x63")
            + attr("comm_type", num(9, 0), doc=say())
            + attr("comm_size", num(9, 4096))
        )
        second += (
            attr("pg_name", sized(29, list(groups)[1 + rank]))
            + sized(77, say())
            + attr("pg_desc", sized(29, say()))
        )
        copy = (
            num(1, 11)
            + sized(2, say("Memcpy HtoD ({})"))
            + num(3, 4)
            + num(6, 800)
            + num(7, 3)
            + attr("is_cpu_op", num(27, 0))
        )
        empty = num(1, 12) + sized(10, sized(1, say()) + sized(2, say()))
        body = [metadata, first, second, copy, empty]
        (folder / f"{prefix}.{rank}.et").write_bytes(b"".join(map(framed, body)))
    return folder, say.words


@pytest.mark.parametrize("policy", ["light", "balanced", "strict"])
def test_no_canary_is_left_anywhere(caged, tmp_path, policy):
    folder, canaries = caged
    assert len(canaries) > 40
    out = tmp_path / "out"
    told = json.loads(done(folder, "-o", out, "--policy", policy, "--key", "k", "--gzip", "--json").stdout)
    written = b""
    for path in sorted(out.iterdir()):
        raw = path.read_bytes()
        written += path.name.encode() + (zlib.decompress(raw, wbits=31) if path.suffix == ".gz" else raw)
    left = [word for word in canaries if word.lower().encode() in written.lower()]
    assert left == []
    assert "größe".encode() not in written.lower()
    assert told["check"]["words"] >= len(canaries)
    assert told["check"]["bytes"] == len(written) - sum(len(path.name) for path in out.iterdir())
    before, after = studio.read(folder), studio.read(out)
    for one, two in zip(before.ranks, after.ranks, strict=True):
        columns = dict(iterate_arrays(before.graph_of(one)))
        for name, column in iterate_arrays(after.graph_of(two)):
            if name in STRUCTURE:
                assert column.tolist() == columns[name].tolist(), name
        assert after.graph_of(two).duration_ns.tolist() == columns["duration_ns"].tolist()
        assert after.graph_of(two).start_ns.tolist() == [0, 13_000, 23_000, -1]
    assert [group.ranks for group in after.groups] == [group.ranks for group in before.groups]
    assert summarise(before).collectives == summarise(after).collectives
    assert told["step"]["why"] or told["step"]["before_ns"] == told["step"]["after_ns"]


def test_equal_keys_give_equal_files_and_other_keys_others(caged, tmp_path):
    folder, _ = caged
    (tmp_path / "key.txt").write_text("secret\n")
    files = []
    for name, key in (("a", "secret"), ("b", tmp_path / "key.txt"), ("c", "other"), ("d", None)):
        given = ["--key", key] if key else []
        result = done(folder, "-o", tmp_path / name, "--no-simulate", *given)
        assert ("is forgotten" in result.output) == (key is None)
        files.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
    assert files[0] == files[1]
    assert files[2] != files[0] != files[3]


def test_a_key_may_be_longer_than_the_name_of_a_file(caged, tmp_path):
    folder, _ = caged
    done = CliRunner().invoke(
        main, ["anonymize", str(folder), "-o", str(tmp_path / "out"), "--key", "k" * 5000, "--no-simulate"]
    )
    assert done.exit_code == 0, done.output


def test_a_word_that_is_left_is_found_and_nothing_is_written(caged, tmp_path, monkeypatch):
    folder, canaries = caged
    monkeypatch.setattr(Renamer, "words", lambda _self, text: text)
    result = run(folder, "-o", tmp_path / "out", "--key", "k")
    assert result.exit_code == 1
    assert "would be left" in result.stderr
    assert any(repr(word.lower()) in result.stderr for word in canaries)
    assert not (tmp_path / "out").exists()


def test_numbers_are_scaled_and_rounded(caged, tmp_path):
    folder, _ = caged
    given = [
        "--scale-operations",
        3,
        "--scale-bytes",
        0.5,
        "--scale-times",
        2,
        "--round",
        "20us",
        "--policy",
        "light",
    ]
    told = json.loads(done(folder, "-o", tmp_path / "out", *given, "--no-simulate", "--json").stdout)
    graph = studio.read(tmp_path / "out").graphs[0]
    assert graph.start_ns.tolist() == [0, 20_000, 40_000, -1]
    assert graph.duration_ns.tolist() == [60_000, 20_000, 20_000, 0]
    values = {(one.name, one.kind.name): one.value for one in list_node_attributes(graph, 0)}
    assert (values["num_ops", "INT64"], values["num_ops", "DOUBLE"], values["tensor_size", "UINT64"]) == (
        3000,
        24.0,
        32,
    )
    assert values["inputs", "STRING_LIST"][1] == "512"
    assert read_int_column(graph, "comm_size")[1].tolist() == [2048]
    # Neither shapes nor own numbers may tell the old sizes.
    assert (told["policy"]["shapes"], told["policy"]["own"]) == ("rename", "drop")
    assert "1024" not in "".join(graph.strings)
    states = {one["about"]: one["state"] for one in told["learnt"]}
    assert (states["operations"], states["bytes"], states["times"]) == (
        "scaled",
        "scaled",
        "scaled and rounded",
    )


def test_short_words_and_numbers_are_looked_for_as_whole_tokens(tmp_path, monkeypatch):
    """What stays is told; a word of three letters may not, and times that are no whole numbers are rounded, too."""
    job = trace_of([[node(1, "COMP", name="ab_qzv.3.1234567", micros=7, wait_ns=1234.5, runtime=7)]])
    write(job, tmp_path / "job", "job")
    given = [tmp_path / "job", "-o", tmp_path / "out", "--no-simulate", "--round", "2us"]
    told = json.loads(done(*given, "--json").stdout)["tokens"]
    assert told["words"] == 2
    assert told["words_kept"] == ["ab"]
    assert "3" in told["numbers_kept"]
    assert "1234567" not in told["numbers_kept"]
    graph = studio.read(tmp_path / "out").graphs[0]
    values = {one.name: one.value for one in list_node_attributes(graph, 0)}
    assert (graph.duration_ns[0], values["wait_ns"], values["runtime"]) == (8000, 2000.0, 8)
    given[2] = tmp_path / "again"
    assert "1 of 2 stay (ab), because words of up to two letters do" in done(*given).stdout
    monkeypatch.setattr(Renamer, "words", lambda _self, text: text)
    given[2] = tmp_path / "never"
    result = run(*given)
    assert (result.exit_code, "'qzv'" in result.stderr) == (1, True)
    assert not (tmp_path / "never").exists()


def test_fields_may_be_kept_and_are_named(caged, tmp_path):
    folder, canaries = caged
    done(folder, "-o", tmp_path / "out", "--field", "names=keep", "--field", "shapes=drop", "--no-simulate")
    names = [
        studio.read(tmp_path / "out").graphs[0].strings[code]
        for code in studio.read(tmp_path / "out").graphs[0].name
    ]
    assert [name for name in names if any(word in name for word in canaries)]
    for args, said in (
        (["--field", "colour=drop"], "'colour' is no field; allowed: names, texts"),
        (["--field", "groups=drop"], "groups cannot become 'drop'; allowed: keep, rename"),
    ):
        result = run(folder, "-o", tmp_path / "new", *args)
        assert (result.exit_code, said in result.stderr) == (1, True), result.output
    for rule in FIELDS:
        assert {rule.light, rule.balanced, rule.strict} <= set(rule.allowed)


def test_input_that_cannot_be_trusted_is_refused(caged, tmp_path):
    folder, _ = caged
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert "a new or an empty folder" in run(folder, "-o", out).stderr
    assert run(folder, "-o", tmp_path / "x", "--scale-bytes", "nan").exit_code == 2
    assert run(folder, "-o", tmp_path / "x", "--round", "soon").exit_code == 2
    assert run(folder, "-o", tmp_path / "x", "--field", "names").exit_code == 2
    first = min(folder.glob("*.et"))
    first.write_bytes(first.read_bytes()[:-3])
    result = run(folder, "-o", tmp_path / "x")
    assert (result.exit_code, "damaged" in result.stderr) == (1, True)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "policy"),
    [("stg/llama_8r_dp2tp2pp2", "strict"), ("torch_synthetic_device/mnist_1r", "balanced")],
)
def test_real_jobs_take_the_same_step_and_lose_their_words(shared, tmp_path, name, policy):
    told = json.loads(
        done(
            shared / "traces" / name, "-o", tmp_path / "out", "--policy", policy, "--key", "k", "--json"
        ).stdout
    )
    assert told["step"]["before_ns"] == told["step"]["after_ns"] > 0
    before, after = studio.read(shared / "traces" / name), studio.read(tmp_path / "out")
    assert (len(after.ranks), after.node_count) == (len(before.ranks), before.node_count)
    written = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir()).lower()
    for word in (b"transformer", b"symbolic/", b"/usr", b"site-packages", b"mnist", b"hostname"):
        assert word not in written


@pytest.mark.parametrize("most", [1, 100_000])
def test_texts_that_are_told_again_are_renamed_and_counted_alike(monkeypatch, most):
    """Each is taken apart once, as long as there is room to remember it."""
    monkeypatch.setattr(words, "_MOST_TEXTS", most)
    renamer = Renamer(b"k")
    texts = ["secret.layer.3", "layer norm", "secret.layer.3", "secret.layer.3"]
    renamed = [renamer.words(text) for text in texts]
    assert renamed == [Renamer(b"k").words(text) for text in texts]
    assert renamer.stayed == {"layer": 4, "norm": 1}


def test_equal_pools_of_texts_are_read_once():
    pools = [Strings.of(["a", "b"]), Strings.of(["a", "b"]), Strings.of(["a", "c"])]
    reader = PoolReader()
    first, again, other = map(reader.read, pools)
    assert first is again
    assert (first, other) == (["a", "b"], ["a", "c"])
