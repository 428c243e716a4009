"""Make every change, simulate it, and keep what saves; then find the best set of at most three."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from studio.advice import compute, schedule, sizes
from studio.advice.advice import KINDS, NODES_NAMED, Advice, Advised, Baseline, Change, Kind, Progress, Sensitivity
from studio.advice.baseline import Cancelled, Scene, family_scene, replay_scene, system_scene
from studio.advice.candidates import Candidate, Found, Refusal
from studio.errors import StudioError
from studio.sim.parts import Parts
from studio.trace import Trace

_OF_JOB: tuple[Callable[[Scene], Iterator[Found]], ...] = (
    sizes.balanced_sizes,
    compute.slow_ranks,
    compute.equal_arrivals,
    compute.faster_stages,
    compute.host_gaps,
    schedule.earlier,
    schedule.merged,
)
_COMBINED = 6
"""How many of the best changes are combined with each other."""
_COMBINED_LARGE = 3
_LARGE = 300_000
"""From so many nodes on fewer changes are combined."""
_SET = 3


@dataclass(slots=True)
class _Search:
    """Simulations of changes, counted.

    Attributes:
        progress, cancel: As `advise` got them.
        done, total: Simulations made, and how many there will be as far as is known.
        refused: Kinds that could not be simulated, with the first reason.
    """

    progress: Progress | None
    cancel: Callable[[], bool] | None
    done: int = 0
    total: int = 1
    refused: dict[Kind, str] = field(default_factory=dict)

    def tick(self) -> None:
        """Note that a simulation is done."""
        self.done += 1
        self.total = max(self.total, self.done)
        if self.progress:
            self.progress(self.done, self.total)
        if self.cancel is not None and self.cancel():
            raise Cancelled

    def saving_ns(self, scene: Scene, kind: Kind, change: Change) -> int | None:
        """Return what a change saves; None, with the reason noted, where it cannot be simulated."""
        try:
            finish = scene.finish_ns(change, self.cancel)
        except StudioError as error:
            self.refused.setdefault(kind, error.message)
            return None
        finally:
            self.tick()
        return scene.baseline.finish_ns - finish

    def simulated(self, scene: Scene, candidates: Iterable[Found]) -> list[tuple[Candidate, Advice]]:
        """Return the advice of the candidates that save something."""
        found = []
        listed = []
        for one in candidates:
            if isinstance(one, Refusal):
                self.refused.setdefault(one.kind, one.reason)
            else:
                listed.append(one)
        self.total += len(listed)
        for candidate in listed:
            saving = self.saving_ns(scene, candidate.kind, candidate.change)
            if saving is not None and saving > 0:
                found.append((candidate, _advice(scene, candidate, saving)))
        return found


def find_advice(
    trace: Trace, system: Parts | None, *, progress: Progress | None, cancel: Callable[[], bool] | None
) -> Advised:
    """Do the work of `advise`."""
    search = _Search(progress, cancel)
    scene = replay_scene(trace, cancel) if system is None else system_scene(trace, system, cancel)
    search.tick()
    found = search.simulated(scene, (candidate for make in _OF_JOB for candidate in make(scene)))
    combined = _combine(search, scene, found)
    advice = sorted((item for _, item in found), key=_order)
    return Advised(
        scene.baseline,
        tuple(advice),
        combined,
        (),
        tuple(sorted(search.refused.items())),
        search.done,
    )


def _order(item: Advice) -> tuple[float, int, str]:
    return -item.saving_ns, KINDS.index(item.kind), item.action


def _advice(scene: Scene, candidate: Candidate, saving: int, parts: tuple[Kind, ...] = ()) -> Advice:
    low, high = _range(scene.baseline, saving)
    return Advice(
        candidate.kind,
        candidate.action,
        candidate.collective,
        candidate.group,
        candidate.ranks,
        candidate.nodes[:NODES_NAMED],
        saving,
        100 * saving / max(scene.baseline.finish_ns, 1),
        low,
        high,
        candidate.change,
        scene.baseline.finish_ns,
        parts=parts,
    )


def _range(baseline: Baseline, saving: int) -> tuple[int | None, int | None]:
    """Return what a saving may be as well where the model misses the recording: by so much either way, at least nothing."""
    if not baseline.misses or baseline.recorded_ns is None:
        return None, None
    off = abs(baseline.finish_ns - baseline.recorded_ns)
    return max(saving - off, 0), min(saving + off, baseline.recorded_ns)


def _combine(search: _Search, scene: Scene, found: Sequence[tuple[Candidate, Advice]]) -> Advice | None:
    """Return the set of two or three changes that saves most; None where none saves more than the best change alone."""
    ranked = sorted(found, key=lambda pair: _order(pair[1]))
    best = ranked[: _COMBINED_LARGE if scene.trace.node_count > _LARGE else _COMBINED]
    sets = [
        chosen
        for count in range(2, _SET + 1)
        for chosen in combinations(best, count)
        if _apart([candidate for candidate, _ in chosen])
    ]
    search.total += len(sets)
    most: tuple[int, tuple[tuple[Candidate, Advice], ...]] | None = None
    for chosen in sets:
        change = sum((candidate.change for candidate, _ in chosen), Change())
        saving = search.saving_ns(scene, "combined", change)
        if saving is not None and (most is None or saving > most[0]):
            most = saving, chosen
    if most is None or most[0] <= ranked[0][1].saving_ns:
        return None
    saving, chosen = most
    candidates = [candidate for candidate, _ in chosen]
    joined = Candidate(
        "combined",
        "Together: " + " ".join(f"({index}) {item.action}" for index, item in enumerate(candidates, start=1)),
        sum((candidate.change for candidate in candidates), Change()),
        frozenset().union(*(candidate.levers for candidate in candidates)),
        ranks=tuple(sorted({rank for item in candidates for rank in item.ranks})),
        nodes=tuple(node for item in candidates for node in item.nodes),
    )
    return _advice(scene, joined, saving, tuple(candidate.kind for candidate in candidates))


def _apart(candidates: Sequence[Candidate]) -> bool:
    """Whether no two changes pull the same lever."""
    count = sum(len(candidate.levers) for candidate in candidates)
    return len(frozenset().union(*(candidate.levers for candidate in candidates))) == count
