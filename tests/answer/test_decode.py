"""`decode` against loops over every window and every pair, for odd offsets and any logits."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.answer import decode
from quoth.answer.best_pairs import best_pairs, sliding_max
from quoth.answer.decode import Answer
from quoth.errors import QuothError, QuothWarning
from quoth.runtime.logits import SpanLogits

RULES = ("devlin", "probability", "bertvision")


def build(contexts, windows):
    """Windows and logits from [(question, question tokens, passage spans, start logits, end logits)].

    The logits are those of [CLS] and of the passage; question tokens and [SEP] get 999: not to be read.
    """
    spans, starts, question, passage, start, end = [], [0], [], [], [], []
    for q, asked, chars, s, e in windows:
        spans += [(-1, -1)] * (asked + 2) + list(chars) + [(-1, -1)]
        for flat, values in ((start, s), (end, e)):
            flat += [values[0]] + [999.0] * (asked + 1) + list(values[1:]) + [999.0]
        starts.append(len(spans))
        question.append(q)
        passage.append((asked + 2, asked + 2 + len(chars)))
    columns = SimpleNamespace(
        spans=np.array(spans, np.int32).reshape(-1, 2),
        starts=np.array(starts, np.int64),
        question=np.array(question, np.int32),
        passage=np.array(passage, np.int32).reshape(-1, 2),
    )
    with np.errstate(over="ignore"):
        return columns, SpanLogits(np.array(start, np.float32), np.array(end, np.float32)), contexts


def one(context, s, e, spans=None):
    """One question with one window whose passage tokens are single characters."""
    spans = spans or [(i, i + 1) for i in range(len(s) - 1)]
    return build([context], [(0, 2, spans, s, e)])


# -- the truth: loops in plain Python --------------------------------------------------------------------------------


def softmax(values):
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    return [w / sum(weights) for w in weights]


def is_number(values):
    return all(abs(v) <= 1e38 for v in values)


def pairs_of(chars, s, e, longest, score):
    """Every pair of a window: (score, start token, end token, character span)."""
    for i in range(len(chars)):
        for j in range(i, min(i + longest, len(chars))):
            yield score(s[i + 1], e[j + 1]), i, j, (chars[i][0], chars[j][1])


def has_text(span, context):
    return 0 <= span[0] < span[1] <= len(context)


def distinct(ranked):
    """(score, span) without those whose span came before."""
    seen = set()
    return [(x, span) for x, span in ranked if not (span in seen or seen.add(span))]


def loop_devlin(contexts, windows, n, longest):
    result = []
    for question, context in enumerate(contexts):
        nulls, pool = [], []
        for q, _, chars, s, e in windows:
            if q != question or not is_number(s + e):
                continue
            s, e = np.array(s, np.float32), np.array(e, np.float32)
            nulls.append(float(s[0] + e[0]))
            ranked = sorted(
                pairs_of(chars, s, e, longest, lambda a, b: float(a + b)), key=lambda p: (-p[0], p[1], p[2])
            )
            pool += distinct((x, span) for x, _, _, span in ranked if has_text(span, context))[:n]
        if len(nulls) > 1:
            pool.sort(key=lambda p: (-p[0], p[1]))
        result.append((min(nulls, default=0.0), distinct(pool)[:n]))
    return result


def loop_probability(contexts, windows, longest):
    """The null score and every span with its best probability, best first."""
    result = []
    for question, context in enumerate(contexts):
        nulls, best = [], {}
        for q, _, chars, s, e in windows:
            if q != question or not is_number(s + e):
                continue
            p, r = softmax(np.array(s, np.float32).tolist()), softmax(np.array(e, np.float32).tolist())
            nulls.append(p[0] * r[0])
            for x, _, _, span in pairs_of(chars, p, r, longest, lambda a, b: a * b):
                if has_text(span, context):
                    best[span] = max(best.get(span, 0.0), x)
        result.append((min(nulls, default=0.0), best))
    return result


def loop_bertvision(contexts, windows):
    """For each question the verdicts (product, span or None) of the windows that win, several if nearly tied."""
    result = []
    for question, context in enumerate(contexts):
        verdicts = []
        for q, _, chars, s, e in windows:
            if q != question or not is_number(s + e):
                continue
            s, e = np.array(s, np.float32).tolist(), np.array(e, np.float32).tolist()
            i, j = s.index(max(s)), e.index(max(e))
            # The authors' answer is tokens[i : j + 1], nothing if that is empty or ["[CLS]"]; of these the passage's.
            answer = (["[CLS]", *chars])[i : j + 1]
            inside = answer[1:] if answer[:1] == ["[CLS]"] else answer
            span = (inside[0][0], inside[-1][1]) if inside else None
            span = span if span and has_text(span, context) else None
            verdicts.append((softmax(s)[i] * softmax(e)[j], span))
        best = max((product for product, _ in verdicts), default=0.0)
        result.append([v for v in verdicts if v[0] > best * (1 - 1e-5)] or [(0.0, None)])
    return result


# -- what hypothesis draws --------------------------------------------------------------------------------

whole = st.integers(-3, 3).map(float)  # many ties
plain = st.floats(-20, 20, width=32)
odd = st.one_of(plain, st.sampled_from([math.nan, math.inf, -math.inf, 1e30, -3e37, 2e38, 1e300, -0.0]))


@st.composite
def passages(draw, context, wild):
    """Spans of 0 to 7 tokens: in order, perhaps sharing or lacking characters; or anything at all."""
    if wild:
        place = st.integers(-2, len(context) + 2)
        return draw(st.lists(st.tuples(place, place), max_size=7))
    cuts = sorted(draw(st.lists(st.integers(0, len(context)), max_size=14)))
    return list(zip(cuts[::2], cuts[1::2]))


@st.composite
def cases(draw, numbers, wild=False):
    contexts = draw(st.lists(st.text(max_size=12), min_size=1, max_size=3))
    windows = []
    for question, context in enumerate(contexts):
        for _ in range(draw(st.integers(0, 3))):
            chars = draw(passages(context, wild))
            logits = st.lists(numbers, min_size=len(chars) + 1, max_size=len(chars) + 1)
            windows.append((question, draw(st.integers(0, 2)), chars, draw(logits), draw(logits)))
    return contexts, windows


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", QuothWarning)
        return decode(*args, **options)


def found(decoded, i):
    real = np.isfinite(decoded.score[i])
    spans = zip(decoded.start[i][real].tolist(), decoded.end[i][real].tolist())
    return list(zip(decoded.score[i][real].tolist(), spans))


# -- equality with the loops --------------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(
    case=st.one_of(cases(whole), cases(plain), cases(odd), cases(whole, wild=True)),
    n=st.integers(1, 6),
    longest=st.integers(1, 8),
)
def test_devlin_equals_the_loop(case, n, longest):
    decoded = quiet(*build(case[0], case[1]), n_best=n, max_answer_tokens=longest)
    for i, (null, spans) in enumerate(loop_devlin(*case, n, longest)):
        assert decoded.null[i] == null
        assert found(decoded, i) == spans


@settings(max_examples=300, deadline=None)
@given(
    case=st.one_of(cases(whole), cases(plain), cases(odd), cases(plain, wild=True)),
    n=st.integers(1, 6),
    longest=st.integers(1, 8),
)
def test_probabilities_are_those_of_the_loop(case, n, longest):
    decoded = quiet(*build(case[0], case[1]), n_best=n, max_answer_tokens=longest, rule="probability")
    for i, (null, best) in enumerate(loop_probability(*case, longest)):
        assert decoded.null[i] == pytest.approx(null, rel=1e-4, abs=1e-30)
        ours = found(decoded, i)
        assert [x for x, _ in ours] == pytest.approx(sorted(best.values())[::-1][:n], rel=1e-4, abs=1e-30)
        assert all(best[span] == pytest.approx(x, rel=1e-4, abs=1e-30) for x, span in ours)


@settings(max_examples=200, deadline=None)
@given(case=st.one_of(cases(whole), cases(plain), cases(odd), cases(whole, wild=True)))
def test_bertvision_equals_the_loop(case):
    decoded = quiet(*build(case[0], case[1]), rule="bertvision")
    for i, winners in enumerate(loop_bertvision(*case)):
        ours = found(decoded, i)
        span = ours[0][1] if ours else None
        assert span in [where for _, where in winners]
        assert (ours[0][0] if ours else decoded.null[i]) == pytest.approx(winners[0][0], rel=1e-4)
        assert len(ours) <= 1
        assert decoded.predictions()[i] == (case[0][i][slice(*span)] if span else "")


@settings(max_examples=300, deadline=None)
@given(
    case=st.one_of(cases(odd), cases(odd, wild=True)),
    rule=st.sampled_from(RULES),
    threshold=st.one_of(plain, st.just(math.inf)),
)
def test_every_answer_is_in_its_text(case, rule, threshold):
    decoded = quiet(*build(case[0], case[1]), rule=rule, n_best=3)
    texts = decoded.predictions(threshold)
    assert len(texts) == len(decoded) == len(case[0])
    for i, context in enumerate(case[0]):
        answers = decoded.answers(i, threshold)
        assert answers[0].text == texts[i]
        for answer in answers:
            assert 0 <= answer.start <= answer.end <= len(context)
            assert context[answer.start : answer.end] == answer.text
            assert math.isfinite(answer.score)
            assert answer.no_answer == (answer.text == "")


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_best_pairs_of_larger_windows(length, k, longest, seed):
    rng = np.random.default_rng(seed)
    start, end = rng.integers(-4, 4, (2, 3, length)).astype(np.float32)
    score, i, j = best_pairs(start, end, k, longest)
    for row in range(3):
        pairs = [
            (-float(start[row, a] + end[row, b]), a, b)
            for a in range(length)
            for b in range(a, min(a + longest, length))
        ]
        real = np.isfinite(score[row])
        ours = list(zip((-score[row][real]).tolist(), i[row][real].tolist(), j[row][real].tolist()))
        assert ours == sorted(pairs)[:k]


def test_sliding_max():
    values = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    for width in range(1, 51):
        expected = [[row[i : i + width].max() for i in range(51 - width)] for row in values]
        np.testing.assert_array_equal(sliding_max(values, width), expected)


def test_many_windows_in_many_chunks(monkeypatch):
    monkeypatch.setattr("quoth.answer.chunks.CELLS", 50)
    rng = np.random.default_rng(3)
    contexts = ["".join(rng.choice(list("abcdef"), 60)) for _ in range(30)]
    windows = []
    for q in range(30):
        for first in range(0, int(rng.integers(1, 30)), 8):
            size = int(rng.integers(0, 25))
            chars = [(first + t, first + t + 1) for t in range(size)]
            windows.append((q, 1, chars, *rng.standard_normal((2, size + 1)).astype(np.float32).tolist()))
    decoded = decode(*build(contexts, windows), n_best=7, max_answer_tokens=5)
    for i, (null, spans) in enumerate(loop_devlin(contexts, windows, 7, 5)):
        assert (decoded.null[i], found(decoded, i)) == (null, spans)


# -- single behaviours --------------------------------------------------------------------------------


def test_ties_go_to_the_smaller_start_then_the_shorter():
    decoded = decode(*one("abc", [0, 1, 1, 1], [0, 1, 1, 1]), n_best=6)
    assert [span for _, span in found(decoded, 0)] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_a_span_of_two_windows_counts_once_with_its_best_score():
    chars = [(0, 1), (1, 2)]
    windows = [(0, 0, chars, [0, 5, 0], [0, 0, 5]), (0, 0, chars, [0, 7, 0], [0, 0, 5])]
    decoded = decode(*build(["ab"], windows))
    assert found(decoded, 0) == [(12.0, (0, 2)), (7.0, (0, 1)), (5.0, (1, 2))]


def test_tokens_that_share_characters_do_not_crowd_out_other_spans():
    # Three tokens of one emoji: 6 of the 10 pairs are the same span.
    decoded = decode(*one("😀b", [0, 9, 9, 9, 0], [0, 9, 9, 9, 0], [(0, 1)] * 3 + [(1, 2)]), n_best=3)
    assert [span for _, span in found(decoded, 0)] == [(0, 1), (0, 2), (1, 2)]


def test_the_threshold_is_strict_and_places_no_answer():
    decoded = decode(*one("ab", [1, 2, 0], [1, 1, 0]), n_best=3)  # spans 3, 2, 0; null 2
    assert decoded.null_minus_best.tolist() == [-1.0]
    assert decoded.predictions(-1.0) == ["a"]
    assert decoded.predictions(-1.5) == [""]
    assert [a.text for a in decoded.answers(0, 0.0)] == ["a", "ab", "", "b"]
    assert [a.text for a in decoded.answers(0, -1.5)] == ["", "a", "ab", "b"]
    assert [a.text for a in decoded.answers(0, math.inf)] == ["a", "ab", "b"]
    assert decoded.answers(0)[2] == Answer("", 0, 0, 2.0, no_answer=True)


def test_the_null_score_is_the_smallest_of_the_windows():
    windows = [(0, 0, [(0, 1)], [4, 1], [1, 1]), (0, 0, [], [2], [1]), (0, 0, [(0, 1)], [9, 1], [9, 1])]
    decoded = decode(*build(["ab"], windows))
    assert decoded.null.tolist() == [3.0]
    assert found(decoded, 0) == [(2.0, (0, 1))]


def test_no_passage_no_window_no_characters():
    contexts = ["", "ab", "ab"]
    windows = [(0, 3, [], [2], [1]), (2, 1, [(1, 1)], [0, 5], [0, 5])]
    decoded = decode(*build(contexts, windows))
    assert decoded.predictions(math.inf) == ["", "", ""]
    assert [decoded.answers(i, math.inf) for i in range(3)] == [
        [Answer("", 0, 0, 3.0, True)],
        [Answer("", 0, 0, 0.0, True)],
        [Answer("", 0, 0, 0.0, True)],
    ]
    assert np.isposinf(decoded.null_minus_best).all()


def test_from_cls_to_a_token_of_the_passage_is_an_answer_for_bertvision():
    """The authors' get_output_strings: tokens[start : end + 1], and only [] and ["[CLS]"] are "no answer"."""
    start_is_cls = decode(*one("abc", [9, 0, 1, 2], [0, 1, 9, 2]), rule="bertvision")
    assert start_is_cls.predictions() == ["ab"]
    assert start_is_cls.answers(0)[0].end == 2
    end_is_cls = decode(*one("abc", [0, 0, 9, 2], [9, 1, 0, 2]), rule="bertvision")
    both_are = decode(*one("abc", [9, 0, 1, 2], [9, 1, 0, 2]), rule="bertvision")
    assert end_is_cls.predictions() == both_are.predictions() == [""]


def test_of_tied_windows_the_first_counts_for_bertvision():
    windows = [(0, 0, [(a, a + 1)], [0, 3], [0, 3]) for a in (1, 0)]
    assert decode(*build(["ab"], windows), rule="bertvision").predictions() == ["b"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_window_that_is_not_finite_is_skipped_and_named(rule, bad):
    windows = [
        (0, 0, [(0, 1), (1, 2)], [0, 9, 1], [0, bad, 9]),
        (0, 0, [(0, 1)], [0, 4], [0, 4]),
        (1, 0, [(0, 1)], [bad, 4], [0, 4]),
    ]
    with pytest.warns(QuothWarning) as caught:
        decoded = decode(*build(["ab", "cd"], windows), rule=rule, ids=["first", "second"])
    assert len(caught) == 1
    assert "window 1 of 2 of question first, window 1 of 1 of question second" in str(caught[0].message)
    assert decoded.predictions() == ["a", ""]
    assert decoded.answers(1) == [Answer("", 0, 0, 0.0, no_answer=True)]


def test_logits_outside_the_passage_do_not_matter():
    windows, logits, contexts = one("ab", [0, 1, 2], [0, 1, 2])
    logits.start[[1, 2, 3, -1]] = np.nan
    logits.end[[1, 2, 3, -1]] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(windows, logits, contexts).predictions() == ["b"]


def test_half_precision_and_read_only_logits():
    windows, logits, contexts = one("abc", [0, 3, 1, 2], [0, 1, 2, 3])
    for kind in (np.float16, np.float64):
        half = SpanLogits(logits.start.astype(kind), logits.end.astype(kind))
        half.start.flags.writeable = half.end.flags.writeable = False
        assert decode(windows, half, contexts).answers(0) == decode(windows, logits, contexts).answers(0)


def test_nothing_at_all():
    decoded = decode(*build([], []))
    assert (len(decoded), decoded.predictions()) == (0, [])
    assert decode(*build(["a", "b"], [])).predictions() == ["", ""]


def test_what_does_not_fit_is_told():
    windows, logits, contexts = one("ab", [0, 1, 2], [0, 1, 2])
    with pytest.raises(QuothError, match=r"end logits have shape \(3,\) but the windows have 7 tokens"):
        decode(windows, SpanLogits(logits.start, logits.end[:3]), contexts)
    with pytest.raises(QuothError, match="questions 0 to 0"):
        decode(windows, logits, [])
    with pytest.raises(QuothError, match="n_best=0"):
        decode(windows, logits, contexts, n_best=0)
    with pytest.raises(QuothError, match="'squad' is unknown"):
        decode(windows, logits, contexts, rule="squad")
