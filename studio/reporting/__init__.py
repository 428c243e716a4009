"""A run or a comparison as one HTML file that needs nothing else: `report(sides)`."""

from studio.reporting.content import report

__all__ = ["report"]
