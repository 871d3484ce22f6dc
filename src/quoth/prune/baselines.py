"""What learned shapes are compared with: fewer layers, all dimensions alike, factorised embeddings, untrained rankings.

schuBERT / optBERT (ACL 2020), §6: BERT-ℓ ("by varying its number of encoder layers", 9, 6, 3; the paper does not say
which stay, here the bottom ones unless asked otherwise), BERT-all uniform ("all the design dimensions are pruned
uniformly"), ALBERT-e (embeddings factorised). All of them are cut from the trained model, and none is pre-trained anew:
the paper's BERT-ℓ and ALBERT-e were pre-trained in their own sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from quoth.encoder import Shape
from quoth.errors import QuothError
from quoth.model import Model
from quoth.prune.cost import Cost
from quoth.prune.cut import rebuild
from quoth.prune.dimensions import axes, check, sizes, with_sizes
from quoth.prune.recipe import Start

Which = Literal["bottom", "even"]


def layers_kept(count: int, keep: int, which: Which = "bottom") -> list[int]:
    """The numbers of the `keep` layers of `count` that stay: the first ones, or evenly from the first to the last."""
    if not 1 <= keep <= count:
        raise QuothError(f"{keep} of {count} layers cannot be kept; choose 1 to {count}")
    if which == "bottom":
        return list(range(keep))
    return [round(i * (count - 1) / max(1, keep - 1)) for i in range(keep)]


def begin(model: Model, start: Start) -> Model:
    """What is done before the first round."""
    small = model if start.layers is None else drop_layers(model, start.layers, start.which)
    small = small if start.embedding is None else factorise(small, start.embedding)
    if not start.activation:
        return small
    style = replace(small.encoder.style, activation=start.activation)
    return rebuild(small, small.encoder.shape, small.state_dict(), style)


@torch.no_grad()
def drop_layers(model: Model, keep: int, which: Which = "bottom") -> Model:
    """The model with `keep` of its layers."""
    check(model, [])
    if model.head is not None and tuple(model.head.reads) != (-1,):
        raise QuothError("a head that reads other layers than the last cannot follow when layers are dropped")
    shape = model.encoder.shape
    kept = layers_kept(len(shape.layers), keep, which)
    weights = {}
    for name, value in model.state_dict().items():
        parts = name.split(".")
        if parts[:2] == ["encoder", "layers"] and not shape.tied:
            if int(parts[2]) not in kept:
                continue
            parts[2] = str(kept.index(int(parts[2])))
        weights[".".join(parts)] = value
    return rebuild(model, replace(shape, layers=tuple(shape.layers[i] for i in kept)), weights)


def layers_for(shape: Shape, cost: Cost, budget: float) -> int:
    """The most layers that a budget allows."""
    for keep in range(len(shape.layers), 0, -1):
        if cost(replace(shape, layers=shape.layers[:keep])) <= budget:
            return keep
    least = cost(replace(shape, layers=shape.layers[:1]))
    raise QuothError(f"a budget of {budget:,.0f} cannot be met by dropping layers: one layer costs {least:,.0f}")


def uniform(
    scores: Mapping[str, Tensor], shape: Shape, cost: Cost, budget: float, *, multiple: int = 1
) -> dict[str, Tensor]:
    """Which elements stay if every dimension in `scores` keeps the same part, the largest that the budget allows.

    Each keeps its highest scores. Sizes are rounded to the nearest, and (but for heads) up to multiples of `multiple`.
    """
    full = {name: len(score) for name, score in scores.items()}

    def left(part: float) -> dict[str, int]:
        found = {}
        for name, size in full.items():
            step = 1 if name.startswith("a") else multiple
            found[name] = min(size, -(-max(1, round(part * size)) // step) * step)
        return found

    if cost(with_sizes(shape, left(0.0))) > budget:
        raise QuothError(f"a budget of {budget:,.0f} cannot be met by shrinking all dimensions alike")
    low, high = 0.0, 1.0
    for _ in range(40):  # to within 1e-12 of the part
        middle = (low + high) / 2
        low, high = (middle, high) if cost(with_sizes(shape, left(middle))) <= budget else (low, middle)
    keep = {}
    for name, size in left(low).items():
        keep[name] = torch.zeros(full[name], dtype=torch.bool, device=scores[name].device)
        keep[name][scores[name].detach().argsort(stable=True)[full[name] - size :]] = True
    return keep


@torch.no_grad()
def magnitudes(model: Model, kinds: str = "all") -> dict[str, Tensor]:
    """Of every element, the root mean square of its weights in all tensors that have it: a score without training."""
    lengths, wanted = sizes(model.encoder.shape), sizes(model.encoder.shape, kinds)
    squares = {name: torch.zeros(size, dtype=torch.float64) for name, size in wanted.items()}
    counts = dict.fromkeys(wanted, 0)
    for tensor, found in axes(model).items():
        value = model.get_parameter(tensor).detach().double().square().cpu()
        for number, axis in enumerate(found):
            apart = value.unflatten(number, [lengths[part] for part in axis]) if axis else value
            for place, part in enumerate(axis):
                if part in squares:
                    rows = apart.movedim(number + place, 0).reshape(lengths[part], -1)
                    squares[part] += rows.sum(1)
                    counts[part] += rows.shape[1]
    return {name: (value / counts[name]).sqrt().float() for name, value in squares.items()}


def untrained(ranking: str, model: Model, kinds: str, seed: int) -> dict[str, Tensor]:
    """Scores by "magnitude", at "random", or so that the "first" elements stay."""
    if ranking == "magnitude":
        return magnitudes(model, kinds)
    generator = torch.Generator().manual_seed(seed)
    wanted = sizes(model.encoder.shape, kinds)
    if ranking == "random":
        return {name: torch.rand(size, generator=generator) for name, size in wanted.items()}
    return {name: torch.linspace(1, 0, size) for name, size in wanted.items()}


@torch.no_grad()
def factorise(model: Model, size: int) -> Model:
    """The model with embedding tables of `size` and a linear map to the hidden size, as ALBERT has it.

    With C the centring over units, the embeddings are x = γ ⊙ √h·C(w + p + t)/‖C(w + p + t)‖ + β. The rows of the
    centred tables are brought to size − 1 numbers z by SVD, C(w + p + t) ≈ V·z, and these to e = `size` numbers y = Q·z
    of mean 0, so that LayerNorm over them is √e·y/‖y‖, and

        x ≈ γ ⊙ √(h/e)·V·Qᵀ·LayerNorm(y) + β,   exact where size > rank.

    Every token takes one row of each table, so the tables count alike in the SVD, and their rows alike in each.

    An MLM head, which decodes with the table of the words, gets new layers from h to e, as ALBERT's has (`new_layers`).
    """
    shape = model.encoder.shape
    if shape.projection:
        raise QuothError("the embeddings of this model are factorised already")
    if not 2 <= size <= shape.hidden:
        raise QuothError(f"embeddings of {shape.hidden} cannot be factorised to {size}; choose 2 to {shape.hidden}")
    check(model, [])
    weights = dict(model.state_dict())
    below = "encoder.embeddings."
    names = [f"{below}{table}.weight" for table in ("words", "positions", "types")]
    names = [name for name in names if name in weights]
    tables = [weights[name].double() for name in names]
    centred = [table - table.mean(1, keepdim=True) for table in tables]
    spread = sum(table.T @ table / len(table) for table in centred)  # (h, h): its eigenvectors are those of the SVD
    assert isinstance(spread, Tensor)
    v = torch.linalg.eigh(spread).eigenvectors[:, -(size - 1) :]
    q = _mean_free(size).to(v)
    for name, table in zip(names, centred):
        weights[name] = (table @ v @ q.T).to(weights[name].dtype)
    gain, offset = weights.pop(below + "norm.weight"), weights.pop(below + "norm.bias")
    projection = gain.double()[:, None] * (v @ q.T) * math.sqrt(shape.hidden / size)
    weights[below + "projection.weight"] = projection.to(gain.dtype)
    weights[below + "projection.bias"] = offset
    weights[below + "norm.weight"], weights[below + "norm.bias"] = gain.new_ones(size), gain.new_zeros(size)
    head = model.head
    if getattr(head, "reads_words", False):
        head = head.factorised(q @ v.T)
        weights = {name: value for name, value in weights.items() if not name.startswith("head.")}
        weights |= {f"head.{name}": value for name, value in head.state_dict().items()}
    return rebuild(model, replace(shape, embedding=size, projection=True), weights, head=head)


def new_layers(model: Model, small: Model) -> tuple[str, ...]:
    """The parameters of a head that its model did not have: they are fitted before anything else is trained."""
    known = dict(model.named_parameters())
    return tuple(name for name, _ in small.named_parameters() if name.startswith("head.") and name not in known)


def _mean_free(size: int) -> Tensor:
    """An orthonormal basis of the vectors of mean 0: (size, size − 1), Helmert's."""
    basis = torch.zeros(size, size - 1, dtype=torch.float64)
    for j in range(1, size):
        basis[:j, j - 1] = 1 / math.sqrt(j * (j + 1))
        basis[j, j - 1] = -j / math.sqrt(j * (j + 1))
    return basis
