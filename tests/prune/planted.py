"""A network in which chosen elements of every dimension do nothing, with weights as large as those of the others.

They are cancelled by a twin, or read what is always 0; so a ranking by magnitude does not find them.

- FFN units: twins have the same row in D and opposite columns in G; others read only sums that are always 0 (see h)
- heads: twins have the same Q, K, V and opposite columns in P
- keys: twins have the same rows in Q and opposite rows in K, in every head: their parts of each score cancel
- values: twins have the same rows in V and opposite columns in P, in every head
- hidden units: LayerNorm mixes all units, so the useless ones must change neither mean nor variance. Every state is
  `COPIES` signed copies of `WIDTH` numbers, + − + − + −: its mean is 0, and its variance that of the numbers, with any
  even number of copies. The last two copies are read by equal columns everywhere, and so cancel.
"""

from dataclasses import dataclass

import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model.model import Model

WIDTH, COPIES = 5, 6
LAYER = LayerShape(heads=5, key=6, value=7, ffn=12)
TWINS = {"a": 1, "k": 1, "v": 1, "f": 2}  # pairs a layer
IDLE = 2  # FFN units a layer that read nothing
LARGER = 1.3  # how much larger useless weights are than others


@dataclass(frozen=True)
class Planted:
    """A model with a head, and which elements of each of its dimensions (h, a0, k0 …) do nothing."""

    model: Model
    useless: dict[str, torch.Tensor]

    @property
    def keep(self):
        return {name: ~mask for name, mask in self.useless.items()}


@torch.no_grad()
def plant(seed=0, layers=2, dtype=torch.float32, labels=0):
    """Build one; where the useless elements stand is drawn too. labels: of a class head in place of the span head."""
    generator = torch.Generator().manual_seed(seed)
    hidden = WIDTH * COPIES
    head = ClassHead(hidden, labels) if labels else SpanHead(hidden)
    model = Model(Encoder(Shape(37, 32, 2, hidden, hidden, (LAYER,) * layers)), head).to(dtype)
    for name, value in model.named_parameters():
        gain = "norm" in name and name.endswith("weight")
        value.normal_(1.0 if gain else 0.0, 0.1 if gain else 0.3, generator=generator)
    copies = torch.randperm(hidden, generator=generator).view(COPIES, WIDTH)  # the units of each copy
    useless = {"h": _mask(hidden, copies[-2:])}
    for number, layer in enumerate(model.encoder.layers):
        found = _plant_layer(layer, copies, generator)
        useless |= {f"{kind}{number}": mask for kind, mask in found.items()}
    _plant_hidden(model, copies)
    return Planted(model.eval(), useless)


def _plant_layer(layer, copies, generator):
    shape, attention = layer.attention.shape, layer.attention
    layer.up.weight *= 0.5  # with the bias, this leaves no unit off for almost all tokens: it would be useless too
    layer.up.bias += 1
    layer.up.weight *= layer.up.weight.norm(dim=1).mean() / layer.up.weight.norm(dim=1, keepdim=True)
    numbers = layer.down.weight[copies[0]]  # units that matter about alike: what they read and write is of one length
    layer.down.weight[copies[0]] = numbers * numbers.norm(dim=0).mean() / numbers.norm(dim=0)
    q, k, v = (
        (linear.weight.view(shape.heads, size, -1), linear.bias.view(shape.heads, size))
        for linear, size in ((attention.query, shape.key), (attention.key, shape.key), (attention.value, shape.value))
    )
    p = attention.output.weight.view(-1, shape.heads, shape.value)
    chosen = {
        kind: torch.randperm(size, generator=generator)
        for kind, size in (("a", shape.heads), ("k", shape.key), ("v", shape.value), ("f", shape.ffn))
    }
    pairs = {kind: chosen[kind][: 2 * count].view(2, count) for kind, count in TWINS.items()}
    for tensor in q:
        _twins(tensor, 1, pairs["k"], +1)
    for tensor in k:
        _twins(tensor, 1, pairs["k"], -1)
    for tensor in v:
        _twins(tensor, 1, pairs["v"], +1)
    _twins(p, 2, pairs["v"], -1)
    for tensor in (*q, *k, *v):
        _twins(tensor, 0, pairs["a"], +1)
    _twins(p, 1, pairs["a"], -1)
    _twins(layer.up.weight, 0, pairs["f"], +1)
    _twins(layer.up.bias, 0, pairs["f"], +1)
    _twins(layer.down.weight, 1, pairs["f"], -1)
    idle = chosen["f"][2 * TWINS["f"] :][:IDLE]
    _read_nothing(layer.up, idle, copies)
    masks = {kind: _mask(len(chosen[kind]), pairs[kind]) for kind in TWINS}
    masks["f"][idle] = True
    return masks


def _twins(tensor, axis, pairs, sign):
    """The second of each pair is the first, or its opposite; both a little larger than the rest."""
    first = tensor.index_select(axis, pairs[0]) * LARGER
    tensor.index_copy_(axis, pairs[0], first)
    tensor.index_copy_(axis, pairs[1], sign * first)


def _read_nothing(up, idle, copies):
    """Rows that read the last two copies alone, by equal weights: x − x = 0. As long as other rows, and no bias."""
    length = up.weight.norm(dim=1).mean() * LARGER
    rows = torch.zeros_like(up.weight[idle])
    rows[:, copies[-2]] = rows[:, copies[-1]] = up.weight[idle][:, copies[-2]]
    up.weight[idle] = rows / rows.norm(dim=1, keepdim=True) * length
    up.bias[idle] = 0


def _plant_hidden(model, copies):
    """Everything that writes a state writes signed copies; everything that reads one reads the last two alike."""

    def write(tensor, axis, signed=True):
        numbers = tensor.index_select(axis, copies[0])
        for count, units in enumerate(copies):
            tensor.index_copy_(axis, units, -numbers if signed and count % 2 else numbers)

    def read(tensor):
        tensor[:, copies[-2:].flatten()] *= LARGER
        tensor[:, copies[-1]] = tensor[:, copies[-2]]

    tables = model.encoder.embeddings
    norms = [tables.norm]
    for table in (tables.words, tables.positions, tables.types):
        write(table.weight, 1)
    for layer in model.encoder.layers:
        for linear in (layer.attention.output, layer.down):
            write(linear.weight, 0)
            write(linear.bias, 0)
        for linear in (layer.attention.query, layer.attention.key, layer.attention.value, layer.up):
            read(linear.weight)
        norms += [layer.attention_norm, layer.ffn_norm]
    for norm in norms:
        write(norm.weight, 0, signed=False)
        write(norm.bias, 0)
    read(model.head.linear.weight)


def _mask(size, chosen):
    mask = torch.zeros(size, dtype=torch.bool)
    mask[chosen.flatten()] = True
    return mask
