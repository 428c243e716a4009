"""GPUs by name: what `--gpu` takes, and which of them a recording names."""

from __future__ import annotations

import re
from difflib import get_close_matches

from studio.errors import ConfigError
from studio.sim.fields import show_value
from studio.sim.systems import SYSTEMS
from studio.sim.systems.gpu import Gpu
from studio.trace import Trace, list_recorded_devices

SYSTEM_OF = {
    "v100": "dgx-v100",
    "v100-sxm3": "dgx-2",
    "a100": "hgx-a100",
    "h100": "hgx-h100",
    "h200": "hgx-h200",
    "gh200": "gh200",
    "b200": "hgx-b200",
    "b300": "hgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s",
    "rtx-2080ti": "rtx-2080ti",
    "rtx-pro-6000": "rtx-pro-6000",
    "mi250x": "mi250x",
    "mi300x": "mi300x",
    "mi325x": "mi325x",
    "mi355x": "mi355x",
    "tpu-v3": "tpu-v3",
    "tpu-v4": "tpu-v4",
    "tpu-v5e": "tpu-v5e",
    "tpu-v5p": "tpu-v5p",
    "trainium2": "trainium2",
}
"""The system whose file has the GPU, by the GPU's short name."""


def find_gpu_system(gpu: str) -> str:
    """Return the system whose file has a GPU, by the GPU's short name; the name of a system as it is.

    Example:
        >>> find_gpu_system("H100"), find_gpu_system("hgx-h100")
        ('hgx-h100', 'hgx-h100')
    """
    wanted = gpu.strip().lower()
    return SYSTEM_OF.get(wanted, wanted)


def find_gpu(name: str, option: str = "--gpu") -> Gpu:
    """Return a GPU by its short name, or that of a system.

    Raises:
        ConfigError: There is none of this name.
    """
    system = find_gpu_system(name)
    gpu = SYSTEMS[system].gpu if system in SYSTEMS else None
    if gpu is None:
        near = get_close_matches(name.strip().lower(), SYSTEM_OF, 1)
        raise ConfigError(
            f"{option} is {show_value(name)}; allowed: {', '.join(SYSTEM_OF)}",
            hint=f"The nearest is {near[0]}."
            if near
            else "`chakra-studio presets NAME` shows the peaks of a system's GPU.",
            key=option.lstrip("-"),
        )
    return gpu


def find_short_name(gpu: Gpu) -> str | None:
    """Return what `--gpu` calls a GPU, None where it is one of a system file alone.

    Example:
        >>> find_short_name(find_gpu("hgx-h100"))
        'h100'
    """
    return next((name for name in SYSTEM_OF if find_gpu(name) == gpu), None)


def find_recorded_gpu(trace: Trace) -> Gpu:
    """Return the GPU that a job was recorded on, as its trace names it.

    Raises:
        ConfigError: The trace names none, several, or one whose peaks are not known.
    """
    named = list_recorded_devices(trace)
    known_gpus = {name: known for name in named if (known := match_gpu(name)) is not None}
    if len(set(known_gpus.values())) == 1 and len(known_gpus) == len(named):
        return find_gpu(next(iter(known_gpus.values())))
    names = ", ".join(show_value(name) for name in named[:4])
    why = "the trace does not name it" if not named else f"the trace names {names}"
    raise ConfigError(
        f"The GPU that the job was recorded on is not known: {why}; allowed: {', '.join(SYSTEM_OF)}",
        hint="Give --recorded-gpu, such as --recorded-gpu h100.",
        key="recorded-gpu",
    )


def match_gpu(device: str) -> str | None:
    """Return the short name of the GPU that a recorded device's name means, None where its peaks are not known.

    Example:
        >>> match_gpu("NVIDIA H100 80GB HBM3"), match_gpu("AMD Instinct MI300X VF"), match_gpu("Radeon")
        ('h100', 'mi300x', None)
    """
    words = [
        (len(words), name)
        for name, system in SYSTEM_OF.items()
        if (family := SYSTEMS[system].family) is not None
        for words in family.devices
        if re.search(rf"(?<!\w){re.escape(words)}(?!\w)", device, re.IGNORECASE)
    ]
    return max(words)[1] if words else None
