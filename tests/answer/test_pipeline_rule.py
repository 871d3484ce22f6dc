"""`pipeline_answers` against its documented steps, written out as loops over dense matrices."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.answer.decode import Answer
from quoth.answer.pipeline_rule import pipeline_answers, word_spans
from quoth.errors import QuothError, QuothWarning
from quoth.runtime.logits import SpanLogits


def random_case(rng, wordless=0.1):
    """Questions over texts of a few words, cut into tokens of one or two characters, in overlapping windows."""
    contexts, spans, words, starts, question, passage = [], [], [], [0], [], []
    for q in range(int(rng.integers(1, 4))):
        text, tokens = "", []
        for word in range(int(rng.integers(1, 14))):
            letters = "".join(rng.choice(list("abA"), int(rng.integers(1, 5))))
            numbered = -1 if rng.random() < wordless else word
            for at in range(0, len(letters), 2):
                tokens.append((len(text) + at, len(text) + min(at + 2, len(letters)), numbered))
            text += letters + " "
        contexts.append(text)
        size, asked = int(rng.integers(3, 12)), int(rng.integers(1, 4))
        for at in range(0, len(tokens), max(1, size - 2)):
            part = tokens[at : at + size]
            spans += [(-1, -1)] * (asked + 2) + [t[:2] for t in part] + [(-1, -1)]
            words += [-1, *range(asked), -1] + [t[2] for t in part] + [-1]  # a question has words too: not to be used
            starts.append(len(spans))
            question.append(q)
            passage.append((asked + 2, asked + 2 + len(part)))
            if at + size >= len(tokens):
                break
    windows = SimpleNamespace(
        spans=np.array(spans, np.int32),
        starts=np.array(starts, np.int64),
        question=np.array(question, np.int32),
        passage=np.array(passage, np.int32),
    )
    scale = float(rng.choice([0.5, 3.0]))
    logits = SpanLogits(*(rng.standard_normal((2, len(spans))) * scale).astype(np.float32))
    return windows, logits, contexts, np.array(words)


def loop(windows, logits, contexts, words, top_k, longest, no_answer):
    """The steps of the module's docstring, one after the other."""
    result = []
    for q, context in enumerate(contexts):
        pool, null = [], 1000000.0
        for w in np.flatnonzero(windows.question == q):
            a = int(windows.starts[w])
            first, past = (a + int(x) for x in windows.passage[w])
            inside = [a, *range(first, past)]
            p, r = ({} for _ in range(2))
            for table, values in ((p, logits.start), (r, logits.end)):
                weights = {t: math.exp(float(values[t])) for t in inside}
                table.update({t: x / sum(weights.values()) for t, x in weights.items()})
            null = min(null, p[a] * r[a])
            pairs = [(p[i] * r[j], i, j) for i in range(first, past) for j in range(i, past) if j - i + 1 <= longest]
            k = top_k if words is None else 2 * top_k + 10
            for x, i, j in sorted(pairs, key=lambda pair: -pair[0])[:k]:
                start, end = int(windows.spans[i, 0]), int(windows.spans[j, 1])
                if words is not None and words[i] >= 0 and words[j] >= 0:
                    start = min(int(windows.spans[t, 0]) for t in range(first, past) if words[t] == words[i])
                    end = max(int(windows.spans[t, 1]) for t in range(first, past) if words[t] == words[j])
                for entry in pool:
                    if entry[3].lower() == context[start:end].lower():
                        entry[0] += x
                        break
                else:
                    pool.append([x, start, end, context[start:end]])
        if no_answer:
            pool.append([null, 0, 0, ""])
        result.append(sorted(pool, key=lambda entry: -entry[0])[:top_k])
    return result


@pytest.mark.parametrize("seed", range(150))
def test_the_documented_steps(seed):
    rng = np.random.default_rng(seed)
    windows, logits, contexts, words = random_case(rng)
    top_k, longest, no_answer = int(rng.integers(1, 6)), int(rng.integers(1, 8)), bool(rng.integers(2))
    for given_words in (words, None):
        ours = pipeline_answers(
            windows, logits, contexts, given_words,
            top_k=top_k, max_answer_tokens=longest, no_answer=no_answer,
        )  # fmt: skip
        truth = loop(windows, logits, contexts, given_words, top_k, longest, no_answer)
        for answers, expected in zip(ours, truth):
            assert [(a.start, a.end, a.text) for a in answers] == [tuple(e[1:]) for e in expected]
            assert [a.score for a in answers] == pytest.approx([e[0] for e in expected], rel=1e-5)


def build(spans, words, starts, passage, start, end):
    n = len(starts) - 1
    windows = SimpleNamespace(
        spans=np.array(spans, np.int32),
        starts=np.array(starts, np.int64),
        question=np.zeros(n, np.int32),
        passage=np.array(passage, np.int32),
    )
    return windows, SpanLogits(np.array(start, np.float32), np.array(end, np.float32)), np.array(words)


def test_a_word_ends_where_its_window_ends():
    none = (-1, -1)
    windows, _, words = build(
        [none, none, (0, 2), (2, 4), (5, 6), none, none, none, (2, 4), (5, 6), none],
        [-1, -1, 0, 0, 1, -1, -1, -1, 0, 1, -1],
        [0, 6, 11],
        [(2, 5), (2, 4)],
        [0] * 11,
        [0] * 11,
    )
    assert word_spans(windows, words).tolist() == [
        [-1, -1], [-1, -1], [0, 4], [0, 4], [5, 6], [-1, -1],
        [-1, -1], [-1, -1], [2, 4], [5, 6], [-1, -1],
    ]  # fmt: skip


def test_equal_texts_add_up_and_the_first_keeps_its_place():
    none = (-1, -1)
    context = "Rome or rome"
    spans = [none, none, (0, 4), (5, 7), (8, 12), none]
    windows, logits, words = build(
        spans, [-1, -1, 0, 1, 2, -1], [0, 6], [(2, 5)], [-9, 0, 1, -9, 2, 0], [-9, 0, 1, -9, 2, 0]
    )
    (answer,) = pipeline_answers(windows, logits, [context], words, max_answer_tokens=1)[0]
    assert (answer.text, answer.start) == ("rome", 8)
    assert answer.score == pytest.approx((math.e**4 + math.e**2) / (math.e**2 + math.e) ** 2, rel=1e-3)


def test_no_answer_competes_only_if_allowed_and_is_there_if_nothing_else_is():
    none = (-1, -1)
    args = build([none, none, (0, 1), none], [-1, -1, 0, -1], [0, 4], [(2, 3)], [5, 0, 1, 0], [5, 0, 1, 0])
    windows, logits, words = args
    assert [a.text for a in pipeline_answers(windows, logits, ["x"], words, top_k=5)[0]] == ["x"]
    both = pipeline_answers(windows, logits, ["x"], words, top_k=5, no_answer=True)[0]
    assert [(a.text, a.no_answer) for a in both] == [("", True), ("x", False)]
    windows, logits, words = build([none, none, none], [-1, -1, -1], [0, 3], [(2, 2)], [1, 0, 0], [1, 0, 0])
    assert pipeline_answers(windows, logits, [""], words) == [[Answer("", 0, 0, 0.0, True)]]
    assert pipeline_answers(windows, logits, [""], words, no_answer=True) == [[Answer("", 0, 0, 1.0, True)]]


def test_windows_that_are_not_finite_are_skipped_and_named():
    rng = np.random.default_rng(1)
    windows, logits, contexts, words = random_case(rng)
    bad = SpanLogits(np.full_like(logits.start, np.nan), logits.end)
    with pytest.warns(QuothWarning, match="window 1 of .* of question 0"):
        answers = pipeline_answers(windows, bad, contexts, words, no_answer=True)
    assert answers == [[Answer("", 0, 0, 0.0, True)]] * len(contexts)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e30, -1e38, 2e38]),
    st.booleans(),
)
def test_every_answer_is_in_its_text(seed, odd, no_answer):
    rng = np.random.default_rng(seed)
    windows, logits, contexts, words = random_case(rng)
    for values in (logits.start, logits.end):
        values[rng.integers(0, len(values), 2)] = odd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", QuothWarning)
        found = pipeline_answers(windows, logits, contexts, words, top_k=3, no_answer=no_answer)
    for context, answers in zip(contexts, found):
        assert 1 <= len(answers) <= 3
        for answer in answers:
            assert 0 <= answer.start <= answer.end <= len(context)
            assert context[answer.start : answer.end] == answer.text
            assert math.isfinite(answer.score)


def test_what_does_not_fit_is_told():
    windows, logits, contexts, words = random_case(np.random.default_rng(0))
    with pytest.raises(QuothError, match="top_k=0"):
        pipeline_answers(windows, logits, contexts, words, top_k=0)
    with pytest.raises(QuothError, match="words"):
        pipeline_answers(windows, logits, contexts, words[:-1])
