"""The probability that an answer is right: its values, its table in quoth.json, and what a reader makes of it."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answer.planted import planted_reader
from quoth import QuothError, Reader
from quoth.answer import Answer, SpanLogits, decode, judge
from quoth.answer.confidence import NO_ANSWER, RIGHT, Confidence, Outcome, store_confidence, stored_confidence
from quoth.answer.features import NAMES, find_candidates
from quoth.answer.find import SearchResult
from quoth.data import Question
from quoth.encoder.shape import LayerShape
from quoth.hub import find_model
from quoth.windows import Tokenizer, make_windows
from support.exporting import make_folder, shape, with_tokenizer

TEXT = "They kept a heron there."
FEATURES = ("margin", "gap", "question_mark")


def confidence(right=(0.5, 0.3, 0.0), none=(-2.0, 0.2, 0.4)):
    return Confidence(
        2,
        FEATURES,
        (0.0, 3.0, 0.5),
        (8.0, 3.0, 0.5),
        Outcome(right, 0.2),
        Outcome(none, 0.1),
    )


finite = st.floats(-1e6, 1e6)


class TestProbabilities:
    @given(st.lists(finite, min_size=3, max_size=3))
    def test_lie_in_0_to_1_and_sum_to_1(self, values):
        p = confidence().probabilities(values)
        assert ((p >= 0) & (p <= 1)).all()
        assert p.sum() == pytest.approx(1)

    @given(st.lists(finite, min_size=2, max_size=2), finite, finite, st.floats(0, 3), st.floats(-3, 0))
    def test_the_margin_raises_right_and_lowers_none(self, others, one, two, of_right, of_none):
        """With others fixed; its weight for right is at least 0, that for no answer at most."""
        fitted = confidence((of_right, 0.3, 0.0), (of_none, 0.2, 0.4))
        low, high = (fitted.probabilities([margin, *others]) for margin in sorted((one, two)))
        assert low[RIGHT] <= high[RIGHT] + 1e-12
        assert low[NO_ANSWER] >= high[NO_ANSWER] - 1e-12

    def test_by_hand(self):
        fitted = confidence()
        z = np.array([1.0, -1.0, 1.0])
        right = math.exp(z @ fitted.right.weights + 0.2)
        none = math.exp(z @ fitted.no_answer.weights + 0.1)
        total = 1 + right + none
        values = [8.0, 0.0, 1.0]
        assert fitted.probabilities(values) == pytest.approx([1 / total, right / total, none / total])
        assert fitted.probabilities([1e9, 0.0, 1.0]) == pytest.approx(fitted.probabilities([32.0, 0.0, 1.0])), "bounded"


class TestFeatures:
    def test_against_a_plain_loop(self, minilm):
        tokenizer = Tokenizer.load(minilm)
        context = "A grey heron and a white stork. The heron was kept in a mill by the river, for years."
        asked = [Question("a", "Which grey bird was kept in the mill?", context, ()), Question("b", "who", TEXT, ())]
        windows = make_windows(asked, tokenizer, max_length=24, step=6, max_query_length=10)
        drawn = np.random.default_rng(0)
        logits = SpanLogits(*drawn.normal(0, 3, (2, len(windows.ids))).astype(np.float32))
        contexts, questions = [q.context for q in asked], [q.question for q in asked]
        names = (*NAMES, "margin*overlap")
        found = find_candidates(windows, logits, questions, contexts, names, n=4)
        assert len(windows) > 2
        for w in range(len(windows)):
            cls = windows.starts[w]
            first, past = cls + windows.passage[w]
            s, e = (np.asarray(x[first:past], np.float64) for x in (logits.start, logits.end))
            p, q = np.exp(s) / np.exp(s).sum(), np.exp(e) / np.exp(e).sum()
            text = contexts[windows.question[w]]
            for k in range(4):
                value = dict(zip(names, found.values[w, k]))
                assert value["margin*overlap"] == value["margin"] * value["overlap"]
                start, end = int(found.spans.start[w, k]), int(found.spans.end[w, k])
                i = int(np.flatnonzero(windows.spans[first:past, 0] == start)[0])
                j = int(np.flatnonzero(windows.spans[first:past, 1] == end)[-1])
                assert value["margin"] == pytest.approx(s[i] + e[j] - logits.start[cls] - logits.end[cls], abs=1e-4)
                assert value["log_probability"] == pytest.approx(math.log(p[i] * q[j]), abs=1e-4)
                assert value["start_entropy"] == pytest.approx(-(p * np.log(p)).sum(), abs=1e-5)
                assert value["end_entropy"] == pytest.approx(-(q * np.log(q)).sum(), abs=1e-5)
                assert value["answer_length"] == pytest.approx(math.log(1 + end - start))
                assert value["question_mark"] == (windows.question[w] == 0)
                begin, stop = windows.spans[first, 0], windows.spans[past - 1, 1]
                assert value["passage_length"] == pytest.approx(math.log(1 + stop - begin))
                if windows.question[w] == 0:
                    words = {"which", "grey", "bird", "kept", "mill"}
                    here = {word.strip(".,").lower() for word in text[begin:stop].split()}
                    assert value["overlap"] == pytest.approx(len(words & here) / 5)
                    assert 0 <= value["near"] <= value["overlap"]
                assert 0 <= value["echo"] <= 1

    def test_the_gap_is_to_the_best_apart(self, minilm):
        reader = planted_reader(minilm, "heron")
        windows = reader.windows([Question("a", "What?", "One heron and another heron.", ())])
        found = find_candidates(windows, reader.logits(windows), ["What?"], ["One heron and another heron."], ("gap",))
        assert found.values[0, 0, 0] == 0, "two herons, as good as each other"
        one = reader.windows([Question("a", "What?", TEXT, ())])
        assert find_candidates(one, reader.logits(one), ["What?"], [TEXT], ("gap",)).values[0, 0, 0] == 16


class TestReader:
    @pytest.mark.parametrize("null", [-30.0, 6.0, 40.0])
    def test_ask_is_typed_and_abstains_by_it(self, minilm, null):
        reader = planted_reader(minilm, "heron", null, confidence=confidence())
        answer = reader.ask("What?", TEXT)
        windows = reader.windows([Question("a", "What?", TEXT, ())])
        values = find_candidates(windows, reader.logits(windows), ["What?"], [TEXT], FEATURES).values[0, 0]
        p = reader.confidence.probabilities(values)
        assert isinstance(answer, Answer)
        assert answer.no_answer == (p[NO_ANSWER] > p[RIGHT]) == (null == 40.0)
        given = answer.rejected if answer.no_answer else answer
        assert given == Answer("heron", 12, 17, pytest.approx(p[RIGHT]))
        if answer.no_answer:
            assert (answer.text, answer.score) == ("", pytest.approx(p[NO_ANSWER]))
        assert reader.ask("What?", TEXT, min_score=0).text == "heron"
        assert reader.ask("What?", TEXT, min_score=p[RIGHT] + 1e-6).no_answer
        assert reader.ask("What?", TEXT, min_score=p[RIGHT] - 1e-6).text == "heron"

    def test_ask_of_nothing_and_of_several(self, minilm):
        reader = planted_reader(minilm, "heron", confidence=confidence())
        assert reader.ask("What?", " ") == Answer("", 0, 0, 1.0, no_answer=True)
        assert reader.ask("What?", ["Nothing.", TEXT]).text == "heron"

    def test_without_a_calibration_the_threshold_decides(self, minilm):
        reader = planted_reader(minilm, "heron", 9.0)
        assert reader.ask("What?", TEXT).no_answer
        assert reader.ask("What?", TEXT).rejected.text == "heron"
        assert reader.ask("What?", TEXT, min_score=0.2).text == "heron"
        with pytest.raises(QuothError, match="has no calibration"):
            reader.judge([Question("a", "What?", TEXT, ())])

    def test_a_threshold_given_is_the_old_rule(self, minilm):
        plain, with_it = (planted_reader(minilm, "heron", 9.0, confidence=one) for one in (None, confidence()))
        for threshold in (0.5, 1.0, math.inf):
            old, new = (one.find("What?", [TEXT, TEXT], threshold=threshold, top=3) for one in (plain, with_it))
            assert old == new
        with pytest.raises(QuothError, match="not both"):
            with_it.find("What?", [TEXT], threshold=1.0, min_score=0.5)

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 10**6), st.floats(-40, 40))
    def test_scores_are_probabilities_and_fall(self, minilm, seed, null):
        reader = planted_reader(minilm, "heron", null, confidence=confidence())
        planted, drawn = reader.runner, np.random.default_rng(seed)

        def noisy(packed):
            start, _ = planted(packed)
            return tuple((start + drawn.normal(0, 5, start.shape)).astype(np.float32) for _ in range(2))

        noisy.budget, reader.runner = planted.budget, noisy
        found = reader.find("Which bird was kept?", [TEXT * 20, "A stork.", TEXT], top=5, min_score=0, read=0)
        scores = [hit.probability for hit in found.hits]
        assert scores
        assert all(0 <= score <= 1 for score in scores)
        assert scores == sorted(scores, reverse=True)
        assert 0 <= found.no_answer <= 1

    def test_find_and_judge_agree(self, minilm):
        """One text, read by `ask` and as a dataset, in one window and in several."""
        reader = planted_reader(minilm, "heron", 3.0, confidence=confidence())
        reader.max_length, reader.step, reader.max_query_length = 40, 10, 12
        texts = [TEXT, TEXT * 12, "Nothing at all. " * 20 + TEXT, "A stork. " * 30]
        questions = [Question(str(i), "Which bird was kept there?", text, ()) for i, text in enumerate(texts)]
        judged = reader.judge(questions)
        given = judged.predictions()
        for i, question in enumerate(questions):
            found: SearchResult = reader.find(question.question, [question.context])
            best = found.hits[0] if found.hits else found.rejected
            assert best.probability == pytest.approx(math.exp(judged.score[i, 0]), rel=1e-5)
            assert found.no_answer == pytest.approx(math.exp(judged.null[i]), rel=1e-5)
            assert given[i] == (found.hits[0].answer.text if found.hits else "")
            assert (np.diff(judged.score[i][np.isfinite(judged.score[i])]) <= 1e-6).all()

    def test_spans_of_one_window_keep_their_order(self, minilm):
        reader = planted_reader(minilm, "heron", confidence=confidence())
        questions = [Question("a", "What?", "One heron, a second heron, a third one.", ())]
        windows = reader.windows(questions)
        logits, contexts = reader.logits(windows), [q.context for q in questions]
        old = decode(windows, logits, contexts)
        new = judge(reader.confidence, windows, logits, ["What?"], contexts)
        assert (old.start == new.start).all()
        assert (old.end == new.end).all()

    def test_more_texts_do_not_silence_an_answer(self, minilm):
        """Each window counts as one: a text beside, which has no answer, changes nothing."""
        texts = ["The miller kept a heron.", *(f"Nothing is told of bird {i}." for i in range(40))]
        reader = planted_reader(minilm, "heron", confidence=confidence())
        alone, among = (reader.find("What did the miller keep?", some) for some in (texts[:1], texts))
        assert [hit.answer for hit in alone.hits] == [hit.answer for hit in among.hits]
        assert alone.hits[0].probability == pytest.approx(among.hits[0].probability, abs=1e-5)
        assert alone.no_answer == pytest.approx(among.no_answer, abs=1e-5)


class TestStored:
    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory, minilm):
        folder = tmp_path_factory.mktemp("confidence") / "m"
        sizes = {"hidden": 32, "embedding": 32, "vocab": 30522, "positions": 96}
        make_folder(folder, shape((LayerShape(2, 16, 16, 64),), **sizes), {"kind": "span"})
        return with_tokenizer(folder, minilm)

    def test_there_and_back(self, folder, tmp_path):
        place = shutil.copytree(folder, tmp_path / "m")
        assert stored_confidence(find_model(place)) is None
        before = json.loads((place / "quoth.json").read_text())
        kept = replace(confidence(), fitted={"cross_fitted": {"a.json": {"f1": 70.0}}})
        store_confidence(place, kept)
        after = json.loads((place / "quoth.json").read_text())
        assert after.pop("calibration")["format"] == 2
        assert after == before
        assert Reader.load(place, device="cpu").confidence == kept

    @pytest.mark.parametrize(
        ("change", "culprit"),
        [
            (3, "calibration is 3, a table is wanted"),
            ({"format": 1}, "calibration.format is 1; this version of Quoth reads 2: run quoth calibrate again"),
            ({"features": ["margin", "gap", "mood"]}, "calibration.features has 'mood', which is none: margin, "),
            ({"features": ["margin", "gap", "gap"]}, "calibration.features must have at least one name, and each once"),
            ({"features": []}, "calibration.features must have at least one name"),
            ({"mean": [1.0]}, "calibration.mean has 1 values for 3 features"),
            ({"scale": [1.0, 0.0, 1.0]}, "calibration.scale is 0.0 for a feature; it must be above 0"),
            ({"scale": [1.0, math.nan, 1.0]}, "calibration.scale is nan"),
            ({"right": {"weights": [1.0, 2.0, 3.0]}}, "calibration.right.bias is missing"),
            ({"right": {"weights": [1.0], "bias": 0}}, "calibration.right.weights has 1 values for 3 features"),
            ({"no_answer": {"weights": [1, 2, "x"], "bias": 0}}, "calibration.no_answer.weights is 'x'"),
            ({"maen": [1]}, "unknown key calibration.maen; did you mean calibration.mean"),
        ],
    )
    def test_a_bad_table_is_one_line(self, folder, tmp_path, cli, change, culprit):
        place = shutil.copytree(folder, tmp_path / "m")
        store_confidence(place, confidence())
        value = json.loads((place / "quoth.json").read_text())
        value["calibration"] = {**value["calibration"], **change} if isinstance(change, dict) else change
        (place / "quoth.json").write_text(json.dumps(value))
        with pytest.raises(QuothError) as caught:
            Reader.load(place, device="cpu")
        assert culprit in str(caught.value)
        assert str(caught.value).startswith(f"{place / 'quoth.json'}: ")
        assert "\n" not in str(caught.value)
