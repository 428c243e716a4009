"""The Graph page."""
