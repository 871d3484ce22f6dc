"""What three corrections change, counted on a CPU: labels of windows, masked tokens, the rule `bertvision`.

    python -m benchmarks.papers.corrections --model M --squad train.json dev.json --text books.txt --evaluate dev.json

1. labels (Jiang et al. 2022, §2.7): windows of `--squad` that are "no answer" by the label of their question (before),
   and by whether they hold the answer (now)
2. masks (Devlin et al. 2019, §3.1): a fiftieth of the paragraphs of `--text`, masked once by whole words (before) and
   by tokens (now)
3. rule: the embedded reader on `--evaluate`, where a start at [CLS] with an end in the passage was "no answer" and is
   an answer; by the official score
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from benchmarks.race import markdown
from quoth import Reader
from quoth.answer import decode
from quoth.data import read, read_paragraphs
from quoth.data.dataset import Question
from quoth.score import score_squad2
from quoth.tasks.examples import Examples
from quoth.tasks.masking import MaskedFeed, vocabulary
from quoth.tasks.seeds import sample
from quoth.windows import Tokenizer, Windows, make_windows, span_labels
from quoth.windows.nsp import make_neighbours
from quoth.windows.packed import NOTHING

SIZES = ((384, 128), (386, 128), (192, 64))  # of windows, and their step


def label_row(questions: list[Question], tokenizer: Tokenizer, length: int, step: int) -> dict[str, int]:
    """Counts of windows and questions under both labels."""
    asked = [question for question in questions if question.trainable]
    windows = make_windows(asked, tokenizer, max_length=length, step=step, max_query_length=64)
    before = np.array([question.impossible for question in asked])[windows.question]
    after = ~span_labels(windows, asked).any(1)
    return {
        "questions": len(asked),
        "of several windows": int((np.bincount(windows.question) > 1).sum()),
        "windows": len(windows),
        '"no answer" before': int(before.sum()),
        "after": int(after.sum()),
        "answerable questions with such a window": len(np.unique(windows.question[after & ~before])),
    }


def mask_row(examples: Examples, tokenizer: Tokenizer, vocab: int, whole_words: bool) -> dict[str, Any]:
    """What one pass of masking does to a text."""
    words = vocabulary(tokenizer, vocab)
    feed = MaskedFeed(examples, words, torch.device("cpu"), 0, whole_words=whole_words)
    counts = np.zeros(7, np.int64)  # may be masked, are; [MASK], another, the same; words of several tokens, in part
    for begin in range(0, len(examples), 64):
        counts += _masked(examples.windows, feed, np.arange(begin, min(begin + 64, len(examples))), words)
    may, masked, mask, other, same, several, part = counts.tolist()
    return {
        "tokens": may,
        "masked": f"{100 * masked / may:.2f} %",
        "[MASK] / another / the same": " / ".join(f"{100 * n / masked:.1f}" for n in (mask, other, same)),
        "words of several tokens, masked": several,
        "of these in part": part,
    }


def _masked(windows: Windows, feed: MaskedFeed, rows: np.ndarray, words: Any) -> np.ndarray:
    packed, _ = feed.batch(rows, 0)
    before, after = windows.packed(rows).ids, packed.ids.numpy()
    chosen = np.zeros(len(before), bool)
    chosen[packed.places[packed.targets != NOTHING].numpy()] = True
    number = windows.words[windows.starts[rows[0]] : windows.starts[rows[-1] + 1]]
    begins = np.flatnonzero((np.diff(number, prepend=-2) != 0) | (number < 0))
    sizes, taken = np.diff(np.append(begins, len(number))), np.add.reduceat(chosen.astype(int), begins)
    several = (number[begins] >= 0) & (sizes > 1) & (taken > 0)
    is_mask, kept = after[chosen] == words.mask, after[chosen] == before[chosen]
    may = (number >= 0) & ~np.isin(before, words.special)
    found = [may.sum(), chosen.sum(), is_mask.sum(), (~is_mask & ~kept).sum(), kept.sum()]
    return np.array([*found, several.sum(), (several & (taken < sizes)).sum()])


def rule_rows(path: str, reader: Reader) -> list[dict[str, Any]]:
    """Official scores of a reader by Devlin's rule, and by the authors' before and after."""
    questions = read(path).questions
    windows, contexts = reader.windows(questions), [question.context for question in questions]
    logits = reader.logits(windows)
    after = decode(windows, logits, contexts, rule="bertvision")
    begins_at_cls = _begins_at_cls(windows, logits.start, logits.end, len(questions))
    texts = {
        "devlin": decode(windows, logits, contexts).predictions(),
        "bertvision, before": ["" if cls else text for cls, text in zip(begins_at_cls, after.predictions())],
        "bertvision, after": after.predictions(),
    }
    rows = []
    for name, found in texts.items():
        summary = score_squad2(questions, {q.id: text for q, text in zip(questions, found)}).summary()
        scores = {key: f"{summary[key]:.2f}" for key in ("exact", "f1", "HasAns_f1", "NoAns_f1")}
        rows.append({"rule": name, **scores, '"no answer"': found.count("")})
    return rows


def _begins_at_cls(windows: Windows, start: np.ndarray, end: np.ndarray, count: int) -> list[bool]:
    """Of each question whether [CLS] has the highest start in the window that counts; window by window."""
    best, found = np.full(count, -1.0), [False] * count
    for w, question in enumerate(windows.question.tolist()):
        first, past = (windows.starts[w] + windows.passage[w]).tolist()
        places = [int(windows.starts[w]), *range(first, past)]
        s, e = (logits[places].astype(np.float64) for logits in (start, end))
        product = float(np.exp(s - s.max()).sum() * np.exp(e - e.max()).sum()) ** -1
        if product > best[question]:
            best[question], found[question] = product, bool(s.argmax() == 0)
    return found


def show(rows: list[dict[str, Any]]) -> None:
    print(markdown(list(rows[0]), [[f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()] for row in rows]))
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a tokenizer.json")
    parser.add_argument("--squad", nargs="*", default=[], help="SQuAD 2.0 files for the labels")
    parser.add_argument("--text", help="plain text for the masks")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file for the rule")
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.model)
    if options.squad:
        show(
            [
                {
                    "file": path,
                    "length, step": f"{length}, {step}",
                    **label_row(read(path).questions, tokenizer, length, step),
                }
                for path in options.squad
                for length, step in SIZES
            ]
        )
    if options.text:
        paragraphs = sample(read_paragraphs(options.text), 0.02, 0)
        examples = Examples(*make_neighbours(paragraphs, tokenizer, max_length=128, seed=0))
        size = tokenizer.backend.get_vocab_size()
        show(
            [
                {"masks": name, **mask_row(examples, tokenizer, size, name == "whole words")}
                for name in ("whole words", "tokens")
            ]
        )
    if options.evaluate:
        show(rule_rows(options.evaluate, Reader.load()))


if __name__ == "__main__":
    main()
