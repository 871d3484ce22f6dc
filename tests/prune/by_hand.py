"""BERT with both heads of pre-training, its gates and Algorithm 1, written from the papers in plain torch.

Khetan and Karnin 2020, "schuBERT", tables 3-5, equation 2 and Algorithm 1; Devlin et al. 2019 and Vaswani et al. 2017
for the model. Nothing of `quoth.prune` is used: weights are a dictionary, named as in a model folder, and a gate is a
diagonal matrix.
"""

import math
from itertools import pairwise

import torch

EPS = 1e-12
PARTS = {"Q": "attention.query", "K": "attention.key", "V": "attention.value", "P": "attention.output"}
PARTS |= {"D": "up", "G": "down"}


def read(w, i, part, kind="weight"):
    """A tensor of layer i, by the paper's letter."""
    return w[f"encoder.layers.{i}.{PARTS[part]}.{kind}"]


def sizes_of(w, heads):
    """h, then a, k, v and f of every layer; heads: a of every layer."""
    found = {"h": w["encoder.embeddings.words.weight"].shape[1]}
    for i, a in enumerate(heads):
        found |= {f"a{i}": a, f"k{i}": len(read(w, i, "K")) // a, f"v{i}": len(read(w, i, "V")) // a}
        found[f"f{i}"] = len(read(w, i, "D"))
    return found


def norm(x, w, name):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / (variance + EPS).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def encode(w, heads, ids, types):
    """One window of n tokens: its states after the last layer, (n, h)."""
    below = "encoder.embeddings."
    x = w[below + "words.weight"][ids] + w[below + "positions.weight"][: len(ids)] + w[below + "types.weight"][types]
    x = norm(x, w, below + "norm")
    for i, a in enumerate(heads):
        q, k, v = (x @ read(w, i, part).T + read(w, i, part, "bias") for part in "QKV")
        mixed = []
        for q1, k1, v1 in zip(q.chunk(a, 1), k.chunk(a, 1), v.chunk(a, 1)):
            scores = q1 @ k1.T / math.sqrt(k1.shape[1])
            mixed.append(scores.softmax(1) @ v1)
        x = norm(
            x + torch.cat(mixed, 1) @ read(w, i, "P").T + read(w, i, "P", "bias"),
            w,
            f"encoder.layers.{i}.attention_norm",
        )
        wide = gelu(x @ read(w, i, "D").T + read(w, i, "D", "bias"))
        x = norm(x + wide @ read(w, i, "G").T + read(w, i, "G", "bias"), w, f"encoder.layers.{i}.ffn_norm")
    return x


def loss_of(w, heads, packed, labels):
    """Equation 1 on a batch, a window: MLM's cross-entropy by the batch's weight, and NSP's."""
    bounds, states, total = packed.starts.tolist(), [], 0.0
    for n, (begin, end) in enumerate(pairwise(bounds)):
        state = encode(w, heads, packed.ids[begin:end].long(), packed.types[begin:end].long())
        pooled = torch.tanh(state[0] @ w["pooler.weight"].T + w["pooler.bias"])
        nsp = pooled @ w["head.nsp.weight"].T + w["head.nsp.bias"]
        total = total - nsp.log_softmax(0)[labels[n]]
        states.append(state)
    states = torch.cat(states)
    for place, target in zip(packed.places.tolist(), packed.targets.tolist()):
        if target >= 0:
            x = norm(gelu(states[place] @ w["head.dense.weight"].T + w["head.dense.bias"]), w, "head.norm")
            words = x @ w["encoder.embeddings.words.weight"].T + w["head.bias"]
            total = total - packed.weight * words.log_softmax(0)[target]
    return total / (len(bounds) - 1)


def gate(w, heads, alpha):
    """Table 5: K̃, Q̃, Ṽ, P̃, D̃, G̃ in place of K, Q, V, P, D, G; a (k·a, h) matrix is a tensor of k × a × h."""
    gated = dict(w)
    for i, a in enumerate(heads):
        h, own = alpha["h"], {kind: alpha[f"{kind}{i}"] for kind in "akvf"}

        def put(part, value, i=i):
            gated[f"encoder.layers.{i}.{PARTS[part]}.weight"] = value

        for part, kind in (("K", "k"), ("Q", "k"), ("V", "v")):
            tensor = read(w, i, part).unflatten(0, (a, -1))
            put(part, torch.einsum("akh,a,k,h->akh", tensor, own["a"], own[kind], h).flatten(0, 1))
        tensor = read(w, i, "P").unflatten(1, (a, -1))
        put("P", torch.einsum("hav,h,a,v->hav", tensor, h, own["a"], own["v"]).flatten(1))
        put("D", torch.diag(own["f"]) @ read(w, i, "D") @ torch.diag(h))
        put("G", torch.diag(h) @ read(w, i, "G") @ torch.diag(own["f"]))
    return gated


def betas_of(n, layers):
    """β: what one element removes of K, Q, V, P, D, G and the pooler, a head being 1 (the mean over layers)."""
    head = sum(2 * n["h"] * (n[f"k{i}"] + n[f"v{i}"]) for i in range(layers)) / layers
    found = {"h": sum(2 * n[f"a{i}"] * (n[f"k{i}"] + n[f"v{i}"]) + 2 * n[f"f{i}"] for i in range(layers))}
    found["h"] += 2 * n["h"] - 1  # of the pooler, h × h
    for i in range(layers):
        found |= {f"a{i}": 2 * n["h"] * (n[f"k{i}"] + n[f"v{i}"]), f"f{i}": 2 * n["h"]}
        found |= dict.fromkeys((f"k{i}", f"v{i}"), 2 * n["h"] * n[f"a{i}"])
    return {name: value / head for name, value in found.items()}


def cost_of(n, layers):
    """All parameters of layers and pooler."""
    h, total = n["h"], n["h"] * n["h"] + n["h"]
    for i in range(layers):
        a, k, v, f = (n[f"{kind}{i}"] for kind in "akvf")
        total += 2 * (h * a * k + a * k) + (h * a * v + a * v) + (a * v * h + h) + (f * h + f) + (h * f + h) + 4 * h
    return total


def smallest_removed(alpha, n, layers, budget):
    """ζ: the smallest |α|, one after the other, until the budget is met; of a dimension one element stays."""
    keep = {name: torch.ones(size, dtype=torch.bool) for name, size in n.items()}
    order = sorted((abs(x), name, j) for name, value in alpha.items() for j, x in enumerate(value.tolist()))
    for _, name, j in order:
        left = {other: int(mask.sum()) for other, mask in keep.items()}
        if cost_of(left, layers) <= budget:
            return keep
        if left[name] > 1:
            keep[name][j] = False
    raise AssertionError("the budget cannot be met")


def remove(w, heads, keep):
    """Rows and columns of what goes; where k shrinks, Q is multiplied by √(k′/k), since scores are divided by √k′."""
    w, h = dict(w), keep["h"]
    for i in range(len(heads)):
        keys, values = (torch.outer(keep[f"a{i}"], keep[f"{kind}{i}"]).flatten() for kind in "kv")
        rows = {"K": keys, "Q": keys, "V": values, "P": h, "D": keep[f"f{i}"], "G": h}
        columns = {"K": h, "Q": h, "V": h, "P": values, "D": h, "G": keep[f"f{i}"]}
        for part, name in PARTS.items():
            name = f"encoder.layers.{i}.{name}"
            shrunk = math.sqrt(keep[f"k{i}"].double().mean().item()) if part == "Q" else 1.0
            w[f"{name}.weight"] = w[f"{name}.weight"][rows[part]][:, columns[part]] * shrunk
            w[f"{name}.bias"] = w[f"{name}.bias"][rows[part]] * shrunk
    for name, value in w.items():
        inside = any(f".{part}." in name for part in PARTS.values())
        if not inside and ("norm" in name or name in ("pooler.bias", "head.dense.bias")):
            w[name] = value[h]
        elif name in ("pooler.weight", "head.dense.weight"):
            w[name] = value[h][:, h]
        elif ".embeddings." in name or name == "head.nsp.weight":
            w[name] = value[:, h]
    return w, [int(keep[f"a{i}"].sum()) for i in range(len(heads))]
