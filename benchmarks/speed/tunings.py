"""Windows a second of the real training loop, beside a bare training step, and with each way of tuning.

    python -m benchmarks.speed.tunings                       # CUDA: BERT-base shape
    python -m benchmarks.speed.tunings --device cpu --shape tiny --batch-size 8 --steps 2

Random weights; window lengths follow SQuAD, as in benchmarks.speed.encoder. `bare` is forward, loss, backward, gradient
clipping and AdamW over batches that already lie on the device. The others are the loop of `quoth.train`: windows chosen
by (seed, epoch, index), batches gathered on the device, the loss read every ten steps. Contenders take turns; medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from accelerate import Accelerator

from benchmarks.race import Contender, machine, race
from benchmarks.speed.batches import SHAPES, peak_step_gib, span_task, training_loop
from benchmarks.speed.encoder import quoth_contenders
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import SpanHead
from quoth.model import apply
from quoth.model.model import Model
from quoth.tasks.span import SpanTask
from quoth.train.training import EVERY
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze, Full
from quoth.tune.lora import LoRA
from quoth.tune.tuning import Tuning

BARE, FULL = "bare step, all weights", "L12 (full)"
TUNINGS: dict[str, Callable[[int], Tuning]] = {
    FULL: lambda layers: Full(),
    "L6": lambda layers: Freeze(layers // 2),
    'L6, norms = "above"': lambda layers: Freeze(layers // 2, norms="above"),
    "L0": lambda layers: Freeze(0),
    "L0-A64": lambda layers: Adapters(64),
    "L0-A768": lambda layers: Adapters(768),
    "L12-A64": lambda layers: Adapters(64, layers="full"),
    "LoRA 16": lambda layers: LoRA(16, 32.0),
    "BitFit": lambda layers: BitFit(),
}


def loop_contender(
    tuning: Tuning, shape: Shape, task: SpanTask, accelerator: Accelerator, options: argparse.Namespace
) -> Contender:
    """The real loop with one way of tuning."""
    model = apply(Model(Encoder(shape), SpanHead(shape.hidden), pooler=True), tuning)
    loop = training_loop(model, task, options.batch_size, accelerator, options.compile)

    def step() -> None:
        loop.advance()
        if loop.step % EVERY == 0:
            loop.take_losses()

    return Contender(step, options.batch_size, options.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", default="base", choices=list(SHAPES))
    parser.add_argument("--batch-size", type=int, default=512, help="windows a step")
    parser.add_argument("--steps", type=int, default=8, help="of a pass")
    parser.add_argument("--passes", type=int, default=3, help="turns of every contender")
    parser.add_argument("--warmup", type=int, default=4, help="steps before the clock runs, at most those of a pass")
    parser.add_argument("--only", nargs="+", default=list(TUNINGS), choices=list(TUNINGS), help="these ways of tuning")
    parser.add_argument("--compile", default="off", choices=["graphs", "off"], help="all graphs of all may not fit")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    accelerator = Accelerator(cpu=options.device == "cpu")
    task = span_task(16 * options.batch_size)
    contenders = {BARE: quoth_contenders(shape, options, options.batch_size)["training"]}
    for name in dict.fromkeys((FULL, *options.only)):
        contenders[name] = loop_contender(TUNINGS[name](len(shape.layers)), shape, task, accelerator, options)
    times = race(contenders, options.passes, warmup=options.warmup)
    print(f"{options.shape}, {options.batch_size} windows a step, {machine(options.device, ('torch',))}")
    print(f"{'':24s} windows/s   × of bare   × of L12   GiB a step")
    for name, contender in contenders.items():
        ratios = [times.ratio(name, base).median for base in (BARE, FULL)]
        memory = peak_step_gib(contender.step) if options.device == "cuda" else float("nan")
        print(f"{name:24s} {times.rate(name):9.1f} {ratios[0]:11.3f} {ratios[1]:10.2f} {memory:12.2f}")


if __name__ == "__main__":
    main()
