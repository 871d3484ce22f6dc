"""A comparison in a few plain sentences: what was compared, what is best, what is within noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quoth.score.quality import NAMES

Facts = dict[str, Any]

COST_NAMES = {
    "trainable_parameters": "trainable parameters",
    "total_parameters": "parameters in all",
    "train_seconds": "training time",
    "inference_seconds": "inference time",
    "bytes": "bytes on disk",
    "peak_memory": "peak memory",
}
LISTED = 6  # names in a sentence
CLOSE = 1.0  # points that make no difference to a user, where they are within noise
FAR = 5.0  # points that would make one


def summary(facts: Facts) -> list[str]:
    """The sentences, in order."""
    rows = facts["rows"]
    lines = [_compared(facts)]
    if len(rows) > 1:
        lines += [_best(facts), *_noise(facts), *_cheapest(facts)]
    if len(facts["machines"]) > 1:
        lines.append(f"Times and memory were measured on different machines: {'; '.join(facts['machines'])}.")
    if facts["unfinished"]:
        count, first = len(facts["unfinished"]), facts["unfinished"][0]
        runs = "1 run has" if count == 1 else f"{count} runs have"
        lines.append(
            f"{runs} not finished and {'is' if count == 1 else 'are'} left out, such as {first['run']}: {first['why']}."
        )
    return lines


def _compared(facts: Facts) -> str:
    rows = facts["rows"]
    runs = sum(len(row["runs"]) for row in rows)
    seeds = sorted({len(row["seeds"]) for row in rows})
    many = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    methods = "1 method" if len(rows) == 1 else f"{len(rows)} methods"
    of = (
        f"{facts['questions']:,} questions of {facts['data']}"
        if facts["questions"]
        else facts["data"] or "unknown data"
    )
    each = " seed" if many == "1" else " seeds"
    return f"{methods}, {many}{each} each ({runs} models), evaluated on {of}."


def _best(facts: Facts) -> str:
    row, metric = facts["rows"][0], facts["metric"]
    found = row["quality"][metric]
    interval = f" (95 % interval {found['interval'][0]:.2f} to {found['interval'][1]:.2f})" if found["interval"] else ""
    return f"The best {NAMES[metric]} is that of {row['name']}: {found['mean']:.2f}{interval}."


def _noise(facts: Facts) -> list[str]:
    """Which rows are not known to be worse than the best, with their differences, and how many are."""
    near, worse = facts["within_noise"], facts["worse"]
    if not near and not worse:
        return ["Whether differences are more than noise cannot be said: the answers of these runs are not there."]
    if not near:
        return ["All others are worse by more than noise."]
    names = {row["number"]: row["name"] for row in facts["rows"]}
    below = _below_best(facts)
    listed = ", ".join(f"{names[number]} ({-below[number]:+.2f})" for number in near[:LISTED])
    more = f" and {len(near) - LISTED} more" if len(near) > LISTED else ""
    rest = (
        "No other is worse by more than noise." if not worse else f"{len(worse)} others are worse by more than noise."
    )
    if len(worse) == 1:
        rest = "1 other is worse by more than noise."
    lines = [f"Within noise of it: {listed}{more}. {rest}"]
    if any(below[number] > FAR for number in near):
        lines.append(
            f"Differences of more than {FAR:g} points are within noise here: "
            "with more seeds, or more questions to evaluate on, more could be said."
        )
    return lines


def _below_best(facts: Facts) -> dict[int, float]:
    """How many points each row that can be compared is below the best."""
    return {pair["rows"][1]: pair["difference"] for pair in facts["pairs"] if pair["rows"][0] == facts["best"]}


def _cheapest(facts: Facts) -> list[str]:
    """The cheapest rows that are as good as the best, for each cost that all of them have and that differs."""
    below = _below_best(facts)
    as_good = {facts["best"], *(number for number in facts["within_noise"] if below[number] <= CLOSE)}
    good = [row for row in facts["rows"] if row["number"] in as_good]
    least: dict[str, list[str]] = {}
    for cost, name in COST_NAMES.items():
        values = [row["costs"][cost] for row in good]
        if None not in values and len(set(values)) > 1:
            least.setdefault(good[values.index(min(values))]["name"], []).append(name)
    parts = [f"{row} has the least {_joined(costs)}" for row, costs in least.items()]
    return [f"Of those at most {CLOSE:g} point below the best, {'; '.join(parts)}."] if parts else []


def _joined(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
