"""A process of benchmarks.papers.corrections_gpu: does one run after another, with the quoth of its PYTHONPATH.

It reads a run as a line of JSON and answers with one. It works with the code of this checkout and with that of the
commit before the corrections, so it calls little. Data are tokenised once for each of its settings.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import sys
import time
import traceback
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from quoth.encoder.device import Device
from quoth.errors import QuothError
from quoth.files import read_json, write_json
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.prune import prune, schedule
from quoth.prune.recipe import read_prune_recipe
from quoth.recipes import find_recipe
from quoth.tasks import prepare
from quoth.tasks.classification import class_logits
from quoth.train import warm_up
from quoth.train.build import build_model
from quoth.train.recipe import read_recipe
from quoth.train.run import train

KEPT = ("losses", "steps", "seconds", "quality", "shape", "parameters", "cost")  # of a pruned model
TRAINED = ("quality", "steps", "train_seconds", "hardware", "versions")
HEAD = ("quality", "parameters")

_tasks: dict[Any, Any] = {}


def work(order: dict[str, Any]) -> dict[str, Any]:
    """Do one run: what tables need of it or, under `error`, why there is nothing."""
    begin, folder = time.perf_counter(), Path(order["out"])
    try:
        prepare_folder(folder, order["overrides"])
        facts = {"train": do_train, "prune": do_prune, "fit": do_fit}[order["how"]](order, folder)
    except Exception as error:  # whatever it is, such as memory: no reason to end the others
        if order["refused"] and isinstance(error, QuothError):
            facts = {"refused": str(error)}
        else:
            traceback.print_exc()  # into the log
            facts = {"error": f"{type(error).__name__}: {error}"}
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {**facts, "wall": round(time.perf_counter() - begin, 1)}


def prepare_folder(folder: Path, identity: list[str]) -> None:
    """Leave nothing of a run that was made with other overrides, or that was ended in its midst."""
    said = folder.with_name(f"{folder.name}.json")
    if not said.exists() or read_json(said) != identity or not (folder / "metrics.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        said.parent.mkdir(parents=True, exist_ok=True)
        write_json(said, identity)


def task_for(order: dict[str, Any], recipe: Any, model: Any, longest: int) -> Any:
    """The task with its data; the seed draws them where only a part is wanted."""
    data = recipe.data
    key = data, recipe.seed if data.fraction < 1 or data.held_out else None
    if key not in _tasks:
        kept = {"windows": Path(order["windows"])} if "windows" in signature(prepare).parameters else {}
        _tasks[key] = prepare(data, model, recipe.seed, longest, **kept)
    return _tasks[key]


def do_train(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`quoth train`."""
    recipe = read_recipe(find_recipe(order["recipe"]), order["overrides"])
    task = task_for(order, recipe, build_model(recipe), recipe.evaluation.max_answer_tokens)
    train(recipe, folder, task=task)
    facts = read_json(folder / "metrics.json")
    found = {key: facts[key] for key in TRAINED if key in facts}
    found["frozen"] = {
        epoch: {name: {key: head[key] for key in HEAD if key in head} for name, head in stage["heads"].items()}
        for epoch, stage in facts.get("frozen", {}).items()
    }
    for also in order["also"]:
        found[also] = {"thresholds": thresholds, "bits": bits, "rules": rules, "masks": masks}[also](
            recipe, task, folder
        )
    return found


def do_prune(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`quoth prune` to one target."""
    recipe = read_prune_recipe(find_recipe(order["recipe"]), order["overrides"])
    if order.get("latency") and recipe.target.by == "latency":
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "latency.json", order["latency"])
    limit_warm_up(order["steps"])
    prune(recipe, folder, task=task_for(order, recipe, load(recipe.model), recipe.max_answer_tokens))
    facts = read_json(folder / "metrics.json")
    kept = {name: {key: target[key] for key in KEPT if key in target} for name, target in facts["targets"].items()}
    start = {"start": kept.pop("start")} if "start" in kept else {}
    (target,) = kept.values()
    unpruned = {key: facts["unpruned"].get(key) for key in ("loss", "quality", "shape")}
    return {**target, **start, "unpruned": unpruned, "alpha": gates_of(folder)}


def limit_warm_up(steps: int) -> None:
    """No more steps of heads alone, where factorised embeddings need such."""
    schedule.__dict__["warm_up"] = partial(warm_up, most=steps)


def gates_of(folder: Path) -> dict[str, Any]:
    """α of h, and the mean of |α| of each kind."""
    files = sorted(folder.glob("rounds/*/alpha.safetensors"))
    if not files:
        return {}
    alpha = {name.rpartition(".")[2]: value.float().abs() for name, value in load_file(files[-1]).items()}
    found: dict[str, Any] = {"h": [round(float(value), 4) for value in alpha["h"]]} if "h" in alpha else {}
    for kind in "hakvf":
        values = [value for name, value in alpha.items() if name[0] == kind]
        if values:
            found[f"mean {kind}"] = round(float(torch.cat(values).mean()), 4)
    return found


def do_fit(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Heads of pre-training on the frozen encoder, so that no run has to fit its own."""
    recipe = read_recipe(find_recipe(order["recipe"]), order["overrides"])
    model = load(recipe.model)
    task = task_for(order, recipe, model, 30)
    names = task.add_head(model, recipe.head, recipe.seed)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    found = warm_up(model, task, names, accelerator, seed=recipe.seed, most=order["steps"])
    save(model.to("cpu"), folder / "model")
    return {"steps": found.steps, "losses": list(found.losses), "flat": found.flat}


def thresholds(recipe: Any, task: Any, folder: Path) -> dict[str, Any]:
    """Of answer or no answer: scores at the best threshold of each model, and by how many windows a question has."""
    from benchmarks.papers.classes import thresholds as best
    from quoth.data import read

    questions = task.evaluation.windows.question
    labels = np.array([int(question.impossible) for question in read(recipe.data.evaluate).questions])
    several = np.bincount(questions, minlength=len(labels)) > 1
    stage = f"{recipe.optimisation.epochs:g}"
    places = {"encoder": folder / "model"}
    places |= {name: folder / f"frozen/epoch-{stage}/{name}/model" for name in recipe.frozen.heads}
    found = {}
    for name, place in places.items():
        logits = class_logits(load(place), task.evaluation.windows, Device.choose(None, None))
        scores = np.full(len(labels), -np.inf)
        np.maximum.at(scores, questions, logits[:, 1] - logits[:, 0])  # any window that says "no answer"
        own: dict[str, float | None] = dict(best(scores, labels))
        right = (scores >= 0) == labels
        own["one window"] = 100 * float(right[~several].mean()) if (~several).any() else None
        own["several windows"] = 100 * float(right[several].mean()) if several.any() else None
        own["said"] = 100 * float((scores >= 0).mean())
        found[name] = own
    return found


def bits(recipe: Any, task: Any, folder: Path) -> dict[str, str]:
    """The SHA-256 of the trained weights of each head."""
    return {
        name: hashlib.sha256((folder / f"frozen/epoch-0/{name}/model/delta.safetensors").read_bytes()).hexdigest()
        for name in recipe.frozen.heads
    }


def rules(recipe: Any, task: Any, folder: Path) -> list[dict[str, Any]]:
    """The rule of BERTVision before and after, on the model that was tuned."""
    from benchmarks.papers.corrections import rule_rows
    from quoth.answer.reader import Reader
    from quoth.runtime.torch_runner import TorchRunner

    reader = Reader(TorchRunner(load(folder / "model")), task.tokenizer, **recipe.data.window_settings())
    return rule_rows(recipe.data.evaluate, reader)


def masks(recipe: Any, task: Any, folder: Path) -> dict[str, dict[str, float]]:
    """The held-out loss under either way of masking."""
    model, device = load(folder / "model"), Device.choose(None, None)
    found = {}
    for name, value in (("tokens", False), ("whole words", True)):
        other = replace(task, whole_words=value)
        found[name] = dict(other.evaluate(model.to(device.place), device).quality)
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to the log
    torch.set_num_threads(1)
    for line in sys.stdin:
        answers.write(json.dumps(work(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
