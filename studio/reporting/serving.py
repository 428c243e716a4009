"""What requests see of a served model, as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studio.figures.serving import LATENCIES, draw_latency, draw_memory
from studio.reporting.document import Cell, Document
from studio.units import format_count, format_counted, format_ns

_COLUMNS = ("mean", "p50", "p90", "p99", "most")


def build_serving_html(served: Mapping[str, Any], foot: str) -> str:
    """Return the report of `requests`.

    Args:
        served: What was served, as `requests --json` prints it.
        foot: The last line.
    """
    document = Document(f"{served['requests']} on {served['model']}")
    document.heading(1, f"{served['requests']} on {served['model']}")
    document.paragraph(
        f"{served['world_size']} × {served['gpu']}, {served['layout']}, {served['dtype']}", "dim"
    )
    policy = served["policy"]
    if served["left_out"]:
        document.paragraph(
            f"{format_counted(served['left_out'], 'request')} left out: longer than the context or the KV cache."
        )
    document.facts(
        [
            ("tokens of a step", format_count(policy["token_budget"])),
            ("sequences at once", format_count(policy["max_sequences"])),
            ("tokens in the KV cache of a replica", format_count(policy["kv_cache_tokens"])),
            (
                "step times differ from whole simulations by at most",
                f"{100 * served['step_time_error']:.1f} %",
            ),
        ]
    )
    if len(served["loads"]) > 1:
        document.heading(2, "Latency over load")
        for key, name in LATENCIES.items():
            document.figure(name, draw_latency(served["loads"], key, dark=False))
    for load in served["loads"]:
        _write_load(document, load)
    return document.html(foot)


def _write_load(document: Document, load: Mapping[str, Any]) -> None:
    document.heading(2, f"Load × {load['load']:g}")
    document.facts(
        [
            ("requests", format_count(load["requests"])),
            ("requests done per second", f"{load['requests_per_s']:.3g}"),
            ("tokens generated per second", f"{load['output_tokens_per_s']:,.0f}"),
            ("preemptions", format_count(load["preemptions"])),
        ]
    )
    rows: list[list[Cell]] = []
    for key, name in {**LATENCIES, "queue_ns": "in the queue"}.items():
        cells: list[Cell] = [
            "–" if load[key][column] is None else (format_ns(load[key][column]), f"{load[key][column]:,} ns")
            for column in _COLUMNS
        ]
        rows.append([name, *cells])
    document.table(["", *_COLUMNS], rows, numeric=range(1, len(_COLUMNS) + 1))
    document.figure("Memory over time", draw_memory(load["over_time"], dark=False))
