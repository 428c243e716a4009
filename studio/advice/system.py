"""Changes of the system: rates and latencies of its dimensions, algorithms, chunks, the order of dimensions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, Found, Refusal, label_collectives
from studio.advice.terms import Change, Sensitivity
from studio.distinct import find_distinct
from studio.sim.algorithms import ALGORITHMS
from studio.sim.choices import explain_choices
from studio.sim.collectives import EXTENDED_KIND_OF
from studio.sim.costs.model import ALGORITHMS as WAYS
from studio.sim.costs.parameters import list_members
from studio.sim.parts import get_table
from studio.sim.settings import BY_KEY
from studio.trace import CollectiveType
from studio.units import format_ns, format_rate

Finish = Callable[[Change], int | None]
"""Returns the finish after a change; None where it cannot be simulated."""

TRIFLE = 0.005
"""Share of the finish of which all bandwidth above the knee gains less."""
_NEAR = 1.9
"""Multiples below which the knee is advised besides twice the bandwidth: it costs less."""
_DOUBLINGS = 10
_HALVINGS = 6
_REFINED = 5
_LARGE = 300_000
_MOST_ALGORITHMS = 32
_NCCL = {"ring": "Ring", "tree": "Tree", "NVLS": "NVLS", "NVLS-tree": "NVLSTree"}
"""What NCCL's environment variable calls algorithms."""
_MOST_LINKS = 8
"""So many pairs of devices, the busiest, are changed one by one."""
_MOST_LISTED = 256
"""More links than these are set by a table of all."""
_RATE, _DELAY = 2, 3
"""Where the table of links has the bandwidth of one, and its latency."""


def propose_rates(scene: Scene, finish: Finish) -> Iterator[Found | Sensitivity]:
    """Yield, per dimension, twice its bandwidth and half its latency, the bandwidth at the knee, and what the opposite costs."""
    dims = scene.config.topology.dims
    if not any(members for members in [len(scene.members), _count_messages(scene)]):
        for kind in ("bandwidth", "latency"):
            yield Refusal(kind, "nothing is sent over the network")
        return
    if scene.config.links is not None:
        yield from _propose_single_links(scene, finish)
        return
    for index, dim in enumerate(dims):
        if dim.size < 2:
            continue
        yield from _propose_bandwidth(scene, finish, index)
        yield from _propose_latency(scene, finish, index)


def _count_messages(scene: Scene) -> int:
    return sum(int(np.isin(graph.type, (5, 6)).sum()) for graph in scene.trace.graphs)


def _label_dimension(scene: Scene, index: int) -> str:
    return f"dimension {index}" if len(scene.config.topology.dims) > 1 else "the network"


def _propose_bandwidth(scene: Scene, finish: Finish, index: int) -> Iterator[Candidate | Sensitivity]:
    rate = scene.config.topology.dims[index].bytes_per_ns
    written = _get_setting(scene, "bandwidth", index)

    def build_change(factor: float) -> Change:
        return Change(settings=(f"bandwidth[{index}]={written * factor!r}",))

    at = Scan(scene.baseline.finish_ns, lambda factor: finish(build_change(factor)))
    more, less = at.finish(2.0), at.finish(0.5)
    if more is None or less is None:
        return
    knee = at.knee(refined=2 if scene.trace.node_count > _LARGE else _REFINED)
    where = _label_dimension(scene, index)
    trifle = f"less than {100 * TRIFLE:g} % of the finish is gained"
    words = "" if knee is None else f"above {format_rate(rate * knee)} on {where} {trifle}"
    why = _explain_longer(scene, build_change(2.0), more, less)
    yield Sensitivity(f"bandwidth of {where}", more, less, words, why)
    # Beside what doubling saves, a knee that is passed already says nothing.
    end = f"; {words}." if knee is not None and knee > 1 else "."
    lever = frozenset({f"bandwidth {index}"})
    action = f"Double the bandwidth of {where}, from {format_rate(rate)} to {format_rate(2 * rate)}{end}"
    yield Candidate("bandwidth", action, build_change(2.0), lever)
    if knee is not None and 1 < knee < _NEAR:
        # As it is said, so that what is said is what was simulated.
        yield Candidate(
            "bandwidth",
            f"Raise the bandwidth of {where} from {format_rate(rate)} to the knee, {format_rate(rate * knee)}: {words}.",
            build_change(knee),
            lever,
        )


def _explain_longer(scene: Scene, better: Change, more_ns: int, less_ns: int) -> str:
    """Say why a better rate takes longer, or the present one longer than a worse one; "" where neither does, or nothing tells."""
    if more_ns > scene.baseline.finish_ns:
        when, reason = "twice as good", explain_choices(scene.rerun(better)[0])
    elif less_ns < scene.baseline.finish_ns:
        when, reason = "as it is", explain_choices(scene.result)
    else:
        return ""
    return f"{when}, {reason}" if reason else ""


def _propose_latency(scene: Scene, finish: Finish, index: int) -> Iterator[Candidate | Sensitivity]:
    dim = scene.config.topology.dims[index]
    written = _get_setting(scene, "latency", index)
    costs = scene.config.costs

    def build_change(factor: float) -> Change:
        settings = [f"latency[{index}]={written * factor!r}"]
        if costs is not None:
            # What the library takes for a hop is latency too: inside a node, or between nodes.
            place = "inside" if index == 0 else "between"
            names = [name for name in list_members("hop") if name.endswith(place)]
            settings += [f"costs.hop.{name}={costs.value(f'hop {name}') * factor!r}" for name in names]
        return Change(settings=tuple(settings))

    if not dim.latency_ns and costs is None:
        yield Sensitivity(
            f"latency of {_label_dimension(scene, index)}", scene.baseline.finish_ns, scene.baseline.finish_ns
        )
        return
    more, less = finish(build_change(0.5)), finish(build_change(2.0))
    if more is None or less is None:
        return
    where = _label_dimension(scene, index)
    yield Sensitivity(
        f"latency of {where}", more, less, why=_explain_longer(scene, build_change(0.5), more, less)
    )
    if costs is not None:
        both = f"{format_ns(dim.latency_ns)} of the network, and " if dim.latency_ns else ""
        action = f"Halve the latency of {where}: {both}the time of each hop in the library's algorithms."
    else:
        action = f"Halve the latency of {where}, from {format_ns(dim.latency_ns)} to {format_ns(dim.latency_ns / 2)}."
    # Dimensions between nodes share the library's hops, so two of them are not changed together.
    lever = f"latency {min(index, 1) if costs is not None else index}"
    yield Candidate("latency", action, build_change(0.5), frozenset({lever}))


def _propose_single_links(scene: Scene, finish: Finish) -> Iterator[Candidate | Sensitivity]:
    """Yield twice the bandwidth and half the latency of the busiest pairs of devices, both ways, and of all links of one rate."""
    graph, traffic = scene.config.links, scene.result.links
    assert graph is not None
    pairs: dict[tuple[int, int], list[int]] = {}
    rates: dict[float, list[int]] = {}
    for index, link in enumerate(graph.links):
        pairs.setdefault((min(link.source, link.target), max(link.source, link.target)), []).append(index)
        rates.setdefault(link.bytes_per_ns, []).append(index)
    busy: dict[tuple[int, int], int] = {}
    ends = zip(traffic.source.tolist(), traffic.target.tolist(), traffic.busy_ns.tolist(), strict=True)
    for source, target, ns in ends:
        pair = min(source, target), max(source, target)
        busy[pair] = busy.get(pair, 0) + ns
    busiest = sorted((-ns, pair) for pair, ns in busy.items() if ns and pair in pairs)[:_MOST_LINKS]
    several = len(pairs) > 1
    chosen = [
        (f"the links of {format_rate(rate)}" if len(rates) > 1 else "all links", rates[rate])
        for rate in sorted(rates)
        if several
    ]
    chosen += [
        (f"the link between {' and '.join(_label_device(scene, end) for end in pair)}", pairs[pair])
        for _, pair in busiest
    ]
    for where, indices in chosen:
        yield from _propose_for_links(scene, finish, where, indices)


def _label_device(scene: Scene, number: int) -> str:
    """Return what a sentence calls an end of a link."""
    graph = scene.config.links
    assert graph is not None
    return f"NPU {number}" if number < graph.npus else f"switch {number - graph.npus}"


def _propose_for_links(
    scene: Scene, finish: Finish, where: str, indices: Sequence[int]
) -> Iterator[Candidate | Sensitivity]:
    listed = get_table(scene.parts, "network").get("links")
    assert isinstance(listed, list | tuple)

    def build_change(column: int, factor: float) -> Change:
        table = [[*link] for link in listed]
        for index in indices:
            if column < len(table[index]):
                table[index][column] = float(table[index][column]) * factor
        if is_whole:
            return Change(settings=(f"links={json.dumps(table)}",))
        return Change(settings=tuple(f"links[{index}]={json.dumps(table[index])}" for index in indices))

    # A table as a whole leaves no other change of a link beside it.
    is_whole = len(indices) > _MOST_LISTED
    lever = frozenset(f"link {index}" for index in (range(len(listed)) if is_whole else indices))
    more, less = finish(build_change(_RATE, 2.0)), finish(build_change(_RATE, 0.5))
    if more is not None and less is not None:
        yield Sensitivity(f"bandwidth of {where}", more, less)
        yield Candidate(
            "bandwidth", f"Double the bandwidth of {where}, both ways.", build_change(_RATE, 2.0), lever
        )
    if any(len(listed[index]) > _DELAY and float(listed[index][_DELAY]) for index in indices):
        more, less = finish(build_change(_DELAY, 0.5)), finish(build_change(_DELAY, 2.0))
        if more is not None and less is not None:
            yield Sensitivity(f"latency of {where}", more, less)
            yield Candidate(
                "latency", f"Halve the latency of {where}, both ways.", build_change(_DELAY, 0.5), lever
            )


def _get_setting(scene: Scene, key: str, index: int) -> float:
    listed = get_table(scene.parts, "network").get(key)
    assert isinstance(listed, list | tuple)
    value = float(listed[index])
    return value


@dataclass(slots=True)
class Scan:
    """The finish over multiples of a rate.

    Attributes:
        base_ns: Finish at its present value.
        ask: Returns the finish at a multiple; None where it cannot be simulated.
    """

    base_ns: int
    ask: Callable[[float], int | None]

    def finish(self, factor: float) -> int | None:
        """Return the finish at a multiple."""
        return self.base_ns if factor == 1 else self.ask(factor)

    def knee(self, refined: int) -> float | None:
        """Return the least multiple, to three digits, above which all that is gained is a trifle; None where it was not found."""
        slack = int(TRIFLE * self.base_ns)
        high, best = 1.0, self.base_ns
        for _ in range(_DOUBLINGS):
            further = self.finish(2 * high)
            if further is None:
                return None
            # Each doubling gains half of the one before at most, so all that follow gain no more than this one together.
            gained = 2 * max(best - further, 0)
            if gained <= slack:
                break
            high, best = 2 * high, further
        else:
            return None
        most = best - gained + slack
        low = high / 2
        for _ in range(_HALVINGS):
            slower = self.finish(low)
            if slower is None:
                return None
            if slower > most:
                break
            high, low = low, low / 2
        else:
            return None
        for _ in range(refined):
            middle = (low * high) ** 0.5
            between = self.finish(middle)
            if between is None:
                return None
            low, high = (low, middle) if between <= most else (middle, high)
        return float(f"{high:.3g}")


# ---------------------------------------------------------------------------------------------------
# How collectives are carried out


def propose_algorithms(scene: Scene, finish: Finish) -> Iterator[Found]:
    """Yield the algorithm of each kind of collective that saves most."""
    if not len(scene.members):
        yield Refusal("algorithm", "the job has no collectives")
        return
    if scene.config.flows:
        yield from _propose_library_ways(scene, finish)
        return
    dims = scene.config.topology.dims
    for number in find_distinct(scene.members.type).tolist():
        kind = EXTENDED_KIND_OF.get(number)
        setting = BY_KEY.get(f"{str(kind).replace('_', '-')}-implementation")
        if kind is None or setting is None or (setting.is_extended and scene.config.extensions is None):
            continue
        now = [algorithm.name for algorithm in scene.config.algorithms.get(kind, ())]
        better = []
        for names in _list_choices(now, len(dims)):
            change = Change(settings=(f"{setting.path}=[{','.join(names)}]",))
            after = finish(change)
            if after is not None and after < scene.baseline.finish_ns:
                better.append((after, names, change))
        if better:
            _, names, change = min(better, key=lambda entry: entry[:2])
            where = " and ".join(
                f"{name} in {_label_dimension(scene, index)}"
                for index, name in enumerate(names)
                if index >= len(now) or now[index] != name
            )
            was = f" in place of {', '.join(now)}" if now else ""
            yield Candidate(
                "algorithm",
                f"Carry out the {label_collectives(number)} by {where}{was}.",
                change,
                frozenset({f"algorithm of {kind}"}),
                CollectiveType(number).name,
            )


def _list_choices(now: Sequence[str], dims: int) -> list[list[str]]:
    """Return lists of algorithms to try: one for all dimensions, and another one in a single dimension."""
    names = [row.name for row in ALGORITHMS.values()]
    tried = [[name] * dims for name in names]
    if len(now) == dims > 1:
        tried += [[*now[:index], name, *now[index + 1 :]] for index in range(dims) for name in names]
    distinct = [list(choice) for choice in dict.fromkeys(map(tuple, tried)) if list(choice) != list(now)]
    return distinct[:_MOST_ALGORITHMS]


def _propose_library_ways(scene: Scene, finish: Finish) -> Iterator[Found]:
    costs = scene.config.costs
    assert costs is not None
    options = []
    for name in WAYS:
        if name != costs.algorithm:
            change = Change(settings=(f"costs.algorithm={name}",))
            option = f" (NCCL_ALGO={_NCCL[name]})" if name in _NCCL else ""
            action = f"Let the library carry out collectives by the {name} algorithm wherever it can{option}."
            if name == "auto":
                action = "Let the library choose the algorithm of each collective."
            options.append((finish(change), action, change))
    if costs.choice != "least":
        change = Change(settings=("costs.choice=least",))
        action = "Take the quickest algorithm and protocol for every collective, in place of what the library estimates (NCCL_ALGO, NCCL_PROTO)."
        options.append((finish(change), action, change))
    saving = [(after, action, change) for after, action, change in options if after is not None]
    if not saving:
        return
    _, action, change = min(saving, key=lambda entry: entry[:2])
    yield Candidate("algorithm", action, change, frozenset({"algorithm"}))


def propose_chunking(scene: Scene, finish: Finish) -> Iterator[Found]:
    """Yield the number of chunks, and the order of dimensions, that save most."""
    if scene.config.flows:
        why = "the cost model times whole collectives as the library carries them out, without chunks"
        yield Refusal("chunks", why)
        yield Refusal(
            "dimension-order",
            "the library orders the dimensions itself: inside nodes first, then between them",
        )
        return
    now = scene.config.splits
    tried = []
    for count in sorted({1, max(now // 2, 1), 2 * now, 4 * now, 8 * now} - {now}):
        change = Change(settings=(f"preferred-dataset-splits={count}",))
        after = finish(change)
        if after is not None:
            tried.append((after, count, change))
    if tried:
        _, count, change = min(tried, key=lambda entry: entry[:2])
        action = f"Cut collectives into {count} chunk{'s' if count > 1 else ''} in place of {now}."
        yield Candidate("chunks", action, change, frozenset({"chunks"}))
    if len(scene.config.topology.dims) < 2:
        yield Refusal("dimension-order", "the network has one dimension")
        return
    extensions = scene.config.extensions
    if extensions is None:
        yield Refusal("dimension-order", "ASTRA-sim's model knows one order; use --model full")
        return
    for order in ("ascending", "descending", "balanced"):
        if order != extensions.dimension_order:
            words = {"balanced": "the order that loads them most evenly (Themis)"}.get(
                order, f"{order} order"
            )
            yield Candidate(
                "dimension-order",
                f"Let chunks pass the dimensions in {words}, in place of {extensions.dimension_order}.",
                Change(settings=(f"extended.dimension-order={order}",)),
                frozenset({"dimension order"}),
            )
