"""What a user asks for and gets: the fastest layouts of a model on some ranks of a GPU, and why they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from studio.errors import ConfigError
from studio.et.executors import start_local_processes
from studio.generation.models import Model
from studio.generation.transformer import count_flop_per_sequence
from studio.layout_search.bound import Bounds
from studio.layout_search.memory import compute_peak_memory, with_offload
from studio.layout_search.running import EXPOSED, Runner, Setting
from studio.layout_search.search import Item, Progress, build_item_key, search, select_front
from studio.layout_search.space import Candidate, Frame, build_frame, list_candidates
from studio.layout_search.unfit import build_unfit_error, describe_remedies
from studio.notebook import build_html_table, format_parts
from studio.operators.roofline import Gpu, require_peak
from studio.sim.parts import Parts, interpret
from studio.sim.presets import preset as find_preset
from studio.sim.setting_edits import with_settings
from studio.sim.systems import SYSTEMS, find_system
from studio.sim.systems.family import Family
from studio.sim.systems.gpus import find_gpu, find_gpu_system
from studio.units import format_bytes, format_counted, format_ns

if TYPE_CHECKING:
    import pandas as pd

MFU = (
    "Model FLOP utilisation: operations of matrix products that the model needs for a step, those of attention in full and "
    "none that are computed again, over the time of the step and the peak of all ranks in bf16 (Chowdhery et al., PaLM, 2022, "
    "appendix B)."
)
"""What `mfu` is."""
TYPE = "bf16"
TOP_AT_MOST = 1_000
"""So many of the fastest layouts can be asked for: of each of them the time is found by a simulation, which bounds spare the others."""
_FEW_NODES = 200_000
"""So few nodes of all layouts together are simulated by this process: others take longer to start."""
_NODES_A_LAYER = 36


@dataclass(frozen=True)
class LayoutPlan:
    """The layouts of a model on some ranks, the fastest known exactly.

    Attributes:
        frame: What they have in common.
        setting: What they were simulated with.
        system_name: The system, in words.
        gpu: The GPU whose memory and peak count.
        items: All layouts that fit; where none does, those that fit with a part in host memory.
        unfit: How many divide and do not fit.
        nearest_unfit: Of those the one that holds least; None where all fit.
        refused: Why others do not divide, and how many layouts each.
        top: How many of the fastest were asked for.
        without_host: Where only layouts fit of which host memory holds a part: what would fit without; "" elsewhere.
    """

    frame: Frame
    setting: Setting
    system_name: str
    gpu: Gpu
    items: tuple[Item, ...]
    unfit: int
    nearest_unfit: Item | None
    refused: Counter[str]
    top: int
    without_host: str = ""

    @cached_property
    def simulated(self) -> list[Item]:
        """Every layout that was simulated, the fastest first."""
        return sorted((item for item in self.items if item.answer is not None), key=build_item_key)

    @property
    def ranked(self) -> list[Item]:
        """The fastest layouts, as many as were asked for: what simulating all would give."""
        return self.simulated[: self.top]

    @property
    def best(self) -> Item:
        """The fastest layout."""
        return self.simulated[0]

    @property
    def front(self) -> list[Item]:
        """The layouts that no other beats in both memory and time, from the least memory on."""
        return select_front(self.items)

    @property
    def kinds(self) -> list[Item]:
        """The fastest layout that was simulated of each kind, such as `tp × pp × dp`, the fastest first.

        Of kinds that are not among the fastest others may be a little faster, no faster than `least_of_kind_ns`.
        """
        fastest: dict[str, Item] = {}
        for item in self.simulated:
            fastest.setdefault(item.candidate.kind, item)
        return list(fastest.values())

    def least_of_kind_ns(self, kind: str) -> float:
        """Return the time of a step that no layout of a kind comes under."""
        return min(
            self.step_ns(item) for item in self.items if item.candidate.kind == kind and not item.error
        )

    @property
    def left_out(self) -> list[Item]:
        """Layouts that were not simulated, since they cannot be faster than their bound."""
        return sorted(
            (item for item in self.items if item.answer is None and not item.error), key=build_item_key
        )

    def step_ns(self, item: Item) -> float:
        """Return the time of a step; of a layout that was left out the least it can be."""
        return item.finish_ns / item.candidate.layout.steps

    def tokens_per_s(self, item: Item) -> float:
        """Return tokens per second and GPU."""
        layout = item.candidate.layout
        return layout.batch * layout.sequence / self.step_ns(item) * 1e9 / layout.ranks

    def mfu(self, item: Item) -> float:
        """Return the model FLOP utilisation, 0 to 1; see `MFU`."""
        layout, model = item.candidate.layout, self.frame.model
        flop = layout.batch * count_flop_per_sequence(model, layout.sequence, model.vocabulary)
        return flop / (self.step_ns(item) * 1e-9 * layout.ranks * require_peak(self.gpu, TYPE) * 1e12)

    def parts_s(self, item: Item) -> dict[str, float]:
        """Return what the time of a step went to in seconds, mean over the ranks, as `running.Answer` has parts."""
        if item.answer is None:
            return {}
        steps = item.candidate.layout.steps
        return {part: ns / steps / 1e9 for part, ns in item.answer.parts_ns.items()}

    @property
    def compute_times(self) -> str:
        """Where the times of compute nodes are from, in words."""
        speed = self.items[0].candidate.workload.speed
        if speed is None:
            return "compute by the roofline of the system"
        if speed.at_peak:
            return f"compute by the roofline of {speed.gpu.name} at its peaks: a lower bound, no estimate"
        return f"compute with {speed.source}"

    def part_names(self) -> list[str]:
        """Return the parts that some layout has, `compute` first."""
        names = {part for item in self.simulated for part in self.parts_s(item)}
        return sorted(names, key=_build_part_key)

    def rows(self) -> list[dict[str, Any]]:
        """Return every layout that fits as plain data, the fastest first; see docs/formats.md."""
        fastest, kinds = {id(item) for item in self.front}, {id(item) for item in self.kinds}
        ordered = [*self.simulated, *self.left_out, *(item for item in self.items if item.error)]
        return [
            {
                "rank": place + 1 if place < len(self.ranked) else None,
                **collect_options(item.candidate),
                "kind": item.candidate.kind,
                "simulated": item.answer is not None,
                "step_s": None if item.answer is None else self.step_ns(item) / 1e9,
                "least_step_s": item.bound_ns / item.candidate.layout.steps / 1e9,
                "tokens_per_s_per_gpu": None if item.answer is None else self.tokens_per_s(item),
                "mfu": None if item.answer is None else self.mfu(item),
                "memory_bytes": item.held.total,
                **{f"{part}_bytes": size for part, size in item.held.parts.items()},
                "on_front": id(item) in fastest,
                "best_of_kind": id(item) in kinds,
                **{
                    f"{part.replace(' ', '_')}_s": self.parts_s(item).get(part, 0.0) if item.answer else None
                    for part in self.part_names()
                },
                "error": item.error or None,
            }
            for place, item in enumerate(ordered)
        ]

    def to_pandas(self) -> pd.DataFrame:
        """Return every layout that fits as a table, the fastest first."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def __repr__(self) -> str:
        counts = f"{len(self.simulated)} of {len(self.items)} layouts simulated"
        best = f"best {self.best.candidate.layout.name}: {format_ns(round(self.step_ns(self.best)))} a step"
        return format_parts(
            "LayoutPlan", [f"{self.frame.model.name} on {self.frame.ranks:,} × {self.gpu.name}", counts, best]
        )

    def _repr_html_(self) -> str:
        """Return the fastest layouts as a table."""
        head = ("layout", "micro-batch", "zero", "step", "tokens/s a GPU", "MFU", "memory")
        rows = [
            (
                item.candidate.layout.name, item.candidate.layout.micro_batch, item.candidate.layout.zero,
                format_ns(round(self.step_ns(item))), f"{self.tokens_per_s(item):,.0f}",
                f"{100 * self.mfu(item):.1f} %", format_bytes(item.held.total),
            )
            for item in self.ranked
        ]  # fmt: skip
        return build_html_table(repr(self), head, rows)


def collect_options(candidate: Candidate) -> dict[str, Any]:
    """Return the degrees of a layout, with how many replicas and micro-batches follow from them."""
    layout = candidate.layout
    degrees = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp}
    skipped = {*degrees, "batch", "sequence", "gpu", "steps", "compute_efficiency", "memory_efficiency"}
    degrees |= {key: value for key, value in candidate.options.items() if key not in skipped}
    return {**degrees, "offload": layout.offload, "micro_batches": layout.micro_batches}


def _build_part_key(part: str) -> tuple[int, str]:
    order = ("compute", EXPOSED, "bubble", "idle", "after_finish")
    return next((at for at, name in enumerate(order) if part.startswith(name)), len(order)), part


def plan(  # noqa: PLR0913 (what a user may say)
    model: str | Model,
    *,
    ranks: int,
    gpu: str | None = None,
    preset: str | None = None,
    system: Parts | None = None,
    settings: Sequence[str] = (),
    top: int = 10,
    progress: Progress | None = None,
    **options: Any,
) -> LayoutPlan:
    """Find the fastest layouts of a model on some ranks.

    Every layout that divides and fits in the GPU's memory is simulated, but for those that cannot be among the fastest or on the
    front of time against memory, by a lower bound of their time: both are what simulating all would give.

    Args:
        model: The name of a preset (`studio.generation.models.MODELS`), `custom`, or the numbers of a model.
        ranks: How many ranks.
        gpu: The GPU that durations, memory and peak are of, such as h100; None for that of the preset.
        preset: The system, by name; None for that of the GPU. It takes the number of ranks where its name says none.
        system: A system in place of a preset.
        settings: KEY=VALUE each, set on the preset.
        top: How many of the fastest layouts are asked for, 1,000 at most.
        progress: Told the phase, layouts decided and layouts in all; may raise to stop.
        options: What is fixed, by the keys of `studio.generation.options.OPTIONS`: `batch`, `sequence`, `tp` and so on. What is
            not said of a layout is tried, see `studio.layout_search.space.DEGREES`.

    Raises:
        ConfigError: A name is not known, nothing divides, or no layout fits: says what would.

    Example:
        >>> import studio
        >>> found = studio.plan("gpt3-125m", ranks=2, gpu="h100", batch=4, micro_batch=1, sequence_parallel=True)
        >>> found.best.candidate.layout.name
        'tp=1,dp=2,pp=1'
    """
    if type(top) is not int or not 1 <= top <= TOP_AT_MOST:
        raise ConfigError(f"--top is {top}; allowed: a whole number from 1 to {TOP_AT_MOST:,}.", key="top")
    parts, name, chip, family = _choose_system(gpu, preset, system, ranks)
    parts = with_settings(parts, settings)
    config = interpret(parts).config
    if config.topology.npus != ranks:
        raise ConfigError(
            f"--ranks is {ranks:,}, and the system has {config.topology.npus:,} NPUs; allowed: one for each rank.",
            hint="Name a preset without a size, such as hgx-h100.",
            key="ranks",
        )
    require_peak(chip, TYPE)
    frame = build_frame(model, ranks, {**options, "gpu": gpu or name}, config.topology.dims[0].size)
    layouts, refused = list_candidates(frame)
    if not layouts:
        # Where what is fixed divides the ranks in no way, no layout was tried.
        why = refused.most_common(1)[0][0] if refused else "what is fixed does not divide the ranks."
        raise ConfigError(
            f"No layout of {frame.model.name} divides on {format_counted(ranks, 'rank')}: {why}",
            hint="Give another --batch or number of ranks, or fix fewer options.",
        )
    held = [Item(candidate, compute_peak_memory(frame.model, candidate.layout)) for candidate in layouts]
    capacity = chip.memory_gbytes * 1e9
    items = [item for item in held if item.held.total <= capacity]
    rest = [item for item in held if item.held.total > capacity]
    needs_host = False
    if not items:
        # How fast the host is differs more between machines than GPUs do, so it is the last resort.
        helped = [(item, with_offload(frame, item.candidate, capacity)) for item in rest]
        items = [Item(*found_with) for _, found_with in helped if found_with is not None]
        rest = [item for item, found_with in helped if found_with is None]
        needs_host = bool(items)
    nearest = min(rest, key=lambda item: item.held.total, default=None)
    if not items:
        assert nearest is not None
        raise build_unfit_error(frame, nearest, len(held), chip, family)
    setting = Setting(frame.model, ranks, parts)
    with _open_runner(setting, items, progress) as runner:
        search(items, Bounds(frame.model, config), runner, top, progress)
    if all(item.error for item in items):
        raise ConfigError(
            f"No layout that fits can be simulated: {items[0].error}",
            hint="Choose another system with --preset, or fix fewer options.",
        )
    without = describe_remedies(frame, chip, family) if needs_host else ""
    return LayoutPlan(frame, setting, name, chip, tuple(items), len(rest), nearest, refused, top, without)


def _choose_system(
    gpu: str | None, preset: str | None, system: Parts | None, ranks: int
) -> tuple[Parts, str, Gpu, Family | None]:
    """Return the system, its name, the GPU that counts, and the sizes it comes in."""
    if system is not None:
        if gpu is None:
            raise ConfigError(
                "A system is given as files, but no --gpu.", hint="Name one, such as --gpu h100."
            )
        return system, "the system given", find_gpu(gpu), None
    if preset is None:
        if gpu is None:
            raise ConfigError("Neither --gpu nor --preset is given.", hint="Name a GPU, such as --gpu h100.")
        find_gpu(gpu)
        preset = find_gpu_system(gpu)
    machine, named_size = find_system(preset)
    chip = find_gpu(gpu) if gpu is not None else machine.gpu
    if chip is None or (gpu is None and machine.name not in SYSTEMS):
        raise ConfigError(
            f"--preset is {preset!r}, whose GPU is not known by name.", hint="Name one, such as --gpu h100."
        )
    size = named_size or (ranks if machine.family is not None else None)
    return find_preset(preset, size).under("full"), machine.name, chip, machine.family


@contextmanager
def _open_runner(setting: Setting, items: list[Item], progress: Progress | None) -> Iterator[Runner]:
    """Yield who simulates: this process where there is little to do."""

    def poll() -> None:
        if progress is not None:
            progress("simulating layouts", 0, len(items))

    nodes = sum(item.candidate.layout.micro_batches for item in items) * setting.model.layers * _NODES_A_LAYER
    if nodes < _FEW_NODES:
        yield Runner(setting)
        return
    with start_local_processes() as processes:
        yield Runner(setting, processes)
