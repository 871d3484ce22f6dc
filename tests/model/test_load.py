"""Loading and saving: folders, hub ids, `.bin`, and every way in which files can be wrong."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save, save_hugging_face
from tiny import batch, hugging_face, random_windows

SHAPES = {
    "plain": Shape.uniform(layers=2, hidden=12, heads=3, vocab=50),
    "tied": Shape(50, 512, 2, 5, 12, (LayerShape(3, 4, 4, 7),) * 3, tied=True),
    "irregular": Shape(50, 64, 1, 6, 11, (LayerShape(2, 3, 5, 4), LayerShape(1, 1, 8, 9))),
}
HEADS = {
    "none": lambda h: None,
    "span": SpanHead,
    "class": lambda h: ClassHead(h, 3, "tanh"),
}


@pytest.fixture
def folder(tmp_path):
    """A tiny BERT with a span head, as transformers saves it."""
    hugging_face("bert", "ForQuestionAnswering").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def edit(folder, change):
    """Rewrite the weight file through `change`, a function on its tensors."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


class TestQuothFolder:
    @pytest.mark.parametrize("head", list(HEADS))
    @pytest.mark.parametrize("shape", list(SHAPES))
    def test_save_and_reload_is_bit_identical(self, shape, head, tmp_path):
        sizes = SHAPES[shape]
        model = Model(Encoder(sizes), HEADS[head](sizes.hidden), pooler=head == "none").eval()
        save(model, tmp_path / "model")
        again = load(tmp_path / "model")
        assert again.encoder.shape == sizes
        assert model.state_dict().keys() == again.state_dict().keys()
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name
        packed = batch(*random_windows((5, 60, 33), vocab=50, types=sizes.types))
        with torch.no_grad():
            assert torch.equal(model.encoder(packed)[0], again.encoder(packed)[0])

    def test_provenance_and_tokenizer_travel(self, minilm, tmp_path):
        save(load(minilm), tmp_path / "a")
        save(load(tmp_path / "a"), tmp_path / "b")
        assert (tmp_path / "b/tokenizer.json").read_bytes() == (minilm / "tokenizer.json").read_bytes()
        assert json.loads((tmp_path / "a/quoth.json").read_text())["provenance"]["source"] == str(minilm)

    def test_an_existing_model_is_replaced_and_nothing_else(self, tmp_path):
        model = Model(Encoder(SHAPES["plain"]))
        save(model, tmp_path / "model")
        save(model, tmp_path / "model")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
        (tmp_path / "diary").mkdir()
        (tmp_path / "diary/today.txt").write_text("dear diary")
        with pytest.raises(QuothError, match="not a model folder"):
            save(model, tmp_path / "diary")
        assert (tmp_path / "diary/today.txt").read_text() == "dear diary"

    def test_a_failed_save_leaves_the_old_model(self, tmp_path, monkeypatch):
        save(Model(Encoder(SHAPES["plain"])), tmp_path / "model")
        before = (tmp_path / "model/model.safetensors").read_bytes()

        def full(*_args, **_kwargs):
            raise OSError("No space left on device")

        monkeypatch.setattr("quoth.model.weights.save_file", full)
        with pytest.raises(OSError, match="No space"):
            save(Model(Encoder(SHAPES["tied"])), tmp_path / "model")
        assert (tmp_path / "model/model.safetensors").read_bytes() == before
        assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]

    @pytest.mark.parametrize(
        ("change", "culprit"),
        [
            ({"format": 99}, "format 99 is not 1"),
            ({"family": "gpt"}, "unknown family 'gpt'; known: bert"),
            ({"shape": None}, "shape is missing"),
            ({"shape": []}, r"shape is \[\]; a table is wanted"),
            ({"style": {"colour": "red"}}, "unknown key style.colour; did you mean style"),
        ],
    )
    def test_a_wrong_description(self, change, culprit, tmp_path):
        save(Model(Encoder(SHAPES["plain"])), tmp_path)
        path = tmp_path / "quoth.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        with pytest.raises(QuothError, match=culprit):
            load(tmp_path)


class TestHuggingFaceFolder:
    def test_a_shape_transformers_cannot_hold(self, tmp_path):
        for name, reason in (("irregular", "layers differ in size"), ("tied", "embedding 5 differs from hidden 12")):
            with pytest.raises(QuothError, match=reason):
                save_hugging_face(Model(Encoder(SHAPES[name])), tmp_path / name)
            assert not (tmp_path / name).exists()

    @pytest.mark.parametrize(
        ("layer", "hidden", "reason"),
        [
            (LayerShape(3, 4, 5, 7), 12, "key size 4 differs from value size 5"),
            (LayerShape(3, 5, 5, 7), 12, "3 × 5 is not hidden = 12"),
        ],
    )
    def test_why_not(self, layer, hidden, reason, tmp_path):
        shape = Shape(50, 64, 2, hidden, hidden, (layer, layer))
        with pytest.raises(QuothError, match=reason):
            save_hugging_face(Model(Encoder(shape)), tmp_path / "x")

    def test_legacy_names_and_prefix_and_extra_tensors(self, folder):
        expected = load(folder).state_dict()

        def age(tensors):
            for name in list(tensors):
                old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
                tensors[old] = tensors.pop(name)
            tensors["cls.predictions.bias"] = torch.zeros(97)

        edit(folder, age)
        model = load(folder)
        assert model.origin.unused == ("cls.predictions.bias",)
        assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())

    def test_bin_and_shards(self, folder, tmp_path):
        expected = load(folder).state_dict()
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
        assert all(torch.equal(v, expected[n]) for n, v in load(folder).state_dict().items())
        (folder / "pytorch_model.bin").unlink()
        names = sorted(tensors)
        shards = {"model-1.safetensors": names[:10], "model-2.safetensors": names[10:]}
        for shard, part in shards.items():
            save_file({n: tensors[n] for n in part}, folder / shard)
        index = {"weight_map": {n: shard for shard, part in shards.items() for n in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert all(torch.equal(v, expected[n]) for n, v in load(folder).state_dict().items())
        (folder / "model-2.safetensors").unlink()
        with pytest.raises(QuothError, match=r"model-2.safetensors is missing"):
            load(folder)

    def test_half_precision_weights_load_as_asked(self, folder):
        edit(folder, lambda tensors: tensors.update({n: v.half() for n, v in tensors.items()}))
        assert load(folder).encoder.embeddings.words.weight.dtype == torch.float32
        assert load(folder, dtype=torch.bfloat16).encoder.embeddings.words.weight.dtype == torch.bfloat16


class TestBadFiles:
    def refused(self, folder, culprit):
        with pytest.raises(QuothError, match=culprit) as caught:
            load(folder)
        assert "\n" not in str(caught.value)

    def test_no_such_thing(self, tmp_path):
        self.refused(tmp_path / "nowhere", "no such file or folder")
        self.refused("neither an id", "neither a folder nor a hub id")
        self.refused(tmp_path, "neither quoth.json nor config.json")

    def test_no_weights(self, folder):
        (folder / "model.safetensors").unlink()
        self.refused(folder, "has no weights; looked for model.safetensors")

    @pytest.mark.parametrize("keep", [0, 5, 100, 5000, -1])
    def test_truncated(self, folder, keep):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:keep])
        self.refused(folder, "model.safetensors: (truncated|not a safetensors file)")

    def test_garbage(self, folder):
        (folder / "model.safetensors").write_bytes(b"\xff" * 4096)
        self.refused(folder, "not a safetensors file")

    def test_a_pickle_that_wants_to_run_code(self, folder, tmp_path):
        class Evil:
            def __reduce__(self):
                return (os.system, (f"touch {tmp_path}/ran",))

        (folder / "model.safetensors").unlink()
        torch.save({"x": Evil()}, folder / "pytorch_model.bin")
        self.refused(folder, "not a weights-only .bin file")
        assert not (tmp_path / "ran").exists()

    def test_wrong_shape_names_tensor_expected_and_found(self, folder):
        name = "bert.encoder.layer.1.attention.self.key.weight"
        edit(folder, lambda tensors: tensors.update({name: torch.zeros(24, 23)}))
        self.refused(folder, rf"{name} should have shape \(24, 24\) but has \(24, 23\)")

    def test_missing_tensor(self, folder):
        name = "bert.encoder.layer.2.output.dense.bias"
        edit(folder, lambda tensors: tensors.pop(name))
        self.refused(folder, f"tensor {name} is missing")

    def test_more_layers_than_the_config_says(self, folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
        self.refused(folder, r"bert.encoder.layer.2.* has no place in the shape")

    @pytest.mark.parametrize("poison", [float("nan"), float("inf")])
    def test_not_finite(self, folder, poison):
        name = "bert.encoder.layer.0.output.LayerNorm.bias"
        edit(folder, lambda tensors: tensors[name][3:4].fill_(poison))
        self.refused(folder, f"tensor {name} holds NaN or infinite")

    @pytest.mark.parametrize(
        ("change", "culprit"),
        [
            ({"model_type": "gpt2"}, "unknown family 'gpt2'; known: bert, albert, roberta, distilbert, electra"),
            ({"model_type": None}, "unknown family None"),
            ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
            ({"hidden_act": "silu"}, "hidden_act 'silu' is not supported"),
            ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
            ({"num_attention_heads": 5}, "hidden_size 24 is not a multiple of num_attention_heads 5"),
        ],
    )
    def test_wrong_config(self, folder, change, culprit):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        self.refused(folder, culprit)

    def test_config_that_is_not_json(self, folder):
        (folder / "config.json").write_text('{"model_type": "bert",')
        self.refused(folder, r"config.json: not valid JSON")


class TestHubId:
    """Hub ids, against a cache made by hand, with the hub switched off."""

    def run(self, cache, *arguments):
        code = "import sys, quoth.model as m; print(sum(p.numel() for p in m.load(sys.argv[1]).parameters()))"
        environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, *(arguments or ("-c", code, "someone/tiny-bert"))]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    @pytest.fixture
    def cache(self, folder, tmp_path):
        repo = tmp_path / "hub/models--someone--tiny-bert"
        (repo / "refs").mkdir(parents=True)
        (repo / "refs/main").write_text("0123456789abcdef0123456789abcdef01234567")
        shutil.copytree(folder, repo / "snapshots/0123456789abcdef0123456789abcdef01234567")
        return tmp_path / "hub"

    @pytest.mark.slow
    def test_loads_from_the_cache(self, cache, folder):
        result = self.run(cache)
        assert result.stderr == ""
        assert int(result.stdout) == sum(p.numel() for p in load(folder).parameters())

    def test_inspect_takes_a_hub_id(self, cache, folder):
        result = self.run(cache, "-m", "quoth", "inspect", "someone/tiny-bert", "--json")
        assert json.loads(result.stdout)["parameters"] == sum(p.numel() for p in load(folder).parameters())

    def test_not_in_the_cache(self, cache):
        result = self.run(cache, "-m", "quoth", "inspect", "someone/else")
        assert result.returncode == 2
        assert result.stderr.startswith("quoth: someone/else: no such folder, and the hub cannot be reached")
        assert result.stderr.count("\n") == 1

    def test_a_complete_cache_is_not_asked_of_the_hub(self, cache, minilm):
        """Without HF_HUB_OFFLINE and without a network, a model in the cache loads at once and prints nothing."""
        snapshot = next((cache / "models--someone--tiny-bert/snapshots").iterdir())
        shutil.copyfile(minilm / "tokenizer.json", snapshot / "tokenizer.json")
        code = """
import sys, huggingface_hub
def refuse(*_, **__): sys.exit("the hub was asked")
huggingface_hub.hf_hub_download = refuse
from quoth.hub import find_model
print(len(find_model("someone/tiny-bert").weights))
"""
        environment = {**os.environ, "HF_HUB_CACHE": str(cache)}
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (result.stdout, result.stderr) == ("1\n", "")
