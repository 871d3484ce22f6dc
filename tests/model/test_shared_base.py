"""Several tunings on one base in memory."""

import shutil

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.model.shared_base import SharedBase
from quoth.model.tuned import merge
from quoth.model.weights import weights_hash
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze, Full
from quoth.tune.lora import LoRA
from tiny import batch, random_windows

TUNINGS = {
    "adapters": Adapters(4),
    "wide": Adapters(7, layers=3),
    "lora": LoRA(2, targets=("query", "up", "down")),
    "frozen": Freeze(0),
    "bits": BitFit(),
}


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.normal_(0.1, 0.3, generator=generator)


@pytest.fixture(scope="module", params=["bert", "albert"])
def shop(request, bases, tmp_path_factory):
    """A base, folders of deltas on it, and what a fresh load of each computes."""
    root = tmp_path_factory.mktemp("shop")
    packed = batch(*random_windows((7, 30, 12)))
    expected = {}
    for seed, (name, tuning) in enumerate(TUNINGS.items()):
        model = load(bases / request.param)
        model.head = SpanHead(24) if name != "bits" else ClassHead(24, 3, pooled=True)
        apply(model, tuning)
        randomise(model, seed)
        save(model, root / name)
        with torch.no_grad():
            out = load(root / name)(packed)
        expected[name] = out if isinstance(out, torch.Tensor) else torch.stack(out)
    return root, bases / request.param, packed, expected


def compute(model, packed):
    with torch.no_grad():
        out = model(packed)
    return out if isinstance(out, torch.Tensor) else torch.stack(out)


def with_all(shop):
    root, base, *_ = shop
    shared = SharedBase(load(base))
    for name in TUNINGS:
        shared.add(name, root / name)
    return shared


@pytest.fixture(scope="module")
def shared(shop):
    """One shared base for a whole sequence of orders."""
    return with_all(shop)


class TestSwapping:
    @given(order=st.lists(st.sampled_from([None, *TUNINGS]), max_size=8))
    @settings(max_examples=25, deadline=None)
    def test_in_any_order(self, shop, shared, order):
        _, base, packed, expected = shop
        pristine = load(base)
        for name in order:
            shared.use(name)
            assert shared.active == name
            if name is not None:
                assert torch.equal(compute(shared.model, packed), expected[name])
                assert shared.model.tuning == TUNINGS[name]
        shared.use(None)
        assert (shared.model.head, shared.model.tuning, shared.model.base) == (None, None, None)
        assert shared.model.state_dict().keys() == pristine.state_dict().keys()
        for name, value in pristine.state_dict().items():
            assert torch.equal(value, shared.model.state_dict()[name]), name

    def test_shares_the_memory_of_the_base(self, shop):
        shared = with_all(shop)
        words = shared.model.encoder.embeddings.words.weight
        for name in TUNINGS:
            shared.use(name)
            assert shared.model.encoder.embeddings.words.weight is words

    def test_draws_no_random_numbers(self, shop):
        shared = SharedBase(load(shop[1]))
        state = torch.get_rng_state()
        shared.add("adapters", shop[0] / "adapters")
        shared.use("adapters")
        assert torch.equal(torch.get_rng_state(), state)

    def test_keeps_mode_and_precision(self, shop):
        """What the model was made to be holds for what comes next, and for the base after it."""
        shared = with_all(shop)
        shared.model.train()
        shared.use("adapters")
        assert all(module.training for module in shared.model.modules())
        shared.model.double().eval()
        for name in ("wide", "frozen", None):
            shared.use(name)
            assert {value.dtype for value in shared.model.parameters()} == {torch.float64}
            assert not any(module.training for module in shared.model.modules())

    def test_names_and_removal(self, shop):
        shared = with_all(shop)
        assert shared.names == list(TUNINGS)
        shared.use("lora")
        shared.remove("wide")
        assert shared.active == "lora"
        shared.remove("lora")
        assert shared.active is None
        assert shared.model.head is None
        assert shared.names == ["adapters", "frozen", "bits"]
        with pytest.raises(QuothError, match="'lora' was not added; there are: adapters, frozen, bits"):
            shared.use("lora")
        with pytest.raises(QuothError, match="'lora' was not added"):
            shared.remove("lora")
        shared.add("lora", shop[0] / "lora")
        shared.use("lora")
        assert torch.equal(compute(shared.model, shop[2]), shop[3]["lora"])

    def test_merging_and_saving_what_is_in_use(self, shop, tmp_path):
        _, _, packed, expected = shop
        shared = with_all(shop)
        shared.use("adapters")
        save(shared.model, tmp_path / "saved")
        assert torch.equal(compute(load(tmp_path / "saved"), packed), expected["adapters"])
        shared.use("lora")
        merge(shared.model)
        torch.testing.assert_close(compute(shared.model, packed), expected["lora"], atol=1e-4, rtol=1e-4)
        shared.use(None)
        assert weights_hash(shared.model) == shared.sha256


class TestRefusals:
    def test_another_base(self, shop, bases):
        root, base, *_ = shop
        model = load(base)
        with torch.no_grad():
            model.encoder.layers[0].up.bias[0] += 1e-6
        with pytest.raises(QuothError, match=r"was trained on a base with sha256 \w{12}…, but this one has \w{12}…$"):
            SharedBase(model).add("x", root / "adapters")
        with pytest.raises(QuothError, match="was trained on a base"):
            SharedBase(load(bases / "roberta")).add("x", root / "adapters")

    def test_whole_models(self, shop, tmp_path):
        model = load(shop[1])
        model.head = SpanHead(24)
        save(apply(model, Full()), tmp_path / "full")
        for folder in (tmp_path / "full", shop[1]):
            with pytest.raises(QuothError, match="holds a whole model, not a delta"):
                SharedBase(load(shop[1])).add("x", folder)

    def test_a_name_that_is_taken(self, shop):
        shared = with_all(shop)
        with pytest.raises(QuothError, match="'lora' was added already"):
            shared.add("lora", shop[0] / "lora")

    def test_a_tuned_model_is_no_base(self, shop):
        with pytest.raises(QuothError, match="this model has adapters already; load its base"):
            SharedBase(load(shop[0] / "adapters"))

    def test_a_damaged_delta_changes_nothing(self, shop, tmp_path):
        shutil.copytree(shop[0] / "adapters", tmp_path / "damaged")
        path = tmp_path / "damaged/delta.safetensors"
        path.write_bytes(path.read_bytes()[:-9])
        shared = SharedBase(load(shop[1]))
        with pytest.raises(QuothError, match="truncated"):
            shared.add("x", tmp_path / "damaged")
        assert shared.names == []


def test_the_base_on_disk_may_be_gone(bases, tmp_path):
    """It is in memory already."""
    shutil.copytree(bases / "bert", tmp_path / "base")
    packed = batch(*random_windows((7, 30, 12)))
    loaded = load(tmp_path / "base")
    model = Model(loaded.encoder, SpanHead(24), origin=loaded.origin).eval()  # without the base's pooler
    apply(model, Adapters(4))
    randomise(model, 9)
    save(model, tmp_path / "tuned")
    shared = SharedBase(load(tmp_path / "base"))
    shutil.rmtree(tmp_path / "base")
    shared.add("x", tmp_path / "tuned")
    shared.use("x")
    assert shared.model.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(compute(shared.model, packed), compute(model, packed))
    assert isinstance(shared.model.encoder, Encoder)
