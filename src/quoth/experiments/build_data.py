"""The data of a build, read and made before its first stage, and what can be checked of all stages with them.

RUN/negatives.json holds the unanswerable questions that the teachers ask for, RUN/unlabelled.json the pairs without a
label that the student asks for (without a student, the cut). A stage that asks for the same of the same questions has
these files; one that asks for others makes its own. Both need no GPU: a build that is stopped as its first teacher
begins, and goes on elsewhere with the same names of files, does not make them again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quoth.augment import Negative, as_squad, make_negatives, make_unlabelled
from quoth.data import Dataset, Question, read
from quoth.data.plain_text import read_paragraphs
from quoth.errors import QuothError
from quoth.experiments.build_recipe import BuildRecipe
from quoth.files import read_object, write_json
from quoth.model import Model
from quoth.prune.plan import check_run, make_cost, unreachable
from quoth.tasks import Data, Negatives, Task, prepare
from quoth.tasks.settings import Unlabelled
from quoth.train.build import build_model
from quoth.train.log import Tell
from quoth.train.metrics import FILE
from quoth.train.teacher_logits import check_lengths, check_teacher
from quoth.windows import Tokenizer

MADE, PAIRS = "negatives.json", "unlabelled.json"
LONGEST = 256  # windows of the student, in whose tokens of the teacher it is seen whether the teacher can read them


@dataclass(frozen=True)
class Sources:
    """What was read. evaluation: the threshold is fitted on it; calibration: by name; counts: of every source."""

    evaluation: Dataset
    calibration: dict[str, Dataset]
    counts: list[dict[str, Any]]


def read_sources(recipe: BuildRecipe) -> Sources:
    """Read all files of questions and texts that a recipe names, so that none is missing after hours."""
    counts: list[dict[str, Any]] = []

    def questions(source: str, use: str) -> Dataset:
        dataset = read(source)
        unanswerable = sum(question.impossible for question in dataset.questions)
        name = Path(source).name if Path(source).exists() else source
        row = {"source": name, "use": use, "questions": len(dataset.questions), "unanswerable": unanswerable}
        if row not in counts:
            counts.append(row)
        return dataset

    stages = recipe.data.values()
    for source in _once(source for data in stages for source in data.train):
        questions(source, "training")
    for source in _once(source for data in stages for source in data.unlabelled.questions):
        questions(source, "training, without answers")
    for source in _once(source for data in stages for source in data.unlabelled.passages):
        read_paragraphs(source)
    for source in _once(data.evaluate for data in stages if data.evaluate):
        dataset = questions(source, "validation")
        if source == recipe.evaluate:
            evaluation = dataset
    calibration = {Path(source).name: questions(source, "calibration") for source in recipe.calibrate.data}
    _check_kinds(recipe.evaluate, evaluation, "a threshold")
    for source, dataset in zip(recipe.calibrate.data, calibration.values()):
        _check_kinds(source, dataset, "a calibration")
    return Sources(evaluation, calibration, counts)


def training_data(run: Path, recipe: BuildRecipe, tell: Tell | None = None) -> dict[str, Data]:
    """The data of each stage, with files of RUN in place of the negatives and pairs that it asks for."""
    say = tell or (lambda _: None)
    first, last = recipe.teacher, list(recipe.data.values())[min(1, len(recipe.data) - 1)]
    negatives: dict[str, Any] = {
        "train": list(first.data.train),
        "parts": asdict(first.data.negatives),
        "seed": first.seed,
    }
    pairs: dict[str, Any] = {"train": list(last.train), "parts": asdict(last.unlabelled), "seed": _seed(recipe)}
    has_negatives = first.data.fraction == 1 and any(negatives["parts"].values())
    has_pairs = last.fraction == 1 and _makes_pairs(last)
    if has_negatives:
        _make(run / MADE, negatives, say, lambda asked: make_negatives(asked, negatives["parts"], first.seed))
    if has_pairs:
        _make(run / PAIRS, pairs, say, lambda asked: _pairs(last.unlabelled, asked, pairs["seed"]))

    def joined(data: Data) -> Data:
        """All that a stage asks for is in the files, or nothing is: pairs are made of questions without negatives."""
        asked = (data.train, data.fraction)
        if asked != (first.data.train, first.data.fraction) or data.negatives != first.data.negatives:
            return data
        if _makes_pairs(data):
            if not has_pairs or (*asked, data.unlabelled) != (last.train, last.fraction, last.unlabelled):
                return data
            data = replace(data, unlabelled=Unlabelled(questions=(*data.unlabelled.questions, str(run / PAIRS))))
        if has_negatives:
            data = replace(data, train=(*data.train, str(run / MADE)), negatives=Negatives())
        return data

    return {name: joined(data) for name, data in recipe.data.items()}


def _seed(recipe: BuildRecipe) -> int:
    """By which pairs are drawn: of the student or, without one, of the cut."""
    later = recipe.student or recipe.cut
    return later.seed if later else recipe.teacher.seed


def _makes_pairs(data: Data) -> bool:
    return any(data.unlabelled.parts.values())


def _pairs(wanted: Unlabelled, asked: list[Question], seed: int) -> list[Negative]:
    """Pairs without a label, as `as_squad` wants them. That they have no answer is not looked at."""
    texts = [text for path in wanted.passages for text in read_paragraphs(path)]
    made = make_unlabelled(asked, wanted.parts, texts, seed)
    return [Negative(question, kind, "") for kind, found in made.items() for question in found]


def _make(place: Path, origin: dict[str, Any], say: Tell, make: Callable[[list[Question]], list[Negative]]) -> None:
    """Write a file of made questions, unless it is there: one of a recipe that was refused later has another origin."""
    if place.exists() and read_object(place).get("origin") == json.loads(json.dumps(origin)):
        return
    say(place.stem)
    asked = [question for source in origin["train"] for question in read(source).trainable]
    write_json(place, {**as_squad(make(asked)), "origin": origin})


def count_made(place: Path) -> dict[str, int]:
    """How many questions each maker has made."""
    try:
        articles = read_object(place)["data"]
        return dict(Counter(str(q["maker"]) for a in articles for p in a["paragraphs"] for q in p["qas"]))
    except (KeyError, TypeError):
        raise QuothError(f"{place}: is not what Quoth writes there; begin anew with another --out") from None


def check_stages(run: Path, recipe: BuildRecipe, data: dict[str, Data]) -> Task | None:
    """Refuse, before the first stage, what a later one would refuse: a teacher that cannot teach, a cut that cannot be.

    Returns the examples of the student, which a cut of the same data has too; None where they are not needed.
    """
    if _done(run, list(recipe.data)[-1]) or (not recipe.student and not recipe.cut):
        return None  # nothing is left to train, or nothing after the teacher, which checks itself
    teacher = _model(recipe, "teacher", data)
    student = _model(recipe, "student", data) if recipe.student else teacher
    if recipe.student:
        check_teacher(teacher, recipe.teacher.model, "teacher.model", student, data["student"].max_length)
    if recipe.cut:
        cut = replace(recipe.cut, model=recipe.learner.model)
        if cut.target.by != "latency":  # which is measured on the machine that the cut runs on
            cost = make_cost(cut, student, run, "")
            check_run(cut, student, cost)
            for why in unreachable(cut, student.encoder.shape, cost).values():
                raise QuothError(f"recipe: cut.{why}")
    waiting = not _done(run, "student") or (not _done(run, "cut") and shares_examples(recipe, data))
    if not recipe.student or not waiting:
        return None
    longest = recipe.student.evaluation.max_answer_tokens
    task = prepare(data["student"], student, recipe.student.seed, longest)
    if not _done(run, recipe.teacher_names[-1]):
        most = np.sort(np.argsort(-task.examples.windows.lengths, kind="stable")[:LONGEST])
        few: Any = replace(task, examples=task.examples.take(most))  # type: ignore[type-var]
        tokenizer = Tokenizer.load(teacher.origin.tokenizer[0].parent)
        check_lengths(few.teacher_windows(tokenizer), teacher, recipe.teacher.model, "teacher.model")
    return task


def shares_examples(recipe: BuildRecipe, data: dict[str, Data]) -> bool:
    """Whether student and cut are trained on the same windows and scored by the same rule."""
    student, cut = recipe.student, recipe.cut
    if student is None or cut is None:
        return False
    mine = (data["student"], student.seed, student.evaluation.max_answer_tokens)
    return mine == (data["cut"], cut.seed, cut.max_answer_tokens)


def _model(recipe: BuildRecipe, stage: str, data: dict[str, Data]) -> Model:
    """The model of a stage as it will be trained."""
    made = recipe.teacher if stage == "teacher" else recipe.learner
    return build_model(replace(made, data=data[stage]))


def _done(run: Path, stage: str) -> bool:
    return (run / stage / FILE).exists()


def _check_kinds(source: str, dataset: Dataset, what: str) -> None:
    if len({question.impossible for question in dataset.questions}) < 2:
        raise QuothError(f"{source}: {what} is fitted on questions with and without an answer; it lacks one kind")


def _once(sources: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(sources)
