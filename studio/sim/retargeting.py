"""Recompute a recorded job for another GPU, named or as the system says."""

from __future__ import annotations

from studio.errors import ConfigError
from studio.operators.retarget import Retargeting, retarget_durations
from studio.sim.compute import compute_times
from studio.sim.config import SystemConfig
from studio.sim.result import SimResult
from studio.sim.systems.gpu import Gpu
from studio.trace import Finding, Trace, is_generated, list_recorded_devices, without_starts


def retarget(
    trace: Trace, gpu: str | Gpu, recorded_gpu: str | Gpu | None = None, *, keep_starts: bool = True
) -> tuple[Trace, Retargeting]:
    """Return a job with the durations that another GPU would take, and what became of its compute time.

    Args:
        trace: A recording of a job on GPUs.
        gpu: The GPU to recompute for: a name such as `b200`, or its peaks.
        recorded_gpu: The GPU it was recorded on; None is the one that the trace names.
        keep_starts: Whether nodes keep their recorded starts, by which a replay is compared with the recording; without
            them a simulation alone says when they begin.

    Raises:
        ConfigError: A GPU is not known, the job was generated, or no operation of a device was recorded.

    Example:
        >>> import studio
        >>> job, made = studio.retarget(studio.read(studio.sample_path("transformer_8r")), "b200", "h100")
        >>> made.words.partition(":")[0]
        'durations recomputed for NVIDIA B200 SXM 180 GB from NVIDIA H100 SXM5 80 GB'
    """
    from studio.sim.systems.gpus import find_gpu, find_recorded_gpu

    target = find_gpu(gpu) if isinstance(gpu, str) else gpu
    if trace.ranks and all(map(is_generated, trace.ranks)):
        raise _refuse_generated(trace, target)
    if isinstance(recorded_gpu, str):
        source = find_gpu(recorded_gpu, "--recorded-gpu")
    else:
        source = recorded_gpu or find_recorded_gpu(trace)
    job, outcome = retarget_durations(trace, target, source)
    if not keep_starts:
        job = without_starts(job)
    return job, outcome


def _refuse_generated(trace: Trace, gpu: Gpu) -> ConfigError:
    """Return why a generated job cannot be recomputed: it has no operations that a profiler recorded."""
    from studio.sim.generated import find_intended_gpu, generate_anew

    made_for = find_intended_gpu(trace)
    message = f"The job cannot be recomputed for {gpu.name}: it was generated"
    if made_for is not None:
        return ConfigError(f"{message} for {made_for.name}, not recorded", hint=generate_anew(trace, gpu))
    return ConfigError(
        f"{message}, not recorded",
        hint="Leave --gpu out: compute without durations takes those of the roofline of the system's GPU.",
    )


def recompute_job(trace: Trace, config: SystemConfig) -> tuple[Trace, Retargeting | None]:
    """Return the job that a system simulates: recomputed for another GPU where the system says so.

    Raises:
        ConfigError: As `retarget`.
    """
    extensions = config.extensions
    if extensions is None or extensions.recompute_for is None:
        return trace, None
    return retarget(trace, extensions.recompute_for, extensions.recorded_gpu)


OTHER_GPU = "durations-of-another-gpu"
"""Code of the warning that compute keeps the durations of another GPU than the system's."""


def check_kept_durations(trace: Trace, config: SystemConfig, gpu: Gpu) -> Finding | None:
    """Return a warning where compute keeps the durations of another GPU than the system's; None where it does not.

    Args:
        trace: The job.
        config: The system that it is simulated on.
        gpu: The GPU of that system.
    """
    from studio.sim.generated import find_intended_gpu, generate_anew
    from studio.sim.systems.gpus import find_short_name

    device = find_kept_device(trace, config, gpu)
    if device is None:
        return None
    words = describe_kept_durations(trace, device, f"the system's {gpu.name}")
    if find_intended_gpu(trace) is not None:
        return Finding("warning", OTHER_GPU, words, generate_anew(trace, gpu))
    name = find_short_name(gpu)
    return Finding(
        "warning", OTHER_GPU, words, f"Add --gpu {name} to recompute them." if name is not None else ""
    )


def describe_kept_durations(trace: Trace, device: str, theirs: str) -> str:
    """Say that compute keeps the durations of another GPU than a system has.

    Args:
        trace: The job.
        device: The device whose durations it keeps, as `find_kept_device` returns it.
        theirs: The GPUs of the system.
    """
    from studio.sim.generated import find_intended_gpu

    if find_intended_gpu(trace) is not None:
        return f"The job was generated for {device}: compute keeps those durations, which are not those of {theirs}."
    return f"Compute keeps the durations of {device}, which are not those of {theirs}."


def find_kept_device(trace: Trace, config: SystemConfig, gpu: Gpu) -> str | None:
    """Return the device whose durations compute keeps, where that is another GPU than the system's.

    That is the one that the job was recorded on, or generated for.
    """
    from studio.sim.generated import find_intended_gpu
    from studio.sim.systems.gpus import find_gpu, match_gpu

    is_recomputed = config.extensions is not None and config.extensions.recompute_for is not None
    if is_recomputed or not compute_times(trace, config).recorded:
        return None
    for device in list_recorded_devices(trace):
        recorded = match_gpu(device)
        if recorded is not None and find_gpu(recorded).name != gpu.name:
            return device
    made_for = find_intended_gpu(trace)
    return made_for.name if made_for is not None and made_for.name != gpu.name else None


def recompute_words(result: SimResult) -> str:
    """Say which share of the compute time a simulation recomputed, and how; empty where it recomputed none."""
    retargeting = recompute_job(result.trace, result.config)[1]
    return "" if retargeting is None else retargeting.words
