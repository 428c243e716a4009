"""Generated jobs: made of a named model in the background, simulated on the machine of their GPU."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from studio.errors import ConfigError
from studio.generation.configs import read_config
from studio.generation.families.counts import describe as describe_network
from studio.generation.families.job import build_asked_network
from studio.generation.families.presets import find_network
from studio.generation.inference.generate import describe as describe_steps
from studio.generation.inference.generate import generate_inference
from studio.generation.inference.options import build_asked_steps
from studio.generation.job import make_job
from studio.generation.llm import generate
from studio.generation.models import Model, find_model
from studio.generation.workload import Workload, build_workload
from studio.jobs import simulations as queue
from studio.jobs.checking import start_check
from studio.jobs.simulations import Simulation, Simulations
from studio.operators.roofline import find_peak
from studio.session import Session
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.sim.presets import preset
from studio.sim.systems.gpus import find_gpu, find_gpu_system
from studio.store.drafts import Draft, load_draft, save_draft
from studio.store.job_infos import JobInfo
from studio.store.run_infos import RunInfo
from studio.store.tasks import Report, Task, TaskCancelled, Tasks, submit
from studio.trace import Trace
from studio.units import format_counted

AT_ONCE_NODES = 15_000
"""Nodes up to which a step is simulated while the form is filled in: about a second."""
AT_ONCE_RANKS = 1024
_NODES_A_LAYER = 34
_NODES_OF_A_STEP, _NODES_OF_A_PART = 14, 4
"""Nodes of a layer in a pass of inference, and of a part of another network in a step."""
_MATRICES = "bf16"
Kind = Literal["llm", "inference", "network"]
"""Training of a transformer, steps of inference of one, training of another network."""


@dataclass(frozen=True, slots=True)
class Generating:
    """What job is to be generated.

    Attributes:
        model: The name of a preset, `custom`, or the numbers of a model.
        ranks: How many ranks.
        given: What else is said, as pairs of the options of its kind.
        kind: What kind of job it is.
    """

    model: str | Model
    ranks: int
    given: tuple[tuple[str, Any], ...] = ()
    kind: Kind = "llm"

    def workload(self) -> Workload:
        """Return the workload.

        Raises:
            ConfigError: Numbers do not divide, or are out of their ranges.
        """
        return build_workload(self.model, self.ranks, dict(self.given))

    def job(self) -> Workload:
        """Return what the job is made of: nodes that reach the peaks of a GPU have no durations, since its machine times them alike.

        So such a job is timed anew by every machine. Nodes that reach less, as fitted or as given, keep the durations of the GPU.

        Raises:
            ConfigError: Numbers do not divide, or are out of their ranges.
        """
        workload = self.workload()
        speed = workload.speed
        at_peak = speed is not None and speed.at_peak and not workload.faults
        # A machine's roofline has one peak, that of bf16.
        at_peak = at_peak and workload.layout.dtype == "bf16"
        return replace(workload, speed=None) if at_peak else workload

    def trace(self) -> Trace:
        """Return the job.

        Raises:
            ConfigError: Numbers do not divide, or are out of their ranges.
        """
        if self.kind == "llm":
            workload = self.job()
            return make_job(workload.model, workload.layout, workload.speed, workload.faults, workload.recipe)
        make = generate_inference if self.kind == "inference" else generate
        return make(self.model, ranks=self.ranks, **dict(self.given))

    @property
    def gpu(self) -> str | None:
        """The GPU it is for, None where none is said."""
        return dict(self.given).get("gpu")

    @property
    def mark(self) -> str:
        """Tells it from other generated jobs, as `JobInfo.fingerprint`."""
        text = repr(replace(self.job(), recipe="") if self.kind == "llm" else self)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return f"generate:{digest}"


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes in a simulation.

    Attributes:
        ns: The time.
        system: The preset.
    """

    ns: float
    system: str


def name_job(wanted: Generating) -> str:
    """Return what to call a generated job.

    Example:
        >>> name_job(Generating("llama3-8b", 8, (("gpu", "h100"), ("tp", 4))))
        'llama3-8b, 8 × h100, tp=4,dp=2'
    """
    if wanted.kind == "llm":
        workload = wanted.job()
        model, layout, timed = workload.model.name, workload.layout.name, workload.speed is not None
    else:
        description = summarise_wanted_job(wanted)
        model = ", ".join(filter(None, (description["model"], description.get("phase"))))
        layout, timed = description["layout"], wanted.gpu is not None
    count = f"{wanted.ranks:,} × {wanted.gpu}" if timed else format_counted(wanted.ranks, "rank")
    degrees = [part for part in layout.split(",") if not part.endswith("=1")]
    return ", ".join(filter(None, (model, count, ",".join(degrees))))


@lru_cache(maxsize=64)
def summarise_wanted_job(wanted: Generating) -> dict[str, Any]:
    """Return what steps of inference or the training of another network are made of, as `generate --json` prints it.

    Raises:
        ConfigError: Numbers do not divide, or are out of their ranges.
    """
    given = dict(wanted.given)
    gpu = find_gpu(wanted.gpu) if wanted.gpu else None
    if wanted.kind == "inference":
        steps = build_asked_steps(wanted.model, wanted.ranks, given)
        return describe_steps(steps.model, steps.wish, gpu)
    network = build_asked_network(str(wanted.model), wanted.ranks, given)
    return describe_network(network.network, network.replicas)


def find_system(gpu: str, ranks: int) -> tuple[str, Parts]:
    """Return the preset of the machines that have a GPU, and its system of as many NPUs.

    Raises:
        ConfigError: There is no such GPU, or its machines do not come in this size.
    """
    find_gpu(gpu)
    name = find_gpu_system(gpu)
    try:
        return name, preset(name, ranks).parts
    except ConfigError as error:
        raise ConfigError(error.message, hint=error.hint, key="ranks") from error


def parse_config_model(name: str, text: str) -> Model:
    """Return the model that a `config.json` describes.

    Args:
        name: What the file is called.
        text: What is in it.

    Raises:
        ConfigError: It is none, or of a model of another kind.
    """
    called = Path(name.replace("\\", "/")).name[:80] or "config.json"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(text, encoding="utf-8")
        return replace(read_config(path), source=called)


def start_generating(tasks: Tasks, session: Session, wanted: Generating) -> Task:
    """Queue the making of a job; the task's result is its id.

    Raises:
        ConfigError: Numbers do not divide, or are out of their ranges.
        OSError: The workspace cannot be written.
    """
    name = name_job(wanted)

    def work(report: Report) -> str:
        job_id = _make(session, wanted, name, report)
        start_check(tasks, session, job_id)
        return job_id

    return submit(tasks, "generate", name, work)


def _make(session: Session, wanted: Generating, name: str, report: Report) -> str:
    """Store the job and return its id; an identical earlier one is reused."""
    known = session.workspace.find(wanted.mark)
    if known:
        return known.id
    report.running(0, 2, phase="making")
    trace = wanted.trace()
    report.running(1, 2, phase="storing")

    def tick(done: int, total: int) -> None:
        report.running(done, total, phase="storing", unit="graphs")

    job_id = session.workspace.save(
        trace, name, source=f"{name}, generated", fingerprint=wanted.mark, tick=tick
    )
    if not report.finish(job_id):
        session.workspace.delete(job_id)
        raise TaskCancelled
    return job_id


def is_generated(info: JobInfo) -> bool:
    """Whether a job of the workspace was generated by it."""
    return info.fingerprint.startswith("generate:")


def start_simulating(
    simulations: Simulations, session: Session, job: str, system: str, parts: Parts
) -> Simulation | str:
    """Queue the simulation of a job on a preset; return the id of the run where there is one already.

    Raises:
        StudioError: There is no such job, or the workspace cannot be written.
    """
    tables = _save_system(session, system, parts)[1]
    known = next((run for run in session.workspace.runs(job) if run.tables == tables), None)
    return known.id if known else queue.start(simulations, job, tables, f"{system} × {_count_npus(parts):,}")


def keep_system(session: Session, system: str, parts: Parts) -> str:
    """Keep the system of a preset for the form of Simulate, and return its id there."""
    return _save_system(session, system, parts)[0]


def uses_system(run: RunInfo, system: str, parts: Parts, session: Session) -> bool:
    """Whether a run is of the system of a preset."""
    return run.tables == _save_system(session, system, parts)[1]


def _save_system(session: Session, system: str, parts: Parts) -> tuple[str, Parts]:
    kept = save_draft(session.workspace.root, Draft(parts, system))
    return kept, load_draft(session.workspace.root, kept).tables


def _count_npus(parts: Parts) -> int:
    return interpret(parts).config.topology.npus


def is_small(wanted: Generating) -> bool:
    """Whether a step of a job is made and simulated in about a second."""
    return wanted.ranks <= AT_ONCE_RANKS and _estimate_nodes(wanted) <= AT_ONCE_NODES


def _estimate_nodes(wanted: Generating) -> int:
    """Return about how many nodes a step has, of all ranks that differ."""
    given = dict(wanted.given)
    if wanted.kind == "llm":
        workload = wanted.workload()
        return workload.layout.micro_batches * workload.model.layers * _NODES_A_LAYER
    if wanted.kind == "network":
        network = find_network(str(wanted.model))
        return _NODES_OF_A_PART * len(network.parts) * (wanted.ranks if network.tables else 1)
    passes = [(build_asked_steps(wanted.model, wanted.ranks, given).model, 1)]
    if given.get("draft_model"):
        passes.append((find_model(given["draft_model"]), given.get("draft") or 1))
    every = sum(model.layers * count for model, count in passes)
    return _NODES_OF_A_STEP * every * (given.get("micro_batches") or 1)


@lru_cache(maxsize=64)
def simulate_step(wanted: Generating) -> StepTime:
    """Return how long a step takes on the machines of the GPU; makes one and simulates it.

    Raises:
        ConfigError: No GPU is said, or numbers do not fit.
        TraceError: The job cannot be simulated.
    """
    if wanted.gpu is None:
        raise ConfigError("No GPU is said that could time a step.", key="gpu", hint="Choose a GPU.")
    system, parts = find_system(wanted.gpu, wanted.ranks)
    once = tuple((key, value) for key, value in wanted.given if key != "steps")
    result = simulate(replace(wanted, given=once).trace(), interpret(parts).config)
    return StepTime(float(result.makespan_ns), system)


def compute_least_step_ns(wanted: Generating, flop: int) -> float | None:
    """Return the time of a step's operations at the peak of all NPUs: no step is faster. None where no GPU is said."""
    if wanted.gpu is None:
        return None
    rate = find_peak(find_gpu(wanted.gpu), _MATRICES)
    return None if rate is None else flop / (rate * 1e3 * wanted.ranks)


def compute_utilization(wanted: Generating, flop: int, step_ns: float) -> float | None:
    """Return the share of the NPUs' peak that a step attains (MFU); None where no GPU is said."""
    least = compute_least_step_ns(wanted, flop)
    return None if least is None else least / step_ns
