"""Who came last to collectives, by how much, and what lasted longer there than on the ranks that waited.

Ranks are compared over the same stretch of time: from the last moment at which all members met, that is the arrival of the last of them at
an earlier collective of their group or of one that holds it, until each begins the collective. What each does in it is told by its ledger,
and by the innermost node under way. So what lasted longer on the last rank, less what lasted shorter, adds up to how much later it came than
the others in the mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from studio.analysis.collectives.arrivals import Joined
from studio.analysis.collectives.times import CollectiveTimes
from studio.analysis.collectives.waits import CollectiveWaits
from studio.analysis.job.blame import KINDS_OF, compute_collective_waits
from studio.analysis.job.function_names import shorten_function_name
from studio.analysis.job.ledger import PART_CODES, PARTS, Ledger
from studio.analysis.job.own_time import find_busy_within
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, Float64, Graph, Int64, Trace, UInt8
from studio.units import format_counted, format_ns

_SAID: Mapping[str, str] = {
    "overlapped": "compute",
    "queueing": "communication",
    "latency": "communication",
    "transfer": "communication",
}
"""Parts that are told as another: work is the same whether it hides communication."""
_LEAST_SHARE = 0.05
_LISTED = 3
_OTHERS, _LOOKED_AT = 16, 8
"""Members that the last one is compared with, at most, spread over all, and the longest skews of each rank that are looked at."""
_MOST_NODES = 1_000_000
"""Times of nodes that are looked through for a collective, at most: of large graphs with fewer others, two at least."""
_MOST_WITHIN = 50_000
"""Nodes within the time that is compared, at most."""
_NEVER = np.iinfo(np.int64).min
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Longer:
    """What lasted longer on a rank that came last.

    Attributes:
        name: What its nodes are called, "" where nothing was under way; untrusted text.
        part: The part of the rank's time, one of `PARTS`, or `before` as nothing is known of a rank before its recording.
        ns: How long it lasted there.
        others_ns: And on the others, in the mean.
    """

    name: str
    part: str
    ns: int
    others_ns: int

    __repr__ = format_record

    @property
    def more_ns(self) -> int:
        """How much longer that is."""
        return self.ns - self.others_ns

    def words(self) -> str:
        """Return what it was and how much longer it lasted."""
        name = {
            "waiting": f"waiting for other ranks in {self.name}",
            "bubble": f"waiting for messages in {self.name}",
            "host": f"{self.name} (host)" if self.name else "host",
            "stall": "nothing under way",
            "communication": f"communication in {self.name}",
            "before": "not recorded yet",
        }.get(self.part, self.name or self.part)
        return f"{name} +{format_ns(self.more_ns)}"


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that came last to collectives.

    Attributes:
        rank: Its number.
        row: Its node in the collective of the longest skew.
        collectives: How many it came last to, after others.
        waited_ns: How long all others waited for it in collectives, no work hiding it, added up.
        skew_ns: The skew of those it came last to, added up: how long the first members waited, whether work hid it or not.
        longest_ns: The longest of these skews.
        looked_at: In how many of them, the longest skews first, it was looked at what it did.
        late_ns: How much later than the others in the mean it came to those, added up.
        longer: What lasted longer there in the meantime, most first, if a twentieth of `late_ns` or more.
    """

    rank: int
    row: int
    collectives: int
    waited_ns: int
    skew_ns: int
    longest_ns: int
    looked_at: int
    late_ns: int
    longer: tuple[Longer, ...]

    __repr__ = format_record

    def cause(self) -> str:
        """Say what lasted longer, the most that matters first; "" where that was not looked at, or nothing stands out."""
        return describe_causes(self.longer)


def describe_causes(longer: Iterable[Longer]) -> str:
    """Return what lasted longer, in words."""
    return ", ".join(each.words() for each in list(longer)[:_LISTED])


def count_awaited(collectives: CollectiveTimes) -> int:
    """Return how many collectives some rank came last to, after others."""
    return int((collectives.skew_ns > 0).sum())


def count_last_ranks(collectives: CollectiveTimes) -> int:
    """Return how many ranks came last to some collective, after others."""
    return len(find_distinct(collectives.last_rank[collectives.skew_ns > 0]))


def describe_late_rank(late: Late, collectives: int) -> str:
    """Say of a rank how often it came last, how long others waited, by how much it came later, and what it did meanwhile.

    Args:
        late: The rank.
        collectives: How many collectives some rank came last to, after others.
    """
    sentence = (
        f"rank {late.rank} came last to {late.collectives:,} of {format_counted(collectives, 'collective')}: others waited "
        f"{format_ns(late.waited_ns)} for it in collectives, no work hiding that; skew {format_ns(late.skew_ns)} in all, {format_ns(late.longest_ns)} at most"
    )
    if cause := late.cause():
        where = "" if late.looked_at == late.collectives else f" (of {late.looked_at} of them)"
        sentence += f"; longer there than on the others{where}: {cause}"
    return sentence


@dataclass(slots=True)
class Lateness:
    """What ranks did before collectives to which they came last; what was found is kept.

    Attributes:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
    """

    trace: Trace
    times: NodeTimes
    account: Ledger
    _seen: dict[tuple[int, int], dict[tuple[str, str], Float64] | None] = field(default_factory=dict)
    _met: dict[int, Int64] = field(default_factory=dict)
    _numbered: dict[int, bool] = field(default_factory=dict)

    def at(self, place: int, row: int) -> tuple[int, tuple[Longer, ...]] | None:
        """Return how much later than the others in the mean a member came to a collective, and what lasted longer on it.

        None where that is not known: nobody else took part, it came no later, or too many nodes ran before.

        Args:
            place: Place of the member's rank in the trace's ranks.
            row: Its node.
        """
        difference = self.compare_member(place, row)
        return None if difference is None else _add_up([difference])

    def compare_member(self, place: int, row: int) -> dict[tuple[str, str], Float64] | None:
        """Return how long each part and name lasted on a member and on the others in the mean, as in `at`."""
        if (place, row) not in self._seen:
            self._seen[place, row] = self._compare(place, row)
        return self._seen[place, row]

    def _compare(self, place: int, row: int) -> dict[tuple[str, str], Float64] | None:
        met = self.account.arrivals.meeting(place, row)
        if met is None:
            return None
        group, at = met
        start = group.start_ns[:, at]
        present = np.flatnonzero(start != _NEVER)
        own = group.line[group.places == place]
        others = present[present != own[0]]
        if not len(others) or start[own[0]] <= start[others].min():
            return None
        weight = np.bincount(group.line[group.line != NONE], minlength=len(group.member))
        most = min(max(_MOST_NODES // max(len(self.trace.graph_of(self.trace.ranks[place])), 1), 2), _OTHERS)
        if len(others) > most:
            others = others[np.linspace(0, len(others) - 1, most).astype(np.int64)]
        since = self._find_last_meeting(group, int(start[present].min()))
        if since is None:
            return None
        times: dict[tuple[str, str], Float64] = {}
        total = float(weight[others].sum())
        for side, lines in enumerate((own, others)):
            for line in lines.tolist():
                share = 1.0 if side == 0 else float(weight[line]) / total
                spent = self._sum_spent(int(group.member[line]), since, int(start[line]))
                if spent is None:
                    return None
                for key, ns in spent.items():
                    times.setdefault(key, np.zeros(2))[side] += share * ns
        return times

    def _find_last_meeting(self, group: Joined, first_ns: int) -> int | None:
        """Return the last moment before a collective at which all its members had met, on aligned clocks; else when all were recorded."""
        account = self.account
        members = group.places[group.line != NONE]
        key = id(group)
        if key not in self._met:
            inside = set(members.tolist())
            holding = [joined for joined in account.arrivals.groups if inside <= set(joined.places.tolist())]
            moments = [
                joined.start_ns.max(axis=0)[(joined.last != NONE) & (joined.start_ns != _NEVER).all(axis=0)]
                for joined in holding
                if len(joined.start_ns)
            ]
            self._met[key] = np.sort(np.concatenate([np.zeros(0, np.int64), *moments]))
        before = int(np.searchsorted(self._met[key], first_ns, side="right"))
        if before:
            return int(self._met[key][before - 1])
        index = np.searchsorted(account.places, members)
        begun = account.origin_ns + account.before_ns[index] - account.arrivals.ahead_ns[members]
        return min(int(begun.max()), first_ns)

    def _sum_spent(self, place: int, since_ns: int, until_ns: int) -> dict[tuple[str, str], int] | None:
        """Return how long a rank was at what, by part and name, between two moments on aligned clocks; None where too many nodes ran there."""
        account, index = self.account, self.trace.ranks[place].graph
        graph = self.trace.graphs[index]
        ahead = int(account.arrivals.ahead_ns[place])
        low, high = since_ns + ahead, until_ns + ahead
        rows, start, end = find_busy_within(self.trace, self.times, place, account.pieces, low, high)
        if len(rows) > _MOST_WITHIN:
            return None
        order = np.lexsort((-end, start))
        rows, start, end = rows[order], start[order], end[order]
        known = int(np.searchsorted(account.places, place))
        opens, _, kinds = account.stretches.of(int(account.course[known]))
        edges = np.concatenate((start, end, opens + account.origin_ns, [low, high]))
        edges = find_distinct(np.clip(edges, low, high))
        part = np.full(len(edges) - 1, PART_CODES["stall"])
        within = np.searchsorted(opens, edges[:-1] - account.origin_ns, side="right") - 1
        part[within >= 0] = kinds[within[within >= 0]]
        holder = self._find_holders(rows, account.kinds[index][rows], (start, end), edges, part)
        begun = int(account.before_ns[known]) + account.origin_ns
        spent: dict[tuple[str, str], int] = {}
        for left, right, code, row in zip(
            edges[:-1].tolist(), edges[1:].tolist(), part.tolist(), holder.tolist(), strict=True
        ):
            name = PARTS[code]
            name = "before" if right <= begun and name == "stall" else _SAID.get(name, name)
            key = name, "" if row == NONE else self._label_node(index, graph, row)
            spent[key] = spent.get(key, 0) + right - left
        return spent

    def _find_holders(
        self, rows: Int64, kinds: UInt8, spans: tuple[Int64, Int64], edges: Int64, part: Int64
    ) -> Int64:
        """Return for each piece between edges the innermost node that its part consists of, -1 for none; nodes come by their starts."""
        holder = np.full(len(part), NONE, np.int64)
        left, right = (np.searchsorted(edges, np.clip(column, edges[0], edges[-1])) for column in spans)
        for code in find_distinct(part).tolist():
            fits = np.flatnonzero(np.isin(kinds, KINDS_OF.get(PARTS[code], ())))
            layer = np.full(len(part), NONE, np.int64)
            for row, begin, close in zip(
                rows[fits].tolist(), left[fits].tolist(), right[fits].tolist(), strict=True
            ):
                layer[begin:close] = row
            holder = np.where(part == code, layer, holder)
        return holder

    def _label_node(self, index: int, graph: Graph, row: int) -> str:
        """Return what nodes like one are called: names that hardly repeat are numbered, so that their numbers tell no type."""
        if index not in self._numbered:
            self._numbered[index] = 2 * len(find_distinct(graph.name)) > len(graph)
        name = shorten_function_name(graph.strings[int(graph.name[row])])
        return _DIGITS.sub("*", name) if self._numbered[index] else name


def _add_up(compared: Iterable[dict[tuple[str, str], Float64]]) -> tuple[int, tuple[Longer, ...]]:
    total: dict[tuple[str, str], Float64] = {}
    for spent in compared:
        for key, ns in spent.items():
            total[key] = total.get(key, np.zeros(2)) + ns
    late = sum(float(ns[0] - ns[1]) for ns in total.values())
    longer = [
        Longer(name, part, round(float(ns[0])), round(float(ns[1]))) for (part, name), ns in total.items()
    ]
    longer = [each for each in longer if each.more_ns >= max(_LEAST_SHARE * late, 1)]
    return round(late), tuple(sorted(longer, key=lambda each: (-each.more_ns, each.name)))


def find_late_ranks(
    lateness: Lateness,
    collectives: CollectiveTimes,
    waits: CollectiveWaits | None = None,
    most: int | None = None,
) -> list[Late]:
    """Return the ranks that came last to collectives, those first that others waited for longest, then by skew.

    Args:
        lateness: What ranks did before.
        collectives: Collectives of the job.
        waits: Whom ranks waited for in them, where that is known already.
        most: How many ranks are looked at; None for all.
    """
    skew = collectives.skew_ns
    chosen = np.flatnonzero(skew > 0)
    if not len(chosen):
        return []
    waits = waits or compute_collective_waits(lateness.trace, lateness.account, collectives)
    awaited_ns = waits.sum_by_rank(np.arange(len(collectives)))
    place = {rank.number: at for at, rank in enumerate(lateness.trace.ranks)}
    ranks, of = np.unique(collectives.last_rank[chosen], return_inverse=True)
    skews = np.zeros(len(ranks), np.int64)
    np.add.at(skews, of, skew[chosen])
    waited = np.array([awaited_ns.get(number, 0) for number in ranks.tolist()], np.int64)
    late = []
    for index in np.lexsort((-skews, -waited))[:most].tolist():
        own = chosen[of == index]
        own = own[np.argsort(-skew[own], kind="stable")]
        number = int(ranks[index])
        looked = [
            lateness.compare_member(place[number], int(collectives.last_row[item]))
            for item in own[:_LOOKED_AT].tolist()
        ]
        seen = [item for item in looked if item is not None]
        late_ns, longer = _add_up(seen)
        late.append(
            Late(
                number,
                int(collectives.last_row[own[0]]),
                len(own),
                int(waited[index]),
                int(skews[index]),
                int(skew[own[0]]),
                len(seen),
                late_ns,
                longer,
            )
        )
    return late
