"""What the form of the Workloads page asks for: the workload with what is proposed, or what is wrong, by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from studio.errors import ConfigError
from studio.generation.models import Model
from studio.generation.proposal import cures, propose
from studio.generation.workload import Workload
from studio.jobs.generating import Generating, model_of_config, system_of
from studio.pages.workloads.form import FILE
from studio.pages.workloads.texts import Fields, field_of, given_of, on_form, ranks_of
from studio.sim.systems import SYSTEMS
from studio.sim.systems.gpus import find_gpu, system_of_gpu

_MOST_NODE = 8

File = Mapping[str, str]
"""A config.json that was dropped: its `name` and its `text`."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A form that can be made.

    Attributes:
        wanted: The job.
        workload: What it is.
        proposed: What was proposed where nothing was said.
        memory_bytes: Memory of the GPU; None where none is chosen.
        cures: Changes that would make it fit, where it does not.
    """

    wanted: Generating
    workload: Workload
    proposed: Mapping[str, Any] = field(default_factory=dict)
    memory_bytes: float | None = None
    cures: tuple[Mapping[str, Any], ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the fullest NPU has room; where no GPU is chosen nothing is known against it."""
        return self.memory_bytes is None or sum(self.workload.peak_memory.values()) <= self.memory_bytes


Wrong = dict[str, ConfigError]
"""What is wrong, by field; "" where it is about none."""


def asked_for(fields: Fields, file: File | None) -> Filled | Wrong:
    """Return what a form asks for, or what is wrong with it."""
    given, wrong = given_of(fields)
    model: str | Model = fields["model"]
    try:
        ranks = ranks_of(fields)
        model = _model(fields["model"], file)
    except ConfigError as error:
        wrong[error.key] = error
    if wrong:
        return wrong
    try:
        return _filled(model, ranks, tuple(given.items()))
    except ConfigError as error:
        said = ConfigError(on_form(error.message), hint=on_form(error.hint), key=field_of(error))
        return {said.key: said}


def _model(name: str, file: File | None) -> str | Model:
    if name != FILE:
        return name
    if not file:
        raise ConfigError("The config.json is not here any more.", hint="Drop it again.", key="model")
    try:
        return _config_model(file["name"], file["text"])
    except ConfigError as error:
        raise ConfigError(on_form(error.message), hint=on_form(error.hint), key="model") from error


@lru_cache(maxsize=8)
def _config_model(name: str, text: str) -> Model:
    return model_of_config(name, text)


@lru_cache(maxsize=32)
def _filled(model: str | Model, ranks: int, said: tuple[tuple[str, Any], ...]) -> Filled:
    given = dict(said)
    if given.get("gpu") is None:
        wanted = Generating(model, ranks, said)
        return Filled(wanted, wanted.workload())
    memory = find_gpu(given["gpu"]).memory_gbytes * 1e9
    node = _node(given["gpu"])
    proposed = propose(model, ranks, given, memory, node)
    wanted = Generating(model, ranks, tuple(sorted({**given, **proposed}.items())))
    filled = Filled(wanted, wanted.workload(), proposed, memory)
    system_of(given["gpu"], ranks)  # says where its machines do not come in this size
    if filled.fits:
        return filled
    return Filled(wanted, filled.workload, proposed, memory, tuple(cures(model, ranks, given, memory, node)))


def _node(gpu: str) -> int:
    """Return how many GPUs of a machine tensor parallel ranks may share, at most."""
    family = SYSTEMS[system_of_gpu(gpu)].family
    return _MOST_NODE if family is None or family.torus else min(family.node, _MOST_NODE)
