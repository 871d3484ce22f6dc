"""A candidate of `quoth advise` in a round: trained from where the round before left it, scored on the held-out part.

FOLDER/checkpoints/     weights and moments at the end of the last round (`quoth.train.resume`)
FOLDER/round-0.json     the scores at the end of a round, written last: what is there is not done again
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from quoth.answer import Abstention, best_threshold
from quoth.config import fill
from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.files import read_object, write_json
from quoth.model import Model
from quoth.score.thresholds import choices
from quoth.tasks import SpanTask
from quoth.tasks.examples import Batches
from quoth.train import Recipe, build_model
from quoth.train.fine_tuning import FineTuning
from quoth.train.guard import Stop, exact
from quoth.train.log import Tell
from quoth.train.loop import Loop
from quoth.train.metrics import to_json
from quoth.train.resume import remove_checkpoints, write_checkpoint
from quoth.train.training import DivergedError, Training
from quoth.windows import by_length

GRAPHS_FROM = 256  # steps of a round from which capturing them as CUDA graphs saves time
FEWEST = 2  # steps of a round


@dataclass(frozen=True)
class Score:
    """A candidate at the end of a round.

    score: the main score in per cent, F1, at the best threshold where questions may have no answer; loss: a window
    f1, exact: at threshold 0; scores: the main score of every held-out question, from 0 to 1
    windows: it was trained on so far; seconds: of training so far; wall: of this round, with all that belongs to it
    error: why it could not be trained, if it could not
    """

    score: float
    loss: float
    f1: float
    exact: float
    windows: int
    seconds: float
    wall: float
    scores: list[float] = field(default_factory=list)
    error: str = ""


@dataclass
class Trainer:
    """What all candidates have in common. task: with the training part and the held-out part, tokenised once."""

    task: SpanTask
    accelerator: Accelerator
    stop: Stop
    folder: Path
    tell: Tell | None = None

    def __post_init__(self) -> None:
        assert self.task.evaluation is not None
        self.feed = self.task.feed(self.task.examples, self.accelerator.device, 0)
        self.held_out = self.task.feed(self.task.evaluation, self.accelerator.device, 0)

    def train(self, name: str, recipe: Recipe, number: int, windows: float, last: bool) -> Score:
        """Train a candidate until it has seen so many windows, and score it. number: of the round."""
        folder = self.folder / name
        done = folder / f"round-{number}.json"
        if done.exists():
            return self._read(done)
        begin = time.perf_counter()
        try:
            score = self._train(folder, recipe, number, windows, last)
        except DivergedError as error:  # no reason to end the others
            score = Score(0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, error=str(error))
        self.accelerator.free_memory()  # it keeps every model that it has prepared
        score = replace(score, wall=time.perf_counter() - begin)
        write_json(done, asdict(score))
        if last:
            remove_checkpoints(folder)
        return score

    def _read(self, path: Path) -> Score:
        """The score of a round that is done."""
        score = fill(Score, read_object(path), str(path))
        assert self.task.dataset is not None
        numbers = [score.score / 100, score.windows, score.wall, score.loss, *score.scores]
        wanted = 0 if score.error else len(self.task.dataset.questions)
        if len(score.scores) != wanted or not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise QuothError(f"{path}: is not what Quoth writes there; remove it, and the round is done again")
        return score

    def drop(self, name: str) -> None:
        """Remove the weights of a candidate that does not go on."""
        remove_checkpoints(self.folder / name)

    def _train(self, folder: Path, recipe: Recipe, number: int, windows: float, last: bool) -> Score:
        model = build_model(recipe)
        settings = replace(recipe.optimisation, schedule="constant")
        if number:
            settings = replace(settings, warmup_ratio=0.0)
        batch = settings.batch_size or 1
        steps = steps_of(number, windows, batch)
        if steps < GRAPHS_FROM:
            settings = replace(settings, compile="off")
        objective = FineTuning(model, self.task, self.feed, settings, recipe.seed, self.accelerator)
        loop = Loop(objective, self.feed.lengths, settings, recipe.seed, self.accelerator, steps)
        identity = {"data": self.task.examples.identity, "model": model.base.sha256 if model.base else recipe.model}
        scored: list[dict[str, Any]] = []

        def evaluate() -> dict[str, Any]:
            scored.append(evaluate_model(self.task, model, self.held_out, objective.device))
            return {key: value for key, value in scored[-1].items() if key != "scores"}

        folder.mkdir(parents=True, exist_ok=True)
        training = Training(folder, loop, self.stop, identity, recipe.checkpoints.seconds, evaluate)
        with exact(self.accelerator.device):
            training.go(tell=self.tell)
            if not scored:  # it was stopped between the end of this round and its scores
                model.to(self.accelerator.device)
                evaluate()
        if not last:
            facts = {"seconds": training.seconds, "evaluations": to_json(training.evaluations), **identity}
            write_checkpoint(folder, loop, facts)
        found = scored[-1]
        return Score(**found, windows=loop.windows, seconds=training.seconds, wall=0.0)


def steps_of(number: int, windows: float, batch: int) -> int:
    """The steps of a candidate at the end of a round, the `number`-th from 0, in which it has seen so many windows."""
    return max(FEWEST << number, round(windows / batch))


def evaluate_model(task: SpanTask, model: Model, feed: Batches, device: Device) -> dict[str, Any]:
    """The scores of a model on the held-out part, and its loss; one pass. The model is left as it was."""
    training = model.training
    model.eval()
    total = 0.0

    def batches() -> Iterator[tuple[np.ndarray, Sequence[Any]]]:
        nonlocal total
        for indices in by_length(feed.lengths, device.token_budget(feed.lengths)):
            packed, labels = feed.batch(indices, 0)
            with device.autocast():
                output = model(packed)
            total += float(task.loss(output, packed, labels))
            yield indices, [output]

    with torch.inference_mode():
        found = task.score(batches(), 1)[0]
    model.train(training)
    assert task.dataset is not None
    these = choices(task.dataset.questions, found.answers)
    limit = Abstention(0.0).limit(task.dataset.version)
    if math.isfinite(limit):
        limit = best_threshold(these.answered.f1, these.abstained.f1, these.margin).value
    scores = these.at(limit).f1
    quality = {"f1": found.quality["f1"], "exact": found.quality["exact"], "loss": total / len(feed.lengths)}
    return {**quality, "score": 100 * float(scores.mean()), "scores": scores.tolist()}
