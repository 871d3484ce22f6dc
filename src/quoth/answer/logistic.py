"""Softmax regression by Newton's method: a few features, some thousand rows, numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

STEPS = 100


def softmax_probabilities(logits: Float64s) -> Float64s:
    """(…, K - 1) logits, beside that of the first outcome, which is 0 → (…, K) probabilities."""
    every = np.concatenate([np.zeros((*logits.shape[:-1], 1)), logits], axis=-1)
    every = np.exp(every - every.max(axis=-1, keepdims=True))
    return np.asarray(every / every.sum(axis=-1, keepdims=True))


def fit_softmax(
    x: Float64s,
    outcome: Int64s,
    weight: Float64s,
    ridge: float,
    offset: Float64s | float = 0.0,
    *,
    bias: bool = True,
    without: Sequence[tuple[int, int]] = (),
) -> tuple[Float64s, Float64s]:
    """The W, (K - 1, F), and b, (K - 1,), with the least Σ weight · log loss of softmax(0, x·W + b) + ridge/2 · |W|².

    - x: (N, F), standardised, so that the ridge treats all features alike; outcome: (N,) in 0 … 2, so K is 3
    - weight: (N,), is brought to the sum 1; ridge: above 0, so that there is one minimum
    - offset: (N, K - 1), added to the logits; bias: whether there is a b, which the ridge all but leaves alone
    - without: the places in W of weights that are held at 0
    """
    rows = np.concatenate([x, np.ones((len(x), 1))], axis=1) if bias else x
    weight = weight / weight.sum()
    truth = np.eye(3)[outcome][:, 1:]
    width = rows.shape[1]
    penalty = np.full((2, width), ridge)
    if bias:
        penalty[:, -1] = 1e-6  # data that lack an outcome have no finite b without it
    for place in without:
        penalty[place] = 1e9
    w = np.zeros((2, width))
    loss = _loss(offset + rows @ w.T, outcome, weight, w, penalty)
    for _ in range(STEPS):
        p = softmax_probabilities(offset + rows @ w.T)[:, 1:]
        gradient = ((p - truth) * weight[:, None]).T @ rows + penalty * w
        step = np.linalg.solve(_hessian(rows, p, weight) + np.diag(penalty.ravel()), gradient.ravel()).reshape(w.shape)
        size = 1.0
        while size > 1e-9:
            tried = w - size * step
            now = _loss(offset + rows @ tried.T, outcome, weight, tried, penalty)
            if now < loss:
                break
            size /= 2
        else:
            break
        w, loss = tried, now
    for place in without:
        w[place] = 0.0
    return (w[:, :-1], w[:, -1]) if bias else (w, np.zeros(2))


def _hessian(rows: Float64s, p: Float64s, weight: Float64s) -> Float64s:
    """(2 F, 2 F): block (k, l) is Σ weight · (p_k [k = l] - p_k p_l) · row rowᵀ."""
    blocks = [
        [(rows.T * (weight * (p[:, k] * (k == other) - p[:, k] * p[:, other]))) @ rows for other in range(2)]
        for k in range(2)
    ]
    return np.asarray(np.block(blocks))


def _loss(logits: Float64s, outcome: Int64s, weight: Float64s, w: Float64s, penalty: Float64s) -> float:
    every = np.concatenate([np.zeros((len(logits), 1)), logits], axis=1)
    top = every.max(axis=1)
    total = top + np.log(np.exp(every - top[:, None]).sum(axis=1))
    return float(weight @ (total - every[np.arange(len(every)), outcome]) + (penalty * w**2).sum() / 2)
