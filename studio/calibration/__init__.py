"""Measured times of collectives: reading them, fitting cost models to them, and holding simulated times against them.

`reading/` has a reader per format, `fit.py` fits costs to tables, `judging.py` holds simulated times against measured ones, and
`clusters.py` reads and writes files of calibrated systems.
"""
