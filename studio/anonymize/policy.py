"""What becomes of each kind of text in a trace: the table of policies, and what stands in no policy because tools need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from studio.errors import ConfigError

Action = Literal["keep", "words", "rename", "drop"]
Field = Literal["names", "texts", "own", "shapes", "types", "tensors", "docs", "metadata", "groups"]
PolicyName = Literal["light", "balanced", "strict"]


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A kind of text in a trace.

    Attributes:
        field: What options call it.
        title: What it is.
        allowed: What can become of it.
        light, balanced, strict: What becomes of it under each policy.
    """

    field: Field
    title: str
    allowed: tuple[Action, ...]
    light: Action
    balanced: Action
    strict: Action


FIELDS: tuple[FieldRule, ...] = (
    FieldRule("names", "names of nodes, with the paths in them", ("keep", "words", "rename", "drop"), "words", "words", "rename"),
    FieldRule("texts", "texts of standard attributes: schemas, threads, tensors of generators", ("keep", "words", "rename", "drop"), "words", "words", "drop"),
    FieldRule("own", "attributes that are no standard ones, names and values", ("keep", "rename", "drop"), "rename", "drop", "drop"),
    FieldRule("shapes", "shapes of inputs and outputs", ("keep", "rename", "drop"), "keep", "rename", "drop"),
    FieldRule("types", "types of inputs and outputs", ("keep", "words", "drop"), "words", "words", "drop"),
    FieldRule("tensors", "values of inputs and outputs", ("keep", "words", "drop"), "drop", "drop", "drop"),
    FieldRule("docs", "doc strings", ("keep", "words", "rename", "drop"), "words", "drop", "drop"),
    FieldRule("metadata", "what files say of themselves: hosts, processes, dates, inputs", ("keep", "words", "drop"), "drop", "drop", "drop"),
    FieldRule("groups", "names of comm groups", ("keep", "rename"), "rename", "rename", "rename"),
)  # fmt: skip
"""Every kind of text. `words` renames each word that is no public term, and leaves numbers and signs where they are."""

Policy = Mapping[Field, Action]


def build_policy(name: PolicyName, changes: Mapping[str, str] | None = None) -> Policy:
    """Return what becomes of each field.

    Args:
        name: The policy to begin with.
        changes: What is to become of single fields instead.

    Raises:
        ConfigError: There is no such field, or nothing of the kind can become of it.

    Example:
        >>> build_policy("balanced", {"shapes": "keep"})["shapes"]
        'keep'
    """
    chosen: dict[Field, Action] = {rule.field: getattr(rule, name) for rule in FIELDS}
    rules = {str(rule.field): rule for rule in FIELDS}
    for field, action in (changes or {}).items():
        rule = rules.get(field)
        if rule is None:
            raise ConfigError(
                f"{field[:40]!r} is no field; allowed: {', '.join(rules)}",
                hint="--field shapes=keep",
                key=field,
                allowed=", ".join(rules),
            )
        known = next((option for option in rule.allowed if option == action), None)
        if known is None:
            raise ConfigError(
                f"{field} cannot become {action[:40]!r}; allowed: {', '.join(rule.allowed)}",
                hint=f"--field {field}={rule.allowed[0]}",
                key=field,
                allowed=", ".join(rule.allowed),
            )
        chosen[rule.field] = known
    return chosen


OPERATIONS = frozenset({"num_ops", "flops"})
BYTES = frozenset(
    {
        "comm_size",
        "tensor_size",
        "bytes",
        "bytes_in",
        "bytes_out",
        "split_bytes_in",
        "split_bytes_out",
        "memory_bytes",
        "memory_total",
        "memory_reserved",
    }
)
DURATIONS = frozenset({"inclusive_ns", "launch_ns", "launch_call_ns", "wait_ns", "memory_ns"})
DURATIONS_US = frozenset({"runtime"})
"""The same in microseconds, as older writers have them."""
MOMENTS = frozenset({"callback_ns"})
"""Attributes that hold a time since the origin of the trace."""
ADDRESSES = "memory_address"
"""Addresses of allocations, which are numbered anew: only which are the same counts."""
OWN_TIMES = frozenset({"start_ns", "duration_ns"})
"""Written anew from the times of nodes."""
NUMBERS = frozenset(
    {
        "comm_type", "comm_src", "comm_dst", "comm_tag", "comm_seq", "comm_turn", "comm_group", "comm_priority", "involved_dim",
        "involve_dims", "is_cpu_op", "stream", "device", "correlation", "dep_kinds", "fw_parent", "fw_tid", "rf_id",
        "scope", "seq_id", "tid", "grid", "block", "unfinished", "tensor_loc",
        "unattributed", "launched_before", "memory_device", "memory_outside", "memory_address",
    }
)  # fmt: skip
"""Standard attributes whose numbers stay: kinds, peers, places, what belongs together."""
TERMS = frozenset({"gap", "device_kind", "waits_for", "op_type", "comm_inferred", "launched_by"})
"""Standard attributes whose texts are words of their writers' own lists; others than public terms are renamed."""
TEXTS = frozenset({"op_schema", "thread", "inputs", "outputs"})
"""Standard attributes that hold texts of the user's."""
GROUPS = frozenset({"pg_name", "pg_desc"})
STANDARD = (
    OPERATIONS | BYTES | DURATIONS | DURATIONS_US | MOMENTS | OWN_TIMES | NUMBERS | TERMS | TEXTS | GROUPS
)

KEPT_METADATA = frozenset(
    {
        "rank", "global_rank", "rank_id", "world_size", "link_attributed", "link_device_operations",
        "link_host_events", "link_host_operations", "link_linked", "assumed_from_rank", "assumed_stage",
        "unrecorded_calls",
    }
)  # fmt: skip
"""Numbers that files say of themselves and that tools need."""
