"""The commands of `chakra-studio`: one module per verb; the package `base` holds what they share.

A verb's module is the whole of its command. Its docstring is the help text, with what the list of commands shows in the
first line. `command` declares the options and the exit status; `Request` is what was asked for; `run` does it and
returns what came of it; `report` is that as plain data for `--json`, and `text` for reading in a terminal. A new module
here is a new command: `studio/cli.py` lists the modules of this package, and imports one when it is asked for.
"""
