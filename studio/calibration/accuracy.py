"""The report of accuracy: every measured table against simulated times, by what was left out of the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from studio.calibration.judging import Judgement
from studio.calibration.splits import Starts, judge_split
from studio.calibration.tables import MeasuredTable
from studio.calibration.validation import Summary, summarise_judgements
from studio.units import format_percent

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Part:
    """What is judged together in the report, and how far it may be off in the median.

    Attributes:
        letter: How it is called.
        title: What was left out of the fit.
        split: The split that leaves it out.
        relation: The class that is judged.
        target: GMF that the median of the tables should not exceed, as a share.
    """

    letter: str
    title: str
    split: str
    relation: str
    target: float
    between: bool | None = None


PARTS = (
    Part(
        "A", "every second size fitted, the others judged; inside a node", "sizes", "other sizes", 0.05, False
    ),
    Part(
        "A", "every second size fitted, the others judged; between nodes", "sizes", "other sizes", 0.10, True
    ),
    Part(
        "B",
        "the table; others of the machine have as many nodes",
        "table",
        "other collective or count",
        0.12,
    ),
    Part("C", "all tables of a number of nodes", "nodes", "other nodes", 0.15),
    Part(
        "D", "nothing fitted: data sheets and what tables state of their ports", "machine", "data sheet", 0.35
    ),
)

NOISE = (
    ("nothing: same file, 2 to 5 repeats (H100, H200, B200, GB200, GB300)", "2.6 %", "1.1 %", "0.4 %"),
    ("file or NCCL version (2.23 to 2.29)", "4.5 %", "6.3 %", "1.6 %"),
    ("H100 against H200, same version", "3.2 %", "3.8 %", "1.8 %"),
    ("10 nodes of one H100 cluster", "–", "–", "0.2 %"),
    ("45 node pairs of one H100 cluster", "–", "–", "2.5 %"),
    ("118 to 134 node pairs of another, heavy tail", "–", "–", "16 %"),
    ("Alps GH200, 2 to 8 nodes, settings and plugin", "21 %", "35 %", "9 %"),
    ("Alps GH200, 16 nodes and more", "26 %", "38 %", "44 %"),
    ("Sophia, 2 × 8 A100", "2 %", "3 %", "0.6 %"),
    ("threads of one process or MPI ranks, same GPU", "30 to 60 %", "–", "–"),
)
"""How far repeats of public measurements differ: what differs, and mean |ln ratio| of small, middle and large sizes."""


def build_accuracy_report(
    tables: Sequence[MeasuredTable],
    *,
    command: str,
    starts: Starts | None = None,
    progress: Progress | None = None,
) -> str:
    """Return the report as Markdown.

    Args:
        tables: The measured tables.
        command: The command that makes the report, as it is written in it.
        starts: Costs that fits begin with, by machine, learnt without it; None takes the defaults of the libraries, which were
            learnt from public tables, so that D is not blind on those.
        progress: Told how far the fits are.

    Raises:
        StudioError: No table can be judged.
    """
    judged: dict[str, list[Judgement]] = {}
    notes: list[str] = []
    for split in dict.fromkeys(part.split for part in PARTS):
        judged[split], split_notes = judge_split(tables, split, None, starts=starts, progress=progress)
        notes += [note for note in split_notes if "nothing to fit" in note]
    parts = [(part, _index_part_judgements(part, judged[part.split])) for part in PARTS]
    lines = [
        "# Accuracy of simulated collectives",
        "",
        (
            f"Made by `{command}`, from {len(tables)} measured tables; not edited. Each table was held against simulated times "
            "of the full model."
        ),
        "",
        *_describe_measures(),
        *_format_summary(parts),
        *_describe_defaults(starts),
        *_format_noise(),
        *_format_wrong_tables(parts),
        *_format_tables(tables, parts),
        *_format_uncounted(parts),
    ]
    if notes:
        lines += [
            "",
            "## Machines that a split leaves nothing to fit of",
            "",
            *(f"- {note}" for note in dict.fromkeys(notes)),
        ]
    return "\n".join(lines) + "\n"


def _index_part_judgements(part: Part, judged: Sequence[Judgement]) -> dict[str, Judgement]:
    return {
        judgement.table.table_id: judgement
        for judgement in judged
        if judgement.relation == part.relation
        and (part.between is None or (judgement.table.nodes > 1) == part.between)
    }


_Parts = Sequence[tuple[Part, Mapping[str, Judgement]]]


def _describe_measures() -> list[str]:
    return [
        (
            "**gm|e|** is the geometric mean of |simulated / measured − 1| over the sizes of a table, **GMF** is "
            "exp(mean |ln(simulated / measured)|) − 1, and stricter. *Without curve* are the times of the model alone; with it, those "
            "corrected by the residual curves of the tables that were fitted (a curve corrects only its own machine and collective: its "
            "own group in full, near groups that have none the less the further they are)."
        ),
        "",
    ]


def _format_summary(parts: _Parts) -> list[str]:
    lines = [
        "## Medians over tables, by what the fit had not seen",
        "",
        "| | left out of the fit | tables | median GMF | median gm\\|e\\| | nine of ten GMF | median GMF without curve | asked: median GMF |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for part, judged in parts:
        summary = summarise_judgements(part.relation, list(judged.values()))
        lines.append(_format_summary_row(part, summary))
    return [
        *lines,
        "",
        ("Nine of ten tables should stay within twice what is asked of the median."),
        "",
    ]


def _describe_defaults(starts: Starts | None) -> list[str]:
    if starts is not None:
        return [
            (
                "What holds where nothing is fitted, the defaults of a library, was learnt for each machine without that machine's "
                "tables, so none of the splits has seen what it is judged by. The form of the model and some numbers that all machines share "
                "(how far parameters lie apart, how waits overlap) were chosen with these very splits in view, about forty settings in all, so "
                "that the figures are slightly optimistic for other tables."
            ),
            "",
        ]
    return [
        (
            "D is not blind: the defaults of a library, which hold where nothing is fitted, were learnt from public tables. On "
            "machines that are among those D is better than on others."
        ),
        "",
    ]


def _format_summary_row(part: Part, summary: Summary) -> str:
    cells = (part.letter, part.title, f"{summary.tables}")
    figures = (summary.gmf, summary.gm_error, summary.gmf_nine, summary.uncorrected_gmf, part.target)
    shown = [format_percent(value) if summary.tables else "–" for value in figures]
    return "| " + " | ".join((*cells, *shown)) + " |"


def _format_noise() -> list[str]:
    return [
        "## Beside it: how far repeats of measurements differ",
        "",
        "Mean |ln ratio| of a run to the geometric mean of the others of the same setup; no model can be closer than this.",
        "",
        "| what differs | up to 64 KiB | up to 16 MiB | above |",
        "| --- | ---: | ---: | ---: |",
        *("| " + " | ".join(row) + " |" for row in NOISE),
        "",
    ]


def _format_wrong_tables(parts: _Parts) -> list[str]:
    """List the tables that are off by more than twice what is asked of the median, with the direction."""
    lines = [
        "## Where the model is known to be wrong",
        "",
        (
            "Tables that count and are off by more than twice what is asked of the median. The bias is the geometric mean of "
            "simulated / measured, less 1, of small (to 64 KiB), middle (to 16 MiB) and large sizes: negative where simulated times "
            "are too short."
        ),
        "",
        "| | table | GMF | bias: small | middle | large |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    wrong = [
        (part, judgement)
        for part, judged in parts
        for judgement in judged.values()
        if not judgement.reported and judgement.errors.gmf > 2 * part.target
    ]
    for part, judgement in sorted(wrong, key=lambda pair: (pair[0].letter, -pair[1].errors.gmf)):
        bias = (judgement.errors.bias.get(name) for name in ("small", "middle", "large"))
        shown = " | ".join("" if value is None else f"{100 * value:+.0f} %" for value in bias)
        lines.append(
            f"| {part.letter} | `{judgement.table.table_id}` | {format_percent(judgement.errors.gmf)} | {shown} |"
        )
    return [*lines, "", *_WORDS, ""]


_WORDS = (
    "What these have in common:",
    "",
    (
        "- Networks that tables do not name, or whose nominal rate they never reach (sockets, plugins, shared fabrics): nothing in a "
        "data sheet tells what is reached, so D is far off until a table of the machine is fitted."
    ),
    (
        "- Sizes at which a library changes algorithm or protocol: where it changes earlier or later than the model, single sizes are off "
        "by a factor that the sizes around do not show."
    ),
    "- Small all-to-alls and all-gathers over many nodes, which are bound by processors and message rates, not by ports.",
    (
        "- What reaching another node costs before anything moves: tables of one node say nothing of it, and clusters take from 18 to "
        "219 µs for an all-reduce of 8 bytes on two nodes (most: two nodes of MI300X). One table across nodes, however short, tells."
    ),
    (
        "- How a benchmark was started: one thread that launches on all GPUs of a node (`-g 4` of nccl-tests) takes a call of the host, 4 to "
        "5 µs, for each. All-gathers of one cluster of H100 take 17 µs so on one node, and 16 µs on two with a process a GPU. It is counted "
        "where a table says it; of others a process or thread a GPU is assumed."
    ),
    (
        "- A network of which nothing is known, from one node: reduce-scatters over 10 nodes of a cluster of H100 that does not name its "
        "network take what a ring of LL128 does with 52 µs a step from node to node, and 17 are expected."
    ),
    (
        "- One node from two whose times are out of line: the fit to the 219 µs of two nodes of MI300X makes launches and channels inside a "
        "node slower as well, so that small and middle sizes of one node come out 25 to 52 % too long."
    ),
    (
        "- Trees over two nodes: NCCL counts with up to twice the rate between nodes for them, as each byte goes to the other node once. "
        "On two nodes of GH200 it takes one (158 GB/s of bus bandwidth, where ports carry a ring 100); the model expects a ring, 70 to 80 % too "
        "long from 256 MiB on. With `--set costs.algorithm=tree` these sizes are within 5 %, nothing fitted between nodes. Two nodes of V100 and A100 take rings."
    ),
)


def _format_tables(tables: Sequence[MeasuredTable], parts: _Parts) -> Iterator[str]:
    yield "## Every table"
    yield ""
    yield "GMF / gm|e| each; * is reported and not counted (reasons below)."
    yield ""
    yield "| table | sizes | A | A without curve | B or C | D |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for table in tables:
        by_letter = {
            part.letter: judged[table.table_id] for part, judged in parts if table.table_id in judged
        }
        star = "*" if any(judgement.reported for judgement in by_letter.values()) else ""
        held = by_letter.get("B") or by_letter.get("C")
        letter = "B" if "B" in by_letter else "C"
        a = by_letter.get("A")
        cells = (
            "–" if a is None else _format_errors(a.errors.gmf, a.errors.gm_error),
            "–" if a is None else _format_errors(a.uncorrected.gmf, a.uncorrected.gm_error),
            "–" if held is None else f"{letter}: {_format_errors(held.errors.gmf, held.errors.gm_error)}",
            "–"
            if "D" not in by_letter
            else _format_errors(by_letter["D"].errors.gmf, by_letter["D"].errors.gm_error),
        )
        yield f"| `{table.table_id}`{star} | {len(table.size_bytes)} | " + " | ".join(cells) + " |"
    yield ""


def _format_errors(gmf: float, gm_error: float) -> str:
    return f"{100 * gmf:.1f} / {100 * gm_error:.1f} %"


def _format_uncounted(parts: _Parts) -> list[str]:
    whys: dict[str, set[str]] = {}
    for _, judged in parts:
        for judgement in judged.values():
            if judgement.reported:
                whys.setdefault(judgement.reported, set()).add(judgement.table.table_id)
    lines = ["## Reported, not counted", ""]
    return lines + [f"- {why}: {len(names)} tables." for why, names in sorted(whys.items())]
