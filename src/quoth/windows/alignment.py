"""Two tokenizers over the same text: the windows of a teacher that match a student's, and its logits on their tokens.

For each window of the student the teacher reads the same question and the same characters of the passage, in tokens of
its own. Logits are compared over the first token ("no answer") and the tokens of the passage alone, so that question
and separators, which differ between families, do not count. Where the tokens of the passage have equal spans, they
correspond one to one. Elsewhere probability goes by characters: a token of the student gets the sum of

    p_start of the teacher's tokens whose first character it has      p_end of those whose last character it has

with the rule of `span_labels` where a character is in no token: a start goes to the next token, an end to the one
before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from quoth.data import Question
from quoth.windows.columns import Windows, concatenate
from quoth.windows.layout import Pool
from quoth.windows.tokenizer import Tokenizer

LEAST = -1e4  # the log-probability of a token that gets none
CHUNK = 4096  # windows at a time


def matching_windows(
    windows: Windows, questions: Sequence[Question], tokenizer: Tokenizer, max_query_length: int
) -> Windows:
    """A window of another tokenizer for each of these, with the same question and the same part of the passage.

    A question is cut to as many tokens as the student's. Where the spans of some tokens in a row are those of the
    window, these tokens are taken; else all that share a character with it.
    """
    used = sorted(set(windows.question.tolist()))
    contexts = {text: i for i, text in enumerate(dict.fromkeys(questions[q].context for q in used))}
    passages = tokenizer.encode(list(contexts))
    asked = [np.array(ids[:max_query_length], np.int32) for ids in tokenizer.ids([questions[q].question for q in used])]
    pool = Pool.of(tokenizer.template, asked, passages)
    number = {q: i for i, q in enumerate(used)}
    plan = np.empty((len(windows), 3), np.int64)
    for w, q in enumerate(windows.question.tolist()):
        which = contexts[questions[q].context]
        first, past = token_range(passage_spans(windows, w), passages[which].spans)
        plan[w] = number[q], pool.passages[which] + first, pool.passages[which] + past
    made = concatenate([pool.windows(plan[i : i + CHUNK], base=0) for i in range(0, len(plan), CHUNK)])
    made.question[:] = windows.question
    return made


def passage_spans(windows: Windows, w: int) -> np.ndarray:
    """The characters of the passage tokens of one window, (n, 2)."""
    first, past = (windows.starts[w] + windows.passage[w]).tolist()
    return windows.spans[first:past]


def token_range(part: np.ndarray, spans: np.ndarray) -> tuple[int, int]:
    """Which tokens [first, past) of a passage, spans (m, 2), match those of a part of it, (n, 2)."""
    n = len(part)
    if not n:
        return 0, 0
    low, high = (int(np.searchsorted(spans[:, 0], part[0, 0], side)) for side in ("left", "right"))
    for first in range(low, high):
        if np.array_equal(spans[first : first + n], part):
            return first, first + n
    first = int(np.searchsorted(spans[:, 1], part[0, 0], "right"))
    return first, max(first, int(np.searchsorted(spans[:, 0], part[-1, 1], "left")))


def compared(windows: Windows) -> np.ndarray:
    """Which tokens logits are compared over, booleans (T,): the first one of each window, and those of the passage."""
    place = np.arange(len(windows.ids)) - np.repeat(windows.starts[:-1], windows.lengths)
    first, past = (np.repeat(edge, windows.lengths) for edge in windows.passage.T)
    return np.asarray((place == 0) | ((place >= first) & (place < past)))


def onto_tokens(student: Windows, teacher: Windows, logits: np.ndarray) -> tuple[np.ndarray, int]:
    """The teacher's logits as log-probabilities of the student's tokens; and of how many windows the tokens align.

    logits: (2, T of the teacher), start and end; the result is float16 (2, T): −inf where nothing is compared, and
    `LEAST` where a token gets no probability
    """
    found = np.full((2, len(student.ids)), -np.inf, np.float16)
    aligned = 0
    for low in range(0, len(student), CHUNK):
        here = np.arange(low, min(low + CHUNK, len(student)))
        ours, theirs = student.take(here), teacher.take(here)
        source = slice(teacher.starts[here[0]], teacher.starts[here[-1] + 1])
        place, count = _places(ours, theirs)
        target, kept = compared(ours), compared(theirs)
        for which in (0, 1):
            p = np.exp(_log_probabilities(logits[which, source], theirs, kept)[kept])
            sums = np.bincount(place[which, kept], p, minlength=len(ours.ids))[target]
            row = found[which, student.starts[here[0]] : student.starts[here[-1] + 1]]
            with np.errstate(divide="ignore"):
                row[target] = np.maximum(np.log(sums), LEAST)
        aligned += count
    return found, aligned


def _log_probabilities(logits: np.ndarray, windows: Windows, kept: np.ndarray) -> np.ndarray:
    """Log softmax over the kept tokens of each window, float64 (T,); −inf elsewhere."""
    x = np.where(kept, logits.astype(np.float64), -np.inf)
    begins, lengths = windows.starts[:-1], windows.lengths
    x = x - np.repeat(np.maximum.reduceat(x, begins), lengths)
    return np.asarray(x - np.repeat(np.log(np.add.reduceat(np.exp(x), begins)), lengths))


def _places(ours: Windows, theirs: Windows) -> tuple[np.ndarray, int]:
    """To which token of ours the start and the end of each of theirs go, (2, T of theirs); how many windows align."""
    place = np.zeros((2, len(theirs.ids)), np.int64)
    aligned = 0
    for w in range(len(ours)):
        place[:, theirs.starts[w]] = ours.starts[w]
        mine, other = passage_spans(ours, w), passage_spans(theirs, w)
        first = ours.starts[w] + ours.passage[w, 0]
        past = theirs.starts[w] + theirs.passage[w]
        if np.array_equal(mine, other):
            aligned += 1
            place[:, past[0] : past[1]] = first + np.arange(len(mine))
        elif len(mine):
            place[:, past[0] : past[1]] = first + _by_characters(mine, other)
        else:
            place[:, past[0] : past[1]] = ours.starts[w]
    return place, aligned


def _by_characters(mine: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which of my tokens, spans (n, 2), holds the first and the last character of each of theirs: (2, m)."""
    solid = np.flatnonzero(mine[:, 1] > mine[:, 0])  # not white space alone
    solid = solid if len(solid) else np.arange(len(mine))
    start = np.searchsorted(mine[solid, 1], other[:, 0], "right")
    end = np.searchsorted(mine[solid, 0], other[:, 1], "left") - 1
    return np.asarray(solid[np.clip(np.stack([start, end]), 0, len(solid) - 1)])


def reading_identity(windows: Windows, questions: Sequence[Question], max_query_length: int) -> str:
    """The sha256 of all that a teacher's logits on the tokens of windows depend on, but for the teacher."""
    digest = hashlib.sha256(f"{max_query_length}\n".encode())
    for column in (windows.spans, windows.starts, windows.passage, windows.question):
        digest.update(np.ascontiguousarray(column).tobytes())
    known: dict[str, int] = {}
    for question in questions:
        new = question.context not in known
        number = known.setdefault(question.context, len(known))
        for text in (question.question, question.context if new else str(number)):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()
