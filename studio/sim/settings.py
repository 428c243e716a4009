"""The table of settings: one row per number, choice and flag of a system.

Whatever handles settings reads these rows: reading and writing ASTRA-sim's files (`parts`, `network`), the limits
that configurations check (`config`, `extensions`), `--set`, the form, the settings that Compare lists, and the
table in `docs/simulator.md` (`python -m tests.settings_table` writes it). A new number is a row here, the attribute
of the configuration that it fills, and the code that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from studio.sim.values import (
    check_choice,
    check_number,
    check_whole,
    describe_allowed_number,
    describe_allowed_whole,
)

File = Literal["network", "system", "memory", "options", "extended", "run"]
"""Where a key stands: in `network.yml`, `system.json`, `remote_memory.json`, on ASTRA-sim's command line, in the
table `extended` of `system.json`; `run` is the choice between the reference's two programs."""
Type = Literal["number", "whole", "truncated", "flag", "choice", "algorithms", "speeds", "links", "table"]
"""`truncated` is a whole number in the configuration, for which a file may give any number; `algorithms` is a list
with one collective algorithm per dimension; `table` is a table of its own, which its own module reads."""

MAX_NPUS = 1 << 20
MAX_NS = 1 << 62
MAX_NUMBER = 1e18
"""Far beyond every rate and time there is, and far within what sums and products of them can hold."""
MAX_DEVICES = 1 << 21
NETWORK_UNIT = "GiB/s"
"""The unit of rates of the network where `bandwidth-unit` gives no other."""

GPUS = (
    *(
        "h100",
        "h200",
        "gh200",
        "b200",
        "b300",
        "gb200",
        "gb300",
        "a100",
        "v100",
        "v100-sxm3",
        "l40s",
        "rtx-2080ti",
    ),
    *(
        "rtx-pro-6000",
        "mi250x",
        "mi300x",
        "mi325x",
        "mi355x",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "trainium2",
    ),
)
"""Short names of the GPUs whose peaks the built-in systems hold; `studio.sim.systems.gpus` finds them."""

REFERENCE = "Source: ASTRA-sim's analytical simulator, whose rules the compatible mode follows."
CHUNKS, COMPUTE, ENDS = "Chunks and order", "Compute", "Ends of messages"
MEMORY, RULES = "Remote memory", "Beyond the reference"
HEADINGS = (CHUNKS, COMPUTE, ENDS, MEMORY, RULES)
"""Headings of the form, in its order; settings per dimension and per collective have tables of their own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that a setting may have.

    Attributes:
        name: What files call it.
        value: What the configuration calls it; None stands for nothing at all.
        label: What the form calls it.
    """

    name: str
    value: str | None
    label: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    Attributes:
        key: Its key in its file.
        file: Where the key stands.
        fills: Class and attribute that hold the value, such as `Dimension.size`; `algorithms.` and a collective for
            a list of algorithms; "" where other values only depend on it.
        label: What the form calls it.
        hint: What it means, with the formula.
        type: What kind of value it is.
        least, above, most: Limits of a number.
        choices: Values allowed, the first one is the default unless the key is required.
        default: What counts where the key is not there, as the configuration has it.
        required: Whether the key has to be there, where it is read at all.
        start: The value filled in where one is needed: in a new dimension, or in place of one that is not allowed.
        unit: Unit of a number.
        shown: What the form shows where nothing is written; "" is the default.
        heading: Where the form has it; "" for what has no field of its own.
        per_dimension: Whether it is a list with an entry per dimension.
        is_extended: Whether only the extended mode has it.
        needs: Key of the setting that has to be on (or not at its first choice) for this one to matter.
        source: Where the meaning comes from, if not from the reference.
        of_steps: Whether it shapes the steps of messages that collectives are carried out in, which a system has not whose costs time them.
    """

    key: str
    file: File
    fills: str
    label: str
    hint: str
    type: Type = "number"
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[Choice, ...] = ()
    default: Any = None
    required: bool = False
    start: Any = None
    unit: str = ""
    shown: str = ""
    heading: str = ""
    per_dimension: bool = False
    is_extended: bool = False
    needs: str = ""
    source: str = ""
    of_steps: bool = False

    @property
    def about(self) -> str:
        """The meaning of the setting, and its source."""
        source = self.source or ("" if self.is_extended else REFERENCE)
        return f"{self.hint} {source}".rstrip()

    @property
    def attribute(self) -> str:
        """The attribute that holds the value."""
        return self.fills.partition(".")[2]

    @property
    def path(self) -> str:
        """The name for `--set`."""
        return f"extended.{self.key}" if self.file == "extended" else self.key

    @property
    def values(self) -> Mapping[str, str | None]:
        """The values allowed, as files have them, and what the configuration calls each."""
        return {choice.name: choice.value for choice in self.choices}

    @property
    def first(self) -> Any:
        """The value filled in where one is needed, as files have it."""
        value = self.default if self.start is None else self.start
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @property
    def placeholder(self) -> str:
        """The placeholder in the form."""
        if self.shown or self.choices or self.default is None:
            return self.shown
        return f"{self.default:g}"

    def name_of(self, value: object) -> str:
        """Return the name of a value in files."""
        return next(choice.name for choice in self.choices if choice.value == value)

    @property
    def limit(self) -> float | None:
        """The largest number a file or form may give."""
        return (
            MAX_NUMBER if self.most is None and self.type in ("number", "truncated", "speeds") else self.most
        )

    def allowed_words(self, unit: str = "") -> str:
        """Describe the allowed values; `unit` replaces the setting's own."""
        if self.type == "whole":
            return describe_allowed_whole(_convert_limit(self.least), _convert_limit(self.most))
        if self.type == "flag":
            return "true, false, 1, 0"
        if self.choices:
            return ", ".join(self.values)
        limits = describe_allowed_number(self.least, self.above, self.limit)
        unit = unit or self.unit
        return f"{limits}, in {unit}" if unit and self.per_dimension else limits

    def check(self, value: object, called: str) -> None:
        """Raise a ConfigError if a value is not allowed."""
        if value is None and self.default is None and not self.required:
            return
        if self.type == "whole":
            check_whole(called, value, _convert_limit(self.least), _convert_limit(self.most))
        elif self.type == "truncated":
            check_whole(called, value, _convert_limit(self.least), MAX_NS)
        elif self.type == "number":
            check_number(called, value, least=self.least, above=self.above, most=self.most)
        elif self.type == "choice":
            check_choice(called, value, tuple(value for value in self.values.values() if value is not None))


def _convert_limit(limit: float | None) -> int:
    return int(limit or 0)


def _build_choices(*rows: tuple[str, str] | tuple[str, str | None, str]) -> tuple[Choice, ...]:
    """Return choices from (name, label) where files and the configuration agree, else (name, value, label)."""
    return tuple(Choice(row[0], row[0] if len(row) == 2 else row[1], row[-1] or "") for row in rows)


def _build_dimension(key: str, attribute: str, label: str, hint: str, **more: Any) -> Setting:
    return Setting(key, "network", f"Dimension.{attribute}", label, hint, per_dimension=True, **more)


def _build_algorithms(
    collective: str, label: str, *, is_extended: bool = False, instead: str = "none"
) -> Setting:
    return Setting(
        f"{collective.replace('_', '-')}-implementation",
        "extended" if is_extended else "system",
        f"algorithms.{collective}",
        label,
        f"The algorithm of {label.lower()} in each dimension.",
        "algorithms",
        shown=instead,
        is_extended=is_extended,
        of_steps=True,
    )


def _build_switch(
    key: str, label: str, hint: str, choices: tuple[Choice, ...], source: str = "", **more: Any
) -> Setting:
    """Return the row of a choice that only the extended mode has."""
    return Setting(
        key,
        "extended",
        f"Extensions.{key.replace('-', '_')}",
        label,
        hint,
        "choice",
        choices=choices,
        default=choices[0].value,
        is_extended=True,
        source=source,
        **more,
    )


def _build_bus(key: str, attribute: str, label: str, hint: str, **more: Any) -> Setting:
    more = {"type": "truncated", "default": 0, "unit": "ns", **more}
    return Setting(
        key,
        "system",
        f"SharedBus.{attribute}",
        label,
        hint,
        least=0,
        needs="model-shared-bus",
        **more,
    )


def _with_heading(heading: str, *settings: Setting) -> tuple[Setting, ...]:
    return tuple(replace(setting, heading=heading) for setting in settings)


# fmt: off
# The formatter would give every argument a line of its own, and the table three hundred lines more.
_DIMENSIONS = (
    _build_dimension("topology", "kind", "Kind",
        "How the NPUs of the dimension are connected. Ring: a link to either neighbour; a message takes "
        "the shorter way round. Fully connected: a link between any two. Switch: a link up and a link "
        "down per NPU, two hops.",
        type="choice",
        choices=_build_choices(("Ring", "ring", "Ring"), ("FullyConnected", "fully_connected", "Fully connected"),
            ("Switch", "switch", "Switch")),
        required=True, start="Switch"),
    _build_dimension("npus_count", "size", "NPUs",
        "NPUs along this dimension, at least 2; 1 where it is the only one, for a job of one rank. The "
        "system has the product of all dimensions. Dimension 0 lies nearest the NPU: it varies fastest in "
        "the rank number.",
        type="whole", least=1, most=MAX_NPUS, required=True, start=2),
    _build_dimension("bandwidth", "bytes_per_ns", "Bandwidth",
        "Bandwidth of one link in one direction. A message takes hops × latency + bytes / bandwidth. The "
        "reference takes a GB of the network as 2^30 bytes, so the compatible mode counts in GiB/s.",
        above=0, required=True, start=50, unit=NETWORK_UNIT),
    _build_dimension("latency", "latency_ns", "Latency",
        "Latency of one link. A message takes hops × latency + bytes / bandwidth. Presets with the costs of a "
        "library have 0 here: the costs hold the time of each hop.",
        least=0, required=True, start=1000, unit="ns"),
    _build_dimension("efficiency", "efficiency", "Efficiency",
        "Share of the bandwidth that messages get, above 0 and at most 1: a message takes hops × latency + "
        "overhead + bytes / (bandwidth × efficiency). For matching measured systems.",
        above=0, most=1, default=1.0, is_extended=True),
    _build_dimension("message-overhead", "message_overhead_ns", "Overhead",
        "Fixed time of every message that crosses the dimension, in front of its bytes. For matching "
        "measured systems.",
        least=0, default=0.0, unit="ns", is_extended=True),
)
_ALGORITHMS = (
    _build_algorithms("all_reduce", "All-reduce"),
    _build_algorithms("all_gather", "All-gather"),
    _build_algorithms("reduce_scatter", "Reduce-scatter"),
    _build_algorithms("all_to_all", "All-to-all"),
    _build_algorithms("broadcast", "Broadcast", is_extended=True, instead="as all-reduce"),
    _build_algorithms("reduce", "Reduce", is_extended=True, instead="as all-reduce"),
    _build_algorithms("gather", "Gather", is_extended=True, instead="as all-reduce"),
    _build_algorithms("scatter", "Scatter", is_extended=True, instead="as all-reduce"),
    _build_algorithms("reduce_scatter_block", "Reduce-scatter-block", is_extended=True, instead="as reduce-scatter"),
    _build_algorithms("barrier", "Barrier", is_extended=True, instead="as all-reduce"),
)
_CHUNKS = _with_heading(CHUNKS,
    Setting("scheduling-policy", "system", "SystemConfig.scheduling", "Scheduling",
        "Which collective's chunks go first where several wait: the latest (LIFO), the earliest (FIFO), "
        "or those of the smallest comm_priority (EXPLICIT).",
        "choice",
        choices=_build_choices(("LIFO", "lifo", "LIFO"), ("FIFO", "fifo", "FIFO"), ("EXPLICIT", "explicit", "EXPLICIT")),
        required=True, start="LIFO", of_steps=True),
    Setting("preferred-dataset-splits", "system", "SystemConfig.splits", "Chunks per collective",
        "Chunks a collective is cut into; they follow each other through the dimensions like a pipeline. "
        "A chunk has size / splits bytes, rounded down; what is left over makes one more chunk.",
        "whole", least=1, most=1 << 20, default=1, start=1, of_steps=True),
    Setting("active-chunks-per-dimension", "system", "SystemConfig.active_chunks", "Active chunks",
        "Chunks under way per dimension at a time; the others wait.",
        "whole", least=1, most=1 << 30, default=1, of_steps=True),
    Setting("num-queues-per-dim", "options", "SystemConfig.queues_per_dimension", "Queues",
        "Queues of each dimension that chunks are spread over.",
        "whole", least=1, most=1 << 16, default=1, of_steps=True),
    Setting("collective-optimization", "system", "SystemConfig.collective_optimization", "Across dimensions",
        "How an all-reduce crosses several dimensions. Baseline: an all-reduce in each. Local bandwidth "
        "aware: reduce-scatter up, all-gather down again, so that outer dimensions carry 1/n of the data.",
        "choice",
        choices=_build_choices(("baseline", "baseline"), ("localBWAware", "local_bw_aware", "local BW aware")),
        required=True, start="baseline", of_steps=True),
    _build_switch("dimension-order", "Dimension order",
        "The order in which the chunks of a collective pass the dimensions. Balanced gives every chunk "
        "the order that loads the dimensions most evenly.",
        _build_choices(("ascending", "ascending"), ("descending", "descending"), ("balanced", "balanced (Themis)")),
        "Source: Themis, Rashidi et al., ISCA 2022.", of_steps=True),
    _build_switch("chunk-order", "Chunk order",
        "Which of the waiting chunks of equal priority starts first in a dimension: the one that came "
        "first, or the one with the fewest bytes left to send there.",
        _build_choices(("arrival", "by arrival"), ("smallest", "smallest first")), of_steps=True),
    _build_switch("collective-order", "Collective order",
        "Which collective of a comm group begins first where several are ready: that of the lowest "
        "number, in groups whose members number theirs (comm_seq, as linked PyTorch traces do), or, as in "
        "the reference, the one that is ready first.",
        _build_choices(("sequence", "by number"), ("ready", "as ready"))),
    Setting("communication-slots", "extended", "Extensions.communication_slots", "Communication slots",
        "Communication nodes of different comm groups that may be under way on one NPU at a time. The "
        "reference has one, so a second collective waits for the first.",
        "whole", least=1, most=1 << 16, default=1, is_extended=True),
)
_COMPUTE = _with_heading(COMPUTE,
    Setting("roofline-enabled", "system", "", "Roofline",
        "Compute nodes take num_ops / min(memory bandwidth × num_ops / tensor_size, peak) instead of "
        "their recorded time.",
        "flag", default=False,
        source="Source: Williams et al., CACM 52(4), 2009, as ASTRA-sim applies it."),
    _build_switch("compute-times", "Compute takes",
        "Where there is a roofline, which compute nodes take its time: all that say their operations and bytes "
        "(recompute for this GPU), or only those without a recorded duration. A node that has neither takes 1 ns.",
        _build_choices(("roofline", "the roofline's time"), ("recorded", "recorded time where known"))),
    _build_switch("recompute-for", "Recompute for",
        "Operations of a recorded device take the time that another GPU would: each operator keeps the share of the "
        "roofline that it reached, for its data type; without a formula it is scaled by memory bandwidth. Host, gaps and "
        "communication keep theirs.",
        _build_choices(("none", None, "the recorded GPU"), *((name, name) for name in GPUS)),
        "Source: Williams et al., CACM 52(4), 2009; peaks as the presets give them."),
    _build_switch("recorded-gpu", "Recorded on",
        "The GPU that the durations are of, where the trace does not name one that is known.",
        _build_choices(("trace", None, "as the trace says"), *((name, name) for name in GPUS)),
        needs="recompute-for"),
    Setting("peak-perf", "system", "Roofline.peak_tera_ops_per_s", "Peak",
        "Peak performance of an NPU, in 10^12 operations per second; the flat part of the roofline.",
        above=0, required=True, start=1, unit="TFLOP/s", needs="roofline-enabled"),
    Setting("local-mem-bw", "system", "SystemConfig.local_memory_bytes_per_ns", "Local memory",
        "Bandwidth of an NPU's own memory, a GB of 10^9 bytes: the slope of the roofline, and what "
        "reductions of collectives read and write. 0 makes reductions free.",
        least=0, default=0.0, start=1, unit="GB/s"),
    Setting("compute-speeds", "extended", "Extensions.compute_speeds", "Compute speeds",
        "Speed of single NPUs relative to the recorded or roofline time, as NPU: speed, such as 3: 0.9, "
        "7: 1.1. Those not listed have speed 1.",
        "speeds", above=0, shown="none differ", is_extended=True),
    _build_switch("host-slots", "Host nodes",
        "CPU nodes that may be under way on one NPU at a time: one per thread that nodes name (thread, "
        "tid), so that threads run side by side, or, as in the reference, one.",
        _build_choices(("per_thread", "one per thread"), ("one", "one"))),
    _build_switch("compute-slots", "Compute nodes",
        "Compute nodes that may be under way on one NPU at a time: one per stream that nodes name "
        "(stream, device), so that streams run side by side, or, as in the reference, one.",
        _build_choices(("per_stream", "one per stream"), ("one", "one"))),
    _build_switch("communication-times", "Communication takes",
        "What its messages take in the network, or what it took in the recording: a collective then ends "
        "on every rank as long after the last member has begun it as it did there. With recorded times no "
        "message is simulated.",
        _build_choices(("simulated", "simulated time"), ("recorded", "recorded time"))),
    _build_switch("rank-starts", "Ranks begin",
        "All together, or as far apart as their first nodes in the recording.",
        _build_choices(("together", "together"), ("recorded", "as recorded"))),
    Setting("replay-only", "system", "SystemConfig.replay_only", "Replay only",
        "Every node takes its recorded time, communication included: nothing of the network is simulated.",
        "flag", default=False),
)
_ENDS = _with_heading(ENDS,
    Setting("endpoint-delay", "system", "SystemConfig.endpoint_delay_ns", "Endpoint delay",
        "What a packet waits at its rank before it is sent on; where it is not set, 10 ns whatever the "
        "injection scale.",
        least=0, unit="ns", shown="10", of_steps=True),
    Setting("injection-scale", "options", "SystemConfig.injection_scale", "Injection scale",
        "Factor on a given endpoint delay.",
        least=0, default=1.0, of_steps=True),
    Setting("rendezvous-protocol", "options", "SystemConfig.rendezvous", "Rendezvous",
        "Point-to-point senders wait for a control message of the receiver before they send.",
        "flag", default=False),
    Setting("model-shared-bus", "system", "", "Shared bus",
        "The LogGP model of the bus between NPU and memory, in place of the endpoint delay.",
        "flag", default=False, source="Source: Alexandrov et al., LogGP, SPAA 1995."),
    _build_bus("L", "latency_ns", "L, latency",
        "LogGP: time on the wire."),
    _build_bus("o", "overhead_ns", "o, overhead",
        "LogGP: time a sender or receiver is busy per message."),
    _build_bus("g", "gap_ns", "g, gap",
        "LogGP: least time between two messages."),
    _build_bus("G", "gap_per_byte_ns", "G, per byte",
        "LogGP: time per byte.",
        type="number", default=0.0, unit="ns/B"),
    _build_bus("local-reduction-delay", "reduction_delay_ns", "Reduction",
        "Time per 100 bytes of a reduction.",
        default=1),
)
_MEMORY = _with_heading(MEMORY,
    Setting("memory-type", "memory", "RemoteMemory.sharing", "Remote memory",
        "What load and store nodes reach, and who waits for whom: nobody, the NPUs of a node, or all. A "
        "request takes latency + size / bandwidth.",
        "choice",
        choices=_build_choices(("NO_MEMORY_EXPANSION", None, "none"), ("PER_NPU_MEMORY_EXPANSION", "per_npu", "one per NPU"),
            ("PER_NODE_MEMORY_EXPANSION", "per_node", "one per node"), ("MEMORY_POOL", "pool", "one pool")),
        required=True, start="NO_MEMORY_EXPANSION"),
    Setting("remote-mem-latency", "memory", "RemoteMemory.latency_ns", "Latency",
        "Time of an empty request.",
        "whole", least=0, most=MAX_NS, required=True, start=1000, unit="ns", needs="memory-type"),
    Setting("remote-mem-bw", "memory", "RemoteMemory.bytes_per_ns", "Bandwidth",
        "Bandwidth of the remote memory, a GB of 10^9 bytes.",
        above=0, required=True, start=64, unit="GB/s", needs="memory-type"),
    Setting("num-npus-per-node", "memory", "RemoteMemory.npus_per_node", "NPUs per node",
        "NPUs that share one memory, where a node's NPUs do.",
        "whole", least=1, most=MAX_NPUS, default=1, start=1, needs="memory-type"),
)
_RULES = _with_heading(RULES,
    Setting("bandwidth-unit", "network", "", "Bandwidths in",
        "What the bandwidths of the network are counted in: GiB/s of 2^30 bytes, which is what the "
        "reference takes a GB to be, or GB/s of 10^9 bytes, as data sheets do.",
        "choice", choices=_build_choices((NETWORK_UNIT, NETWORK_UNIT), ("GB/s", "GB/s")), default=NETWORK_UNIT, is_extended=True),
    _build_switch("collectives", "Collectives",
        "All ten are carried out by messages, or, as in the reference, four of them: a broadcast then "
        "takes its recorded time, and reduce, gather, scatter, barrier and reduce-scatter-block are "
        "refused.",
        _build_choices(("all", "all ten"), ("reference", "as the reference"))),
    _build_switch("tie-order", "Ties",
        "What happens first among the events of one rank in one nanosecond. Symmetric: the same on every "
        "rank, so equal ranks stay equal and a symmetric job cannot deadlock. As the reference: the order "
        "of registration.",
        _build_choices(("symmetric", "symmetric"), ("reference", "as the reference"))),
    _build_switch("group-sizes", "Group sizes",
        "Whether halving-doubling and trees run on any number of ranks, or on powers of two only, as in "
        "the reference.",
        _build_choices(("any", "any"), ("powers_of_two", "powers of two"))),
)
_CONGESTION = Setting("congestion", "run", "SystemConfig.congestion", "Congestion",
    "Whether messages wait for each other on links. Unaware: every message takes hops × latency + bytes / "
    "bandwidth, whatever else is under way. Aware: a link sends one message after the other. The "
    "reference has a program for each, the aware one for one dimension.",
    "choice", choices=_build_choices(("aware", "aware"), ("unaware", "unaware")), default="unaware")
_FILES_ONLY = (
    Setting("num-nodes", "memory", "", "Nodes",
        "Nodes of the system; checked against the number of NPUs and without effect.",
        "whole", least=1, most=MAX_NPUS),
    Setting("switches", "network", "", "Switches",
        "Devices beside the NPUs that single links join; numbered on from them.",
        "whole", least=0, most=MAX_DEVICES, is_extended=True),
    Setting("links", "network", "", "Links",
        "Single links [source, target, bandwidth, latency in ns], one direction each.",
        "links", is_extended=True),
    Setting("costs", "network", "", "Costs of collectives",
        "The cost model: what collectives and messages cost alone on this machine, by algorithm and protocol, and what "
        "they put on the ports of their members, which they share with others. Single parameters: `--set costs.KEY=VALUE`.",
        "table", is_extended=True, source="The system file says where its numbers come from."),
)
# fmt: on

SETTINGS = (
    _CONGESTION,
    *_DIMENSIONS,
    *_CHUNKS,
    *_ALGORITHMS,
    *_COMPUTE,
    *_ENDS,
    *_MEMORY,
    *_RULES,
    *_FILES_ONLY,
)
"""Every setting. The order is that of the form, and of keys in files."""
BY_KEY: Mapping[str, Setting] = {setting.key: setting for setting in SETTINGS}
DIMENSION_SETTINGS = tuple(setting for setting in SETTINGS if setting.per_dimension)
ALGORITHM_SETTINGS = tuple(setting for setting in SETTINGS if setting.type == "algorithms")


def list_file_settings(file: File) -> tuple[Setting, ...]:
    """Return the settings whose keys stand in a file."""
    return tuple(setting for setting in SETTINGS if setting.file == file)


def list_held_settings(name: str) -> tuple[Setting, ...]:
    """Return the settings that an object of the configuration holds, by the name of its class."""
    return _OF[name]


_OF: Mapping[str, tuple[Setting, ...]] = {
    name: tuple(setting for setting in SETTINGS if setting.fills.partition(".")[0] == name)
    for name in dict.fromkeys(setting.fills.partition(".")[0] for setting in SETTINGS)
}


DEFAULT: Mapping[str, Any] = {setting.key: setting.default for setting in SETTINGS}
"""What counts where a key is not there."""


def check_limits(owner: object, called: str = "") -> None:
    """Check all values of an object of the configuration against their limits.

    Args:
        owner: The object; settings name its class and attributes.
        called: What messages put before the names of its attributes.

    Raises:
        ConfigError: A value is not allowed; names the attribute, the value and the values allowed.
    """
    for setting in list_held_settings(type(owner).__name__):
        setting.check(getattr(owner, setting.attribute), f"{called}{setting.attribute}")
