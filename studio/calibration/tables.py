"""Tables of measured collectives."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from studio.errors import TraceFormatError

Float64 = npt.NDArray[np.float64]

KIND_NAMES = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""Collectives that benchmark programs name otherwise than the cost model does."""
_ONE_THREAD = (
    # slurm_scripts/snellius-h100-n1.job: `all_gather_perf … -g 4`; on two nodes `srun -n 8 … all_gather_perf_mpi … -g 1`.
    "github:odissei-benchmarks/nccl-tests runs/1node/",
    # The command lines and headers that it prints: `-g2`, nGpus 2.
    "github:Anthony-Hoo/Anthony-Hoo.github.io posts/AutoDL_Multi-GPU_Interconnection_Test.md",
)
"""Beginnings of the sources of public tables that do not say it, though their runs had one thread for all GPUs of the node."""


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """The times of one run of a benchmark: one collective on one machine, a sweep of sizes.

    S sizes.

    Attributes:
        table_id: The run.
        source: Where it is from.
        hardware: GPU, and the machine where named.
        gpus_per_node: GPUs of a node that took part.
        nodes: Nodes that took part; the ranks are the product of both.
        interconnect: Links in a node and network between nodes, in words.
        nominal_gbytes_per_s: Nominal rate in one direction: of a GPU's links on one node, of a node's network ports on
            more; nan where not stated.
        library_version: As the source says it.
        collective: A kind of `studio.sim.kinds`, or `send_recv`.
        dtype: Type of the elements.
        size_bytes: (S,) as nccl-tests counts: the whole buffer of all-gather, reduce-scatter and all-to-all.
        time_us: (S,) time of one operation.
        machine: What tables of one machine share; a system is fitted to these.
        choices: (S,) algorithm and protocol where kernels of a recording tell them, such as `ring LL`; else empty.
        gpus_per_thread: GPUs on which one thread of the benchmark launches, one after the other: nGpus of nccl-tests (`-g`); a
            training job has 1.
    """

    table_id: str
    source: str
    hardware: str
    gpus_per_node: int
    nodes: int
    interconnect: str
    nominal_gbytes_per_s: float
    library_version: str
    collective: str
    dtype: str
    size_bytes: Float64
    time_us: Float64
    machine: str
    choices: tuple[str, ...] = ()
    gpus_per_thread: int = 1


def read_csv(path: Path) -> list[MeasuredTable]:
    """Read a CSV file of many tables: one row a size, the columns as `MeasuredTable` names them.

    Raises:
        TraceFormatError: A column is missing, or a value is no number.
    """
    rows: dict[str, list[dict[str, str]]] = {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["table_id"], []).append(row)
    try:
        return [_build_table(group) for group in rows.values()]
    except (KeyError, ValueError) as error:
        message = f"{path.name}: not a table of measured collectives: {error}."
        raise TraceFormatError(
            message,
            hint="The first line names the columns as `MeasuredTable` does; every line below is one size of one table.",
        ) from error


def _build_table(rows: list[dict[str, str]]) -> MeasuredTable:
    first = rows[0]
    rate = first["nominal_gbytes_per_s"]
    return MeasuredTable(
        table_id=first["table_id"],
        source=first["source"],
        hardware=first["hardware"],
        gpus_per_node=int(first["gpus_per_node"]),
        nodes=int(first["nodes"]),
        interconnect=first["interconnect"],
        nominal_gbytes_per_s=float(rate) if rate else float("nan"),
        library_version=first["library_version"],
        collective=KIND_NAMES.get(first["collective"], first["collective"]),
        dtype=first["dtype"],
        size_bytes=np.array([float(row["size_bytes"]) for row in rows]),
        time_us=np.array([float(row["time_us"]) for row in rows]),
        machine=parse_machine(first["table_id"]),
        gpus_per_thread=int(
            first.get("gpus_per_thread") or get_gpus_per_thread(first["source"], int(first["gpus_per_node"]))
        ),
    )


def get_gpus_per_thread(source: str, gpus_per_node: int) -> int:
    """Return on how many GPUs one thread launched in a public run whose table does not say it; 1 where nothing else is known.

    Example:
        >>> get_gpus_per_thread("github:odissei-benchmarks/nccl-tests runs/1node/all_reduce.log (2025-08)", 4)
        4
    """
    return gpus_per_node if source.startswith(_ONE_THREAD) else 1


def build_measured_entry(table: MeasuredTable) -> dict[str, object]:
    """Return what system files say of what a table measured: collective, ranks and sizes."""
    return {
        "collective": table.collective,
        "gpus-per-node": table.gpus_per_node,
        "nodes": table.nodes,
        **({"gpus-per-thread": table.gpus_per_thread} if table.gpus_per_thread > 1 else {}),
        "sizes": [int(size) for size in table.size_bytes],
    }


def parse_machine(table_id: str) -> str:
    """Return the machine in a table's name: the words before the number of nodes and after the collective."""
    match = re.fullmatch(
        r"(.+?)_n\d+_g\d+_(?:all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|broadcast|reduce)(_.+)?",
        table_id,
    )
    return table_id if match is None else match[1] + (match[2] or "")
