"""States of first tokens on disk: the heads become what they would without, and every file is checked before use."""

import json
import os
import resource
import signal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.data import read
from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.train.cache import EVALUATION, TRAINING, Cache, Plan, fill_cache
from quoth.train.log import Status
from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer
from train.cache_material import HEADS, HIDDEN, LAYERS, ROWS, assert_same_stages, recipe
from train.material import farthest, train

DEVICES = {half: Device.choose("cpu", "bf16" if half else "fp32") for half in (False, True)}


class Passes:
    """How many windows the encoder has seen, in how many passes."""

    def __init__(self, monkeypatch):
        self.windows = self.count = 0
        forward = Encoder.forward

        def counted(encoder, packed, layers=(-1,)):
            self.windows += len(packed.lengths)
            self.count += 1
            return forward(encoder, packed, layers)

        monkeypatch.setattr(Encoder, "forward", counted)


class TestTheSame:
    def test_heads_become_what_they_would_without(self, lively, cached, tmp_path):
        facts = train(make_recipe(recipe(lively, cache_gb=0.0)), tmp_path / "run", device="cpu")
        live, kept = facts["frozen"]["0"], cached.facts["frozen"]["0"]
        for name in HEADS:
            assert farthest(tmp_path / "run/frozen/epoch-0" / name / "model", cached.stage / name / "model") < 1e-5
            assert live["heads"][name]["quality"] == kept["heads"][name]["quality"]
        for weights in ("lp", "dot"):
            for key, values in live["heads"][weights]["layer_weights"].items():
                np.testing.assert_allclose(values, kept["heads"][weights]["layer_weights"][key], atol=1e-5)
        assert (live["steps"], kept["steps"]) == (34, 34)
        assert "cache" not in live
        assert kept["cache"]["bytes"] == ROWS * LAYERS * HIDDEN * 4
        assert kept["cache"]["seconds"] > 0

    def test_the_encoder_runs_once_over_every_window(self, lively, tmp_path, monkeypatch):
        passes = Passes(monkeypatch)
        made = recipe(lively, at=(0,), evaluate=[0.5, 1, 1.5])
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert passes.windows == ROWS  # 34 steps and four evaluations saw none
        assert len(facts["frozen"]["0"]["heads"]["lp"]["curve"]) == 4

    def test_the_encoders_own_head_reads_the_cache_too(self, lively, tmp_path):
        """Only the layers that are read are kept; the own head reads one more than the others."""
        made = recipe(lively, {"first": HEADS["first"]}, head=HEADS["pooled"], at=(0, 1))
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        sizes = [facts["frozen"][at]["cache"]["bytes"] for at in ("0", "1")]
        assert sizes == [ROWS * 1 * HIDDEN * 4, ROWS * 2 * HIDDEN * 4]
        assert facts["frozen"]["1"]["heads"]["encoder"]["quality"] == facts["quality"]

    def test_nothing_stays(self, cached):
        assert {path.name for path in cached.stage.iterdir()} == {"log.jsonl", "metrics.json", *HEADS}
        (line,) = [news for news in cached.told if isinstance(news, str) and "computing" in news]
        assert line == f"computing the states of {ROWS} windows once, 5.11e-05 GB"

    def test_without_evaluation_data(self, lively, tmp_path):
        made = recipe(lively)
        made["data"]["evaluate"] = ""
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["cache"]["bytes"] == 100 * LAYERS * HIDDEN * 4


@pytest.fixture(scope="module")
def parts(lively, minilm):
    tokens = Tokenizer.load(minilm)
    questions = [read(str(path)).questions for path in (lively.train, lively.dev)]
    return tuple(make_windows(some, tokens, max_length=64, step=24, max_query_length=24) for some in questions)


@pytest.fixture(scope="module")
def caches(lively, parts, tmp_path_factory):
    """The file in fp32 and in bf16."""
    model = load(lively.model)
    found = {}
    for half in (False, True):
        stage = tmp_path_factory.mktemp("stage")
        plan = Plan(parts, (0, 1, 2), HIDDEN, half)
        fill_cache(stage, plan, "hash", model, DEVICES[half], lambda: None)
        assert (stage / "cache/states.bin").stat().st_size == plan.bytes == ROWS * LAYERS * HIDDEN * (2 if half else 4)
        found[half] = Cache(stage, plan, torch.device("cpu"))
    return found, model


class TestFile:
    @settings(deadline=None, max_examples=25)
    @given(st.data())
    def test_rows_are_the_states_of_first_tokens(self, caches, parts, given_data):
        """Any windows in any order, any of the layers; each window by itself through the encoder."""
        half = given_data.draw(st.booleans())
        part = given_data.draw(st.sampled_from([TRAINING, EVALUATION]))
        indices = given_data.draw(st.lists(st.integers(0, len(parts[part]) - 1), min_size=1, max_size=5))
        layers = sorted(given_data.draw(st.sets(st.integers(0, 2), min_size=1)))
        (cache, model) = caches[0][half], caches[1]
        packed, states = cache.batch(part, np.array(indices), layers)
        assert states.shape == (len(layers), len(indices), HIDDEN)
        assert states.dtype == (torch.bfloat16 if half else torch.float32)
        assert packed.lengths == (1,) * len(indices)
        assert packed.starts.tolist() == list(range(len(indices) + 1))
        for i, index in enumerate(indices):
            with torch.no_grad(), DEVICES[half].autocast():
                alone = model.encoder(parts[part].packed([index]).map(torch.from_numpy), layers)
            for number, state in enumerate(alone):
                close = {"atol": 0.1, "rtol": 0.05} if half else {"atol": 1e-5, "rtol": 1e-5}
                torch.testing.assert_close(states[number, i], state[0], **close)

    def test_bf16_keeps_every_bit(self, caches, parts):
        """All windows of the longest length in one batch, as they were computed."""
        (cache, model) = caches[0][True], caches[1]
        windows = parts[EVALUATION]
        order = np.argsort(-windows.lengths, kind="stable")[: 2048 // int(windows.lengths.max())]
        with torch.no_grad(), DEVICES[True].autocast():
            packed = windows.packed(order).map(torch.from_numpy)
            states = torch.stack([state[packed.starts[:-1].long()] for state in model.encoder(packed, (0, 1, 2))])
        found = cache.batch(EVALUATION, order, (0, 1, 2))[1]
        assert states.dtype == torch.bfloat16
        assert torch.equal(found.contiguous().view(torch.int16), states.view(torch.int16))

    @pytest.fixture
    def made(self, lively, parts, tmp_path):
        """A function that makes the cache anew where it has to: what it says."""
        model, plan = load(lively.model), Plan(parts, (0, 2), HIDDEN, False)

        def make():
            told = []
            fill_cache(tmp_path, plan, "hash", model, DEVICES[False], lambda: None, told.append)
            return told

        return make

    @pytest.mark.parametrize(
        "what", ["a bit", "the end", "more", "json", "no json", "no states", "encoder", "data", "layers", "precision"]
    )
    def test_a_file_that_is_not_right_is_made_again(self, made, tmp_path, what):
        size = "computing the states of 133 windows once, 3.4e-05 GB"
        assert [made(), made()] == [[size], []]
        states, about = tmp_path / "cache/states.bin", tmp_path / "cache/cache.json"
        good, facts, reason = states.read_bytes(), json.loads(about.read_text()), "is damaged"
        spoilt = {"a bit": good[:99] + bytes([good[99] ^ 1]) + good[100:], "the end": good[:-4], "more": good + b"0000"}
        if what in spoilt:
            states.write_bytes(spoilt[what])
            reason = "states.bin is damaged"
        elif what == "json":
            about.write_text(about.read_text()[:-5])
        elif what.startswith("no "):
            (about if what == "no json" else states).unlink()
        else:
            about.write_text(json.dumps({**facts, what: {"layers": [0, 1]}.get(what, "0")}))
            reason = f"the {what} has changed since it was written"
        assert made() == [f"{tmp_path / 'cache'}: {reason}; {size}"]
        assert states.read_bytes() == good
        assert {**json.loads(about.read_text()), "seconds": 0} == {**facts, "seconds": 0}
        assert {path.name for path in tmp_path.iterdir()} == {"cache"}

    def test_a_full_disk(self, made, tmp_path):
        """A limit on the size of files stands for it."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        try:
            with pytest.raises(QuothError) as raised:
                made()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        place = tmp_path / "cache"
        assert str(raised.value) == f"{place}: could not be written (File too large); make room for 3.4e-05 GB"
        assert not list(tmp_path.iterdir())


def stop_at(step):
    def tell(news):
        if isinstance(news, Status) and news.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return tell


class TestInterrupted:
    @pytest.fixture
    def stopped(self, lively, tmp_path):
        with pytest.raises(Interrupted, match="stopped at step 10 of 34"):
            train(make_recipe(recipe(lively)), tmp_path / "run", device="cpu", tell=stop_at(10))
        stage = tmp_path / "run/frozen/epoch-0"
        assert {path.name for path in (stage / "cache").iterdir()} == {"cache.json", "states.bin"}
        return stage

    def go_on(self, lively, stage, monkeypatch):
        """What is said, and how many windows the encoder sees."""
        passes, told = Passes(monkeypatch), []
        train(make_recipe(recipe(lively)), stage.parents[1], device="cpu", tell=told.append)
        return [line for line in told if isinstance(line, str) and "computing" in line], passes.windows

    def test_the_file_is_used_again(self, lively, cached, stopped, monkeypatch):
        assert self.go_on(lively, stopped, monkeypatch) == ([], 0)
        assert_same_stages(stopped, cached.stage)

    def test_a_spoilt_file_is_made_again(self, lively, cached, stopped, monkeypatch):
        path = stopped / "cache/states.bin"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        said, seen = self.go_on(lively, stopped, monkeypatch)
        (line,) = said
        assert line.startswith(f"{stopped / 'cache'}: states.bin is damaged; computing the states of {ROWS} windows")
        assert seen == ROWS
        assert_same_stages(stopped, cached.stage)

    def test_sigterm_while_it_is_made(self, lively, cached, tmp_path):
        def tell(news):
            if isinstance(news, str) and "computing" in news:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(Interrupted, match="stopped at step 0 of 34"):
            train(make_recipe(recipe(lively)), tmp_path / "run", device="cpu", tell=tell)
        stage = tmp_path / "run/frozen/epoch-0"
        assert not [path for path in stage.rglob("*") if path.is_file()]
        train(make_recipe(recipe(lively)), tmp_path / "run", device="cpu")
        assert_same_stages(stage, cached.stage)


class TestTooLarge:
    @pytest.mark.parametrize("at", [(0,), (1,)])
    def test_is_refused_before_anything_is_trained(self, lively, tmp_path, at):
        with pytest.raises(QuothError) as raised:
            train(make_recipe(recipe(lively, at=at, cache_gb=1e-6)), tmp_path / "run", device="cpu")
        assert str(raised.value) == (
            "recipe: frozen.cache_gb is 1e-06 GB, but the states of 133 windows at 3 layer(s) take 5.11e-05 GB; "
            "raise it, or set it to 0"
        )
        assert not (tmp_path / "run/recipe.toml").exists()

    def test_just_enough_is_enough(self, lively, parts):
        plan = Plan(parts, (0, 2), HIDDEN, True)
        assert plan.bytes == ROWS * 2 * HIDDEN * 2
        plan.check(plan.bytes / 1e9)
        with pytest.raises(QuothError):
            plan.check((plan.bytes - 1) / 1e9)
