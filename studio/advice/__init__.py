"""Advice: what a change of a job or of its system would save, each found by simulating the changed one."""
