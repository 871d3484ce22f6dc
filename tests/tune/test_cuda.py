"""Tuned models on a GPU: adapters and LoRA under autocast against fp32. Elsewhere this file is skipped."""

import pytest
import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.encoder.style import Style
from quoth.heads.linear import SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.model.shared_base import SharedBase
from quoth.model.tuned import trained
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze
from quoth.tune.lora import LoRA
from tiny import batch, random_windows

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
]
GPU = "cuda"
ALL_TARGETS = ("query", "key", "value", "output", "up", "down")


@pytest.mark.parametrize(
    "tuning",
    [
        Freeze(1),
        Freeze(1, "above"),
        Adapters(16),
        Adapters(16, norms="above"),
        LoRA(4, alpha=4.0, targets=ALL_TARGETS),
        BitFit(),
    ],
    ids=str,
)
def test_half_precision_equals_single(tuning):
    """States and gradients of what is trained; what is not trained has no gradient."""
    torch.manual_seed(0)
    style = Style(dropout=0.0, attention_dropout=0.0)
    model = Model(Encoder(Shape.uniform(layers=3, hidden=96, heads=3, vocab=97), style), SpanHead(96)).to(GPU)
    apply(model, tuning)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.15)
    packed = batch(*random_windows((1, 130, 512, 40, 41))).map(lambda a: a.to(GPU))
    weight = torch.randn(2, packed.tokens, device=GPU)
    found = []
    for half in (False, True):
        model.zero_grad()
        with torch.autocast(GPU, torch.bfloat16, enabled=half):
            logits = torch.stack(model(packed)).float()
        (logits * weight).sum().backward()
        assert [name for name, value in model.named_parameters() if value.grad is not None] == trained(model)
        grads = torch.cat([value.grad.flatten().float() for value in model.parameters() if value.grad is not None])
        found.append((logits.detach(), grads))
    for exact, rough in zip(*found):
        assert (rough - exact).norm() / exact.norm() < 0.06


def test_a_shared_base_that_is_moved(tmp_path):
    """Deltas and base follow the model to the GPU and back."""
    shape = Shape.uniform(layers=2, hidden=24, heads=3, vocab=97)
    save(Model(Encoder(shape)), tmp_path / "base")
    packed = batch(*random_windows((7, 30, 12)))
    shared = SharedBase(load(tmp_path / "base"))
    for name, tuning in (("adapters", Adapters(4)), ("frozen", Freeze(1)), ("lora", LoRA(2))):
        model = load(tmp_path / "base")
        model.head = SpanHead(24)
        save(apply(model, tuning), tmp_path / name)
        shared.add(name, tmp_path / name)
    shared.use("frozen")
    for device in (GPU, "cpu"):
        shared.model.to(device)
        for name in ("adapters", "lora", "frozen"):
            shared.use(name)
            expected = load(tmp_path / name, device=device)
            there = packed.map(lambda a, device=device: a.to(device))
            with torch.no_grad():
                assert torch.equal(torch.stack(shared.model(there)), torch.stack(expected(there)))
    shared.use(None)
    pristine = load(tmp_path / "base").state_dict()
    assert all(torch.equal(value, pristine[name]) for name, value in shared.model.state_dict().items())


def test_a_model_on_the_gpu_finds_its_base(tmp_path):
    save(Model(Encoder(Shape.uniform(layers=2, hidden=24, heads=3, vocab=97))), tmp_path / "base")
    model = load(tmp_path / "base", device=GPU)
    model.head = SpanHead(24).to(GPU)
    apply(model, Adapters(4))
    assert {value.device.type for value in model.parameters()} == {GPU}
    assert model.base is not None
    save(model, tmp_path / "tuned")
    again = load(tmp_path / "tuned", device=GPU)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
