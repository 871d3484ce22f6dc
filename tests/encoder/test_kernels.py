"""The Triton kernels against the same formulas in float64: on a GPU in bf16, else in Triton's interpreter in fp32."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

relative_position_bucket = MPNetEncoder.relative_position_bucket
pytest.importorskip("triton", reason="Triton is not installed: it comes with torch for CUDA")

pytestmark = pytest.mark.slow  # in the interpreter

GPU = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if GPU == "cuda" else torch.float32
TOLERANCE = 6e-3 if GPU == "cuda" else 1e-5


def either(large, small):
    """Real sizes on a GPU; sizes that cross every tile's edge in the interpreter, which is slow."""
    return large if GPU == "cuda" else small


def close(found, expected, slack=1.0):
    """Relative error within the precision of the inputs."""
    assert torch.isfinite(found).all()
    error = (found.detach().double() - expected.detach().double()).norm() / expected.detach().double().norm()
    assert error < slack * TOLERANCE, float(error)


def draw(*shape, dtype=HALF):
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
    from quoth.encoder.kernels.dropout import seed_for

    torch.manual_seed(11)
    result = function(*arguments)
    torch.manual_seed(11)
    return result, seed_for(result, 0.5)


# On a GPU also more rows than CUDA allows blocks on any axis of the grid but the first.
@pytest.mark.parametrize(
    ("rows", "width"), either([(1, 8), (37, 50), (5, 3000), (600_000, 8)], [(1, 8), (37, 50), (5, 3000)])
)
def test_bias_and_dropout(rows, width):
    from quoth.encoder.kernels.dropout import drop

    x, more, bias = draw(rows, width), draw(rows, width), draw(width, dtype=torch.float32)
    seed = torch.tensor([12345], dtype=torch.int32, device=GPU)
    mask = mask_of(seed, torch.arange(rows, device=GPU)[:, None], torch.arange(width, device=GPU), 0.25)
    close(drop(x, bias, seed, 0.25), (x.double() + bias.double()) * mask)
    close(drop(x, None, seed, 0.25, more), (x.double() + more.double()) * mask)


@pytest.mark.parametrize(("rows", "width", "size"), either([(1, 8, 4), (1000, 384, 64)], [(1, 8, 4), (37, 50, 6)]))
@pytest.mark.parametrize("biased", [True, False])
def test_dropout_and_adapter(rows, width, size, biased, monkeypatch):
    """Against the formula in double precision, with the mask that the seed gives; gradients too."""
    from quoth.encoder.kernels.dropout import seed_for
    from quoth.tune import adapters

    adapter = adapters.Adapter(width, size, device=GPU)
    with torch.no_grad():
        for value in adapter.parameters():
            value.normal_(0, 0.3)
    monkeypatch.setattr(adapters, "half_on_cuda", lambda x: True)  # also in the interpreter
    monkeypatch.setattr(adapters, "have_kernels", lambda x: True)
    x, bias = draw(rows, width), draw(width, dtype=torch.float32) if biased else None
    torch.manual_seed(11)
    found, added, offset = adapter.apart(x, bias, 0.25)
    torch.manual_seed(11)
    seed = seed_for(x, 0.25)
    mask = mask_of(seed, torch.arange(rows, device=GPU)[:, None], torch.arange(width, device=GPU), 0.25)
    dropped = (x.double() + (bias.double() if biased else 0)) * mask
    w1, b1, w2 = (value.double() for value in (adapter.down.weight, adapter.down.bias, adapter.up.weight))
    truth = F.linear(F.gelu(F.linear(dropped, w1, b1)), w2)
    assert offset is adapter.up.bias
    close(found, dropped)
    close(added, truth, 4.0)
    inputs = [x, adapter.down.weight, adapter.down.bias, adapter.up.weight, *([bias] if biased else [])]
    one, two = (torch.randn(rows, width, device=GPU) for _ in range(2))
    gradients = torch.autograd.grad((found * one + added * two).sum(), inputs)
    expected = torch.autograd.grad((dropped * one + truth * two).sum(), inputs)
    for gradient, true in zip(gradients, expected):
        assert (gradient - true).norm() <= 0.02 * true.norm() + 1e-6


@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize(
    ("rows", "width"),
    either([(1, 8), (37, 50), (1000, 384), (777, 768), (300, 1024), (5, 3000)], [(1, 8), (37, 50), (5, 3000)]),
)
def test_add_norm(rows, width, p, monkeypatch):
    from quoth.encoder.kernels import add_norm as module
    from quoth.encoder.kernels.add_norm import add_norm

    if GPU == "cpu":
        monkeypatch.setattr(module, "_PROGRAMS", 4)  # several rounds a program, as in a large batch

    x, residual, more = (draw(rows, width) for _ in range(3))
    bias, gain, offset = (draw(width, dtype=torch.float32) for _ in range(3))
    inputs = (x, bias, residual, gain, offset, more) if p == 0 else (x, bias, residual, gain, offset)
    y, seed = seeded(add_norm, *inputs[:5], 1e-12, p, *inputs[5:])
    at = torch.arange(rows, device=GPU)[:, None], torch.arange(width, device=GPU)
    mask = mask_of(seed, *at, p) if p else torch.ones((), dtype=torch.double, device=GPU)
    exact = [value.detach().double().requires_grad_() for value in inputs]
    z = exact[2] + mask * (exact[0] + exact[1]) + (exact[5] if p == 0 else 0)
    expected = F.layer_norm(z, (width,), exact[3], exact[4], 1e-12)
    dy = torch.randn_like(y)
    close(y, expected)
    for found, gradient in zip(torch.autograd.grad(y, inputs, dy), torch.autograd.grad(expected, exact, dy.double())):
        close(found, gradient)


@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize(
    ("rows", "width"),
    either([(1, 3), (37, 50), (1000, 1536), (777, 3072), (40, 2022), (140_000, 8)], [(1, 3), (37, 50), (9, 2022)]),
)
def test_bias_gelu(rows, width, tanh):
    from quoth.encoder.kernels.gelu import bias_gelu

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
@pytest.mark.parametrize(
    ("heads", "key", "value"),
    either([(12, 64, 64), (3, 32, 32), (2, 8, 24), (5, 48, 16), (2, 128, 128)], [(2, 64, 64), (2, 8, 24), (3, 48, 16)]),
)
def test_flash_attention(heads, key, value, p):
    from quoth.encoder.kernels.flash import flash_attention

    lengths = either((1, 512, 64, 65, 190, 33), (1, 70, 33))
    qkv, starts = draw(sum(lengths), heads * (2 * key + value)), starts_of(lengths)
    y, seed = seeded(flash_attention, qkv, starts, max(lengths), heads, key, value, key**-0.5, p)
    exact = qkv.detach().double().requires_grad_()
    expected = attention(exact, starts, heads, key, value, p, seed)
    dy = torch.randn_like(y)
    close(y, expected)
    found, again = (torch.autograd.grad(y, qkv, dy, retain_graph=True)[0] for _ in range(2))
    close(found, torch.autograd.grad(expected, exact, dy.double())[0], 2.0)
    assert torch.equal(found, again), "the backward pass is deterministic"


@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize(
    ("heads", "key", "value", "buckets"),
    either([(12, 64, 64, 32), (3, 32, 32, 32), (5, 48, 16, 12)], [(2, 64, 64, 32), (3, 8, 24, 12)]),
)
def test_flash_attention_with_relative_biases(heads, key, value, buckets, p):
    """States, and the gradients of qkv and of the biases; tables of distances longer than the windows."""
    from quoth.encoder.kernels.flash import flash_attention
    from quoth.encoder.relative import distances_on

    lengths = either((1, 512, 64, 65, 190, 33, 480), (1, 150, 33))
    qkv, starts = draw(sum(lengths), heads * (2 * key + value)), starts_of(lengths)
    relative, distances = draw(buckets, heads, dtype=torch.float32), distances_on(torch.device(GPU), 512, buckets)
    sizes = (max(lengths), heads, key, value)
    y, seed = seeded(flash_attention, qkv, starts, *sizes, key**-0.5, p, relative, distances)
    exact = [value.detach().double().requires_grad_() for value in (qkv, relative)]
    expected = attention(exact[0], starts, heads, key, value, p, seed, exact[1])
    dy = torch.randn_like(y)
    close(y, expected)
    found, again = (torch.autograd.grad(y, (qkv, relative), dy, retain_graph=True) for _ in range(2))
    for gradient, same, true in zip(found, again, torch.autograd.grad(expected, exact, dy.double())):
        close(gradient, true, 2.0)
        assert torch.equal(gradient, same), "the backward pass is deterministic"
    frozen = flash_attention(qkv, starts, *sizes, key**-0.5, 0.0, relative.detach(), distances)
    trained = flash_attention(qkv, starts, *sizes, key**-0.5, 0.0, relative, distances)
    for one, other in zip(*(torch.autograd.grad(z, qkv, dy) for z in (frozen, trained))):
        assert torch.equal(one, other)


def starts_of(lengths):
    return torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32, device=GPU)


def attention(exact, starts, heads, key, value, p, seed, relative=None):
    """The formula, window by window, with the mask that the seed gives and transformers' buckets."""
    parts = []
    for first, last in zip(starts.tolist(), starts.tolist()[1:]):
        sizes = [heads * key, heads * key, heads * value]
        q, k, v = (t.view(last - first, heads, -1).transpose(0, 1) for t in exact[first:last].split(sizes, 1))
        scores = q @ k.transpose(1, 2) * key**-0.5
        if relative is not None:
            steps = torch.arange(last - first)
            buckets = relative_position_bucket(steps[None, :] - steps[:, None], len(relative)).to(GPU)
            scores = scores + relative[buckets].permute(2, 0, 1)
        shares = torch.softmax(scores, -1)
        if p:
            rows = torch.arange(first, last, device=GPU)[None, :, None] * heads
            rows = rows + torch.arange(heads, device=GPU)[:, None, None]
            shares = shares * mask_of(seed, rows, torch.arange(last - first, device=GPU), p)
        parts.append((shares @ v).transpose(0, 1).reshape(last - first, -1))
    return torch.cat(parts)


def test_dropout_keeps_its_share_everywhere():
    from quoth.encoder.kernels.add_norm import add_norm

    torch.manual_seed(0)
    rows, width, p = either((4096, 768, 0.1), (256, 256, 0.1))
    x = draw(rows, width)
    zero, one = torch.zeros(width, device=GPU), torch.ones(width, device=GPU)
    y = add_norm(x, zero, torch.randn_like(x), one, zero, 1e-12, p)
    kept = torch.autograd.grad(y, x, torch.randn_like(y))[0] != 0
    assert abs(float(kept.float().mean()) - 0.9) < either(1e-3, 5e-3)
    deviation = (p * (1 - p)) ** 0.5
    for axis, count in ((0, rows), (1, width)):
        z = (kept.float().mean(axis) - 0.9) * count**0.5 / deviation
        assert abs(float(z.std()) - 1) < either(0.1, 0.2), "as scattered as independent draws, by row and by column"


@pytest.mark.skipif(GPU == "cuda", reason="on a GPU test_cuda.py compiles the whole encoder")
@pytest.mark.parametrize("p", [0.25])
def test_operators_compile_and_keep_their_promises(p):
    """Whole graphs with our operators, for changing lengths, and torch's own checks of an operator."""
    from quoth.encoder.kernels.add_norm import add_norm
    from quoth.encoder.kernels.flash import flash_attention
    from quoth.encoder.kernels.gelu import bias_gelu

    def layer(qkv, starts, longest, bias, residual, gain, offset):
        mixed = flash_attention(qkv, starts, longest, 2, 8, 8, 0.3, p)
        return bias_gelu(add_norm(mixed, bias, residual, gain, offset, 1e-5, p), bias, False)

    compiled = torch.compile(layer, dynamic=True, backend="aot_eager", fullgraph=True)
    for lengths in ((5, 9), (3, 4, 11)):
        starts = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32)
        inputs = [draw(sum(lengths), 48), draw(16), draw(sum(lengths), 16), draw(16), draw(16)]
        results = []
        for function in (layer, compiled):
            torch.manual_seed(0)
            y = function(inputs[0], starts, max(lengths), *inputs[1:])
            results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
        for eager, graph in zip(*results):
            assert torch.equal(eager, graph)
    seed = torch.tensor([3], dtype=torch.int32)
    operators = torch.ops.quoth
    torch.library.opcheck(operators.flash, (inputs[0], starts, seed, 11, 2, 8, 8, 0.3, p, None, None))
    relative, distances = draw(32, 2, dtype=torch.float32), torch.arange(31)
    torch.library.opcheck(operators.flash, (inputs[0], starts, seed, 11, 2, 8, 8, 0.3, p, relative, distances))
    torch.library.opcheck(operators.bias_gelu, (inputs[2], inputs[1], True))
    torch.library.opcheck(
        operators.add_norm, (inputs[2], inputs[1], inputs[2], None, inputs[3], inputs[4], seed, 1e-5, p, True)
    )
