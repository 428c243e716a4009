"""The Trends page."""
