"""Ensembles: logits combined as a loop in float64 combines them, and a reader that answers by them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from quoth.answer import decode
from quoth.answer.reader import Reader
from quoth.cli import app
from quoth.data.dataset import Question
from quoth.errors import QuothError, QuothWarning
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.runtime.combine import combine
from quoth.runtime.ensemble import load_ensemble, save_ensemble
from quoth.runtime.logits import SpanLogits
from quoth.tune.freeze import Freeze

ASKED = json.loads((Path(__file__).parents[1] / "fixtures/questions.json").read_text())
HOWS = ("max", "mean", "sum")
HEAD_ALONE = Freeze(0, norms="above")


# -- the truth: a loop over windows and tokens in float64 ------------------------------------------------------------


def loop(members, lengths, how):
    """members: M lists of T logits → T combined ones."""
    result, first = [], 0
    for length in lengths:
        here = [[float(v) for v in member[first : first + length]] for member in members]
        first += length
        chances = [softmax(values) for values in here]
        for token in range(length):
            if how == "sum":
                result.append(math.fsum(values[token] for values in here) if finite(here, token) else -math.inf)
                continue
            column = [chance[token] for chance in chances]
            value = max(column) if how == "max" else math.fsum(column) / len(column)
            result.append(value if math.isnan(value) else math.log(value) if value else -math.inf)
    return result


def softmax(values):
    top = max(values)
    if top == -math.inf:
        return [math.nan] * len(values)
    weights = [math.exp(v - top) for v in values]
    return [w / math.fsum(weights) for w in weights]


def finite(here, token):
    return all(values[token] > -math.inf for values in here)


def close(found, expected):
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.array(expected), rtol=2e-7, atol=2e-7)


@st.composite
def cases(draw):
    """1 to 4 members, 1 to 5 windows of 1 to 6 tokens; many ties and −inf, but a finite logit in every window."""
    logit = st.one_of(st.sampled_from([0.0, 1.0, 1.0, -2.5, -math.inf]), st.floats(-300, 300, width=32))
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    members = []
    for _ in range(draw(st.integers(1, 4))):
        flat = []
        for length in lengths:
            window = draw(st.lists(logit, min_size=length, max_size=length))
            if max(window) == -math.inf:
                window[draw(st.integers(0, length - 1))] = 0.5
            flat += window
        members.append(flat)
    return lengths, members


class TestCombine:
    @pytest.mark.parametrize("how", HOWS)
    @settings(max_examples=100, deadline=None)
    @given(case=cases())
    def test_equals_the_loop(self, how, case):
        lengths, members = case
        starts = np.concatenate([[0], np.cumsum(lengths)])
        values = [np.array(member, np.float32) for member in members]
        found = combine([SpanLogits(value, value[::-1].copy()) for value in values], starts, how)
        close(found.start, loop(values, lengths, how))
        back = np.concatenate([[0], np.cumsum(lengths[::-1])])
        mirrored = combine([SpanLogits(value[::-1].copy(), value) for value in values], back, how)
        close(mirrored.start, loop([value[::-1] for value in values], lengths[::-1], how))

    @settings(max_examples=50, deadline=None)
    @given(case=cases())
    def test_probabilities_stay_in_their_bounds(self, case):
        lengths, members = case
        starts = np.concatenate([[0], np.cumsum(lengths)])
        logits = [SpanLogits(np.array(m, np.float32), np.array(m, np.float32)) for m in members]
        most, mean = (combine(logits, starts, how).start.astype(float) for how in ("max", "mean"))
        assert (most >= mean - 1e-6).all()
        totals = np.add.reduceat(np.exp(mean), starts[:-1])
        np.testing.assert_allclose(totals, 1, atol=1e-5)
        assert (np.add.reduceat(np.exp(most), starts[:-1]) <= len(members) + 1e-5).all()

    def test_no_windows(self):
        none = np.zeros(0, np.float32)
        for how in HOWS:
            assert combine([SpanLogits(none, none)] * 2, np.array([0]), how).start.shape == (0,)

    def test_very_unlikely_tokens_stay_numbers(self):
        """Where a probability is below the smallest float its logarithm is not lost."""
        logits = SpanLogits(np.array([3e38, -3e38, 0, 90, -2000], np.float32), np.zeros(5, np.float32))
        found = combine([logits, logits], np.array([0, 3, 5]), "max").start
        np.testing.assert_allclose(found, [0, -1e38, -1e38, 0, -2090], rtol=1e-6)
        assert (abs(found) <= np.float32(1e38)).all()

    @pytest.mark.parametrize("how", ["max", "mean"])
    @pytest.mark.parametrize("bad", [[math.nan, 1], [math.inf, 1], [-math.inf, -math.inf]])
    def test_a_member_without_probabilities_spoils_its_window_alone(self, how, bad):
        start = np.array([*bad, 2, 3], np.float32)
        good = np.array([0, 1, 2, 3], np.float32)
        found = combine([SpanLogits(good, good), SpanLogits(start, good)], np.array([0, 2, 4]), how)
        assert np.isnan(found.start[:2]).all()
        assert np.isfinite(found.start[2:]).all()
        assert np.isfinite(found.end).all()

    @pytest.mark.parametrize(
        ("arguments", "culprit"),
        [
            (([], np.array([0])), "no members"),
            (([SpanLogits(np.zeros(3), np.zeros(2))], np.array([0, 3])), "member 0 has logits of shapes"),
            (([SpanLogits(np.zeros(3), np.zeros(3))], np.array([0, 3, 3])), "window 1 is empty"),
            (([SpanLogits(np.zeros(3), np.zeros(3))], np.array([0, 3]), "median"), "choose max, mean, sum"),
        ],
    )
    def test_refusals(self, arguments, culprit):
        with pytest.raises(QuothError, match=culprit):
            combine(*arguments)


# -- end to end ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(span_model, tmp_path_factory):
    """MiniLM with its span head, and the same encoder with two heads near it, one a delta."""
    root = tmp_path_factory.mktemp("real")
    members = [span_model]
    for seed, name in enumerate(("plain", "delta")):
        model = load(span_model)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            weight = model.head.linear.weight
            weight += 0.7 * weight.std() * torch.randn(weight.shape, generator=generator)
        save(apply(model, HEAD_ALONE) if name == "delta" else model, root / name)
        members.append(root / name)
    return members


QUESTIONS = [Question(f"{p}-{q}", ASKED["questions"][q], ASKED["passages"][p], ()) for p, q in ASKED["pairs"][:120:20]]
QUESTIONS.append(Question("long", ASKED["questions"][0], " ".join(ASKED["passages"][:8])[:2500], ()))


@pytest.fixture(scope="module")
def by_hand(real):
    """The windows, and each member's logits of them, by readers of their own."""
    readers = [Reader.load(member, device="cpu") for member in real]
    windows = readers[0].windows(QUESTIONS)
    assert (windows.question == len(QUESTIONS) - 1).sum() > 2
    return windows, [reader.logits(windows) for reader in readers]


@pytest.fixture(scope="module")
def together(real, tmp_path_factory):
    """together(how): the folder of all three, saved once, combined in this way."""
    folder = tmp_path_factory.mktemp("together") / "e"
    save_ensemble(real, folder)

    def choose(how):
        described = json.loads((folder / "quoth.json").read_text())
        described["ensemble"]["how"] = how
        (folder / "quoth.json").write_text(json.dumps(described))
        return folder

    return choose


@pytest.mark.parametrize("how", HOWS)
def test_reader_answers_by_the_combined_logits(together, by_hand, how):
    windows, logits = by_hand
    reader = Reader.load(together(how), device="cpu")
    assert reader.runner.parameters == 22_565_376 + 3 * 770
    lengths = windows.lengths.tolist()
    start, end = (np.array(loop([getattr(m, side) for m in logits], lengths, how)) for side in ("start", "end"))
    contexts = [question.context for question in QUESTIONS]
    expected = decode(windows, SpanLogits(start, end), contexts)
    found = reader.decode(QUESTIONS)
    for threshold in (0.0, math.inf):
        assert found.predictions(threshold) == expected.predictions(threshold)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.null, expected.null, rtol=1e-5, atol=1e-5)
    answer = reader(question="Who?", context=QUESTIONS[0].context)
    assert QUESTIONS[0].context[answer["start"] : answer["end"]] == answer["answer"]


def test_of_one_window_the_margin_of_equal_members_is_the_members_own(by_hand):
    """log softmax takes the same number from all logits of a window, which null − best does not see."""
    windows, logits = by_hand
    contexts = [question.context for question in QUESTIONS]
    alone = decode(windows, logits[0], contexts)
    single = np.bincount(windows.question) == 1
    assert single.sum() > 3
    for how, factor in (("max", 1), ("mean", 1), ("sum", 2)):
        both = decode(windows, combine([logits[0]] * 2, windows.starts, how), contexts)
        np.testing.assert_allclose(both.null_minus_best[single], factor * alone.null_minus_best[single], atol=2e-5)


def test_a_window_that_a_member_cannot_judge_is_skipped_aloud(by_hand):
    windows, logits = by_hand
    broken = SpanLogits(logits[1].start.copy(), logits[1].end)
    broken.start[3] = math.nan
    contexts = [question.context for question in QUESTIONS]
    with pytest.warns(QuothWarning, match="skipped for NaN"):
        found = decode(windows, combine([logits[0], broken], windows.starts, "mean"), contexts)
    abstains = [text == "" for text in found.predictions(math.inf)]
    assert abstains == [True] + [False] * (len(QUESTIONS) - 1)


class TestCommands:
    def quoth(self, *arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code in (0, 1), result.output
        return result.stdout

    def test_ensemble_inspect_evaluate_ask(self, real, tmp_path):
        out = tmp_path / "e"
        made = json.loads(self.quoth("ensemble", *real, "--out", out, "--how", "mean", "--json"))
        assert made == json.loads(self.quoth("inspect", out, "--json"))
        assert made["ensemble"] == {"how": "mean", "encoders": 1}
        assert made["parts"] == {"encoders": 22_565_376, "heads": 3 * 770}
        assert [member["encoder"] for member in made["members"]] == [0, 0, 0]
        assert made["members"][2]["base"]["source"] == str(real[0])
        runner = load_ensemble(out, "cpu")
        assert made["parameters"] == runner.parameters
        assert made["flops"]["per_window"] == runner.flops(384)
        shown = self.quoth("inspect", out)
        assert "3 models with one encoder, by mean" in " ".join(shown.split())
        assert "22,567,686" in shown

        data = tmp_path / "data.json"
        asked = [{"id": "1", "question": "Who?", "answers": [], "is_impossible": True}]
        paragraphs = [{"context": QUESTIONS[0].context, "qas": asked}]
        data.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
        cost = json.loads(self.quoth("evaluate", data, "--model", out, "--device", "cpu", "--json"))["cost"]
        assert cost["parameters"] == made["parameters"]
        assert cost["bytes"] == sum(path.stat().st_size for path in out.glob("members/*/*.safetensors"))
        (tmp_path / "text.txt").write_text(QUESTIONS[0].context)
        found = self.quoth(
            "ask", QUESTIONS[0].question, tmp_path / "text.txt", "--model", out, "--device", "cpu", "--json"
        )
        assert json.loads(found)["question"] == QUESTIONS[0].question
