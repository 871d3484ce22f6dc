"""Train three small models on the CPU and print the SHA-256 of their weights, to compare two versions of the code.

    PYTHONPATH=src python benchmarks/same_weights.py
    PYTHONPATH=OLD/src python benchmarks/same_weights.py --package laconic      # the version before the renaming

Runs: full tuning (50 steps), three heads on the frozen encoder (25 steps of the encoder, 50 of the heads), pruning with
gates (25 steps) and recovery (25 steps). The encoder is a BERT of 2 layers with random weights; questions, weights and
vocabulary come from fixed seeds. Two versions that compute the same print the same three lines on the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import load_file

QUESTIONS = 200  # one window each: 25 steps of 8 windows an epoch
NAMES = [f"{first}{last}" for first in "bdfgklmn" for last in ("ado", "eri", "ilo", "osa", "uni", "aro")]
CITIES = [f"{name}ville" for name in NAMES]
WORDS = ("the", "mill", "of", "was", "built", "by", "in", "##ville", "who", "where", "is", "sold", ".", "?")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

RECIPES: dict[str, dict[str, Any]] = {
    "full": {
        "optimisation.epochs": 2,
        "optimisation.learning_rate": 1e-3,
        "optimisation.batch_size": 8,
    },
    "frozen": {
        "optimisation.epochs": 1,
        "optimisation.learning_rate": 1e-3,
        "optimisation.batch_size": 8,
        "frozen.epochs": 2,
        "frozen.batch_size": 8,
        "frozen.heads.lp": "pool(learned) > linear",
        "frozen.heads.adapter": "compress(8) > skip > linear",
        "frozen.heads.cnn": "pool(learned) > cnn(1xN) > linear",
    },
    "prune": {
        "target.keep": [0.6],
        "gates.steps": 25,
        "gates.learning_rate": 1e-2,
        "gates.batch_size": 8,
        "gates.logits_weight": 1.0,
        "gates.states_weight": 0.5,
        "distillation.task_weight": 0.5,
        "distillation.logits_weight": 1.0,
        "distillation.states_weight": 0.5,
        "distillation.temperature": 2.0,
        "recovery.epochs": 1,
        "recovery.learning_rate": 1e-3,
        "recovery.batch_size": 8,
    },
}
SHARED = {"data.max_length": 48, "data.step": 16, "data.max_query_length": 16, "seed": 3}
OLD_KEYS = {  # of the package laconic
    "learning_rate": "rate",
    "batch_size": "windows",
    "max_query_length": "max_query_length",
    "distillation": "distil",
    "task_weight": "task",
    "logits_weight": "logits",
    "states_weight": "states",
}


def make_questions(path: Path) -> None:
    """A SQuAD 2.0 file: passages of three facts, one question each; every fourth has no answer."""
    rng = np.random.default_rng(5)
    paragraphs = []
    for number in range(QUESTIONS):
        owners, cities = (rng.permutation(list_)[:4] for list_ in (NAMES, CITIES))
        context = " ".join(f"the mill of {city} was built by {owner} ." for owner, city in zip(owners[:3], cities))
        place = 3 if number % 4 == 3 else int(rng.integers(3))
        begin = context.find(f"by {owners[place]} ") + 3
        answers = [] if place == 3 else [{"text": owners[place], "answer_start": begin}]
        question = {"id": str(number), "question": f"who built the mill of {cities[place]} ?", "answers": answers}
        paragraphs.append({"context": context, "qas": [{**question, "is_impossible": place == 3}]})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "mills", "paragraphs": paragraphs}]}))


def make_model(folder: Path, *, span: bool) -> None:
    """A Hugging Face folder of a random BERT; with a span head where it is to be pruned."""
    vocabulary = [*SPECIAL, *WORDS, *NAMES]
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(7)
    make = transformers.BertForQuestionAnswering if span else transformers.BertModel
    make(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    numbered = {word: number for number, word in enumerate(vocabulary)}
    tokenizers.BertWordPieceTokenizer(numbered, lowercase=True).save(str(folder / "tokenizer.json"))


def write_recipe(path: Path, table: dict[str, Any], package: str) -> None:
    """Dotted keys are TOML; so are the JSON of their values."""
    lines = []
    for key, value in table.items():
        parts = key.split(".")
        names = [OLD_KEYS.get(part, part) for part in parts] if package == "laconic" else parts
        lines.append(f"{'.'.join(names)} = {json.dumps(value)}")
    path.write_text("\n".join(lines) + "\n")


def weights_hash(folders: list[Path]) -> str:
    """SHA-256 over the names and float32 bytes of all tensors of these model folders, sorted by name."""
    digest = hashlib.sha256()
    for folder in folders:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise SystemExit(f"{folder}: no weights there")
        tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def run(package: str, kind: str, folder: Path) -> str:
    """Run one recipe by the package's own command line: the hash of its models."""
    data, model = folder / "questions.json", folder / ("with-head" if kind == "prune" else "encoder")
    recipe, out = folder / f"{kind}.toml", folder / kind
    table = {"model": str(model), "data.train": [str(data)], "data.evaluate": str(data), **SHARED, **RECIPES[kind]}
    write_recipe(recipe, table, package)
    verb = "prune" if kind == "prune" else "train"
    command = [sys.executable, "-m", package, verb, str(recipe), "--out", str(out), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stderr}")
    places = {"full": ["model"], "prune": ["keep-0.6/model"]}
    heads = ["model", *(f"frozen/epoch-1/{name}/model" for name in ("adapter", "cnn", "lp"))]
    return weights_hash([out / place for place in places.get(kind, heads)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", choices=("quoth", "laconic"), default="quoth", help="which name to import")
    parser.add_argument("--out", help="keep the runs in this folder; by default they are removed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.out or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        make_questions(folder / "questions.json")
        make_model(folder / "encoder", span=False)
        make_model(folder / "with-head", span=True)
        for kind in RECIPES:
            print(f"{kind:8s}{run(options.package, kind, folder)}", flush=True)


if __name__ == "__main__":
    main()
