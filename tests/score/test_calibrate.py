"""Fitting a calibration: planted models come back, and no article has a part in its own probabilities."""

from dataclasses import replace

import numpy as np
import pytest

from answer.planted import planted_reader
from quoth import QuothError
from quoth.answer.confidence import NO_ANSWER, RIGHT, WRONG
from quoth.answer.logistic import fit_softmax, softmax_probabilities
from quoth.data import Question
from quoth.data.dataset import Gold
from quoth.score.calibrate import (
    Sample,
    cross_fit,
    equal_mass_error,
    fit_confidence,
    outcomes,
    quality,
    reliability,
    sample,
)


def drawn(count, seed=0, name="a", shift=0.0):
    """Questions whose outcome is drawn from a softmax of two features."""
    random = np.random.default_rng(seed)
    values = np.stack([random.normal(2 + shift, 9, count), random.normal(4, 3, count)], axis=1)
    z = (values - [2, 4]) / [9, 3]
    p = softmax_probabilities(z @ np.array([[0.4, 0.8], [-2.0, 0.3]]).T + [0.5, 1.0])
    outcome = (random.random((count, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(0, 2)
    f1 = (outcome == RIGHT).astype(float)
    article = np.arange(count) * 6 // count
    return Sample(name, ("margin", "gap"), values, outcome, f1, outcome != NO_ANSWER, article), p


def test_a_sample_of_weight_two_counts_as_two():
    """Against the same sample given twice; and a part of a sample keeps its weight."""
    one, other = drawn(400)[0], drawn(700, seed=1, name="b", shift=3)[0]
    heavy = replace(other, weight=2.0)
    assert heavy.part(other.article == 0).weight == 2.0
    found, twice = fit_confidence([one, heavy]), fit_confidence([one, other, other])
    assert found.mean == pytest.approx(twice.mean, abs=1e-12)
    assert found.probabilities(one.values) == pytest.approx(twice.probabilities(one.values), abs=1e-6)
    assert found.probabilities(one.values) != pytest.approx(
        fit_confidence([one, other]).probabilities(one.values), abs=1e-3
    )


class TestSoftmax:
    def test_a_planted_model_is_recovered(self):
        one, p = drawn(60_000)
        fitted = fit_confidence([one], ridge=1e-7)
        found = fitted.probabilities(one.values)
        assert np.abs(found - p).mean() < 0.01
        slope = np.array([fitted.right.weights, fitted.no_answer.weights]) / np.array(fitted.scale)
        assert slope == pytest.approx(np.array([[0.4, 0.8], [-2.0, 0.3]]) / [9, 3], abs=0.01)

    def test_the_gradient_is_0_at_the_minimum(self):
        one, _ = drawn(500)
        x = (one.values - one.values.mean(0)) / one.values.std(0)
        weight = np.random.default_rng(1).random(500)
        w, b = fit_softmax(x, one.outcome, weight, 0.01)
        p = softmax_probabilities(x @ w.T + b)[:, 1:]
        error = (p - np.eye(3)[one.outcome][:, 1:]) * (weight / weight.sum())[:, None]
        assert error.T @ x + 0.01 * w == pytest.approx(np.zeros((2, 2)), abs=1e-8)
        assert error.sum(0) == pytest.approx(0, abs=1e-5)

    def test_a_weight_can_be_held_at_0(self):
        one, _ = drawn(500)
        w, _ = fit_softmax(one.values / 5, one.outcome, np.ones(500), 0.01, without=[(0, 1)])
        assert w[0, 1] == 0 != w[1, 1]

    def test_separable_data_have_a_finite_fit(self):
        x = np.repeat([[-1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], 20, axis=0)
        w, b = fit_softmax(x, np.repeat([0, 1, 2], 20), np.ones(60), 1e-3)
        assert np.isfinite(w).all()
        assert (softmax_probabilities(x @ w.T + b).argmax(1) == np.repeat([0, 1, 2], 20)).all()


class TestFit:
    def test_each_set_has_the_same_weight(self):
        small, _ = drawn(300, 1, "small")
        large, _ = drawn(900, 2, "large", shift=5.0)
        thrice = Sample(
            "large",
            large.features,
            *(
                np.concatenate([getattr(large, key)] * 3)
                for key in ("values", "outcome", "f1", "has_answer", "article")
            ),
        )
        one, other = fit_confidence([small, large]), fit_confidence([small, thrice])
        assert one.right.weights == pytest.approx(other.right.weights)
        assert one.mean == pytest.approx(other.mean)

    def test_more_margin_never_means_less(self):
        """Planted the wrong way round, the margin's weight for right is held at 0."""
        one, _ = drawn(3000)
        turned = Sample("a", one.features, one.values * [-1, 1], one.outcome, one.f1, one.has_answer, one.article)
        assert fit_confidence([turned]).right.weights[0] == 0

    @pytest.mark.parametrize("lacking", [WRONG, RIGHT, NO_ANSWER])
    def test_what_cannot_be_fitted_is_one_line(self, lacking):
        one, _ = drawn(300)
        kept = one.part(one.outcome != lacking)
        with pytest.raises(QuothError, match=r"^a: a calibration is fitted on right answers, wrong answers and"):
            fit_confidence([kept])
        with pytest.raises(QuothError):
            fit_confidence([])


def test_cross_fitting_uses_no_own_article():
    """Whatever becomes of an article's questions, their own probabilities stay; those of others change."""
    one, _ = drawn(600, 1)
    two, _ = drawn(400, 2, "b")
    before = cross_fit([one, two])
    mine = one.article == 2
    outcome = one.outcome.copy()
    outcome[mine] = (outcome[mine] + 1) % 3
    changed = Sample("a", one.features, one.values, outcome, one.f1, one.has_answer, one.article)
    after = cross_fit([changed, two])
    assert (before[0][mine] == after[0][mine]).all()
    for old, new in ((before[0][~mine], after[0][~mine]), (before[1], after[1])):
        assert (old != new).all()


def test_quality_by_hand():
    values = np.array([[5.0], [4.0], [3.0], [2.0], [1.0]])
    outcome = np.array([RIGHT, WRONG, NO_ANSWER, RIGHT, NO_ANSWER])
    f1 = np.array([1.0, 0.2, 0.0, 0.8, 0.0])
    one = Sample("a", ("margin",), values, outcome, f1, outcome != NO_ANSWER, np.arange(5))
    p = np.array([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3], [0.2, 0.2, 0.6], [0.2, 0.45, 0.35], [0, 0.1, 0.9]])
    facts = quality(one, p)
    assert facts["f1"] == pytest.approx(100 * (1 + 0.2 + 1 + 0.8 + 1) / 5)
    assert facts["HasAns_f1"] == pytest.approx(100 * 2 / 3)
    assert facts["NoAns_f1"] == 100
    assert (facts["answered"], facts["right_of_answered"]) == (pytest.approx(0.6), pytest.approx(2 / 3))
    assert facts["accuracy_at_80"] == 0.5
    assert facts["raw"]["accuracy_at_80"] == 0.5
    assert facts["area_under_risk_coverage"] == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4 + 3 / 5) / 5)
    assert facts["raw"]["area_under_risk_coverage"] == pytest.approx((0 + 1 / 2 + 2 / 3 + 2 / 4 + 3 / 5) / 5)


def test_bins_of_equal_mass():
    p = np.array([0.9, 0.1, 0.3, 0.5])
    truth = np.array([1.0, 0.0, 1.0, 0.0])
    assert reliability(p, truth, 2) == [(2, pytest.approx(0.2), 0.5), (2, pytest.approx(0.7), 0.5)]
    assert equal_mass_error(p, truth, 2) == pytest.approx((2 * 0.3 + 2 * 0.2) / 4)
    assert equal_mass_error(truth, truth) == 0


def asked(count=12):
    """Questions for a bird that some passages have and some have not, of four articles."""
    texts = [f"Number {i}: they kept a {'heron' if i % 3 else 'stork'} by mill {i}." for i in range(count)]
    found = []
    for i, text in enumerate(texts):
        gold = (Gold("heron", text.index("heron")),) if "heron" in text and i % 4 else ()
        if i % 5 == 0 and "heron" in text:
            gold = (Gold("mill", text.index("mill")),)
        found.append(
            Question(str(i), f"Which bird was kept by mill {i}?", text, gold, impossible=not gold, title=f"t{i % 4}")
        )
    return found


def test_of_a_reader(minilm):
    reader, questions = planted_reader(minilm, "heron"), asked()
    one = sample(reader, questions, "birds")
    assert len(one) == 12
    f1, outcome, has_answer = outcomes(questions, ["heron" if "heron" in q.context else "?" for q in questions])
    spans = ["heron" in q.context for q in questions]
    assert (one.outcome[spans] == outcome[spans]).all()
    assert (one.f1[spans] == f1[spans]).all()
    assert (one.has_answer == has_answer).all()
    assert one.article.tolist() == [i % 4 for i in range(12)]
