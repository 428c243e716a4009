"""Measures of many jobs over time: which jobs are of one series, and where a measure changed for good."""
