"""Tiny models of any shape, with every tensor random and wide, and batches for them."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model.model import Model
from quoth.prune.dimensions import sizes
from tiny import batch, random_windows

LENGTHS = (7, 1, 12, 7)
HEADS = {
    None: lambda hidden: None,
    "span": SpanHead,
    "class": lambda hidden: ClassHead(hidden, 3),
    "dense": lambda hidden: ClassHead(hidden, 3, "tanh"),
    "pooled": lambda hidden: ClassHead(hidden, 3, pooled=True),
}

dimension = st.integers(1, 6)
layer_shapes = st.builds(LayerShape, dimension, dimension, dimension, dimension)


@st.composite
def shapes(draw):
    """Plain, tied, with and without projection (also where e = h), with and without token types and relative biases."""
    hidden, tied = draw(st.integers(3, 9)), draw(st.booleans())
    embedding = draw(st.sampled_from((hidden, hidden, 5)))
    count = draw(st.integers(1, 3))
    layers = [draw(layer_shapes)] * count if tied else [draw(layer_shapes) for _ in range(count)]
    types = draw(st.sampled_from((0, 2)))
    shape = Shape(23, 16, types, embedding, hidden, tuple(layers), tied, draw(st.booleans()))
    relative = draw(st.sampled_from(("none", "shared", "own")))
    if relative == "none":
        return shape
    if relative == "shared":  # layers with the same number of heads
        layers = [replace(layer, heads=layers[0].heads) for layer in layers]
    return replace(shape, layers=tuple(layers), relative_buckets=8, relative_per_layer=relative == "own")


def make_model(shape, head="span", seed=0, dtype=torch.float64, **style):
    """A model whose tensors are all random, biases and LayerNorms too; with a pooler, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    model = Model(Encoder(shape, Style(**style)), HEADS[head](shape.hidden), pooler=True).to(dtype)
    with torch.no_grad():
        for name, value in model.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            value.normal_(1.0 if gain else 0.0, 0.4, generator=generator)
    return model.eval()


def make_batch(shape, lengths=LENGTHS, seed=0):
    return batch(*random_windows(lengths, shape.vocab, shape.types, seed))


@torch.no_grad()
def outputs(model, packed, hidden=None):
    """All states and the logits, end to end; hidden: the units of the states to look at, all if None."""
    states = torch.stack(model.encoder(packed, range(len(model.encoder.shape.layers) + 1)))
    found = [(states if hidden is None else states[..., hidden]).flatten()]
    if model.head is not None:
        logits = model(packed)
        found += [logits.flatten()] if isinstance(logits, torch.Tensor) else list(logits)
    return torch.cat(found)


def random_keep(shape, seed, kinds="all", share=0.6):
    """A mask for each dimension, at least 1 element in each."""
    generator = torch.Generator().manual_seed(seed)
    keep = {}
    for name, size in sizes(shape, kinds).items():
        keep[name] = torch.rand(size, generator=generator) < share
        keep[name][torch.randint(size, (1,), generator=generator)] = True
    return keep


def random_alpha(gates, seed):
    """α anywhere from 0.5 to 1.5, of either sign."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in gates.alpha.values():
            value.uniform_(0.5, 1.5, generator=generator)
            value *= torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
