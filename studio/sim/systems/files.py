"""System files: a machine as one YAML file, with a source for every number.

The built-in systems are such files beside this module; a calibrated or edited system is one of the user's. Keys:
`name`, `title`, `source`, `sources` (text by dotted key), `family` (sizes: `studio.sim.systems.family`), `network` and
`system` as in ASTRA-sim's files, `options` (its command line's, under the full model), `costs` (the cost model of collectives), `gpu` (what an NPU can do), `astra-sim` (other
values under the model of that name), `calibration` (what the costs were fitted to, and the error that is left), `aliases`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from studio.notebook import format_record
from studio.sim.astra import read_yaml
from studio.sim.fabrics import Speed, build_rail_optimized
from studio.sim.fields import Fields
from studio.sim.models import Model, with_model
from studio.sim.network import EXTENDED_NETWORK_KEYS, UNIT, convert_to_gb_per_s
from studio.sim.parts import EXTENDED, Parts, Table
from studio.sim.settings import ALGORITHM_SETTINGS, DIMENSION_SETTINGS, MAX_NPUS, NETWORK_UNIT
from studio.sim.systems.family import Family, read_family, refuse_size
from studio.sim.systems.gpu import Gpu, read_gpu, read_nested, refuse_unknown
from studio.units import format_counted

KEYS = (
    "name",
    "title",
    "source",
    "aliases",
    "family",
    "network",
    "system",
    "options",
    "gpu",
    "astra-sim",
    "sources",
    "costs",
    "calibration",
)
"""The keys of a system file, in the order they are written."""
ENDINGS = (".yml", ".yaml")
_REFERENCE = "astra-sim"
_SYSTEM: Table = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "collective-optimization": "localBWAware",
}
"""What `system` has where a file does not say otherwise."""


@dataclass(frozen=True, slots=True)
class System:
    """A machine as its file describes it.

    Attributes:
        name: What `--preset` takes.
        title: What the machine is, in a line.
        source: Where the numbers come from, in general.
        place: What messages call the file.
        sources: Where single numbers come from, by dotted key; a key counts for all below it.
        aliases: Other names, and the NPUs each stands for.
        family: What sizes it comes in; None for the one size its network has.
        network, system: As in ASTRA-sim's files; lists of a family have one entry per dimension that it can have.
        options: What ASTRA-sim takes on its command line, under the full model.
        costs: Parameters of the cost model of collectives; None where messages on links are simulated.
        gpu: What an NPU can do; None where the file does not say.
        reference: Tables `network` and `system` of other values under the model of ASTRA-sim.
        calibration: What the costs were fitted to, and how far they are off.
    """

    name: str
    title: str
    source: str
    place: str
    sources: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, int] = field(default_factory=dict)
    family: Family | None = None
    network: Table = field(default_factory=dict)
    system: Table = field(default_factory=dict)
    options: Table = field(default_factory=dict)
    costs: Table | None = None
    gpu: Gpu | None = None
    reference: Table = field(default_factory=dict)
    calibration: Table = field(default_factory=dict)

    __repr__ = format_record

    @property
    def npus(self) -> int:
        """NPUs where nothing says how many."""
        if self.family is not None:
            return self.family.start
        return math.prod(self.dimensions())

    @property
    def sizes_words(self) -> str:
        """The sizes it comes in, in words."""
        return f"{self.npus:,} NPUs" if self.family is None else self.family.sizes_words

    def fits(self, npus: int) -> bool:
        """Whether it comes in this size."""
        return npus == self.npus if self.family is None else self.family.fits(npus)

    def parts(self, npus: int | None = None, model: Model = "full") -> Parts:
        """Return the system as ASTRA-sim's tables.

        Args:
            npus: How many NPUs; None is the size it has, or a family begins with. A system of one size has that
                whatever is asked for.
            model: The full one, or that of ASTRA-sim.

        Raises:
            ConfigError: The family does not come in this size.
        """
        sizes = self.dimensions(npus)
        network, system = dict(self.network), {**_SYSTEM, **self.system}
        full = model == "full" or (self.family is not None and self.family.rails)
        if not full:
            network, system = self._convert_for_reference(network, system)
        kept = _list_kept_dimensions(sizes, keep_first=full)
        network = _with_sizes(self._with_shared_nics(network, sizes), sizes, kept)
        for key in {setting.key for setting in ALGORITHM_SETTINGS} & system.keys():
            if isinstance(named := system[key], list | tuple) and len(named) == len(sizes):
                system[key] = [named[place] for place in kept]
        rings = {
            setting.key: ["ring"] * len(kept) for setting in ALGORITHM_SETTINGS if not setting.is_extended
        }
        if self.family is not None and self.family.rails:
            network |= _build_rails(network)
        elif full:
            network = with_costs(network, self._build_costs(sizes))
        names = dict.fromkeys(("network", "system", "memory", "options"), self.place)
        tables = Parts(network, {**rings, **system}, options=self.options if full else {}, names=names)
        return with_model(tables, "full") if full else tables

    def dimensions(self, npus: int | None = None) -> list[int]:
        """Return the size of each dimension the network can have.

        Raises:
            ConfigError: The family does not come in this size.
        """
        if self.family is None:
            return list(self.network["npus_count"])  # type: ignore[call-overload, no-any-return]  # checked when it was read
        wanted = self.family.start if npus is None else npus
        refuse_size(self.name, self.family, wanted)
        return self.family.sizes(wanted)

    def _with_shared_nics(self, network: dict[str, object], sizes: list[int]) -> dict[str, object]:
        """Return a network in which the NPUs of a node that is not whole share its NICs; none has more than one."""
        family, rates = self.family, network["bandwidth"]
        if family is None or not 0 < family.nics < family.node or not isinstance(rates, list | tuple):
            return network
        if len(rates) == len(family.inside):
            return network
        whole, used = rates[-1] * family.node, math.prod(sizes[:-1])
        return {**network, "bandwidth": [*rates[:-1], min(whole / family.nics, whole / used)]}

    def _build_costs(self, sizes: list[int]) -> Table | None:
        """Return the parameters of the cost model, with the NICs of a node where they are fewer than its NPUs."""
        family = self.family
        if self.costs is None or family is None or not 0 < family.nics < family.node or "nics" in self.costs:
            return self.costs
        return {**self.costs, "nics": min(family.nics, math.prod(sizes[:-1]))}

    def _convert_for_reference(
        self, network: dict[str, object], system: dict[str, object]
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Return the tables as ASTRA-sim can read them: rates in its unit, nothing of the extended mode."""
        given = self.reference.get("network", {})
        if network.pop(UNIT, NETWORK_UNIT) != NETWORK_UNIT:
            network["bandwidth"] = [convert_to_gb_per_s(rate) for rate in network["bandwidth"]]  # type: ignore[attr-defined]
        network = {key: value for key, value in network.items() if key not in EXTENDED_NETWORK_KEYS}
        # With a roofline ASTRA-sim replaces every recorded time, so a file has to ask for it.
        for key in (EXTENDED, "roofline-enabled", "peak-perf"):
            system.pop(key, None)
        return {**network, **given}, {**system, **self.reference.get("system", {})}  # type: ignore[dict-item]


def with_costs(network: dict[str, object], costs: Table | None) -> dict[str, object]:
    """Return a network with the cost model of its collectives, in a release that simulates with one."""
    return network if costs is None or "costs" not in EXTENDED_NETWORK_KEYS else {**network, "costs": costs}


def _list_kept_dimensions(sizes: list[int], *, keep_first: bool) -> list[int]:
    """Return the places of the dimensions that a network of these sizes has: those of one NPU are left out.

    Dimensions of one in front of others stay in the full model, where dimension 0 is the inside of a node.
    """
    last = max((place for place, size in enumerate(sizes) if size > 1), default=0)
    return [place for place, size in enumerate(sizes[: last + 1]) if size > 1 or keep_first or last == 0]


def _with_sizes(network: dict[str, object], sizes: list[int], kept: list[int]) -> dict[str, object]:
    """Return a network of these sizes, of which some dimensions are kept."""
    resized = {**network, "npus_count": [sizes[place] for place in kept]}
    for setting in DIMENSION_SETTINGS:
        values = network.get(setting.key)
        if setting.key != "npus_count" and isinstance(values, list | tuple):
            resized[setting.key] = [values[place] for place in kept]
    return resized


def _build_rails(network: Mapping[str, object]) -> dict[str, object]:
    """Return switches and links of a network with a switch for all NPUs of equal place in their nodes."""
    sizes = [*network["npus_count"], 1][:2]  # type: ignore[misc]  # lists of the network
    rates = [*network["bandwidth"], 1.0][:2]  # type: ignore[misc]
    latencies = [*network["latency"], 1.0][:2]  # type: ignore[misc]
    inside, rail = (Speed(rate, latency) for rate, latency in zip(rates, latencies, strict=True))
    graph = build_rail_optimized(sizes[1], sizes[0], inside=inside, rail=rail)
    links = [[link.source, link.target, link.bytes_per_ns, link.latency_ns] for link in graph.links]
    return {"switches": graph.switches, "links": links}


# ---------------------------------------------------------------------------------------------------
# Reading and writing


def read_system(path: Path | str, place: str = "") -> System:
    """Read a system file.

    Args:
        path: The file.
        place: What messages call it; its path where nothing is said.

    Raises:
        ConfigError: It cannot be read, or a value is not allowed; names file, key, value and what is allowed.
    """
    path = Path(path)
    return build_system(read_yaml(path), place or str(path))


def read_own_system(path: Path, place: str) -> System:
    """Read a system file of the package: with libyaml, where it is there, in a tenth of the time of `read_system`.

    All of them are read to find an alias. Files of users are not read so: libyaml ends the process where they are nested too deeply.
    """
    table: dict[str, object] = yaml.load(
        path.read_text(encoding="utf-8"),
        getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # noqa: S506 (both are safe)
    )
    return build_system(table, place)


def build_system(table: Table, place: str) -> System:
    """Return the system that the table of a file describes.

    Raises:
        ConfigError: A key or value is not allowed.
    """
    fields = Fields(place, table)
    refuse_unknown(fields, KEYS)
    texts = {key: _read_text(fields, key) for key in ("name", "title", "source")}
    inner = {
        key: read_nested(fields, key)
        for key in ("sources", "aliases", "network", "system", "options", _REFERENCE, "calibration")
    }
    for key, value in inner["sources"].table.items():
        if not isinstance(value, str):
            raise inner["sources"].error(key, value, "a text that says where the number is from")
    refuse_unknown(read_nested(fields, _REFERENCE), ("network", "system"))
    for key in ("network", "system"):
        read_nested(inner[_REFERENCE], key)
    aliases = {
        key: inner["aliases"].whole_in(key, value, 1, MAX_NPUS)
        for key, value in inner["aliases"].table.items()
    }
    family = read_family(place, read_nested(fields, "family").table) if "family" in fields else None
    _check_lists(inner["network"], family)
    return System(
        **texts,
        place=place,
        sources={key: str(value) for key, value in inner["sources"].table.items()},
        aliases=aliases,
        family=_limit_family(inner["network"], family),
        network=inner["network"].table,
        system=inner["system"].table,
        options=inner["options"].table,
        costs=read_nested(fields, "costs").table if "costs" in fields else None,
        gpu=read_gpu(place, read_nested(fields, "gpu").table) if "gpu" in fields else None,
        reference=inner[_REFERENCE].table,
        calibration=inner["calibration"].table,
    )


def _read_text(fields: Fields, key: str) -> str:
    if key not in fields:
        raise fields.build_missing_error(key, "a text")
    return fields.text(key)


def _check_lists(network: Fields, family: Family | None) -> None:
    """Raise a ConfigError where the lists of a network do not have an entry for each dimension."""
    dims = len(network.items("topology"))
    if family is None:
        for index, size in enumerate(network.items("npus_count")):
            network.whole_in(f"npus_count[{index}]", size, 1, MAX_NPUS)
    elif dims not in _list_dimension_counts(family):
        counts = " or ".join(map(str, _list_dimension_counts(family)))
        what = "the dimensions of the torus" if family.torus else "those of a node, and one between nodes"
        raise network.error("topology", network.table["topology"], f"{counts} entries: {what}")
    for setting in DIMENSION_SETTINGS:
        if setting.key not in network or (family is not None and setting.key == "npus_count"):
            continue
        values = network.items(setting.key)
        if len(values) != dims:
            allowed = f"{format_counted(dims, 'entry', 'entries')}, as many as topology has"
            raise network.error(setting.key, values, allowed)


def _list_dimension_counts(family: Family) -> tuple[int, ...]:
    return (family.torus,) if family.torus else (len(family.inside), len(family.inside) + 1)


def _limit_family(network: Fields, family: Family | None) -> Family | None:
    """Return the family, no larger than a node where its network has no dimension between nodes."""
    if family is None or family.torus or len(network.items("topology")) > len(family.inside):
        return family
    return replace(family, most=min(family.most, family.node))


def write_system(table: Mapping[str, object]) -> str:
    """Return the text of a system file, its keys in their usual order.

    Raises:
        ConfigError: It would not be read again.
    """
    build_system(table, "the system to write")
    ordered = {key: table[key] for key in KEYS if key in table}
    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)


def is_system_file(path: Path | str) -> bool:
    """Whether a path is, by its ending, a system file and no table of ASTRA-sim's."""
    return Path(path).suffix.lower() in ENDINGS
