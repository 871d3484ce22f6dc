"""Windows a second of one training step and of inference, beside `transformers`, in one run.

    python -m benchmarks.speed.encoder                     # CUDA: BERT-base and BERT-large shapes
    python -m benchmarks.speed.encoder --device cpu        # CPU: BERT-base, a few windows
    python -m benchmarks.speed.encoder --shapes mpnet      # with relative position biases
    python -m benchmarks.speed.encoder --profile           # where the time of a step goes (CUDA)

All weights are random. Window lengths follow SQuAD (mean 180, at most 384). A training step is forward, span loss,
backward, gradient clipping, AdamW; dropout 0.1 everywhere, attention too. Contenders take turns, `--passes` times;
the figures are medians.

    quoth                packed, bf16 autocast over fp32 weights, 256 windows a step
    quoth, batch 512     the same with twice the windows
    quoth compiled       the same as the first, each layer through torch.compile
    quoth bf16 weights   weights, gradients and AdamW in bf16, 512 windows: beside the same of transformers
    irregular            schuBERT's 99M shape (its table 12), k ≠ v: does it stay on the fast path?
    no biases            of mpnet: the same shape without relative position biases
    without the kernel   of mpnet: attention by scaled_dot_product_attention, biases as its mask
    transformers         padded to 384, the best of several batch sizes: autocast, and weights in bf16
    run_qa defaults      fp32, padded to 384, 8 windows a step
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.race import Contender, machine, race, run
from benchmarks.speed.batches import IRREGULAR, SHAPES, packed_batches, padded_batches, window_lengths
from quoth.encoder import attention as paths
from quoth.encoder.attention import FLASH_LIMIT
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.files import write_json
from quoth.heads.linear import SpanHead
from quoth.tasks.span import span_loss
from quoth.windows.packed import Packed


class PackedModel(nn.Module):
    """Encoder and span head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.encoder = Encoder(shape)
        self.head = SpanHead(shape.hidden)

    def forward(self, packed: Packed[Tensor]) -> tuple[Tensor, Tensor]:
        """Start and end logits, (T,) each."""
        return self.head(self.encoder(packed))  # type: ignore[no-any-return]


def finish(model: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Backward, clipping, AdamW."""
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def optimiser_for(model: nn.Module, device: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=device == "cuda")


def autocast(device: str, off: bool) -> Any:
    """Mixed precision on CUDA unless it is `off`; fp32 on the CPU, for both contenders alike."""
    return nullcontext() if off or device != "cuda" else torch.autocast(device, torch.bfloat16)


def quoth_contenders(
    shape: Shape,
    options: argparse.Namespace,
    windows: int,
    *,
    compiled: bool = False,
    pure: bool = False,
    limit: int = FLASH_LIMIT,
) -> dict[str, Contender]:
    """Training and inference of a Quoth encoder of this shape; `pure` keeps its weights in bf16.

    limit: the widest heads that the flash kernel is used for
    """
    device = options.device
    model = PackedModel(shape).to(device, torch.bfloat16 if pure else torch.float32)
    if compiled:
        for layer in model.encoder.layers:
            layer.compile(dynamic=True)
    optimiser = optimiser_for(model, device)
    data = cycle(packed_batches(4, windows, device))

    def train() -> None:
        packed, answers = next(data)
        with autocast(device, pure), patch.object(paths, "FLASH_LIMIT", limit):
            start, end = model.train()(packed)
        finish(model, optimiser, span_loss(start, end, packed, answers) / windows)

    @torch.inference_mode()
    def infer() -> Tensor:
        with autocast(device, pure), patch.object(paths, "FLASH_LIMIT", limit):
            return model.eval()(next(data)[0])[0]  # type: ignore[no-any-return]

    steps = max(1, options.steps * options.batch_size // windows)
    return {"training": Contender(train, windows, steps), "inference": Contender(infer, windows, steps)}


def transformers_contenders(
    shape: Shape, options: argparse.Namespace, batch: int, precision: str, attention: str = "sdpa"
) -> dict[str, Contender]:
    """Training and inference of transformers' BertForQuestionAnswering, every window padded to 384; or MPNet's.

    attention: the implementation; "sdpa" is its default, but MPNet has none but "eager"
    """
    import transformers  # optional, and slow to import

    device = options.device
    layer = shape.layers[0]
    mpnet = bool(shape.relative_buckets)
    config: Any = (transformers.MPNetConfig if mpnet else transformers.BertConfig)(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=len(shape.layers),
        num_attention_heads=layer.heads,
        intermediate_size=layer.ffn,
        max_position_embeddings=shape.positions,
        attn_implementation="eager" if mpnet else attention,
    )
    kind: Any = transformers.MPNetForQuestionAnswering if mpnet else transformers.BertForQuestionAnswering
    model: Any = kind(config).to(device)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    optimiser = optimiser_for(model, device)
    data = cycle(padded_batches(4, batch, device))
    plain = precision != "autocast"

    def train() -> None:
        inputs, answers = next(data)
        with autocast(device, plain):
            inputs = {key: value for key, value in inputs.items() if shape.types or key != "token_type_ids"}
            loss = model.train()(**inputs, start_positions=answers[:, 0], end_positions=answers[:, 1]).loss
        finish(model, optimiser, loss)

    @torch.inference_mode()
    def infer() -> Tensor:
        with autocast(device, plain):
            inputs = {key: value for key, value in next(data)[0].items() if shape.types or key != "token_type_ids"}
            return model.eval()(**inputs).start_logits  # type: ignore[no-any-return]

    steps = max(2, options.steps * options.batch_size // batch // (8 if precision == "fp32" else 4))
    return {"training": Contender(train, batch, steps), "inference": Contender(infer, batch, steps)}


def best_transformers(shape: Shape, options: argparse.Namespace, precision: str) -> dict[str, tuple[str, Contender]]:
    """The fastest batch size of transformers, by one short run of each; training and inference apart."""
    best: dict[str, tuple[float, int]] = {}
    for batch in options.batches:
        for task, contender in transformers_contenders(shape, options, batch, precision).items():
            run(contender, 2)
            steps = max(3, contender.steps // 4)
            best[task] = max(best.get(task, (0.0, 0)), (steps * batch / run(contender, steps), batch))
        free(options.device)
    name = {"autocast": "transformers autocast", "bf16": "transformers bf16 weights"}[precision]
    return {
        task: (f"{name}, batch {batch}", transformers_contenders(shape, options, batch, precision)[task])
        for task, (_, batch) in best.items()
    }


def matrix_peak() -> float:
    """bf16 matrix products of 8192³, in TFLOP/s: what this GPU gives."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = Contender(lambda: a @ b)
    run(product, 5)
    return 20 * 2 * 8192**3 / run(product, 20) / 1e12


def free(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()


def teraflops(shape: Shape, windows_a_second: float, passes: int) -> float:
    """TFLOP/s of useful work on real tokens; a backward pass costs two forward ones."""
    lengths = window_lengths(4096, np.random.default_rng(0)).astype(float)
    a_token = shape.flops(0) + (shape.flops(1) - shape.flops(0)) * (lengths**2).sum() / lengths.sum()
    return float(passes * a_token * lengths.mean() * windows_a_second / 1e12)


def contenders(name: str, options: argparse.Namespace) -> dict[str, dict[str, Contender]]:
    """All contenders of one shape, by task and name."""
    shape, windows = SHAPES[name], options.batch_size
    ours = {"quoth": quoth_contenders(shape, options, windows)}
    found: dict[str, dict[str, Contender]] = {"training": {}, "inference": {}}
    if options.device == "cuda":
        double = 2 * windows
        ours[f"quoth, batch {double}"] = quoth_contenders(shape, options, double)
        ours["quoth bf16 weights"] = quoth_contenders(shape, options, double, pure=True)
        if options.compile:
            ours["quoth compiled"] = quoth_contenders(shape, options, windows, compiled=True)
        if name == "base":
            ours["irregular (schuBERT 99M)"] = quoth_contenders(IRREGULAR, options, windows)
        if shape.relative_buckets:
            ours["no biases"] = quoth_contenders(replace(shape, relative_buckets=0), options, windows)
            ours["without the kernel"] = quoth_contenders(shape, options, windows // 4, limit=0)
    for task, here in found.items():
        here |= {contender: entry[task] for contender, entry in ours.items()}
    if options.device == "cuda":
        for precision in ("autocast", "bf16"):
            for task, (contender, entry) in best_transformers(shape, options, precision).items():
                found[task][contender] = entry
    defaults = transformers_contenders(shape, options, 8, "fp32")
    return {task: {**here, "run_qa defaults": defaults[task]} for task, here in found.items()}


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Race all contenders of one shape, and print their table."""
    results = {}
    made = contenders(name, options)
    for task, passes in (("training", 3), ("inference", 1)):
        times = race(made[task], options.passes, warmup=options.warmup)
        results[task] = times.rates()
        print(f"\n{name}, {task}: windows/s | quoth is × as fast | TFLOP/s on real tokens")
        for contender, value in results[task].items():
            shape = IRREGULAR if contender.startswith("irregular") else SHAPES[name]
            ratio = times.ratio("quoth", contender).median
            print(f"  {contender:34s} {value:10.1f} {ratio:8.2f} {teraflops(shape, value, passes):9.1f}")
    free(options.device)
    return results


def profile(options: argparse.Namespace) -> None:
    """Where a training step's GPU time goes."""
    shape = SHAPES[options.shapes[0]]
    step = quoth_contenders(shape, options, options.batch_size, compiled=options.compile)["training"].step
    for _ in range(3):
        step()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    print(recorded.key_averages().table(sort_by="self_cuda_time_total", row_limit=28, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), help="base and large on CUDA, base on a CPU")
    parser.add_argument("--batch-size", type=int, help="windows a step of quoth: 256 on CUDA, 8 on a CPU")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128], help="transformers' batch sizes")
    parser.add_argument("--steps", type=int, help="of a pass: 10 on CUDA, 1 on a CPU")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock runs, at most those of a pass")
    parser.add_argument("--passes", type=int, default=3, help="turns of every contender")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="race torch.compile too")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step instead")
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    options.shapes = options.shapes or (["base", "large"] if cuda else ["base"])
    options.batch_size = options.batch_size or (256 if cuda else 8)
    options.steps = options.steps or (10 if cuda else 1)
    torch.manual_seed(0)
    results: dict[str, Any] = {"machine": machine(options.device, ("torch",)), "threads": torch.get_num_threads()}
    print(f"{results['machine']}, {results['threads']} threads")
    if options.profile:
        return profile(options)
    if cuda:
        results["matrix peak TFLOP/s"] = matrix_peak()
        print(f"bf16 matrix peak, measured: {results['matrix peak TFLOP/s']:.0f} TFLOP/s")
    for name in options.shapes:
        results[name] = compare(name, options)
    if options.json:
        write_json(options.json, results)
    return None


if __name__ == "__main__":
    main()
