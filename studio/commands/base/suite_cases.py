"""Run the cases of a suite, keep what each came to, and score them."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import msgspec

from studio import __version__
from studio.analysis.job.measures import EDITION, measure
from studio.analysis.job.step_spans import step_spans
from studio.commands.base.losses import select_losses
from studio.commands.base.prefix import find_by_prefix
from studio.commands.base.simulation_request import SimulationRequest
from studio.commands.base.suite_file import Suite, SuiteJob, SuiteLimit, SuiteSystem
from studio.commands.simulate import run as simulate
from studio.decoding import build_decoder
from studio.errors import ConfigError, StudioError
from studio.et import Progress
from studio.et.format import JobSize
from studio.et.source import walk
from studio.files import open_file, read_file
from studio.sim.compared import build_side
from studio.sim.models import Model
from studio.sim.retargeting import OTHER_GPU
from studio.store.durable_files import Damaged, decode_sealed, write_sealed
from studio.store.workspace import Workspace
from studio.units import format_ns

FORM: Final = 1
_TOLD: Final = 2
"""Rises with what results tell, so that earlier ones that lack it are simulated again."""


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one case of a suite: a job on a system.

    Attributes:
        job, system: Their names.
        finish_ns: When the last rank finished; None where the case failed.
        step_ns: The step time; None where no node tells its step.
        exposed, idle: Mean shares of the finish.
        imbalance: The longest compute of a rank over the mean.
        model: Whose answer it is.
        ranks: Of the job.
        damaged: How many losses the readers have told.
        error, hint: Why it failed; "" where it did not.
        digest: Of what was simulated and on what.
        other_gpu: That compute keeps the durations of another GPU than the system's, in words; "" where it does not.
        impossible: Why no such network could finish then; "" where nothing says so.
    """

    job: str
    system: str
    finish_ns: int | None = None
    step_ns: int | None = None
    exposed: float | None = None
    idle: float | None = None
    imbalance: float | None = None
    model: str = ""
    ranks: int = 0
    damaged: int = 0
    error: str = ""
    hint: str = ""
    digest: str = ""
    other_gpu: str = ""
    impossible: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A result with what is made of it.

    Attributes:
        result: The result.
        speed: The reference's finish over this one's; None where either failed, or they are answers of different models.
        exceeded: The limits it does not attain, in words.
        kept: Whether it is of an earlier run of the suite.
    """

    result: Result
    speed: float | None = None
    exceeded: tuple[str, ...] = ()
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """How fast a system is.

    Attributes:
        system: Its name.
        speed: The geometric mean, over the jobs that both have finished, of its speed relative to the reference; None
            where there are none.
        jobs: How many jobs that is.
        impossible: Of how many of them the finish here, or that of the reference, is one that no such network could have.
    """

    system: str
    speed: float | None
    jobs: int
    impossible: int = 0


@dataclass(frozen=True, slots=True)
class Regression:
    """A case that is slower than in stored results, or failed.

    Attributes:
        job, system: Which.
        before_ns, now_ns: Its finishes; None where it failed.
    """

    job: str
    system: str
    before_ns: int
    now_ns: int | None

    @property
    def change(self) -> float | None:
        """By which share it is slower."""
        return None if self.now_ns is None else self.now_ns / max(self.before_ns, 1) - 1


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a suite, as they are stored.

    Attributes:
        name: Of the suite.
        reference: The system that others are relative to.
        cases: In the order of the manifest.
        scores: A score per system.
        regressions: Cases that are slower than stored ones; empty where none were given.
        chakra_studio_suite: Tells such files from others; their form.
    """

    name: str
    reference: str
    cases: tuple[Case, ...]
    scores: tuple[Score, ...] = ()
    regressions: tuple[Regression, ...] = ()
    chakra_studio_suite: int = FORM

    @property
    def failed(self) -> list[Case]:
        """Cases that could not be simulated."""
        return [case for case in self.cases if case.result.finish_ns is None]

    @property
    def exceeded(self) -> list[Case]:
        """Cases that do not attain a limit."""
        return [case for case in self.cases if case.exceeded]


_result = build_decoder(Result)
_results = build_decoder(Results)


def run_suite(
    suite: Suite,
    folder: Path,
    *,
    workspace: Path | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Simulate every case that is not in the folder already, and score all.

    A case that fails ends no other; it is tried again by the next run.

    Args:
        suite: The manifest.
        folder: Where results are kept: `cases/` with one file per case.
        workspace: For jobs that are named by id; None is the user's.
        again: Whether to simulate all cases again.
        progress: Told how far a case is, and which; may raise to stop, and what is done stays.

    Raises:
        StudioError: The folder cannot be written.
    """
    kept = folder / "cases"
    kept.mkdir(parents=True, exist_ok=True)
    cases = []
    digests = {job.name: _compute_job_digest(job, workspace) for job in suite.jobs}
    for number, (job, system) in enumerate(suite.cases, start=1):
        digest = _compute_digest(job, system, digests[job.name])
        path = kept / f"{job.name}--{system.name}-{digest[:12]}.json"
        known = None if again else _read_stored(path, digest)
        case = Case(
            known
            or _simulate(
                job, system, digest, workspace, _number_progress(progress, number, len(suite.cases))
            ),
            kept=known is not None,
        )
        if known is None and case.result.finish_ns is not None:
            _keep(path, case.result)
        cases.append(case)
    return score(suite, cases)


def _number_progress(progress: Progress | None, number: int, count: int) -> Progress | None:
    """Return a progress callback that says the number of the case, too."""
    if progress is None:
        return None
    tell = progress
    return lambda phase, done, total: tell(f"case {number} of {count}, {phase}", done, total)


def _simulate(
    job: SuiteJob, system: SuiteSystem, digest: str, workspace: Path | None, progress: Progress | None
) -> Result:
    failed = Result(job.name, system.name, digest=digest)
    try:
        request = SimulationRequest(
            job.paths,
            preset=system.preset,
            system=system.files.get("system"),
            network=system.files.get("network"),
            comm_groups=system.files.get("comm_groups"),
            remote_memory=system.files.get("remote_memory"),
            settings=system.settings,
            workspace=workspace,
            ranks=job.ranks,
            size=JobSize(system.npus if system.npus is not None else job.npus, job.passes),
            model=cast("Model | None", system.model),
            gpu=system.gpu,
            replay=system.replay,
        )
        outcome = simulate(request, progress=progress)
    except StudioError as error:
        return replace(failed, error=error.message, hint=error.hint)
    except OSError as error:
        return replace(failed, error=f"{error.filename or job.name}: {error.strerror or error}.")
    except MemoryError:
        return replace(
            failed, error="Not enough memory.", hint="Close other programs, or simulate fewer ranks."
        )
    side = build_side(outcome.result)
    measures = measure(side.ledger(), step_spans(side.trace, side.times))
    return Result(
        job.name,
        system.name,
        outcome.result.makespan_ns,
        measures.step_ns,
        measures.exposed,
        measures.idle,
        measures.imbalance,
        side.model,
        len(side.trace.ranks),
        len(select_losses(outcome.findings)),
        digest=digest,
        other_gpu=next((finding.message for finding in outcome.findings if finding.code == OTHER_GPU), ""),
        impossible=next((doubt.message for doubt in outcome.doubts if doubt.impossible), ""),
    )


def score(suite: Suite, cases: Sequence[Case]) -> Results:
    """Hold cases against the reference and the limits, and score the systems."""
    by_name = {(case.result.job, case.result.system): case.result for case in cases}
    judged = []
    for case in cases:
        result, reference = case.result, by_name[case.result.job, suite.reference]
        speed = None
        if result.finish_ns and reference.finish_ns and result.model == reference.model:
            speed = reference.finish_ns / result.finish_ns
        exceeded = tuple(
            words
            for limit in suite.limits
            if limit.is_for(result.job, result.system)
            for words in _list_broken_limits(result, speed, limit)
        )
        judged.append(replace(case, speed=speed, exceeded=exceeded))
    scores = tuple(_score_system(system.name, judged, suite.reference) for system in suite.systems)
    return Results(suite.name, suite.reference, tuple(judged), scores)


def _score_system(system: str, cases: Sequence[Case], reference: str) -> Score:
    unsure = {
        case.result.job
        for case in cases
        if case.result.impossible and case.result.system in (system, reference)
    }
    counted = [case.result.job for case in cases if case.result.system == system and case.speed is not None]
    speeds = [case.speed for case in cases if case.result.system == system and case.speed is not None]
    mean = math.exp(sum(map(math.log, speeds)) / len(speeds)) if speeds else None
    return Score(system, mean, len(speeds), sum(job in unsure for job in counted))


def _list_broken_limits(result: Result, speed: float | None, limit: SuiteLimit) -> Iterator[str]:
    """Yield in words the limits that a case breaks; a failed case yields nothing, its failure is reported apart."""
    if result.finish_ns is None:
        return
    known: Mapping[str, float | None] = {
        "finish": result.finish_ns,
        "step": result.step_ns,
        "exposed": result.exposed,
        "idle": result.idle,
        "imbalance": result.imbalance,
    }
    for key, most in limit.most.items():
        value = known[key]
        if value is None:
            yield f"{key}: not known, at most {_format_measure(key, most)} (line {limit.line})"
        elif value > most:
            yield f"{key} {_format_measure(key, value)}, at most {_format_measure(key, most)} (line {limit.line})"
    if limit.least_speed is not None and (speed is None or speed < limit.least_speed):
        speed_text = "not known" if speed is None else f"{speed:.3f}"
        yield f"speed {speed_text}, at least {limit.least_speed:g} (line {limit.line})"


def _format_measure(key: str, value: float) -> str:
    if key in ("finish", "step"):
        return format_ns(value)
    return f"{value:.3f}" if key == "imbalance" else f"{100 * value:.1f} %"


def find_regressions(now: Results, before: Results, allowed: float) -> tuple[Regression, ...]:
    """Return the cases of stored results that are slower now by more than a share, or are there no more."""
    known = {(case.result.job, case.result.system): case.result for case in now.cases}
    slower = []
    for case in before.cases:
        old, new = case.result, known.get((case.result.job, case.result.system))
        if old.finish_ns is None or (
            new is not None and new.finish_ns is not None and new.model != old.model
        ):
            continue
        finish = None if new is None else new.finish_ns
        if finish is None or finish > old.finish_ns * (1 + allowed):
            slower.append(Regression(old.job, old.system, old.finish_ns, finish))
    return tuple(slower)


def read_results(path: Path) -> Results:
    """Read stored results: the folder of a suite, or its file `suite.json`.

    Raises:
        ConfigError: There are none, or they are damaged.
    """
    file = path / "suite.json" if path.is_dir() else path
    try:
        results = _results(read_file(file))
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: there are no results.", hint="Name the folder that -o made.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file}: not the results of a suite: {error}.", hint="Run that suite again."
        ) from error
    if results.chakra_studio_suite != FORM:
        raise ConfigError(
            f"{file}: chakra_studio_suite is {results.chakra_studio_suite}; allowed: {FORM}",
            hint="Run that suite again.",
        )
    return results


# ---------------------------------------------------------------------------------------------------
# What was simulated, so that it is not simulated again


def _keep(path: Path, result: Result) -> None:
    aside = path.with_suffix(".part")
    try:
        write_sealed(aside, result)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _read_stored(path: Path, digest: str) -> Result | None:
    try:
        result = decode_sealed(path, _result)
    except (OSError, Damaged):
        return None
    return result if result.digest == digest and result.finish_ns is not None else None


def _compute_digest(job: SuiteJob, system: SuiteSystem, job_digest: str) -> str:
    files = {key: _compute_checksum(path) for key, path in system.files.items()}
    preset = system.preset or ""
    facts = (
        __version__,
        EDITION,
        _TOLD,
        job_digest,
        [job.npus, job.passes, sorted(job.ranks.items())],
        [
            preset,
            _compute_checksum(Path(preset)),
            sorted(files.items()),
            system.npus,
            system.model,
            system.gpu,
        ],
        [system.settings, system.replay],
    )
    return hashlib.blake2b(msgspec.json.encode(facts), digest_size=16).hexdigest()


def _compute_job_digest(job: SuiteJob, workspace: Path | None) -> str:
    """Return a digest of the contents of a job's files, or of a job of the workspace."""
    marks = []
    for word in job.paths:
        path = Path(word)
        if path.is_dir():
            marks += [(file.name, _compute_checksum(file.path)) for file in walk(path, "")]
        elif path.is_file():
            marks.append((path.name, _compute_checksum(path)))
        elif files := find_by_prefix(word):
            marks += [(file.name, _compute_checksum(file)) for file in files]
        else:
            root = workspace or Workspace.default_root()
            known = Workspace(root).jobs() if root.is_dir() else []
            marks += [
                (word, f"{info.id} {info.fingerprint}") for info in known if word in (info.id, info.name)
            ]
    text = msgspec.json.encode([(ascii(name), mark) for name, mark in marks])
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _compute_checksum(path: Path) -> str:
    """Return a checksum of a file, "" where it cannot be read; what reads it next says why."""
    size, checksum = 0, 0
    try:
        with open_file(path) as stream:
            while piece := stream.read(1 << 20):
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
    except OSError:
        return ""
    return f"{size}.{checksum:08x}"
