"""Saving what was trained and putting it back on its base; every way in which that can go wrong."""

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.model.tuned import merge, trained
from quoth.model.weights import weights_hash
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze, Full
from quoth.tune.lora import LoRA

ALL_TARGETS = ("query", "key", "value", "output", "up", "down")
DELTAS = (
    Freeze(0),
    Freeze(3),
    Freeze(3, "above"),
    Adapters(4),
    Adapters(4, norms="above"),
    Adapters(4, layers=3),
    LoRA(2, targets=ALL_TARGETS, dropout=0.1),
    BitFit(),
)
WHOLE = (Full(), Adapters(4, layers="full"))


def outputs(model, packed):
    with torch.no_grad():
        out = model(packed)
    return torch.stack(out) if isinstance(out, tuple) else out


def same(model, again, packed):
    assert model.state_dict().keys() == again.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert torch.equal(outputs(model, packed), outputs(again, packed))


def description(folder, **changes):
    path = folder / "quoth.json"
    value = json.loads(path.read_text())
    if changes:
        path.write_text(json.dumps({**value, **changes}))
    return value


def refused(folder, line, **options):
    with pytest.raises(QuothError, match=line) as caught:
        load(folder, **options)
    assert "\n" not in str(caught.value)


class TestThereAndBack:
    @pytest.mark.parametrize("head", ["span", "class"])
    @pytest.mark.parametrize("family", ["bert", "albert"])
    @pytest.mark.parametrize("tuning", DELTAS, ids=str)
    def test_a_delta(self, tuning, family, head, tune, bases, packed, tmp_path):
        model = tune(family, tuning, head=head)
        save(model, tmp_path / "tuned")
        assert sorted(p.name for p in (tmp_path / "tuned").iterdir()) == ["delta.safetensors", "quoth.json"]
        assert load_file(tmp_path / "tuned/delta.safetensors").keys() == set(trained(model))
        value = description(tmp_path / "tuned")
        assert value["base"] == {"source": str(bases / family), "sha256": weights_hash(load(bases / family))}
        assert value["tuning"] == json.loads(json.dumps(tuning.to_json()))
        again = load(tmp_path / "tuned")
        same(model, again, packed)
        assert (again.tuning, again.base) == (tuning, model.base)
        save(again, tmp_path / "again")
        first, second = ((tmp_path / name / "delta.safetensors").read_bytes() for name in ("tuned", "again"))
        assert first == second
        assert description(tmp_path / "again") == {**value, "provenance": {"source": str(tmp_path / "tuned")}}

    @pytest.mark.parametrize("family", ["bert", "albert"])
    @pytest.mark.parametrize("tuning", WHOLE, ids=str)
    def test_a_whole_model(self, tuning, family, tune, packed, tmp_path):
        model = tune(family, tuning)
        save(model, tmp_path / "tuned")
        assert sorted(p.name for p in (tmp_path / "tuned").iterdir()) == ["model.safetensors", "quoth.json"]
        again = load(tmp_path / "tuned")
        same(model, again, packed)
        assert (again.tuning, again.base) == (tuning, None)

    def test_a_model_of_no_folder_is_whole(self, packed, tmp_path):
        model = Model(Encoder(Shape.uniform(layers=2, hidden=24, heads=3, vocab=97)), SpanHead(24)).eval()
        save(apply(model, Adapters(4)), tmp_path / "tuned")
        assert (tmp_path / "tuned/model.safetensors").exists()
        same(model, load(tmp_path / "tuned"), packed)

    def test_a_model_changed_since_it_was_loaded_is_whole(self, bases, packed, tmp_path):
        """Its weights are nowhere on disk, so a delta would have nothing to stand on."""
        model = load(bases / "bert")
        model.head = SpanHead(24)
        with torch.no_grad():
            model.encoder.layers[0].up.weight[0, 0] += 1e-3
        assert apply(model, Freeze(1)).base is None
        save(model, tmp_path / "tuned")
        same(model, load(tmp_path / "tuned"), packed)

    def test_a_merged_model_does_not_stand_on_its_lora(self, tune, packed, tmp_path):
        """Even if B is 0 and the weights are the base's still: that folder has more than the model has."""
        save(tune("bert", LoRA(2), steps=0), tmp_path / "lora")
        model = apply(merge(load(tmp_path / "lora")), Freeze(1))
        assert model.base is None
        save(model, tmp_path / "merged")
        same(model, load(tmp_path / "merged"), packed)

    def test_a_folder_from_before_tuning(self, bases, packed, tmp_path):
        model = load(bases / "bert")
        model.head = SpanHead(24)
        save(model, tmp_path / "old")
        value = description(tmp_path / "old")
        assert value.pop("tuning") is None
        (tmp_path / "old/quoth.json").write_text(json.dumps(value))
        same(model, load(tmp_path / "old"), packed)

    @pytest.mark.parametrize("family", ["bert", "electra"])
    @pytest.mark.parametrize(
        ("pooler", "head"),
        [
            (False, SpanHead(24)),
            (True, SpanHead(24)),
            (False, ClassHead(24, 2)),
            (True, ClassHead(24, 2, pooled=True)),
        ],
    )
    def test_poolers_dropped_and_added(self, family, pooler, head, bases, packed, tmp_path):
        """A model without the base's pooler, or with one that the base has not, comes back as it is."""
        loaded = load(bases / family)
        model = Model(loaded.encoder, head, family=family, pooler=pooler, origin=loaded.origin).eval()
        save(apply(model, Adapters(4)), tmp_path / "tuned")
        assert (tmp_path / "tuned/delta.safetensors").exists()
        same(model, load(tmp_path / "tuned"), packed)

    def test_precision_of_the_base_does_not_matter(self, bases, tmp_path):
        shutil.copytree(bases / "bert", tmp_path / "half")
        path = tmp_path / "half/model.safetensors"
        save_file({name: value.half() for name, value in load_file(path).items()}, path, metadata={"format": "pt"})
        shutil.copytree(tmp_path / "half", tmp_path / "single")
        halves = load_file(path)
        path = tmp_path / "single/model.safetensors"
        save_file({name: value.float() for name, value in halves.items()}, path, metadata={"format": "pt"})
        model = load(tmp_path / "half")
        assert weights_hash(model) == weights_hash(load(tmp_path / "single")) != weights_hash(load(bases / "bert"))
        save(apply(model, BitFit()), tmp_path / "tuned")
        assert load(tmp_path / "tuned", base=tmp_path / "single").base.sha256 == model.base.sha256

    def test_the_hash_is_what_it_says(self, tmp_path):
        """Over name, shape and little-endian fp32 of all tensors but the head's, sorted by name."""
        model = Model(Encoder(Shape.uniform(layers=1, hidden=4, heads=2, vocab=5)), SpanHead(4), pooler=True)
        digest = hashlib.sha256()
        for name in sorted(n for n in model.state_dict() if not n.startswith("head.")):
            value = model.state_dict()[name].numpy()
            digest.update(f"{name} {value.shape}\n".encode() + np.ascontiguousarray(value, "<f4").tobytes())
        assert weights_hash(model) == digest.hexdigest()


class TestGoingOn:
    def test_with_the_same_tuning(self, tune, step, packed, tmp_path):
        """Load, apply the same tuning, train on: as if it had never been saved, still a delta on the first base."""
        for tuning in (Adapters(4), LoRA(2), Freeze(1), BitFit()):
            model = tune("bert", tuning, steps=1)
            save(model, tmp_path / "first")
            again = apply(load(tmp_path / "first"), tuning)
            assert trained(again) == trained(model)
            step(model, 2)
            step(again, 2)
            same(model, again, packed)
            save(again, tmp_path / "second")
            assert description(tmp_path / "second")["base"]["source"] == model.base.source
            same(model, load(tmp_path / "second"), packed)

    def test_with_another_stands_on_the_first(self, tune, packed, tmp_path):
        save(tune("bert", Freeze(1)), tmp_path / "first")
        model = tune("bert", LoRA(2), seed=3, source=tmp_path / "first")
        assert model.base.source == str(tmp_path / "first")
        save(model, tmp_path / "second")
        assert sum(t.numel() for t in load_file(tmp_path / "second/delta.safetensors").values()) < 700
        same(model, load(tmp_path / "second"), packed)
        with pytest.raises(QuothError, match="the base of this model lies there"):
            save(model, tmp_path / "first")
        same(model, load(tmp_path / "second"), packed)
        merged = outputs(merge(load(tmp_path / "second")), packed)
        torch.testing.assert_close(merged, outputs(model, packed), atol=1e-5, rtol=1e-5)

    def test_the_base_of_the_base_is_gone(self, tune, bases, tmp_path):
        shutil.copytree(bases / "bert", tmp_path / "root")
        save(tune("bert", Freeze(1), source=tmp_path / "root"), tmp_path / "first")
        save(tune("bert", LoRA(2), source=tmp_path / "first"), tmp_path / "second")
        (tmp_path / "root").rename(tmp_path / "elsewhere")
        refused(tmp_path / "second", r"second: its base .*/first .* cannot be opened \(its own base: .*/root: no such")

    def test_its_own_base(self, tune, tmp_path):
        save(tune("bert", Freeze(1)), tmp_path / "a")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        for folder, other in (("a", "b"), ("b", "a")):
            base = description(tmp_path / folder)["base"]
            description(tmp_path / folder, base={**base, "source": str(tmp_path / other)})
        refused(tmp_path / "a", "it would be its own base")


class TestWrongBase:
    @pytest.fixture
    def tuned(self, tune, bases, tmp_path):
        shutil.copytree(bases / "bert", tmp_path / "base")
        save(tune("bert", Adapters(4), source=tmp_path / "base"), tmp_path / "tuned")
        return tmp_path / "tuned"

    def test_other_weights(self, tuned, tmp_path):
        right = description(tuned)["base"]["sha256"][:12]
        path = tmp_path / "base/model.safetensors"
        tensors = load_file(path)
        tensors["embeddings.LayerNorm.bias"][3] += 1e-6
        save_file(tensors, path, metadata={"format": "pt"})
        found = weights_hash(load(tmp_path / "base"))[:12]
        refused(tuned, rf"tuned: was trained on a base with sha256 {right}…, but {tmp_path}/base has {found}…")

    def test_another_model(self, tuned, bases):
        for family in ("albert", "roberta", "electra"):
            refused(tuned, "was trained on a base with sha256", base=bases / family)

    def test_moved(self, tuned, tmp_path, packed):
        expected = load(tuned)
        (tmp_path / "base").rename(tmp_path / "moved")
        sha = description(tuned)["base"]["sha256"][:12]
        refused(
            tuned,
            rf"its base {tmp_path}/base \(sha256 {sha}…\) cannot be opened "
            rf"\({tmp_path}/base: no such file or folder\); name its new place "
            rf"by base= of load, or as base.source in {tuned}/quoth.json",
        )
        again = load(tuned, base=tmp_path / "moved")
        same(expected, again, packed)
        save(again, tmp_path / "saved")
        assert description(tmp_path / "saved")["base"]["source"] == str(tmp_path / "moved")
        description(tuned, base={**description(tuned)["base"], "source": str(tmp_path / "moved")})
        same(expected, load(tuned), packed)

    @pytest.mark.slow
    def test_a_hub_id(self, bases, tmp_path):
        """A base from the hub's cache keeps its id; the hub itself is switched off."""
        repo = tmp_path / "hub/models--someone--tiny-bert"
        (repo / "refs").mkdir(parents=True)
        (repo / "refs/main").write_text("0" * 40)
        shutil.copytree(bases / "bert", repo / "snapshots" / ("0" * 40))
        code = """
import shutil, sys
from quoth.model import load, save
from quoth.model import apply, weights_hash
from quoth.tune import Adapters
model = apply(load("someone/tiny-bert"), Adapters(4))
save(model, sys.argv[1])
assert weights_hash(load(sys.argv[1])) == weights_hash(model)
shutil.rmtree(sys.argv[2])
try:
    load(sys.argv[1])
except ValueError as error:
    print(error)
"""
        environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", code, str(tmp_path / "tuned"), str(repo)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        assert description(tmp_path / "tuned")["base"]["source"] == "someone/tiny-bert"
        assert re.search(r"its base someone/tiny-bert \(sha256 .*…\) cannot be opened \(.*hub cannot", result.stdout)
        assert load(tmp_path / "tuned", base=bases / "bert").base.source == str(bases / "bert")


class TestDamaged:
    @pytest.fixture
    def tuned(self, tune, tmp_path):
        save(tune("bert", Adapters(4)), tmp_path / "tuned")
        return tmp_path / "tuned"

    def edit(self, tuned, change):
        path = tuned / "delta.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    @pytest.mark.parametrize("keep", [0, 5, 1000, -1])
    def test_truncated(self, tuned, keep):
        path = tuned / "delta.safetensors"
        path.write_bytes(path.read_bytes()[:keep])
        refused(tuned, "delta.safetensors: (truncated|not a safetensors file)")

    def test_something_missing(self, tuned):
        self.edit(tuned, lambda tensors: tensors.pop("encoder.layers.1.ffn_adapter.up.bias"))
        refused(tuned, "tensor encoder.layers.1.ffn_adapter.up.bias is missing")

    def test_something_missing_that_the_base_would_fill_in(self, tuned):
        self.edit(tuned, lambda tensors: tensors.pop("encoder.layers.1.ffn_norm.bias"))
        refused(tuned, "tensor encoder.layers.1.ffn_norm.bias was trained, but is missing from delta.safetensors")

    def test_something_that_was_not_trained(self, tuned):
        self.edit(tuned, lambda tensors: tensors.update({"encoder.layers.0.up.bias": torch.zeros(40)}))
        refused(tuned, "encoder.layers.0.up.bias is in delta.safetensors, but its tuning does not train it")

    def test_something_unknown(self, tuned):
        self.edit(tuned, lambda tensors: tensors.update({"encoder.layers.9.up.bias": torch.zeros(40)}))
        refused(tuned, "encoder.layers.9.up.bias has no place")

    def test_wrong_shape(self, tuned):
        name = "encoder.layers.1.attention_adapter.down.weight"
        self.edit(tuned, lambda tensors: tensors.update({name: torch.zeros(5, 24)}))
        refused(tuned, rf"{name} should have shape \(4, 24\) but has \(5, 24\)")

    def test_not_finite(self, tuned):
        self.edit(tuned, lambda tensors: tensors["head.linear.bias"].fill_(float("nan")))
        refused(tuned, "tensor head.linear.bias holds NaN or infinite values")

    @pytest.mark.parametrize(
        ("change", "line"),
        [
            ({"base": None}, "base is missing; a delta needs an object with source and sha256"),
            ({"base": {"source": "x"}}, "quoth.json: base.sha256 is missing"),
            ({"tuning": None}, "tuning is missing, which a delta needs"),
            ({"tuning": "adapters"}, "tuning is 'adapters'; a table is wanted"),
            ({"tuning": {"kind": "magic"}}, "quoth.json: tuning: kind 'magic' is unknown"),
            ({"tuning": {"kind": "freeze", "layers": 9}}, "quoth.json: tuning: layers is 9, but this encoder has 3"),
            ({"tuning": {"kind": "freeze", "layers": 1}}, "has no place"),
        ],
    )
    def test_wrong_description(self, tuned, change, line):
        description(tuned, **change)
        refused(tuned, line)

    def test_a_full_disk(self, tuned, tune, tmp_path):
        """Safetensors' own error becomes one line that names the file, and the folder that was there stays."""
        before = (tuned / "delta.safetensors").read_bytes()
        model = tune("bert", Adapters(16))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            with pytest.raises(QuothError, match=rf"^{tuned}/delta.safetensors: could not be written \(.*large") as e:
                save(model, tuned)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "\n" not in str(e.value)
        assert (tuned / "delta.safetensors").read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tuned"]
