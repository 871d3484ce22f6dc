"""Windows against two truths: run_squad's doc_span loop for `step`, tokenizers' own truncation for `overlap`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from quoth.data.dataset import Gold, Question
from quoth.errors import QuothError
from quoth.windows import questions as windows_module
from quoth.windows.columns import concatenate
from quoth.windows.labels import span_labels
from quoth.windows.questions import iter_windows, make_windows

VOCABULARY = [
    "the",
    "fox",
    "whales",
    "café",
    "東京は",
    "서울은",
    "e\u0301",
    "😀",
    "[SEP]",
    "</s>",
    "a\0b",
    "\r\n",
    "''",
]
text = st.lists(st.one_of(st.sampled_from(VOCABULARY), st.text(max_size=4)), max_size=40).map(" ".join)
question_text = st.lists(st.sampled_from(VOCABULARY), max_size=10).map(" ".join)
question_list = st.lists(st.tuples(question_text, st.integers(0, 2)), max_size=6)
passage_list = st.tuples(text, text, st.sampled_from(["", " \n\u3000", "fox"]))


def ask(pairs) -> list[Question]:
    return [Question(str(i), question, context, ()) for i, (question, context) in enumerate(pairs)]


def doc_spans(tokens: int, space: int, step: int) -> list[tuple[int, int]]:
    """Devlin's loop in run_squad.py: (start, length) of each window over the passage."""
    spans = []
    start = 0
    while start < tokens:
        length = min(tokens - start, space)
        spans.append((start, length))
        if start + length == tokens:
            break
        start += min(length, step)
    return spans or [(0, 0)]  # ours: a passage without tokens has one window


@given(
    asked=question_list,
    passages=passage_list,
    limit=st.integers(1, 8),
    more=st.integers(1, 20),
    step=st.integers(1, 30),
)
@settings(max_examples=40, deadline=None)
def test_step_is_run_squads_loop(tokenizer, tokens, asked, passages, limit, more, step):
    questions = ask([(question, passages[i]) for question, i in asked])
    template = tokens.template
    max_length = template.special + limit + more
    windows = make_windows(questions, tokens, max_length=max_length, max_query_length=limit, step=step)
    expected = []
    for i, question in enumerate(questions):
        q = tokenizer.encode(question.question, add_special_tokens=False).ids[:limit]
        passage = tokens.encode([question.context])[0]
        space = max_length - template.special - len(q)
        for start, length in doc_spans(len(passage), space, step):
            ids = [*template.prefix, *q, *template.middle, *passage.ids[start : start + length].tolist()]
            first = len(template.prefix) + len(q) + len(template.middle)
            spans = [[-1, -1]] * first + passage.spans[start : start + length].tolist()
            spans += [[-1, -1]] * len(template.suffix)
            expected.append((i, [*ids, *template.suffix], spans, (first, first + length)))
    found = [(w.question, w.ids.tolist(), w.spans.tolist(), w.passage) for w in windows]
    assert found == expected
    assert (windows.lengths <= max_length).all()


@given(asked=question_list, passages=passage_list, more=st.integers(1, 20), overlap=st.integers(0, 19))
@settings(max_examples=40, deadline=None)
def test_overlap_is_the_truncation_of_tokenizers(kind, tokenizer, tokens, asked, passages, more, overlap):
    """As a fast tokenizer with truncation="only_second", stride=overlap, return_overflowing_tokens=True."""
    questions = ask([(question, passages[i]) for question, i in asked])
    longest = max((len(ids) for ids in tokens.ids([q.question for q in questions])), default=0)
    max_length = tokens.template.special + longest + overlap + more
    windows = make_windows(questions, tokens, max_length=max_length, max_query_length=None, overlap=overlap)
    reference = Tokenizer.from_str(tokenizer.to_str())
    reference.enable_truncation(max_length, stride=overlap, strategy="only_second")
    expected = []
    for i, question in enumerate(questions):
        whole = reference.encode(question.question, question.context)
        for e in [whole, *whole.overflowing]:
            # In all windows but the first the library forgets that a template may give passages the type 0.
            types = e.type_ids if tokens.template.passage_type else [0] * len(e)
            expected.append((i, e.ids, types, e.sequence_ids.count(1)))
    found = [(w.question, w.ids.tolist(), w.types.tolist(), w.passage[1] - w.passage[0]) for w in windows]
    assert found == expected


def test_defaults_are_384_64_and_a_step_of_128(all_tokens):
    tokens = all_tokens["wordpiece"]
    questions = ask([("fox " * 100, "dog " * 1000)])
    windows = make_windows(questions, tokens)
    explicit = make_windows(questions, tokens, max_length=384, max_query_length=64, step=128)
    assert windows.ids.tolist() == explicit.ids.tolist()
    n = len(tokens.encode(["dog " * 1000])[0])
    assert len(windows) == len(doc_spans(n, 384 - 3 - 64, 128))
    assert windows.lengths.max() == 384


def test_columns(tokens):
    questions = ask([("fox?", "the fox " * 50), ("who", "short"), ("who", "")])
    windows = make_windows(questions, tokens, max_length=40, max_query_length=10, step=7)
    n, t = len(windows), len(windows.ids)
    for column, dtype, shape in (
        (windows.ids, np.int32, (t,)),
        (windows.types, np.int32, (t,)),
        (windows.spans, np.int32, (t, 2)),
        (windows.starts, np.int64, (n + 1,)),
        (windows.question, np.int32, (n,)),
        (windows.passage, np.int32, (n, 2)),
        (windows.lengths, np.int64, (n,)),
    ):
        assert column.dtype == dtype
        assert column.shape == shape
    assert (np.diff(windows.question) >= 0).all()
    assert set(windows.ids[windows.starts[:-1]].tolist()) == {tokens.template.prefix[0]}
    for window in windows:
        first, past = window.passage
        inside = np.zeros(len(window), bool)
        inside[first:past] = True
        assert ((window.spans >= 0).all(axis=1) == inside).all()
    assert windows[-1].passage[0] == windows[-1].passage[1]
    with pytest.raises(IndexError):
        windows[n]


@pytest.mark.parametrize("empty", ["", "   ", "\r\n\t", "\u3000\u00a0"])
def test_an_empty_passage_gives_one_window(all_tokens, empty):
    windows = make_windows(ask([("who", empty)]), all_tokens["wordpiece"])
    template = all_tokens["wordpiece"].template
    q = all_tokens["wordpiece"].ids(["who"])[0]
    assert windows[0].ids.tolist() == [*template.prefix, *q, *template.middle, *template.suffix]
    assert len(windows) == 1


def test_no_questions(all_tokens):
    windows = make_windows([], all_tokens["wordpiece"])
    assert len(windows) == 0
    assert windows.spans.shape == (0, 2)
    assert windows.starts.tolist() == [0]
    assert windows.packed([]).tokens == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"step": 1, "overlap": 1}, "not both"),
        ({"step": 0}, "step is 0"),
        ({"step": -3}, "step is -3"),
        ({"overlap": -1}, "overlap is -1"),
        ({"max_length": 67}, "max_length=67 has no space"),
        ({"max_length": 3, "max_query_length": None}, "max_length=3 has no space"),
        ({"max_length": 0}, "max_length is 0"),
        ({"max_query_length": 0}, "max_query_length is 0"),
        ({"overlap": 317}, "overlap=317 cannot advance"),
        ({"overlap": 381, "max_query_length": None}, "overlap=381 cannot advance"),
    ],
)
def test_settings_are_checked_before_any_work(all_tokens, options, says):
    with pytest.raises(QuothError, match=says):
        iter_windows([], all_tokens["wordpiece"], **options)  # not even begun
    with pytest.raises(QuothError, match="at_most is 0"):
        iter_windows([], all_tokens["wordpiece"], at_most=0)


def test_a_long_question(all_tokens):
    tokens = all_tokens["wordpiece"]
    questions = [Question("short", "fox", "the dog", ()), Question("long-one", "fox " * 50, "the dog", ())]
    cut = make_windows(questions, tokens, max_length=40, max_query_length=12)
    assert cut[1].passage[0] == 14
    with pytest.raises(QuothError, match="question long-one"):
        make_windows(questions, tokens, max_length=40, max_query_length=None)
    assert len(make_windows(questions, tokens, max_length=400, max_query_length=None)[1]) > 50


def test_an_overlap_that_cannot_advance_for_one_question(all_tokens):
    """With space for 10 and an overlap of 10, a passage that fits is fine, a longer one is an error."""
    tokens = all_tokens["wordpiece"]
    q, special = len(tokens.ids(["fox fox fox"])[0]), tokens.template.special
    options = {"max_length": special + q + 10, "max_query_length": None, "overlap": 10}
    assert len(make_windows([Question("fits", "fox fox fox", "the the", ())], tokens, **options)) == 1
    with pytest.raises(QuothError, match="question stuck"):
        make_windows([Question("stuck", "fox fox fox", "the " * 20, ())], tokens, **options)


@pytest.mark.parametrize("at_most", [1, 3, 1000])
def test_in_pieces_it_is_the_same(all_tokens, monkeypatch, at_most):
    """Blocks of questions, held passages that come back later, and pieces leave no trace."""
    tokens = all_tokens["bytelevel"]
    contexts = ["the fox " * 30, "whales", "", "the lazy dog " * 11]
    questions = ask([("who " * (i % 3), contexts[i * 7 % 4]) for i in range(23)])
    options = {"max_length": 30, "max_query_length": 8, "overlap": 5}
    whole = make_windows(questions, tokens, **options)
    monkeypatch.setattr(windows_module, "BLOCK", 4)
    parts = list(iter_windows(questions, tokens, **options, at_most=at_most))
    assert max(len(part) for part in parts) <= at_most
    joined = concatenate(parts)
    for name in ("ids", "types", "spans", "starts", "question", "passage"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))
        assert getattr(joined, name).dtype == getattr(whole, name).dtype


def test_a_passage_is_tokenised_once(all_tokens, monkeypatch):
    tokens = all_tokens["wordpiece"]
    seen: list[str] = []
    encode = tokens.encode
    monkeypatch.setattr(tokens, "encode", lambda texts: seen.extend(texts) or encode(texts))
    monkeypatch.setattr(windows_module, "BLOCK", 3)
    contexts = ["the fox", "the dog", "whales"]
    make_windows(ask([("who", contexts[i % 3]) for i in range(20)]), tokens)
    assert sorted(seen) == sorted(contexts)


def test_long_passages_end_a_block(all_tokens, monkeypatch):
    monkeypatch.setattr(windows_module, "BLOCK_CHARACTERS", 10)
    questions = ask([("who", c) for c in ("the fox jumps", "the dog", "whales", "", "fox fox fox fox")])
    assert list(windows_module._blocks(questions)) == [(0, 1), (1, 3), (3, 5)]
    assert make_windows(questions, all_tokens["wordpiece"]).question.tolist() == [0, 1, 2, 3, 4]


def test_packed(tokens):
    windows = make_windows(
        ask([("fox?", "the fox " * 20), ("who", "whales")]), tokens, max_length=30, max_query_length=10
    )
    chosen = [len(windows) - 1, 0, 2, 0]
    packed = windows.packed(chosen)
    assert packed.ids.tolist() == [i for w in chosen for i in windows[w].ids.tolist()]
    assert packed.types.tolist() == [i for w in chosen for i in windows[w].types.tolist()]
    assert packed.positions.tolist() == [i for w in chosen for i in range(len(windows[w]))]
    assert packed.lengths == tuple(len(windows[w]) for w in chosen)
    assert packed.starts.tolist() == [0, *np.cumsum(packed.lengths).tolist()]
    assert {column.dtype for column in (packed.ids, packed.types, packed.positions, packed.starts)} == {
        np.dtype(np.int32)
    }


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_targets_by_brute_force(tokens, data):
    """The tokens that share a character with the answer, if the answer lies between the window's ends."""
    context = data.draw(text.filter(lambda t: t.strip()))
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    gold = Gold(context[start:end], start)
    question = Question("x", "who", context, (gold,) if gold.text.strip() else ())
    windows = make_windows([question], tokens, max_length=14, max_query_length=6, step=3)
    found = span_labels(windows, [question])
    assert found.dtype == np.int32
    solid = [i for i in range(start, end) if not context[i].isspace()]
    for window, (low, high) in zip(windows, found.tolist(), strict=True):
        spans = window.spans.tolist()
        first, past = window.passage
        inside = solid and past > first and spans[first][0] <= solid[0] and solid[-1] < spans[past - 1][1]
        owned = [set(range(*spans[i])) if first <= i < past else set() for i in range(len(spans))]
        own = [i for i, characters in enumerate(owned) if inside and characters & set(range(solid[0], solid[-1] + 1))]
        assert [low, high] == ([own[0], own[-1]] if own else [0, 0])


def test_targets_point_at_the_words(all_tokens):
    tokens = all_tokens["wordpiece"]
    context = "The quick brown fox jumps over the lazy dog. " * 3
    start = context.index("lazy dog", 50)
    questions = [
        Question("in", "who", context, (Gold("lazy dog", start), Gold("fox", 16))),
        Question("impossible", "who", context, (), impossible=True),
        Question("space", "who", context, (Gold(" fox ", 15),)),
        Question("half", "who", context, (Gold("rown f", 11),)),
    ]
    windows = make_windows(questions, tokens, max_length=30, max_query_length=6, step=5)
    found = span_labels(windows, questions)
    words = {"in": "lazy dog", "space": "fox", "half": "brown fox"}
    seen = set()
    for window, (low, high) in zip(windows, found.tolist(), strict=True):
        question = questions[window.question]
        if (low, high) != (0, 0):
            seen.add(question.id)
            said = context[window.spans[low, 0] : window.spans[high, 1]]
            assert said in (words[question.id], words[question.id].replace("brown", "rown"))
    assert seen == set(words)
    away = make_windows(questions[:1], tokens, max_length=16, max_query_length=6, step=5)
    assert (span_labels(away, questions[:1]) == 0).all(axis=1).any()


def test_typed_special_tokens_do_not_change_the_structure(tokens):
    evil = "[SEP] </s> [CLS] <s> [PAD] <pad> <mask> [MASK]"
    questions = [Question("1", evil, f"the fox {evil} jumps", (Gold("jumps", 8 + len(evil) + 1),))]
    windows = make_windows(questions, tokens, max_query_length=None)
    window = windows[0]
    template = tokens.template
    q = len(tokens.ids([evil])[0])
    assert window.passage[0] == len(template.prefix) + q + len(template.middle)
    assert window.passage[1] == len(window) - len(template.suffix)
    low, high = span_labels(windows, questions)[0].tolist()
    assert questions[0].context[window.spans[low, 0] : window.spans[high, 1]] == "jumps"


def test_a_long_passage(all_tokens):
    """Long passages go through in pieces; the last word is still at its place."""
    context = "The quick brown fox jumps over the lazy dog, 3.14 times.\n" * 4000 + "whales"
    for name in ("wordpiece", "bytelevel"):
        last = None
        for part in iter_windows(ask([("who", context)]), all_tokens[name], at_most=500):
            assert len(part) <= 500
            last = part
        assert last is not None
        window = last[len(last) - 1]
        assert context[window.spans[window.passage[1] - 1, 1] - 6 :] == "whales"
