"""The windows on which losses are compared before a cut, after it, and after recovery: always the same ones."""

from __future__ import annotations

import numpy as np
import torch

from quoth.tasks.classes import ClassEvaluation
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.pretrain import PretrainEvaluation
from quoth.tasks.span_data import Examples, Feed
from quoth.tasks.span_evaluation import SpanEvaluation
from quoth.train.build import Prepared
from quoth.windows.columns import Windows
from quoth.windows.labels import targets

WINDOWS = 2048  # at most, evenly spread over the data


def probe_feed(prepared: Prepared, device: torch.device) -> tuple[Feed | MaskedFeed, str]:
    """The windows of the evaluation, else of training, and which of the two they are."""
    evaluation, name = prepared.evaluation, "evaluate"
    if isinstance(evaluation, SpanEvaluation):
        examples = Examples(evaluation.windows, targets(evaluation.windows, evaluation.dataset.questions))
    elif isinstance(evaluation, ClassEvaluation):
        examples = evaluation.data.examples()
    elif isinstance(evaluation, PretrainEvaluation):
        examples = evaluation.examples
    else:
        examples, name = prepared.examples, "train"
    examples = spread(examples, WINDOWS)
    if prepared.vocabulary is not None:
        return MaskedFeed(examples, prepared.vocabulary, device), name
    return Feed(examples, device), name


def spread(examples: Examples, most: int) -> Examples:
    """At most so many examples, evenly spread."""
    if len(examples) <= most:
        return examples
    rows = np.linspace(0, len(examples) - 1, most).round().astype(np.int64)
    w = examples.windows
    tokens = np.concatenate([np.arange(w.starts[row], w.starts[row + 1]) for row in rows])
    starts = np.append(0, np.cumsum(w.lengths[rows]))
    kept = Windows(
        w.ids[tokens], w.types[tokens], w.spans[tokens], w.words[tokens], starts, w.question[rows], w.passage[rows]
    )
    return Examples(kept, examples.answers[rows])
