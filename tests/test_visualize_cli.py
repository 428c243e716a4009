"""The command visualize: every form holds the same graph, agrees with other tools' files, and obeys no text of a trace."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import xml.etree.ElementTree as ET

import networkx as nx
import numpy as np
import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.et import write
from tests.et.chakra_bytes import attr, file_of, num, sized, varint
from tests.handmade import collective, node, trace_of
from tests.work import count_calls

HOSTILE = '</script><script>alert(1)</script><b onload="x">\x1b[2J\0&amp;"\\'
SVG = "{http://www.w3.org/2000/svg}"


def run(*args):
    return CliRunner().invoke(main, ["visualize", *map(str, args)])


def written(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def job(tmp_path):
    """A chain 1 → 2 → 3 by data, 1 → 3 by control, 2 also waits for an id that is not there; with attributes of every sort."""
    path = tmp_path / "job.0.et"
    values = (
        attr("num_ops", num(9, 7))
        + attr("share", b"\x19" + np.float64(0.5).tobytes())
        + attr("on", num(27, 1))
    )
    values += (
        attr("dims", sized(10, sized(1, b"\x01\x02")))
        + attr("label", sized(29, "own"))
        + attr("big", num(13, 2**64 - 1))
    )
    path.write_bytes(
        file_of(
            num(1, 1) + sized(2, HOSTILE) + num(3, 4) + num(7, 5) + values,
            num(1, 2) + sized(2, "two") + num(3, 7) + sized(5, b"\x01\x63") + num(7, 2) + attr("comm_size", num(9, 1 << 20)),
            num(1, 3) + sized(2, "three") + num(3, 4) + sized(4, b"\x01") + sized(5, b"\x02") + num(7, 1) + attr("num_ops", num(13, 8)),
        )
    )  # fmt: skip
    return path


def test_graphml_has_every_attribute_typed_and_dot_the_same_graph(job, tmp_path):
    written(job, "-o", tmp_path / "x.graphml", "-q")
    found = nx.read_graphml(tmp_path / "x.graphml")
    assert found.nodes["1"] == {
        "label": HOSTILE.replace("\x1b", "\ufffd").replace("\0", "\ufffd"), "type": "COMP", "duration_ns": 5000,
        "num_ops": 7, "share": 0.5, "on": True, "dims": "[1, 2]", "attr.label": "own", "big": str(2**64 - 1),
    }  # fmt: skip
    assert found.nodes["99"] == {"missing": True}
    edges = {(one, other, data["dependency"]) for one, other, data in found.edges(data=True)}
    assert edges == {("1", "2", "data"), ("1", "3", "control"), ("2", "3", "data"), ("99", "2", "data")}
    written(job, "-o", tmp_path / "x.dot", "-q")
    text = (tmp_path / "x.dot").read_text()
    drawn = set(re.findall(r'^  "(\d+)" -> "(\d+)" \[dependency="(\w+)"', text, re.MULTILINE))
    assert drawn == edges
    assert len(re.findall(r'^  "\d+" \[', text, re.MULTILINE)) == 4
    assert '"num_ops"="7"' in text


@pytest.mark.parametrize(
    ("golden", "name"),
    [
        ("llama_8r_dp2tp2pp2.0", "stg/llama_8r_dp2tp2pp2/llama_8r_dp2tp2pp2.0.et"),
        ("mnist_obs", "golden/torch/mnist_obs.et.gz"),
    ],
)
def test_graphml_equals_that_of_the_existing_visualizer(shared, tmp_path, golden, name):
    traces = shared / "traces"
    theirs = nx.parse_graphml(gzip.decompress((traces / f"golden/graphml/{golden}.graphml.gz").read_bytes()))
    written(traces / name, "-o", tmp_path / "x.graphml", "-q")
    ours = nx.read_graphml(tmp_path / "x.graphml")
    assert set(ours) == set(theirs)
    assert set(ours.edges()) == set(theirs.edges())
    assert all(ours.nodes[node].get("label") == data.get("label") for node, data in theirs.nodes(data=True))
    said = {(one, other): set() for one, other in ours.edges()}
    parallel = ours.edges(data=True) if not ours.is_multigraph() else ours.edges(data=True, keys=False)
    for one, other, data in parallel:
        said[one, other].add(data["dependency"])
    assert all(data["dependency"] in said[one, other] for one, other, data in theirs.edges(data=True))


def test_svg_shows_types_dependencies_path_and_legend(job, tmp_path):
    told = json.loads(written(job, "-o", tmp_path / "x.svg", "--critical-path", "--json").stdout)
    assert (told["nodes"], told["dependencies"], told["critical_nodes"]) == (3, 3, 3)
    assert "3 nodes, 8.00 µs" in told["words"]
    root = ET.parse(tmp_path / "x.svg").getroot()
    lines = [path for path in root.findall(f"{SVG}path") if path.get("marker-end")]
    assert [line.get("stroke-dasharray") is not None for line in lines].count(True) == 1
    assert [line.get("stroke-width") for line in lines].count("4") == 2
    said = {text.text for text in root.iter(f"{SVG}text")}
    assert {
        "job · rank 0",
        "compute (2)",
        "collective (1)",
        "data dependency",
        "control dependency",
        "critical path",
    } <= said
    assert not list(root.iter(f"{SVG}script"))


def test_a_page_needs_nothing_and_obeys_no_name(job, tmp_path):
    written(job, "-o", tmp_path / "x.html", "-q")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=|url\(|https?:|@import""", page)
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    assert data["nodes"][0]["name"] == HOSTILE
    assert ["num_ops", "7"] in data["nodes"][0]["attrs"]
    assert {(line["s"], line["t"], line.get("c", 0)) for line in data["lines"]} == {
        (0, 1, 0),
        (0, 2, 1),
        (1, 2, 0),
    }


def test_around_a_node_and_folded(shared, tmp_path):
    job = shared / "traces/stg/llama_8r_dp2tp2pp2"
    told = json.loads(
        written(job, "--rank", 3, "--around", 7, "--depth", 1, "-o", tmp_path / "x.graphml", "--json").stdout
    )
    assert (told["nodes"], told["dependencies"]) == (5, 4)
    assert told["title"] == "llama_8r_dp2tp2pp2 · rank 3 · around node 7"
    told = json.loads(
        written(job, "--fold", "scope", "--critical-path", "-o", tmp_path / "x.svg", "--json").stdout
    )
    assert "folded by scope into" in told["words"]
    assert told["nodes"] < 30
    folded = ET.parse(tmp_path / "x.svg").getroot()
    assert len(folded.findall(f"{SVG}g")) == told["nodes"] + 1
    assert written(job, "--fold", "type", "-o", tmp_path / "y.html", "-q").output == ""


def test_ten_thousand_nodes_are_drawn_with_work_that_grows_with_them(tmp_path):
    """Layers of fifty, each node waiting for two of the layer before."""

    def draw(count):
        records = []
        for row in range(count):
            before = [row - 50, row - 50 + (7 if row % 50 < 43 else -43)] if row >= 50 else []
            deps = sized(5, b"".join(varint(one + 1) for one in before)) if before else b""
            records.append(num(1, row + 1) + sized(2, f"layer{row // 50}.n{row % 50}") + num(3, 4) + deps)
        path = tmp_path / f"wide{count}.0.et"
        path.write_bytes(file_of(*records))
        return path

    def work(count):
        path = draw(count)
        return count_calls(lambda: written(path, "-o", path.with_suffix(".svg"), "-q"))[0]

    assert work(1600) < 6 * work(400)
    path = draw(10_000)
    written(path, "-o", path.with_suffix(".svg"), "-q")
    text = (tmp_path / "wide10000.0.svg").read_text()
    assert text.count("<g><title>") == 10_000
    assert text.count("marker-end") == 2 * 9950


def test_what_cannot_be_drawn_is_refused_with_what_can(job, tmp_path):
    for args, said, status in (
        ((job, "-o", tmp_path / "x.gif"), "'.gif' names no form that visualize writes; allowed: .graphml", 1),
        ((job, "-o", tmp_path / "x.et"), "is written by `convert`", 1),
        ((job, "-o", tmp_path / "x"), "the name has no suffix", 1),
        ((job, "-o", tmp_path), "this is a folder", 1),
        ((job, "-o", "-"), "--as svg", 1),
        ((job, "-o", tmp_path / "x.svg", "--rank", 4), "no rank 4", 1),
        ((job, "-o", tmp_path / "x.svg", "--around", 55), "55", 1),
        ((job, "-o", tmp_path / "x.svg", "--fold", "lane"), "cannot be folded by lane", 1),
        ((job, "-o", tmp_path / "x.svg", "--fold", "type", "--around", 1), "one of them", 2),
        ((job, "-o", tmp_path / "x.svg", "--depth", 3), "--around", 2),
        ((job, "-o", tmp_path / "x.dot", "--critical-path"), "drawings", 2),
        (
            (tmp_path / "none", "-o", tmp_path / "x.svg", "--workspace", tmp_path / "w"),
            "no file or folder",
            1,
        ),
    ):
        result = run(*args)
        assert (result.exit_code, said in result.stderr) == (status, True), (args, result.output)
    assert [path.name for path in tmp_path.iterdir()] == [job.name]
    job.write_bytes(job.read_bytes()[:-1])
    result = run(job, "-o", "-", "--as", "svg")
    assert result.exit_code == 4
    assert result.stdout.startswith("<svg")


def test_pdf_and_png_or_what_installs_them(job, tmp_path):
    for kind, magic in (("pdf", b"%PDF"), ("png", b"\x89PNG")):
        result = run(job, "-o", tmp_path / f"x.{kind}")
        if importlib.util.find_spec("cairosvg") is None:
            assert (result.exit_code, "chakra-studio[pictures]" in result.stderr) == (1, True)
            assert not (tmp_path / f"x.{kind}").exists()
            continue
        assert result.exit_code == 0, result.output
        raw = (tmp_path / f"x.{kind}").read_bytes()
        assert raw.startswith(magic)
        assert len(raw) > 2000


def test_a_run_of_the_workspace_brings_its_times(tmp_path):
    space = ["--workspace", str(tmp_path / "w")]
    sample = str(studio.sample_path("transformer_8r"))
    kept = CliRunner().invoke(main, ["simulate", sample, "--preset", "hgx-h100-8", "--out", "first", *space])
    assert kept.exit_code == 0, kept.output
    told = json.loads(
        written("first", *space, "--rank", 3, "--critical-path", "-o", tmp_path / "x.svg", "--json").stdout
    )
    assert "by simulated times" in told["words"]


def test_the_critical_path_through_all_ranks_says_where_it_comes_and_goes(tmp_path):
    """Rank 1 works longer before the all-reduce, and rank 0 after it: each shows its half, and where the path changes over."""

    def nodes(before: int, after: int) -> list:
        made = [
            node(1, "COMP", name="fwd", micros=before),
            collective(2, "ALL_REDUCE", 64, 1),
            node(3, "COMP", 2, name="bwd", micros=after),
        ]
        for each, start in zip(made, (0, before, 30), strict=True):
            each.start_time_micros = start + 1000
        made[1].name, made[1].duration_micros = "reduce", 30 - before
        return made

    write(trace_of([nodes(5, 40), nodes(20, 10)]), tmp_path / "job", "job")
    told = [
        json.loads(
            written(
                tmp_path / "job", "-o", tmp_path / f"{rank}.svg", "--rank", rank, "--critical-path", "--json"
            ).stdout
        )
        for rank in (0, 1)
    ]
    ways = [[(c["way"], c["rank"], c["by"], c["at_ns"]) for c in each["crossings"]] for each in told]
    assert ways == [[("enters", 1, "reduce", 20_000)], [("leaves", 0, "reduce", 20_000)]]
    assert [each["critical_nodes"] for each in told] == [2, 1]
    assert "through all ranks by recorded times, 70.0" in told[0]["words"]
    assert "rank 1" in (tmp_path / "0.svg").read_text()
