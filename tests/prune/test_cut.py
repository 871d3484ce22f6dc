"""Folding and cutting: the same outputs, by any shape, in memory and from a folder."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prune.shapes import HEADS, make_batch, make_model, outputs, random_alpha, random_keep, shapes
from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads.chain import Chain
from quoth.heads.linear import SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save, save_hugging_face
from quoth.prune import cut
from quoth.prune.cut import fold
from quoth.prune.dimensions import axes, sizes, with_sizes
from quoth.prune.gates import Gates, gated
from quoth.tune.freeze import Freeze
from tiny import CONFIGS, batch, hugging_face, random_windows

SHAPE = Shape(23, 16, 2, 8, 8, (LayerShape(3, 4, 2, 5), LayerShape(2, 1, 3, 6)))
KINDS = ("all", "h", "f", "a", "k", "v", "akvf")
EXACT = ("f", "a", "k", "v", "akvf")  # of which α = 0 is as good as cut


def apart(one, other):
    return (one - other).abs().max().item()


@given(shapes(), st.sampled_from(EXACT), st.sampled_from(list(HEADS)), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_gated_with_zeros_equals_cut(shape, kinds, head, seed):
    """Biases are not gated, and need not be: what they add is multiplied by 0, or is the same for all keys."""
    model, packed, gates = make_model(shape, head, seed), make_batch(shape, seed=seed), Gates(shape, kinds).double()
    random_alpha(gates, seed)
    keep = random_keep(shape, seed, kinds)
    gates.zero(keep)
    small = cut(model, gates)
    with gated(model, gates):
        expected = outputs(model, packed)
    assert apart(outputs(small, packed), expected) < 1e-9
    assert sizes(small.encoder.shape) == {**sizes(shape), **{name: int(mask.sum()) for name, mask in keep.items()}}
    assert sum(v.numel() for v in small.encoder.parameters()) == small.encoder.shape.total()


def test_hidden_units_with_alpha_0_still_carry_their_embedding():
    """Table 5 does not gate embeddings, LayerNorms and head, so a cut of h moves outputs: what is cut is not read."""
    model, packed, gates = make_model(SHAPE), make_batch(SHAPE), Gates(SHAPE, "h").double()
    keep = {"h": torch.tensor([True] * 5 + [False] * 3)}
    gates.zero(keep)
    with gated(model, gates):
        states = torch.stack(model.encoder(packed, range(3)))
        expected = outputs(model, packed, keep["h"])
    assert (states[..., ~keep["h"]].abs().amax((0, 1)) > 0.1).all()
    assert apart(outputs(cut(model, gates), packed), expected) > 0.1


@given(shapes(), st.sampled_from(KINDS), st.sampled_from(list(HEADS)), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_gates_cut_what_folding_and_masks_cut(shape, kinds, head, seed):
    model, gates, keep = make_model(shape, head, seed), Gates(shape, kinds).double(), random_keep(shape, seed, kinds)
    random_alpha(gates, seed)
    folded = fold(model, gates)
    gates.zero(keep)
    small, same = cut(model, gates).state_dict(), cut(folded, keep).state_dict()
    assert all(torch.equal(value, same[name]) for name, value in small.items())


@given(shapes(), st.sampled_from(KINDS), st.sampled_from(list(HEADS)), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_masks_cut_and_leave_the_rest_of_the_weights_alone(shape, kinds, head, seed):
    """Gates of 1 and 0 and masks say the same; and what is left are entries of the old tensors (Q rescaled)."""
    model, gates, keep = make_model(shape, head, seed), Gates(shape, kinds).double(), random_keep(shape, seed, kinds)
    gates.zero(keep)
    small, same = cut(model, keep), cut(model, gates)
    for name, value in small.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
        if ".query." not in name:
            old = model.state_dict().get(name, model.state_dict().get("encoder.relative.weight"))
            assert set(value.flatten().tolist()) <= set(old.flatten().tolist())


@given(shapes(), st.sampled_from(KINDS), st.sampled_from(list(HEADS)), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_fold_is_the_gated_model_to_the_bit(shape, kinds, head, seed):
    model, packed, gates = make_model(shape, head, seed, torch.float32), make_batch(shape), Gates(shape, kinds)
    random_alpha(gates, seed)
    with gated(model, gates):
        expected = outputs(model, packed)
    folded = fold(model, gates)
    assert torch.equal(outputs(folded, packed), expected)
    assert folded.encoder.shape == shape


def test_powers_of_two_fold_exactly_and_come_back():
    """α = 2 on f: D twice, G twice; and α = 1/2 undoes it to the bit."""
    model, gates, back = make_model(SHAPE, dtype=torch.float32), Gates(SHAPE), Gates(SHAPE)
    with torch.no_grad():
        for name in gates.alpha:
            power = 2.0 ** torch.randint(-2, 3, gates.alpha[name].shape)
            gates.alpha[name].copy_(power)
            back.alpha[name].copy_(1 / power)
    there = fold(model, gates)
    assert not torch.equal(there.encoder.layers[0].up.weight, model.encoder.layers[0].up.weight)
    again = fold(there, back).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_a_cut_of_k_by_hand():
    """Scores q·k / √k of the keys that stay, times 1/√(old k): only Q's rescaling gives that."""
    model, kept = make_model(SHAPE), torch.tensor([True, False, True, False])
    small = cut(model, {"k0": kept})
    old, new = model.encoder.layers[0].attention, small.encoder.layers[0].attention
    x = torch.randn(5, 8, dtype=torch.float64)
    q, k = (linear(x).view(5, 3, 4)[..., kept] for linear in (old.query, old.key))
    q2, k2 = (linear(x).view(5, 3, 2) for linear in (new.query, new.key))
    expected = torch.einsum("iad,jad->aij", q, k) / math.sqrt(4)
    assert apart(torch.einsum("iad,jad->aij", q2, k2) / math.sqrt(2), expected) < 1e-12
    assert torch.equal(new.key.weight, old.key.weight.view(3, 4, 8)[:, kept].reshape(6, 8))


def test_cutting_in_two_rounds_is_cutting_once():
    model, packed = make_model(SHAPE), make_batch(SHAPE)
    first, second = random_keep(SHAPE, 1, share=0.8), random_keep(SHAPE, 2)
    both = {name: first[name] & second[name] for name in first}
    for name, mask in both.items():
        mask |= first[name] if not mask.any() else False
    twice = cut(cut(model, first), {name: both[name][mask] for name, mask in first.items()})
    assert apart(outputs(twice, packed), outputs(cut(model, both), packed)) < 1e-10


@given(shapes(), st.sampled_from(list(HEADS)), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_every_irregular_shape_saves_and_reloads(tmp_path_factory, shape, head, seed):
    folder = tmp_path_factory.mktemp("cut") / "model"
    small = cut(make_model(shape, head, seed, torch.float32), random_keep(shape, seed))
    save(small, folder)
    again, packed = load(folder), make_batch(shape)
    assert again.encoder.shape == small.encoder.shape
    assert torch.equal(outputs(again, packed), outputs(small, packed))


def test_heads_cut_from_layers_that_share_relative_biases():
    """Each layer gets a copy of the table and keeps the columns of its own heads; other cuts leave it shared."""
    shape = Shape(23, 16, 0, 8, 8, (LayerShape(3, 4, 2, 5),) * 2, relative_buckets=8)
    model, packed = make_model(shape), make_batch(shape)
    table = model.encoder.relative.weight
    narrow = cut(model, {"f0": torch.arange(5) < 2, "a0": torch.ones(3, dtype=torch.bool)})
    assert not narrow.encoder.shape.relative_per_layer
    assert torch.equal(narrow.encoder.relative.weight, table)
    keep = {"a0": torch.tensor([True, False, True])}
    small = cut(model, keep)
    assert small.encoder.relative is None
    assert torch.equal(small.encoder.layers[0].attention.relative.weight, table[:, [0, 2]])
    assert torch.equal(small.encoder.layers[1].attention.relative.weight, table)
    again = cut(small, {"a0": torch.tensor([False, True])})
    assert torch.equal(again.encoder.layers[0].attention.relative.weight, table[:, [2]])
    gates = Gates(shape).double()
    gates.zero({"a0": torch.tensor([False, False, True])})
    with gated(model, gates):
        assert apart(outputs(again, packed), outputs(model, packed)) < 1e-10
    with torch.no_grad():
        small.encoder.layers[1].attention.relative.weight.zero_()
    assert table.any()


@pytest.mark.parametrize("family", list(CONFIGS))
def test_families_in_single_precision(family, tmp_path):
    """Loaded from Hugging Face, cut, saved, loaded again; gated before, within 1e-5 in fp32."""
    hugging_face(family, "ForQuestionAnswering").save_pretrained(tmp_path / "theirs")
    model = load(tmp_path / "theirs")
    shape = model.encoder.shape
    packed = batch(*random_windows((5, 30, 9), types=shape.types))
    gates = Gates(shape, "akvf")
    gates.zero(random_keep(shape, 5, "akvf", share=0.8))
    with gated(model, gates):
        expected = outputs(model, packed)
    save(cut(model, gates), tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert apart(outputs(again, packed), expected) < 1e-5 * max(1, expected.abs().max().item())
    assert again.family.name == family
    with pytest.raises(QuothError):
        save_hugging_face(again, tmp_path / "none")


def test_uniform_heads_and_ffn_still_fit_transformers(tmp_path):
    """What is regular after the cut is as good as any other BERT: f alike in all layers."""
    hugging_face("bert", "ForQuestionAnswering").save_pretrained(tmp_path / "theirs")
    model = load(tmp_path / "theirs")
    mask = torch.arange(40) < 16
    small = cut(model, {f"f{number}": mask for number in range(3)})
    save_hugging_face(small, tmp_path / "there")
    packed = batch(*random_windows((5, 30)))
    assert torch.equal(outputs(load(tmp_path / "there"), packed), outputs(small, packed))


def test_what_else_a_cut_keeps():
    model = apply(make_model(SHAPE).train(), Freeze(1))
    model.windows = {"max_length": 12, "step": 4, "max_query_length": 4}
    small = cut(model, random_keep(SHAPE, 0))
    assert small.training
    assert (small.windows, small.origin, small.family) == (model.windows, model.origin, model.family)
    assert small.tuning is None
    assert small.base is None
    assert all(value.requires_grad for value in small.parameters())
    with torch.no_grad():
        small.encoder.embeddings.words.weight.zero_()
        small.head.linear.bias.fill_(9)
    assert model.encoder.embeddings.words.weight.any()
    assert not (model.head.linear.bias == 9).any()


def test_a_chain_stays_when_h_does():
    shape = SHAPE
    model = Model(Encoder(shape), Chain(8, 2, "compress(4) > skip > linear")).double().eval()
    gates, keep, packed = Gates(shape, "akvf").double(), random_keep(shape, 0, "akvf"), make_batch(shape)
    gates.zero(keep)
    with gated(model, gates):
        expected = outputs(model, packed)
    assert apart(outputs(cut(model, gates), packed), expected) < 1e-10
    assert cut(model, {**keep, "h": torch.ones(8, dtype=torch.bool)}).encoder.shape.hidden == 8
    with pytest.raises(QuothError, match="'chain' cannot follow"):
        cut(model, {"h": torch.arange(8) < 7})


class TestRefusals:
    def test_a_dimension_with_nothing_left(self):
        with pytest.raises(QuothError, match=r"nothing is left of a1 \(it had 2\)"):
            cut(make_model(SHAPE), {"a1": torch.zeros(2, dtype=torch.bool)})

    def test_a_dimension_that_is_not_there(self):
        with pytest.raises(QuothError, match="no dimension f2"):
            cut(make_model(SHAPE), {"f2": torch.ones(2, dtype=torch.bool)})

    def test_a_mask_of_another_length(self):
        with pytest.raises(QuothError, match="f1 has 6 elements here"):
            cut(make_model(SHAPE), {"f1": torch.ones(2, dtype=torch.bool)})


class TestSizes:
    @given(shapes())
    def test_there_and_back(self, shape):
        assert with_sizes(shape, sizes(shape)) == shape

    def test_embeddings_follow_without_a_projection_only(self):
        assert with_sizes(SHAPE, {"h": 5}).embedding == 5
        chosen = Shape(23, 16, 2, 8, 8, SHAPE.layers, projection=True)
        assert with_sizes(chosen, {"h": 5}).embedding == 8

    @given(shapes(), st.sampled_from(list(HEADS)))
    @settings(max_examples=25, deadline=None)
    def test_axes_have_the_lengths_of_the_tensors(self, shape, head):
        model, lengths = make_model(shape, head), sizes(shape)
        for name, found in axes(model).items():
            size = model.get_parameter(name).shape
            assert len(found) == len(size)
            for axis, length in zip(found, size):
                assert not axis or math.prod(lengths[part] for part in axis) == length


def test_bert_base_to_the_shapes_of_the_paper():
    """On the meta device: masks for table 10's 43M, of a model that is never there; the counts are exact."""
    base = Shape.uniform(layers=12, hidden=768, heads=12)
    with torch.device("meta"):
        model = Model(Encoder(base), SpanHead(768), pooler=True)
    lengths = {name: tuple(value.shape) for name, value in model.named_parameters()}
    total = 0
    for name, shape in lengths.items():
        spans = axes(model).get(name, ((),) * len(shape))
        total += math.prod(304 if axis == ("h",) else length for axis, length in zip(spans, shape))
    small = Shape(30522, 512, 2, 304, 304, (LayerShape(12, 64, 64, 3072),) * 12)
    assert total == small.total() + 304 * 305 + 2 * 305
    assert round(small.total() / 1e6, 1) == 43.1
