"""Serve the studio; the default without a command.

PATHS are files, folders or archives of traces to open first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from studio.commands.base.compiled import KERNELS
from studio.commands.base.logs import log_problems
from studio.commands.base.options import PathOption, add_size_options, rank_option
from studio.commands.base.output import build_progress_line, say
from studio.errors import ConfigError
from studio.et import Progress
from studio.et.format import UNSAID, JobSize
from studio.jobs.checking import start_check
from studio.jobs.importing import open_paths, open_sample, upload_reader
from studio.jobs.simulations import Simulations, simulate_jobs
from studio.pages.base.mantine import load_components
from studio.samples import SAMPLES
from studio.server.guard import Policy, protect
from studio.server.serve import (
    DEFAULT_PORT,
    Listener,
    can_open_browser,
    find_app_browser,
    is_loopback,
    listen,
    open_app,
    open_browser,
    serve,
)
from studio.server.ticket import Ticket
from studio.session import Session
from studio.store.access import ensure_workspace_token
from studio.store.drafts import tidy_drafts
from studio.store.imports import open_registry
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `serve`.

    Attributes:
        paths: Traces to open first.
        host: Address to listen on.
        port: Port, None for the usual one or the next free.
        allow_host: Other host names under which the studio may be reached.
        workspace: Folder of jobs, None for the platform's.
        browser: Whether to open a browser.
        sample: Whether to start with a sample open where no paths are given.
        ranks: Rank numbers by file name.
        size: NPUs and passes, where a workload leaves them open.
        app: Whether to open a window of its own instead of a tab.
        ask_token: Whether to ask every request for the token of the workspace.
    """

    paths: tuple[Path, ...]
    host: str
    port: int | None
    allow_host: tuple[str, ...]
    workspace: Path | None
    browser: bool
    sample: bool
    ranks: dict[str, int]
    size: JobSize = UNSAID
    app: bool = False
    ask_token: bool = True


def run(request: Request, *, announce: Callable[[str], None], progress: Progress | None) -> None:
    """Import the given paths and serve until interrupted.

    Raises:
        StudioError: A path cannot be opened, the port is taken, the workspace cannot be used, or there would be no
            token where other machines can ask.
    """
    if not request.ask_token and not is_loopback(request.host):
        raise ConfigError(
            f"--no-token with --host {request.host} would open the traces to every machine that reaches this one",
            hint="Leave out --no-token, or leave out --host and let a proxy or an ssh tunnel ask who comes.",
        )
    workspace = Workspace(request.workspace or Workspace.default_root())
    listener = listen(request.host, request.port)
    try:
        jobs = _open(workspace, request, progress, announce)
        _serve(workspace, listener, jobs, request, announce)
    finally:
        listener.close()


def _open(
    workspace: Workspace, request: Request, progress: Progress | None, announce: Callable[[str], None]
) -> list[str]:
    """Import the given paths or sample; returns job ids."""
    if request.paths:
        return open_paths(
            workspace,
            request.paths,
            ranks=request.ranks,
            progress=progress,
            size=request.size,
            refused=lambda error: announce(f"{error.message} The others are opened."),
        )
    return [open_sample(workspace, SAMPLES[0].name)] if request.sample else []


def _serve(
    workspace: Workspace,
    listener: Listener,
    jobs: list[str],
    request: Request,
    announce: Callable[[str], None],
) -> None:
    log_problems(workspace.root)
    load_components()
    from studio.app import compute_script_hashes, create_app

    session = Session(workspace)
    tasks = open_tasks(workspace.root)
    registry = open_registry(tasks, upload_reader(workspace, lambda job: start_check(tasks, session, job)))
    for job in jobs:
        start_check(tasks, session, job)
    tidy_drafts(workspace.root)
    app = create_app(session, registry, Simulations(tasks, simulate_jobs(session)))
    token = ensure_workspace_token(workspace.root) if request.ask_token else None
    ticket = Ticket(listener.port)
    policy = Policy(listener.host, listener.port, token, tuple(request.allow_host), ticket)
    protect(app.server, policy, script_hashes=compute_script_hashes(app))
    view = f"overview?job={jobs[0]}" if len(jobs) == 1 else ""

    def announce_address(url: str) -> None:
        address = url.rstrip("/") + "/" + view
        joint = "&" if "?" in address else "?"
        if request.port is None and listener.port != DEFAULT_PORT:
            announce(f"Port {DEFAULT_PORT} is taken.")
        announce(
            f"Chakra Studio is at {address}{joint}token={token}"
            if token
            else f"Chakra Studio is at {address}"
        )
        announce("Press Ctrl+C to stop.")
        _show(f"{address}{joint}ticket={ticket.secret}" if token else address, request, announce)
        for kernel in KERNELS:
            kernel.warm_up()

    try:
        serve(app.server, listener, ready=announce_address)
    finally:
        close_tasks(tasks)


def _show(address: str, request: Request, announce: Callable[[str], None]) -> None:
    """Open the studio in a browser, unless disabled."""
    browser = find_app_browser() if request.app else None
    if browser is not None:
        try:
            open_app(browser, address)
        except ConfigError as error:
            announce(str(error))
        return
    if request.app:
        announce("--app needs a Chromium-based browser, and none was found.")
    if request.browser and can_open_browser():
        open_browser(address)


@click.command(help=__doc__, epilog="Example: chakra-studio traces/ --port 9000 --workspace ~/jobs")
@click.argument("paths", nargs=-1, type=PathOption())
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="NUMBER",
    help="Port; 0 for any free one.  [default: 8050, or the next free one]",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Another host name under which the studio may be reached.",
)
@click.option("--workspace", metavar="DIR", type=PathOption(), help="Folder for imported jobs.")
@click.option("--browser/--no-browser", default=True, help="Open a browser, if there is one.")
@click.option("--app", is_flag=True, help="Open a window of its own in a Chromium-based browser.")
@click.option(
    "--token/--no-token",
    "ask_token",
    default=True,
    help="Ask for the token that the printed address holds; without it, every account of this machine has access.",
)
@click.option("--sample/--no-sample", default=False, help="Start with a sample job open.")
@rank_option
@add_size_options
def command(
    paths: tuple[Path, ...],
    host: str,
    port: int | None,
    allow_host: tuple[str, ...],
    workspace: Path | None,
    browser: bool,
    app: bool,
    ask_token: bool,
    sample: bool,
    ranks: dict[str, int],
    npus: int | None,
    passes: int | None,
) -> None:
    """Carry out `serve`."""
    size = JobSize(npus, passes)
    request = Request(paths, host, port, allow_host, workspace, browser, sample, ranks, size, app, ask_token)
    run(request, announce=say, progress=build_progress_line())
