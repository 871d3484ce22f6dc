"""Two versions of the code against each other in one process: they take turns, and the medians are compared.

    python -m benchmarks.speed.old_new --old OLD/src --new src                      # CPU: the embedded reader
    python -m benchmarks.speed.old_new --old OLD/src --new src --only train         # CUDA: training steps
    python -m benchmarks.speed.old_new --old OLD/src --new src --only train --device cpu --shape tiny --batch-size 8

The two source trees hold packages of different names (`laconic` before the renaming, `quoth` now), so that both can be
imported. Measured are

    reader   questions a second of the embedded reader on a CPU, all questions in one call
    train    windows a second of the training loop of the package, encoder with span head, random weights, lengths as in
             SQuAD, bf16 on CUDA; the loss of both is printed, and is the same where the two compute the same
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.questions import sample
from benchmarks.race import Contender, Times, machine, markdown, race

FACT = "The mill at {0} was built by {1} in {2}, and its wheel was carried there from {3} by ox cart. "
NAMES = ("Arden", "Sella", "Genoa", "Skye", "Lyon", "Trondheim", "Mallaig", "Thomas Hale", "Ada Winter", "Otto Brandt")


def find_package(source: Path) -> str:
    """Make the package of a source tree importable: its name."""
    names = [folder.name for folder in source.iterdir() if (folder / "__init__.py").exists()]
    if len(names) != 1:
        raise SystemExit(f"{source}: one package is wanted there, not {', '.join(names) or 'none'}")
    sys.path.insert(0, str(source))
    if Path(str(importlib.import_module(names[0]).__file__)).resolve().parents[1] != source.resolve():
        raise SystemExit(f"{source}: another {names[0]} is imported already; begin with PYTHONPATH={source}")
    return names[0]


# -- the embedded reader ------------------------------------------------------------------------------------


def synthetic_questions(count: int) -> list[tuple[str, str]]:
    """Questions with passages of some 150 tokens."""
    made = []
    for number in range(count):
        names = [NAMES[(number + shift) % len(NAMES)] for shift in range(len(NAMES))]
        facts = [FACT.format(names[i], names[i + 1], 1700 + number % 300, names[i + 2]) for i in range(6)]
        made.append((f"Who built the mill at {names[number % 6]}?", "".join(facts)))
    return made


def reader_contender(package: str, pairs: list[tuple[str, str]]) -> Contender:
    """The reader that ships with a package."""
    reader = importlib.import_module(package).Reader.load("embedded", device="cpu")
    questions, contexts = (list(column) for column in zip(*pairs))
    return Contender(lambda: reader(question=questions, context=contexts), len(pairs))


# -- the training loop --------------------------------------------------------------------------------------


def old_loop(package: str, options: argparse.Namespace) -> Any:
    """The loop of the package before the renaming."""

    def part(module: str) -> Any:
        return importlib.import_module(f"{package}.{module}")

    from accelerate import Accelerator  # torch is optional

    from benchmarks.speed.batches import SHAPES, columns

    shape = part("encoder.shape").Shape.from_json(SHAPES[options.shape].to_json())
    encoder = part("encoder.encoder").Encoder(shape)
    model = part("encoder.model").Model(encoder, part("heads.linear").SpanHead(shape.hidden), pooler=True)
    accelerator = Accelerator(cpu=options.device == "cpu")
    made, answers = columns(16 * options.batch_size)
    examples = part("train.spans").Examples(part("text.columns").Windows(*made), answers)
    settings = part("train.settings").Optimisation(epochs=1000, windows=options.batch_size, rate=1e-5)
    feed = part("train.spans").Feed(examples, accelerator.device)
    return part("train.loop").Loop(model, feed, settings, 0, accelerator)


def new_loop(options: argparse.Namespace) -> Any:
    """The loop of `quoth.train`."""
    from accelerate import Accelerator  # torch is optional

    from benchmarks.speed.batches import SHAPES, span_task, training_loop
    from quoth.encoder.encoder import Encoder
    from quoth.heads.linear import SpanHead
    from quoth.model.model import Model

    shape = SHAPES[options.shape]
    model = Model(Encoder(shape), SpanHead(shape.hidden), pooler=True)
    task = span_task(16 * options.batch_size)
    return training_loop(model, task, options.batch_size, Accelerator(cpu=options.device == "cpu"))


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


def table(what: str, unit: str, times: Times, old: str, new: str) -> str:
    """Medians of both, and how many times as fast the new one is."""
    rows = [[name, f"{times.rate(name):,.1f}", str(times.ratio(name, old))] for name in (old, new)]
    return markdown([what, unit, f"× {old} (least–most of a pass)"], rows)


def compare_readers(old: str, new: str, options: argparse.Namespace) -> None:
    """Race the embedded readers."""
    pairs = synthetic_questions(options.questions)
    if options.data:
        pairs = [(q.question, q.context) for q in sample(options.data, options.questions)]
    times = race({name: reader_contender(name, pairs) for name in (old, new)}, options.passes)
    print(f"{machine('cpu', ('onnxruntime',))}; {len(pairs)} questions, {options.passes} passes in turns\n")
    print(table("embedded reader, CPU", "questions/s", times, old, new))


def compare_training(old: str, new: str, options: argparse.Namespace) -> None:
    """Race the training loops."""
    made = {old: lambda: old_loop(old, options), new: lambda: new_loop(options)}
    contenders, losses = {}, {}
    for name, make in made.items():
        contenders[name], losses[name] = train_contender(make, options)
    times = race(contenders, options.passes, warmup=options.steps)
    settings = f"{options.shape}, {options.batch_size} windows a step, {options.steps} steps a pass"
    print(f"{machine(options.device, ('torch',))}; {settings}, {options.passes} passes in turns\n")
    print(table(f"training, {options.device}", "windows/s", times, old, new))
    widest = max(abs(a - b) for a, b in zip(*losses.values()))
    print(f"\nlosses of the turns of {old}: {', '.join(f'{loss:.6f}' for loss in losses[old])}")
    print(f"largest difference between the two: {widest:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="the src folder of the old version")
    parser.add_argument("--new", type=Path, default=Path("src"), help="the src folder of the new version; src")
    parser.add_argument("--only", choices=("reader", "train"), default="reader", help="what to measure; the reader")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="of train; cuda if there is a GPU")
    parser.add_argument("--data", help="a SQuAD file for the reader; made-up questions without it")
    parser.add_argument("--questions", type=int, default=100, help="of the reader")
    parser.add_argument("--shape", default="base", choices=("base", "large", "minilm", "tiny"), help="of train")
    parser.add_argument("--batch-size", type=int, default=512, help="windows a training step")
    parser.add_argument("--steps", type=int, default=8, help="training steps of a pass")
    parser.add_argument("--passes", type=int, default=7, help="turns of each version")
    options = parser.parse_args()
    new, old = find_package(options.new), find_package(options.old)
    if options.only == "reader":
        compare_readers(old, new, options)
        return
    import torch

    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    compare_training(old, new, options)


if __name__ == "__main__":
    main()
