"""A sweep on a real Dask scheduler: a worker that is killed half way costs nothing but time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pandas as pd
import pytest

import studio
from studio.errors import ConfigError
from studio.et.executors import open_executor
from studio.sweep.space import parse_space
from studio.sweep.sweep import Sweep, run_sweep
from studio.sweep.systems import Base
from tests.conftest import ROOT
from tests.waiting import wait_until

pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")

BASE = Base(
    "hgx-h100-8",
    settings=("memory-type=PER_NPU_MEMORY_EXPANSION", "remote-mem-latency=1000", "remote-mem-bw=64"),
)


# A scheduler, and a worker beside it: a process of its own would take a second to start.
SCHEDULER = """
import asyncio
from distributed import Scheduler, Worker

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        async with Worker(scheduler.address, host="127.0.0.1", nthreads=1, dashboard=False) as worker:
            print(scheduler.address, flush=True)
            await worker.finished()

asyncio.run(main())
"""


def start(folder, name, *arguments):
    """Start a program on the loopback; its messages go to a file."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false",
    }
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
        )
    return process, log


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    """A scheduler and two workers of one thread each, one of them in a process of its own, as Dask's program starts it."""
    tmp_path = tmp_path_factory.mktemp("dask")
    scheduler, log = start(tmp_path, "scheduler", "-c", SCHEDULER)
    started = [scheduler]
    try:
        address = wait_until(lambda: re.search(r"^tcp://127\.0\.0\.1:\d+$", log.read_text(), re.MULTILINE))[0]
        program = ("-m", "distributed.cli.dask_worker", address, "--host", "127.0.0.1", "--nthreads", "1")
        options = ("--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path))
        worker, log = start(tmp_path, "worker", *program, *options)
        started.append(worker)
        wait_until(lambda: "Registered to" in log.read_text())
        yield address, worker
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


@pytest.mark.integration
def test_a_worker_that_is_killed_loses_nothing_and_repeats_nothing(dask, tmp_path):
    address, worker = dask
    job = studio.read(studio.sample_path("transformer_8r"))
    sweep = Sweep(parse_space(["bandwidth[0]=10..640:10"]), BASE)
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    run_sweep(job, sweep, here)
    told = []

    def progress(_phase, done, total):
        told.append(done)
        if done >= total // 2 and worker.poll() is None:
            worker.kill()

    swept = run_sweep(job, sweep, there, scheduler=address, progress=progress)
    assert worker.poll() is not None
    assert there.read_bytes() == here.read_bytes()
    assert [row.index for row in swept.rows] == list(range(64))
    assert told == sorted(told)
    assert told[-1] == 64
    assert pd.read_parquet(there)["finish_ns"].notna().all()
    assert not (tmp_path / "there.parquet.job").exists()


def test_ranks_are_read_and_linked_by_workers(dask, shared):
    """By the worker that is left."""
    address, _ = dask
    files = shared / "traces" / "torch" / "ddp_mlp_4r"
    here = studio.link(files)
    with open_executor(address) as executor:
        assert studio.link(files, executor=executor) == here


@pytest.mark.integration
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", f"tcp://127.0.0.1:{10**20}"])
def test_a_scheduler_that_nobody_runs_is_told(tmp_path, monkeypatch, address):
    monkeypatch.setattr("studio.et.executors._CONNECT_S", 0.2)
    job = studio.read(studio.sample_path("transformer_8r"))
    with pytest.raises(ConfigError, match="no Dask scheduler answers there"):
        run_sweep(job, Sweep(parse_space(["latency[0]=1"]), BASE), tmp_path / "out", scheduler=address)
