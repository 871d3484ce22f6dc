"""`Reader`: the same answers as the pipeline of transformers 4.57, and whole datasets as a loop gives them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from quoth import QuothError, Reader
from quoth.data.dataset import Question
from quoth.model.loading import load
from quoth.model.saving import save_hugging_face
from quoth.runtime.transformers_runner import TransformersRunner
from tiny import hugging_face

DATA = Path(__file__).parents[1] / "fixtures"
ASKED = json.loads((DATA / "questions.json").read_text())
PAIRS = [(ASKED["questions"][q], ASKED["passages"][p]) for p, q in ASKED["pairs"]]
PIPELINE = json.loads((DATA / "pipeline_answers.json").read_text())
SETTINGS = {
    "default": {},
    "top 3": {"top_k": 3},
    "short windows, null": {"top_k": 2, "max_seq_len": 96, "doc_stride": 32, "handle_impossible_answer": True},
    "tokens": {"align_to_words": False, "max_answer_len": 30},
}


@pytest.fixture(scope="session")
def reader(span_model):
    return Reader.load(span_model, device="cpu")


@pytest.fixture(scope="module")
def remembering(span_model):
    """A reader that runs the model once for equal windows: the settings below share most of them."""
    reader = Reader.load(span_model, device="cpu")
    known, logits = {}, reader.logits

    def remember(windows):
        key = windows.ids.tobytes()
        if key not in known:
            known[key] = logits(windows)
        return known[key]

    reader.logits = remember
    return reader


def same(found, expected):
    """Equal answers, ties aside: where scores agree to 1e-5 of each other, either order will do."""
    if len(found) != len(expected):
        return False
    for (score, start, end, text), mine in zip(expected, found):
        if (mine["start"], mine["end"], mine["answer"]) != (start, end, text):
            tied = [e for e in expected if abs(e[0] - mine["score"]) <= 1e-5 * max(score, 1e-2)]
            if not any((mine["start"], mine["end"], mine["answer"]) == tuple(e[1:]) for e in tied):
                return False
        if abs(mine["score"] - score) > 1e-4 * score + 2e-7:
            return False
    return True


@pytest.mark.parametrize("name", list(SETTINGS))
@pytest.mark.slow
def test_equals_the_pipeline_on_200_questions(remembering, name):
    found = remembering(question=[q for q, _ in PAIRS], context=[c for _, c in PAIRS], **SETTINGS[name])
    assert len(found) == 200
    wrong = []
    for (question, context), mine, theirs in zip(PAIRS, found, PIPELINE[name]):
        listed = mine if isinstance(mine, list) else [mine]
        assert all(context[a["start"] : a["end"]] == a["answer"] for a in listed)
        if not same(listed, theirs):
            wrong.append((question, listed, theirs))
    assert wrong == []


@pytest.mark.slow
def test_answers_do_not_depend_on_what_is_asked_beside(reader):
    some = PAIRS[161:173]
    together = reader(question=[q for q, _ in some], context=[c for _, c in some])
    for (question, context), batched in zip(some, together):
        alone = reader(question=question, context=context)
        assert (alone["start"], alone["end"]) == (batched["start"], batched["end"])
        assert alone["score"] == pytest.approx(batched["score"], rel=1e-4)


class TestPipelineInputs:
    QUESTION, CONTEXT = PAIRS[0]

    def test_every_form_of_one_question(self, reader):
        one = reader(question=self.QUESTION, context=self.CONTEXT)
        assert set(one) == {"score", "start", "end", "answer"}
        pair = {"question": self.QUESTION, "context": self.CONTEXT}
        assert reader(pair) == one
        assert reader([pair]) == one, "a list of one was unwrapped there too"
        assert reader(data=pair) == one
        assert reader(X=[pair]) == one
        assert reader(question=[self.QUESTION], context=[self.CONTEXT]) == one
        example = type("SquadExample", (), {"question_text": self.QUESTION, "context_text": self.CONTEXT})()
        assert reader(example) == one

    def test_many_questions_of_one_context(self, reader):
        found = reader(question=["Who?", "When?"], context=self.CONTEXT)
        assert isinstance(found, list)
        assert len(found) == 2

    def test_topk_and_max_question_len_are_taken(self, reader):
        found = reader(question=self.QUESTION, context=self.CONTEXT, topk=3, max_question_len=4)
        assert found == reader(question=self.QUESTION, context=self.CONTEXT, top_k=3)

    @pytest.mark.parametrize(
        ("arguments", "culprit"),
        [
            ({}, "needs question= and context="),
            ({"question": "Who?"}, "needs question= and context="),
            ({"question": "", "context": "x"}, "question is empty"),
            ({"question": "Who?", "context": ""}, "context is empty"),
            ({"question": ["a", "b"], "context": ["x"]}, "2 questions and 1 contexts"),
            ({"question": "Who?", "context": ["x", "y"]}, "several contexts"),
            ({"question": [3], "context": ["x"]}, "question is int"),
            ({"question": "Who?", "context": "x", "top_k": 0}, "top_k is 0"),
            ({"question": "Who?", "context": "x", "max_answer_len": 0}, "max_answer_len is 0"),
            ({"question": "Who?", "context": "x", "max_seq_len": 20, "doc_stride": 19}, "overlap=19"),
            ({"question": "Who?", "context": "x", "colour": "red"}, "unknown argument 'colour'"),
        ],
    )
    def test_bad_arguments(self, reader, arguments, culprit):
        with pytest.raises(QuothError, match=culprit):
            reader(**arguments)


class TestLoad:
    def test_hugging_face_folder_equals_quoth_folder(self, reader, span_model, tmp_path):
        save_hugging_face(load(span_model), tmp_path / "hf")
        question, context = PAIRS[20]
        assert Reader.load(tmp_path / "hf", device="cpu")(question=question, context=context) == reader(
            question=question, context=context
        )

    def test_a_model_without_a_span_head(self, minilm):
        with pytest.raises(QuothError, match="has no span head"):
            Reader.load(minilm)

    def test_no_tokenizer(self, tmp_path):
        hugging_face("bert", "ForQuestionAnswering").save_pretrained(tmp_path)
        with pytest.raises(QuothError, match="has no tokenizer"):
            Reader.load(tmp_path)

    def test_any_other_family_through_transformers(self, minilm, tmp_path):
        """MobileBERT is none of our families."""
        config = transformers.MobileBertConfig(
            vocab_size=30522, num_hidden_layers=1, hidden_size=16, embedding_size=16, intra_bottleneck_size=16,
            num_attention_heads=2, intermediate_size=16, num_feedforward_networks=1,
        )  # fmt: skip
        transformers.MobileBertForQuestionAnswering(config).save_pretrained(tmp_path)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name).write_bytes((minilm / name).read_bytes())
        assert Reader.load(tmp_path, device="cpu", precision="bf16").runner.model.dtype == torch.bfloat16
        reader = Reader.load(tmp_path, device="cpu")
        assert isinstance(reader.runner, TransformersRunner)
        some = PAIRS[:5]
        together = reader(question=[q for q, _ in some], context=[c for _, c in some])
        for (question, context), batched in zip(some, together):
            alone = reader(question=question, context=context)
            assert context[alone["start"] : alone["end"]] == alone["answer"]
            assert alone["score"] == pytest.approx(batched["score"], rel=1e-3)


class TestDecode:
    def test_devlins_rule_equals_a_loop(self, reader):
        """All windows, all pairs, by hand, from logits computed one window at a time."""
        pairs = PAIRS[3:170:19] + PAIRS[-3:]
        questions = [Question(str(i), q, c, ()) for i, (q, c) in enumerate(pairs)]
        decoded = reader.decode(questions, n_best=3)
        windows = reader.windows(questions)
        for i, question in enumerate(questions):
            spans, null = {}, math.inf
            for w in np.flatnonzero(windows.question == i):
                start, end = reader.runner(windows.packed([w]))
                null = min(null, float(start[0] + end[0]))
                first, past = windows.passage[w]
                for a in range(first, past):
                    for b in range(a, min(past, a + 30)):
                        key = (int(windows[w].spans[a, 0]), int(windows[w].spans[b, 1]))
                        spans[key] = max(spans.get(key, -math.inf), float(start[a] + end[b]))
            best = max(spans, key=spans.get)
            assert decoded.null[i] == pytest.approx(null, abs=1e-4)
            assert decoded.score[i, 0] == pytest.approx(spans[best], abs=1e-4)
            assert (decoded.start[i, 0], decoded.end[i, 0]) == best
            assert decoded.predictions(math.inf)[i] == question.context[best[0] : best[1]]

    @pytest.mark.slow
    def test_search_finds_what_a_loop_over_windows_finds(self, reader):
        texts = [ASKED["passages"][p] for p in (0, 10, 5)]
        question = "When did it begin?"
        windows = reader.windows([Question(str(i), question, text, ()) for i, text in enumerate(texts)])
        logits = reader.logits(windows)
        behind = []  # of every window by itself, with all its spans
        for window, cls in enumerate(windows.starts[:-1]):
            begin, past = cls + windows.passage[window]
            score, i = max(
                (logits.start[i] + logits.end[j], i) for i in range(begin, past) for j in range(i, min(i + 30, past))
            )
            behind.append((logits.start[cls] + logits.end[cls] - score, window, windows.spans[i, 0]))
        least, window, start = min(behind)
        hits = reader.search(question, texts, top=4, threshold=math.inf)
        assert (hits[0].document, hits[0].answer.start) == (windows.question[window], start)
        assert hits[0].probability == pytest.approx(1 / (1 + math.exp(least)), abs=1e-4)
        assert [h.probability for h in hits] == sorted((h.probability for h in hits), reverse=True)
        assert bool(reader.search(question, texts)) == (least <= 0)
        for hit in hits:
            assert texts[hit.document][hit.answer.start : hit.answer.end] == hit.answer.text

    def test_progress_ends_at_the_end(self, reader):
        told = []
        reader.decode([Question("a", *PAIRS[0], ())], progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (1, 1)

    def test_nan_logits_are_no_answer(self, span_model):
        broken = Reader.load(span_model, device="cpu")
        with torch.no_grad():
            broken.runner.model.head.linear.bias.fill_(float("nan"))
        with pytest.warns(UserWarning, match="window 1 of 1 of question 7"):
            decoded = broken.decode([Question("7", *PAIRS[0], ())])
        assert decoded.predictions() == [""]
        with pytest.warns(UserWarning, match="skipped for NaN"):
            answer = broken(question=PAIRS[0][0], context=PAIRS[0][1])
        assert answer == {"score": 0.0, "start": 0, "end": 0, "answer": ""}

    def test_a_text_that_gives_nan_does_not_count_in_a_search(self, reader, monkeypatch):
        """Skipped windows have no null score, not one of 0: the answer from the other text stands as it was."""
        texts = [ASKED["passages"][6], ASKED["passages"][10]]
        question, exact = "Which word did the ephors send back?", reader.logits

        def shifted(windows, progress=None):
            logits = exact(windows, progress)
            logits.start[:] += 50  # all scores, null too, lie far above 0
            owner = np.repeat(windows.question, windows.lengths)
            logits.start[owner == 1] = math.nan  # the second text, wherever there are two
            return logits

        monkeypatch.setattr(reader, "logits", shifted)
        alone = reader.search(question, texts[:1], top=2)
        with pytest.warns(UserWarning, match="skipped for NaN"):
            both = reader.search(question, texts, top=2)
        assert alone
        assert [(hit.document, hit.answer.start, hit.answer.end) for hit in both] == [
            (hit.document, hit.answer.start, hit.answer.end) for hit in alone
        ]
        for found, wanted in zip(both, alone):  # a batch of two texts may round otherwise than one alone
            assert found.answer.score == pytest.approx(wanted.answer.score, abs=1e-4)
            assert found.probability == pytest.approx(wanted.probability, abs=1e-4)
