"""From files to packed batches: reading, windows with exact character spans, batches under a token budget."""

from quoth.text.batches import Batches, by_length
from quoth.text.columns import Window, Windows, concatenate
from quoth.text.dataset import Dataset, Gold, Question, Report, Sentences
from quoth.text.glue import read_glue
from quoth.text.hub import read_hub
from quoth.text.packed import Packed, pack
from quoth.text.read import read
from quoth.text.squad import read_squad
from quoth.text.tables import read_csv, read_jsonl
from quoth.text.targets import targets
from quoth.text.tokens import Encoded, Template, Tokens
from quoth.text.windows import iter_windows, make_windows

__all__ = [
    "Batches",
    "Dataset",
    "Encoded",
    "Gold",
    "Packed",
    "Question",
    "Report",
    "Sentences",
    "Template",
    "Tokens",
    "Window",
    "Windows",
    "by_length",
    "concatenate",
    "iter_windows",
    "make_windows",
    "pack",
    "read",
    "read_csv",
    "read_glue",
    "read_hub",
    "read_jsonl",
    "read_squad",
    "targets",
]
