"""Questions, windows and logits like those of SQuAD 2.0, made up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quoth.runtime.logits import SpanLogits
from quoth.windows.columns import Windows

MAX_LENGTH, OVERLAP = 384, 128


@dataclass(frozen=True)
class Asked:
    """A synthetic question: what scoring needs to know of it."""

    id: str
    gold_texts: tuple[str, ...]


@dataclass(frozen=True)
class Synthetic:
    """Questions, their texts, their windows, and logits for them."""

    asked: list[Asked]
    contexts: list[str]
    windows: Windows
    logits: SpanLogits


def synthetic(questions: int, seed: int = 0) -> Synthetic:
    """Passages of 165 tokens on average (five questions on each), a few of several windows, a third without
    answer.

    The logits are noise with peaks at the gold answer, or at [CLS], and at one wrong place.
    """
    rng = np.random.default_rng(seed)
    passages = [_passage(rng) for _ in range(max(1, questions // 5))]
    asked: list[Asked] = []
    contexts: list[str] = []
    pieces: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    question: list[int] = []
    passage: list[tuple[int, int]] = []
    peaks: list[tuple[int, int]] = []  # flat places of a start and an end
    at = 0
    for q in range(questions):
        text, spans = passages[int(rng.integers(len(passages)))]
        first = int(rng.integers(len(spans)))
        last = min(first + int(rng.geometric(0.35)) - 1, len(spans) - 1)
        answerable = rng.random() < 2 / 3
        gold = text[spans[first, 0] : spans[last, 1]]
        asked.append(Asked(f"q{q}", (gold, gold.split()[0], gold) if answerable else ()))
        contexts.append(text)
        words = int(rng.integers(7, 20))
        for begin, past in _cuts(len(spans), MAX_LENGTH - 3 - words):
            here = at + words + 2 - begin
            if answerable and begin <= first and last < past:
                peaks.append((here + first, here + last))
            elif not answerable:
                peaks.append((at, at))
            wrong = int(rng.integers(begin, past))
            peaks.append((here + wrong, here + int(rng.integers(wrong, min(wrong + 4, past)))))
            window = np.full((words + 3 + past - begin, 2), -1, np.int32)
            window[words + 2 : -1] = spans[begin:past]
            pieces.append(window)
            question.append(q)
            passage.append((words + 2, words + 2 + past - begin))
            lengths.append(len(window))
            at += len(window)
    return Synthetic(asked, contexts, _columns(pieces, lengths, question, passage), _logits(rng, at, peaks))


def _passage(rng: np.random.Generator) -> tuple[str, NDArray[np.int32]]:
    """A text of made-up words and the characters of each, (n, 2)."""
    count = int(np.clip(rng.gamma(3.5, 165 / 3.5), 20, 900))
    letters = "".join(map(chr, rng.choice(list(b"etaoinshrdlu"), 8 * count)))
    sizes = rng.integers(1, 9, count)
    words = [letters[8 * i : 8 * i + size] for i, size in enumerate(sizes.tolist())]
    ends = np.cumsum(sizes + 1) - 1
    return " ".join(words), np.stack([ends - sizes, ends], axis=1).astype(np.int32)


def _cuts(tokens: int, room: int) -> list[tuple[int, int]]:
    """The passage tokens [begin, past) of each window."""
    cuts = [(0, min(room, tokens))]
    while cuts[-1][1] < tokens:
        begin = cuts[-1][0] + room - OVERLAP
        cuts.append((begin, min(begin + room, tokens)))
    return cuts


def _columns(
    pieces: list[NDArray[np.int32]], lengths: list[int], question: list[int], passage: list[tuple[int, int]]
) -> Windows:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    nothing = np.zeros(starts[-1], np.int32)  # decoding does not look at ids and types
    spans = np.concatenate(pieces)
    return Windows(nothing, nothing, spans, nothing, starts, np.array(question, np.int32), np.array(passage, np.int32))


def _logits(rng: np.random.Generator, tokens: int, peaks: list[tuple[int, int]]) -> SpanLogits:
    start, end = (rng.standard_normal(tokens, np.float32) * 2 - 4 for _ in range(2))
    first, last = np.array(peaks).T
    start[first] += 4 + 2 * rng.standard_normal(len(first), np.float32)
    end[last] += 4 + 2 * rng.standard_normal(len(last), np.float32)
    return SpanLogits(start, end)
