"""Make the job of the form, and open, simulate or compare it: what the Workloads page takes up again until it is done."""

from __future__ import annotations

from typing import TypedDict

from studio.errors import StudioError
from studio.jobs import simulations as queue
from studio.jobs.generating import find_system, keep_system, start_generating, start_simulating
from studio.pages.base.asked import Asked
from studio.pages.base.jobs_made import find_made_job
from studio.pages.base.state import get_session, get_simulations, get_tasks
from studio.pages.base.widgets import build_address
from studio.pages.workloads.asking import Filled, Wrong
from studio.pages.workloads.texts import replace_options
from studio.sim.parts import Parts
from studio.store.tasks import get


class Making(TypedDict, total=False):
    """A job that is being generated, with the steps still to do: simulate, compare.

    Attributes:
        task: The task that makes it.
        then: `open`, `simulate` or `compare`.
        gpu, ranks: What it is to be simulated on; without a GPU it is opened in Simulate as it is.
        beside: Job and run that it is to be compared with, as `job/run`.
        job: Its id, once it is made.
        simulation: The task that simulates it.
        run: Its run, once it is simulated.
    """

    task: str
    then: str
    gpu: str | None
    ranks: int
    beside: str
    job: str
    simulation: str
    run: str


def start(filled: Filled | Wrong, asked: Asked) -> Making:
    """Begin to make the job of a form.

    Raises:
        StudioError: Something in the form is wrong.
    """
    if not isinstance(filled, Filled):
        raise next(iter(filled.values()))
    wanted = filled.wanted
    task = start_generating(get_tasks(), get_session(), wanted)
    return {
        "task": task.id,
        "then": asked["verb"],
        "gpu": wanted.gpu,
        "ranks": wanted.ranks,
        "beside": asked["of"],
    }


def advance(making: Making) -> str | None:
    """Advance the making of a job as far as possible, and note its state.

    Returns:
        The address that it leads to, of `open` the id of the job; None while it goes on.

    Raises:
        StudioError: It failed or was cancelled.
    """
    if "job" not in making:
        job_id = find_made_job(get(get_tasks(), making["task"]), replace_options)
        if job_id is None:
            return None
        making["job"] = job_id
    if making["then"] == "open":
        return making["job"]
    if making["gpu"] is None:
        return build_address("/simulate", {"job": making["job"]})
    run = _find_simulation(making)
    if making["then"] == "simulate":
        # Simulate shows how far it is, and why it failed.
        return build_simulate_link(making) if run or not _is_under_way(making) else None
    job, _, other = making["beside"].partition("/")
    return (
        build_address("/compare", {"job": job, "run": other, "with": f"{making['job']}/{run}"})
        if run
        else None
    )


def _find_simulation(making: Making) -> str | None:
    """Return the run of a job that was made, None while it is simulated; begins to simulate it.

    Raises:
        StudioError: The simulation that a comparison needs failed or was cancelled.
    """
    if "run" in making:
        return making["run"]
    if "simulation" not in making:
        begun = start_simulating(get_simulations(), get_session(), making["job"], *_find_system(making))
        if isinstance(begun, str):
            making["run"] = begun
            return begun
        making["simulation"] = begun.id
    simulation = queue.get(get_simulations(), making["simulation"])
    if simulation and simulation.run:
        making["run"] = simulation.run
        return simulation.run
    if making["then"] == "compare" and not _is_under_way(making):
        why = simulation.error if simulation else None
        raise StudioError(
            why.message if why else "The simulation was cancelled.", hint=why.hint if why else ""
        )
    return None


def _is_under_way(making: Making) -> bool:
    simulation = queue.get(get_simulations(), making["simulation"]) if "simulation" in making else None
    return simulation is not None and simulation.status in queue.ACTIVE


def build_simulate_link(making: Making) -> str:
    """Return the address of Simulate with a job and the system it runs on, and its run where that is there."""
    config = keep_system(get_session(), *_find_system(making))
    return build_address("/simulate", {"job": making["job"], "run": making.get("run"), "config": config})


def _find_system(making: Making) -> tuple[str, Parts]:
    assert making["gpu"] is not None
    return find_system(making["gpu"], making["ranks"])
