"""Gates: a number α for every element of every dimension, multiplied into the six matrices of each layer.

schuBERT / optBERT (ACL 2020), table 5, with D(α) the diagonal matrix of α:

    Q, K → D(αₐ ⊗ αₖ)·Q·D(α_h)     V → D(αₐ ⊗ αᵥ)·V·D(α_h)     P → D(α_h)·P·D(αₐ ⊗ αᵥ)
    D → D(α_f)·D·D(α_h)            G → D(α_h)·G·D(α_f)

Biases, embeddings, LayerNorms, pooler and head are not gated. The gates act on the weights and not on the states, so
the encoder computes as ever, on all its paths: α = 1 changes no bit, and the gradient of α is that of the weights.

An element of a, k, v or f with α = 0 is as good as cut: a column of G or P is 0, whatever the biases before it are, and
what two biases add to a score of k is the same for all keys. A hidden unit with α = 0 is not: no layer reads or writes
it, but it still carries its embedding and the biases of P and G, LayerNorm counts it, and pooler and head read it. As
in Algorithm 1, it is cut nevertheless, and the smaller model is trained again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from quoth.encoder import Shape
from quoth.encoder.axes import Alpha, Keep
from quoth.errors import QuothError
from quoth.model import Model
from quoth.prune.dimensions import along, check, gated_axes, read_kinds, sizes


class Gates(nn.Module):
    """α = 1 for every dimension of these kinds ("all", or some of h, a, k, v, f) of a shape.

    `alpha` maps names (h, a0, k0, v0, f0, a1 …) to parameters of (size,).
    """

    def __init__(self, shape: Shape, kinds: str | Iterable[str] = "all") -> None:
        super().__init__()
        self.shape = shape
        self.kinds = read_kinds(kinds)
        self.alpha = nn.ParameterDict(
            {name: nn.Parameter(torch.ones(size)) for name, size in sizes(shape, self.kinds).items()}
        )

    def scores(self) -> dict[str, Tensor]:
        """|α|, by which the paper ranks elements; for `quoth.prune.allocate`."""
        return {name: value.detach().abs() for name, value in self.alpha.items()}

    def keep(self) -> dict[str, Tensor]:
        """Which elements have α ≠ 0."""
        return kept_by(self)

    @torch.no_grad()
    def zero(self, keep: Keep) -> None:
        """Set α = 0 where `keep` says no."""
        for name, kept in keep.items():
            if name not in self.alpha or kept.shape != self.alpha[name].shape:
                raise QuothError(f"keep: {name} of {len(kept)} elements is no dimension of these gates")
            self.alpha[name].masked_fill_(~kept.to(self.alpha[name].device), 0)


def values_of(gates: Gates | Alpha) -> dict[str, Tensor]:
    """α by name."""
    return dict((gates.alpha if isinstance(gates, Gates) else gates).items())


def kept_by(gates: Gates | Alpha) -> dict[str, Tensor]:
    """Which elements have α ≠ 0."""
    return {name: value.detach() != 0 for name, value in values_of(gates).items()}


def gated_weights(model: Model, gates: Gates | Alpha) -> dict[str, Tensor]:
    """The parameters that the gates touch, multiplied by them, by name; in the type of the weights."""
    values, lengths = values_of(gates), sizes(model.encoder.shape)
    if isinstance(gates, Gates) and gates.shape != model.encoder.shape:
        raise QuothError("these gates were made for another shape; make new ones from model.encoder.shape")
    for name, value in values.items():
        if value.shape != (lengths.get(name),):
            raise QuothError(f"α of {name}, {tuple(value.shape)}, was made for another shape than this model's")
    check(model, values)
    parameters = dict(model.named_parameters())
    found = {}
    for name, along_axes in gated_axes(model).items():
        weight: Tensor = parameters[name]
        for number, axis in enumerate(along_axes):
            factor = along(axis, values, lengths)
            if factor is not None:
                weight = weight * (factor if number else factor[:, None]).to(weight.dtype)
        if weight is not parameters[name]:
            found[name] = weight
    return found


@contextmanager
def gated(model: Model, gates: Gates | Alpha) -> Iterator[Model]:
    """Within this context the model, and all of its parts, compute with the gates in place.

        with gated(model, gates):
            start, end = model(packed)
        loss(start, end).backward()         # reaches gates.alpha, and the weights if they learn

    The weights themselves are not changed.
    """
    if model.encoder.checkpointing and torch.is_grad_enabled():
        raise QuothError("gates do not go with checkpointing, which computes again when the gates are gone")
    swapped = [(_split(model, name), value) for name, value in gated_weights(model, gates).items()]
    before = [(owner, name, owner._parameters[name]) for (owner, name), _ in swapped]
    try:
        for (owner, name), value in swapped:
            owner._parameters[name] = value  # type: ignore[assignment]  # as torch.func.functional_call does
        yield model
    finally:
        for owner, name, parameter in before:
            owner._parameters[name] = parameter


def _split(model: Model, name: str) -> tuple[nn.Module, str]:
    """The module that owns a parameter, and the parameter's name there."""
    owner, _, last = name.rpartition(".")
    return model.get_submodule(owner), last
