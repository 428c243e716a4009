"""The part of the Overview page that lists the files of the job, used and left out."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.analysis.job.completeness import format_ranges, group_ranges
from studio.analysis.job.files import JobFileList
from studio.pages.base.export import with_copy_button
from studio.pages.base.widgets import build_table
from studio.units import format_count

_LISTED = 200


def build_files_section(files: JobFileList) -> Any:
    """Return which files are used and which are left out, with the reason; open where some are left out."""
    rows: list[tuple[Any, ...]] = [
        (
            file.name or "more",
            html.Span("left out", className=f"cs-level-{file.level}" if file.level != "info" else "cs-dim"),
            file.why,
        )
        for file in files.left_out
    ]
    # A file may hold several ranks.
    ranks: dict[str, list[int]] = {}
    for file in files.used:
        ranks.setdefault(file.name, []).append(file.rank)
    rows += [
        (name, "used", format_ranges(group_ranges(of_file)))
        for name, of_file in list(ranks.items())[:_LISTED]
    ]
    rest = len(ranks) - _LISTED
    more = html.P(f"And {format_count(rest)} more that are used.", className="cs-dim") if rest > 0 else None
    counts = f"{format_count(len(ranks))} used"
    if files.left_out:
        counts += f", {format_count(len(files.left_out))} left out"
    listed = with_copy_button(build_table(("File", "", "Which rank, or why not"), rows), "the files")
    return html.Details(
        [html.Summary(f"Files: {counts}"), listed, more],
        className="cs-section",
        open=bool(files.left_out),
    )
