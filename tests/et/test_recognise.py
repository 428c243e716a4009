"""Which format a file is of is told by its content, whatever it is called."""

from __future__ import annotations

import gzip
import re
import shutil

import pytest

from studio.et import discover
from studio.et.job_files import recognise
from studio.et.known import FORMATS
from studio.et.source import SourceFile, read_head

EXPECTED = (
    (r"\.et(\.gz)?$", "chakra"),
    (r"^stg/.*\.json$", "groups"),
    (r"custom_allreduce\.xml$", "msccl"),
    (r"^text/", "text"),
    (r"^timeline/", "events"),
    (r"^golden/timeline/", "tool-timeline"),
    (r"jsonized", "jsonized"),
    (r"golden/torch.*etplus", "etplus"),
    (r"NOTHING_LINKED", "pytorch"),
    (r"torch.*pytorch_et", "pytorch"),
    (r"^torch.*kineto", "kineto"),
    (r"^public/chakra/1\.0\.2", "pytorch"),
    (r"^public/param/.*(_et[._]|_eg_)", "pytorch"),
    (r"^public/(param|hta)/.*(kineto|trace|rank)", "kineto"),
    (r"^foreign/.*\.xplane\.pb", "xplane"),
    (r"^foreign/rocprof", "rocprof"),
    (r"^public/chakra/(feeder|small)_chakra\.0\.json", "workload-graph"),
)
"""Formats of the shared files by their paths."""
OTHERS = {"pytorch", "kineto"}
"""Formats that files of no path above may be of."""


def test_every_shared_file_is_recognised_by_its_content(shared):
    root = shared / "traces"
    seen = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        expected = next((fmt for pattern, fmt in EXPECTED if re.search(pattern, name)), None)
        found = recognise(read_head(SourceFile(path.name, path)))
        if expected is None:
            assert found is None or found.name in OTHERS, (name, found.name)
        else:
            assert found is not None, name
            assert found.name == expected, name
            seen[expected] = seen.get(expected, 0) + 1
    counts = {
        "chakra": 260,
        "groups": 7,
        "text": 6,
        "events": 3,
        "jsonized": 11,
        "workload-graph": 2,
        "etplus": 36,
    }
    assert {name: seen[name] for name in counts} == counts
    assert seen["pytorch"] > 20
    assert seen["kineto"] > 20


@pytest.mark.parametrize(
    "name",
    [
        "text/data_4l.txt",
        "timeline/llama_8r.csv.gz",
        "public/chakra/small_chakra.0.json",
        "golden/torch/pp_2r_0.jsonized.txt.gz",
    ],
)
def test_a_neutral_name_and_gzip_change_nothing(shared, tmp_path, name):
    source = shared / "traces" / name
    plain, packed = tmp_path / "a", tmp_path / "b"
    if source.suffix == ".gz":
        shutil.copy(source, packed)
        plain.write_bytes(gzip.decompress(source.read_bytes()))
    else:
        shutil.copy(source, plain)
        packed.write_bytes(gzip.compress(source.read_bytes()))
    formats = [discover([SourceFile("file", path, named=True)])[0].ranks[0][1] for path in (plain, packed)]
    assert formats[0] is formats[1]
    assert sum(fmt.sniff(read_head(SourceFile(plain.name, plain))) for fmt in FORMATS) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"DATA",
        b"DATA is what we have\n4 of them\n",
        b"MODEL\nname,size\n",
        b"a log that speaks of an issue, with commas=1, and a callback\n",
        b'{"attr": 1}',
        b"{}",
        b'{"attributes": [{"name": "x"}]}',
        b"\0" * 40,
    ],
)
def test_what_is_none_of_them_is_not_taken_for_one(content):
    assert recognise(content) is None or recognise(content).name == "groups"


def test_a_folder_with_one_rank_in_two_formats_is_two_jobs(shared):
    folder = shared / "traces" / "public" / "chakra"
    names = ("feeder_chakra.0.et", "feeder_chakra.0.json.gz")
    jobs = discover([SourceFile(f"chakra/{name}", folder / name) for name in names])
    assert [job.name for job in jobs] == ["feeder_chakra", "feeder_chakra"]
