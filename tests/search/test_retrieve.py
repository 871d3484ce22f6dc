"""Which passages of long texts are read: BM25 as a loop writes it, and cuts that lose nothing."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth.search.retrieve import Passage, bm25, rank_passages, split_passages, widened

words = st.sampled_from(["river", "rivers", "The", "mill", "Mühle", "42", "inventor", "invention", "x", "İ", "東京"])
texts = st.lists(st.lists(words, max_size=12).map(" ".join), min_size=1, max_size=6)
odd = st.text(alphabet="ab. \n\r!?é😀東。", max_size=200)


def by_hand(question, passages):
    """Robertson's formula with Lucene's idf, term by term."""

    def split(text):
        apart = re.sub("([\u3040-\u9fff])", r" \1 ", text.lower())  # each a word of its own
        return [word[:6] for word in re.findall(r"\w+", apart)]

    k1, b = 1.2, 0.75
    bags = [split(passage) for passage in passages]
    mean = max(1.0, sum(map(len, bags)) / len(bags))
    scores = []
    for bag in bags:
        score = 0.0
        for word in set(split(question)):
            having = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            f = bag.count(word)
            score += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * len(bag) / mean))
        scores.append(score)
    return scores


@given(st.lists(words, max_size=5).map(" ".join), texts)
def test_bm25_equals_the_formula(question, passages):
    pieces = [Passage(i, 0, len(text)) for i, text in enumerate(passages)]
    np.testing.assert_allclose(bm25(question, passages, pieces), by_hand(question, passages), rtol=1e-12, atol=1e-12)


def test_endings_do_not_matter():
    passages = ["Nothing here.", "He invented it.", "Nor here."]
    pieces = split_passages(passages)
    assert [one for one, _ in rank_passages("Whose invention?", passages, pieces, 1)] == [pieces[1]]


@given(texts, st.integers(1, 8))
def test_the_best_come_first(passages, count):
    pieces = [Passage(i, 0, len(text)) for i, text in enumerate(passages)]
    scores = by_hand("the river mill", passages)
    wanted = sorted((round(score, 9) for score in scores), reverse=True)[:count]
    chosen = rank_passages("the river mill", passages, pieces, count)
    assert [round(score, 9) for _, score in chosen] == wanted
    assert [round(scores[passage.document], 9) for passage, _ in chosen] == wanted


@given(st.lists(odd, min_size=1, max_size=3), st.integers(1, 50))
def test_passages_cover_all_once(passages, size):
    pieces = split_passages(passages, size)
    for number, text in enumerate(passages):
        mine = [piece for piece in pieces if piece.document == number]
        assert "".join(text[piece.begin : piece.past] for piece in mine) == text
        assert all(0 < len(piece) <= size for piece in mine[:-1])
        assert mine[0].begin == 0
        assert len(mine[-1]) <= size


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("one two\n\nthree. Four\nfive six seven", "one two\n\n"),
        ("one two\r\n\r\nthree. Four\nfive six seven", "one two\r\n\r\n"),
        ("one two three. Four\nfive six seven eight", "one two three. Four\n"),
        ("one two three. Four five six seven eight", "one two three. "),
        ("one two three four five six seven eight", "one two three four "),
        ("onetwothreefourfivesixseveneight", "onetwothreefourfivesi"),
    ],
)
def test_where_a_text_is_cut(text, first):
    assert split_passages([text], 21)[0].past == len(first)


def test_wide_characters_make_short_passages():
    """A passage is about a window, whatever its script: the time that reading takes does not grow eightfold."""
    latin, wide = "Harrison built clocks. " * 1000, "東京は日本の首都です。" * 2000
    assert {len(piece) for piece in split_passages([wide])[:-1]} == {300}
    assert max(map(len, split_passages([latin]))) > 1100
    assert split_passages([latin]) == split_passages([latin], width=1)
    mixed = split_passages(["東京 (Tokyo) は日本の首都です。" * 500])
    assert all(len(piece) + 3 * len(re.findall("[\u3000-\u9fff]", text_of(piece))) <= 1200 for piece in mixed)


def text_of(piece, text="東京 (Tokyo) は日本の首都です。" * 500):
    return text[piece.begin : piece.past]


def test_questions_in_such_a_script_find_their_passage():
    filler = "私は毎日学校へ行きます。" * 100
    text = filler + "時計はハリソンが作りました。" + filler
    pieces = split_passages([text])
    ((best, _),) = rank_passages("時計は誰が作りましたか", [text], pieces, 1)
    assert "ハリソン" in text[best.begin : best.past]


@given(odd, st.integers(1, 40), st.integers(0, 30))
def test_a_passage_grows_by_whole_words(text, size, margin):
    for piece in split_passages([text], size):
        wide = widened(piece, text, margin)
        assert max(0, piece.begin - margin) <= wide.begin <= piece.begin
        assert piece.past <= wide.past <= min(len(text), piece.past + margin)
        for place, own in ((wide.begin, piece.begin), (wide.past, piece.past)):
            if place not in (0, own, len(text)):
                assert text[place - 1].isspace() or text[place].isspace()
