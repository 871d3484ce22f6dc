"""SQuAD 1.1 and 2.0 by the official rule, to the last digit.

The rule is that of evaluate-v1.1.py (Rajpurkar et al., 2016) and evaluate-v2.0.py (Rajpurkar et al., 2018).
Sums run left to right in the order of the data, as those scripts add up under Python 3.11 and older; Python
3.12's own `sum` compensates rounding, so that there the scripts themselves may differ in the last digit.

Scores of a question lie in [0, 1]; a summary is in per cent, as the scripts print it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quoth.data.normalise import Words, normalised_words
from quoth.errors import QuothError

Floats = NDArray[np.float64]


class Gold(Protocol):
    """What scoring needs to know of a question; no gold text means that it has no answer."""

    @property
    def id(self) -> str: ...  # noqa: D102

    @property
    def gold_texts(self) -> tuple[str, ...]: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of n questions, in the order of the data.

    - ids: n strings
    - exact, f1: (n,) float64 in [0, 1]
    - has_answer: (n,) bool, whether the data give an answer
    - missing: ids of the data for which there was no prediction
    """

    ids: tuple[str, ...]
    exact: Floats
    f1: Floats
    has_answer: NDArray[np.bool_]
    missing: tuple[str, ...] = ()

    def part(self, mask: NDArray[np.bool_]) -> Scored:
        """The questions where `mask`, (n,) bool, is true."""
        ids = tuple(id for id, keep in zip(self.ids, mask) if keep)
        return Scored(ids, self.exact[mask], self.f1[mask], self.has_answer[mask])

    def at_threshold(self, na_probs: Mapping[str, float], threshold: float) -> Scored:
        """The scores if every question with na_prob > threshold were answered by "no answer"."""
        abstains = _values(self.ids, na_probs) > threshold
        right = (~self.has_answer).astype(np.float64)
        return replace(self, exact=np.where(abstains, right, self.exact), f1=np.where(abstains, right, self.f1))

    def summary(self) -> dict[str, float]:
        """The keys exact, f1 (per cent) and total; HasAns_*, NoAns_* where there are such questions."""
        result = self._means("")
        for prefix, mask in (("HasAns_", self.has_answer), ("NoAns_", ~self.has_answer)):
            if mask.any():
                result |= self.part(mask)._means(prefix)
        return result

    def _means(self, prefix: str) -> dict[str, float]:
        total = len(self.ids)
        return {
            f"{prefix}exact": 100.0 * _sum(self.exact) / total,
            f"{prefix}f1": 100.0 * _sum(self.f1) / total,
            f"{prefix}total": total,
        }


def score_squad2(questions: Iterable[Gold], predictions: Mapping[str, str]) -> Scored:
    """Score by SQuAD 2.0. A question without prediction is left out and named in `missing`.

    (There evaluate-v2.0.py says "Missing prediction" and then stops with a KeyError in its has-answer part.)
    """
    words = cache(normalised_words)
    ids, exact, f1, has_answer, missing = [], [], [], [], []
    for question in _distinct(questions):
        if question.id not in predictions:
            missing.append(question.id)
            continue
        # A gold text of articles and punctuation alone does not count; if none is left, "" is right.
        golds = [gold for text in dict.fromkeys(question.gold_texts) if (gold := words(text))] or [[]]
        predicted = words(predictions[question.id])
        same = predicted in golds
        ids.append(question.id)
        exact.append(same)
        f1.append(1.0 if same else max(_f1(predicted, gold) for gold in golds))
        has_answer.append(bool(question.gold_texts))
    return _scored(ids, exact, f1, has_answer, missing)


def score_squad1(questions: Iterable[Gold], predictions: Mapping[str, str]) -> Scored:
    """Score by SQuAD 1.1. A question without prediction counts, with score 0, and is named in `missing`."""
    words = cache(normalised_words)
    ids, exact, f1, missing = [], [], [], []
    for question in _distinct(questions):
        if not question.gold_texts:
            raise QuothError(f"question {question.id}: no answer in the data, so score by 2.0, not 1.1")
        ids.append(question.id)
        if question.id not in predictions:
            missing.append(question.id)
            exact.append(False)
            f1.append(0.0)
            continue
        golds = [words(text) for text in dict.fromkeys(question.gold_texts)]
        predicted = words(predictions[question.id])
        exact.append(predicted in golds)
        # Unlike 2.0: no words share no word, so an empty text is exactly another one, but with F1 0.
        f1.append(max(_f1(predicted, gold) for gold in golds) if predicted else 0.0)
    return _scored(ids, exact, f1, [True] * len(ids), missing)


def best_thresholds(scored: Scored, predictions: Mapping[str, str], na_probs: Mapping[str, float]) -> dict[str, float]:
    """The thresholds on `na_probs` with the best exact and the best F1, as `find_best_thresh` of the script.

    Begin with "no answer" everywhere and let the predictions in one by one by rising na_prob, ties in the order of
    `na_probs`. The best threshold is the na_prob at the first highest sum, or 0.0 if that is at the beginning. Like the
    script this may stop amid a tie, where no threshold can lie: then `best_*` is a little too good.
    """
    order, probs = _ascending(scored, na_probs)
    has_answer = scored.has_answer[order]
    answered = np.array([bool(predictions[scored.ids[i]]) for i in order], dtype=bool)
    unanswerable = float(np.count_nonzero(~has_answer))
    result: dict[str, float] = {}
    for name, scores in (("exact", scored.exact), ("f1", scored.f1)):
        gains = np.where(has_answer, scores[order], np.where(answered, -1.0, 0.0))
        after = np.cumsum(np.concatenate(([unanswerable], gains)))
        best = int(np.argmax(after))
        result[f"best_{name}"] = 100.0 * float(after[best]) / len(order)
        result[f"best_{name}_thresh"] = float(probs[best - 1]) if best else 0.0
    return result


def average_precisions(scored: Scored, na_probs: Mapping[str, float]) -> dict[str, float]:
    """pr_exact_ap, pr_f1_ap and pr_oracle_ap of the script; none of them if no question has an answer.

    Predictions come in by rising na_prob. Let S be the sum of the scores so far of those whose question has an answer:
    precision is S by the number of predictions so far, recall S by the number of all questions that have an answer. ap
    sums precision × (gain in recall) over the places where na_prob rises, i.e. where a threshold can lie.
    """
    order, probs = _ascending(scored, na_probs)
    has_answer = scored.has_answer[order]
    answerable = np.count_nonzero(has_answer)
    if not answerable:
        return {}
    ends = np.flatnonzero(np.append(probs[1:] != probs[:-1], True))
    result: dict[str, float] = {}
    for name, scores in (("exact", scored.exact), ("f1", scored.f1), ("oracle", scored.has_answer)):
        won = np.cumsum(np.where(has_answer, scores[order], 0.0))[ends]
        recall = won / answerable
        gain = np.diff(recall, prepend=0.0)
        result[f"pr_{name}_ap"] = 100.0 * _sum(won / (ends + 1) * gain)
    return result


def _f1(predicted: Words, gold: Words) -> float:
    """2PR / (P + R) of the words, counted as often as they come; without words, whether both have none."""
    if not predicted or not gold:
        return float(predicted == gold)
    left: dict[str, int] = {}
    for word in gold:
        left[word] = left.get(word, 0) + 1
    same = 0
    for word in predicted:
        if left.get(word):
            left[word] -= 1
            same += 1
    if not same:
        return 0.0
    precision = same / len(predicted)
    recall = same / len(gold)
    return (2 * precision * recall) / (precision + recall)


def _sum(values: Floats) -> float:
    """The sum from left to right: numpy's `sum` adds pairwise and Python 3.12's compensates."""
    return float(np.cumsum(values)[-1])


def _distinct(questions: Iterable[Gold]) -> Iterator[Gold]:
    """The questions, as long as no id comes twice."""
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise QuothError(f"question {question.id}: the id comes twice in the data; make ids distinct")
        seen.add(question.id)
        yield question


def _scored(ids: list[str], exact: list[bool], f1: list[float], has_answer: list[bool], missing: list[str]) -> Scored:
    if not ids:
        what = f"no prediction for any of its {len(missing)} questions" if missing else "no questions in it"
        raise QuothError(f"the data cannot be scored: {what}")
    exact_scores = np.array(exact, np.float64)
    return Scored(tuple(ids), exact_scores, np.array(f1, np.float64), np.array(has_answer), tuple(missing))


def _values(ids: Sequence[str], na_probs: Mapping[str, float]) -> Floats:
    """The na_prob of each id, (n,); every question that is scored must have a finite one."""
    try:
        values = np.array([na_probs[id] for id in ids], np.float64)
    except KeyError as error:
        raise QuothError(f"question {error.args[0]}: its no-answer probability is missing") from None
    if not np.isfinite(values).all():
        culprit = ids[int(np.argmin(np.isfinite(values)))]
        raise QuothError(f"question {culprit}: no-answer probability {na_probs[culprit]} is not finite")
    return values


def _ascending(scored: Scored, na_probs: Mapping[str, float]) -> tuple[NDArray[np.intp], Floats]:
    """The questions by rising na_prob, ties in the order of `na_probs`: indices (n,) and na_probs (n,)."""
    values = _values(scored.ids, na_probs)
    place = {id: i for i, id in enumerate(scored.ids)}
    as_given = np.array([place[id] for id in na_probs if id in place])
    order = as_given[np.argsort(values[as_given], kind="stable")]
    return order, values[order]
