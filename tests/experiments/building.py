"""What tests of builds are made of: a random MPNet to teach, a random BERT to learn, questions, and small steps."""

import json
from pathlib import Path

import torch
import transformers

from train.material import FACTS, make_model, make_questions

RECIPE = Path(__file__).parents[2] / "src/quoth/recipes/embedded.toml"
SMALL = (
    "data.max_length=64",
    "data.step=24",
    "data.max_query_length=24",
    "data.negatives={moved = 0.5, entity = 0.0}",
    "data.unlabelled={lookalike = 0.0, moved = 0.0}",
    "teacher.optimisation={epochs = 1, learning_rate = 1e-3, batch_size = 8}",
    "student.optimisation={epochs = 1, learning_rate = 1e-3, batch_size = 8}",
    "cut.start={layers = 2, epochs = 0.1}",
    "cut.target={keep = 0.5, embeddings = false, kinds = 'af'}",
    "cut.gates.steps=2",
    "cut.gates.batch_size=8",
    "cut.recovery={epochs = 0.3, batch_size = 8}",
)


def make_place(folder, minilm):
    """Models and questions, in a folder."""
    make_model(folder / "small", minilm, num_hidden_layers=3)
    make_mpnet(folder / "large", minilm)
    make_questions(folder / "train.json", seed=1, passages=4)
    make_questions(folder / "dev.json", seed=2, passages=3)
    for name, seed in (("one.json", 3), ("two.json", 4)):
        make_calibration(folder / name, seed)
    return folder


def make_mpnet(folder, minilm):
    """Its vocabulary is BERT's, shifted by 4."""
    bert = (minilm / "vocab.txt").read_text(encoding="utf-8").splitlines()
    words = ["<s>", "<pad>", "</s>", "<unk>", *bert, "<mask>"]
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    config = transformers.MPNetConfig(**sizes, vocab_size=len(words), max_position_embeddings=130)
    transformers.MPNetModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def make_calibration(path, seed, articles=5):
    """Questions of which any reader answers some rightly: where the answer is a whole passage of two words."""
    made = json.loads(make_questions(path, seed, passages=articles).read_text())
    data = []
    for i, paragraph in enumerate(made["data"][0]["paragraphs"]):
        short = [
            {
                "context": "Thomas Hale" if j % 2 else "Ada Winter",
                "qas": [
                    {
                        "id": f"{seed}-{i}-short-{j}",
                        "question": fact[1][0],
                        "answers": [{"text": "Thomas Hale" if j % 2 else "Ada Winter", "answer_start": 0}],
                        "is_impossible": False,
                    }
                ],
            }
            for j, fact in enumerate(FACTS[:4])
        ]
        data.append({"title": f"article {i}", "paragraphs": [paragraph, *short]})
    path.write_text(json.dumps({"version": "v2.0", "data": data}))


def words(place, *more):
    """The overrides of a small build; later ones win."""
    paths = (
        f"teacher.model={place / 'large'}",
        f"student.model={place / 'small'}",
        f'data.train=["{place / "train.json"}"]',
        f"data.evaluate={place / 'dev.json'}",
        f'calibrate.data=["{place / "one.json"}", "{place / "two.json"}"]',
    )
    return [*paths, *SMALL, *more]


def files(folder):
    """The bytes of all that a reader is made of."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != "MODEL_CARD.md"}


def stamps(folder):
    """When each file below a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
