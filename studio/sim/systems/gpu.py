"""What an NPU can do by itself: peak operations per data type, memory bandwidth and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from studio.sim.fields import Fields

FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
"""Data types in falling width; rates are those of dense matrices."""
_KEYS = ("name", "tera-flops", "memory-bandwidth", "memory-size")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NPU: a GPU, one of the dies of a GPU that programs see as a device, or another accelerator.

    Attributes:
        name: What its maker calls it.
        tera_flops: Peak of dense operations in 10^12 per second, by data type (`FORMATS`).
        memory_bytes_per_ns: Bandwidth of its memory, which is GB/s of 10^9 bytes.
        memory_gbytes: Size of its memory in GB.
    """

    name: str
    tera_flops: Mapping[str, float]
    memory_bytes_per_ns: float
    memory_gbytes: float


def read_gpu(place: str, table: Mapping[str, object]) -> Gpu:
    """Read the table `gpu` of a system file.

    Raises:
        ConfigError: A key or value is not allowed.
    """
    fields = Fields(f"{place}: gpu", table)
    refuse_unknown(fields, _KEYS)
    rates = read_nested(fields, "tera-flops", FORMATS)
    return Gpu(
        fields.text("name"),
        {key: rates.number_in(key, value, above=0) for key, value in rates.table.items()},
        number_of(fields, "memory-bandwidth"),
        number_of(fields, "memory-size"),
    )


def number_of(fields: Fields, key: str) -> float:
    """Return a number above 0 that has to be there."""
    if key not in fields:
        raise fields.build_missing_error(key, "a number above 0")
    return fields.number_in(key, fields.table[key], above=0)


def read_nested(fields: Fields, key: str, known: tuple[str, ...] = ()) -> Fields:
    """Return a table within a table, empty where it is not there; with `known`, other keys are refused."""
    value = fields.table.get(key, {})
    if not isinstance(value, Mapping):
        raise fields.error(key, value, "a table of keys and values")
    inner = Fields(f"{fields.name}: {key}", {str(name): item for name, item in value.items()})
    if known:
        refuse_unknown(inner, known)
    return inner


def refuse_unknown(fields: Fields, known: tuple[str, ...]) -> None:
    """Raise a ConfigError for a key that a table cannot have."""
    for finding in fields.findings(known, {}):
        key = next(key for key in map(str, fields.table) if key not in known)
        raise fields.error(key, fields.table[key], f"these keys: {', '.join(known)}", finding.hint)
