"""The heads of pre-training against Hugging Face, through folders, and under gates and cuts."""

import json

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from prune.shapes import random_alpha, random_keep, shapes
from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads import build_head
from quoth.heads.mlm import MlmHead, mlm_table
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save, save_hugging_face
from quoth.prune import cut
from quoth.prune.dimensions import axes
from quoth.prune.gates import Gates, gated
from quoth.tasks import TASKS
from quoth.tasks.pretraining import Pretraining
from quoth.tune.freeze import Freeze
from quoth.windows.packed import NOTHING, Masked
from tiny import SMALL, batch, hugging_face, random_windows

LENGTHS = (9, 31, 2, 17)


def masked_batch(lengths=LENGTHS, vocab=97, types=2, seed=0, spare=0):
    """A batch with a third of its tokens masked, as HF's padded tensors and as ours; `spare` places do not count."""
    rng = np.random.default_rng(seed)
    ids, kinds = random_windows(lengths, vocab, types, seed)
    longest = max(lengths)
    padded = {name: torch.zeros(len(lengths), longest, dtype=torch.long) for name in ("ids", "types", "mask", "labels")}
    padded["labels"].fill_(-100)
    places, targets, base = [], [], 0
    for w, (row, kind) in enumerate(zip(ids, kinds)):
        n = len(row)
        padded["ids"][w, :n], padded["types"][w, :n] = torch.from_numpy(row), torch.from_numpy(kind)
        padded["mask"][w, :n] = 1
        for k in np.flatnonzero(rng.random(n) < 0.33):
            word = int(rng.integers(2, vocab))
            padded["labels"][w, k] = word
            places.append(base + k)
            targets.append(word)
        base += n
    count = len(targets)
    places, targets = places + [0] * spare, targets + [NOTHING] * spare
    packed = batch(ids, kinds)
    fields = (packed.ids, packed.positions, packed.types, packed.starts, packed.lengths)
    masked = Masked(*fields, torch.tensor(places), torch.tensor(targets), len(lengths) / count)
    return padded, masked


@pytest.fixture
def saved(tmp_path):
    theirs = hugging_face("bert", "ForPreTraining")
    theirs.save_pretrained(tmp_path / "bert")
    return theirs, tmp_path / "bert"


class TestHuggingFace:
    @pytest.mark.parametrize("spare", [0, 7])
    def test_the_loss_is_that_of_bert_for_pre_training(self, saved, spare):
        theirs, folder = saved
        padded, masked = masked_batch(spare=spare)
        labels = torch.tensor([0, 1, 1, 0])
        expected = theirs(
            input_ids=padded["ids"],
            token_type_ids=padded["types"],
            attention_mask=padded["mask"],
            labels=padded["labels"],
            next_sentence_label=labels,
        )
        expected.loss.backward()
        ours = load(folder)
        assert ours.head.to_json()["nsp"]
        assert [kind for kind in TASKS.values() if kind.head_task == ours.head.task] == [Pretraining]
        loss = Pretraining.loss(None, ours(masked), masked, labels) / len(LENGTHS)
        assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
        loss.backward()
        reference = dict(theirs.named_parameters())
        for name, value in ours.named_parameters():
            wanted = reference[ours.family.to_hugging_face(name, "mlm")].grad
            torch.testing.assert_close(value.grad, wanted, atol=2e-5, rtol=1e-4, msg=name)

    def test_logits_of_all_tokens_of_a_batch_that_is_not_masked(self, saved):
        theirs, folder = saved
        padded, masked = masked_batch()
        ours = load(folder)
        with torch.no_grad():
            words, nsp = ours(batch(*random_windows(LENGTHS)))
            found = theirs(padded["ids"], padded["mask"], padded["types"])
            some, again = ours(masked)
        expected = found.prediction_logits[padded["mask"].bool()]
        torch.testing.assert_close(words, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(nsp, found.seq_relationship_logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(some, words[masked.places], atol=1e-5, rtol=1e-5)
        assert torch.equal(nsp, again)

    @pytest.mark.parametrize(("act", "eps"), [("relu", 1e-12), ("gelu_new", 0.1)])
    def test_activation_and_epsilon_are_the_encoders(self, tmp_path, act, eps):
        config = transformers.BertConfig(**SMALL, hidden_act=act, layer_norm_eps=eps)
        theirs = transformers.BertForMaskedLM(config).eval()
        theirs.save_pretrained(tmp_path)
        ours = load(tmp_path)
        ids, _ = random_windows((12,))
        with torch.no_grad():
            words, nsp = ours(batch(ids, None))
            expected = theirs(torch.from_numpy(ids[0])[None]).logits[0]
        assert nsp is None
        torch.testing.assert_close(words, expected, atol=1e-5, rtol=1e-5)

    def test_albert_decodes_from_the_size_of_its_embeddings(self):
        theirs = hugging_face("albert", "ForMaskedLM")
        source = theirs.predictions
        head = MlmHead(24, 97, 10, activation="gelu_tanh", eps=theirs.config.layer_norm_eps, nsp=False)
        state = {"down.weight": source.dense.weight, "down.bias": source.dense.bias, "bias": source.bias}
        head.load_state_dict(
            state | {"down_norm.weight": source.LayerNorm.weight, "down_norm.bias": source.LayerNorm.bias}
        )
        states = torch.randn(13, 24)
        words, _ = head((states,), batch(*random_windows((13,))), theirs.albert.embeddings.word_embeddings.weight)
        torch.testing.assert_close(words, theirs.predictions(states[None])[0], atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("kind", ["ForPreTraining", "ForMaskedLM"])
    def test_goes_there_and_back(self, tmp_path, kind):
        theirs = hugging_face("bert", kind)
        theirs.save_pretrained(tmp_path / "theirs")
        save_hugging_face(load(tmp_path / "theirs"), tmp_path / "ours")
        again = getattr(transformers, f"Bert{kind}").from_pretrained(tmp_path / "ours")
        for name, value in theirs.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name

    def test_a_decoder_of_its_own_is_left_out(self, saved):
        _, folder = saved
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
        model = load(folder)
        assert model.head is None
        assert "cls.predictions.bias" in model.origin.unused

    def test_without_a_pooler_only_words_are_left(self, saved):
        _, folder = saved
        tensors = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in tensors.items() if "pooler" not in name}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
        model = load(folder)
        assert model.head.to_json()["nsp"] is False
        assert set(model.origin.unused) == {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}

    def test_a_missing_tensor_has_their_name(self, saved):
        _, folder = saved
        tensors = load_file(folder / "model.safetensors")
        del tensors["cls.seq_relationship.bias"]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(QuothError, match=r"cls.seq_relationship.bias is missing"):
            load(folder)


PLAIN = Shape(53, 16, 2, 8, 8, (LayerShape(3, 4, 2, 5), LayerShape(2, 1, 3, 6)))
NARROW = Shape(53, 16, 2, 5, 8, (LayerShape(3, 4, 2, 5),) * 2, tied=True)


def make(shape, nsp=True, seed=0, dtype=torch.float64):
    """A model with a pooler and a head of pre-training, every tensor random."""
    encoder = Encoder(shape)
    head = build_head(mlm_table(shape, encoder.style, nsp=nsp), shape.hidden, len(shape.layers))
    model = Model(encoder, head, pooler=True).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.4, generator=generator)
    return model


@torch.no_grad()
def logits(model, shape):
    found = model(masked_batch((7, 3, 12), shape.vocab, shape.types, spare=2)[1])
    return torch.cat([part.flatten() for part in found if part is not None])


class TestPruning:
    @given(shapes(), st.sampled_from(("all", "h", "f", "akv")), st.booleans())
    @settings(max_examples=25, deadline=None)
    def test_gates_at_one_change_no_bit(self, shape, kinds, nsp):
        model = make(shape, nsp, dtype=torch.float32)
        plain = logits(model, shape)
        with gated(model, Gates(shape, kinds)):
            assert torch.equal(logits(model, shape), plain)

    @given(shapes(), st.sampled_from(("akvf", "f")), st.booleans(), st.integers(0, 9))
    @settings(max_examples=40, deadline=None)
    def test_gated_equals_cut(self, shape, kinds, nsp, seed):
        model, gates = make(shape, nsp), Gates(shape, kinds).double()
        random_alpha(gates, seed)
        gates.zero(random_keep(shape, seed, kinds))
        with gated(model, gates):
            expected = logits(model, shape)
        small = cut(model, gates)
        torch.testing.assert_close(logits(small, shape), expected, atol=1e-9, rtol=1e-9)
        assert small.head.to_json() == model.head.to_json()

    @pytest.mark.parametrize("narrow", [False, True])
    def test_every_parameter_with_the_hidden_size_follows_a_cut(self, narrow):
        shape = Shape(101, 103, 3, 11 if narrow else 13, 13, (LayerShape(7, 5, 17, 29),))
        model = make(shape)
        expected = {name for name, value in model.named_parameters() if {13, 35, 119, 29} & set(value.shape)}
        assert set(axes(model)) == expected

    @pytest.mark.parametrize("shape", [PLAIN, NARROW], ids=["plain", "narrow"])
    def test_a_cut_model_goes_through_a_folder(self, shape, tmp_path):
        small = cut(make(shape, dtype=torch.float32), random_keep(shape, 4))
        save(small, tmp_path / "model")
        again = load(tmp_path / "model")
        assert again.encoder.shape == small.encoder.shape
        assert torch.equal(logits(again, shape), logits(small, shape))


class TestFolders:
    def test_a_head_on_a_frozen_encoder_is_a_delta(self, tmp_path):
        shape = Shape.uniform(layers=2, hidden=12, heads=3, vocab=53)
        save(Model(Encoder(shape)), tmp_path / "base")
        model = load(tmp_path / "base")
        model.head = build_head(mlm_table(shape, model.encoder.style), 12, 2)
        model.pooler = torch.nn.Linear(12, 12)
        apply(model, Freeze(0, norms="above"))
        trained = {name for name, value in model.named_parameters() if value.requires_grad}
        assert {name.partition(".")[0] for name in trained} == {"head", "pooler"}
        save(model, tmp_path / "delta")
        assert set(load_file(tmp_path / "delta/delta.safetensors")) == trained
        assert torch.equal(logits(load(tmp_path / "delta"), shape), logits(model, shape))

    def test_the_table_of_words_is_no_part_of_the_head(self):
        head = MlmHead(24, 97)
        assert sum(value.numel() for value in head.parameters()) == 24 * 25 + 2 * 24 + 97 + 2 * 25
        narrow = MlmHead(24, 97, 10, nsp=False)
        assert sum(value.numel() for value in narrow.parameters()) == 10 * 25 + 2 * 10 + 97
        assert build_head(narrow.to_json(), 24, 3).to_json() == narrow.to_json()

    def test_refusals(self):
        with pytest.raises(QuothError, match="head: mlm: vocab is missing"):
            build_head({"kind": "mlm"}, 24, 3)
        with pytest.raises(QuothError, match="activation 'swish' is unknown"):
            MlmHead(24, 97, activation="swish")
        with pytest.raises(QuothError, match="reads a pooler, which the model does not have"):
            Model(Encoder(PLAIN), MlmHead(8, 53))(batch(*random_windows((5,), 53)))
