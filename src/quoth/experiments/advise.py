"""`advise`: which method to train on some data, by a small search: limits first, then successive halving.

    facts = advise(Ask("my.json", "bert-base-uncased", Limits(size=30e6)), "runs/advise")

OUT/questions/        the questions in two parts: trained on, and held out to score on
OUT/asked.json        what was asked
OUT/plan.json         what candidates cost, and the rounds; made once, so that the same command goes on
OUT/candidates/NAME/  the scores of each round; weights, until it is dropped
OUT/train.toml        the recipe of the method that is named, on all data
OUT/advise.json       the facts, written last
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from quoth.config import fill
from quoth.data import Dataset, read
from quoth.errors import QuothError
from quoth.experiments import advise_data as data
from quoth.experiments import advise_limits as limits_of
from quoth.experiments.advise_candidates import Candidate, final_epochs, read_candidates
from quoth.experiments.advise_limits import Costs, Limits
from quoth.experiments.advise_race import Board, Tell, race
from quoth.experiments.advise_report import report
from quoth.experiments.advise_training import Trainer, steps_of
from quoth.experiments.halving import Round, plan_rounds, total_windows
from quoth.files import read_object, write_json, write_text
from quoth.folders import remove_leftovers
from quoth.tasks import SpanTask, prepare
from quoth.train import build_model
from quoth.train.guard import Stop
from quoth.train.run import check_device, make_accelerator
from quoth.train.run_folder import RunFolder
from quoth.train.training import Interrupted

ASKED, PLAN, REPORT, RECIPE = "asked.json", "plan.json", "advise.json", "train.toml"
QUESTIONS, CANDIDATES = "questions", "candidates"
LEFT = re.compile(r"(asked|plan|advise|train|held-out|round-\d+)\.(json|toml)")  # left half-written by a kill
SHARE = 0.1  # of what it takes to train all candidates whole: what a search takes, unless told otherwise


@dataclass(frozen=True)
class Ask:
    """What is asked. data: a file or hub dataset; budget: seconds of training in all, by default a tenth of a sweep."""

    data: str
    model: str
    limits: Limits = field(default_factory=Limits)
    budget: float | None = None
    device: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """What is known before the first round.

    left_out: candidates that break a limit or cannot be trained, and why
    epochs, windows: of a whole training; costs: of the candidates that are left, by name, in their order
    rounds: as `plan_rounds`; by, groups: how many whole "articles" or "passages" are held out
    """

    epochs: float
    windows: int
    train_questions: int
    held_out_questions: int
    by: str
    groups: int
    left_out: dict[str, str]
    costs: dict[str, Costs]
    rounds: tuple[Round, ...]


def advise(ask: Ask, out: str | Path, *, dataset: Dataset | None = None, tell: Tell | None = None) -> dict[str, Any]:
    """Search, or go on with a search; what `quoth advise --json` prints. dataset: what `ask.data` holds, if read.

    Raises `Interrupted` if it was asked to stop.
    """
    check_device(ask.device)
    dataset = dataset or read(ask.data)
    asked = {**asdict(ask), "questions": data.identity(dataset)}
    folder = RunFolder(out, ASKED, (f".{ASKED}.",))
    with Stop() as stop, folder.held():
        kept = read_object(folder.recipe) if folder.recipe.exists() else None
        planned = (folder.path / PLAN).exists()  # without a plan nothing is there that could not be asked for anew
        folder.claim(asked, kept if planned or kept is None else asked)
        remove_leftovers(folder.path, LEFT)
        write_json(folder.recipe, asked)
        return _Search(ask, folder.path, dataset, stop, tell or (lambda board, line: None)).go()


@dataclass
class _Search:
    ask: Ask
    out: Path
    dataset: Dataset
    stop: Stop
    tell: Tell

    def __post_init__(self) -> None:
        self.accelerator = make_accelerator(self.ask.device)

    def go(self) -> dict[str, Any]:
        ask, path = self.ask, self.out / PLAN
        split = data.split(self.dataset.questions, ask.data, ask.seed)
        data.write_split(self.dataset, split, self.out / QUESTIONS)
        task = self._prepare()
        assert task.evaluation is not None
        windows = len(task.examples) + len(task.evaluation)
        epochs = final_epochs(windows)
        candidates, impossible = read_candidates(ask.model, ask.data, epochs, ask.seed)
        if path.exists():
            plan = _read_plan(path, candidates, epochs * windows)
        else:
            left, costs, left_out = self._check(candidates, task, epochs * windows)
            rounds = self._rounds(left, costs, epochs * windows)
            plan = Plan(
                epochs, epochs * windows, len(split.train), len(split.held_out), split.by, split.groups,
                impossible | left_out, {one.name: costs[one.name] for one in left}, tuple(rounds),
            )  # fmt: skip
            write_json(path, asdict(plan))
        left = [one for one in candidates if one.name in plan.costs]
        trainer = Trainer(task, self.accelerator, self.stop, self.out / CANDIDATES)
        places = race(plan.rounds, [on_part(one, self.out / QUESTIONS) for one in left], trainer, self.tell)
        if error := places[-1][0].scored.error:
            raise QuothError(f"{ask.data}: no candidate could be trained: {error}")
        facts = report(ask, plan, left, places, self.out)
        best = next(one for one in left if one.name == facts["best"])
        write_text(self.out / RECIPE, best.recipe.to_toml())
        write_json(self.out / REPORT, facts)
        return facts

    def _prepare(self) -> SpanTask:
        """The two parts, tokenised."""
        files = (self.out / QUESTIONS / name for name in (data.TRAIN, data.HELD_OUT))
        train, held_out = map(str, files)
        some = read_candidates(self.ask.model, self.ask.data, 1, self.ask.seed)[0][0].recipe
        settings = replace(some.data, train=(train,), evaluate=held_out)
        return cast(SpanTask, prepare(settings, build_model(some), self.ask.seed, some.evaluation.max_answer_tokens))

    def _check(
        self, candidates: Sequence[Candidate], task: SpanTask, windows: float
    ) -> tuple[list[Candidate], dict[str, Costs], dict[str, str]]:
        """The candidates that keep all limits, what each costs, and why the others do not: cheap checks first."""
        limits = self.ask.limits
        costs = {one.name: limits_of.sized(one, limits.size) for one in candidates}
        left = [one for one in candidates if not limits_of.too_much(costs[one.name], limits)]
        whole = [one for one in left if costs[one.name].form != "pruned"]
        pruned = [one for one in left if one not in whole] if whole else []
        left = whole or left
        if limits.latency is not None and left:
            self.tell(Board(), f"measuring the latency of {len(left)} candidates")
            for one, seconds in zip(left, limits_of.measure_latency(left, task, self.ask.device)):
                costs[one.name] = replace(costs[one.name], latency=seconds)
            left = [one for one in left if not limits_of.too_much(costs[one.name], limits)]
        if left and (limits.train is not None or self.ask.budget is not None):
            self.tell(Board(), f"measuring the training time of {len(left)} candidates")
            for one in left:
                self._check_stop()
                pace = limits_of.measure_training(one, task, self.accelerator)
                costs[one.name] = limits_of.trained(costs[one.name], pace, windows)
            left = [one for one in left if not limits_of.too_much(costs[one.name], limits)]
        why = {name: limits_of.too_much(found, limits) for name, found in costs.items()}
        why |= {one.name: limits_of.if_pruned(costs[one.name], limits) for one in pruned}
        if not left:
            raise QuothError(_nearest(costs, limits))
        return left, costs, {name: reason for name, reason in why.items() if reason}

    def _check_stop(self) -> None:
        """Stop, if that is wanted; what was measured is measured anew by the next command."""
        if self.stop.signal:
            raise Interrupted(0, 0, self.stop.signal)

    def _rounds(self, left: Sequence[Candidate], costs: Mapping[str, Costs], windows: float) -> list[Round]:
        """The rounds that fit the budget."""
        if self.ask.budget is None:
            return plan_rounds(len(left), SHARE * len(left) * windows, windows)
        paces = [costs[one.name].seconds_a_window or 0.0 for one in left]
        seconds = sum(paces) / len(paces)
        batch = left[0].recipe.optimisation.batch_size or 1
        shortest = [
            Round(one.candidates, steps_of(i, 0, batch) * batch) for i, one in enumerate(plan_rounds(len(left), 1))
        ]
        least = seconds * total_windows(shortest)
        if self.ask.budget < least:
            raise QuothError(
                f"--budget: {len(left)} candidates need at least {least / 60:.1f} minutes of training here; "
                "give more, or set limits that fewer candidates keep"
            )
        return plan_rounds(len(left), self.ask.budget / seconds, windows)


def _read_plan(path: Path, candidates: Sequence[Candidate], windows: float) -> Plan:
    """The plan of a search that was interrupted. windows: of a whole training."""
    plan = fill(Plan, read_object(path), str(path))
    known = {one.name for one in candidates}
    counts = [one.candidates for one in plan_rounds(len(plan.costs), 1.0)]
    ends = [0.0, *(one.windows for one in plan.rounds), windows]
    sound = plan.costs and known >= plan.costs.keys() and counts == [one.candidates for one in plan.rounds]
    if not sound or plan.windows != windows or ends != sorted(ends) or not all(map(math.isfinite, ends)):
        raise QuothError(f"{path}: was changed, or written by another version of Quoth; use another --out")
    return plan


def on_part(candidate: Candidate, folder: Path) -> Candidate:
    """A candidate that is trained on one part of the questions and scored on the other."""
    train, held_out = (str(folder / name) for name in (data.TRAIN, data.HELD_OUT))
    settings = replace(candidate.recipe.data, train=(train,), evaluate=held_out)
    return replace(candidate, recipe=replace(candidate.recipe, data=settings))


def _nearest(costs: Mapping[str, Costs], limits: Limits) -> str:
    """That no candidate keeps the limits, and which one is nearest to that."""
    broken = {name: why for name, one in costs.items() if (why := limits_of.too_much(one, limits))}
    name = min(broken, key=lambda name: limits_of.excess(costs[name], limits))
    limit, _, value = broken[name].partition(": ")
    return (
        f"no candidate keeps the limits; the nearest is {name!r} with {value}, not {limit}; raise the limit, or name a "
        "smaller --model"
    )
