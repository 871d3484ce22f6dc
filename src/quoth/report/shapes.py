"""The sizes of an encoder's layers as an SVG plot: figures 3 to 6 of schuBERT / optBERT (ACL 2020)."""

from __future__ import annotations

from pathlib import Path

from quoth.encoder import Shape
from quoth.report.plots import check_plots, plain, write

PANELS = {"ffn": "feed-forward size", "heads": "heads", "key": "key size", "value": "value size"}


def plot_shape(name: str, shape: Shape, path: str | Path) -> Path:
    """Draw a panel for each of f, a, k, v, over the layers; returns the file."""
    check_plots()
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(9, 6), layout="constrained")
    numbers = range(1, len(shape.layers) + 1)
    for axes, (key, what) in zip(figure.subplots(2, 2).flatten(), PANELS.items()):
        axes.plot(numbers, [getattr(layer, key) for layer in shape.layers], marker="o", ms=4)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer")
        axes.set_ylabel(what)
    figure.suptitle(plain(f"{name}: hidden {shape.hidden}"))
    path = Path(path)
    return write(path.parent, iter([(path.name.removesuffix(".svg"), figure)]))[0]
