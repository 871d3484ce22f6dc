"""Every step of a chain by the formulas, for one window alone, token by token: the truth that heads are held to.

A value is a tensor of (layers, n, f) for several layers or (n, f) for one, of a window of n tokens; for classes, n = 1.
"""

import math

import torch

from quoth.heads.chain import Linear, Parallel
from quoth.heads.compress import Compress, Skip
from quoth.heads.convolution import FeatureCNN, TokenCNN
from quoth.heads.image import Halve, Unit
from quoth.heads.inception import Inception
from quoth.heads.inception import Module as InceptionModule
from quoth.heads.layer_attention import Dot, EncoderBlock, Multiplicative, Weighted
from quoth.heads.pooling import Pool
from quoth.heads.xception import Block, Middle, Tail, Xception


def window_logits(head, states):
    """states: one (n, h) for each that the head is handed → (n, outputs)."""
    picked = [states[i] for i in head._picked]
    x = torch.stack(picked) if len(picked) > 1 else picked[0]
    return follow(head.steps, x, states[-1])


def follow(steps, x, last):
    for step in steps:
        x = LOOPS[type(step)](step, x, last)
    return x


def layers_of(x):
    return list(x) if x.ndim == 3 else [x]


def tokens_of(x):
    """Each token's features of all layers in one vector."""
    layers = layers_of(x)
    return [torch.cat([layer[t] for layer in layers]) for t in range(len(layers[0]))]


def softmax(values):
    top = torch.stack(list(values)).max()
    powers = [torch.exp(v - top) for v in values]
    return [p / sum(powers) for p in powers]


def norm(x, weight, bias, eps):
    mean = x.mean()
    return weight * (x - mean) / torch.sqrt(((x - mean) ** 2).mean() + eps) + bias


def pool(step, x, last):
    count = len(x)
    shares = [1 / count] * count if step.weight is None else [step.scale[0] * s for s in softmax(step.weight)]
    return torch.stack([sum(s * x[i, t] for i, s in enumerate(shares)) for t in range(x.shape[1])])


def compress(step, x, last):
    size = step.form.width
    made = []
    for i, layer in enumerate(layers_of(x)):
        weight = step.weight[i] if step.weight.ndim == 3 else step.weight
        bias = step.bias[i * size : (i + 1) * size] if step.weight.ndim == 3 else step.bias
        rows = []
        for token in layer:
            u = weight @ token + bias
            rows.append(0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3))))
        made.append(torch.stack(rows))
    return torch.stack(made) if x.ndim == 3 else made[0]


def skip(step, x, last):
    return torch.stack([torch.cat([state, token]) for state, token in zip(last, tokens_of(x))])


def linear(step, x, last):
    return torch.stack([step.weight @ token + step.bias for token in tokens_of(x)])


def parallel(step, x, last):
    made = [tokens_of(follow(branch, x, last)) for branch in step.branches]
    return torch.stack([torch.cat(parts) for parts in zip(*made)])


def feature_cnn(step, x, last):
    layers, d = layers_of(x), step.dilation
    features = layers[0].shape[1]
    rows = []
    for t in range(len(layers[0])):
        places = []
        for p in range(math.ceil(features / (16 * d)) * d):
            begin = p // d * 16 * d + p % d
            y = step.first.bias
            for k in range(16):
                for i, layer in enumerate(layers):
                    if begin + k * d < features:
                        y = y + step.first.weight[:, i * 16 + k] * layer[t, begin + k * d]
            places.append(y.clamp(min=0))
        for conv in (step.second, step.third):
            after = []
            for p in range(math.ceil(len(places) / 8)):
                y = conv.bias
                for k, place in enumerate(places[8 * p : 8 * p + 8]):
                    y = y + conv.weight[:, k * len(place) : (k + 1) * len(place)] @ place
                after.append(y.clamp(min=0))
            places = after
        rows.append(torch.cat(places))
    return torch.stack(rows)


def convolve(conv, x, around):
    """A convolution at every token and, by its step, feature; zeros outside. x: (channels, n, f) → (outputs, n, f')."""
    weight = conv.weight
    high, wide = weight.shape[2:]
    step, features = conv.stride[1], x.shape[2]
    count = (features + 2 * around - wide) // step + 1 if around else math.ceil(features / step)
    rows = []
    for t in range(x.shape[1]):
        row = []
        for p in range(count):
            y = torch.zeros(len(weight), dtype=x.dtype) if conv.bias is None else conv.bias
            for a in range(high):
                for b in range(wide):
                    i, j = t + a - high // 2, p * step + b - around
                    if 0 <= i < x.shape[1] and 0 <= j < features:
                        filters = weight[:, :, a, b]
                        y = y + (filters[:, 0] * x[:, i, j] if conv.groups > 1 else filters @ x[:, i, j])
            row.append(y)
        rows.append(torch.stack(row))
    return torch.stack(rows).permute(2, 0, 1)


def mean_of_nine(x, high, step):
    """Means over `high` tokens and 3 features, zeros outside counted. (channels, n, f) → (channels, n, ⌈f / step⌉)."""
    rows = []
    for t in range(x.shape[1]):
        row = []
        for p in range(0, x.shape[2], step):
            near = x[:, max(0, t - high // 2) : t + high // 2 + 1, max(0, p - 1) : p + 2]
            row.append(near.sum((1, 2)) / (3 * high))
        rows.append(torch.stack(row))
    return torch.stack(rows).permute(2, 0, 1)


def norm_channels(norm_, x):
    return torch.stack(
        [torch.stack([norm(p, norm_.weight, norm_.bias, norm_.eps) for p in row]) for row in x.permute(1, 2, 0)]
    ).permute(2, 0, 1)


def unit(step, x):
    return norm_channels(step.norm, convolve(step.conv, x, step.conv.weight.shape[3] // 2)).clamp(min=0)


def separable(step, x):
    return norm_channels(step.norm, convolve(step.pointwise, convolve(step.depthwise, x, 1), 0))


def network(part, x):
    """A part of Inception or Xception. (channels, n, f) → (channels', n, f')."""
    if isinstance(part, Unit):
        return unit(part, x)
    if isinstance(part, Halve):
        return mean_of_nine(x, 1, 2)
    if isinstance(part, InceptionModule):
        ways = [
            unit(part.one, x),
            unit(part.three, unit(part.three_reduce, x)),
            unit(part.five, unit(part.five_reduce, x)),
            unit(part.pool, mean_of_nine(x, part.three.conv.weight.shape[2], 1)),
        ]
        return torch.cat(ways)
    if isinstance(part, Block):
        y = separable(part.second, separable(part.first, x.clamp(min=0)).clamp(min=0))
        return mean_of_nine(y, 1, 2) + norm_channels(part.norm, convolve(part.leap, x, 0))
    if isinstance(part, Middle):
        y = x
        for one in part.three:
            y = separable(one, y.clamp(min=0))
        return x + y
    assert isinstance(part, Tail)
    return separable(part.separable, x).clamp(min=0)


def token_cnn(step, x, last):
    image = torch.stack(layers_of(x))
    y = torch.cat([convolve(conv, image, conv.weight.shape[3] // 2) for conv in step.bank]).clamp(min=0)
    for conv in (step.second, step.third):
        y = convolve(conv, y, 0).clamp(min=0)
    return y.permute(1, 2, 0).flatten(1)


def deep(parts, x):
    y = torch.stack(layers_of(x))
    for part in parts:
        y = network(part, y)
    return y.mean(2).T


def attention(step, x, weights_of):
    rows = []
    for t in range(x.shape[1]):
        row = []
        for number, q in enumerate(step.query):
            mixed = sum(w * h for w, h in zip(weights_of(number, q, x[:, t]), x[:, t]))
            row.append(q @ mixed + step.bias[number])
        rows.append(torch.stack(row))
    return torch.stack(rows)


def weighted(step, x, last):
    count = len(x)
    return attention(
        step, x, lambda number, q, h: [step.scale[number] * step.weight[number * count + i] for i in range(count)]
    )


def dot(step, x, last):
    return attention(step, x, lambda number, q, h: softmax([q @ state for state in h]))


def multiplicative(step, x, last):
    return attention(step, x, lambda number, q, h: softmax([q @ (step.weight @ state) for state in h]))


def encoder_block(step, x, last):
    """A transformer block with keys and values of every layer, and with a bias of the keys, which must not matter."""
    size = step.query.shape[1] // step.heads
    key_bias = torch.linspace(-1, 1, step.query.shape[1], dtype=x.dtype)
    rows = []
    for t in range(x.shape[1]):
        row = []
        for number, q in enumerate(step.query):
            query = step.to_query.weight @ q + step.to_query.bias
            keys = [step.to_key.weight @ h + key_bias for h in x[:, t]]
            values = [step.to_value.weight @ h + step.to_value.bias for h in x[:, t]]
            joined = []
            for head in range(step.heads):
                mine = slice(head * size, (head + 1) * size)
                shares = softmax([query[mine] @ key[mine] / math.sqrt(size) for key in keys])
                joined.append(sum(s * value[mine] for s, value in zip(shares, values)))
            z = q + step.output.weight @ torch.cat(joined) + step.output.bias
            z = norm(z, step.attention_norm.weight, step.attention_norm.bias, 1e-12)
            up = step.up.weight @ z + step.up.bias
            up = 0.5 * up * (1 + torch.erf(up / math.sqrt(2)))
            z = norm(z + step.down.weight @ up + step.down.bias, step.ffn_norm.weight, step.ffn_norm.bias, 1e-12)
            row.append(q @ z + step.bias[number])
        rows.append(torch.stack(row))
    return torch.stack(rows)


LOOPS = {
    Pool: pool,
    Compress: compress,
    Skip: skip,
    Linear: linear,
    Parallel: parallel,
    FeatureCNN: feature_cnn,
    TokenCNN: token_cnn,
    Inception: lambda step, x, last: deep([*step.stem, *step.body], x),
    Xception: lambda step, x, last: deep(step.parts, x),
    Weighted: weighted,
    Dot: dot,
    Multiplicative: multiplicative,
    EncoderBlock: encoder_block,
}
