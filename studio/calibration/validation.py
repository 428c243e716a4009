"""Many judgements together: by class, and against a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.calibration.judging import CLASSES, Judgement
from studio.calibration.measures import RANGES, compute_quantile


@dataclass(frozen=True, slots=True)
class Summary:
    """The errors of the tables of one class; as shares.

    Attributes:
        relation: The class.
        tables: Tables that count.
        reported: Tables that are reported and not counted.
        gm_error, gmf: Medians over the tables that count; nan of none.
        gmf_nine: GMF that nine of ten of them do not exceed.
        uncorrected_gmf: The median GMF without residual curves.
    """

    relation: str
    tables: int
    reported: int
    gm_error: float
    gmf: float
    gmf_nine: float
    uncorrected_gmf: float


def summarise(judged: Sequence[Judgement]) -> list[Summary]:
    """Return a summary of each class that occurs."""
    summaries = []
    for relation in CLASSES:
        own = [judgement for judgement in judged if judgement.relation == relation]
        if own:
            summaries.append(summarise_judgements(relation, own))
    return summaries


def summarise_judgements(relation: str, judged: Sequence[Judgement]) -> Summary:
    """Return the errors of tables together."""
    counted = [judgement for judgement in judged if not judgement.reported]
    gmf = [judgement.errors.gmf for judgement in counted]
    return Summary(
        relation,
        len(counted),
        len(judged) - len(counted),
        compute_quantile([judgement.errors.gm_error for judgement in counted], 0.5),
        compute_quantile(gmf, 0.5),
        compute_quantile(gmf, 0.9),
        compute_quantile([judgement.uncorrected.gmf for judgement in counted], 0.5),
    )


def find_worst(judged: Sequence[Judgement]) -> Judgement:
    """Return the judgement of the largest GMF, see `Judgement.gate_gmf`."""
    return max(judged, key=lambda judgement: judgement.gate_gmf)


def report_of(judgement: Judgement) -> dict[str, object]:
    """Return a judgement as plain data; errors are shares, so 0.1 is 10 %."""
    table, errors = judgement.table, judgement.errors
    return {
        "table_id": table.table_id,
        "machine": table.machine,
        "hardware": table.hardware,
        "collective": table.collective,
        "gpus_per_node": table.gpus_per_node,
        "gpus_per_thread": table.gpus_per_thread,
        "nodes": table.nodes,
        "system": judgement.system,
        "class": judgement.relation,
        "counted": not judgement.reported,
        "reported_because": judgement.reported,
        "gm_error": errors.gm_error,
        "gmf": errors.gmf,
        "bias": {name: errors.bias.get(name) for name, _ in RANGES},
        "gm_error_without_curve": judgement.uncorrected.gm_error,
        "gmf_without_curve": judgement.uncorrected.gmf,
        "extrapolated": bool(judgement.extrapolated.any()),
        "sizes": [
            {
                "size_bytes": int(size),
                "measured_us": float(measured),
                "simulated_us": float(simulated),
                "error": float(simulated / measured - 1),
                "choice": choice,
                "extrapolated": bool(extrapolated),
            }
            for size, measured, simulated, choice, extrapolated in zip(
                table.size_bytes,
                table.time_us,
                judgement.simulated_us,
                judgement.choices,
                judgement.extrapolated,
                strict=True,
            )
        ],
    }
