"""The rule of verdicts: cases by hand, scipy as an independent reference, and properties that it must have."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quoth.experiments import verdicts
from quoth.experiments.reproduce_claims import rank_correlation
from quoth.experiments.verdicts import LEVEL, judge
from quoth.score.seeds import Estimate

NUMBERS = st.floats(-50, 50)
ESTIMATES = st.builds(Estimate, NUMBERS, st.floats(0.01, 20), st.floats(1, 200))


def above(mean, error=1.0, freedom=10.0):
    return verdicts.Tested("a − b", Estimate(mean, error, freedom))


def near(mean, within, error=1.0, freedom=10.0):
    return verdicts.Tested("a − b", Estimate(mean, error, freedom), -within, within)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ([above(3.0)], "confirmed"),  # t = 3 with 10 degrees of freedom: p 0.013
        ([above(-3.0)], "refuted"),
        ([above(2.2)], "within noise"),  # p 0.052
        ([above(2.3)], "confirmed"),  # p 0.044
        ([above(3.0, freedom=1)], "within noise"),  # p 0.20: two seeds say little
        ([near(0.0, 3.0)], "confirmed"),  # both bounds are three errors away
        ([near(0.0, 2.0)], "within noise"),
        ([near(6.0, 3.0)], "refuted"),
        ([above(3.0), above(0.5)], "within noise"),  # all differences must hold
        ([above(3.0), above(-4.0)], "refuted"),  # one that is clearly wrong is enough
        ([above(-2.5)], "refuted"),  # p 0.031
        ([above(9.0), above(-2.5)], "within noise"),  # the same, but the worse of two: 0.063
        (None, "not testable here"),
    ],
)
def test_by_hand(claim, verdict):
    assert judge([claim])[0].verdict == verdict


@given(ESTIMATES)
def test_above_is_the_two_sided_t_test(estimate):
    (found,) = judge([[verdicts.Tested("a − b", estimate)]])
    wanted = 2 * stats.t.sf(abs(estimate.mean) / estimate.error, estimate.freedom)
    assert found.p_value == pytest.approx(wanted, rel=1e-6, abs=1e-12)
    assert found.verdict == ("within noise" if wanted >= LEVEL else "confirmed" if estimate.mean > 0 else "refuted")


@given(ESTIMATES, st.floats(0.1, 30))
def test_near_is_two_one_sided_tests(estimate, within):
    """Schuirmann 1987: inside if both bounds are rejected; its p-value is the larger one."""
    t, error = stats.t(estimate.freedom), estimate.error
    low, high = (estimate.mean + within) / error, (estimate.mean - within) / error
    inside, outside = max(t.sf(low), t.cdf(high)), min(t.cdf(low), t.sf(high))
    (found,) = judge([[verdicts.Tested("a − b", estimate, -within, within)]])
    assert found.p_value == pytest.approx(min(1, 2 * min(inside, outside)), rel=1e-6, abs=1e-12)
    if found.verdict == "confirmed":
        assert abs(estimate.mean) < within
    if found.verdict == "refuted":
        assert abs(estimate.mean) > within


@given(st.lists(st.lists(ESTIMATES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_of_several_claims(claims):
    """Holm's method by scipy's rule; a claim alone is never judged more strictly than among others."""
    tested = [[verdicts.Tested("a − b", estimate) for estimate in claim] for claim in claims]
    found = judge(tested)
    wanted = holm_by_hand([one.p_value for one in found])
    assert [one.corrected for one in found] == pytest.approx(wanted)
    for claim, one in zip(tested, found):
        alone = judge([claim])[0].verdict
        assert one.verdict in (alone, "within noise")
        assert one.weakest in claim
        assert one.weakest.p_inside == max(each.p_inside for each in claim)
    untested = judge([*tested, None])
    assert [one.verdict for one in untested[:-1]] == [one.verdict for one in found], "it does not count"


def holm_by_hand(p_values):
    """Of the p-values that are at least as small as one, the largest of each times those that are left."""
    ranked = sorted(p_values)
    steps = [(p, min(1, p * (len(ranked) - k))) for k, p in enumerate(ranked)]
    return [max(step for one, step in steps if one <= p) for p in p_values]


@given(st.lists(st.integers(0, 9), min_size=5, max_size=13))
def test_growth_is_spearmans_correlation(values):
    found = rank_correlation(values)
    if len(set(values)) == 1:
        assert found.mean == 0
        return
    wanted = stats.spearmanr(values, range(len(values)))
    assert found.mean == pytest.approx(wanted.statistic)
    if abs(found.mean) < 0.9999:
        assert found.p_value == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-9)
    else:
        assert found.p_value < 1e-6


def test_a_known_number_is_certain():
    """Counts of parameters have no error."""
    for mean, verdict in ((0.5, "confirmed"), (-0.5, "refuted")):
        (found,) = judge([[verdicts.Tested("log ratio", Estimate(mean, 0.0, 1.0), math.log(1.05))]])
        assert (found.verdict, found.p_value) == (verdict, 0.0)
