"""Store runs: simulations with their system and all results.

    run.json                name, system, figures: all that a list of runs shows
    result.json             what of the result is no array
    events.arrow            its arrays, the events among them; result.json has their checksum
    custom/<name>/          a collective's algorithm given as a trace

A result is taken apart field by field, so what it gains is kept without a line here. The system is kept as
ASTRA-sim's tables, and as the exact rates of its links: one in fourteen has no GB/s that gives exactly it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from studio import __version__
from studio.analysis.job.completeness import describe_assumed
from studio.decoding import build_decoder, convert_value
from studio.distinct import find_distinct
from studio.errors import ConfigError
from studio.narrow import narrow
from studio.sim.choices import explain_choices
from studio.sim.config import SystemConfig, Topology
from studio.sim.doubt import Cured, Doubt
from studio.sim.doubt_facts import TRIFLE, Facts
from studio.sim.doubts import list_doubts
from studio.sim.kinds import CollectiveKind
from studio.sim.parts import CustomAlgorithms, Parts, interpret
from studio.sim.result import SimResult, compute_ledger
from studio.store.arrays import Checksum, read_columns, write_columns
from studio.store.durable_files import Damaged, convert_damage, decode_sealed, write_sealed
from studio.store.run_infos import RunInfo, RunSummary
from studio.store.stored_traces import read_trace, write_trace
from studio.trace import Trace, compute_trace_digest


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation to store, or a stored one.

    Attributes:
        name: What to call it.
        result: What was found.
        parts: The tables that describe `result.config`.
        spent_s: How long the simulation took.
        doubts: Why the answer is not to be believed as it stands; None looks for it when the run is stored.
        cures: The doubtful run that it is the cure of.
        slower_way: Which collectives a library would not carry out in the quickest way, as `RunInfo` says it; None looks
            for them when the run is stored.
    """

    name: str
    result: SimResult
    parts: Parts
    spent_s: float = 0.0
    doubts: tuple[Doubt, ...] | None = None
    cures: Cured | None = None
    slower_way: str | None = None


def compute_config_digest(config: SystemConfig) -> str:
    """Return a hash of a configuration; equal configurations have equal hashes."""
    given: list[tuple[object, Trace]] = [*config.custom.items(), *config.custom_nodes.items()]
    traces = {str(key): compute_trace_digest(trace) for key, trace in given}
    plain = msgspec.to_builtins([replace(config, custom={}, custom_nodes={}), traces], str_keys=True)
    return hashlib.blake2b(msgspec.json.encode(_normalise_plain(plain)), digest_size=16).hexdigest()


def _normalise_plain(plain: Any) -> Any:
    """Normalize plain data: sort keys, write 2.0 as 2."""
    if isinstance(plain, dict):
        return {key: _normalise_plain(plain[key]) for key in sorted(plain)}
    if isinstance(plain, list | tuple):
        return [_normalise_plain(item) for item in plain]
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain


# ---------------------------------------------------------------------------------------------------
# Writing


def write_run(run: Run, folder: Path, *, run_id: str, job_id: str, name: str) -> RunInfo:
    """Write a run to an existing folder; returns its list entry.

    Raises:
        ConfigError: The tables do not describe the configuration that was simulated.
    """
    result = run.result
    rates = tuple(dim.bytes_per_ns for dim in result.config.topology.dims)
    algorithms = CustomAlgorithms(result.config.custom, result.config.custom_nodes)
    if _build_config(run.parts, rates, algorithms) != result.config:
        raise ConfigError(
            "the tables of this run do not describe the system that was simulated",
            hint="Give those the configuration was read from, or those of studio.sim.parts.build_parts.",
        )
    columns: dict[str, NDArray[np.generic]] = {}
    plain = {
        spec.name: _take_apart(getattr(result, spec.name), spec.name, columns)
        for spec in dataclasses.fields(result)
        if spec.name not in _NOT_STORED
    }
    kinds = {key: array.dtype.str for key, array in columns.items()}
    kept = ((key, narrow(array) if array.dtype == np.int64 else array) for key, array in columns.items())
    checksum = write_columns(folder / "events.arrow", [kept])
    write_sealed(folder / "result.json", {"fields": plain, "kinds": kinds, "events": checksum})
    custom = {str(key): trace for key, trace in (*algorithms.kinds.items(), *algorithms.nodes.items())}
    for key, trace in custom.items():
        (folder / "custom" / key).mkdir(parents=True)
        write_trace(trace, folder / "custom" / key)
    facts = Facts(result, run.parts)
    info = RunInfo(
        id=run_id,
        job=job_id,
        name=name,
        created=time.time(),
        tables=run.parts,
        mode="compatible" if result.config.extensions is None else "extended",
        congestion=result.config.congestion,
        npus=len(result.finish_ns),
        simulated=len(find_distinct(result.representative)),
        makespan_ns=result.makespan_ns,
        summary=_summarise_run(result),
        spent_s=run.spent_s,
        stored_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        trace_hash=compute_trace_digest(result.trace),
        config_hash=compute_config_digest(result.config),
        version=__version__,
        bytes_per_ns=rates,
        custom=tuple(custom),
        doubts=list_doubts(facts) if run.doubts is None else run.doubts,
        cures=run.cures,
        assumed=describe_assumed(result.trace),
        slower_way=explain_choices(result, TRIFLE, facts) if run.slower_way is None else run.slower_way,
    )
    write_sealed(folder / "run.json", info)
    return info


_NOT_STORED = ("trace", "config")
"""Fields of a result that lie elsewhere: with the job, and as tables."""


def _summarise_run(result: SimResult) -> RunSummary:
    columns = compute_ledger(result).totals().columns()
    means = {name: float(column.mean()) for name, column in columns.items()}
    return RunSummary(int(result.finish_ns.min()), len(result.event_ns), means)


def _take_apart(value: Any, name: str, columns: dict[str, NDArray[np.generic]]) -> Any:
    """Convert a value to plain data; its arrays go into `columns` under dotted names."""
    if isinstance(value, np.ndarray):
        columns[name] = value
        return None
    if dataclasses.is_dataclass(value):
        specs = dataclasses.fields(value)
        return {
            spec.name: _take_apart(getattr(value, spec.name), f"{name}.{spec.name}", columns)
            for spec in specs
        }
    if isinstance(value, list | tuple):
        return [_take_apart(item, f"{name}.{index}", columns) for index, item in enumerate(value)]
    return msgspec.to_builtins(value)


# ---------------------------------------------------------------------------------------------------
# Reading


class _StoredResult(msgspec.Struct):
    fields: dict[str, Any]
    kinds: dict[str, str]
    events: Checksum | None = None


_stored_result = build_decoder(_StoredResult)


def read_run(folder: Path, info: RunInfo, trace: Trace) -> Run:
    """Read a run; it gets the trace of its job.

    Raises:
        Damaged: It is damaged.
    """
    with convert_damage():
        stored = decode_sealed(folder / "result.json", _stored_result)
        [columns] = read_columns(folder / "events.arrow", stored.events)
        wide = {key: _widen(columns[key], kind) for key, kind in stored.kinds.items()}
        hints = get_type_hints(SimResult)
        values = {
            key: _put_together(hints[key], value, key, wide)
            for key, value in stored.fields.items()
            if key in hints
        }
        try:
            config = _build_config(info.tables, info.bytes_per_ns, _read_custom(info, folder))
        except ConfigError as error:
            raise Damaged(error.message) from error
        result = SimResult(trace, config, **values)
        if len(result.finish_ns) != len(trace.ranks):
            raise Damaged("it is of another job")
        return Run(info.name, result, info.tables, info.spent_s, info.doubts, info.cures)


def _widen(array: NDArray[np.generic], kind: str) -> NDArray[np.generic]:
    dtype = np.dtype(kind)
    return array.view(np.bool_) if dtype == np.bool_ else array.astype(dtype, copy=False)


def _put_together(kind: Any, plain: Any, name: str, columns: Mapping[str, NDArray[np.generic]]) -> Any:
    """Rebuild a value of type `kind` that `_take_apart` took apart."""
    if name in columns:
        return columns[name]
    if get_origin(kind) in (Union, types.UnionType):
        if plain is None:
            return None
        kind = next(inner for inner in get_args(kind) if inner is not types.NoneType)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        values = {
            key: _put_together(hints[key], value, f"{name}.{key}", columns)
            for key, value in plain.items()
            if key in hints
        }
        return kind(**values)
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        inner = get_args(kind)[0]
        return tuple(
            _put_together(inner, item, f"{name}.{index}", columns) for index, item in enumerate(plain)
        )
    return convert_value(plain, kind)


def _read_custom(info: RunInfo, folder: Path) -> CustomAlgorithms:
    kinds: dict[CollectiveKind, Trace] = {}
    nodes: dict[int, Trace] = {}
    for key in info.custom:
        trace = read_trace(folder / "custom" / Path(key).name)
        if key.isdecimal():
            nodes[int(key)] = trace
        else:
            kinds[convert_value(key, CollectiveKind)] = trace
    return CustomAlgorithms(kinds, nodes)


def _build_config(parts: Parts, bytes_per_ns: tuple[float, ...], custom: CustomAlgorithms) -> SystemConfig:
    """Interpret the tables; stored rates replace those that differ only by rounding."""
    config = interpret(parts, custom).config
    dims = config.topology.dims
    if len(dims) != len(bytes_per_ns):
        return config
    exact = (
        replace(dim, bytes_per_ns=rate) if abs(dim.bytes_per_ns - rate) <= 1e-12 * rate else dim
        for dim, rate in zip(dims, bytes_per_ns, strict=True)
    )
    return replace(config, topology=Topology(tuple(exact)))
