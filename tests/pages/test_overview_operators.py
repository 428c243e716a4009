"""The words and the table of the roofline on Overview, and the offer to recompute on Simulate."""

from __future__ import annotations

from dataclasses import replace

from studio.operators.report import OperatorReport, OperatorRow, UncoveredRow
from studio.pages.overview.operators import _build_table, _describe_coverage, _explain_missing_figure
from studio.pages.simulate.recompute import show_recompute
from studio.sim.presets import preset
from studio.sim.systems.gpus import find_gpu
from studio.trace import Attribute, Trace, ValueKind
from tests.handmade import node, trace_of
from tests.pages.test_simulate_runs import texts

_ADD = OperatorRow(
    "aten::add", "element by element", "fp32", 2, 600_000, 0, 1e6, 1e7, None, "1 each", "once", "a source"
)
_COPY = replace(_ADD, operator="aten::copy_", family="copy", time_ns=300_000, flop=0.0)
_REPORT = OperatorReport(
    "NVIDIA H100 80GB HBM3",
    True,
    (_ADD, _COPY),
    (UncoveredRow("own_kernel", 1, 100_000, "no formula for this operator"),),
    1_000_000, 900_000, 0, 0, 0,
)  # fmt: skip


def test_words_say_whose_roofs_and_how_much_is_known() -> None:
    said = _describe_coverage(_REPORT, find_gpu("h100"))
    assert said.startswith("roofs of NVIDIA H100 SXM5 80 GB · 90.0 % of 1.00 ms compute time by formula")
    assert "30.0 % only moves data and is not drawn" in said
    assert said.endswith("without a formula: own_kernel 10.0 %")
    assert "the peaks of the device are not known (“NVIDIA H100 80GB HBM3”)" in _describe_coverage(
        _REPORT, None
    )
    assert "operators on the processor" in _describe_coverage(replace(_REPORT, on_device=False), None)


def test_hardly_anything_with_a_formula_is_no_figure() -> None:
    """What runs from a CUDA graph has no shapes: one dot of 0.6 % would stand for all of it."""
    graphs = UncoveredRow("a kernel", 9, 80_000_000, "replayed graph, no operator recorded")
    hardly = replace(_REPORT, time_ns=100_000_000, uncovered=(*_REPORT.uncovered, graphs))
    assert _explain_missing_figure(hardly) == (
        "Operators that could be drawn take 0.6 % of the compute time, too little for a figure: 80.0 % is without a formula "
        "(replayed graph, no operator recorded)."
    )


def test_the_table_has_what_is_drawn_and_what_is_not() -> None:
    table = _build_table(_REPORT, find_gpu("h100"))
    assert all(len(row) == len(table.head) for row in table.rows)
    assert [row[0] for row in table.rows] == ["aten::add", "aten::copy_", "own_kernel"]
    assert dict(zip(table.head, table.rows[0], strict=True))["flop_per_byte"] == 0.1


def test_more_than_the_memory_moves_is_not_believed() -> None:
    """3e9 bytes in 600 µs are 5 TB/s, of 3.35 that an H100 moves."""
    fast = replace(_REPORT, rows=(replace(_ADD, bytes=3e9), _COPY))
    assert "not believed" not in _describe_coverage(_REPORT, find_gpu("h100"))
    assert _describe_coverage(fast, find_gpu("h100")).endswith("or less was moved): aten::add")
    table = _build_table(fast, find_gpu("h100"))
    assert [bool(dict(zip(table.head, row, strict=True))["doubt"]) for row in table.rows] == [
        True,
        False,
        False,
    ]


def _recorded(device: str) -> Trace:
    trace = trace_of([[node(1, "COMP", micros=5)]])
    named = (Attribute("device_name", ValueKind.STRING, device),) if device else ()
    return replace(trace, ranks=tuple(replace(rank, metadata=named) for rank in trace.ranks))


def test_recompute_is_offered_for_the_gpu_of_the_system() -> None:
    config = preset("hgx-b200", 1).config
    offered = texts(show_recompute(_recorded("NVIDIA H100 80GB HBM3"), config, "hgx-b200"))
    assert (
        "Recorded on NVIDIA H100 80GB HBM3. Compute keeps these durations, not those of NVIDIA B200"
        in offered
    )
    assert "Recompute for NVIDIA B200 SXM 180 GB" in offered
    same = texts(show_recompute(_recorded("NVIDIA B200"), config, "hgx-b200"))
    assert "Recompute for NVIDIA" not in same
    assert show_recompute(_recorded(""), config, "hgx-b200") is None
    assert config.extensions is not None
    chosen = replace(config, extensions=replace(config.extensions, recompute_for="b200"))
    said = texts(show_recompute(_recorded("NVIDIA H100 80GB HBM3"), chosen, "hgx-b200"))
    assert "recomputed for NVIDIA B200 SXM 180 GB from NVIDIA H100 SXM5 80 GB" in said
    assert "Keep recorded times" in said
    assert "choose it under Compute, Recorded on" in texts(show_recompute(_recorded(""), chosen, "hgx-b200"))
    # XLA calls a device by its place: nothing to recompute from is known, and no button leads there.
    unnamed = show_recompute(_recorded("/device:GPU:0"), config, "hgx-b200")
    assert "does not name its GPU" in texts(unnamed)
    assert "Recompute for NVIDIA" not in texts(unnamed)
