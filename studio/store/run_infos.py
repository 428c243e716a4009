"""What a list of runs shows: `run.json`, read without what a simulation needs, so that thousands are listed at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from studio.decoding import build_decoder
from studio.notebook import format_record
from studio.sim.config import Congestion
from studio.sim.doubt import Cured, Doubt
from studio.sim.models import label_system_model
from studio.sim.parts import Mode, Parts
from studio.store.durable_files import Damaged, convert_damage, read_sealed

LAYOUT = 1


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Summary of a run.

    Attributes:
        first_finish_ns: When the first rank finished.
        events: Events that are kept: those of the ranks that were simulated.
        means: Means over ranks in ns, of parts and what is made of them: see `analysis.job.ledger.PartTimes.columns`.
            Empty in runs that an earlier release stored: its figures were defined otherwise.
    """

    first_finish_ns: int
    events: int
    means: Mapping[str, float] = field(default_factory=dict)

    __repr__ = format_record

    @property
    def exposed_ns(self) -> float | None:
        """Exposed communication of a rank in the mean, None where an earlier release stored the run."""
        return self.means.get("exposed_communication_ns")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as lists show it.

    Attributes:
        id: Its folder and its part in addresses.
        job: Id of the job that was simulated.
        name: What the user calls it; untrusted text.
        created: When it was stored, seconds since the epoch.
        tables: The system, in ASTRA-sim's keys.
        mode: Whether the reference's answers were asked for, or more.
        congestion: Which network model.
        npus: Ranks of the job.
        simulated: Ranks that were simulated, each for a class of equal ones.
        makespan_ns: When the last rank finished.
        summary: The outcome in a few numbers.
        spent_s: How long the simulation took.
        stored_bytes: Space it takes in the workspace.
        trace_hash, config_hash: Equal for equal traces, and for equal configurations.
        version: The studio that simulated.
        bytes_per_ns: The exact rate of each dimension.
        custom: Names of the algorithms given as traces.
        doubts: Why the answer is not to be believed as it stands, with cures.
        cures: The doubtful run that this one was started as the cure of; None where it is none.
        assumed: Which ranks of the job were not recorded, in words; "" where all were.
        slower_way: Which collectives a library would not carry out in the quickest way, and why; "" where that matters little.
        layout: Version of the folder's layout.
    """

    id: str
    job: str
    name: str
    created: float
    tables: Parts
    mode: Mode
    congestion: Congestion
    npus: int
    simulated: int
    makespan_ns: int
    summary: RunSummary
    spent_s: float
    stored_bytes: int
    trace_hash: str
    config_hash: str
    version: str
    bytes_per_ns: tuple[float, ...]
    custom: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    cures: Cured | None = None
    assumed: str = ""
    slower_way: str = ""
    layout: int = LAYOUT

    __repr__ = format_record

    @property
    def model(self) -> str:
        """The model that was simulated, as `studio.sim.models` names it; runs of different ones are never ranked."""
        return label_system_model(self.tables)

    @property
    def label(self) -> str:
        """Its name, with its model unless the name says it."""
        return self.name if self.model in self.name else f"{self.name} · {self.model}"


def read_info(folder: Path) -> RunInfo:
    """Read the list entry of a run.

    Raises:
        Damaged: There is none, it is damaged, or a newer studio has written it.
    """
    with convert_damage():
        raw = read_sealed(folder / "run.json")
        layout = _layout(raw).layout
        if layout > LAYOUT:
            raise Damaged("a newer Chakra Studio has stored it")
        return _info(raw)


class _Layout(msgspec.Struct):
    """The fields that every version of run.json has."""

    layout: int = LAYOUT


_layout = build_decoder(_Layout)
_info = build_decoder(RunInfo)
