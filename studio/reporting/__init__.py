"""Write a run or a comparison as one self-contained HTML file: `report(sides)`."""

from studio.reporting.content import report

__all__ = ["report"]
