"""The pages: a folder each, with `page.py`, which Dash imports, and the modules it is made of.

A `page.py` defines no dataclass: Dash runs it under a name that `sys.modules` does not have yet, where `dataclasses` looks annotations up.
"""
