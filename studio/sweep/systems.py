"""Make the system and the job of a point, by the code that `simulate --preset --set` uses."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from studio.completion.mesh import Mesh
from studio.completion.scale import refuse_missing
from studio.errors import ConfigError
from studio.generation.recipe import Growth, infer_mesh, scale_job
from studio.sim.known import Known
from studio.sim.models import MODELS, Model, with_model
from studio.sim.parts import Parts
from studio.sim.presets import infer_npu_count, preset
from studio.sim.setting_edits import with_settings
from studio.sweep.space import MODEL, NPUS, PRESET, REPLICAS, SPECIAL
from studio.trace import Trace

_MOST_JOBS = 4


@dataclass(frozen=True, slots=True)
class Base:
    """The system that a sweep varies.

    Attributes:
        preset: Name of the preset it starts from; None where `tables` are given.
        tables: A system in place of a preset; where presets are varied, these have its remote memory.
        npus: NPUs of the preset; None as many as the job has ranks, unless its name says it.
        model: The model; None is that of the preset or the tables.
        settings: KEY=VALUE each, set before the varied ones.
    """

    preset: str | None = None
    tables: Parts | None = None
    npus: int | None = None
    model: Model | None = None
    settings: tuple[str, ...] = ()


def build_parts_at(base: Base, point: Mapping[str, str], ranks: int) -> Parts:
    """Return the system at a point.

    Args:
        base: What the sweep varies.
        point: Values of varied keys.
        ranks: Ranks of the job there: the size of a preset where nothing else says it.

    Raises:
        ConfigError: The system cannot be made.
    """
    model = _parse_model(point[MODEL]) if MODEL in point else base.model
    name = point.get(PRESET, base.preset)
    parts = base.tables
    if name is not None:
        npus = _parse_whole(NPUS, point[NPUS]) if NPUS in point else base.npus
        named_npus = infer_npu_count(name)
        if npus is not None and named_npus is not None and npus != named_npus:
            raise ConfigError(
                f"{NPUS} is {npus:,}, and the preset {name} has {named_npus:,} NPUs; allowed: the same number"
            )
        # As `simulate` has it: whoever sets the congestion of a preset asks for the model that has the choice.
        keys = [*point, *(setting.partition("=")[0].strip() for setting in base.settings)]
        plain = model is None and "congestion" in keys
        parts = preset(name, npus or named_npus or ranks).under("astra-sim" if plain else model or "full")
        if base.tables is not None and base.tables.memory is not None:
            # Presets are machines, and say nothing of what a job keeps elsewhere: there it stays where it was.
            parts = replace(parts, memory=base.tables.memory)
    elif NPUS in point:
        raise ConfigError(
            f"{NPUS} is varied, and the system is given as files; allowed: with a preset",
            hint="Vary npus_count=[8,4],[8,8], which are the sizes of dimensions.",
        )
    if parts is None:
        raise ConfigError(
            "No system to simulate on", hint="Give --preset, or vary it: --set preset=hgx-h100,hgx-a100."
        )
    parts = with_model(parts, model) if model is not None and name is None else parts
    varied = [f"{key}={value}" for key, value in point.items() if key not in SPECIAL]
    return with_settings(parts, [*base.settings, *varied])


def _parse_model(text: str) -> Model:
    for model in MODELS:
        if model == text:
            return model
    raise ConfigError(f"{MODEL} is {text!r}; allowed: {', '.join(MODELS)}")


def list_npu_counts(values: Sequence[str]) -> list[int]:
    """Return the numbers of NPUs among values, each once; what is none is the result of its points."""
    counts = []
    for value in values:
        with contextlib.suppress(ConfigError):
            counts.append(_parse_whole(NPUS, value))
    return list(dict.fromkeys(counts))


def _parse_whole(key: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 20:
        raise ConfigError(f"{key} is {text!r}; allowed: a whole number from 1 to {(1 << 20) - 1:,}")
    return int(text)


class Jobs:
    """A job at the sizes that points ask for, each with what its simulations have in common.

    Attributes:
        trace: The job as it was given.
        read: The job by number of NPUs, where that decides what it is; see `Sweep`.
    """

    def __init__(self, trace: Trace, read: Mapping[int, Trace | str] | None = None) -> None:
        self.trace = trace
        self.read = read or {}
        self._read: dict[int, Known] = {}
        self._sizes: dict[int | None, Known] = {None: Known(trace)}
        self._mesh: Mesh | None = None

    def at(self, point: Mapping[str, str]) -> Known:
        """Return the job at a point.

        Raises:
            ConfigError: It cannot be scaled to as many replicas, or be read for as many NPUs.
        """
        if NPUS in point and self.read:
            return self._get_sized_job(_parse_whole(NPUS, point[NPUS]), point)
        replicas = _parse_whole(REPLICAS, point[REPLICAS]) if REPLICAS in point else None
        if replicas not in self._sizes:
            self._sizes[replicas] = Known(self._scale_replicas(replicas or 1))
            if len(self._sizes) > _MOST_JOBS:
                del self._sizes[next(size for size in self._sizes if size is not None)]
        return self._sizes[replicas]

    def _get_sized_job(self, npus: int, point: Mapping[str, str]) -> Known:
        """Return the job as it was read for so many NPUs."""
        if REPLICAS in point:
            raise ConfigError(
                f"{NPUS} and {REPLICAS} are both varied of a job that is read for each number of NPUs; allowed: one of both",
                hint=f"Leave {REPLICAS} out: more NPUs are more replicas.",
            )
        job = self.read[npus]
        if isinstance(job, str):
            raise ConfigError(job, hint=f"Vary {NPUS} over numbers that the workload can run on.")
        if npus not in self._read:
            self._read[npus] = Known(job)
            if len(self._read) > _MOST_JOBS:
                del self._read[next(iter(self._read))]
        return self._read[npus]

    def _scale_replicas(self, replicas: int) -> Trace:
        if self._mesh is None:
            self._mesh = infer_mesh(self.trace)
            refuse_missing(self.trace, self._mesh)
        return scale_job(self.trace, self._mesh, Growth(dp=replicas))[0]
