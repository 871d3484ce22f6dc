"""From pretrained encoders to a small reader in int8, by one recipe: teachers, a student, its cut, export, calibration.

    build_reader(read_build_recipe(find_recipe("embedded"), ["data.train=train.json"]), "runs/embedded")

RUN/recipe.toml     the recipe as given; each stage has its own with all defaults
RUN/negatives.json, unlabelled.json   made questions and pairs, as `quoth.experiments.build_data` says
RUN/teacher/        a run of `quoth train`; of several teachers: teacher-0, teacher-1, …
RUN/teacher-logits/ of the teachers, for student and cut; a cut of other data has its own files there
RUN/student/        a run of `quoth train` on the teachers' logits
RUN/cut/            a run of `quoth prune` on the student's model, distilled from the teachers
RUN/model/          the reader: ONNX with its threshold for "no answer", its calibration and MODEL_CARD.md
RUN/quantise.json, calibrate.json   what these stages found; written as they end
RUN/seconds.json    of each stage so far, over all interruptions
RUN/build.json      what came out; written last

A stage that was interrupted goes on by its own means, and one that is finished is not done again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quoth.answer import Abstention, Reader, store_abstention, store_confidence
from quoth.answer.confidence import KEY as CONFIDENCE
from quoth.config import dump_toml, read_table
from quoth.data import Dataset, read
from quoth.errors import QuothError
from quoth.experiments.build_data import (
    MADE,
    PAIRS,
    Sources,
    check_stages,
    count_made,
    read_sources,
    shares_examples,
    training_data,
)
from quoth.experiments.build_recipe import BuildRecipe, trained
from quoth.experiments.card import model_card
from quoth.export.export import export
from quoth.files import read_json, read_object, write_json, write_text
from quoth.prune import prune
from quoth.score import hardware, span_quality
from quoth.score.calibrate_reader import fit_reader
from quoth.score.thresholds import Choices, choices, cross_fitted, fit_abstention
from quoth.tasks import Data, Task
from quoth.train import Recipe, TrainMetrics, train
from quoth.train.log import Tell
from quoth.train.run_folder import RunFolder

TRIED = (
    "recipe.toml",
    "seconds.json",
    "teacher",
    MADE,
    PAIRS,
)  # what a recipe leaves that was refused by its first stage
SCORES = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "answered_f1")  # of the unquantised models
Facts = dict[str, Any]
Counts = dict[str, int]


def build_reader(recipe: BuildRecipe, out: str | Path, *, device: str | None = None, tell: Tell | None = None) -> Facts:
    """Run a recipe in the folder `out`, or go on with what is there. Returns what build.json holds."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise QuothError("a build runs in one process; start it without torchrun or accelerate launch")
    folder = RunFolder(out, known=(".", *TRIED))
    run = folder.path
    with folder.held():
        # Without a teacher nothing has begun, whatever recipe was tried; one that was copied there comes without any.
        begun = folder.recipe.exists() and any(run.glob("teacher*/recipe.toml"))
        folder.claim(trained(recipe.table), trained(read_table(folder.recipe)) if begun else None)
        done = run / "build.json"
        if done.exists() and read_object(done).get("recipe") == recipe.table:
            return read_object(done)
        say = tell or (lambda _: None)
        sources = read_sources(recipe)
        write_text(run / "recipe.toml", dump_toml(recipe.table))
        with _clock(run, "data"):
            data = training_data(run, recipe, say)
            task = check_stages(run, recipe, data)
        stages = _Stages(run, recipe, data, task, device, say)
        facts = {**stages.train(), **stages.export(sources), "data": sources.counts, "seconds": _seconds(run)}
        shown = dump_toml(_named({key: value for key, value in recipe.table.items() if key != "card"}))
        write_text(run / "model" / "MODEL_CARD.md", model_card(facts, recipe.card, shown))
        facts["files"] = {path.name: path.stat().st_size for path in sorted((run / "model").iterdir())}
        write_json(done, facts)
    return facts


@dataclass
class _Stages:
    """The stages of one build. data: of each stage that is trained; task: the examples of the student, if prepared."""

    run: Path
    recipe: BuildRecipe
    data: dict[str, Data]
    task: Task | None
    device: str | None
    say: Tell
    facts: Facts = field(default_factory=dict)
    source: Path = Path()  # the model to export

    def train(self) -> Facts:
        """Teachers, student and cut: what came out of each."""
        recipe, data = self.recipe, self.data
        used = {source for one in data.values() for source in (*one.train, *one.unlabelled.questions)}
        places = (self.run / MADE, self.run / PAIRS)
        made: list[Counts] = [count_made(place) if str(place) in used else {} for place in places]
        self.facts = {"recipe": recipe.table, "stages": {}, "negatives": made[0], "unlabelled": made[1]}
        for number, name in enumerate(recipe.teacher_names):
            self._train(name, recipe.teacher_of(number, data["teacher"]))
        if recipe.student:
            self._train("student", recipe.student_of(self.run, data["student"]), self.task)
        self.source = self.run / recipe.learner_name / "model"
        if recipe.cut:
            self._cut()
        return self.facts

    def _train(self, name: str, recipe: Recipe, task: Task | None = None) -> None:
        self.say(name)
        with _clock(self.run, name):
            found = train(recipe, self.run / name, device=self.device, tell=self.say, task=task)
        assert found is not None  # this is the main process
        self._add(name, found.total_parameters, found.quality, found.negatives, found.unlabelled)
        if "versions" not in self.facts:
            self.facts |= {"versions": _versions(found), "hardware": {**hardware(), "gpu": found.hardware["gpu"]}}

    def _cut(self) -> None:
        self.say("cut")
        recipe = self.recipe.cut_of(self.run, self.data["cut"])
        task = self.task if shares_examples(self.recipe, self.data) else None
        with _clock(self.run, "cut"):
            found = prune(recipe, self.run / "cut", device=self.device, tell=self.say, task=task)
        for why in found.unreachable.values():  # of a latency, which is known only now
            raise QuothError(f"recipe: cut.{why}")
        small = list(found.targets.values())[-1]  # of several the smallest
        self._add("cut", small.parameters, small.quality, found.negatives, found.unlabelled)
        self.facts["stages"]["cut"]["kept"] = small.cost
        self.source = self.run / "cut" / small.model

    def _add(self, name: str, parameters: int, quality: Facts, negatives: Counts, unlabelled: Counts) -> None:
        """Keep what a stage tells: its scores; and how much was made for the first stage that has any of it."""
        scores = {key: quality[key] for key in SCORES if key in quality}
        self.facts["stages"][name] = {"parameters": parameters, "quality": scores}
        self.facts["negatives"] = self.facts["negatives"] or negatives
        self.facts["unlabelled"] = self.facts["unlabelled"] or unlabelled

    def export(self, sources: Sources) -> Facts:
        """The reader in RUN/model, its threshold and its calibration: what came out of both stages."""
        recipe, run = self.recipe, self.run
        asked: Facts = {"quantise": asdict(recipe.quantise)}
        if not _kept(run, "quantise", asked):
            (run / "calibrate.json").unlink(missing_ok=True)  # it is of the model that is to be replaced
        quantised = self._stage("quantise", asked, lambda: self._quantise(sources.evaluation))
        asked |= {"calibrate": list(recipe.calibrate.data)}
        if recipe.calibrate.weights:
            asked |= {"weights": list(recipe.calibrate.weights)}
        calibrated = self._stage("calibrate", asked, lambda: self._calibrate(sources.calibration))
        return {**quantised, **calibrated}

    def _stage(self, name: str, asked: Facts, work: Callable[[], Facts]) -> Facts:
        """What a stage found, from RUN/NAME.json if it was done as asked."""
        kept = _kept(self.run, name, asked)
        if kept is None:
            self.say(name)
            with _clock(self.run, name, anew=True):
                kept = work()
            write_json(self.run / f"{name}.json", {"asked": asked, "found": kept})
        return kept

    def _quantise(self, dataset: Dataset) -> Facts:
        """Export to RUN/model. The model is fitted a threshold first, at which float32 and int8 are compared."""
        run, recipe = self.run, self.recipe
        name, tokens = Path(recipe.evaluate).name, recipe.max_answer_tokens
        store_abstention(self.source, _fit(Reader.load(self.source, device=self.device), dataset, name, tokens)[0])
        trained = read(recipe.learner.data.train[0]).questions  # ranges of int8 are not chosen on what is scored
        exported = asdict(export(self.source, run / "model", int8=recipe.quantise.int8, data=dataset, ranges=trained))
        reader = Reader.load(run / "model")
        reader.abstention, these, quality = _fit(reader, dataset, name, tokens)
        place = run / "model" / "quoth.json"
        description = {**read_json(place), "abstention": reader.abstention.to_json()}
        write_json(place, {**description, "provenance": {"source": _named(recipe.learner.model)}})
        return {
            "exported": {**exported, "folder": "model"},
            "parameters": reader.runner.parameters,
            "quality": quality,
            "cross_fitted": cross_fitted(dataset.questions, these),
            "abstention": reader.abstention.to_json(),
        }

    def _calibrate(self, datasets: dict[str, Dataset]) -> Facts:
        """Fit the calibration of RUN/model and store it there; without data none is kept."""
        folder = self.run / "model"
        if not datasets:
            kept = read_object(folder / "quoth.json")
            write_json(folder / "quoth.json", {key: value for key, value in kept.items() if key != CONFIDENCE})
            return {}
        confidence, facts = fit_reader(
            Reader.load(folder), list(datasets.values()), list(datasets), self.recipe.calibrate.weights
        )
        store_confidence(folder, confidence)
        return {"calibration": facts}


def _fit(reader: Reader, dataset: Dataset, name: str, tokens: int) -> tuple[Abstention, Choices, Facts]:
    """The threshold that suits a reader best, and its scores there."""
    decoded = reader.decode(dataset.questions, max_answer_tokens=tokens)
    these = choices(dataset.questions, decoded)
    abstention = fit_abstention(these, name)
    return abstention, these, dict(span_quality(dataset, decoded, abstention.threshold)[1])


def _versions(found: TrainMetrics) -> Facts:
    more = ("onnx", "onnxruntime", "numpy")
    return {**found.versions, **{name: version(name) for name in more}, "python": sys.version.split()[0]}


def _kept(run: Path, name: str, asked: Facts) -> Facts | None:
    """What a stage has found, if it was asked for the same."""
    place = run / f"{name}.json"
    if not place.exists():
        return None
    kept = read_object(place)
    found = kept.get("found")
    if not isinstance(found, dict):
        raise QuothError(f"{place}: is not what Quoth writes there; remove it, and the stage is done again")
    return found if kept.get("asked") == asked else None


@contextmanager
def _clock(run: Path, stage: str, *, anew: bool = False) -> Iterator[None]:
    """Add the seconds that pass to those of the stage, whether it ends or is interrupted; a kill loses them.

    anew: the stage has no way to go on, so what an earlier attempt took is not part of it
    """
    begin, before = time.monotonic(), _seconds(run)
    if anew:
        before.pop(stage, None)
    try:
        yield
    finally:
        write_json(run / "seconds.json", {**before, stage: before.get(stage, 0.0) + time.monotonic() - begin})


def _seconds(run: Path) -> dict[str, float]:
    """The seconds of each stage so far."""
    place = run / "seconds.json"
    found = read_object(place) if place.exists() else {}
    for stage, seconds in found.items():
        if type(seconds) not in (int, float) or not 0 <= seconds < 1e12:
            raise QuothError(f"{place}: the seconds of {stage} are no number; remove the file, and they count from 0")
    return found


def _named(value: Any) -> Any:
    """A table for others to read: what lies on this machine is called by its name, without the way there."""
    if isinstance(value, Mapping):
        return {key: _named(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_named(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and len(value) < 256 and Path(value).exists() else value
