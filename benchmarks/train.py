"""Windows a second of the real training loop, beside the bare step of benchmarks/encoder.py, and of each way of tuning.

    python benchmarks/train.py                       # CUDA: BERT-base shape
    python benchmarks/train.py --device cpu --shape tiny --windows 8 --steps 2

Random weights; window lengths follow SQuAD, as in benchmarks/encoder.py. `bare` is forward, loss, backward, clipping
and AdamW over batches that already lie on the device. The others are `quoth.train.Loop`: windows chosen by (seed,
epoch, index), batches gathered on the device, the loss read every ten steps. Contenders take turns; medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from encoder import SHAPES, Contender, free, quoth_contenders, race, window_lengths
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import SpanHead
from quoth.model import apply
from quoth.model.model import Model
from quoth.score.cost import hardware
from quoth.tasks.span_data import Examples, Feed
from quoth.train.harness import EVERY
from quoth.train.loop import Loop
from quoth.train.settings import Optimisation
from quoth.tune.adapters import Adapters
from quoth.tune.bitfit import BitFit
from quoth.tune.freeze import Freeze
from quoth.tune.full import Full
from quoth.tune.lora import LoRA
from quoth.tune.tuning import Tuning
from quoth.windows.columns import Windows

BARE = "bare step, all weights"
TUNINGS: dict[str, Callable[[int], Tuning]] = {
    "L12 (full)": lambda layers: Full(),
    "L6": lambda layers: Freeze(layers // 2),
    'L6, norms = "above"': lambda layers: Freeze(layers // 2, norms="above"),
    "L0": lambda layers: Freeze(0),
    "L0-A64": lambda layers: Adapters(64),
    "L0-A768": lambda layers: Adapters(768),
    "L12-A64": lambda layers: Adapters(64, layers="full"),
    "LoRA 16": lambda layers: LoRA(16, 32.0),
    "BitFit": lambda layers: BitFit(),
}


def examples(count: int, seed: int = 0) -> Examples:
    """Windows of random words with answers somewhere in them."""
    rng = np.random.default_rng(seed)
    lengths = window_lengths(count, rng)
    starts = np.append(0, np.cumsum(lengths))
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    nothing = np.full(len(place), -1, np.int32)
    windows = Windows(
        rng.integers(1000, 28000, len(place)).astype(np.int32),
        (place >= 14).astype(np.int32),
        np.stack([nothing, nothing], 1),
        nothing,
        starts,
        np.arange(count, dtype=np.int32),
        np.stack([np.zeros(count), lengths], 1).astype(np.int32),
    )
    return Examples(windows, np.sort(rng.integers(0, lengths[:, None], (count, 2)), axis=1))


def loop_contender(
    name: str, tuning: Tuning, shape: Shape, feed: Feed, accelerator: Accelerator, options: argparse.Namespace
) -> Contender:
    """The real loop with one way of tuning."""
    model = apply(Model(Encoder(shape), SpanHead(shape.hidden), pooler=True), tuning)
    loop = Loop(model, feed, Optimisation(epochs=1000, windows=options.windows, rate=1e-5), 0, accelerator)

    def step() -> None:
        loop.advance()
        if loop.step % EVERY == 0:
            loop.take_loss()

    return Contender(name, options.windows, step, options.steps)


def peak(step: Callable[[], Any]) -> float:
    """GiB that one step holds at most."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", default="base", choices=list(SHAPES))
    parser.add_argument("--windows", type=int, default=512, help="a step")
    parser.add_argument("--steps", type=int, default=8, help="a pass")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=4)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    accelerator = Accelerator(cpu=options.device == "cpu")
    feed = Feed(examples(16 * options.windows), accelerator.device)
    contenders = [quoth_contenders(shape, options, BARE, options.windows)["training"]]
    for name, make in TUNINGS.items():
        contenders.append(loop_contender(name, make(len(shape.layers)), shape, feed, accelerator, options))
    rates = race(contenders, options)
    device = torch.cuda.get_device_name() if options.device == "cuda" else hardware()["cpu"]
    print(f"{options.shape}, {options.windows} windows a step, torch {torch.__version__}, {device}")
    print(f"{'':24s} windows/s   × of bare   × of L12   GiB a step")
    full = rates["L12 (full)"]
    for contender in contenders:
        value = rates[contender.name]
        memory = peak(contender.step) if options.device == "cuda" else float("nan")
        print(f"{contender.name:24s} {value:9.1f} {value / rates[BARE]:11.3f} {value / full:10.2f} {memory:12.2f}")
    free(options.device)


if __name__ == "__main__":
    main()
