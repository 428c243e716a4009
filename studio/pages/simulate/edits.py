"""Edits of a system by the form of the Simulate page: texts of fields in, settings out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from studio.analysis.job.completeness import infer_completeness
from studio.decoding import build_decoder
from studio.sim.check import check
from studio.sim.config import SystemConfig
from studio.sim.doubted_range import UNEVEN
from studio.sim.models import Model, get_model, with_model
from studio.sim.parts import Parts, get_table, is_extended
from studio.sim.presets import PRESETS, convert_to_full, describe_unevenness, preset
from studio.sim.problems import examine_parts
from studio.sim.remote_memory import FINDING, with_memory_for
from studio.sim.replays import as_replay
from studio.sim.setting_edits import read_number, read_speeds, with_mode, with_value
from studio.sim.settings import ALGORITHM_SETTINGS, BY_KEY, DIMENSION_SETTINGS, Setting
from studio.sim.systems.proposals import Proposal, propose
from studio.store.drafts import Draft
from studio.trace import Finding, NodeType, Trace

_ROOFLINE = "roofline-enabled"
_LISTS = (*DIMENSION_SETTINGS, *ALGORITHM_SETTINGS)


def count_dimensions(tables: Parts) -> int:
    """Return how many dimensions the network has."""
    kinds = tables.network.get("topology")
    return len(kinds) if isinstance(kinds, list | tuple) else 0


# ---------------------------------------------------------------------------------------------------
# Texts


def format_setting(tables: Parts, setting: Setting, index: int | None = None) -> str:
    """Return the text in the field of a setting; empty if it is not set.

    Example:
        >>> tables = Parts({"bandwidth": [50, 12.5]}, {"roofline-enabled": 1})
        >>> format_setting(tables, BY_KEY["bandwidth"], 1), format_setting(tables, BY_KEY["roofline-enabled"])
        ('12.5', '1')
        >>> format_setting(tables, BY_KEY["memory-type"]), format_setting(tables, BY_KEY["local-mem-bw"])
        ('NO_MEMORY_EXPANSION', '')
    """
    value = get_table(tables, setting.file).get(setting.key)
    if index is not None:
        value = value[index] if isinstance(value, list | tuple) and index < len(value) else None
    if value is None or value == "":
        return list_choices(setting)[0][0] if list_choices(setting) and index is None else ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_format_value(entry)}" for key, entry in value.items())
    return _format_value(value)


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def list_choices(setting: Setting) -> Sequence[tuple[str, str]]:
    """Return the texts a field may have, and what each is called; empty for a number or text."""
    if setting.type == "flag":
        return ("0", "off"), ("1", "on")
    return [(choice.name, choice.label) for choice in setting.choices]


def _parse_value(setting: Setting, text: str) -> object:
    """Parse the text of a field; what is not a number stays a text, which validation refuses later."""
    if setting.type == "speeds":
        return read_speeds(text)
    if setting.type == "flag":
        return text == "1" if setting.file == "options" else int(text or 0)
    return read_number(text)


def with_text(tables: Parts, key: str, text: str) -> Parts:
    """Return a system with one field changed; `key` is that of a field, or `bandwidth[1]` for an entry of a list.

    Example:
        >>> tables = Parts({"topology": ["Ring"], "bandwidth": [50]}, {})
        >>> with_text(tables, "bandwidth[0]", "tbd").network["bandwidth"]
        ['tbd']
        >>> with_text(tables, "preferred-dataset-splits", "8").system
        {'preferred-dataset-splits': 8}
    """
    name, _, rest = key.partition("[")
    setting, text = BY_KEY[name], text.strip()
    if not rest:
        return _with_value(tables, setting, _parse_value(setting, text) if text else None)
    index = int(rest.removesuffix("]"))
    before = get_table(tables, setting.file).get(name)
    items: list[object] = list(before) if isinstance(before, list | tuple) else []
    items += ["ring" if setting in ALGORITHM_SETTINGS else setting.first] * (index + 1 - len(items))
    items[index] = _parse_value(setting, text)
    if setting in ALGORITHM_SETTINGS:
        while items and items[-1] == "":
            items.pop()
    return _with_value(tables, setting, items or None)


def _with_value(tables: Parts, setting: Setting, value: object) -> Parts:
    if setting.key == "memory-type" and value == "NO_MEMORY_EXPANSION":
        return replace(tables, memory=None)
    return with_value(tables, setting, value)


def select_changed_texts(tables: Parts, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the fields whose text differs from the system's."""
    changed = {}
    for key, text in texts.items():
        name, _, rest = key.partition("[")
        index = int(rest.removesuffix("]")) if rest else None
        if (text or "").strip() != format_setting(tables, BY_KEY[name], index):
            changed[key] = text or ""
    return changed


# ---------------------------------------------------------------------------------------------------
# Dimensions


def _change_dimensions(tables: Parts, change: Any) -> Parts:
    """Return a system whose lists with an entry per dimension are changed by `change(setting, items)`."""
    count = count_dimensions(tables)
    for setting in _LISTS:
        items = get_table(tables, setting.file).get(setting.key)
        if isinstance(items, list | tuple):
            # A list of algorithms may be shorter than the dimensions; pad it so that entries keep their dimension.
            padded = [*items, *[None] * (count - len(items))]
            kept = [item for item in change(setting, padded) if item is not None]
            tables = with_value(tables, setting, kept or None)
    return tables


def with_dimension(tables: Parts) -> Parts:
    """Return a system with one more dimension, the outermost."""

    def add(setting: Setting, items: list[object]) -> list[object]:
        if setting in ALGORITHM_SETTINGS:
            return [*items, "ring"] if None not in items else items
        return [*items, setting.first]

    return _change_dimensions(tables, add)


def without_dimension(tables: Parts, index: int) -> Parts:
    """Return a system without one of its dimensions; the last one stays."""
    if count_dimensions(tables) < 2:
        return tables
    return _change_dimensions(tables, lambda _setting, items: items[:index] + items[index + 1 :])


def with_dimension_moved(tables: Parts, index: int, by: int) -> Parts:
    """Return a system with a dimension moved inwards (-1) or outwards (1)."""
    to = index + by
    if not (0 <= index < count_dimensions(tables) and 0 <= to < count_dimensions(tables)):
        return tables

    def swap(_setting: Setting, items: list[object]) -> list[object]:
        swapped = list(items)
        swapped[index], swapped[to] = swapped[to], swapped[index]
        return swapped

    return _change_dimensions(tables, swap)


def choose_fitting_sizes(sizes: Sequence[int], ranks: int) -> list[int]:
    """Return sizes near those given whose product is the number of ranks; 1 for a dimension to be left out.

    Inner dimensions keep their size where it divides what is left, the last takes the rest.

    Example:
        >>> choose_fitting_sizes([8, 4], 64), choose_fitting_sizes([8, 4], 8), choose_fitting_sizes([8, 4], 12), choose_fitting_sizes([4, 2], 7)
        ([8, 8], [8, 1], [6, 2], [1, 7])
    """
    left, fitting = ranks, []
    for index, size in enumerate(sizes):
        last = index == len(sizes) - 1
        take = left if last else max(divisor for divisor in range(1, max(size, 1) + 1) if left % divisor == 0)
        fitting.append(take)
        left //= take
    return fitting


def fit_to_ranks(tables: Parts, ranks: int) -> Parts:
    """Resize a system so that it has as many NPUs as a job has ranks.

    Explicit links and switches are dropped if the sizes change, since they fit only the old ones.
    """
    given = tables.network.get("npus_count")
    sizes = (
        [size if isinstance(size, int) and size > 0 else 2 for size in given]
        if isinstance(given, list | tuple)
        else []
    )
    if not sizes or ranks < 1:
        return tables
    fitting = choose_fitting_sizes(sizes, ranks)
    network = {**tables.network, "npus_count": fitting}
    if fitting != sizes:
        network = {key: value for key, value in network.items() if key not in ("links", "switches")}
    tables = replace(tables, network=network)
    # A job of one rank keeps the first dimension.
    for index in range(len(fitting) - 1, -1 if ranks > 1 else 0, -1):
        if fitting[index] == 1:
            tables = without_dimension(tables, index)
    return tables


# ---------------------------------------------------------------------------------------------------
# Where to start from


def from_preset(name: str, npus: int | None = None, model: Model = "full") -> Parts:
    """Return the system of a preset, in a size if it comes in that."""
    entry = PRESETS[name]
    tables = (preset(name, npus) if npus and entry.system.fits(npus) else entry).under(model)
    lists = {
        key: list(value) if isinstance(value, list | tuple) else value
        for key, value in tables.network.items()
    }
    return replace(tables, network=lists)


def build_similar_preset(name: str, tables: Parts, npus: int | None = None) -> Parts:
    """Return the system of a preset under the model of another system; single links stay, which ASTRA-sim lacks."""
    if get_model(tables) == "full":
        return from_preset(name, npus)
    plain = from_preset(name, npus, "astra-sim")
    return with_mode(plain, "extended") if is_extended(tables) else plain


def replay_known(tables: Parts, trace: Trace) -> Parts:
    """Return a system on which the known ranks of a job take their recorded times."""
    return as_replay(with_mode(fit_to_ranks(tables, infer_completeness(trace).world), "extended"))


def is_changed(draft: Draft, trace: Trace) -> bool:
    """Return whether a system differs from its preset; model, comm groups and changes by `suit_to_job` do not count."""
    if draft.origin not in PRESETS:
        return False
    ranks = infer_completeness(trace).world
    fresh = [build_similar_preset(draft.origin, draft.tables, npus) for npus in (None, ranks)]
    if get_model(draft.tables) == "astra-sim" and "links" not in draft.tables.network:
        # Another model by the switch of the form.
        fresh.append(with_model(from_preset(draft.origin, ranks), "astra-sim"))
    fresh += [suit_to_job(Draft(tables, draft.origin), trace).tables for tables in fresh[1:]]
    return _encode_settings(draft.tables) not in map(_encode_settings, fresh)


_anything = build_decoder(object)


def _encode_settings(tables: Parts) -> object:
    return _anything(msgspec.json.encode(replace(tables, groups=None, names={})))


def propose_draft(trace: Trace, proposals: Sequence[Proposal] | None = None) -> Draft:
    """Choose the first system for a job: the first that is proposed, changed so that the job can run on it.

    Args:
        trace: The job.
        proposals: The systems that fit it, where they are known already.
    """
    name = (proposals or propose(trace))[0].system
    return suit_to_job(Draft(from_preset(name, infer_completeness(trace).world), name), trace)


def suit_to_job(draft: Draft, trace: Trace) -> Draft:
    """Change a system so that the job can run on it, and note the reasons."""
    tables, notes = draft.tables, []
    ranks = infer_completeness(trace).world
    fit = fit_to_ranks(tables, ranks)
    if fit != tables:
        tables = fit
        notes.append(f"Sizes changed so that the system has an NPU for each of the {ranks:,} ranks.")
    if tables.system.get(_ROOFLINE) and not is_extended(tables) and _lacks_roofline(trace):
        tables = replace(tables, system={**tables.system, _ROOFLINE: 0})
        notes.append("Roofline off: compute nodes lack num_ops or tensor_size, so recorded times are used.")
    if (with_memory := with_memory_for(tables, trace)) is not tables:
        tables = with_memory
        notes.append(FINDING.message)
    reason = explain_extended_mode(trace)
    if reason and not is_extended(tables):
        tables = with_mode(tables, "extended")
        notes.append(f"Extended mode: {reason}.")
    return replace(draft, tables=tables, notes=tuple(notes))


def change_model(draft: Draft, model: Model, trace: Trace) -> Draft:
    """Return a draft under another model; of a preset that was not changed it is the preset's own form.

    Raises:
        ConfigError: The system cannot be simulated under it.
    """
    after = replace(draft, edited="", notes=())
    if draft.origin in PRESETS and "links" not in draft.tables.network and not is_changed(draft, trace):
        tables = from_preset(draft.origin, infer_completeness(trace).world, model)
        return suit_to_job(replace(after, tables=replace(tables, groups=draft.tables.groups)), trace)
    tables = convert_to_full(draft.tables) if model == "full" else with_model(draft.tables, model)
    return replace(after, tables=tables)


def explain_extended_mode(trace: Trace) -> str:
    """Return why a job needs the extended mode; empty where the compatible one can simulate it."""
    named = [group.name for group in trace.groups if group.name and not group.name.isdecimal()]
    if named:
        return f"comm groups have names such as {named[0][:40]!r}, and ASTRA-sim accepts only numbers"
    if any((graph.type == NodeType.METADATA).any() for graph in trace.graphs):
        return "the job has METADATA nodes, at which ASTRA-sim stops"
    return ""


def _lacks_roofline(trace: Trace) -> bool:
    for graph in trace.graphs:
        compute = int((graph.type == NodeType.COMP).sum())
        if compute and min(len(graph.rows_with(key)[0]) for key in ("num_ops", "tensor_size")) < compute:
            return True
    return False


def list_findings(trace: Trace, config: SystemConfig | None, tables: Parts) -> list[Finding]:
    """Return what would go wrong in a simulation, and findings about the system itself."""
    read = examine_parts(tables)
    uneven = describe_unevenness(tables)
    about_size = [Finding("warning", UNEVEN, uneven)] if uneven else []
    return [*(check(trace, config) if config else []), *read.findings, *about_size]
