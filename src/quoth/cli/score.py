"""`quoth score`: predictions against a dataset, by the official rule of SQuAD."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from quoth.cli.common import AsJson, output
from quoth.cli.screen import console, say
from quoth.data import read
from quoth.errors import QuothError
from quoth.files import read_json
from quoth.score import Scored, average_precisions, best_thresholds, compare, score_squad1, score_squad2
from quoth.score.analysis import intervals


def score(
    data: Annotated[str, typer.Argument(help="The dataset with the right answers.")],
    predictions: Annotated[Path, typer.Argument(help='The predictions, as JSON of {"question id": "answer text", …}.')],
    na_probs: Annotated[
        Path | None, typer.Option(help='Read {"question id": probability of no answer, …} from here.')
    ] = None,
    na_threshold: Annotated[
        float | None, typer.Option(help="Count as unanswered where the probability is above this. [default: 1.0]")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Compare with these other predictions.")] = None,
    squad1: Annotated[bool, typer.Option("--squad1", help="Score by the rule of SQuAD 1.1, not 2.0.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score predictions by the official rule of SQuAD, with 95 % bootstrap intervals."""
    if squad1 and na_probs:
        raise QuothError("--na-probs: SQuAD 1.1 knows no question without answer; leave out --squad1")
    if na_threshold is not None and (not na_probs or math.isnan(na_threshold)):
        raise QuothError(f"--na-threshold {na_threshold:g}: must be a number, and needs --na-probs")
    questions = read(data).questions
    if not questions:
        raise QuothError(f"{data}: has no questions")
    ids = {question.id for question in questions}
    rule = score_squad1 if squad1 else score_squad2

    texts = _predictions(predictions, ids)
    scored = rule(questions, texts)
    _warn_of_missing(predictions, scored, squad1)
    thresholds: dict[str, float] = {}
    if na_probs:
        probs = _probabilities(na_probs, ids)
        thresholds = best_thresholds(scored, texts, probs) | average_precisions(scored, probs)
        scored = scored.at_threshold(probs, 1.0 if na_threshold is None else na_threshold)
    result: dict[str, Any] = {**scored.summary(), **thresholds}
    result |= {"missing": len(scored.missing), "interval": intervals(scored)}
    if against:
        other = rule(questions, _predictions(against, ids))
        _warn_of_missing(against, other, squad1)
        result["against"] = _comparison(scored, other, against)
    if squad1:
        result = _squad1_keys(result)
    output(result, as_json, lambda: _print_tables(result))


def _predictions(path: Path, ids: set[str]) -> dict[str, str]:
    """Read {id: text}; every value must be a string, and some id must be known."""
    texts = _object(path, ids)
    for id, text in texts.items():
        if not isinstance(text, str):
            raise QuothError(f"{path}: the prediction of {id} is {json.dumps(text)[:40]}, not a string")
    return texts


def _probabilities(path: Path, ids: set[str]) -> dict[str, float]:
    """Read {id: number}; any finite number will do, since only its order counts."""
    probs = _object(path, ids)
    for id, prob in probs.items():
        number = isinstance(prob, int | float) and not isinstance(prob, bool)
        if not number or not abs(prob) <= sys.float_info.max:
            raise QuothError(f"{path}: the value of {id} is {json.dumps(prob)[:40]}, not a finite number")
    return probs


def _object(path: Path, ids: set[str]) -> dict[str, Any]:
    """Read a JSON object by question id, with a warning about ids that the data do not have."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise QuothError(f"{path}: must be one JSON object by question id, not a {type(values).__name__}")
    unknown = [id for id in values if id not in ids]
    if len(unknown) == len(values):
        example = f", e.g. not {unknown[0]}" if unknown else ""
        raise QuothError(f"{path}: none of its {len(values)} ids is in the data{example}")
    if unknown:
        _warn(f"{path}: left out {len(unknown)} of its ids that are not in the data, e.g. {unknown[0]}")
    return values


def _squad1_keys(result: dict[str, Any]) -> dict[str, Any]:
    """The same under the keys of evaluate-v1.1.py, which knows no questions without answer."""
    kept = {key: value for key, value in result.items() if not key.startswith(("HasAns_", "NoAns_"))}
    values = (_squad1_keys(value) if isinstance(value, dict) else value for value in kept.values())
    return dict(zip(("exact_match" if key == "exact" else key for key in kept), values))


def _comparison(ours: Scored, theirs: Scored, path: Path) -> dict[str, Any]:
    """Ours − theirs in per cent, over the questions that both have, with interval and p-value."""
    places = {id: i for i, id in enumerate(theirs.ids)}
    pairs = [(i, places[id]) for i, id in enumerate(ours.ids) if id in places]
    if not pairs:
        raise QuothError(f"{path}: has no question in common with the other predictions")
    left, right = map(list, zip(*pairs))
    result: dict[str, Any] = {"file": str(path), "questions": len(pairs)}
    for name in ("exact", "f1"):
        result[name] = compare(getattr(ours, name)[left], getattr(theirs, name)[right]).to_json()
    return result


def _print_tables(result: dict[str, Any]) -> None:
    exact = "exact" if "exact" in result else "exact_match"
    table = Table("", "questions", "exact", "95 %", "F1", "95 %")
    for prefix, label in (("", "all"), ("HasAns_", "has answer"), ("NoAns_", "no answer")):
        if f"{prefix}total" in result:
            cells = [f"{result[f'{prefix}total']}"]
            for key in (prefix + exact, prefix + "f1"):
                cells += [f"{result[key]:.2f}", _range(result["interval"][key])]
            table.add_row(label, *cells)
    screen = console()
    screen.print(table)
    for name in ("exact", "f1"):
        if f"best_{name}" in result:
            threshold = result[f"best_{name}_thresh"]
            screen.print(f"best {name}: {result[f'best_{name}']:.2f} at threshold {threshold:.6g}")
    if "pr_f1_ap" in result:
        averages = ", ".join(f"{name} {result[f'pr_{name}_ap']:.2f}" for name in ("exact", "f1", "oracle"))
        screen.print(f"average precision: {averages}")
    if "against" in result:
        other = result["against"]
        screen.print(f"difference from {other['file']} on {other['questions']} questions:")
        table = Table("", "difference", "95 %", "p")
        for key in (exact, "f1"):
            found = other[key]
            cells = [f"{found['difference']:+.2f}", _range(found["interval"], "+"), f"{found['p_value']:.4f}"]
            table.add_row("F1" if key == "f1" else "exact", *cells)
        screen.print(table)


def _range(interval: list[float], sign: str = "") -> str:
    return f"{interval[0]:{sign}.2f} – {interval[1]:{sign}.2f}"


def _warn_of_missing(path: Path, scored: Scored, squad1: bool) -> None:
    if scored.missing:
        fate = "counted as wrong" if squad1 else "left out of the scores"
        example = f"e.g. {scored.missing[0]}"
        _warn(f"{path}: no prediction for {len(scored.missing)} of the questions, {example}: {fate}")


def _warn(message: str) -> None:
    say(f"quoth: warning: {message}")
