"""Where the answer stands in each window: the labels of a span head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quoth.data import Question
from quoth.windows.columns import Windows


def span_labels(windows: Windows, questions: Sequence[Question]) -> np.ndarray:
    """First and last token of the first gold answer, counted inside each window: int32 (n, 2).

    (0, 0), the place of "no answer", if the question is impossible or its answer is not wholly inside the
    window (BERT's run_squad). Otherwise the tokens are all those that share a character with the answer: an
    answer that begins or ends inside a word takes the whole token.
    """
    found = np.zeros((len(windows), 2), dtype=np.int32)
    for w, q in enumerate(windows.question.tolist()):
        answers = questions[q].answers
        if not answers:
            continue
        text = answers[0].text
        start = answers[0].start + len(text) - len(text.lstrip())
        end = start + len(text.strip())
        first, past = (windows.starts[w] + windows.passage[w]).tolist()
        spans = windows.spans[first:past]
        if first == past or start < spans[0, 0] or end > spans[-1, 1]:
            continue
        low = int(np.searchsorted(spans[:, 1], start, side="right"))
        high = int(np.searchsorted(spans[:, 0], end, side="left")) - 1
        while low <= high and spans[low, 0] == spans[low, 1]:  # white space after characters that no token has
            low += 1
        while low <= high and spans[high, 0] == spans[high, 1]:
            high -= 1
        if low <= high:
            found[w] = windows.passage[w, 0] + low, windows.passage[w, 0] + high
    return found
