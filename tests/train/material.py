"""What tests of training are made of: a small model with a real tokenizer, questions, recipes, and the command line."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

from quoth import prune as pruning
from quoth import tasks
from quoth.encoder.device import Device
from quoth.train import run
from quoth.train.fine_tuning import FineTuning
from quoth.train.log import Status
from quoth.train.loop import Loop
from quoth.train.recipe import make_recipe

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
SOURCES = Path(__file__).parents[2] / "src"

# A sentence, and two questions that it answers with the words after them.
FACTS = [
    (
        "The water mill at Arden was built by Thomas Hale in 1742.",
        ("Who built the mill at Arden?", "Thomas Hale"),
        ("When was the mill at Arden built?", "1742"),
    ),
    (
        "Marble from the quarry at Sella was carried to Genoa by ox cart.",
        ("Where was the marble of Sella carried?", "Genoa"),
        ("How did marble leave the quarry at Sella?", "by ox cart"),
    ),
    (
        "Ada Winter painted the ceiling of the town hall with forty stars.",
        ("Who painted the ceiling of the town hall?", "Ada Winter"),
        ("How many stars are on the ceiling?", "forty"),
    ),
    (
        "The ferry to Skye leaves from Mallaig at seven in the morning.",
        ("Where does the ferry to Skye leave from?", "Mallaig"),
        ("When does the ferry to Skye leave?", "seven in the morning"),
    ),
    (
        "A heron eats about half a kilogram of fish on a winter day.",
        ("What does a heron eat?", "fish"),
        ("How much does a heron eat on a winter day?", "about half a kilogram"),
    ),
    (
        "The bell of Saint Olaf weighs nine tons and was cast in Trondheim.",
        ("What does the bell of Saint Olaf weigh?", "nine tons"),
        ("Where was the bell of Saint Olaf cast?", "Trondheim"),
    ),
    (
        "Otto Brandt crossed the lake on skates in January 1881.",
        ("Who crossed the lake on skates?", "Otto Brandt"),
        ("When was the lake crossed on skates?", "January 1881"),
    ),
    (
        "Saffron is picked by hand in October because the flowers wilt within a day.",
        ("How is saffron picked?", "by hand"),
        ("When is saffron picked?", "October"),
    ),
    (
        "The night train from Lyon carries mail and eleven sleeping cars.",
        ("Where does the night train come from?", "Lyon"),
        ("How many sleeping cars has the night train?", "eleven"),
    ),
    (
        "Irene Falk wrote the first dictionary of the island in four years.",
        ("Who wrote the first dictionary of the island?", "Irene Falk"),
        ("How long did the dictionary take?", "four years"),
    ),
    (
        "The lighthouse keeper at Cape Wrath recorded 212 storms between 1850 and 1860.",
        ("Where did the lighthouse keeper work?", "Cape Wrath"),
        ("How many storms did the keeper record?", "212"),
    ),
    (
        "Copper roofs turn green because the metal reacts with damp air.",
        ("What colour do copper roofs turn?", "green"),
        ("What does the copper of roofs react with?", "damp air"),
    ),
]


def make_questions(path, seed, passages=6, facts=4):
    """Write a SQuAD 2.0 file: passages of so many facts, two questions each, and two without an answer a passage."""
    drawn = random.Random(seed)
    paragraphs = []
    for p in range(passages):
        order = drawn.sample(FACTS, len(FACTS))
        here, elsewhere = order[:facts], order[facts:]
        context = " ".join(fact[0] for fact in here)
        asked = [(question, answer) for fact in here for question, answer in fact[1:]]
        asked += [(fact[1][0], None) for fact in elsewhere[:2]]
        qas = [
            {
                "id": f"{seed}-{p}-{q}",
                "question": question,
                "answers": [{"text": answer, "answer_start": context.index(answer)}] if answer else [],
                "is_impossible": answer is None,
            }
            for q, (question, answer) in enumerate(asked)
        ]
        paragraphs.append({"context": context, "qas": qas})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def make_model(folder, minilm, *, seed=0, pooler=True, **sizes):
    """A random BERT of 2 layers with the real tokenizer of MiniLM: its own dropout is 0.1."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(seed)
    config = transformers.BertConfig(**{**small, **sizes})
    transformers.BertModel(config, add_pooling_layer=pooler).save_pretrained(folder)
    copy_tokenizer(minilm, folder)
    return folder


def copy_tokenizer(minilm, folder):
    """The tokenizer of MiniLM beside a model."""
    for name in TOKENIZER:
        if (minilm / name).exists():
            shutil.copyfile(minilm / name, folder / name)


def table(model, train, evaluate="", **sections):
    """The table of a recipe for small steps; sections such as optimisation={"learning_rate": 1e-3} override it."""
    made = {
        "model": str(model),
        "data": {
            "train": [str(train)],
            "evaluate": str(evaluate),
            "max_length": 64,
            "step": 24,
            "max_query_length": 24,
        },
        "optimisation": {"epochs": 1.0, "learning_rate": 1e-3, "batch_size": 6},
        "evaluation": {},
        "checkpoints": {},
    }
    for name, value in sections.items():
        made[name] = {**made.get(name, {}), **value} if isinstance(value, dict) else value
    return made


def train(*arguments, **options):
    """Run a recipe: what its metrics.json holds."""
    metrics = run.train(*arguments, **options)
    return {} if metrics is None else metrics.to_json()


def prune(*arguments, **options):
    """Run a pruning recipe: what its metrics.json holds."""
    return pruning.prune(*arguments, **options).to_json()


def prepare(recipe, model):
    """The task of a recipe, with its examples."""
    settings = getattr(recipe, "evaluation", recipe)  # a pruning recipe has the setting itself
    return tasks.prepare(recipe.data, model, recipe.seed, settings.max_answer_tokens)


def fine_tuning(model, task, settings, seed, accelerator, loss=None):
    """A loop that trains a model on its task."""
    feed = task.feed(task.examples, accelerator.device, seed)
    objective = FineTuning(model, task, feed, settings, seed, accelerator, loss)
    return Loop(objective, feed.lengths, settings, seed, accelerator)


CPU = Device.choose("cpu")


def make_recipe_file(path, made):
    path.write_text(make_recipe(made).to_toml())
    return path


def command(*arguments):
    return [sys.executable, "-m", "quoth", *map(str, arguments)]


def environment(**more):
    """One thread, no GPU, our sources first, and no colours."""
    path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    plain = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
    return {**os.environ, **plain, **more}


def quoth(*arguments, cwd=None, env=None, **options):
    """Run the command line to its end."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env=environment(**(env or {})),
        **options,
    )


def start(*arguments, env=None, **options):
    """Start the command line in a session of its own, so that its whole group can be killed."""
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(**(env or {})),
        **options,
    )


def stop_after(step, stage=None):
    """A `tell` that sends this process SIGTERM at the first line of the log after so many steps (of such a stage)."""
    said = []

    def tell(news):
        if isinstance(news, str):
            said.append(news)
        here = stage is None or (said and said[-1].endswith(stage))
        if isinstance(news, Status) and news.step >= step and here:
            os.kill(os.getpid(), signal.SIGTERM)

    return tell


def change_state(folder, **changes):
    """Change state.json of a checkpoint, and its hash."""
    write_state(folder, {**json.loads((folder / "state.json").read_text()), **changes})


def write_state(folder, state):
    """Write state.json of a checkpoint, and the hashes of all that is there now."""
    (folder / "state.json").write_text(json.dumps(state))
    names = ("state.safetensors", "state.json")
    hashes = {name: sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "hashes.json").write_text(json.dumps(hashes))


def checkpoint(run):
    """The state of the last checkpoint of a run, which is complete."""
    folder = max((run / "checkpoints").iterdir())
    assert load_file(folder / "state.safetensors")
    return json.loads((folder / "state.json").read_text())


def log_lines(run):
    return [json.loads(line) for line in (Path(run) / "log.jsonl").read_text().splitlines()]


def losses(run):
    return [(line["step"], line["loss"]) for line in log_lines(run) if "loss" in line]


def weights(folder):
    """All tensors of a model folder, of a delta too."""
    return {name: value for file in Path(folder).glob("*.safetensors") for name, value in load_file(file).items()}


def assert_same_weights(one, other):
    """Bit for bit."""
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    assert mine
    for name, value in mine.items():
        assert torch.equal(value.view(torch.int32), theirs[name].view(torch.int32)), name


def farthest(one, other):
    """The largest difference between two models."""
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    return max((value - theirs[name]).abs().max().item() for name, value in mine.items())
