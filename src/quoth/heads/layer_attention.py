"""Attention over layers: for each token and each query, its own mixture of the layers.

Silva 2020, "Intermediate Pretrained Contextual Embedding Models With Applications in Question Answering", §3.2 and
§3.3. The queries q are the vectors S and E of the span head (for classes, the vector of each class); h₁ … h_L are the
states of one token:

    logit = q·T' + b_q      T' = Σᵢ wᵢ hᵢ
    attend(weighted)        wᵢ = γ_q · w_qᵢ, both trained                      2·(L + 1) parameters for spans
    attend(dot)             wᵢ = softmaxᵢ(q·hᵢ)                                none of its own
    attend(multiplicative)  wᵢ = softmaxᵢ(q·W·hᵢ)                              H², one W for all queries
    attend(encoder)         T' = LN(z + B·gelu(A·z)),  z = LN(q + O·attention(q; h₁ … h_L))     a block, shared

Since q·T' = Σᵢ wᵢ (q·hᵢ), the first three need no T': a layer costs a few dot products. The encoder block is BERT's,
heads of about 64, without dropout; the residual on q is our reading. Its query is the same for all tokens, so that
keys and values are never made: (K·h)·(Q·q) = h·(Kᵀ·Q·q), and Σᵢ wᵢ·V·hᵢ = V·Σᵢ wᵢ·hᵢ. The bias of K, which is the same
for all layers and so nothing to a softmax over them, is left out: 12·H² + 12·H parameters.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.encoder.steps import initialise, linear_activate, linear_add_norm
from quoth.heads.graph import GraphHere, GraphValue
from quoth.heads.line import Argument
from quoth.heads.step import Form, Here, Reading, by_layer, fusable, need_layers, register_step

SIGMA = 0.02  # BERT's


class Queries(nn.Module):
    """One vector and one bias for each logit, as in a linear head."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.layers = need_layers("attend", form)
        self.form = replace(form, layers=None, width=form.outputs)
        self.query = _normal(form.outputs, form.width)
        self.bias = nn.Parameter(torch.zeros(form.outputs))

    def reading(self, x: Tensor) -> Reading:
        """The products that the scores and the logits are made of."""
        return Reading("products", self._vectors())

    def _vectors(self) -> Tensor:
        """What each state is multiplied with: (k, f)."""
        return self.query

    def _products(self, x: Tensor, here: Here) -> Tensor:
        """(L, T, f) → (L, T, k)."""
        given = here.given.get(self)
        return by_layer(x, self._vectors()) if given is None else given

    def _logits(self, g: Graph, products: str) -> GraphValue:
        """In a graph, the sum over layers and the bias. (L, T, outputs) → (T, outputs)."""
        total = g("ReduceSum", products, g.integers(0), keepdims=0)
        return GraphValue(g("Add", total, g.constant(self.bias)), None, len(self.bias))


class Weighted(Queries):
    """`attend(weighted)`. w begins at 1 / L and γ at 1: the mean of the layers."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self.weight = nn.Parameter(torch.full((form.outputs * self.layers,), 1 / self.layers))
        self.scale = nn.Parameter(torch.ones(form.outputs))

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(L, T, f) → (T, outputs)."""
        return _mix(self.weights(x), self._products(x, here)) + self.bias

    def weights(self, x: Tensor) -> Tensor:
        """What each layer counts, for every token the same: (L, 1, outputs)."""
        weights: Tensor = self.weight.unflatten(0, (-1, self.layers)).T * self.scale
        return weights.unsqueeze(1)

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(L, T, f) → (T, outputs)."""
        weights = g.constant(self.weights(self.weight))
        return self._logits(g, g("Mul", weights, g.linear(x.name, self.query)))


class Dot(Queries):
    """`attend(dot)`."""

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(L, T, f) → (T, outputs)."""
        products = self._products(x, here)
        return _mix(_softmax(products), products) + self.bias

    def weights(self, x: Tensor) -> Tensor:
        """What each layer counts: (L, T, outputs)."""
        return _softmax(by_layer(x, self.query))

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(L, T, f) → (T, outputs)."""
        products = g.linear(x.name, self.query)
        return self._logits(g, g("Mul", g("Softmax", products, axis=0), products))


class Multiplicative(Queries):
    """`attend(multiplicative)`."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self.weight = _normal(form.width, form.width)

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(L, T, f) → (T, outputs)."""
        keys, products = self._products(x, here).chunk(2, -1)
        return _mix(_softmax(keys), products) + self.bias

    def _vectors(self) -> Tensor:
        """The keys' and the queries'."""
        return torch.cat([self.query @ self.weight, self.query])

    def weights(self, x: Tensor) -> Tensor:
        """What each layer counts: (L, T, outputs)."""
        return _softmax(by_layer(x, self.query @ self.weight))

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(L, T, f) → (T, outputs)."""
        keys = g.linear(x.name, self.query @ self.weight)
        return self._logits(g, g("Mul", g("Softmax", keys, axis=0), g.linear(x.name, self.query)))


class EncoderBlock(Queries):
    """`attend(encoder)`."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        size = form.width
        self.heads = next(n for n in range(max(1, size // 64), 0, -1) if size % n == 0)
        self.to_query, self.to_value, self.output = (nn.Linear(size, size) for _ in range(3))
        self.to_key = nn.Linear(size, size, bias=False)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        for linear in (self.to_query, self.to_key, self.to_value, self.output, self.up, self.down):
            initialise(linear)
        self.attention_norm, self.ffn_norm = nn.LayerNorm(size, 1e-12), nn.LayerNorm(size, 1e-12)

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(L, T, f) → (T, outputs)."""
        attended = self._attend(x, _softmax(self._products(x, here)))
        queries = self.query.to(attended.dtype).unsqueeze(1).expand_as(attended).flatten(0, 1)
        z = linear_add_norm(self.output, attended.flatten(0, 1), queries, self.attention_norm, 0.0)
        mixed = linear_add_norm(self.down, linear_activate(self.up, z, "gelu"), z, self.ffn_norm, 0.0)
        logits = torch.bmm(mixed.view_as(attended), self.query.to(mixed.dtype).unsqueeze(2)).squeeze(2)
        return logits.T + self.bias

    def weights(self, x: Tensor) -> Tensor:
        """What each layer counts, the mean over heads: (L, T, outputs)."""
        weights = _softmax(by_layer(x, self._vectors()))
        mean: Tensor = weights.unflatten(2, (-1, self.heads)).mean(-1)
        return mean

    def _vectors(self) -> Tensor:
        """A key for each query and head: (outputs·heads, f)."""
        size = self.query.shape[-1] // self.heads
        queries = self.to_query(self.query).unflatten(-1, (self.heads, 1, size)) * size**-0.5
        keys = self.to_key.weight.unflatten(0, (self.heads, size))
        found: Tensor = (queries @ keys).flatten(0, 2)
        return found

    def _attend(self, x: Tensor, weights: Tensor) -> Tensor:
        """For each query and head the values of the mixed states.

        x: (L, T, f), weights: (L, T, outputs·heads) → (outputs, T, f)
        """
        projections = self.to_value.weight.unflatten(0, (self.heads, -1)).transpose(1, 2)
        outputs = len(self.query)
        if fusable(x) and not x.requires_grad:
            from quoth.heads.kernels.token_mix import token_mix  # Triton is optional

            mixed = token_mix(x, weights)  # (outputs·heads, T, f)
            values = torch.bmm(mixed, projections.repeat(outputs, 1, 1))
            together: Tensor = values.unflatten(0, (outputs, -1)).transpose(1, 2).flatten(2)
        else:
            states, found = x.transpose(0, 1), []
            by_token = weights.permute(1, 2, 0).to(x.dtype).contiguous()  # a token's lie side by side
            for of_one in by_token.split(self.heads, 1):
                mixed = torch.bmm(of_one, states)  # (T, heads, f)
                values = torch.bmm(mixed.transpose(0, 1), projections)  # (heads, T, f / heads)
                found.append(values.transpose(0, 1).flatten(1))
            together = torch.stack(found)
        return together + self.to_value.bias.to(together.dtype)

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(L, T, f) → (T, outputs), query after query: they are few."""
        states = g("Transpose", x.name, perm=[1, 0, 2])
        found = []
        for number, query in enumerate(self.query.detach()):
            z = g("Add", g.dense(self._attend_in(g, query, x, states), self.output), g.constant(query))
            z = g.norm(z, self.attention_norm)
            wide = g.activate(g.dense(z, self.up), "gelu")
            mixed = g.norm(g("Add", g.dense(wide, self.down), z), self.ffn_norm)
            found.append(g.linear(mixed, query[None], self.bias[number : number + 1]))
        return GraphValue(g("Concat", *found, axis=1), None, len(found))

    def _attend_in(self, g: Graph, query: Tensor, x: GraphValue, states: str) -> str:
        """What one query finds: each head mixes the layers of a token. x: (L, T, f), states: (T, L, f) → (T, f)."""
        size = x.width // self.heads
        asked = self.to_query(query).unflatten(-1, (self.heads, 1, size)) * size**-0.5
        keys = self.to_key.weight.unflatten(0, (self.heads, size))
        weights = g("Softmax", g.linear(x.name, (asked @ keys).flatten(0, 1)), axis=0)  # (L, T, heads)
        mixed = g("MatMul", g("Transpose", weights, perm=[1, 2, 0]), states)  # (T, heads, f)
        projections = self.to_value.weight.unflatten(0, (self.heads, -1)).mT  # (heads, f, size)
        values = g("MatMul", g("Transpose", mixed, perm=[1, 0, 2]), g.constant(projections))
        flat = g.reshape(g("Transpose", values, perm=[1, 0, 2]), -1, x.width)
        return g("Add", flat, g.constant(self.to_value.bias))


ATTENTIONS = {"weighted": Weighted, "dot": Dot, "multiplicative": Multiplicative, "encoder": EncoderBlock}


def attend(form: Form, how: str) -> Queries:
    """`attend(weighted)`, `attend(dot)`, `attend(multiplicative)` or `attend(encoder)`."""
    return ATTENTIONS[how](form)


register_step("attend", {"how": Argument(tuple(ATTENTIONS))}, attend)


def _normal(*size: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(*size), std=SIGMA))


def _softmax(scores: Tensor) -> Tensor:
    """Over layers; in half precision computed and left in fp32. (L, T, k) → (L, T, k)."""
    return scores.softmax(0, dtype=torch.float32 if scores.dtype in (torch.bfloat16, torch.float16) else None)


def _mix(weights: Tensor, products: Tensor) -> Tensor:
    """Σᵢ wᵢ·(q·hᵢ). Both (L, T, k), the weights perhaps (L, 1, k) → (T, k)."""
    return (weights * products).sum(0)
