"""Reports for people: tables for the terminal and plots. Plots need `quoth[report]`."""

from quoth.report.plots import plot_analysis, plot_curves
from quoth.report.tables import print_analysis, print_curves

__all__ = ["plot_analysis", "plot_curves", "print_analysis", "print_curves"]
