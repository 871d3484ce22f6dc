"""Many heads in one pass of a frozen encoder: what they cost beside the pass itself, and beside as many single runs.

    python benchmarks/heads.py                              # CUDA: BERT-large and MiniLM-L12 shapes
    python benchmarks/heads.py --device cpu --shapes tiny --windows 8 --steps 1 --passes 1
    python benchmarks/heads.py --shapes large --each        # each head alone, with its own share of the time
    python benchmarks/heads.py --shapes large --profile     # where the time of a step goes (CUDA)

Random weights; window lengths follow SQuAD, as in benchmarks/encoder.py. `forward` is the frozen pass alone, all states
kept; `together` is `FrozenLoop`: the pass, and a step of every head. Contenders take turns; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.flop_counter import FlopCounterMode

from encoder import SHAPES
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import SpanHead
from quoth.model.model import Model
from quoth.score.cost import hardware
from quoth.tasks.span_data import Feed
from quoth.train.frozen import FrozenLoop
from quoth.train.harness import EVERY
from quoth.train.loop import task_loss
from quoth.train.settings import Frozen
from train import examples, peak

# Every pooling, compression, 1×N CNN and layer-attention row of papers 2 and 4.
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


class Bench:
    """One shape: its encoder, its windows, and the steps to time."""

    def __init__(self, shape: Shape, accelerator: Accelerator, windows: int) -> None:
        self.accelerator = accelerator
        self.model = Model(Encoder(shape), SpanHead(shape.hidden))
        self.examples = examples(8 * windows)
        self.feed = Feed(self.examples, accelerator.device)
        self.windows = windows
        self.layers = tuple(range(len(shape.layers) + 1))

    def loop(self, heads: dict[str, str]) -> FrozenLoop:
        """Heads on the encoder of this bench."""
        frozen = Frozen(heads=heads, epochs=1000, windows=self.windows)
        return FrozenLoop(self.model, self.feed, frozen, 0, self.accelerator, None)

    def heads_step(self, heads: dict[str, str]) -> Callable[[], Any]:
        """The pass, and a step of each of these heads."""
        loop = self.loop(heads)

        def step() -> None:
            loop.advance()
            if loop.step % EVERY == 0:
                loop.take_losses()

        return step

    def forward_step(self) -> Callable[[], Any]:
        """The pass alone."""
        loop = self.loop({"linear": "linear"})

        def step() -> None:
            indices = loop.batches.batch(*divmod(loop.step, loop.steps_an_epoch))
            packed, _ = self.feed.batch(indices)
            with torch.no_grad(), loop.cast(packed):
                self.model.encoder(packed, self.layers)
            loop.step += 1

        return step

    def flops(self, line: str) -> float:
        """Of one forward pass of a head alone, by token."""
        loop = self.loop({"head": line})
        packed, _ = self.feed.batch(loop.batches.batch(0, 0)[:4])
        with torch.no_grad(), loop.cast(packed), FlopCounterMode(display=False) as counter:
            states = loop.shared.states(packed)
            before = counter.get_total_flops()
            loop.shared.logits(0, states, packed)
            return float(counter.get_total_flops() - before) / packed.tokens


def seconds(step: Callable[[], Any], steps: int) -> float:
    """Of one step, the mean of several."""
    wait()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - begin) / steps


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def medians(contenders: dict[str, Callable[[], Any]], options: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step of each, taking turns."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for name, step in contenders.items():
        seconds(step, 2 if name in DEEP else options.warmup)
    for _ in range(options.passes):
        for name, step in contenders.items():
            found[name].append(seconds(step, 2 if name in DEEP else options.steps))
    return {name: statistics.median(values) for name, values in found.items()}


def profile(bench: Bench, name: str, line: str) -> None:
    """Of a head without the pass of the encoder: milliseconds on the GPU and on the host, and its longest kernels."""
    loop = bench.loop({name: line})
    packed, answers = bench.feed.batch(loop.batches.batch(0, 0))
    with loop.cast(packed):
        states = loop.shared.states(packed)

    def step() -> None:
        with loop.cast(packed):
            found = loop.shared.logits(0, states, packed)
        task_loss(found, packed, answers).backward()
        loop.optimisers[0][1].step()

    loop.learners[0].head.train()
    step()
    wait()
    begin = time.perf_counter()
    for _ in range(5):
        step()
    host = time.perf_counter() - begin
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        step()
        wait()
    kernels = sorted(found.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    total = sum(kernel.self_device_time_total for kernel in kernels) / 1e3
    print(f"{name:24s} {total:8.2f} ms GPU, {1e3 * host / 5:6.2f} ms host")
    for kernel in kernels[:7]:
        print(f"    {kernel.self_device_time_total / 1e3:8.3f} ms {kernel.count:4d} × {kernel.key[:100]}")


def report(name: str, options: argparse.Namespace, accelerator: Accelerator) -> None:
    windows = options.windows or {"large": 256, "minilm": 1024}.get(name, 8)
    bench = Bench(SHAPES[name], accelerator, windows)
    tokens = int(bench.examples.windows.lengths.sum()) / 8
    print(f"\n{name}: {windows} windows, {tokens:,.0f} tokens a step")
    if options.profile:
        for head in options.heads or HEADS:
            profile(bench, head, {**HEADS, **DEEP}[head])
        return
    together = bench.heads_step(HEADS)
    chosen = {**(HEADS if options.each else {}), **({} if options.no_deep else DEEP)}
    alone = {head: bench.heads_step({head: line}) for head, line in chosen.items()}
    steps = {"forward": bench.forward_step(), "together": together, **alone}
    times = medians(steps, options)
    base = times["forward"]
    cuda = accelerator.device.type == "cuda"
    print(f"{'':24s} ms a step   × forward   GiB a step   head's MFLOPs a token")
    for contender, value in times.items():
        line = {**HEADS, **DEEP}.get(contender)
        memory = peak(steps[contender]) if cuda else float("nan")
        flops = f"{bench.flops(line) / 1e6:12.2f}" if line else ""
        print(f"{contender:24s} {1e3 * value:9.2f} {value / base:11.3f} {memory:12.2f} {flops}")
    if options.each:
        singles = sum(times[head] for head in HEADS)
        print(
            f"{len(HEADS)} single-head runs: {1e3 * singles:.1f} ms; together {times['together'] / singles:.3f} of it"
        )
    epoch = SQUAD / windows * times["together"]
    print(f"an epoch of SQuAD for all {len(HEADS)}: {epoch:.0f} s; the authors', for one: {AUTHORS:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", default=["large", "minilm"], choices=list(SHAPES))
    parser.add_argument("--windows", type=int, help="a step")
    parser.add_argument("--steps", type=int, default=8, help="a pass")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=8, help="steps before the clock runs: all batches once")
    parser.add_argument("--each", action="store_true", help="each head alone, too")
    parser.add_argument("--no-deep", action="store_true", help="leave N×N, Inception and Xception out")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--heads", nargs="+", choices=[*HEADS, *DEEP], help="which to profile; by default all but the deep"
    )
    options = parser.parse_args()
    accelerator = Accelerator(cpu=options.device == "cpu")
    device = torch.cuda.get_device_name() if options.device == "cuda" else hardware()["cpu"]
    print(f"torch {torch.__version__}, {device}")
    for name in options.shapes:
        report(name, options, accelerator)
        if options.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
