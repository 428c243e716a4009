"""Write a folder that ASTRA-sim's programs run unchanged: traces, comm groups, system, network, remote memory, a script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from studio.commands.base.astra_job import Prepared
from studio.commands.base.backends import (
    GROUPS,
    LOGGING,
    LOGICAL,
    MEMORY,
    NETWORK,
    SYSTEM,
    WHOLE_LOG,
    WORKLOAD,
    Backend,
    build_arguments,
)
from studio.commands.base.for_astra_sim import CODE
from studio.errors import StudioError
from studio.et import Progress, write
from studio.et.groups import write as write_groups
from studio.et.write import write_together
from studio.sim import astra
from studio.units import format_counted

_FILES_SHOWN = 8
_REFERENCE = "ASTRA-sim (commit 518bd51)"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that was written.

    Attributes:
        files: Its files, the traces first.
        command: The program's arguments, relative to the folder.
    """

    files: tuple[Path, ...]
    command: tuple[str, ...]


def write_folder(
    prepared: Prepared, folder: Path, backend: Backend, *, title: str = "", progress: Progress | None = None
) -> Folder:
    """Write a prepared job and system.

    Args:
        prepared: What to write.
        folder: Where to; made where it is not there.
        backend: Whose program is to run it.
        title: What the job is called, for the text beside it.
        progress: Told the nodes written.
    """
    prefix = Path(WORKLOAD)
    traces = folder / prefix.parent
    # Comm groups have a name of their own, so the traces are written without.
    files = write(replace(prepared.trace, groups=()), traces, prefix.name, progress=progress)
    groups = bool(prepared.trace.groups)
    system = replace(prepared.parts, system=_complete(prepared))
    saved = astra.save(replace(system, groups=None), folder, prepared.custom)
    files += [saved.system, saved.network, *([saved.remote_memory] if saved.remote_memory else [])]
    command = tuple(build_arguments(backend, prepared.options, groups=groups))
    texts = {
        "run.sh": _build_script(backend, command),
        "README.md": _build_readme(prepared, backend, command, title),
        LOGGING: _LOGGING,
    }
    if groups:
        texts[GROUPS] = write_groups(prepared.trace)
    if backend.logical:
        dims = [str(dim.size) for dim in prepared.config.topology.dims]
        texts[LOGICAL] = json.dumps({"logical-dims": dims}) + "\n"
    with write_together() as put:
        for name, text in texts.items():
            put(folder / name, [text.encode(errors="replace")])
            files.append(folder / name)
    (folder / "run.sh").chmod(0o755)
    _remove_stale(folder, files)
    return Folder(tuple(files), command)


def _remove_stale(folder: Path, files: Sequence[Path]) -> None:
    """Remove what an earlier export had and this one has not: traces of further ranks, comm groups, a topology."""
    prefix = Path(WORKLOAD)
    earlier = [*(folder / prefix.parent).glob(f"{prefix.name}.*.et"), folder / GROUPS, folder / LOGICAL]
    for path in set(earlier) - set(files):
        path.unlink(missing_ok=True)


def _complete(prepared: Prepared) -> dict[str, Any]:
    """Return the system's table with the defaults that ASTRA-sim has none for, and its log of events switched on."""
    system = dict(prepared.parts.system)
    config = prepared.config
    system.setdefault("preferred-dataset-splits", config.splits)
    return {**system, "trace-enabled": 1}


_LOGGING = f"""\
# All events in one file, however long: --logging-configuration={LOGGING}
[[sink]]
name = "events"
type = "basic_file_sink_mt"
filename = "{WHOLE_LOG}"
truncate = true
create_parent_dir = true
level = "debug"

[[logger]]
name = "workload"
sinks = ["events"]
level = "debug"
"""


def _build_script(backend: Backend, command: Sequence[str]) -> str:
    words = " \\\n    ".join(map(shlex.quote, command))
    needs = f"# It needs one thing more: {backend.needs}.\n" if backend.needs else ""
    return (
        "#!/bin/sh\n"
        f"# Runs ASTRA-sim's program for {backend.name} on this folder: ./run.sh /path/to/{backend.program} [ARGUMENT...]\n"
        f"{needs}"
        "set -eu\n"
        'program=${1:?"name the program: ./run.sh /path/to/' + backend.program + '"}\n'
        "shift\n"
        'case $program in */*) program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program") ;; esac\n'
        'cd "$(dirname "$0")"\n'
        "mkdir -p log\n"
        f'exec "$program" \\\n    {words} "$@"\n'
    )


def _build_readme(prepared: Prepared, backend: Backend, command: Sequence[str], title: str) -> str:
    called = " ".join(title.split()) or "A job"
    lines = [
        f"# {called} for {_REFERENCE}",
        "",
        f"{format_counted(len(prepared.trace.ranks), 'rank')}, {format_counted(prepared.trace.node_count, 'node')}. In this folder:",
        "",
        "```sh",
        f"./run.sh /path/to/{backend.program}"
        + (f" {backend.needs.split(' with ')[0].split(',')[0]}" if backend.needs else ""),
        "```",
        "",
        "which is",
        "",
        "```sh",
        " \\\n    ".join([f"/path/to/{backend.program}", *map(shlex.quote, command)]),
        "```",
        "",
        "Finish times are printed; issue and callback lines go to `log/log.log`, which `chakra-studio timeline` reads.",
        f"The studio runs the same: `chakra-studio simulate workload --system {SYSTEM} --network {NETWORK} --remote-memory {MEMORY}"
        + (
            f" --congestion {prepared.config.congestion}`." if prepared.config.congestion == "aware" else "`."
        ),
    ]
    findings = [finding for finding in prepared.findings if finding.code == CODE]
    if findings:
        lines += [
            "",
            "What is otherwise than in the job:",
            "",
            *(f"- {finding.message} {finding.hint}".rstrip() for finding in findings),
        ]
    return "\n".join(lines) + "\n"


def refuse_taken(folder: Path) -> None:
    """Raise an error where a folder holds something else than an earlier export.

    Raises:
        StudioError: It does, or a file has its name.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StudioError(f"{folder}: is a file; allowed: a folder", hint="Name another one.")
    held = sorted(path.name for path in folder.iterdir())
    if held and not (folder / "run.sh").exists():
        raise StudioError(
            f"{folder}: holds {', '.join(held[:_FILES_SHOWN])}; allowed: a new folder, or one that was exported before",
            hint="Name another one.",
        )
