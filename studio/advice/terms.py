"""Types of advice: changes, their savings, and the baseline that savings are measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from studio.notebook import build_html_table, format_parts, format_record
from studio.sim.parts import Parts
from studio.sim.setting_edits import with_settings
from studio.trace import Trace
from studio.units import format_counted, format_ns

Kind = Literal[
    "balance-sizes",
    "balance-experts",
    "place-experts",
    "slow-rank",
    "equal-arrivals",
    "slow-collectives",
    "overlap",
    "merge",
    "micro-batches",
    "schedule",
    "host-gaps",
    "compute",
    "bandwidth",
    "latency",
    "algorithm",
    "chunks",
    "dimension-order",
    "combined",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_SYSTEM: tuple[Kind, ...] = ("bandwidth", "latency", "algorithm", "chunks", "dimension-order")
"""Kinds that change the system; all others change the job."""
HYPOTHETICAL: tuple[Kind, ...] = ("compute", *OF_SYSTEM)
"""Kinds that ask what better hardware or kernels would do; the others remove a cause in the job."""
WORTH = 0.01
"""Savings below this share of the finish are not worth a change: "nothing above 1 %"."""

Progress = Callable[[int, int], None]
"""Told how many simulations are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that can be made again: of the job, of the system, or of both.

    Attributes:
        edits: Functions that return a job changed in one way, applied in this order.
        settings: KEY=VALUE each, as `--set` of `chakra-studio simulate` takes them.
    """

    edits: tuple[Callable[[Trace], Trace], ...] = ()
    settings: tuple[str, ...] = ()

    __repr__ = format_record

    def of_trace(self, trace: Trace) -> Trace:
        """Return the changed job; the same one where only the system changes."""
        for edit in self.edits:
            trace = edit(trace)
        return trace

    def of_parts(self, parts: Parts) -> Parts:
        """Return the changed system; the same one where only the job changes.

        Raises:
            ConfigError: The system has no such setting.
        """
        return with_settings(parts, self.settings) if self.settings else parts

    def __add__(self, other: Change) -> Change:
        """Return both changes, one after the other; what adds nodes comes last, since all others name nodes of the job as it is."""
        edits = sorted(self.edits + other.edits, key=lambda edit: getattr(edit, "adds_nodes", False))
        return Change(tuple(edits), self.settings + other.settings)


@dataclass(frozen=True, slots=True)
class Advice:
    """A change, and what it saves.

    Attributes:
        kind: What sort of change it is.
        action: What to do, in one sentence with names and numbers; holds names of the trace, which are untrusted.
        collective: The schema's name of the collectives concerned, such as "ALL_TO_ALL"; None where it is not about one kind.
        group: Their comm group; None where it is not about one.
        ranks: Numbers of the ranks that cause it, rising.
        nodes: Rank and node id of some nodes concerned, the longest first; at most `NODES_NAMED`.
        saving_ns: Baseline finish less the finish after the change; may be below 0 for combinations only.
        saving_percent: The same in percent of the baseline.
        saving_low_ns, saving_high_ns: Where the replay misses the recording by more than 2 %, what the saving may be as well.
        change: How to make it.
        baseline_ns: Finish before the change, on the same system.
        on: The system before the change: that of the replay, the one given, or that of the recorded GPU's family.
        parts: KINDS of the single changes of a combination.
        run: Id of the kept run, as JOB/RUN; None where none was kept.
    """

    kind: Kind
    action: str
    collective: str | None
    group: str | None
    ranks: tuple[int, ...]
    nodes: tuple[tuple[int, int], ...]
    saving_ns: int
    saving_percent: float
    saving_low_ns: int | None
    saving_high_ns: int | None
    change: Change
    baseline_ns: int
    on: Parts
    parts: tuple[Kind, ...] = ()
    run: str | None = None

    __repr__ = format_record

    @property
    def finish_ns(self) -> int:
        """The finish after the change."""
        return self.baseline_ns - self.saving_ns

    @property
    def about_system(self) -> bool:
        """Whether the system is what changes, rather than the job."""
        return self.kind in OF_SYSTEM

    @property
    def is_cause(self) -> bool:
        """Whether it removes a cause in the job, rather than asks what better hardware would do."""
        return self.kind not in HYPOTHETICAL and self.kind != "combined"

    @property
    def is_worth_it(self) -> bool:
        """Whether it saves more than `WORTH`."""
        return self.saving_ns > WORTH * self.baseline_ns


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What twice and half of one rate of the system do to the finish.

    Attributes:
        name: What is changed, such as "bandwidth of dimension 0".
        more_ns: Finish with twice the bandwidth, or half the latency.
        less_ns: Finish with half the bandwidth, or twice the latency.
        knee: The bandwidth above which all that is gained is a trifle, in words; "" where it was not found.
        why: Why the better rate takes longer, in a sentence; "" where it does not, or nothing tells.
    """

    name: str
    more_ns: int
    less_ns: int
    knee: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The run that changes are compared with.

    Attributes:
        finish_ns: When the last rank finishes.
        words: How it was made: by replay, or on which system.
        recorded_ns: The finish of the recording, from the first start on; None where the job was not recorded or a system was given.
        doubt: What is doubtful of it, a sentence each; "" where there is nothing.
        impossible: Why no such network could finish then; "" where nothing says so. Changes are as doubtful where something does.
    """

    finish_ns: int
    words: str
    recorded_ns: int | None = None
    doubt: str = ""
    impossible: str = ""

    @property
    def deviation(self) -> float | None:
        """How much longer the replay takes than the recording, as a share of that; None without a recording."""
        return None if not self.recorded_ns else self.finish_ns / self.recorded_ns - 1

    @property
    def misses(self) -> bool:
        """Whether the replay is off by more than 2 %, so that savings are ranges."""
        return self.deviation is not None and abs(self.deviation) > MOST_DEVIATION


MOST_DEVIATION = 0.02
"""How far a replay may be from its recording for its savings to be single figures."""
NODES_NAMED = 16


@dataclass(frozen=True, slots=True)
class Advised:
    """Advice for a job.

    Attributes:
        baseline: What the savings are measured against.
        advice: Every change that saves something, the largest saving first.
        combined: The best set of at most three changes, simulated together, since savings do not add; None where
            no two can be combined to save more than the best alone.
        sensitivity: Twice and half of each rate of the system.
        refused: Kinds of change that could not be simulated, each with the reason.
        considered: Simulations that were made, the baseline included.
        impossible: Kinds of change of which some are left out, because no such network could finish then; each with how many and
            the first reason.
        system_baseline: What changes of the system are measured against where no system was given; None else.
        on: The system of the baseline; of a replay, one that no message uses.
        baseline_run: Id of the kept run of the baseline, as JOB/RUN; None where none was kept.
    """

    baseline: Baseline
    advice: tuple[Advice, ...]
    combined: Advice | None
    sensitivity: tuple[Sensitivity, ...]
    refused: tuple[tuple[Kind, str], ...]
    considered: int
    on: Parts
    system_baseline: Baseline | None = None
    baseline_run: str | None = None
    impossible: tuple[tuple[Kind, int, str], ...] = ()

    @property
    def worth_it(self) -> tuple[Advice, ...]:
        """The advice that saves more than 1 %; empty where there is nothing above that."""
        return tuple(item for item in self.advice if item.is_worth_it)

    @property
    def causes(self) -> tuple[Advice, ...]:
        """The advice that removes a cause in the job, the largest saving first."""
        return tuple(item for item in self.advice if item.is_cause)

    def __repr__(self) -> str:
        """Return it in a line."""
        best = f"best saves {format_ns(self.advice[0].saving_ns)}" if self.advice else "nothing saves"
        return format_parts(
            "Advised",
            [
                format_counted(len(self.advice), "change"),
                best,
                format_counted(self.considered, "simulation"),
            ],
        )

    def _repr_html_(self) -> str:
        """Return the advice as a table."""
        rows = [
            (item.action, format_ns(item.saving_ns), f"{item.saving_percent:.1f} %") for item in self.advice
        ]
        return build_html_table(repr(self), ("change", "saves", "of the finish"), rows)
