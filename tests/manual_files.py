"""Files that stand in for those that README and docs name: the samples, and small ones written here, under the names of the pages."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import yaml
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.samples import sample_path
from tests.conftest import ROOT
from tests.fleet_jobs import put, recorded
from tests.flight_dumps import one_missing, write_dumps
from tests.infragraph_files import cluster
from tests.msccl_files import ring_all_reduce

_NCCL = """\
# nThread 1 nGpus 8 minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{devices}
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
_TEXT_WORKLOAD = """\
DATA
2
first -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 0
second -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 0
"""


def _job(name: str) -> Callable[[Path], None]:
    """Return what unpacks a sample into a folder."""

    def make(path: Path) -> None:
        with zipfile.ZipFile(sample_path(name)) as archive:
            archive.extractall(path)

    return make


def _recording(path: Path) -> None:
    """Unpack the recording, without the folder in its archive."""
    _job("training_2r")(path)
    for file in (path / "recorded").iterdir():
        file.rename(path / file.name)
    (path / "recorded").rmdir()


def _linked(path: Path) -> None:
    studio.write(studio.link(sample_path("training_2r")), path, "recorded")


def _one_rank(path: Path) -> None:
    from tests.et.pytorch_files import one_of_eight

    path.write_bytes(one_of_eight())


def _one_file(path: Path) -> None:
    with zipfile.ZipFile(sample_path("transformer_8r")) as archive:
        path.write_bytes(archive.read("transformer_8r.0.et"))


def _measured(path: Path) -> None:
    """Write the output of nccl-tests as a machine of 8 GPUs would: 20 µs, and 350 GB/s on the bus."""
    path.mkdir()
    rows = []
    for power in range(10, 31, 2):
        size = 1 << power
        time_us = 20 + size / 350e3 * 2 * 7 / 8
        rate = size / time_us / 1e3
        values = f"{time_us:10.2f} {rate:8.2f} {rate * 2 * 7 / 8:8.2f}"
        rows.append(f"{size:12d} {size // 4:12d} float sum -1 {values} 0 {values} 0")
    devices = (
        f"#  Rank  {rank} Group  0 Pid     17 on      host1 device  {rank} [0x3d] NVIDIA H100 80GB HBM3"
        for rank in range(8)
    )
    head = _NCCL.format(devices="\n".join(devices))
    (path / "all_reduce_perf.txt").write_text(head + "\n".join(rows) + "\n", encoding="utf-8")


def _astra(path: Path) -> None:
    studio.write_config(studio.preset("hgx-h100-8").config, path)


def _requests(path: Path) -> None:
    lines = [f"2026-01-05 10:00:{at:02d}.0000000,{200 + 10 * at},{20 + at}" for at in range(20)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines, ""]), encoding="utf-8")


def _compressed(make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return what writes a file as another writes it, compressed."""

    def compress(path: Path) -> None:
        make(path)
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))

    return compress


def _events(path: Path) -> None:
    CliRunner().invoke(main, ["timeline", str(sample_path("transformer_8r")), "-o", str(path), "-q"])


def _log_cut_short(path: Path) -> None:
    """Write the log of a simulator that was stopped before its end."""
    whole = path.with_name("whole.log")
    CliRunner().invoke(main, ["timeline", str(sample_path("transformer_8r")), "-o", str(whole), "-q"])
    lines = whole.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) * 2 // 3]), encoding="utf-8")


def _nights(path: Path) -> None:
    """Write four nights of a job, the last slower, and a folder with a file that is no trace."""
    for day, (late, slow) in enumerate(((0, 0), (1, 0), (1, 1), (14, 1)), 18):
        for file in put(path, f"llama-8b-2026-11-{day}", recorded(late, slow=slow, ranks=4)).iterdir():
            os.utime(file, (1_794_970_800 + (day - 18) * 86_400,) * 2)
    (path / "cut").mkdir()
    (path / "cut" / "gpt.0.et").write_bytes(bytes(range(128, 256)))
    for place in (path / "cut" / "gpt.0.et", *path.iterdir(), path):
        os.utime(place, (1_794_970_800,) * 2)


def _llama(path: Path) -> None:
    words = ("generate llm --model llama3-8b --ranks 8 --tp 8 --quiet -o", str(path))
    CliRunner().invoke(main, [*words[0].split(), words[1]])


def _suite(path: Path) -> None:
    """Write the suite that its page shows, with its jobs."""
    text = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    path.write_text(re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0], encoding="utf-8")
    for name in ("transformer_8r", "imbalance_8r"):
        shutil.copyfile(sample_path(name), path.with_name(f"{name}.zip"))


def _infrastructure(path: Path) -> None:
    path.write_text(yaml.safe_dump(cluster()), encoding="utf-8")


def _dumps(path: Path) -> None:
    write_dumps(path, one_missing())


def _msccl(path: Path) -> None:
    path.write_bytes(ring_all_reduce(8))


def _text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content, encoding="utf-8") and None


def _copy(name: str) -> Callable[[Path], None]:
    return lambda path: shutil.copyfile(sample_path(name), path) and None


FILES: dict[str, Callable[[Path], None]] = {
    "traces": _job("transformer_8r"),
    "transformer_8r.zip": _copy("transformer_8r"),
    "imbalance_8r.zip": _copy("imbalance_8r"),
    "traces.zip": _copy("transformer_8r"),
    "job": _job("transformer_8r"),
    "JOB": _job("transformer_8r"),
    "uneven": _job("imbalance_8r"),
    "monday": _job("transformer_8r"),
    "tuesday": _job("transformer_8r"),
    "recorded.zip": _copy("training_2r"),
    "recorded": _recording,
    "run1": _recording,
    "linked": _linked,
    "rank0.json": _one_rank,
    "rank0.json.gz": _compressed(_one_rank),
    "rank0.et": _one_file,
    "job.0.et": _one_file,
    "job.0.et.gz": _compressed(_one_file),
    "events.csv": _events,
    "cut.log": _log_cut_short,
    "nights": _nights,
    "cluster.yaml": _infrastructure,
    "suite.toml": _suite,
    "llama": _llama,
    "dumps": _dumps,
    "ring.xml": _msccl,
    "nccl-tests": _measured,
    "azure.csv": _requests,
    "astra": _astra,
    "workload.txt": _text(_TEXT_WORKLOAD),
    "costs.yml": _text("gpu: 30000\ngb_per_s_port: [2, 20]\n"),
}
"""What makes each name, by name."""

# The words after these name what a command writes.
_WRITES = {"-o", "--output", "--out", "--repair", "--jobs", "--export"}


def lay_out(words: list[str], folder: Path, kept: set[str]) -> None:
    """Make the files that a command's words name and that are not there yet; make room for what it writes.

    `kept` are the folders that commands of the same block wrote, to which it may add.
    """
    for before, word in zip(["", *words], words, strict=False):
        name = re.split(r"[/*]", word)[0]
        if before in _WRITES and name not in kept and (folder / name).is_dir():
            # Another example of the page, or another stand-in: for a reader both are folders of their own.
            shutil.rmtree(folder / name)
        if before in _WRITES:
            kept.add(name)
        if before not in _WRITES and not (folder / name).exists():
            if name in FILES:
                FILES[name](folder / name)
            elif real := real_job(name):
                shutil.copytree(real, folder / name)


def real_job(name: str) -> Path | None:
    """The folder of a real trace that pages name; None where there are no real traces, or none of this name."""
    shared = Path(os.environ.get("CHAKRA_STUDIO_SHARED") or ROOT.parent / "shared").resolve()
    found = (shared / "traces" / kind / name for kind in ("torch", "stg")) if name in REAL else ()
    return next((path for path in found if path.is_dir()), None)


REAL = {"dlrm_4r", "llama_8r_tp8", "llama_16r_tp4pp4_recompute"}
"""Jobs that only those have who have the real traces; commands on them are left out elsewhere."""
