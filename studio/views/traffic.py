"""Bytes from rank to rank, and inferred roles of comm groups, for an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from studio.analysis.collectives.roles import Role, infer_group_roles
from studio.analysis.collectives.traffic import Traffic, sum_traffic
from studio.session import Session, keep_result
from studio.trace import CommGroup, Trace
from studio.views.address import choose_shown_run

UNNAMED = "-"
"""The name in addresses of messages without a group."""


def get_groups(session: Session, job: str, run: str | None) -> tuple[CommGroup, ...] | None:
    """Return the comm groups of a run, None for those of the trace."""
    return session.run(job, run).result.config.groups if run else None


def get_traffic(session: Session, job: str, view: Mapping[str, Any]) -> tuple[Trace, Traffic]:
    """Return the bytes from rank to rank, in the group that the address names, or in all."""
    only = view.get("of")
    traffic = _compute_traffic(
        session, job, choose_shown_run(session, job, view), None if only is None else str(only)
    )
    return session.trace(job), traffic


@keep_result
def _compute_traffic(session: Session, job: str, run: str | None, only: str | None) -> Traffic:
    wanted = None if only in (None, "", UNNAMED) else str(only).removeprefix("=")
    groups = get_groups(session, job, run)
    return sum_traffic(session.trace(job), groups, only=wanted, unnamed=only == UNNAMED)


def get_roles(session: Session, job: str, view: Mapping[str, Any]) -> dict[str, Role]:
    """Return the inferred role of each comm group, by name."""
    return _infer_roles(session, job, choose_shown_run(session, job, view))


@keep_result
def _infer_roles(session: Session, job: str, run: str | None) -> dict[str, Role]:
    return infer_group_roles(session.trace(job), get_groups(session, job, run))
