"""The commands of `chakra-studio`: one module per verb, and what they share.

A verb's module holds `Request`, what was asked for; `run`, which does it and returns what came of it; `report`, this as plain
data for `--json`; and `text`, this for reading in a terminal. `studio/cli.py` declares the options and calls them.
"""
