"""Algorithm 1 of schuBERT / optBERT (ACL 2020) from recipe to model folders, which a kill at any moment only delays.

Each round: α = 1; train α; rank; fold α into the weights; cut; let the smaller model recover.

RUN/recipe.toml               the recipe as run, all defaults written out, the gates that a search found filled in
RUN/study.log, search.json    of a search (`quoth.prune.trials`); its recipe, as asked for, is search/recipe.toml
RUN/latency.json              the table of block timings, where the target is one of latency
RUN/unpruned/                 the model with fitted heads of pre-training, where it came without them
RUN/unpruned.json             loss and quality of the model as it came
RUN/rounds/01/gates/, recovery/   logs, and checkpoints while they last
RUN/rounds/01/alpha.safetensors   the gates as learnt
RUN/rounds/01/round.json      what the round did; written last
RUN/keep-0.5/model/           the model of a target, beside it metrics.json and answers.jsonl.gz
RUN/metrics.json              all targets; written last
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from safetensors.torch import load_file

from quoth.answer.record import write_answers
from quoth.encoder.device import choose as choose_device
from quoth.errors import QuothError
from quoth.files import atomic_file, read_json, write_json, write_text
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.prune.baselines import drop_layers, factorise
from quoth.prune.hpo import need_optuna
from quoth.prune.loops import RecoveryLoop
from quoth.prune.plan import Round, check_run, make_cost, plan_rounds
from quoth.prune.probe import probe_feed
from quoth.prune.recipe import PruneRecipe, read_prune_recipe
from quoth.prune.shrink import Bench, shrink
from quoth.prune.teacher import find_teacher
from quoth.prune.trials import search_gates
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.pretrain import PretrainEvaluation
from quoth.tasks.span_evaluation import SpanEvaluation
from quoth.train.build import Prepared, check_task, prepare
from quoth.train.distillation import Lesson, View
from quoth.train.fit import add_heads, fit_heads
from quoth.train.guard import Stop, exact, only_one
from quoth.train.harness import Harness, Interrupted
from quoth.train.log import Status, Tell
from quoth.train.loop import make_batches, precision_of, seed_of, set_dropout
from quoth.train.resume import remove_checkpoints, save_tensors, sweep
from quoth.train.run import make_accelerator


def prune(
    recipe: PruneRecipe,
    out: str | Path,
    *,
    device: str | None = None,
    tell: Tell | None = None,
    prepared: Prepared | None = None,
) -> dict[str, Any]:
    """Run a recipe in the folder `out`, or go on with the run that is there. Returns what metrics.json holds.

    prepared: what `quoth.train.prepare(recipe.training(), model)` gave, for many runs over the same data
    """
    run = Path(out)
    accelerator = make_accelerator(device)
    if accelerator.num_processes > 1:
        raise QuothError("pruning runs in one process; start it without torchrun or accelerate launch")
    with Stop() as stop, only_one(run):
        _claim(run, recipe)
        if (run / "metrics.json").exists():
            return dict(read_json(run / "metrics.json"))
        if recipe.search.trials and not (run / "recipe.toml").exists():
            need_optuna()
        with exact(accelerator.device):
            return _Work(run, recipe, accelerator, stop, tell or (lambda _: None), prepared).go()


class _Work:
    def __init__(
        self,
        run: Path,
        recipe: PruneRecipe,
        accelerator: Accelerator,
        stop: Stop,
        tell: Tell,
        prepared: Prepared | None,
    ) -> None:
        self.run, self.recipe, device = run, recipe, accelerator.device
        fitted = run / "unpruned"  # with heads of pre-training that the model came without
        self.source: str | Path = fitted if (fitted / "quoth.json").exists() else recipe.model
        model = load(self.source)
        fresh = add_heads(model, recipe.seed) if recipe.data.task == "pretrain" else ()
        cost = make_cost(recipe, model, run, str(device))
        check_run(recipe, model, cost)
        teacher = find_teacher(recipe, model)
        self.full = cost(model.encoder.shape)
        self.rounds = plan_rounds(recipe, model.encoder.shape, cost)
        training = recipe.training(model.head.to_json())
        self.prepared = prepared or prepare(training, model)
        check_task("the model's head", model.head, training, self.prepared.labels)
        feed = self.prepared.feed(device, recipe.seed)
        for settings in (recipe.gates.optimisation(), recipe.recovery):
            make_batches(feed.lengths, settings, recipe.seed, 1)
        probe, self.probed = probe_feed(self.prepared, device)
        half = choose_device(str(device), precision_of(recipe.recovery))[1]
        if fresh and self.prepared.evaluation is None:
            raise QuothError("recipe: data.held_out is 0; heads of pre-training are fitted by a held-out loss")
        write_text(_asked(run, bool(recipe.search.trials)), recipe.to_toml())  # now that it is known to be sound
        if isinstance(feed, MaskedFeed) and fresh:
            self._fit(model, feed, fresh, tell)
        for one in (model, teacher):
            one.to(device).eval().requires_grad_(False)
        identity = self.prepared.identity
        self.bench = Bench(recipe, model, teacher, cost, feed, probe, half, identity, accelerator, stop, tell)

    def _fit(self, model: Model, feed: MaskedFeed, names: Collection[str], tell: Tell) -> None:
        """Heads of pre-training learn first, and alone, where the model came without them."""
        evaluation = self.prepared.evaluation
        assert isinstance(evaluation, PretrainEvaluation)
        tell(fit_heads(model, feed, evaluation, names, seed=self.recipe.seed, tell=tell).line())
        self.source = self.run / "unpruned"
        save(model, self.source)

    def go(self) -> dict[str, Any]:
        """All rounds that are not done yet."""
        place, model = self.run / "unpruned.json", self.bench.unpruned
        if not place.exists():
            write_json(place, {**self._sizes(model), "loss": self.bench.loss(model), **self._quality(model)})
        if self.recipe.search.trials:
            self._search()
        for now in self.rounds:
            if not (self._folder(now) / "round.json").exists():
                self._round(now)
            self._tidy(now)
        facts = {
            "model": self.recipe.model,
            "by": self.recipe.target.by,
            "losses_on": self.probed,
            "unpruned": read_json(place),
            "targets": {r.target: read_json(self.run / r.target / "metrics.json") for r in self.rounds if r.target},
        }
        more = {"teacher": self.recipe.teacher, "negatives": self.prepared.examples.negatives}
        facts |= {key: value for key, value in more.items() if value}
        if (self.run / "search.json").exists():
            facts["search"] = read_json(self.run / "search.json")
        write_json(self.run / "metrics.json", facts)
        return facts

    def _search(self) -> None:
        """Find the gates by trials, and go on with the best of them."""
        kept, bench = self.run / "recipe.toml", self.bench
        if not kept.exists():

            def trial(made: PruneRecipe, folder: Path, held: Prepared) -> dict[str, Any]:
                def steps_alone(news: Status | str) -> None:
                    if not isinstance(news, str):
                        bench.tell(news)

                return prune(made, folder, device=bench.accelerator.device.type, tell=steps_alone, prepared=held)

            found = search_gates(bench, self.run, self.source, self.prepared, trial)
            write_text(kept, found.to_toml())
        self.recipe = read_prune_recipe(kept)
        self.bench = replace(bench, recipe=self.recipe)

    def _round(self, now: Round) -> None:
        folder, bench = self._folder(now), self.bench
        what = "start" if now.part is None else f"{now.part:.3f} of the {self.recipe.target.by}"
        bench.tell(f"round {now.number} of {len(self.rounds)}: {what}")
        if not (folder / "cut.json").exists():
            self._cut(now)
        if bench.stop.signal:
            raise Interrupted(now.number - 1, len(self.rounds), bench.stop.signal)
        model = load(folder / "cut")
        facts = self._recover(model, now)
        bench.tell("loss " + ", ".join(f"{name} {loss:.4f}" for name, loss in facts["losses"].items()))
        place = self._place(now)
        facts |= {"model": str(place.relative_to(self.run)), **self._sizes(model)}
        if now.target:
            facts |= self._quality(model, place.parent)
            done = [read_json(self._folder(r) / "round.json") for r in self.rounds[: now.number - 1]]
            facts["rounds_before"] = [{key: fact[key] for key in ("part", "losses", "steps")} for fact in done]
            write_json(place.parent / "metrics.json", facts)
        save(model, place)
        write_json(folder / "round.json", facts)

    def _cut(self, now: Round) -> None:
        """The first half of a round: from the model before it to a smaller one, not yet recovered."""
        folder, bench, start = self._folder(now), self.bench, self.recipe.start
        model, view = self._before(now)
        model.to(bench.accelerator.device).eval()
        model.windows = self.recipe.data.window_settings()
        facts: dict[str, Any] = {"round": now.number, "part": now.part}
        losses = {"before": bench.loss(model)}
        if now.part is None:
            small = model if start.layers is None else drop_layers(model, start.layers, start.which)
            small = small if start.embedding is None else factorise(small, start.embedding)
        else:
            seed = seed_of(self.recipe.seed, now.number)
            small, view, more = shrink(bench, model, view, now.part * self.full, seed, folder)
            losses |= more.pop("losses")
            facts |= more
        facts["losses"] = {**losses, "cut": bench.loss(small)}
        with atomic_file(folder / "view.safetensors") as part:
            save_tensors({"units": view.units, "scale": view.scale}, part)
        save(small, folder / "cut")
        write_json(folder / "cut.json", facts)

    def _recover(self, model: Model, now: Round) -> dict[str, Any]:
        """The second half: the cut model learns; the facts of both."""
        recipe, folder, bench = self.recipe, self._folder(now), self.bench
        settings = recipe.recovery if now.target else replace(recipe.recovery, epochs=recipe.between)
        if now.part is None and recipe.start.epochs is not None:
            settings = replace(settings, epochs=recipe.start.epochs)
        if settings.dropout is not None:
            set_dropout(model, settings.dropout)
        lesson = Lesson(recipe.distil, bench.teacher, self._view(now))
        seed = seed_of(recipe.seed, now.number, 1)
        loop = RecoveryLoop(model, lesson, bench.feed, settings, seed, bench.accelerator)
        seconds, pause = 0.0, recipe.checkpoints.seconds
        if loop.steps:
            bench.tell(f"recovery, {loop.steps} steps")
            harness = Harness(folder / "recovery", loop, bench.stop, bench.identity, None, lambda _: None, pause)
            harness.go(tell=bench.tell)
            seconds = harness.seconds
        bench.accelerator.free_memory()
        model.eval()
        facts: dict[str, Any] = read_json(folder / "cut.json")
        facts["losses"]["recovered"] = bench.loss(model)
        facts["steps"] = {**facts.get("steps", {}), "recovery": loop.steps}
        facts["seconds"] = {**facts.get("seconds", {}), "recovery": seconds}
        return facts

    def _before(self, now: Round) -> tuple[Model, View]:
        """The model that a round begins from, and where it stands in the unpruned one."""
        if now.before == 0:
            return load(self.source), View.whole(self.bench.unpruned.encoder.shape)
        past = self.rounds[now.before - 1]
        return load(self._place(past)), self._view(past)

    def _view(self, now: Round) -> View:
        return View(**load_file(self._folder(now) / "view.safetensors"))

    def _folder(self, now: Round) -> Path:
        return self.run / "rounds" / f"{now.number:02d}"

    def _place(self, now: Round) -> Path:
        return (self.run / now.target if now.target else self._folder(now)) / "model"

    def _tidy(self, now: Round) -> None:
        """Remove what a round that is done no longer needs, and the model between targets that it began from."""
        folder = self._folder(now)
        for part in ("gates", "recovery"):
            remove_checkpoints(folder / part)
        shutil.rmtree(folder / "cut", ignore_errors=True)
        if now.before and not self.rounds[now.before - 1].target:
            shutil.rmtree(self._place(self.rounds[now.before - 1]), ignore_errors=True)

    def _quality(self, model: Model, folder: Path | None = None) -> dict[str, Any]:
        """The scores on the data to evaluate on, if there are any; answers to spans are written beside the model."""
        if self.prepared.evaluation is None:
            return {}
        device = str(self.bench.accelerator.device)
        decoded, quality = self.prepared.evaluate(model, device, precision_of(self.recipe.recovery))
        if folder is not None and decoded is not None and isinstance(self.prepared.evaluation, SpanEvaluation):
            write_answers(folder / "answers.jsonl.gz", self.prepared.evaluation.dataset.questions, decoded)
        return {"quality": quality}

    def _sizes(self, model: Model) -> dict[str, Any]:
        parts = model.encoder.shape.parameters()
        total = sum(value.numel() for value in model.parameters())
        return {
            "parameters": total,
            "non_embedding_parameters": total - parts["embeddings"] - parts["projection"],
            "cost": self.bench.cost(model.encoder.shape) / self.full,
            "shape": model.encoder.shape.to_json(),
        }


def _asked(run: Path, searched: bool) -> Path:
    """Where a run keeps the recipe that it was asked for: a search changes it on the way."""
    return run / ("search/recipe.toml" if searched else "recipe.toml")


def _claim(run: Path, recipe: PruneRecipe) -> None:
    """Refuse a folder that is not this run's; remove what a killed process left half-written there."""
    kept = _asked(run, _asked(run, True).exists())
    ours = (".lock", ".recipe.toml.", "latency.json", ".latency.json.")
    if not kept.exists() and any(not path.name.startswith(ours) for path in run.iterdir() if path.name != "search"):
        raise QuothError(f"{run}: exists and is not a run folder; choose another --out")
    sweep(run)
    differences = read_prune_recipe(kept).differences(recipe) if kept.exists() else ()
    if differences:
        raise QuothError(
            f"{run}: holds a run of another recipe (there, here: {differences[0]}); choose another --out, or remove it"
        )
