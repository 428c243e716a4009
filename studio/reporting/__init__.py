"""Write a run or a comparison as one self-contained HTML file: `build_report(sides)`."""

from studio.reporting.content import build_report

__all__ = ["build_report"]
