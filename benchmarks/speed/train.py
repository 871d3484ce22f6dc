"""Training at the batch sizes that people use, beside transformers: windows a second, and how much of it is kernels.

    python -m benchmarks.speed.train --windows 8 16 32 64 128 512              # CUDA: BERT-base and MiniLM-L12
    python -m benchmarks.speed.train --objective heads gates distillation      # ours alone: graphs, and without
    python -m benchmarks.speed.train --device cpu --shapes tiny --windows 8 --steps 2

Random weights; window lengths follow SQuAD, as in benchmarks.speed.encoder. Ours is the real loop of `quoth.train`:
windows chosen by (seed, epoch, index), batches gathered on the device, the loss read every ten steps. `off` is the
same with `compile = "off"`. transformers is padded to 384, in bf16 autocast with the faster of its attention
implementations, and in fp32 with its defaults. Contenders take turns; medians. `kernels` is the sum of the times of all
kernels of a step by the profiler; `step / kernels` says how much the host adds. GiB: weights, moments, data and the
step itself. transformers is left out above 128 windows, where fp32 does not fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator

from benchmarks.race import Contender, Times, machine, markdown, race, run, synchronise
from benchmarks.speed.batches import SHAPES, peak_step_gib, span_task, training_loop
from benchmarks.speed.encoder import free, transformers_contenders
from benchmarks.speed.heads import HEADS
from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import SpanHead
from quoth.model.model import Model
from quoth.prune.cost import Parameters, betas
from quoth.prune.gate_training import GateTraining
from quoth.prune.penalty import make_penalty
from quoth.tasks.span import SpanTask
from quoth.train.distillation import Distillation, DistillationLoss
from quoth.train.fine_tuning import FineTuning
from quoth.train.frozen_heads import FrozenHeads
from quoth.train.loop import Loop
from quoth.train.settings import Compile, Frozen, Optimisation
from quoth.train.training import EVERY

OURS, OFF = "ours", "ours, compile off"
HEADER: tuple[str, ...] = (
    "windows a step", "ours", "compile off", "transformers bf16", "fp32", "× transformers bf16", "× compile off",
    "step, ms", "kernels, ms", "step / kernels", "GiB", "GiB, compile off",
)  # fmt: skip
COMPILE: dict[str, Compile] = {OURS: "graphs", OFF: "off"}


def make_model(shape: Shape) -> Model:
    """An encoder with a span head, random weights."""
    return Model(Encoder(shape), SpanHead(shape.hidden))


def fine_tuning(shape: Shape, task: SpanTask, windows: int, accelerator: Accelerator, how: Compile) -> Loop:
    """All weights on the task's loss."""
    return training_loop(make_model(shape), task, windows, accelerator, how)


def heads(shape: Shape, task: SpanTask, windows: int, accelerator: Accelerator, how: Compile) -> Loop:
    """22 heads on the states of one frozen pass."""
    frozen = Frozen(heads=HEADS, epochs=1000, batch_size=windows, compile=how)
    device = Device.choose(accelerator.device)
    feed = task.feed(task.examples, accelerator.device, 0)
    objective = FrozenHeads(make_model(shape), task, feed, frozen, 0, accelerator, device)
    return Loop(objective, feed.lengths, frozen, 0, accelerator)


def gates(shape: Shape, task: SpanTask, windows: int, accelerator: Accelerator, how: Compile) -> Loop:
    """Pruning gates of all kinds, on the task's loss."""
    settings = Optimisation(epochs=1000, batch_size=windows, learning_rate=1e-3, max_grad_norm=0.0, compile=how)
    device = Device.choose(accelerator.device)
    kinds = "hakvf"
    penalty = make_penalty("l1", shape, kinds, 2e-3, betas(Parameters(), shape, kinds))
    feed = task.feed(task.examples, accelerator.device, 0)
    loss = Distillation(task, DistillationLoss(1.0, 0.0), device)
    objective = GateTraining(make_model(shape), penalty, loss, feed, settings, 0, device)
    return Loop(objective, feed.lengths, settings, 0, accelerator)


def distillation(shape: Shape, task: SpanTask, windows: int, accelerator: Accelerator, how: Compile) -> Loop:
    """All weights on the logits of a teacher of the same shape, which runs beside."""
    settings = Optimisation(epochs=1000, batch_size=windows, learning_rate=1e-5, compile=how)
    device = Device.choose(accelerator.device)
    model, teacher = make_model(shape), make_model(shape).to(device.place).eval()
    loss = Distillation(task, DistillationLoss(), device, teacher)
    feed = task.feed(task.examples, accelerator.device, 0)
    objective = FineTuning(
        model, task, feed, settings, 0, accelerator, lambda packed, labels: loss(model, packed, labels)
    )
    return Loop(objective, feed.lengths, settings, 0, accelerator)


OBJECTIVES = {"tune": fine_tuning, "heads": heads, "gates": gates, "distillation": distillation}


def loop_contender(loop: Loop, windows: int, steps: int) -> Contender:
    """Steps of a loop; the loss is read every ten, as in training. Before, so many that all sizes are captured."""

    def step() -> None:
        loop.advance()
        if loop.step % EVERY == 0:
            loop.take_losses()

    for _ in range(2 * loop.steps_per_epoch if loop.graphs else 3):
        step()
    return Contender(step, windows, steps)


def kernel_seconds(step: Callable[[], Any], steps: int) -> float:
    """The sum of the times of all kernels and copies of a step on the GPU."""
    synchronise()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        for _ in range(steps):
            step()
        synchronise()
    return float(sum(event.self_device_time_total for event in recorded.key_averages())) / steps / 1e6


def transformers_at(shape: Shape, windows: int, options: argparse.Namespace) -> dict[str, Contender]:
    """Transformers at this batch size: bf16 autocast with the faster attention, and fp32 with its defaults."""
    count = max(3, min(options.steps, 1280 // windows) // 2)
    sizes = argparse.Namespace(**vars(options), batch_size=windows)
    found: dict[str, Contender] = {}
    best = 0.0
    for attention in ("sdpa", "eager"):
        contender = transformers_contenders(shape, sizes, windows, "autocast", attention)["training"]
        contender = Contender(contender.step, windows, count)
        run(contender, 3)
        rate = 1 / run(contender, count)
        if rate > best:
            best, found = rate, {f"transformers bf16, {attention}": contender}
    contender = transformers_contenders(shape, sizes, windows, "fp32")["training"]
    found["transformers fp32"] = Contender(contender.step, windows, max(2, count // 2))
    return found


def row(windows: int, times: Times, memory: dict[str, float]) -> list[str]:
    """A line of the table, as `HEADER` names its columns."""
    rates = times.rates()
    half = next((name for name in rates if name.startswith("transformers bf16")), None)
    shown = [OURS, OFF, half, "transformers fp32"]
    cells = [str(windows), *(f"{rates[name]:,.0f}" if name in rates else "–" for name in shown)]
    cells += [str(times.ratio(OURS, base)) if base else "–" for base in (half, OFF)]
    if memory:
        step, kernels = times.step_seconds(OURS), kernel_seconds(times.contenders[OURS].step, 2 * EVERY)
        cells += [f"{1e3 * step:.2f}", f"{1e3 * kernels:.2f}", f"{step / kernels:.2f}"]
        cells += [f"{memory[label]:.2f}" for label in COMPILE]
    return cells


def make_ours(objective: str, shape: Shape, windows: int, steps: int, accelerator: Accelerator) -> Any:
    """Our contenders, and on a GPU the GiB of each: weights, moments, data and a step."""
    task, found, memory = span_task(max(16 * windows, 256)), {}, {}
    for label, how in COMPILE.items():
        cuda = accelerator.device.type == "cuda"
        before = torch.cuda.memory_reserved() if cuda else 0
        found[label] = loop_contender(OBJECTIVES[objective](shape, task, windows, accelerator, how), windows, steps)
        if cuda:
            torch.cuda.empty_cache()  # what stays is weights, moments, data and what graphs hold
            held = (torch.cuda.memory_reserved() - before) / 2**30
            memory[label] = held + peak_step_gib(found[label].step)
    return found, memory


def report(name: str, objective: str, options: argparse.Namespace, accelerator: Accelerator) -> None:
    """Race and print one shape with one objective at all sizes."""
    shape, rows = SHAPES[name], []
    for windows in options.windows:
        steps = max(4, min(options.steps, 1280 // windows))
        contenders, memory = make_ours(objective, shape, windows, steps, accelerator)
        if objective == "tune" and not options.alone and windows <= 128:
            contenders |= transformers_at(shape, windows, options)
        times = race(contenders, options.passes, warmup=options.warmup)
        rows.append(row(windows, times, memory))
        print(f"{name}, {objective}: " + " | ".join(rows[-1]), flush=True)
        del contenders, times
        free(options.device)
    print(f"\n{name}, {objective}, windows/s\n\n{markdown(HEADER[: len(rows[0])], rows)}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", default=["base", "minilm"], choices=list(SHAPES))
    parser.add_argument("--objective", nargs="+", default=["tune"], choices=list(OBJECTIVES))
    parser.add_argument("--windows", type=int, nargs="+", default=[8, 16, 32, 64, 128, 512], help="a step")
    parser.add_argument("--steps", type=int, default=30, help="of a turn")
    parser.add_argument("--passes", type=int, default=5, help="turns of every contender")
    parser.add_argument("--warmup", type=int, default=20, help="steps before the clock runs, at most those of a turn")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    options = parser.parse_args()
    accelerator = Accelerator(cpu=options.device == "cpu")
    print(machine(options.device, ("torch", "transformers")), flush=True)
    for objective in options.objective:
        for name in options.shapes:
            report(name, objective, options, accelerator)


if __name__ == "__main__":
    main()
