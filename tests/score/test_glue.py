"""GLUE metrics against scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from quoth.errors import QuothError
from quoth.score.glue import METRICS, accuracy, f1, glue_score, matthews, pearson, spearman

classes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)
few = st.sampled_from([0.0, 1.0, 2.5, -3.0])
numbers = st.lists(
    st.tuples(st.one_of(few, st.floats(-1e3, 1e3)), st.one_of(few, st.floats(-1e3, 1e3))),
    min_size=2,
    max_size=40,
)


@given(classes)
@settings(deadline=None)
def test_classes_agree_with_sklearn(pairs):
    predictions, labels = map(list, zip(*pairs))
    assert accuracy(predictions, labels) == pytest.approx(sklearn.metrics.accuracy_score(labels, predictions))
    expected = sklearn.metrics.f1_score(labels, predictions, zero_division=0)
    assert f1(predictions, labels) == pytest.approx(expected)
    if len(set(predictions)) > 1 and len(set(labels)) > 1:
        expected = sklearn.metrics.matthews_corrcoef(labels, predictions)
        assert matthews(predictions, labels) == pytest.approx(expected)
    else:
        assert matthews(predictions, labels) == 0.0


@given(numbers)
@settings(deadline=None)
def test_correlations_agree_with_scipy(pairs):
    predictions, labels = map(np.array, zip(*pairs))
    assume(np.ptp(predictions) > 1e-6 and np.ptp(labels) > 1e-6)
    assert_allclose(pearson(predictions, labels), scipy.stats.pearsonr(predictions, labels)[0], atol=1e-8)
    assert_allclose(spearman(predictions, labels), scipy.stats.spearmanr(predictions, labels)[0], atol=1e-10)


def test_matthews_does_not_overflow():
    predictions, labels = np.arange(400_000) % 2, np.arange(400_000) % 4 < 2
    predictions[:100_000] = labels[:100_000]
    assert matthews(predictions, labels) == pytest.approx(sklearn.metrics.matthews_corrcoef(labels, predictions))


def test_pearson_neither_overflows_nor_vanishes():
    x = np.array([1.0, 2.0, 4.0])
    y = np.array([1.0, 3.0, 2.0])
    assert pearson(x * 1e200, y * 1e-200) == pytest.approx(scipy.stats.pearsonr(x, y)[0])


@pytest.mark.parametrize("value", [0.0, 0.1, 7.3])
def test_constants_show_nothing(value):
    constant, other = [value] * 3, [1.0, 2.0, 3.0]
    for metric in (pearson, spearman):
        assert metric(constant, other) == metric(other, constant) == metric(constant, constant) == 0.0
    assert matthews([1, 1, 1], [0, 1, 1]) == matthews([0, 1, 1], [1, 1, 1]) == matthews([1, 1], [1, 1]) == 0.0
    assert f1([0, 0], [0, 0]) == f1([0, 0], [1, 1]) == f1([1, 1], [0, 0]) == 0.0


def test_each_task_has_its_metrics():
    predictions, labels = [1, 0, 1, 1], [1, 0, 0, 1]
    for task, names in METRICS.items():
        found = glue_score(task, predictions, labels)
        assert tuple(found) == names
        assert found == glue_score(task.lower().replace("-", ""), predictions, labels)
    assert glue_score("MRPC", predictions, labels) == {"acc": 0.75, "f1": pytest.approx(0.8)}
    assert glue_score("RTE", ["entailment", "not_entailment"], ["entailment", "entailment"]) == {"acc": 0.5}
    assert glue_score("MNLI", [0, 1, 2], [0, 1, 1]) == {"acc": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("task", "predictions", "labels", "message"),
    [
        ("WNLI", [1], [1], "WNLI: not a GLUE task"),
        ("RTE", [], [], "nothing to score"),
        ("STS-B", [], [], "nothing to score"),
        ("CoLA", [], [], "nothing to score"),
        ("RTE", [1, 0], [1], "two lists of one length"),
        ("STS-B", [1, 0], [1], "two lists of one length"),
        ("RTE", [1], ["entailment"], "strings"),
        ("MRPC", ["yes"], ["yes"], "must be numbers"),
        ("CoLA", [0, 2], [0, 1], "prediction 2: must be class 0 or 1"),
        ("STS-B", [1.0, float("nan")], [1, 2], r"prediction 1 \(counted from 0\) is nan"),
    ],
)
def test_mistakes_are_named(task, predictions, labels, message):
    with pytest.raises(QuothError, match=message):
        glue_score(task, predictions, labels)
