"""The numbers of a row of a paper's table, from finished runs: a value for each seed, and what answers there are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from quoth.config import flat
from quoth.experiments.paper_items import PAPERS, Paper, Row, read_paper, run_table
from quoth.experiments.run_results import COSTS, RECIPE, Result, Unfinished, known, number, read_finished, scores, text
from quoth.files import read_object

ENCODER = "encoder"
ENSEMBLES = "ensembles"  # of a run, beside its heads
POINTS = 10  # of a curve of losses
SIZES = {"f": "ffn", "a": "heads", "k": "key", "v": "value"}  # in print, and in the shape of a layer


@dataclass
class Finished:
    """The results of runs by the paper's names, and why others have none."""

    paper: Paper
    results: dict[str, list[Result]] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    together: list[set[str]] = field(default_factory=list)  # the names in each folder

    def add(self, folder: Path) -> None:
        """Take the runs of a sweep folder, or of a run folder.

        Of a name that is known already only further seeds of the same recipe are taken.
        """
        self.take(*read_finished([folder]))

    def take(self, found: Sequence[Result], unfinished: Sequence[Unfinished]) -> None:
        """The same of runs that have been read."""
        own: dict[str, list[Result]] = {}
        for result in found:
            _check_recipe(result)
            own.setdefault(_plain(result.name), []).append(result)
        self.together.append(set(own))
        for name, results in own.items():
            known = self.results.setdefault(name, [])
            keys, taken = {one.key for one in known}, {(one.key, one.seed) for one in known}
            known += [one for one in results if not keys or (one.key in keys and (one.key, one.seed) not in taken)]
        for one in unfinished:
            why = "not finished" if one.why in ("waiting", "running") else one.why
            self.why.setdefault(_plain(one.folder.name.rpartition("-seed")[0]), why)

    def of(self, run: str) -> list[Result]:
        """The results of a run, those of its heads too; empty if there are none.

        A run of another name counts if it has heads on its frozen states where this one has them. If another paper
        calls a run so, it must also lie beside others of this paper: else it was made for the other one.
        """
        own = self.results.get(_plain(run))
        if own:
            return own
        wanted = self.paper.run(run)
        for name in wanted.also:
            found = self.results.get(_plain(name), [])
            if "heads" in run_table(wanted).get("frozen", {}):
                counts = any(one.part for one in found)
            else:
                counts = not any(name in read_paper(other).runs for other in PAPERS) or self._has_others(name)
            if found and counts:
                return found
        return []

    def _has_others(self, name: str) -> bool:
        """Whether other runs of the paper lie in one folder with this one."""
        names = {_plain(each) for key, run in self.paper.runs.items() for each in (key, *run.also) if each != name}
        return any(_plain(name) in together and names & together for together in self.together)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that some pruned model was tuned on; all of the paper's if none was."""
        every = tuple(self.paper.tasks)
        return tuple(task for task in every if any(name.endswith(f"-{task}") for name in self.results)) or every

    def reason(self, run: str) -> str:
        """Why a run has no results."""
        return self.why.get(_plain(run), "not run")


def _check_recipe(result: Result) -> None:
    """What is read of a recipe has the type that it must have."""
    with known(result.folder / RECIPE):
        for section in ("data", "optimisation", "frozen"):
            table = result.recipe.get(section, {})
            for key in {"epochs", "fraction", "at"} & set(table):
                values = table[key] if key == "at" else [table[key]]
                if any(number(value) is None for value in values):
                    raise ValueError(key)
        text(result.recipe.get("model", ""))


def _plain(name: str) -> str:
    """A name as a folder has it."""
    return name.replace(" ", "-")


@dataclass(frozen=True)
class Found:
    """What was found of a row: for each column values by seed; results: those whose answers are compared; why: if none.

    curves: (epoch, value) by seed; tuned: of models that were tuned on a pruned one, the results of all tasks
    """

    row: Row
    results: tuple[Result, ...] = ()
    values: dict[str, list[float]] = field(default_factory=dict)
    curves: dict[str, list[list[tuple[float, float]]]] = field(default_factory=dict)
    why: str = ""
    tuned: tuple[Result, ...] = ()

    @property
    def runs(self) -> tuple[Result, ...]:
        """All results that its numbers are of: of a tuned model one for each task."""
        return self.results or self.tuned

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that there are, in the order of the results."""
        return tuple(dict.fromkeys(one.seed for one in self.runs))


def find_row(finished: Finished, row: Row, columns: Sequence[str], tasks: tuple[str, ...]) -> Found:
    """The numbers of a row."""
    if row.missing:
        return Found(row, why=row.missing)
    if row.tuned:
        return _tuned(finished, row, tasks)
    every = finished.of(row.run)
    if not every:
        return Found(row, why=finished.reason(row.run))
    nominal = run_table(finished.paper.run(row.run))
    chosen = [one for one in every if one.part == ""] if not row.head else []
    if row.head:
        chosen = list(_heads(row, nominal, every))
    elif not chosen:
        chosen = [one for one in every if one.layers]
    if not chosen:
        return Found(row, why=f"the run has no {row.head or 'model of its own'} there")
    if row.at is not None:
        chosen = [_at(one, row, nominal) for one in chosen]
    drawn = [name for name in columns if name.endswith("_curve")] if row.at is None else []
    curves = {name: [_curve(one, name) for one in chosen] for name in drawn}
    return Found(row, tuple(chosen), _values(chosen, [*columns, "f1", "exact"]), curves)


def _values(results: Sequence[Result], columns: Sequence[str]) -> dict[str, list[float]]:
    """By column a value for each seed, where all have one."""
    found = {}
    for column in dict.fromkeys([*columns, *(key for one in results for key in one.quality)]):
        values = [_value(one, column) for one in results]
        if values and None not in values:
            found[column] = [value for value in values if value is not None]
    return found


def _value(result: Result, column: str) -> float | None:
    if column in COSTS:
        return result.costs[column]
    if column == "efficiency":
        trainable = result.costs["trainable_parameters"]
        good = trainable and trainable > 1 and "f1" in result.quality
        return (result.quality["f1"] - 50) / math.log10(trainable) if good and trainable else None
    if column == "loss":
        losses = _losses(result)
        return losses[-1][1] if losses else None
    return result.quality.get(column)


def _heads(row: Row, nominal: dict[str, Any], every: Sequence[Result]) -> Iterator[Result]:
    """The head of a row on the encoder of its epoch, by seed; epochs are in proportion to the paper's."""
    assert row.epoch is not None
    for own in {one.seed: one for one in every}.values():
        recipe = flat(own.recipe)
        epochs = float(recipe.get("optimisation.epochs", nominal["optimisation"]["epochs"]))
        at = row.epoch * epochs / nominal["optimisation"]["epochs"]
        parts = {f"{row.head} at epoch {at:g}", *([row.head] if _only_stage(recipe, at, epochs) else [])}
        last = row.head == ENCODER and math.isclose(at, epochs)
        parts |= {""} if last else set()
        if row.members:
            yield from _ensemble(row, own, every, at)
        else:
            yield from (one for one in every if one.seed == own.seed and one.part in parts)


def _only_stage(recipe: dict[str, Any], at: float, epochs: float) -> bool:
    """Whether the run has one stage, which its heads then do not name, and that one is meant."""
    stages = recipe.get("frozen.at") or [epochs]
    return len(stages) == 1 and math.isclose(stages[0], at, rel_tol=1e-4)


def ensemble_folder(run: Path, epoch: float, members: Sequence[str]) -> Path:
    """Where the scores of an ensemble lie in its run."""
    return run / ENSEMBLES / f"epoch-{epoch:g}" / "+".join(members)


def run_folder(result: Result) -> Path:
    """The folder of the run that a result is of, the head of a stage too."""
    return result.folder.parents[2] if result.part and not result.layers else result.folder


def _ensemble(row: Row, own: Result, every: Sequence[Result], at: float) -> Iterator[Result]:
    folder = ensemble_folder(run_folder(own), at, row.members)
    if (folder / "metrics.json").exists():
        with known(folder / "metrics.json"):
            quality = scores(read_object(folder / "metrics.json")["quality"])
        answers, stored = folder / "answers.jsonl.gz", folder / "scores.json.gz"
        yield replace(
            own, folder=folder, part=row.name, quality=quality, costs=dict.fromkeys(COSTS), layer_weights={},
            answers=answers if answers.exists() else None, scores=stored if stored.exists() else None,
        )  # fmt: skip


def _at(result: Result, row: Row, nominal: dict[str, Any]) -> Result:
    """A result as it was at a moment of its curve; only the scores are known of it, not the answers."""
    recipe = flat(result.recipe)
    section = "frozen" if row.head else "optimisation"
    factor = float(recipe.get(f"{section}.epochs", 1.0)) / nominal[section].get("epochs", 1.0)
    points = result.head_curve if row.head else result.curve
    wanted = (row.at or 0.0) * factor
    if not points:
        return replace(result, quality={}, answers=None, scores=None)
    last = max(epoch for epoch, _ in points)
    epoch, quality = min(points, key=lambda point: abs(point[0] - wanted))
    if math.isclose(epoch, last) and abs(last - wanted) <= 0.01 * last:
        return result
    near = abs(epoch - wanted) <= max(0.05 * last, 0.02)
    return replace(result, quality=quality if near else {}, answers=None, scores=None)


def _curve(result: Result, name: str) -> list[tuple[float, float]]:
    """(epoch, value) of a score, or of the training loss."""
    key = name.removesuffix("_curve")
    if key == "loss":
        losses = _losses(result)
        chosen = {round(i * (len(losses) - 1) / (POINTS - 1)) for i in range(POINTS)} if losses else set()
        return [losses[i] for i in sorted(chosen)]
    return [(epoch, quality[key]) for epoch, quality in result.curve if key in quality]


def _losses(result: Result) -> list[tuple[float, float]]:
    """(epoch, training loss) from the log of a run."""
    path = result.folder / "log.jsonl"
    if not path.exists():
        return []
    with known(path):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(float(line["epoch"]), float(line["loss"])) for line in lines if "loss" in line]


def _tuned(finished: Finished, row: Row, tasks: tuple[str, ...]) -> Found:
    """The scores of models that were tuned on a pruned one, a task each, and their average."""
    values: dict[str, list[float]] = {}
    main: dict[tuple[int, ...], list[list[float]]] = {}
    every: list[Result] = []
    why = ""
    for task in tasks:
        own = sorted((one for one in finished.of(f"{row.tuned} {task}") if one.part == ""), key=lambda one: one.seed)
        every += own
        for key in ("f1", "exact", "acc"):
            found = [one.quality[key] for one in own if key in one.quality]
            if found:
                values[f"{task}_{key}"] = found
        score = values.get(f"{task}_f1" if task.startswith("squad") else f"{task}_acc")
        if score is None:
            why = why or f"{task}: {finished.reason(f'{row.tuned} {task}')}"
        else:
            main.setdefault(tuple(one.seed for one in own), []).append(score)
    if len(main) == 1:  # all tasks have the same seeds
        (scores_by_task,) = main.values()
        if len(scores_by_task) == len(tasks):
            values["average"] = [mean(each) for each in zip(*scores_by_task)]
    return Found(row, (), values, why=why if not values else "", tuned=tuple(every))
