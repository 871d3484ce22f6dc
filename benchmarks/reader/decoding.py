"""Decoding and scoring against the loop of transformers' utils_qa.py, on synthetic logits.

    python -m benchmarks.reader.decoding [--questions 12000] [--passes 3] [--json]
    python -m benchmarks.reader.decoding --memory [--questions 130000]

Contenders take turns in one process; medians of the passes and their ratios are printed. utils_qa's loop runs
on lists in memory and, where `datasets` is installed, on Arrow rows, which is how run_qa.py calls it.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.race import Contender, machine, peak_gib, race
from benchmarks.reader.synthetic import Synthetic, synthetic
from benchmarks.reader.utils_qa import as_datasets, by_utils_qa, rows_of
from quoth.answer import decode
from quoth.score.squad import Scored, score_squad2

OURS = "quoth: decode + score"


def by_quoth(data: Synthetic) -> tuple[list[str], Scored]:
    """Decode and score."""
    texts = decode(data.windows, data.logits, data.contexts, n_best=20, max_answer_tokens=30).predictions()
    return texts, score_squad2(data.asked, {q.id: text for q, text in zip(data.asked, texts)})


def measure_decoding(questions: int, passes: int) -> dict[str, Any]:
    """Decode, and decode + score, by quoth; the utils_qa loop, which does not score, on lists and on Arrow."""
    data = synthetic(questions)
    examples, features, logits = rows_of(data)
    arrow = as_datasets(examples, features)
    gc.collect()
    gc.freeze()  # or each contender would pay for the collector's walks through the data of the others
    steps: dict[str, Callable[[], Any]] = {
        OURS: lambda: by_quoth(data),
        "quoth: decode": lambda: decode(data.windows, data.logits, data.contexts).predictions(),
        "utils_qa on lists": lambda: by_utils_qa(examples, features, logits),
    }
    if arrow is not None:
        steps["utils_qa on datasets"] = lambda: by_utils_qa(*arrow, logits)
    times = race({name: Contender(step, questions) for name, step in steps.items()}, passes, warmup=0)
    return {
        "questions": questions,
        "windows": len(data.windows),
        "mean_window": float(np.diff(data.windows.starts).mean()),
        "passes": passes,
        "machine": machine(),
        "seconds": {name: times.step_seconds(name) for name in steps},
        "all_seconds": times.seconds,
        "ratio_to_decode_and_score": {name: times.ratio(OURS, name).median for name in steps},
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


def print_table(result: dict[str, Any]) -> None:
    if "seconds" not in result or not isinstance(result["seconds"], dict):
        for name, value in result.items():
            print(f"{name:<28}{value:>12.2f}" if isinstance(value, float) else f"{name:<28}{value:>12}")
        return
    print(
        f"{result['questions']} questions, {result['windows']} windows of {result['mean_window']:.0f} tokens on "
        f"average; medians of {result['passes']} passes in turns; {result['machine']}"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, help="12000, or 130000 with --memory")
    parser.add_argument("--passes", type=int, default=3, help="turns of every contender")
    parser.add_argument("--memory", action="store_true", help="peak memory of a large dataset instead")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
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
