"""Doubts about the answer of a simulation: what no network of this kind could do, or what no library would do.

After a run each collective, message and link is held against what its ports carry. A doubt says what cannot be, or
what shapes the time without being meant, and its cure: the settings under which the question is asked properly. What
can be cured is a row of `CHECKS`; pages make a button of a cure, the command line an option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from studio.analysis.job.ledger import Ledger
from studio.sim.doubt import Doubt
from studio.sim.doubt_facts import Facts, Found
from studio.sim.doubted_choices import (
    find_disguised,
    find_instant,
    find_long_rings,
    find_open_order,
    find_partly_involved,
    find_ring_behind_switch,
    find_timeless,
)
from studio.sim.doubted_kernels import find_unknown_kernels, find_unsized
from studio.sim.doubted_memory import find_perhaps_unfit, find_unfit
from studio.sim.doubted_range import UNEVEN, find_extrapolated, find_uneven_nodes
from studio.sim.doubted_rates import (
    find_collectives,
    find_crossings,
    find_dimensions,
    find_links,
    find_messages,
)
from studio.sim.doubted_recording import find_recorded_faster
from studio.sim.known import Known
from studio.sim.models import with_model
from studio.sim.parts import Parts
from studio.sim.presets import Preset, convert_to_full
from studio.sim.result import SimResult
from studio.sim.setting_edits import with_settings


def apply_cures(parts: Parts, doubts: Sequence[Doubt]) -> Parts:
    """Return a system with the cures of all doubts, models first.

    Raises:
        ConfigError: The system cannot have them.
    """
    cures = dict.fromkeys(doubt.cure for doubt in doubts if doubt.cure)
    for cure in sorted(cures, key=lambda cure: cure.model is None):
        if cure.model is not None:
            parts = convert_to_full(parts) if cure.model == "full" else with_model(parts, cure.model)
        parts = with_settings(parts, cure.settings)
    return parts


def format_cure_options(doubts: Sequence[Doubt]) -> str:
    """Return the options that cure all doubts, each once.

    Example:
        >>> from studio.sim.doubt import Cure
        >>> full = Cure("", "full")
        >>> format_cure_options([Doubt("a", "", True, full), Doubt("b", "", True, full)])
        '--model full'
    """
    return " ".join(dict.fromkeys(doubt.cure.option for doubt in doubts if doubt.cure))


def doubts_of(result: SimResult, system: Parts | Preset | None = None) -> tuple[Doubt, ...]:
    """Return why a simulation is not to be believed as it stands, what is impossible first; nothing where nothing speaks against it.

    The command says the same before its answer. Each doubt has a `code` and a `message`, says whether it is `impossible` (no such
    network could do it) and which `cure` there is, options of `chakra-studio simulate`; docs/simulator.md lists them.

    Args:
        result: The simulation.
        system: The preset that was simulated, or its parts, which say which preset it is; without it nothing is said about the
            preset's size.

    Example:
        >>> import studio
        >>> trace, system = studio.generate("resnet50", ranks=17), studio.preset("hgx-h100", npus=17)
        >>> for doubt in studio.doubts_of(studio.simulate(trace, system), system):
        ...     print(doubt.mark, doubt.code, doubt.message.partition(":")[0])
        DOUBTFUL uneven-nodes 17 NPUs fill no nodes of 8 alike
        DOUBTFUL extrapolated 2 of 2 collectives are extrapolated
    """
    return list_doubts(Facts(result, system.parts if isinstance(system, Preset) else system))


def list_doubts(facts: Facts) -> tuple[Doubt, ...]:
    """Return what `doubts_of` returns of a run, by its facts."""
    doubts = [
        Doubt(check.code, message, check.impossible, cure)
        for check in CHECKS
        for message, cure in check.find(facts)
    ]
    return tuple(sorted(doubts, key=lambda doubt: not doubt.impossible))


def explain_impossible(result: SimResult, ledger: Ledger | None = None, known: Known | None = None) -> str:
    """Return why no such network could have this result, "" where nothing says so.

    Where many systems are tried, this says of each whether it may be ranked: it looks no further than the first reason.

    Args:
        result: The result.
        ledger: Where the time of its ranks went, where that is known already.
        known: What simulations of the same job on other systems have in common with this one.
    """
    return _explain_impossible(Facts(result, known_ledger=ledger, known=known))


def _explain_impossible(facts: Facts) -> str:
    messages = (message for check in CHECKS if check.impossible for message, _ in check.find(facts))
    return next(messages, "")


def judge(
    result: SimResult, system: Parts | None, ledger: Ledger | None = None, known: Known | None = None
) -> tuple[str, dict[str, str]]:
    """Return what `explain_impossible` says, and what is doubtful by code, the first of each.

    Args:
        result: The result.
        system: The system in the form that says which preset it is.
        ledger: Where the time of its ranks went, where that is known already.
        known: What simulations of the same job on other systems have in common with this one.
    """
    facts = Facts(result, system, ledger, known)
    doubtful = {
        check.code: message
        for check in CHECKS
        if not check.impossible
        for message, _ in islice(check.find(facts), 1)
    }
    return _explain_impossible(facts), doubtful


@dataclass(frozen=True, slots=True)
class Check:
    """A kind of doubt.

    Attributes:
        code: What JSON and findings call it.
        about: What it looks for.
        impossible: Whether no such network could do it.
        find: Yields a message and its cure for each that it finds.
    """

    code: str
    about: str
    impossible: bool
    find: Callable[[Facts], Found]


CHECKS: tuple[Check, ...] = (
    Check("beyond-capacity", "more sent into a dimension than its ports carry", True, find_dimensions),
    Check("collective-beyond-ports", "a bus bandwidth beyond the ports of the group", True, find_collectives),
    Check("message-beyond-link", "a message faster than the slowest link on its way", True, find_messages),
    Check("links-ignored", "more sent than the single links from an NPU carry", True, find_links),
    Check(
        "lowest-dimension", "messages timed in one of the dimensions that they cross", True, find_crossings
    ),
    Check(
        UNEVEN,
        "more nodes than a machine has, because the NPUs fill none alike",
        False,
        find_uneven_nodes,
    ),
    Check(
        "unknown-communication",
        "communication kernels that keep their recorded time on every network",
        False,
        find_unknown_kernels,
    ),
    Check("unknown-size", "communication that moves nothing, as no size was recorded", False, find_unsized),
    Check(
        "recorded-faster",
        "recorded collectives far faster than on the network of the recorded hardware",
        False,
        find_recorded_faster,
    ),
    Check("took-no-time", "collectives that replay a time that was not recorded", False, find_instant),
    Check(
        "all-reduce-in-disguise",
        "a collective that a tree carries out as an all-reduce",
        False,
        find_disguised,
    ),
    Check(
        "ring-behind-switch",
        "an all-to-all passed round a ring behind a switch",
        False,
        find_ring_behind_switch,
    ),
    Check("long-ring", "a collective that is mostly the latency of a long ring", False, find_long_rings),
    Check(
        "dimensions-not-involved",
        "collectives among all ranks that name a part of the dimensions",
        False,
        find_partly_involved,
    ),
    Check(
        "open-order",
        "collectives of a comm group in an order that the job leaves open",
        False,
        find_open_order,
    ),
    Check("extrapolated", "collectives unlike those the costs were fitted to", False, find_extrapolated),
    Check("does-not-fit", "more memory held than the GPU has that is recomputed for", True, find_unfit),
    Check("may-not-fit", "the same, estimated from tensors", False, find_perhaps_unfit),
    Check("compute-took-no-time", "compute without any time", False, find_timeless),
)
"""Every kind of doubt, in the order in which they are told."""
FORESEEN = ("group-dimensions", "message-dimensions")
"""Findings of the check before a run that a doubt tells again after it, with its cure."""
