"""SQL: a query is asked by the keyboard, stands in the address, is told what is wrong with it, and is saved as files."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import Studio, becomes

pytestmark = pytest.mark.e2e

QUERY = "SELECT rank, exposed_ns FROM ranks ORDER BY exposed_ns DESC LIMIT 3"


def test_a_query_is_asked_explained_and_saved(studio: Studio, page, tmp_path: Path) -> None:
    page.goto(studio.address("sql", "transformer_8r"))
    page.locator("#sql-grid .ag-row").first.wait_for()
    field = page.locator("#sql-query")
    field.fill("SELECT rnk FROM ranks")
    field.press("Control+Enter")
    page.get_by_text("line 1, column 8").wait_for()
    page.get_by_text("Did you mean rank or").wait_for()
    field.fill(QUERY)
    page.locator("#sql-run").click()
    page.get_by_text("3 rows").wait_for()
    first = page.locator("#sql-grid .ag-row[row-index='0'] .ag-cell")
    becomes(page, first.all_inner_texts, ["0", "4.58 ms"])
    # Opened anew, the address shows the same.
    page.reload()
    becomes(page, field.input_value, QUERY)
    for kind in ("CSV", "Parquet"):
        with page.expect_download() as saving:
            page.locator("#sql-save").get_by_text(kind, exact=True).click()
        saving.value.save_as(tmp_path / saving.value.suggested_filename)
    assert (tmp_path / "answer.csv").read_text().splitlines()[:2] == ["rank,exposed_ns", "7,10538000"]
    assert pl.read_parquet(tmp_path / "answer.parquet").row(0) == (0, 4575000)
    # A query without end is ended.
    field.fill(
        "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE hash(a.range + b.range) % 7 = 1"
    )
    field.press("Control+Enter")
    page.locator("#sql-cancel").click()
    page.get_by_text("The query was cancelled").wait_for()
    page.locator("#sql-cancel").wait_for(state="hidden")
