"""Many heads in one pass of a frozen encoder: what they cost beside the pass itself, and beside as many single runs.

    python -m benchmarks.speed.heads                              # CUDA: BERT-large and MiniLM-L12 shapes
    python -m benchmarks.speed.heads --device cpu --shapes tiny --batch-size 8 --steps 1 --passes 1
    python -m benchmarks.speed.heads --shapes large --each        # each head alone, with its own share of the time
    python -m benchmarks.speed.heads --shapes large --profile     # where the time of a step goes (CUDA)
    python -m benchmarks.speed.heads --batch-size 16 --no-deep    # a small step

Random weights; window lengths follow SQuAD, as in benchmarks.speed.encoder. `forward` is the frozen pass alone, all
states kept, launched kernel by kernel, `forward, graph` the same as a CUDA graph; `together` is the pass, and a step of
every head, as the loop of `quoth.train` runs it. Contenders take turns; medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.race import Contender, Times, machine, race, synchronise
from benchmarks.speed.batches import SHAPES, peak_step_gib, span_task
from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import SpanHead
from quoth.model.model import Model
from quoth.tasks.examples import Request
from quoth.train.frozen_heads import FrozenHeads
from quoth.train.loop import Loop
from quoth.train.settings import Frozen
from quoth.train.training import EVERY

# Every pooling, compression and 1×N CNN row of BERTVision (Jiang, Benge, King), every layer attention of Silva.
HEADS = {
    "lp": "pool(learned) > linear",
    "ap": "pool(average) > linear",
    "lp-cnn-1xn": "pool(learned) > cnn(1xN) > linear",
    "ap-cnn-1xn": "pool(average) > cnn(1xN) > linear",
    "cnn-1xn": "cnn(1xN) > linear",
    "cnn-1xn-dilated": "cnn(1xN, dilation=2) > linear",
    "cnn-1xn-no-dropout": "cnn(1xN, dropout=0) > linear",
    "adapter-64": "compress(64) > linear",
    "adapter-64-skip": "compress(64) > skip > linear",
    "adapter-64-each": "compress(64, each) > linear",
    "adapter-64-each-skip": "compress(64, each) > skip > linear",
    "adapter-386": "compress(386) > linear",
    "adapter-386-skip": "compress(386) > skip > linear",
    "adapter-386-each": "compress(386, each) > linear",
    "adapter-386-each-skip": "compress(386, each) > skip > linear",
    "lp-adapter-386": "pool(learned) > compress(386) > linear",
    "joined": "(compress(386) + pool(learned) > compress(386)) > linear",
    "lp-adapter-cnn-1xn": "pool(learned) > compress(386) > cnn(1xN) > linear",
    "weighted": "attend(weighted)",
    "dot": "attend(dot)",
    "multiplicative": "attend(multiplicative)",
    "encoder-block": "attend(encoder)",
}
DEEP = {
    "lp-adapter-cnn-nxn": "pool(learned) > compress(386) > cnn(NxN) > linear",
    "lp-adapter-inception": "pool(learned) > compress(386) > inception > linear",
    "lp-adapter-xception": "pool(learned) > compress(386) > xception > linear",
}
SQUAD = 131_911  # training windows of SQuAD 2.0 in the paper
AUTHORS = 5 * 3600.0  # seconds that its authors spent on one epoch of one head


class Pass(FrozenHeads):
    """The frozen pass for all states, and no head."""

    def stages(self, requests: Sequence[Request], windows: int) -> list[Callable[[], Tensor]]:
        """One."""

        def only() -> Tensor:
            packed, labels = self.feed.gather(requests[0])
            with torch.no_grad(), self.device.autocast():
                self.model.encoder(packed, tuple(range(len(self.model.encoder.shape.layers) + 1)))
            return torch.zeros(1, device=labels.device)

        return [only]


class Bench:
    """One shape: its encoder, its windows, and the steps to time."""

    def __init__(self, shape: Shape, accelerator: Accelerator, windows: int) -> None:
        self.accelerator = accelerator
        self.model = Model(Encoder(shape), SpanHead(shape.hidden))
        self.task = span_task(8 * windows)
        self.feed = self.task.feed(self.task.examples, accelerator.device, 0)
        self.device = Device.choose(accelerator.device, None)
        self.windows = windows
        self.layers = tuple(range(len(shape.layers) + 1))

    def heads(self, lines: dict[str, str]) -> FrozenHeads:
        """Heads on the encoder of this bench."""
        frozen = Frozen(heads=lines, epochs=1000, batch_size=self.windows)
        return FrozenHeads(self.model, self.task, self.feed, frozen, 0, self.accelerator, self.device)

    def loop(self, heads: FrozenHeads) -> Loop:
        """The loop that trains them."""
        return Loop(heads, self.feed.lengths, heads.frozen, 0, self.accelerator)

    def heads_step(self, heads: dict[str, str]) -> Callable[[], Any]:
        """The pass, and a step of each of these heads."""
        loop = self.loop(self.heads(heads))

        def step() -> None:
            loop.advance()
            if loop.step % EVERY == 0:
                loop.take_losses()

        return step

    def forward_step(self) -> Callable[[], Any]:
        """The pass alone."""
        loop = self.loop(self.heads({"linear": "linear"}))

        def step() -> None:
            indices = loop.batches.batch(*divmod(loop.step, loop.steps_per_epoch))
            packed, _ = self.feed.batch(indices, loop.step)
            with torch.no_grad(), self.device.autocast():
                self.model.encoder(packed, self.layers)
            loop.step += 1

        return step

    def graph_step(self) -> Callable[[], Any]:
        """The pass alone, as the loop runs its steps: as CUDA graphs where it can."""
        heads = self.heads({"linear": "linear"})
        heads.__class__ = Pass
        return self.loop(heads).advance

    def flops(self, line: str) -> float:
        """Of one forward pass of a head alone, by token."""
        heads = self.heads({"head": line})
        packed, _ = self.feed.batch(self.loop(heads).batches.batch(0, 0)[:4], 0)
        with torch.no_grad(), self.device.autocast(), FlopCounterMode(display=False) as counter:
            states = heads.shared.states(packed)
            before = counter.get_total_flops()
            heads.shared.logits(0, states, packed)
            return float(counter.get_total_flops() - before) / packed.tokens


def profile(bench: Bench, name: str, line: str) -> None:
    """Of a head without the pass of the encoder: milliseconds on the GPU and on the host, and its longest kernels."""
    heads = bench.heads({name: line})
    loop = bench.loop(heads)
    packed, labels = bench.feed.batch(loop.batches.batch(0, 0), 0)
    optimiser = loop.trained()[0][2]
    with bench.device.autocast():
        states = heads.shared.states(packed)

    def step() -> None:
        with bench.device.autocast():
            output = heads.shared.logits(0, states, packed)
        bench.task.loss(output, packed, labels).backward()
        optimiser.step()

    heads.heads[name].train()
    step()
    synchronise()
    begin = time.perf_counter()
    for _ in range(5):
        step()
    host = time.perf_counter() - begin  # without waiting for the device
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        step()
        synchronise()
    kernels = sorted(found.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    total = sum(kernel.self_device_time_total for kernel in kernels) / 1e3
    print(f"{name:24s} {total:8.2f} ms GPU, {1e3 * host / 5:6.2f} ms host")
    for kernel in kernels[:7]:
        print(f"    {kernel.self_device_time_total / 1e3:8.3f} ms {kernel.count:4d} × {kernel.key[:100]}")


def report(name: str, options: argparse.Namespace, accelerator: Accelerator) -> None:
    windows = options.batch_size or {"large": 256, "minilm": 1024}.get(name, 8)
    bench = Bench(SHAPES[name], accelerator, windows)
    tokens = int(bench.feed.lengths.sum()) / 8
    print(f"\n{name}: {windows} windows, {tokens:,.0f} tokens a step")
    if options.profile:
        for head in options.heads or HEADS:
            profile(bench, head, {**HEADS, **DEEP}[head])
        return
    together = bench.heads_step(HEADS)
    chosen = {**(HEADS if options.each else {}), **({} if options.no_deep else DEEP)}
    alone = {head: bench.heads_step({head: line}) for head, line in chosen.items()}
    graph = {"forward, graph": bench.graph_step()} if accelerator.device.type == "cuda" else {}
    steps = {"forward": bench.forward_step(), **graph, "together": together, **alone}
    contenders = {head: Contender(step, windows, 2 if head in DEEP else options.steps) for head, step in steps.items()}
    times = race(contenders, options.passes, warmup=options.warmup)
    table(bench, times, accelerator.device.type == "cuda")
    together_seconds = times.step_seconds("together")
    if options.each:
        singles = sum(times.step_seconds(head) for head in HEADS)
        share = together_seconds / singles
        print(f"{len(HEADS)} single-head runs: {1e3 * singles:.1f} ms; together {share:.3f} of it")
    epoch = SQUAD / windows * together_seconds
    print(f"an epoch of SQuAD for all {len(HEADS)}: {epoch:.0f} s; the authors', for one: {AUTHORS:.0f} s")


def table(bench: Bench, times: Times, cuda: bool) -> None:
    """Print what every contender takes."""
    print(f"{'':24s} ms a step   × forward   GiB a step   head's MFLOPs a token")
    base = times.step_seconds("forward")
    for name, contender in times.contenders.items():
        line = {**HEADS, **DEEP}.get(name)
        memory = peak_step_gib(contender.step) if cuda else float("nan")
        flops = f"{bench.flops(line) / 1e6:12.2f}" if line else ""
        value = times.step_seconds(name)
        print(f"{name:24s} {1e3 * value:9.2f} {value / base:11.3f} {memory:12.2f} {flops}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", default=["large", "minilm"], choices=list(SHAPES))
    parser.add_argument("--batch-size", type=int, help="windows a step: 256 for large, 1024 for minilm, else 8")
    parser.add_argument("--steps", type=int, default=8, help="of a pass; 2 of the deep heads")
    parser.add_argument("--passes", type=int, default=3, help="turns of every contender")
    parser.add_argument("--warmup", type=int, default=8, help="steps before the clock runs: all batches once")
    parser.add_argument("--each", action="store_true", help="time each head alone, too")
    parser.add_argument("--no-deep", action="store_true", help="leave N×N, Inception and Xception out")
    parser.add_argument("--profile", action="store_true", help="print the longest kernels of each head instead")
    parser.add_argument(
        "--heads", nargs="+", choices=[*HEADS, *DEEP], help="which to profile; by default all but the deep"
    )
    options = parser.parse_args()
    accelerator = Accelerator(cpu=options.device == "cpu")
    print(machine(options.device, ("torch",)))
    for name in options.shapes:
        report(name, options, accelerator)
        if options.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
