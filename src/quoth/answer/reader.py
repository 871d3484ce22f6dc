"""`Reader`: questions and texts in, answers in the words of the text out.

    reader = Reader.load()                                        # the embedded one; or a folder, or a hub id
    reader(question="Who wrote it?", context="Plutarch wrote it.")  # {"score": …, "start": …, "end": …, "answer": …}

Calling a reader is calling transformers' question-answering pipeline (gone in 5.3): the same arguments, the same keys,
the same answers. `decode` answers whole datasets by Devlin's rule, and `search` asks one question of many texts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quoth.answer.abstention import Abstention, stored_abstention
from quoth.answer.confidence import Confidence, stored_confidence
from quoth.answer.decode import Answer, Decoded, Rule, decode
from quoth.answer.find import READ, Hit, find_answers
from quoth.answer.judge import judge
from quoth.answer.pipeline_inputs import pipeline_questions, whole_number
from quoth.answer.pipeline_rule import pipeline_answers
from quoth.data import Question
from quoth.errors import QuothError
from quoth.hub import ModelFiles, find_model
from quoth.runtime.load import load_runner
from quoth.runtime.logits import SpanLogits
from quoth.runtime.runner import Runner, over_windows
from quoth.windows import Tokenizer, Windows, make_windows
from quoth.windows.settings import window_settings

GROUP = 2048  # questions of one call that are windowed and answered together: bounds memory for any number of them

Progress = Callable[[int, int], None]


class Reader:
    """An extractive reader: a tokenizer and a model that gives span logits."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        *,
        max_length: int = 384,
        step: int = 128,
        max_query_length: int = 64,
        abstention: Abstention | None = None,
        confidence: Confidence | None = None,
        source: str = "",
    ) -> None:
        self.runner = runner
        self.tokenizer = tokenizer
        self.max_length = min(max_length, runner.longest)
        self.step = step
        self.max_query_length = max_query_length
        self.abstention = abstention or Abstention(0.0)
        self.confidence = confidence
        self.source = source

    @classmethod
    def load(
        cls,
        source: str | Path | None = None,
        *,
        device: str | None = None,
        precision: str | None = None,
        runner: Runner | None = None,
    ) -> Reader:
        """Load a reader from a Quoth folder (of an ensemble too), a Hugging Face folder or a hub id.

        source: left out, or the word "embedded", it is the reader that ships with Quoth (`find_model`)
        device: "cpu", "cuda" …; a GPU is used if there is one. precision: "fp32", "bf16" or, on Hopper GPUs, "fp8"; by
        default bf16 on a GPU that has it. Checkpoints of other families than Quoth's are run by transformers, if
        installed. runner: what runs the model instead, such as a process that has loaded it.
        The calibration of the folder, if it keeps one, is in the reader's `confidence`, and its no-answer threshold in
        `abstention`.
        """
        files = find_model(source)
        tokenizer = Tokenizer.load(_tokenizer_folder(files))
        abstention, confidence = stored_abstention(files), stored_confidence(files)
        runner = runner or load_runner(files, device, precision)
        settings: dict[str, Any] = window_settings(files)
        return cls(runner, tokenizer, **settings, abstention=abstention, confidence=confidence, source=files.source)

    def ask(
        self, question: str, context: str | Sequence[str], *, min_score: float | None = None, read: int = READ
    ) -> Answer:
        """The answer to a question in a text, or in several, or that there is none.

        context: a text of any length, or a list of them; then start and end count in the text that has the answer, and
        `find` tells which one it is
        min_score: abstain if the probability that the answer is right is below; left out, abstain if it is more
        probable that the text has no answer. A model without a calibration abstains by its threshold on null - best.
        read: of long texts at most so many passages are read; 0 reads all

        `score` is the probability that the answer is right. Where the reader abstains, `no_answer` is true, the text is
        empty, `score` is the probability that there is no answer, and `rejected` the best one that was not given.
        """
        texts = [context] if isinstance(context, str) else context
        found = self.find(question, texts, min_score=min_score, read=read)
        best = found.hits[0] if found.hits else found.rejected
        answer = replace(best.answer, score=best.probability) if best else None
        if found.hits and answer:
            return answer
        return Answer("", 0, 0, found.no_answer, no_answer=True, rejected=answer)

    def __call__(
        self,
        *args: Any,
        question: str | list[str] | None = None,
        context: str | list[str] | None = None,
        top_k: int | None = None,
        doc_stride: int | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        align_to_words: bool | None = None,
        **more: Any,
    ) -> Any:
        """Answer as transformers' pipeline did: `{"score", "start", "end", "answer"}`, or lists of them.

        question and context: a text or a list of texts each; one context may serve many questions. Or, as the first
        argument, a dict with both keys, or a list of such dicts.
        doc_stride is the *overlap* of two windows, as it was there. max_question_len was ignored there by every fast
        tokenizer, and is here. A dict comes back if one answer was asked for, else a list; many questions are batched
        by length. handle_impossible_answer is the pipeline's own rule, which heeds neither threshold nor calibration
        (`ask` does). batch_size, num_workers and padding are taken and have no effect. As there, scores of equal
        answers are added with top_k above 1, so that they may exceed 1: they are no probabilities.
        """
        questions = pipeline_questions(args, question, context, more)
        topk = more.pop("topk", None)
        if unknown := [name for name in more if name not in ("batch_size", "num_workers", "padding")]:
            raise QuothError(f"unknown argument {unknown[0]!r} to a reader")
        whole_number("batch_size", more.get("batch_size"), 1, least=1)
        count = whole_number("top_k", topk if top_k is None else top_k, 1, least=1)
        longest = whole_number("max_answer_len", max_answer_len, 15, least=1)
        length = min(whole_number("max_seq_len", max_seq_len, self.max_length, least=1), self.runner.longest)
        overlap = whole_number("doc_stride", doc_stride, min(length // 2, 128), least=0)
        results: list[Any] = []
        for first in range(0, len(questions), GROUP):
            group = questions[first : first + GROUP]
            windows = make_windows(group, self.tokenizer, max_length=length, max_query_length=None, overlap=overlap)
            answers = pipeline_answers(
                windows,
                self.logits(windows),
                [asked.context for asked in group],
                windows.words if align_to_words is None or align_to_words else None,
                top_k=count,
                max_answer_tokens=longest,
                no_answer=bool(handle_impossible_answer),
            )
            results.extend([_pipeline_form(answer) for answer in found] for found in answers)
        shaped = [found[0] if len(found) == 1 else found for found in results]
        many = len(args) == 1 and isinstance(args[0], Generator)  # nobody knows how many it gives, even if it is one
        return shaped[0] if len(shaped) == 1 and not many else shaped

    def logits(self, windows: Windows, progress: Progress | None = None) -> SpanLogits:
        """Span logits of all windows, computed in batches of similar length. (T,) float32 each."""
        found = over_windows(windows, self.runner.budget, self.runner, progress)
        start, end = found or (np.empty(0, np.float32),) * 2  # there were no windows
        return SpanLogits(start, end)

    def decode(
        self,
        questions: Sequence[Question],
        *,
        n_best: int = 20,
        max_answer_tokens: int = 30,
        rule: Rule = "devlin",
        step: int | None = None,
        max_query_length: int | None = None,
        progress: Progress | None = None,
    ) -> Decoded:
        """The n best answers to each question of a dataset, each beside "no answer", as run_squad gives them."""
        windows = self.windows(questions, step=step, max_query_length=max_query_length)
        logits = self.logits(windows, progress)
        contexts, ids = [q.context for q in questions], [q.id for q in questions]
        return decode(windows, logits, contexts, n_best=n_best, max_answer_tokens=max_answer_tokens, rule=rule, ids=ids)

    def judge(
        self,
        questions: Sequence[Question],
        *,
        n_best: int = 20,
        max_answer_tokens: int = 30,
        progress: Progress | None = None,
    ) -> Decoded:
        """The same by the calibration of the model: the score is log P(right), null is log P(no answer)."""
        if self.confidence is None:
            raise QuothError(f"{self.source}: has no calibration; fit one with quoth calibrate, or use decode")
        windows = self.windows(questions)
        return judge(
            self.confidence,
            windows,
            self.logits(windows, progress),
            [q.question for q in questions],
            [q.context for q in questions],
            n_best=n_best,
            max_answer_tokens=max_answer_tokens,
            ids=[q.id for q in questions],
        )

    def windows(
        self, questions: Sequence[Question], *, step: int | None = None, max_query_length: int | None = None
    ) -> Windows:
        """The windows that `decode` runs; by default with the settings that the model was trained with."""
        return make_windows(
            questions,
            self.tokenizer,
            max_length=self.max_length,
            max_query_length=self.max_query_length if max_query_length is None else max_query_length,
            step=self.step if step is None else step,
        )

    find = find_answers

    def search(self, question: str, documents: Sequence[str], **settings: Any) -> list[Hit]:
        """The answers alone of `find`, best first; none if the reader abstains."""
        return self.find(question, documents, **settings).hits


def _pipeline_form(answer: Answer) -> dict[str, Any]:
    return {"score": answer.score, "start": answer.start, "end": answer.end, "answer": answer.text}


def _tokenizer_folder(files: ModelFiles) -> Path:
    if not files.tokenizer:
        raise QuothError(f"{files.source}: has no tokenizer; tokenizer.json should lie beside the weights")
    return files.tokenizer[0].parent
