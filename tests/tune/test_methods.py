"""Adapters against a hand-written layer, LoRA against peft, merging."""

import copy
import math

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file

from quoth import QuothError
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.peft import save_peft
from quoth.model.saving import save, save_hugging_face
from quoth.model.tuned import merge
from quoth.tune import inserted
from quoth.tune.adapters import Adapter, Adapters
from quoth.tune.freeze import Freeze
from quoth.tune.lora import LoRA, LoRALinear
from tiny import STEMS, batch, hugging_face, inputs_of, random_windows, split

LENGTHS = (9, 40, 3)
ALL_TARGETS = ("query", "key", "value", "output", "up", "down")


def windows(types=2):
    ids, kinds = random_windows(LENGTHS, types=types)
    return ids, kinds, batch(ids, kinds)


def theirs(model, ids, kinds, family):
    """Outputs of a Hugging Face model, one window at a time, no padding."""
    with torch.no_grad():
        for window, kind in zip(ids, kinds):
            yield model(**inputs_of(family, window, kind))


def randomise(model, marks, seed=1):
    """Wide random values in every tensor that tuning put in, so that a wrong order or scale shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if any(mark in name for mark in marks):
                value.normal_(0, 0.3, generator=generator)


class TestAdapters:
    def test_begin_as_the_paper_says(self):
        torch.manual_seed(0)
        adapter = Adapter(200, 100)
        for linear in (adapter.down, adapter.up):
            assert not linear.bias.any()
            assert 0 < linear.weight.abs().max() <= 2e-3
            # a normal cut at ±2σ keeps σ·√(1 − 2·2·φ(2) / (Φ(2) − Φ(−2))) = 0.88 σ
            assert linear.weight.std().item() == pytest.approx(0.8796e-3, rel=0.02)
            assert abs(linear.weight.mean().item()) < 3e-5

    def test_formula(self):
        torch.manual_seed(0)
        adapter = Adapter(6, 4).double()
        randomise(adapter, ("",))
        x = torch.randn(5, 6, dtype=torch.double)
        for row, out in zip(x, adapter(x)):
            low = [adapter.down.bias[i] + sum(adapter.down.weight[i, j] * row[j] for j in range(6)) for i in range(4)]
            low = [v.item() for v in low]
            low = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in low]
            for j in range(6):
                expected = row[j] + adapter.up.bias[j] + sum(adapter.up.weight[j, i] * low[i] for i in range(4))
                assert out[j].item() == pytest.approx(expected.item(), abs=1e-12)

    def test_gradients_by_differences(self):
        adapter = Adapter(6, 4).double()
        randomise(adapter, ("",))
        x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        still = x.detach()
        assert torch.autograd.gradcheck(adapter, (x,))
        for weight in adapter.parameters():
            assert torch.autograd.gradcheck(lambda _: adapter(still), (weight,))

    def test_that_are_zero_change_nothing(self, bases):
        _, _, packed = windows()
        model = load(bases / "bert")
        with torch.no_grad():
            before = model.encoder(packed, (1, 2, 3))
            apply(model, Adapters(4))
            for name, value in model.named_parameters():
                if "_adapter.up." in name:
                    value.zero_()
            assert all(torch.equal(a, b) for a, b in zip(before, model.encoder(packed, (1, 2, 3))))

    @pytest.mark.parametrize("family", ["bert", "albert"])
    def test_stand_where_houlsby_put_them(self, family, bases):
        """The same adapters hooked into transformers: on the output of its dropout, before residual and LayerNorm."""
        model = apply(load(bases / family), Adapters(4))
        randomise(model, ("_adapter.",))
        other = hugging_face(family)
        if family == "bert":
            for ours, layer in zip(model.encoder.layers, other.encoder.layer):
                layer.attention.output.dropout = ours.attention_adapter
                layer.output.dropout = ours.ffn_adapter
        else:  # one shared layer
            layer = other.encoder.albert_layer_groups[0].albert_layers[0]
            layer.attention.output_dropout = model.encoder.layers[0].attention_adapter
            dense, adapter = layer.ffn_output, model.encoder.layers[0].ffn_adapter
            layer.ffn_output = torch.nn.Sequential(dense, adapter)
        ids, kinds, packed = windows()
        with torch.no_grad():
            (states,) = model.encoder(packed)
        for mine, out in zip(split(states, LENGTHS), theirs(other, ids, kinds, family)):
            torch.testing.assert_close(mine, out.last_hidden_state[0], atol=1e-5, rtol=1e-5)


class TestLoRA:
    def test_begins_by_changing_nothing(self, bases):
        _, _, packed = windows()
        model = load(bases / "bert")
        with torch.no_grad():
            (before,) = model.encoder(packed)
            apply(model, LoRA(4, targets=ALL_TARGETS))
            assert torch.equal(before, model.encoder(packed)[0])

    def test_keeps_the_names_of_weight_and_bias(self, bases):
        model = load(bases / "bert")
        before = dict(model.named_parameters())
        apply(model, LoRA(targets=ALL_TARGETS))
        after = dict(model.named_parameters())
        assert all(after[name] is value for name, value in before.items())

    def test_draws_a_as_peft_does(self):
        torch.manual_seed(5)
        ours = LoRALinear(torch.nn.Linear(50, 30), 4, 8.0, 0.0)
        torch.manual_seed(5)
        linear = torch.nn.Linear(50, 30)
        assert torch.equal(ours.weight, linear.weight)
        assert torch.equal(ours.lora_a, torch.nn.init.kaiming_uniform_(torch.empty(4, 50), a=math.sqrt(5)))
        assert 0.9 / math.sqrt(50) < ours.lora_a.abs().max() <= 1 / math.sqrt(50)
        assert not ours.lora_b.any()

    @pytest.mark.parametrize("targets", [("query", "value"), ALL_TARGETS])
    def test_equals_peft_with_the_same_a_and_b(self, targets, bases):
        """peft's own injection into a Hugging Face model, A and B copied by hand."""
        model = load(bases / "bert")
        apply(model, LoRA(3, alpha=5.0, targets=targets))
        randomise(model, (".lora_",))
        places = {
            "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
            "output": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
        }  # fmt: skip
        names = [f"encoder.layer.{i}.{places[target]}" for i in range(3) for target in targets]
        other = peft.get_peft_model(hugging_face("bert"), peft.LoraConfig(r=3, lora_alpha=5, target_modules=names))
        theirs_by_name = dict(other.named_parameters())
        with torch.no_grad():
            for i in range(3):
                for target in targets:
                    owner = model.encoder.layers[i]
                    linear = getattr(owner if target in ("up", "down") else owner.attention, target)
                    for ours, letter in ((linear.lora_a, "A"), (linear.lora_b, "B")):
                        name = f"base_model.model.encoder.layer.{i}.{places[target]}.lora_{letter}.default.weight"
                        theirs_by_name[name].copy_(ours)
            ids, kinds, packed = windows()
            (states,) = model.encoder(packed)
        for mine, out in zip(split(states, LENGTHS), theirs(other.eval(), ids, kinds, "bert")):
            torch.testing.assert_close(mine, out.last_hidden_state[0], atol=1e-5, rtol=1e-5)

    def test_dropout_is_on_the_low_path_alone(self):
        torch.manual_seed(0)
        linear = torch.nn.Linear(40, 7)
        lora = LoRALinear(linear, 2, 4.0, 0.5)
        x = torch.randn(20_000, 40)
        assert torch.equal(lora(x), linear(x))  # B = 0: whatever the dropout, nothing
        torch.nn.init.normal_(lora.lora_b)
        with torch.no_grad():
            drawn = lora(x[:1].expand(20_000, 40)).mean(0)
            mean = lora.eval()(x[:1])[0]
        torch.testing.assert_close(drawn, mean, atol=0.05, rtol=0)

    @pytest.mark.parametrize("family", ["bert", "albert"])
    def test_merges(self, family, bases, tmp_path):
        model = load(bases / family)
        model.head = SpanHead(24)
        apply(model, LoRA(3, alpha=5.0, targets=ALL_TARGETS))
        randomise(model, (".lora_",))
        _, _, packed = windows()
        with torch.no_grad():
            before = torch.stack(model(packed))
            assert merge(model) is model
            torch.testing.assert_close(torch.stack(model(packed)), before, atol=1e-5, rtol=1e-5)
        assert inserted(model.encoder) is None
        assert {type(module) for module in model.modules()} == {
            type(module) for module in load(bases / family).modules()
        } | {SpanHead}
        save(model, tmp_path / "ours")  # whole, as it has no base any more
        save_hugging_face(model, tmp_path / "theirs")
        for folder in ("ours", "theirs"):
            again = load(tmp_path / folder)
            assert again.tuning is None
            with torch.no_grad():
                assert torch.equal(torch.stack(again(packed)), torch.stack(model(packed)))


class TestPeft:
    """Our LoRA, saved for peft and loaded by it."""

    def tuned(self, family, bases, head):
        model = load(bases / family)
        model.head = head
        apply(model, LoRA(3, alpha=5.0, targets=ALL_TARGETS))
        randomise(model, (".lora_", "head."))
        return model

    @pytest.mark.parametrize("family", list(STEMS))
    def test_spans(self, family, bases, tmp_path):
        model = self.tuned(family, bases, SpanHead(24))
        save_peft(model, tmp_path / "peft")
        save_peft(model, tmp_path / "peft")  # again, over itself
        base = getattr(transformers, STEMS[family] + "ForQuestionAnswering").from_pretrained(bases / family)
        other = peft.PeftModel.from_pretrained(base, tmp_path / "peft").eval()
        assert other.peft_config["default"].base_model_name_or_path == str(bases / family)
        ids, kinds, packed = windows(types=2 if family in ("bert", "albert", "electra") else 1)
        with torch.no_grad():
            start, end = model(packed)
        for s, e, out in zip(split(start, LENGTHS), split(end, LENGTHS), theirs(other, ids, kinds, family)):
            torch.testing.assert_close(s, out.start_logits[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(e, out.end_logits[0], atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize(
        ("family", "activation"), [("bert", None), ("roberta", "tanh"), ("distilbert", "relu"), ("mpnet", "tanh")]
    )
    def test_classes(self, family, activation, bases, tmp_path):
        model = self.tuned(family, bases, ClassHead(24, 3, activation, pooled=activation is None))
        save_peft(model, tmp_path)
        kind = getattr(transformers, STEMS[family] + "ForSequenceClassification")
        other = peft.PeftModel.from_pretrained(kind.from_pretrained(bases / family, num_labels=3), tmp_path).eval()
        ids, kinds, packed = windows(types=2 if family == "bert" else 1)
        with torch.no_grad():
            logits = model(packed)
        for mine, out in zip(logits, theirs(other, ids, kinds, family)):
            torch.testing.assert_close(mine, out.logits[0], atol=1e-5, rtol=1e-5)

    def test_a_fresh_pooler_goes_along(self, bases, tmp_path):
        model = load(bases / "bert")
        model.pooler = torch.nn.Linear(24, 24)
        model.head = ClassHead(24, 3, pooled=True)
        apply(model, LoRA(2))
        save_peft(model, tmp_path)
        names = load_file(tmp_path / "adapter_model.safetensors").keys()
        assert "base_model.model.bert.pooler.dense.weight" in names
        kind = transformers.BertForSequenceClassification
        other = peft.PeftModel.from_pretrained(kind.from_pretrained(bases / "bert", num_labels=3), tmp_path).eval()
        ids, kinds, packed = windows()
        with torch.no_grad():
            logits = model(packed)
        for mine, out in zip(logits, theirs(other, ids, kinds, "bert")):
            torch.testing.assert_close(mine, out.logits[0], atol=1e-5, rtol=1e-5)

    def test_other_tunings_are_refused(self, bases, tmp_path):
        model = load(bases / "bert")
        with pytest.raises(QuothError, match="only LoRA can be saved for peft; this model has no tuning"):
            save_peft(model, tmp_path / "x")
        for tuning in (Freeze(1), Adapters(4)):
            with pytest.raises(QuothError, match=f"this model has tuning {tuning.kind}"):
                save_peft(apply(copy.deepcopy(model), tuning), tmp_path / "x")
        assert not (tmp_path / "x").exists()


def test_transformers_has_no_place_for_what_was_put_in(bases, tmp_path):
    for tuning, line in ((Adapters(4), "save as a Quoth folder"), (LoRA(), r"merge it first \(quoth.model.merge\)")):
        with pytest.raises(QuothError, match=line):
            save_hugging_face(apply(load(bases / "bert"), tuning), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    save_hugging_face(apply(load(bases / "bert"), Freeze(1)), tmp_path / "x")  # a frozen model is a plain one
