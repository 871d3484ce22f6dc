"""`quoth answer`: answer a whole dataset into a predictions file."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.answer import Decoded, Reader
from quoth.cli import common
from quoth.cli.screen import say
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
    threshold: common.Threshold = None,
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
    _check_place(out, nbest, na_probs)
    dataset = common.read_dataset(data)
    reader = Reader.load(model, device=device, precision=precision)
    with common.progress("answering") as tell:
        decoded = reader.decode(
            dataset.questions, n_best=top, max_answer_tokens=max_answer_tokens, rule=chosen, progress=tell
        )
    limit = common.threshold_for(reader, dataset, threshold, chosen)
    ids = [question.id for question in dataset.questions]
    predictions = dict(zip(ids, decoded.predictions(limit)))
    write_json(out, predictions)
    if na_probs:
        probabilities = reader.abstention.calibration.probability(decoded.finite_margins())
        write_json(na_probs, dict(zip(ids, probabilities.tolist())))
    if nbest:
        write_json(nbest, {id: _nbest(decoded, i, limit) for i, id in enumerate(ids)})
    abstained = sum(not text for text in predictions.values())
    facts = {
        "questions": len(ids),
        "no_answer": abstained,
        "threshold": None if math.isinf(limit) else limit,
        "out": str(out),
    }
    line = f"{len(ids):,} questions, {abstained:,} without an answer: {out}"
    common.output(facts, as_json, lambda: say(line, sys.stdout))


def _nbest(decoded: Decoded, i: int, threshold: float) -> list[dict[str, Any]]:
    return [asdict(answer) for answer in decoded.answers(i, threshold)]


def _check_place(*paths: Path | None) -> None:
    """Raise an error for a place that cannot be written, before the model runs."""
    for path in paths:
        if path is not None and path.is_dir():
            raise QuothError(f"{path}: is a folder; name a file to write to")
