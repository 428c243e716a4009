"""Routes of the SQL page: the answer to the query of an address, as a file to save."""

from __future__ import annotations

from flask import Blueprint, Response, request

from studio.errors import StudioError
from studio.server.answers import download, get_session, handle_error
from studio.sql.answers import encode_parquet, iterate_csv
from studio.sql.database import ROWS_WRITTEN
from studio.views.sql import answer_of


def build_sql_blueprint() -> Blueprint:
    """Make the routes `/api/sql/answer.csv` and `.parquet`, with the parts of a view: job, run, sql."""
    routes = Blueprint("sql", __name__, url_prefix="/api/sql")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("/answer.csv")
    def save_csv() -> Response:
        answer = answer_of(get_session(), request.args, ROWS_WRITTEN)
        return download(iterate_csv(answer.table), "answer.csv", "text/csv")

    @routes.get("/answer.parquet")
    def save_parquet() -> Response:
        answer = answer_of(get_session(), request.args, ROWS_WRITTEN)
        return download(
            iter([encode_parquet(answer.table)]), "answer.parquet", "application/vnd.apache.parquet"
        )

    return routes
