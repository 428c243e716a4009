"""The Findings page."""
