"""Bootstrap and randomisation against scipy, by simulation, and by enumeration."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.score import compare
from quoth.score.significance import bootstrap

scores = st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 2 / 3, 0.8, 1.0]), min_size=1, max_size=30)


def some_scores(n, seed):
    """Like F1: many ones and zeros, some fractions."""
    rng = np.random.default_rng(seed)
    return rng.choice([0.0, 1.0, 0.5, 2 / 3, 0.4, 0.8], n, p=[0.2, 0.5, 0.1, 0.1, 0.05, 0.05])


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_interval_agrees_with_scipy(level):
    values = some_scores(300, 1)
    expected = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, confidence_level=level, method="percentile", rng=5
    ).confidence_interval
    found = bootstrap(values, level=level, resamples=20_000)
    assert found.mean == pytest.approx(values.mean())
    # The standard error of the mean is 0.024 here, that of a quantile from 20,000 draws about a 50th of it.
    assert [found.low, found.high] == pytest.approx(list(expected), abs=0.0015)


def test_interval_of_distinct_numbers_agrees_with_scipy():
    values = np.random.default_rng(2).normal(size=200)
    expected = scipy.stats.bootstrap((values,), np.mean, method="percentile", rng=5).confidence_interval
    found = bootstrap(values)
    assert [found.low, found.high] == pytest.approx(list(expected), abs=0.008)


def test_counting_repeats_draws_from_the_same_distribution_as_indices():
    values = some_scores(600, 8)
    by_count = bootstrap(values, resamples=20_000)
    # Moving every score by next to nothing makes them distinct, so that indices are drawn.
    by_index = bootstrap(values + np.arange(600) * 1e-12, resamples=20_000)
    assert [by_count.low, by_count.high] == pytest.approx([by_index.low, by_index.high], abs=0.001)


def test_interval_holds_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(3)
    trials, hits = 400, 0
    for trial in range(trials):
        found = bootstrap(rng.random(150) < 0.7, resamples=1000, seed=trial)
        hits += found.low <= 0.7 <= found.high
    # 95 % ± 4 standard errors of a count of 400, less the known slight shortness of the percentile interval.
    assert 0.89 < hits / trials < 0.99


def test_p_value_is_uniform_when_runs_are_equally_good():
    rng = np.random.default_rng(4)
    found = [compare(rng.random(80), rng.random(80), resamples=500, seed=i).p_value for i in range(300)]
    assert scipy.stats.kstest(found, "uniform").pvalue > 0.001


def test_p_value_agrees_with_scipy():
    ours, theirs = some_scores(120, 6), some_scores(120, 9)
    result = scipy.stats.permutation_test(
        (ours - theirs,), np.mean, permutation_type="samples", n_resamples=20_000, rng=7
    )
    found = compare(ours, theirs, resamples=20_000)
    assert found.difference.mean == pytest.approx(result.statistic)
    assert found.p_value == pytest.approx(result.pvalue, abs=0.02)


def test_p_value_agrees_with_all_sign_choices():
    differences = np.array([0.5, 0.5, -0.25, 1.0, 1 / 3, 0.0, -1 / 3, 0.2])
    sums = np.array([np.dot(signs, differences) for signs in itertools.product([-1, 1], repeat=8)])
    exact = np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9)
    found = compare(differences, np.zeros(8), resamples=50_000)
    assert found.p_value == pytest.approx(exact, abs=0.01)


@given(scores, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_runs_may_change_places(values, random):
    ours, theirs = np.array(values), np.array(random.sample(values, len(values)))
    one, other = compare(ours, theirs, resamples=300), compare(theirs, ours, resamples=300)
    assert one.p_value == other.p_value
    assert one.difference.mean == -other.difference.mean
    assert one.questions == other.questions == len(values)
    assert one.difference.low - 1e-9 <= one.difference.high


def test_the_interval_is_mirrored_when_runs_change_places():
    ours, theirs = some_scores(200, 10), some_scores(200, 11)
    one, other = compare(ours, theirs).difference, compare(theirs, ours).difference
    assert [one.low, one.high] == pytest.approx([-other.high, -other.low], abs=0.005)


@given(scores)
@settings(max_examples=30, deadline=None)
def test_identical_runs_do_not_differ(values):
    found = compare(values, values, resamples=200)
    assert found.p_value == 1.0
    assert (found.difference.mean, found.difference.low, found.difference.high) == (0, 0, 0)


@given(scores, st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_the_seed_decides(values, seed):
    assert bootstrap(values, resamples=100, seed=seed) == bootstrap(values, resamples=100, seed=seed)
    found = bootstrap(values, resamples=100, seed=seed)
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9


def test_a_clear_difference_is_found():
    ours = np.ones(100)
    theirs = ours.copy()
    theirs[:20] = 0
    found = compare(ours, theirs)
    assert found.difference.mean == pytest.approx(0.2)
    assert found.difference.low > 0.1
    assert found.p_value == 1 / 10_001


def test_memory_is_bounded_even_if_all_scores_are_distinct():
    values = np.random.default_rng(0).random(12_000)
    tracemalloc.start()
    bootstrap(values, resamples=400)
    compare(values, values[::-1], resamples=400)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6  # all at once would be 400 × 12,000 × 8 = 38 MB for the counts alone, twice with `2 * x`


@pytest.mark.parametrize("values", [[], [[0.0, 1.0]], [0.0, float("nan")]])
def test_mistakes_are_named(values):
    with pytest.raises(QuothError, match="need a list of finite numbers"):
        bootstrap(values)


def test_runs_over_different_questions_are_refused():
    with pytest.raises(QuothError, match="the same questions: 2 scores against 1"):
        compare([1, 0], [1])
