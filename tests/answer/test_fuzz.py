"""From any text to an answer: whatever the texts and the logits, nothing breaks and offsets are exact."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quoth.answer import decode
from quoth.answer.pipeline_rule import pipeline_answers
from quoth.answer.reader import Reader
from quoth.data.dataset import Question
from quoth.runtime.logits import SpanLogits
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer

ODD = "aé ßİ.,'\n\r\t\0\u0301\u200d\u3000東京서אוم😀👍🏽‍1-[]"
texts = st.text(alphabet=ODD, min_size=1, max_size=120) | st.text(min_size=1, max_size=60)
RULES = ["devlin", "probability", "bertvision"]
values = st.floats(-30, 30) | st.sampled_from([math.nan, math.inf, -math.inf, 1e38, -1e38, 3e38, 0.0])


@pytest.fixture(scope="module")
def tokens(minilm):
    return Tokenizer.load(minilm)


class Noise:
    """A runner whose logits are noise, drawn from a few odd values."""

    longest, budget, parameters = 512, 64, 0

    def __init__(self, pool, seed):
        self.pool, self.rng = np.array(pool, np.float32), np.random.default_rng(seed)

    def flops(self, length):
        return None

    def __call__(self, packed):
        return self.rng.choice(self.pool, packed.tokens), self.rng.choice(self.pool, packed.tokens)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=4),
    st.lists(values, min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.sampled_from([{}, {"top_k": 4}, {"handle_impossible_answer": True}, {"align_to_words": False}]),
)
def test_text_to_answer(tokens, pairs, pool, seed, options):
    reader = Reader(Noise(pool, seed), tokens, max_length=384)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = reader([{"question": q, "context": c} for q, c in pairs], **options)
        for (_, context), answers in zip(pairs, [found] if len(pairs) == 1 else found):
            for answer in answers if isinstance(answers, list) else [answers]:
                assert 0 <= answer["start"] <= answer["end"] <= len(context)
                assert context[answer["start"] : answer["end"]] == answer["answer"]
                assert math.isfinite(answer["score"])
        for hit in reader.search(pairs[0][0], [c for _, c in pairs], top=3):
            text = pairs[hit.document][1]
            assert text[hit.answer.start : hit.answer.end] == hit.answer.text != ""
            assert 0 <= hit.probability <= 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts,
    texts,
    st.integers(12, 40),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["devlin", "probability", "bertvision"]),
)
def test_many_short_windows(tokens, question, context, length, seed, rule):
    """Windows of a dozen tokens: answers merged across them stay in the text, whatever the rule."""
    asked = [Question("a", question, context, ())]
    windows = make_windows(asked, tokens, max_length=length, max_query_length=4, step=3)
    rng = np.random.default_rng(seed)
    logits = SpanLogits(*rng.normal(0, 5, (2, len(windows.ids))).astype(np.float32))
    decoded = decode(windows, logits, [context], n_best=7, rule=rule)
    spans = [(a.start, a.end) for a in decoded.answers(0) if not a.no_answer]
    assert len(spans) == len(set(spans)) <= 7
    for start, end in spans:
        assert 0 <= start < end <= len(context)
    for answer in pipeline_answers(windows, logits, [context], windows.words, top_k=5)[0]:
        assert context[answer.start : answer.end] == answer.text
