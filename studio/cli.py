"""The command line: the list of commands, which one is meant, and errors without tracebacks."""

from __future__ import annotations

import difflib
import io
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from studio import __version__, commands
from studio.commands.base.other_tools import OPTIONS, is_feeder, translate_command
from studio.commands.base.terminal import escape_controls, note_quiet
from studio.errors import StudioError

_WIDTH = 100
_EXAMPLES = """\b
Examples:
  chakra-studio                       open the studio
  chakra-studio traces/               open the job in a folder
  chakra-studio job.*.et job.json     open these files
  chakra-studio --port 9000 --sample  open a sample job on another port"""


def list_verbs() -> list[str]:
    """Return the names of all commands, in order: the modules of `studio.commands`, with hyphens between words."""
    names = (module.name for module in pkgutil.iter_modules(commands.__path__) if not module.ispkg)
    return sorted(name.replace("_", "-") for name in names)


def _name_module(verb: str) -> str:
    return verb.replace("-", "_")


_HELP = ("--help", "-h")


def load_command(verb: str) -> click.Command:
    """Import a command's module, and return its declaration under the verb's name."""
    command: click.Command = import_module(f"{commands.__name__}.{_name_module(verb)}").command
    command.name = verb
    # By itself, as its group says it: click keeps the first option of help that it makes of a command.
    command.context_settings.setdefault("help_option_names", list(_HELP))
    _offer_quiet(command)
    return command


def _offer_quiet(command: click.Command) -> None:
    """Give a command, or each command of a group, the option `--quiet` where it has none of its own."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _offer_quiet(part)
    elif not any("--quiet" in param.opts for param in command.params):
        words = "Show no progress."
        option = click.Option(
            ["--quiet", "-q"], is_flag=True, expose_value=False, callback=note_quiet, help=words
        )
        command.params.append(option)


def _read_first_line(verb: str) -> str:
    """Return the first line of a command's help; the module is not imported, since most need much that a list does not."""
    with Path(commands.__path__[0], f"{_name_module(verb)}.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


class _Commands(click.Group):
    """The modules of `studio.commands` as a click group; only the command that runs is imported.

    Serves paths when the first word is not a command: `chakra-studio traces/`.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list_verbs()

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command's name and first line, which is what lists and completions show."""
        return click.Command(cmd_name, help=_read_first_line(cmd_name)) if cmd_name in list_verbs() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to run, with all of its options."""
        name, command, rest = super().resolve_command(ctx, args)
        if not name:
            return name, command, rest
        loaded = load_command(name)
        if ctx.resilient_parsing:
            from studio.commands.base.completing import with_completions

            loaded = with_completions(loaded)
        return name, loaded, rest

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `serve` before arguments that begin with no command."""
        # Nothing here multiplies matrices; numpy's library for that would start a thread per core, which takes longer
        # than all else that numpy's import does. Commands import numpy, so this comes before them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        own = {"--help", "-h", "--version"}
        asks_for_commands = ctx.resilient_parsing and not args
        if not asks_for_commands and (not args or args[0] not in {*list_verbs(), *own}):
            if not ctx.resilient_parsing:
                _refuse_mistyped(ctx, args, list_verbs())
            args = ["serve", *args]
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            raise
        except OSError as error:
            # The help of all commands, and the version, are printed here.
            _fail_by_system(ctx, error)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Return the commands that begin so; else files, which are served."""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print expected errors without a traceback."""
        _escape_unknown_letters()
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            # Of few options even --help is taken to be near.
            near = [option for option in error.possibilities or () if option != "--help"]
            if here := OPTIONS.get(error.option_name):
                words = f"No such option {error.option_name!r}. Other tools call it so; here it is {here}."
                raise click.UsageError(words, error.ctx) from None
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx) from None
        except StudioError as error:
            _fail(ctx, error.message, _adapt_hint(ctx, error.hint))
        except BrokenPipeError:
            raise
        except OSError as error:
            _fail_by_system(ctx, error)
        except MemoryError:
            _fail(ctx, "Not enough memory.", "Close other programs, or open fewer ranks.")
        except (EOFError, ValueError, TypeError) as error:
            if not (path := _find_damaged_bytecode(error)):
                raise
            what = f"{path}: this file of compiled Python is damaged ({error})"
            _fail(ctx, f"{what}; the programs and your files are fine.", "Remove it: Python makes it anew.")


def _escape_unknown_letters() -> None:
    """Let a terminal that knows few letters show the others as escapes, rather than none at all."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _find_damaged_bytecode(error: BaseException) -> str:
    """Return the file of compiled Python that could not be loaded, "" where an error is of another kind.

    click takes the end of a file for the wish to end, and only says "Aborted!".
    """
    place = error.__traceback__
    while place is not None:
        code = place.tb_frame.f_code
        if code.co_name == "get_code" and "importlib" in code.co_filename:
            return str(place.tb_frame.f_locals.get("bytecode_path") or "")
        place = place.tb_next
    return ""


def _refuse_mistyped(ctx: click.Context, args: Sequence[str], commands: Iterable[str]) -> None:
    """Raise a usage error if the first word looks like a mistyped command."""
    # Options are looked at by the command they belong to.
    word = args[0] if args and not args[0].startswith("-") else ""
    if is_feeder(word) and not Path(word).exists():
        raise click.UsageError(
            f"There is no command {word!r}: the feeder is a class in Python, studio.Feeder (docs/feeder.md).",
            ctx,
        )
    near = (
        [translate_command(word)]
        if translate_command(word)
        else difflib.get_close_matches(word, commands, n=1)
    )
    if near and not Path(args[0]).exists():
        raise click.UsageError(
            f"There is no command {args[0]!r}, and no file of this name. Did you mean {near[0]!r}?", ctx
        )


def _adapt_hint(ctx: click.Context, hint: str) -> str:
    """Return a hint that advises an option, with another way where the command does not have that option."""
    if "--npus NUMBER" not in hint or not ctx.invoked_subcommand:
        return hint
    if any("--npus" in param.opts for param in load_command(ctx.invoked_subcommand).params):
        return hint
    # Loaded here: only a command that has read files gets that far.
    from studio.et.format import CONVERT_WITH_NPUS

    return f"This command takes no --npus: open what {CONVERT_WITH_NPUS} writes."


def _fail_by_system(ctx: click.Context, error: OSError) -> NoReturn:
    """Print what the system could not do, and leave with status 1."""
    # Loaded here: no command is slower for it, and the list of commands needs none of it.
    from studio.files import suggest_remedy

    what = error.strerror or type(error).__name__
    place = ": ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    _fail(ctx, f"{place}: {what}." if place else f"{what}.", suggest_remedy(error))


def _fail(ctx: click.Context, message: str, hint: str) -> NoReturn:
    """Print an error and leave with status 1."""
    if sys.stderr.isatty():
        # Where a progress line was cut off.
        click.echo("\r\033[K", nl=False, err=True)
    lines = "\n".join(escape_controls(line) for line in message.split("\n"))
    click.secho(f"Error: {lines}", fg="red", err=True)
    if hint:
        click.echo(f"Hint: {escape_controls(hint)}", err=True)
    ctx.exit(1)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": list(_HELP), "max_content_width": _WIDTH},
    options_metavar="",
    epilog=_EXAMPLES,
    subcommand_metavar="[COMMAND] [PATHS]... [OPTIONS]",
)
@click.version_option(__version__, prog_name="chakra-studio")
def main() -> None:
    """Open Chakra execution traces in the browser; everything stays on this machine.

    Without a command it serves, so the options of serve apply. A path with the name of a command is written with
    its folder: ./info.
    """


if __name__ == "__main__":
    main()
