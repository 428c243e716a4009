"""The Workloads page."""
