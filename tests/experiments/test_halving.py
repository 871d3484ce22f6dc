"""Successive halving against a loop written by hand, and its plan against the budget."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.experiments.halving import Place, Round, halve, plan_rounds, total_windows


def best_first(scores):
    """The order of `halve` for plain numbers: high ones first, of equal ones the first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def by_hand(table, counts):
    """Who is trained in each round, who is dropped after it, who is left. table[r][i]: the score of i in round r."""
    alive, trained, dropped = list(range(counts[0])), [], []
    for turn, count in enumerate(counts):
        assert len(alive) == count
        trained.append(list(alive))
        after = counts[turn + 1] if turn + 1 < len(counts) else 1
        out = []
        while len(alive) > after:  # the worst goes, of equal ones the last
            worst = alive[0]
            for one in alive:
                if table[turn][one] <= table[turn][worst]:
                    worst = one
            alive.remove(worst)
            out.append(worst)
        dropped.append(out)
    return trained, dropped, alive


def test_sixteen_candidates_by_the_formula():
    """w · (16 + 8·1 + 4·2 + 2·4) = 40 w."""
    rounds = plan_rounds(16, 4000.0)
    assert rounds == [Round(16, 100.0), Round(8, 200.0), Round(4, 400.0), Round(2, 800.0)]
    assert total_windows(rounds) == 16 * 100 + 8 * 100 + 4 * 200 + 2 * 400 == 4000


@pytest.mark.parametrize(("candidates", "counts"), [(1, [1]), (2, [2]), (3, [3, 2]), (5, [5, 3, 2]), (9, [9, 5, 3, 2])])
def test_half_go_on_rounded_up_down_to_two(candidates, counts):
    assert [one.candidates for one in plan_rounds(candidates, 100.0)] == counts


@given(st.integers(1, 200), st.floats(1.0, 1e9))
def test_the_rounds_take_the_budget(candidates, budget):
    rounds = plan_rounds(candidates, budget)
    assert math.isclose(total_windows(rounds), budget, rel_tol=1e-9)
    assert all(after.windows == 2 * before.windows for before, after in pairwise(rounds))
    assert all(after.candidates == math.ceil(one.candidates / 2) for one, after in pairwise(rounds))


@given(st.integers(1, 50), st.floats(1.0, 1e6), st.floats(1.0, 1e4))
def test_no_candidate_is_trained_for_longer_than_a_whole_training(candidates, budget, most):
    rounds = plan_rounds(candidates, budget, most)
    assert all(one.windows <= most for one in rounds)
    assert total_windows(rounds) <= budget * (1 + 1e-9)


@settings(deadline=None)
@given(st.integers(1, 20).flatmap(lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=5)))
def test_as_a_loop_by_hand(table):
    rounds = plan_rounds(len(table[0]), 1000.0)
    calls, dropped = [], []

    def train(candidate, turn):
        calls.append((turn, candidate))
        return table[turn][candidate]

    places = halve(rounds, train, best_first, dropped.append)
    trained, gone, left = by_hand(table, [one.candidates for one in rounds])
    assert calls == [(turn, one) for turn, some in enumerate(trained) for one in some]
    assert [{place.candidate for place in found if not place.kept} for found in places] == [set(some) for some in gone]
    assert sorted(dropped) == sorted(one for some in gone for one in some)
    assert [place.candidate for place in places[-1] if place.kept] == left
    for turn, found in enumerate(places):
        scores = [place.scored for place in found]
        assert scores == sorted(scores, reverse=True)
        assert scores == [table[turn][place.candidate] for place in found]


def test_a_candidate_alone_is_the_best_and_stays():
    dropped = []
    assert halve(plan_rounds(1, 10.0), lambda one, turn: 5.0, best_first, dropped.append) == [[Place(0, 5.0, True)]]
    assert dropped == []
