"""Reading data: SQuAD, your own JSON lines and CSV, GLUE, hub datasets, plain text. Runs on numpy alone."""

from quoth.data.dataset import Dataset, Gold, Question, Report, Sentences
from quoth.data.glue import read_glue
from quoth.data.normalise import normalise
from quoth.data.plain_text import read_paragraphs
from quoth.data.read import read

__all__ = ["Dataset", "Gold", "Question", "Report", "Sentences", "normalise", "read", "read_glue", "read_paragraphs"]
