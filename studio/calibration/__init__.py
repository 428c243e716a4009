"""Measured times of collectives: reading them, fitting cost models to them, and holding simulated times against them."""
