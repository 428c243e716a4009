"""The Ranks page.

What it shows before anything is made comes from `studio/views/ranks.py`, drawn by `studio/figures/mesh.py`.
"""
