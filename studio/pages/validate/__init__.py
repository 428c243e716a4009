"""The Validate page."""
