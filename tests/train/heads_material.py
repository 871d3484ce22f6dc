"""What tests of frozen heads are made of: heads, recipes of three stages, and how what they left is read."""

import gzip
import json

from train.material import log_lines, table

# Kinds that read different layers, two with dropout (cnn), some with settings of their own.
HEADS = {
    "lp": "pool(learned) > linear",
    "noisy cnn": "compress(4) > cnn(1xN, dropout=0.5) > linear",
    "compress+skip": {
        "head": "compress(8) > skip > linear",
        "learning_rate": 3e-3,
        "schedule": "linear",
        "warmup_ratio": 0.2,
    },
    "cnn": "compress(8) > cnn(1xN) > linear",
    "dot": {"head": "attend(dot)", "weight_decay": 0.1, "max_grad_norm": 0.1},
    "first": "layer(1) > linear",
    "span": {"kind": "span"},
}
AT = ("0", "0.5", "1")


def frozen_table(place, heads, **sections):
    """A recipe with an encoder of 17 steps, and heads of 17 steps on its beginning, its middle and its end."""
    made = table(place.model, place.train, place.dev, **sections)
    made["frozen"] = {"at": [0, 0.5, 1], "batch_size": 6, **made.get("frozen", {}), "heads": heads}
    return made


def as_it_is(place, heads, **frozen):
    """The same for the encoder as it was loaded alone."""
    made = frozen_table(place, heads, optimisation={"epochs": 0})
    made["frozen"] |= {"at": [0], **frozen}
    return made


def answers(folder):
    """The lines of an answers file: gzip itself writes the time."""
    return gzip.decompress((folder / "answers.jsonl.gz").read_bytes())


def head_metrics(stage):
    """What is known of all heads of a stage, but for the bytes on disk: the path of the base is among them."""
    heads = json.loads((stage / "metrics.json").read_text())["heads"]
    return {name: {key: value for key, value in head.items() if key != "bytes"} for name, head in heads.items()}


def head_losses(folder, name):
    lines = [line for line in log_lines(folder) if "loss" in line]
    return [(line["step"], line["losses"][name] if "losses" in line else line["loss"]) for line in lines]
