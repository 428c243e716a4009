"""The Collectives page."""
