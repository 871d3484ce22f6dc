"""Student's t distribution, which a plain install has in no library.

    P(|T| ≥ t) = I_x(ν/2, 1/2),  x = ν / (ν + t²),  I the regularised incomplete beta function

I is computed by its continued fraction, with Lentz's method (Press et al., "Numerical Recipes", §6.4).
"""

from __future__ import annotations

import math

SMALL = 1e-300
STEPS = 500


def t_two_sided(t: float, freedom: float) -> float:
    """The probability of a value at least as far from 0 as t, with `freedom` > 0 degrees of freedom."""
    square = t * t
    return _beta(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square))


def t_quantile(probability: float, freedom: float) -> float:
    """The value below which T is with this probability, from 0.5 to below 1; found by bisection."""
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > 2 * (1 - probability):
        low, high = high, 2 * high
    for _ in range(60):  # halves the interval to less than the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, freedom) > 2 * (1 - probability) else (low, middle)
    return (low + high) / 2


def _beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b), for 0 ≤ x ≤ 1. rest: 1 - x, which a subtraction would lose for x near 1."""
    if x == 0 or rest == 0:
        return x
    if x > (a + 1) / (a + b + 2):  # where the fraction would converge slowly
        return 1 - _beta(b, a, rest, x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(front) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 / (1 + d₁/(1 + d₂/(1 + …))), d as in Press et al. (6.4.6)."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > SMALL else SMALL
