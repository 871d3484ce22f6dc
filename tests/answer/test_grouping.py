"""Distinct answers and sentences: properties over random hits, against plain loops."""

import re
import string

from hypothesis import given
from hypothesis import strategies as st

from quoth.answer import Answer, Hit
from quoth.answer.grouping import group_answers, group_sentences
from quoth.search import Document

TEXTS = ["In Rome. The Rome of old; a rome, and Paris.", "Paris and Rome. Paris, Rome!", "rome\nthe rome\nPARIS ..."]


def hit(document, start, end, probability=0.5, texts=TEXTS):
    return Hit(document, Answer(texts[document][start:end], start, end, 0.0), probability)


@st.composite
def hits(draw, most=12):
    """Spans of the texts, best first, as a search gives them, but for overlaps, which it does not give."""
    found = []
    for _ in range(draw(st.integers(0, most))):
        document = draw(st.integers(0, len(TEXTS) - 1))
        start = draw(st.integers(0, len(TEXTS[document]) - 1))
        end = draw(st.integers(start + 1, min(len(TEXTS[document]), start + 20)))
        found.append(hit(document, start, end, draw(st.floats(0, 1))))
    return sorted(found, key=lambda one: -one.probability)


def inside(one, other):
    """Whether one of two hits lies in the other."""
    if one.document != other.document:
        return False
    a, b = (set(range(x.answer.start, x.answer.end)) for x in (one, other))
    return a <= b or b <= a


def official(text):
    """The normalisation of the official script, in its own steps."""
    text = "".join(one for one in text.lower() if one not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


class TestAnswers:
    @given(hits())
    def test_a_group_has_one_answer_and_each_answer_one_group(self, found):
        groups = group_answers(found)
        names = [{official(one.answer.text) for one in group} for group in groups]
        assert all(len(name) == 1 for name in names)
        assert len(set.union(set(), *names)) == len(groups)

    @given(hits())
    def test_every_hit_is_a_place_or_the_same_place_as_a_better_one(self, found):
        kept = [one for group in group_answers(found) for one in group]
        for number, one in enumerate(found):
            better = found[:number]
            if any(one is other for other in kept):
                assert not any(inside(one, other) for other in better if any(other is k for k in kept))
            else:
                assert not official(one.answer.text) or any(inside(one, other) for other in better)

    @given(hits())
    def test_the_best_comes_first(self, found):
        groups = group_answers(found)
        assert not found or groups[0][0] is found[0]
        for scores in ([group[0].probability for group in groups], *([h.probability for h in g] for g in groups)):
            assert scores == sorted(scores, reverse=True)

    @given(hits())
    def test_groups_of_what_was_grouped_are_the_same(self, found):
        groups = group_answers(found)
        kept = [one for one in found if any(one is other for group in groups for other in group)]
        assert group_answers(kept) == groups

    def test_by_hand(self):
        rome, the_rome, a_rome = hit(0, 3, 7), hit(0, 9, 17), hit(0, 26, 32)
        other, paris, comma = hit(1, 10, 14), hit(1, 0, 5), hit(0, 32, 33)
        found = [rome, paris, the_rome, other, comma, a_rome, hit(0, 0, 7)]
        assert group_answers(found) == [[rome, the_rome, other, a_rome], [paris]]
        assert group_answers([comma]) == [[comma]], "the best answer is shown, whatever it is"


class TestSentences:
    @staticmethod
    def groups(found):
        documents = [Document(str(i), text) for i, text in enumerate(TEXTS)]
        return group_sentences(found, documents.__getitem__)

    @given(hits())
    def test_every_hit_is_in_one_sentence_that_holds_it(self, found):
        sentences = [one for group in self.groups(found) for one in group]
        assert sorted(map(id, found)) == sorted(id(one) for sentence in sentences for one in sentence.hits)
        for sentence in sentences:
            for one in sentence.hits:
                assert one.document == sentence.document
                assert sentence.start <= one.answer.start < one.answer.end <= sentence.end

    @given(hits())
    def test_sentences_are_apart_and_groups_differ(self, found):
        groups = self.groups(found)
        for one in (sentences := [one for group in groups for one in group]):
            for other in sentences:
                apart = one.end <= other.start or other.end <= one.start
                assert one is other or one.document != other.document or apart
        texts = [{" ".join(TEXTS[one.document][one.start : one.end].split()) for one in group} for group in groups]
        assert all(len(text) == 1 for text in texts)
        assert len(set.union(set(), *texts)) == len(groups)

    @given(hits())
    def test_the_best_comes_first(self, found):
        groups = self.groups(found)
        assert not found or groups[0][0].hits[0] is found[0]
        bests = [group[0].hits[0].probability for group in groups]
        assert bests == sorted(bests, reverse=True)

    def test_the_same_sentence_of_two_documents(self):
        documents = [Document("a", "It is\nso. The pier is  old."), Document("b", "New. The pier is old.")]
        texts = [document.text for document in documents]
        found = [hit(1, 9, 13, 0.9, texts), hit(0, 14, 18, 0.8, texts), hit(1, 0, 3, 0.7, texts)]
        (same, new) = group_sentences(found, documents.__getitem__)
        assert [(one.document, texts[one.document][one.start : one.end]) for one in same] == [
            (1, "The pier is old."),
            (0, "The pier is  old."),
        ]
        assert [one.document for one in new] == [1]
