"""Reading data: SQuAD, your own JSON lines and CSV, GLUE, hub datasets, plain text. Runs on numpy alone."""

from quoth.data.dataset import Dataset, Gold, Question, Report, Sentences
from quoth.data.glue import read_glue
from quoth.data.hub_datasets import read_hub
from quoth.data.normalise import normalise
from quoth.data.plain_text import read_paragraphs
from quoth.data.read import read
from quoth.data.rows import read_csv, read_jsonl
from quoth.data.squad import read_squad

__all__ = [
    "Dataset",
    "Gold",
    "Question",
    "Report",
    "Sentences",
    "normalise",
    "read",
    "read_csv",
    "read_glue",
    "read_hub",
    "read_jsonl",
    "read_paragraphs",
    "read_squad",
]
