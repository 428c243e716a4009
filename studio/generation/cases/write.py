"""Put cases into a folder: one of its own for each, but for the micro-cases, which lie side by side as the existing generator's."""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from studio.errors import ConfigError
from studio.et.records import write_nodes
from studio.et.write import write_together
from studio.generation.cases.collectives import ALGORITHMS, COLLECTIVES
from studio.generation.cases.faults import FAULTS
from studio.generation.cases.micro import MICRO
from studio.generation.cases.parts import Case, CaseJob, Sizes
from studio.sim.astra import write_config

VERSION = "1.0.0"
"""Schema version that the files name."""
KINDS = ("micro", "collective", "algorithm", "fault")


def select_cases(names: Sequence[str] = ()) -> list[Case]:
    """Return cases by name or kind, all of them where none is named.

    Raises:
        ConfigError: There is no such case.

    Example:
        >>> [case.name for case in select_cases(["fault_cycle", "one_comp_node"])], len(select_cases(["micro"]))
        (['one_comp_node', 'fault_cycle'], 14)
    """
    every = (*MICRO, *COLLECTIVES, *ALGORITHMS, *FAULTS)
    known = {*KINDS, *(case.name for case in every)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise ConfigError(
                f"there is no case {name!r}; allowed: {', '.join(KINDS)} or the name of one",
                hint=f"The nearest is {near[0]!r}. `chakra-studio generate cases --list` names all.",
            )
    return [case for case in every if not names or case.name in names or case.kind in names]


def write_cases(
    wanted: Sequence[Case],
    folder: Path,
    sizes: Sizes,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Write cases; all files are renamed together, so that an error leaves none.

    Returns:
        The files.
    """
    written = []
    with write_together() as put:
        for index, case in enumerate(wanted):
            target = folder if case.kind == "micro" else folder / f"{case.kind}s" / case.name
            for name, content in iterate_files(case, case.make(sizes)):
                put(target / name, [content])
                written.append(target / name)
            if progress:
                progress("writing", index + 1, len(wanted))
    return written


def iterate_files(case: Case, job: CaseJob) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of a case's files: a trace for each rank, comm groups, the system."""
    for rank, nodes in job.ranks.items():
        yield f"{case.name}.{rank}.et", write_nodes(VERSION, job.metadata, nodes)
    if job.groups:
        listed = {name: list(ranks) for name, ranks in job.groups.items()}
        yield f"{case.name}.json", json.dumps(listed).encode()
    if job.system is not None:
        with tempfile.TemporaryDirectory() as scratch:
            write_config(job.system, scratch)
            for path in sorted(Path(scratch).iterdir()):
                yield path.name, path.read_bytes()
