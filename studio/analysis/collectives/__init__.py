"""Collectives across ranks: matching, times, bandwidths, imbalance, traffic, comm groups."""
