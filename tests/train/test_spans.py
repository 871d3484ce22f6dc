"""Examples, batches and the loss of spans, against the long way round."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.data import read
from quoth.errors import QuothError
from quoth.tasks.examples import Feed
from quoth.tasks.seeds import sample
from quoth.tasks.settings import Data
from quoth.tasks.span import SpanTask, span_loss
from quoth.windows.labels import span_labels
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer
from tiny import LENGTHS, batch, random_windows
from train.material import make_questions


@pytest.fixture(scope="module")
def data(material):
    return Data((str(material.train),), max_length=48, step=16, max_query_length=16)


@pytest.fixture(scope="module")
def tokens(minilm):
    return Tokenizer.load(minilm)


def span_examples(data, tokens):
    return SpanTask.prepare(data, tokens, None, 0, 30).examples


@pytest.fixture(scope="module")
def examples(data, tokens):
    return span_examples(data, tokens)


@pytest.fixture(scope="module")
def feed(examples):
    return Feed(examples, torch.device("cpu"))


class TestExamples:
    def test_windows_and_labels_of_all_questions(self, data, tokens, examples, material):
        questions = read(str(material.train)).questions
        windows = make_windows(questions, tokens, max_length=48, step=16, max_query_length=16)
        assert len(examples) == len(windows) > 1.5 * len(questions)  # several windows a question
        np.testing.assert_array_equal(examples.windows.ids, windows.ids)
        np.testing.assert_array_equal(examples.labels, span_labels(windows, questions))

    def test_an_answer_is_the_words_of_the_question(self, examples, material):
        questions = read(str(material.train)).questions
        seen = set()
        for w, (first, last) in enumerate(examples.labels.tolist()):
            question = questions[examples.windows.question[w]]
            if last:
                spans = examples.windows[w].spans
                assert question.context[spans[first, 0] : spans[last, 1]] == question.answers[0].text
                seen.add(question.id)
        assert seen == {q.id for q in questions if not q.impossible}

    def test_several_sources(self, tokens, material, tmp_path):
        other = make_questions(tmp_path / "other.json", seed=9, passages=1)
        sizes = [len(read(str(path)).questions) for path in (material.train, other)]
        both = span_examples(Data((str(material.train), str(other)), max_length=384), tokens)
        assert len(both) == sum(sizes)  # one window a question at this length

    def test_questions_that_cannot_be_trained_on_are_left_out(self, tokens, tmp_path):
        path = tmp_path / "q.jsonl"
        asked = {"question": "Who?", "context": "Ada did."}
        rows = [{"id": name, **asked, "answers": {"text": [name], "answer_start": [0]}} for name in ("Ada", "Bob")]
        path.write_text("\n".join(map(json.dumps, rows)))
        assert len(span_examples(Data((str(path),)), tokens)) == 1
        path.write_text(json.dumps(rows[1]))
        with pytest.raises(QuothError, match=r"q.jsonl: no question in it can be trained on"):
            span_examples(Data((str(path),)), tokens)


class TestSample:
    @settings(deadline=None)
    @given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 2**70), st.integers(1, 300))
    def test_a_smaller_sample_is_in_a_larger_one(self, one, other, seed, count):
        small, large = (sample(range(count), fraction, seed) for fraction in sorted((one, other)))
        assert set(small) <= set(large)
        assert small == sorted(small)  # in their order
        assert len(large) == max(1, round(max(one, other) * count))
        assert sample(range(count), 1.0, seed) == list(range(count))

    def test_the_seed_chooses(self):
        drawn = [tuple(sample(range(1000), 0.1, seed)) for seed in range(20)]
        assert len(set(drawn)) == 20
        assert sample(range(1000), 0.1, 3) == list(drawn[3])
        # each question has the same chance: of 1,000 in 20 draws of 100, Chernoff leaves no room for 13 times the same
        assert max(np.bincount(np.concatenate(drawn), minlength=1000)) < 13


class TestFeed:
    @settings(deadline=None)
    @given(st.data())
    def test_a_batch_is_what_windows_pack(self, examples, feed, chosen):
        indices = chosen.draw(st.lists(st.integers(0, len(examples) - 1), min_size=1, max_size=12))
        packed, answers = feed.batch(np.array(indices))
        expected = examples.windows.packed(indices)
        for name in ("ids", "positions", "types", "starts"):
            mine, theirs = getattr(packed, name).numpy(), getattr(expected, name)
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
        assert packed.lengths == expected.lengths
        np.testing.assert_array_equal(answers.numpy(), examples.labels[indices])


def loop_loss(start, end, lengths, answers):
    """One window at a time: the mean of two cross-entropies."""
    total = torch.zeros(())
    for s, e, (first, last) in zip(start.split(lengths), end.split(lengths), answers.tolist(), strict=True):
        total = total + F.cross_entropy(s[None], torch.tensor([first])) / 2
        total = total + F.cross_entropy(e[None], torch.tensor([last])) / 2
    return total


class TestLoss:
    @settings(deadline=None)
    @given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 2**31))
    def test_equals_a_loop_over_windows_gradients_too(self, lengths, seed):
        rng = np.random.default_rng(seed)
        packed = batch(*random_windows(lengths, seed=seed))
        answers = torch.tensor([[rng.integers(n), rng.integers(n)] for n in lengths])
        logits = torch.from_numpy(rng.normal(0, 3, (2, sum(lengths))).astype(np.float32))
        mine, theirs = (logits.clone().requires_grad_() for _ in range(2))
        loss = span_loss(mine[0], mine[1], packed, answers)
        expected = loop_loss(theirs[0], theirs[1], lengths, answers)
        torch.testing.assert_close(loss, expected)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(mine.grad, theirs.grad)

    def test_half_precision_is_summed_in_fp32(self):
        packed = batch(*random_windows(LENGTHS))
        answers = torch.zeros(len(LENGTHS), 2, dtype=torch.int64)
        logits = torch.randn(2, packed.tokens, generator=torch.Generator().manual_seed(0)).bfloat16()
        loss = span_loss(logits[0], logits[1], packed, answers)
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, loop_loss(*logits.float(), list(LENGTHS), answers))

    def test_other_windows_have_no_effect(self):
        packed = batch(*random_windows((5, 7)))
        answers = torch.tensor([[0, 0], [2, 3]])
        logits = torch.zeros(2, 12, requires_grad=True)
        alone = span_loss(logits[0, :5], logits[1, :5], batch(*random_windows((5,))), answers[:1])
        both = span_loss(logits[0], logits[1], packed, answers)
        other = span_loss(logits[0, 5:], logits[1, 5:], batch(*random_windows((7,))), answers[1:])
        torch.testing.assert_close(both, alone + other)
