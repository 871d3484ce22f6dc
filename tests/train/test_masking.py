"""Dynamic masking, of tokens and of whole words: by hand, by statistics, and as a function of (seed, step, token)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from quoth import QuothError
from quoth.tasks.examples import Examples
from quoth.tasks.masking import MaskedFeed, Vocabulary, _hash, choose_words, vocabulary
from quoth.windows.columns import Windows
from quoth.windows.packed import NOTHING
from quoth.windows.tokenizer import Tokenizer

CLS, SEP, MASK, VOCAB = 1, 2, 3, 500
WORDS = Vocabulary(MASK, VOCAB, (0, CLS, SEP, MASK))


def make_windows(sizes, rng):
    """A window of words of these sizes, in tokens: [CLS] A [SEP] B [SEP], all ids of words above 3."""
    ids, words = [CLS], [-1]
    for number, size in enumerate(sizes):
        if number == len(sizes) // 2:
            ids, words = [*ids, SEP], [*words, -1]
        ids += rng.integers(4, VOCAB, size).tolist()
        words += [number] * size
    return [*ids, SEP], [*words, -1]


def make_examples(rows, seed=0):
    """Windows of words of these sizes, one a row."""
    rng = np.random.default_rng(seed)
    made = [make_windows(sizes, rng) for sizes in rows]
    ids, words = (np.concatenate([np.array(row[part], np.int32) for row in made]) for part in (0, 1))
    starts = np.append(0, np.cumsum([len(row[0]) for row in made]))
    n = len(made)
    nothing = np.zeros(len(ids), np.int32)
    windows = Windows(ids, nothing, np.stack([nothing] * 2, 1), words, starts, np.arange(n), np.zeros((n, 2)))
    return Examples(windows, np.arange(n) % 2)


def feed_of(rows, seed=0, whole_words=False):
    return MaskedFeed(make_examples(rows), WORDS, torch.device("cpu"), seed, whole_words=whole_words)


def chosen_of(packed):
    found = torch.zeros(packed.tokens, dtype=torch.bool)
    found[packed.places[packed.targets != NOTHING]] = True
    return found


def original(examples, indices):
    return torch.from_numpy(examples.windows.packed(indices).ids)


sizes = st.lists(st.sampled_from([1, 1, 1, 2, 3, 5]), min_size=2, max_size=60)


class TestOneBatch:
    @given(st.lists(sizes, min_size=1, max_size=8), st.integers(0, 99), st.integers(0, 9))
    @settings(max_examples=80, deadline=None)
    def test_whole_words_up_to_15_per_cent_and_never_special_tokens(self, rows, step, seed):
        examples = make_examples(rows)
        indices = np.random.default_rng(step).permutation(len(rows))
        packed, labels = feed_of(rows, seed, whole_words=True).batch(indices, step)
        ids, chosen = original(examples, indices), chosen_of(packed)
        assert labels.tolist() == (indices % 2).tolist()
        assert packed.lengths == tuple(examples.windows.lengths[indices].tolist())
        assert not chosen[ids < 4].any()
        assert torch.equal(packed.ids[~chosen], ids[~chosen])
        assert sorted(packed.targets[packed.targets != NOTHING].tolist()) == sorted(ids[chosen].tolist())
        for place, target in zip(packed.places.tolist(), packed.targets.tolist()):
            assert target == (ids[place] if chosen[place] else NOTHING)
        for w, index in enumerate(indices):
            here = slice(int(packed.starts[w]), int(packed.starts[w + 1]))
            words = examples.windows.words[examples.windows.starts[index] : examples.windows.starts[index + 1]]
            of = {word: chosen[here][words == word] for word in range(len(rows[index]))}
            assert all(part.all() or not part.any() for part in of.values())
            limit = max(1, round(0.15 * sum(rows[index])))
            taken = int(chosen[here].sum())
            assert taken <= limit
            left = [len(part) for part in of.values() if not part.any()]
            assert taken == limit or 1 not in left  # it stops short only where no word of one token is left

    @given(st.lists(sizes, min_size=1, max_size=8), st.integers(0, 99), st.integers(0, 9))
    @settings(max_examples=80, deadline=None)
    def test_exactly_15_per_cent_of_the_tokens_and_never_special_ones(self, rows, step, seed):
        """The default: max(1, round(0.15 n)) of the n tokens of a window that may be masked, whatever their words."""
        examples = make_examples(rows)
        indices = np.random.default_rng(step).permutation(len(rows))
        packed, _ = feed_of(rows, seed).batch(indices, step)
        ids, chosen = original(examples, indices), chosen_of(packed)
        assert not chosen[ids < 4].any()
        assert torch.equal(packed.ids[~chosen], ids[~chosen])
        for w, index in enumerate(indices):
            here = slice(int(packed.starts[w]), int(packed.starts[w + 1]))
            assert int(chosen[here].sum()) == max(1, round(0.15 * sum(rows[index])))

    def test_words_are_taken_in_their_random_order(self):
        """By hand: sizes 2, 1, 3, 1, 1 in the order 3rd, 1st, 2nd, 5th, 4th word, with room for 4 tokens."""
        size = torch.tensor([0, 2, 2, 1, 0, 3, 3, 3, 1, 1, 0])
        after = torch.tensor([0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0])
        order = torch.tensor([0, 20, 20, 30, 0, 10, 10, 10, 50, 40, 0])
        starts, window = torch.tensor([0, 11]), torch.zeros(11, dtype=torch.long)
        found = choose_words(order, size, after, starts, window, torch.tensor([4]))
        # 3 tokens of the third word; the first word does not fit; then the second, which has one token
        assert found.nonzero().flatten().tolist() == [3, 5, 6, 7]
        found = choose_words(order, size, after, starts, window, torch.tensor([5]))
        assert found.nonzero().flatten().tolist() == [1, 2, 5, 6, 7]

    def test_a_word_that_is_partly_special_is_left_alone(self):
        examples = make_examples([[2, 1, 1, 1, 1, 1]])
        examples.windows.ids[1] = 0  # an unknown sign inside a word
        whole, tokens = (
            MaskedFeed(examples, WORDS, torch.device("cpu"), whole_words=whole_words) for whole_words in (True, False)
        )
        masked = torch.zeros(10, dtype=torch.long)
        for step in range(50):
            assert not chosen_of(whole.batch(np.array([0]), step)[0])[1:3].any()
            masked += chosen_of(tokens.batch(np.array([0]), step)[0])
        assert masked[1] == 0  # the sign itself
        assert masked[2] > 0  # the other token of its word

    def test_a_text_without_words(self):
        examples = make_examples([[1, 1, 1]])
        examples.windows.words[:] = -1
        with pytest.raises(QuothError, match="no token that can be masked"):
            MaskedFeed(examples, WORDS, torch.device("cpu"))


ROWS = ([1, 2, 1, 1, 3, 1, 1, 2] * 8, [1] * 90, [2, 1] * 30)


@pytest.fixture(scope="module", params=[False, True], ids=["tokens", "whole words"])
def drawn(request):
    """Many steps over the same windows: ids, which are chosen, what they became."""
    return draw(request.param)


def draw(whole_words):
    feed = feed_of(ROWS, whole_words=whole_words)
    ids = original(make_examples(ROWS), np.arange(3))
    found = [feed.batch(np.arange(3), step)[0] for step in range(400)]
    chosen = torch.stack([chosen_of(packed) for packed in found])
    return ids, chosen, torch.stack([packed.ids for packed in found])


class TestStatistics:
    def test_15_per_cent_of_each_window_rounded(self, drawn):
        """96, 90 and 90 tokens: 14.4, 13.5 and 13.5, which Python rounds to 14 each."""
        _, chosen, _ = drawn
        lengths = make_examples(ROWS).windows.lengths.tolist()
        assert all((part.sum(1) == 14).all() for part in chosen.split(lengths, 1))

    @pytest.mark.parametrize("whole_words", [False, True])
    def test_15_per_cent_of_many_windows(self, whole_words):
        rng = np.random.default_rng(0)
        rows = [rng.choice([1, 1, 1, 2, 3], rng.integers(20, 90)).tolist() for _ in range(300)]
        packed, _ = feed_of(rows, whole_words=whole_words).batch(np.arange(300), 0)
        may = sum(map(sum, rows))
        assert int(chosen_of(packed).sum()) / may == pytest.approx(0.15, abs=0.001)

    def test_every_token_alike(self, drawn):
        """Of words of one token, each must come as often as another; binomial bounds at a millionth."""
        ids, chosen, _ = drawn
        starts = np.append(0, np.cumsum(make_examples(ROWS).windows.lengths))
        plain = chosen[:, starts[1] : starts[2]][:, ids[starts[1] : starts[2]] > 3].sum(0)
        expected = round(0.15 * 90) / 90  # of 90 words of one token
        for count in plain.tolist():
            assert binomtest(count, 400, expected).pvalue > 1e-6

    def test_tokens_of_words_of_any_size_alike(self):
        """Without whole words the tokens of long words come as often as others, and each for itself."""
        ids, chosen, _ = draw(whole_words=False)
        words, starts = make_examples(ROWS).windows.words, np.append(0, np.cumsum(make_examples(ROWS).windows.lengths))
        for w, tokens in enumerate((96, 90, 90)):
            here = slice(int(starts[w]), int(starts[w + 1]))
            for count in chosen[:, here][:, ids[here] > 3].sum(0).tolist():
                assert binomtest(count, 400, 14 / tokens).pvalue > 1e-6
        # Two pieces of a word: two of 14 drawn without replacement, 14/n · 13/(n − 1).
        first = np.flatnonzero((words[:-1] == words[1:]) & (words[:-1] >= 0))
        first = first[first < starts[1]]
        both = int((chosen[:, first] & chosen[:, first + 1]).sum())
        assert binomtest(both, 400 * len(first), 14 / 96 * 13 / 95).pvalue > 1e-6

    def test_80_10_10(self, drawn):
        ids, chosen, became = drawn
        was = ids.expand_as(became)[chosen]
        new = became[chosen]
        total = len(new)
        kept, masked = int((new == was).sum()), int((new == MASK).sum())
        # a random word is [MASK], or the word itself, once in 500
        assert binomtest(masked, total, 0.8 + 0.1 / VOCAB).pvalue > 1e-6
        assert binomtest(kept, total, 0.1 + 0.1 / VOCAB).pvalue > 1e-6
        wrong = new[(new != was) & (new != MASK)]
        assert chisquare(torch.bincount(wrong // 50, minlength=10).numpy()).pvalue > 1e-6
        assert wrong.max() > 490

    def test_pieces_of_a_whole_word_become_masks_apart(self):
        """80/10/10 is drawn for each token, as in BERT's code: two pieces of a word become masks in 64 % of cases."""
        words = make_examples(ROWS).windows.words
        _, chosen, became = draw(whole_words=True)
        first = np.flatnonzero((words[:-1] == words[1:]) & (words[:-1] >= 0))
        both = [(became[:, i] == MASK) & (became[:, i + 1] == MASK) for i in first]
        taken = torch.stack([chosen[:, i] for i in first])
        share = torch.stack(both)[taken].float().mean().item()
        assert share == pytest.approx(0.64, abs=0.03)

    def test_the_hash_is_even(self):
        x = _hash(torch.arange(200_000), 12345, 67890)
        assert x.min() >= 0
        assert x.max() < 2**32
        for shift in (0, 13, 28):
            assert chisquare(torch.bincount((x >> shift) & 15, minlength=16).numpy()).pvalue > 1e-6
        apart = torch.stack([x[:-1], x[1:]]).double()
        assert abs(torch.corrcoef(apart)[0, 1].item()) < 0.01


class TestFunctionOfSeedAndStep:
    ROWS = ([1, 2, 1, 3, 1, 1] * 4,) * 6

    def test_the_same_again_and_other_at_another_step_or_seed(self):
        feed, indices = feed_of(self.ROWS), np.arange(6)
        first = feed.batch(indices, 7)[0]
        torch.rand(3)  # a draw from torch's own state changes nothing
        again = feed_of(self.ROWS).batch(indices, 7)[0]
        assert torch.equal(first.ids, again.ids)
        assert torch.equal(first.places, again.places)
        assert not torch.equal(chosen_of(first), chosen_of(feed.batch(indices, 8)[0]))
        assert not torch.equal(chosen_of(first), chosen_of(feed_of(self.ROWS, seed=1).batch(indices, 7)[0]))

    def test_masks_of_a_window_do_not_depend_on_the_others(self):
        feed = feed_of(self.ROWS)
        whole = feed.batch(np.arange(6), 3)[0].ids.split(list(feed.lengths))
        for part in (np.array([4]), np.array([5, 0, 3])):
            for index, ids in zip(part, feed.batch(part, 3)[0].ids.split(feed.lengths[part].tolist())):
                assert torch.equal(ids, whole[index])

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
    def test_the_same_on_a_gpu(self):
        mine = feed_of(self.ROWS).batch(np.arange(6), 3)[0]
        theirs = MaskedFeed(make_examples(self.ROWS), WORDS, torch.device("cuda")).batch(np.arange(6), 3)[0]
        for name in ("ids", "places", "targets"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name).cpu())

    def test_windows_alike_are_masked_apart(self):
        feed = feed_of([[1] * 60] * 2)
        one, two = chosen_of(feed.batch(np.arange(2), 0)[0]).split(63)
        assert not torch.equal(one, two)

    def test_the_weight_is_that_of_the_mean_number_of_masked_tokens(self):
        feed = feed_of([[1] * 60, [1] * 20, [1] * 20])
        assert feed.weight == pytest.approx(3 / (9 + 3 + 3))


def test_vocabulary(minilm):
    tokens = Tokenizer.load(minilm)
    assert vocabulary(tokens, 30522) == Vocabulary(103, 30522, (0, 100, 101, 102, 103))
    assert vocabulary(tokens, 200).size == 200
    with pytest.raises(QuothError, match=r"no \[MASK\] or <mask>"):
        vocabulary(tokens, 50)
