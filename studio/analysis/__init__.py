"""Compute small results from traces and timelines: arrays in, numbers out, independent of display."""
