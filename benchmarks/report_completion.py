"""Hold completed and scaled jobs against whole ones, and replays of single recordings against their steps.

    python -m benchmarks.report_completion shared/traces docs/accuracy.md

Of every job with several ranks one rank per pipeline stage is kept, the job completed, and both simulated on the same system. The
tables take the place of the part of the report between its two marks; the rest of it stays.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import studio
from benchmarks.sections import replace_section
from studio.analysis.job.completeness import infer_completeness, is_recording
from studio.analysis.job.step_times import step_times
from studio.calibration.machines import match_system
from studio.completion import Mesh, Spread, complete, list_layouts
from studio.completion.measured import measure_compute_ns
from studio.completion.scale import scale
from studio.errors import StudioError
from studio.sim import simulate
from studio.sim.config import RemoteMemory
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.replays import as_replay, build_idle_system
from studio.sim.result import SimResult, compute_ledger
from studio.trace import NodeType, Rank, Trace, group_slots, read_dense_column

SYSTEM = "hgx-h100"
BEGIN, END = "<!-- completion: begin -->", "<!-- completion: end -->"
JOBS = ("stg", "stg_scale", "torch", "torch_synthetic_device", "torch_racy")
SAMPLES = ("imbalance_8r", "transformer_8r", "transformer_32r")
_MEMORY = RemoteMemory("per_npu", 1000, 100.0)
"""What nodes load from and store to, where a job has such nodes: 1 µs and 100 GB/s each."""
_APART = 0.05
"""Ranks of a balanced stage compute equally long within this."""
_SCALED = (
    ("llama_8r_dp2tp2pp2", "llama_16r_dp4tp2pp2", 4),
    ("llama_8r_dp2tp2pp2", "llama_32r_dp8tp2pp2", 8),
    ("llama_4r_dp2tp2_fsdp", "llama_16r_dp8tp2_fsdp", 8),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A job, completed from few of its ranks.

    Attributes:
        name: The job.
        whole: It.
        kept: The ranks that were kept.
        balanced: Why it is not balanced; "" where it is.
        equal: Whether all collectives of the completed job are those of the whole one; None where it was not made.
        error: How much longer it takes, as a share.
        unlisted: The same without the list of comm groups; None for jobs without one.
        host: How much longer one rank spends on the host than another, as a share of the finish: what balance does not count.
        measured: The same with imbalance measured on the lightest and the heaviest rank; None for balanced jobs.
        ends: Of that the error of the latest finish of these two ranks.
        refused: Why it was not completed.
    """

    name: str
    whole: Trace
    kept: tuple[int, ...]
    balanced: str
    host: float = 0.0
    equal: bool | None = None
    error: float = float("nan")
    unlisted: float | None = None
    measured: float | None = None
    ends: float | None = None
    refused: str = ""


def main(traces: Path, target: Path) -> None:
    """Write the tables into the report."""
    lines = [
        "## Completed and scaled jobs",
        "",
        f"Made by `python -m benchmarks.report_completion traces {target.name}`; not edited. Simulated on {SYSTEM}, sized by the job.",
        "",
        *_held_out([*_jobs(traces)]),
        *_scaled(traces / "stg_scale"),
        *_foreign(traces / "foreign"),
    ]
    replace_section(target, (BEGIN, END), lines)


def _jobs(traces: Path) -> Iterator[tuple[str, Trace]]:
    for folder in JOBS:
        for path in sorted((traces / folder).iterdir()):
            if path.is_dir() or path.name.endswith(".tar.xz"):
                job = studio.read(path)
                if len(job.ranks) > 1:
                    yield f"{folder}/{path.name.removesuffix('.tar.xz')}", job
    for name in SAMPLES:
        yield f"sample {name}", studio.read(studio.sample_path(name))


# ---------------------------------------------------------------------------------------------------
# Held out


def _held_out(jobs: Sequence[tuple[str, Trace]]) -> Iterator[str]:
    rows = [_row(name, job) for name, job in jobs]
    yield "### Completed from one rank per pipeline stage"
    yield ""
    yield (
        "*Balanced*: within a pipeline stage all ranks have equal counts and bytes per collective, and compute within 5 %. The error "
        "is that of the finish; asked of balanced jobs are 2 %, of recorded ones 5 %."
    )
    yield ""
    yield "| job | ranks | kept | collectives equal | error | without the list of groups | asked | met |"
    yield "| --- | ---: | --- | --- | ---: | ---: | ---: | --- |"
    missed: list[Row] = []
    for row in rows:
        if not row.balanced:
            asked = 0.05 if is_recording(row.whole) else 0.02
            errors = [error for error in (row.error, row.unlisted) if error is not None]
            met = bool(row.equal) and all(abs(error) <= asked for error in errors)
            yield (
                f"| `{row.name}` | {len(row.whole.ranks)} | {_listed(row.kept)} | {_equal(row)} | {_percent(row.error)} "
                f"| {_percent(row.unlisted)} | {100 * asked:.0f} % | {'yes' if met else 'no'} |"
            )
            if not met:
                missed.append(row)
    yield ""
    for row in missed:
        yield (
            f"`{row.name}` misses: one rank spends {100 * row.host:.1f} % of the finish longer on the host than another, which is no "
            "compute and which the kept rank tells only by its waiting; ranks that are late in turn make each other wait."
        )
        yield ""
    yield "### Jobs that are not balanced"
    yield ""
    yield (
        "Of how ranks differ one rank tells only how long it waited for others inside collectives: its copies come as much "
        "later. *Measured*: the lightest and the heaviest rank are kept, and `--imbalance measured` draws the others between "
        "them; asked is half the error. Of two ranks both are kept then. *Those kept*: the same error of the later finish of these "
        "two ranks. Where it is small and the other is not, a rank that was not kept goes on after the last collective for longer "
        "than others, which shows on no other rank."
    )
    yield ""
    yield "| job | ranks | why | kept | collectives equal | error | measured | halved | those kept |"
    yield "| --- | ---: | --- | --- | --- | ---: | ---: | --- | ---: |"
    for row in rows:
        if row.balanced:
            halved = row.measured is not None and abs(row.measured) <= abs(row.error) / 2
            yield (
                f"| `{row.name}` | {len(row.whole.ranks)} | {row.balanced} | {_listed(row.kept)} | {_equal(row)} "
                f"| {_percent(row.error)} | {_percent(row.measured)} | {'yes' if halved else 'no'} "
                f"| {_percent(row.ends)} |"
            )
    yield ""


def _row(name: str, whole: Trace) -> Row:
    mesh = list_layouts(whole)[0]
    result = _simulated(whole)
    why = _unbalanced(whole, mesh, result)
    first: dict[int, Rank] = {}
    for rank in whole.ranks:
        first.setdefault(mesh.stage(rank.number), rank)
    kept = tuple(rank.number for rank in first.values())
    host = compute_ledger(result).totals().of("host")
    row = Row(name, whole, kept, why, float(host.max() - host.min()) / result.makespan_ns)
    try:
        made = complete(_only(whole, kept), first=True)
    except StudioError as error:
        return replace(row, equal=None, refused=str(error))
    row = replace(row, equal=_exchanged(made) == _exchanged(whole), error=_off(made, result), unlisted=None)
    listed = any(not group.inferred for group in whole.groups) and not is_recording(whole)
    if listed:
        bare = replace(_only(whole, kept), groups=())
        row = replace(row, unlisted=_off(complete(bare, layout=mesh.layout), result))
    if why:
        ends = {number for stage in first for number in _ends(whole, mesh, stage)}
        drawn = complete(_only(whole, ends), first=True, spread=Spread(imbalance="measured"))
        again = _simulated(drawn)
        kept_finish = [max(int(run.finish_ns[number]) for number in ends) for run in (again, result)]
        row = replace(
            row,
            measured=again.makespan_ns / result.makespan_ns - 1,
            ends=kept_finish[0] / kept_finish[1] - 1,
        )
    return row


def _only(whole: Trace, numbers: Sequence[int] | set[int]) -> Trace:
    return replace(whole, ranks=tuple(rank for rank in whole.ranks if rank.number in numbers))


def _ends(whole: Trace, mesh: Mesh, stage: int) -> tuple[int, int]:
    """Return the lightest and the heaviest rank of a stage."""
    work = {
        rank.number: measure_compute_ns(whole.graph_of(rank))
        for rank in whole.ranks
        if mesh.stage(rank.number) == stage
    }
    return min(work, key=lambda number: work[number]), max(work, key=lambda number: work[number])


def _unbalanced(whole: Trace, mesh: Mesh, result: SimResult) -> str:
    """Return why a job is not balanced; "" where it is."""
    times = compute_ledger(result).totals()
    compute = dict(
        zip(
            (rank.number for rank in whole.ranks),
            (times.of("compute") + times.of("overlapped")).tolist(),
            strict=True,
        )
    )
    stages: dict[int, list[Rank]] = defaultdict(list)
    for rank in whole.ranks:
        stages[mesh.stage(rank.number)].append(rank)
    why = []
    uneven = any(len({_sizes(whole, rank) for rank in ranks}) > 1 for ranks in stages.values())
    if uneven:
        why.append("bytes of collectives differ")
    apart = max(
        max(own) / max(min(own), 1) - 1
        for own in ([compute[rank.number] for rank in ranks] for ranks in stages.values())
    )
    if apart > _APART:
        why.append(f"compute differs by {100 * apart:.1f} %")
    return ", ".join(why)


def _sizes(whole: Trace, rank: Rank) -> frozenset[tuple[tuple[int, int], int]]:
    """Return how often a rank has collectives of each type, and their bytes."""
    graph = whole.graph_of(rank)
    rows = np.flatnonzero(graph.type == NodeType.COMM_COLL)
    kinds, sizes = (
        read_dense_column(graph, "comm_type", -1)[rows],
        read_dense_column(graph, "comm_size", -1)[rows],
    )
    return frozenset(Counter(zip(kinds.tolist(), sizes.tolist(), strict=True)).items())


def _exchanged(trace: Trace) -> Counter[tuple[object, ...]]:
    """Return how often ranks take part in what: members of the group, type and bytes."""
    members = {group.name: tuple(sorted(group.ranks)) for group in trace.groups}
    found: Counter[tuple[object, ...]] = Counter()
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        slots = group_slots(graph)
        kinds, sizes = read_dense_column(graph, "comm_type", -1), read_dense_column(graph, "comm_size", -1)
        for row in np.flatnonzero(graph.type == NodeType.COMM_COLL).tolist():
            name = str(rank.slots[slots[row]]) if slots[row] >= 0 else ""
            found[members.get(name, name), int(kinds[row]), int(sizes[row])] += 1
    return found


# ---------------------------------------------------------------------------------------------------
# Scaled


def _scaled(folder: Path) -> Iterator[str]:
    yield "### Scaled by `--dp`"
    yield ""
    yield "The smaller job, scaled, against the one that was made at the larger size."
    yield ""
    yield "| from | to | nodes equal | operations equal | collectives and bytes equal | error of the finish |"
    yield "| --- | --- | --- | --- | --- | ---: |"
    for small, large, dp in _SCALED:
        whole = studio.read(folder / f"{large}.tar.xz")
        made = scale(studio.read(folder / f"{small}.tar.xz"), dp=dp)
        nodes, operations = made.node_count == whole.node_count, _operations(made) == _operations(whole)
        equal = _exchanged(made) == _exchanged(whole)
        error = _off(made, _simulated(whole))
        yield f"| `{small}` | `{large}` | {_yes(nodes)} | {_yes(operations)} | {_yes(equal)} | {_percent(error)} |"
    yield ""


def _operations(trace: Trace) -> int:
    return sum(int(read_dense_column(trace.graph_of(rank), "num_ops", 0).sum()) for rank in trace.ranks)


# ---------------------------------------------------------------------------------------------------
# Recordings of one rank, by others


def _foreign(folder: Path) -> Iterator[str]:
    yield "### Public recordings of single ranks"
    yield ""
    yield (
        "Completed where the recording says that there are more ranks, and simulated on the system that has the recorded device. "
        "The step is that of the recording (its marks, else the whole), replayed with recorded times; asked are 2 %."
    )
    yield ""
    yield "| recording | ranks | completed | system | finish | steps | largest error of a replayed step | met |"
    yield "| --- | ---: | --- | --- | ---: | ---: | ---: | --- |"
    for path in sorted(folder.iterdir()):
        if path.suffix != ".md":
            yield _foreign_row(path)
    yield ""


def _foreign_row(path: Path) -> str:
    job = studio.read(path)
    size = infer_completeness(job).world
    made = complete(job, first=True) if size > len(job.ranks) else job
    device = next((str(item.value) for item in job.ranks[0].metadata if item.name == "device_name"), "")
    system = match_system(device)
    if size == 1:
        config, name = interpret(build_idle_system(1)).config, "one NPU, no network"
    elif system is None:
        return f"| `{path.name}` | {size} | yes | none has the device {device or '(not told)'} | – | – | – | no |"
    else:
        config, name = preset(system.name, size).config, system.name
    finish = simulate(made, config).makespan_ns
    replayed = simulate(job, interpret(as_replay(build_idle_system(size))).config)
    steps = [step for step in step_times(replayed.trace, replayed.node_times()) if step.recorded_ns]
    worst = max((step.difference for step in steps), key=abs, default=float("nan"))
    completed = f"{size - len(job.ranks)} ranks assumed" if size > 1 else "whole"
    return (
        f"| `{path.name}` | {size} | {completed} | {name} | {finish / 1e6:,.2f} ms | {len(steps)} | {_percent(worst)} "
        f"| {_yes(abs(worst) <= 0.02)} |"
    )


# ---------------------------------------------------------------------------------------------------
# Words


def _simulated(trace: Trace) -> SimResult:
    return simulate(trace, replace(preset(SYSTEM, len(trace.ranks)).config, remote_memory=_MEMORY))


def _off(made: Trace, whole: SimResult) -> float:
    return _simulated(made).makespan_ns / whole.makespan_ns - 1


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _equal(row: Row) -> str:
    return row.refused.replace("|", "/") if row.equal is None else _yes(row.equal)


def _yes(what: bool) -> str:
    return "yes" if what else "no"


def _percent(share: float | None) -> str:
    return "–" if share is None or np.isnan(share) else f"{100 * share:+.2f} %"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
