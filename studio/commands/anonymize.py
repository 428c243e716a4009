"""Take names, texts and exact numbers out of a job, so that it can be given away.

JOB is a folder or files of traces, their prefix, or the id or name of a job in the workspace. OUT is a folder, which gets a Chakra file for every rank and the comm groups. Ranks,
nodes, types, dependencies, groups and collectives stay, so that it simulates as before; --scale-operations, --scale-bytes, --scale-times and
--round change its numbers. What was written is searched for every word of the original that is no public term; nothing is written if
one is left. Printed are what was changed, what a reader can still learn, and how the simulated step differs.

The same key gives the same new words, in every job. Without --key a new one is made and forgotten. Damaged files are not taken.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import click

from studio.anonymize.numbers import Scaling
from studio.anonymize.policy import FIELDS, Policy, PolicyName, build_policy
from studio.anonymize.rename import anonymize_job
from studio.anonymize.residue import (
    Learnt,
    Residue,
    Tokens,
    collect_forbidden_words,
    collect_learnt,
    find_remaining_tokens,
)
from studio.anonymize.words import Renamer, list_words
from studio.commands.base.losses import select_losses
from studio.commands.base.one_job import read_one_job
from studio.commands.base.options import (
    PathOption,
    add_size_options,
    json_option,
    quiet_option,
    rank_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, show, warn
from studio.commands.base.terminal import describe_written, escape_controls
from studio.errors import ConfigError, StudioError, TraceError
from studio.et import Progress, groups
from studio.et.format import UNSAID, JobSize
from studio.et.write import compress_pieces, iterate_rank_file, make_file_stem, write_together
from studio.files import read_file
from studio.trace import Trace
from studio.units import format_count, format_counted, format_ns, parse_ns

_SYSTEM = "hgx-h100"
_NAMED = 8


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `anonymize`.

    Attributes:
        path: A folder, a file, an archive or a prefix of files, or the name of a stored job.
        target: The folder that is written.
        policy: What becomes of texts, to begin with.
        fields: What becomes of single kinds of texts instead.
        key: What new words are made with; empty for one that is made and forgotten.
        keep: Words that may stay.
        scaling: What becomes of numbers.
        name: What the files are called.
        compress: Whether they become `.et.gz`.
        simulate: Whether both jobs are simulated and compared.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        size: NPUs and passes, where a workload leaves them open.
        workspace: Folder of imported jobs; None is the user's.
    """

    path: Path
    target: Path
    policy: PolicyName = "balanced"
    fields: Mapping[str, str] = field(default_factory=dict)
    key: bytes = b""
    keep: tuple[str, ...] = ()
    scaling: Scaling = field(default_factory=Scaling)
    name: str = "job"
    compress: bool = False
    simulate: bool = True
    ranks: Mapping[str, int] = field(default_factory=dict)
    size: JobSize = UNSAID
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """How long the job takes on a system, before and after.

    Attributes:
        system: Which.
        before_ns, after_ns: The finish of both; None where it cannot be simulated.
        why: Why it cannot.
    """

    system: str
    before_ns: int | None = None
    after_ns: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Anonymized:
    """The anonymous job that was written, and what it still tells.

    Attributes:
        files: The files.
        policy: What became of each kind of text.
        changed: How many entries of what kind were renamed or dropped.
        looked_for, searched_bytes: How many words of the original were looked for, in how much.
        tokens: What became of words of under four letters and of numbers in texts.
        learnt: What a reader can still learn.
        steps: The simulated step before and after; None where it was not asked for.
        forgotten: Whether the key was made and forgotten.
    """

    files: tuple[Path, ...]
    policy: Mapping[str, str]
    changed: Mapping[str, int]
    looked_for: int
    searched_bytes: int
    tokens: Tokens
    learnt: tuple[Learnt, ...]
    steps: Steps | None
    forgotten: bool


def run(request: Request, *, progress: Progress | None = None) -> Anonymized:
    """Make an anonymous copy of a job.

    Raises:
        ConfigError: There is no such field, or nothing of the kind can become of it.
        TraceError: There is not one job, its files are damaged, the folder is not empty, or a word of the original would be left.
    """
    policy = _choose_policy(request)
    name = make_file_stem(request.name)
    target = request.target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TraceError(
            f"{target}: there is something of this name; allowed: a new or an empty folder.",
            hint="Other files beside the anonymous ones could be given away by mistake.",
        )
    old_name, trace = _read(request, progress)
    forbidden = collect_forbidden_words(trace, policy, old_name, (*request.keep, *list_words(name)))
    renamer = Renamer(request.key or secrets.token_bytes(32), request.keep, forbidden)
    anonymous = anonymize_job(trace, policy, request.scaling, renamer)
    tokens = find_remaining_tokens(trace, anonymous.trace, policy, (*request.keep, *list_words(name)))
    _refuse_left(tokens.left)
    residue = Residue(forbidden)
    files = _write(anonymous.trace, target, name, request, residue, progress)
    steps = _simulate_both(trace, anonymous.trace) if request.simulate else None
    learnt = tuple(collect_learnt(anonymous, policy, request.scaling))
    changed = {what: count for what, count in anonymous.changed.items() if count}
    chosen: dict[str, str] = {what: action for what, action in policy.items()}  # noqa: C416
    return Anonymized(
        files, chosen, changed, len(forbidden), residue.bytes, tokens, learnt, steps, not request.key
    )


def _choose_policy(request: Request) -> Policy:
    """Return what becomes of texts; where sizes are scaled nothing stays that tells the old ones, unless the user said so."""
    changes = dict(request.fields)
    if (request.scaling.operations, request.scaling.bytes) != (1.0, 1.0):
        if build_policy(request.policy)["shapes"] == "keep":
            changes.setdefault("shapes", "rename")
        changes.setdefault("own", "drop")
    return build_policy(request.policy, changes)


def _read(request: Request, progress: Progress | None) -> tuple[str, Trace]:
    """Return name and trace of a job whose files are whole."""
    path = request.path
    name, trace = read_one_job(
        [path], request.ranks, progress, verb="Anonymize", size=request.size, workspace=request.workspace
    )
    lost = select_losses(trace.findings)
    for finding in trace.findings:
        warn(finding)
    if lost:
        raise TraceError(
            f"{path}: {len(lost)} of its files are damaged, and what cannot be read cannot be searched for names.",
            hint="`chakra-studio convert` writes what can be read; anonymize that.",
        )
    return name, trace


def _write(
    trace: Trace, target: Path, name: str, request: Request, residue: Residue, progress: Progress | None
) -> tuple[Path, ...]:
    """Write the job, unless a word of the original is left in it."""
    files: list[Path] = []
    done, total = 0, trace.node_count
    with write_together() as put:
        for rank in trace.ranks:
            path = target / f"{name}.{rank.number}.et{'.gz' if request.compress else ''}"
            plain = iterate_rank_file(trace, rank, compress=False, progress=progress, nodes=(done, total))
            pieces = residue.watch(plain)
            put(path, compress_pieces(pieces) if request.compress else pieces)
            files.append(path)
            done += len(trace.graph_of(rank))
        if groups.collect_listed_groups(trace):
            files.append(target / f"{name}.json")
            put(files[-1], residue.watch([groups.write(trace).encode()]))
        _refuse_left(residue.left())
    return tuple(files)


def _refuse_left(left: Sequence[str]) -> None:
    """Raise an error where words of the original are left."""
    if left:
        listed = _name_first(map(repr, left))
        raise TraceError(
            f"{format_count(len(left))} of the words of the original would be left: {listed}. Nothing was written.",
            hint="Drop what holds them (--field texts=drop, --field names=rename), or allow them: --keep WORD.",
        )


def _name_first(words: Iterable[str]) -> str:
    """Return the first of some words."""
    every = list(words)
    return ", ".join(every[:_NAMED]) + (", …" if len(every) > _NAMED else "")


def _simulate_both(before: Trace, after: Trace) -> Steps:
    """Simulate both jobs on the same system; recorded times are replayed."""
    from studio.sim import simulate
    from studio.sim.presets import preset

    label = f"{_SYSTEM}, {format_counted(len(before.ranks), 'NPU')}"
    try:
        config = preset(_SYSTEM, npus=len(before.ranks)).config.with_extensions()
        if any(graph.duration_ns.any() for graph in before.graphs):
            # Also of a job that never ran, whose nodes have durations and no starts.
            config, label = replace(config, replay_only=True), f"{label}, durations replayed"
        # The anonymous one first: what is wrong with both is then told in its words.
        second, first = (simulate(trace, config).finish_ns for trace in (after, before))
    except StudioError as error:
        return Steps(label, why=error.message)
    return Steps(label, int(max(first)), int(max(second)))


def report(anonymized: Anonymized) -> dict[str, Any]:
    """Return what `--json` prints."""
    steps = anonymized.steps
    return {
        "files": [str(path) for path in anonymized.files],
        "policy": dict(anonymized.policy),
        "changed": dict(anonymized.changed),
        "check": {"words": anonymized.looked_for, "bytes": anonymized.searched_bytes, "left": 0},
        "tokens": {
            "words": len(anonymized.tokens.words),
            "words_kept": list(anonymized.tokens.kept_words),
            "numbers": len(anonymized.tokens.numbers),
            "numbers_kept": list(anonymized.tokens.kept_numbers),
        },
        "learnt": [
            {"about": fact.about, "state": fact.state, "words": fact.words} for fact in anonymized.learnt
        ],
        "step": None
        if steps is None
        else {
            "system": steps.system,
            "before_ns": steps.before_ns,
            "after_ns": steps.after_ns,
            "why": steps.why,
        },
        "key_forgotten": anonymized.forgotten,
    }


def text(anonymized: Anonymized) -> str:
    """Format the outcome for a terminal."""
    lines = [describe_written(anonymized.files)]
    lines += [f"  {what}: {format_count(count)}" for what, count in anonymized.changed.items()]
    lines.append(
        f"None of {format_count(anonymized.looked_for)} words of the original is left in {format_count(anonymized.searched_bytes)} bytes."
    )
    lines += _describe_tokens(anonymized.tokens)
    lines.append("What a reader can still learn:")
    lines += [f"  {fact.about} ({fact.state}): {fact.words}" for fact in anonymized.learnt]
    if anonymized.steps is not None:
        lines.append(_step_line(anonymized.steps))
    if anonymized.forgotten:
        lines.append("The key was made for this job and is forgotten: another run gives other words.")
    return "\n".join(escape_controls(line) for line in lines)


def _describe_tokens(tokens: Tokens) -> list[str]:
    """Say what became of words and numbers that are too short to be looked for in bytes."""
    lines = []
    if tokens.words:
        staying = _describe_staying(
            tokens.kept_words, len(tokens.words), "stay", "words of up to two letters do"
        )
        lines.append(f"Words of under four letters, looked for as whole words of texts: {staying}.")
    if tokens.numbers:
        why = "numbers of up to six digits do, and names of comm groups that are numbers"
        staying = _describe_staying(tokens.kept_numbers, len(tokens.numbers), "stay or stand there anew", why)
        lines.append(f"Numbers in texts, looked for as whole numbers: {staying}.")
    return lines


def _describe_staying(kept: Sequence[str], count: int, verb: str, why: str) -> str:
    if not kept:
        return f"none of {format_count(count)} stays"
    return f"{format_count(len(kept))} of {format_count(count)} {verb} ({_name_first(kept)}), because {why}"


def _step_line(steps: Steps) -> str:
    if steps.before_ns is None or steps.after_ns is None:
        return f"The step was not compared: {steps.why}"
    before, after = format_ns(steps.before_ns), format_ns(steps.after_ns)
    if steps.before_ns == steps.after_ns:
        return f"The simulated step is the same to the nanosecond: {after} ({steps.system})."
    change = 100 * (steps.after_ns / steps.before_ns - 1) if steps.before_ns else math.inf
    return f"The simulated step takes {after}, {before} before ({change:+.2f} %; {steps.system})."


class _Factor(click.FloatRange):
    """A factor above 0 and finite."""

    def __init__(self) -> None:
        super().__init__(min=1e-9, max=1e9)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no factor; allowed: a number from 1e-9 to 1e9.", param, ctx)
        return number


def _parse_fields(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for item in given:
        name, equals, action = item.partition("=")
        if not equals:
            known = ", ".join(rule.field for rule in FIELDS)
            raise click.BadParameter(f"{item!r} is not FIELD=ACTION, such as shapes=keep; fields: {known}.")
        changes[name] = action
    return changes


def _round_ns(_ctx: click.Context, _param: click.Parameter, given: str | None) -> int:
    if given is None:
        return 0
    try:
        return parse_ns(given)
    except (StudioError, ValueError) as error:
        raise click.BadParameter(f"{given!r} is no time; allowed: such as 10us or 1ms.") from error


def _read_key(given: str | None) -> bytes:
    """Return the key: the content of a file, or the text itself."""
    if given is None:
        return b""
    path = Path(given)
    raw = read_file(path).strip() if _is_file(path) else given.encode("utf-8", "surrogateescape")
    if not raw:
        raise ConfigError("The key is empty; allowed: a text or a file with one.", hint="--key key.txt")
    return raw


def _is_file(path: Path) -> bool:
    """Return whether a path is that of anything but a folder: a pipe is refused, its name is not taken for the key."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:
        return False  # A text that is too long for the name of a file.


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio anonymize traces/ -o given-away/ --key key.txt --scale-bytes 1.7",
)
@click.argument("path", metavar="JOB", type=PathOption())
@click.option(
    "-o", "--out", "target", required=True, metavar="OUT", type=PathOption(), help="A new or empty folder."
)
@click.option(
    "--policy",
    type=click.Choice(get_args(PolicyName)),
    default="balanced",
    help="What becomes of texts.  [default: balanced]",
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="FIELD=ACTION",
    callback=_parse_fields,
    help="What becomes of one kind of texts instead, such as shapes=keep; may be repeated.",
)
@click.option("--key", metavar="FILE|TEXT", help="What new words are made with: a file, or the text itself.")
@click.option("--keep", multiple=True, metavar="WORD", help="A word that may stay; may be repeated.")
@click.option(
    "--scale-operations", type=_Factor(), default=1.0, metavar="FACTOR", help="Multiply operations."
)
@click.option(
    "--scale-bytes",
    type=_Factor(),
    default=1.0,
    metavar="FACTOR",
    help="Multiply bytes of messages and tensors.",
)
@click.option("--scale-times", type=_Factor(), default=1.0, metavar="FACTOR", help="Multiply times.")
@click.option(
    "--round",
    "round_ns",
    metavar="TIME",
    callback=_round_ns,
    help="Round times to multiples of this, such as 10us.",
)
@click.option("--name", default="job", metavar="NAME", help="What the files are called.  [default: job]")
@click.option("--gzip", "compress", is_flag=True, help="Compress the files.")
@click.option(
    "--simulate/--no-simulate", default=True, help="Compare the simulated steps.  [default: simulate]"
)
@rank_option
@add_size_options
@json_option
@workspace_option
@quiet_option
def command(
    *,
    npus: int | None,
    passes: int | None,
    key: str | None,
    scale_operations: float,
    scale_bytes: float,
    scale_times: float,
    round_ns: int,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Carry out `anonymize`."""
    scaling = Scaling(scale_operations, scale_bytes, scale_times, round_ns)
    request = Request(scaling=scaling, key=_read_key(key), size=JobSize(npus, passes), **given)
    outcome = run(request, progress=build_progress_line())
    if as_json or not quiet:
        show(outcome, as_json, report, text)
