"""The network backends that ASTRA-sim's programs are built with, and how the program of each is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from studio.sim.config import Congestion

WORKLOAD, GROUPS, SYSTEM, NETWORK, MEMORY = (
    "workload/trace",
    "workload/comm_group.json",
    "system.json",
    "network.yml",
    "remote_memory.json",
)
"""Files of an exported folder; the first is the prefix of the traces. ASTRA-sim takes a path of comm groups that
contains "empty" for none, so paths are relative to the folder, whatever it is called."""
LOGICAL = "logical_topology.json"
LOGGING, WHOLE_LOG = "logging.toml", "log/events.log"
"""A configuration of ASTRA-sim's logger that keeps all events in one file, and that file."""
LOG_KEEPS_BYTES = 11 * 10 * 1024 * 1024
"""What its logger keeps otherwise: the current file and ten older ones."""
NO_GROUPS = "empty"
DEFAULT_TIMEOUT_S = 600.0
"""After how long a program is ended where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A network backend.

    Attributes:
        name: What `--backend` and `--engine-backend` call it.
        program: What ASTRA-sim's build calls its program.
        marks: Matches the names of its programs, in lower case.
        congestion: Which network it simulates, as far as ours has the same; None where it is one of its own.
        logical: Whether dimensions are told by a file of their own, and the network file is the backend's.
        needs: What has to be said further on its command line, in words; "" where nothing.
    """

    name: str
    program: str
    marks: re.Pattern[str]
    congestion: Congestion | None = None
    logical: bool = False
    needs: str = ""


BACKENDS = (
    Backend(
        "analytical-unaware",
        "AstraSim_Analytical_Congestion_Unaware",
        re.compile("unaware"),
        congestion="unaware",
    ),
    Backend(
        "analytical-aware", "AstraSim_Analytical_Congestion_Aware", re.compile("aware"), congestion="aware"
    ),
    Backend(
        "ns3",
        "ns3.42-AstraSimNetwork-default",
        re.compile(r"ns-?3|astrasimnetwork"),
        logical=True,
        needs="--network-configuration=FILE with ns-3's own configuration, which names its files by absolute paths",
    ),
    Backend(
        "htsim", "AstraSim_HTSim", re.compile("htsim"), needs="--htsim_opts -topo FILE, the last on the line"
    ),
)
BACKEND_NAMES = tuple(backend.name for backend in BACKENDS)


def find_backend(name: str) -> Backend:
    """Return the backend of a name."""
    return next(backend for backend in BACKENDS if backend.name == name)


def get_analytical_backend(congestion: Congestion) -> Backend:
    """Return the analytical backend with this network."""
    return next(backend for backend in BACKENDS if backend.congestion == congestion)


def guess_backend(program: Path) -> Backend | None:
    """Return the backend that the name of a program indicates; None where it indicates none.

    Example:
        >>> [guess_backend(Path(name)).name for name in ("bin/AstraSim_Analytical_Congestion_Aware", "AstraSim_HTSim")]
        ['analytical-aware', 'htsim']
        >>> guess_backend(Path("/opt/ns-3/a.out"))
    """
    name = program.name.lower()
    return next((backend for backend in BACKENDS if backend.marks.search(name)), None)


def build_arguments(backend: Backend, options: tuple[str, ...], *, groups: bool) -> list[str]:
    """Return the command line of a program, without the program; paths are relative to the exported folder.

    Args:
        backend: Which.
        options: Options of the system, such as `--num-queues-per-dim=2`.
        groups: Whether the job has comm groups.
    """
    files = [
        ("workload-configuration", WORKLOAD),
        ("comm-group-configuration", GROUPS if groups else NO_GROUPS),
        ("system-configuration", SYSTEM),
        ("remote-memory-configuration", MEMORY),
        ("logical-topology-configuration", LOGICAL)
        if backend.logical
        else ("network-configuration", NETWORK),
    ]
    return [*(f"--{key}={path}" for key, path in files), *options]
