"""`quoth answer`: answer a whole dataset into a predictions file."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.answer import Decoded, Reader, Rule
from quoth.answer.calibration import Calibration
from quoth.answer.find import check_min_score
from quoth.answer.reader import Progress
from quoth.cli import common
from quoth.cli.screen import say
from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.files import write_json


def answer(
    data: common.Data,
    out: Annotated[Path, typer.Option(help="Write the predictions, {id: text}, to this file.")],
    model: common.Model = None,
    nbest: Annotated[Path | None, typer.Option(help="Write the best answers to each question here.")] = None,
    na_probs: Annotated[
        Path | None, typer.Option(help="Write the probability of no answer of each question here, for `score`.")
    ] = None,
    min_score: common.MinScore = None,
    top: Annotated[int, typer.Option(help="Keep this many answers to each question in --nbest.", min=1, max=1000)] = 20,
    max_answer_tokens: common.AnswerTokens = 30,
    rule: common.RuleName = "devlin",
    device: common.Device = None,
    precision: common.Precision = None,
    as_json: common.AsJson = False,
) -> None:
    """Answer every question of a dataset; `quoth score` takes what this writes.

    Questions of SQuAD 1.1 always get an answer; those of 2.0 get "" where the reader abstains.
    """
    chosen = common.check_rule(rule)
    check_min_score(min_score)
    _check_place(out, nbest, na_probs)
    dataset = common.read_dataset(data)
    reader = Reader.load(model, device=device, precision=precision)
    with common.progress("answering") as tell:
        decoded = _decode(reader, dataset, top, max_answer_tokens, chosen, tell)
    calibrated = common.is_calibrated(reader, None, chosen)
    scale = Calibration(1.0) if calibrated else reader.abstention.calibration  # of logarithms the temperature is 1
    no_answer = scale.probability(decoded.finite_margins())
    decoded, limit = common.limited(reader, dataset, decoded, None, min_score, chosen)
    ids = [question.id for question in dataset.questions]
    predictions = dict(zip(ids, decoded.predictions(limit)))
    write_json(out, predictions)
    if na_probs:
        write_json(na_probs, dict(zip(ids, no_answer.tolist())))
    if nbest:
        write_json(nbest, {id: _nbest(decoded, i, limit, calibrated) for i, id in enumerate(ids)})
    abstained = sum(not text for text in predictions.values())
    facts = {
        "questions": len(ids),
        "no_answer": abstained,
        "threshold": None if math.isinf(limit) or calibrated else limit,
        "min_score": min_score,
        "out": str(out),
    }
    line = f"{len(ids):,} questions, {abstained:,} without an answer: {out}"
    common.output(facts, as_json, lambda: say(line, sys.stdout))


def _decode(reader: Reader, dataset: Dataset, top: int, longest: int, rule: Rule, tell: Progress) -> Decoded:
    if common.is_calibrated(reader, None, rule):
        return reader.judge(dataset.questions, n_best=top, max_answer_tokens=longest, progress=tell)
    return reader.decode(dataset.questions, n_best=top, max_answer_tokens=longest, rule=rule, progress=tell)


def _nbest(decoded: Decoded, i: int, threshold: float, calibrated: bool) -> list[dict[str, Any]]:
    """The answers to question i; with a calibration the scores are probabilities, else sums of logits."""
    keys = ("text", "start", "end", "score", "no_answer")
    found = [{key: getattr(answer, key) for key in keys} for answer in decoded.answers(i, threshold)]
    return [{**one, "score": math.exp(one["score"])} for one in found] if calibrated else found


def _check_place(*paths: Path | None) -> None:
    """Raise an error for a place that cannot be written, before the model runs."""
    for path in paths:
        if path is not None and path.is_dir():
            raise QuothError(f"{path}: is a folder; name a file to write to")
