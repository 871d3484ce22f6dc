"""What a search has found: the method, the evidence, what is within noise, and the commands that train it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quoth.data import read
from quoth.experiments import advise_data as data
from quoth.experiments.advise_candidates import Candidate
from quoth.experiments.advise_limits import Costs, show_bytes
from quoth.experiments.advise_training import Score
from quoth.experiments.halving import Place
from quoth.score.seeds import Groups, compare_seeds, group_questions, holm, seeds_interval

if TYPE_CHECKING:
    from quoth.experiments.advise import Ask, Plan

Facts = dict[str, Any]
LEVEL = 0.05
CLOSE = 1.0  # points that make no difference to a user
FAR = 5.0  # points by which a score should be known
NAMED = 3  # of the candidates that were dropped


def report(ask: Ask, plan: Plan, candidates: Sequence[Candidate], places: list[list[Place[Score]]], out: Path) -> Facts:
    """What `quoth advise --json` prints."""
    questions = read(out / "questions" / data.HELD_OUT).questions
    groups = group_questions([q.title for q in questions], [q.context for q in questions])
    rows = _rows(plan, candidates, places, groups)
    chosen = candidates[places[-1][0].candidate]
    facts: Facts = {
        "data": ask.data,
        "model": ask.model,
        "limits": asdict(ask.limits),
        "train_questions": plan.train_questions,
        "held_out_questions": plan.held_out_questions,
        "held_out": {"by": plan.by, "groups": plan.groups},
        "unit": groups.what,
        "never_answering": 100 * sum(q.impossible for q in questions) / len(questions),
        "epochs": plan.epochs,
        "windows": plan.windows,
        "best": chosen.name,
        "rows": rows,
        "left_out": plan.left_out,
        "rounds": [{"candidates": one.candidates, "windows": one.windows} for one in plan.rounds],
        "cost": _cost(plan, places),
        "commands": commands(ask, plan.costs[chosen.name], out),
    }
    facts["summary"] = summary(facts)
    return facts


def _rows(plan: Plan, candidates: Sequence[Candidate], places: list[list[Place[Score]]], groups: Groups) -> list[Facts]:
    """A row a candidate, the best first: its last round, and its difference from the best one in that round."""
    last = {place.candidate: (turn, place.scored) for turn, found in enumerate(places) for place in found}
    order = list(dict.fromkeys(place.candidate for found in reversed(places) for place in found))
    best = {turn: place.scored for turn, found in enumerate(places) for place in found if place.candidate == order[0]}
    rows: list[Facts] = []
    for number in order:
        turn, score = last[number]
        one = candidates[number]
        history = [place.scored for found in places for place in found if place.candidate == number]
        costs = plan.costs[one.name]
        rows.append(
            {
                "name": one.name,
                "rounds": turn + 1,
                "windows": score.windows,
                "score": score.score,
                "interval": _interval(score, groups),
                "exact": score.exact,
                "f1": score.f1,
                "loss": score.loss,
                "history": [{"windows": s.windows, "score": s.score, "loss": s.loss} for s in history],
                "against_best": None if number == order[0] else _against(score, best[turn], groups),
                "trainable_parameters": one.sizes.trainable,
                "total_parameters": one.sizes.total,
                "parameters_to_answer": one.parameters,
                "bytes": costs.size,
                "form": costs.form,
                "latency": costs.latency,
                "train_seconds": costs.train,
                "error": score.error,
            }
        )
    tested = [row for row in rows if row["against_best"]]
    for row, corrected in zip(tested, holm([row["against_best"]["p_value"] for row in tested])):
        row["against_best"]["corrected"] = corrected
    return rows


def _interval(score: Score, groups: Groups) -> list[float] | None:
    return None if score.error else seeds_interval([score.scores], groups).percent()


def _against(score: Score, best: Score, groups: Groups) -> Facts | None:
    """The candidate minus the best one, both at the end of the candidate's last round."""
    return None if score.error else compare_seeds([score.scores], [best.scores], groups).to_json()


def _cost(plan: Plan, places: list[list[Place[Score]]]) -> Facts:
    """What the search took, and what training every candidate whole would take, in windows."""
    last = {place.candidate: place.scored for found in places for place in found}
    walls = [place.scored.wall for found in places for place in found]
    windows = sum(score.windows for score in last.values())
    whole = plan.windows * len(plan.costs)
    return {
        "windows": windows,
        "whole_sweep_windows": whole,
        "share": windows / whole,
        "train_seconds": sum(score.seconds for score in last.values()),
        "wall_seconds": sum(walls),
    }


def commands(ask: Ask, costs: Costs, out: Path) -> list[str]:
    """What trains the method on all questions and, where the size is limited, brings it to that size."""
    device = f" --device {ask.device}" if ask.device else ""
    found = [f"quoth train {_word(out / 'train.toml')} --out {_word(out / 'trained')}{device}"]
    if ask.limits.size is None:
        return found
    model, source = out / "trained" / "model", _word(ask.data)
    if costs.form == "pruned":
        pruned = out / "pruned"
        found.append(f"quoth prune {_word(model)} --keep {costs.keep:g} --data {source} --out {_word(pruned)}{device}")
        model = pruned / f"keep-{costs.keep:g}" / "model"
    int8 = "" if costs.form == "float32" else " --int8"
    found.append(f"quoth export {_word(model)} --to {_word(out / 'exported')}{int8} --data {source}")
    return found


def _word(value: Path | str) -> str:
    return shlex.quote(str(value))


def summary(facts: Facts) -> list[str]:
    """The sentences, in order: the advice, how sure it is, what else is as good."""
    rows = facts["rows"]
    best = rows[0]
    low, high = best["interval"]
    share = f"{100 * facts['cost']['share']:.0f} % of the training that all candidates would take whole"
    untrained = _untrained(best, facts)
    lines = [
        *untrained,
        f"{'Ahead so far is' if untrained else 'Train by'} {best['name']!r}: F1 {best['score']:.2f} (95 % interval "
        f"{low:.2f} to {high:.2f}) on "
        f"{facts['held_out_questions']:,} held-out questions, after {best['windows']:,} windows; a whole training has "
        f"{facts['windows']:,.0f}. The search took {share}.",
        *_certainty(rows, facts),
    ]
    if best["form"] == "int8":
        lines.append(f"It fits --max-size in int8: about {show_bytes(best['bytes'])}. The F1 above is of float32.")
    if best["form"] == "pruned":
        lines.append(
            f"It fits --max-size only pruned and in int8: about {show_bytes(best['bytes'])}. The F1 above is of the "
            "unpruned model; what pruning costs was not measured."
        )
    return lines


def _untrained(best: Facts, facts: Facts) -> list[str]:
    """Whether the best candidate is no better than a model that never answers."""
    if not facts["never_answering"] or best["interval"][0] > facts["never_answering"]:
        return []
    return [
        "The data or the training are too few to tell which method is best: no candidate is better than a model that "
        f"never answers, which has F1 {facts['never_answering']:.2f} here. Give more questions, or a larger --budget."
    ]


def _certainty(rows: Sequence[Facts], facts: Facts) -> list[str]:
    """Whether others may be as good, and whether the data are too few to tell."""
    finalists = [row for row in rows[1:] if row["rounds"] == rows[0]["rounds"] and row["against_best"]]
    near = [row for row in rows[1:] if row["against_best"] and row["against_best"]["corrected"] >= LEVEL]
    lines = []
    if finalists and finalists[0] in near:
        other = finalists[0]
        found = other["against_best"]
        low, high = found["interval"]
        lines.append(
            f"The data are too few to tell it from {other['name']!r}: {found['difference']:+.2f} points (95 % interval "
            f"{low:+.2f} to {high:+.2f}). Either will do, or give more questions."
        )
    dropped = [row["name"] for row in near if row not in finalists]
    if dropped:
        more = f" and {len(dropped) - NAMED} more" if len(dropped) > NAMED else ""
        lines.append(f"Dropped earlier, though within noise of it then: {', '.join(dropped[:NAMED])}{more}.")
    if len(rows) > 1 and not near:
        lines.append("All others are worse by more than noise, each in its last round.")
    lines += _cheaper([row for row in finalists if row in near], rows[0])
    low, high = rows[0]["interval"]
    if high - low > 2 * FAR:
        lines.append(
            f"{facts['held_out_questions']:,} held-out questions are few: the F1 is known to ± "
            f"{(high - low) / 2:.1f} points."
        )
    return lines


def _cheaper(near: Sequence[Facts], best: Facts) -> list[str]:
    """Whether one that is hardly worse trains fewer parameters."""
    found = [
        row
        for row in near
        if row["trainable_parameters"] < best["trainable_parameters"] and row["against_best"]["difference"] > -CLOSE
    ]
    if not found:
        return []
    one = min(found, key=lambda row: row["trainable_parameters"])
    return [f"{one['name']!r} trains fewer parameters: {one['trainable_parameters']:,}."]
