"""How fast answers are: decoding and scoring against the loop of transformers' utils_qa.py, on synthetic
logits.

    python benchmarks/answers.py [--questions 12000] [--passes 3] [--json]
    python benchmarks/answers.py --memory [--questions 130000]

Contenders run by turns in one process; medians of the passes and their ratios are printed. utils_qa's loop runs
on lists in memory and, where `datasets` is installed, on Arrow rows, which is how run_qa.py calls it.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quoth.answer import decode
from quoth.runtime.logits import SpanLogits
from quoth.score.squad import Scored, score_squad2
from quoth.windows.columns import Windows

MAX_LENGTH, OVERLAP = 384, 128
Row = dict[str, Any]
Rows = Sequence[Row]
Floats = NDArray[np.float32]
Logits = tuple[Floats, Floats]


@dataclass(frozen=True)
class Asked:
    """A synthetic question: what scoring needs to know of it."""

    id: str
    gold_texts: tuple[str, ...]


@dataclass(frozen=True)
class Synthetic:
    """Questions, their texts, their windows, and logits for them."""

    asked: list[Asked]
    contexts: list[str]
    windows: Windows
    logits: SpanLogits


# -- data like SQuAD 2.0 ------------------------------------------------------------------------------------


def synthetic(questions: int, seed: int = 0) -> Synthetic:
    """Passages of 165 tokens on average (five questions on each), a few of several windows, a third without
    answer.

    The logits are noise with peaks at the gold answer, or at [CLS], and at one wrong place.
    """
    rng = np.random.default_rng(seed)
    passages = [_passage(rng) for _ in range(max(1, questions // 5))]
    asked: list[Asked] = []
    contexts: list[str] = []
    pieces: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    question: list[int] = []
    passage: list[tuple[int, int]] = []
    peaks: list[tuple[int, int]] = []  # flat places of a start and an end
    at = 0
    for q in range(questions):
        text, spans = passages[int(rng.integers(len(passages)))]
        first = int(rng.integers(len(spans)))
        last = min(first + int(rng.geometric(0.35)) - 1, len(spans) - 1)
        answerable = rng.random() < 2 / 3
        gold = text[spans[first, 0] : spans[last, 1]]
        asked.append(Asked(f"q{q}", (gold, gold.split()[0], gold) if answerable else ()))
        contexts.append(text)
        words = int(rng.integers(7, 20))
        for begin, past in _cuts(len(spans), MAX_LENGTH - 3 - words):
            here = at + words + 2 - begin
            if answerable and begin <= first and last < past:
                peaks.append((here + first, here + last))
            elif not answerable:
                peaks.append((at, at))
            wrong = int(rng.integers(begin, past))
            peaks.append((here + wrong, here + int(rng.integers(wrong, min(wrong + 4, past)))))
            window = np.full((words + 3 + past - begin, 2), -1, np.int32)
            window[words + 2 : -1] = spans[begin:past]
            pieces.append(window)
            question.append(q)
            passage.append((words + 2, words + 2 + past - begin))
            lengths.append(len(window))
            at += len(window)
    return Synthetic(asked, contexts, _columns(pieces, lengths, question, passage), _logits(rng, at, peaks))


def _passage(rng: np.random.Generator) -> tuple[str, NDArray[np.int32]]:
    """A text of made-up words and the characters of each, (n, 2)."""
    count = int(np.clip(rng.gamma(3.5, 165 / 3.5), 20, 900))
    letters = "".join(map(chr, rng.choice(list(b"etaoinshrdlu"), 8 * count)))
    sizes = rng.integers(1, 9, count)
    words = [letters[8 * i : 8 * i + size] for i, size in enumerate(sizes.tolist())]
    ends = np.cumsum(sizes + 1) - 1
    return " ".join(words), np.stack([ends - sizes, ends], axis=1).astype(np.int32)


def _cuts(tokens: int, room: int) -> list[tuple[int, int]]:
    """The passage tokens [begin, past) of each window."""
    cuts = [(0, min(room, tokens))]
    while cuts[-1][1] < tokens:
        begin = cuts[-1][0] + room - OVERLAP
        cuts.append((begin, min(begin + room, tokens)))
    return cuts


def _columns(
    pieces: list[NDArray[np.int32]], lengths: list[int], question: list[int], passage: list[tuple[int, int]]
) -> Windows:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    nothing = np.zeros(starts[-1], np.int32)  # decoding does not look at ids and types
    spans = np.concatenate(pieces)
    return Windows(nothing, nothing, spans, nothing, starts, np.array(question, np.int32), np.array(passage, np.int32))


def _logits(rng: np.random.Generator, tokens: int, peaks: list[tuple[int, int]]) -> SpanLogits:
    start, end = (rng.standard_normal(tokens, np.float32) * 2 - 4 for _ in range(2))
    first, last = np.array(peaks).T
    start[first] += 4 + 2 * rng.standard_normal(len(first), np.float32)
    end[last] += 4 + 2 * rng.standard_normal(len(last), np.float32)
    return SpanLogits(start, end)


# -- the contenders -----------------------------------------------------------------------------------------


def by_quoth(data: Synthetic) -> tuple[list[str], Scored]:
    """Decode and score."""
    texts = decode(data.windows, data.logits, data.contexts, n_best=20, max_answer_tokens=30).predictions()
    return texts, score_squad2(data.asked, {q.id: text for q, text in zip(data.asked, texts)})


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
    """What `postprocess_qa_predictions` does with version_2_with_negative, step by step, in our words.

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


# -- measuring ----------------------------------------------------------------------------------------------


def by_turns(contenders: dict[str, Callable[[], Any]], passes: int) -> dict[str, list[float]]:
    """Seconds of each pass of each contender, one after the other in every pass, the order turned each time."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(passes):
        for name in names if turn % 2 == 0 else names[::-1]:
            begin = time.perf_counter()
            contenders[name]()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def measure_decoding(questions: int, passes: int) -> dict[str, Any]:
    """Decode, and decode + score, by quoth; the utils_qa loop, which does not score, on lists and on Arrow."""
    data = synthetic(questions)
    examples, features, logits = rows_of(data)
    arrow = as_datasets(examples, features)
    gc.collect()
    gc.freeze()  # or each contender would pay for the collector's walks through the data of the others
    contenders: dict[str, Callable[[], Any]] = {
        "quoth: decode + score": lambda: by_quoth(data),
        "quoth: decode": lambda: decode(data.windows, data.logits, data.contexts).predictions(),
        "utils_qa on lists": lambda: by_utils_qa(examples, features, logits),
    }
    if arrow is not None:
        contenders["utils_qa on datasets"] = lambda: by_utils_qa(*arrow, logits)
    seconds = by_turns(contenders, passes)
    medians = {name: median(values) for name, values in seconds.items()}
    return {
        "questions": questions,
        "windows": len(data.windows),
        "mean_window": float(np.diff(data.windows.starts).mean()),
        "passes": passes,
        "processor": platform.processor() or platform.machine(),
        "seconds": medians,
        "all_seconds": seconds,
        "ratio_to_decode_and_score": {
            name: value / medians["quoth: decode + score"] for name, value in medians.items()
        },
        **compare(data, *by_utils_qa(examples, features, logits)),
    }


def compare(data: Synthetic, texts: dict[str, str], best_scores: dict[str, float]) -> dict[str, Any]:
    """How many of the best texts differ from those of utils_qa, and why."""
    decoded = decode(data.windows, data.logits, data.contexts)
    ours = {q.id: text for q, text in zip(data.asked, decoded.predictions())}
    best = {q.id: score for q, score in zip(data.asked, decoded.score[:, 0].tolist())}
    differ = [id for id, text in ours.items() if text != texts[id]]
    missed = sum(best[id] > best_scores[id] for id in differ)
    tied = sum(best[id] == best_scores[id] for id in differ)
    summary = score_squad2(data.asked, ours).summary()
    return {
        "differing": len(differ),
        "differing_missed_by_utils_qa": missed,  # a better span than any of its 20 starts × 20 ends
        "differing_tied": tied,
        "differing_unexplained": len(differ) - missed - tied,
        "exact": summary["exact"],
        "f1": summary["f1"],
    }


def measure_memory(questions: int) -> dict[str, Any]:
    """Peak memory of this process before and after decode + score; the data are in memory all the time."""
    data = synthetic(questions)
    before = peak_gib()
    begin = time.perf_counter()
    by_quoth(data)
    seconds = time.perf_counter() - begin
    return {
        "questions": questions,
        "windows": len(data.windows),
        "tokens": int(data.windows.starts[-1]),
        "seconds": seconds,
        "peak_gib_with_data_alone": before,
        "peak_gib": peak_gib(),
    }


def peak_gib() -> float:
    """The largest resident size so far; Linux counts it in KiB, macOS in bytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 2 ** (30 if sys.platform == "darwin" else 20)


def print_table(result: dict[str, Any]) -> None:
    if "seconds" not in result or not isinstance(result["seconds"], dict):
        for name, value in result.items():
            print(f"{name:<28}{value:>12.2f}" if isinstance(value, float) else f"{name:<28}{value:>12}")
        return
    print(
        f"{result['questions']} questions, {result['windows']} windows of {result['mean_window']:.0f} tokens on "
        f"average; medians of {result['passes']} passes by turns; {result['processor']}"
    )
    for name, seconds in result["seconds"].items():
        ratio = result["ratio_to_decode_and_score"][name]
        print(f"{name:<26}{seconds:>8.3f} s{result['questions'] / seconds:>10.0f} questions/s{ratio:>8.1f} ×")
    print(
        f"best texts that differ from utils_qa's: {result['differing']} (better spans that it missed: "
        f"{result['differing_missed_by_utils_qa']}, ties: {result['differing_tied']}, "
        f"unexplained: {result['differing_unexplained']})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, help="12000, or 130000 with --memory")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="peak memory of a large dataset instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.memory:
        result = measure_memory(options.questions or 130_000)
    else:
        result = measure_decoding(options.questions or 12_000, options.passes)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
