"""The pages: a folder each, with `page.py`, which Dash imports, and the modules it is made of."""
