"""The threshold in a model folder: fitted, kept, carried along; and its worth on articles it was not fitted on."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth import QuothError, Reader
from quoth.answer.abstention import Abstention, store_abstention
from quoth.answer.calibration import fit_calibration
from quoth.answer.decode import Decoded
from quoth.data.dataset import Gold, Question
from quoth.encoder.shape import LayerShape
from quoth.runtime.ensemble import save_ensemble
from quoth.score.thresholds import choices, cross_fitted, fit_abstention, fit_threshold
from support.exporting import make_folder, shape, with_tokenizer

KEPT = Abstention(-1.25, 2.5, 0.5, {"data": "dev.json", "questions": 12})


def made(rows, titles):
    """Questions whose best span is right (1), half right (½) or wrong (0), or that have no answer (None)."""
    questions, margins, spans = [], [], []
    for i, ((score, margin), title) in enumerate(zip(rows, titles)):
        context = f"{title or i}: red fox"  # said is "red fox" or ""
        gold = {None: None, 1.0: "red fox", 0.5: "red", 0.0: str(title or i)}[score]
        answers = () if gold is None else (Gold(gold, context.index(gold)),)
        questions.append(Question(str(i), "Who?", context, answers, impossible=gold is None, title=title))
        margins.append(margin)
        spans.append((context.index("red"), len(context)))
    start, end = np.array(spans, np.int32).T[:, :, None]
    score = np.where(np.isinf(margins), -np.inf, 0.0)[:, None]  # +inf: there is no span
    null = np.where(np.isinf(margins), 0.0, margins)
    return questions, Decoded(start, end, score, null, [q.context for q in questions])


def f1s(questions, margins, threshold):
    """By hand: what each question scores at a threshold. "red" of "red fox" has F1 2/3."""
    worth = []
    for question, margin in zip(questions, margins):
        abstains = margin > threshold
        if question.impossible:
            worth.append(1.0 if abstains else 0.0)
        else:
            answered = {"red fox": 1.0, "red": 2 / 3}.get(question.answers[0].text, 0.0)
            worth.append(0.0 if abstains else answered)
    return worth


def threshold_by_hand(questions, margins):
    """Try a value below all margins and one in each gap between them, the last margin for the last; the first best."""
    known = sorted({m for m in margins if m < math.inf})
    if not known:
        return 0.0
    tried = [math.nextafter(known[0], -math.inf)]
    tried += [(a + b) / 2 for a, b in pairwise(known)] + [known[-1]]
    totals = [round(sum(f1s(questions, margins, value)), 9) for value in tried]
    return tried[totals.index(max(totals))]


rows = st.lists(
    st.tuples(st.sampled_from([None, 1.0, 0.5, 0.0]), st.integers(-6, 6).map(lambda n: n / 2) | st.just(math.inf)),
    min_size=2,
    max_size=24,
)


@given(rows, st.data())
def test_cross_fitting_equals_a_loop(rows, data):
    titles = data.draw(
        st.lists(st.sampled_from(["one", "two", "three", "four"]), min_size=len(rows), max_size=len(rows))
    )
    questions, decoded = made(rows, titles)
    margins = [margin for _, margin in rows]
    found = cross_fitted(questions, choices(questions, decoded))
    order = list(dict.fromkeys(titles))
    if len(order) < 2:
        assert found is None, "one title and one passage"
        return
    early = order[: math.ceil(len(order) / 2)]
    halves = [[i for i, t in enumerate(titles) if (t in early) == side] for side in (True, False)]
    scores = [0.0] * len(rows)
    for mine, other, told in zip(halves, halves[::-1], found["halves"]):
        threshold = threshold_by_hand([questions[i] for i in other], [margins[i] for i in other])
        assert told["threshold"] == pytest.approx(threshold, abs=1e-12)
        worth = f1s([questions[i] for i in mine], [margins[i] for i in mine], threshold)
        for i, value in zip(mine, worth):
            scores[i] = value
        assert told["f1"] == pytest.approx(100 * sum(worth) / len(worth))
        assert told["questions"] == len(mine)
        assert told["articles"] == len({titles[i] for i in mine})
    assert found["f1"] == pytest.approx(100 * sum(scores) / len(scores))
    assert found["total"] == len(rows)


def test_passages_are_halved_where_there_are_no_titles():
    questions, decoded = made([(1.0, -1.0), (None, 2.0), (1.0, -2.0), (None, 1.0)], [""] * 4)
    found = cross_fitted(questions, choices(questions, decoded))
    assert [half["articles"] for half in found["halves"]] == [2, 2]
    assert found["f1"] == 100.0
    assert [half["threshold"] for half in found["halves"]] == [-0.5, 0.5]


@given(rows)
def test_the_threshold_is_the_best_there_is(rows):
    questions, decoded = made(rows, ["t"] * len(rows))
    these = choices(questions, decoded)
    margins = [margin for _, margin in rows]
    value = fit_threshold(these)
    assert value == pytest.approx(threshold_by_hand(questions, margins), abs=1e-12)
    assert these.at(value).f1.tolist() == pytest.approx(f1s(questions, margins, value))
    # no question lies so near that the rounding of another runtime would move it, unless all must abstain
    if value >= min(margins):
        assert all(abs(margin - value) > 0.2 for margin in margins if margin != max(m for m in margins if m < math.inf))


def test_fitting_says_what_on():
    questions, decoded = made([(1.0, -1.0), (None, 2.0), (1.0, -2.0), (None, -1.5), (1.0, -0.5)], ["t"] * 5)
    abstention = fit_abstention(choices(questions, decoded), "dev.json")
    assert abstention.threshold == 0.75
    assert abstention.calibration == fit_calibration([-1.0, 2.0, -2.0, -1.5, -0.5], [0, 1, 0, 1, 0], bias=True)
    assert abstention.fitted == {"data": "dev.json", "questions": 5, "f1": 80.0, "HasAns_f1": 100.0, "NoAns_f1": 50.0}


@pytest.mark.parametrize(("score", "which"), [(None, "no question"), (1.0, "every question")])
def test_fitting_asks_for_both_kinds(score, which):
    questions, decoded = made([(score, 1.0), (score, 2.0)], ["t"] * 2)
    with pytest.raises(QuothError, match=f"dev.json: {which} has an answer"):
        fit_abstention(choices(questions, decoded), "dev.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    place = tmp_path_factory.mktemp("abstention")
    sizes = {"hidden": 32, "embedding": 32, "vocab": 30522, "positions": 96}
    for seed, name in enumerate(("one", "two")):
        layers = (LayerShape(2, 16, 16, 64),)
        make_folder(place / name, shape(layers, **sizes), {"kind": "span"}, seed=seed)
        with_tokenizer(place / name, minilm)
    return place


class TestFolder:
    def test_kept_and_read(self, place):
        assert Reader.load(place / "one", device="cpu").abstention == Abstention(0.0, 1.0, 0.0)
        before = json.loads((place / "one/quoth.json").read_text())
        store_abstention(place / "one", KEPT)
        after = json.loads((place / "one/quoth.json").read_text())
        assert after.pop("abstention") == {
            "threshold": -1.25,
            "temperature": 2.5,
            "bias": 0.5,
            "fitted": dict(KEPT.fitted),
        }
        assert after == before
        assert Reader.load(place / "one", device="cpu").abstention == KEPT

    @pytest.mark.parametrize("int8", [False, True])
    def test_an_export_takes_it_along(self, place, tmp_path, int8):
        from quoth.export.export import export

        store_abstention(place / "one", KEPT)
        export(place / "one", tmp_path / "onnx", int8=int8)
        assert Reader.load(tmp_path / "onnx").abstention == KEPT
        export(place / "two", tmp_path / "without")
        assert "abstention" not in json.loads((tmp_path / "without/quoth.json").read_text())

    def test_an_ensemble_has_its_own(self, place, tmp_path):
        from quoth.export.export import export

        store_abstention(place / "one", KEPT)
        save_ensemble([place / "one", place / "two"], tmp_path / "both")
        assert Reader.load(tmp_path / "both", device="cpu").abstention == Abstention(0.0), (
            "a member's is not the ensemble's"
        )
        store_abstention(tmp_path / "both", KEPT)
        assert Reader.load(tmp_path / "both", device="cpu").abstention == KEPT
        export(tmp_path / "both", tmp_path / "onnx")
        assert Reader.load(tmp_path / "onnx").abstention == KEPT

    @pytest.mark.parametrize(
        ("value", "culprit"),
        [
            (3, "abstention is 3, a table is wanted"),
            ({}, "abstention.threshold is missing"),
            ({"threshold": "0"}, "abstention.threshold is '0'; a number is wanted"),
            ({"threshold": True}, "abstention.threshold is True"),
            ({"threshold": math.nan}, "abstention.threshold is nan"),
            ({"threshold": 0, "bias": math.inf}, "abstention.bias is inf"),
            ({"threshold": 0, "temperature": 0}, "abstention.temperature is 0.0; it must be above 0"),
            ({"treshold": 0}, "unknown key abstention.treshold; did you mean abstention.threshold"),
        ],
    )
    def test_a_spoilt_file_is_one_line(self, place, value, culprit):
        path = place / "two/quoth.json"
        kept = path.read_text()
        path.write_text(json.dumps({**json.loads(kept), "abstention": value}))
        try:
            with pytest.raises(QuothError, match=f"quoth.json: {culprit}"):
                Reader.load(place / "two", device="cpu")
        finally:
            path.write_text(kept)

    def test_a_threshold_alone_will_do(self, place):
        path = place / "two/quoth.json"
        kept = path.read_text()
        path.write_text(json.dumps({**json.loads(kept), "abstention": {"threshold": 1}}))
        assert Reader.load(place / "two", device="cpu").abstention == Abstention(1.0)
        path.write_text(kept)

    def test_only_quoth_folders_keep_it(self, minilm):
        with pytest.raises(QuothError, match="there is none; save or export the model as a Quoth folder first"):
            store_abstention(minilm, KEPT)
