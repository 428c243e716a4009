"""The system that options describe: a preset, files, settings, and the one that a job was recorded on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from studio.analysis.job.completeness import infer_completeness, is_recording
from studio.commands.base.simulation_request import SimulationRequest, infer_npus
from studio.errors import ConfigError, TraceError
from studio.sim import astra
from studio.sim.check import REPLAY_KNOWN
from studio.sim.config import Congestion
from studio.sim.models import Model, get_model, with_model
from studio.sim.parts import Mode, Parts, interpret
from studio.sim.presets import preset
from studio.sim.replays import as_replay, build_idle_system
from studio.sim.setting_edits import with_mode, with_settings
from studio.sim.systems import SYSTEMS
from studio.trace import Finding, Trace, list_recorded_devices


def combine_parts(
    request: SimulationRequest, instead: Parts | None = None, *, ranks: int | None = None
) -> Parts:
    """Combine the configuration: preset, then files, then `--set`.

    Args:
        request: What is asked for.
        instead: What counts in place of a preset where none is named.
        ranks: Ranks of the job: the size of a preset where nothing else says it.

    Raises:
        ConfigError: Neither preset nor files, an unknown preset or setting, or a file that cannot be read.
    """
    base = _build_preset(request, ranks) if request.preset else instead
    if base is None and not (request.system and request.network):
        lacking = [
            name for name, path in (("--system", request.system), ("--network", request.network)) if not path
        ]
        raise ConfigError(
            f"No system to simulate on: {' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing",
            hint="Give --preset, such as hgx-h100 (`chakra-studio presets` lists all), or --system and --network of "
            "ASTRA-sim; --replay shows a recorded job as it ran.",
        )
    parts = _with_files(base or Parts({}, {}), request)
    parts = with_model(parts, request.model) if request.model else parts
    congestion = request.congestion or parts.congestion
    parts = replace(parts, congestion=congestion, options={**parts.options, **request.options})
    parts = as_replay(parts) if request.replay else parts
    parts = with_settings(
        parts, [*_compute_setting(request), *_list_gpu_settings(request), *request.settings]
    )
    parts = with_mode(parts, request.mode) if request.mode else parts
    _refuse_other_model(parts, request)
    return parts


def read_parts(parts: Parts, request: SimulationRequest) -> astra.Imported:
    """Read a configuration, with the algorithms of files beside the system file.

    Raises:
        ConfigError: A setting is missing or out of its limits.
    """
    return interpret(parts, astra.read_custom_algorithms(parts.system, request.system))


def assume_system(request: SimulationRequest, trace: Trace) -> Parts | None:
    """Return the system of a job where none was given and no message needs one; None where one is given, or has to be.

    Raises:
        TraceError: Ranks are missing, so that the job cannot be simulated on any.
    """
    if request.preset:
        return None
    job = infer_completeness(trace)
    if request.replay:
        return build_idle_system(job.world)
    if not job.is_whole and is_recording(trace):
        raise TraceError(job.sentence(), hint=REPLAY_KNOWN)
    return build_idle_system(1) if job.world == 1 else None


def with_recorded_system(
    request: SimulationRequest, trace: Trace
) -> tuple[SimulationRequest, tuple[Finding, ...]]:
    """Return a request for the built-in system that has the device a job was recorded on, and what to say of it.

    The request stays as it is where the job needs no network, ranks are missing, or no system or several have the devices.
    """
    job = infer_completeness(trace)
    if job.world < 2 or not job.is_whole:
        return request, ()
    from studio.calibration.machines import match_system

    devices = list_recorded_devices(trace)
    systems = {system.name for device in devices if (system := match_system(device)) is not None}
    if len(systems) != 1:
        return request, ()
    [name] = systems
    message = f"Simulated on {name}, which has the recorded device ({', '.join(sorted(devices))}); the network is that of the preset."
    finding = Finding("info", "system-chosen", message, "Give --preset for another system.")
    return replace(request, preset=name), (finding,)


def assume_model(parts: Parts | None, request: SimulationRequest) -> Parts | None:
    """Return a system that no file describes under the model that counts without one, the full one."""
    if parts is None or request.replay or request.mode or request.congestion:
        return parts
    return with_model(parts, request.model or "full")


def explain_sizes(name: str, npus: int) -> str:
    """Say how to get a preset of this size; empty where there is none."""
    system = preset(name).system
    if system.fits(npus):
        return f"Without a size, --preset {system.name} has as many NPUs as the job has ranks."
    fitting = [name for name, candidate in SYSTEMS.items() if candidate.fits(npus)]
    return f"Presets of this size: {', '.join(fitting)}."


def _build_preset(request: SimulationRequest, ranks: int | None) -> Parts:
    """Return the system of a preset: under the full model, or where files, mode or congestion are given that of ASTRA-sim."""
    chosen = preset(request.preset or "", infer_npus(request) or ranks)
    # A congestion that is set by key counts as one that is given.
    given = any(setting.partition("=")[0].strip() == "congestion" for setting in request.settings)
    if (
        request.system
        or request.network
        or ((request.mode or request.congestion or given) and not request.model)
    ):
        return chosen.under("astra-sim")
    return chosen.under(request.model or "full")


def _compute_setting(request: SimulationRequest) -> list[str]:
    """Return the setting that says how long compute takes, where an option asks for one; the roofline is then on."""
    if request.compute_times is None:
        return []
    if request.model == "astra-sim" or request.mode == "compatible":
        raise ConfigError(
            "--compute-times is given beside ASTRA-sim's model; allowed: with the model full",
            hint="There a system with a roofline replaces every recorded time: --set roofline-enabled=0 keeps them.",
        )
    setting = f"extended.compute-times={request.compute_times}"
    return [setting, "roofline-enabled=1"] if request.compute_times == "roofline" else [setting]


def _list_gpu_settings(request: SimulationRequest) -> list[str]:
    """Return the settings that recompute durations for another GPU, where an option asks for one."""
    given = {"recompute-for": request.gpu, "recorded-gpu": request.recorded_gpu}
    asked = {key: value for key, value in given.items() if value is not None}
    if asked and (request.model == "astra-sim" or request.mode == "compatible"):
        option = "--gpu" if request.gpu else "--recorded-gpu"
        raise ConfigError(
            f"{option} is given beside ASTRA-sim's model; allowed: with the model full",
            hint="ASTRA-sim does not recompute recorded durations; leave out --model, --mode and --congestion.",
        )
    if request.recorded_gpu and not request.gpu:
        raise ConfigError(
            "--recorded-gpu is given without --gpu; allowed: both",
            hint="--gpu names the GPU to recompute for.",
        )
    return [f"extended.{key}={value}" for key, value in asked.items()]


_OF_MODEL: Mapping[Model, tuple[Mode, Congestion | None]] = {
    "full": ("extended", "aware"),
    "astra-sim": ("compatible", None),
}
"""The mode and the congestion that a model has; None is either."""


def refuse_conflict(request: SimulationRequest) -> None:
    """Raise a ConfigError for a mode or a congestion that the model asked for does not have."""
    if request.model is None:
        return
    mode, congestion = _OF_MODEL[request.model]
    for option, given, has in (
        ("--mode", request.mode, mode),
        ("--congestion", request.congestion, congestion),
    ):
        if given and has and given != has:
            raise ConfigError(
                f"{option} is {given!r} beside --model {request.model}; allowed there: {has}",
                hint=f"Leave one of the two out: --model {request.model} says {option} {has}.",
            )


def _refuse_other_model(parts: Parts, request: SimulationRequest) -> None:
    """Raise a ConfigError where settings made another model than the one asked for."""
    model = get_model(parts)
    if request.model and model != request.model and not request.replay:
        raise ConfigError(
            f"--set makes it the model {model}; allowed with --model {request.model}: settings of that model",
            hint="Leave --model out, or the settings extended.… and congestion.",
        )


def _with_files(parts: Parts, request: SimulationRequest) -> Parts:
    """Replace tables by those of the given files."""
    given = astra.load_given(request.system, request.network, request.comm_groups, request.remote_memory)
    return replace(parts, **{**given, "names": {**parts.names, **given["names"]}})
