"""What commands and options of Chakra's tools and ASTRA-sim are called here, for those who type the names they know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "trace_link": "link",
    "converter": "convert",
    "jsonizer": "jsonize",
    "visualizer": "visualize",
    "timeline_visualizer": "timeline",
    "generator": "generate cases",
    "astrasim_analytical_congestion_unaware": "simulate",
    "astrasim_analytical_congestion_aware": "simulate --congestion aware",
}
"""By the other name in small letters, without `chakra_`."""
FEEDERS: Final = ("feeder", "et_feeder")
"""What is no command here but a class in Python."""
_INPUT, _OUTPUT = "the first argument", "-o"
OPTIONS: Final[Mapping[str, str]] = {
    "--input_filename": _INPUT,
    "--input-filename": _INPUT,
    "--input": _INPUT,
    "--output_filename": _OUTPUT,
    "--output-filename": _OUTPUT,
    "--output-file": _OUTPUT,
    "--num_npus": "--npus, where it is needed",
    "--num-npus": "--npus",
    "--num-passes": "--passes",
    "--npu_frequency": "--npu-frequency",
    "--chakra-host-trace": "the first argument: the folder or files of all ranks, host and device",
    "--chakra-device-trace": "the first argument: the folder or files of all ranks, host and device",
    "--workload-configuration": "the first argument",
    "--logging-configuration": "not needed",
}
"""What an option is here."""


def translate_command(word: str) -> str:
    """Return what a command of another tool is called here, "" where nothing is known.

    Example:
        >>> translate_command("chakra_jsonizer"), translate_command("jsonize")
        ('jsonize', '')
    """
    return COMMANDS.get(word.lower().replace("-", "_").removeprefix("chakra_"), "")


def is_feeder(word: str) -> bool:
    """Return whether a word names the feeder of other tools."""
    return word.lower().replace("-", "_").removeprefix("chakra_") in FEEDERS
