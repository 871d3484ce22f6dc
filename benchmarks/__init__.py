"""Measurements; run them from the root of the repository: `python -m benchmarks.speed.train --help`."""
