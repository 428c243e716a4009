"""Compares the simulator with recorded answers of the reference: `python -m tests.parity FILE.jsonl.gz`.

Every case the reference finished must be exact: finish times, statistics, exposed communication, and the
list of events in its order across all ranks. Cases in which it crashed or fell silent must end in a
`StudioError` within ten seconds, or, for the reasons listed below, in an answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from studio.errors import StudioError
from studio.sim import simulate
from studio.sim.result import WRAP, SimResult, exposed_ns, statistics
from tests.golden import Record, case, records

FAILED = ("crash", "incomplete")
ANSWERED = {
    "internal_assertion": "the reference allows no event at tick 0 and no group 0; ours runs both",
    "signal_8": "no number of splits is one split",
}
"""Reasons of a crash for which ours has an answer."""
SLOW_S = 10.0
CHUNK = 16


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        family, id, status: Of the record.
        cycles, stats, events: Whether each agrees; None where the record has none.
        problem: The first difference, "" where there is none.
        seconds: Time of trace, plan, run and comparison.
    """

    family: str
    id: str
    status: str
    cycles: bool | None = None
    stats: bool | None = None
    events: bool | None = None
    problem: str = ""
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        return not self.problem


def events_of(result: SimResult) -> list[list[Any]]:
    """Return the events of a result as records write them."""
    kinds = ["c" if end else "i" for end in result.event_end.tolist()]
    columns = result.event_ns.tolist(), result.event_rank.tolist(), kinds, result.event_ids().tolist()
    return [list(event) for event in zip(*columns, strict=True)]


def first_difference(ours: list[Any], theirs: list[Any], what: str) -> str:
    """Return where two lists differ first; "" where they agree."""
    if ours == theirs:
        return ""
    for at, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"{what} {at}: ours {a}, reference {b}"
    return f"{what}: ours has {len(ours)}, the reference {len(theirs)}"


def compare(result: SimResult, expected: Record) -> dict[str, str]:
    """Return the first difference in cycles, statistics and events, as far as the record has them."""
    found = {"cycles": first_difference(result.finish_ns.tolist(), expected["cycles"], "finish of rank")}
    if "stats" in expected:
        ours: list[Any] = statistics(result) or []
        told = expected["stats"]
        theirs = [told["all"]] * len(ours) if isinstance(told, dict) else told
        found["stats"] = first_difference(ours, theirs, "statistics of rank")
    if "exposed_comm" in expected:
        exposed = [value % WRAP for value in exposed_ns(result).tolist()]
        difference = first_difference(exposed, expected["exposed_comm"], "exposed communication of rank")
        found["stats"] = found.get("stats") or difference
    if "events" in expected:
        found["events"] = first_difference(events_of(result), expected["events"], "event")
    return found


def judge(record: Record, *, native: bool = True) -> Outcome:
    """Run a case and compare."""
    began = time.perf_counter()
    expected = record["expected"]
    outcome = Outcome(record["family"], record["id"], expected["status"])
    try:
        trace, config = case(record)
        result = simulate(trace, config, native=native)
    except StudioError as error:
        refused = outcome.status in FAILED
        outcome = replace(outcome, problem="" if refused else f"{type(error).__name__}: {error}")
    else:
        outcome = judged(outcome, result, expected)
    seconds = time.perf_counter() - began
    if outcome.status in FAILED and seconds > SLOW_S and not outcome.problem:
        outcome = replace(outcome, problem=f"took {seconds:.1f} s")
    return replace(outcome, seconds=seconds)


def judged(outcome: Outcome, result: SimResult, expected: Record) -> Outcome:
    """Return the outcome of a case that ended in a result."""
    if outcome.status in FAILED:
        if outcome.status == "crash" and expected.get("reason") in ANSWERED:
            return outcome
        return replace(outcome, problem=f"finished, where the reference says {expected.get('reason')}")
    found = compare(result, expected)
    exact = {name: not difference for name, difference in found.items()}
    return replace(outcome, **exact, problem=next(filter(None, found.values()), ""))


def report(outcomes: Iterable[Outcome]) -> bool:
    """Print exact / total per family and the first difference of each failing case; returns success."""
    families: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        families[outcome.family].append(outcome)
        if outcome.problem:
            print(f"FAILED {outcome.family} {outcome.id}: {outcome.problem}", flush=True)
    print(f"{'family':28} {'exact':>11} {'cycles':>11} {'stats':>11} {'events':>11} {'refused':>11}")
    every = [outcome for outcomes in families.values() for outcome in outcomes]
    for name, listed in [*sorted(families.items()), ("all", every)]:
        cells = [_ratio([o.exact for o in listed])]
        cells += [_ratio([getattr(o, key) for o in listed]) for key in ("cycles", "stats", "events")]
        cells.append(_ratio([o.exact for o in listed if o.status in FAILED]))
        print(f"{name:28} " + " ".join(f"{cell:>11}" for cell in cells))
    return bool(every) and all(outcome.exact for outcome in every)


def _ratio(flags: list[bool | None]) -> str:
    known = [flag for flag in flags if flag is not None]
    return f"{sum(known)}/{len(known)}" if known else "-"


def _judge_all(chunk: list[Record], native: bool) -> list[Outcome]:
    return [judge(record, native=native) for record in chunk]


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
    options = parser.parse_args(arguments)
    chosen = (
        record
        for record in records(options.file)
        if options.family in (None, record["family"]) and options.id in (None, record["id"])
    )
    work = partial(_judge_all, native=not options.interpreted)
    if options.jobs <= 1:
        return 0 if report(outcome for chunk in _chunks(chosen) for outcome in work(chunk)) else 1
    if not options.interpreted:
        from studio.sim.engine import compiled

        # Once here, not once in every process.
        compiled()
    with ProcessPoolExecutor(options.jobs) as pool:
        done = report(outcome for outcomes in pool.map(work, _chunks(chosen)) for outcome in outcomes)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
