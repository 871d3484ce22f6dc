"""The tables of `benchmarks.advise`: what its searches chose, by the whole trainings of all candidates."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from benchmarks.race import markdown

Facts = dict[str, Any]


def main_score(quality: Facts) -> float:
    """F1, at the best threshold where questions may have no answer."""
    return float(quality["best_f1"] if "best_f1" in quality else quality["f1"])


def judge(name: str, done: Mapping[str, Facts]) -> Facts:
    """What the choices of the searches on a data set come to by the whole trainings that are done."""
    mine = {key.removeprefix(f"{name}-"): facts for key, facts in done.items() if key.startswith(f"{name}-")}
    runs: dict[str, list[Facts]] = {}
    for key, facts in mine.items():
        if key.startswith("train-"):
            runs.setdefault(key.removeprefix("train-").rpartition("-seed")[0], []).append(facts)
    sweep = {method: _method(found) for method, found in runs.items()}
    searches = [
        _judged(key.removeprefix("search-"), facts, sweep) for key, facts in mine.items() if key.startswith("search-")
    ]
    return {"data": name, "sweep": sweep, "searches": searches}


def _method(found: list[Facts]) -> Facts:
    """A candidate that was trained whole, with one seed or several."""
    return {
        "f1": mean(main_score(facts["quality"]) for facts in found),
        "seeds": len(found),
        "windows": mean(facts["windows"] for facts in found),
        "seconds": mean(facts["process_seconds"] for facts in found),
        "train_seconds": mean(facts["train_seconds"] for facts in found),
    }


def _judged(kind: str, facts: Facts, sweep: Facts) -> Facts:
    """One search: its choice, the best of what it could choose from, and both costs."""
    names = [row["name"].replace(" ", "-") for row in facts["rows"]]
    allowed = {name: sweep[name] for name in names if name in sweep}
    chosen = facts["best"].replace(" ", "-")
    found: Facts = {"limits": kind, "choice": chosen, "candidates": len(names), "trained": len(allowed)}
    if not names or len(allowed) < len(names):
        return found
    best = max(allowed, key=lambda name: allowed[name]["f1"])
    totals = {key: sum(one[key] for one in allowed.values()) for key in ("windows", "seconds", "train_seconds")}
    seconds = facts["process_seconds"] + facts.get("plan_seconds", 0.0)
    return found | {
        "best": best,
        "choice_f1": allowed[chosen]["f1"],
        "best_f1": allowed[best]["f1"],
        "regret": allowed[best]["f1"] - allowed[chosen]["f1"],
        "share_of_windows": facts["cost"]["windows"] / totals["windows"],
        "share_of_train_seconds": facts["cost"]["train_seconds"] / totals["train_seconds"],
        "share_of_seconds": seconds / totals["seconds"],
        "seconds": seconds,
        "sweep_seconds": totals["seconds"],
    }


def tables(results: Facts) -> str:
    """All tables, from what results.json holds."""
    jobs = results["jobs"]
    judged = [judge(name, jobs) for name in results["asked"]["data"]]
    parts = [_settings(results)]
    for one in judged:
        parts += [f"{one['data']}: the whole sweep", _sweep(one)]
    curves = {key: facts["rounds"] for key, facts in jobs.items() if "-curve-" in key}
    if curves:
        parts += ["F1 / loss on the held-out part after each round, none dropped", _curves(curves)]
    left = results["left"]
    if left:
        parts.append(f"not done: {len(left)} jobs, the first is {left[0]}; the same command with --resume goes on")
    parts += ["the choices", _choices(judged)]
    return "\n\n".join(parts)


def _settings(results: Facts) -> str:
    asked = results["asked"]
    latency = f"{1e3 * results['latency']:.2f} ms" if results.get("latency") else "not measured"
    return (
        f"{asked['questions']:,} questions to advise on, {asked['test']:,} to test on, {asked['seeds']} seed(s), "
        f"{asked['workers']} processes; --max-size {asked['size'] / 1e6:g}MB, --max-latency {latency}; "
        f"{results['hardware']}"
    )


def _sweep(one: Facts) -> str:
    ordered = sorted(one["sweep"].items(), key=lambda item: -item[1]["f1"])
    rows = [
        [name, f"{found['f1']:.2f}", str(found["seeds"]), f"{found['windows']:,.0f}", f"{found['train_seconds']:.1f}",
         f"{found['seconds']:.1f}"]
        for name, found in ordered
    ]  # fmt: skip
    return markdown(["candidate", "F1", "seeds", "windows", "training s", "process s"], rows)


def _curves(curves: Mapping[str, list[Facts]]) -> str:
    most = max(map(len, curves.values()))
    rows = [[key, *(f"{one['score']:.1f} / {one['loss']:.2f}" for one in found)] for key, found in curves.items()]
    return markdown(["candidate", *(f"round {number + 1}" for number in range(most))], rows)


def _choices(judged: list[Facts]) -> str:
    """The table that the claim is about."""
    heads = ["data", "limits", "candidates", "choice", "its F1", "best", "its F1", "regret", "cost: windows",
             "training s", "process s"]  # fmt: skip
    rows = [
        [one["data"], s["limits"], str(s["candidates"]), s["choice"], f"{s['choice_f1']:.2f}", s["best"],
         f"{s['best_f1']:.2f}", f"{s['regret']:.2f}", f"{s['share_of_windows']:.3f}",
         f"{s['share_of_train_seconds']:.3f}", f"{s['share_of_seconds']:.3f}"]
        if "regret" in s
        else [one["data"], s["limits"], str(s["candidates"]), s["choice"], f"{s['trained']} trained", *[""] * 6]
        for one in judged for s in one["searches"]
    ]  # fmt: skip
    return markdown(heads, rows)
