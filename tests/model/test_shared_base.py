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
from quoth.model.base import weights_hash
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.model.shared_base import SharedBase
from quoth.model.tuned import merge
from quoth.tune.adapters import Adapters
from quoth.tune.bitfit import BitFit
from quoth.tune.freeze import Freeze
from quoth.tune.full import Full
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


def full_shelf(shop):
    root, base, *_ = shop
    shelf = SharedBase(load(base))
    for name in TUNINGS:
        shelf.add(name, root / name)
    return shelf


@pytest.fixture(scope="module")
def shelf(shop):
    """One shelf for a whole sequence of orders."""
    return full_shelf(shop)


class TestSwapping:
    @given(order=st.lists(st.sampled_from([None, *TUNINGS]), max_size=8))
    @settings(max_examples=25, deadline=None)
    def test_in_any_order(self, shop, shelf, order):
        _, base, packed, expected = shop
        pristine = load(base)
        for name in order:
            shelf.use(name)
            assert shelf.active == name
            if name is not None:
                assert torch.equal(compute(shelf.model, packed), expected[name])
                assert shelf.model.tuning == TUNINGS[name]
        shelf.use(None)
        assert (shelf.model.head, shelf.model.tuning, shelf.model.base) == (None, None, None)
        assert shelf.model.state_dict().keys() == pristine.state_dict().keys()
        for name, value in pristine.state_dict().items():
            assert torch.equal(value, shelf.model.state_dict()[name]), name

    def test_shares_the_memory_of_the_base(self, shop):
        shelf = full_shelf(shop)
        words = shelf.model.encoder.embeddings.words.weight
        for name in TUNINGS:
            shelf.use(name)
            assert shelf.model.encoder.embeddings.words.weight is words

    def test_draws_no_random_numbers(self, shop):
        shelf = SharedBase(load(shop[1]))
        state = torch.get_rng_state()
        shelf.add("adapters", shop[0] / "adapters")
        shelf.use("adapters")
        assert torch.equal(torch.get_rng_state(), state)

    def test_keeps_mode_and_precision(self, shop):
        """What the model was made to be holds for what comes next, and for the base after it."""
        shelf = full_shelf(shop)
        shelf.model.train()
        shelf.use("adapters")
        assert all(module.training for module in shelf.model.modules())
        shelf.model.double().eval()
        for name in ("wide", "frozen", None):
            shelf.use(name)
            assert {value.dtype for value in shelf.model.parameters()} == {torch.float64}
            assert not any(module.training for module in shelf.model.modules())

    def test_names_and_removal(self, shop):
        shelf = full_shelf(shop)
        assert shelf.names == list(TUNINGS)
        shelf.use("lora")
        shelf.remove("wide")
        assert shelf.active == "lora"
        shelf.remove("lora")
        assert shelf.active is None
        assert shelf.model.head is None
        assert shelf.names == ["adapters", "frozen", "bits"]
        with pytest.raises(QuothError, match="'lora' is not on the shelf; there are: adapters, frozen, bits"):
            shelf.use("lora")
        with pytest.raises(QuothError, match="'lora' is not on the shelf"):
            shelf.remove("lora")
        shelf.add("lora", shop[0] / "lora")
        shelf.use("lora")
        assert torch.equal(compute(shelf.model, shop[2]), shop[3]["lora"])

    def test_merging_and_saving_what_is_in_use(self, shop, tmp_path):
        _, _, packed, expected = shop
        shelf = full_shelf(shop)
        shelf.use("adapters")
        save(shelf.model, tmp_path / "saved")
        assert torch.equal(compute(load(tmp_path / "saved"), packed), expected["adapters"])
        shelf.use("lora")
        merge(shelf.model)
        torch.testing.assert_close(compute(shelf.model, packed), expected["lora"], atol=1e-4, rtol=1e-4)
        shelf.use(None)
        assert weights_hash(shelf.model) == shelf.sha256


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
        shelf = full_shelf(shop)
        with pytest.raises(QuothError, match="'lora' is on the shelf already"):
            shelf.add("lora", shop[0] / "lora")

    def test_a_tuned_model_is_no_base(self, shop):
        with pytest.raises(QuothError, match="this model has adapters already; load its base"):
            SharedBase(load(shop[0] / "adapters"))

    def test_a_damaged_delta_leaves_the_shelf_as_it_was(self, shop, tmp_path):
        shutil.copytree(shop[0] / "adapters", tmp_path / "damaged")
        path = tmp_path / "damaged/delta.safetensors"
        path.write_bytes(path.read_bytes()[:-9])
        shelf = SharedBase(load(shop[1]))
        with pytest.raises(QuothError, match="truncated"):
            shelf.add("x", tmp_path / "damaged")
        assert shelf.names == []


def test_the_base_on_disk_may_be_gone(bases, tmp_path):
    """It is in memory already."""
    shutil.copytree(bases / "bert", tmp_path / "base")
    packed = batch(*random_windows((7, 30, 12)))
    loaded = load(tmp_path / "base")
    model = Model(loaded.encoder, SpanHead(24), origin=loaded.origin).eval()  # without the base's pooler
    apply(model, Adapters(4))
    randomise(model, 9)
    save(model, tmp_path / "tuned")
    shelf = SharedBase(load(tmp_path / "base"))
    shutil.rmtree(tmp_path / "base")
    shelf.add("x", tmp_path / "tuned")
    shelf.use("x")
    assert shelf.model.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(compute(shelf.model, packed), compute(model, packed))
    assert isinstance(shelf.model.encoder, Encoder)
