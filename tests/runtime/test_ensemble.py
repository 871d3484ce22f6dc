"""Ensembles as folders: members that share an encoder, what is saved, what is refused."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import quoth.runtime.ensemble as module
from quoth.answer.reader import Reader
from quoth.cli import app
from quoth.data.dataset import Question
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.errors import QuothError
from quoth.heads.cacnn import ContextCNN
from quoth.heads.linear import ClassHead, SpanHead
from quoth.hub import find_model
from quoth.model import apply
from quoth.model.checkpoint import open_checkpoint
from quoth.model.loading import load
from quoth.model.model import Model, Origin
from quoth.model.saving import save, save_hugging_face
from quoth.runtime.combine import combine
from quoth.runtime.ensemble import EnsembleRunner, load_ensemble, load_members, save_ensemble
from quoth.runtime.logits import SpanLogits
from quoth.runtime.members import check_together, open_ensemble
from quoth.runtime.torch_runner import TorchRunner
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import Freeze
from quoth.tune.lora import LoRA
from quoth.windows.packed import pack
from tiny import random_windows

HOWS = ("max", "mean", "sum")
HEAD_ALONE = Freeze(0, norms="above")
GPU = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")]


@pytest.fixture(scope="module")
def tiny(minilm, tmp_path_factory):
    """tiny(name, encoder, head): a folder of a small random model, with MiniLM's tokenizer."""
    root = tmp_path_factory.mktemp("tiny")
    tokenizer = find_model(minilm).tokenizer

    def make(name, encoder=0, head=1, build=SpanHead, family="bert", types=2, windows=None):
        if not (root / name).exists():
            torch.manual_seed(encoder)
            body = Encoder(Shape.uniform(layers=2, hidden=16, heads=2, types=types))
            torch.manual_seed(head)
            origin = Origin(tokenizer=tokenizer)
            model = Model(body, build(16), family=family, pooler=family == "bert", origin=origin)
            wide(model)
            model.windows = windows
            save(model, root / name)
        return root / name

    return make


def wide(model):
    """Head weights large enough that probabilities differ."""
    with torch.no_grad():
        for _, value in model.head.named_parameters():
            value.normal_(0, 1.5)


def delta(base, folder, seed, tuning=HEAD_ALONE, build=SpanHead):
    """A head of its own on a base, saved as a delta."""
    model = load(base)
    torch.manual_seed(seed)
    model.head = build(model.encoder.shape.hidden)
    wide(model)
    save(apply(model, tuning), folder)
    return folder


@pytest.fixture
def trio(tiny, tmp_path):
    """A plain model and two heads that are deltas on it, one of them a convolution."""
    base = tiny("plain")
    return [base, delta(base, tmp_path / "a", 5), delta(base, tmp_path / "b", 6, build=ContextCNN)]


BATCH = pack(*random_windows((1, 40, 7, 120), vocab=30522))


def alone(sources, device="cpu", precision=None):
    return [TorchRunner(load(source), device, precision)(BATCH) for source in sources]


class Layers(nn.Module):
    """A head that reads the embeddings and the first layer."""

    task, reads, pooled = "span", (0, 1), False

    def __init__(self, hidden):
        super().__init__()
        self.linear = nn.Linear(2 * hidden, 2)

    def forward(self, states, packed):
        assert len(states) == 2
        return self.linear(torch.cat(states, 1)).unbind(-1)


class TestSharedEncoders:
    @pytest.mark.parametrize(
        ("device", "precision"), [("cpu", "fp32"), ("cpu", "bf16"), pytest.param("cuda", None, marks=GPU)]
    )
    def test_one_pass_and_the_same_bits(self, trio, tiny, device, precision):
        other = tiny("other", encoder=3)
        sources = [trio[0], other, *trio[1:]]
        models = load_members([open_checkpoint(source) for source in sources])
        runner = EnsembleRunner(models, "max", device, precision)
        calls = count_calls(runner)
        found = runner.member_logits(BATCH)
        assert calls == [1, 1]
        runner(BATCH)
        assert calls == [2, 2], "once a batch"
        for mine, (start, end) in zip(found, alone(sources, device, precision)):
            np.testing.assert_array_equal(mine, [start, end])

    def test_each_head_gets_its_layers(self, trio):
        models = load_members([open_checkpoint(source) for source in trio[:2]])
        torch.manual_seed(0)
        third = Model(models[0].encoder, Layers(16))
        models.append(third)
        runner = EnsembleRunner(models, "sum", "cpu")
        calls = count_calls(runner)
        assert [body.layers for body in runner.bodies] == [(-1, 0, 1)]
        found = runner.member_logits(BATCH)
        assert calls == [1]
        for mine, model in zip(found, models):
            np.testing.assert_array_equal(mine, TorchRunner(model, "cpu")(BATCH))

    def test_memory_parameters_and_operations_count_an_encoder_once(self, trio, tiny):
        other = tiny("other", encoder=3)
        models = load_members([open_checkpoint(source) for source in (*trio, other)])
        assert models[0].encoder is models[1].encoder is models[2].encoder
        runner = EnsembleRunner(models, device="cpu")
        alone = [load(source) for source in (*trio, other)]
        encoder = sum(p.numel() for p in alone[0].encoder.parameters())
        heads = sum(p.numel() for model in alone for p in model.head.parameters())
        assert runner.parameters == 2 * encoder + heads
        assert runner.flops(50) == 2 * TorchRunner(alone[0], "cpu").flops(50)

    def test_the_base_of_several_heads_is_read_once(self, trio, tmp_path, monkeypatch):
        loaded = []
        monkeypatch.setattr(module, "load", lambda source: loaded.append(source) or load(source))
        third = delta(trio[0], tmp_path / "c", 7)
        sources = [trio[1], trio[2], third]
        models = load_members([open_checkpoint(source) for source in sources])
        assert loaded == [str(trio[1])]
        for mine, theirs in zip(EnsembleRunner(models, device="cpu").member_logits(BATCH), alone(sources)):
            np.testing.assert_array_equal(mine, theirs)

    def test_equal_encoders_are_found_however_they_are_stored(self, tiny, tmp_path):
        plain = tiny("plain")
        save_hugging_face(load(plain), tmp_path / "theirs")
        twin = load(plain)
        wide(twin)
        save(twin, tmp_path / "twin")
        on_it = delta(plain, tmp_path / "delta", 9)
        far = delta(plain, tmp_path / "norms", 9, Freeze(0))
        changed = load(far)
        with torch.no_grad():
            changed.encoder.layers[1].ffn_norm.bias[3] += 1e-7
        save(changed, far)
        sources = [plain, tmp_path / "theirs", tmp_path / "twin", on_it, far]
        models = load_members([open_checkpoint(source) for source in sources])
        assert [models[0].encoder is model.encoder for model in models] == [True, True, True, True, False]

    def test_settings_that_are_in_no_tensor_keep_encoders_apart(self, tiny, tmp_path):
        """LoRA's α scales B·A and stands in quoth.json alone."""
        model = load(tiny("plain"))
        apply(model, LoRA(2, alpha=16))
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "lora_" in name:
                    value.normal_()
        save(model, tmp_path / "16")
        shutil.copytree(tmp_path / "16", tmp_path / "32")
        text = json.loads((tmp_path / "32/quoth.json").read_text())
        text["tuning"]["alpha"] = 32
        (tmp_path / "32/quoth.json").write_text(json.dumps(text))
        shutil.copytree(tmp_path / "16", tmp_path / "again")
        sources = [tmp_path / "16", tmp_path / "32", tmp_path / "again"]
        models = load_members([open_checkpoint(source) for source in sources])
        assert models[0].encoder is models[2].encoder is not models[1].encoder
        for mine, theirs in zip(EnsembleRunner(models, device="cpu").member_logits(BATCH), alone(sources)):
            np.testing.assert_array_equal(mine, theirs)


def count_calls(runner):
    calls = [0] * len(runner.bodies)
    for number, body in enumerate(runner.bodies):

        def hook(*_, number=number):
            calls[number] += 1

        body.encoder.register_forward_hook(hook)
    return calls


class TestFolders:
    @pytest.mark.parametrize("how", HOWS)
    def test_saved_and_loaded(self, trio, how, tmp_path):
        save_ensemble(trio, tmp_path / "e", how)
        expected = combine([SpanLogits(*both) for both in alone(trio)], BATCH.starts, how)
        start, end = load_ensemble(tmp_path / "e", "cpu")(BATCH)
        np.testing.assert_array_equal(start, expected.start)
        np.testing.assert_array_equal(end, expected.end)

    def test_what_is_written(self, trio, minilm, tmp_path):
        save_ensemble(trio, tmp_path / "e")
        described = json.loads((tmp_path / "e/quoth.json").read_text())
        names = ["members/0", "members/1", "members/2"]
        assert described["format"] == 1
        assert described["ensemble"] == {"how": "max", "members": names, "encoders": [0, 0, 0]}
        weights = [path.relative_to(tmp_path / "e").as_posix() for path in find_model(tmp_path / "e").weights]
        assert weights == ["members/0/model.safetensors", "members/1/delta.safetensors", "members/2/delta.safetensors"]
        base = json.loads((tmp_path / "e/members/1/quoth.json").read_text())["base"]
        assert base["source"] == str(trio[0])
        assert (tmp_path / "e/tokenizer.json").read_bytes() == (minilm / "tokenizer.json").read_bytes()
        for folder in (tmp_path / "e", tmp_path / "e/members", tmp_path / "e/members/0"):
            assert folder.stat().st_mode & 0o111, "a folder that cannot be entered"
        for number, source in enumerate(trio):  # a member is a model folder like any other
            np.testing.assert_array_equal(alone([tmp_path / f"e/members/{number}"]), alone([source]))

    def test_an_ensemble_takes_the_place_of_a_model_folder_only(self, trio, tmp_path):
        save_ensemble(trio, tmp_path / "e", "mean")
        save_ensemble(trio[:2], tmp_path / "e", "sum")
        assert open_ensemble(tmp_path / "e").how == "sum"
        assert len(list((tmp_path / "e/members").iterdir())) == 2
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/thesis.txt").write_text("…")
        with pytest.raises(QuothError, match="not a model folder"):
            save_ensemble(trio, tmp_path / "mine")
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]

    def test_families_without_types_read_beside_those_with_them(self, tiny, tmp_path):
        plain, distil = tiny("plain"), tmp_path / "distil"
        shutil.copytree(tiny("distil", encoder=8, family="distilbert", types=0), distil)
        config = json.loads((distil / "tokenizer_config.json").read_text())
        names = {"model_input_names": ["input_ids", "attention_mask"]}
        (distil / "tokenizer_config.json").write_text(json.dumps({**config, **names}))
        save_ensemble([distil, plain], tmp_path / "e")
        question = [Question("q", "Who?", "She did. They did not.", ())]
        types = Reader.load(tmp_path / "e", device="cpu").windows(question).types
        np.testing.assert_array_equal(types, Reader.load(plain, device="cpu").windows(question).types)
        assert types.any()
        assert load_ensemble(tmp_path / "e", "cpu").member_logits(BATCH).shape == (2, 2, 168)


class TestRefusals:
    def refused(self, members, place, culprit, how="max"):
        before = sorted(path.name for path in place.parent.iterdir())
        with pytest.raises(QuothError, match=culprit) as raised:
            save_ensemble(members, place, how)
        assert "\n" not in str(raised.value)
        assert sorted(path.name for path in place.parent.iterdir()) == before, "something was left behind"

    def test_members(self, trio, tiny, tmp_path):
        place = tmp_path / "e"
        self.refused(trio[:1], place, "at least two members")
        self.refused([], place, "at least two members")
        self.refused(trio, place, "choose max, mean, sum", how="median")
        self.refused([trio[0], tmp_path / "nowhere"], place, "nowhere")
        classes = tiny("classes", build=lambda hidden: ClassHead(hidden, 2))
        self.refused([trio[0], classes], place, "classes: has no span head")
        bare = load(trio[0])
        bare.head = None
        save(bare, tmp_path / "bare")
        self.refused([tmp_path / "bare", trio[0]], place, "bare: has no span head")
        save_ensemble(trio, tmp_path / "first")
        self.refused([trio[0], tmp_path / "first"], place, "first: is an ensemble")

    @pytest.mark.parametrize("change", ["lower", "word", "frame"])
    def test_another_tokenizer(self, change, tiny, tmp_path):
        plain, other = tiny("plain"), tmp_path / "other"
        shutil.copytree(plain, other)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        if change == "lower":
            tokenizer["normalizer"]["lowercase"] = False
        elif change == "word":
            tokenizer["model"]["vocab"]["quothity"] = tokenizer["model"]["vocab"].pop("paris")
        else:  # all types 0
            for piece in tokenizer["post_processor"]["pair"]:
                next(iter(piece.values()))["type_id"] = 0
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.refused([plain, other], tmp_path / "e", "other: does not have the tokenizer of")

    def test_the_same_tokenizer_written_otherwise_will_do(self, tiny, tmp_path):
        plain, other = tiny("plain"), tmp_path / "other"
        shutil.copytree(plain, other)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        tokenizer["truncation"] = tokenizer["padding"] = None
        (other / "tokenizer.json").write_text(json.dumps(tokenizer, indent=7, sort_keys=True))
        assert check_together([open_checkpoint(plain), open_checkpoint(other)]).files.source == str(plain)
        for path in find_model(other).tokenizer:
            path.unlink()
        self.refused([plain, other], tmp_path / "e", "other: has no tokenizer")

    def test_other_windows(self, tiny, tmp_path):
        said = {"max_length": 384, "step": 128, "max_query_length": 64}
        plain, equal = tiny("plain"), tiny("said", windows=said)
        assert check_together([open_checkpoint(plain), open_checkpoint(equal)])
        for key in said:
            other = tiny(key, windows={**said, key: 32})
            self.refused([plain, other], tmp_path / "e", f"{key} 32.*must read the same windows")

    def test_nothing_is_written_over_a_member(self, trio, tmp_path):
        self.refused(trio[1:], trio[1], "lies there; save elsewhere")
        self.refused(trio[1:], trio[0], "its base lies there")
        assert load(trio[1])

    def test_folders_that_were_changed(self, trio, tiny, tmp_path):
        folder = tmp_path / "e"
        save_ensemble(trio, folder)
        described = json.loads((folder / "quoth.json").read_text())

        def changed(culprit, **table):
            text = {**described, "ensemble": {**described["ensemble"], **table}}
            (folder / "quoth.json").write_text(json.dumps(text))
            with pytest.raises(QuothError, match=culprit) as raised:
                load_ensemble(folder)
            assert "\n" not in str(raised.value)

        changed("choose max, mean, sum", how="median")
        changed("members/7: has neither", members=["members/0", "members/1", "members/7"])
        changed("does not lie inside", members=["members/0", "../a", "members/1"])
        changed("does not lie inside", members=["members/0", str(trio[0]), "members/1"])
        changed("a list of folders", members="members/0")
        changed("must number the encoder", encoders=[0])
        shutil.rmtree(folder / "members/2")
        changed("members/2: has neither")
        shutil.copytree(tiny("other", encoder=3), folder / "members/2")
        changed("members/2: its encoder was changed since")

    def test_one_model_is_wanted(self, trio, tmp_path):
        save_ensemble(trio, tmp_path / "e")
        for wrong in (load, open_checkpoint):
            with pytest.raises(QuothError, match="is an ensemble, and one model is wanted here"):
                wrong(tmp_path / "e")
        with pytest.raises(QuothError, match="is one model, not an ensemble"):
            load_ensemble(trio[0])


def quoth(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_counts_what_runs(trio, tiny, tmp_path):
    """Adapters, another encoder, a base that is gone."""
    shutil.copytree(trio[0], tmp_path / "base")
    tuned = delta(tmp_path / "base", tmp_path / "tuned", 3, Adapters(4))
    quoth("ensemble", trio[0], tuned, tiny("other", encoder=3), trio[1], "--out", tmp_path / "e")
    runner = load_ensemble(tmp_path / "e", "cpu")
    for found in (True, False):
        facts = json.loads(quoth("inspect", tmp_path / "e", "--json"))
        assert facts["parameters"] == runner.parameters
        assert [member["encoder"] for member in facts["members"]] == [0, 1, 2, 0]
        assert facts["members"][1]["base"]["found"] is found
        if found:
            (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(QuothError, match=r"members/1: its base .* cannot be opened"):
        load_ensemble(tmp_path / "e")


def test_inspect_needs_no_torch(trio, tmp_path):
    save_ensemble(trio, tmp_path / "e")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.argv = ['quoth', 'inspect', {str(tmp_path / 'e')!r}]\n"
        "from quoth.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "3 models with one encoder" in " ".join(result.stdout.split()), result.stderr


def test_a_mistake_is_one_line_and_code_2(trio, tmp_path):
    command = [sys.executable, "-m", "quoth", "ensemble", *map(str, trio), "--out", str(tmp_path / "e")]
    result = subprocess.run([*command, "--how", "median"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stderr == "quoth: an ensemble cannot be combined by 'median'; choose max, mean, sum\n"
    assert not (tmp_path / "e").exists()
