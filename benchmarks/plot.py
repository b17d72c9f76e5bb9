"""The ratios by size as one SVG, drawn by hand: a panel of lines with logarithmic axes. No plotting library."""

from benchmarks.report import Run

__all__ = ["plotted"]


def plotted(run: Run) -> str:
    """Return the drawing."""
    return ""
