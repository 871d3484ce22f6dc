"""Every family computes what transformers computes, and its checkpoints go there and back."""

import copy
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from quoth.encoder.encoder import Encoder
from quoth.encoder.families import is_known
from quoth.encoder.shape import LayerShape, Shape
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save, save_hugging_face
from tiny import CONFIGS, LENGTHS, STEMS, batch, hugging_face, inputs_of, random_windows, split

FAMILIES = list(CONFIGS)


def reference_states(model, family, ids, types):
    """transformers' hidden states, a window at a time: [window][layer] of (length, h)."""
    results = []
    for window, kinds in zip(ids, types):
        with torch.no_grad():
            states = model(**inputs_of(family, window, kinds), output_hidden_states=True).hidden_states
        results.append([state[0] for state in states])
    return results


def largest_difference(model, reference, ids, types):
    """Over all layers and windows, the largest difference from the reference."""
    layers = range(len(model.encoder.shape.layers) + 1)
    with torch.no_grad():
        states = model.encoder(batch(ids, types), layers)
    worst = 0.0
    for layer, packed in zip(layers, states):
        for window, ours in enumerate(split(packed, [len(w) for w in ids])):
            worst = max(worst, float((ours - reference[window][layer]).abs().max()))
    return worst


def types_of(family):
    return 2 if family in ("bert", "albert", "electra") else 1


@pytest.mark.parametrize("family", FAMILIES)
def test_states_equal_transformers(family, tmp_path):
    theirs = hugging_face(family)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    ids, types = random_windows(types=types_of(family))
    reference = reference_states(theirs, family, ids, types)
    assert largest_difference(ours, reference, ids, types) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_perturbing_any_tensor_shows(family, tmp_path):
    """Each tensor matters to the comparison above, so none can be misplaced unseen.

    The one exception is mathematical: a key bias adds q·b to all scores of a query, which softmax ignores. That
    tensor is compared with transformers' directly.
    """
    theirs = hugging_face(family)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    ids, types = random_windows(lengths=(512, 3, 20), types=types_of(family))
    reference = reference_states(theirs, family, ids, types)
    generator = torch.Generator().manual_seed(1)
    for name, value in ours.encoder.named_parameters():
        if name.endswith("attention.key.bias"):
            place = ours.family.to_hugging_face(f"encoder.{name}", None)
            assert torch.equal(value, theirs.state_dict()[place])
            continue
        kept = value.detach().clone()
        with torch.no_grad():
            value += 0.3 * torch.randn(value.shape, generator=generator)
        assert largest_difference(ours, reference, ids, types) > 1e-3, name
        with torch.no_grad():
            value.copy_(kept)
    assert largest_difference(ours, reference, ids, types) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_span_head_equals_transformers(family, tmp_path):
    theirs = hugging_face(family, "ForQuestionAnswering")
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    ids, types = random_windows(types=types_of(family))
    with torch.no_grad():
        starts, ends = ours(batch(ids, types))
        for window, kinds, start, end in zip(ids, types, split(starts, LENGTHS), split(ends, LENGTHS)):
            expected = theirs(**inputs_of(family, window, kinds))
            assert torch.allclose(start, expected.start_logits[0], atol=1e-4)
            assert torch.allclose(end, expected.end_logits[0], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_class_head_equals_transformers(family, tmp_path):
    theirs = hugging_face(family, "ForSequenceClassification")
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    ids, types = random_windows(lengths=(9, 30, 1), types=types_of(family))
    with torch.no_grad():
        logits = ours(batch(ids, types))
        for window, kinds, found in zip(ids, types, logits):
            expected = theirs(**inputs_of(family, window, kinds)).logits[0]
            assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["Model", "ForQuestionAnswering", "ForSequenceClassification"])
@pytest.mark.parametrize("family", FAMILIES)
def test_hugging_face_and_back(family, kind, tmp_path):
    """Hugging Face → Quoth folder → Hugging Face gives the same tensors, and transformers loads them."""
    theirs = hugging_face(family, kind)
    theirs.save_pretrained(tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "ours")
    save_hugging_face(load(tmp_path / "ours"), tmp_path / "back")
    again, report = getattr(transformers, STEMS[family] + kind).from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    expected, found = theirs.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
    ours = transformers.AutoConfig.from_pretrained(tmp_path / "back").to_dict()
    for key, value in theirs.config.to_dict().items():
        if key not in ("_name_or_path", "architectures", "dtype", "transformers_version"):
            assert ours[key] == value, key


def test_mpnet_begins_at_position_2_whatever_its_padding_is(tmp_path):
    """transformers' MPNet has its padding id, 1, and its 32 buckets in the code and not from the config."""
    config = copy.deepcopy(CONFIGS["mpnet"])
    config.pad_token_id = 0
    theirs = transformers.MPNetModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ids, types = random_windows(lengths=(7, 150))
    assert largest_difference(load(tmp_path), reference_states(theirs, "mpnet", ids, types), ids, types) < 1e-4
    written = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**written, "relative_attention_num_buckets": 16}))
    with pytest.raises(
        QuothError, match=r"config\.json: relative_attention_num_buckets = 16 is not supported, only 32"
    ):
        load(tmp_path)


def test_relative_biases_are_the_familys_own(tmp_path):
    """A BERT with them, and an MPNet of which each layer has its own, are no models of transformers."""
    layer = LayerShape(3, 8, 8, 40)
    for family, settings, reason in (
        ("bert", {"types": 2}, "it has 32 buckets of relative position biases"),
        (
            "mpnet",
            {"types": 0, "relative_per_layer": True},
            "each of its layers has relative position biases of its own",
        ),
    ):
        shape = Shape(97, 514, embedding=24, hidden=24, layers=(layer,) * 2, relative_buckets=32, **settings)
        with pytest.raises(QuothError, match=reason):
            save_hugging_face(Model(Encoder(shape), family=family), tmp_path / "none")


def test_electra_without_projection(tmp_path):
    config = transformers.ElectraConfig(
        vocab_size=97,
        hidden_size=24,
        embedding_size=24,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=8,
    )
    theirs = transformers.ElectraModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ids, types = random_windows(lengths=(7, 30))
    assert largest_difference(load(tmp_path), reference_states(theirs, "electra", ids, types), ids, types) < 1e-4


def test_albert_of_equal_sizes_keeps_its_projection(tmp_path):
    config = transformers.AlbertConfig(
        vocab_size=97,
        hidden_size=24,
        embedding_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=8,
    )
    theirs = transformers.AlbertModel(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "ours")
    ids, types = random_windows(lengths=(7, 30))
    reference = reference_states(theirs, "albert", ids, types)
    assert largest_difference(load(tmp_path / "ours"), reference, ids, types) < 1e-4


def test_real_weights(minilm):
    """MiniLM-L6, real weights, real text lengths."""
    theirs = transformers.BertModel.from_pretrained(minilm, dtype=torch.float32).eval()
    ours = load(minilm)
    ids, types = random_windows(lengths=(1, 512, 180, 64, 190, 33), vocab=30522)
    reference = reference_states(theirs, "bert", ids, types)
    assert largest_difference(ours, reference, ids, types) < 1e-4


@pytest.mark.skipif("QUOTH_SHARED" not in os.environ, reason="QUOTH_SHARED is not set: no MiniLM-L12 to load")
def test_real_weights_of_twelve_layers():
    folder = Path(os.environ["QUOTH_SHARED"]) / "weights/minilm-l12-h384"
    theirs = transformers.BertModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).eval()
    ids, types = random_windows(lengths=(1, 512, 180, 33), vocab=30522)
    reference = reference_states(theirs, "bert", ids, types)
    assert largest_difference(load(folder), reference, ids, types) < 1e-4


@pytest.mark.skipif("QUOTH_MPNET" not in os.environ, reason="QUOTH_MPNET is not set: no all-mpnet-base-v2 to load")
def test_real_weights_of_mpnet():
    """States of all layers, and the gradient of the relative biases, which all layers share."""
    folder = os.environ["QUOTH_MPNET"]
    theirs = transformers.MPNetModel.from_pretrained(folder, dtype=torch.float32).eval()
    ours = load(folder)
    ids, types = random_windows(lengths=(1, 512, 180, 33), vocab=30527)
    reference = reference_states(theirs, "mpnet", ids, types)
    assert largest_difference(ours, reference, ids, types) < 1e-4
    ids, types = random_windows(lengths=(140, 9), vocab=30527)
    weight = torch.randn(149, 768, generator=torch.Generator().manual_seed(0))
    (weight * ours.encoder(batch(ids, types))[0]).sum().backward()
    for window, part in zip(ids, weight.split([140, 9])):
        (part * theirs(torch.tensor(window)[None]).last_hidden_state[0]).sum().backward()
    found, expected = ours.encoder.relative.weight.grad, theirs.encoder.relative_attention_bias.weight.grad
    assert (found - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "xlm-roberta", "camembert"])
def test_gradients_equal_transformers(family, tmp_path):
    """The same loss has the same gradient in every weight; of MPNet's windows some are long enough for all buckets."""
    theirs = hugging_face(family, "ForQuestionAnswering")
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    lengths = (9, 40, 17, 38, 160)
    ids, types = random_windows(lengths=lengths, types=types_of(family))
    weights = [torch.tensor(np.random.default_rng(5).normal(size=n), dtype=torch.float32) for n in lengths]
    start, end = ours(batch(ids, types))
    (torch.cat(weights) * (start - 2 * end)).sum().backward()
    for window, kinds, weight in zip(ids, types, weights):
        logits = theirs(**inputs_of(family, window, kinds))
        (weight * (logits.start_logits[0] - 2 * logits.end_logits[0])).sum().backward()
    reference = dict(theirs.named_parameters())
    for name, value in ours.named_parameters():
        expected = reference[ours.family.to_hugging_face(name, "span")].grad
        assert torch.allclose(value.grad, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()) + 1e-4), name


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("encoder.layers.11.attention.query.weight", True),
        ("encoder.embeddings.projection.bias", True),
        ("pooler.weight", True),
        ("encoder.relative.weight", True),
        ("encoder.layers.3.attention.relative.weight", True),
        ("encoder.layers.0.ffn_adapter.up.weight", False),
        ("encoder.layers.0.attention.query.lora_a", False),
        ("head.linear.weight", False),
    ],
)
def test_names_that_some_family_knows(name, known):
    """All others of the encoder were inserted by a tuning method."""
    assert is_known(name) is known
