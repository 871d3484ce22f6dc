"""`BuildRecipe`: all stages of `quoth build` in one TOML file. What the build sets itself is refused in a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quoth.config import check_value, fill, nearest, read_table, shown
from quoth.errors import QuothError
from quoth.experiments.card import Card
from quoth.prune import PruneRecipe, make_prune_recipe
from quoth.score.calibrate_reader import check_weights
from quoth.tasks import Data
from quoth.train import Recipe, make_recipe
from quoth.train.settings import LOGITS

TABLES = ("data", "teacher", "student", "cut", "quantise", "calibrate", "card")
LAST = ("quantise", "calibrate", "card")  # they train nothing: if one of them changes, it alone is done again
SET = {  # keys of a stage that the build sets, and to what
    "student.teachers": "the tuned teachers",
    "cut.model": "the stage before",
    "cut.teacher": "the tuned teachers",
    "cut.states_of": '"unpruned" where others teach',
}
MOST = 16  # teachers


@dataclass(frozen=True)
class Quantise:
    """int8: whether the reader is quantised; else it is exported in float32."""

    int8: bool = True


@dataclass(frozen=True)
class Calibrate:
    """data: questions with and without an answer, on which the calibration is fitted.

    weights: how much each source counts; all the same if left out
    """

    data: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class BuildRecipe:
    """A reader, described whole.

    teacher: of `quoth train`; teachers: how many are tuned, with the seeds teacher.seed, teacher.seed + 1, …
    student: of `quoth train`, on the teachers' logits; None: the (first) teacher takes its place
    cut: of `quoth prune`, on the student; None: the student is exported as it is
    card: what the card cannot know; table: the recipe as read, with its overrides
    """

    teacher: Recipe
    teachers: int
    student: Recipe | None
    cut: PruneRecipe | None
    quantise: Quantise
    calibrate: Calibrate
    card: Card
    table: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Refuse what would fail only after hours."""
        check_value(1 <= self.teachers <= MOST, "teachers", self.teachers, f"from 1 to {MOST}")
        learns = self.teachers == 1 or self.student is not None or self.cut is not None
        check_value(learns, "teachers", self.teachers, "1 without [student] and [cut], which learn from them")
        if not self.evaluate:
            raise QuothError("recipe: data.evaluate is missing; the threshold for no answer is fitted on it")
        names = [Path(source).name for source in self.calibrate.data]
        twice = next((name for name in names if names.count(name) > 1), None)
        check_value(twice is None, "calibrate.data", twice, "of files with different names")
        if self.calibrate.weights:
            check_weights(self.calibrate.weights, len(names), "recipe: calibrate.weights")

    @property
    def data(self) -> dict[str, Data]:
        """Of each stage that is trained."""
        stages = {"teacher": self.teacher, "student": self.student, "cut": self.cut}
        return {name: stage.data for name, stage in stages.items() if stage is not None}

    @property
    def evaluate(self) -> str:
        """The questions that the threshold is fitted on: those of the last stage."""
        return list(self.data.values())[-1].evaluate

    @property
    def max_answer_tokens(self) -> int:
        """Of the last stage."""
        return self.cut.max_answer_tokens if self.cut else self.learner.evaluation.max_answer_tokens

    @property
    def learner(self) -> Recipe:
        """The stage whose model is cut, or exported."""
        return self.student or self.teacher

    @property
    def teacher_names(self) -> tuple[str, ...]:
        """The folders of the teachers."""
        return ("teacher",) if self.teachers == 1 else tuple(f"teacher-{i}" for i in range(self.teachers))

    @property
    def learner_name(self) -> str:
        """The folder of the learner."""
        return "student" if self.student else self.teacher_names[0]

    def teacher_of(self, number: int, data: Data) -> Recipe:
        """The recipe of one teacher."""
        return replace(self.teacher, data=data, seed=self.teacher.seed + number)

    def student_of(self, run: Path, data: Data) -> Recipe:
        """The recipe of the student, as run in a folder."""
        assert self.student is not None
        kept = self.student.distillation
        kept = replace(kept, cache_folder=kept.cache_folder or str(run / LOGITS))
        return replace(self.student, data=data, teachers=self._teachers(run), distillation=kept)

    def cut_of(self, run: Path, data: Data) -> PruneRecipe:
        """The recipe of the cut, as run in a folder. Without other teachers it is distilled from what it was."""
        assert self.cut is not None
        model = str(run / self.learner_name / "model")
        if self.student is None and self.teachers == 1:
            return replace(self.cut, model=model, data=data)
        kept = self.cut.distillation
        kept = replace(kept, cache_folder=kept.cache_folder or str(run / LOGITS))
        return replace(
            self.cut, model=model, data=data, teacher=self._teachers(run), states_of="unpruned", distillation=kept
        )

    def _teachers(self, run: Path) -> tuple[str, ...]:
        return tuple(str(run / name / "model") for name in self.teacher_names)


def read_build_recipe(path: str | Path, overrides: Sequence[str] = ()) -> BuildRecipe:
    """Read a recipe, with overrides such as `teacher.optimisation.learning_rate=1e-4`."""
    return make_build_recipe(read_table(path, overrides), str(path))


def make_build_recipe(table: Mapping[str, Any], where: str = "recipe") -> BuildRecipe:
    """A recipe from a table of tables. What is in `data` holds for all stages, where they do not say otherwise.

    `data.unlabelled` is for student and cut. An empty table is the same as none: the override `cut={}` leaves out the
    cut of a recipe.
    """
    known = ("teachers", *TABLES)
    for key, value in table.items():
        if key not in known:
            raise QuothError(f"{where}: unknown table {key}; did you mean {nearest(key, known)}?")
        if key != "teachers" and not isinstance(value, Mapping):
            raise QuothError(f"{where}: {key} is {shown(value)}, a table is wanted")
    for key, what in SET.items():
        stage, _, name = key.partition(".")
        if name in table.get(stage, {}):
            raise QuothError(f"{where}: {key} is always {what}; leave it out")
    count = table.get("teachers", 1)
    if type(count) is not int:
        raise QuothError(f"{where}: teachers is {shown(count)}; a whole number is wanted")
    data = table.get("data", {})
    labelled = {key: value for key, value in data.items() if key != "unlabelled"}  # which no teacher can learn from
    shared = {"teacher": labelled, "student": data, "cut": data}
    stages = {name: _over({"data": below}, table.get(name, {})) for name, below in shared.items()}
    for name, made in stages.items():
        task = made["data"].get("task", "span") if isinstance(made["data"], Mapping) else "span"
        if task != "span":
            raise QuothError(f"{where}: {name}.data.task is {shown(task)}; a reader is trained for 'span'")
    student = {**stages["student"], "teachers": ["teacher"]} if table.get("student") else None
    cut = {"model": "student", **stages["cut"], "states_of": "unpruned"} if table.get("cut") else None
    pruned = make_prune_recipe(cut, f"{where}, cut") if cut else None
    if pruned and (student or count > 1) and set(pruned.losses.values()) == {"task"}:
        raise QuothError(
            f"{where}: no loss of [cut] compares with the teachers; "
            "set cut.distillation.logits_weight = 1, and cut.distillation.task_weight = 0 for that alone"
        )
    return BuildRecipe(
        make_recipe(stages["teacher"], f"{where}, teacher"),
        count,
        make_recipe(student, f"{where}, student") if student else None,
        pruned,
        fill(Quantise, table.get("quantise", {}), where, "quantise."),
        fill(Calibrate, table.get("calibrate", {}), where, "calibrate."),
        fill(Card, table.get("card", {}), where, "card."),
        table,
    )


def trained(table: Mapping[str, Any]) -> dict[str, Any]:
    """What of a recipe's table must be the same in a folder: what trains."""
    return {key: value for key, value in table.items() if key not in LAST}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of tables joined; the keys of `above` win."""
    joined = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(joined.get(key), Mapping)
        joined[key] = _over(joined[key], value) if both else value
    return joined
