"""Master traces: merged and split again to the byte, whatever the files hold, and opened as the job they were made of."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from studio.cli import main
from studio.et import read, write
from studio.et.copies import write_table
from studio.et.encode import add_length
from studio.et.format import Copy
from studio.et.job_files import discover
from studio.et.merged.merge import merge
from studio.et.merged.reading import sniff
from studio.et.merged.rule import BLOCK
from studio.et.merged.split import iterate_rank_pieces, open_master
from studio.et.schema import load_schema
from studio.et.source import open_sources
from tests.et.chakra_bytes import METADATA, attr, file_of, framed, num, sized, varint
from tests.small_jobs import some

_HUGE = 2**64 - 1


def run(*arguments: object, **options: object) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="chakra-studio", **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def there_and_back(paths: list[Path]) -> int:
    """Merge every job at the paths, split it in memory, and compare; returns the jobs with more than one rank."""
    jobs = 0
    with open_sources(paths) as files:
        by_name = {file.name: file.path for file in files}
        for job in discover(files):
            if job.ranks[0][1].name != "chakra" or len(job.ranks) < 2:
                continue
            jobs += 1
            done = merge(job)
            raw = b"".join(done.pieces)
            assert sniff(raw)
            master = open_master(raw, "master.et")
            beside = [*master.heads.groups, *master.heads.copies]
            made = {
                head.file: b"".join(iterate_rank_pieces(master, head.rank)) for head in master.heads.ranks
            }
            made |= {file.file: file.content for file in beside}
            packed = {file.file for file in (*master.heads.ranks, *beside) if file.gzip}
            wanted = [file.name for file, *_ in (*job.ranks, *job.others)]
            assert len(made) == len(wanted)
            for name in wanted:
                [file] = [file for file in made if name == file or name.endswith(f"/{file}")]
                raw = by_name[name].read_bytes()
                assert (file in packed) == raw.startswith(b"\x1f\x8b")
                assert made[file] == (gzip.decompress(raw) if file in packed else raw), name
    return jobs


def test_every_job_in_the_shared_traces_is_split_as_it_was(shared: Path):
    traces = shared / "traces"
    assert sum(there_and_back([traces / "stg" / name]) for name in ("gpt_8r_dp2tp4", "llama_32r_dp4tp4pp2", "llama_8r_dp8_fsdp", "llama_8r_tp8", "llama_16r_dp4tp4", "llama_16r_tp4pp4_recompute", "llama_8r_dp2tp2pp2")) == 7  # fmt: skip
    assert there_and_back([traces / "golden" / "generator"]) == 14
    assert there_and_back([traces / "golden" / "text"]) == 6
    assert there_and_back([traces / "public" / "astra-sim"]) == 5
    assert there_and_back([traces / "stg_scale" / "llama_4r_dp2tp2_fsdp.tar.xz"]) == 1
    for folder in ("torch", "torch_synthetic_device"):
        files = sorted((traces / "golden" / folder).glob("*r_[0-9].et.gz"))
        runs = {file.name.rpartition("_")[0] for file in files}
        several = [[file for file in files if file.name.startswith(f"{run}_")] for run in runs]
        assert sum(there_and_back(ranks) for ranks in several if len(ranks) > 1) >= 2


def test_jobs_of_other_formats_are_merged_as_convert_writes_them(shared: Path, tmp_path: Path):
    job = shared / "traces" / "torch" / "pp_2r"
    result = run("merge", job, "-o", "-")
    (tmp_path / "master.et").write_bytes(result.stdout_bytes)
    assert "another format" in result.stderr
    run("split", tmp_path / "master.et", "-o", tmp_path / "out")
    run("convert", job, tmp_path / "wanted")
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "wanted").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == wanted


def odd_job(folder: Path) -> Path:
    """A job with everything that protobuf allows and writers of traces do not do."""
    packed = sized(5, varint(7) + varint(0) + varint(_HUGE) + varint(5))
    first = file_of(
        b"",  # a node of defaults: id 0
        num(1, 7) + sized(2, "a") + packed + num(5, 7) + sized(4, b""),
        num(1, 7) + sized(2, "again") + attr("rank", num(7, 3)) + attr("original_id", num(13, 9)),
        num(1, _HUGE) + num(5, _HUGE - 1) + sized(5, varint(2**40) + varint(_HUGE)),
        attr("late", num(9, 1)) + sized(2, "id last") + num(1, 300) + sized(77, b"unknown"),
        num(1, 5) + b"".join(num(4, 7) for _ in range(600)),
    )
    second = file_of(
        num(1, BLOCK - 1) + num(5, BLOCK - 2),
        num(1, 1) + attr("original_id", num(13, 4)),
        num(1, 2) + attr("rank", num(7, 4)) + attr("missing_ids", sized(14, sized(1, varint(1)))),
        metadata=framed(sized(1, "9.9") + sized(2, sized(1, "input_file") + sized(29, "\n"))),
    )
    for rank, raw in ((0, first), (3, second)):
        path = folder / "in" / f"rank{rank}" / "t.et"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(raw) if rank else raw)
    (folder / "in" / "rank0" / "groups.json").write_bytes('{\n "tp": [0, 3],\n "é": []\n}\n'.encode())
    return folder / "in"


def test_unusual_files_are_split_as_they_were_and_open_alike(tmp_path: Path):
    folder = odd_job(tmp_path)
    assert there_and_back([folder]) == 1
    master = tmp_path / "master.et"
    told = json.loads(run("merge", folder, "-o", master, "--json").stdout)
    assert told["nodes"] == 9
    assert told["renumbered"] == 2
    # One valid stream: protobuf reads it, ids are unique, and all dependencies stay within their rank.
    raw, place, nodes = master.read_bytes(), 0, []
    while place < len(raw):
        size = shift = 0
        while True:
            byte = raw[place]
            size |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                break
        nodes.append(raw[place : place + size])
        place += size
    assert load_schema().metadata.FromString(nodes[0]).attr[0].name == "merged.ranks"
    parsed = [load_schema().node.FromString(node) for node in nodes[1:]]
    assert len({node.id for node in parsed}) == len(parsed) == 9
    for node in parsed:
        [rank] = [a.int32_val for a in node.attr if a.name == "rank"][-1:]
        assert {number // BLOCK for number in (node.id, *node.data_deps, *node.ctrl_deps)} == {rank}
    # Opened, it is the same job.
    assert read(master) == read(folder)
    packed = tmp_path / "out.et.gz"
    assert run("merge", folder, "-o", packed, "--quiet").output == ""
    assert read(packed) == read(folder)
    assert "ranks         2" in run("info", master).stdout
    assert run("split", "-", "-o", tmp_path / "out", input=packed.read_bytes()).exit_code == 0
    assert (tmp_path / "out" / "rank0" / "t.et").read_bytes() == (folder / "rank0" / "t.et").read_bytes()
    written = (tmp_path / "out" / "rank3" / "t.et").read_bytes()
    assert gzip.decompress(written) == gzip.decompress((folder / "rank3" / "t.et").read_bytes())


def test_a_table_of_copies_stays_one(tmp_path: Path):
    write(some(), tmp_path / "in", "job")
    rows = [Copy(5, 0, ("tp",), 3), Copy(6, 3, ('dp"é',))]
    (tmp_path / "in" / "job.copies.json").write_text(write_table(rows))
    assert there_and_back([tmp_path / "in"]) == 1
    run("merge", tmp_path / "in", "-o", tmp_path / "master.et")
    assert read(tmp_path / "master.et") == read(tmp_path / "in")
    assert [rank.number for rank in read(tmp_path / "master.et").ranks] == [0, 3, 5, 6]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (METADATA + b"\x82\x00" + num(1, 3), "its length is"),
        (file_of(b"\x08\x83\x00"), "its id is"),
        (file_of(num(1, 0)), "its id 0"),
        (file_of(num(1, 3) + num(1, 4)), "two ids"),
        (file_of(num(1, 3) + sized(5, b"\x83\x00")), "a dependency is"),
        (file_of(num(1, 3) + b"\x28" + b"\xff" * 9 + b"\x7f"), "a dependency is"),
        (file_of(num(1, 3) + b"\x2a\x81\x00\x07"), "the length of its dependencies"),
        (file_of(metadata=framed(sized(2, sized(1, "x")) + sized(1, "1"))), "its metadata"),
    ],
)
def test_what_could_not_be_written_again_is_refused(tmp_path: Path, raw: bytes, why: str):
    (tmp_path / "job.0.et").write_bytes(file_of(num(1, 1)))
    (tmp_path / "job.1.et").write_bytes(raw)
    result = run("merge", tmp_path, "-o", tmp_path / "out" / "master.et")
    assert result.exit_code == 1
    assert "job.1.et: the record at byte" in result.stderr
    assert why in result.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_what_is_no_job_or_no_master_trace_is_refused(tmp_path: Path):
    write(some(), tmp_path / "in", "job")
    assert "not a master trace" in run("split", tmp_path / "in" / "job.0.et", "-o", tmp_path / "x").stderr
    master = tmp_path / "master.et"
    run("merge", tmp_path / "in", "-o", master)
    assert "a master trace already" in run("merge", master, "-o", tmp_path / "more.et").stderr
    assert "not the name" in run("merge", tmp_path / "in", "-o", tmp_path / "master.json").stderr
    shutil.copy(tmp_path / "in" / "job.0.et", tmp_path / "in" / "job.00.et")
    assert "claimed by two files" in run("merge", tmp_path / "in", "-o", tmp_path / "more.et").stderr
    (tmp_path / "in" / "job.00.et").unlink()
    for text, why in {
        '{"tp": [0, 3],"b": [1], "c": [3]}': "blanks differ",
        '{"tp": [0, 3], "tp": [1]}': "a group is listed twice",
        '{"tp": [0, 3], "\\u0041": [1]}': "not written alike",
    }.items():
        (tmp_path / "in" / "job.json").write_text(text)
        message = run("merge", tmp_path / "in", "-o", tmp_path / "more.et").stderr
        assert "job.json: split could not write it again byte for byte" in message
        assert why in message
    empty = file_of(metadata=framed(sized(2, sized(1, "merged.ranks") + num(9, 1))))
    (tmp_path / "none.et").write_bytes(empty)
    assert "without ranks" in run("split", tmp_path / "none.et", "-o", tmp_path / "x").stderr
    assert "without ranks" in run("info", tmp_path / "none.et").stderr
    # A path out of the folder, and a node without its rank.
    raw = master.read_bytes()
    master.write_bytes(raw.replace(b"job.0.et", b"../0.et\n"))
    result = run("split", master, "-o", tmp_path / "x")
    assert "not a path within a folder" in result.stderr
    assert result.exit_code == 1
    master.write_bytes(raw + add_length(num(1, 5)))
    assert "does not say its rank" in run("split", master, "-o", tmp_path / "x").stderr
    master.write_bytes(raw + framed(num(1, 5) + attr("rank", num(7, 3))))
    assert "not within 12,884,901,888 to" in run("split", master, "-o", tmp_path / "x").stderr
    assert not (tmp_path / "x").exists() or not list((tmp_path / "x").glob("*"))


def test_damage_is_told_and_the_rest_is_kept(tmp_path: Path):
    write(some(), tmp_path / "in", "job")
    file = tmp_path / "in" / "job.3.et"
    file.write_bytes(file.read_bytes()[:-3])
    result = run("merge", tmp_path / "in", "-o", tmp_path / "master.et")
    assert result.exit_code == 4
    assert "2 nodes before it were merged" in result.stderr
    assert len(read(tmp_path / "master.et").graph_of(3)) == 2
    raw = (tmp_path / "master.et").read_bytes()
    (tmp_path / "cut.et").write_bytes(raw[:-5])
    result = run("split", tmp_path / "cut.et", "-o", tmp_path / "out", "--allow-damaged")
    assert result.exit_code == 0
    assert "what follows is lost" in result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["job.0.et", "job.3.et", "job.json"]
    for end in range(0, len(raw), 7):
        (tmp_path / "cut.et").write_bytes(raw[:end])
        assert "Traceback" not in run("split", tmp_path / "cut.et", "-o", tmp_path / "out").output
