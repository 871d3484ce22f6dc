"""From files to packed batches: reading, windows with exact character spans, batches under a token budget."""

from laconic.text.batches import Batches, by_length
from laconic.text.columns import Window, Windows, concatenate
from laconic.text.dataset import Dataset, Gold, Question, Report, Sentences
from laconic.text.glue import read_glue
from laconic.text.hub import read_hub
from laconic.text.packed import Packed, pack
from laconic.text.read import read
from laconic.text.squad import read_squad
from laconic.text.tables import read_csv, read_jsonl
from laconic.text.targets import targets
from laconic.text.tokens import Encoded, Template, Tokens
from laconic.text.windows import iter_windows, make_windows

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
