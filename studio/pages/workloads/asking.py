"""What the form of the Workloads page asks for: the workload with what is proposed, or what is wrong, by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from studio.errors import ConfigError
from studio.generation.fitting import fit_in
from studio.generation.inference.deployment import PHASES
from studio.generation.inference.fitting import propose_steps
from studio.generation.inference.options import build_asked_steps
from studio.generation.llm import describe
from studio.generation.models import Model
from studio.generation.program import Speed
from studio.generation.proposal import propose
from studio.generation.workload import Workload
from studio.jobs.generating import Generating, Kind, find_system, parse_config_model, summarise_wanted_job
from studio.pages.workloads.form import FILE
from studio.pages.workloads.texts import (
    Fields,
    find_field,
    infer_kind,
    parse_fields,
    parse_ranks,
    replace_options,
)
from studio.sim.systems import SYSTEMS
from studio.sim.systems.gpus import find_gpu, find_gpu_system

_MOST_NODE = 8
_MOST_CURES = 4

File = Mapping[str, str]
"""A config.json that was dropped: its `name` and its `text`."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A form that can be made.

    Attributes:
        wanted: The job.
        of: What it is, of training a transformer; None of other jobs.
        proposed: What was proposed where nothing was said.
        memory_bytes: Memory of the GPU; None where none is chosen.
        cures: Changes that would make it fit, where it does not.
    """

    wanted: Generating
    of: Workload | None = None
    proposed: Mapping[str, Any] = field(default_factory=dict)
    memory_bytes: float | None = None
    cures: tuple[Mapping[str, Any], ...] = ()

    @property
    def workload(self) -> Workload:
        """The training of a transformer that it is."""
        assert self.of is not None
        return self.of

    @property
    def speed(self) -> Speed | None:
        """How fast compute nodes of a transformer run."""
        if self.of is not None:
            return self.of.speed
        return build_asked_steps(self.wanted.model, self.wanted.ranks, dict(self.wanted.given)).speed

    @property
    def fits(self) -> bool:
        """Whether the fullest NPU has room; where no GPU is chosen nothing is known against it."""
        if self.memory_bytes is None:
            return True
        held = (
            sum(self.of.peak_memory.values())
            if self.of
            else summarise_wanted_job(self.wanted)["memory"]["total"]
        )
        return held <= self.memory_bytes


def compute_counts(filled: Filled) -> Mapping[str, Any]:
    """Return what closed forms say of a job."""
    if filled.of is None:
        return summarise_wanted_job(filled.wanted)
    return describe(filled.of.model, filled.of.layout)


Wrong = dict[str, ConfigError]
"""What is wrong, by field; "" where it is about none."""


def parse_form(fields: Fields, file: File | None) -> Filled | Wrong:
    """Return what a form asks for, or what is wrong with it."""
    given, wrong = parse_fields(fields)
    model: str | Model = fields["model"]
    try:
        ranks = parse_ranks(fields)
        model = _resolve_model(fields["model"], file)
    except ConfigError as error:
        wrong[error.key] = error
    if wrong:
        return wrong
    try:
        return _fill_form(model, ranks, tuple(given.items()), infer_kind(fields))
    except ConfigError as error:
        problem = ConfigError(
            replace_options(error.message), hint=replace_options(error.hint), key=find_field(error)
        )
        return {problem.key: problem}


def _resolve_model(name: str, file: File | None) -> str | Model:
    if name != FILE:
        return name
    if not file:
        raise ConfigError("The config.json is not here any more.", hint="Drop it again.", key="model")
    try:
        return _parse_config_model(file["name"], file["text"])
    except ConfigError as error:
        raise ConfigError(
            replace_options(error.message), hint=replace_options(error.hint), key="model"
        ) from error


@lru_cache(maxsize=8)
def _parse_config_model(name: str, text: str) -> Model:
    return parse_config_model(name, text)


@lru_cache(maxsize=32)
def _fill_form(model: str | Model, ranks: int, options: tuple[tuple[str, Any], ...], kind: Kind) -> Filled:
    given = dict(options)
    if kind != "llm":
        return _fill_other(Generating(model, ranks, options, kind))
    if given.get("gpu") is None:
        wanted = Generating(model, ranks, options)
        return Filled(wanted, wanted.workload())
    memory = find_gpu(given["gpu"]).memory_gbytes * 1e9
    node = _count_node_gpus(given["gpu"])
    proposed = propose(model, ranks, given, memory, node)
    wanted = Generating(model, ranks, tuple(sorted({**given, **proposed}.items())))
    filled = Filled(wanted, wanted.workload(), proposed, memory)
    find_system(given["gpu"], ranks)  # says where its machines do not come in this size
    if filled.fits:
        return filled
    return replace(filled, cures=tuple(_iterate_cures(filled.workload, given, memory, node)))


def _iterate_cures(
    workload: Workload, given: Mapping[str, Any], memory: float, node: int
) -> Iterator[dict[str, Any]]:
    """Yield what would make a job fit, as changes of fields: what is not said stays so."""
    for remedy in fit_in(workload.model, workload.layout, memory, node).remedies[:_MOST_CURES]:
        change = dict(remedy.change)
        if {"tp", "pp", "ranks"} & set(change):
            change["dp"] = None
        yield {key: value for key, value in change.items() if value is not None or given.get(key) is not None}


def _fill_other(wanted: Generating) -> Filled:
    """Return steps of inference, with the degrees that are proposed, or the training of another network."""
    phase = dict(wanted.given).get("phase")
    if phase not in (None, *PHASES):
        raise ConfigError(
            f"--phase is {phase[:40]!r}; allowed: {', '.join(PHASES)}.",
            hint="`chakra-studio generate inference` makes disaggregated jobs.",
            key="phase",
        )
    summarise_wanted_job(wanted)  # says what is wrong
    if wanted.gpu is None:
        return Filled(wanted)
    find_system(wanted.gpu, wanted.ranks)
    filled = Filled(wanted, memory_bytes=find_gpu(wanted.gpu).memory_gbytes * 1e9)
    return filled if filled.fits or wanted.kind != "inference" else _fit_steps(filled)


def _fit_steps(filled: Filled) -> Filled:
    """Return steps that do not fit as they are said, with the degrees that make them fit where there are such."""
    wanted, memory = filled.wanted, filled.memory_bytes or 0
    given = dict(wanted.given)
    asked = build_asked_steps(wanted.model, wanted.ranks, given)
    proposed = propose_steps(asked.model, asked.wish, memory, given, _count_node_gpus(given["gpu"]))
    if not proposed:
        return filled
    wanted = replace(wanted, given=tuple(sorted({**given, **proposed}.items())))
    return Filled(wanted, proposed=proposed, memory_bytes=memory)


def _count_node_gpus(gpu: str) -> int:
    """Return how many GPUs of a machine tensor parallel ranks may share, at most."""
    family = SYSTEMS[find_gpu_system(gpu)].family
    return _MOST_NODE if family is None or family.torus else min(family.node, _MOST_NODE)
