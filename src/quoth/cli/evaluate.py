"""`quoth evaluate`: answer a dataset, score the answers, and say what they cost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from quoth.answer import (
    Decoded,
    Reader,
    area_under_risk_coverage,
    decode,
    expected_calibration_error,
    fit_calibration,
    judge,
    risk_coverage,
    store_abstention,
)
from quoth.answer.abstention import check_storable
from quoth.answer.find import check_min_score
from quoth.cli import common
from quoth.cli.screen import console
from quoth.data import Dataset
from quoth.embedded import is_embedded
from quoth.errors import QuothError
from quoth.hub import find_model
from quoth.score import Cost, bootstrap, span_quality
from quoth.score.calibrate import ENOUGH, equal_mass_error
from quoth.score.thresholds import Choices, choices, cross_fitted, fit_abstention
from quoth.windows import Windows


def evaluate(
    data: common.Data,
    model: common.Model = None,
    min_score: common.MinScore = None,
    threshold: common.Threshold = None,
    store_threshold: Annotated[
        bool,
        typer.Option("--store-threshold", help="Fit the no-answer threshold on DATA and store it with the model."),
    ] = False,
    max_answer_tokens: common.AnswerTokens = 30,
    rule: common.RuleName = "devlin",
    device: common.Device = None,
    precision: common.Precision = None,
    as_json: common.AsJson = False,
) -> None:
    """Answer a dataset, score the answers by the official rule, and measure the cost."""
    chosen = common.check_rule(rule)
    check_min_score(min_score, threshold)
    dataset = common.read_dataset(data)
    if store_threshold:
        _check_store(dataset, model, threshold if min_score is None else min_score, chosen)
    reader = Reader.load(model, device=device, precision=precision)
    if store_threshold and reader.confidence:
        raise QuothError(f"{model}: has a calibration, which goes before a threshold; fit it anew with quoth calibrate")
    calibrated = common.is_calibrated(reader, threshold, chosen)
    begin = time.perf_counter()
    with common.progress("answering") as tell:
        windows = reader.windows(dataset.questions)
        logits = reader.logits(windows, tell)
        contexts, ids = [q.context for q in dataset.questions], [q.id for q in dataset.questions]
        if calibrated and reader.confidence:
            asked = [q.question for q in dataset.questions]
            decoded = judge(
                reader.confidence, windows, logits, asked, contexts, max_answer_tokens=max_answer_tokens, ids=ids
            )
        else:
            decoded = decode(windows, logits, contexts, max_answer_tokens=max_answer_tokens, rule=chosen, ids=ids)
    seconds = time.perf_counter() - begin
    these = choices(dataset.questions, decoded)
    if store_threshold:
        reader.abstention = fit_abstention(these, Path(data).name)
        store_abstention(reader.source, reader.abstention)
    decoded, limit = common.limited(reader, dataset, decoded, threshold, min_score, chosen)
    facts = _scores(dataset, decoded, limit, these, calibrated)
    facts["min_score"] = min_score
    facts["stored"] = reader.abstention.to_json() if store_threshold else None
    facts["cost"] = _cost(reader, windows, len(dataset), seconds)
    common.output(facts, as_json, lambda: _show(facts))


def _check_store(dataset: Dataset, model: str | None, threshold: float | None, rule: str) -> None:
    """Raise an error for what could not be stored, before the model runs."""
    if threshold is not None or rule != "devlin":
        raise QuothError("--store-threshold fits a threshold of Devlin's rule: leave out --threshold and --rule")
    if dataset.version == "1.1":
        raise QuothError(f"{dataset.report.source}: every question has an answer, so no threshold can be fitted on it")
    if model is None or is_embedded(model):
        raise QuothError(
            "--store-threshold: the embedded reader keeps its own; name the folder with --model that is to keep it"
        )
    check_storable(model)


def _scores(dataset: Dataset, decoded: Decoded, threshold: float, these: Choices, calibrated: bool) -> dict[str, Any]:
    scored, summary = span_quality(dataset, decoded, threshold)
    facts = {**summary, "interval": {"exact": bootstrap(scored.exact).percent(), "f1": bootstrap(scored.f1).percent()}}
    if dataset.version == "1.1":
        return facts
    facts["cross_fitted"] = cross_fitted(dataset.questions, these)
    if calibrated:
        right = (these.answered.f1 >= ENOUGH) & these.answered.has_answer
        probability = np.exp(np.maximum(decoded.score[:, 0], -700.0))
        return {
            **facts,
            "threshold": None,
            "calibration": {
                "expected_calibration_error": equal_mass_error(probability, right.astype(np.float64)),
                "area_under_risk_coverage": area_under_risk_coverage(*risk_coverage(probability, right)),
            },
        }
    margins = np.array(decoded.finite_margins())
    calibration = fit_calibration(margins, ~scored.has_answer)
    no_answer = calibration.probability(margins)
    coverage, risk = risk_coverage(np.maximum(no_answer, 1 - no_answer), scored.f1)
    return {
        **facts,
        "calibration": {
            "temperature": calibration.temperature,
            "expected_calibration_error": expected_calibration_error(no_answer, ~scored.has_answer),
            "area_under_risk_coverage": area_under_risk_coverage(coverage, risk),
        },
    }


def _cost(reader: Reader, windows: Windows, questions: int, seconds: float) -> dict[str, Any]:
    flops = [reader.runner.flops(int(length)) for length in windows.lengths]
    known = [value for value in flops if value is not None]
    weights = find_model(reader.source).weights
    cost = Cost(
        parameters=reader.runner.parameters,
        bytes=sum(path.stat().st_size for path in weights),
        questions=questions,
        seconds=seconds,
        flops_per_question=sum(known) / questions if known else None,
    )
    return cost.to_dict()


def _show(facts: dict[str, Any]) -> None:
    screen = console()
    table = common.figures_table("", "exact", "F1", "questions")
    for name, prefix in (("all", ""), ("with an answer", "HasAns_"), ("without", "NoAns_")):
        if f"{prefix}f1" in facts:
            exact, f1, total = (facts[f"{prefix}{key}"] for key in ("exact", "f1", "total"))
            table.add_row(name, f"{exact:.2f}", f"{f1:.2f}", f"{total:,}")
    screen.print(table)
    low, high = facts["interval"]["f1"]
    screen.print(f"95 % interval of F1: {low:.2f} to {high:.2f}")
    if "best_f1" in facts:
        _show_thresholds(screen, facts)
    cost = facts["cost"]
    screen.print(
        f"{cost['questions_per_second']:.1f} questions/s, {cost['parameters']:,} parameters, "
        f"{cost['bytes'] / 1e6:.1f} MB; {cost['hardware']['cpu']}"
    )


def _show_thresholds(screen: Console, facts: dict[str, Any]) -> None:
    used = "never abstains" if facts["threshold"] is None else f"abstains above {facts['threshold']:.3f}"
    if facts["min_score"]:
        used = f"abstains below the score {facts['min_score']:g}"
    elif "temperature" not in facts["calibration"] and facts["min_score"] is None:
        used = "abstains where no answer is more probable than a right one"
    screen.print(f"{used}; best F1 {facts['best_f1']:.2f} at threshold {facts['best_f1_thresh']:.3f}")
    crossed = facts["cross_fitted"]
    if crossed:
        halves = " and ".join(f"{half['f1']:.2f} at {half['threshold']:.3f}" for half in crossed["halves"])
        screen.print(f"each half of the articles at the other's threshold: F1 {crossed['f1']:.2f} ({halves})")
    if facts["stored"]:
        screen.print("the threshold was fitted on these very questions and is kept in the model folder")
