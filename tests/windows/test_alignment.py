"""A teacher's windows and logits on a student's tokens, against loops written by hand over characters."""

import itertools
import math

import numpy as np
import pytest
import tokenizers as library

from quoth.data import Question
from quoth.windows import make_windows
from quoth.windows.alignment import LEAST, compared, matching_windows, onto_tokens, reading_identity, token_range
from quoth.windows.tokenizer import Tokenizer
from support.tokenizers_by_kind import CORPUS, KINDS

TEXT = " ".join(CORPUS[:6])
QUESTIONS = [
    Question("a", "Who wrote the book?", TEXT, ()),
    Question("b", "Which town is the capital of Japan, and which one of Korea?", TEXT, ()),
    Question("c", "Where were whales seen?", "  \u00ad Whales \t off\n\nNantucket. ", ()),
    Question("d", "What is this?", "", ()),
    Question("e", "¿Dónde?", "naïve café", ()),
]
SETTINGS = {"max_length": 40, "step": 12, "max_query_length": 9}


def pair(student, teacher):
    windows = make_windows(QUESTIONS, student, **SETTINGS)
    return windows, matching_windows(windows, QUESTIONS, teacher, SETTINGS["max_query_length"])


def shifted(tokenizer: Tokenizer) -> Tokenizer:
    """The same words under other ids, and two separators between question and passage: as MPNet's beside BERT's."""
    vocabulary = tokenizer.backend.get_vocab()
    words = {"<s>": 0, "<pad>": 1, "</s>": 2, "[UNK]": 3, **{w: i + 4 for w, i in vocabulary.items() if w[0] != "["}}
    words = dict(zip(words, range(len(words))))
    made = library.Tokenizer(library.models.WordPiece(words, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = tokenizer.backend.normalizer, tokenizer.backend.pre_tokenizer
    made.post_processor = library.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return Tokenizer(made)


def softmax(values):
    top = max(values)
    powers = [math.exp(v - top) for v in values]
    return [p / sum(powers) for p in powers]


def by_hand(student, teacher, logits):
    """Start and end probability of each token of one student window."""
    first, past = teacher.passage
    places = [0, *range(first, past)]
    mine = list(range(*student.passage))
    found = {0: [0.0, 0.0], **{i: [0.0, 0.0] for i in mine}}
    solid = [i for i in mine if student.spans[i][1] > student.spans[i][0]] or mine
    direct = student.spans[slice(*student.passage)].tolist() == teacher.spans[first:past].tolist()
    for which in (0, 1):
        for place, p in zip(places, softmax([float(logits[which][i]) for i in places])):
            if place == 0 or not mine:
                found[0][which] += p
                continue
            if direct:
                target = student.passage[0] + place - first
            elif which == 0:
                after = [i for i in solid if student.spans[i][1] > teacher.spans[place][0]]
                target = after[0] if after else solid[-1]
            else:
                before = [i for i in solid if student.spans[i][0] < teacher.spans[place][1]]
                target = before[-1] if before else solid[0]
            found[target][which] += p
    return found


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(KINDS, KINDS)))
def test_the_loop_by_hand(all_tokens, mine, other):
    student, teacher = pair(all_tokens[mine], all_tokens[other])
    logits = np.random.default_rng(0).normal(0, 3, (2, len(teacher.ids))).astype(np.float32)
    found, aligned = onto_tokens(student, teacher, logits)
    assert found.dtype == np.float16
    assert np.array_equal(np.isneginf(found), np.broadcast_to(~compared(student), found.shape))
    same = 0
    for w in range(len(student)):
        here, theirs = student[w], teacher[w]
        same += here.spans[slice(*here.passage)].tolist() == theirs.spans[slice(*theirs.passage)].tolist()
        wanted = by_hand(here, theirs, logits[:, teacher.starts[w] : teacher.starts[w + 1]])
        row = found[:, student.starts[w] : student.starts[w + 1]].astype(np.float64)
        for place, values in wanted.items():
            for which, p in enumerate(values):
                if p:
                    assert row[which, place] == pytest.approx(math.log(p), abs=2e-3, rel=1e-3)
                else:
                    assert row[which, place] == LEAST
        for which in (0, 1):
            assert np.exp(row[which]).sum() == pytest.approx(1, abs=5e-3)
    assert aligned == same
    if mine == other:
        assert aligned == len(student)


@pytest.mark.parametrize(("mine", "other"), list(itertools.product(KINDS, KINDS)))
def test_the_teacher_reads_the_same_characters(all_tokens, mine, other):
    student, teacher = pair(all_tokens[mine], all_tokens[other])
    encoded = all_tokens[other].encode([question.context for question in QUESTIONS])
    assert len(student) == len(teacher)
    assert teacher.question.tolist() == student.question.tolist()
    for w in range(len(student)):
        ours, theirs = (one.spans[slice(*one.passage)] for one in (student[w], teacher[w]))
        if not len(ours):
            assert not len(theirs)
            continue
        whole = encoded[student.question[w]].spans.tolist()
        for low, high in ours.tolist():
            for place in range(low, high):  # what the student sees, the teacher sees, unless it has no token for it
                inside = any(a <= place < b for a, b in theirs.tolist())
                assert inside or not any(a <= place < b for a, b in whole)
        for low, high in theirs.tolist():  # and no token that lies beside
            assert high > ours[0, 0] or low == high
            assert low < ours[-1, 1] or low == high


def test_equal_tokenizers_give_equal_windows(tokens):
    student, teacher = pair(tokens, tokens)
    for name in ("ids", "types", "spans", "words", "starts", "question", "passage"):
        assert np.array_equal(getattr(student, name), getattr(teacher, name)), name


def test_a_shifted_vocabulary_aligns_everywhere(all_tokens):
    """Other ids, two separators: each token has the very logit of its counterpart, but for a constant."""
    student, teacher = pair(all_tokens["wordpiece"], shifted(all_tokens["wordpiece"]))
    assert (teacher.lengths == student.lengths + 1).all()
    logits = np.random.default_rng(1).normal(0, 3, (2, len(teacher.ids))).astype(np.float32)
    found, aligned = onto_tokens(student, teacher, logits)
    assert aligned == len(student)
    for w in range(len(student)):
        first, past = teacher.passage[w]
        x = logits[:, teacher.starts[w] + np.r_[0, first:past]].astype(np.float64)
        first, past = student.passage[w]
        y = found[:, student.starts[w] + np.r_[0, first:past]].astype(np.float64)
        assert np.allclose(y, x - np.log(np.exp(x).sum(1, keepdims=True)), atol=1e-2)


def test_tokens_in_a_row_with_these_spans_are_taken():
    """Tokens without characters at the edge belong to the window whose tokens they are."""
    spans = np.array([[0, 2], [3, 3], [3, 5], [5, 5], [5, 8]])
    assert token_range(spans[2:4], spans) == (2, 4)
    assert token_range(spans[1:3], spans) == (1, 3)
    assert token_range(np.array([[4, 6]]), spans) == (2, 5)
    assert token_range(spans[:0], spans) == (0, 0)


def test_extreme_logits(all_tokens):
    """Much larger than exp can take, and −1e30 where a head has masked something."""
    student, teacher = pair(all_tokens["wordpiece"], all_tokens["bytelevel"])
    logits = np.full((2, len(teacher.ids)), -1e30, np.float32)
    logits[:, teacher.starts[:-1]] = 5e4
    found, _ = onto_tokens(student, teacher, logits)
    assert (found[:, student.starts[:-1]] == 0).all()
    rest = compared(student)
    rest[student.starts[:-1]] = False
    assert (found[:, rest] == LEAST).all()


def test_the_identity_is_of_texts_and_windows(all_tokens):
    windows = make_windows(QUESTIONS, all_tokens["wordpiece"], **SETTINGS)
    other = make_windows(QUESTIONS, all_tokens["wordpiece"], **{**SETTINGS, "step": 11})
    changed = [Question("a", "Who wrote the books?", TEXT, ()), *QUESTIONS[1:]]
    made = {
        reading_identity(windows, QUESTIONS, 9),
        reading_identity(windows, QUESTIONS, 8),
        reading_identity(other, QUESTIONS, 9),
        reading_identity(windows, changed, 9),
    }
    assert len(made) == 4
    renamed = [Question("z", q.question, q.context, ()) for q in QUESTIONS]
    assert reading_identity(windows, renamed, 9) == reading_identity(windows, QUESTIONS, 9)
