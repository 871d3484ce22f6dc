"""Run folders as `quoth train` writes them, with answers that are right as often as a method is meant to be.

Nothing is trained: scores and costs are made up, so that tables, plots and tests have something to show.
"""

import json
import random
from pathlib import Path

from quoth.answer.record import read_answers
from quoth.config import dump_toml
from quoth.data import read
from quoth.score import span_quality

# name, trainable parameters, all parameters, training seconds, inference seconds, share of right answers
METHODS = (
    ("L0", 39_938, 108_311_810, 188, 145, 0.53),
    ("L1", 7_124_738, 108_311_810, 193, 146, 0.66),
    ("L3", 21_294_338, 108_311_810, 203, 146, 0.725),
    ("L6", 42_548_738, 108_311_810, 218, 147, 0.752),
    ("L12", 108_311_810, 108_311_810, 255, 150, 0.763),
    ("L0-A64", 2_419_202, 110_691_074, 203, 155, 0.698),
    ("L0-A768", 28_388_354, 136_660_226, 253, 189, 0.75),
    ("L12-A64", 110_691_074, 110_691_074, 269, 154, 0.763),
    ("LoRA 16", 591_362, 108_901_634, 210, 145, 0.74),
    ("BitFit", 103_682, 108_311_810, 190, 145, 0.69),
)


def write_questions(path, passages=40, each=8):
    """SQuAD 2.0: every fourth question has no answer."""
    data = []
    for p in range(passages):
        words = [f"word{p}x{i}" for i in range(each)]
        qas = [
            {
                "id": f"{p}-{i}",
                "question": f"Which word is number {i}?",
                "answers": [{"text": word, "answer_start": " ".join(words).index(word)}] if i % 4 else [],
                "is_impossible": i % 4 == 0,
            }
            for i, word in enumerate(words)
        ]
        data.append({"title": f"article {p % 5}", "paragraphs": [{"context": " ".join(words), "qas": qas}]})
    path.write_text(json.dumps({"version": "v2.0", "data": data}))
    return path


def write_answers_of(path, questions, share, drawn):
    """One line a question: right with the probability `share`, the margin larger where it is right."""
    lines = []
    for question in questions:
        right = drawn.random() < share
        sure = drawn.uniform(0, 6) + 2 * right
        none = right == question.impossible
        gold = question.answers[0] if question.answers and right else None
        start, end = (gold.start, gold.end) if gold else (0, len(question.context.split()[0]))
        span = [question.context[start:end], start, end, 5.0]
        lines.append({"id": question.id, "null_minus_best": sure if none else -sure, "answers": [span]})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_run(folder, dev, method, seed, *, name=None, epochs=3.0, fraction=1.0, **more):
    """One run folder; more: of its metrics."""
    label, trainable, total, train, inference, share = method
    folder.mkdir(parents=True)
    drawn = random.Random(f"{label}{seed}{epochs}{fraction}")
    recipe = {
        "model": "bert-base-cased", "seed": seed,
        "data": {"train": ["train.json"], "evaluate": str(dev), "fraction": fraction},
        "tuning": {"kind": "made-up", "name": name or label}, "optimisation": {"epochs": epochs},
    }  # fmt: skip
    (folder / "recipe.toml").write_text(dump_toml(recipe))
    dataset = read(str(dev))
    write_answers_of(folder / "answers.jsonl", dataset.questions, share + drawn.gauss(0, 0.006), drawn)
    quality = span_quality(dataset, read_answers(folder / "answers.jsonl"))[1]
    points = [
        {"step": 100 * k, "epoch": epochs * k / 4, "f1": quality["f1"] - 3 * (4 - k) ** 1.5, "exact": 0.0}
        for k in range(1, 5)
    ]
    metrics = {
        "model": "bert-base-cased", "tuning": recipe["tuning"], "head": {"kind": "span"}, "seed": seed,
        "quality": quality, "trainable_parameters": trainable, "total_parameters": total, "epochs": epochs,
        "train_seconds": train * fraction * epochs / 3 + drawn.gauss(0, 1),
        "inference_seconds": inference + drawn.gauss(0, 1),
        "bytes": 4 * trainable + 700_000, "peak_memory": 2_000_000_000 + 12 * trainable, "device": "cuda",
        "precision": "bf16", "threads": 1, "hardware": {"gpu": "a made-up GPU"}, "evaluations": points, **more,
    }  # fmt: skip
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def write_pruned(folder, dev):
    """A run of `quoth prune` with two targets."""
    targets = {}
    for keep, share in (("keep-0.5", 0.74), ("keep-0.3", 0.7)):
        (folder / keep).mkdir(parents=True)
        dataset, drawn = read(str(dev)), random.Random(keep)
        write_answers_of(folder / keep / "answers.jsonl", dataset.questions, share, drawn)
        quality = span_quality(dataset, read_answers(folder / keep / "answers.jsonl"))[1]
        scale = float(keep[5:])
        layers = [
            {"heads": 2 + (i * 7) % 10, "key": 64, "value": 40 + 2 * i, "ffn": round(scale * 3072 * (0.6 + i / 12))}
            for i in range(12)
        ]
        quality = {**quality, "seconds": 80 * scale}
        targets[keep] = {
            "parameters": round(108e6 * scale),
            "shape": {"hidden": 768, "layers": layers},
            "quality": quality,
        }
    (folder / "recipe.toml").write_text(dump_toml({"model": "runs/l12/model", "data": {"evaluate": str(dev)}}))
    (folder / "metrics.json").write_text(json.dumps({"targets": targets}))
    return folder


def write_all(folder, seeds=3):
    """Sixteen methods: ten with three seeds each, three parts of the data, one epoch, two pruned models; two heads."""
    dev = write_questions(folder / "dev.json")
    runs = [
        write_run(folder / f"{method[0].replace(' ', '-')}-seed{seed}", dev, method, seed, **_weights(method[0]))
        for method in METHODS
        for seed in range(seeds)
    ]
    full = METHODS[4]
    for fraction in (0.1, 0.3):
        method = (full[0], *full[1:5], full[5] - 0.2 * (1 - fraction) ** 2)
        runs += [
            write_run(folder / f"L12-data{fraction:g}-seed{seed}", dev, method, seed, fraction=fraction, name="L12")
            for seed in range(seeds)
        ]
    for epochs in (1.0, 2.0):
        method = (full[0], *full[1:5], full[5] - 0.02 * (3 - epochs))
        runs += [
            write_run(folder / f"L12-epochs{epochs:g}-seed{seed}", dev, method, seed, epochs=epochs, name="L12")
            for seed in range(seeds)
        ]
    return SimpleFolder(folder, dev, [*runs, write_pruned(folder / "pruned", dev)])


def _weights(name):
    """Two of the methods have learned layer weights."""
    if name not in ("L0", "L6"):
        return {}
    return {"layer_weights": {"model": [0.02 + (i / 12) ** (3 if name == "L0" else 1) / 5 for i in range(13)]}}


class SimpleFolder:
    """What was written: the folder, the questions, the runs."""

    def __init__(self, folder: Path, dev: Path, runs: list[Path]) -> None:
        self.folder, self.dev, self.runs = folder, dev, runs
