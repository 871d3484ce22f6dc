"""Reports for people: tables for the terminal and plots. Plots need `laconic[report]`."""

from laconic.report.plots import plot_analysis
from laconic.report.tables import print_analysis

__all__ = ["plot_analysis", "print_analysis"]
