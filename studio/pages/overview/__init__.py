"""The Overview page.

`verdict.py` has headline, bars and layout, `advice.py` what changes would save.
"""
