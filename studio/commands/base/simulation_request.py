"""What a simulation is asked to do on the command line: the options of `simulate`, and the size they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from studio.errors import ConfigError
from studio.et.format import UNSAID, JobSize
from studio.sim.config import Congestion
from studio.sim.extensions import ComputeTimes
from studio.sim.models import Model
from studio.sim.parts import Mode
from studio.sim.presets import infer_npu_count
from studio.sim.systems import is_system_file

if TYPE_CHECKING:
    from studio.commands.base.engine import Engine


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """Options of `simulate`.

    Attributes:
        workload: Folders or files, the common prefix of files, or the id of a job in the workspace.
        preset: A system by name or a system file; files given beside it take the place of its own.
        system, network, comm_groups, remote_memory: ASTRA-sim's files.
        congestion: Whether messages wait for each other; None is that of the model.
        options: Options of ASTRA-sim's command line, without dashes.
        settings: KEY=VALUE each, the last word on any key of the files.
        time_limit_s: Stop after this long; None never.
        events: File to write the events into, as its suffix asks for; None for none.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open; a preset has as many NPUs.
        model: `full` or `astra-sim`; None is full for a preset, and what the files ask for where ASTRA-sim's are given.
        mode: Which mode; None is that of the model.
        compute_times: Whether nodes keep recorded durations, or all are computed by the roofline; None is the system's.
        gpu: The GPU that operations of a recorded device are recomputed for; None keeps what was recorded.
        recorded_gpu: The GPU they were recorded on; None is the one that the trace names.
        out: Name of the run to keep in the workspace; None keeps none.
        cure: Whether to simulate again with the cures of what makes the answer doubtful.
        replay: Whether recorded times count, of communication too; then the system may be left out.
        engine: ASTRA-sim's own program, to run on the same and compare with; None runs none.
    """

    workload: tuple[str, ...]
    preset: str | None = None
    system: Path | None = None
    network: Path | None = None
    comm_groups: Path | None = None
    remote_memory: Path | None = None
    congestion: Congestion | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    time_limit_s: float | None = None
    events: Path | None = None
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    size: JobSize = UNSAID
    model: Model | None = None
    mode: Mode | None = None
    compute_times: ComputeTimes | None = None
    gpu: str | None = None
    recorded_gpu: str | None = None
    out: str | None = None
    cure: bool = False
    replay: bool = False
    engine: Engine | None = None


def with_system_file(request: SimulationRequest) -> SimulationRequest:
    """Return a request in which a system file given as --system is the preset.

    Raises:
        ConfigError: A preset is named too.
    """
    if request.system is None or not is_system_file(request.system):
        return request
    if request.preset is not None:
        raise ConfigError(
            f"--system is the system file {request.system}, and --preset {request.preset!r}; allowed: one of both",
            hint="A system file holds a whole system, as a preset does; ASTRA-sim's system files end in .json.",
        )
    return replace(request, preset=str(request.system), system=None)


def is_size_open(request: SimulationRequest) -> bool:
    """Whether the job says how many NPUs the preset has.

    Raises:
        ConfigError: There is no such preset, or its name and --npus disagree.
    """
    return request.preset is not None and infer_npus(request) is None


def infer_npus(request: SimulationRequest) -> int | None:
    """Return how many NPUs are asked for: by --npus, or by the name of the preset; None where neither says it."""
    asked = request.size.npus
    of_preset = infer_npu_count(request.preset) if request.preset is not None else None
    if asked is not None and of_preset is not None and asked != of_preset:
        raise ConfigError(
            f"--npus is {asked:,}, and the preset {request.preset} has {of_preset:,} NPUs; allowed: the same number",
            hint="Leave one of the two out.",
        )
    return asked if of_preset is None else of_preset


def infer_job_size(request: SimulationRequest) -> JobSize:
    """Return the size of a text workload: as many NPUs as are asked of the system."""
    return replace(request.size, npus=infer_npus(request))
