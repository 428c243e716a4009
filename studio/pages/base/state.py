"""What pages and callbacks work on: the session of this process, and what runs in the background."""

from __future__ import annotations

import dash

from studio.comparing import RECORDED
from studio.jobs.simulations import Simulations
from studio.session import Session
from studio.store.imports import Registry
from studio.store.runs import Run
from studio.store.tasks import Tasks
from studio.store.workspace import Workspace
from studio.trace import Trace

__all__ = [
    "RECORDED",
    "get_registry",
    "get_run",
    "get_session",
    "get_simulations",
    "get_tasks",
    "get_trace",
    "get_workspace",
]


def get_session() -> Session:
    """Return the open jobs and runs of the workspace."""
    served: Session = dash.get_app().server.config["SESSION"]
    return served


def get_workspace() -> Workspace:
    """Return the workspace this app serves."""
    return get_session().workspace


def get_trace(job: str) -> Trace:
    """Return an open job; see `Session.trace`."""
    return get_session().trace(job)


def get_run(job: str, run: str) -> Run:
    """Return an open run of a job; see `Session.run`."""
    return get_session().run(job, run)


def get_registry() -> Registry:
    """Return the imports of the workspace."""
    served: Registry = dash.get_app().server.config["IMPORTS"]
    return served


def get_tasks() -> Tasks:
    """Return what runs in the background, of every kind."""
    return get_simulations().tasks


def get_simulations() -> Simulations:
    """Return the simulations that run in the background."""
    served: Simulations = dash.get_app().server.config["SIMULATIONS"]
    return served
