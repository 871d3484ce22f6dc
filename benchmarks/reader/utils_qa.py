"""What transformers' utils_qa.py does to decode spans, written anew, to measure against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reader.synthetic import MAX_LENGTH, Synthetic

Row = dict[str, Any]
Rows = Sequence[Row]
Floats = NDArray[np.float32]
Logits = tuple[Floats, Floats]


def rows_of(data: Synthetic) -> tuple[list[Row], list[Row], Logits]:
    """Examples and features with the columns that run_qa.py gives them, and logits padded to 384."""
    windows = data.windows
    examples = [
        {"id": q.id, "title": "", "context": text, "question": "", "answers": {"text": list(q.gold_texts)}}
        for q, text in zip(data.asked, data.contexts)
    ]
    start, end = np.full((2, len(windows), MAX_LENGTH), -20.0, np.float32)
    features = []
    for w in range(len(windows)):
        here = slice(windows.starts[w], windows.starts[w + 1])
        size = here.stop - here.start
        offsets = [None if a < 0 else [a, b] for a, b in windows.spans[here].tolist()]
        features.append(
            {
                "input_ids": [7] * MAX_LENGTH,
                "token_type_ids": [0] * MAX_LENGTH,
                "attention_mask": [1] * size + [0] * (MAX_LENGTH - size),
                "offset_mapping": offsets + [None] * (MAX_LENGTH - size),
                "example_id": data.asked[windows.question[w]].id,
            }
        )
        start[w, :size], end[w, :size] = data.logits.start[here], data.logits.end[here]
    return examples, features, (start, end)


def by_utils_qa(
    examples: Rows, features: Rows, logits: Logits, n_best: int = 20, longest: int = 30, threshold: float = 0.0
) -> tuple[dict[str, str], dict[str, float]]:
    """What `postprocess_qa_predictions` does with version_2_with_negative, step by step, written anew.

    A loop over questions, their windows, the 20 best starts and the 20 best ends; a dictionary for every pair;
    a sort; softmax over the best. Left out: progress bar, logging, writing files.
    Returns the texts, and for the comparison the score of the best span.
    """
    number = {example["id"]: i for i, example in enumerate(examples)}
    of_example: dict[int, list[int]] = defaultdict(list)
    for i, feature in enumerate(features):
        of_example[number[feature["example_id"]]].append(i)
    texts: dict[str, str] = {}
    best_scores: dict[str, float] = {}
    all_best: dict[str, list[Row]] = {}
    for index, example in enumerate(examples):
        pairs: list[Row] = []
        null: Row = {"score": np.inf}
        for i in of_example[index]:
            start, end = logits[0][i], logits[1][i]
            if null["score"] > start[0] + end[0]:
                null = {
                    "offsets": (0, 0),
                    "score": start[0] + end[0],
                    "start_logit": start[0],
                    "end_logit": end[0],
                }
            offsets = features[i]["offset_mapping"]
            widest = features[i].get("token_is_max_context", None)
            pairs += _window_pairs(start, end, offsets, widest, n_best, longest)
        null_score = null["score"]
        best = _best_with_text([*pairs, null], null, example["context"], n_best)
        chosen = next(pair for pair in best if pair["text"])
        margin = null_score - chosen["start_logit"] - chosen["end_logit"]
        texts[example["id"]] = "" if margin > threshold else chosen["text"]
        best_scores[example["id"]] = float(chosen["start_logit"] + chosen["end_logit"])
        all_best[example["id"]] = [
            {key: float(value) if isinstance(value, np.floating) else value for key, value in pair.items()}
            for pair in best
        ]
    return texts, best_scores


def _window_pairs(
    start: Floats, end: Floats, offsets: list[Any], widest: dict[str, bool] | None, n_best: int, longest: int
) -> list[Row]:
    pairs = []
    firsts = np.argsort(start)[-1 : -n_best - 1 : -1].tolist()
    lasts = np.argsort(end)[-1 : -n_best - 1 : -1].tolist()
    for i in firsts:
        for j in lasts:
            if i >= len(offsets) or j >= len(offsets) or offsets[i] is None or offsets[j] is None:
                continue
            if j < i or j - i + 1 > longest:
                continue
            if widest is not None and not widest.get(str(i), False):
                continue
            pairs.append(
                {
                    "offsets": (offsets[i][0], offsets[j][1]),
                    "score": start[i] + end[j],
                    "start_logit": start[i],
                    "end_logit": end[j],
                }
            )
    return pairs


def _best_with_text(pairs: list[Row], null: Row, context: str, n_best: int) -> list[Row]:
    best = sorted(pairs, key=lambda pair: float(pair["score"]), reverse=True)[:n_best]
    if not any(pair["offsets"] == (0, 0) for pair in best):
        best.append(null)
    for pair in best:
        first, past = pair.pop("offsets")
        pair["text"] = context[first:past]
    if len(best) == 1 and best[0]["text"] == "":
        best.insert(0, {"text": "empty", "start_logit": 0.0, "end_logit": 0.0, "score": 0.0})
    scores = np.array([pair.pop("score") for pair in best])
    weights = np.exp(scores - np.max(scores))
    for pair, probability in zip(best, weights / weights.sum()):
        pair["probability"] = probability
    return best


def as_datasets(examples: list[Row], features: list[Row]) -> tuple[Rows, Rows] | None:
    """The rows in Arrow, as run_qa.py hands them over, if `datasets` is installed."""
    try:
        from datasets import Dataset
    except ImportError:
        return None
    return Dataset.from_list(examples), Dataset.from_list(features)
