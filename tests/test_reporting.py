"""A run or a comparison as one HTML file: what is in it, and that it opens from disk and asks nobody for anything."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.comparing import build_compared_recording, build_simulated_side
from studio.reporting import build_report
from studio.reporting.document import Document
from studio.sim import simulate
from studio.sim.doubt import Cure, Doubt
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

HOSTILE = "</script><img src=x onerror=window.harmed=1>"
PARTS = Parts(
    {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]},
    {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-to-all-implementation": ["ring"],
    },
)


def job(slower: int = 0, name: str = "fwd", sizes: tuple[int, int] = (1000, 3000)):
    def rank(micros: int, size: int):
        first, second = node(1, "COMP", micros=micros, name=name), collective(2, "ALL_TO_ALL", size, 1)
        first.start_time_micros = 100
        second.start_time_micros, second.duration_micros = 100 + micros, 60 + slower - micros
        return [first, second]

    return trace_of([rank(50, sizes[0]), rank(50 + slower, sizes[1])])


def test_a_run_says_where_its_time_went():
    text = build_report([build_compared_recording(job(), "monday")])
    assert "<h1>monday</h1>" in text
    assert ">60.0 µs</span>" in text  # the finish
    assert "1.500" in text  # 3000 bytes by a mean of 2000
    assert "1,000 B" in text  # to move for balance
    assert len(text) < 5_000_000


def test_a_comparison_says_how_much_and_why():
    text = build_report(
        [build_compared_recording(job(), "monday"), build_compared_recording(job(30), "tuesday")]
    )
    assert "B (tuesday) is 30.0 µs (50 %) slower than A (monday)" in text
    assert text.count("What the ranks were doing over time") >= 2
    shares = re.findall(r"<td class=num>([−0-9.]+) %</td>", text.split("<table>")[1])
    assert sum(float(one.replace("−", "-")) for one in shares) == pytest.approx(100, abs=0.3)


def test_doubts_about_a_simulation_come_first_with_their_cure():
    doubts = (
        Doubt("links-ignored", "4 GB/s over <links> of 2 GB/s.", True, Cure("", "full")),
        Doubt("extrapolated", "Not fitted to 64 ranks.", False),
    )
    doubtful = replace(build_compared_recording(job(30), "tuesday"), doubts=doubts)
    text = build_report([build_compared_recording(job(), "monday"), doubtful])
    assert "A (monday) is not to be believed" not in text
    first = text.index("B (tuesday) is not to be believed as it stands:")
    assert (
        first
        < text.index("impossible: 4 GB/s over &lt;links&gt; of 2 GB/s.")
        < text.index("doubtful: Not fitted")
    )
    assert text.index("Simulate again with --model full.") < text.index("From A to B</h2>")
    assert '<nav aria-label="Contents">' in text


@pytest.mark.e2e
def test_it_opens_from_disk_without_network_and_without_harm(tmp_path: Path, page) -> None:
    """Names are markup, also inside the figures' data; the figures are drawn, nothing is asked for, nothing is run."""
    trace = job(name=HOSTILE, sizes=(4096, 4096))
    store = Workspace(tmp_path / "ws")
    kept = store.save(trace, HOSTILE)
    result = simulate(trace, interpret(PARTS).config, native=compiled())
    run = store.save_run(kept, Run(HOSTILE, result, PARTS))
    kept_run = build_simulated_side(store.load_run(kept, run), store.run_info(kept, run), job_name=HOSTILE)
    sides = [build_compared_recording(trace, HOSTILE), kept_run]
    path = tmp_path / "report.html"
    path.write_text(build_report(sides), encoding="utf-8")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.locator(".js-plotly-plot").count() == page.locator(".figure").count() == 7
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.evaluate("window.harmed") is None
    assert page.locator("img[src=x]").count() == 0
    assert HOSTILE in page.locator("h1").inner_text()


def test_the_command_writes_the_file_or_nothing(tmp_path: Path) -> None:
    from studio.et import write

    write(job(), tmp_path / "traces", "job")
    out = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", str(tmp_path / "traces"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert done.output == f"1 file written: {out}\n"
    assert "<!DOCTYPE html>" in out.read_text()
    # Its folder is made, as the other commands make theirs; where a file is in the way, that is said.
    deep = ["report", str(tmp_path / "traces"), "-o", str(tmp_path / "new" / "deep" / "r.html")]
    assert CliRunner().invoke(main, deep).exit_code == 0
    assert (tmp_path / "new" / "deep" / "r.html").is_file()
    refused = CliRunner().invoke(main, ["report", str(tmp_path / "traces"), "-o", str(out / "r.html")])
    assert refused.exit_code == 1
    assert "cannot be written: File exists" in refused.output
    assert "Hint: Name a file in a folder that you may write to." in refused.output
    nothing = CliRunner().invoke(
        main, ["report", "nobody", "-o", str(tmp_path / "n.html"), "--workspace", str(tmp_path / "ws")]
    )
    assert nothing.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "report.html", "traces"]


def test_the_command_says_how_far_it_is(tmp_path: Path, monkeypatch) -> None:
    from studio.et import write

    for name in ("monday", "tuesday"):
        write(job(), tmp_path / name, "job")
    said: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        "studio.commands.report.build_progress_line", lambda: lambda *words: said.append(words)
    )
    sides = [str(tmp_path / name) for name in ("monday", "tuesday")]
    done = CliRunner().invoke(main, ["report", *sides, "-o", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    phases = list(dict.fromkeys(phase for phase, _, _ in said if phase != "reading"))
    assert phases == ["drawing", "comparing"]
    assert [words[1:] for words in said if words[0] == "drawing"] == [(0, 3), (0, 3), (1, 3), (2, 3), (3, 3)]
    assert [words[1:] for words in said if words[0] == "comparing"] == [(0, 1), (1, 1)]


def test_a_job_of_many_different_graphs_is_reported_without_advice(monkeypatch) -> None:
    """Each of dozens of simulations would lay out every graph anew."""
    asked: list[str] = []
    monkeypatch.setattr("studio.reporting.advice._ADVISED_GRAPHS", 1)
    monkeypatch.setattr("studio.reporting.advice.advise", lambda *_, **__: asked.append("advise"))
    text = build_report([build_compared_recording(job(), "monday")])
    assert "Not worked out for 2 distinct graphs: `chakra-studio advise` does" in text
    assert not asked


def test_a_report_says_how_far_its_advice_is() -> None:
    said: list[tuple[str, int, int]] = []
    build_report([build_compared_recording(job(), "monday")], lambda *words: said.append(words))
    told = [words[1:] for words in said if words[0] == "simulating"]
    assert told
    assert told[-1][0] == told[-1][1]


def test_words_of_short_cells_are_not_broken():
    document = Document("report")
    document.table(["part", "mean", "about"], [["communication", "7 ms", "What " * 20]], numeric=(1,))
    assert "<td class=short>communication</td><td class=num>7 ms</td><td class=long>" in document.html("")


def test_all_figures_name_their_axes_in_one_size(monkeypatch):
    figures = []
    monkeypatch.setattr(Document, "figure", lambda _self, _title, figure, _about="": figures.append(figure))
    build_report([build_compared_recording(job(), "monday"), build_compared_recording(job(30), "tuesday")])
    titles = {
        (title["text"], title["font"]["size"])
        for figure in figures
        for name, axis in figure.to_dict()["layout"].items()
        if re.fullmatch(r"[xy]axis\d*", name) and (title := axis.get("title", {})).get("text")
    }
    assert {"rank", "% of ranks"} <= {text for text, _ in titles}
    assert {size for _, size in titles} == {11}
