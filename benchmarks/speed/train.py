"""Training at the batch sizes that people use, beside transformers: windows a second, and how much of it is kernels.

    python -m benchmarks.speed.train --windows 8 16 32 64 128 512              # CUDA: BERT-base and MiniLM-L12
    python -m benchmarks.speed.train --objective heads gates distillation      # ours alone: graphs, and without
    python -m benchmarks.speed.train --device cpu --shapes tiny --windows 8 --steps 2

Random weights; window lengths follow SQuAD, as in benchmarks.speed.encoder. Ours is the real loop of `quoth.train`:
windows chosen by (seed, epoch, index), batches gathered on the device, the loss read every ten steps. `off` is the
same with `compile = "off"`. transformers is padded to 384, in bf16 autocast with the faster of its attention
implementations, and in fp32 with its defaults. Contenders take turns; medians. `kernels` is the sum of the times of all
kernels of a step by the profiler; `step / kernels` says how much the host adds. GiB: weights, moments, data and the step itself.
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
    steps = argparse.Namespace(**vars(options), batch_size=windows)
    found: dict[str, Contender] = {}
    best = 0.0
    for attention in ("sdpa", "eager"):
        contender = transformers_contenders(shape, steps, windows, "autocast", attention)["training"]
        contender = Contender(contender.step, windows, options.steps)
        run(contender, 3)
        rate = 1 / run(contender, max(3, options.steps // 4))
        if rate > best:
            best, found = rate, {f"transformers bf16, {attention}": contender}
    contender = transformers_contenders(shape, steps, windows, "fp32")["training"]
    found["transformers fp32"] = Contender(contender.step, windows, max(2, options.steps // 2))
    return found


def row(times: Times, windows: int, cuda: bool, warm: int) -> list[str]:
    """A line of the table: windows a second of all, ratios, and the share of kernels."""
    names = [name for name in times.contenders if name.startswith("transformers bf16")]
    base = names[0] if names else OFF
    cells = [str(windows), *(f"{times.rate(name):,.0f}" for name in times.contenders)]
    cells.append(str(times.ratio(OURS, base)))
    if cuda:
        step, kernels = times.step_seconds(OURS), kernel_seconds(times.contenders[OURS].step, warm)
        cells += [f"{1e3 * step:.2f}", f"{1e3 * kernels:.2f}", f"{step / kernels:.2f}"]
    return cells


def report(name: str, objective: str, options: argparse.Namespace, accelerator: Accelerator) -> None:
    """Race and print one shape with one objective at all sizes."""
    shape, cuda, rows = SHAPES[name], options.device == "cuda", []
    head: list[str] = []
    for windows in options.windows:
        task = span_task(max(16 * windows, 256))
        contenders, memory = {}, []
        for label, how in COMPILE.items():
            before = torch.cuda.memory_reserved() if cuda else 0
            loop = OBJECTIVES[objective](shape, task, windows, accelerator, how)
            contenders[label] = loop_contender(loop, windows, options.steps)
            free(options.device)
            memory += [f"{(torch.cuda.memory_reserved() - before) / 2**30:.2f}"] if cuda else []
            # without graphs what a step frees has gone back, so its own peak is added
            memory[-1:] = [f"{float(memory[-1]) + peak_step_gib(contenders[label].step):.2f}"] if cuda else []
        if objective == "tune" and not options.alone:
            contenders |= transformers_at(shape, windows, options)
        times = race(contenders, options.passes, warmup=options.warmup)
        head = ["windows a step", *(label.split(",")[0] if "bf16" in label else label for label in contenders), "×"]
        rows.append([*row(times, windows, cuda, min(10, options.steps)), *memory])
        rates = ", ".join(f"{label} {rate:,.0f}/s" for label, rate in times.rates().items())
        print(f"{name}, {objective}, {windows}: {rates}", flush=True)
        del contenders, times
        free(options.device)
    head += ["step, ms", "kernels, ms", "step / kernels", "graphs, GiB", "without, GiB"] if cuda else []
    print(f"\n{name}, {objective}, windows/s\n\n{markdown(head, rows)}\n", flush=True)


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
