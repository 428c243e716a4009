"""The roofline figure: points where operators lie, roofs where the GPU's are."""

from __future__ import annotations

from studio.figures.roofline import draw_roofline
from studio.operators.report import OperatorReport, OperatorRow
from studio.sim.systems.gpu import Gpu

_GPU = Gpu("made up", {"fp32": 10.0, "bf16": 100.0}, 1000.0, 40.0)


def _row(name: str, family: str, kind: str, time_ns: int, flop: float, moved: float) -> OperatorRow:
    return OperatorRow(name, family, kind, 1, time_ns, 0, flop, moved, None, "", "", "")


def _report(*rows: OperatorRow) -> OperatorReport:
    time_ns = sum(row.time_ns for row in rows)
    return OperatorReport("", True, rows, (), time_ns, time_ns, 0, 0, 0)


def test_points_and_roofs() -> None:
    found = _report(
        _row("aten::<mm>", "matrix product", "bf16", 1000, 5e7, 1e5),
        _row("aten::add", "element by element", "fp32", 1000, 1e5, 1e6),
        _row("aten::copy_", "copy", "fp32", 1000, 0.0, 1e6),
    )
    figure = draw_roofline(found, _GPU, dark=False)
    traces = {trace.name: trace for trace in figure.data if trace.name}
    assert set(traces) == {"matrix units", "vector units"}
    assert (list(traces["matrix units"].x), list(traces["matrix units"].y)) == ([500.0], [5e13])
    assert (list(traces["vector units"].x), list(traces["vector units"].y)) == ([0.1], [1e11])
    roofs = [trace for trace in figure.data if trace.mode == "lines"]
    # 100 TFLOP/s at 100 operations a byte, 10 TFLOP/s at 10; the slope is drawn once.
    assert [list(roof.y)[-1] for roof in roofs] == [1e14, 1e13]
    assert roofs[0].y[0] == roofs[0].x[0] * 1e12
    texts = [note.text for note in figure.layout.annotations]
    assert "&lt;mm&gt;" in texts
    assert "bf16 100 TFLOP/s" in texts


def test_without_a_gpu_and_without_operations() -> None:
    found = _report(_row("aten::add", "element by element", "fp32", 1000, 1e5, 1e6))
    figure = draw_roofline(found, None, dark=True)
    assert [trace.mode for trace in figure.data] == ["markers"]
    assert draw_roofline(_report(_row("aten::copy_", "copy", "fp32", 9, 0.0, 1e6)), _GPU, dark=True) is None
