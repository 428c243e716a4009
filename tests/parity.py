"""Compares the simulator with recorded answers of the reference: `python -m tests.parity FILE.jsonl.gz`.

Every case runs twice. As users get it, where one rank may stand for many: finish times, statistics, exposed
communication and each rank's own sequence of events with their ticks must be exact. And rank by rank: the same, and
the list of events in its order across all ranks. Cases in which the reference crashed or fell silent must end
in a `StudioError` within ten seconds, or, for the reasons listed below, in an answer; they are counted apart from those
that are compared.

With `--through-files` each case is written as `.et`, YAML and JSON and read back, so that the readers take part.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from studio.errors import StudioError
from studio.sim import engine, simulate
from studio.sim.config import SystemConfig
from studio.sim.result import WRAP, SimResult, compute_exposed_ns, compute_statistics
from studio.trace import Trace
from tests.golden import Record, case, records
from tests.golden_files import read_case, write_case

FAILED = ("crash", "incomplete")
ANSWERED = {
    "internal_assertion": "the reference allows no event at tick 0 and no group 0; ours runs both",
    "signal_8": "no number of splits is one split",
}
"""Reasons of a crash for which ours has an answer."""
ANSWERED_FROM_FILES = {
    **ANSWERED,
    "unknown_comm_group": "the readers take the ranks that name a group to be its members, and say so",
}
"""The same where the readers take part."""
SLOW_S = 10.0
WAYS = ("as users get it", "rank by rank")
CHUNK = 16


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        family, id, status: Of the record.
        cycles, stats, events: Whether each agrees; None where the record has none.
        problem: The first difference, "" where there is none.
        folded: Whether one rank stood for many.
        seconds: Time of trace, plan, run and comparison.
    """

    family: str
    id: str
    status: str
    cycles: bool | None = None
    stats: bool | None = None
    events: bool | None = None
    problem: str = ""
    folded: bool = False
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        return not self.problem


def events_of(result: SimResult) -> list[list[Any]]:
    """Return the events of a result as records write them."""
    kinds = ["c" if end else "i" for end in result.event_end.tolist()]
    columns = result.event_ns.tolist(), result.event_rank.tolist(), kinds, result.event_ids().tolist()
    return [list(event) for event in zip(*columns, strict=True)]


def events_by_rank(result: SimResult) -> list[list[Any]]:
    """Return each rank's own sequence of events."""
    found = []
    for rank in result.trace.ranks:
        ticks, rows, ends = result.events_of(rank.number)
        ids = result.trace.graphs[rank.graph].id[rows].tolist()
        kinds = ["c" if end else "i" for end in ends.tolist()]
        found.append([list(event) for event in zip(ticks.tolist(), kinds, ids, strict=True)])
    return found


def sorted_by_rank(events: list[list[Any]], count: int) -> list[list[Any]]:
    """Return the events of a record as `events_by_rank` does."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for tick, rank, kind, node in events:
        found[rank].append([tick, kind, node])
    return found


def first_difference(ours: list[Any], theirs: list[Any], what: str) -> str:
    """Return where two lists differ first; "" where they agree."""
    if ours == theirs:
        return ""
    for at, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"{what} {at}: ours {a}, reference {b}"
    return f"{what}: ours has {len(ours)}, the reference {len(theirs)}"


def compare(result: SimResult, expected: Record, *, across: bool) -> dict[str, str]:
    """Return the first difference in cycles, statistics and events, as far as the record has them.

    Args:
        result: Ours.
        expected: The reference's.
        across: Whether to compare the order of events across ranks too.
    """
    found = {"cycles": first_difference(result.finish_ns.tolist(), expected["cycles"], "finish of rank")}
    if "stats" in expected:
        ours: list[Any] = compute_statistics(result) or []
        told = expected["stats"]
        theirs = [told["all"]] * len(ours) if isinstance(told, dict) else told
        found["stats"] = first_difference(ours, theirs, "statistics of rank")
    if "exposed_comm" in expected:
        exposed = [value % WRAP for value in compute_exposed_ns(result).tolist()]
        difference = first_difference(exposed, expected["exposed_comm"], "exposed communication of rank")
        found["stats"] = found.get("stats") or difference
    if "events" in expected and across:
        found["events"] = first_difference(events_of(result), expected["events"], "event")
    elif "events" in expected:
        theirs = sorted_by_rank(expected["events"], len(result.finish_ns))
        pairs = zip(events_by_rank(result), theirs, strict=True)
        differences = (first_difference(*pair, f"rank {at}, event") for at, pair in enumerate(pairs))
        found["events"] = next(filter(None, differences), "")
    return found


Source = Callable[[], tuple[Trace, SystemConfig]]
"""Gives trace and configuration of a case."""


def judge(
    record: Record, *, native: bool = True, fold: bool = False, source: Source | None = None
) -> Outcome:
    """Run a case and compare.

    Args:
        record: The case.
        native: Whether to run compiled.
        fold: Whether one rank may stand for many.
        source: Where trace and configuration come from; None makes them in memory.
    """
    began = time.perf_counter()
    expected = record["expected"]
    outcome = Outcome(record["family"], record["id"], expected["status"])
    try:
        trace, config = source() if source is not None else case(record)
        result = simulate(trace, config, native=native, fold=fold)
    except StudioError as error:
        refused = outcome.status in FAILED
        outcome = replace(outcome, problem="" if refused else f"{type(error).__name__}: {error}")
    else:
        answered = ANSWERED if source is None else ANSWERED_FROM_FILES
        outcome = judged(outcome, result, expected, across=not fold, answered=answered)
        outcome = replace(outcome, folded=not result.unfolded)
    seconds = time.perf_counter() - began
    if outcome.status in FAILED and seconds > SLOW_S and not outcome.problem:
        outcome = replace(outcome, problem=f"took {seconds:.1f} s")
    return replace(outcome, seconds=seconds)


def judged(
    outcome: Outcome,
    result: SimResult,
    expected: Record,
    *,
    across: bool = True,
    answered: Mapping[str, str] = ANSWERED,
) -> Outcome:
    """Return the outcome of a case that ended in a result."""
    if outcome.status in FAILED:
        if outcome.status == "crash" and expected.get("reason") in answered:
            return outcome
        return replace(outcome, problem=f"finished, where the reference says {expected.get('reason')}")
    found = compare(result, expected, across=across)
    exact = {name: not difference for name, difference in found.items()}
    return replace(outcome, **exact, problem=next(filter(None, found.values()), ""))


def report(outcomes: Iterable[tuple[Outcome, Outcome]]) -> bool:
    """Print exact / total per family and the first difference of each failing case; returns success.

    Args:
        outcomes: Of each case as users get it, and rank by rank.
    """
    families: dict[str, list[tuple[Outcome, Outcome]]] = defaultdict(list)
    for pair in outcomes:
        families[pair[0].family].append(pair)
        for outcome, how in zip(pair, WAYS, strict=True):
            if outcome.problem:
                print(f"FAILED {outcome.family} {outcome.id}, {how}: {outcome.problem}", flush=True)
    every = [pair for pairs in families.values() for pair in pairs]
    listed = [*sorted(families.items()), ("all", every)]
    for at, how in enumerate(WAYS):
        columns = ("exact", "cycles", "stats", "events", *(() if at else ("folded",)), "failed")
        print(f"\n{how}\n{'family':28} {' '.join(f'{column:>11}' for column in columns)}")
        for name, pairs in listed:
            print(f"{name:28} {_cells([pair[at] for pair in pairs], folded=not at)}")
    failed = sum(pair[0].status in FAILED for pair in every)
    print(
        f"\n{len(every) - failed:,} cases compared; {failed:,} counted apart, of which the reference crashed or fell silent"
    )
    return bool(every) and all(outcome.exact for pair in every for outcome in pair)


def _cells(outcomes: list[Outcome], *, folded: bool) -> str:
    """Return the row of a family: of the cases compared, and last of those that the reference failed on."""
    compared = [outcome for outcome in outcomes if outcome.status not in FAILED]
    cells = [_ratio([o.exact for o in compared])]
    cells += [_ratio([getattr(o, key) for o in compared]) for key in ("cycles", "stats", "events")]
    if folded:
        cells.append(_ratio([o.folded for o in compared]))
    cells.append(_ratio([o.exact for o in outcomes if o.status in FAILED]))
    return " ".join(f"{cell:>11}" for cell in cells)


def _ratio(flags: list[bool | None]) -> str:
    known = [flag for flag in flags if flag is not None]
    return f"{sum(known)}/{len(known)}" if known else "-"


def _judge_all(chunk: list[Record], native: bool, through_files: bool) -> list[tuple[Outcome, Outcome]]:
    return [_judge_both(record, native, through_files) for record in chunk]


def _judge_both(record: Record, native: bool, through_files: bool) -> tuple[Outcome, Outcome]:
    """Judge a case as users get it, and rank by rank."""
    if not through_files:
        return judge(record, native=native, fold=True), judge(record, native=native)
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(record, Path(folder))
        # What cannot be read cannot be read twice either, so each way meets it.
        source = partial(read_case, written)
        return judge(record, native=native, fold=True, source=source), judge(
            record, native=native, source=source
        )


def _chunks(chosen: Iterable[Record]) -> Iterable[list[Record]]:
    rest = iter(chosen)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("file", type=Path, help="golden records, one JSON object per line")
    parser.add_argument("--family", help="only this family")
    parser.add_argument("--id", help="only the case with this id")
    parser.add_argument("--jobs", type=int, default=2, help="processes at work")
    parser.add_argument("--interpreted", action="store_true", help="run the engine uncompiled")
    parser.add_argument(
        "--public", action="store_true", help="compile as with an unknown release of numba, for a minute"
    )
    parser.add_argument(
        "--through-files", action="store_true", help="write each case as files and read these back"
    )
    options = parser.parse_args(arguments)
    if options.public:
        engine.compiles_fast = lambda: False
    chosen = (
        record
        for record in records(options.file)
        if options.family in (None, record["family"]) and options.id in (None, record["id"])
    )
    work = partial(_judge_all, native=not options.interpreted, through_files=options.through_files)
    if options.jobs <= 1:
        return 0 if report(outcome for chunk in _chunks(chosen) for outcome in work(chunk)) else 1
    if not options.interpreted:
        # Once here, not once in every process.
        engine.load_kernel()
    with ProcessPoolExecutor(options.jobs) as pool:
        done = report(outcome for outcomes in pool.map(work, _chunks(chosen)) for outcome in outcomes)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
