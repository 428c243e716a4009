"""The settings of the Simulate page: how each is called, what it may be, what it means and where that comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from studio.sim.parts import ALGORITHM_NAMES, EXTENDED_IMPLEMENTATIONS, IMPLEMENTATIONS

Section = Literal["network", "system", "memory", "options", "extended", "run"]
Choices = tuple[tuple[str, str], ...]

_REFERENCE = "Source: ASTRA-sim's analytical simulator, whose rules the compatible mode follows."
_ON_OFF: Choices = (("0", "off"), ("1", "on"))


@dataclass(frozen=True, slots=True)
class Field:
    """A setting.

    Attributes:
        key: Its key in ASTRA-sim's files, or below `extended`.
        section: The table it stands in; "run" is the choice between the reference's two programs.
        label: What it is called on the page.
        hint: What it means, the formula, where that comes from.
        choices: Values and what they are called; empty for a number or text.
        default: What counts where nothing is written, as it is shown.
        unit: Unit of a number.
        extended: Whether only the extended mode has it.
        needs: Key of the field that has to be on (or not at its first choice) for this one to matter.
    """

    key: str
    section: Section
    label: str
    hint: str
    choices: Choices = ()
    default: str = ""
    unit: str = ""
    extended: bool = False
    needs: str = ""


DIMENSION_FIELDS: tuple[Field, ...] = (
    Field(
        "topology",
        "network",
        "Kind",
        "How the NPUs of the dimension are connected. Ring: a link to either neighbour; a message takes the shorter way "
        "round. Fully connected: a link between any two. Switch: a link up and a link down per NPU, two hops. "
        + _REFERENCE,
        (("Ring", "Ring"), ("FullyConnected", "Fully connected"), ("Switch", "Switch")),
    ),
    Field(
        "npus_count",
        "network",
        "NPUs",
        "NPUs along this dimension, at least 2. The system has the product of all dimensions. Dimension 0 lies nearest the NPU: it varies fastest in the rank number.",
    ),
    Field(
        "bandwidth",
        "network",
        "Bandwidth",
        "Bandwidth of one link in one direction. A message takes hops × latency + bytes / bandwidth. The reference takes "
        "a GB of the network as 2^30 bytes, so the compatible mode counts in GiB/s. " + _REFERENCE,
    ),
    Field(
        "latency",
        "network",
        "Latency",
        "Latency of one link. A message takes hops × latency + bytes / bandwidth. " + _REFERENCE,
        unit="ns",
    ),
    Field(
        "efficiency",
        "network",
        "Efficiency",
        "Share of the bandwidth that messages get, above 0 and at most 1: a message takes hops × latency + overhead + bytes / "
        "(bandwidth × efficiency). For matching measured systems.",
        default="1",
        extended=True,
    ),
    Field(
        "message-overhead",
        "network",
        "Overhead",
        "Fixed time of every message that crosses the dimension, in front of its bytes. For matching measured systems.",
        default="0",
        unit="ns",
        extended=True,
    ),
)
"""The columns of the table of dimensions: lists with one entry per dimension."""

_COLLECTIVES = {
    "all-reduce-implementation": "All-reduce",
    "all-gather-implementation": "All-gather",
    "reduce-scatter-implementation": "Reduce-scatter",
    "all-to-all-implementation": "All-to-all",
    "broadcast-implementation": "Broadcast",
    "reduce-implementation": "Reduce",
    "gather-implementation": "Gather",
    "scatter-implementation": "Scatter",
    "reduce-scatter-block-implementation": "Reduce-scatter-block",
    "barrier-implementation": "Barrier",
}
_INSTEAD = {"reduce-scatter-block-implementation": "as reduce-scatter"}
"""What is shown where a collective of the extended mode has no algorithms of its own: whose it takes."""
ALGORITHM_HINT = (
    "How a collective is carried out along each dimension, dimension 0 first. Ring: n-1 steps of 1/n of the data (twice for an "
    "all-reduce). Direct: one step, every rank to every other; direct4 to four peers at a time. Halving-doubling: log2 n steps. "
    "Double binary tree: two trees, half of the data each. Forms named one… run over all ranks as one dimension. "
    + _REFERENCE
)
ALGORITHMS: tuple[Field, ...] = tuple(
    Field(
        key,
        "system" if key in IMPLEMENTATIONS else "extended",
        _COLLECTIVES[key],
        "",
        default="none" if key in IMPLEMENTATIONS else _INSTEAD.get(key, "as all-reduce"),
        extended=key in EXTENDED_IMPLEMENTATIONS,
    )
    for key in (*IMPLEMENTATIONS, *EXTENDED_IMPLEMENTATIONS)
)
"""The rows of the table of algorithms: a list with one entry per dimension each."""
ALGORITHM_CHOICES = tuple(name for name in ALGORITHM_NAMES)

CONGESTION = Field(
    "congestion",
    "run",
    "Congestion",
    "Whether messages wait for each other on links. Unaware: every message takes hops × latency + bytes / bandwidth, whatever "
    "else is under way. Aware: a link sends one message after the other. The reference has a program for each, the aware one "
    "for one dimension. " + _REFERENCE,
    (("unaware", "unaware"), ("aware", "aware")),
)

_CHUNKS: tuple[Field, ...] = (
    Field(
        "preferred-dataset-splits",
        "system",
        "Chunks per collective",
        "Chunks a collective is cut into; they follow each other through the dimensions like a pipeline. A chunk has size / splits bytes, rounded down; what is left over makes one more chunk. "
        + _REFERENCE,
        default="1",
    ),
    Field(
        "active-chunks-per-dimension",
        "system",
        "Active chunks",
        "Chunks under way per dimension at a time; the others wait. " + _REFERENCE,
        default="1",
    ),
    Field(
        "num-queues-per-dim",
        "options",
        "Queues",
        "Queues of each dimension that chunks are spread over. " + _REFERENCE,
        default="1",
    ),
    Field(
        "scheduling-policy",
        "system",
        "Scheduling",
        "Which collective's chunks go first where several wait: the latest (LIFO), the earliest (FIFO), or those of the smallest "
        "comm_priority (EXPLICIT). " + _REFERENCE,
        (("LIFO", "LIFO"), ("FIFO", "FIFO"), ("EXPLICIT", "EXPLICIT")),
    ),
    Field(
        "collective-optimization",
        "system",
        "Across dimensions",
        "How an all-reduce crosses several dimensions. Baseline: an all-reduce in each. Local bandwidth aware: reduce-scatter up, "
        "all-gather down again, so that outer dimensions carry 1/n of the data. " + _REFERENCE,
        (("baseline", "baseline"), ("localBWAware", "local BW aware")),
    ),
    Field(
        "dimension-order",
        "extended",
        "Dimension order",
        "The order in which the chunks of a collective pass the dimensions. Balanced gives every chunk the order that loads the "
        "dimensions most evenly. Source: Themis, Rashidi et al., ISCA 2022.",
        (("ascending", "ascending"), ("descending", "descending"), ("balanced", "balanced (Themis)")),
        extended=True,
    ),
    Field(
        "chunk-order",
        "extended",
        "Chunk order",
        "Which of the waiting chunks of equal priority starts first in a dimension: the one that came first, or the one with the "
        "fewest bytes left to send there.",
        (("arrival", "by arrival"), ("smallest", "smallest first")),
        extended=True,
    ),
    Field(
        "collective-order",
        "extended",
        "Collective order",
        "Which collective of a comm group begins first where several are ready: that of the lowest number, in groups whose members "
        "number theirs (comm_seq, as linked PyTorch traces do), or, as in the reference, the one that is ready first.",
        (("sequence", "by number"), ("ready", "as ready")),
        extended=True,
    ),
    Field(
        "communication-slots",
        "extended",
        "Communication slots",
        "Communication nodes of different comm groups that may be under way on one NPU at a time. The reference has one, so a second collective waits for the first.",
        default="1",
        extended=True,
    ),
)
_RULES: tuple[Field, ...] = (
    Field(
        "bandwidth-unit",
        "network",
        "Bandwidths in",
        "What the bandwidths of the network are counted in: GiB/s of 2^30 bytes, which is what the reference takes a GB to be, or "
        "GB/s of 10^9 bytes, as data sheets do.",
        (("GiB/s", "GiB/s"), ("GB/s", "GB/s")),
        extended=True,
    ),
    Field(
        "collectives",
        "extended",
        "Collectives",
        "All ten are carried out by messages, or, as in the reference, four of them: a broadcast then takes its recorded time, and "
        "reduce, gather, scatter, barrier and reduce-scatter-block are refused.",
        (("all", "all ten"), ("reference", "as the reference")),
        extended=True,
    ),
    Field(
        "tie-order",
        "extended",
        "Ties",
        "What happens first among the events of one rank in one nanosecond. Symmetric: the same on every rank, so equal ranks stay "
        "equal and a symmetric job cannot deadlock. As the reference: the order of registration.",
        (("symmetric", "symmetric"), ("reference", "as the reference")),
        extended=True,
    ),
    Field(
        "group-sizes",
        "extended",
        "Group sizes",
        "Whether halving-doubling and trees run on any number of ranks, or on powers of two only, as in the reference.",
        (("any", "any"), ("powers_of_two", "powers of two")),
        extended=True,
    ),
)
_COMPUTE: tuple[Field, ...] = (
    Field(
        "roofline-enabled",
        "system",
        "Roofline",
        "Compute nodes take num_ops / min(memory bandwidth × num_ops / tensor_size, peak) instead of their recorded time. Source: Williams et al., CACM 52(4), 2009, as ASTRA-sim applies it.",
        _ON_OFF,
    ),
    Field(
        "peak-perf",
        "system",
        "Peak",
        "Peak performance of an NPU, in 10^12 operations per second; the flat part of the roofline.",
        unit="TFLOP/s",
        needs="roofline-enabled",
    ),
    Field(
        "local-mem-bw",
        "system",
        "Local memory",
        "Bandwidth of an NPU's own memory, a GB of 10^9 bytes: the slope of the roofline, and what reductions of collectives read and write. 0 makes reductions free.",
        default="0",
        unit="GB/s",
    ),
    Field(
        "compute-speeds",
        "extended",
        "Compute speeds",
        "Speed of single NPUs relative to the recorded or roofline time, as NPU: speed, such as 3: 0.9, 7: 1.1. Those not listed have speed 1.",
        default="none differ",
        extended=True,
    ),
    Field(
        "host-slots",
        "extended",
        "Host nodes",
        "CPU nodes that may be under way on one NPU at a time: one per thread that nodes name (thread, tid), so that threads run side "
        "by side, or, as in the reference, one.",
        (("per_thread", "one per thread"), ("one", "one")),
        extended=True,
    ),
    Field(
        "compute-slots",
        "extended",
        "Compute nodes",
        "Compute nodes that may be under way on one NPU at a time: one per stream that nodes name (stream, device), so that streams "
        "run side by side, or, as in the reference, one.",
        (("per_stream", "one per stream"), ("one", "one")),
        extended=True,
    ),
    Field(
        "communication-times",
        "extended",
        "Communication takes",
        "What its messages take in the network, or what it took in the recording: a collective then ends on every rank as long "
        "after the last member has begun it as it did there. With recorded times no message is simulated.",
        (("simulated", "simulated time"), ("recorded", "recorded time")),
        extended=True,
    ),
    Field(
        "rank-starts",
        "extended",
        "Ranks begin",
        "All together, or as far apart as their first nodes in the recording.",
        (("together", "together"), ("recorded", "as recorded")),
        extended=True,
    ),
    Field(
        "replay-only",
        "system",
        "Replay only",
        "Every node takes its recorded time, communication included: nothing of the network is simulated. "
        + _REFERENCE,
        _ON_OFF,
    ),
)
_ENDPOINT: tuple[Field, ...] = (
    Field(
        "endpoint-delay",
        "system",
        "Endpoint delay",
        "What a packet waits at its rank before it is sent on; where it is not set, 10 ns whatever the injection scale. "
        + _REFERENCE,
        default="10",
        unit="ns",
    ),
    Field(
        "injection-scale",
        "options",
        "Injection scale",
        "Factor on a given endpoint delay. " + _REFERENCE,
        default="1",
    ),
    Field(
        "rendezvous-protocol",
        "options",
        "Rendezvous",
        "Point-to-point senders wait for a control message of the receiver before they send. " + _REFERENCE,
        _ON_OFF,
    ),
    Field(
        "model-shared-bus",
        "system",
        "Shared bus",
        "The LogGP model of the bus between NPU and memory, in place of the endpoint delay. Source: Alexandrov et al., LogGP, SPAA 1995.",
        _ON_OFF,
    ),
    Field(
        "L",
        "system",
        "L, latency",
        "LogGP: time on the wire.",
        default="0",
        unit="ns",
        needs="model-shared-bus",
    ),
    Field(
        "o",
        "system",
        "o, overhead",
        "LogGP: time a sender or receiver is busy per message.",
        default="0",
        unit="ns",
        needs="model-shared-bus",
    ),
    Field(
        "g",
        "system",
        "g, gap",
        "LogGP: least time between two messages.",
        default="0",
        unit="ns",
        needs="model-shared-bus",
    ),
    Field(
        "G",
        "system",
        "G, per byte",
        "LogGP: time per byte.",
        default="0",
        unit="ns/B",
        needs="model-shared-bus",
    ),
    Field(
        "local-reduction-delay",
        "system",
        "Reduction",
        "Time per 100 bytes of a reduction.",
        default="1",
        unit="ns",
        needs="model-shared-bus",
    ),
)
_MEMORY: tuple[Field, ...] = (
    Field(
        "memory-type",
        "memory",
        "Remote memory",
        "What load and store nodes reach, and who waits for whom: nobody, the NPUs of a node, or all. A request takes latency + "
        "size / bandwidth. " + _REFERENCE,
        (
            ("NO_MEMORY_EXPANSION", "none"),
            ("PER_NPU_MEMORY_EXPANSION", "one per NPU"),
            ("PER_NODE_MEMORY_EXPANSION", "one per node"),
            ("MEMORY_POOL", "one pool"),
        ),
    ),
    Field(
        "remote-mem-latency", "memory", "Latency", "Time of an empty request.", unit="ns", needs="memory-type"
    ),
    Field(
        "remote-mem-bw",
        "memory",
        "Bandwidth",
        "Bandwidth of the remote memory, a GB of 10^9 bytes.",
        unit="GB/s",
        needs="memory-type",
    ),
    Field(
        "num-npus-per-node",
        "memory",
        "NPUs per node",
        "NPUs that share one memory, where a node's NPUs do.",
        default="1",
        needs="memory-type",
    ),
)

GROUPS: Mapping[str, tuple[Field, ...]] = {
    "Chunks and order": _CHUNKS,
    "Compute": _COMPUTE,
    "Ends of messages": _ENDPOINT,
    "Remote memory": _MEMORY,
    "Beyond the reference": _RULES,
}
"""Fields that stand alone, by the heading they stand under."""
FIELDS: Mapping[str, Field] = {
    field.key: field
    for field in (
        CONGESTION,
        *DIMENSION_FIELDS,
        *ALGORITHMS,
        *(one for group in GROUPS.values() for one in group),
    )
}
