"""The Explain page."""
