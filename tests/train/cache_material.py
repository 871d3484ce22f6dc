"""What tests of cached states are made of: heads for classes of every kind, and their recipe."""

import json

from train.material import assert_same_weights, table

PLAIN = {"kind": "class", "labels": 2}
HEADS = {
    "lp": {"kind": "chain", "line": "pool(learned) > linear", "labels": 2, "pooled": True},
    "compress": {
        "head": {"kind": "chain", "line": "compress(8) > skip > linear", "labels": 2},
        "learning_rate": 1e-2,
    },
    "noisy": {"kind": "chain", "line": "cnn(1xN, dropout=0.5) > linear", "labels": 2},
    "dot": {"kind": "chain", "line": "attend(dot)", "labels": 2},
    "pooled": {"kind": "class", "labels": 2, "pooled": True},
    "first": {"kind": "chain", "line": "layer(1) > linear", "labels": 2},
}
ROWS, LAYERS, HIDDEN = 100 + 33, 3, 32


def recipe(place, heads=HEADS, head=PLAIN, at=(0,), **frozen):
    """Whether a passage answers a question: 17 steps an epoch, two epochs; the encoder as it is, or after one."""
    made = table(place.model, place.train, place.dev, head=head, optimisation={"epochs": float(max(at))})
    made["data"]["task"] = "answerable"
    made["frozen"] = {"heads": heads, "at": list(at), "batch_size": 6, "epochs": 2.0, "cache_gb": 1.0, **frozen}
    return made


def assert_same_stages(one, other):
    for name in HEADS:
        assert_same_weights(one / name / "model", other / name / "model")
    heads = [json.loads((folder / "metrics.json").read_text())["heads"] for folder in (one, other)]
    assert heads[0] == heads[1]
    assert not (one / "cache").exists()
