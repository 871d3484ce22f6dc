"""The MLM head over factorised embeddings, against Hugging Face's ALBERT: tied layers, and layers of their own."""

import copy

import pytest
import torch
import transformers

from heads.test_mlm import masked_batch
from quoth.model.loading import load
from quoth.model.saving import save, save_hugging_face
from quoth.prune.baselines import factorise, new_layers
from quoth.tasks.pretraining import Pretraining
from tiny import SMALL, batch, hugging_face, random_windows

LAYERS, SIZE = 3, 10
PARTS = {"query": "attention.query", "key": "attention.key", "value": "attention.value", "dense": "attention.output"}


def by_window(theirs, lengths):
    """The logits of every window, one after the other: nothing is padded."""
    ids, types = random_windows(lengths)
    with torch.no_grad():
        rows = [
            theirs(torch.from_numpy(one)[None], token_type_ids=torch.from_numpy(kind)[None]).logits[0]
            for one, kind in zip(ids, types)
        ]
    return torch.cat(rows), batch(ids, types)


@pytest.fixture
def albert(tmp_path):
    theirs = hugging_face("albert", "ForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs")
    return theirs, tmp_path / "theirs"


def test_an_albert_for_masked_lm_is_loaded_whole(albert):
    theirs, folder = albert
    expected, packed = by_window(theirs, (9, 31, 2))
    model = load(folder)
    assert model.head.to_json()["embedding"] == SIZE
    with torch.no_grad():
        words, nsp = model(packed)
    assert nsp is None
    torch.testing.assert_close(words, expected, atol=1e-4, rtol=1e-4)


def test_its_loss_and_gradients_are_those_of_hugging_face(albert):
    theirs, folder = albert
    padded, masked = masked_batch()
    expected = theirs(padded["ids"], padded["mask"], padded["types"], labels=padded["labels"])
    expected.loss.backward()
    ours = load(folder)
    loss = Pretraining.loss(None, ours(masked), masked, None) / 4
    assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
    loss.backward()
    for name in ("weight", "bias"):
        torch.testing.assert_close(
            ours.head.down.get_parameter(name).grad,
            theirs.predictions.dense.get_parameter(name).grad,
            atol=2e-5,
            rtol=1e-4,
        )


def test_it_goes_there_and_back(albert, tmp_path):
    theirs, folder = albert
    save_hugging_face(load(folder), tmp_path / "ours")
    again = transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "ours")
    expected, _ = by_window(theirs, (12,))
    assert torch.equal(by_window(again, (12,))[0], expected)


@pytest.fixture
def factorised(tmp_path):
    """A BERT with both heads of pre-training, and ALBERT-e of it, whose new layers are made random."""
    hugging_face("bert", "ForPreTraining").save_pretrained(tmp_path / "bert")
    model = load(tmp_path / "bert").eval()
    small = factorise(model, SIZE).eval()
    generator = torch.Generator().manual_seed(1)
    for name in new_layers(model, small):
        small.get_parameter(name).data.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.3, generator=generator)
    return model, small


def test_what_is_new_in_the_head_and_what_stays(factorised):
    model, small = factorised
    assert set(new_layers(model, small)) == {
        f"head.{part}.{kind}" for part in ("down", "down_norm") for kind in ("weight", "bias")
    }
    for name in ("head.bias", "head.nsp.weight", "head.nsp.bias", "pooler.weight"):
        assert torch.equal(small.get_parameter(name), model.get_parameter(name))
    assert new_layers(model, model) == ()


def test_albert_e_is_the_albert_of_hugging_face_with_layers_of_their_own(factorised, tmp_path):
    """BERT's layers, one group each, under factorised tables; the new head is ALBERT's. Also from a folder."""
    _, small = factorised
    config = transformers.AlbertConfig(
        **SMALL,
        embedding_size=SIZE,
        num_hidden_groups=LAYERS,
        inner_group_num=1,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
    )
    theirs = transformers.AlbertForMaskedLM(copy.deepcopy(config)).eval()
    w = small.state_dict()
    tables = {"words": "word_embeddings", "positions": "position_embeddings", "types": "token_type_embeddings"}
    made = {
        f"albert.embeddings.{name}.weight": w[f"encoder.embeddings.{table}.weight"] for table, name in tables.items()
    }
    for kind in ("weight", "bias"):
        made[f"albert.embeddings.LayerNorm.{kind}"] = w[f"encoder.embeddings.norm.{kind}"]
        made[f"albert.encoder.embedding_hidden_mapping_in.{kind}"] = w[f"encoder.embeddings.projection.{kind}"]
        made[f"predictions.dense.{kind}"] = w[f"head.down.{kind}"]
        made[f"predictions.LayerNorm.{kind}"] = w[f"head.down_norm.{kind}"]
        for i in range(LAYERS):
            group, layer = f"albert.encoder.albert_layer_groups.{i}.albert_layers.0.", f"encoder.layers.{i}."
            for name, ours in PARTS.items():
                made[f"{group}attention.{name}.{kind}"] = w[f"{layer}{ours}.{kind}"]
            made[f"{group}attention.LayerNorm.{kind}"] = w[f"{layer}attention_norm.{kind}"]
            made[f"{group}ffn.{kind}"], made[f"{group}ffn_output.{kind}"] = (
                w[f"{layer}up.{kind}"],
                w[f"{layer}down.{kind}"],
            )
            made[f"{group}full_layer_layer_norm.{kind}"] = w[f"{layer}ffn_norm.{kind}"]
    made["predictions.bias"] = made["predictions.decoder.bias"] = w["head.bias"]
    made["predictions.decoder.weight"] = w["encoder.embeddings.words.weight"]
    missing, unexpected = theirs.load_state_dict(made, strict=False)
    assert not unexpected
    assert not [name for name in missing if "pooler" not in name]
    expected, packed = by_window(theirs, (9, 31, 2))
    save(small, tmp_path / "albert-e")
    for model in (small, load(tmp_path / "albert-e").eval()):
        with torch.no_grad():
            torch.testing.assert_close(model(packed)[0], expected, atol=1e-4, rtol=1e-4)
