"""BM25: how much a word says of a document (Robertson and Zaragoza 2009, with the idf of Lucene, never negative).

For a word that stands in n_w of n documents and f times in this one, of l words where the mean is m:

    ln(1 + (n - n_w + 1/2) / (n_w + 1/2)) · f (k₁ + 1) / (f + k₁ (1 - b + b l / m))
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

K1, B = 1.2, 0.75  # §3.5 there


def weigh(often: np.ndarray, having: np.ndarray, lengths: np.ndarray, count: int, mean: ArrayLike) -> np.ndarray:
    """The scores of (word, document) pairs; the arguments are f, n_w, l, n and m of the formula, broadcast."""
    rarity = np.log1p((count - having + 0.5) / (having + 0.5))
    usual = K1 * (1 - B + B * lengths / np.maximum(1.0, mean))
    return np.asarray(rarity * often * (K1 + 1) / (often + usual))
