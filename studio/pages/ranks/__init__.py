"""The Ranks page."""
