"""The reference of the commands, made from their declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from studio.cli import list_verbs, load_command

TITLE = """\
# Commands

Made from the declarations of the commands. `chakra-studio COMMAND --help` prints the same in a terminal.
Exit statuses and the keys of `--json` are in [Formats](../formats.md#json-of-the-commands).
"""


def command_reference() -> str:
    """Return the page: a section per command, with its arguments and options in a table."""
    sections = ["\n".join(_section(verb, load_command(verb))) for verb in list_verbs()]
    return "\n".join([TITLE, *sections])


def _section(verb: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"chakra-studio {verb}")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## {verb}\n"
    yield f"```text\nchakra-studio {verb} {usage}\n```\n"
    yield _help(command.help or "")
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    if options:
        yield "| option | meaning |\n| --- | --- |"
        records = (option.get_help_record(context) for option in options)
        yield from (f"| {_code(record[0])} | {_cell(record[1])} |" for record in records if record)
        yield ""
    if command.epilog:
        yield _help(command.epilog)


def _help(text: str) -> str:
    r"""Return a help text as Markdown: paragraphs after `\b` keep their lines, in a block of their own."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line.rstrip() for line in paragraph.strip("\n").splitlines()]
        if lines and lines[0].strip() == "\b":
            paragraphs.append("```text\n" + "\n".join(lines[1:]) + "\n```\n")
        else:
            paragraphs.append(_words(" ".join(line.strip() for line in lines)) + "\n")
    return "\n".join(paragraphs)


def _words(text: str) -> str:
    """Return plain text for Markdown, in which no character has a meaning."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def _cell(text: str) -> str:
    return _words(" ".join(text.split()))


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|")
