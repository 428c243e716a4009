"""Facts about measured tables that the user gives because the files lack them, and the result of the readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.calibration.tables import KIND_NAMES, MeasuredTable
from studio.errors import TraceFormatError
from studio.sim.kinds import COLLECTIVE_KINDS

COLLECTIVES: tuple[str, ...] = (
    *(kind for kind in COLLECTIVE_KINDS if kind not in ("barrier", "reduce_scatter_block")),
    "send_recv",
)
"""Collectives that tables may hold."""


@dataclass(frozen=True, slots=True)
class Given:
    """Facts about measured tables given by the user; they count where a table lacks them.

    Attributes:
        gpus_per_node: GPUs of a node that took part; None where not given.
        nodes: Nodes that took part; None where not given.
        collective: Which collective was measured; "" where not given.
    """

    gpus_per_node: int | None = None
    nodes: int | None = None
    collective: str = ""


UNSAID = Given()
"""The user says nothing of the tables."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables that were read, and what was noticed meanwhile.

    Attributes:
        tables: The tables.
        notes: What was left out or assumed, a sentence each.
    """

    tables: tuple[MeasuredTable, ...]
    notes: tuple[str, ...] = ()


def match_collective(name: str) -> str:
    """Return the kind of a collective under any of its usual spellings; "" for an unknown one.

    Example:
        >>> match_collective("AllReduce"), match_collective("alltoall"), match_collective("all-gather"), match_collective("x")
        ('all_reduce', 'all_to_all', 'all_gather', '')
    """
    letters = "".join(letter for letter in name.lower() if letter.isalpha()).removesuffix("perf")
    spelled = {kind.replace("_", ""): kind for kind in COLLECTIVES}
    spelled |= {other.replace("_", ""): kind for other, kind in KIND_NAMES.items()}
    spelled |= {"alltoallv": "all_to_all", "alltoallsingle": "all_to_all", "sendrecv": "send_recv"}
    return spelled.get(letters, "")


def infer_shape(place: str, given: Given, ranks: int | None = None) -> tuple[int, int]:
    """Return GPUs per node and the number of nodes of a table that lacks them, from the user's facts.

    Args:
        place: The file, and the place in it.
        given: What the user says.
        ranks: How many ranks took part, where the table tells.

    Raises:
        TraceFormatError: The user does not say it, or it contradicts the table.
    """
    per_node, nodes = given.gpus_per_node, given.nodes
    if ranks is not None and per_node is not None and nodes is None and ranks % per_node == 0:
        nodes = ranks // per_node
    if ranks is not None and nodes is not None and per_node is None and ranks % nodes == 0:
        per_node = ranks // nodes
    if per_node is None or nodes is None:
        known = "" if ranks is None else f" Its bandwidths are those of {ranks} ranks."
        missing = " and ".join(
            option
            for option, value in (("--gpus-per-node", given.gpus_per_node), ("--nodes", given.nodes))
            if value is None
        )
        raise TraceFormatError(
            f"{place}: the text does not say on how many GPUs and nodes it was measured.{known}",
            hint=f"Give {missing}, such as --gpus-per-node 8 --nodes 2.",
        )
    if ranks is not None and per_node * nodes != ranks:
        raise TraceFormatError(
            f"{place}: --gpus-per-node {per_node} and --nodes {nodes} make {per_node * nodes} ranks, but its bandwidths "
            f"are those of {ranks}; allowed: a product of {ranks}",
            hint="Bus bandwidth by algorithm bandwidth tells the number of ranks.",
        )
    return per_node, nodes


def note_grouped_launches(place: str, tables: Sequence[MeasuredTable]) -> list[str]:
    """Say of which tables one thread launched on several GPUs, and what that does to small sizes; nothing where none did.

    Args:
        place: Where they are.
        tables: All tables of that place.
    """
    grouped = [table for table in tables if table.gpus_per_thread > 1]
    if not grouped:
        return []
    least, most = (pick(table.gpus_per_thread for table in grouped) for pick in (min, max))
    gpus = f"{least}" if least == most else f"{least} to {most}"
    which = (
        f", in {len(grouped)} of {len(tables)} tables, such as {grouped[0].table_id}"
        if len(tables) > 1
        else ""
    )
    sentence = f"{place}: one thread launched on {gpus} GPUs, one after the other{which}; small sizes wait for as many calls of the host"
    return [f"{sentence}, those of a job with a process a GPU for one."]


def quote_text(text: str, most: int = 60) -> str:
    """Return a piece of a file as messages quote it."""
    return repr(text if len(text) <= most else f"{text[:most]}…")
