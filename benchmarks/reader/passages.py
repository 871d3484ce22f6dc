"""When to abstain where much is read: one question of a passage, of its article, of all articles, by three rules.

    python -m benchmarks.reader.passages --data validation.json.gz [--model READER] [--read 40] [--each 25]

Of every article and kind `--each` questions are drawn. Every window gives its best span and its own null score; then

    all    the best span of all windows against the smallest null score of all, as for the windows of one passage
    own    the same span against the null score of its own window
    margin the span of the window in which a span is furthest ahead of that window's own null score

F1 at the reader's stored threshold, which was fitted on single passages; in brackets with the threshold fitted on half
of the articles and scored on the others, the mean of all ways to halve them. A question with no answer in its passage
may have one elsewhere: that counts as wrong here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from benchmarks.race import markdown
from quoth import Reader
from quoth.answer.decode import decode
from quoth.answer.find import passages_to_read
from quoth.data import read
from quoth.data.dataset import Question
from quoth.score.squad import score_squad2
from quoth.search.collection import TextCollection
from quoth.windows.questions import make_windows

RULES = ("all", "own", "margin")


@dataclass(frozen=True)
class Scores:
    """Of each window of a question the score of the best span (windows,), that of [CLS] (windows,), the span's text."""

    score: np.ndarray
    null: np.ndarray
    text: list[str]

    def by(self, rule: str) -> tuple[str, float]:
        """The answer that would be given, and how far "no answer" is ahead of it."""
        best = int(self.score.argmax())
        if rule == "margin":
            best = int((self.null - self.score).argmin())
        null = self.null.min() if rule == "all" else self.null[best]
        return self.text[best], float(null - self.score[best])


def draw(questions: Sequence[Question], each: int) -> list[Question]:
    """So many questions of every article and kind, always the same ones."""
    groups: dict[tuple[str, bool], list[Question]] = {}
    for question in questions:
        groups.setdefault((question.title, question.impossible), []).append(question)
    drawn = np.random.default_rng(0)
    return [
        group[i]
        for group in groups.values()
        for i in np.sort(drawn.choice(len(group), min(each, len(group)), replace=False))
    ]


def look(reader: Reader, question: str, texts: Sequence[str], most: int) -> Scores:
    """Read the passages that `quoth ask --read` would read of these texts, window by window."""
    passages = passages_to_read(question, TextCollection(texts), most)
    asked = [Question(str(i), question, texts[p.document][p.begin : p.past], ()) for i, p in enumerate(passages)]
    windows = make_windows(asked, reader.tokenizer, max_length=reader.max_length, step=reader.step)
    contexts = [asked[i].context for i in windows.question]
    alone = replace(windows, question=np.arange(len(windows)))  # every window as if it were a passage
    found = decode(alone, reader.logits(windows), contexts, n_best=1)
    best = [found.answers(i, float("inf"))[0] for i in range(len(contexts))]
    return Scores(np.array([span.score for span in best]), np.array(found.null), [span.text for span in best])


def f1(questions: Sequence[Question], chosen: Sequence[tuple[str, float]], limit: float) -> dict[str, float]:
    """The official scores, abstaining beyond a limit."""
    given = {q.id: text if margin <= limit else "" for q, (text, margin) in zip(questions, chosen)}
    return score_squad2(questions, given).summary()


def cross_fitted(questions: Sequence[Question], chosen: Sequence[tuple[str, float]]) -> float:
    """The mean F1 of halves of the articles, each at the threshold that is best for the other half."""
    right = np.array([f1([q], [(text, 0.0)], 0.0)["f1"] for q, (text, _) in zip(questions, chosen)])
    abstained = np.array([100.0 * q.impossible for q in questions])
    margin = np.array([margin for _, margin in chosen])
    article = np.array([q.title for q in questions])
    names = sorted(set(article))
    found = []
    for half in combinations(names, len(names) // 2):
        fit = np.isin(article, half)
        limits = np.append(np.sort(margin[fit]), -np.inf)
        gains = [np.where(margin[fit] <= limit, right[fit], abstained[fit]).mean() for limit in limits]
        limit = limits[int(np.argmax(gains))]
        found.append(np.where(margin[~fit] <= limit, right[~fit], abstained[~fit]).mean())
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a SQuAD 2.0 file of several articles")
    parser.add_argument("--model", default="embedded", help="a reader; the embedded one")
    parser.add_argument("--read", type=int, default=40, help="passages of all articles together")
    parser.add_argument("--each", type=int, default=25, help="questions of every article and kind")
    options = parser.parse_args()
    reader, every = Reader.load(options.model), read(options.data).questions
    questions = draw(every, options.each)
    articles: dict[str, dict[str, None]] = {}
    for question in every:
        articles.setdefault(question.title, {})[question.context] = None
    texts = {name: "\n\n".join(passages) for name, passages in articles.items()}
    limit = reader.abstention.threshold
    print(f"{len(questions)} questions, threshold {limit:.3f}\n")
    rows = []
    for name, documents, most in (
        ("the passage", lambda q: [q.context], 0),
        ("its article as one text", lambda q: [texts[q.title]], 0),
        (f"all articles, --read {options.read}", lambda q: list(texts.values()), options.read),
    ):
        seen = [look(reader, q.question, documents(q), most) for q in questions]
        count = np.mean([len(one.score) for one in seen])
        for rule in RULES:
            chosen = [one.by(rule) for one in seen]
            scores = f1(questions, chosen, limit)
            cells = [name, f"{count:.1f}", rule, f"{scores['f1']:.1f} ({cross_fitted(questions, chosen):.1f})"]
            rows.append([*cells, f"{scores['HasAns_f1']:.1f}", f"{scores['NoAns_f1']:.1f}"])
    print(markdown(["what is read", "windows", "rule", "F1", "with an answer", "without"], rows))


if __name__ == "__main__":
    main()
