"""The route of the command palette: pages, jobs, runs, ranks and nodes that match a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from flask import Blueprint, Response, current_app, request

from studio.analysis.job.nodes import Query
from studio.errors import StudioError
from studio.server.answers import get_session
from studio.store.job_infos import JobInfo
from studio.trace import Rank, Trace
from studio.units import format_counted, format_ns

_OF_A_KIND = 6
_LONGEST = 200
_RANK = re.compile(r"(?:rank\s*)?([0-9]{1,9})", re.IGNORECASE)

Item = dict[str, Any]
"""What can be jumped to: `kind`, `title`, `about`, `view` (changes of the view), and `path` where it is another page."""


def build_palette_blueprint() -> Blueprint:
    """Make the route `/api/palette`."""
    routes = Blueprint("palette", __name__, url_prefix="/api/palette")

    @routes.get("")
    def find() -> Response:
        text = request.args.get("q", "")[:_LONGEST].strip()
        job = request.args.get("job", "")
        items = [
            *_find_pages(current_app.config["PAGES"], text),
            *_find_jobs(get_session().workspace.jobs(), text, job),
        ]
        if job:
            # What is wrong with the job is said by the page that shows it.
            for kind in (_find_runs(job, text), _find_nodes(job, text)):
                try:
                    items += kind
                except StudioError:
                    continue
        return Response(msgspec.json.encode(items), mimetype="application/json")

    return routes


def _fits(text: str, name: str) -> bool:
    """Return whether a name contains every word of a text."""
    lower = name.lower()
    return all(word in lower for word in text.lower().split())


def _find_pages(pages: Sequence[tuple[str, str]], text: str) -> Iterator[Item]:
    for name, path in pages:
        if _fits(text, name):
            yield {"kind": "page", "title": name, "about": "", "path": path, "view": {}}


def _find_jobs(jobs: Sequence[JobInfo], text: str, shown: str) -> Iterator[Item]:
    fitting = (job for job in jobs if job.id != shown and _fits(text, job.name))
    for job in islice(fitting, _OF_A_KIND):
        about = f"{format_counted(job.summary.ranks, 'rank')}, {format_counted(job.summary.nodes, 'node')}"
        gone = {"run": None, "rank": None, "node": None}
        yield {"kind": "job", "title": job.name, "about": about, "view": {"job": job.id, **gone}}


def _find_runs(job: str, text: str) -> Iterator[Item]:
    fitting = (run for run in get_session().workspace.runs(job) if _fits(text, run.name))
    for run in islice(fitting, _OF_A_KIND):
        yield {
            "kind": "run",
            "title": run.label,
            "about": format_ns(run.makespan_ns),
            "view": {"job": job, "run": run.id},
        }


def _find_nodes(job: str, text: str) -> Iterator[Item]:
    """Yield the rank of that number and the nodes of that id or name."""
    if not text:
        return
    index = get_session().node_index(job)
    for rank in islice(_find_ranks(index.trace, text), _OF_A_KIND):
        yield {
            "kind": "rank",
            "title": f"rank {rank.number}",
            "about": format_counted(len(index.trace.graph_of(rank)), "node"),
            "view": {"rank": str(rank.number), "node": None},
        }
    for node in index.rows(Query(search=text), 0, _OF_A_KIND):
        yield {
            "kind": "node",
            "title": node.name or "(no name)",
            "about": f"rank {node.rank} · node {node.ref} · {node.collective or node.type}",
            "view": {"rank": str(node.rank), "node": node.ref},
        }


def _find_ranks(trace: Trace, text: str) -> Iterator[Rank]:
    """Yield the rank with the number in the text; all ranks for the text "rank"."""
    number = _RANK.fullmatch(text)
    rank = trace.rank(int(number[1])) if number else None
    if rank is not None:
        yield rank
    elif text.lower() == "rank":
        yield from trace.ranks
