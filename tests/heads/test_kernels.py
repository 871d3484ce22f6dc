"""The Triton kernels of heads and of the loss against formulas in float64: on a GPU in bf16, else interpreted."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: it comes with torch for CUDA")

pytestmark = pytest.mark.slow  # in the interpreter

GPU = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if GPU == "cuda" else torch.float32
TOLERANCE = 6e-3 if GPU == "cuda" else 1e-5


def close(found, expected):
    error = (found.detach().double() - expected.detach().double()).norm() / expected.detach().double().norm()
    assert error < TOLERANCE, float(error)


def token_first(layers, tokens, width):
    """(layers, T, f), in memory token by token, as heads get them."""
    torch.manual_seed(layers * tokens + width)
    return torch.randn(tokens, layers, width, device=GPU).to(HALF).transpose(0, 1)


@pytest.mark.parametrize(("layers", "tokens", "width"), [(1, 1, 8), (3, 19, 50), (13, 5, 384)])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("count", [1, 3, 17])
def test_weighted_sums(layers, tokens, width, first, count, monkeypatch):
    from quoth.heads.kernels import weighted_sums as module

    monkeypatch.setattr(module, "_PROGRAMS", 4)  # several tokens a program, as in a large batch
    x = token_first(layers + first, tokens, width)[first:]  # all layers, or a view without the first
    weights = torch.randn(count, layers, device=GPU).requires_grad_()
    found = module.weighted_sums(x, weights)
    expected = torch.einsum("kl,ltf->ktf", weights.double(), x.double())
    close(found, expected)
    assert torch.equal(found[-1], module.weighted_sums(x, weights[-1:])[0])  # the others do not matter
    by = torch.randn(count, tokens, width, device=GPU)
    (gradient,) = torch.autograd.grad((found * by).sum(), weights)
    close(gradient, torch.autograd.grad((expected * by).sum(), weights)[0])


@pytest.mark.parametrize(("layers", "tokens", "width", "mixes"), [(2, 1, 8, 2), (12, 7, 384, 12), (24, 3, 200, 32)])
def test_token_mix(layers, tokens, width, mixes):
    from quoth.heads.kernels.token_mix import token_mix

    x = token_first(layers + 1, tokens, width)[1:]
    weights = torch.randn(layers, tokens, mixes, device=GPU).softmax(0).requires_grad_()
    found = token_mix(x, weights)
    expected = torch.einsum("lta,ltf->atf", weights.double(), x.double())
    close(found, expected)
    by = torch.randn(mixes, tokens, width, device=GPU)
    (gradient,) = torch.autograd.grad((found * by).sum(), weights)
    close(gradient, torch.autograd.grad((expected * by).sum(), weights)[0])


@pytest.mark.parametrize(("tokens", "places", "width"), [(1, 1, 16), (19, 3, 48), (40, 2, 256)])
@pytest.mark.parametrize("part", [False, True])
def test_bias_relu(tokens, places, width, part, monkeypatch):
    from quoth.heads.kernels import bias_relu as module

    monkeypatch.setattr(module, "_PROGRAMS", 4)
    torch.manual_seed(width)
    wide = torch.randn(tokens, places, width + 32, device=GPU).to(HALF)
    x = wide[..., 16:-16] if part else wide[..., 16:-16].contiguous()
    before, whole = x.double().requires_grad_(), wide.clone()
    bias = torch.randn(width, device=GPU).requires_grad_()
    by = torch.randn(tokens, places, width, device=GPU)
    # x is overwritten on the way back: by its gradient, and nothing beside it
    found = module.bias_relu(x.requires_grad_(), bias)
    exact = bias.detach().double().requires_grad_()
    expected = F.relu(before + exact)
    close(found, expected)
    gradients = torch.autograd.grad((found * by).sum(), (x, bias))
    truths = torch.autograd.grad((expected * by.double()).sum(), (before, exact))
    close(gradients[0], truths[0])
    close(gradients[1], truths[1])
    if part:
        close(x, truths[0])
    assert torch.equal(wide[..., :16], whole[..., :16])
    assert torch.equal(wide[..., -16:], whole[..., -16:])


@pytest.mark.parametrize(("rows", "width", "out"), [(1, 24, 16), (77, 40, 48), (30, 16, 256)])
def test_linear_relu(rows, width, out, monkeypatch):
    from quoth.heads.kernels import bias_relu as module

    monkeypatch.setattr(module, "_PROGRAMS", 4)
    torch.manual_seed(out)
    x = torch.randn(rows, width, device=GPU).to(HALF).requires_grad_()
    weight, bias = torch.randn(out, width, device=GPU).to(HALF).float(), torch.randn(out, device=GPU).to(HALF).float()
    by = torch.randn(rows, out, device=GPU)
    exact = [value.detach().double().requires_grad_() for value in (x, weight, bias)]
    found = module.linear_relu(x, weight.requires_grad_(), bias.requires_grad_())
    expected = F.relu(F.linear(*exact))
    close(found, expected)
    gradients = torch.autograd.grad((found * by).sum(), (x, weight, bias))
    truths = torch.autograd.grad((expected * by.double()).sum(), exact)
    for gradient, truth in zip(gradients, truths):
        close(gradient, truth)


@pytest.mark.parametrize(("layers", "tokens", "width"), [(1, 1, 8), (3, 37, 13), (2, 9, 300)])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("layer_first", [False, True])
def test_gelu_linear(layers, tokens, width, each, layer_first, monkeypatch):
    from quoth.heads.kernels import gelu_linear as module

    monkeypatch.setattr(module, "_PROGRAMS", 4)
    monkeypatch.setattr(module, "_LEAST", 1)
    products = token_first(layers, tokens, -(-width // 8) * 8)  # wider than the bias
    z = (products.contiguous() if layer_first else products).detach().clone().requires_grad_()
    bias = torch.randn(layers if each else 1, width, device=GPU).requires_grad_()
    weight = torch.randn(2, layers, width, device=GPU).requires_grad_()
    before = z.detach().double()
    # z is overwritten on the way back, so it goes through a step of its own, as from a matrix product
    found = module.gelu_linear(z * 1, bias, weight)
    exact = [value.detach().double().requires_grad_() for value in (before, bias, weight)]
    y = F.gelu(exact[0][..., :width] + exact[1].unsqueeze(1), approximate="tanh")
    expected = torch.einsum("ltf,clf->tc", y, exact[2])
    close(found, expected)
    by = torch.randn(tokens, 2, device=GPU)
    gradients = torch.autograd.grad((found * by).sum(), (z, bias, weight))
    truths = torch.autograd.grad((expected * by.double()).sum(), exact)
    close(gradients[0][..., :width], truths[0][..., :width])
    close(gradients[1], truths[1])
    close(gradients[2], truths[2])


@pytest.mark.parametrize("lengths", [(1,), (5, 64, 1, 17)])
def test_span_loss(lengths):
    from quoth.tasks.span_kernel import span_loss

    torch.manual_seed(len(lengths))
    logits = (3 * torch.randn(sum(lengths), 2, device=GPU)).requires_grad_()
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=GPU)
    answers = torch.tensor([[0, n - 1] for n in lengths], device=GPU)
    found = span_loss(*logits.unbind(-1), starts, answers, max(lengths))
    exact = logits.detach().double().requires_grad_()
    expected = torch.zeros((), dtype=torch.double, device=GPU)
    for window, (begin, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist())):
        for which in (0, 1):
            expected = expected - exact[begin:end, which].log_softmax(0)[answers[window, which]] / 2
    assert abs(float((found - expected).detach())) < 1e-4
    (gradient,) = torch.autograd.grad(3 * found, logits)
    (truth,) = torch.autograd.grad(3 * expected, exact)
    assert (gradient.double() - truth).abs().max() < 1e-5
