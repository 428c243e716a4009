"""Make every change, simulate it, and keep what saves; then find the best set of at most three."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from studio.advice import attained, compute, interleaving, pipeline, schedule, sizes, system
from studio.advice.baseline import Cancelled, Scene, replay_recording, simulate_on_family, simulate_on_system
from studio.advice.candidates import WHOLE_JOB, Candidate, Found, Refusal
from studio.advice.terms import (
    KINDS,
    NODES_NAMED,
    OF_SYSTEM,
    Advice,
    Advised,
    Baseline,
    Change,
    Kind,
    Progress,
    Sensitivity,
)
from studio.errors import StudioError
from studio.sim.doubts import explain_impossible
from studio.sim.models import get_model
from studio.sim.parts import Parts
from studio.trace import Trace

_OF_JOB: tuple[Callable[[Scene], Iterator[Found]], ...] = (
    sizes.propose_balanced_sizes,
    compute.propose_faster_ranks,
    compute.propose_equal_arrivals,
    attained.propose_faster_collectives,
    compute.propose_faster_stages,
    compute.propose_no_host_gaps,
    schedule.propose_overlap,
    schedule.propose_merging,
    pipeline.propose_pipelines,
    interleaving.propose_interleaving,
)
_OF_SYSTEM: tuple[Callable[[Scene, system.Finish], Iterator[Found | Sensitivity]], ...] = (
    system.propose_rates,
    system.propose_algorithms,
    system.propose_chunking,
)
_COMBINED = 6
"""How many of the best changes are combined with each other."""
_COMBINED_LARGE = 3
_LARGE = 300_000
"""From so many nodes on fewer changes are combined."""
_PER_DIMENSION = 20
"""About so many simulations the changes of a dimension take."""
_SET = 3
_TRIFLE = 0.001
"""What saves less than this share of the finish is not combined with anything."""
_BEYOND: tuple[Kind, ...] = ("algorithm", "chunks", "dimension-order")
"""Kinds that change how much is sent through a port at the same time."""

_Made = tuple[Candidate, Advice]


@dataclass(slots=True)
class _Search:
    """Simulations of changes, counted.

    Attributes:
        progress, cancel: As `advise` got them.
        done, total: Simulations made, and how many there will be as far as is known.
        simulated: Kinds of which some change was simulated.
        refused: Kinds that could not be simulated, with the first reason.
        known: Finishes of changes of a system alone, by its baseline and its settings.
        impossible: By kind, of each change after which no such network could finish when it does, the reason.
    """

    progress: Progress | None
    cancel: Callable[[], bool] | None
    done: int = 0
    total: int = 1
    simulated: set[Kind] = field(default_factory=set)
    refused: dict[Kind, str] = field(default_factory=dict)
    known: dict[tuple[int, tuple[str, ...]], int | None] = field(default_factory=dict)
    impossible: dict[Kind, list[str]] = field(default_factory=dict)

    def tick(self) -> None:
        """Note that a simulation is done."""
        self.done += 1
        self.total = max(self.total, self.done)
        if self.progress:
            self.progress(self.done, self.total)
        if self.cancel is not None and self.cancel():
            raise Cancelled

    def finish_ns(self, scene: Scene, kind: Kind, change: Change) -> int | None:
        """Return when the changed job finishes; None, with the reason noted, where it cannot be simulated, or not finish then.

        Where no such network could have the baseline either, that is asked of changes alone that may take it further beyond its
        ports: of rates and of the job it can still be told what they change.
        """
        key = id(scene), change.settings
        if not change.edits and key in self.known:
            return self.known[key]
        finish = None
        try:
            result, known = scene.rerun(change, self.cancel)
            finish = result.makespan_ns
            self.simulated.add(kind)
            is_asked = finish < scene.baseline.finish_ns and (
                kind in _BEYOND or not scene.baseline.impossible
            )
            if is_asked and (words := explain_impossible(result, known=known)):
                self.impossible.setdefault(kind, []).append(words)
                finish = None
        except StudioError as error:
            self.refused.setdefault(kind, error.message)
        self.tick()
        if not change.edits:
            self.known[key] = finish
        return finish

    def advice_of(
        self, scene: Scene, candidates: Iterable[Found | Sensitivity]
    ) -> tuple[list[_Made], list[Sensitivity]]:
        """Return the candidates that save something, and what else was found."""
        listed: list[Candidate] = []
        sensitivity = []
        for item in candidates:
            if isinstance(item, Refusal):
                self.refused.setdefault(item.kind, item.reason)
            elif isinstance(item, Sensitivity):
                sensitivity.append(item)
            else:
                listed.append(item)
        self.total += len(listed)
        pairs = []
        for candidate in listed:
            finish = self.finish_ns(scene, candidate.kind, candidate.change)
            if finish is not None and finish < scene.baseline.finish_ns:
                pairs.append((candidate, _build_advice(scene, candidate, scene.baseline.finish_ns - finish)))
        return pairs, sensitivity


def find_advice(
    trace: Trace, given: Parts | None, *, progress: Progress | None, cancel: Callable[[], bool] | None
) -> Advised:
    """Do the work of `advise`."""
    # A run that replays the recording has no system to change.
    given = None if given is None or get_model(given) == "replay" else given
    search = _Search(progress, cancel)
    scene = replay_recording(trace, cancel) if given is None else simulate_on_system(trace, given, cancel)
    search.tick()
    job, _ = search.advice_of(scene, (entry for make in _OF_JOB for entry in make(scene)))
    family = simulate_on_family(trace, cancel) if given is None else scene
    of_system: list[_Made] = []
    sensitivity: list[Sensitivity] = []
    if isinstance(family, str):
        search.refused.update(dict.fromkeys(OF_SYSTEM, family))
    else:
        of_system, sensitivity = _advise_system(search, family)
    combined = [_combine(search, scene, job)]
    if given is not None:
        combined = [_combine(search, scene, job + of_system)]
    elif not isinstance(family, str):
        search.tick()
        combined.append(_combine(search, family, of_system))
    if progress:
        progress(search.done, search.done)
    advice = sorted((item for _, item in job + of_system), key=_build_sort_key)
    return Advised(
        scene.baseline,
        tuple(advice),
        max(
            (joint for joint in combined if joint is not None),
            key=lambda joint: joint.saving_ns,
            default=None,
        ),
        tuple(sensitivity),
        tuple(
            (kind, search.refused[kind])
            for kind in KINDS
            if kind in search.refused and kind not in search.simulated
        ),
        search.done,
        scene.parts,
        None if given is not None or isinstance(family, str) else family.baseline,
        impossible=tuple(
            (kind, len(reasons), reasons[0]) for kind in KINDS if (reasons := search.impossible.get(kind))
        ),
    )


def _advise_system(search: _Search, scene: Scene) -> tuple[list[_Made], list[Sensitivity]]:
    pairs: list[_Made] = []
    sensitivity: list[Sensitivity] = []
    # How many it will be is known once it is done: the knee is searched for.
    search.total += _PER_DIMENSION * len(scene.config.topology.dims)
    for make in _OF_SYSTEM:

        def finish(change: Change) -> int | None:
            return search.finish_ns(scene, _infer_kind(change), change)

        more, learned = search.advice_of(scene, make(scene, finish))
        pairs += more
        sensitivity += learned
    return pairs, sensitivity


def _infer_kind(change: Change) -> Kind:
    """Return the kind of a change of the system, by the setting that it begins with."""
    first = change.settings[0]
    begins: tuple[tuple[str, Kind], ...] = (
        ("bandwidth", "bandwidth"),
        ("links", "bandwidth"),
        ("latency", "latency"),
        ("preferred-dataset-splits", "chunks"),
        ("extended.dimension-order", "dimension-order"),
    )
    return next((kind for start, kind in begins if first.startswith(start)), "algorithm")


def _build_sort_key(item: Advice) -> tuple[float, int, str]:
    return -item.saving_ns, KINDS.index(item.kind), item.action


def _build_advice(scene: Scene, candidate: Candidate, saving: int, parts: tuple[Kind, ...] = ()) -> Advice:
    low, high = _compute_range(scene.baseline, saving)
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
        scene.parts,
        parts,
    )


def _compute_range(baseline: Baseline, saving: int) -> tuple[int | None, int | None]:
    """Return what a saving may be as well where the model misses the recording: by so much either way, at least nothing."""
    if not baseline.misses or baseline.recorded_ns is None:
        return None, None
    off = abs(baseline.finish_ns - baseline.recorded_ns)
    return max(saving - off, 0), min(saving + off, max(baseline.recorded_ns, saving))


def _combine(search: _Search, scene: Scene, pairs: Sequence[_Made]) -> Advice | None:
    """Return the set of two or three changes that saves most; None where none saves more than the best change alone."""
    least = _TRIFLE * scene.baseline.finish_ns
    ranked = sorted(
        (pair for pair in pairs if pair[1].saving_ns >= least), key=lambda pair: _build_sort_key(pair[1])
    )
    best = ranked[: _COMBINED_LARGE if scene.trace.node_count > _LARGE else _COMBINED]
    sets = [
        chosen
        for count in range(2, _SET + 1)
        for chosen in combinations(best, count)
        if _have_distinct_levers([candidate for candidate, _ in chosen])
    ]
    search.total += len(sets)
    most: tuple[int, tuple[_Made, ...]] | None = None
    for chosen in sets:
        change = sum((candidate.change for candidate, _ in chosen), Change())
        finish = search.finish_ns(scene, "combined", change)
        if finish is not None and (most is None or finish < most[0]):
            most = finish, chosen
    if most is None or scene.baseline.finish_ns - most[0] <= ranked[0][1].saving_ns:
        return None
    finish, chosen = most
    candidates = [candidate for candidate, _ in chosen]
    joined = Candidate(
        "combined",
        "Together: " + " ".join(f"({index}) {item.action}" for index, item in enumerate(candidates, start=1)),
        sum((candidate.change for candidate in candidates), Change()),
        frozenset().union(*(candidate.levers for candidate in candidates)),
        ranks=tuple(sorted({rank for item in candidates for rank in item.ranks})),
        nodes=tuple(node for item in candidates for node in item.nodes),
    )
    return _build_advice(
        scene, joined, scene.baseline.finish_ns - finish, tuple(item.kind for item in candidates)
    )


def _have_distinct_levers(candidates: Sequence[Candidate]) -> bool:
    """Whether no two changes pull the same lever."""
    changed = sum(bool(candidate.change.edits) for candidate in candidates)
    if changed > 1 and any(WHOLE_JOB in candidate.levers for candidate in candidates):
        return False
    count = sum(len(candidate.levers) for candidate in candidates)
    return len(frozenset().union(*(candidate.levers for candidate in candidates))) == count
