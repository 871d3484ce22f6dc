"""What the tables of benchmarks.papers.corrections_gpu have in common: runs by name, and their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.papers.schubert_tables import sizes
from benchmarks.pool import Facts, spread
from benchmarks.race import markdown

Get = Callable[[Facts], float | None]
BOTH = "1/task, task"  # the paper's loss, equal totals, neither floor nor units given back: the row that most share
CONTROL, ENCODER = "linear", "encoder"
LOSSES = ("before", "cut", "recovered")
TUNED_SCORES = ("best F1", "F1 at 0", "answerable F1")
DIGITS = {"heads": 1, "ffn": 0}
LOST = ("loss before", "after the cut", "recovered")


class Results:
    """Runs by name: those of all seeds together."""

    def __init__(self, results: Facts) -> None:
        self.results = results
        self.rows: dict[str, list[Facts]] = {}
        for run in sorted(results["runs"].values(), key=lambda run: int(run["seed"])):
            self.rows.setdefault(run["name"], []).append(run)

    def of(self, name: str) -> list[Facts]:
        """The runs of a name, which may be none."""
        return self.rows.get(name, [])

    def mean(self, name: str, get: Get, digits: int = 1) -> str:
        """Mean ± deviation over seeds; – where there is none."""
        values = [value for value in map(get, self.of(name)) if value is not None]
        if digits == 1 or not values:
            return spread(values) if values else "–"
        more = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
        return f"{np.mean(values):.{digits}f}{more}"

    def score(self, name: str, key: str) -> str:
        """A score of questions."""
        return self.mean(name, lambda run: run["quality"].get(key))

    def scores(self, name: str) -> list[str]:
        """Those of `TUNED_SCORES`."""
        return [self.score(name, key) for key in ("best_f1", "f1", "answered_f1")]

    def losses(self, name: str) -> list[str]:
        """Those of `LOST`."""

        def loss(key: str) -> Get:
            return lambda run: run["losses"].get(key)

        return [self.mean(name, loss(key), 3) for key in LOSSES]

    def size(self, name: str) -> str:
        """All parameters of the first seed, in millions."""
        return sizes(self.of(name)[0]["shape"])[1]

    def hidden(self, name: str) -> str:
        """Hidden sizes of all seeds."""
        return ", ".join(dict.fromkeys(str(run["shape"]["hidden"]) for run in self.of(name)))

    def seeds(self, name: str) -> str:
        """How many."""
        return str(len(self.of(name)))

    def unpruned(self, prefix: str) -> Facts | None:
        """What the runs of a kind began from, by the first of them."""
        found = (run["unpruned"] for run in self.results["runs"].values() if run["name"].startswith(prefix))
        return next((facts for facts in found if facts.get("loss") is not None), None)


def made(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(list(columns), [list(row) for row in rows]) if rows else ""


def told(text: str, table: str) -> str:
    """A table with a sentence before it."""
    return f"{text}\n\n{table}" if table else ""


def thirds(run: Facts) -> list[str]:
    """Mean heads, then mean FFN sizes, of the bottom, the middle and the top layers."""
    layers = run["shape"]["layers"]
    parts = np.array_split(np.arange(len(layers)), 3)
    means = [(np.mean([layers[i][key] for i in part]), digits) for key, digits in DIGITS.items() for part in parts]
    return [f"{mean:.{digits}f}" for mean, digits in means]


def frozen_score(depth: str, head: str, key: str, over: str = "") -> Get:
    """A score of a head on frozen states, or what it has more than another head."""

    def score(run: Facts) -> float:
        stage = run["frozen"][depth]
        return float(stage[head]["quality"][key]) - (float(stage[over]["quality"][key]) if over else 0.0)

    return score
