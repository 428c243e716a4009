"""Hold generated jobs against those of the public generator, the Symbolic Tensor Graph.

    python -m benchmarks.report_generation shared/traces docs/generation.md

Each of its jobs is read, the same model and layout generated, and operations and bytes of each kind of node are compared. It counts a
multiplication and its addition as one operation and sizes in elements (`num_ops` of its `Einsum` is the product of all dimensions),
so that its numbers are doubled. The table takes the place of the part of the document between its two marks.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import studio
from benchmarks.sections import replace_section
from studio.generation.job import make_job
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.wish import Wish, build_layout
from studio.trace import CollectiveType, Graph, NodeType, Trace, read_int_column

BEGIN, END = "<!-- generator: begin -->", "<!-- generator: end -->"
KINDS = {
    "products of layers": (
        r"transformer\.\d+\.(mha\.(qkv|o1|dattn|dwo|dwqkv|dx1)|ffn\.\w+)@\d+_COMP",
        r"layer\d+\.(attn\.(qkv|proj)|mlp\.fc[12])\.(fwd|dgrad|wgrad)",
    ),
    "products of the output layer": (r"out_emb\.(y|dx)@\d+_COMP", r"head\.logits\.(fwd|dgrad)"),
    "gathers in layers": (r"transformer\.\d+\.(mha|ffn)\.", r"layer\d+\.(attn|mlp)\."),
    "scatters in layers": (r"transformer\.\d+\.(mha|ffn)\.", r"layer\d+\.(attn|mlp)\."),
    "messages of stages": (r"", r"send\."),
    "gradients of layers": (r"transformer\.\d+\._sharded_grad", r"layer\d+\.grads\."),
    "weights of layers": (r"transformer\.\d+\._assembled_weight", r"layer\d+\.weights\."),
}
"""What is compared: how names of nodes say it, theirs and ours, behind the micro-batch."""
_COUNTED = {
    "gathers in layers": "ALL_GATHER",
    "weights of layers": "ALL_GATHER",
    "scatters in layers": "REDUCE_SCATTER",
}
_TOKENS, _HIDDEN, _HEADS, _FEED_FORWARD, _VOCABULARY, _BATCH = 128, 256, 8, 1_024, 2_000, 16
_MICRO_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the public generator.

    Attributes:
        name: Its folder.
        layers: Layers of its model.
        tp, dp, pp: Its layout, which has four micro-batches.
        zero: 3 where weights are sharded.
    """

    name: str
    layers: int
    tp: int = 1
    dp: int = 1
    pp: int = 1
    zero: int = 0

    @property
    def model(self) -> Model:
        """Its model: keys and values as wide as queries, and no gate, as its graphs have them whatever the name."""
        size = _HIDDEN // _HEADS
        return Model(
            self.name,
            self.layers,
            _HIDDEN,
            _HEADS,
            _HEADS,
            size,
            _FEED_FORWARD,
            _VOCABULARY,
            _TOKENS,
            gated=False,
        )

    @property
    def layout(self) -> Layout:
        """Its layout."""
        ranks = self.tp * self.dp * self.pp
        micro = max(4 // self.dp, 1)
        return build_layout(
            self.model, Wish(ranks, self.tp, self.pp, batch=_BATCH, micro_batch=micro, zero=self.zero)
        )


JOBS = (
    Job("gpt_8r_dp2tp4", 2, tp=4, dp=2),
    Job("llama_16r_dp4tp4", 2, tp=4, dp=4),
    Job("llama_16r_tp4pp4_recompute", 4, tp=4, pp=4),
    Job("llama_32r_dp4tp4pp2", 2, tp=4, dp=4, pp=2),
    Job("llama_8r_dp2tp2pp2", 4, tp=2, dp=2, pp=2),
    Job("llama_8r_dp8_fsdp", 2, dp=8, zero=3),
    Job("llama_8r_tp8", 2, tp=8),
)


def sums(trace: Trace, *, ours: bool) -> dict[str, tuple[int, int]]:
    """Return how many nodes of all ranks are of each kind, and their operations or bytes, doubled where they are the other's."""
    uses = Counter(rank.graph for rank in trace.ranks)
    patterns = {kind: re.compile(names[1 if ours else 0]) for kind, names in KINDS.items()}
    counts: Counter[str] = Counter()
    amounts: Counter[str] = Counter()
    for index, graph in enumerate(trace.graphs):
        for name, what, amount in _nodes(graph):
            for kind, pattern in patterns.items():
                if _belongs(kind, what) and pattern.match(name):
                    counts[kind] += uses[index]
                    amounts[kind] += uses[index] * amount * (1 if ours else 2)
    return {kind: (counts[kind], amounts[kind]) for kind in KINDS}


def _nodes(graph: Graph) -> Iterator[tuple[str, str, int]]:
    """Yield name, kind of node or collective, and operations or bytes of each node."""
    kinds = dict(zip(*(column.tolist() for column in read_int_column(graph, "comm_type")), strict=True))
    for key in ("num_ops", "comm_size"):
        rows, values = read_int_column(graph, key)
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            name = re.sub(r"^(step\d+\.)?mb\d+\.", "", graph.strings[int(graph.name[row])])
            node = NodeType(int(graph.type[row])).name
            yield name, CollectiveType(kinds[row]).name if row in kinds else node, value


def _belongs(kind: str, what: str) -> bool:
    if kind.startswith("products"):
        return what == "COMP"
    if kind.startswith("messages"):
        return what == "COMM_SEND"
    if kind.startswith("gradients"):
        return what in ("ALL_REDUCE", "REDUCE_SCATTER")
    return what == _COUNTED[kind]


def explained(job: Job, kind: str, ours: tuple[int, int]) -> tuple[int, int]:
    """Return what theirs has to be by ours and the known differences.

    It sums gradients after every micro-batch and leaves norms out; with eight replicas its four micro-batches are half a sequence each.
    """
    count, amount = ours
    more = _MICRO_BATCHES // job.layout.micro_batches
    if kind.startswith("products"):
        return more * count, amount
    if kind not in ("gradients of layers", "weights of layers"):
        return ours
    # Of norms every rank holds both of a layer whole, or its shard of them.
    norms = 2 * 2 * _HIDDEN // (job.dp if kind == "weights of layers" else 1)
    times = more if job.zero else _MICRO_BATCHES
    return times * count, times * (amount - count * norms)


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of node of a job: how many there are, and their operations or bytes.

    Attributes:
        ours, theirs: Of either.
        explained: What theirs has to be by ours and the known differences.
    """

    ours: tuple[int, int]
    theirs: tuple[int, int]
    explained: tuple[int, int]

    def __str__(self) -> str:
        """Say whether both are equal; else what theirs and ours are, and whether the known differences are all."""
        if self.ours == self.theirs:
            return "equal" if self.ours[0] else "none"
        words = f"{self.theirs[0]:,} of {self.theirs[1]:,}; here {self.ours[0]:,} of {self.ours[1]:,}"
        return f"{words} ({'as listed' if self.explained == self.theirs else 'not explained'})"


def compare(job: Job, folder: Path) -> dict[str, Cell]:
    """Return the comparison of a job in the folder of jobs with the one generated here."""
    theirs = sums(studio.read(folder / job.name), ours=False)
    layout = replace(job.layout, grad_overlap=True)
    ours = sums(make_job(job.model, layout), ours=True)
    return {kind: Cell(ours[kind], theirs[kind], explained(job, kind, ours[kind])) for kind in KINDS}


def table(rows: dict[str, dict[str, Cell]]) -> str:
    """Return the comparison as Markdown: a row for each job."""
    lines = ["| job | " + " | ".join(KINDS) + " |", "| --- |" + " --- |" * len(KINDS)]
    lines += [
        f"| `{name}` | {' | '.join(str(cell) for cell in row.values())} |" for name, row in rows.items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Compare all jobs, and put the table into a document or print it."""
    folder = Path(arguments[0]) / "stg"
    told = table({job.name: compare(job, folder) for job in JOBS})
    if len(arguments) < 2:
        print(told)
        return
    replace_section(Path(arguments[1]), (BEGIN, END), [told])


if __name__ == "__main__":
    main(sys.argv[1:])
