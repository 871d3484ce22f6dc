"""From a pretrained encoder to a small reader in int8, by one recipe: a teacher, its cut, the export.

    build_reader(read_build_recipe(find_recipe("embedded"), ["data.train=train.json"]), "runs/embedded")

RUN/recipe.toml     the recipe as given; each stage has its own with all defaults
RUN/negatives.json  the unanswerable questions that the teacher asks for; a cut that asks for the same ones has them too
RUN/teacher/        a run of `quoth train`
RUN/cut/            a run of `quoth prune` on RUN/teacher/model, which it is distilled from
RUN/model/          the reader: ONNX in int8 with its threshold for "no answer" and MODEL_CARD.md
RUN/seconds.json    of each stage so far, over all interruptions
RUN/build.json      what came out; written last

A stage that was interrupted goes on by its own means, and one that is finished is not done again.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from quoth.answer import Abstention, Reader, store_abstention
from quoth.augment import as_squad, make_negatives
from quoth.config import dump_toml, fill, nearest, read_table
from quoth.data import Dataset, read
from quoth.errors import QuothError
from quoth.experiments.card import Card, model_card
from quoth.export.export import export
from quoth.files import read_json, read_object, write_json, write_text
from quoth.prune import PruneRecipe, make_prune_recipe, prune
from quoth.prune.metrics import RoundMetrics
from quoth.score import hardware, span_quality
from quoth.score.thresholds import Choices, choices, cross_fitted, fit_abstention
from quoth.tasks import Data, Negatives
from quoth.train import Recipe, TrainMetrics, make_recipe, train
from quoth.train.log import Tell
from quoth.train.run_folder import RunFolder

TABLES = ("data", "teacher", "cut", "card")
MADE = "negatives.json"
TRIED = ("recipe.toml", "seconds.json", "teacher", MADE)  # what a recipe leaves that was refused by its first stage
SCORES = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "answered_f1")  # of the unquantised models


@dataclass(frozen=True)
class BuildRecipe:
    """A reader, described whole.

    teacher: of `quoth train`; cut: of `quoth prune`, its model being the teacher's; card: what the card cannot know
    table: the recipe as read, with its overrides
    """

    teacher: Recipe
    cut: PruneRecipe
    card: Card
    table: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Refuse what would fail only after hours."""
        for name, task in (("teacher", self.teacher.data.task), ("cut", self.cut.data.task)):
            if task != "span":
                raise QuothError(f"recipe: {name}.data.task is {task!r}; a reader is trained for 'span'")
        if not self.cut.data.evaluate:
            raise QuothError("recipe: data.evaluate is missing; the threshold for no answer is fitted on it")


def read_build_recipe(path: str | Path, overrides: Sequence[str] = ()) -> BuildRecipe:
    """Read a recipe, with overrides such as `teacher.optimisation.learning_rate=1e-4`."""
    return make_build_recipe(read_table(path, overrides), str(path))


def make_build_recipe(table: Mapping[str, Any], where: str = "recipe") -> BuildRecipe:
    """A recipe from a table of tables. What is in `data` holds for teacher and cut, where they do not say otherwise."""
    for key, value in table.items():
        if key not in TABLES:
            raise QuothError(f"{where}: unknown table {key}; did you mean {nearest(key, TABLES)}?")
        if not isinstance(value, Mapping):
            raise QuothError(f"{where}: {key} is {value!r}, a table is wanted")
    teacher, cut = (_over({"data": table.get("data", {})}, table.get(name, {})) for name in ("teacher", "cut"))
    if "model" in cut:
        raise QuothError(f"{where}: cut.model is always the teacher; leave it out")
    return BuildRecipe(
        make_recipe(teacher, f"{where}, teacher"),
        make_prune_recipe({"model": "teacher", **cut}, f"{where}, cut"),
        fill(Card, table.get("card", {}), where, "card."),
        table,
    )


def build_reader(
    recipe: BuildRecipe, out: str | Path, *, device: str | None = None, tell: Tell | None = None
) -> dict[str, Any]:
    """Run a recipe in the folder `out`, or go on with what is there. Returns what build.json holds."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise QuothError("a build runs in one process; start it without torchrun or accelerate launch")
    folder = RunFolder(out, known=(".", *TRIED))
    run = folder.path
    say = tell or (lambda _: None)
    with folder.held():
        begun = (run / "teacher" / "recipe.toml").exists()  # else nothing has begun, whatever recipe was tried
        there = {**read_table(folder.recipe), "card": {}} if begun else None  # another card alone is no other recipe
        folder.claim({**recipe.table, "card": {}}, there)
        done = run / "build.json"
        if done.exists() and read_object(done).get("recipe") == recipe.table:
            return read_object(done)
        dataset = _evaluation(recipe)
        write_text(run / "recipe.toml", dump_toml(recipe.table))
        teacher_data, cut_data = training_data(run, recipe, say)
        say("teacher")
        with _clock(run, "teacher"):
            taught = train(replace(recipe.teacher, data=teacher_data), run / "teacher", device=device, tell=tell)
        assert taught is not None  # this is the main process
        say("cut")
        with _clock(run, "cut"):
            cut = replace(recipe.cut, model=str(run / "teacher" / "model"), data=cut_data)
            pruned = prune(cut, run / "cut", device=device, tell=tell)
        say("quantise")
        with _clock(run, "quantise"):
            small = list(pruned.targets.values())[-1]  # of several the smallest
            found = _quantise(run, run / "cut" / small.model, recipe, dataset, device)
        made = taught.negatives or (_counts(run) if teacher_data is not recipe.teacher.data else {})
        facts = {
            **_facts(recipe, taught, small),
            "negatives": made,
            **found,
            "seconds": _seconds(run / "seconds.json"),
        }
        shown = dump_toml(_named({key: value for key, value in recipe.table.items() if key != "card"}))
        write_text(run / "model" / "MODEL_CARD.md", model_card(facts, recipe.card, shown))
        facts["files"] = {path.name: path.stat().st_size for path in sorted((run / "model").iterdir())}
        write_json(done, facts)
    return facts


def training_data(run: Path, recipe: BuildRecipe, tell: Tell | None = None) -> tuple[Data, Data]:
    """The data of teacher and cut, with RUN/negatives.json in place of the negatives that the teacher asks for.

    A cut with the same data and seed has the same file; one that asks for others makes its own, or has none.
    """
    data, parts = recipe.teacher.data, asdict(recipe.teacher.data.negatives)
    if not any(parts.values()) or data.fraction < 1:
        return data, recipe.cut.data
    place = run / MADE
    origin = {"train": list(data.train), "parts": parts, "seed": recipe.teacher.seed}
    if not place.exists() or read_object(place).get("origin") != origin:  # of a recipe that was refused later, say
        if tell:
            tell("negatives")
        with _clock(run, "negatives"):
            questions = [question for source in data.train for question in read(source).trainable]
            made = as_squad(make_negatives(questions, parts, recipe.teacher.seed))
            write_json(place, {**made, "origin": origin})
    joined = replace(data, train=(*data.train, str(place)), negatives=Negatives())
    same = (data, recipe.teacher.seed) == (recipe.cut.data, recipe.cut.seed)
    return joined, joined if same else recipe.cut.data


def _counts(run: Path) -> dict[str, int]:
    """How many questions each maker has made."""
    try:
        articles = read_object(run / MADE)["data"]
        return dict(Counter(str(q["maker"]) for a in articles for p in a["paragraphs"] for q in p["qas"]))
    except (KeyError, TypeError):
        raise QuothError(f"{run / MADE}: is not what Quoth writes there; begin anew with another --out") from None


def _quantise(run: Path, source: Path, recipe: BuildRecipe, dataset: Dataset, device: str | None) -> dict[str, Any]:
    """Export the cut model to RUN/model. It is fitted a threshold first, at which float32 and int8 are compared."""
    name, tokens = Path(recipe.cut.data.evaluate).name, recipe.cut.max_answer_tokens
    store_abstention(source, _fit(Reader.load(source, device=device), dataset, name, tokens)[0])
    exported = asdict(export(source, run / "model", int8=True, data=dataset))
    reader = Reader.load(run / "model")
    reader.abstention, these, quality = _fit(reader, dataset, name, tokens)
    place = run / "model" / "quoth.json"
    description = {**read_json(place), "abstention": reader.abstention.to_json()}
    write_json(place, {**description, "provenance": {"source": _named(recipe.teacher.model)}})
    return {
        "exported": {**exported, "folder": "model"},
        "parameters": reader.runner.parameters,
        "quality": quality,
        "cross_fitted": cross_fitted(dataset.questions, these),
        "abstention": reader.abstention.to_json(),
    }


def _fit(
    reader: Reader, dataset: Dataset, name: str, tokens: int
) -> tuple[Abstention, Choices, dict[str, float | None]]:
    """The threshold that suits a reader best, and its scores there."""
    decoded = reader.decode(dataset.questions, max_answer_tokens=tokens)
    these = choices(dataset.questions, decoded)
    abstention = fit_abstention(these, name)
    return abstention, these, span_quality(dataset, decoded, abstention.threshold)[1]


def _facts(recipe: BuildRecipe, taught: TrainMetrics, small: RoundMetrics) -> dict[str, Any]:
    """What the stages before the last have told."""

    def scores(quality: dict[str, Any]) -> dict[str, Any]:
        return {key: quality[key] for key in SCORES if key in quality}

    more = ("onnx", "onnxruntime", "numpy")
    return {
        "recipe": recipe.table,
        "stages": {
            "teacher": {"parameters": taught.total_parameters, "quality": scores(taught.quality)},
            "cut": {"parameters": small.parameters, "kept": small.cost, "quality": scores(small.quality)},
        },
        "versions": {**taught.versions, **{name: version(name) for name in more}, "python": sys.version.split()[0]},
        "hardware": {**hardware(), "gpu": taught.hardware["gpu"]},
    }


def _evaluation(recipe: BuildRecipe) -> Dataset:
    """The questions that the threshold is fitted on, looked at before the work and not after."""
    source = recipe.cut.data.evaluate
    dataset = read(source)
    if len({question.impossible for question in dataset.questions}) < 2:
        raise QuothError(f"{source}: a threshold is fitted on questions with and without an answer; it lacks one kind")
    return dataset


@contextmanager
def _clock(run: Path, stage: str) -> Iterator[None]:
    """Add the seconds that pass to those of the stage, whether it ends or is interrupted; a kill loses them."""
    place, begin = run / "seconds.json", time.monotonic()
    before = _seconds(place)
    if stage == "quantise":  # it has no way to go on, so what an earlier attempt took is not part of it
        before.pop(stage, None)
    try:
        yield
    finally:
        write_json(place, {**before, stage: before.get(stage, 0.0) + time.monotonic() - begin})


def _seconds(place: Path) -> dict[str, float]:
    """The seconds of each stage so far."""
    found = read_object(place) if place.exists() else {}
    for stage, seconds in found.items():
        if type(seconds) not in (int, float) or not 0 <= seconds < 1e12:
            raise QuothError(f"{place}: the seconds of {stage} are no number; remove the file, and they count from 0")
    return found


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of tables joined; the keys of `above` win."""
    joined = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(joined.get(key), Mapping)
        joined[key] = _over(joined[key], value) if both else value
    return joined


def _named(value: Any) -> Any:
    """A table for others to read: what lies on this machine is called by its name, without the way there."""
    if isinstance(value, Mapping):
        return {key: _named(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_named(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and len(value) < 256 and Path(value).exists() else value
