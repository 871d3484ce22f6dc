"""Reports for people: tables for the terminal and plots. Plots need `laconic[report]`."""

from laconic.report.plots import plot_analysis, plot_curves
from laconic.report.tables import print_analysis, print_curves

__all__ = ["plot_analysis", "plot_curves", "print_analysis", "print_curves"]
