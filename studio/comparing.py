"""Compare runs: recordings and simulations with times and settings, each with the first.

A recording is a job whose files hold times; a simulation is a run that was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from studio.analysis.compare.runs import Comparison, compare
from studio.analysis.compare.sides import Side, build_recorded_side
from studio.analysis.job.completeness import describe_assumed
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.occupancy import Occupancy, compute_occupancy
from studio.analysis.job.summary import Summary, summarise
from studio.doctor import Examination
from studio.doctor.believed import explain_time_doubt
from studio.errors import StudioError
from studio.sim.compared import build_side
from studio.sim.doubt import Doubt
from studio.sim.parts import Parts
from studio.sim.setting_values import SettingValue, collect_settings, describe_values, differ
from studio.store.run_infos import RunInfo
from studio.store.runs import Run
from studio.timeline import NodeTimes, collect_recorded_times, recorded
from studio.trace import Trace, list_recorded_devices

Progress = Callable[[str, int, int], None]
RECORDED = "recorded"
"""What stands for a recording where a run could be named."""
SIDES_AT_MOST = 8
LETTERS = "ABCDEFGH"
_BINS = 480
"""Into how many parts a run is cut to show what the ranks did over time."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One side of a comparison.

    Attributes:
        name: What to call it; untrusted text.
        side: Its trace and times.
        settings: What is known of how it came about.
        job, run: Ids in the workspace, `RECORDED` for a recording; "" where it came from files.
        system: The tables of what it was simulated on; None for a recording.
        doubts: Why a simulation is not to be believed as it stands.
        check: Why a recording is not, by its check, in a line; "" where that finds nothing, None where it was not asked.
        slower_way: Which of its collectives a library would not carry out in the quickest way, as `RunInfo` says it.
    """

    name: str
    side: Side
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    job: str = ""
    run: str = RECORDED
    system: Parts | None = None
    doubts: tuple[Doubt, ...] = ()
    check: str | None = None
    slower_way: str = ""


@dataclass(frozen=True, slots=True)
class Lineup:
    """Runs compared with the first of them.

    Attributes:
        sides: Two or more.
        comparisons: Each but the first, compared with it.
    """

    sides: tuple[Compared, ...]
    comparisons: tuple[Comparison, ...]

    def partners(self, side: int, rank: int, row: int) -> list[tuple[int, int] | None]:
        """Find a side's node on every side, as place of its rank and row; None if absent."""
        first: tuple[int, int] | None = (rank, row)
        if side:
            first = self.comparisons[side - 1].alignment.partner_back(rank, row)
        if first is None:
            return [(rank, row) if index == side else None for index in range(len(self.sides))]
        return [first, *(comparison.alignment.partner(*first) for comparison in self.comparisons)]


def with_check(side: Compared, known: Examination | None) -> Compared:
    """Return a recording with what its check says of its times; a simulation tells its doubts itself.

    Args:
        side: A recording or a simulation.
        known: What came of examining the job, None where it was not yet: then it is examined as far as that is cheap.
    """
    if not side.side.is_recording or side.check is not None:
        return side
    return replace(side, check=explain_time_doubt(side.side.trace, known))


def build_lineup(sides: Sequence[Compared], progress: Progress | None = None) -> Lineup:
    """Compare each run with the first."""
    return Lineup(tuple(sides), tuple(compare_sides(sides, progress)))


def compare_sides(sides: Sequence[Compared], progress: Progress | None = None) -> list[Comparison]:
    """Compare each run with the first; `progress` gets the number done."""
    compared = []
    for done, other in enumerate(sides[1:]):
        if progress:
            progress("comparing", done, len(sides) - 1)
        compared.append(compare(sides[0].side, other.side))
    if progress and compared:
        progress("comparing", len(compared), len(compared))
    return compared


def compute_side_use(side: Side) -> tuple[Ledger, Occupancy]:
    """Return where the time of each rank of a run went, and the activity over time."""
    account = side.ledger()
    return account, compute_occupancy(account, _BINS)


def build_compared_recording(
    trace: Trace,
    name: str,
    summary: Summary | None = None,
    job: str = "",
    times: NodeTimes | None = None,
) -> Compared:
    """Return a recording as a side of a comparison; `times` avoids reading them from the trace again.

    Raises:
        TraceError: The job holds no times.
    """
    side = build_recorded_side(
        trace, collect_recorded_times(trace, recorded(trace)) if times is None else times
    )
    return Compared(name, side, {"times": SettingValue("recorded"), **_collect_facts(trace, summary)}, job)


def build_simulated_side(
    run: Run, info: RunInfo, summary: Summary | None = None, job_name: str = ""
) -> Compared:
    """Return a simulation as a side of a comparison."""
    result = run.result
    side = build_side(result)
    facts = _collect_facts(result.trace, summary)
    known = {"times": SettingValue("simulated"), **facts, **collect_settings(info.tables)}
    name = f"{job_name} · {info.label}" if job_name else info.label
    return Compared(name, side, known, info.job, info.id, run.parts, info.doubts, slower_way=info.slower_way)


def note_program_change(side: Compared, change: str) -> Compared:
    """Return a side whose settings say what was changed of its program; the side itself where that is nothing."""
    return replace(side, settings={**side.settings, "change": SettingValue(change)}) if change else side


def _collect_facts(trace: Trace, known: Summary | None) -> dict[str, SettingValue]:
    """Return figures of a job that differ between jobs."""
    summary = known or summarise(trace)
    assumed = describe_assumed(trace)
    devices = list_recorded_devices(trace)
    facts = {
        **({"device": SettingValue(", ".join(devices))} if devices else {}),
        "ranks": SettingValue(summary.ranks, "things"),
        **({"ranks assumed": SettingValue(assumed)} if assumed else {}),
        "nodes": SettingValue(summary.nodes, "things"),
        "operations": SettingValue(summary.operations, "things"),
        "schema": SettingValue(", ".join(summary.schema)),
    }
    for collective in summary.collectives:
        facts[f"{collective.name} nodes"] = SettingValue(collective.nodes, "things")
        if collective.bytes:  # 0 where no size is recorded
            facts[f"{collective.name} bytes"] = SettingValue(collective.bytes, "bytes")
    return facts


@contextmanager
def name_in_errors(name: str) -> Iterator[None]:
    """Prefix errors with the name of the run, unless they contain it."""
    try:
        yield
    except StudioError as error:
        if name in error.message:
            raise
        # The same error, since some kinds of it are made of more than a message.
        error.message = f"{name}: {error.message}"
        raise


def build_settings_table(
    sides: Sequence[Compared], *, differing: bool = True
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each setting with every side's value, rounded and exact; "" if a side lacks it.

    Args:
        sides: The runs.
        differing: Whether only those that differ, by their exact values, or all.
    """
    keys = dict.fromkeys(key for side in sides for key in side.settings)
    rows = [(key, [side.settings.get(key) for side in sides]) for key in keys]
    return [(key, describe_values(values)) for key, values in rows if not differing or differ(values)]
