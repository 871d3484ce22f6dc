"""Two versions of the code against each other in one process: they take turns, and the medians are compared.

    mkdir OLD && git archive COMMIT src benchmarks | tar -x -C OLD
    python -m benchmarks.speed.old_new --old OLD                       # CPU: the embedded reader
    python -m benchmarks.speed.old_new --old OLD --only train          # CUDA: training steps
    python -m benchmarks.speed.old_new --old OLD --only train --device cpu --shape tiny --batch-size 8

The old version is copied under other names (`quoth_old`, `benchmarks_old`), so that both can be imported. Measured are

    reader   questions a second of the embedded reader on a CPU, all questions in one call
    train    windows a second of the training loop of each version, encoder with span head, random weights, lengths as
             in SQuAD, bf16 on CUDA; the loss of both is printed, and is the same where the two compute the same
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.questions import sample
from benchmarks.race import Contender, Times, machine, markdown, race

NEW, OLD = "", "_old"  # what follows the names of packages
NAMED = re.compile(r"\b(quoth|benchmarks)\b")
FACT = "The mill at {0} was built by {1} in {2}, and its wheel was carried there from {3} by ox cart. "
NAMES = ("Arden", "Sella", "Genoa", "Skye", "Lyon", "Trondheim", "Mallaig", "Thomas Hale", "Ada Winter", "Otto Brandt")


def add_old(source: Path, to: Path) -> None:
    """Copy an old version under other names, and make it importable."""
    for folder in (source / "src" / "quoth", source / "benchmarks"):
        if not folder.is_dir():
            raise SystemExit(f"{folder}: is not there; see --help")
        copy = to / (folder.name + OLD)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", "results"))
        for path in copy.rglob("*.py"):
            path.write_text(NAMED.sub(rf"\1{OLD}", path.read_text()))
    sys.path.insert(0, str(to))


# -- the embedded reader ------------------------------------------------------------------------------------


def synthetic_questions(count: int) -> list[tuple[str, str]]:
    """Questions with passages of some 150 tokens."""
    made = []
    for number in range(count):
        names = [NAMES[(number + shift) % len(NAMES)] for shift in range(len(NAMES))]
        facts = [FACT.format(names[i], names[i + 1], 1700 + number % 300, names[i + 2]) for i in range(6)]
        made.append((f"Who built the mill at {names[number % 6]}?", "".join(facts)))
    return made


def reader_contender(version: str, pairs: list[tuple[str, str]]) -> Contender:
    """The reader that ships with a version."""
    reader = importlib.import_module(f"quoth{version}").Reader.load("embedded", device="cpu")
    questions, contexts = (list(column) for column in zip(*pairs))
    return Contender(lambda: reader(question=questions, context=contexts), len(pairs))


# -- the training loop --------------------------------------------------------------------------------------


def make_loop(version: str, options: argparse.Namespace) -> Any:
    """The training loop of a version."""

    def part(module: str) -> Any:
        return importlib.import_module(module)

    from accelerate import Accelerator  # torch is optional

    batches = part(f"benchmarks{version}.speed.batches")
    shape = batches.SHAPES[options.shape]
    encoder = part(f"quoth{version}.encoder.encoder").Encoder(shape)
    head = part(f"quoth{version}.heads.linear").SpanHead(shape.hidden)
    model = part(f"quoth{version}.model.model").Model(encoder, head, pooler=True)
    task = batches.span_task(16 * options.batch_size)
    return batches.training_loop(model, task, options.batch_size, Accelerator(cpu=options.device == "cpu"))


def train_contender(make: Callable[[], Any], options: argparse.Namespace) -> tuple[Contender, list[float]]:
    """Training steps, and the losses of all turns so far: each is read at the end of its turn."""
    import torch

    torch.manual_seed(0)
    loop = make()
    losses: list[float] = []

    def step() -> None:
        loop.advance()
        if loop.step % options.steps == 0:
            losses.extend(loop.take_losses().values())

    return Contender(step, options.batch_size, options.steps), losses


# -- both ---------------------------------------------------------------------------------------------------


def table(what: str, unit: str, times: Times) -> str:
    """Medians of both, and how many times as fast the new one is."""
    rows = [[name, f"{times.rate(name):,.1f}", str(times.ratio(name, "old"))] for name in ("old", "new")]
    return markdown([what, unit, "× old (least–most of a pass)"], rows)


def compare_readers(options: argparse.Namespace) -> None:
    """Race the embedded readers."""
    pairs = synthetic_questions(options.questions)
    if options.data:
        pairs = [(q.question, q.context) for q in sample(options.data, options.questions)]
    times = race({"old": reader_contender(OLD, pairs), "new": reader_contender(NEW, pairs)}, options.passes)
    print(f"{machine('cpu', ('onnxruntime',))}; {len(pairs)} questions, {options.passes} passes in turns\n")
    print(table("embedded reader, CPU", "questions/s", times))


def compare_training(options: argparse.Namespace) -> None:
    """Race the training loops."""
    contenders, losses = {}, {}
    for name, version in (("old", OLD), ("new", NEW)):
        contenders[name], losses[name] = train_contender(partial(make_loop, version, options), options)
    times = race(contenders, options.passes, warmup=options.steps)
    settings = f"{options.shape}, {options.batch_size} windows a step, {options.steps} steps a pass"
    print(f"{machine(options.device, ('torch',))}; {settings}, {options.passes} passes in turns\n")
    print(table(f"training, {options.device}", "windows/s", times))
    widest = max(abs(a - b) for a, b in zip(*losses.values()))
    print(f"\nlosses of the turns of the old one: {', '.join(f'{loss:.6f}' for loss in losses['old'])}")
    print(f"largest difference between the two: {widest:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="a folder with src and benchmarks of the old version")
    parser.add_argument("--only", choices=("reader", "train"), default="reader", help="what to measure; the reader")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="of train; cuda if there is a GPU")
    parser.add_argument("--data", help="a SQuAD file for the reader; made-up questions without it")
    parser.add_argument("--questions", type=int, default=100, help="of the reader")
    parser.add_argument("--shape", default="base", choices=("base", "large", "minilm", "tiny"), help="of train")
    parser.add_argument("--batch-size", type=int, default=512, help="windows a training step")
    parser.add_argument("--steps", type=int, default=8, help="training steps of a pass")
    parser.add_argument("--passes", type=int, default=7, help="turns of each version")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        add_old(options.old, Path(folder))
        if options.only == "reader":
            compare_readers(options)
            return
        import torch

        options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        compare_training(options)


if __name__ == "__main__":
    main()
