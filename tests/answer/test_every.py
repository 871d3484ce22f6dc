"""Answers after the first: their probabilities, and which of them would be given by themselves."""

import math

import pytest

from quoth.answer import Abstention, Reader

TEXT = (
    "The harbour master is Ingrid Solberg. A night costs 25 euros. Boats longer than twelve metres pay 40 euros. "
    "A lost key costs 15 euros. In 1998 Olav Berg retired after thirty-one years."
)
QUESTIONS = ("Who is the harbour master?", "What does it cost?", "Who retired?", "When?", "Who painted the pier?")


@pytest.fixture(scope="module")
def reader():
    return Reader.load()


@pytest.mark.parametrize("question", QUESTIONS)
def test_within_a_window_probabilities_are_as_the_softmax_has_them(reader, question):
    first, *others = reader.find(question, [TEXT], top=200, min_score=0).hits
    assert others
    for other in others:
        ratio = math.exp(other.answer.score - first.answer.score)
        assert other.probability == pytest.approx(first.probability * ratio, rel=1e-4)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_probability_does_not_depend_on_how_many_are_wanted(reader, question):
    texts = [TEXT, TEXT.replace("Solberg", "Dahl"), "The pier is old."]
    few, many = (reader.find(question, texts, top=top, min_score=0).hits for top in (3, 100))
    assert [hit.probability for hit in many[:3]] == pytest.approx([hit.probability for hit in few])
    assert [hit.answer.text for hit in many[:3]] == [hit.answer.text for hit in few]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("least", [0.0, 0.01, 0.3, 1.0])
def test_every_answer_from_a_score_on(reader, question, least):
    everything = reader.find(question, [TEXT, TEXT], top=100, min_score=0).hits
    found = reader.find(question, [TEXT, TEXT], top=100, min_score=least, every=True)
    assert found.hits == [hit for hit in everything if hit.probability >= least]
    assert (found.rejected is None) == bool(found.hits)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_answer_by_the_rule_of_one(reader, question):
    """In one text of one window each must be at least as probable as "no answer" there."""
    alone = reader.find(question, [TEXT])
    found = reader.find(question, [TEXT], top=100, every=True)
    everything = reader.find(question, [TEXT], top=100, min_score=0).hits
    assert found.hits == [hit for hit in everything if hit.probability >= alone.no_answer]
    assert found.hits[:1] == alone.hits
    assert found.rejected == alone.rejected


@pytest.mark.parametrize("threshold", [-20.0, -5.0, 0.0, 5.0, math.inf])
def test_every_answer_by_a_threshold(reader, threshold):
    """Without a calibration: the score of [CLS] is the same for all spans of one window."""
    plain = Reader(reader.runner, reader.tokenizer, max_length=reader.max_length, abstention=Abstention(threshold))
    best = plain.find("What does it cost?", [TEXT], top=100, min_score=0)
    null = best.null_minus_best + best.hits[0].answer.score
    found = plain.find("What does it cost?", [TEXT], top=100, every=True)
    assert found.hits == [hit for hit in best.hits if null - hit.answer.score <= threshold]
