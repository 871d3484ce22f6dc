"""The Pareto front against the definition, pair by pair."""

from hypothesis import given
from hypothesis import strategies as st

from quoth.score.pareto import pareto

NUMBERS = st.one_of(st.none(), st.integers(0, 6).map(float), st.floats(allow_nan=True, allow_infinity=True))


def by_brute_force(rows):
    def known(row):
        return all(x is not None and x == x and abs(x) != float("inf") for x in row)

    def beats(a, b):
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    return [known(row) and not any(known(other) and beats(other, row) for other in rows) for row in rows]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_pareto(rows):
    assert pareto([row[0] for row in rows], [row[1] for row in rows]) == by_brute_force(rows)


def test_a_plain_case():
    assert pareto([1, 2, 3, 2, None], [50, 60, 60, 55, 90]) == [True, True, False, False, False]
