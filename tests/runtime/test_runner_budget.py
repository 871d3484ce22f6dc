"""How many tokens a batch of a reader has: it depends on the memory of a GPU, which is simulated here."""

import pytest
import torch

from quoth.encoder.device import CPU_TOKENS, CUDA_TOKENS, Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads import build_head
from quoth.heads.linear import SpanHead
from quoth.model.model import Model
from quoth.runtime.torch_runner import MOST_TOKENS, budget

SHAPE = Shape.uniform(layers=2, hidden=64, heads=2, vocab=97)


@pytest.fixture
def free(monkeypatch):
    """Set how many bytes are free."""
    return lambda count: monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (count, 2 * count))


def test_on_a_cpu():
    assert budget(Model(Encoder(SHAPE), SpanHead(64)), Device(torch.device("cpu"))) == CPU_TOKENS


@pytest.mark.parametrize("half", [True, False])
def test_an_eighth_of_the_free_memory(free, half):
    model = Model(Encoder(SHAPE), SpanHead(64))
    widest = max(SHAPE.layers[0].ffn, 3 * 64)
    free(1_000_000_000)
    wanted = 1_000_000_000 // 8 // ((2 if half else 4) * (2 * widest + 4 * 64))
    assert budget(model, Device(torch.device("cuda"), half)) == wanted < MOST_TOKENS
    free(10**12)
    assert budget(model, Device(torch.device("cuda"), half)) == MOST_TOKENS
    free(0)
    assert 0 < budget(model, Device(torch.device("cuda"), half)) < CUDA_TOKENS


def test_a_head_that_reads_many_states(free):
    free(10**12)
    model = Model(Encoder(SHAPE), build_head("pool(learned) > linear", 64, 2))
    assert budget(model, Device(torch.device("cuda"), True)) == CUDA_TOKENS
