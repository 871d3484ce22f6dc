"""Algorithm 1 of schuBERT / optBERT (ACL 2020), from a recipe to model folders.

A run may be killed at any moment: the same command resumes it.

Each round: α = 1; train α; rank; fold α into the weights; cut; train the smaller model.

RUN/recipe.toml               the recipe as run, all defaults written out, with the gates that a search found
RUN/study.log, hpo.json       of a search (`quoth.prune.trials`); its recipe, as asked for, is hpo/recipe.toml
RUN/latency.json              the table of block timings, where the target is one of latency
RUN/teacher-logits/           of the teachers that the recipe names, where these are kept
RUN/unpruned/                 the model with fitted heads of pre-training, where it came without them
RUN/unpruned.json             loss and quality of the model as it came
RUN/rounds/01/gates/, recovery/   logs, and checkpoints while they last
RUN/rounds/01/alpha.safetensors   the trained gates
RUN/rounds/01/round.json      what the round did; written last
RUN/keep-0.5/model/           the model of a target, beside it metrics.json and answers.jsonl.gz
RUN/metrics.json              all targets; written last
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from quoth.config import fill
from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.files import atomic_file, read_json, write_json, write_text
from quoth.model import Model, load, save
from quoth.prune.baselines import begin, new_layers
from quoth.prune.hpo import need_optuna
from quoth.prune.metrics import CutMetrics, ModelMetrics, PruneMetrics, RoundMetrics
from quoth.prune.plan import Round, check_run, make_cost, plan_rounds, reached, unreachable
from quoth.prune.recipe import PruneRecipe, read_prune_recipe
from quoth.prune.recovery import recover
from quoth.prune.shrink import Workbench, shrink
from quoth.prune.teacher import find_teacher, kept_teachers
from quoth.prune.trials import search_gates
from quoth.tasks import Task, prepare, task_of
from quoth.tasks.seeds import seed_of
from quoth.tasks.task import check_head, probe
from quoth.train import Interrupted, Status, warm_up
from quoth.train.distillation import View
from quoth.train.guard import Stop, exact
from quoth.train.log import Tell
from quoth.train.loop import make_batches
from quoth.train.metrics import FILE, read_metrics, to_json, write_metrics
from quoth.train.resume import remove_checkpoints, save_tensors
from quoth.train.run import make_accelerator
from quoth.train.run_folder import RunFolder

PROBE = 2048  # windows at most, evenly spread over the data, on which losses are compared


def prune(
    recipe: PruneRecipe,
    out: str | Path,
    *,
    device: str | None = None,
    tell: Tell | None = None,
    task: Task | None = None,
) -> PruneMetrics:
    """Run a recipe in the folder `out`, or resume the run that is there. Returns what metrics.json holds.

    task: what `quoth.tasks.prepare(recipe.data, model)` gave, for many runs over the same data
    """
    accelerator = make_accelerator(device)
    if accelerator.num_processes > 1:
        raise QuothError("pruning runs in one process; start it without torchrun or accelerate launch")
    run = Path(out)
    asked = _asked(run, _asked(run, True).exists())
    folder = RunFolder(run, str(asked.relative_to(run)), ("latency.json", ".latency.json.", "hpo"))
    with Stop() as stop, folder.held():
        folder.claim(asdict(recipe), asdict(read_prune_recipe(asked)) if asked.exists() else None)
        if (run / FILE).exists():
            return read_metrics(run, PruneMetrics)
        if recipe.hpo.trials and not (run / "recipe.toml").exists():
            need_optuna()
        with exact(accelerator.device):
            return _Run(run, recipe, accelerator, stop, tell or (lambda _: None), task).go()


class _Run:
    def __init__(
        self, run: Path, recipe: PruneRecipe, accelerator: Accelerator, stop: Stop, tell: Tell, task: Task | None
    ) -> None:
        self.run, self.recipe, place = run, recipe, accelerator.device
        fitted = run / "unpruned"  # with heads of pre-training that the model came without
        self.source: str | Path = fitted if (fitted / "quoth.json").exists() else recipe.model
        model = load(self.source)
        new = task_of(recipe.data).add_head(model, None, recipe.seed)
        cost = make_cost(recipe, model, run, str(place))
        check_run(recipe, model, cost)
        teacher = find_teacher(recipe, model)
        self.full = cost(model.encoder.shape)
        self.rounds = plan_rounds(recipe, model.encoder.shape, cost)
        self.unreachable = unreachable(recipe, model.encoder.shape, cost)
        for line in self.unreachable.values():
            tell(line)
        task = task or prepare(recipe.data, model, recipe.seed, recipe.max_answer_tokens)
        check_head("the model's head", model.head, task)
        feed = task.feed(task.examples, place, recipe.seed)
        chosen = Device.choose(place, recipe.recovery.named_precision)
        taught = kept_teachers(recipe, task, run, chosen)
        for settings in (recipe.gates.optimisation(), recipe.recovery):
            make_batches(feed.lengths, settings, recipe.seed, 1)
        windows, self.probed = probe(task, place, PROBE)
        fits = bool(new) or (recipe.start.embedding is not None and getattr(model.head, "reads_words", False))
        if fits and task.evaluation is None:
            raise QuothError("recipe: data.held_out is 0; heads of pre-training are fitted by a held-out loss")
        write_text(_asked(run, bool(recipe.hpo.trials)), recipe.to_toml())  # now that it is known to be sound
        if new:
            self._fit(model, task, new, accelerator, tell)
            self.source = self.run / "unpruned"
            save(model, self.source)
        for one in (model, teacher):
            if one is not None:
                one.to(place).eval().requires_grad_(False)
        self.bench = Workbench(recipe, task, model, teacher, cost, feed, windows, chosen, accelerator, stop, tell)
        if taught is not None:
            feed = taught.feed(accelerator, lambda: self._check_stop(0), tell)
            self.bench = replace(self.bench, feed=feed, taught=taught.identity)

    def _check_stop(self, done: int) -> None:
        """Stop after so many rounds, if that is wanted."""
        if self.bench.stop.signal:
            raise Interrupted(done, len(self.rounds), self.bench.stop.signal)

    def _fit(self, model: Model, task: Task, names: Collection[str], accelerator: Accelerator, tell: Tell) -> None:
        """Parts of a head that the model came without, or that factorised embeddings need, are trained alone first."""
        tell(warm_up(model, task, names, accelerator, seed=self.recipe.seed, tell=tell).line())

    def go(self) -> PruneMetrics:
        """All rounds that are not done yet."""
        place, model = self.run / "unpruned.json", self.bench.unpruned
        if not place.exists():
            found = self._model_metrics(model)
            write_json(place, to_json(replace(found, loss=self.bench.loss(model), quality=self._quality(model))))
        if self.recipe.hpo.trials:
            self._search()
        for now in self.rounds:
            if not (self._folder(now) / "round.json").exists():
                self._round(now)
            self._remove_leftovers(now)
        metrics = PruneMetrics(
            self.recipe.model,
            self.recipe.target.by,
            self.probed,
            fill(ModelMetrics, read_json(place), str(place)),
            {now.target: read_metrics(self.run / now.target, RoundMetrics) for now in self.rounds if now.target},
            self.recipe.losses,
            self.unreachable,
            self.recipe.teacher[0] if len(self.recipe.teacher) == 1 else self.recipe.teacher,
            self.bench.task.negatives,
            self.bench.task.unlabelled,
            read_json(self.run / "hpo.json") if (self.run / "hpo.json").exists() else {},
        )
        write_metrics(self.run, metrics)
        return metrics

    def _search(self) -> None:
        """Find the gates by trials, and go on with the best of them."""
        kept, bench, first = self.run / "recipe.toml", self.bench, reached(self.recipe, self.unreachable)[0]
        if not kept.exists():

            def trial(made: PruneRecipe, folder: Path, held: Task) -> PruneMetrics:
                def steps_alone(news: Status | str) -> None:
                    if not isinstance(news, str):
                        bench.tell(news)

                return prune(made, folder, device=bench.device.place.type, tell=steps_alone, task=held)

            write_text(kept, search_gates(bench, self.run, self.source, first, trial).to_toml())
        self.recipe = read_prune_recipe(kept)
        self.bench = replace(bench, recipe=self.recipe)

    def _round(self, now: Round) -> None:
        folder, bench = self._folder(now), self.bench
        what = "start" if now.part is None else f"{now.part:.3f} of the {self.recipe.target.by}"
        bench.tell(f"round {now.number} of {len(self.rounds)}: {what}")
        if not (folder / "cut.json").exists():
            self._cut(now)
        self._check_stop(now.number - 1)
        model = load(folder / "cut")
        metrics = self._recover(model, now)
        bench.tell("loss " + ", ".join(f"{name} {loss:.4f}" for name, loss in metrics.losses.items()))
        place = self._place(now)
        sizes = self._model_metrics(model)
        metrics = replace(
            metrics,
            model=str(place.relative_to(self.run)),
            parameters=sizes.parameters,
            non_embedding_parameters=sizes.non_embedding_parameters,
            cost=sizes.cost,
            shape=sizes.shape,
        )
        if now.target:
            done = [self._read_round(before) for before in self.rounds[: now.number - 1]]
            short = [{"part": one.part, "losses": one.losses, "steps": one.steps} for one in done]
            metrics = replace(metrics, quality=self._quality(model, place.parent), rounds_before=short)
            write_metrics(place.parent, metrics)
        save(model, place)
        write_json(folder / "round.json", to_json(metrics))

    def _cut(self, now: Round) -> None:
        """The first half of a round: from the model before it to a smaller one, not yet recovered."""
        folder, bench = self._folder(now), self.bench
        model, view = self._before(now)
        model.to(bench.device.place).eval()
        model.windows = self.recipe.data.window_settings()
        metrics = CutMetrics(now.number, now.part, {"before": bench.loss(model)})
        if now.part is None:
            small = begin(model, self.recipe.start)
            layers = new_layers(model, small)
            if layers:
                self._fit(small, bench.task, layers, bench.accelerator, bench.tell)
        else:
            seed = seed_of(self.recipe.seed, now.number)
            small, view, metrics = shrink(bench, model, view, now.part * self.full, seed, folder, metrics)
        metrics = replace(metrics, losses={**metrics.losses, "cut": bench.loss(small)})
        with atomic_file(folder / "view.safetensors") as part:
            save_tensors({"units": view.units}, part)
        save(small, folder / "cut")
        write_json(folder / "cut.json", to_json(metrics))

    def _recover(self, model: Model, now: Round) -> RoundMetrics:
        """The second half: the cut model is trained; the metrics of both."""
        folder, bench = self._folder(now), self.bench
        steps, seconds = recover(bench, model, self._view(now), now, folder)
        done = fill(CutMetrics, read_json(folder / "cut.json"), str(folder / "cut.json"))
        return RoundMetrics(
            done.round,
            done.part,
            {**done.losses, "recovered": bench.loss(model)},
            {**done.steps, "recovery": steps},
            {**done.seconds, "recovery": seconds},
        )

    def _before(self, now: Round) -> tuple[Model, View]:
        """The model that a round begins from, and which units of the unpruned one it has kept."""
        if now.before == 0:
            return load(self.source), View.whole(self.bench.unpruned.encoder.shape)
        past = self.rounds[now.before - 1]
        return load(self._place(past)), self._view(past)

    def _view(self, now: Round) -> View:
        return View.read(self._folder(now) / "view.safetensors", self.bench.unpruned.encoder.shape.hidden)

    def _read_round(self, now: Round) -> RoundMetrics:
        path = self._folder(now) / "round.json"
        return fill(RoundMetrics, read_json(path), str(path))

    def _folder(self, now: Round) -> Path:
        return self.run / "rounds" / f"{now.number:02d}"

    def _place(self, now: Round) -> Path:
        return (self.run / now.target if now.target else self._folder(now)) / "model"

    def _remove_leftovers(self, now: Round) -> None:
        """Remove what a round that is done no longer needs, and the model between targets that it began from."""
        folder = self._folder(now)
        for part in ("gates", "recovery"):
            remove_checkpoints(folder / part)
        shutil.rmtree(folder / "cut", ignore_errors=True)
        if now.before and not self.rounds[now.before - 1].target:
            shutil.rmtree(self._place(self.rounds[now.before - 1]), ignore_errors=True)

    def _quality(self, model: Model, folder: Path | None = None) -> dict[str, Any]:
        """The scores on the data to evaluate on, if there are any; answers are written beside the model."""
        task = self.bench.task
        if task.evaluation is None:
            return {}
        found = task.evaluate(model, self.bench.device)
        if folder is not None:
            task.write_answers(folder / "answers.jsonl.gz", found.answers)
        return found.quality

    def _model_metrics(self, model: Model) -> ModelMetrics:
        shape = model.encoder.shape
        parts, total = shape.parameters(), sum(value.numel() for value in model.parameters())
        small = total - parts["embeddings"] - parts["projection"]
        return ModelMetrics(total, small, self.bench.cost(shape) / self.full, shape.to_json())


def _asked(run: Path, searched: bool) -> Path:
    """Where a run keeps the recipe that it was asked for: a search changes it on the way."""
    return run / ("hpo/recipe.toml" if searched else "recipe.toml")
