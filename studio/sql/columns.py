"""The tables that SQL can ask for, with type, unit and meaning of each column: what is made, documented and suggested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from studio.analysis.job.ledger import PARTS
from studio.analysis.job.part_words import ABOUT

Kind = Literal["VARCHAR", "BIGINT", "UBIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"]
Of = Literal["workspace", "job", "run"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: As queries name it.
        type: Its type in DuckDB.
        about: What it says.
        unit: What it counts: `ns`, `bytes`, `bytes/ns`; "" for plain numbers and texts.
    """

    name: str
    type: Kind
    about: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        name: As queries name it.
        about: What a row is.
        of: What it is made of: all of the workspace, what a job's files hold, or the times of a run.
        columns: Its columns, in order.
    """

    name: str
    about: str
    of: Of
    columns: tuple[Column, ...]


_JOB = Column("job", "VARCHAR", "The job: its id in the workspace, or the path it was read from.")
_RUN = Column("run", "VARCHAR", "The run's id; `recorded` for the times in the job's files.")
_RANK = Column("rank", "BIGINT", "Number of the rank.")
_ROW = Column(
    "node", "BIGINT", "Place of the node among those of its rank, from 0; with the rank it names a node."
)
_ID = Column(
    "id", "UBIGINT", "Id that the file gives the node; usually, not necessarily, unique within a rank."
)
_NAME = Column("name", "VARCHAR", "Name of the node.")
_TYPE = Column(
    "type",
    "VARCHAR",
    "`COMP`, `COMM_COLL`, `COMM_SEND`, `COMM_RECV`, `MEM_LOAD`, …; `COPY` for copies. What is written as compute and is none "
    "is told apart, as `info` counts it: `host gap` and `device gap` (time in which no operator ran, or a stream stood idle), "
    "`communication kernel` (of a library, neither size nor group known), `assumed arrival` (of ranks that were not recorded).",
)
_COLLECTIVE = Column("collective", "VARCHAR", "`ALL_REDUCE`, `ALL_GATHER`, …; empty (NULL) for other nodes.")
_GROUP = Column("comm_group", "VARCHAR", "Name of the comm group; NULL where the node names none.")
_BYTES = Column(
    "bytes", "BIGINT", "Payload of communication on this rank; NULL where none is written.", "bytes"
)


def _build_part_columns(run: str, type_: Kind) -> tuple[Column, ...]:
    """Return a column for each part of a rank's time, and for what is made of parts."""
    named = (*PARTS, "exposed", "idle", "after_finish")
    return tuple(Column(f"{part}_ns", type_, f"{run}{ABOUT[part]}", "ns") for part in named)


TABLES: Final[tuple[Table, ...]] = (
    Table(
        "nodes",
        "A node of a rank.",
        "job",
        (
            _JOB,
            _RANK,
            _ROW,
            _ID,
            _NAME,
            _TYPE,
            _COLLECTIVE,
            _GROUP,
            _BYTES,
            Column(
                "operations", "BIGINT", "Floating-point operations (`num_ops`); NULL where none are written."
            ),
            Column(
                "start_ns",
                "BIGINT",
                "Recorded start, from the first of the job; NULL where none is recorded.",
                "ns",
            ),
            Column("duration_ns", "BIGINT", "Recorded duration; NULL where the file has none, or 0.", "ns"),
            Column("is_cpu_op", "BOOLEAN", "Whether the node is marked as work of the host."),
            Column("stream", "BIGINT", "Stream of the device; NULL where none is written."),
            Column("waits_for", "BIGINT", "How many nodes it waits for, by data or control dependency."),
        ),
    ),
    Table(
        "attributes",
        "An attribute of a node, in the order of the file.",
        "job",
        (
            _JOB,
            _RANK,
            _ROW,
            _ID,
            Column("position", "BIGINT", "Place among the attributes of the node, from 0."),
            Column("key", "VARCHAR", "Name of the attribute."),
            Column("kind", "VARCHAR", "Kind of its value in the file: `INT64`, `STRING`, `INT64_LIST`, …"),
            Column("value", "VARCHAR", "The value as text; a list as JSON; bytes in hexadecimal."),
            Column(
                "integer",
                "BIGINT",
                "The value of whole numbers and truth values; NULL for others, and from 2^63 on.",
            ),
            Column("number", "DOUBLE", "The value of any number; NULL for texts and lists."),
            Column("items", "BIGINT", "How many items a list has; NULL where the value is no list."),
            Column("doc", "VARCHAR", "Doc string; NULL where there is none."),
        ),
    ),
    Table(
        "dependencies",
        "A node waits for another one of its rank.",
        "job",
        (
            _JOB,
            _RANK,
            _ROW,
            _ID,
            Column("kind", "VARCHAR", "`data` or `ctrl`."),
            Column(
                "on_node",
                "BIGINT",
                "`node` of the node that is waited for; NULL where the rank has none of that id.",
            ),
            Column("on_id", "UBIGINT", "Its id."),
        ),
    ),
    Table(
        "spans",
        "A node while it ran, recorded or simulated: one row, also of calls that the Timeline draws in pieces.",
        "run",
        (
            _JOB,
            _RUN,
            _RANK,
            _ROW,
            _ID,
            _NAME,
            _TYPE,
            Column(
                "lane",
                "VARCHAR",
                "`compute`, `communication`, `memory`, `cpu`; of recordings also `thread`, `stream`.",
            ),
            Column(
                "lane_name",
                "VARCHAR",
                "The comm group, thread or stream of the lane; NULL where it has no name.",
            ),
            _COLLECTIVE,
            _GROUP,
            _BYTES,
            Column("start_ns", "BIGINT", "When it began, from the beginning of the run.", "ns"),
            Column(
                "end_ns",
                "BIGINT",
                "When it was over; a recorded call is when it returns, after what it called.",
                "ns",
            ),
            Column(
                "duration_ns",
                "BIGINT",
                "Its own time: from start to end, of a recorded call without what it called meanwhile.",
                "ns",
            ),
        ),
    ),
    Table(
        "collectives",
        "A collective that ran: one call of all members of its comm group. What was matched and is none, as members differ in type or size, is left out.",
        "run",
        (
            _JOB,
            _RUN,
            Column("comm_group", "VARCHAR", "Name of the comm group; empty for that of all ranks."),
            Column("position", "BIGINT", "Which collective of its group, from 0."),
            Column("type", "VARCHAR", "`ALL_REDUCE`, `ALL_GATHER`, …"),
            Column(
                "members",
                "BIGINT",
                "Ranks of the group; of one that no file lists, with ranks that are not open, those that are known.",
            ),
            Column("present", "BIGINT", "Those of them that have times for it."),
            Column("bytes", "BIGINT", "What a rank puts in, the largest of its members.", "bytes"),
            Column(
                "whole_bytes",
                "BIGINT",
                "Size of the whole array, as NCCL counts it; 0 where that depends on members that are not known.",
                "bytes",
            ),
            Column("start_ns", "BIGINT", "When the first member began, from the beginning of the run.", "ns"),
            Column("arrived_ns", "BIGINT", "When the last member began.", "ns"),
            Column("end_ns", "BIGINT", "When the last member ended.", "ns"),
            Column("duration_ns", "BIGINT", "From the first start to the last end.", "ns"),
            Column("skew_ns", "BIGINT", "How long the first member waited for the last one.", "ns"),
            Column("last_rank", "BIGINT", "The member that began last."),
            Column("last_node", "BIGINT", "`node` of that member."),
            Column(
                "algorithm_bytes_per_ns",
                "DOUBLE",
                "`whole_bytes` by the time from the last arrival to the end; NULL where that is not known.",
                "bytes/ns",
            ),
            Column(
                "bus_bytes_per_ns",
                "DOUBLE",
                "The same, comparable with the bandwidth of links; NULL also where it depends on members that are not known.",
                "bytes/ns",
            ),
        ),
    ),
    Table(
        "links",
        "A directed link of a simulated network in which messages wait for each other.",
        "run",
        (
            _JOB,
            _RUN,
            Column("link", "BIGINT", "Number of the link, from 0."),
            Column("name", "VARCHAR", "Its ends: `3 → 4`, `3 → switch 0`."),
            Column("source", "BIGINT", "Device it leads from: NPUs first, then switches."),
            Column("target", "BIGINT", "Device it leads to."),
            Column("bytes", "BIGINT", "Bytes sent over it.", "bytes"),
            Column("messages", "BIGINT", "Messages sent over it."),
            Column("busy_ns", "BIGINT", "How long it was sending.", "ns"),
            Column("utilisation", "DOUBLE", "`busy_ns` by the time of the whole run: 1 is always."),
            Column("peak_queue", "BIGINT", "Most messages that waited for it at a time."),
        ),
    ),
    Table(
        "exposed",
        "Time of a rank in the communication of one type and comm group that no work hid.",
        "run",
        (
            _JOB,
            _RUN,
            _RANK,
            Column(
                "comm_group",
                "VARCHAR",
                "Name of the comm group; empty for that of all ranks, and for messages that name none.",
            ),
            Column("type", "VARCHAR", "The collective; `SEND` and `RECV` are messages."),
            *(
                Column(f"{part}_ns", "BIGINT", ABOUT[part], "ns")
                for part in ("bubble", "waiting", "queueing", "latency", "transfer", "communication")
            ),
            Column("exposed_ns", "BIGINT", ABOUT["exposed"], "ns"),
        ),
    ),
    Table(
        "ranks",
        "A rank of a job; with times, where its time went. Parts add up to `finish_ns`.",
        "job",
        (
            _JOB,
            Column("run", "VARCHAR", "The run's id, `recorded`, or NULL where the job has no times."),
            _RANK,
            Column("nodes", "BIGINT", "Nodes of the rank."),
            Column("graph", "BIGINT", "Number of its graph; ranks with equal graphs share one."),
            Column("file", "VARCHAR", "Name of the file it was read from."),
            Column(
                "assumed_from",
                "BIGINT",
                "Rank whose recording it repeats; NULL where it was recorded itself.",
            ),
            Column("finish_ns", "BIGINT", "From the beginning of the run to the end of its last node.", "ns"),
            *_build_part_columns("", "BIGINT"),
        ),
    ),
    Table(
        "runs",
        "A simulation that is kept in the workspace.",
        "workspace",
        (
            _JOB,
            Column("run", "VARCHAR", "The run's id."),
            Column("name", "VARCHAR", "What the user calls it."),
            Column("created", "TIMESTAMP", "When it was stored, in UTC."),
            Column(
                "model",
                "VARCHAR",
                "The model that was simulated; runs of different models are not to be ranked.",
            ),
            Column("mode", "VARCHAR", "`compatible` or `extended`."),
            Column("congestion", "VARCHAR", "The network model: `aware` or `unaware`."),
            Column("npus", "BIGINT", "Ranks of the job."),
            Column("simulated", "BIGINT", "Ranks that were simulated, each for a class of equal ones."),
            Column("makespan_ns", "BIGINT", "When the last rank finished.", "ns"),
            Column("first_finish_ns", "BIGINT", "When the first rank finished.", "ns"),
            *_build_part_columns("Mean over ranks. ", "DOUBLE"),
            Column("events", "BIGINT", "Events that are kept."),
            Column("spent_s", "DOUBLE", "How long the simulation took, in seconds.", "s"),
            Column("stored_bytes", "BIGINT", "Space it takes in the workspace.", "bytes"),
            Column("doubts", "BIGINT", "Reasons not to believe the answer as it stands."),
            Column(
                "assumed",
                "VARCHAR",
                "Which ranks of the job were not recorded, in words; NULL where all were.",
            ),
            Column(
                "system",
                "VARCHAR",
                "What was simulated on, as JSON of ASTRA-sim's keys: `system->>'$.network.topology'`.",
            ),
            Column("trace_hash", "VARCHAR", "Equal for equal traces."),
            Column("config_hash", "VARCHAR", "Equal for equal configurations."),
            Column("version", "VARCHAR", "The studio that simulated."),
        ),
    ),
    Table(
        "jobs",
        "A job of the workspace, or one that was read from files.",
        "workspace",
        (
            _JOB,
            Column("name", "VARCHAR", "What the user calls it."),
            Column("created", "TIMESTAMP", "When it was imported, in UTC; NULL where it was not."),
            Column("source", "VARCHAR", "What it was imported from."),
            Column("ranks", "BIGINT", "Ranks present."),
            Column(
                "world",
                "BIGINT",
                "Ranks that the whole job has where some are missing; 0 where all are there, -1 where that is unknown.",
            ),
            Column("graphs", "BIGINT", "Distinct graphs among them."),
            Column("nodes", "BIGINT", "Nodes on all ranks together."),
            Column("timed_nodes", "BIGINT", "Those with a recorded start."),
            Column("control_dependencies", "BIGINT", "Dependencies of all ranks."),
            Column("data_dependencies", "BIGINT", "Likewise."),
            Column("operations", "BIGINT", "Floating-point operations of all ranks."),
            Column("comm_bytes", "BIGINT", "Payload of collectives and messages on all ranks.", "bytes"),
            Column(
                "recorded_ns",
                "BIGINT",
                "From the first recorded start to the last recorded end; NULL without times.",
                "ns",
            ),
            Column("duration_ns", "BIGINT", "Recorded durations added up over all ranks.", "ns"),
            Column("schema", "VARCHAR", "Schema versions the files name."),
            Column("errors", "BIGINT", "Findings of the reader that lost data."),
            Column("warnings", "BIGINT", "Its findings that may mislead."),
            Column("runs", "BIGINT", "Simulations of it that are kept."),
            Column("stored_bytes", "BIGINT", "Space it takes in the workspace, without runs.", "bytes"),
            Column("runs_bytes", "BIGINT", "Space its runs take.", "bytes"),
        ),
    ),
)

BY_NAME: Final = {table.name: table for table in TABLES}


@dataclass(frozen=True, slots=True)
class Example:
    """A query to begin with.

    Attributes:
        title: What it asks, in words.
        query: The query.
    """

    title: str
    query: str


EXAMPLES: Final[tuple[Example, ...]] = (
    Example(
        "Nodes by type",
        "SELECT type, collective, count(*) AS nodes, sum(bytes) AS bytes, sum(duration_ns) AS duration_ns\n"
        "FROM nodes GROUP BY ALL ORDER BY nodes DESC",
    ),
    Example(
        "Longest collectives",
        "SELECT type, comm_group, position, bytes, duration_ns, skew_ns, last_rank\n"
        "FROM collectives ORDER BY duration_ns DESC LIMIT 20",
    ),
    Example(
        "Imbalance over ranks",
        "SELECT rank, finish_ns, compute_ns + overlapped_ns AS work_ns, exposed_ns, idle_ns\n"
        "FROM ranks ORDER BY work_ns DESC",
    ),
    Example(
        "Exposed time by group",
        "SELECT comm_group, type, count(*) AS ranks, sum(exposed_ns) AS exposed_ns, max(exposed_ns) AS most_ns\n"
        "FROM exposed GROUP BY ALL ORDER BY exposed_ns DESC",
    ),
    Example(
        "Time by name",
        "SELECT name, count(*) AS spans, sum(duration_ns) AS total_ns, median(duration_ns) AS median_ns\n"
        "FROM spans WHERE lane IN ('compute', 'stream') GROUP BY name ORDER BY total_ns DESC LIMIT 50",
    ),
    Example(
        "Skew by the rank that came last",
        "SELECT last_rank, count(*) AS collectives, sum(skew_ns) AS skew_ns\n"
        "FROM collectives GROUP BY last_rank ORDER BY skew_ns DESC",
    ),
    Example(
        "Busiest links",
        "SELECT name, bytes, busy_ns, utilisation, peak_queue FROM links ORDER BY busy_ns DESC LIMIT 20",
    ),
    Example(
        "Most depended on",
        "SELECT d.rank, n.name, n.type, count(*) AS dependents\n"
        "FROM dependencies d JOIN nodes n ON n.rank = d.rank AND n.node = d.on_node\n"
        "GROUP BY ALL ORDER BY dependents DESC LIMIT 20",
    ),
    Example(
        "Attributes in use",
        "SELECT key, kind, count(*) AS times, count(DISTINCT value) AS distinct_values\n"
        "FROM attributes GROUP BY ALL ORDER BY times DESC",
    ),
    Example(
        "Jobs and their fastest runs",
        "SELECT j.name, j.ranks, j.nodes, count(r.run) AS runs, min(r.makespan_ns) AS fastest_ns\n"
        "FROM jobs j LEFT JOIN runs r ON r.job = j.job GROUP BY ALL ORDER BY j.name",
    ),
)


def format_reference() -> str:
    """Return tables and columns as Markdown, as `docs/sql.md` has them."""
    lines: list[str] = []
    for table in TABLES:
        lines += [
            f"### {table.name}",
            "",
            table.about,
            "",
            "| column | type | unit | what it says |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| `{column.name}` | {column.type} | {column.unit} | {column.about} |"
            for column in table.columns
        ]
        lines.append("")
    return "\n".join(lines)
