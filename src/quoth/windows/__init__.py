"""From text to packed batches: a tokenizer, windows with exact character offsets, labels, batches."""

from quoth.windows.batches import Batches, by_length
from quoth.windows.columns import Windows
from quoth.windows.labels import span_labels
from quoth.windows.packed import Packed, pack
from quoth.windows.questions import iter_windows, make_windows
from quoth.windows.tokenizer import Tokenizer

__all__ = [
    "Batches",
    "Packed",
    "Tokenizer",
    "Windows",
    "by_length",
    "iter_windows",
    "make_windows",
    "pack",
    "span_labels",
]
