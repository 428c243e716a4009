"""Print what makes a shell complete commands, options, presets, jobs and files, for bash, zsh or fish.

Redirect it to where the shell looks for completions: see the examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import click
from click.shell_completion import get_completion_class

_PROGRAM = "chakra-studio"
_VARIABLE = "_CHAKRA_STUDIO_COMPLETE"
"""What the shell sets when it asks, as click derives it from the name of the program."""
SHELLS = ("bash", "zsh", "fish")
_EXAMPLES = """\b
Examples:
  chakra-studio completion bash > ~/.local/share/bash-completion/completions/chakra-studio
  chakra-studio completion zsh > ~/.zfunc/_chakra-studio   (with fpath+=~/.zfunc before compinit)
  chakra-studio completion fish > ~/.config/fish/completions/chakra-studio.fish"""


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `completion`.

    Attributes:
        shell: One of `SHELLS`.
    """

    shell: str


def run(request: Request) -> str:
    """Return the script for a shell."""
    complete = get_completion_class(request.shell)
    assert complete is not None, request.shell
    # `source` asks the installed bash for its version; the script is the same for all that can read it.
    shell_completion = complete(click.Group(), {}, _PROGRAM, _VARIABLE)
    return str(shell_completion.source_template % shell_completion.source_vars())


def text(script: str) -> str:
    """Return the script as it is printed."""
    return script.strip("\n")


@click.command(help=__doc__, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script."""
    click.echo(text(run(Request(shell))))
