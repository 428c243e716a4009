"""Named systems, each with the source of its numbers: what `--preset` takes and notebooks choose from.

What they are stands in the files of `studio.sim.systems`. A family of systems takes any size; a name may say one, as
hgx-h100-64 does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from studio.errors import ConfigError
from studio.notebook import build_html_table, format_parts
from studio.sim.config import SystemConfig
from studio.sim.fields import find_nearest
from studio.sim.models import Model, with_model
from studio.sim.network import UNIT
from studio.sim.parts import Parts, Table, interpret, is_extended
from studio.sim.setting_edits import with_settings
from studio.sim.systems import SYSTEMS, System, describe_measured_errors, find_system, is_built_in
from studio.units import format_counted


@dataclass(frozen=True, slots=True)
class Preset:
    """A named system of one size.

    Attributes:
        system: What it is of.
        npus: Its size.
        settings: What is changed of it, each KEY=VALUE as `--set` takes it.
    """

    system: System
    npus: int
    settings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return it in a line."""
        return format_parts("Preset", [self.name, format_counted(self.npus, "NPU"), *self.settings])

    @property
    def name(self) -> str:
        """The name of the system, without a size."""
        return self.system.name

    @property
    def title(self) -> str:
        """What the system is, in a line."""
        return self.system.title

    @property
    def source(self) -> str:
        """Where its numbers come from, in general; `system.sources` says it of each."""
        return self.system.source

    @property
    def measured_error(self) -> str:
        """How far simulated collectives of the system as it is, without settings, are from measured ones, in words."""
        return describe_measured_errors(self.system)

    def under(self, model: Model) -> Parts:
        """Return the system as ASTRA-sim would write it, as the full model or that of ASTRA-sim needs it."""
        return with_settings(self.system.parts(self.npus, model), self.settings)

    @property
    def parts(self) -> Parts:
        """The system as ASTRA-sim would write it, under the full model."""
        return self.under("full")

    @property
    def config(self) -> SystemConfig:
        """The system as the simulator takes it, under the full model; `studio.simulate` takes another."""
        return interpret(self.parts).config


class NoPresetError(ConfigError, KeyError):
    """There is no preset of a name: what a mapping raises, with a message."""


class Presets(Mapping[str, Preset]):
    """The presets by name.

    Example:
        >>> import studio
        >>> studio.presets["hgx-h100-16"].config.topology.npus
        16
        >>> list(studio.presets)[:3]
        ['dgx-2', 'dgx-superpod-a100', 'dgx-v100']
    """

    def __getitem__(self, name: str) -> Preset:
        if name not in self:
            near = find_nearest(str(name), SYSTEMS)
            raise NoPresetError(
                f"There is no preset {name!r:.80}.",
                hint=f"The nearest is {near!r}." if near else "list(studio.presets) names them.",
            )
        return preset(name)

    def __iter__(self) -> Iterator[str]:
        return iter(SYSTEMS)

    def __len__(self) -> int:
        return len(SYSTEMS)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and is_built_in(name)

    def __repr__(self) -> str:
        return format_parts("Presets", [repr(name) for name in self])

    def _repr_html_(self) -> str:
        """Return the presets as a table."""
        rows = [
            (entry.name, entry.system.sizes_words, entry.title, entry.measured_error)
            for entry in self.values()
        ]
        return build_html_table(repr(self), ("name", "sizes", "what it is", "measured error"), rows)


def preset(name: str | Path, npus: int | None = None, settings: Sequence[str] | str = ()) -> Preset:
    """Return a preset.

    Args:
        name: A built-in system, one with a size such as hgx-h100-64, or a path to a system file.
        npus: How many NPUs; None is what the name says, or the size that the system begins with.
        settings: What to change of it, each KEY=VALUE as `chakra-studio simulate --set` takes it;
            `chakra-studio presets NAME --json` lists the keys.

    Raises:
        ConfigError: There is no preset of this name; names the nearest. Or it does not come in this size, or has no such
            setting.

    Example:
        >>> preset("hgx-h100", npus=64).config.topology.npus
        64
        >>> preset("hgx-h100", npus=64, settings=["bandwidth[1]=25"]).config.topology.dims[1].bytes_per_ns
        25
    """
    if npus is not None and (isinstance(npus, bool) or not isinstance(npus, int)):
        raise ConfigError(
            f"npus is {npus!r:.80}; allowed: a whole number of NPUs", hint=f"preset({str(name)!r}, npus=8)"
        )
    system, named_npus = find_system(str(name))
    system.dimensions(npus or named_npus)
    chosen = (settings,) if isinstance(settings, str) else tuple(settings)
    result = Preset(system, npus or named_npus or system.npus, chosen)
    if chosen:
        # What is wrong with a setting is said where it is given.
        interpret(result.parts)
    return result


def infer_npu_count(name: str) -> int | None:
    """Return how many NPUs a name says, or the only number that the system comes in; None for a family by its name.

    Raises:
        ConfigError: There is no preset of this name.

    Example:
        >>> infer_npu_count("hgx-h100-16"), infer_npu_count("torus-8x8"), infer_npu_count("hgx-h100")
        (16, 64, None)
    """
    system, named_npus = find_system(name)
    return system.npus if system.family is None else named_npus


def convert_to_full(parts: Parts) -> Parts:
    """Return a system under the full model; one that began as a preset gets the costs that the preset has there.

    What was changed of the preset stays; rates then stay in the unit they are in.

    Example:
        >>> plain = preset("hgx-h100", 8).under("astra-sim")
        >>> convert_to_full(plain) == preset("hgx-h100", 8).parts
        True
    """
    name = parts.names.get("network", "").removeprefix(_PLACE)
    sizes = parts.network.get("npus_count")
    if name not in SYSTEMS or is_extended(parts) or not isinstance(sizes, list | tuple):
        return with_model(parts, "full")
    npus = math.prod(size for size in sizes if isinstance(size, int))
    if not SYSTEMS[name].fits(npus):
        return with_model(parts, "full")
    base = preset(name, npus)
    plain, full = base.under("astra-sim"), base.under("full")
    if full.network.get("npus_count") != sizes:
        return with_model(parts, "full")
    network = _merge_changes(parts.network, plain.network, full.network)
    if parts.network.get("bandwidth") != plain.network.get("bandwidth"):
        network.pop(UNIT, None)
    system = _merge_changes(parts.system, plain.system, full.system)
    return replace(parts, network=network, system=system, congestion="aware")


def describe_unevenness(parts: Parts) -> str:
    """Say that a preset has more nodes than a machine would need, because the NPUs fill no fewer of them alike; "" elsewhere.

    Example:
        >>> print(describe_unevenness(preset("hgx-h100", 17).parts))
        17 NPUs fill no nodes of 8 alike: simulated as 17 nodes of 1 NPU, where a machine has 3 nodes. More goes between \
nodes than there; 16 or 24 NPUs fill whole nodes.
        >>> describe_unevenness(preset("hgx-h100", 12).parts)
        ''
    """
    name = parts.names.get("network", "").removeprefix(_PLACE)
    family = SYSTEMS[name].family if name in SYSTEMS else None
    sizes = parts.network.get("npus_count")
    if family is None or family.node < 2 or not isinstance(sizes, list | tuple):
        return ""
    npus = math.prod(size for size in sizes if isinstance(size, int))
    needed = math.ceil(npus / family.node)
    whole = family.sizes(npus)
    if [size for size in sizes if size != 1] != [size for size in whole if size != 1] or whole[-1] <= needed:
        return ""
    inside = math.prod(whole[:-1])
    filled = [f"{count * family.node:,}" for count in (needed - 1, needed) if count]
    return (
        f"{npus:,} NPUs fill no nodes of {family.node:,} alike: simulated as {whole[-1]:,} nodes of "
        f"{format_counted(inside, 'NPU')}, where a machine has {format_counted(needed, 'node')}. "
        f"More goes between nodes than there; {' or '.join(filled)} NPUs fill whole nodes."
    )


_PLACE = "preset "
"""What messages put before the name of a preset."""


def _merge_changes(given: Table, plain: Table, full: Table) -> dict[str, object]:
    """Return the table of the full model, with the values that differ from those of the plain one."""
    changed = {key: value for key, value in given.items() if plain.get(key) != value}
    gone = plain.keys() - given.keys()
    return {key: value for key, value in {**full, **changed}.items() if key not in gone}


PRESETS = Presets()
"""Every preset by name, in the order they are listed."""
presets = PRESETS
"""What notebooks call them."""
