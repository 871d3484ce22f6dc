"""Stored runs of the papers, made up: what their recipes would leave behind, with about the numbers in print.

Nothing is trained. Tables, figures and verdicts have something to show, of every run of a paper, in a second.
"""

import json
import random

from experiments.comparison_material import write_answers_of, write_questions
from quoth.answer.record import read_answers
from quoth.config import dump_toml, overridden
from quoth.data import read
from quoth.experiments.paper_items import read_paper, run_table, runs_of
from quoth.score import span_quality


def write_paper(folder, name, dev=None, *, items=None, seeds=2, model="tiny"):
    """A sweep of the runs of these items of a paper, all by default."""
    folder.mkdir(parents=True, exist_ok=True)
    dev = dev or write_questions(folder / "dev.json", passages=30, each=4)
    paper = read_paper(name)
    names = dict.fromkeys(run for key in items or paper.items for run in runs_of(paper, paper.items[key]))
    listed = []
    for run in names:
        for seed in range(seeds):
            place = f"{run.replace(' ', '-')}-seed{seed}"
            write_run(folder / place, paper, run, seed, dev, model)
            listed.append(
                {"folder": place, "method": run, "seed": seed, "state": "finished", "error": "", "recipe": {}}
            )
    (folder / "sweep.json").write_text(json.dumps({"format": 1, "runs": listed}))
    return folder


def write_run(folder, paper, name, seed, dev, model):
    """One run folder."""
    folder.mkdir(parents=True)
    run = paper.run(name)
    data = {"evaluate": str(dev)} if run.data == "squad2" else {}
    table = overridden(run_table(run), {"model": model if not run.after else f"{model}-seed0/model", "data": data})
    recipe = {**table, "seed": seed, "data": {**table["data"], "train": ["train.json"]}}
    (folder / "recipe.toml").write_text(dump_toml(recipe))
    drawn = random.Random(f"{name} {seed}")
    spans = (
        run.data == "squad2"
        and table["data"].get("task", "spans") != "answerable"
        and "class" not in str(table.get("head"))
    )
    metrics = (
        _pruned(recipe, run, drawn) if "target" in table else _trained(folder, paper, name, recipe, drawn, dev, spans)
    )
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def _printed(paper, run, head="", epoch=None, column="f1", other=70.0):
    """The number in print of this run, head and moment."""
    for item in paper.items.values():
        for row in item.rows:
            if (row.run, row.head, row.epoch, row.at) == (run, head, epoch, None) and column in row.paper:
                return row.paper[column]
    return other


def _trained(folder, paper, name, recipe, drawn, dev, spans):
    epochs = recipe["optimisation"]["epochs"]
    quality = _quality(folder, dev, _printed(paper, name), drawn, spans)
    points = [
        {"epoch": at, **_early(quality, at / epochs)} for at in [*recipe.get("evaluation", {}).get("at", []), epochs]
    ]
    lines = [{"epoch": epochs * i / 20, "loss": 3 / (1 + i / 4)} for i in range(1, 21)]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    costs = {"trainable_parameters": 1_000_000 + len(name), "train_seconds": 12_000.0, "inference_seconds": 150.0}
    costs = {key: _printed(paper, name, column=key, other=other) for key, other in costs.items()}
    for key in ("train_seconds", "inference_seconds"):
        costs[key] *= drawn.uniform(0.99, 1.01)
    stages = {}
    for at in recipe.get("frozen", {}).get("at", [epochs] if "frozen" in recipe else []):
        heads = {
            head: _head(folder, paper, name, head, at, recipe, drawn, dev, spans) for head in recipe["frozen"]["heads"]
        }
        own = _quality(folder / f"frozen/epoch-{at:g}/encoder", dev, _printed(paper, name, "encoder", at), drawn, spans)
        stages[f"{at:g}"] = {"heads": {**heads, "encoder": {"quality": own}}}
    weights = {"model": [0.02 + (i / 12) ** 2 / 5 for i in range(13)]} if "weighted" in name else {}
    return {
        "seed": recipe["seed"], "epochs": epochs, "quality": quality, "evaluations": points, "frozen": stages,
        **costs, "total_parameters": 109_000_000, "layer_weights": weights,
    }  # fmt: skip


def _head(folder, paper, name, head, at, recipe, drawn, dev, spans):
    quality = _quality(folder / f"frozen/epoch-{at:g}/{head}", dev, _printed(paper, name, head, at), drawn, spans)
    every = recipe["frozen"].get("evaluate", [])
    last = recipe["frozen"].get("epochs", 1.0)
    curve = [{"epoch": epoch, **(_early(quality, epoch / last) if epoch < last else quality)} for epoch in every]
    weights = {"start": [0.02 + i / 24 for i in range(13)]} if head == "lp" else {}
    return {"quality": quality, "parameters": len(head) * 1000, "curve": curve, "layer_weights": weights}


def _early(quality, part):
    """Scores at a part of the training."""
    return {key: value * (0.6 + 0.4 * part**0.5) for key, value in quality.items() if key in ("f1", "exact", "acc")}


def _quality(folder, dev, percent, drawn, spans):
    """The scores of a model, with its answers where it gives any."""
    share = min(max(percent / 100 + drawn.gauss(0, 0.01), 0), 1)
    folder.mkdir(parents=True, exist_ok=True)
    if not spans:
        return {"f1": 100 * share, "exact": 100 * share, "acc": 100 * share, "mcc": 100 * share}
    dataset = read(str(dev))
    write_answers_of(folder / "answers.jsonl", dataset.questions, share, drawn)
    return span_quality(dataset, read_answers(folder / "answers.jsonl"))[1]


def _pruned(recipe, run, drawn):
    """Sizes that grow with depth, keys that stay, values that shrink."""
    (keep,) = recipe["target"]["keep"]
    layers = [
        {
            "heads": 12,
            "key": 64,
            "value": round(64 * keep),
            "ffn": round(3072 * keep * (0.5 + i / 24)) + drawn.randint(0, 20),
        }
        for i in range(12)
    ]
    full = [{"heads": 12, "key": 64, "value": 64, "ffn": 3072}] * 12
    target = {
        "parameters": round(109e6 * keep),
        "shape": {"hidden": round(768 * keep), "layers": layers},
        "quality": {},
    }
    return {"targets": {run.folder or f"keep-{keep:g}": target}, "unpruned": {"shape": {"hidden": 768, "layers": full}}}
