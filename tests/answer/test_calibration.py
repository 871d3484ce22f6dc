"""Thresholds, calibration and risk–coverage against brute force, scipy and sklearn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from quoth.answer.calibration import (
    Calibration,
    Threshold,
    area_under_risk_coverage,
    best_threshold,
    expected_calibration_error,
    fit_calibration,
    risk_coverage,
)
from quoth.errors import QuothError

eighths = st.integers(0, 8).map(lambda x: x / 8)  # sums of them are exact
spread = st.one_of(st.just(0.0), st.floats(1e-6, 1e3), st.floats(-1e3, -1e-6))
margins = st.one_of(st.integers(-3, 3).map(float), st.floats(-50, 50), st.just(math.inf))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(eighths, st.sampled_from([0.0, 1.0]), margins), min_size=1, max_size=25))
def test_the_best_threshold_is_that_of_a_loop_over_all(rows):
    answered, abstained, margin = (list(column) for column in zip(*rows))

    def mean(threshold):
        return sum(n if m > threshold else a for a, n, m in rows) / len(rows)

    finite = sorted({m for m in margin if m < math.inf})
    tried = [float(np.nextafter(finite[0], -math.inf)), *finite] if finite else [0.0]
    best = max(tried, key=mean)  # the first, i.e. smallest, of the best
    assert best_threshold(answered, abstained, margin) == Threshold(best, mean(best))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_no_threshold_gives_more_f1(n, seed):
    rng = np.random.default_rng(seed)
    answered, abstained = rng.random(n), (rng.random(n) < 0.5).astype(float)
    margin = rng.integers(-9, 9, n) / 3
    found = best_threshold(answered, abstained, margin)
    means = [np.where(margin > t, abstained, answered).mean() for t in np.append(margin, -99)]
    assert found.score == pytest.approx(max(means), abs=1e-12)
    assert np.where(margin > found.value, abstained, answered).mean() == pytest.approx(found.score, abs=1e-12)


def test_equal_margins_change_sides_together():
    # Answering the first alone would give 3/3, but no threshold parts it from the second.
    assert best_threshold([1, 0, 0], [0, 1, 1], [2.0, 2.0, 5.0]).score == pytest.approx(2 / 3)


def sample(seed, n=400, bias=0.7, temperature=2.5):
    rng = np.random.default_rng(seed)
    margin = rng.normal(0, 5, n)
    return margin, rng.random(n) < 1 / (1 + np.exp(-(margin - bias) / temperature))


def log_loss(margin, truth, temperature, bias):
    logit = (margin - bias) / temperature
    return float(np.mean(np.logaddexp(0, logit) - truth * logit))


@pytest.mark.parametrize("seed", range(10))
def test_the_temperature_is_that_of_scipy(seed):
    margin, truth = sample(seed)
    ours = fit_calibration(margin, truth)
    theirs = minimize(lambda log_t: log_loss(margin, truth, math.exp(log_t[0]), 0.0), [0.0], tol=1e-12)
    assert ours.bias == 0.0
    assert ours.temperature == pytest.approx(math.exp(theirs.x[0]), rel=1e-4)
    assert log_loss(margin, truth, ours.temperature, 0.0) <= theirs.fun + 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_temperature_and_bias_are_those_of_sklearn(seed):
    margin, truth = sample(seed)
    ours = fit_calibration(margin * 100, truth, bias=True)
    theirs = LogisticRegression(C=1e9, tol=1e-10, max_iter=1000).fit(margin[:, None], truth)
    assert ours.temperature == pytest.approx(100 / theirs.coef_[0, 0], rel=1e-4)
    assert ours.bias == pytest.approx(-100 * theirs.intercept_[0] / theirs.coef_[0, 0], rel=1e-4)
    np.testing.assert_allclose(ours.probability(margin * 100), theirs.predict_proba(margin[:, None])[:, 1], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(spread, st.booleans()), min_size=1, max_size=12),
    st.booleans(),
)
def test_any_data_give_a_bounded_fit_no_worse_than_a_search(rows, bias):
    margin, truth = np.array([m for m, _ in rows]), np.array([t for _, t in rows], float)
    ours = fit_calibration(margin, truth, bias=bias)
    unit = float(np.abs(margin).mean()) or 1.0
    assert 0.0099 <= ours.temperature / unit <= 100.01
    assert math.isfinite(ours.bias)
    x = margin / unit

    def loss(w):
        logit = w[0] * x + (w[1] if bias else 0.0)
        return float(np.mean(np.logaddexp(0, logit) - truth * logit))

    theirs = minimize(loss, [1.0, 0.0], bounds=[(0.01, 100), (-100, 100)], method="L-BFGS-B")
    assert log_loss(margin, truth, ours.temperature, ours.bias) <= theirs.fun + 1e-6


def test_separable_and_one_sided_data():
    sure = fit_calibration([-3.0, -1.0, 1.0, 2.0], [0, 0, 1, 1])
    assert sure.temperature == pytest.approx(0.01 * 1.75)
    assert sure.probability([-1.0, 1.0, math.inf]).tolist() == pytest.approx([0.0, 1.0, 1.0])
    wrong_way = fit_calibration([-1.0, 1.0], [1, 0])
    assert wrong_way.temperature == pytest.approx(100)
    always = fit_calibration([-3.0, 1.0], [1, 1], bias=True)
    assert (always.probability([-3.0, 1.0]) > 0.999).all()


def test_infinite_margins_are_left_out_of_the_fit():
    margin, truth = sample(0)
    more = fit_calibration(np.append(margin, math.inf), np.append(truth, False))
    assert more == fit_calibration(margin, truth)
    with pytest.raises(QuothError, match="nothing to calibrate on"):
        fit_calibration([math.inf], [1])


def test_probability_of_extreme_margins():
    assert Calibration(1e-3).probability([-1e9, 0.0, 1e9]).tolist() == [0.0, 0.5, 1.0]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 1.0])), st.booleans()), min_size=1),
    st.integers(1, 20),
)
def test_calibration_error_is_that_of_a_loop(rows, bins):
    total = 0.0
    for b in range(bins):
        inside = [(p, y) for p, y in rows if (b < p * bins <= b + 1) or (b == 0 and p == 0)]
        if inside:
            gap = sum(y for _, y in inside) / len(inside) - sum(p for p, _ in inside) / len(inside)
            total += len(inside) / len(rows) * abs(gap)
    ours = expected_calibration_error([p for p, _ in rows], [y for _, y in rows], bins)
    assert ours == pytest.approx(total, abs=1e-12)


def test_a_calibrated_model_has_a_small_error():
    margin, truth = sample(5, n=20_000)
    fitted = fit_calibration(margin, truth, bias=True)
    assert expected_calibration_error(fitted.probability(margin), truth) < 0.02
    assert expected_calibration_error(Calibration(0.3).probability(margin), truth) > 0.05


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.integers(0, 4).map(float), st.floats(-9, 9)), eighths), min_size=1))
def test_risk_and_coverage_are_those_of_a_loop(rows):
    coverage, risk = risk_coverage([c for c, _ in rows], [r for _, r in rows])
    points = []
    for level in sorted({c for c, _ in rows}, reverse=True):
        inside = [r for c, r in rows if c >= level]
        points.append((len(inside) / len(rows), 1 - sum(inside) / len(inside)))
    np.testing.assert_allclose(np.stack([coverage, risk], axis=1), points, atol=1e-12)
    area = np.mean([next(r for cov, r in points if sum(d >= c for d, _ in rows) / len(rows) == cov) for c, _ in rows])
    assert area_under_risk_coverage(coverage, risk) == pytest.approx(area, abs=1e-12)


def test_a_perfect_order_has_the_least_area():
    correct = np.array([1, 1, 1, 0, 0, 1, 0, 1.0])
    best = area_under_risk_coverage(*risk_coverage(correct, correct))
    worst = area_under_risk_coverage(*risk_coverage(-correct, correct))
    assert best < worst
    coverage, risk = risk_coverage(np.arange(8), correct)
    assert coverage[-1] == 1.0
    assert risk[-1] == pytest.approx(3 / 8)


def test_what_does_not_fit_is_told():
    with pytest.raises(QuothError, match=r"scores_if_not has shape \(1,\) but must have shape \(2,\)"):
        best_threshold([1, 0], [1], [0.0, 1.0])
    with pytest.raises(QuothError, match="no NaN"):
        best_threshold([1], [1], [math.nan])
    with pytest.raises(QuothError, match=r"within \[0, 1\]"):
        expected_calibration_error([1.5], [1])
    with pytest.raises(QuothError, match="at least one"):
        risk_coverage([], [])
