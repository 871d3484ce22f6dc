"""Seconds of one epoch of fine-tuning, ours and transformers', on the same windows of the same file.

    python -m benchmarks.speed.epoch --model MODEL --train train.json.gz [--evaluate dev.json.gz] [--batch-size 16]

Ours is `quoth.train` whole, from the recipe: evaluation and saving are not counted, capturing the graphs is.
transformers is a plain loop over the same windows, padded to 384 as `run_qa.py` does, in bf16 autocast with fused AdamW
and clipping; of it `--steps` steps are timed, and the epoch is computed from them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.race import Contender, machine, run
from benchmarks.speed.encoder import finish, optimiser_for
from quoth.tasks import prepare
from quoth.train.build import build_model
from quoth.train.recipe import make_recipe
from quoth.train.run import train

LONGEST = 384


def recipe_table(options: argparse.Namespace) -> dict[str, Any]:
    """The recipe: all weights, one epoch."""
    return {
        "model": options.model,
        "data": {"train": [options.train], **({"evaluate": options.evaluate} if options.evaluate else {})},
        "optimisation": {"epochs": 1.0, "batch_size": options.batch_size, "learning_rate": 1e-4},
    }


def padded(task: Any, batch_size: int, device: str, count: int) -> list[tuple[dict[str, Tensor], Tensor]]:
    """Batches of random windows as (windows, 384) rectangles on the device."""
    examples, rng, found = task.examples, np.random.default_rng(0), []
    for _ in range(count):
        indices = rng.choice(len(examples), batch_size, replace=False)
        tables = {key: torch.zeros(batch_size, LONGEST, dtype=torch.long) for key in ("input_ids", "token_type_ids")}
        mask = torch.zeros(batch_size, LONGEST, dtype=torch.long)
        for number, index in enumerate(indices):
            place = slice(examples.windows.starts[index], examples.windows.starts[index + 1])
            length = place.stop - place.start
            tables["input_ids"][number, :length] = torch.from_numpy(examples.windows.ids[place])
            tables["token_type_ids"][number, :length] = torch.from_numpy(examples.windows.types[place])
            mask[number, :length] = 1
        inputs = {key: value.to(device) for key, value in {**tables, "attention_mask": mask}.items()}
        found.append((inputs, torch.from_numpy(examples.labels[indices]).long().to(device)))
    return found


def transformers_seconds(options: argparse.Namespace, task: Any, device: str) -> tuple[str, float]:
    """The faster attention, and the seconds of an epoch by it."""
    from transformers import AutoModelForQuestionAnswering  # optional, and slow to import

    found = {}
    for attention in ("sdpa", "eager"):
        model: Any = AutoModelForQuestionAnswering.from_pretrained(options.model, attn_implementation=attention)
        model = model.to(device).train()
        optimiser, batches = optimiser_for(model, device), iter(padded(task, options.batch_size, device, options.steps))

        def step(model: Any = model, optimiser: Any = optimiser, batches: Any = batches) -> None:
            inputs, answers = next(batches)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(**inputs, start_positions=answers[:, 0], end_positions=answers[:, 1]).loss
            finish(model, optimiser, loss)

        run(Contender(step), min(10, options.steps // 4))
        count = options.steps - min(10, options.steps // 4)
        found[attention] = run(Contender(step), count) / count * len(task.examples) / options.batch_size
    best = min(found, key=lambda name: found[name])
    return best, found[best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", required=True)
    parser.add_argument("--train", required=True)
    parser.add_argument("--evaluate", default="")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200, help="of transformers, timed")
    parser.add_argument("--keep", help="a folder in which the run is kept")
    options = parser.parse_args()
    recipe = make_recipe(recipe_table(options))
    task = prepare(recipe.data, build_model(recipe), recipe.seed, recipe.evaluation.max_answer_tokens)
    with tempfile.TemporaryDirectory() as folder:
        metrics = train(recipe, Path(options.keep or folder) / "run", device=options.device, tell=print, task=task)
    assert metrics is not None
    seconds, windows = metrics.train_seconds, len(task.examples)
    name, theirs = transformers_seconds(options, task, options.device)
    print(machine(options.device, ("torch", "transformers")))
    quality = {key: round(value, 2) for key, value in metrics.quality.items() if isinstance(value, float)}
    print(f"ours: {quality}")
    print(f"{windows:,} windows, {options.batch_size} a step: ours {seconds:.1f} s, {windows / seconds:,.0f} windows/s")
    print(f"transformers ({name}) {theirs:.1f} s, {windows / theirs:,.0f} windows/s: {theirs / seconds:.2f} ×")


if __name__ == "__main__":
    main()
