"""The table of operators in docs/operators.md: `python -m tests.operators_table` writes it."""

from __future__ import annotations

from studio.operators.table import OPERATORS, Operator
from tests.conftest import ROOT

DOCUMENT = ROOT / "docs" / "operators.md"
BEGIN, END = "<!-- generated: python -m tests.operators_table -->", "<!-- end -->"
_NAMED = 6


def table() -> str:
    """Return the table as Markdown."""
    rows = ["| family | operators | operations | bytes | source |", "| --- | --- | --- | --- | --- |"]
    rows += [f"| {' | '.join(_cells(operator))} |" for operator in OPERATORS]
    return "\n".join(rows)


def _cells(operator: Operator) -> tuple[str, ...]:
    named = ", ".join(f"`{name}`" for name in operator.names[:_NAMED])
    rest = len(operator.names) - _NAMED
    names = f"{named} and {rest} more" if rest > 0 else named
    return operator.family, names, operator.flop, operator.bytes, operator.source


def written() -> str:
    """Return the document with the table as it should be."""
    head, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")
