"""The search of `quoth prune`: trials one after the other, judged by data that they do not learn from.

A tenth of the training data (whole passages of questions, rows of GLUE, windows of text; at most about 2,048 questions
or rows) is held out of all trials, for their scores: `data.evaluate` is never looked at. The run that follows learns
from all of the training data.

RUN/study.log             the study, to go on from
RUN/search.json           all trials, the best one, and by what they were judged
RUN/search/recipe.toml    the recipe as it was asked for
RUN/search/trial-3/       a pruning run to the first target, until its score is kept
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quoth.data import read
from quoth.data.dataset import Dataset, Report
from quoth.data.glue import read_glue
from quoth.errors import QuothError
from quoth.files import write_json
from quoth.prune.hpo import Row, Study, open_study
from quoth.prune.recipe import GateSettings, PruneRecipe
from quoth.prune.shrink import Bench
from quoth.tasks.classes import ANSWERABLE, ClassData, ClassEvaluation
from quoth.tasks.pretrain import PretrainEvaluation
from quoth.tasks.settings import Data
from quoth.tasks.span_data import Examples, part_of, with_negatives
from quoth.tasks.span_evaluation import SpanEvaluation
from quoth.train.build import Prepared
from quoth.train.harness import Interrupted
from quoth.train.loop import precision_of
from quoth.windows.columns import Windows
from quoth.windows.tokenizer import Tokens

PART, MOST = 0.1, 2048  # of the questions or rows, held out
MAIN = ("best_f1", "acc", "mcc", "pearson", "f1")  # the first that the task has is its main score

RunTrial = Callable[[PruneRecipe, Path, Prepared], dict[str, Any]]


def search_gates(bench: Bench, run: Path, source: str | Path, prepared: Prepared, trial: RunTrial) -> PruneRecipe:
    """Run the trials that are still to be run; the recipe with the best gates, and no search.

    source: the unpruned model, with its heads; prepared: the data of the run; trial: prunes, and gives its metrics
    """
    recipe, search, why = bench.recipe, bench.recipe.search, ""
    held = hold_out(recipe, prepared, Tokens.load(bench.unpruned.origin.tokenizer[0].parent))
    quality = held.evaluate(bench.unpruned, str(bench.accelerator.device), precision_of(recipe.recovery))[1]
    by, unpruned = main_score(quality)
    about = {"by": by, "windows": quality["windows"], "unpruned": unpruned}
    study = open_study(run, search, recipe.seed)
    while study.over < search.trials:
        if bench.stop.signal:
            raise Interrupted(study.over, search.trials, bench.stop.signal)
        number = study.ask()[0]
        folder, why = run / "search" / f"trial-{number}", ""
        if recipe.target.by == "latency":
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run / "latency.json", folder / "latency.json")  # measured once, the same for all
        try:
            facts = trial(_recipe(recipe, study.row(number), source), folder, held)
            study.tell(number, main_score(facts["targets"][f"keep-{recipe.target.keep[0]:g}"]["quality"])[1])
        except QuothError as error:  # such as a loss that is no longer finite
            study.tell_failed(number)
            why = str(error)
        shutil.rmtree(folder, ignore_errors=True)
        _write(run, study, about)
        bench.tell(f"trial {study.over} of {search.trials}: {_line(study, number, by, why)}")
    best = study.best
    if best is None:
        raise QuothError(f"{run}: all {search.trials} trials of the search failed; {why or 'see search.json'}")
    _write(run, study, about)
    return replace(recipe, gates=_gates(recipe, best), search=replace(search, trials=0))


def main_score(quality: dict[str, Any]) -> tuple[str, float]:
    """The name of the score that decides, and its value, higher being better: of text minus the loss."""
    name = next((name for name in MAIN if name in quality), "")
    return (name, float(quality[name])) if name else ("-loss", -float(quality["loss"]))


def hold_out(recipe: PruneRecipe, prepared: Prepared, tokens: Tokens) -> Prepared:
    """The training data of a run in two: what to learn from, and what to be judged by, of which nothing was made up."""
    data, examples = recipe.data, prepared.examples
    count = int(examples.windows.question[-1]) + 1
    asked, made = _questions(data, recipe.seed) if data.task in ("span", "answerable") else (None, 0)
    groups: list[Any] = [question.context for question in asked.questions] if asked else list(range(count))
    passages = list(dict.fromkeys(groups[: count - made]))
    chosen = set(part_of(passages, min(PART, MOST / count), recipe.seed))
    if len(chosen) == len(passages):
        raise QuothError(f"{', '.join(data.train)}: too little to hold a part out for the search; give more data")
    out = np.array([group in chosen for group in groups])
    kept = np.flatnonzero(out[: count - made])
    learnt, judged = _rows(examples, np.flatnonzero(~out)), _rows(examples, kept)
    evaluation: SpanEvaluation | ClassEvaluation | PretrainEvaluation
    if prepared.vocabulary is not None:
        evaluation = PretrainEvaluation(judged, prepared.vocabulary)
    elif asked and data.task == "span":
        dataset = replace(asked, questions=[asked.questions[i] for i in kept])
        evaluation = SpanEvaluation(dataset, judged.windows, tokens, recipe.max_answer_tokens)
    else:
        evaluation = ClassEvaluation(_classes(data, judged))
    return replace(prepared, examples=learnt, evaluation=evaluation)


def _questions(data: Data, seed: int) -> tuple[Dataset, int]:
    """The questions that a run learns from, as `quoth.train` numbers them; how many of them, the last, are made."""
    sources = [read(source) for source in data.train]
    found = [q for source in sources for q in source.questions if q.trainable or data.task == "answerable"]
    version = max(source.version for source in sources)
    questions, made = with_negatives(part_of(found, data.fraction, seed), data.negatives, seed)
    return Dataset(questions, Report(", ".join(data.train)), version), sum(made.values())


def _classes(data: Data, examples: Examples) -> ClassData:
    task, names = "answerable", tuple(ANSWERABLE)
    if data.task == "glue":
        table = read_glue(data.train[0])
        task, names = table.task, table.names
    rows = examples.windows.question
    labels = examples.answers[np.searchsorted(rows, np.arange(int(rows[-1]) + 1))]  # of the first window of each row
    return ClassData(task, examples.windows, labels, names)


def _rows(examples: Examples, rows: np.ndarray) -> Examples:
    """The windows of some questions, or rows (ascending), which are numbered anew from 0."""
    w = examples.windows
    kept = np.flatnonzero(np.isin(w.question, rows))
    lengths = w.lengths[kept]
    starts = np.append(0, np.cumsum(lengths))
    tokens = np.arange(starts[-1]) + np.repeat(w.starts[kept] - starts[:-1], lengths)
    number = np.searchsorted(rows, w.question[kept]).astype(np.int32)
    windows = Windows(w.ids[tokens], w.types[tokens], w.spans[tokens], w.words[tokens], starts, number, w.passage[kept])
    return Examples(windows, examples.answers[kept])


def _recipe(recipe: PruneRecipe, row: Row, source: str | Path) -> PruneRecipe:
    """A trial: to the first target, with little recovery."""
    return replace(
        recipe,
        model=str(source),
        target=replace(recipe.target, keep=recipe.target.keep[:1]),
        gates=_gates(recipe, row),
        recovery=replace(recipe.recovery, epochs=recipe.search.epochs),
        search=replace(recipe.search, trials=0),
    )


def _gates(recipe: PruneRecipe, row: Row) -> GateSettings:
    return replace(recipe.gates, gamma=row["gamma"], rate=row["rate"], steps=row["steps"])


def _line(study: Study, number: int, by: str, why: str) -> str:
    row, best = study.row(number), study.best
    gates = f"γ {row['gamma']:.3g}, rate {row['rate']:.3g}, {row['steps']} steps"
    if row["score"] is None or best is None:
        return f"{gates}: failed, {why or 'its score is not finite'}"
    return f"{gates}: {by} {row['score']:.4g}, best {best['score']:.4g}"


def _write(run: Path, study: Study, about: dict[str, Any]) -> None:
    best = study.best
    write_json(run / "search.json", {**about, "best": best and best["number"], "trials": study.table()})
