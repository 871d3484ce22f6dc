"""What tests of exporting are made of: small models in folders, in which every weight is wide enough to matter."""

import shutil

import numpy as np
import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from quoth.heads import build_head
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.windows.packed import pack
from tiny import random_windows

IRREGULAR = (LayerShape(3, 5, 8, 40), LayerShape(1, 8, 3, 17), LayerShape(2, 4, 4, 31))
SHORT = 40  # positions: deep convolutions over 512 tokens take seconds
LENGTHS = (1, 40, 2, 7, 30, 8, 39, 8, 3, 40, 1)  # some of them equal
RECTANGLES = (1, 4096)  # tokens: every window alone, and all windows of a length in one batch


def shape(layers=IRREGULAR, **sizes):
    return Shape(
        **{"vocab": 97, "positions": SHORT, "types": 2, "embedding": 24, "hidden": 24, "layers": layers, **sizes}
    )


def random_model(shape, head, *, style=None, seed=0):
    torch.manual_seed(seed)
    made = build_head(head, shape.hidden, len(shape.layers)) if head else None
    model = Model(Encoder(shape, style or Style()), made, pooler=bool(made and made.pooled))
    widen(model)
    return model.eval()


@torch.no_grad()
def widen(model, names=None):
    """All weights, or those of these names; filters and gains of norms stay as drawn."""
    for name, value in model.named_parameters():
        gain = "norm" in name and name.endswith("weight")
        if value.ndim < 4 and not gain and (names is None or name in names):
            value.add_(torch.randn(value.shape) * 0.2)


def make_folder(folder, shape, head, **settings):
    model = random_model(shape, head, **settings)
    save(model, folder)
    return model


def with_tokenizer(folder, minilm):
    """The folder with the real tokenizer of MiniLM, for models with its vocabulary."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(minilm / name, folder / name)
    return folder


def windows(lengths=LENGTHS, types=2, seed=0, vocab=97):
    return pack(*random_windows(lengths, vocab, types, seed))


@torch.inference_mode()
def torch_logits(model, packed):
    """The packed path: (2, T) of spans, (n, labels) of classes."""
    found = model(packed.map(torch.from_numpy))
    return (torch.stack(found) if isinstance(found, tuple) else found).numpy()


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * max(1.0, np.abs(wanted).max()))
