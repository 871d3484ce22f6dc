"""Windows a second of inference alone on a GPU: `Encoder` beside its form for inference, in turns, in one run.

    python -m benchmarks.speed.inference                      # BERT-base, and a pruned one of hidden size 572
    python -m benchmarks.speed.inference --shapes large

All weights are random. Window lengths follow SQuAD (mean 180, at most 384); the head is a span head.

    encoder      `Encoder` under autocast: the hidden size as it is
    ready        `InferenceEncoder`: weights in bf16, every size padded to a multiple of 8
    fp8          `Fp8Encoder` (Hopper GPUs): the products of the layers in fp8

Under the table: how far the states and logits in fp8 are from those in fp32, beside bf16, and how many windows have the
same best start and end. With random weights logits lie close together: a reader that was trained differs less.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.race import Contender, machine, markdown, race
from benchmarks.speed.batches import IRREGULAR, SHAPES, packed_batches
from quoth.encoder.device import HOPPER, Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.inference import for_inference
from quoth.encoder.shape import Shape
from quoth.files import write_json
from quoth.heads.linear import SpanHead

PRUNED = replace(IRREGULAR, embedding=572, hidden=572)  # schuBERT's layers of 99M, and a hidden size no multiple of 8
ALL = {**SHAPES, "irregular": IRREGULAR, "pruned": PRUNED}


def inference_contenders(shape: Shape, windows: int, steps: int) -> dict[str, Contender]:
    """The forms of one model, on the same batches."""
    torch.manual_seed(0)
    encoder, head = Encoder(shape).to("cuda").eval(), SpanHead(shape.hidden).to("cuda")
    device = Device.choose("cuda", "bf16")
    batches = packed_batches(4, windows, "cuda")

    def contender(compute: Callable[..., Any]) -> Contender:
        data = cycle(batches)

        @torch.inference_mode()
        def step() -> tuple[Tensor, Tensor]:
            with device.autocast():
                return head(compute(next(data)[0]))  # type: ignore[no-any-return]

        return Contender(step, windows, steps)

    made = {"encoder": contender(encoder), "ready": contender(for_inference(encoder, device))}
    if torch.cuda.get_device_capability() == HOPPER:
        made["fp8"] = contender(for_inference(encoder, Device.choose("cuda", "fp8")))
    return made


@torch.inference_mode()
def errors(shape: Shape) -> str:
    """How far bf16 and fp8 are from fp32, on 64 windows."""
    torch.manual_seed(0)
    encoder, head = Encoder(shape).to("cuda").eval(), SpanHead(shape.hidden).to("cuda")
    packed = packed_batches(1, 64, "cuda")[0][0]
    (truth,), lines = encoder(packed), []
    exact = torch.stack(head((truth,)))
    for precision in ("bf16", "fp8"):
        device = Device.choose("cuda", precision)
        with device.autocast():
            states = for_inference(encoder, device)(packed)
            found = torch.stack(head(states)).float()
        error = ((states[0].float() - truth).norm() / truth.norm()).item()
        same = np.mean(
            [
                bool((a.argmax(1) == b.argmax(1)).all())
                for a, b in zip(found.split(packed.lengths, 1), exact.split(packed.lengths, 1))
            ]
        )
        apart = (found - exact).abs()
        lines.append(
            f"{precision}: states {100 * error:.2f} %, logits by {apart.mean():.4f}, at most {apart.max():.4f} "
            f"(σ {exact.std():.4f}), {100 * same:.0f} % of the windows with the same best span"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(ALL), default=["base", "pruned"])
    parser.add_argument("--windows", type=int, default=512, help="of a batch")
    parser.add_argument("--steps", type=int, default=10, help="batches of a turn")
    parser.add_argument("--passes", type=int, default=5, help="turns of every contender")
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    contenders = {
        f"{name}: {kind}": contender
        for name in options.shapes
        for kind, contender in inference_contenders(ALL[name], options.windows, options.steps).items()
    }
    times = race(contenders, options.passes, warmup=3)
    first = next(iter(contenders))
    rows = [[name, f"{times.rate(name):,.0f}", str(times.ratio(name, first))] for name in contenders]
    print(machine("cuda", ("torch", "triton")))
    print(markdown(["", "windows/s", f"× {first}"], rows))
    for name in options.shapes if torch.cuda.get_device_capability() == HOPPER else ():
        print(f"{name}, from fp32\n{errors(ALL[name])}")
    if options.json:
        write_json(Path(options.json), {"machine": machine("cuda", ("torch", "triton")), "seconds": times.seconds})


if __name__ == "__main__":
    main()
