"""The Triton kernels against the same formulas in float64. They need a GPU; elsewhere this file says so and stops."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from laconic.encoder import Encoder, LayerShape, Shape, Style
from tiny import batch, random_windows

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
]
GPU = "cuda"


def close(found, expected, tolerance=6e-3):
    """Relative error of a half-precision result."""
    assert torch.isfinite(found).all()
    error = (found.detach().double() - expected.detach().double()).norm() / expected.detach().double().norm()
    assert error < tolerance, float(error)


def draw(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=GPU).to(dtype).requires_grad_()


def mask_of(seed, rows, columns, p):
    """The mask that the kernels hash from a seed, a row's and a column's number, in plain integers."""
    limit = 2**32 - 1

    def mixed(h):
        h = ((h ^ (h >> 16)) * 0x7FEB352D) & limit
        h = ((h ^ (h >> 15)) * 0x846CA68B) & limit
        return h ^ (h >> 16)

    row_keys = mixed((rows * 0x9E3779B9 + int(seed)) & limit) | 1
    column_keys = mixed((columns * 0x85EBCA6B + (int(seed) ^ 0x5BD1E995)) & limit)
    # The product of two 32-bit numbers does not fit 63 bits: multiply the halves.
    product = (row_keys * (column_keys & 0xFFFF) + (((row_keys * (column_keys >> 16)) & 0xFFFF) << 16)) & limit
    return (product >= int(p * 2**32)).double() / (1 - p)


def seeded(function, *arguments):
    """Run with a known seed, and return the seed that its dropout drew."""
    from laconic.encoder.kernels import seed_for

    torch.manual_seed(11)
    result = function(*arguments)
    torch.manual_seed(11)
    return result, seed_for(result, 0.5)


@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize(("rows", "width"), [(1, 8), (37, 50), (1000, 384), (777, 768), (300, 1024), (5, 3000)])
def test_add_norm(rows, width, p):
    from laconic.encoder.kernels import add_norm

    x, residual = draw(rows, width), draw(rows, width)
    bias, gain, offset = (draw(width, dtype=torch.float32) for _ in range(3))
    inputs = (x, bias, residual, gain, offset)
    y, seed = seeded(add_norm, *inputs, 1e-12, p)
    at = torch.arange(rows, device=GPU)[:, None], torch.arange(width, device=GPU)
    mask = mask_of(seed, *at, p) if p else torch.ones((), dtype=torch.double, device=GPU)
    exact = [value.detach().double().requires_grad_() for value in inputs]
    z = exact[2] + mask * (exact[0] + exact[1])
    expected = F.layer_norm(z, (width,), exact[3], exact[4], 1e-12)
    dy = torch.randn_like(y)
    close(y, expected)
    for found, gradient in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, exact, dy.double())):
        close(found, gradient)


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(1, 3), (37, 50), (1000, 1536), (777, 3072), (40, 2022)])
def test_bias_gelu(rows, width, tanh):
    from laconic.encoder.kernels import bias_gelu

    x, bias = draw(rows, width), draw(width, dtype=torch.float32)
    y = bias_gelu(x, bias, tanh)
    exact = [value.detach().double().requires_grad_() for value in (x, bias)]
    expected = F.gelu(exact[0] + exact[1], approximate="tanh" if tanh else "none")
    dy = torch.randn_like(y)
    close(y, expected)
    for found, gradient in zip(
        torch.autograd.grad(y, (x, bias), dy), torch.autograd.grad(expected, exact, dy.double())
    ):
        close(found, gradient)


@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize(("heads", "key", "value"), [(12, 64, 64), (3, 32, 32), (2, 8, 24), (5, 48, 16), (2, 128, 128)])
def test_flash_attention(heads, key, value, p):
    from laconic.encoder.flash import flash_attention

    lengths = (1, 512, 64, 65, 190, 33)
    starts = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32, device=GPU)
    qkv = draw(sum(lengths), heads * (2 * key + value))
    y, seed = seeded(flash_attention, qkv, starts, 512, heads, key, value, key**-0.5, p)
    exact = qkv.detach().double().requires_grad_()
    parts = []
    for first, last in zip(starts.tolist(), starts.tolist()[1:]):
        sizes = [heads * key, heads * key, heads * value]
        q, k, v = (t.view(last - first, heads, -1).transpose(0, 1) for t in exact[first:last].split(sizes, 1))
        shares = torch.softmax(q @ k.transpose(1, 2) * key**-0.5, -1)
        if p:
            rows = torch.arange(first, last, device=GPU)[None, :, None] * heads
            rows = rows + torch.arange(heads, device=GPU)[:, None, None]
            shares = shares * mask_of(seed, rows, torch.arange(last - first, device=GPU), p)
        parts.append((shares @ v).transpose(0, 1).reshape(last - first, -1))
    expected = torch.cat(parts)
    dy = torch.randn_like(y)
    close(y, expected)
    found, again = (torch.autograd.grad(y, qkv, dy, retain_graph=True)[0] for _ in range(2))
    close(found, torch.autograd.grad(expected, exact, dy.double())[0], 1e-2)
    assert torch.equal(found, again), "the backward pass is deterministic"


def test_dropout_keeps_its_share_everywhere():
    from laconic.encoder.kernels import add_norm

    rows, width, p = 4096, 768, 0.1
    x = draw(rows, width)
    zero, one = torch.zeros(width, device=GPU), torch.ones(width, device=GPU)
    y = add_norm(x, zero, torch.randn_like(x), one, zero, 1e-12, p)
    kept = torch.autograd.grad(y, x, torch.randn_like(y))[0] != 0
    assert abs(float(kept.float().mean()) - 0.9) < 1e-3
    deviation = (p * (1 - p)) ** 0.5
    for axis, count in ((0, rows), (1, width)):
        z = (kept.float().mean(axis) - 0.9) * count**0.5 / deviation
        assert abs(float(z.std()) - 1) < 0.1, "as scattered as independent draws, by row and by column"


SHAPES = {
    "plain": Shape.uniform(layers=3, hidden=96, heads=3, vocab=97),
    "irregular": Shape(
        97, 512, 2, 32, 88, (LayerShape(3, 20, 36, 70), LayerShape(1, 50, 7, 33), LayerShape(4, 16, 16, 8))
    ),
    "relu": Shape(97, 512, 2, 32, 88, (LayerShape(3, 16, 16, 37),)),
    "wide heads": Shape(97, 512, 2, 32, 88, (LayerShape(2, 160, 20, 70),)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_encoder_in_half_precision_equals_single(shape, compiled):
    """The packed kernels under autocast against the bucket path in fp32, states and gradients."""
    activation = "relu" if shape == "relu" else "gelu"
    encoder = Encoder(SHAPES[shape], Style(activation=activation, dropout=0.0, attention_dropout=0.0)).to(GPU)
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.15)
    packed = batch(*random_windows((1, 130, 512, 40, 41))).map(lambda a: a.to(GPU))
    weight = torch.randn(packed.tokens, encoder.shape.hidden, device=GPU)
    exact = encoder(packed)[0]
    (exact * weight).sum().backward()
    expected = [value.grad.clone() for value in encoder.parameters()]
    encoder.zero_grad()
    if compiled:
        for layer in encoder.layers:
            layer.compile(dynamic=True)
    with torch.autocast(GPU, torch.bfloat16):
        states = encoder(packed)[0]
    assert states.dtype == torch.bfloat16
    (states.float() * weight).sum().backward()
    close(states, exact, 0.03)
    whole = torch.cat([value.grad.flatten() for value in encoder.parameters()])
    close(whole, torch.cat([value.flatten() for value in expected]), 0.06)


def test_neighbours_do_not_matter():
    encoder = Encoder(SHAPES["irregular"]).to(GPU).eval()
    lengths = (40, 512, 1, 39)
    ids, types = random_windows(lengths)
    others, _ = random_windows(lengths, seed=1)
    with torch.no_grad(), torch.autocast(GPU, torch.bfloat16):
        mine = encoder(batch(ids, types).map(lambda a: a.to(GPU)))[0][:40]
        beside = encoder(batch([ids[0], *others[1:]], types).map(lambda a: a.to(GPU)))[0][:40]
    assert torch.equal(mine, beside)


def test_checkpointing_and_seeds_in_half_precision():
    packed = batch(*random_windows((1, 130, 512, 40))).map(lambda a: a.to(GPU))
    results = []
    for checkpointing in (False, True, False):
        torch.manual_seed(3)
        encoder = Encoder(SHAPES["plain"]).to(GPU).train()
        encoder.checkpointing = checkpointing
        with torch.autocast(GPU, torch.bfloat16):
            encoder(packed)[0].float().square().sum().backward()
        results.append([value.grad for name, value in encoder.named_parameters() if name.startswith("layers")])
    for plain, again, repeat in zip(*results):
        assert torch.equal(plain, repeat)
        assert torch.equal(plain, again)
