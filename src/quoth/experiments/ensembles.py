"""The scores of ensembles that a table of a paper has, from the models of finished runs; in RUN/ensembles/.

RUN/ensembles/epoch-1/encoder+adapter-386/metrics.json, answers.jsonl.gz
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quoth.answer.decode import decode
from quoth.answer.reader import Reader
from quoth.answer.record import write_answers
from quoth.errors import QuothError
from quoth.experiments.paper_items import Paper, Row, run_table
from quoth.experiments.reproduce_values import ENCODER, ensemble_folder
from quoth.files import write_json
from quoth.model import open_checkpoint
from quoth.runtime.ensemble import EnsembleRunner, load_members
from quoth.score.quality import span_quality
from quoth.tasks import prepare
from quoth.train import Recipe, read_recipe
from quoth.train.build import build_model
from quoth.train.log import Tell


def score_ensembles(paper: Paper, rows: Sequence[Row], run: Path, name: str, tell: Tell) -> None:
    """Score the ensembles that rows have of the run `name`, which lies in the folder `run`, once."""
    wanted = [(row, row.epoch) for row in rows if row.members and row.run == name and row.epoch is not None]
    if not wanted:
        return
    nominal = run_table(paper.runs[name])["optimisation"]["epochs"]
    recipe = read_recipe(run / "recipe.toml")
    for row, at in wanted:
        epoch = at * recipe.optimisation.epochs / nominal
        folder = ensemble_folder(run, epoch, row.members)
        if not (folder / "metrics.json").exists():
            tell(f"{row.name} of {run.name}")
            _score(recipe, list(_models(recipe, run, epoch, row.members)), folder)


def _models(recipe: Recipe, run: Path, epoch: float, members: Sequence[str]) -> Iterator[Path]:
    """The folders of the members: the encoder of that epoch, or a head on it."""
    for member in members:
        stage = run / "frozen" / f"epoch-{epoch:g}" / member / "model"
        if member == ENCODER:
            last = math.isclose(epoch, recipe.optimisation.epochs)
            stage = run / "model" if last else run / "snapshots" / f"epoch-{epoch:g}"
        if not stage.is_dir():
            raise QuothError(f"{stage}: is not there, and an ensemble needs it; remove {run} and train again")
        yield stage


def _score(recipe: Recipe, models: Sequence[Path], folder: Path) -> None:
    """The element-wise maximum of the members' probabilities on the evaluation of the recipe."""
    members = load_members([open_checkpoint(path) for path in models])
    task: Any = prepare(recipe.data, build_model(recipe), recipe.seed, recipe.evaluation.max_answer_tokens)
    windows, dataset = task.evaluation.windows, task.dataset
    logits = Reader(EnsembleRunner(members, "max"), task.tokenizer).logits(windows)
    contexts, ids = [q.context for q in dataset.questions], [q.id for q in dataset.questions]
    found = decode(windows, logits, contexts, ids=ids, max_answer_tokens=recipe.evaluation.max_answer_tokens)
    folder.mkdir(parents=True, exist_ok=True)
    write_answers(folder / "answers.jsonl.gz", dataset.questions, found)
    write_json(folder / "metrics.json", {"members": list(map(str, models)), "quality": span_quality(dataset, found)[1]})
